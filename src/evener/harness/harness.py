"""The friendly front: a model, tools, a system prompt; then `run`. Reusable: runs share nothing but what is set up here."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from os import PathLike
from typing import TypeVar

import msgspec

from evener import events as ev
from evener.context.scratchpad import Scratchpad
from evener.driver import Agent
from evener.errors import UsageError
from evener.events import Interrupt
from evener.harness.approvals import Bench, Decision
from evener.harness.judging import judge_of
from evener.harness.pads import LogNotebook, Pad
from evener.harness.running import RunStream
from evener.harness.subagents import subagent_tool
from evener.harness.system import Given, System
from evener.harness.thread import Prompt, Thread
from evener.hooks import Answer, Hook, HookEvent, Hooks, Moment
from evener.loop.gate import Gate, Judgement
from evener.loop.limits import Limits
from evener.loop.plan import Setup, ToolFacts
from evener.model.opening import open_model
from evener.model.seam import Askable
from evener.nesting import current_site
from evener.policy.rules import Policy
from evener.result import RunResult
from evener.store.log import Store
from evener.store.memory import MemoryStore
from evener.store.sqlite import SqliteStore
from evener.tools.calling import Caller, with_reader
from evener.tools.notes import scratchpad_tool
from evener.tools.outputs import OutputShape
from evener.tools.threads import Threads
from evener.tools.tool import Tool
from evener.tools.toolbox import Toolbox
from evener.transcript.ask import Effort, OutputForm
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from evener.transport.http import shared_transport

__all__ = ["Harness", "Subagent"]

T = TypeVar("T")
ModelLike = str | Askable


class Harness:
    """One agent. `model` is a model string or a model, or several: a chain, where the next is asked if one cannot answer.

    `store` keeps the log: a path, a store, or "memory" for runs that need not survive; by default one SQLite file in the
    platform's data folder. `name` is how another process finds this harness. `deps` is handed to tools. `page_output` gives
    the model a tool to page through output that was too large to be shown. `output` is the type or the JSON Schema of the
    final answer, `output_form` how it is asked for. `policy` says which calls are allowed, denied or asked about;
    `interrupts` adds further points at which somebody is asked, who has `decide_within` seconds (0: for ever). `hooks` are
    told what runs do. `agents` are other harnesses that this one may hand a task to. `system` is a text, blocks, a
    `SystemPrompt` of five parts, or a function that gives one of these: rendered once a run. `scratchpad` gives the model a
    tool for working notes; a `Scratchpad` is what a conversation begins with, and says who sees which section.
    """

    def __init__(
        self,
        model: ModelLike | Sequence[ModelLike] = "",
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        system: Given = None,
        name: str = "",
        store: Store | str | PathLike[str] | None = None,
        limits: Limits | None = None,
        deps: object = None,
        effort: Effort | None = None,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        page_output: bool = True,
        policy: Policy | None = None,
        interrupts: Iterable[Interrupt] = (),
        decide_within: float = 0.0,
        output: object = None,
        output_form: OutputForm = "",
        hooks: Iterable[Hook] = (),
        agents: Iterable["Subagent"] = (),
        scratchpad: bool | Scratchpad = False,
    ) -> None:
        named = (model,) if isinstance(model, str) or not isinstance(model, Sequence) else tuple(model)
        self._models = tuple(
            open_model(one, effort=effort, max_output_tokens=max_output_tokens, temperature=temperature)
            if isinstance(one, str)
            else one
            for one in named
        )
        if not self._models:
            raise UsageError('A harness needs a model. Name one, for example Harness("local:smollm2"), which needs no key.')
        self._name = name
        self._system = System(system, deps=deps)
        self._limits = limits or Limits()
        self._deps = deps
        self._store = _store(store)
        self._hooks = Hooks(hooks)
        self._agents = {agent.name: agent for agent in agents}
        given = Toolbox((*tools, *(self._agent_tool(agent) for agent in self._agents.values())))
        paged = with_reader(given, self._store) if page_output else given
        self._pad = Scratchpad() if scratchpad is True else scratchpad or None
        self._toolbox = paged if self._pad is None else paged.add(scratchpad_tool(LogNotebook()))
        self._threads = Threads()
        self._policy = policy
        self._interrupts = frozenset(interrupts)
        self._decide_within = decide_within
        self._shape = None if output in (None, str) else OutputShape.of(output)
        self._output = None if self._shape is None else self._shape.spec(output_form)

    @property
    def name(self) -> str:
        return self._name

    @property
    def models(self) -> tuple[Askable, ...]:
        """The chain, the preferred one first."""
        return self._models

    @property
    def tools(self) -> Toolbox:
        return self._toolbox

    @property
    def store(self) -> Store:
        """Where the logs are."""
        return self._store

    @property
    def threads(self) -> Threads:
        """The threads in which sync tools run: how many are busy, how many hang."""
        return self._threads

    # Runs.

    async def run(self, prompt: Prompt, *, thread: str = "", limits: Limits | None = None) -> RunResult:
        """Say something, in a new conversation or in a `thread`, and run to a stop.

        Raises what the model's provider said when no model could answer; any other stop is told by `RunResult.stop`.
        """
        return await self.thread(thread, limits=limits).run(prompt)

    def run_sync(self, prompt: Prompt, *, thread: str = "", limits: Limits | None = None) -> RunResult:
        """The same for callers without an event loop. Works inside a running one, too, which it holds up meanwhile."""
        return _to_the_end(self.run(prompt, thread=thread, limits=limits))

    def stream(self, prompt: Prompt, *, thread: str = "", limits: Limits | None = None) -> RunStream:
        """The same, watched: starts at once, gives typed events. Needs a running event loop."""
        return self.thread(thread, limits=limits).stream(prompt)

    async def resume(self, thread: str, *, limits: Limits | None = None) -> RunResult:
        """Go on with a run that stopped at a limit, was cancelled, failed, or whose process died."""
        return await self.thread(thread, limits=limits).resume()

    def resume_sync(self, thread: str, *, limits: Limits | None = None) -> RunResult:
        """The same for callers without an event loop."""
        return _to_the_end(self.resume(thread, limits=limits))

    def with_model(self, *models: ModelLike) -> "Harness":
        """The same agent on another model, or on another chain of them. Store, tools and everything else are shared."""
        made = copy(self)
        made._models = tuple(open_model(one) if isinstance(one, str) else one for one in models) or self._models
        return made

    async def decide(self, thread: str, decisions: Mapping[str, Decision]) -> None:
        """Decide what waits in a thread, from any process, by the key of each approval; then `resume` it.

        ApprovalStale when it was decided before, has expired, or is about something that has changed.
        """
        await self.thread(thread).decide(decisions)

    def thread(self, id: str = "", *, limits: Limits | None = None, history: Iterable[Message] = ()) -> Thread:
        """A conversation: the one of this id, or a new one. Keep it for several runs: then no run reads the log again.

        A new one may begin with a `history`: messages from elsewhere, or examples.
        """
        return self._thread(id, limits=limits, history=history)

    def _thread(
        self,
        id: str,
        *,
        limits: Limits | None = None,
        history: Iterable[Message] = (),
        store: Store | None = None,
        name: str | None = None,
        begin: bool = False,
    ) -> Thread:
        store = store or self._store
        caller = self._caller(store)
        setup = Setup(
            models=tuple(model.name for model in self._models),
            tools={name: _facts(tool) for name, tool in self._toolbox.items()},
            limits=limits or self._limits,
            fetches=tuple(model.fetches for model in self._models),
            gate=Gate(judge_of(self._toolbox, caller, self._policy), self._interrupts),
        )
        agent = Agent(
            models=self._models,
            specs=self._toolbox.specs,
            setup=setup,
            caller=caller,
            output=self._output,
            shape=self._shape,
            decide_within=self._decide_within,
            hooks=self._hooks,
        )
        config = ev.Configured(at=0.0, model=self._models[0].name, tools=self._toolbox.specs)
        return Thread(
            id,
            agent=agent,
            config=config,
            system=self._system,
            store=store,
            court=self._court,
            name=self._name if name is None else name,
            transport=shared_transport(),
            history=history,
            pad=None if self._pad is None else Pad(self._pad),
            begin=begin,
        )

    def _caller(self, store: Store) -> Caller:
        return Caller(self._toolbox, threads=self._threads, deps=self._deps, shelf=store)

    # Agents of this one.

    def _agent_tool(self, agent: "Subagent") -> Tool:
        def open_thread(key: str) -> Thread:
            return agent.harness._thread(key, store=self._store, name=agent.name, begin=True)

        return subagent_tool(agent.name, agent.description, open_thread=open_thread, tell=self._tell_hooks)

    def _tell_hooks(self, event: HookEvent, agent: str, result: RunResult | None) -> tuple[Answer, ...]:
        site = current_site.get()
        about = Moment(
            event=event,
            run=site.run if site else "",
            thread=site.thread if site else "",
            agent=self._name,
            subagent=agent,
            stop=result.stop if result else None,
            detail=result.detail if result else "",
        )
        return self._hooks.call(about, _unheard)

    def _court(self, name: str) -> Bench:
        """What decides about calls of this harness, or of the agent of that name, however deep."""
        found = self._named(name) or self
        caller = found._caller(found._store)
        return Bench(found._toolbox, judge_of(found._toolbox, caller, found._policy) or _allowed)

    def _named(self, name: str) -> "Harness | None":
        for agent in self._agents.values():
            if agent.name == name:
                return agent.harness
            deeper = agent.harness._named(name)
            if deeper is not None:
                return deeper
        return None

    async def aclose(self) -> None:
        """Let go of the store."""
        await self._store.aclose()


class Subagent(msgspec.Struct, frozen=True, kw_only=True):
    """Another harness that this one may hand a task to. It starts afresh each time, and keeps its log beside ours."""

    name: str
    harness: Harness
    description: str


def _allowed(_call: ToolCall) -> Judgement:
    return Judgement()


def _unheard(text: str) -> None:
    """What a hook about an agent got wrong is told to nobody but the warnings filter."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _facts(tool: Tool) -> ToolFacts:
    return ToolFacts(tool.effect, tool.sequential, tool.retries, tool.verify is not None)


def _store(given: Store | str | PathLike[str] | None) -> Store:
    match given:
        case None:
            return SqliteStore()
        case "memory":
            return MemoryStore()
        case str() | PathLike():
            return SqliteStore(given)
        case _:
            return given


def _to_the_end(work: Coroutine[object, object, T]) -> T:
    """The one sync door. Inside a running loop the work goes on in a loop of its own, in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    done: list[T] = []
    failed: list[BaseException] = []

    def go() -> None:
        try:
            done.append(asyncio.run(work))
        except BaseException as error:
            failed.append(error)

    within = copy_context()  # a run inside a tool stays one, in another thread, too
    thread = threading.Thread(target=within.run, args=(go,), name="evener-run-sync", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
