"""A store that answers late: what it was given is in the log before the run hears of it, and the run may be stopped between."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from evener import events as ev
from evener import tool
from evener.errors import StoreError
from evener.harness import Harness, Thread
from evener.store.memory import MemoryStore
from evener.store.protocol import Lease, Log, Note
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import ToolCall

LATE = 0.05


class LateLog:
    """Appends at once, and says so later. Cancelled meanwhile, the events are there all the same, as in a real store."""

    def __init__(self, log: Log, late: Callable[[Sequence[ev.Event]], bool]) -> None:
        self._log = log
        self._late = late

    @property
    def lease(self) -> Lease:
        return self._log.lease

    @property
    def length(self) -> int:
        return self._log.length

    async def append(self, *events: ev.Event) -> tuple[ev.Event, ...]:
        kept = await self._log.append(*events)
        if self._late(events):
            await asyncio.sleep(LATE)
        return kept

    async def settle(self, number: int, *events: ev.Event) -> tuple[ev.Event, ...]:
        kept = await self._log.settle(number, *events)
        if self._late(events):
            await asyncio.sleep(LATE)
        return kept

    async def notes(self) -> Sequence[Note]:
        return await self._log.notes()

    async def renew(self) -> None:
        await self._log.renew()

    async def aclose(self, *, left: bool = False) -> None:
        await self._log.aclose(left=left)


class LateStore(MemoryStore):
    """Its logs answer late to events of one kind."""

    def __init__(self, kind: type[ev.Event]) -> None:
        super().__init__()
        self._kind = kind

    async def create(self, log: str, first: ev.Event, *, holder: str) -> Log:  # type: ignore[override]
        return LateLog(await super().create(log, first, holder=holder), self._is_late)

    async def open(  # type: ignore[override]
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[Log, list[ev.Event]]:
        held, events = await super().open(log, holder=holder, after=after, patience=patience, force=force)
        return LateLog(held, self._is_late), events

    def _is_late(self, events: Sequence[ev.Event]) -> bool:
        return any(isinstance(event, self._kind) for event in events)


def payer(store: MemoryStore) -> tuple[Harness, list[int]]:
    paid: list[int] = []

    @tool(effect="write")
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    made = calls(ToolCall.of("c1", "pay", {"amount": 1}), ToolCall.of("c2", "pay", {"amount": 2}))
    model = ScriptedModel(lambda ask: made if len(ask.transcript) == 1 else "thanks")
    return Harness(model, tools=[pay], store=store), paid


async def in_the_log(store: MemoryStore, thread: Thread, kind: type[ev.Event]) -> None:
    while not any(isinstance(event, kind) for event in (await store.read(thread.id) if thread.id else [])):
        await asyncio.sleep(0)


def counted(events: Sequence[ev.Event], kind: type[ev.CallStarted] | type[ev.CallFinished]) -> list[str]:
    return sorted(event.call for event in events if isinstance(event, kind))


def test_asked_to_stop_before_a_result_is_acknowledged_the_call_still_has_one_result() -> None:
    async def go() -> None:
        store = LateStore(ev.CallFinished)
        harness, paid = payer(store)
        thread = harness.thread()
        run = asyncio.ensure_future(thread.run("go"))
        await in_the_log(store, thread, ev.CallFinished)
        await thread.cancel("enough")
        result = await run
        assert result.stop == "cancelled"
        assert [record.result and record.result.outcome for record in result.records] == ["done", "done"]
        assert counted(await store.read(thread.id), ev.CallFinished) == ["c1", "c2"]
        assert (await thread.resume()).text == "thanks"
        assert sorted(paid) == [1, 2]

    asyncio.run(go())


@pytest.mark.parametrize("kind", [ev.Prompted, ev.ModelCalled, ev.Replied, ev.CallStarted, ev.CallFinished, ev.Finished])
@pytest.mark.parametrize("same", [True, False], ids=["the same thread", "a new one"])
def test_cancelled_before_an_event_is_acknowledged_it_counts_all_the_same(kind: type[ev.Event], same: bool) -> None:
    async def go() -> None:
        store = LateStore(kind)
        harness, paid = payer(store)
        thread = harness.thread()
        run = asyncio.ensure_future(thread.run("go"))
        await in_the_log(store, thread, kind)
        run.cancel()
        await asyncio.wait((run,))
        assert run.cancelled()
        onward = thread if same else harness.thread(thread.id)
        state = await onward.state()
        assert state.finished is not None or (await onward.resume()).text == "thanks"
        events = await store.read(thread.id)
        assert counted(events, ev.CallStarted) == counted(events, ev.CallFinished) == ["c1", "c2"]
        assert len(paid) == len(set(paid))
        assert (await onward.run("again")).text == "thanks"

    asyncio.run(go())


def test_cancelled_while_a_note_is_settled_it_counts_once() -> None:
    """The tools of the run go on for a moment: what they report must not be mistaken for the note, nor the other way round."""

    async def go() -> None:
        store = LateStore(ev.Steered)
        entered = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Wait, and finish what was begun when it is cancelled."""
            entered.set()
            await asyncio.sleep(0.02)
            return "waited"

        made = calls(ToolCall.of("c1", "wait", {}), ToolCall.of("c2", "wait", {}))
        model = ScriptedModel(lambda ask: made if len(ask.transcript) == 1 else "thanks")
        thread = Harness(model, tools=[wait], store=store).thread()
        run = asyncio.ensure_future(thread.run("go"))
        await entered.wait()
        await thread.steer("and be quick")
        await in_the_log(store, thread, ev.Steered)
        run.cancel()
        await asyncio.wait((run,))
        result = await thread.resume()
        assert [message.text for message in result.transcript if message.role == "user"] == ["go", "", "and be quick"]
        events = await store.read(thread.id)
        assert sum(isinstance(event, ev.Steered) for event in events) == 1
        assert counted(events, ev.CallFinished) == ["c1", "c2"]

    asyncio.run(go())


def test_a_log_that_could_not_be_made_is_made_by_the_next_run() -> None:
    class Full(MemoryStore):
        full = True

        async def create(self, log: str, first: ev.Event, *, holder: str) -> Log:  # type: ignore[override]
            if self.full:
                raise StoreError("The disk is full.")
            return await super().create(log, first, holder=holder)

    async def go() -> None:
        store = Full()
        thread = payer(store)[0].thread()
        with pytest.raises(StoreError, match="full"):
            await thread.run("go")
        store.full = False
        assert (await thread.run("go")).text == "thanks"

    asyncio.run(go())


def test_a_stream_that_is_closed_before_it_began_ends_for_those_who_watch() -> None:
    async def go() -> None:
        harness, paid = payer(MemoryStore())
        stream = harness.stream("go")

        async def watch() -> int:
            return len([event async for event in stream])

        watching = asyncio.ensure_future(watch())
        stream._task.cancel()
        async with asyncio.timeout(120):
            assert await watching == 0
        assert paid == []

    asyncio.run(go())
