"""Everything that a driver uses besides the model, played back: tools, media, hooks, and messages of users."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.call_context import current_site
from evener.driver.context_window import RoomHost
from evener.errors import EvenerError
from evener.hooks import Cancel, Hook, HookAnswer, Hooks, Moment
from evener.loop.state import RunState, Spent
from evener.model.seam import Answered, Askable
from evener.replay.moments import Inbox
from evener.replay.tape import Tape
from evener.store.protocol import Lease, Note
from evener.tools.call import CallSite, digest_of
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import DocumentBlock, ImageBlock, TextBlock, ToolCall
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript


class RecordedCaller:
    """Gives each call its recorded result, in the recorded order. Runs nothing."""

    def __init__(self, tape: Tape, state: Callable[[], RunState], *, specs: Iterable[ToolSpec]) -> None:
        self._tape = tape
        self._state = state
        self._schemas = {spec.name: spec.schema for spec in specs}

    @property
    def shares(self) -> bool:
        """False: the log has a result for each call."""
        return False

    def digest(self, call: ToolCall) -> str:
        return digest_of(call, self._schemas.get(call.name, ""))

    async def run(self, call: ToolCall, site: CallSite) -> ev.CallFinished | ev.CallPaused:
        """Return the recorded result, once the recording has reached it."""
        del site

        def mine(event: ev.Event) -> bool:
            return isinstance(event, ev.CallFinished | ev.CallPaused) and event.call == call.id

        found = await self._tape.turn(mine, self._is_under_way, wanted=f"the result of call {call.id}")
        if isinstance(found, ev.CallPaused):
            self._count(call, found.nested)
            return replace(found, nested=None)
        return self._result(found, call)

    async def verify(self, call: ToolCall, site: CallSite) -> ev.CallFinished | None:
        """Return the recorded result of `verify` for an interrupted start; None if the call was started again."""
        del site

        def mine(event: ev.Event) -> bool:
            return isinstance(event, ev.CallFinished | ev.CallStarted) and event.call == call.id

        found = await self._tape.turn(mine, self._is_under_way, wanted=f"what became of call {call.id}")
        return None if isinstance(found, ev.CallStarted) else self._result(found, call)

    def give_up(self, call: ToolCall) -> ev.CallFinished:
        """Return the result of a call that was cancelled while it ran."""
        for event in self._tape.ahead():
            if isinstance(event, ev.CallFinished) and event.call == call.id:
                return event
        return ev.CallFinished(at=0.0, call=call.id, ok=False)

    def _result(self, event: ev.Event, call: ToolCall) -> ev.CallFinished:
        """Return the result as the tool gave it, without what the driver added. The usage of inner runs is charged."""
        if not isinstance(event, ev.CallFinished):
            raise EvenerError(f"The recording has no result for call {call.id}.")
        self._count(call, event.nested)
        told = TextBlock(f"[The user changed the arguments. What ran: {call.raw}]")
        content = event.content[1:] if event.content[:1] == (told,) else event.content
        return replace(event, content=content, nested=None)

    def _count(self, call: ToolCall, nested: ev.Nested | None) -> None:
        """Charge the present call with the usage of its inner runs, without the part that was charged before."""
        site = current_site.get()
        if nested is None or site is None:
            return
        counted = next((one.nested for one in self._state().calls if one.call.id == call.id), None)
        site.tally.add(Spent().with_nested(nested))
        site.budget.charge(Spent().with_nested(nested, counted))
        if nested.acted:
            site.tally.act()

    def _is_under_way(self, event: ev.Event) -> bool:
        match event:
            case ev.CallFinished(call=id) | ev.CallPaused(call=id) | ev.CallStarted(call=id):
                return any(one.call.id == id and one.status == "started" for one in self._state().calls)
            case _:
                return False


class RecordedMedia:
    """Knows what was fetched. The bytes are not needed, because no model gets them."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def fetch(self, url: str, *blocks: ImageBlock | DocumentBlock) -> tuple[str, str, int]:
        del blocks

        def mine(event: ev.Event) -> bool:
            return isinstance(event, ev.MediaFetched) and event.source == url

        def others(event: ev.Event) -> bool:
            return isinstance(event, ev.MediaFetched)

        found = await self._tape.turn(mine, others, wanted=f"the media behind {url}")
        return (found.digest, found.media_type, found.size) if isinstance(found, ev.MediaFetched) else ("", "", 0)

    async def inline(self, transcript: Transcript, have: Mapping[str, str], *, remote: bool) -> Transcript:
        del have, remote
        return transcript


