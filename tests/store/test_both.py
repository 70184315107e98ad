"""One table for both stores: order, atomicity, leases, the inbox, blobs, and being cancelled."""

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import encode_event
from evener.store import LeaseHeld, LeaseLost, MemoryStore, Note, Store
from tests.store.stores import LEASE, STORES, Clock, opened, run, said, texts


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    made = STORES[request.param](tmp_path, clock)
    yield made
    run(made.aclose())


def test_what_was_appended_is_read_in_order(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        assert (log.length, log.lease.epoch, log.lease.holder, log.lease.log) == (1, 1, "me", "a")
        await log.append(said("one"))
        await log.append(said("two"), said("three"))
        await log.append()
        assert log.length == 4
        events = await store.read("a")
        assert events == [opened(), said("one"), said("two"), said("three")]
        assert await store.read("a", after=2) == events[2:]
        assert await store.read("a", after=4) == []
        assert await store.read("a", after=99) == []
        assert await store.read("a", after=-1) == events

    run(scenario())


def test_an_opened_log_has_all_events_and_goes_on(store: Store) -> None:
    async def scenario() -> None:
        first = await store.create("a", opened(), holder="me")
        await first.append(said("one"))
        await first.aclose()
        await first.aclose()
        second, events = await store.open("a", holder="you")
        assert (texts(events), second.length, second.lease.epoch) == (["one"], 2, 2)
        await second.append(said("two"))
        assert texts(await store.read("a")) == ["one", "two"]

    run(scenario())


@pytest.mark.parametrize(("after", "new"), [(0, 4), (1, 3), (3, 1), (4, 0), (9, 0), (-1, 4)])
def test_whoever_knows_a_part_gets_the_rest(store: Store, after: int, new: int) -> None:
    async def scenario() -> None:
        first = await store.create("a", opened(), holder="me")
        await first.append(said("one"), said("two"), said("three"))
        await first.aclose()
        second, events = await store.open("a", holder="you", after=after)
        assert (len(events), second.length) == (new, 4)
        await second.append(said("four"))
        assert second.length == 5

    run(scenario())


@pytest.mark.parametrize(
    "text",
    ["", "ünïcödé \U0001f40e", "\x00 \n \r\n \u2028 \u0085", '{"kind": "opened"}', "x" * 5_000_000],
    ids=["empty", "unicode", "breaks", "json", "5 MB"],
)
def test_any_text_comes_back(store: Store, text: str) -> None:
    async def scenario() -> None:
        log = await store.create("ä \u2028 '\"", opened(), holder="ö")
        await log.append(said(text), said("end"))
        assert texts(await store.read("ä \u2028 '\"")) == [text, "end"]

    run(scenario())


def test_an_append_that_cannot_be_written_whole_writes_nothing(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        with pytest.raises(UnicodeEncodeError):
            await log.append(said("one"), said("\ud800"))
        assert await store.read("a") == [opened()]
        await log.append(said("two"))
        assert texts(await store.read("a")) == ["two"]

    run(scenario())


def test_a_log_is_made_once(store: Store) -> None:
    async def scenario() -> None:
        await store.create("a", opened("first"), holder="me")
        with pytest.raises(StoreError, match="exists already"):
            await store.create("a", opened("second"), holder="me")
        assert await store.read("a") == [opened("first")]

    run(scenario())


def test_an_unknown_log_is_named(store: Store) -> None:
    async def scenario() -> None:
        for call in (store.open("a", holder="me"), store.read("a"), store.post("a", Note("k", "steer"))):
            with pytest.raises(StoreError, match="no log 'a'"):
                await call

    run(scenario())


def test_a_log_that_is_held_is_not_given_away(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        with pytest.raises(LeaseHeld, match=r"'me'.*30 more seconds"):
            await store.open("a", holder="you")
        with pytest.raises(LeaseHeld):
            await store.open("a", holder="me", patience=0.02)
        await log.append(said("mine"))
        assert log.lease.epoch == 1

    run(scenario())


@pytest.mark.parametrize("act", ["append", "renew", "settle", "nothing"])
def test_whatever_a_holder_does_renews_the_lease(store: Store, clock: Clock, act: str) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        await store.post("a", Note("k", "steer"))
        clock.now += LEASE - 1
        match act:
            case "append":
                await log.append(said("here"))
            case "renew":
                await log.renew()
            case "settle":
                await log.settle(1)
        clock.now += 2
        if act == "nothing":
            await store.open("a", holder="you")
        else:
            with pytest.raises(LeaseHeld):
                await store.open("a", holder="you")

    run(scenario())


def test_a_stale_holder_writes_nothing(store: Store, clock: Clock) -> None:
    async def scenario() -> None:
        old = await store.create("a", opened(), holder="me")
        await store.post("a", Note("k", "steer"))
        clock.now += LEASE + 1
        new, events = await store.open("a", holder="you")
        assert (len(events), new.lease.epoch) == (1, 2)
        for call in (old.append(said("stale")), old.settle(1, said("stale")), old.settle(7), old.renew(), old.append()):
            with pytest.raises(LeaseLost, match="'you' took over"):
                await call
        await old.aclose()
        with pytest.raises(LeaseHeld):
            await store.open("a", holder="them")
        await new.append(said("fresh"))
        assert texts(await store.read("a")) == ["fresh"]
        assert len(await new.notes()) == 1

    run(scenario())


def test_a_late_holder_goes_on_when_nobody_took_over(store: Store, clock: Clock) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        clock.now += LEASE * 10
        await log.append(said("late"))
        with pytest.raises(LeaseHeld):
            await store.open("a", holder="you")

    run(scenario())


def test_a_closed_log_writes_nothing(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        await log.aclose()
        for call in (log.append(said("x")), log.renew(), log.settle(1)):
            with pytest.raises(LeaseLost, match="closed here"):
                await call
        assert len(await store.read("a")) == 1

    run(scenario())


def test_a_dropped_log_gives_its_lease_back(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        del log
        gc.collect()
        again, _ = await store.open("a", holder="you", patience=120)
        assert again.lease.epoch == 2

    run(scenario())


def test_the_patient_get_the_lease_when_it_is_given_back(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        waiting = asyncio.create_task(store.open("a", holder="you", patience=120))
        for _ in range(3):
            await log.append(said("busy"))
        assert not waiting.done()
        await log.aclose()
        new, events = await waiting
        assert (new.lease.epoch, len(events)) == (2, 4)

    run(scenario())


def test_one_of_many_takes_a_free_log(store: Store) -> None:
    async def scenario() -> None:
        await (await store.create("a", opened(), holder="me")).aclose()
        tries = [store.open("a", holder=str(number)) for number in range(50)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(answer, LeaseHeld) for answer in answers) == 49
        assert sum(isinstance(answer, tuple) for answer in answers) == 1

    run(scenario())


def test_200_posters_of_one_key_have_one_winner(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        posts = [store.post("a", Note("approve-1", "approve", f'{{"n":{number}}}')) for number in range(200)]
        won = await asyncio.gather(*posts)
        assert sum(won) == 1
        assert await log.notes() == [Note("approve-1", "approve", f'{{"n":{won.index(True)}}}', 1)]

    run(scenario())


def test_notes_come_in_order_and_a_key_stays_used(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        other = await store.create("b", opened(), holder="me")
        for key in ("x", "y", "z"):
            assert await store.post("a", Note(key, "steer", '{"text":"ä"}'))
        assert await store.post("b", Note("x", "cancel"))
        await log.settle(1, said("x came"))
        assert not await store.post("a", Note("x", "steer"))
        assert [(note.key, note.number, note.body) for note in await log.notes()] == [
            ("y", 2, '{"text":"ä"}'),
            ("z", 3, '{"text":"ä"}'),
        ]
        assert [note.number for note in await other.notes()] == [1]

    run(scenario())


def test_a_note_is_settled_once_and_with_its_events(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        await store.post("a", Note("k", "steer"))
        await log.settle(1, said("one"), said("two"))
        assert (log.length, await log.notes()) == (3, [])
        for number in (1, 2, 0):
            with pytest.raises(StoreError, match="settled already"):
                await log.settle(number, said("again"))
        assert texts(await store.read("a")) == ["one", "two"]

    run(scenario())


def test_a_settling_that_fails_leaves_the_note(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        await store.post("a", Note("k", "steer"))
        with pytest.raises(UnicodeEncodeError):
            await log.settle(1, said("\ud800"))
        assert len(await log.notes()) == 1
        assert log.length == 1

    run(scenario())


def test_the_log_that_changed_last_is_listed_first(store: Store) -> None:
    async def scenario() -> None:
        assert await store.logs() == []
        first = await store.create("a", opened("t1", at=1.0), holder="me")
        await store.create("b", opened("t2", at=2.0), holder="me")
        await first.append(said("x", at=3.0))
        found = [(s.log, s.thread, s.harness, s.events, s.began, s.changed, s.head) for s in await store.logs()]
        assert found == [("a", "t1", "h", 2, 1.0, 3.0, True), ("b", "t2", "h", 1, 2.0, 2.0, True)]

    run(scenario())


def test_a_blob_has_the_name_of_its_content(store: Store) -> None:
    async def scenario() -> None:
        names = await asyncio.gather(*(store.put_blob(content) for content in (b"abc", b"", b"abc", b"\0" * 5_000_000)))
        assert names[0] == names[2] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert [await store.get_blob(name) for name in names] == [b"abc", b"", b"abc", b"\0" * 5_000_000]
        with pytest.raises(StoreError, match="no blob"):
            await store.get_blob("0" * 64)

    run(scenario())


def test_100_logs_at_once_do_not_mix(store: Store) -> None:
    async def write(number: int) -> None:
        log = await store.create(f"log {number}", opened(), holder="me")
        for turn in range(5):
            await log.append(said(f"{number}.{turn}a"), said(f"{number}.{turn}b"))
        assert log.length == 11

    async def scenario() -> None:
        await asyncio.gather(*(write(number) for number in range(100)))
        for number in range(100):
            wanted = [f"{number}.{turn}{half}" for turn in range(5) for half in "ab"]
            assert texts(await store.read(f"log {number}")) == wanted

    run(scenario())


def test_appends_to_one_log_at_once_stay_whole_and_in_order(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        await asyncio.gather(*(log.append(said(f"{n}a"), said(f"{n}b")) for n in range(60)))
        assert texts(await store.read("a")) == [f"{n}{half}" for n in range(60) for half in "ab"]

    run(scenario())


def test_a_cancelled_append_happened_or_did_not(store: Store) -> None:
    chance = random.Random(5)

    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        known: list[int] = []
        for number in range(150):
            task = asyncio.create_task(log.append(said(f"{number}a"), said(f"{number}b")))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
            answer = (await asyncio.gather(task, return_exceptions=True))[0]
            if not isinstance(answer, BaseException):
                known.append(number)
            if number % 10 == 0:
                await log.append(said(f"{number}+"))
        await log.append(said("end"))
        events = await store.read("a")
        assert log.length == len(events)
        check_cancelled(texts(events), known)

    run(scenario())


def check_cancelled(found: list[str], known: list[int]) -> None:
    pairs = [text for text in found if text[-1] in "ab"]
    numbers = [int(text[:-1]) for text in pairs[::2]]
    assert pairs == [f"{number}{half}" for number in numbers for half in "ab"]
    assert numbers == sorted(set(numbers))
    assert set(known) <= set(numbers)
    assert found[-1] == "end"


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (["1a", "end"], []),
        (["1a", "1b"], [1]),
        (["2a", "2b", "1a", "1b", "end"], []),
        (["1a", "1b", "1a", "1b", "end"], []),
        (["end"], [1]),
    ],
)
def test_a_torn_lost_swapped_or_doubled_append_is_caught(found: list[str], known: list[int]) -> None:
    with pytest.raises(AssertionError):
        check_cancelled(found, known)


def test_a_cancelled_opening_leaves_nobody_holding(store: Store) -> None:
    chance = random.Random(7)

    async def scenario() -> None:
        await (await store.create("a", opened(), holder="me")).aclose()
        for _ in range(60):
            task = asyncio.create_task(store.open("a", holder="me"))
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
            answer = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(answer, tuple):
                await answer[0].aclose()
        log, _ = await store.open("a", holder="you", patience=120)
        await log.append(said("mine"))

    run(scenario())


def test_a_closed_store_says_so(store: Store) -> None:
    async def scenario() -> None:
        log = await store.create("a", opened(), holder="me")
        await store.aclose()
        await store.aclose()
        for call in (store.read("a"), store.logs(), store.create("b", opened(), holder="me"), store.put_blob(b"")):
            with pytest.raises(StoreError, match="closed"):
                await call
        with pytest.raises(StoreError, match="closed"):
            await log.append(said("x"))
        await log.aclose()

    run(scenario())


def test_an_idle_log_in_memory_costs_little_more_than_its_bytes() -> None:
    event = said("x" * 150)
    size = len(encode_event(event))

    async def fill(store: MemoryStore, log: str) -> None:
        held = await store.create(log, opened(), holder="me")
        for _ in range(99):
            await held.append(event)
        await held.aclose()

    async def scenario() -> float:
        store = MemoryStore()
        await fill(store, "warm")
        tracemalloc.start()
        for number in range(50):
            await fill(store, str(number))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return held / (50 * (99 * size + len(encode_event(opened()))))

    assert run(scenario()) <= 1.2


def test_a_blob_that_was_changed_in_memory_is_noticed() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        name = await store.put_blob(b"abc")
        store._blobs[name] = b"abd"
        with pytest.raises(StoreError, match="not what was stored"):
            await store.get_blob(name)
        await store.put_blob(b"abc")
        assert await store.get_blob(name) == b"abc"

    run(scenario())
