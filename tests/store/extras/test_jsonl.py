"""A thread that is exported and imported is the same thread: forks, heads, tombstones, blobs. A broken file changes nothing."""

import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import BadDocument, EvenerError, StoreError
from evener.events import MediaFetched, encode_event
from evener.store import MemoryStore, SqliteStore
from evener.store.protocol import NoLog
from evener.store.redaction import Funnel
from evener.store.transfer.jsonl import export_lines, file_lines, import_lines
from evener.store.transfer.lines import MOST_BYTES
from tests.store.extras.samples import EVENTS
from tests.store.extras.stores import KINDS, AnyStore, answered, asked, fork_of, leftovers, returned
from tests.store.stores import Clock, opened, run, said


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    made = KINDS[request.param](tmp_path, Clock())
    yield made
    run(made.aclose())


async def tree(store: AnyStore) -> None:
    """A thread with every kind of event, two forks, one of a fork, a moved head, blobs, erased events and labels."""
    log = await store.create("t", opened("t"), holder="me")
    large, empty = await store.put_blob(b"\x00\xff" * 400_000), await store.put_blob(b"")
    await store.put_blob(b"of somebody else")
    await log.append(*EVENTS[1:])
    await log.append(MediaFetched(at=20.0, source="s", digest=large), MediaFetched(at=21.0, source="s", digest=empty))
    await log.aclose()
    await fork_of(store, "t", 5, "b")
    held, _ = await store.open("b", holder="me")
    await held.append(asked("on the branch"), answered("indeed"))
    await held.aclose()
    await fork_of(store, "b", 7, "c")
    await fork_of(store, "t", 5, "d")
    await store.move_head("t", "c")
    await store.describe("t", title="A “tree”", tags=["x", "y"])
    await store.erase("t", seqs=[4])
    await store.erase("b", seqs=[7])
    other = await store.create("z", opened("t2"), holder="me")
    await other.append(said("of somebody else"))


async def exported(store: AnyStore, thread: str = "t") -> list[bytes]:
    return [line async for line in export_lines(store, thread)]


async def contents(store: AnyStore) -> object:
    """All that can be seen of the thread `t`."""
    logs = await store.logs(thread="t")
    paths = {summary.log: [encode_event(event) for event in await store.read(summary.log)] for summary in logs}
    bare = [line for path in paths.values() for line in path if b'"parent_hash"' not in line]
    labels = [(s.log, s.harness, s.events, s.began, s.changed, s.head, s.parent, s.parent_seq, s.title, s.tags) for s in logs]
    return await store.head("t"), labels, bare


def test_a_thread_comes_out_as_it_went_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = SqliteStore(tmp_path / "one.db"), SqliteStore(tmp_path / "two.db")
        await tree(first)
        lines = await exported(first)
        assert await import_lines(second, lines) == "t"
        assert await exported(second) == lines
        assert await exported(second, "c") == lines
        assert await contents(second) == await contents(first)
        for log in "tbcd":
            assert await second.read(log) == await first.read(log)
            assert await second.link(log) == await first.link(log)
        assert not [one for one in await second.verify() if one.damage]
        assert not any(b"somebody else" in line for line in lines)
        held, _ = await second.open("c", holder="me")
        await held.append(said("on"))
        assert not [one for one in await second.verify() if one.damage]
        await first.aclose()
        await second.aclose()

    run(scenario())


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("goal", KINDS)
def test_a_thread_moves_between_any_two_stores(tmp_path: Path, source: str, goal: str) -> None:
    async def scenario() -> None:
        (tmp_path / "1").mkdir()
        (tmp_path / "2").mkdir()
        first, second = KINDS[source](tmp_path / "1", Clock()), KINDS[goal](tmp_path / "2", Clock())
        await tree(first)
        lines = await exported(first)
        await import_lines(second, lines)
        assert await contents(second) == await contents(first)
        assert [finding for finding in await second.verify() if finding.damage] == []
        if goal != "memory":
            assert await exported(second) == lines
        for log in "tbcd":
            held, _ = await second.open(log, holder="me")
            await held.append(said("on"))
        await fork_of(second, "d", 7, "e")
        assert [finding for finding in await second.verify() if finding.damage] == []
        await first.aclose()
        await second.aclose()
        if goal == "sealed":
            assert b"on the branch" not in leftovers(tmp_path / "2")

    run(scenario())


