"""A conversation that outlives its process: runs, resumes and steers one log. Holds the lease only while a run goes on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time

import msgspec

from evener import events as ev
from evener import streaming as st
from evener.budget import Budget
from evener.driver import Agent, Driver, surely
from evener.errors import EvenerError, UsageError
from evener.harness.approvals import Court, Decision, decide
from evener.harness.pads import Pad, current_pad
from evener.harness.running import RunStream, Show
from evener.harness.system import System
from evener.hooks import AddContext, Cancel
from evener.loop.limits import Spent
from evener.loop.state import State, fold
from evener.model.media import Media
from evener.model.seam import Answered
from evener.nesting import DEEPEST, Site, current_site
from evener.result import RunResult, result_of
from evener.store.claim import new_claim
from evener.store.log import Log, NoLog, Note, Store
from evener.tools.outputs import Accepted
from evener.transcript.blocks import Block, TextBlock
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transport.exchange import Transport

__all__ = ["Prompt", "Thread"]

Prompt = str | Message | Sequence[Block]
Opening = Callable[[State], tuple[ev.Event, ...]]

NOT_RESUMABLE = ("done", "refusal", "length")


class Thread:
    """One log. Not to be used for two runs at once: what is said to a busy one steers it.

    `config` is without the system prompt, which `system` renders for each run. `pad` is None where there is no scratchpad.
    `begin`: a log of this id may not be there yet, and is begun then.
    """

    def __init__(
        self,
        id: str,
        *,
        agent: Agent,
        config: ev.Configured,
        system: System,
        store: Store,
        court: Court,
        name: str = "",
        transport: Transport | None = None,
        history: Iterable[Message] = (),
        pad: Pad | None = None,
        begin: bool = False,
    ) -> None:
        self._begin = begin
        self._court = court
        self._history = tuple(history)
        if id and self._history:
            raise UsageError(f"Thread {id} has a history of its own. Give messages from elsewhere to a new thread only.")
        self._id = id
        self._agent = agent
        self._config = config
        self._system = system
        self._pad = pad
        self._store = store
        self._name = name
        self._media = Media(store.put_blob, store.get_blob, transport)
        self._state: State | None = None
        self._length = 0
        self._answers: dict[str, Answered] = {}
        self._driver: Driver | None = None

    @property
    def id(self) -> str:
        """What to give to another process, or to `Harness.thread`, to go on."""
        return self._id

    async def run(self, prompt: Prompt) -> RunResult:
        """Say something, and run to a stop."""
        return await self._perform(self._prompted(prompt), None)

    def stream(self, prompt: Prompt) -> RunStream:
        """The same, watched. Starts at once; needs a running event loop."""
        opening = self._prompted(prompt)
        return RunStream(lambda show: self._perform(opening, show), self._say)

    async def resume(self) -> RunResult:
        """Go on with a run that stopped, or whose process died. It has a fresh allowance if it had stopped at a limit."""
        return await self._perform(self._resumed, None)

    def resume_stream(self) -> RunStream:
        """The same, watched."""
        return RunStream(lambda show: self._perform(self._resumed, show), self._say)

    async def steer(self, text: str, *, now: bool = False) -> None:
        """Say something to a run that is under way, here or in another process."""
        await self._say("steer", {"text": text, "now": now})

    async def cancel(self, why: str = "") -> None:
        """Ask a run that is under way to stop, here or in another process."""
        await self._say("cancel", {"why": why})

    async def settle(self, prompt: Prompt) -> RunResult:
        """The run that this prompt began, to its stop: begun if it was not, resumed if it was not finished, else as it ended.

        For whoever may be called again after a crash, with the same id.
        """
        try:
            state = await self.state()
        except NoLog:
            return await self.run(prompt)
        if not state.run:
            return await self.run(prompt)
        if state.finished is not None:
            site = current_site.get()
            if site is not None:
                site.budget.charge(state.spent)
                site.tally.add(state.spent)
            events = await self._store.read(self._id)
            self._forget()
            result = self._completed(result_of(state, events, log=self._id), events)
            self._forget()
            return result
        return await self.resume()

    async def decide(self, decisions: Mapping[str, Decision]) -> None:
        """Decide what waits here, by the key of each approval; then `resume`. ApprovalStale when it is too late for that."""
        await decide(self._store, self._id, decisions, court=self._court)

    async def state(self) -> State:
        """What the log says now."""
        return fold(await self._store.read(self._id))

    # What happens in a run.

    async def _say(self, kind: str, body: dict[str, object]) -> None:
        await self._store.post(self._id, Note(new_id(), kind, msgspec.json.encode(body).decode()))
        if self._driver is not None:
            self._driver.nudge()

    async def _perform(self, opening: Opening, show: Show | None) -> RunResult:
        if not self._id and opening == self._resumed:
            raise UsageError("There is no thread to resume: no id was given. Give the id that a result or an error names.")
        site = current_site.get()
        if site is not None and site.depth > DEEPEST:
            raise UsageError(f"Runs are nested {site.depth} deep, and {DEEPEST} is the most. Let an agent do it itself.")
        log, state = await self._open()
        length = log.length
        driver = self._driver = None
        try:
            beginning = opening(state)
            if any(isinstance(event, ev.Prompted) for event in beginning):
                await _drop_cancels(log)
            driver = self._driver = self._driver_of(log, state, beginning, site, show)
            if site is not None and not any(isinstance(one, ev.Prompted) for one in beginning):
                site.budget.charge(state.spent)
            result = await self._with_pad(driver, beginning)
            self._state, self._length = driver.state, length + len(driver.events)
            return result
        except BaseException:
            self._forget()  # an append that was cut off may be in the log: it is read anew next time
            raise
        finally:
            self._driver = None
            if driver is not None:
                self._answers = driver.answers
                if site is not None:
                    site.tally.add(driver.state.spent)  # the call is counted once, at its end: with what earlier goes used
            await surely(log.aclose())

    def _forget(self) -> None:
        self._state, self._length = None, 0
        if self._pad is not None:
            self._pad.forget()

    def _driver_of(
        self, log: Log, state: State, beginning: tuple[ev.Event, ...], site: Site | None, show: Show | None
    ) -> Driver:
        """A run inside a call belongs to the run of that call: its place says so, and it draws on the same budget."""
        fresh = any(isinstance(event, ev.Prompted | ev.Continued) for event in beginning)
        place = st.Place(
            run=_run_of(beginning, state),
            thread=self._id,
            agent=self._name,
            parent_run=site.run if site else "",
            parent_call=site.call if site else "",
        )
        return Driver(
            log,
            state,
            agent=self._agent,
            place=place,
            media=self._media,
            answers=self._answers,
            budget=site.budget if site else Budget(self._agent.setup.limits, Spent() if fresh else state.used),
            depth=site.depth if site else 0,
            show=show or (site.show if site else None),
        )

    async def _with_pad(self, driver: Driver, beginning: tuple[ev.Event, ...]) -> RunResult:
        pad = self._pad
        if pad is None:
            return await self._driven(driver, beginning)
        token = current_pad.set(lambda: pad.after(driver.events))
        try:
            return await self._driven(driver, beginning)
        finally:
            current_pad.reset(token)

    async def _driven(self, driver: Driver, beginning: tuple[ev.Event, ...]) -> RunResult:
        resumed = not any(isinstance(event, ev.Prompted) for event in beginning)
        driver.tell(st.RunStarted, model=self._agent.models[0].name, resumed=resumed)
        driver.hooked("run_start")
        try:
            result = await self._result(driver, beginning, resumed=resumed)
        except BaseException as error:
            driver.hooked(
                "run_end", stop="provider_error" if isinstance(error, EvenerError) else "cancelled", detail=str(error)
            )
            raise
        driver.hooked("run_end", stop=result.stop, detail=result.detail)
        return result

    async def _result(self, driver: Driver, beginning: tuple[ev.Event, ...], *, resumed: bool) -> RunResult:
        try:
            await driver.record(*_with_hooks(driver, beginning))
            state = await driver.drive()
            earlier = await self._store.read(self._id) if resumed else driver.events
            result = self._completed(result_of(state, earlier, log=self._id, warnings=driver.warnings), driver.events)
            if result.stop == "provider_error" and driver.error is not None:
                driver.error.thread = self._id
                raise driver.error
        except EvenerError as error:
            driver.tell(st.RunFailed, error=error)
            raise
        driver.tell(st.RunFinished, result=result)
        return result

    def _completed(self, result: RunResult, events: Sequence[ev.Event]) -> RunResult:
        """With the structured answer as the type that was asked for (without one, the text is the answer) and with the pad.

        `events` are those since the log was opened.
        """
        shape = self._agent.shape
        if self._pad is not None:
            result = msgspec.structs.replace(result, scratchpad=self._pad.after(events))
        if shape is None:
            return msgspec.structs.replace(result, output=result.text) if result.ok else result
        found = shape.read(result.output_text) if result.ok and result.output_text else None
        return msgspec.structs.replace(result, output=found.value) if isinstance(found, Accepted) else result

    async def _open(self) -> tuple[Log, State]:
        """The log, held, and its state. What is known from the last run is not read again."""
        if self._id:
            try:
                log, new = await self._store.open(self._id, holder=new_claim(), after=self._length)
                if self._pad is not None:
                    self._pad.opened(new)
                return log, fold(new, self._state)
            except NoLog:
                if not self._begin:
                    raise
        self._id, given = self._id or new_id(), self._id
        first = ev.Opened(at=time(), thread=self._id, harness=self._name)
        try:
            log = await self._store.create(self._id, first, holder=new_claim())
        except EvenerError:
            self._id = given  # there is no such log; cancelled, there is one all the same
            raise
        return log, fold((first,))

    def _prompted(self, prompt: Prompt) -> Opening:
        message = _message(prompt)

        def opening(state: State) -> tuple[ev.Event, ...]:
            told = (ev.Imported(at=time(), messages=self._history),) if self._history and not len(state.transcript) else ()
            run = new_id()
            system = self._system.begun(thread=self._id, run=run)
            return (*self._configured(state, system), *told, ev.Prompted(at=time(), run=run, message=message))

        return opening

    def _resumed(self, state: State) -> tuple[ev.Event, ...]:
        if not state.run:
            raise UsageError(f"Thread {self._id} has no run to resume. Give it a prompt instead.")
        if state.finished is not None and state.finished.cause in NOT_RESUMABLE:
            raise UsageError(f"The last run of thread {self._id} came to its end. Give it a prompt to go on.")
        known = state.config.system if state.config else ()
        configured = self._configured(state, self._system.resumed(known, thread=self._id, run=state.run))
        if state.finished is not None:
            return (*configured, ev.Continued(at=time(), run=state.run))
        under_way = state.asking or any(pending.status in ("started", "paused") for pending in state.calls)
        return (*configured, *((ev.Resumed(at=time(), epoch=state.epoch + 1),) if under_way else ()))

    def _configured(self, state: State, system: tuple[TextBlock, ...]) -> tuple[ev.Event, ...]:
        known = state.config
        ours = msgspec.structs.replace(self._config, system=system)
        if known and (known.model, known.system, known.tools) == (ours.model, ours.system, ours.tools):
            return ()
        return (msgspec.structs.replace(ours, at=time()),)


async def _drop_cancels(log: Log) -> None:
    """A wish to stop that came too late for its run is not about the next one."""
    for note in await log.notes():
        if note.kind == "cancel":
            await log.settle(note.number)


def _with_hooks(driver: Driver, beginning: tuple[ev.Event, ...]) -> tuple[ev.Event, ...]:
    """What the run begins with, after the hooks for the prompt had their say."""
    prompted = beginning[-1] if beginning else None
    if not isinstance(prompted, ev.Prompted):
        return beginning
    answers = driver.hooked("user_prompt_submit", prompt=prompted.message)
    added = tuple(TextBlock(answer.text) for answer in answers if isinstance(answer, AddContext))
    if added:
        message = msgspec.structs.replace(prompted.message, blocks=(*prompted.message.blocks, *added))
        beginning = (*beginning[:-1], msgspec.structs.replace(prompted, message=message))
    stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
    return beginning if stop is None else (*beginning, ev.Cancelled(at=time(), why=stop.why or "A hook cancelled the prompt."))


def _run_of(beginning: tuple[ev.Event, ...], state: State) -> str:
    return next((event.run for event in beginning if isinstance(event, ev.Prompted)), state.run)


def _message(prompt: Prompt) -> Message:
    match prompt:
        case Message():
            return prompt
        case str():
            return Message.user_text(prompt)
        case _:
            return Message("user", tuple(prompt))
