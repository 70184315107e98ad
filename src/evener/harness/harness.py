"""The friendly front: a model, tools, a system prompt; then `run`. Reusable: runs share nothing but what is set up here."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from evener.harness.checking import OUTCOMES, UnknownOutcome, check_harness, check_names, check_thread, models_of, told_first
from evener.harness.compiling import Chosen, open_offline
from evener.harness.doors import store_of, to_the_end
from evener.harness.judging import judge_of
from evener.harness.opening import Opener, Prompt
from evener.harness.pads import LogNotebook, Pad
from evener.harness.running import RunStream
from evener.harness.subagents import subagent_tool
from evener.harness.system import Given, System
from evener.harness.thread import Thread
from evener.hooks import Answer, Hook, HookEvent, Hooks, Moment
from evener.loop.gate import Gate, Judgement
from evener.loop.limits import Limits
from evener.loop.plan import Setup, ToolFacts
from evener.model.opening import open_model
from evener.model.seam import Askable
from evener.model.state import bearings_of
from evener.nesting import current_site
from evener.policy.rules import Policy
from evener.result import RunResult
from evener.resume_state import ResumeState
from evener.store.log import Store
from evener.tools.calling import Caller, with_reader
from evener.tools.notes import scratchpad_tool
from evener.tools.outputs import OutputShape
from evener.tools.threads import Threads
from evener.tools.tool import Tool
from evener.tools.toolbox import Toolbox
from evener.transcript.ask import Effort, OutputForm, State, StateMode
from evener.transcript.blocks import ToolCall
from evener.transcript.loss import refused_codes
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
    tool for working notes; a `Scratchpad` is what a conversation begins with, and says who sees which section. `state` says
    who holds the past: by `replay` it is sent with every request; by `chain` and `conversation` the provider holds it where it
    can, and only what is new is sent. A `State` names a conversation or an answer to begin with. `unknown_outcome`: when a
    `write` was interrupted and its tool cannot verify what became of it, the model is told so ("tell"), or somebody is asked
    ("ask"). `refuse_losses` names losses by their codes (`{"reasoning.dropped"}`), the beginnings of codes, or kinds: a
    request that has one is not sent; the next model of the chain is asked, and where none is left, the run fails with
    LossRefused.
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
        state: StateMode | State = "replay",
        unknown_outcome: UnknownOutcome = "tell",
        refuse_losses: Iterable[str] = (),
    ) -> None:
        check_harness(
            tools=tools, name=name, store=store, limits=limits, policy=policy, interrupts=interrupts,
            decide_within=decide_within, hooks=hooks, agents=agents, scratchpad=scratchpad, unknown_outcome=unknown_outcome,
        )  # fmt: skip
        self._chosen = Chosen(effort=effort, max_output_tokens=max_output_tokens, temperature=temperature)
        self._models = self._opened(models_of(model))
        if not self._models:
            raise UsageError('A harness needs a model. Name one, for example Harness("local:smollm2"), which needs no key.')
        self._name = name
        self._system = System(system, deps=deps)
        self._limits = limits or Limits()
        self._deps = deps
        self._store = store_of(store)
        self._hooks = Hooks(hooks)
        self._agents = _by_name(agents)
        given = Toolbox((*tools, *(self._agent_tool(agent) for agent in self._agents.values())))
        paged = with_reader(given) if page_output else given
        self._pad = Scratchpad() if scratchpad is True else scratchpad or None
        self._toolbox = paged if self._pad is None else paged.add(scratchpad_tool(LogNotebook()))
        check_names(self._toolbox, self._agents)
        self._threads = Threads()
        self._policy = policy
        self._interrupts = frozenset((*interrupts, *OUTCOMES[unknown_outcome]))
        self._decide_within = decide_within
        self._shape = None if output in (None, str) else OutputShape.of(output)
        self._output = None if self._shape is None else self._shape.spec(output_form)
        self._refuse_losses = refused_codes(refuse_losses)
        self._state = state
        bearings_of(state)  # what is wrong with it is said now

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

    async def run(
        self,
        prompt: Prompt,
        *,
        thread: str = "",
        limits: Limits | None = None,
        resume_from: ResumeState | str | None = None,
    ) -> RunResult:
        """Say something, in a new conversation or in a `thread`, and run to a stop.

        A new one may go on from the `resume_state` of a result. Raises what the model's provider said when no model could
        answer; any other stop is told by `RunResult.stop`.
        """
        return await self.thread(thread, limits=limits, resume_from=resume_from).run(prompt)

    def run_sync(
        self,
        prompt: Prompt,
        *,
        thread: str = "",
        limits: Limits | None = None,
        resume_from: ResumeState | str | None = None,
    ) -> RunResult:
        """The same for callers without an event loop. Works inside a running one, too, which it holds up meanwhile."""
        return to_the_end(self.run(prompt, thread=thread, limits=limits, resume_from=resume_from))

    def stream(
        self,
        prompt: Prompt,
        *,
        thread: str = "",
        limits: Limits | None = None,
        resume_from: ResumeState | str | None = None,
    ) -> RunStream:
        """The same, watched: starts at once, gives typed events. Needs a running event loop."""
        return self.thread(thread, limits=limits, resume_from=resume_from).stream(prompt)

    async def resume(self, thread: str, *, limits: Limits | None = None) -> RunResult:
        """Go on with a run that stopped at a limit, was cancelled, failed, or whose process died."""
        return await self.thread(thread, limits=limits).resume()

    def resume_sync(self, thread: str, *, limits: Limits | None = None) -> RunResult:
        """The same for callers without an event loop."""
        return to_the_end(self.resume(thread, limits=limits))

    def with_model(self, *models: ModelLike) -> "Harness":
        """The same agent on another model, or on another chain of them. Store, tools and everything else are shared."""
        made = copy(self)
        made._models = self._opened(models) or self._models
        return made

    def _opened(self, models: Iterable[ModelLike]) -> tuple[Askable, ...]:
        return tuple(open_model(one, **self._chosen) if isinstance(one, str) else one for one in models)

    def _offline(self, name: str) -> Askable:
        return open_offline(name, **self._chosen)

    async def decide(self, thread: str, decisions: Mapping[str, Decision]) -> None:
        """Decide what waits in a thread, from any process, by the key of each approval; then `resume` it.

        ApprovalStale when it was decided before, has expired, or is about something that has changed.
        """
        await self.thread(thread).decide(decisions)

    def thread(
        self,
        id: str = "",
        *,
        branch: str = "",
        limits: Limits | None = None,
        history: Iterable[Message] = (),
        resume_from: ResumeState | str | None = None,
    ) -> Thread:
        """A conversation: the one of this id, or a new one. Keep it for several runs: then no run reads the log again.

        The id of a thread stands for its head, that of one log for that log; `branch` names exactly one log of the thread. A
        new one may begin with a `history`: messages from elsewhere, or examples; or with what `RunResult.resume_state` gave.
        """
        check_thread(id, branch=branch, limits=limits)
        told = told_first(id or branch, history, resume_from)
        return self._thread(id, limits=limits, history=told, branch=branch)

    def _thread(
        self,
        id: str,
        *,
        limits: Limits | None = None,
        history: Iterable[Message] = (),
        store: Store | None = None,
        name: str | None = None,
        path: str = "",
        branch: str = "",
        begin: bool = False,
        source: str = "",
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
            refuse_losses=self._refuse_losses,
            bearings=bearings_of(self._state),
        )
        config = ev.Configured(at=0.0, model=self._models[0].name, tools=self._toolbox.specs)
        return Thread(
            id,
            agent=agent,
            opener=Opener(config, self._system, history),
            store=store,
            court=self._court,
            opens=self._offline,
            name=self._name if name is None else name,
            path=path,
            transport=shared_transport(),
            pad=None if self._pad is None else Pad(self._pad),
            branch=branch,
            begin=begin,
            source=source,
        )

    def _caller(self, store: Store) -> Caller:
        return Caller(self._toolbox, threads=self._threads, deps=self._deps, shelf=store)

    # Agents of this one.

    def _agent_tool(self, agent: "Subagent") -> Tool:
        def open_thread(id: str, source: str) -> Thread:
            site = current_site.get()
            return self._heir(agent)._thread(
                id,
                store=site.store if site else self._store,  # that of the run at the root: decisions are made there
                name=agent.name,
                path=f"{site.path if site else self._name}/{agent.name}",
                begin=True,
                source=source,
            )

        return subagent_tool(agent.name, agent.description, open_thread=open_thread, tell=self._tell_hooks)

    def _tell_hooks(self, event: HookEvent, agent: str, result: RunResult | None) -> tuple[Answer, ...]:
        """Through the run around the call: it has the warnings, and it is what a fatal hook ends."""
        site = current_site.get()
        stop, detail = (result.stop, result.detail) if result else (None, "")
        if site is not None and site.hooked is not None:
            return site.hooked(event, subagent=agent, stop=stop, detail=detail)
        about = Moment(event=event, run="", thread="", agent=self._name, subagent=agent, stop=stop, detail=detail)
        return self._hooks.call(about, _unheard)

    def _heir(self, agent: "Subagent") -> "Harness":
        """The agent's harness with the tools that it inherits. Our policy holds for it, too: what we may not, it may not."""
        names = [name for name in agent.inherits if name not in agent.harness._toolbox]
        if not names:
            return agent.harness
        made = copy(agent.harness)
        made._toolbox = made._toolbox.add(*(self._toolbox[name] for name in names))
        made._deps = self._deps if made._deps is None else made._deps
        if self._policy is not None:
            own = made._policy
            made._policy = self._policy if own is None else msgspec.structs.replace(own, also=(*own.also, self._policy))
        return made

    def _court(self, name: str) -> Bench:
        """What decides about calls of this harness, or of an agent inside it: `name` is what its log says whose it is."""
        found = self if name == self._name else self._inside(name) or self._named(name.rpartition("/")[2]) or self
        caller = found._caller(found._store)
        return Bench(found._toolbox, judge_of(found._toolbox, caller, found._policy) or _allowed)

    def _inside(self, path: str) -> "Harness | None":
        """The agent of this path, as in `shop/buyer/payer`. Harnesses may have been named otherwise then."""
        found: Harness | None = self
        for name in path.removeprefix(self._name).split("/")[1:]:
            agent = found._agents.get(name) if found else None
            found = found._heir(agent) if found and agent else None
        return None if found is self else found

    def _named(self, name: str) -> "Harness | None":
        """Logs of old name no path: then it is the first agent of that name, however deep."""
        for agent in self._agents.values():
            if agent.name == name:
                return self._heir(agent)
            deeper = agent.harness._named(name)
            if deeper is not None:
                return deeper
        return None

    async def aclose(self) -> None:
        """Let go of the store."""
        await self._store.aclose()


class Subagent(msgspec.Struct, frozen=True, kw_only=True):
    """Another harness that this one may hand a task to. It starts afresh each time, and keeps its log beside ours.

    `inherits` names tools of ours that it has beside its own, as they are when it is asked; not agents, lest they go round.
    """

    name: str
    harness: Harness
    description: str
    inherits: tuple[str, ...] = ()


def _by_name(agents: Iterable[Subagent]) -> dict[str, Subagent]:
    """The agents by their names, of which no two are the same."""
    found: dict[str, Subagent] = {}
    for agent in agents:
        if agent.name in found:
            raise UsageError(f"Two agents are named {agent.name!r}. Give each a name of its own: the model calls them by it.")
        found[agent.name] = agent
    return found


def _allowed(_call: ToolCall) -> Judgement:
    return Judgement()


def _unheard(text: str) -> None:
    """Outside of a run, what a hook about an agent got wrong is told to nobody but the warnings filter."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _facts(tool: Tool) -> ToolFacts:
    return ToolFacts(tool.effect, tool.sequential, tool.retries, tool.verify is not None)
