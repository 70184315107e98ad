"""Forks, for both stores: a new log goes on from an event of another, nothing is copied, and each branch is its own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import Opened
from evener.store import Log, MemoryStore, SqliteStore, Store
from evener.store.protocol import NoLog
from tests.patience import bytes_moved
from tests.store.stores import LEASE, STORES, Clock, flaws, opened, run, said, texts


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    made = STORES[request.param](tmp_path, clock)
    yield made
    run(made.aclose())


async def rooted(store: Store, *words: str) -> Log:
    """A thread `a` that says these words."""
    log = await store.create("a", opened("a"), holder="me")
    await log.append(*map(said, words))
    return log


async def forked(store: Store, name: str, log: str, seq: int | None = None) -> Log:
    """A fork of the path of `log`, after that event."""
    point = await store.link(log, seq)
    first = Opened(at=3.0, thread="a", harness="h", parent=point.log, parent_seq=point.seq, parent_hash=point.hash)
    return await store.create(name, first, holder="me")


def test_s3_6_a_fork_goes_on_from_any_event_and_its_numbers_go_on(store: Store) -> None:
    """S3.6: each alternative is a child of an earlier event; the parent stays as it is."""

    async def scenario() -> None:
        root = await rooted(store, "one", "two", "three")
        fork = await forked(store, "b", "a", 2)
        assert (fork.length, fork.lease.epoch) == (3, 1)
        await fork.append(said("other"))
        await root.append(said("four"))
        assert texts(await store.read("b")) == ["one", "other"]
        assert texts(await store.read("a")) == ["one", "two", "three", "four"]
        events = await store.read("b")
        assert isinstance(events[2], Opened)
        assert (len(events), fork.length, root.length) == (4, 4, 5)
        for after in range(-1, 6):
            for until in (None, *range(6)):
                assert await store.read("b", after=after, until=until) == events[max(after, 0) : until], (after, until)

    run(scenario())


def test_forks_of_forks_share_what_they_share(store: Store) -> None:
    async def scenario() -> None:
        await rooted(store, "1", "2", "3")
        await (await forked(store, "b", "a", 3)).append(said("b5"), said("b6"))
        await (await forked(store, "c", "b", 5)).append(said("c7"))
        await (await forked(store, "d", "c", 2)).append(said("d4"))
        await (await forked(store, "e", "c")).append(said("e9"))
        paths = {name: texts(await store.read(name)) for name in "abcde"}
        assert paths == {
            "a": ["1", "2", "3"],
            "b": ["1", "2", "b5", "b6"],
            "c": ["1", "2", "b5", "c7"],
            "d": ["1", "d4"],
            "e": ["1", "2", "b5", "c7", "e9"],
        }
        assert [(await store.link("e", seq)).log for seq in range(1, 10)] == ["a"] * 3 + ["b"] * 2 + ["c"] * 2 + ["e"] * 2
        assert (await store.link("d")).seq == 4
        parents = {summary.log: (summary.parent, summary.parent_seq, summary.events) for summary in await store.logs()}
        assert parents == {"a": ("", 0, 4), "b": ("a", 3, 6), "c": ("b", 5, 7), "d": ("a", 2, 4), "e": ("c", 7, 9)}

    run(scenario())


@pytest.mark.parametrize(("kind", "depth"), [("memory", 2_000), ("sqlite", 100)])
def test_a_long_line_of_forks_is_read(tmp_path: Path, clock: Clock, kind: str, depth: int) -> None:
    async def scenario() -> None:
        store = STORES[kind](tmp_path, clock)
        await rooted(store)
        name = "a"
        for number in range(depth):
            fork = await forked(store, str(number), name)
            await fork.append(said(str(number)))
            name = str(number)
        assert texts(await store.read(name)) == list(map(str, range(depth)))
        assert (await store.link(name, 1)).log == "a"
        await store.aclose()

    run(scenario())


def test_a_fork_that_is_opened_again_goes_on_where_it_was(store: Store) -> None:
    async def scenario() -> None:
        await rooted(store, "one", "two")
        fork = await forked(store, "b", "a")
        await fork.append(said("three"))
        await fork.aclose()
        again, events = await store.open("b", holder="you")
        assert (texts(events), again.length) == (["one", "two", "three"], 5)
        await again.append(said("four"))
        await again.aclose()
        for after in range(7):
            last, new = await store.open("b", holder="you", after=after)
            assert (last.length, len(new)) == (6, max(6 - after, 0))
            await last.aclose()

    run(scenario())


def test_branches_are_held_and_run_independently(store: Store) -> None:
    async def scenario() -> None:
        await rooted(store, "one")
        forks = [await forked(store, f"fork {number}", "a", 2) for number in range(20)]

        async def fill(number: int) -> None:
            for turn in range(5):
                await forks[number].append(said(f"{number}.{turn}"))

        await asyncio.gather(*map(fill, range(20)))
        for number in range(20):
            wanted = ["one", *(f"{number}.{turn}" for turn in range(5))]
            assert texts(await store.read(f"fork {number}")) == wanted

    run(scenario())


@pytest.mark.parametrize(
    ("parent", "seq", "thread", "hashed", "message"),
    [
        ("nowhere", 1, "a", "", "no log 'nowhere'"),
        ("a", 9, "a", "", "no event 9"),
        ("a", 0, "a", "", "no event 0"),
        ("a", -1, "a", "", "no event -1"),
        ("a", 2, "a", "ab" * 32, "another hash"),
        ("a", 2, "a", "", "another hash"),
        ("a", 2, "t", "right", "belongs to the thread 'a'"),
        ("b", 1, "a", "right", "no event 1 of its own"),
    ],
)
def test_a_fork_of_what_is_not_there_is_refused(
    store: Store, parent: str, seq: int, thread: str, hashed: str, message: str
) -> None:
    async def scenario() -> None:
        await rooted(store, "one")
        await forked(store, "b", "a")
        right = (await store.link("a", min(max(seq, 1), 2))).hash
        first = Opened(at=1.0, thread=thread, parent=parent, parent_seq=seq, parent_hash=right if hashed == "right" else hashed)
        with pytest.raises(StoreError, match=message):
            await store.create("new", first, holder="me")
        assert {summary.log for summary in await store.logs()} == {"a", "b"}

    run(scenario())


@pytest.mark.parametrize("seq", [0, -1, 5])
def test_an_event_that_is_not_there_has_no_link(store: Store, seq: int) -> None:
    async def scenario() -> None:
        await rooted(store, "one", "two", "three")
        with pytest.raises(StoreError, match=f"no event {seq}"):
            await store.link("a", seq)
        with pytest.raises(NoLog):
            await store.link("nowhere")

    run(scenario())


def test_s3_6_the_head_moves_and_nothing_is_deleted(store: Store) -> None:
    """S3.6: a rollback is a fork that the head moves to."""

    async def scenario() -> None:
        await rooted(store, "one", "two")
        await store.create("other", opened("other"), holder="me")
        assert await store.head("a") == "a"
        await forked(store, "b", "a", 2)
        assert (await store.head("a"), await store.head("b")) == ("a", "b")
        await store.move_head("a", "b")
        assert (await store.head("a"), await store.head("b"), await store.head("other")) == ("b", "b", "other")
        assert {summary.log: summary.head for summary in await store.logs()} == {"a": False, "b": True, "other": True}
        assert {summary.log for summary in await store.logs(thread="a")} == {"a", "b"}
        assert await store.logs(thread="nobody") == []
        assert texts(await store.read("a")) == ["one", "two"]
        await store.move_head("a", "a")
        assert await store.head("a") == "a"
        with pytest.raises(NoLog):
            await store.head("nowhere")
        with pytest.raises(NoLog):
            await store.move_head("a", "nowhere")
        with pytest.raises(StoreError, match="belongs to the thread 'other'"):
            await store.move_head("a", "other")

    run(scenario())


def test_a_list_tells_who_is_held(store: Store, clock: Clock) -> None:
    async def scenario() -> None:
        log = await rooted(store, "one")
        fork = await forked(store, "b", "a")
        await fork.aclose()
        assert {summary.log: summary.held for summary in await store.logs()} == {"a": True, "b": False}
        clock.now += LEASE + 1
        assert not any(summary.held for summary in await store.logs())
        assert log.length == 2

    run(scenario())


def test_both_stores_have_the_same_hashes(tmp_path: Path) -> None:
    async def hashes(store: Store) -> list[str]:
        await rooted(store, *map(str, range(600)))
        await forked(store, "b", "a", 300)
        found = [(await store.link(log, seq)).hash for log in "ab" for seq in (1, 2, 255, 256, 257, 300, 301)]
        await store.aclose()
        return [*found]

    async def scenario() -> None:
        kept, filed = MemoryStore(), SqliteStore(tmp_path / "evener.db")
        assert await hashes(kept) == await hashes(filed)

    run(scenario())
    assert flaws(tmp_path / "evener.db") == []


def test_a_fork_of_a_long_log_moves_no_more_bytes_than_one_of_a_short_log(tmp_path: Path) -> None:
    async def cost(store: Store, name: str, length: int) -> int:
        log = await store.create(name, opened(name), holder="me")
        await log.append(*[said(f"{number}" + "x" * 1000) for number in range(length)])
        before = bytes_moved()
        for number in range(10):
            point = await store.link(name)
            first = Opened(at=1.0, thread=name, parent=name, parent_seq=point.seq, parent_hash=point.hash)
            await store.create(f"{name} {number}", first, holder="me")
        return bytes_moved() - before

    async def scenario() -> tuple[int, int]:
        store = SqliteStore(tmp_path / "evener.db")
        costs = await cost(store, "short", 1), await cost(store, "long", 10_000)
        await store.aclose()
        return costs

    short, long = run(scenario())
    assert long < 3 * short + 1_000_000  # the long log has 10 MB
