"""What `verify` finds: each change of bytes, order or presence, also where no reader would look; else nothing."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import MediaFetched, Opened
from evener.store import Finding, NoLog, SqliteStore
from evener.store.integrity import digests
from evener.store.integrity.digests import stone_of
from tests.store.stores import opened, run, said

LENGTH = 300


async def filled(path: Path) -> None:
    """A thread with a fork, another thread, and a blob."""
    store = SqliteStore(path)
    log = await store.create("a", opened("a"), holder="me")
    await log.append(*(said(f"{number}") for number in range(LENGTH - 1)))
    point = await store.link("a", 50)
    first = Opened(at=1.0, thread="a", parent="a", parent_seq=point.seq, parent_hash=point.hash)
    fork = await store.create("fork", first, holder="me")
    await fork.append(said("x"), said("y"))
    other = await store.create("b", opened("b"), holder="me")
    await other.append(said("z"))
    await store.put_blob(b"a picture")
    await store.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run(filled(tmp_path / "evener.db"))
    return tmp_path / "evener.db"


async def checked(path: Path, log: str = "") -> list[Finding]:
    store = SqliteStore(path)
    found = list(await store.verify(log))
    await store.aclose()
    return found


def rewrite(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def places(findings: list[Finding]) -> set[tuple[str, int]]:
    return {(finding.log, finding.seq) for finding in findings if finding.damage}


@pytest.mark.parametrize("log", ["", "a", "fork", "b"])
def test_where_all_is_well_nothing_is_found(path: Path, log: str) -> None:
    assert run(checked(path, log)) == []


def test_an_unknown_log_is_named(path: Path) -> None:
    with pytest.raises(NoLog, match="no log 'nowhere'"):
        run(checked(path, "nowhere"))


A = "log = (SELECT number FROM logs WHERE log = 'a')"
SAID = "digest, payload"
REST = "version, at, kind, digest, chain, payload, rule, erased, stone"
EDITS: dict[str, tuple[str, tuple[str, int]]] = {
    "a payload": (f"UPDATE events SET payload = CAST(replace(payload, '70', '07') AS BLOB) WHERE {A} AND seq = 72", ("a", 72)),
    "a payload and its digest": (
        f"UPDATE events SET payload = x'7b7d', digest = x'{sha256(b'{}').hexdigest()}' WHERE {A} AND seq = 72",
        ("a", 72),
    ),
    "a payload taken away": (f"UPDATE events SET payload = NULL WHERE {A} AND seq = 72", ("a", 72)),
    "a kind": (f"UPDATE events SET kind = 'opened' WHERE {A} AND seq = 72", ("a", 72)),
    "a time": (f"UPDATE events SET at = 5 WHERE {A} AND seq = 72", ("a", 72)),
    "a version": (f"UPDATE events SET version = 2 WHERE {A} AND seq = 72", ("a", 72)),
    "a rule": (f"UPDATE events SET rule = 1 WHERE {A} AND seq = 72", ("a", 72)),
    "a link": (f"UPDATE events SET chain = zeroblob(32) WHERE {A} AND seq = 72", ("a", 72)),
    "an event taken out": (f"DELETE FROM events WHERE {A} AND seq = 72", ("a", 72)),
    "the first event taken out": (f"DELETE FROM events WHERE {A} AND seq = 1", ("a", 1)),
    "the last event taken out": (f"DELETE FROM events WHERE {A} AND seq = {LENGTH}", ("a", LENGTH - 1)),
    "events after the end": (
        f"INSERT INTO events SELECT NULL, log, seq + 1, {REST} FROM events WHERE {A} AND seq = {LENGTH}",
        ("a", LENGTH + 1),
    ),
    "two events swapped": (
        "; ".join(f"UPDATE events SET seq = {new} WHERE {A} AND seq = {old}" for old, new in ((71, 999), (72, 71), (999, 72))),
        ("a", 71),
    ),
    "an event of another log": (
        f"UPDATE events SET ({SAID}) = (SELECT {SAID} FROM events WHERE log = 3 AND seq = 2) WHERE {A} AND seq = 72",
        ("a", 72),
    ),
    "a feigned erasure": (f"UPDATE events SET erased = 1.0, stone = zeroblob(32) WHERE {A} AND seq = 72", ("a", 72)),
    "the length": ("UPDATE logs SET length = 299 WHERE log = 'a'", ("a", LENGTH)),
    "the head": ("UPDATE logs SET head = zeroblob(32) WHERE log = 'a'", ("a", LENGTH)),
    "the base of a fork": ("UPDATE logs SET base = 49 WHERE log = 'fork'", ("fork", 50)),
    "the parent of a fork": ("UPDATE logs SET parent = 'b' WHERE log = 'fork'", ("fork", 51)),
    "the parent's number": ("UPDATE logs SET parent_seq = 49 WHERE log = 'fork'", ("fork", 51)),
    "the parent's hash": ("UPDATE logs SET parent_hash = '00' WHERE log = 'fork'", ("fork", 51)),
    "a log renamed": ("UPDATE logs SET log = 'c' WHERE log = 'b'", ("b", 0)),
    "a log taken out": (
        "; ".join(f"DELETE FROM {table} = 3" for table in ("checkpoints WHERE log", "events WHERE log", "logs WHERE number")),
        ("b", 0),
    ),
    "events without their log": ("DELETE FROM logs WHERE log = 'b'", ("", 0)),
    "a blob": ("UPDATE blobs SET content = x'00'", ("", 0)),
    "the size of a blob": ("UPDATE blobs SET size = 1", ("", 0)),
    "a head that is not there": ("INSERT INTO heads VALUES ('a', 'nowhere')", ("a", 0)),
    "a head of another thread": ("INSERT INTO heads VALUES ('a', 'b')", ("a", 0)),
    "the head of no thread": ("INSERT INTO heads VALUES ('nobody', 'b')", ("nobody", 0)),
    "the thread of a log": ("UPDATE logs SET thread = 'b' WHERE log = 'a'", ("a", 1)),
    "the harness of a log": ("UPDATE logs SET harness = 'x' WHERE log = 'a'", ("a", 1)),
    "the beginning of a log": ("UPDATE logs SET began = 5 WHERE log = 'a'", ("a", 1)),
    "the last change of a log": ("UPDATE logs SET changed = 5 WHERE log = 'a'", ("a", LENGTH)),
    "a change at no time": ("UPDATE logs SET changed = 'x' WHERE log = 'a'", ("a", LENGTH)),
    "a parent for a root": ("UPDATE logs SET parent = 'b' WHERE log = 'a'", ("a", 1)),
    "a log said to be erased": ("UPDATE logs SET erased = 5 WHERE log = 'a'", ("a", 1)),
    "a note settled by nothing": ("INSERT INTO inbox VALUES (1, 1, 'k', 'steer', '{}', 999)", ("a", 0)),
    "a checkpoint": ("UPDATE checkpoints SET chain = zeroblob(32) WHERE log = 1", ("a", LENGTH)),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_found_where_it_was_made(path: Path, edit: str) -> None:
    script, place = EDITS[edit]
    rewrite(path, script)
    found = run(checked(path))
    assert place in places(found)
    assert all(finding.what.endswith((".", ").")) for finding in found)


def test_a_change_to_the_parent_is_found_at_the_fork_too(path: Path) -> None:
    """Whoever rewrites an event and all that comes after it in its log still leaves what the fork names."""
    rewrite(path, f"UPDATE events SET chain = zeroblob(32) WHERE {A} AND seq = 50")
    assert {("a", 50), ("a", 51), ("fork", 51)} <= places(run(checked(path, "fork")))


def cut(path: Path, length: int) -> None:
    """Take the end of log `a` away as somebody who knows the tables would do it."""
    rewrite(
        path,
        f"DELETE FROM events WHERE {A} AND seq > {length};"
        f"UPDATE logs SET length = {length}, head = (SELECT chain FROM events WHERE {A} AND seq = {length}) WHERE log = 'a';"
        f"DELETE FROM checkpoints WHERE {A}",
    )


def test_a_lost_end_is_found_by_the_sidecar_only(path: Path) -> None:
    cut(path, 280)
    found = run(checked(path))
    assert places(found) == {("a", LENGTH)}
    assert "Its end is lost" in found[0].what
    path.with_name("evener.db.heads").unlink()
    assert [(finding.damage, "sidecar file is missing" in finding.what) for finding in run(checked(path))] == [(False, True)]


def test_a_lost_end_is_still_found_when_the_log_has_grown_again(path: Path) -> None:
    cut(path, 200)

    async def grow() -> None:
        store = SqliteStore(path)
        log, _ = await store.open("a", holder="me")
        await log.append(*(said(f"new {number}") for number in range(200)))
        await store.aclose()

    run(grow())
    assert places(run(checked(path))) == {("a", LENGTH)}


@pytest.mark.parametrize("end", [b"0123abcd", b'12345678 {"type":"mark"', b"\xff\xfe\x00 garbage \n"])
def test_a_sidecar_that_was_cut_off_is_no_damage_and_is_written_on(path: Path, end: bytes) -> None:
    with path.with_name("evener.db.heads").open("ab") as file:
        file.write(end)

    async def grow() -> None:
        store = SqliteStore(path)
        log, _ = await store.open("b", holder="me")
        await log.append(said("more"))
        await store.aclose()

    run(grow())
    (found,) = run(checked(path))
    assert (found.damage, "cannot be read" in found.what) == (False, True)
    rewrite(path, "DELETE FROM events WHERE log = 3 AND seq = 3; UPDATE logs SET length = 2 WHERE log = 'b'")
    assert ("b", 3) in places(run(checked(path)))


def test_a_large_sidecar_is_shortened_to_the_last_of_each_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "LARGEST", 2_000)
    file = path.with_name("evener.db.heads")

    async def grow() -> None:
        store = SqliteStore(path)
        for number in range(50):
            log, _ = await store.open("b", holder="me")
            await log.append(said(str(number)))
            await log.aclose()
        await store.erase("b", seqs=[2])
        await store.aclose()

    run(grow())
    assert file.stat().st_size < 4_000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run(checked(path)) == []
    cut(path, 280)
    rewrite(path, "DELETE FROM events WHERE log = 3 AND seq > 40; UPDATE logs SET length = 40 WHERE log = 'b'")
    assert {("a", LENGTH), ("b", 52)} <= places(run(checked(path)))


def test_a_sidecar_that_must_stay_large_is_not_written_again_each_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was erased must be known for ever; a mark more must not cost as much as all of that."""
    shortened: list[int] = []
    shorten = digests.Sidecar._shorten

    def counted(self: digests.Sidecar) -> int:
        shortened.append(shorten(self))
        return shortened[-1]

    monkeypatch.setattr(digests, "LARGEST", 8_000)
    monkeypatch.setattr(digests.Sidecar, "_shorten", counted)

    async def scenario() -> None:
        store = SqliteStore(path)
        await store.erase("a")
        assert len(shortened) == 1
        assert shortened[0] > 8_000
        for number in range(40):
            await (await store.create(f"n{number}", opened(f"n{number}"), holder="me")).aclose()
        assert len(shortened) == 1
        assert await store.verify() == []
        await store.aclose()

    run(scenario())