@settings(max_examples=12)
@given(plan=st.lists(st.tuples(st.sampled_from("append fork erase head label".split()), st.integers(0, 99)), max_size=14))
def test_any_tree_comes_out_as_it_went_in(tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, int]]) -> None:
    folder = tmp_path_factory.mktemp("moves")

    async def scenario() -> None:
        first, second = SqliteStore(folder / "one.db"), SqliteStore(folder / "two.db")
        await (await first.create("t", opened("t"), holder="me")).aclose()
        names = ["t"]
        for act, number in plan:
            log = names[number % len(names)]
            end = (await first.link(log)).seq
            match act:
                case "append":
                    held, _ = await first.open(log, holder="me")
                    await held.append(*(EVENTS[1 + (number + step) % (len(EVENTS) - 1)] for step in range(number % 4 + 1)))
                    await held.aclose()
                case "fork":
                    link = await first.link(log, number % end + 1)
                    names.append(str(len(names)))
                    await fork_of(first, link.log, link.seq, names[-1])
                case "erase":
                    await first.erase(log, seqs=[number % end + 1])
                case "head":
                    await first.move_head("t", log)
                case "label":
                    await first.describe("t", title=f"number {number}", tags=[str(number)])
        lines = await exported(first)
        await import_lines(second, lines)
        assert await exported(second) == lines
        assert [await second.read(name) for name in names] == [await first.read(name) for name in names]
        assert not [one for one in await second.verify() if one.damage]
        await first.aclose()
        await second.aclose()

    run(scenario())


