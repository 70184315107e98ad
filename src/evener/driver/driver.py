"""Performs the plan's steps and appends what happened. The only concurrent code; it decides nothing.

One path for everything: start, resume and retry all are "while there are steps, perform them". What must not happen twice is
on disk before it happens. Cancelled at any point, it leaves a log that can be resumed.
"""

import asyncio
from collections.abc import Iterable
from decimal import Decimal
from hashlib import sha256
from time import monotonic, time

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.budget import Budget, Reservation
from evener.driver.listening import Listener, pause, surely, together
from evener.driver.reports import events_of, failed, refused, replied, settled
from evener.driver.telling import Show, Teller, Turn
from evener.errors import EvenerError
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
from evener.model.media import Media
from evener.model.seam import Answered, Askable
from evener.nesting import Site, Tally, current_site
from evener.pausing import paused_of
from evener.store.log import Log
from evener.tools.calling import Caller, CallSite
from evener.tools.outputs import OutputShape
from evener.transcript.ask import OutputSchema, ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.mint import new_id
from evener.transcript.usage import Usage

__all__ = ["Agent", "Driver"]

PATIENCE = 0.02
"""Seconds between two looks at a budget that others hold."""


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
        self._teller = Teller(place, show)
        self._media = media
        self._listener = Listener(self._look)
        self._money: Decimal | None = None  # what the present call may cost, where that makes it shorter
        self._over = ""  # why the tree of runs has no room for the calls of the last answer
        self.tell = self._teller.tell
        self.nudge = self._listener.nudge
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
            self._listener.close()
        return self.state

    async def record(self, *events: ev.Event) -> None:
        """Append events, and know them only then."""
        await self._log.append(*events)
        self._fold(events)

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
        place = self._teller.place
        moment = Moment(event=event, run=place.run, thread=place.thread, agent=place.agent, **about)  # type: ignore[arg-type]
        return self._agent.hooks.call(moment, self._warn)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self.tell(st.Warned, text=text)

    # The inbox.

    async def heed(self) -> None:
        """Turn what was said to the log into events."""
        for note in await self._log.notes():
            events = events_of(note)
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

    async def _look(self) -> None:
        await self._log.renew()
        await self.heed()

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
            if step.wait and await self._listener.during(pause(step.wait), until=self._is_cancelled) is None:
                return
        room = await self._room(model)
        if isinstance(room, str):
            await self._finish("limit", room)
            return
        try:
            answer = await self._call_within(step, model)
        except BaseException:
            self._budget.settle(room, usage=Usage(), cost=Decimal(0))
            raise
        written = self.state.reply if answer else None
        usage, cost = (answer.reply.usage, written.cost) if answer and written else (Usage(), Decimal(0))
        self._budget.settle(room, usage=usage, cost=cost)

    async def _room(self, model: Askable) -> Reservation | str:
        """Room for a call. What other calls of the tree hold is waited for; where little is left, the answer is shortened."""
        self._money = None
        if not self._budget.counts_money:
            return self._budget.reserve(cost=Decimal(0))
        ask = model.ask(self.state.transcript, self._agent.specs, output=self._agent.output)
        most = model.most_cost(ask)
        found = self._budget.reserve(cost=most)
        while isinstance(found, str) and self._budget.holds and not self._is_cancelled():
            await self._listener.during(pause(PATIENCE), until=self._is_cancelled)
            found = self._budget.reserve(cost=most)
        left = self._budget.left
        if isinstance(found, str) and 0 < left < most and model.capped(ask, left) is not None:
            self._money, found = left, self._budget.reserve(cost=left)
        return found

    async def _call_within(self, step: CallModel, model: Askable) -> Answered | None:
        """The answer, written down; None when there is none."""
        await self.record(ev.ModelCalled(at=time(), model=model.name, id=new_id(), notices=step.notices))
        for key, text in step.notices:
            self.tell(st.NoticeGiven, key=key, text=text)
        self.tell(st.RequestStarted, model=model.name, number=self.state.spent.requests)
        shown = self._teller.told
        try:
            async with asyncio.timeout(self._seconds_left) as clock:
                answer = await self._listener.during(self._asked(model), until=self._is_given_up)
        except TimeoutError:
            if not clock.expired():
                raise
            await self._out_of_time(shown=self._teller.told > shown)
            return None
        except EvenerError as error:
            self.error = error
            if self._teller.told > shown:
                self.tell(st.Retracted, why=str(error))
            await self.record(failed(error, shown=self._teller.told > shown))
            return None
        if answer is None:
            if self._teller.told > shown:
                why = "The user spoke." if self.state.cancelled is None else "The run was cancelled."
                self.tell(st.Retracted, why=why, wished=True)
            return None
        self.answers = {model.name: answer}
        told, *more = replied(answer, self._agent.shape, self._agent.setup.tools)
        await self.record(told, *more)
        self._over = self._budget.claim_calls(len(self.state.calls))
        self.tell(st.TurnFinished, message=told.message, usage=answer.reply.usage)
        return answer

    @property
    def _seconds_left(self) -> float | None:
        """How long the run may still work, as of the last event; None without a limit."""
        limit = self._agent.setup.limits.seconds
        return None if limit is None else max(limit - self.state.used.seconds, 0.0)

    async def _out_of_time(self, *, shown: bool) -> None:
        why = f"The run has used its {self._agent.setup.limits.seconds:g} seconds, and the model had not answered."
        if shown:
            self.tell(st.Retracted, why=why)
        await self._finish("limit", why)

    async def _asked(self, model: Askable) -> Answered:
        transcript = await self._media.at_hand(self.state.transcript, dict(self.state.media), remote=model.fetches)
        ask = model.ask(transcript, self._agent.specs, output=self._agent.output)
        ask = ask if self._money is None else model.capped(ask, self._money) or ask
        stream = model.stream(ask, after=self.answers.get(model.name))
        turn = Turn(self._teller, self._agent.shape) if self._teller.show is not None else None
        try:
            while deltas := await stream.read():
                if turn is not None:
                    turn.show(deltas, stream.form)
            return stream.answer
        finally:
            await stream.aclose()

    # Tools and media.

    async def _perform_all(self, steps: tuple[Step, ...]) -> None:
        """Steps that may go on at the same time. All starts are on disk before the first of them begins."""
        if self._over:
            await self._finish("limit", self._over)
            return
        done = [settled(step.call.id) for step in steps if isinstance(step, SettleCall)]
        done += [refused(step) for step in steps if isinstance(step, RefuseCall)]
        asked = [step for step in steps if isinstance(step, RunTool)]
        stopped = {step.call.id: why for step in asked if (why := self._stopped_by_hook(step)) is not None}
        done += [refused(RefuseCall(step.call, stopped[step.call.id])) for step in asked if step.call.id in stopped]
        runs = [step for step in asked if step.call.id not in stopped]
        await self.record(*done, *(self._started(step) for step in runs))
        work = [self._run(step) for step in runs] + [self._fetch(step.url) for step in steps if isinstance(step, FetchMedia)]
        if work:
            await self._listener.during(together(work), until=self._is_cancelled)
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
        place, show = self._teller.place, self._teller.show
        token = current_site.set(Site(place.run, place.thread, step.call.id, self._depth + 1, self._budget, tally, show))
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
        left = self._seconds_left
        deadline = None if left is None else monotonic() + left
        caller, site = self._agent.caller, CallSite(self.state.run, self._key(step.call), self._progress, deadline)
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