MadeFirst = ev.Compacted | ev.CompactionFailed | ev.ContextRestored


class RecordedRoom:
    """Repeats the recorded cuts and summaries."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def is_far(self, state: RunState, model: Askable, answer: Answered | None) -> bool:
        """False: the recording says what was done."""
        del state, model, answer
        return False

    async def make_room(self, host: RoomHost, called: ev.ModelCalled, model: Askable) -> tuple[ev.Event, ...] | None:
        del called, model
        while isinstance(event := self._tape.next, MadeFirst) and event.cause != "user":
            await host.record(event)
        if isinstance(event, ev.ModelFailed) and event.crowded:
            await host.record(event)
            return None
        after = next(islice(self._tape.ahead(), 1, None), None)
        return (after,) if isinstance(after, ev.Evicted) and after.cause != "user" else ()

    def answered(self, host: RoomHost, model: Askable, usage: Usage) -> None:
        """Do nothing: the recorded evictions already depend on what was reported."""
        del host, model, usage


def recorded_hooks(tape: Tape) -> Hooks:
    """Return hooks that cancel the calls which hooks cancelled in the recording."""

    def cancelled(moment: Moment) -> HookAnswer:
        asked = moment.call.id if moment.call else None
        for event in tape.ahead():
            match event:
                case ev.CallStarted(call=id) if id == asked:
                    return None
                case ev.CallFinished(call=id) if id == asked:
                    return Cancel(event.why) if event.by_hook else None
        return None

    return Hooks([Hook(event="before_tool_call", handler=cancelled)])


def recorded_router(tape: Tape, models: Sequence[str]) -> Callable[[RunState, str], str]:
    """Return a router that chooses the recorded model of each request."""

    def chosen(state: RunState, model: str) -> str:
        del state
        for event in tape.ahead():
            match event:  # a request that has no room in the window fails before it is announced
                case ev.ModelCalled(model=name) | ev.ModelFailed(crowded=True, model=name):
                    return name if name in models else model
        return model

    return chosen


# The log.


class RecordedLog:
    """Stores nothing: the tape does. Its inbox has the recorded messages."""

    def __init__(self, name: str, tape: Tape) -> None:
        self._lease = Lease(name, 0, "replay")
        self._tape = tape

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def length(self) -> int:
        return self._tape.at

    async def append(self, *events: ev.Event) -> tuple[ev.Event, ...]:
        """Return the events: `Tape.dated` has recorded them already."""
        return events

    async def notes(self) -> Sequence[Note]:
        """Return the notes that users sent at this point of the recording, up to the next event of another kind."""
        found: list[Note] = []
        decided: list[ev.ApprovalDecided] = []
        for event in self._tape.ahead():
            if decided and not (isinstance(event, ev.ApprovalDecided) and event.id == decided[0].id):
                found.append(_decisions(decided))
                decided = []
            if not isinstance(event, Inbox):
                break
            if isinstance(event, ev.ApprovalDecided):
                decided.append(event)
            else:
                found.append(_note(event))
        return found + ([_decisions(decided)] if decided else [])

    async def settle(self, number: int, *events: ev.Event) -> tuple[ev.Event, ...]:
        """Return the events of the note."""
        del number
        return events

    async def renew(self) -> None:
        """Do nothing: there is no other holder."""

    async def aclose(self, *, left: bool = False) -> None:
        """Do nothing: there is no lease."""
        del left


def _note(event: ev.Steered | ev.Cancelled) -> Note:
    match event:
        case ev.Steered():
            return _find_said("steer", {"text": event.message.text, "now": event.at_once})
        case ev.Cancelled():
            return _find_said("cancel", {"why": event.why})


def _decisions(events: Sequence[ev.ApprovalDecided]) -> Note:
    return _find_said("decide", {"decisions": events})


def _find_said(kind: str, body: Mapping[str, object]) -> Note:
    return Note("replay", kind, msgspec.json.encode(body).decode(), 1)
