"""A conversation that outlives its process: runs, resumes, steers and forks one log. Holds the lease only during a run."""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from time import time
from typing import TYPE_CHECKING, Generic, cast

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.budget import Budget, TreeBudget
from evener.call_context import DEEPEST, Home, Site, children_of, current_policy, current_site
from evener.driver import Agent, Driver, finish_anyway
from evener.driver.context_window import ContextKeeper, ContextReport
from evener.errors import EvenerError, StoreError, UsageError
from evener.harness.approvals import Court, Decision, decide
from evener.harness.branches import (
    At,
    Branch,
    Diff,
    Fork,
    before_turns,
    branches_of,
    check_at,
    diff_of,
    fork_at,
    root_of,
    seq_of,
)
from evener.harness.opening import Opener, Prompt, drop_cancels, message_of, moved_tools, prompt_of, run_of, said_of, with_hooks
from evener.harness.preview import Compiled, Opens, compile_request
from evener.harness.remote import LATE, follow, tables_of
from evener.harness.scratchpad import Pad, current_pad
from evener.harness.stream import RunStream, Show, steering
from evener.hooks import HookFailed, Hooks
from evener.loop.plan import Setup
from evener.loop.state import Pending, RunState, Spent, fold
from evener.model.media import Media
from evener.model.seam import Answered, Askable
from evener.observe.recorder import record_run
from evener.policy.rules import OPEN, Policy
from evener.result import Approval, Output, RequestRecord, RunResult, approvals_of, result_of
from evener.store.protocol import Begun, Creating, Erased, Folding, Log, NoLog, Note, Store, state_of
from evener.store.sqlite.leases import SelfRenewing, new_claim
from evener.tools.outputs import Accepted
from evener.transcript.ask import ModelSettings
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transport.exchange import Reach, Transport

if TYPE_CHECKING:
    from evener.driver.slice import RunSlice
    from evener.store.postgres.cluster import PostgresCluster


LOGGER = logging.getLogger("evener")
"""Says when runs begin, stop and fail, and what was warned of; never what was said. Silent unless a program listens."""
LOGGER.addHandler(logging.NullHandler())

PAGE = 256
"""How many events are read at once, where the whole log could be meant."""
FURTHER = 8


async def since_last(
    store: Store, log: str, is_wanted: Callable[[ev.Event], bool], *, at_least: int = 0
) -> tuple[int, list[ev.Event]]:
    """Return the end of the log that contains the last event for which `is_wanted` is true, and the number before its first
    event.

    It may begin before that event. If there is no such event, the whole log is returned.
    """
    end = (await store.link(log)).seq
    many = at_least + PAGE
    while True:
        after = max(0, end - many)
        events = await store.read(log, after=after, until=end)
        if not after or any(map(is_wanted, events)):
            return after, events
        many *= FURTHER


HALTED = ("started", "paused", "interrupted")


async def with_use(beginning: tuple[ev.Event, ...], state: RunState, *, store: Store, log: str) -> tuple[ev.Event, ...]:
    """Return the first events of the run. If it is taken over, they include the usage of runs inside its interrupted calls."""
    if not any(isinstance(event, ev.Resumed) for event in beginning):
        return beginning
    nested = await _sum_inside(state, store, log, DEEPEST)
    return tuple(replace(event, nested=nested) if isinstance(event, ev.Resumed) else event for event in beginning)


def has_acted(events: Iterable[ev.Event], setup: Setup) -> bool:
    """True if the run, or a run inside its calls, has started a call that changes something."""
    for event in events:
        match event:
            case ev.CallStarted(tool=tool) if setup.is_write(tool):
                return True
            case ev.CallFinished(nested=ev.Nested(acted=True)) | ev.CallPaused(nested=ev.Nested(acted=True)):
                return True
    return False


async def _sum_inside(state: RunState, store: Store, log: str, levels: int) -> tuple[tuple[str, ev.Nested], ...]:
    """Return the usage of inner runs for each open call that has any, by call id."""
    found = []
    for pending in state.calls:
        spent = await _sum_used(state, pending.call, store, log, levels) if pending.status in HALTED and pending.key else None
        if spent is not None:
            acted = pending.nested is not None and pending.nested.acted
            used = ev.Nested(spent.requests, spent.tool_calls, spent.usage, spent.cost, spent.exact, acted)
            found.append((pending.call.id, used))
    return tuple(found)


async def _sum_used(state: RunState, call: ToolCall, store: Store, log: str, levels: int) -> Spent | None:
    """Return the usage of this call's inner run. In a fork that has no inner run yet, return the usage at the fork."""
    for name in children_of(state, call, log):
        try:
            child = await store.head(name) if name else ""
        except NoLog:
            continue
        if child:
            return await _sum_used_by(child, store, levels - 1)
    return None


