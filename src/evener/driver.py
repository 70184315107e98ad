"""Performs the plan's steps and appends what happened. The only concurrent code; it decides nothing.

One path for everything: start, resume and retry all are "while there are steps, perform them". What must not happen twice is
on disk before it happens. Cancelled at any point, it leaves a log that can be resumed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from decimal import Decimal
from hashlib import sha256
from time import time
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.budget import Budget
from evener.errors import EvenerError, ProviderError
from evener.hooks import Answer, Cancel, HookEvent, Hooks, Moment, rewritten
from evener.loop.plan import Setup, plan
from evener.loop.state import State, fold
from evener.loop.steps import (
    AskApproval,
    CallModel,
    ContinueTurn,
    Extend,
    FetchMedia,
    Finish,
    RefuseCall,
    RunTool,
    SettleCall,
    Step,
)
from evener.model.chain import falls_back
from evener.model.media import Media
from evener.model.seam import Answered, Askable
from evener.nesting import Site, Tally, current_site
from evener.pausing import paused_of
from evener.showing import Partial
from evener.store.log import Log, Note
from evener.tools.calling import Caller, CallSite
from evener.tools.outputs import Correct, Final, OutputShape, judge
from evener.transcript.ask import OutputSchema, ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.delta import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transcript.usage import Usage

__all__ = ["Agent", "Driver", "surely"]

POLL = 0.5
"""Seconds between two looks at the inbox while a model or a tool is at work."""
UNKNOWN = (
    "Interrupted: this call was started, and it is not known whether it took effect. It was not run again. "
    "Find out before you repeat it."
)

T = TypeVar("T")
Show = Callable[[st.StreamEvent], None]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made with: the same for every run of a harness."""

    models: tuple[Askable, ...]
    specs: tuple[ToolSpec, ...]
    setup: Setup
    caller: Caller
    output: OutputSchema | None = None
    shape: OutputShape | None = None
    decide_within: float = 0.0  # seconds; 0 is for ever
    hooks: Hooks = Hooks()