def test_an_erased_thread_stays_erased(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = SqliteStore(tmp_path / "one.db"), SqliteStore(tmp_path / "two.db")
        await tree(first)
        await first.erase("t")
        lines = await exported(first)
        assert not any(b"on the branch" in line or b"tree" in line for line in lines)
        await import_lines(second, lines)
        with pytest.raises(StoreError, match="erased"):
            await second.read("t")
        assert await exported(second) == lines
        await first.aclose()
        await second.aclose()

    run(scenario())


def test_a_thread_of_an_old_file_keeps_its_links(tmp_path: Path) -> None:
    past = Path(__file__).parents[1] / "past" / "version1.db"
    (tmp_path / "one.db").write_bytes(past.read_bytes())

    async def scenario() -> None:
        first, second = SqliteStore(tmp_path / "one.db"), SqliteStore(tmp_path / "two.db")
        threads = {summary.thread for summary in await first.logs()}
        assert threads
        for thread in threads:
            lines = await exported(first, thread)
            assert b'"rule":1' in b"".join(lines)
            await import_lines(second, lines)
            assert await exported(second, thread) == lines
            await import_lines(MemoryStore(), lines)
        assert await second.verify() == []
        await first.aclose()
        await second.aclose()

    run(scenario())


def test_the_same_thread_twice_is_no_harm_and_another_one_is_refused(store: AnyStore) -> None:
    async def scenario() -> None:
        await tree(store)
        lines = await exported(store)
        assert await import_lines(store, lines) == "t"
        assert await exported(store) == lines
        held, _ = await store.open("c", holder="me")
        await held.append(said("more"))
        with pytest.raises(StoreError, match="is in this store with other content"):
            await import_lines(store, lines)
        assert await exported(store) != lines

    run(scenario())


def test_an_id_that_another_thread_has_is_refused(store: AnyStore) -> None:
    async def scenario() -> None:
        other = MemoryStore()
        await tree(other)
        await store.create("c", opened("elsewhere"), holder="me")
        with pytest.raises(StoreError, match="exists already"):
            await import_lines(store, await exported(other))
        assert [summary.log for summary in await store.logs()] == ["c"]

    run(scenario())


def test_an_unknown_thread_cannot_be_exported(store: AnyStore) -> None:
    with pytest.raises(NoLog):
        run(exported(store, "nowhere"))


def test_events_that_come_meanwhile_are_not_part_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = SqliteStore(tmp_path / "one.db"), SqliteStore(tmp_path / "two.db")
        log = await first.create("t", opened("t"), holder="me")
        await log.append(*(said(f"{number}") for number in range(1_200)))
        lines = []
        async for line in export_lines(first, "t"):
            lines.append(line)
            if len(lines) % 100 == 0:
                await log.append(said("late"))
        await import_lines(second, lines)
        assert len(await second.read("t")) == 1_201
        await first.aclose()
        await second.aclose()

    run(scenario())


# What is wrong with a file, and what it is told.


def changed(number: int, **fields: object) -> Callable[[list[bytes]], list[bytes]]:
    """The lines with other fields in one of them, its end made to fit again."""

    def change(lines: list[bytes]) -> list[bytes]:
        line = json.loads(lines[number])
        return resealed([*lines[:number], compact({**line, **fields}) + b"\n", *lines[number + 1 :]])

    return change


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def resealed(lines: list[bytes]) -> list[bytes]:
    body = lines[:-1]
    return [*body, json.dumps({"kind": "end", "lines": len(body), "sha256": sha256(b"".join(body)).hexdigest()}).encode()]


def swapped(one: int, two: int) -> Callable[[list[bytes]], list[bytes]]:
    def swap(lines: list[bytes]) -> list[bytes]:
        lines = list(lines)
        lines[one], lines[two] = lines[two], lines[one]
        return resealed(lines)

    return swap


ZERO = "0" * 64
WRONG: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "nothing": (lambda _: [], "the end of the file is missing"),
    "cut off": (lambda lines: lines[:-1], "the end of the file is missing"),
    "a line too many": (lambda lines: [*lines, lines[1]], "after the end"),
    "another file": (lambda _: [b'{"evener":"transcript","version":1}\n'], "kind"),
    "not the first line": (lambda lines: lines[1:], "not an exported thread"),
    "a newer one": (changed(0, version=2), "version 2"),
    "an unknown key": (changed(0, colour="red"), "colour"),
    "an empty line": (lambda lines: [lines[0], b"\n", *lines[1:]], "empty"),
    "no JSON": (lambda lines: [lines[0], b"{\n", *lines[1:]], "Line 2"),
    "not UTF-8": (lambda lines: [lines[0], b'{"kind":"\xff"}\n', *lines[1:]], "UTF-8"),
    "too deep": (lambda lines: [lines[0], b'{"kind":"event","payload":' + b"[" * 200_000 + b"\n"], "Line 2"),
    "a key twice": (
        lambda lines: resealed([lines[0].replace(b'"thread":"t"', b'"thread":"t","thread":"t"'), *lines[1:]]),
        "stands twice",
    ),
    "a wrong checksum": (lambda lines: [*lines[:-1], lines[-1].replace(b'"sha256":"', b'"sha256":"0')[:-4] + b'"}\n'], "Line"),
    "a line lost": (lambda lines: resealed([*lines[:3], *lines[4:]]), "is not allowed here"),
    "two lines swapped": (swapped(3, 4), "is not allowed here"),
    "another digest": (changed(3, digest=ZERO), "another digest"),
    "another link": (changed(3, chain=ZERO), "not linked"),
    "another time": (changed(3, at=77.0), "another kind or time"),
    "another number": (changed(3, seq=9), "is not allowed here"),
    "another log": (changed(3, log="q"), "is not allowed here"),
    "another kind": (changed(3, event="opened"), "another kind or time"),
    "another rule": (changed(3, rule=1), "not linked"),
    "a rule of the future": (changed(3, rule=9), "rule 9"),
    "an event of the future": (changed(3, version=9), "version 9"),
    "a payload of another kind": (changed(3, payload={"kind": "cancelled", "at": 2.0, "why": "x"}), "another"),
    "no event": (changed(3, payload={"kind": "nonsense"}), "cannot be read"),
    "marked as erased": (changed(4, erased=7.0), "still has content"),
    "a length that lies": (changed(1, length=4), "another time"),
    "a length that lies the other way": (changed(1, length=40), "missing before it"),
    "an unknown head": (changed(0, head="q"), "not complete"),
    "another thread": (changed(0, thread="q"), "one root"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_changes_nothing(store: AnyStore, name: str) -> None:
    change, told = WRONG[name]

    async def scenario() -> None:
        source = MemoryStore()
        await tree(source)
        lines = change(await exported(source))
        with pytest.raises(EvenerError, match=told):
            await import_lines(store, lines)
        assert await store.logs() == []

    run(scenario())


def branch(lines: list[bytes], log: str) -> int:
    return next(
        n for n, line in enumerate(lines) if json.loads(line).get("kind") == "branch" and f'"log":"{log}"'.encode() in line
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"parent_hash": ZERO}, "another hash"),
        ({"parent": "q"}, "not there"),
        ({"parent": "c"}, "not there"),
        ({"base": 4}, "another hash"),
        ({"base": 99}, "not there"),
        ({"parent": "", "parent_hash": "", "base": 0}, "one root"),
        ({"harness": "other"}, "contradicts the lines"),
        ({"log": "t"}, "a second time"),
    ],
)
def test_a_fork_must_name_what_is_there(store: AnyStore, fields: dict[str, object], told: str) -> None:
    async def scenario() -> None:
        source = MemoryStore()
        await tree(source)
        lines = await exported(source)
        with pytest.raises(BadDocument, match=told):
            await import_lines(store, changed(branch(lines, "b"), **fields)(lines))
        assert await store.logs() == []

    run(scenario())


