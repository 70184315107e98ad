"""Old threads go, young ones stay, and nothing that somebody runs or has to decide is taken from them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evener.errors import BadValue
from evener.events import ApprovalAsked, Continued, Finished, Question
from evener.store import MemoryStore, SqliteStore
from evener.store.keeping import Spared, Sweep, keep
from evener.store.log import Erased
from tests.store.extras.stores import KINDS, answered, asked, fork_of, leftovers
from tests.store.stores import LEASE, Clock, opened, run, said

AnyStore = MemoryStore | SqliteStore
DAY = 86_400.0
ASKED = ApprovalAsked(at=5.0, id="a", interrupt="tool", questions=(Question("c", "d"),))
PAUSED = Finished(at=6.0, run="r", cause="approval")


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


def test_an_age_below_nothing_is_refused(store: AnyStore) -> None:
    for age in (-1.0, float("nan")):
        with pytest.raises(BadValue, match="older_than"):
            run(keep(store, older_than=age))