class Driver:
    """One log under way. `show` gets what a caller sees; None shows nothing, and costs nothing."""

    def __init__(
        self,
        log: Log,
        state: State,
        *,
        agent: Agent,
        place: st.Place,
        media: Media,
        answers: dict[str, Answered],
        budget: Budget,
        depth: int = 0,
        show: Show | None = None,
    ) -> None:
        self._budget = budget
        self._depth = depth
        self._log = log
        self._agent = agent
        self._place = place
        self._show = show
        self._sequence = 0
        self._media = media
        self._watch: _Watch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listener: asyncio.Task[None] | None = None
        self._nudged = False
        self.state = state
        self.answers = answers
        """The last answer of the model that gave it: what makes the next request cheap."""
        self.events: list[ev.Event] = []
        self.error: EvenerError | None = None
        """Why the model could not be asked, the last time it could not."""
        self.warnings: list[str] = []
        """What went wrong beside the run: hooks that failed."""

    async def drive(self) -> State:
        """Go on until there is nothing to do: the run has finished."""
        try:
            await self.heed()
            while steps := plan(self.state, self._agent.setup, time()):
                await self._perform(steps)
                await self.heed()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return self.state

    async def record(self, *events: ev.Event) -> None:
        """Append events, and know them only then."""
        await self._log.append(*events)
        self._fold(events)

    def nudge(self) -> None:
        """Look at the inbox now, if something is at work; else it is looked at before the next step."""
        watch = self._watch
        if watch is None:
            return
        self._nudged = True
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen(watch))

    def _fold(self, events: Iterable[ev.Event]) -> None:
        self.state = fold(events, self.state)
        self.events.extend(events)

    async def _perform(self, steps: tuple[Step, ...]) -> None:
        match steps[0]:
            case Finish(cause, detail):
                await self._finish(cause, detail)
            case CallModel() as step:
                await self._call_model(step)
            case ContinueTurn(model):
                await self._call_model(CallModel(model))
            case AskApproval() as step:
                await self._ask_approval(step)
            case Extend():
                self._budget.renew()
                await self.record(ev.Continued(at=time(), run=self.state.run))
            case FetchMedia() | RunTool() | SettleCall() | RefuseCall():
                await self._perform_all(steps)

    async def _finish(self, cause: ev.StopCause, detail: str) -> None:
        if cause == "limit":
            self.hooked("limit_reached", stop=cause, detail=detail)
        await self.record(ev.Finished(at=time(), run=self.state.run, cause=cause, detail=detail))

    # Hooks.

    def hooked(self, event: HookEvent, **about: object) -> tuple[Answer, ...]:
        """What the hooks for this event answer."""
        if not self._agent.hooks:
            return ()
        place = self._place
        moment = Moment(event=event, run=place.run, thread=place.thread, agent=place.agent, **about)  # type: ignore[arg-type]
        return self._agent.hooks.call(moment, self._warn)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self.tell(st.Warned, text=text)

    # The inbox.

    async def heed(self) -> None:
        """Turn what was said to the log into events."""
        for note in await self._log.notes():
            events = _events_of(note)
            await self._log.settle(note.number, *events)
            self._fold(events)

    async def _ask_approval(self, step: AskApproval) -> None:
        """Write down what must be decided. The plan then has nothing to do, and the run ends here until it is."""
        seconds = self._agent.decide_within
        asked = ev.ApprovalAsked(
            at=time(), id=new_id(), interrupt=step.interrupt, questions=step.questions,
            expires=time() + seconds if seconds else 0.0,
        )  # fmt: skip
        await self.record(asked)
        self.tell(st.ApprovalRequested, approval=asked.id, interrupt=step.interrupt, questions=step.questions)

    async def _heeding(self, work: Coroutine[object, object, T], *, until: Callable[[State], bool]) -> T | None:
        """Do something that takes its time, and listen meanwhile. None: it was given up because of what somebody said.

        The work goes on in our own task. Who listens is a timer, and a task only when there may be something to hear.
        """
        watch = self._watch = _Watch(until)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._poll)
        try:
            return await work
        except (asyncio.CancelledError, EvenerError):
            if not watch.over:
                raise
            return None
        finally:
            self._watch = None
            try:
                await self._heard()
            finally:
                watch.leave()

    def _poll(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL, self._poll)
        self.nudge()

    async def _listen(self, watch: "_Watch") -> None:
        """Look at the inbox, and end the work if what was said there, or that we may not look, ends it."""
        try:
            while self._nudged:
                self._nudged = False
                await self._log.renew()
                await self.heed()
            if self._watch is watch and watch.until(self.state):
                watch.give_up(None)
        except EvenerError as error:
            if self._watch is watch:
                watch.give_up(error)

    async def _heard(self) -> None:
        """Nobody listens any more: what is in the inbox must not be settled twice."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        try:
            await asyncio.shield(listener)
        except asyncio.CancelledError:
            listener.cancel()
            await asyncio.wait((listener,))
            raise

    # The model.

    async def _call_model(self, step: CallModel) -> None:
        model = self._agent.models[step.model]
        if step.wait or self.state.failure:
            failure = self.state.failure.message if self.state.failure else ""
            self.tell(st.RetryScheduled, error=failure, wait=step.wait, model=model.name)
            if step.wait and await self._heeding(_pause(step.wait), until=_is_cancelled) is None:
                return
        room = self._budget.reserve(cost=self._most_cost(model))
        if isinstance(room, str):
            await self._finish("limit", room)
            return
        try:
            answer = await self._call_within(step, model)
        except BaseException:
            self._budget.settle(room, usage=Usage(), cost=Decimal(0))
            raise
        usage, cost = (answer.reply.usage, answer.cost.amount) if answer else (Usage(), Decimal(0))
        self._budget.settle(room, usage=usage, cost=cost)

    def _most_cost(self, model: Askable) -> Decimal:
        if not self._budget.counts_money:
            return Decimal(0)
        return model.most_cost(model.ask(self.state.transcript, self._agent.specs, output=self._agent.output))

    async def _call_within(self, step: CallModel, model: Askable) -> Answered | None:
        """The answer, written down; None when there is none."""
        await self.record(ev.ModelCalled(at=time(), model=model.name, id=new_id(), notices=step.notices))
        for key, text in step.notices:
            self.tell(st.NoticeGiven, key=key, text=text)
        self.tell(st.RequestStarted, model=model.name, number=self.state.spent.requests)
        shown = self._sequence
        try:
            answer = await self._heeding(self._asked(model), until=_is_given_up)
        except EvenerError as error:
            self.error = error
            if self._sequence > shown:
                self.tell(st.Retracted, why=str(error))
            await self.record(_failed(error, shown=self._sequence > shown))
            return None
        if answer is None:
            if self._sequence > shown:
                self.tell(st.Retracted, why="The user spoke.")
            return None
        self.answers = {model.name: answer}
        await self.record(*_replied(answer, self._agent))
        self.tell(st.TurnFinished, message=answer.message, usage=answer.reply.usage)
        return answer

    async def _asked(self, model: Askable) -> Answered:
        transcript = await self._media.at_hand(self.state.transcript, dict(self.state.media), remote=model.fetches)
        ask = model.ask(transcript, self._agent.specs, output=self._agent.output)
        stream = model.stream(ask, after=self.answers.get(model.name))
        names: dict[int, tuple[str, str]] = {}
        partial: Partial | None = None
        try:
            while deltas := await stream.read():
                if self._show is not None:
                    self._show_all(deltas, names)
                    if self._agent.shape is not None:
                        partial = partial or Partial(self._agent.shape, stream.form)
                        for value in partial.add(deltas):
                            self.tell(st.OutputStreamed, value=value)
            return stream.answer
        finally:
            await stream.aclose()

    # Tools and media.

    async def _perform_all(self, steps: tuple[Step, ...]) -> None:
        """Steps that may go on at the same time. All starts are on disk before the first of them begins."""
        settled = [_settled(step.call.id) for step in steps if isinstance(step, SettleCall)]
        settled += [_refused(step) for step in steps if isinstance(step, RefuseCall)]
        asked = [step for step in steps if isinstance(step, RunTool)]
        over = self._budget.claim_calls(sum(not step.again for step in asked))
        if over:
            await self._finish("limit", over)
            return
        stopped = {step.call.id: why for step in asked if (why := self._stopped_by_hook(step)) is not None}
        settled += [_refused(RefuseCall(step.call, stopped[step.call.id])) for step in asked if step.call.id in stopped]
        runs = [step for step in asked if step.call.id not in stopped]
        starts = [self._started(step) for step in runs]
        await self.record(*settled, *starts)
        work = [self._run(step) for step in runs] + [self._fetch(step.url) for step in steps if isinstance(step, FetchMedia)]
        if work:
            await self._heeding(_together(work), until=_is_cancelled)
        if self.state.cancelled is not None:
            left = [one.call for one in self.state.calls if one.status == "started"]
            await self.record(*(self._agent.caller.given_up(call) for call in left))

    def _stopped_by_hook(self, step: RunTool) -> str | None:
        answers = self.hooked("before_tool_call", call=step.call)
        stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
        return None if stop is None else f"Cancelled by a hook{f': {stop.why}' if stop.why else '.'}"

    async def _run(self, step: RunTool) -> None:
        self.tell(st.ToolStarted, call=step.call)
        tally = Tally()
        place = self._place
        token = current_site.set(Site(place.run, place.thread, step.call.id, self._depth + 1, self._budget, tally, self._show))
        try:
            done = await self._called(step)
        finally:
            current_site.reset(token)
        if step.arguments:
            told = TextBlock(f"[The user changed the arguments. What ran: {step.arguments}]")
            done = replace(done, content=(told, *done.content))
        paused = paused_of(done)
        if paused is not None:
            await surely(self.record(paused))
            return
        done = rewritten(done, self.hooked("after_tool_call", call=step.call, result=done))
        if tally.requests:
            nested = ev.Nested(tally.requests, tally.tool_calls, tally.usage, tally.cost, tally.exact)
            done = replace(done, nested=nested)
        await surely(self.record(done))
        self.tell(st.ToolFinished, call=step.call, result=done)

    async def _called(self, step: RunTool) -> ev.CallFinished:
        caller, site = self._agent.caller, CallSite(self.state.run, self._key(step.call), self._progress)
        call = replace(step.call, raw=step.arguments) if step.arguments else step.call
        done = await caller.verify(call, site) if step.verifying else await caller.run(call, site)
        if done is None:  # the interrupted start did not take effect, so this is the first one that may
            await self.record(self._started(replace(step, verifying=False)))
            done = await caller.run(call, site)
        return done

    def _started(self, step: RunTool) -> ev.CallStarted:
        call = replace(step.call, raw=step.arguments) if step.arguments else step.call
        return ev.CallStarted(
            at=time(), call=call.id, tool=call.name, key=self._key(call), digest=self._agent.caller.digest(call),
            verifying=step.verifying, rule=step.rule,
        )  # fmt: skip

    def _key(self, call: ToolCall) -> str:
        """The idempotency key: the same for every start of one call, in any process."""
        known = next((one.key for one in self.state.calls if one.call.id == call.id), "")
        made = self.state.transcript.last
        return known or sha256(f"{self._log.lease.log}\0{made.id if made else ''}\0{call.id}".encode()).hexdigest()[:32]

    def _progress(self, call: str, text: str, fraction: float) -> None:
        self.tell(st.ToolProgressed, call=call, text=text, fraction=fraction)

    async def _fetch(self, url: str) -> None:
        digest, media_type, size = await self._media.fetch(url)
        await self.record(ev.MediaFetched(at=time(), source=url, digest=digest, media_type=media_type, size=size))

    # What the caller sees.

    def tell(self, kind: Callable[..., st.StreamEvent], **fields: object) -> None:
        """Show something, if somebody looks."""
        if self._show is not None:
            self._sequence += 1
            self._show(kind(place=self._place, sequence=self._sequence, **fields))

    def _show_all(self, deltas: list[Delta], names: dict[int, tuple[str, str]]) -> None:
        for delta in deltas:
            match delta:
                case TextDelta(_, text):
                    self.tell(st.TextStreamed, text=text)
                case ReasoningDelta(_, text):
                    self.tell(st.ReasoningStreamed, text=text)
                case ArgumentsDelta(index, text):
                    call, tool = names.get(index, ("", ""))
                    self.tell(st.ArgumentsStreamed, call=call, tool=tool, text=text)
                case CallStarted(index, call, tool):
                    names[index] = (call, tool)
                    self.tell(st.ArgumentsStreamed, call=call, tool=tool, text="")
                case _:
                    pass


class _Watch:
    """Work under way in the task that made this, and what would end it. Once it is over, the work is cancelled."""

    __slots__ = ("_cancels", "_error", "_task", "over", "until")

    def __init__(self, until: Callable[[State], bool]) -> None:
        self.until = until
        self.over = False
        self._error: EvenerError | None = None
        self._task = asyncio.current_task()
        self._cancels = self._task.cancelling() if self._task else 0

    def give_up(self, error: EvenerError | None) -> None:
        """End the work."""
        if self._task is not None and not self.over:
            self.over, self._error = True, error
            self._task.cancel()

    def leave(self) -> None:
        """Take our cancelling back. Raises why the work was given up, if it is an error; somebody else's cancelling stays."""
        if not self.over or self._task is None:
            return
        if self._task.uncancel() > self._cancels:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error


