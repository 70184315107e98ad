"""Performs the steps of the plan and appends what happened. The only concurrent code; it decides nothing.

Starting, resuming and retrying are one loop: "while there are steps, perform them". A step that must not happen twice is on
disk before it begins. Cancelled at any point, the driver leaves a log that can be resumed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from decimal import Decimal
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.budget import Budget, Reservation
from evener.call_context import ALONE, Home, InnerUsage, Site, current_site, find_inner_log, key_of
from evener.driver.context_window import RoomMaker
from evener.driver.inbox import Listener, WritingOnWait, finish_anyway, finish_rest, pause, run_together
from evener.driver.record import (
    PRESENT,
    AnswerProgress,
    Clock,
    OutOfTime,
    Show,
    Teller,
    add_nested,
    cancelled_result,
    events_of,
    failure_event,
    refused_result,
    reply_events,
    run_within,
    settled_result,
)
from evener.encodings.forms import FINAL_RESULT
from evener.errors import ConnectFailed, ContextTooLong, EvenerError, ProviderError, TransportError, WireError
from evener.hooks import AddContext, Cancel, HookAnswer, HookEvent, HookFailed, Hooks, Moment, rewrite_result
from evener.loop.plan import (
    AskApproval,
    CallModel,
    ContinueTurn,
    Extend,
    FetchMedia,
    Finish,
    Judge,
    RefuseCall,
    RunTool,
    SettleCall,
    Setup,
    Step,
    ToolOffer,
    plan,
)
from evener.loop.state import NoRoom, RunState, apply
from evener.model.media import find_blocks
from evener.model.seam import Answered, Askable, Asking, MediaAccess
from evener.model.server_state import Rest, Resting
from evener.model.stream import Answer, Stream, begin
from evener.observe.trace_context import InnerSpan, current_trace
from evener.policy.rules import OPEN, Policy
from evener.store.protocol import Ending, Log, Note, Staging
from evener.tools.call import Calling, CallSite
from evener.tools.context import Cancellation, cancel_run, cancellation_of
from evener.tools.outputs import OutputShape
from evener.transcript.ask import Ask, Extra, HostedTool, ModelSettings, OutputSchema, Settings, ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.loss import refuse
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript

if TYPE_CHECKING:
    from evener.budget import TreeBudget
    from evener.driver.slice import RunSlice

__all__ = [
    "Agent",
    "Driver",
    "Hooking",
    "Room",
    "had_begun",
    "room_for",
    "unpriced",
    "with_context",
]


FREE = Decimal(0)


class Room(msgspec.Struct, frozen=True):
    """What a call may use. `settings` limit its answer so that it fits; None if it fits unchanged."""

    held: Reservation
    settings: Settings | None = None
    key: str = ""  # of the reservation in the budget of a tree on several machines


FREE_ROOM = Room(Reservation())


async def room_for(
    model: Askable, *, next_ask: Callable[[], Ask], budget: Budget, whole: Decimal | None, wait: Callable[[], Awaitable[bool]]
) -> Room | NoRoom:
    """Reserve room for one call of this model. Return the reservation, or the limit that leaves no room.

    `next_ask` returns the ask that would be sent; `whole` is the run's own limit of the cost, if it has one. `wait` waits a
    while for other calls to settle; it returns False if waiting is useless.
    """
    while True:
        ask = next_ask()
        most = model.most_cost(ask)
        found = budget.reserve(cost=most)
        if not isinstance(found, NoRoom):
            return Room(found)
        if not (found.money and budget.holds and await wait()):
            break
    shorter = _shorten_answer(model, ask, most, budget)
    if shorter is not None:
        return shorter
    hopeless = whole is not None and found.money and most > whole and model.capped(ask, whole) is None
    return msgspec.structs.replace(found, final=True) if hopeless else found


def _shorten_answer(model: Askable, ask: Ask, most: Decimal, budget: Budget) -> Room | None:
    left = budget.left
    if not FREE < left < most:
        return None
    short = model.capped(ask, left)
    held = budget.reserve(cost=left) if short is not None else None
    return Room(held, short.settings) if short is not None and isinstance(held, Reservation) else None


def had_begun(error: EvenerError) -> bool:
    """True if the provider may have worked on a request that failed like this, and will be paid for it."""
    match error:
        case ConnectFailed():
            return False
        case ProviderError():
            return not error.status  # it came inside the stream: the answer had begun
        case _:
            return isinstance(error, TransportError | WireError)


def unpriced(model: Askable) -> str:
    """Return what is told once, where a limit on the cost meets a model whose price is not known."""
    return (
        f"The price of {model.name} is not known, so its requests do not count toward the cost limit. "
        "Limit requests or tokens as well, or install a price list that has this model."
    )


REFUSED = "A hook cancelled the prompt."


class Hooking:
    """Calls the hooks of a run. `warnings` are the errors of hooks that are not fatal."""

    def __init__(self, hooks: Hooks | None, teller: Teller) -> None:
        self._hooks = hooks
        self._teller = teller
        self._failed: list[HookFailed] = []
        self._broken: set[str] = set()  # calls inside which a fatal hook failed
        self.warnings: list[str] = []

    def told(self, event: HookEvent, **about: object) -> tuple[HookAnswer, ...]:
        """Tell the hooks for this event, and return their answers."""
        if self._hooks is None:
            return ()
        place = self._teller.place
        moment = Moment(event=event, run=place.run, thread=place.thread, agent=place.agent, **about)  # type: ignore[arg-type]
        return self._hooks.call(moment, self.warn)

    def warn(self, text: str) -> None:
        """Warn the caller, in the stream and with the result."""
        self.warnings.append(text)
        self._teller.tell(st.Warned, text=text)

    # What the user says.

    def prompted(self, message: Message) -> tuple[Message, str]:
        """Return what the user said, with what hooks add to it, and why it may not pass; empty when it may."""
        answers = self.told("user_prompt_submit", prompt=message)
        stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
        return with_context(message, answers), "" if stop is None else stop.why or REFUSED

    def heard(self, event: ev.Event) -> ev.Event:
        """Pass what was said to a run under way through the hooks of a prompt. Without what they refuse, the run goes on."""
        if not isinstance(event, ev.Steered):
            return event
        message, refused = self.prompted(event.message)
        if refused:
            self.warn(f"A hook refused a message to the run: {refused}")
        return replace(event, message=message, refused=refused)

    # Calls.

    def stopped(self, steps: Sequence[RunTool]) -> dict[str, str]:
        """Return the calls that hooks cancel, and why. They see what would run."""
        found: dict[str, str] = {}
        for step in steps if self._hooks is not None else ():
            answers = self.told("before_tool_call", call=step.runs)
            stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
            if stop is not None:
                found[step.call.id] = stop.why
        return found

    def finished(self, step: RunTool, done: ev.CallFinished) -> ev.CallFinished:
        """Return the result as the model shall see it; as it is, if a fatal hook fails."""
        if self._hooks is None:
            return done
        try:
            return rewrite_result(done, self.told("after_tool_call", call=step.runs, result=done))
        except HookFailed as error:
            self._failed.append(error)
            return done

    def inside(self, call: str, event: HookEvent, **about: object) -> tuple[HookAnswer, ...]:
        """Return what hooks answer to something that happens inside a call. After a fatal failure the call has no result."""
        try:
            return self.told(event, **about)
        except HookFailed as error:
            self._failed.append(error)
            self._broken.add(call)
            raise

    def is_broken(self, call: str) -> bool:
        """True if a fatal hook failed inside this call: it was not done, and is begun again when the run is resumed."""
        return call in self._broken

    def check(self) -> None:
        """End the run, if a fatal hook failed about a call."""
        if self._failed:
            raise self._failed[0]


def with_context(message: Message, answers: Sequence[HookAnswer]) -> Message:
    """Return the message with what hooks add to it."""
    added = tuple(TextBlock(answer.text) for answer in answers if isinstance(answer, AddContext))
    return replace(message, blocks=(*message.blocks, *added)) if added else message


async def _complete(model: Askable, ask: Ask) -> Answered:
    """Return the whole answer to something that is asked beside the conversation."""
    stream = model.stream(ask)
    try:
        while await stream.read():
            pass
        return stream.answer
    finally:
        await stream.aclose()


def _writes_first(steps: tuple[Step, ...]) -> bool:
    """True if performing the steps begins with an append: what is staged is written with that."""
    if not steps:
        return False
    first = steps[0]
    return not first.wait if type(first) is CallModel else type(first) is not Extend


PATIENCE = 0.02
"""Seconds between two looks at a budget that others hold."""
STALE = 0.5
"""Seconds after which the start of a call on disk is not enough to begin it: the process may have been stopped since, and the
log may belong to another holder."""
BRIEF = 0.001
"""Seconds. A tool that only reads and took less the last time is run before its start is written: it may run twice, and the
answer that calls it is not at risk for longer."""
NO_COST = Decimal(0)
T = TypeVar("T")


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a run: the same for every run of a harness."""

    models: tuple[Askable, ...]
    specs: tuple[ToolSpec | HostedTool, ...]
    setup: Setup
    caller: Calling
    output: OutputSchema | None = None
    shape: OutputShape | None = None
    decide_within: float = 0.0  # seconds; 0 is for ever
    hooks: Hooks | None = None  # None where there are none
    refuse_losses: frozenset[str] = frozenset()  # with which nothing is sent
    bearings: Resting | None = None  # where a provider holds the conversation; None where none does
    policy: Policy | None = None  # what `judged` was asked for: it holds for the runs inside its calls, too
    judged: Callable[[Policy], Judge] | None = None  # the judge of these tools by a policy; None where there are none
    context: RoomMaker | None = None  # keeps requests within the windows of the models; None where they are as they are
    settings: ModelSettings | None = None  # of every request; those of a run stand over them
    edits: Callable[[Askable, RunState], tuple[Extra, ...]] | None = None  # fields with which the provider shortens them itself
    offered: ToolOffer | None = None  # which of them a request declares; None where none is hidden
    keep_raw: Callable[[bytes, str], Awaitable[str]] | None = None  # keeps an answer as it came, and what it says
    diagnose: bool = False  # ask the provider why its prompt cache was missed

    def ask(self, model: Askable, transcript: Transcript, state: RunState) -> Ask:
        """Return the ask that comes next in this state, with the settings of agent and run."""
        made = model.ask(transcript, self.offer(state), output=self.output)
        settings = self.settings_in(state)
        if self.edits is not None and (more := self.edits(model, state)):
            made = replace(made, extra=(*made.extra, *more))
        return made if settings is None else settings.apply_to(made, turn=state.turns)

    def settings_in(self, state: RunState) -> ModelSettings | None:
        """Return the settings of requests in this state: those of the run over those of the agent."""
        return self.settings if state.settings is None else state.settings.over(self.settings)

    def offer(self, state: RunState) -> tuple[ToolSpec | HostedTool, ...]:
        """Return the tools that requests declare: all but those that are hidden and not revealed yet."""
        return self.specs if self.offered is None else self.offered.at(state.revealed)

    def under(self, policy: Policy) -> "Agent":
        """Return the same agent, bound by the policy of the run around it: what that one may not, it may not."""
        bound = self.policy.under(policy) if self.policy is not None else OPEN.under(policy)
        if self.judged is None:
            return replace(self, policy=bound)
        gate = replace(self.setup.gate, judge=self.judged(bound))
        return replace(self, policy=bound, setup=replace(self.setup, gate=gate))