async def _sum_used_by(log: str, store: Store, levels: int) -> Spent:
    state = await state_of(store, log)
    spent = state.most_spent
    counted = {one.call.id: one.nested for one in state.calls}
    for call, nested in await _sum_inside(state, store, log, levels) if levels else ():
        spent = spent.with_nested(nested, counted[call])
    return spent


Beginning = tuple[ev.Event, ...]


def with_rival(beginning: Beginning, state: RunState, rival: ev.Rival) -> Beginning:
    """Return the first events of the run. The takeover event records an earlier holder that may be alive, or that the log is a
    copy.

    A copy always gets a takeover event: the original may also run calls that were allowed but had not started.
    """
    if not rival or prompt_of(beginning) is not None:
        return beginning
    if rival == "copy":
        beginning = _take_over(beginning, state)
    return tuple(replace(event, rival=rival) if isinstance(event, ev.Resumed) else event for event in beginning)


async def with_results(beginning: Beginning, state: RunState, *, store: Store, log: str, setup: Setup) -> Beginning:
    """Return the first events of the run, with the results that other branches have for `write` calls that they started."""
    found: list[ev.CallFinished] = []
    for one in state.calls:
        if _is_theirs(one) and setup.may_write(one.call.name):
            result = await _result(one, store, log)
            found += [] if result is None else [result]
    if not found:
        return beginning
    beginning = _take_over(beginning, state)
    return tuple(replace(event, results=tuple(found)) if isinstance(event, ev.Resumed) else event for event in beginning)


def _take_over(beginning: Beginning, state: RunState) -> Beginning:
    """Return the events with a takeover event, placed before all events except the configuration."""
    if any(isinstance(event, ev.Resumed) for event in beginning):
        return beginning
    place = next((n for n, event in enumerate(beginning) if not isinstance(event, ev.Configured)), len(beginning))
    return (*beginning[:place], ev.Resumed(at=time(), epoch=state.epoch + 1), *beginning[place:])


def _is_theirs(pending: Pending) -> bool:
    """True if another branch started the call and its result is unknown here. A redacted call counts as a different call."""
    started_there = pending.abroad and bool(pending.source) and not pending.here
    return started_there and pending.status != "finished" and not pending.call.redacted


async def _result(pending: Pending, store: Store, log: str) -> ev.CallFinished | None:
    """Return the result of the call on the branch that started it; None if there is none. Usage of inner runs is counted there.

    The start is before the fork, so it has the same number on both branches.
    """
    after, _ = await since_last(store, log, lambda event: _is_start(event, pending))
    mine = False
    try:
        while events := await store.read(pending.source, after=after, until=after + PAGE):
            for event in events:
                mine = mine or _is_start(event, pending)
                if mine and isinstance(event, ev.Replied):
                    return None  # another answer may use the id of the call again: only its own turn counts
                done = _find_finished(event, pending) if mine else None
                if done is not None:
                    return replace(done, at=time(), nested=None)
            after += len(events)
    except (NoLog, Erased):
        return None
    return None


def _is_start(event: ev.Event, pending: Pending) -> bool:
    return isinstance(event, ev.CallStarted) and (event.key, event.call) == (pending.key, pending.call.id)


def _find_finished(event: ev.Event, pending: Pending) -> ev.CallFinished | None:
    """Return the result of the call, if this event has one."""
    match event:
        case ev.CallFinished(call=call) if call == pending.call.id:
            return event
        case ev.Resumed(results=results):
            return next((result for result in results if result.call == pending.call.id), None)
        case _:
            return None


def _outer_policy(site: Site | None) -> Policy | None:
    """Return the policy of the run or call around a run that begins here; None if there is none."""
    around, called = site.policy if site is not None else None, current_policy.get()
    return around.under(called) if around is not None and called is not None else around or called


def tell_end(driver: Driver, hooks: Hooks | None, events: Iterable[ev.Event]) -> None:
    """Call the hooks for `run_end`, if the run is finished. `events` are all events of the run."""
    finished = driver.state.finished
    if hooks is None or finished is None:
        return
    ends = sum(isinstance(event, ev.Finished) and event.run == finished.run for event in events)
    if ends == 1 and hooks.ends(finished.run):
        driver.hooked("run_end", stop=finished.cause, detail=finished.detail)