def _is_cancelled(state: State) -> bool:
    return state.cancelled is not None


def _is_given_up(state: State) -> bool:
    return not state.asking


async def _pause(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True


async def surely(work: Coroutine[object, object, None]) -> None:
    """To its end even when it is cancelled meanwhile: what is appended must be known, or it would be appended again."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.sleep(0)  # a log in memory has done it by then
        await (asyncio.shield(task) if not task.done() else task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise


async def _together(work: list[Coroutine[object, object, None]]) -> bool:
    """All of them, at once; the first error ends the others."""
    if len(work) == 1:
        await work[0]
        return True
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return True


def _events_of(note: Note) -> tuple[ev.Event, ...]:
    """What a note means; nothing for one that nobody understands."""
    body = msgspec.json.decode(note.body, type=dict[str, object])
    match note.kind, body:
        case "steer", {"text": str(text)}:
            return (ev.Steered(at=time(), message=Message.user_text(text), at_once=body.get("now") is True),)
        case "cancel", _:
            return (ev.Cancelled(at=time(), why=str(body.get("why", ""))),)
        case "decide", {"decisions": list(decisions)}:
            return tuple(msgspec.convert({**one, "at": time()}, ev.ApprovalDecided) for one in decisions)
        case _:
            return ()


def _failed(error: EvenerError, *, shown: bool) -> ev.ModelFailed:
    wait = error.retry_after if isinstance(error, ProviderError) and error.retry_after else 0.0
    return ev.ModelFailed(
        at=time(), error=type(error).__name__, message=str(error), retryable=error.retryable,
        elsewhere=falls_back(error), retry_after=wait, shown=shown,
    )  # fmt: skip


def _replied(answer: Answered, agent: Agent) -> tuple[ev.Event, ...]:
    """The answer, and what is known of its calls of `final_result` at once: they never run."""
    cost = answer.cost
    reply, shape = answer.reply, agent.shape
    problems = tuple(raw for name, raw in reply.notices if name in ("malformed_call", "choice_violated"))
    found = judge(reply, answer.output, shape=shape, form=answer.form, tool_names=agent.setup.tools) if shape else None
    output = found.text if isinstance(found, Final) else ""
    told: tuple[ev.Event, ...] = ()
    if isinstance(found, Correct):
        problems = (found.message,)
        told = tuple(
            ev.CallFinished(at=time(), call=call, ok=False, content=(TextBlock(found.message),), outcome="failed")
            for call in found.calls
        )
    replied = ev.Replied(
        at=time(), message=answer.message, stop=answer.reply.stop, cost=cost.amount, exact=cost.exact, losses=answer.losses,
        seconds=answer.seconds, first=answer.first, tries=answer.tries, reply=answer.reply.id, problems=problems,
        output=output,
    )  # fmt: skip
    return (replied, *told)


def _refused(step: RefuseCall) -> ev.CallFinished:
    metadata = msgspec.json.encode({"rule": step.rule} if step.rule else {}).decode()
    return ev.CallFinished(
        at=time(), call=step.call.id, ok=False, content=(TextBlock(step.text),), outcome="failed", metadata=metadata
    )


def _settled(call: str) -> ev.CallFinished:
    return ev.CallFinished(at=time(), call=call, ok=False, content=(TextBlock(UNKNOWN),), outcome="unknown")
