"""Performs the plan's steps and appends what happened. The only concurrent code; it decides nothing.

One path for everything: start, resume and retry all are "while there are steps, perform them". What must not happen twice is
on disk before it happens. Cancelled at any point, it leaves a log that can be resumed.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from decimal import Decimal
from functools import partial
from time import monotonic, time
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.budget import Budget, Reservation
from evener.call_context import ALONE, Home, InnerUsage, Site, current_site, key_of, kin_of
from evener.driver.inbox import Listener, WritingOnWait, finish_anyway, pause, run_together
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
from evener.errors import ConnectFailed, EvenerError, ProviderError, TransportError, WireError
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
    plan,
)
from evener.loop.state import NoRoom, RunState, apply
from evener.model.media import find_blocks
from evener.model.seam import Answered, Askable, MediaAccess
from evener.model.server_state import Rest, Resting
from evener.model.stream import Stream
from evener.policy.rules import OPEN, Policy
from evener.store.protocol import Log, Staging
from evener.tools.call import Calling, CallSite
from evener.tools.outputs import OutputShape
from evener.transcript.ask import Ask, OutputSchema, Settings, ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.loss import refuse
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transcript.reply import Usage
from evener.transcript.settings import ModelSettings
from evener.transcript.transcript import Transcript

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
    """What a call may use. `settings` make its answer so short that it fits; None where it fits as it is."""

    held: Reservation
    settings: Settings | None = None


async def room_for(
    model: Askable, *, next_ask: Callable[[], Ask], budget: Budget, whole: Decimal | None, wait: Callable[[], Awaitable[bool]]
) -> Room | NoRoom:
    """Room for a call of this model. `next_ask` is what would be sent, `whole` the run's own limit, if it has one.

    `wait` lets some time pass; it says False when there is no sense in waiting any longer.
    """
    while True:
        ask = next_ask()
        most = model.most_cost(ask)
        found = budget.reserve(cost=most)
        if not isinstance(found, NoRoom):
            return Room(found)
        if not (found.money and budget.holds and await wait()):
            break
    shorter = _shortened(model, ask, most, budget)
    if shorter is not None:
        return shorter
    hopeless = whole is not None and found.money and most > whole and model.capped(ask, whole) is None
    return msgspec.structs.replace(found, final=True) if hopeless else found


def _shortened(model: Askable, ask: Ask, most: Decimal, budget: Budget) -> Room | None:
    left = budget.left
    if not FREE < left < most:
        return None
    short = model.capped(ask, left)
    held = budget.reserve(cost=left) if short is not None else None
    return Room(held, short.settings) if short is not None and isinstance(held, Reservation) else None


def had_begun(error: EvenerError) -> bool:
    """Whether the provider may have worked on a request that failed like this, and will be paid for it."""
    match error:
        case ConnectFailed():
            return False
        case ProviderError():
            return not error.status  # it came inside the stream: the answer had begun
        case _:
            return isinstance(error, TransportError | WireError)


def unpriced(model: Askable) -> str:
    """What is told once, where a limit on the cost meets a model whose price is not known."""
    return (
        f"The price of {model.name} is not known, so the limit on the cost cannot hold for it: what it costs is not counted. "
        "Limit its requests or tokens as well, or install a price list that has it."
    )


REFUSED = "A hook cancelled the prompt."


class Hooking:
    """Calls the hooks of a run. `warnings` is what went wrong with hooks that are not fatal."""

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
        """What the user said, with what hooks add to it, and why it may not pass; empty when it may."""
        answers = self.told("user_prompt_submit", prompt=message)
        stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
        return with_context(message, answers), "" if stop is None else stop.why or REFUSED

    def heard(self, event: ev.Event) -> ev.Event:
        """What was said to a run under way passes the same hooks as a prompt. The run goes on without what is refused."""
        if not isinstance(event, ev.Steered):
            return event
        message, refused = self.prompted(event.message)
        if refused:
            self.warn(f"A hook did not let pass what was said to the run: {refused}")
        return replace(event, message=message, refused=refused)

    # Calls.

    def stopped(self, steps: Sequence[RunTool]) -> dict[str, str]:
        """The calls that hooks cancel, and why. They see what would run."""
        found: dict[str, str] = {}
        for step in steps if self._hooks is not None else ():
            answers = self.told("before_tool_call", call=step.runs)
            stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
            if stop is not None:
                found[step.call.id] = stop.why
        return found

    def finished(self, step: RunTool, done: ev.CallFinished) -> ev.CallFinished:
        """The result as the model shall see it; as it is, if a fatal hook fails."""
        if self._hooks is None:
            return done
        try:
            return rewrite_result(done, self.told("after_tool_call", call=step.runs, result=done))
        except HookFailed as error:
            self._failed.append(error)
            return done

    def inside(self, call: str, event: HookEvent, **about: object) -> tuple[HookAnswer, ...]:
        """What hooks answer to something that happens inside a call. After a fatal failure the call has no result."""
        try:
            return self.told(event, **about)
        except HookFailed as error:
            self._failed.append(error)
            self._broken.add(call)
            raise

    def is_broken(self, call: str) -> bool:
        """Whether a fatal hook failed inside this call: it was not done, and is begun again when the run is resumed."""
        return call in self._broken

    def check(self) -> None:
        """End the run, if a fatal hook failed about a call."""
        if self._failed:
            raise self._failed[0]


def with_context(message: Message, answers: Sequence[HookAnswer]) -> Message:
    """The message with what hooks add to it."""
    added = tuple(TextBlock(answer.text) for answer in answers if isinstance(answer, AddContext))
    return replace(message, blocks=(*message.blocks, *added)) if added else message


def _writes_first(steps: tuple[Step, ...]) -> bool:
    """True if performing the steps begins with an append: what is staged is written with that."""
    match steps:
        case () | (Extend(), *_):
            return False
        case (CallModel(wait=wait), *_):
            return not wait
    return True


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
    """What a run is made with: the same for every run of a harness."""

    models: tuple[Askable, ...]
    specs: tuple[ToolSpec, ...]
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
    settings: ModelSettings | None = None  # of every request; those of a run stand over them

    def ask(self, model: Askable, transcript: Transcript, state: RunState) -> Ask:
        """Return the ask that comes next in this state, with the settings of agent and run."""
        made = model.ask(transcript, self.specs, output=self.output)
        settings = self.settings if state.settings is None else state.settings.over(self.settings)
        return made if settings is None else settings.apply_to(made, turn=state.turns)

    def under(self, policy: Policy) -> "Agent":
        """The same agent, bound by the policy of the run around it: what that one may not, it may not."""
        bound = self.policy.under(policy) if self.policy is not None else OPEN.under(policy)
        if self.judged is None:
            return replace(self, policy=bound)
        gate = replace(self.setup.gate, judge=self.judged(bound))
        return replace(self, policy=bound, setup=replace(self.setup, gate=gate))


class Driver:
    """One log under way. `show` gets what a caller sees; None shows nothing, and costs nothing."""

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
    ) -> None:
        self._clock = clock
        self._budget = budget
        self._home = home
        self._log = log
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
        self._staging = log if isinstance(log, Staging) and not agent.hooks else None
        self._staged = False  # what was folded last is not on disk yet
        self._under_way = 0  # calls and downloads of this step that go on
        self._brief: set[str] = set()  # tools that only read, and took no time when they were called last
        self.left = False
        """True if a call that was given up goes on by itself: a thread cannot be stopped."""

    @property
    def run(self) -> str:
        """The run that this one begins or goes on with."""
        return self._teller.place.run

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong beside the run: hooks that failed, limits that cannot hold, also in runs inside it."""
        return tuple(dict.fromkeys((*self._hooking.warnings, *self._budget.warnings)))

    def total(self) -> ev.Nested:
        """What the run and the runs inside it have used by now, a request under way with the most that it may cost."""
        spent = self.state.most_spent
        counted = {one.call.id: one.nested for one in self.state.calls}
        for call, tally in tuple(self._tallies.items()):
            spent = spent.with_nested(tally.total, counted.get(call))
        return ev.Nested(spent.requests, spent.tool_calls, spent.usage, spent.cost, spent.exact)

    async def drive(self) -> RunState:
        """Go on until there is nothing to do: the run has finished."""
        try:
            if not self._staged:
                await self.drain_inbox()
            while (steps := plan(self.state, self._agent.setup, self._clock.now(), full=self._full)) or self._staged:
                if not self._staged or _writes_first(steps):
                    await self._perform(steps)
                else:
                    await self.record()
                if not self._staged:
                    await self.drain_inbox()
        finally:
            self._listener.close()
            if self._staged:
                await finish_anyway(self.record())
        return self.state

    async def record(self, *events: ev.Event) -> None:
        """Append events, after those that are staged, and know them only then."""
        await self._append(self._log.append, events)

    async def record_soon(self, *events: ev.Event) -> None:
        """Know events at once where the log can write them with the next ones; else append them. Those must follow at once."""
        staged = None if self._staging is None else self._staging.stage(*self._clock.dated(events))
        if staged is None:
            await self.record(*events)
        else:
            self._staged = True
            self._teller.hold()
            self._fold(events, staged)

    async def _record_step(self, *events: ev.Event) -> bool:
        """Append what a step begins with. False: a note came meanwhile, only what was staged is on disk, and a new plan is due.

        Without anything staged the inbox was read just before.
        """
        if self._staging is None or not self._staged:
            await self.record(*events)
            return True
        return await self._append(self._staging.append_unless_noted, events)

    async def _append(
        self, append: Callable[..., Awaitable[tuple[ev.Event, ...] | None]], events: tuple[ev.Event, ...]
    ) -> bool:
        events = self._clock.dated(events)
        began = monotonic()
        self._staged = False  # also when this fails: the run then ends, and the log is read anew
        try:
            kept = await append(*events)
        except BaseException:
            self._teller.drop()
            raise
        self._teller.release()
        if kept is None:
            return False
        self._fold(events, kept)
        self._recorded = began
        return True

    def _fold(self, events: Iterable[ev.Event], kept: Iterable[ev.Event]) -> None:
        """Fold what is kept, as a process that takes over would; the caller is told the events as they were."""
        for event in kept:
            self.state = apply(self.state, event)
        self.events.extend(events)

    async def _perform(self, steps: tuple[Step, ...]) -> None:
        match steps[0]:
            case CallModel() as step:
                await self._call_model(step)
            case RunTool() | FetchMedia() | SettleCall() | RefuseCall():
                await self._perform_all(steps)
            case Finish(cause, detail, limit):
                await self._finish(cause, detail, limit)
            case ContinueTurn(model):
                await self._call_model(CallModel(model))
            case AskApproval() as step:
                await self._ask_approval(step)
            case Extend():
                self._budget.renew()
                self._full = None
                await self.record(ev.Continued(at=time(), run=self.state.run))

    async def _finish(self, cause: ev.StopCause, detail: str, limit: ev.LimitHit | None) -> None:
        ended = await self._record_step(ev.Finished(at=time(), run=self.state.run, cause=cause, detail=detail, limit=limit))
        if ended and cause == "limit":
            self.hooked("limit_reached", stop=cause, detail=detail)

    # The inbox.

    async def drain_inbox(self) -> None:
        """Turn what was said to the log into events."""
        for note in await self._log.notes():
            events = tuple(self._hooking.heard(event) for event in events_of(note))
            await self._append(partial(self._log.settle, note.number), events)

    async def _ask_approval(self, step: AskApproval) -> None:
        """Write down what must be decided. The plan then has nothing to do, and the run ends here until it is."""
        seconds = self._agent.decide_within
        asked = ev.ApprovalAsked(
            at=time(), id=new_id(), interrupt=step.interrupt, questions=step.questions,
            expires=time() + seconds if seconds else 0.0,
        )  # fmt: skip
        if await self._record_step(asked):
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
            if step.wait and await self._listener.during(self._clock.pause(step.wait), until=self._is_cancelled) is None:
                return
        room = await self._room(step, model)
        if type(room) is NoRoom:
            await self._refused(room)
            return
        before = self.state.spent.cost
        answer = None
        try:
            answer = await self._call_within(step, model, room)
        finally:
            lost = room.held.cost if self.state.asking else NO_COST
            used = answer.reply.usage if answer else Usage()
            self._budget.settle(room.held, usage=used, cost=self.state.spent.cost - before + lost)

    async def _room(self, step: CallModel, model: Askable) -> Room | NoRoom:
        if not self._budget.counts_money:
            found = self._budget.reserve(cost=NO_COST)
            return found if type(found) is NoRoom else Room(found)

        def next_ask() -> Ask:
            called = ev.ModelCalled(at=self.state.last, model=model.name, id="next", notices=step.notices)
            return self._agent.ask(model, apply(self.state, called).transcript, self.state)

        async def wait() -> bool:
            if self._staged:
                await self.record()
            await self._listener.during(pause(PATIENCE), until=self._is_cancelled)
            return not self._is_cancelled()

        return await room_for(model, next_ask=next_ask, budget=self._budget, whole=self._agent.setup.limits.cost, wait=wait)

    async def _refused(self, refusal: NoRoom) -> None:
        """The plan says what comes of it, unless the limit is that of a run around this one."""
        if self._is_cancelled():
            return
        if refusal.final:
            await self._finish("limit", refusal.why, refusal.hit)
        else:
            self._full = refusal

    async def _call_within(self, step: CallModel, model: Askable, room: Room) -> Answered | None:
        """The answer, written down; None when there is none."""
        rest = self._resting(model)
        rests, most = rest.rests if rest else None, room.held.cost
        called = ev.ModelCalled(at=time(), model=model.name, id=new_id(), notices=step.notices, rests=rests, most=most)
        if not await self._record_step(called):
            self._budget.return_request()
            return None
        if self._watched:
            for key, text in step.notices:
                self.tell(st.NoticeGiven, key=key, text=text)
            self.tell(st.RequestStarted, model=model.name, number=self.state.spent.requests)
        shown = self._teller.told
        try:
            answer = await self._in_time(self._listener.during(self._asked(model, room, rest), until=self._is_given_up))
        except OutOfTime:
            await self._out_of_time(shown=self._teller.told > shown)
            return None
        except EvenerError as error:
            await self._failed(error, most, rest, shown=self._teller.told > shown)
            return None
        if answer is None:
            self._retract(shown)
            return None
        self.answers = {model.name: answer}
        told, *more = reply_events(answer, self._agent.shape, self._agent.setup.tools, request=self._request)
        if self._agent.bearings and rest:
            told = self._agent.bearings.answered(told, answer, rest, self.state.transcript)
        if not told.exact and self._budget.counts_money:
            told = self._reckoned(told, most, model)
        await self.record_soon(told, *more)
        self._claim_calls()
        if self._watched:
            self.tell(st.TurnFinished, message=told.message, usage=answer.reply.usage)
        return answer

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

    def _reckoned(self, told: ev.Replied, most: Decimal, model: Askable) -> ev.Replied:
        """What it cost is not known: it counts with the most that it may have cost, if that is."""
        if most:
            return replace(told, cost=max(told.cost, most))
        if self._budget.warn(text := unpriced(model)):
            self._hooking.warn(text)
        return told

    def _claim_calls(self) -> None:
        asked = 0
        for one in self.state.calls:
            asked += one.call.name != FINAL_RESULT
        refusal = self._budget.claim_calls(asked) if asked else None
        self._over = refusal if refusal and refusal.final else None
        if refusal and not refusal.final and self.state.used.tool_calls <= (self._agent.setup.limits.tool_calls or 0):
            self._full = refusal  # else the plan finds it out by itself

    def _in_time(self, work: Coroutine[object, object, T]) -> Coroutine[object, object, T]:
        """What it gives, unless the time of the run is over first. Without a limit no clock runs."""
        left = self._seconds_left
        return work if left is None else run_within(work, self._clock.timeout(left))

    @property
    def _seconds_left(self) -> float | None:
        """How long the run may still work, as of the last event; None without a limit."""
        limit = self._agent.setup.limits.seconds
        return None if limit is None else max(limit - self.state.used.seconds, 0.0)

    async def _out_of_time(self, *, shown: bool) -> None:
        seconds = self._agent.setup.limits.seconds or 0.0
        why = f"The run has used its {seconds:g} seconds, and the model had not answered."
        if shown:
            self.tell(st.Retracted, why=why)
        await self._finish("limit", why, ev.LimitHit("seconds", seconds, seconds))

    def _resting(self, model: Askable) -> Rest | None:
        """What the next request leaves to the provider's memory; None where everything is sent anyway."""
        if self._agent.bearings is None:
            return None
        ask = model.ask(self.state.transcript, self._agent.specs)
        return self._agent.bearings.before(self.state, model.name, ask.target)

    async def _asked(self, model: Askable, room: Room, rest: Rest | None) -> Answered:
        self._request = ""
        transcript = self.state.transcript
        if transcript.has_far_media:
            transcript = await self._media.inline(transcript, dict(self.state.media), remote=model.fetches)
        ask = self._agent.ask(model, transcript, self.state)
        ask = ask if room.settings is None else replace(ask, settings=room.settings)
        ask = ask if rest is None else replace(ask, state=rest.state)
        if refused := self._agent.refuse_losses:
            refuse(rest.losses if rest else (), refused)
            ask = replace(ask, refuse_losses=ask.refuse_losses | refused)
        stream = model.stream(ask, after=self.answers.get(model.name))
        turn = AnswerProgress(self._teller, self._agent.shape) if self._teller.show is not None else None
        try:
            while deltas := await stream.read():
                if turn is not None:
                    turn.show(deltas, stream.form)
            return stream.answer
        finally:
            await stream.aclose()
            self._request = stream.digest if isinstance(stream, Stream) else ""

    # Tools and media.

    async def _perform_all(self, steps: tuple[Step, ...]) -> None:
        """Perform steps that may go on at the same time. Starts are on disk before the first begins; not so a brief read."""
        if self._over:
            await self._finish("limit", self._over.why, self._over.hit)
            return
        done: list[ev.Event] = []
        runs: list[RunTool] = []
        urls: list[str] = []
        for step in steps:
            match step:
                case RunTool():
                    runs.append(step)
                case SettleCall():
                    done.append(settled_result(step))
                case RefuseCall():
                    done.append(refused_result(step))
                case FetchMedia(url):
                    urls.append(url)
        if stopped := self._hooking.stopped(runs):
            done += [self._cancelled(step, stopped[step.call.id]) for step in runs if step.call.id in stopped]
            runs = [step for step in runs if step.call.id not in stopped]
        events = (*done, *map(self._started, runs))
        if self._staged and len(steps) == 1 and runs and runs[0].call.name in self._brief:
            await self.record_soon(*events)
            async with WritingOnWait(self.record):
                await self._work(runs, urls)
        elif await self._record_step(*events):
            await self._work(runs, urls)

    async def _work(self, runs: list[RunTool], urls: list[str]) -> None:
        """Run calls and fetch media, all at the same time."""
        work = [*map(self._run, runs), *map(self._fetch, urls)]
        self._under_way = len(work)
        if work:
            await self._listener.during(run_together(work), until=self._is_cancelled)
        self._hooking.check()
        if self.state.cancelled is not None:
            await self.record(*(self._given_up(one.call) for one in self.state.calls if one.status == "started"))

    def _cancelled(self, step: RunTool, why: str) -> ev.CallFinished:
        facts = self._agent.setup.tools.get(step.call.name)
        return cancelled_result(step, why, acts=facts is None or facts.effect != "read")

    async def _run(self, step: RunTool) -> None:
        if self._watched:
            self.tell(st.ToolStarted, call=step.runs)
        place, home, tally = self._teller.place, self._home, InnerUsage(self._home.tally)
        if home.tally is not None and self._agent.setup.is_write(step.call.name):
            home.tally.act()
        site = Site(
            place.run, place.thread, step.call.id, home.depth + 1, self._budget, tally, self._teller.show,
            home.path, home.store, partial(self._hooking.inside, step.call.id),
            partial(kin_of, self.state, step.call, self._name), self._agent.policy, home.force,
        )  # fmt: skip
        self._tallies[step.call.id] = tally
        token = current_site.set(site)
        try:
            done = await self._called(step)
        finally:
            current_site.reset(token)
        if self._hooking.is_broken(step.call.id):
            return
        if isinstance(done, ev.CallPaused):
            await finish_anyway(self.record(replace(done, nested=tally.total)))
        else:
            if step.arguments:
                told = TextBlock(f"[The user changed the arguments. What ran: {step.arguments}]")
                done = replace(done, content=(told, *done.content))
            done = add_nested(done, tally.total) if tally.is_used else done
            done = self._hooking.finished(step, done)
            self._under_way -= 1
            facts = self._agent.setup.tools.get(step.call.name)
            if done.seconds >= BRIEF:
                self._brief.discard(step.call.name)
            elif facts is not None and facts.effect == "read":
                self._brief.add(step.call.name)
            await finish_anyway(self.record(done) if self._under_way else self.record_soon(done))
            if self._watched:
                self.tell(st.ToolFinished, call=step.runs, result=done)
        self._tallies.pop(step.call.id, None)

    def _given_up(self, call: ToolCall) -> ev.CallFinished:
        done, tally = self._agent.caller.give_up(call), self._tallies.pop(call.id, None)
        return add_nested(done, tally.total) if tally and tally.is_used else done

    async def _called(self, step: RunTool) -> ev.CallFinished | ev.CallPaused:
        left = self._seconds_left
        deadline = None if left is None else monotonic() + left
        caller, call = self._agent.caller, step.runs
        site = CallSite(self.state.run, self._key(step.call), self._progress, deadline, self._leave)
        if monotonic() - self._recorded > STALE:
            await self._log.renew()
        done = await caller.verify(call, site) if step.verifying else await caller.run(call, site)
        if done is None and step.final:  # it has not taken effect yet, and may still do so
            return settled_result(SettleCall(step.call))
        if done is None:  # the interrupted start did not take effect, so this is the first one that may
            await self.record(self._started(replace(step, verifying=False)))
            done = await caller.run(call, site)
        return done

    def _started(self, step: RunTool) -> ev.CallStarted:
        call = step.runs
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