def test_a_sidecar_of_another_store_says_nothing(path: Path, tmp_path: Path) -> None:
    run(filled(tmp_path / "other.db"))
    path.with_name("evener.db.heads").write_bytes((tmp_path / "other.db.heads").read_bytes())
    assert places(run(checked(path))) == set()


def test_a_store_under_another_name_is_told(path: Path) -> None:
    rewrite(path, "UPDATE meta SET value = 'other' WHERE key = 'store'")
    (found,) = run(checked(path))
    assert (found.damage, "from another store" in found.what) == (False, True)


def test_a_blob_that_an_event_relies_on_is_missed(path: Path) -> None:
    async def rely() -> None:
        store = SqliteStore(path)
        digest = await store.put_blob(b"photo")
        log, _ = await store.open("b", holder="me")
        await log.append(MediaFetched(at=1.0, source="https://example.com/photo", digest=digest))
        await store.aclose()

    run(rely())
    assert run(checked(path)) == []
    rewrite(path, "DELETE FROM blobs WHERE size = 5")
    assert [(finding.log, finding.seq) for finding in run(checked(path))] == [("b", 3)]


def test_a_tombstone_that_the_sidecar_does_not_know_is_told(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        (digest,) = connection.execute(f"SELECT digest FROM events WHERE {A} AND seq = 72").fetchone()
        payload = b'{"kind":"cancelled","at":2.0,"why":"[erased]"}'
        connection.execute(
            f"UPDATE events SET payload = ?, erased = 5.0, stone = ? WHERE {A} AND seq = 72",
            (payload, stone_of(digest, 5.0, payload)),
        )
    found = run(checked(path))
    assert [(finding.log, finding.seq, finding.damage) for finding in found] == [("a", 72, False)]


def flip(path: Path, word: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(word)] ^= 0x20
    path.write_bytes(content)


def cut_file(path: Path, at: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * at)])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a flip in an event": partial(flip, word=b'why":"150"'),
    "a flip in the kind of an event": partial(flip, word=b"cancelled"),
    "a flip in a blob": partial(flip, word=b"a picture"),
    "a cut at the end": partial(cut_file, at=0.9),
    "a cut in the middle": partial(cut_file, at=0.5),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_found(path: Path, damage: str) -> None:
    DAMAGE[damage](path)
    assert places(run(checked(path)))


def test_a_file_whose_beginning_is_gone_is_refused(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"\0" * 4096 + content[4096:])
    with pytest.raises(StoreError, match=r"no database|not a store of Evener"):
        run(checked(path))