class Driver:
    """Runs one log. `show` receives the events for the caller; None shows nothing, and costs nothing. `slice` limits its
    time in a slot. `closes`: if the log can, it is closed in the commit of the end of the run.
    """

    __slots__ = (  # so many that the instance would need a dictionary, and each look at it a search
        "__weakref__", "_agent", "_brief", "_budget", "_cancels", "_clock", "_closed", "_ending", "_full", "_home",
        "_hooking", "_listener", "_log", "_media", "_name", "_over", "_recorded", "_request", "_slice",
        "_staged", "_staging", "_tallies", "_teller", "_traced", "_twins", "_under_way", "_watched",
        "answers", "before", "error", "events", "hooked", "left", "nudge", "prompted", "state", "tell",
    )  # fmt: skip

    def __init__(
        self,
        log: Log,
        state: RunState,
        *,
        agent: Agent,
        place: st.Place,
        media: MediaAccess,
        answers: dict[str, Answered],
        budget: Budget,
        home: Home = ALONE,
        show: Show | None = None,
        clock: Clock = PRESENT,
        slice: "RunSlice | None" = None,
        closes: bool = False,
    ) -> None:
        self._clock = clock
        self._slice = slice
        self._budget = budget
        self._home = home
        self._log = log
        self.before = log.length
        """How many events the log had."""
        self._name = log.lease.log
        self._agent = agent
        self._teller = Teller(place, show)
        self._watched = show is not None
        self._hooking = Hooking(agent.hooks, self._teller)
        self._media = media
        self._listener = Listener(self._look)
        self._over: NoRoom | None = None  # the runs around this one have no room for the calls of the last answer
        self._full: NoRoom | None = None  # this one has no room for what was planned
        self._request = ""  # the digest of the last request; empty where the model is not one of a provider
        self._tallies: dict[str, InnerUsage] = {}  # of calls under way
        self._twins: dict[str, asyncio.Future[ev.CallFinished | None]] = {}
        self.tell = self._teller.tell
        self.hooked = self._hooking.told
        self.prompted = self._hooking.prompted
        self.nudge = self._listener.nudge
        self.state = state
        self.answers = answers
        """The last answer of the model that gave it: what makes the next request cheap."""
        self.events: list[ev.Event] = []
        self.error: EvenerError | None = None
        """Why the model could not be asked, the last time it could not."""
        self._recorded = 0.0  # when the last append was begun
        # Hooks see what is on disk: with hooks nothing is staged.
        # `isinstance` with a protocol looks for its methods anew each time, in Python.
        self._staging = cast(Staging, log) if hasattr(log, "stage") and not agent.hooks else None
        self._ending = cast(Ending, log) if closes and self._staging is not None and hasattr(log, "append_last") else None
        self._closed = False  # the log, with the end of the run
        self._staged = False  # what was folded last is not on disk yet
        self._under_way = 0  # calls and downloads of this step that go on
        self._traced = current_trace.get()  # the span around the run, if there is one
        self._brief: set[str] = set()  # tools that only read, and took no time when they were called last
        self._cancels: Cancellation | None = None  # set when the run is cancelled; made for the first call
        self.left = False
        """True if a call that was given up goes on by itself: a thread cannot be stopped."""

    @property
    def run(self) -> str:
        """The id of the run that this driver begins or continues."""
        return self._teller.place.run

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that did not stop the run: hooks that failed, limits that cannot be enforced; including those of inner
        runs.
        """
        return tuple(dict.fromkeys((*self._hooking.warnings, *self._budget.warnings)))

    def total(self) -> ev.Nested:
        """Return what the run and the runs inside it have used by now, a request under way with the most that it may cost."""
        spent = self.state.most_spent
        counted = {one.call.id: one.nested for one in self.state.calls}
        for call, tally in tuple(self._tallies.items()):
            spent = spent.with_nested(tally.total, counted.get(call))
        return ev.Nested(spent.requests, spent.tool_calls, spent.usage, spent.cost, spent.exact)

    async def drive(self) -> RunState:
        """Go on until there is nothing to do: the run has finished, it waits for a decision, or its slice is over."""
        try:
            if self._budget.root.tree is not None:
                await self._settle_left(self._budget.root.tree)
            if not self._staged:
                await self.drain_inbox()
            while (steps := plan(self.state, self._agent.setup, self._clock.now(), full=self._full)) or self._staged:
                if self._slice is not None and self._rests(steps, self._slice):
                    break
                if not self._staged or _writes_first(steps):
                    await self._perform(steps)
                else:
                    await self.record()
                if not self._staged and not self._closed and (notes := await self._log.notes()):
                    await self._settle_notes(notes)
        except BaseException:
            cancel_run(self.run)
            raise
        finally:
            self._listener.close()
            if self._staged:
                await finish_anyway(self.record())
        if self._is_cancelled():
            cancel_run(self.run)
        return self.state

    def _rests(self, steps: tuple[Step, ...], slice: "RunSlice") -> bool:
        """True if the run leaves its slot before these steps. Its end is written all the same."""
        if not steps or isinstance(steps[0], Finish):
            return False
        return slice.rests(self._wait_left(steps[0].wait) if isinstance(steps[0], CallModel) else 0.0)

    def _wait_left(self, wait: float) -> float:
        """Return how many seconds are left of a pause that began with the failure of the last request."""
        failure = self.state.failure
        return max(0.0, failure.at + wait - self._clock.now()) if failure is not None else wait

    def record(self, *events: ev.Event) -> Coroutine[object, object, bool]:
        """Append events, after those that are staged, and know them only then."""
        return self._append(self._log.append, events)

    def record_soon(self, *events: ev.Event) -> Coroutine[object, object, bool]:
        """Stage events, if the log can write them together with the next ones; else append them.

        The next events must follow at once.
        """
        return self._append(self._log.append, events) if self._staging is None else self._stage(self._staging, events)

    async def _stage(self, staging: Staging, events: tuple[ev.Event, ...]) -> bool:
        staged = staging.stage(*self._clock.dated(events))
        if staged is None:
            return await self._append(self._log.append, events)
        self._staged = True
        if self._watched:
            self._teller.hold()
        self._fold(events, staged)
        return True

    def _record_step(self, events: tuple[ev.Event, ...]) -> Coroutine[object, object, bool]:
        """Append what a step begins with. False: a note came meanwhile, only what was staged is on disk, and a new plan is due.

        Without anything staged the inbox was read just before.
        """
        if self._staging is None or not self._staged:
            return self._append(self._log.append, events)
        return self._append(self._staging.append_unless_noted, events)

    async def _append(
        self, append: Callable[..., Awaitable[tuple[ev.Event, ...] | None]], events: tuple[ev.Event, ...]
    ) -> bool:
        """Append events and apply them. False if they were not written, because a note arrived."""
        events = events if self._clock is PRESENT else self._clock.dated(events)
        began = monotonic()
        self._staged = False  # also when this fails: the run then ends, and the log is read anew
        try:
            kept = await append(*events)
        except BaseException:
            self._teller.drop()
            raise
        if self._watched:
            self._teller.release()
        if kept is None:
            return False
        self._fold(events, kept)
        self._recorded = began
        return True

    def _fold(self, events: tuple[ev.Event, ...], kept: tuple[ev.Event, ...]) -> None:
        """Fold what is kept, as a process that takes over would.

        The caller is told the events as they were, but results of tools as they are kept: a tool may return a secret by
        mistake, and what callers get is shown to users.
        """
        state = self.state
        for event in kept:
            state = apply(state, event)
        self.state = state
        if kept is not events and kept != events:  # something was taken out of them
            pairs = zip(events, kept, strict=True)
            kept = tuple([one if type(one) is ev.CallFinished else event for event, one in pairs])
        self.events += kept

    def _perform(self, steps: tuple[Step, ...]) -> Coroutine[object, object, None]:
        first = steps[0]
        if type(first) is CallModel:
            return self._call_model(first)
        if type(first) is RunTool:
            return self._perform_all(steps)
        match first:
            case FetchMedia() | SettleCall() | RefuseCall():
                return self._perform_all(steps)
            case Finish(cause, detail, limit):
                return self._finish(cause, detail, limit)
            case ContinueTurn(model):
                return self._call_model(CallModel(model))
            case AskApproval() as step:
                return self._ask_approval(step)
            case Extend():
                return self._extend()

    async def _extend(self) -> None:
        """Go on with a fresh allowance."""
        self._budget.renew()
        if self._budget.root.tree is not None:
            await self._budget.root.tree.renew(self.state.run)
        self._full = None
        await self.record(ev.Continued(at=time(), run=self.state.run))

    async def _finish(self, cause: ev.StopCause, detail: str, limit: ev.LimitHit | None) -> None:
        finished = ev.Finished(at=time(), run=self.state.run, cause=cause, detail=detail, limit=limit)
        if self._ending is None or self.left:
            ended = await self._record_step((finished,))
        else:
            ended = self._closed = await self._append(self._ending.append_last, (finished,))
        if ended and cause == "limit":
            self.hooked("limit_reached", stop=cause, detail=detail)

    # The inbox.

    async def drain_inbox(self) -> None:
        """Turn what was said to the log into events."""
        await self._settle_notes(await self._log.notes())

    async def _settle_notes(self, notes: Sequence[Note]) -> None:
        for note in notes:
            events = tuple(self._hooking.heard(event) for event in events_of(note))
            await self._append(partial(self._log.settle, note.number), events)

    async def _ask_approval(self, step: AskApproval) -> None:
        """Write down what must be decided. The plan then has nothing to do, and the run ends here until it is."""
        seconds = self._agent.decide_within
        asked = ev.ApprovalAsked(
            at=time(), id=new_id(), interrupt=step.interrupt, questions=step.questions,
            expires=time() + seconds if seconds else 0.0,
        )  # fmt: skip
        if await self._record_step((asked,)):
            self.tell(st.ApprovalRequested, approval=asked.id, interrupt=step.interrupt, questions=step.questions)

    async def _look(self) -> None:
        await self._log.renew()
        await self.drain_inbox()

    def _is_cancelled(self) -> bool:
        return self.state.cancelled is not None

    def _is_given_up(self) -> bool:
        return not self.state.asking

    # The model.

    async def _call_model(self, step: CallModel) -> None:
        model = self._agent.models[step.model]
        if step.wait or self.state.failure:
            failure = self.state.failure.message if self.state.failure else ""
            self.tell(st.RetryScheduled, error=failure, wait=step.wait, model=model.name)
            wait = step.wait if self._slice is None else self._wait_left(step.wait)
            if wait and await self._listener.during(self._clock.pause(wait), until=self._is_cancelled) is None:
                return
        limited = self._budget.counts_money or self._budget.root.tree is not None
        room = await self._room(step, model) if limited else self._room_for_one()
        if type(room) is NoRoom:
            await self._handle_refusal(room)
            return
        before, requests = self.state.spent.cost, self.state.spent.requests
        answer = None
        try:
            answer = await self._call_within(step, model, room)
        finally:
            lost = room.held.cost if self.state.asking else NO_COST
            used = answer.reply.usage if answer else Usage()
            cost = self.state.spent.cost - before + lost
            self._budget.settle(room.held, usage=used, cost=cost)
            if self._budget.root.tree is not None and room.key:
                made = self.state.spent.requests > requests
                await finish_anyway(self._budget.root.tree.settle(room.key, usage=used, cost=cost, made=made))

    async def _room(self, step: CallModel, model: Askable) -> Room | NoRoom:
        found = await self._own_room(step, model)
        if self._budget.root.tree is None or type(found) is NoRoom:
            return found
        return await self._room_in_tree(found, self._budget.root.tree)

    async def _room_in_tree(self, room: Room, tree: "TreeBudget") -> Room | NoRoom:
        """Reserve room in the budget of the tree, too. If there is none, release what was reserved here."""
        key = new_id()
        while (refused := await tree.reserve(key, room.held.cost)) is not None:
            if refused.final or not await self._wait_for_room():
                self._budget.settle(room.held, usage=Usage(), cost=NO_COST)
                self._budget.return_request()
                return replace(refused, final=True)
        return replace(room, key=key)

    async def _settle_left(self, tree: "TreeBudget") -> None:
        """Count what an earlier holder of the log had reserved and not settled, and calls that it had not claimed."""
        await tree.settle_left()
        asked = sum(one.call.name != FINAL_RESULT for one in self.state.calls)
        if asked and any(one.status != "finished" for one in self.state.calls):
            self._over = await tree.claim_calls(self._calls_key, asked)

    @property
    def _calls_key(self) -> str:
        """The name of the calls of the last answer, the same in any process."""
        return f"{self.state.run}:{self.state.spent.requests}"

    async def _wait_for_room(self) -> bool:
        """Wait for some time. False if waiting any longer cannot help."""
        if self._staged:
            await self.record()
        await self._listener.during(pause(PATIENCE), until=self._is_cancelled)
        return not self._is_cancelled()

    def _room_for_one(self) -> Room | NoRoom:
        """Return room for a request whose cost does not matter."""
        found = self._budget.reserve(cost=NO_COST)
        return found if type(found) is NoRoom else FREE_ROOM

    async def _own_room(self, step: CallModel, model: Askable) -> Room | NoRoom:
        if not self._budget.counts_money:
            return self._room_for_one()

        def next_ask() -> Ask:
            called = ev.ModelCalled(at=self.state.last, model=model.name, id="next", notices=step.notices)
            return self._agent.ask(model, apply(self.state, called).view, self.state)

        whole = self._agent.setup.limits.cost
        return await room_for(model, next_ask=next_ask, budget=self._budget, whole=whole, wait=self._wait_for_room)

    async def _handle_refusal(self, refusal: NoRoom) -> None:
        """Leave the consequence to the plan, unless the limit is that of a run around this one."""
        if self._is_cancelled():
            return
        if refusal.final:
            await self._finish("limit", refusal.why, refusal.hit)
        else:
            self._full = refusal

    async def _call_within(self, step: CallModel, model: Askable, room: Room) -> Answered | None:
        """Return the answer, written down; None when there is none."""
        rest = self._resting(model)
        most = room.held.cost
        request = await self._announce(step, model, rest, most)
        if not request:
            self._budget.return_request()
            return None
        if self._watched:
            for key, text in step.notices:
                self.tell(st.NoticeGiven, key=key, text=text)
            self.tell(st.RequestStarted, model=model.name, number=self.state.spent.requests)
        shown = self._teller.told
        try:
            answer = await self._in_time(
                self._listener.during(self._ask_model(model, room, rest, request), until=self._is_given_up)
            )
        except OutOfTime:
            await self._out_of_time(shown=self._teller.told > shown)
            return None
        except EvenerError as error:
            await self._failed(error, most, rest, shown=self._teller.told > shown)
            return None
        if answer is None:
            self._retract(shown)
            return None
        await self._write_answer(answer, model, rest, most)
        return answer

    async def _announce(self, step: CallModel, model: Askable, rest: Rest | None, most: Decimal) -> str:
        """Write `ModelCalled` before the request, once the conversation fits into the window.

        Return the request's id; empty if it is not sent.
        """
        rests = rest.rests if rest else None
        called = ev.ModelCalled(at=time(), model=model.name, id=new_id(), notices=step.notices, rests=rests, most=most)
        context = self._agent.context
        more: tuple[ev.Event, ...] | None = ()
        if context is not None and not context.is_far(self.state, model, self.answers.get(model.name)):
            more = await context.make_room(self, called, model)
        if self.state.cancelled is not None:  # while a summary was made
            return ""
        if more is None:
            self.error = ContextTooLong(self.state.failure.message) if self.state.failure else self.error
            return ""
        return called.id if await self._record_step((called, *more)) else ""

    async def _write_answer(self, answer: Answered, model: Askable, rest: Rest | None, most: Decimal) -> None:
        self.answers = {model.name: answer}
        told, *more = reply_events(answer, self._agent.shape, self._agent.setup.tools, request=self._request)
        if self._agent.bearings and rest:
            told = self._agent.bearings.answered(told, answer, rest, self.state.view)
        if not told.exact and self._budget.counts_money:
            told = self._reckon_cost(told, most, model)
        if isinstance(answer, Answer) and answer.raw is not None and self._agent.keep_raw is not None:
            told = await self._keep_raw(told, answer.raw, self._agent.keep_raw)
        await (self.record_soon(told, *more) if more else self.record_soon(told))
        asked = 0
        for one in self.state.calls:
            asked += one.call.name != FINAL_RESULT
        self._over = None
        if asked:
            await self._claim_calls(asked)
        if self._agent.context is not None:
            self._agent.context.answered(self, model, answer.reply.usage)
        if self._watched:
            self.tell(st.TurnFinished, message=told.message, usage=answer.reply.usage)

    async def _keep_raw(self, told: ev.Replied, raw: bytes, keep: Callable[[bytes, str], Awaitable[str]]) -> ev.Replied:
        """Return the reply with the name of the blob that has the answer as it came."""
        said = "\n".join(block.raw if type(block) is ToolCall else getattr(block, "text", "") for block in told.message.blocks)
        name = await keep(raw, said)
        if not name:
            self._hooking.warn("An answer contains a secret, so its raw bytes were not stored. Its text is stored, redacted.")
        return replace(told, raw_blob=name)

    def _retract(self, shown: int) -> None:
        """Take back what was shown of an answer that the user interrupted."""
        if self._teller.told > shown:
            why = "The user spoke." if self.state.cancelled is None else "The run was cancelled."
            self.tell(st.Retracted, why=why, wished=True)

    async def _failed(self, error: EvenerError, most: Decimal, rest: Rest | None, *, shown: bool) -> None:
        self.error = error
        if shown:
            self.tell(st.Retracted, why=str(error))
        failure = failure_event(error, shown=shown, request=self._request)
        if had_begun(error):
            failure = replace(failure, cost=most, exact=False)
        await self.record(self._agent.bearings.failed(failure, error, rest) if self._agent.bearings and rest else failure)

    def _reckon_cost(self, told: ev.Replied, most: Decimal, model: Askable) -> ev.Replied:
        """Return the reply with the most that it may have cost, where what it cost is not known."""
        if most:
            return replace(told, cost=max(told.cost, most))
        if self._budget.warn(text := unpriced(model)):
            self._hooking.warn(text)
        return told

    async def _claim_calls(self, asked: int) -> None:
        refusal = self._budget.claim_calls(asked)
        if refusal is None and self._budget.root.tree is not None:
            refusal = await self._budget.root.tree.claim_calls(self._calls_key, asked)
        self._over = refusal if refusal and refusal.final else None
        if refusal and not refusal.final and self.state.used.tool_calls <= (self._agent.setup.limits.tool_calls or 0):
            self._full = refusal  # else the plan finds it out by itself

    def _in_time(self, work: Coroutine[object, object, T]) -> Coroutine[object, object, T]:
        """Return the work, bounded by the time that is left of the run. Without a limit no clock runs."""
        left = self._count_seconds()
        return work if left is None else run_within(work, self._clock.timeout(left))

    def _count_seconds(self) -> float | None:
        """Return how long the run may still work, as of the last event; None without a limit."""
        limit = self._agent.setup.limits.seconds
        return None if limit is None else max(limit - self.state.used.seconds, 0.0)

    async def _out_of_time(self, *, shown: bool) -> None:
        seconds = self._agent.setup.limits.seconds or 0.0
        why = f"The run has used its {seconds:g} seconds, and the model had not answered."
        if shown:
            self.tell(st.Retracted, why=why)
        await self._finish("limit", why, ev.LimitHit("seconds", seconds, seconds))

    def _resting(self, model: Askable) -> Rest | None:
        """Return what the next request leaves to the provider's memory; None where everything is sent anyway."""
        if self._agent.bearings is None:
            return None
        state = self.state if self.state.context is None else replace(self.state, transcript=self.state.view)
        ask = model.ask(state.transcript, self._agent.offer(state))
        return self._agent.bearings.before(state, model.name, ask.target)

    async def _ask_model(self, model: Askable, room: Room, rest: Rest | None, id: str) -> Answered:
        self._request = ""
        if self._traced is not None:
            current_trace.set(InnerSpan(self._teller.place.run, id, self._traced))
        transcript = self.state.transcript if self.state.context is None else self.state.view
        if transcript.has_far_media:
            transcript = await self._media.inline(transcript, dict(self.state.media), remote=model.fetches)
        stream = self._begin_stream(model, self._next_ask(model, transcript, room, rest))
        ours = stream if isinstance(stream, Stream) else None
        turn = AnswerProgress(self._teller, self._agent.shape) if self._teller.show is not None else None
        try:
            while deltas := await stream.read():
                if turn is not None:
                    turn.show(deltas, stream.form)
                if ours is not None and ours.over:
                    break
            if self._agent.diagnose:
                self._check_diagnosis(model, stream)
            return stream.answer
        finally:
            if ours is None or not ours.over:
                await stream.aclose()
            if self._traced is not None:
                current_trace.set(self._traced)
            if ours is not None:
                self._request = ours.digest

    def _next_ask(self, model: Askable, transcript: Transcript, room: Room, rest: Rest | None) -> Ask:
        ask = self._agent.ask(model, transcript, self.state)
        ask = ask if room.settings is None else replace(ask, settings=room.settings)
        ask = ask if rest is None else replace(ask, state=rest.state)
        if refused := self._agent.refuse_losses:
            refuse(rest.losses if rest else (), refused)
            ask = replace(ask, refuse_losses=ask.refuse_losses | refused)
        return ask

    def _begin_stream(self, model: Askable, ask: Ask) -> Asking:
        """Return the call, not yet begun, with the guard of the provider's prompt cache."""
        before = self.answers.get(model.name)
        stream = model.stream(ask, after=before)
        if isinstance(stream, Stream):
            stream.on_moved = self._tell_moved
            settings = self._agent.settings_in(self.state)
            if settings is not None and settings.keep_raw:
                stream.keep_raw()
            if self._agent.diagnose:
                stream.compare = before.reply.id if before else ""
        return stream

    def _tell_moved(self, what: tuple[str, ...]) -> None:
        """Warn that a provider's prompt cache is lost, unless something was just taken out of the conversation."""
        edited = self.state.context is not None and bool(self.state.context.recent)
        told = [one for one in what if one in ("tools", "system") or not edited]
        text = (
            f"The request begins differently from the one before it: {', '.join(told)} changed. The provider's prompt cache is "
            "lost from there on. Keep tools and system prompt the same for a whole conversation; put what changes into prompts."
        )
        if told and text not in self._hooking.warnings:
            self._hooking.warn(text)

    def _check_diagnosis(self, model: Askable, stream: Asking) -> None:
        """Warn where the provider's own word about its prompt cache is not what was expected."""
        if isinstance(stream, Stream) and (differs := stream.compare_caches()):
            self._hooking.warn(f"{model.name} and Evener disagree about the prompt cache: {differs}.")

    # Room in the window.

    async def ask_aside(self, model: Askable, ask: Ask) -> Answered | EvenerError | NoRoom | None:
        """Ask a model something beside the conversation, within the budget; None when the run was cancelled meanwhile."""
        if ask.transcript.has_far_media:
            inlined = await self._media.inline(ask.transcript, dict(self.state.media), remote=model.fetches)
            ask = replace(ask, transcript=inlined)
        if self._staged:  # the answer may take long
            await self.record()
        held = self._budget.reserve(cost=model.most_cost(ask) if self._budget.counts_money else NO_COST)
        if isinstance(held, NoRoom):
            return held
        room = Room(held)
        if self._budget.root.tree is not None:
            found = await self._room_in_tree(room, self._budget.root.tree)
            if isinstance(found, NoRoom):
                return found
            room = found
        answer = None
        try:
            answer = await self._in_time(self._listener.during(_complete(model, ask), until=self._is_cancelled))
            return answer
        except OutOfTime:
            return None
        except EvenerError as error:
            return error
        finally:
            used, cost = (answer.reply.usage, answer.cost.amount) if answer else (Usage(), NO_COST)
            self._budget.settle(held, usage=used, cost=cost)
            if self._budget.root.tree is not None and room.key:
                await finish_anyway(self._budget.root.tree.settle(room.key, usage=used, cost=cost))

    def overflow(self) -> ContextTooLong | None:
        """Return the provider's word that the last request was too long, if that is why it failed."""
        failure = self.state.failure
        if failure is None or failure.crowded or failure.error != ContextTooLong.__name__:
            return None
        return self.error if isinstance(self.error, ContextTooLong) else ContextTooLong(failure.message)

    def warn(self, text: str) -> None:
        """Warn the caller, in the stream and with the result."""
        self._hooking.warn(text)

    def warn_of(self, text: str) -> None:
        """Warn the caller, if there is something to say."""
        if text:
            self.warn(text)

    # Tools and media.

    async def _perform_all(self, steps: tuple[Step, ...]) -> None:
        """Perform steps that may go on at the same time. Starts are on disk before the first begins; not so a brief read."""
        if self._over:
            await self._finish("limit", self._over.why, self._over.hit)
            return
        done, runs, urls = _sort_steps(steps)
        if self._agent.hooks is not None and (stopped := self._hooking.stopped(runs)):
            done += [(step.runs, self._cancel_result(step, stopped[step.call.id])) for step in runs if step.call.id in stopped]
            runs = [step for step in runs if step.call.id not in stopped]
        events: tuple[ev.Event, ...] = (*(result for _, result in done), *map(self._start_event, runs))
        if self._staged and len(steps) == 1 and runs and runs[0].call.name in self._brief:
            await self.record_soon(*events)
            async with WritingOnWait(self.record):
                await self._work(runs, urls)
        elif await self._record_step(events):
            for call, result in done:
                self.tell(st.ToolFinished, call=call, result=result)
            await self._work(runs, urls)

    async def _work(self, runs: list[RunTool], urls: list[str]) -> None:
        """Run calls and fetch media, all at the same time."""
        self._twins = self._find_twins(runs) if len(runs) > 1 and self._agent.caller.shares else {}
        work = [*map(self._run, runs), *map(self._fetch, urls)]
        self._under_way = len(work)
        if work:
            await self._listener.during(run_together(work), until=self._is_cancelled)
        if self._agent.hooks is not None:
            self._hooking.check()
        if self.state.cancelled is not None:
            await self.record(*(self._give_up_call(one.call) for one in self.state.calls if one.status == "started"))

    def _cancel_result(self, step: RunTool, why: str) -> ev.CallFinished:
        facts = self._agent.setup.tools.get(step.call.name)
        return cancelled_result(step, why, acts=facts is None or facts.effect != "read")

    async def _run(self, step: RunTool) -> None:
        if self._watched:
            self.tell(st.ToolStarted, call=step.runs)
        place, home, tally = self._teller.place, self._home, InnerUsage(self._home.tally)
        key = self._key(step.call)
        if home.tally is not None and self._agent.setup.is_write(step.call.name):
            home.tally.act()
        site = Site(
            place.run, place.thread, step.call.id, home.depth + 1, self._budget, tally, self._teller.show,
            home.path, home.store, partial(self._hooking.inside, step.call.id),
            partial(find_inner_log, self.state, step.call, self._name), self._agent.policy, home.force,
            self._agent.models,
        )  # fmt: skip
        self._tallies[step.call.id] = tally
        token, traced = current_site.set(site), current_trace.set(InnerSpan(place.run, key, self._traced))
        try:
            done = await self._call_tool(step, key)
        finally:
            current_trace.reset(traced)
            current_site.reset(token)
        if self._agent.hooks is not None and self._hooking.is_broken(step.call.id):
            return
        if type(done) is ev.CallPaused:
            await finish_anyway(self.record(replace(done, nested=tally.total)))
        else:
            if step.arguments:
                told = TextBlock(f"[The user changed the arguments. What ran: {step.arguments}]")
                done = replace(done, content=(told, *done.content))
            done = add_nested(done, tally.total) if tally.is_used() else done
            if self._agent.hooks is not None:
                done = self._hooking.finished(step, done)
            self._under_way -= 1
            if self._staging is not None:
                self._note_duration(step.call.name, done.seconds)
            rest = begin(self.record(done) if self._under_way else self.record_soon(done))
            if rest is not None:
                await finish_rest(rest)
            if self._watched:
                self.tell(st.ToolFinished, call=step.runs, result=self._kept_result(done))
        self._tallies.pop(step.call.id, None)

    def _note_duration(self, tool: str, seconds: float) -> None:
        """Remember whether a tool that only reads was brief."""
        facts = self._agent.setup.tools.get(tool)
        if seconds >= BRIEF:
            self._brief.discard(tool)
        elif facts is not None and facts.effect == "read":
            self._brief.add(tool)

    def _kept_result(self, done: ev.CallFinished) -> ev.CallFinished:
        found = (one for one in reversed(self.events) if type(one) is ev.CallFinished and one.call == done.call)
        return next(found, done)

    def _cancellation(self) -> Cancellation:
        if self._cancels is None:
            self._cancels = cancellation_of(self.run)
        return self._cancels

    def _give_up_call(self, call: ToolCall) -> ev.CallFinished:
        done, tally = self._agent.caller.give_up(call), self._tallies.pop(call.id, None)
        return add_nested(done, tally.total) if tally and tally.is_used() else done

    def _find_twins(self, runs: list[RunTool]) -> dict[str, "asyncio.Future[ev.CallFinished | None]"]:
        """Return what calls that are the same share: the first one runs. Only what may be repeated is run once for several."""
        found: dict[str, list[str]] = {}
        for step in runs:
            facts = self._agent.setup.tools.get(step.call.name)
            if facts is not None and facts.effect != "write" and not step.verifying:
                found.setdefault(self._agent.caller.digest(step.runs), []).append(step.call.id)
        loop = asyncio.get_running_loop()
        return {id: shared for ids in found.values() if len(ids) > 1 for shared in (loop.create_future(),) for id in ids}

    def _call_tool(self, step: RunTool, key: str) -> Coroutine[object, object, ev.CallFinished | ev.CallPaused]:
        """Run a call, or wait for the result of one that is the same."""
        shared = self._twins.get(step.call.id)
        return self._call_once(step, key) if shared is None else self._call_twin(step, shared, key)

    async def _call_twin(
        self, step: RunTool, shared: "asyncio.Future[ev.CallFinished | None]", key: str
    ) -> ev.CallFinished | ev.CallPaused:
        first = next(id for id, one in self._twins.items() if one is shared) == step.call.id
        done = None if first else await shared
        if done is not None:
            return replace(done, call=step.call.id, at=time(), seconds=0.0, nested=None)
        made: ev.CallFinished | ev.CallPaused | None = None
        try:
            made = await self._call_once(step, key)
            return made
        finally:
            if not shared.done():
                shared.set_result(made if isinstance(made, ev.CallFinished) else None)

    async def _call_once(self, step: RunTool, key: str) -> ev.CallFinished | ev.CallPaused:
        left = self._count_seconds()
        deadline = None if left is None else monotonic() + left
        caller, call = self._agent.caller, step.runs if step.arguments else step.call
        site = CallSite(self.state.run, key, self._progress, deadline, self._leave, self._cancellation())
        if monotonic() - self._recorded > STALE:
            await self._log.renew()
        done = await caller.verify(call, site) if step.verifying else await caller.run(call, site)
        if done is None and step.final:  # it has not taken effect yet, and may still do so
            return settled_result(SettleCall(step.call))
        if done is None:  # the interrupted start did not take effect, so this is the first one that may
            await self.record(self._start_event(replace(step, verifying=False)))
            done = await caller.run(call, site)
        return done

    def _start_event(self, step: RunTool) -> ev.CallStarted:
        call = step.runs if step.arguments else step.call
        return ev.CallStarted(
            at=time(), call=call.id, tool=call.name, key=self._key(call), digest=self._agent.caller.digest(call),
            verifying=step.verifying, rule=step.rule,
        )  # fmt: skip

    def _key(self, call: ToolCall) -> str:
        return key_of(self.state, call, self._name)

    def _leave(self) -> None:
        self.left = True

    def _progress(self, call: str, text: str, fraction: float) -> None:
        self.tell(st.ToolProgressed, call=call, text=text, fraction=fraction)

    async def _fetch(self, url: str) -> None:
        blocks = find_blocks((*self.state.transcript, *self.state.steering), url)
        digest, media_type, size = await self._media.fetch(url, *blocks)
        await self.record(ev.MediaFetched(at=time(), source=url, digest=digest, media_type=media_type, size=size))


def _sort_steps(steps: tuple[Step, ...]) -> tuple[list[tuple[ToolCall, ev.CallFinished]], list[RunTool], list[str]]:
    """Return the calls that have a result without being run, those to run, and the media to fetch."""
    done: list[tuple[ToolCall, ev.CallFinished]] = []
    runs: list[RunTool] = []
    urls: list[str] = []
    for step in steps:
        match step:
            case RunTool():
                runs.append(step)
            case SettleCall():
                done.append((step.call, settled_result(step)))
            case RefuseCall():
                done.append((step.call, refused_result(step)))
            case FetchMedia(url):
                urls.append(url)
            case _:
                pass
    return done, runs, urls
