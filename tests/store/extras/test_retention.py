"""Old threads go, young ones stay, and nothing that somebody runs or has to decide is taken from them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evener.errors import BadValue, StoreError
from evener.events import ApprovalAsked, CallPaused, Continued, Event, Finished, Question, Resumed
from evener.store import MemoryStore, SqliteStore
from evener.store.protocol import Erased
from evener.store.retention import Spared, Sweep, keep
from tests.store.extras.stores import KINDS, AnyStore, answered, asked, fork_of, leftovers
from tests.store.stores import LEASE, Clock, opened, run, said

DAY = 86_400.0
ASKED = ApprovalAsked(at=5.0, id="a", interrupt="tool", questions=(Question("c", "d"),))
PAUSED = Finished(at=6.0, run="r", cause="approval")
INSIDE = CallPaused(at=6.0, call="c", thread="inner")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[AnyStore]:
    made = KINDS[request.param](tmp_path, clock)
    yield made
    run(made.aclose())


async def talk(store: AnyStore, thread: str, at: float, *more: object) -> None:
    log = await store.create(thread, opened(thread, at), holder="me")
    await log.append(asked(f"the words of {thread}", at), answered("yes", at))
    for event in more:
        await log.append(event)  # type: ignore[arg-type]  # events, whatever they are
    await log.aclose()


def test_only_what_is_old_goes(store: AnyStore, clock: Clock, tmp_path: Path) -> None:
    async def scenario() -> None:
        now = clock.now = 100 * DAY
        await talk(store, "old", now - 40 * DAY)
        await talk(store, "young", now - 3 * DAY)
        await talk(store, "revived", now - 50 * DAY)
        await fork_of(store, "revived", 2, "branch")
        branch, _ = await store.open("branch", holder="me")
        await branch.append(said("just now", at=now - 1.0))
        await branch.aclose()
        wanted = Sweep(("old",), 3, ())
        assert await keep(store, older_than=30 * DAY, dry=True, clock=clock) == wanted
        assert len(await store.read("old")) == 3
        assert await keep(store, older_than=30 * DAY, clock=clock) == wanted
        with pytest.raises(Erased):
            await store.read("old")
        assert len(await store.read("revived")) == 3
        assert len(await store.read("young")) == 3
        assert await keep(store, older_than=30 * DAY, clock=clock) == Sweep()
        assert [finding for finding in await store.verify() if finding.damage] == []

    run(scenario())
    assert b"the words of old" not in leftovers(tmp_path)


def test_what_runs_is_never_erased(store: AnyStore, clock: Clock) -> None:
    async def scenario() -> None:
        await talk(store, "t", 5.0)
        log, _ = await store.open("t", holder="me")
        clock.now = 2_000.0
        await log.renew()
        for force in (False, True):
            for dry in (False, True):
                found = await keep(store, older_than=100.0, force=force, dry=dry, clock=clock)
                assert found == Sweep(spared=(Spared("t", "running"),))
        assert len(await store.read("t")) == 3
        await log.aclose()
        clock.now += LEASE
        assert (await keep(store, older_than=100.0, clock=clock)).erased == ("t",)

    run(scenario())


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        ((ASKED,), True),
        ((ASKED, PAUSED), True),
        ((INSIDE,), True),
        ((INSIDE, Resumed(at=7.0, epoch=2)), False),
        ((INSIDE, Resumed(at=7.0, epoch=2), INSIDE), True),
        ((ASKED, PAUSED, Continued(at=7.0, run="r")), False),
        ((ASKED, PAUSED, asked("something else", 7.0)), False),
        ((ASKED, PAUSED, Continued(at=7.0, run="r"), Finished(at=8.0, run="r", cause="done")), False),
        ((Finished(at=8.0, run="r", cause="limit"),), False),
    ],
)
def test_what_waits_for_a_decision_goes_only_by_force(
    store: AnyStore, clock: Clock, events: tuple[object, ...], waits: bool
) -> None:
    async def scenario() -> None:
        await talk(store, "t", 5.0, *events)
        found = await keep(store, older_than=100.0, clock=clock)
        assert found.spared == ((Spared("t", "waiting"),) if waits else ())
        assert found.erased == (() if waits else ("t",))
        assert (await keep(store, older_than=100.0, force=True, clock=clock)).erased == (("t",) if waits else ())

    run(scenario())


DAMAGE = {
    "damaged": "UPDATE events SET payload = x'7b7d' WHERE log = 1 AND seq = 2",
    "of another type": "UPDATE events SET payload = 'private text' WHERE log = 1 AND seq = 2",
    "of a newer Evener": "UPDATE events SET version = 9, rule = 1, chain = digest WHERE log = 1 AND seq = 2",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["sqlite", "sealed"])
def test_a_thread_that_cannot_be_read_holds_up_no_other_and_goes_by_force(tmp_path: Path, kind: str, damage: str) -> None:
    clock = Clock()

    async def scenario() -> None:
        store = KINDS[kind](tmp_path, clock)
        assert isinstance(store, SqliteStore)
        for thread in ("bad", "good"):
            await talk(store, thread, 5.0)
        await store.aclose()
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute(DAMAGE[damage])
        store = KINDS[kind](tmp_path, clock)
        for dry in (True, False):
            found = await keep(store, older_than=100.0, dry=dry, clock=clock)
            assert (found.erased, found.spared) == (("good",), (Spared("bad", "damaged"),))
        assert (await keep(store, older_than=100.0, force=True, clock=clock)).erased == ("bad",)
        assert [bool(log.erased) for log in await store.logs()] == [True, True]
        await store.aclose()
        assert b"private text" not in leftovers(tmp_path)

    run(scenario())


def test_a_store_that_is_closed_is_not_taken_for_damaged_threads(clock: Clock) -> None:
    class Closing(MemoryStore):
        async def read(self, log: str, *, after: int = 0, until: int | None = None) -> list[Event]:
            await self.aclose()
            return await super().read(log, after=after, until=until)

    async def scenario() -> None:
        store = Closing(lease=LEASE, clock=clock)
        await talk(store, "t", 5.0)
        with pytest.raises(StoreError, match="closed"):
            await keep(store, older_than=100.0, clock=clock)

    run(scenario())


def test_an_age_below_nothing_is_refused(store: AnyStore) -> None:
    for age in (-1.0, float("nan")):
        with pytest.raises(BadValue, match="older_than"):
            run(keep(store, older_than=age))
