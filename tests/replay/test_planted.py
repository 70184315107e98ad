"""`verify` finds each of 100 edits that somebody planted in a closed store, also where every link was reckoned anew (S1.24).

The store is a real one: threads of a harness with tools, forks, a rollback, notes, blobs and an erased prompt. Whoever rewrites
the store and its sidecar alike is not found; nobody claims that.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
import pytest

from evener import Harness, tool
from evener.events import Opened, decode_event, encode_event
from evener.store import Finding, SqliteStore
from evener.store.integrity.digests import digest_of, link, origin_of, stone_of
from evener.store.tombstones import blanked
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import ToolCall
from tests.driver.stage import quick_folder

EDITS_EACH = 4
STORE = "evener.db"

Connection = sqlite3.Connection
Edit = Callable[[Connection, Random], None]
EDITS: dict[str, Edit] = {}


def edit(made: Edit) -> Edit:
    EDITS[made.__name__] = made
    return made


# The store.


async def fill(path: Path) -> None:
    @tool(effect="read")
    def count(x: int) -> str:
        """Count up."""
        return " ".join(map(str, range(x)))

    def said(number: int) -> list[object]:
        return [calls(ToolCall.of(f"c{number}", "count", {"x": 10 ** (number % 2 * 5)})), f"answer {number}"]

    store = SqliteStore(path)
    lines = [line for number in range(12) for line in said(number)]
    harness = Harness(ScriptedModel(lines), tools=[count], system="Be brief.", store=store, name="planted")  # type: ignore[arg-type]
    for _ in range(2):
        thread = harness.thread()
        await thread.run("one")
        await thread.run("two")
        fork = await thread.fork(at=10)
        await fork.run("three")
        await thread.rollback()
        await thread.steer("by the way")
        await thread.run("four")
    await store.erase(thread.id, seqs=[3])
    await store.aclose()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the store as it was written."""
    with quick_folder(tmp_path_factory.mktemp("whole")) as folder:
        asyncio.run(fill(folder / STORE))
        with closing(sqlite3.connect(folder / STORE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield folder


def checked(path: Path) -> list[Finding]:
    async def look() -> list[Finding]:
        store = SqliteStore(path)
        try:
            return list(await store.verify())
        finally:
            await store.aclose()

    return asyncio.run(look())


# What somebody may do. Rows are picked by the seed.


def one(connection: Connection, random: Random, query: str, *values: object) -> tuple[object, ...]:
    found = connection.execute(query, values).fetchall()
    assert found, query
    row: tuple[object, ...] = random.choice(found)
    return row


def some_event(connection: Connection, random: Random, *, inner: bool = False) -> tuple[int, int]:
    """Log and number of an event that was not erased; with `inner`, neither the first nor the last of its log."""
    query = "SELECT e.log, e.seq FROM events e JOIN logs l ON l.number = e.log WHERE e.erased IS NULL"
    inside = " AND e.seq > l.base + 1 AND e.seq < l.length - 1"
    log, seq = one(connection, random, query + inside * inner)
    return int(str(log)), int(str(seq))


def change(connection: Connection, event: tuple[int, int], /, **columns: object) -> None:
    words = ", ".join(f"{name} = ?" for name in columns)
    connection.execute(f"UPDATE events SET {words} WHERE log = ? AND seq = ?", (*columns.values(), *event))


def value(connection: Connection, at: tuple[int, int], column: str) -> object:
    (found,) = connection.execute(f"SELECT {column} FROM events WHERE log = ? AND seq = ?", at).fetchone()
    return found


def flipped(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << random.randrange(8))]) + content[place + 1 :]


def edited(payload: bytes) -> bytes:
    """The payload with a later time in it: an event that could be."""
    event = decode_event(payload)
    return encode_event(msgspec.structs.replace(event, at=event.at + 1.0))


def relink(connection: Connection, log: int, first: int, *, last: int = 1 << 40) -> None:
    """Reckon the links of a log anew, from this event on: as somebody would who knows how."""
    name, length, base = connection.execute("SELECT log, length, base FROM logs WHERE number = ?", (log,)).fetchone()
    before = origin_of(name) if first == base + 1 else value(connection, (log, first - 1), "chain")
    assert isinstance(before, bytes)
    for seq in range(first, min(last, length) + 1):
        at = (log, seq)
        version, time, kind, rule = connection.execute(
            "SELECT version, at, kind, rule FROM events WHERE log = ? AND seq = ?", at
        ).fetchone()
        digest = value(connection, at, "digest")
        assert isinstance(digest, bytes)
        before = link(before, digest, seq=seq, version=version, at=time, kind=kind, rule=rule)
        change(connection, at, chain=before)
    if last >= length:
        connection.execute("UPDATE logs SET head = ? WHERE number = ?", (before, log))
        connection.execute("UPDATE checkpoints SET seq = ?, chain = ? WHERE log = ?", (length, before, log))