def test_a_blob_that_is_not_what_its_name_says_changes_nothing(store: AnyStore) -> None:
    async def scenario() -> None:
        source = MemoryStore()
        await tree(source)
        lines = await exported(source)
        last = len(lines) - 2
        assert json.loads(lines[last])["kind"] == "blob"
        with pytest.raises(BadDocument, match="another digest"):
            await import_lines(store, changed(last, content=b64encode(b"evil").decode())(lines))
        with pytest.raises(BadDocument, match="not complete"):
            await import_lines(store, changed(last, last=False)(lines))
        assert await store.logs() == []

    run(scenario())


def test_any_flipped_byte_is_noticed() -> None:
    chance = random.Random(11)

    async def scenario() -> None:
        source, goal = MemoryStore(), MemoryStore()
        log = await source.create("t", opened("t"), holder="me")
        await log.append(asked("one"), answered("two"), returned("three"))
        await fork_of(source, "t", 3, "b")
        body = b"".join(await exported(source))
        for _ in range(300):
            place, bit = chance.randrange(len(body) - 1), 1 << chance.randrange(8)
            bad = bytearray(body)
            bad[place] ^= bit
            with pytest.raises(EvenerError):
                await import_lines(goal, file_lines(BytesIO(bytes(bad))))
            assert await goal.logs() == []
        await import_lines(goal, file_lines(BytesIO(body)))
        assert len(await goal.logs()) == 2

    run(scenario())


def test_a_line_that_never_ends_is_not_read_to_its_end() -> None:
    class Endless:
        asked = 0

        def readline(self, most: int) -> bytes:
            self.asked += most
            return b"x" * most

    endless = Endless()
    with pytest.raises(BadDocument, match="more than"):
        list(file_lines(endless))  # type: ignore[arg-type]  # all that is used of a file
    assert endless.asked <= MOST_BYTES + 2


def test_secrets_of_whoever_imports_are_taken_out_on_the_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = MemoryStore(funnel=Funnel(secrets=tuple))
        log = await source.create("t", opened("t"), holder="me")
        await log.append(asked("the key is sk-Import-123456"), answered("fine"))
        await fork_of(source, "t", 3, "b")
        goal = SqliteStore(tmp_path / "evener.db", funnel=Funnel(secrets=lambda: ["sk-Import-123456"]))
        await import_lines(goal, await exported(source))
        assert await goal.verify() == []
        assert len(await goal.read("b")) == 4
        await goal.aclose()
        assert b"sk-Import" not in leftovers(tmp_path)
        blob = await source.put_blob(b"sk-Import-123456")
        await log.append(MediaFetched(at=9.0, source="s", digest=blob))
        second = SqliteStore(tmp_path / "two.db", funnel=Funnel(secrets=lambda: ["sk-Import-123456"]))
        with pytest.raises(StoreError, match="secret that this process uses"):
            await import_lines(second, await exported(source))
        assert await second.logs() == []
        assert await second.verify() == []
        await second.aclose()

    run(scenario())