def tell_broken_off(driver: Driver, hooks: Hooks | None, error: BaseException) -> None:
    """Call the hooks for `run_end` after an error. If a hook fails now, its error is added to the first as a note."""
    if hooks is None or not hooks.ends(driver.run):
        return
    finished = driver.state.finished
    stop = finished.cause if finished else "cancelled"
    try:
        driver.hooked("run_end", stop=stop, detail=str(error) or "The run was given up before its end.")
    except HookFailed as failed:
        error.add_note(str(failed))


def _is_stored(log: Log) -> bool:
    """True if the log is in the store: it was created, or a first write has created it."""
    return not hasattr(log, "exists") or cast(Begun, log).exists


def _name_no_missing_thread(error: BaseException, log: Log) -> None:
    """Take the id of the thread out of an error, if the thread was never stored."""
    if isinstance(error, EvenerError) and not _is_stored(log):
        error.thread = ""


Opening = Callable[[RunState], tuple[ev.Event, ...]]


class Thread(Generic[Output]):
    """One branch of a conversation. It runs one prompt at a time; use `steer` to send a message to a busy run.

    `id` is the id of a thread, which stands for its head, or of one log; `branch` is exactly that log. `pad` is None if there
    is no scratchpad. `begin`: if there is no log with this id yet, create it; as a fork of `source`, if that is given. `path`
    is the owner that the log records: the name of the harness, and for an agent the names of all harnesses above it.
    """

    def __init__(
        self,
        id: str,
        *,
        agent: Agent,
        opener: Opener,
        store: Store,
        court: Court,
        opens: Opens,
        name: str = "",
        path: str = "",
        transport: Transport | None = None,
        reach: Reach = "public",
        pad: Pad | None = None,
        branch: str = "",
        begin: bool = False,
        source: str = "",
    ) -> None:
        self._id = id or branch
        self._branch = branch
        self._begin = begin
        self._source = source
        self._court = court
        self._opens = opens
        self._opener = opener
        self._agent = agent
        self._pad = pad
        self._store = store
        self._name = name
        self._path = path or name
        self._transport = transport
        self._reach = reach
        self._media = Media(store.put_blob, store.get_blob, transport, reach=reach)
        self._log = ""
        self._state: RunState | None = None
        self._length = 0
        self._answers: dict[str, Answered] = {}
        self._driver: Driver | None = None

    @property
    def id(self) -> str:
        """The id by which another process, or `Harness.thread`, opens this thread."""
        return self._id

    @property
    def agent(self) -> Agent:
        """The agent with which the runs are made."""
        return self._agent

    @property
    def log(self) -> str:
        """The id of this branch; empty before it is first read or written."""
        return self._log

    # Runs.

    async def run(
        self,
        prompt: Prompt,
        *,
        at: At = None,
        settings: ModelSettings | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> RunResult[Output]:
        """Send a prompt and run until it stops. With `at` (see `fork`), do so on a new branch that begins there.

        `settings` apply to this run, also when it is resumed. `metadata` is the caller's own, and is returned with each of its
        results.
        """
        said = said_of(prompt, settings, metadata)
        here = self if at is None else await self.fork(at)
        return await here._perform(lambda state: here._opener.prompted(state, said), None)

    def stream(
        self,
        prompt: Prompt,
        *,
        at: At = None,
        settings: ModelSettings | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> RunStream[Output]:
        """Start a run at once, and return a stream of its typed events. Needs a running event loop."""
        said = said_of(prompt, settings, metadata)
        check_at(at)
        here = self

        async def start(show: Show) -> RunResult[Output]:
            nonlocal here
            here = self if at is None else await self.fork(at)
            return await here._perform(lambda state: here._opener.prompted(state, said), show)

        return RunStream(start, lambda kind, body: here._say(kind, body))

    async def resume(self, *, force: bool = False) -> RunResult[Output]:
        """Resume a run that stopped, or whose process died. A run that stopped at a limit gets fresh limits.

        `force` takes the log from a holder that may be alive. That holder can write nothing more. A `write` call that it had
        started is not started again, whatever its `verify` returns.
        """
        return await self._perform(self._opener.resumed, None, begins=False, force=force)

    async def advance(self, slice: "RunSlice") -> RunResult[Output]:
        """Resume the run until its slice of a worker's slot is over.

        If `slice.rested` is true then, any process may continue it.
        """
        return await self._perform(self._opener.resumed, None, begins=False, slice=slice)

    def resume_stream(self, *, force: bool = False) -> RunStream[Output]:
        """Resume a run, and return a stream of its typed events."""
        return RunStream(lambda show: self._perform(self._opener.resumed, show, begins=False, force=force), self._say)

    async def submit(self, prompt: Prompt) -> "Thread[Output]":
        """Submit a prompt for a worker in any process, and return this thread. The prompt is durable when this returns.

        The store must have tables for workers (PostgreSQL). Then `result` waits for the end, and `follow` yields the events.
        Inside a call, the harness must contain the policy of the outer run, because a worker knows only the harness.
        """
        said = said_of(prompt)
        tables = tables_of(self._store)
        bound = _outer_policy(current_site.get())
        if bound is not None and not (self._agent.policy or OPEN).covers(bound):
            raise UsageError(
                f"A worker would run {self._path!r} without the policy of the run around this call, so nothing was submitted. "
                "Give that harness the same policy: policy=own.under(policy), or the policy itself."
            )
        log, state = await self._open(force=False)
        try:
            if state.run and self._opener.is_resumable(state):
                raise UsageError(f"Thread {self._log} has a run that is not finished. Steer it, or wait for its result.")
            beginning = self._opener.prompted(state, said)
            driver = self._driver_of(log, state, beginning, None, None, force=False)
            await self._join_tree(tables, run_of(beginning, state))
            await tables.put_work(self._log, self._path, after=LATE)  # found even if this process dies before the next line
            await drop_cancels(log)
            await log.append(*with_hooks(driver, beginning))
        finally:
            self._forget()
            await finish_anyway(log.aclose())
        await tables.put_work(self._log, self._path)
        return self

    async def _join_tree(self, tables: "PostgresCluster", run: str) -> None:
        """Add a run that is submitted inside a call to the tree of that call, wherever it will be performed."""
        site = current_site.get()
        if site is not None:
            await (await site.budget.share(tables)).join(self._log, run)

    async def _tree(self, run: str, site: Site | None) -> TreeBudget | None:
        """Return the budget of the run's tree in the store; None if the run belongs to no tree on several machines."""
        # Inside a call, the budget of the run around it knows.
        tables: PostgresCluster | None = getattr(self._store, "cluster", None) if site is None else None
        if tables is None:
            return None
        tree, counts_money = await tables.tree_of(self._log, run)
        return TreeBudget(tables, tree, self._log, counts_money=counts_money) if tree else None

    async def result(self) -> RunResult[Output]:
        """Wait until the submitted run stops, in any process, and return its result."""
        async for _ in self.follow():
            pass
        state = await self.state()
        events = await self._store.read(self._log)
        return await self._complete(result_of(state, events, log=self._log), events)

    async def follow(self, *, after: int = 0) -> AsyncIterator[ev.Event]:
        """Yield the events of the log after number `after` until a run stops, also those that another process writes."""
        async for event in follow(self._store, await self._here(), after=after):
            yield event

    async def steer(self, prompt: Prompt, *, now: bool = False) -> None:
        """Send a message to a busy run, in this or another process."""
        await self._say("steer", steering(prompt, now=now))

    async def cancel(self, why: str = "") -> None:
        """Ask a busy run to stop, in this or another process."""
        await self._say("cancel", {"why": why})

    async def settle(self, prompt: Prompt, *, begun: bool = False) -> RunResult[Output]:
        """Return the result of the run of this prompt: start the run if it does not exist, resume it if it is not finished.

        For callers that may call this again after a crash, with the same id. `begun`: the run is known to exist; NoLog is
        raised if it is gone.
        """
        try:
            state = await self.state()
        except NoLog:
            if begun:
                raise
            return await self.run(prompt)
        if not state.run:
            return await self.run(prompt)
        if state.finished is not None:
            site = current_site.get()
            events = await self._store.read(self._log)
            if site is not None:
                site.tally.add(state.spent)
                self._own_up(site, events)
            self._forget()
            result = await self._complete(result_of(state, events, log=self._log), events)
            self._forget()
            return result
        return await self.resume()

    async def decide(self, decisions: Mapping[str, Decision]) -> None:
        """Decide the approvals of this thread by the key of each; then `resume`. Raises ApprovalStale for a late decision."""
        await decide(self._store, await self._here(), decisions, court=self._court)

    async def approvals(self) -> tuple[Approval, ...]:
        """Return the approvals that wait here, and in runs inside the calls of this thread. Any process can call this."""
        here = await self._here()
        return approvals_of(await state_of(self._store, here), here)

    async def state(self) -> RunState:
        """Return the present state of the log."""
        return await state_of(self._store, await self._here())

    # The tree.

    async def fork(self, at: At = None, *, label: str = "") -> "Thread[Output]":
        """Return a new branch that continues from here, or from `at`: after the message with that id, or the event with that
        number.

        Nothing is copied, and neither this branch nor the thread's head changes: both branches may run at the same time.
        `label` describes the branch in trees.
        """
        check_at(at)
        made = await fork_at(self._store, await self._here(), at, harness=self._path, label=label)
        return self._on(made)

    async def rollback(self, turns: int = 1) -> None:
        """Undo the last `turns` prompts of the user with everything that followed, by a new branch that begins before them.

        The new branch becomes the thread's head. Nothing is deleted, and the effects of tools are not undone.
        """
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise UsageError(f"`turns` is the number of user turns to roll back, 1 or more; not {turns!r}.")
        if self._driver is not None:
            raise UsageError(
                f"Thread {self._id} is running in this process. Cancel the run or wait for its end, then roll back."
            )
        log = await self._here()
        events = await self._store.read(log)
        made = await fork_at(self._store, log, before_turns(events, turns, log), harness=self._path)
        root = made.first.thread
        await self._store.move_head(root, made.log)
        self._forget()
        self._id, self._branch, self._log = root, "", made.log
        self._opener = self._opener.without_history()

    async def head(self) -> str:
        """Return the id of the thread's head, the branch for which the thread's id stands."""
        return await self._store.head(await root_of(self._store, await self._here()))

    async def branches(self) -> tuple[Branch, ...]:
        """Return all branches of the thread, each after its parent."""
        return await branches_of(self._store, await root_of(self._store, await self._here()))

    async def diff(self, a: str, b: str = "") -> Diff:
        """Return the last event that two branches share, and the messages that each has after it.

        Without `b`, compare with this branch.
        """
        here = await self._here()
        return await diff_of(self._store, await root_of(self._store, here), a, b or here)

    async def at(self, id: str | int) -> RunState:
        """Return the state after the message with this id, or after the event with this number."""
        check_at(id)
        log = await self._here()
        if isinstance(id, int):
            seq = (await self._store.link(log)).seq
            if id > seq:
                raise UsageError(f"There is no event {id}: log {log} has {seq} events. Give a smaller number.")
            return await state_of(self._store, log, until=id)
        events = await self._store.read(log)
        return fold(events[: seq_of(events, id, log)])

    async def compile(self, model: str | Askable = "", *, prompt: Prompt | None = None) -> Compiled:
        """Return the request that the next run would send: for this prompt, or to resume. Nothing is sent, and no key is
        needed.

        `model` is any model; by default the harness's own.
        """
        said = None if prompt is None else said_of(prompt)
        state = await self.state() if self._id else RunState()
        asked = self._agent.models if not model else (self._opens(model),)
        media = Media(self._store.put_blob, self._store.get_blob)
        return await compile_request(state, said, models=asked, agent=self._agent, opener=self._opener, media=media)

    # What requests hold of it.

    async def context(self, model: str | Askable = "") -> ContextReport:
        """Return how full the window of a model is, by default of the harness's first model, and what requests leave out."""
        keeper = self._keeper()
        asked = self._agent.models[0] if not model else self._opens(model)
        return keeper.report(await self.state() if self._id else RunState(), asked)

    async def compact(self, focus: str = "") -> ev.Compacted | ev.CompactionFailed | None:
        """Let a model write a summary that replaces the older messages in requests; `focus` says what it must keep above all.

        The messages stay in the log, and `restore_context` undoes this. Returns None if there is nothing to compact. A failed
        attempt changes nothing, but its cost counts. Not allowed while a run is in progress.
        """
        keeper, model = self._keeper(), self._agent.models[0]
        made: list[ev.Compacted | ev.CompactionFailed | None] = []

        async def work(driver: Driver) -> None:
            made.append(await keeper.compact(driver, model, cause="user", focus=focus))

        await self._edit(work)
        return made[0]

    async def restore_context(self, *, whole: bool = False) -> bool:
        """Undo the newest eviction or compaction, so that requests contain the same messages as before it.

        Returns False if there is none. `whole` undoes all of them, so that requests contain the whole conversation.
        """
        context = (await self.state()).context
        if context is None or not (context.is_edited if whole else context.undoable):
            return False
        id = "" if whole else context.undoable
        await self._edit(lambda driver: driver.record(ev.ContextRestored(at=time(), id=id)))
        return True

    async def pin(self, message: str, *, off: bool = False) -> None:
        """Keep a message unchanged in all requests, whatever else is taken out. `off` ends this."""
        if not any(one.id == message for one in (await self.state()).transcript):
            raise UsageError(f"There is no message {message!r} on this branch. `evener show` lists their ids.")
        await self._edit(lambda driver: driver.record(ev.Pinned(at=time(), message=message, off=off)))

    def _keeper(self) -> ContextKeeper:
        keeper = self._agent.context
        if not isinstance(keeper, ContextKeeper):
            raise UsageError("This harness sends conversations as they are: it was made with context=False.")
        return keeper

    async def _edit(self, work: Callable[[Driver], Coroutine[object, object, object]]) -> None:
        """Hold the log while something outside of a run is written to it."""
        if self._driver is not None:
            raise UsageError(f"A run of thread {self._id} is under way here. Cancel it, or wait for its end, then try again.")
        await self._here()
        log, state = await self._open(force=False)
        length = log.length
        driver = self._driver_of(log, state, (), None, None, force=False)
        try:
            if hasattr(log, "keep"):
                cast(SelfRenewing, log).keep()
            await work(driver)
            self._state, self._length = driver.state, length + len(driver.events)
        except BaseException:
            self._forget()
            raise
        finally:
            await finish_anyway(log.aclose())

    async def _check_size(self, message: Message, state: RunState) -> None:
        """Refuse a message that can never be sent: once it is in the log, every later request would fail."""
        keeper = self._agent.context
        if isinstance(keeper, ContextKeeper):
            answers = self._answers if self._driver is None else self._driver.answers
            why = [await keeper.too_large(state, message, model, answers.get(model.name)) for model in self._agent.models]
            if why and all(why):
                raise UsageError(why[0])

    # Where it is.

    async def _here(self) -> str:
        """Return the id of this branch."""
        if not self._log:
            if not self._id:
                raise NoLog("This thread is empty. Run it first, or give the id of another thread.")
            self._log = await self._found()
        return self._log

    async def _found(self) -> str:
        if self._branch:
            root = await root_of(self._store, self._branch)
            if self._id not in (root, self._branch):
                raise UsageError(f"Log {self._branch} is a branch of thread {root}, not of {self._id}. Give {root} as the id.")
            return self._branch
        try:
            return await self._store.head(self._id)
        except NoLog:
            if not self._source:
                raise
        end = await self._store.head(self._source)
        return (await fork_at(self._store, end, None, harness=self._path, name=self._id)).log

    def _on(self, fork: Fork) -> "Thread[Output]":
        """Return this thread on a new branch. If the fork is at the end, the known state is used and not read again."""
        made = copy(self)
        made._id = made._log = fork.log
        made._branch, made._begin, made._source = "", False, ""
        made._driver = None
        made._opener = self._opener.without_history()
        made._media = Media(self._store.put_blob, self._store.get_blob, self._transport, reach=self._reach)
        knows = self._state is not None and self._driver is None and fork.seq == self._length + 1
        made._pad = None if self._pad is None else self._pad.copy()
        if knows:
            made._state, made._length = fold((fork.first,), self._state), fork.seq
            made._answers = dict(self._answers)
        else:
            made._answers = {}
            made._forget()
        return made

    # What happens in a run.

    async def _say(self, kind: str, body: dict[str, object]) -> None:
        if kind == "steer" and self._driver is not None:
            await self._check_size(
                message_of(cast("Prompt", body["text"] if "text" in body else body["blocks"])), self._driver.state
            )
        await self._store.post(await self._here(), Note(new_id(), kind, msgspec.json.encode(body).decode()))
        if self._driver is not None:
            self._driver.nudge()

    async def _perform(
        self,
        opening: Opening,
        show: Show | None,
        *,
        begins: bool = True,
        force: bool = False,
        slice: "RunSlice | None" = None,
    ) -> RunResult[Output]:
        if not self._id and not begins:
            raise UsageError("There is no thread to resume: no id was given. Give the id that a result or an error names.")
        site = current_site.get()
        if site is not None and site.depth > DEEPEST:
            raise UsageError(f"Runs are nested {site.depth} deep, and the maximum is {DEEPEST}. Use fewer levels of agents.")
        force = force or (site is not None and site.force)
        quiet = show is None and site is None and self._agent.hooks is None
        log, state = await self._open(force=force, quiet=quiet)
        length = log.length
        driver = self._driver = None
        try:
            if hasattr(log, "keep"):
                cast(SelfRenewing, log).keep()
            beginning = with_rival(opening(state), state, log.lease.rival)
            beginning = await with_results(beginning, state, store=self._store, log=self._log, setup=self._agent.setup)
            prompted = prompt_of(beginning)
            if prompted is not None:
                await self._check_size(prompted.message, fold([one for one in beginning if type(one) is ev.Configured], state))
                await drop_cancels(log)
            else:
                beginning = await with_use(beginning, state, store=self._store, log=self._log)
                if site is not None:
                    self._own_up(site, await self._store.read(self._log))
            tree = await self._tree(run_of(beginning, state), site)
            driver = self._driver = self._driver_of(log, state, beginning, site, show, force=force, slice=slice, tree=tree)
            driver.warn_of("" if self._answers else moved_tools(state, beginning))
            if site is not None:
                site.tally.begin(driver.total)  # with what earlier goes used: the call is counted once
            result = await self._with_pad(driver, beginning)
            self._state, self._length = driver.state, length + len(driver.events)
            return result
        except BaseException as error:
            self._forget()  # an append that was cut off may be in the log: it is read anew next time
            _name_no_missing_thread(error, log)
            raise
        finally:
            self._driver = None
            if driver is not None:
                self._answers = driver.answers
                if site is not None:
                    site.tally.end(driver.total)
            await self._close(log, left=driver is not None and driver.left)

    async def _close(self, log: Log, *, left: bool) -> None:
        """Give the lease back. If nothing was written to a new log, there is no such thread."""
        try:
            await finish_anyway(log.aclose(left=True) if left else log.aclose())
        finally:
            if not _is_stored(log):
                self._id = self._log = ""

    def _own_up(self, site: Site, events: Sequence[ev.Event]) -> None:
        """Report to the outer call that this run changed something before it was continued here."""
        if has_acted(events, self._agent.setup):
            site.tally.act()

    def _forget(self) -> None:
        self._state, self._length = None, 0
        if self._pad is not None:
            self._pad.forget()

    def _driver_of(
        self,
        log: Log,
        state: RunState,
        beginning: tuple[ev.Event, ...],
        site: Site | None,
        show: Show | None,
        *,
        force: bool,
        slice: "RunSlice | None" = None,
        tree: TreeBudget | None = None,
    ) -> Driver:
        """Make the driver. The run belongs to the run around its call, and its budget lies within that run's budget."""
        bound = _outer_policy(site)
        fresh = prompt_of(beginning) is not None or any(isinstance(event, ev.Continued) for event in beginning)
        used = Spent() if fresh else fold(beginning, state).used
        place = st.Place(
            run=run_of(beginning, state),
            thread=self._log,
            agent=self._name,
            parent_run=site.run if site else "",
            parent_call=site.call if site else "",
        )
        return Driver(
            log,
            state,
            agent=self._agent if bound is None else self._agent.under(bound),
            place=place,
            media=self._media,
            answers=self._answers,
            budget=Budget(
                self._agent.setup.limits,
                used,
                outer=site.budget if site else None,
                tree=tree,
                owner=(self._log, place.run),
            ),
            home=Home(site.depth if site else 0, self._path, self._store, site.tally if site else None, force=force),
            show=show or (site.show if site else None),
            slice=slice,
            closes=prompt_of(beginning) is not None,  # what follows a resumed run is read from the log
        )

    async def _with_pad(self, driver: Driver, beginning: tuple[ev.Event, ...]) -> RunResult[Output]:
        pad = self._pad
        if pad is None:
            return await self._driven(driver, beginning)
        token = current_pad.set(lambda: pad.after(driver.events))
        try:
            return await self._driven(driver, beginning)
        finally:
            current_pad.reset(token)

    async def _driven(self, driver: Driver, beginning: tuple[ev.Event, ...]) -> RunResult[Output]:
        prompted = prompt_of(beginning)
        resumed = prompted is None
        said = None if prompted is None else prompted.message
        driver.tell(st.RunStarted, model=self._agent.models[0].name, resumed=resumed, prompt=said)
        LOGGER.info("run %s %s in thread %s", driver.run, "goes on" if resumed else "begins", self._log)
        try:
            if not resumed:
                driver.hooked("run_start")
            result = await self._result(driver, beginning, resumed=resumed)
        except EvenerError as error:
            error.thread = error.thread or self._log
            driver.tell(st.RunFailed, error=error)
            LOGGER.warning("run %s failed in thread %s: %s", driver.run, self._log, type(error).__name__)
            raise
        driver.tell(st.RunFinished, result=result)
        LOGGER.info(
            "run %s stopped: %s, %s requests, %s calls", driver.run, result.stop, len(result.requests), len(result.records)
        )
        for text in result.warnings:
            LOGGER.warning("run %s: %s", driver.run, text)
        return result

    async def _result(self, driver: Driver, beginning: tuple[ev.Event, ...], *, resumed: bool) -> RunResult[Output]:
        hooks = self._agent.hooks
        try:
            await driver.record_soon(*with_hooks(driver, beginning))
            state = await driver.drive()
        except BaseException as error:
            tell_broken_off(driver, hooks, error)
            raise
        before, events = await self._of_last_run(driver) if resumed else (driver.before, driver.events)
        tell_end(driver, hooks, events)
        again = driver.before + 1 if resumed else 0
        record_run(self._log, self._name, events, thread=state.thread, config=state.config, first=before + 1, again=again)
        result = await self._complete(result_of(state, events, log=self._log, warnings=driver.warnings), driver.events)
        if result.stop == "provider_error" and driver.error is not None:
            raise driver.error
        return result

    async def _of_last_run(self, driver: Driver) -> tuple[int, list[ev.Event]]:
        """Return the events since the last prompt, and the number before them. May return earlier events, too."""
        return await since_last(
            self._store, self._log, lambda event: isinstance(event, ev.Prompted), at_least=len(driver.events)
        )

    async def _complete(self, result: RunResult, events: Sequence[ev.Event]) -> RunResult[Output]:
        """Return the result with the structured answer as a value of its type, the scratchpad, and the raw answers.

        Without an output type, the text is the answer. `events` are those since the log was opened.
        """
        shape = self._agent.shape
        output: object = None
        if shape is None:
            output = result.text if result.ok else None
        elif result.ok and result.output_text:
            found = shape.read(result.output_text)
            output = found.value if isinstance(found, Accepted) else None
        pad = None if self._pad is None else self._pad.after(events)
        requests = result.requests
        if any(one.raw_blob for one in requests):
            requests = tuple([await self._with_raw(one) for one in requests])
        return cast("RunResult[Output]", msgspec.structs.replace(result, output=output, scratchpad=pad, requests=requests))

    async def _with_raw(self, one: RequestRecord) -> RequestRecord:
        """Return the record with its raw answer, if the store still has it."""
        try:
            return msgspec.structs.replace(one, raw=await self._store.get_blob(one.raw_blob)) if one.raw_blob else one
        except StoreError:
            return one

    def _open_held(self, log: str, *, force: bool) -> Coroutine[object, object, tuple[Log, list[ev.Event]]]:
        """Open the log. `force` is passed only if it is true, because a user's own store may not have this parameter."""
        if force:
            return self._store.open(log, holder=new_claim(), after=self._length, force=True)
        return self._store.open(log, holder=new_claim(), after=self._length)

    async def _open_folded(self, store: Folding, here: str, *, force: bool) -> tuple[Log, RunState]:
        """Open the log in a store that saves the state. The scratchpad reads its own events, some at a time."""
        log, state = await store.open_folded(here, holder=new_claim(), force=force)
        if self._pad is not None:
            for after in range(0, log.length, PAGE):
                self._pad.opened(await self._store.read(here, after=after, until=min(after + PAGE, log.length)))
        return log, state

    def _begin_new(self) -> tuple[Log, RunState]:
        """Return a new log, which its first write creates, and its state."""
        id = new_id()
        first = ev.Opened(at=time(), thread=id, harness=self._path)
        log = cast(Creating, self._store).begin(id, first, holder=new_claim())
        self._id = self._log = id
        return log, fold((first,))

    async def _open(self, *, force: bool, quiet: bool = False) -> tuple[Log, RunState]:
        """Open this log, or create it, and return it with its state.

        `quiet`: no other code learns of the run before its first events are written, so a new log is created with these.
        """
        if quiet and not self._id and hasattr(self._store, "begin"):
            return self._begin_new()
        if self._id:
            try:
                return await self._open_existing(force=force)
            except NoLog:
                self._log = ""
                if not self._begin:
                    raise
        self._id, given = self._id or new_id(), self._id
        first = ev.Opened(at=time(), thread=self._id, harness=self._path)
        try:
            log = await self._store.create(self._id, first, holder=new_claim())
        except EvenerError as error:
            self._id = given  # there is no such log; cancelled, there is one all the same
            if not given:
                raise
            try:
                return await self._open_existing(force=force)  # another caller has begun it in the meantime
            except NoLog:
                self._log = ""
                raise error from None
        self._log = self._id
        return log, fold((first,))

    async def _open_existing(self, *, force: bool) -> tuple[Log, RunState]:
        """Open the existing log and return it with its state. Events that are known from the last run are not read again."""
        here = await self._here()
        if self._state is None and hasattr(self._store, "open_folded"):
            return await self._open_folded(cast(Folding, self._store), here, force=force)
        log, new = await self._open_held(here, force=force)
        if self._pad is not None:
            self._pad.opened(new)
        return log, fold(new, self._state)