def rewrite(connection: Connection, at: tuple[int, int]) -> None:
    """Another payload, with its digest and its time."""
    payload = value(connection, at, "payload")
    assert isinstance(payload, bytes)
    new = edited(payload)
    change(connection, at, payload=new, digest=digest_of(new), at=decode_event(new).at)


@edit
def a_byte_of_a_payload(connection: Connection, random: Random) -> None:
    at = some_event(connection, random)
    payload = value(connection, at, "payload")
    assert isinstance(payload, bytes)
    change(connection, at, payload=flipped(payload, random))


@edit
def a_payload_with_its_digest(connection: Connection, random: Random) -> None:
    rewrite(connection, some_event(connection, random))


@edit
def a_payload_with_its_own_link(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random, inner=True)
    rewrite(connection, (log, seq))
    relink(connection, log, seq, last=seq)


@edit
def a_payload_with_every_link_after_it(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random)
    rewrite(connection, (log, seq))
    relink(connection, log, seq)


@edit
def a_kind(connection: Connection, random: Random) -> None:
    change(connection, some_event(connection, random), kind="noted")


@edit
def a_time(connection: Connection, random: Random) -> None:
    change(connection, some_event(connection, random), at=random.random() * 1e9)


@edit
def a_version(connection: Connection, random: Random) -> None:
    change(connection, some_event(connection, random), version=random.choice((0, 2, 7)))


@edit
def a_rule(connection: Connection, random: Random) -> None:
    change(connection, some_event(connection, random), rule=random.choice((0, 1, 3)))


@edit
def a_kind_with_every_link(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random)
    change(connection, (log, seq), kind="noted")
    relink(connection, log, seq)


@edit
def an_event_taken_out(connection: Connection, random: Random) -> None:
    connection.execute("DELETE FROM events WHERE log = ? AND seq = ?", some_event(connection, random, inner=True))


@edit
def an_event_taken_out_and_the_rest_moved_up(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random, inner=True)
    connection.execute("DELETE FROM events WHERE log = ? AND seq = ?", (log, seq))
    later = connection.execute("SELECT seq FROM events WHERE log = ? AND seq > ? ORDER BY seq", (log, seq)).fetchall()
    for (number,) in later:
        connection.execute("UPDATE events SET seq = seq - 1 WHERE log = ? AND seq = ?", (log, number))
    connection.execute("UPDATE logs SET length = length - 1 WHERE number = ?", (log,))
    relink(connection, log, seq)


@edit
def the_tail(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random, inner=True)
    connection.execute("DELETE FROM events WHERE log = ? AND seq > ?", (log, seq))


@edit
def the_tail_with_length_and_head(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random, inner=True)
    connection.execute("DELETE FROM events WHERE log = ? AND seq > ?", (log, seq))
    head = value(connection, (log, seq), "chain")
    connection.execute("UPDATE logs SET length = ?, head = ? WHERE number = ?", (seq, head, log))
    connection.execute("UPDATE checkpoints SET seq = ?, chain = ? WHERE log = ?", (seq, head, log))


@edit
def two_numbers_swapped(connection: Connection, random: Random) -> None:
    swap(connection, *some_event(connection, random, inner=True))


@edit
def two_events_swapped_with_every_link(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random, inner=True)
    swap(connection, log, seq)
    relink(connection, log, seq)


def swap(connection: Connection, log: int, seq: int) -> None:
    for old, new in ((seq, -1), (seq + 1, seq), (-1, seq + 1)):
        connection.execute("UPDATE events SET seq = ? WHERE log = ? AND seq = ?", (new, log, old))


@edit
def an_event_given_to_another_log(connection: Connection, random: Random) -> None:
    log, seq = some_event(connection, random, inner=True)
    (other,) = one(connection, random, "SELECT number FROM logs WHERE number != ? AND length < ?", log, 1 << 40)
    connection.execute("UPDATE OR REPLACE events SET log = ? WHERE log = ? AND seq = ?", (other, log, seq))


@edit
def the_parent_hash_of_a_fork(connection: Connection, random: Random) -> None:
    (number,) = one(connection, random, "SELECT number FROM logs WHERE base > 0")
    connection.execute("UPDATE logs SET parent_hash = ? WHERE number = ?", (random.randbytes(32).hex(), number))


@edit
def the_parent_of_a_fork_with_what_its_first_event_says(connection: Connection, random: Random) -> None:
    """The fork is hung elsewhere on its parent, and everything in it agrees."""
    number, seq = one(connection, random, "SELECT number, parent_seq FROM logs WHERE base > 0")
    at = (int(str(number)), int(str(seq)) + 1)
    payload = value(connection, at, "payload")
    assert isinstance(payload, bytes)
    event = decode_event(payload)
    assert isinstance(event, Opened)
    new = encode_event(msgspec.structs.replace(event, parent_hash="0" * 64))
    change(connection, at, payload=new, digest=digest_of(new))
    connection.execute("UPDATE logs SET parent_hash = ? WHERE number = ?", ("0" * 64, number))
    relink(connection, *at)


@edit
def the_head_of_a_log(connection: Connection, random: Random) -> None:
    (number,) = one(connection, random, "SELECT number FROM logs")
    connection.execute("UPDATE logs SET head = ? WHERE number = ?", (random.randbytes(32), number))


@edit
def the_length_of_a_log(connection: Connection, random: Random) -> None:
    (number,) = one(connection, random, "SELECT number FROM logs")
    connection.execute("UPDATE logs SET length = length + ? WHERE number = ?", (random.choice((-1, 1, 5)), number))


@edit
def a_log_renamed(connection: Connection, random: Random) -> None:
    (number,) = one(connection, random, "SELECT number FROM logs")
    connection.execute("UPDATE logs SET log = ? WHERE number = ?", (random.randbytes(16).hex(), number))


@edit
def a_whole_log_taken_out(connection: Connection, random: Random) -> None:
    (number,) = one(connection, random, "SELECT number FROM logs")
    for statement in ("events WHERE log", "inbox WHERE log", "checkpoints WHERE log", "logs WHERE number"):
        connection.execute(f"DELETE FROM {statement} = ?", (number,))


@edit
def a_byte_of_a_blob(connection: Connection, random: Random) -> None:
    number, content = one(connection, random, "SELECT id, content FROM blobs")
    assert isinstance(content, bytes)
    connection.execute("UPDATE blobs SET content = ? WHERE id = ?", (flipped(content, random), number))


@edit
def an_erasure_feigned(connection: Connection, random: Random) -> None:
    change(connection, some_event(connection, random), erased=random.random() * 1e9)


@edit
def an_erasure_feigned_with_its_stone(connection: Connection, random: Random) -> None:
    """As an erasure is made, down to the tombstone: only the sidecar knows that there was none."""
    at = some_event(connection, random)
    payload, digest = value(connection, at, "payload"), value(connection, at, "digest")
    assert isinstance(payload, bytes)
    assert isinstance(digest, bytes)
    blank = encode_event(blanked(decode_event(payload)))
    change(connection, at, payload=blank, erased=5.0, stone=stone_of(digest, 5.0, blank))


@edit
def words_put_on_a_tombstone(connection: Connection, random: Random) -> None:
    log, seq, payload = one(connection, random, "SELECT log, seq, payload FROM events WHERE erased IS NOT NULL")
    assert isinstance(payload, bytes)
    change(connection, (int(str(log)), int(str(seq))), payload=payload.replace(b"[erased]", b"[I agree]"))


ALL = [(name, seed) for name in EDITS for seed in range(EDITS_EACH)]


def test_there_are_a_hundred() -> None:
    assert len(ALL) >= 100


def test_where_nobody_was_nothing_is_found(whole: Path) -> None:
    """S1.24."""
    assert checked(whole / STORE) == []


@pytest.mark.parametrize("name", EDITS)
def test_a_planted_edit_is_found(name: str, whole: Path, tmp_path: Path) -> None:
    """S1.24."""
    for seed in range(EDITS_EACH):
        folder = tmp_path / str(seed)
        shutil.copytree(whole, folder)
        with closing(sqlite3.connect(folder / STORE)) as connection:
            EDITS[name](connection, Random(f"{name} {seed}"))
            connection.commit()
        found = checked(folder / STORE)
        assert found, f"{name}, seed {seed}"
        assert any(one.damage for one in found) or name == "an_erasure_feigned_with_its_stone"
