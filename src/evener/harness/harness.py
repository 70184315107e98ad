"""The main entry point: a model, tools, a system prompt; then `run`. Reusable: runs share only what is configured here."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from functools import partial
from os import PathLike
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeGuard, TypeVar, cast, get_args

import msgspec

from evener import events as ev
from evener.errors import UsageError
from evener.events import Effect, Interrupt, Limits, ToolFacts

if TYPE_CHECKING:  # what a harness is made of is loaded when one is made
    # Defaults of type variables are for checkers, which know them on any Python.
    from typing_extensions import TypeVar as DefaultTypeVar

    from evener.context.gate import ContextRules
    from evener.context.scratchpad import Scratchpad
    from evener.driver.context_window import ContextKeeper
    from evener.harness.approvals import Bench, Decision
    from evener.harness.opening import Given, Prompt
    from evener.harness.stream import RunStream
    from evener.harness.thread import Thread
    from evener.hooks import Hook, HookAnswer, HookEvent
    from evener.loop.plan import ToolOffer
    from evener.loop.state import RunState
    from evener.model.plain import PlainProvider
    from evener.model.seam import Askable
    from evener.model.server_state import Bearings
    from evener.policy.rules import Policy
    from evener.result import RunResult
    from evener.resume_state import ResumeState
    from evener.router import Router
    from evener.store.protocol import Store
    from evener.tools.call import Caller, Threads
    from evener.tools.context import Progress
    from evener.tools.outputs import OutputShape
    from evener.tools.result import Envelope
    from evener.tools.tool import Tool, Toolbox
    from evener.transcript.ask import Effort, HostedTool, ModelSettings, OutputForm, State, StateMode, ToolSpec
    from evener.transcript.blocks import ToolCall
    from evener.transcript.message import Message
    from evener.transport.exchange import Reach

    ModelLike = str | Askable | PlainProvider
    Deps = DefaultTypeVar("Deps", covariant=True, default=object)
    Output = DefaultTypeVar("Output", covariant=True, default=object)
    OutputLike = type[Output] | OutputShape | Mapping[str, object] | UnionType | str | None
else:
    Deps = TypeVar("Deps", covariant=True)
    Output = TypeVar("Output", covariant=True)


T = TypeVar("T")
ADDRESSES = ("postgresql://", "postgres://")


def store_of(given: Store | str | PathLike[str] | None) -> Store:
    """Return the store for this value: a Store, a path, "memory", or the address of a PostgreSQL database.

    None stands for the file in the platform's data folder.
    """
    if given == "memory":
        from evener.store.memory import MemoryStore

        return MemoryStore()
    if isinstance(given, str) and given.startswith(ADDRESSES):
        from evener.store.postgres.store import PostgresStore

        return PostgresStore(given)
    if given is None or isinstance(given, str | PathLike):
        from evener.store.sqlite.store import SqliteStore

        return SqliteStore(given)
    return given


def to_the_end(work: Coroutine[object, object, T]) -> T:
    """Run async work and wait for it. Inside a running event loop, the work runs in a loop of its own, in another thread."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # an error of the work is raised outside of this block: else its traceback begins with this one
    else:
        return _in_another_thread(lambda: asyncio.run(work))
    return asyncio.run(work)


def _in_another_thread(work: Callable[[], T]) -> T:
    done: list[T] = []
    failed: list[BaseException] = []

    def go() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    within = copy_context()  # a run inside a tool stays one, in another thread, too
    thread = threading.Thread(target=within.run, args=(go,), name="evener-run-sync", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


UnknownOutcome = Literal["tell", "ask"]
WORDS: tuple[Interrupt, ...] = get_args(Interrupt)
OUTCOMES: Mapping[UnknownOutcome, tuple[Interrupt, ...]] = {"tell": (), "ask": ("outcome",)}

STORE = ("create", "open", "read", "link", "head", "move_head", "post", "logs", "put_blob", "get_blob", "aclose")


def models_of(model: object) -> tuple[ModelLike, ...]:
    """Return the models of the chain, the preferred one first."""
    given = tuple(model) if isinstance(model, Sequence) and not isinstance(model, str | bytes) else (model,)
    if not given:
        raise UsageError('A harness needs a model. Name one, for example Harness("local:smollm2"), which needs no key.')
    for one in given:
        if not isinstance(one, str) and not is_askable(one) and not _has(one, ("name", "complete")):
            expected = (
                'a model string such as "local:smollm2", a model, a provider with `name` and `complete`, or a list of these'
            )
            raise _wrong("model", expected, one)
    return given


def is_askable(one: object) -> TypeGuard[Askable]:
    """True if the loop can call the model directly. A provider with only `name` and `complete` must be wrapped first."""
    return _has(one, ("ask", "stream", "most_cost", "capped"))


def check_settings(settings: object, tools: Collection[str]) -> None:
    """Refuse a value that is not ModelSettings, and settings that name a tool which the harness does not have."""
    from evener.transcript.ask import ModelSettings

    if settings is None:
        return
    if not isinstance(settings, ModelSettings):
        raise _wrong("settings", "ModelSettings(...), or None", settings)
    missing = next((name for name in settings.tools_named if name not in tools), None)
    if missing is not None:
        known = ", ".join(tools) or "none"
        raise UsageError(
            f"`tool_choice` names the tool {missing!r}, but the tools are: {known}. "
            'Name one of them, or say "auto", "required" or "none".'
        )


def check_harness(
    *,
    name: object,
    store: object,
    limits: object,
    policy: object,
    decide_within: object,
    scratchpad: object,
    unknown_outcome: object,
    media_from: object = "public",
    context: object = True,
    settings: object = None,
    page_output: object = True,
    router: object = None,
) -> None:
    """Refuse the first of these arguments that is invalid."""
    from evener.context.gate import ContextRules
    from evener.context.scratchpad import Scratchpad
    from evener.policy.rules import Policy
    from evener.transcript.ask import ModelSettings

    for what, value, kinds, expected in (
        ("name", name, (str,), "a text"),
        ("limits", limits, (Limits, type(None)), "Limits(...), or None"),
        ("policy", policy, (Policy, type(None)), "a Policy, or None"),
        ("decide_within", decide_within, (int, float), "a number of seconds, 0 for no deadline"),
        ("scratchpad", scratchpad, (bool, Scratchpad), "True, False or a Scratchpad"),
        ("context", context, (bool, ContextRules), "True, False or ContextRules"),
        ("page_output", page_output, (bool,), "True or False"),
        ("settings", settings, (ModelSettings, type(None)), "ModelSettings(...), or None"),
    ):
        if not isinstance(value, kinds):
            raise _wrong(what, expected, value)
    if not isinstance(decide_within, int | float) or not decide_within >= 0:
        raise UsageError(f"`decide_within` must be a number of seconds, 0 for no deadline; not {decide_within!r}.")
    if not isinstance(unknown_outcome, str) or unknown_outcome not in OUTCOMES:
        raise UsageError(f'`unknown_outcome` must be "tell" or "ask"; not {unknown_outcome!r}.')
    if router is not None and not callable(router):
        raise _wrong("router", "a function that is given a NextRequest and returns the name of a model, or None", router)
    if media_from not in ("public", "anywhere"):
        raise UsageError(f'`media_from` must be "public" or "anywhere"; not {media_from!r}.')
    if store is not None and not isinstance(store, str | PathLike) and not _has(store, STORE):
        raise _wrong(
            "store", 'a path, "memory", an address as in postgresql://..., or an object with the methods of Store', store
        )


class Heir(Protocol):
    """An agent as far as the names of its tools matter."""

    @property
    def inherits(self) -> tuple[str, ...]: ...


def check_names(tools: Collection[str], agents: Mapping[str, Heir]) -> None:
    """Refuse two tools of one name, two agents of one name, and agents that inherit a tool that does not exist."""
    from evener.encodings.forms import FINAL_RESULT

    if FINAL_RESULT in tools:
        raise UsageError(f"The tool name {FINAL_RESULT!r} is reserved for structured answers. Rename the tool.")
    for agent, heir in agents.items():
        wrong = next((name for name in heir.inherits if name not in tools or name in agents), None)
        if wrong is not None:
            raise UsageError(f"The agent {agent!r} cannot inherit {wrong!r}: name a tool, not an agent, of its harness.")


def check_thread(id: object, *, branch: object, limits: object) -> None:
    """Refuse an invalid thread id, branch or limits."""
    for what, value in (("id", id), ("branch", branch)):
        if not isinstance(value, str):
            raise _wrong(what, "the id that a result names (a text), empty for a new thread", value)
    if limits is not None and not isinstance(limits, Limits):
        raise _wrong("limits", "Limits(...), or None", limits)


def told_first(id: str, history: Iterable[Message], resume_from: ResumeState | str | None) -> tuple[Message, ...]:
    """Return the messages with which a new thread begins: of the history or of the resume state."""
    from evener.resume_state import ResumeState
    from evener.transcript.message import Message

    told = _each(history, "history", "a list of Message", lambda one: isinstance(one, Message))
    if resume_from is not None:
        if told:
            raise UsageError("A thread begins with a history or with a resume state, not with both. Give one of them.")
        if not isinstance(resume_from, ResumeState | str | bytes):
            raise _wrong("resume_from", "the `resume_state` of a result, or its text", resume_from)
        told = (resume_from if isinstance(resume_from, ResumeState) else ResumeState(resume_from)).messages
    if id and told:
        raise UsageError(f"Thread {id} has messages already. A history or a resume state needs a new thread.")
    return told


def _each(given: Iterable[T], what: str, expected: str, fits: Callable[[object], bool]) -> tuple[T, ...]:
    """Return the values as a tuple. Raises an error for the first that does not fit."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise _wrong(what, f"{expected}; leave it out for none", given)
    found = tuple(given)
    for one in found:
        if not fits(one):
            raise _wrong(what, expected, one)
    return found


def _is_tool(one: object) -> bool:
    from evener.tools.tool import Tool
    from evener.transcript.ask import HostedTool

    if isinstance(one, HostedTool):
        if one.wire:
            raise UsageError(
                "A harness takes tools that a provider runs only from evener.toolset.hosted, as in hosted.web_search(): your "
                "own declaration could contain credentials. Use that, or ask a model without a harness: `Model.ask`."
            )
        return True
    return isinstance(one, Tool) or callable(one)


def _split_hosted(tools: Iterable[object]) -> tuple[list[Any], tuple[HostedTool, ...]]:
    """Return the tools that run here, and the tools that a provider runs."""
    from evener.transcript.ask import HostedTool

    given = list(tools)
    hosted = tuple(one for one in given if isinstance(one, HostedTool))
    return ([one for one in given if not isinstance(one, HostedTool)] if hosted else given), hosted


def _guard(tools: list[Any], hosted: tuple[HostedTool, ...], policy: Policy | None) -> list[Any]:
    """Return the tools. If their labels show that data could leak, the tools that send data out require approval."""
    labelled = hosted or any("label" in one.metadata for one in tools if hasattr(one, "metadata"))
    if not labelled or (policy is not None and policy.mixing == "allow"):
        return tools
    from evener.toolset.labels import guard_labelled

    return guard_labelled(tools, hosted)


def _has(value: object, names: Iterable[str]) -> bool:
    return not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _wrong(what: str, expected: str, value: object) -> UsageError:
    shown = f"the text {value!r}" if isinstance(value, str) else type(value).__name__
    return UsageError(f"`{what}` takes {expected}; not {shown}.")


class PlainFunction(Protocol):
    """A function or method that is not a tool yet. Its signature is read when a tool is made from it."""

    __qualname__: str

    def __call__(self, *args: Any, **kwargs: Any) -> object: ...


class Harness(Generic[Deps, Output]):
    """One agent. `model` is a model string or a model, or several: a chain, in which the next model is called if one cannot
    answer.

    `store` contains the log: a path, a store, or "memory" for runs that need not survive the process; by default one SQLite
    file in the platform's data folder. `name` is the name by which another process finds this harness. Tools get `deps`.
    `page_output` gives the model a tool that pages through output which was too large to show. `output` is the type or the JSON
    Schema of the final answer, `output_form` the way to request it. `policy` says which calls are allowed, denied or need
    approval; `interrupts` adds further points that need a decision, and the user has `decide_within` seconds for it (0: no
    deadline). `hooks` are functions that are called at events of a run. `agents` are other harnesses that this one may give
    tasks to. `system` is a text, blocks, a `SystemPrompt` of five parts, or a function that returns one of these; it is
    rendered once per run. `scratchpad` gives the model a tool for working notes; a `Scratchpad` has the initial notes, and says
    who sees which section. `state` says who stores the conversation: with "replay" every request contains it; with "chain" and
    "conversation" the provider stores it if it can, and only new content is sent. A `State` names a conversation or an answer
    to continue from. `unknown_outcome`: if a `write` call was interrupted and its tool cannot verify the outcome, the model is
    told so ("tell"), or a user decides ("ask"). `refuse_losses` names losses by their codes (`{"reasoning.dropped"}`), by
    prefixes of codes, or by kinds: a request with such a loss is not sent; the next model of the chain is called, and if none
    is left, the run fails with LossRefused. `media_from`: the hosts from which media behind a URL are fetched if a model needs
    their bytes: the public internet, or "anywhere", which includes this machine and private networks. `context` says how
    conversations are kept within a model's window; False sends them unchanged. `settings` apply to every request; the settings
    of a run override them. `effort`, `max_output_tokens` and `temperature` are short for fields of `settings`. `router` is a
    function that chooses the model of each request (`evener.router`).
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, kinds: object) -> object:
            """Take `Harness[Deps]` for `Harness[Deps, object]`, as checkers do."""
            return super().__class_getitem__(kinds if isinstance(kinds, tuple) else (kinds, object))

    def __init__(
        self,
        model: ModelLike | Sequence[ModelLike] = "",
        *,
        tools: Iterable[Tool[Deps] | PlainFunction | HostedTool] = (),
        system: Given = None,
        name: str = "",
        store: Store | str | PathLike[str] | None = None,
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        deps: Deps = None,  # type: ignore[assignment] # without any, tools are not to need some
        effort: Effort | None = None,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        page_output: bool = True,
        policy: Policy | None = None,
        interrupts: Iterable[Interrupt] = (),
        decide_within: float = 0.0,
        output: OutputLike[Output] = None,
        output_form: OutputForm = "",
        hooks: Iterable[Hook] = (),
        agents: Iterable[Subagent] = (),
        scratchpad: bool | Scratchpad = False,
        state: StateMode | State = "replay",
        unknown_outcome: UnknownOutcome = "tell",
        refuse_losses: Iterable[str] = (),
        media_from: Reach = "public",
        context: ContextRules | bool = True,
        router: Router | None = None,
    ) -> None:
        from evener.context.gate import ContextRules
        from evener.harness.opening import System
        from evener.hooks import Hook, Hooks
        from evener.tools.call import with_reader
        from evener.tools.outputs import OutputShape
        from evener.tools.tool import Toolbox
        from evener.transcript.ask import ModelSettings
        from evener.transcript.loss import refused_codes

        tools = _each(tools, "tools", "a list of tools or functions", _is_tool)
        hooks = _each(hooks, "hooks", "a list of Hook", lambda one: isinstance(one, Hook))
        agents = _each(agents, "agents", "a list of Subagent", lambda one: isinstance(one, Subagent))
        interrupts = _each(interrupts, "interrupts", f"a set of words out of {', '.join(map(repr, WORDS))}", WORDS.__contains__)
        check_harness(
            name=name, store=store, limits=limits, policy=policy, decide_within=decide_within, scratchpad=scratchpad,
            unknown_outcome=unknown_outcome, media_from=media_from, context=context, settings=settings,
            page_output=page_output, router=router,
        )  # fmt: skip
        self._router = router
        self._set_models(models_of(model))
        if not self._models:
            raise UsageError('A harness needs a model. Name one, for example Harness("local:smollm2"), which needs no key.')
        self._name = name
        self._system = System(system, deps=deps)
        self._limits = limits or Limits()
        short = ModelSettings(effort=effort, max_output_tokens=max_output_tokens, temperature=temperature)
        self._settings = settings.over(short) if settings is not None else short if short != ModelSettings() else None
        self._deps = deps
        self._store = store_of(store)
        _share_rates(self._store)
        self._hooks = Hooks(hooks) if hooks else None
        self._agents = _by_name(agents)
        own, self._hosted = _split_hosted(tools)
        self._check_hosted()
        own = _guard(own, self._hosted, policy)
        given = Toolbox((*own, *(self._agent_tool(agent) for agent in self._agents.values())))
        self._pad: Scratchpad | None = None
        self._toolbox = with_reader(given) if page_output and given else given
        if scratchpad:
            self._add_scratchpad(scratchpad)
        check_names(self._toolbox, self._agents)
        check_settings(settings, self._toolbox)
        self._threads: Threads | None = None
        self._policy = policy
        self._check_rules()
        self._interrupts = frozenset((*interrupts, *OUTCOMES[unknown_outcome]))
        self._decide_within = decide_within
        self._shape = None if output in (None, str) else OutputShape.of(output)
        self._output = None if self._shape is None else self._shape.spec(output_form)
        self._refuse_losses = refused_codes(refuse_losses) if refuse_losses != () else frozenset()
        self._state = state
        self._media_from = media_from
        self._context = ContextRules() if context is True else context or None
        self._summarizer = self._open(self._context.summarizer) if self._context and self._context.summarizer else None
        self._bearings()  # what is wrong with it is said now

    @property
    def name(self) -> str:
        return self._name

    @property
    def models(self) -> tuple[Askable, ...]:
        """The models of the chain, the preferred one first."""
        return self._models

    @property
    def tools(self) -> Toolbox:
        return self._toolbox

    @property
    def store(self) -> Store:
        """The store of the logs."""
        return self._store

    @property
    def tool_threads(self) -> Threads:
        """The Python threads in which sync tools run: how many are busy, and how many are abandoned."""
        if self._threads is None:
            from evener.tools.call import Threads

            self._threads = Threads()
        return self._threads

    # Runs.

    async def run(
        self,
        prompt: Prompt,
        *,
        thread: str = "",
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        metadata: Mapping[str, object] | None = None,
        resume_from: ResumeState | str | None = None,
    ) -> RunResult[Output]:
        """Send a prompt, in a new conversation or in a `thread`, and run until it stops.

        A new conversation may continue from the `resume_state` of a result. Raises the provider's error if no model could
        answer; for any other stop see `RunResult.stop`. `settings` apply to this run, also when it is resumed. `metadata` is
        the caller's own, and is returned with the result.
        """
        check_settings(settings, self._toolbox)
        here = self.thread(thread, limits=limits, resume_from=resume_from)
        return await here.run(prompt, settings=settings, metadata=metadata)

    def run_sync(
        self,
        prompt: Prompt,
        *,
        thread: str = "",
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        metadata: Mapping[str, object] | None = None,
        resume_from: ResumeState | str | None = None,
    ) -> RunResult[Output]:
        """Run without an event loop. Also works inside a running event loop, which it blocks."""
        return to_the_end(
            self.run(prompt, thread=thread, limits=limits, settings=settings, metadata=metadata, resume_from=resume_from)
        )

    def stream(
        self,
        prompt: Prompt,
        *,
        thread: str = "",
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        metadata: Mapping[str, object] | None = None,
        resume_from: ResumeState | str | None = None,
    ) -> RunStream[Output]:
        """Start a run at once, and return a stream of its typed events. Needs a running event loop."""
        check_settings(settings, self._toolbox)
        here = self.thread(thread, limits=limits, resume_from=resume_from)
        return here.stream(prompt, settings=settings, metadata=metadata)

    async def submit(self, prompt: Prompt, *, thread: str = "") -> Thread[Output]:
        """Submit a prompt for a worker (`evener worker`) to run. Return its thread; await its `result()`."""
        return await self.thread(thread).submit(prompt)

    async def resume(self, thread: str, *, limits: Limits | None = None) -> RunResult[Output]:
        """Resume a run that stopped at a limit, was cancelled, failed, or whose process died."""
        return await self.thread(thread, limits=limits).resume()

    def resume_sync(self, thread: str, *, limits: Limits | None = None) -> RunResult[Output]:
        """Resume a run without an event loop."""
        return to_the_end(self.resume(thread, limits=limits))

    def with_model(self, *models: ModelLike) -> Harness[Deps, Output]:
        """Return a copy of the harness with another model, or another chain of models. Store and tools are shared."""
        made = copy(self)
        if models:
            made._set_models(models_of(models))
        made._check_hosted()
        return made

    def with_tools(self, *tools: Tool | PlainFunction | HostedTool) -> Harness[Deps, Output]:
        """Return a copy of the harness with additional tools. Threads that it continues have them from their next run on."""
        from evener.tools.tool import Toolbox

        made = copy(self)
        _each(tools, "tools", "tools or functions", _is_tool)
        own, hosted = _split_hosted(tools)
        made._hosted = (*self._hosted, *hosted)
        made._check_hosted()
        made._toolbox = Toolbox(_guard([*self._toolbox.values(), *own], made._hosted, self._policy))
        check_names(made._toolbox, made._agents)
        made._check_rules()
        return made

    def with_settings(self, settings: ModelSettings) -> Harness[Deps, Output]:
        """Return a copy of the harness in which these settings override its own, field by field."""
        check_settings(settings, self._toolbox)
        made = copy(self)
        made._settings = settings.over(self._settings)
        return made

    def _set_models(self, given: Sequence[ModelLike]) -> None:
        """Open the models of the chain. If there is a router, it chooses among them."""
        self._models = tuple(self._open_one(one) for one in given)
        self._choose: Callable[[RunState, str], str] | None = None
        if self._router is not None:
            from evener.router import choose_by

            names = [model.name for model in self._models]
            texts = {one: name for one, name in zip(given, names, strict=True) if isinstance(one, str)}
            self._choose = choose_by(self._router, names, texts)

    def _open_one(self, one: ModelLike) -> Askable:
        if isinstance(one, str):
            return self._open(one)
        if is_askable(one):
            return one
        from evener.model.plain import PlainModel

        return PlainModel(cast("PlainProvider", one))

    def _open(self, name: str) -> Askable:
        from evener.model.open import open_model

        return open_model(name)

    def _offline(self, model: ModelLike) -> Askable:
        from evener.harness.preview import open_offline

        [one] = models_of((model,))
        return open_offline(one) if isinstance(one, str) else self._open_one(one)

    async def decide(self, thread: str, decisions: Mapping[str, Decision]) -> None:
        """Decide the approvals of a thread by the key of each, from any process; then `resume` it.

        Raises ApprovalStale if one was decided before, has expired, or is about a tool or call that has changed.
        """
        await self.thread(thread).decide(decisions)

    def decide_sync(self, thread: str, decisions: Mapping[str, Decision]) -> None:
        """Decide without an event loop; see `decide`."""
        to_the_end(self.decide(thread, decisions))

    def thread(
        self,
        id: str = "",
        *,
        branch: str = "",
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        history: Iterable[Message] = (),
        resume_from: ResumeState | str | None = None,
        begin: bool = False,
    ) -> Thread[Output]:
        """Return a conversation: the one of this id, or a new one. Keep it for several runs: then no run reads the log again.

        The id of a thread stands for its head, that of one log for that log; `branch` names exactly one log of the thread. A
        new one may begin with a `history`: messages from elsewhere, or examples; or with what `RunResult.resume_state` gave.
        `begin`: the id is a new one of the caller's, and the thread begins with its first run if it is not there yet.
        """
        check_thread(id, branch=branch, limits=limits)
        check_settings(settings, self._toolbox)
        told = told_first("" if begin else id or branch, history, resume_from)
        return self._thread(id, limits=limits, settings=settings, history=told, branch=branch, begin=begin)

    def _thread(
        self,
        id: str,
        *,
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
        history: Iterable[Message] = (),
        store: Store | None = None,
        name: str | None = None,
        path: str = "",
        branch: str = "",
        begin: bool = False,
        source: str = "",
    ) -> Thread[Output]:
        from evener.driver import Agent
        from evener.harness.approvals import judge_by, judge_of
        from evener.harness.opening import Opener
        from evener.harness.scratchpad import Pad
        from evener.harness.thread import Thread
        from evener.loop.plan import ApprovalGate, Setup, ToolOffer
        from evener.store.protocol import keep_raw
        from evener.transport.http import shared_transport

        store = store or self._store
        chosen = self._settings if settings is None else settings.over(self._settings)
        caller = self._caller(store)
        facts = {name: _facts(tool) for name, tool in self._toolbox.items()}
        judge = judge_of(self._toolbox, caller, self._policy) if facts or self._policy else None
        setup = Setup(
            models=tuple(model.name for model in self._models),
            tools=facts,
            limits=limits or self._limits,
            fetches=tuple(model.fetches for model in self._models),
            gate=ApprovalGate(judge, self._interrupts),
            shortens=self._context is not None,
            choose=self._choose,
        )
        own: tuple[ToolSpec | HostedTool, ...] = self._toolbox.specs
        specs = (*own, *self._hosted) if self._hosted else own
        offered = ToolOffer.of(specs, facts)
        keeper = self._keeper(store, chosen, offered)
        agent = Agent(
            models=self._models,
            specs=specs,
            offered=offered,
            setup=setup,
            caller=caller,
            output=self._output,
            shape=self._shape,
            decide_within=self._decide_within,
            hooks=self._hooks,
            refuse_losses=self._refuse_losses,
            bearings=self._bearings(),
            policy=self._policy,
            judged=partial(judge_by, self._toolbox, caller),
            context=keeper,
            settings=chosen,
            keep_raw=partial(keep_raw, store),
            edits=keeper.edits if keeper is not None and keeper.rules.by_provider == "edit" else None,
            diagnose=keeper is not None and keeper.rules.diagnose,
        )
        recorded = ev.RunSetup(
            limits=setup.limits,
            tools=facts,
            fallbacks=setup.models[1:],
            fetches=setup.fetches,
            interrupts=tuple(sorted(self._interrupts)),
            decide_within=self._decide_within,
            shortens=setup.shortens,
            routed=setup.choose is not None,
        )
        config = ev.Configured(at=0.0, model=setup.models[0], tools=self._toolbox.specs, setup=recorded, hosted=self._hosted)
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
            reach=self._media_from,
            pad=None if self._pad is None else Pad(self._pad),
            branch=branch,
            begin=begin,
            source=source,
        )

    def _bearings(self) -> Bearings | None:
        if self._state == "replay":
            return None
        from evener.model.server_state import bearings_of

        return bearings_of(self._state)

    def _check_hosted(self) -> None:
        """Refuse a provider-run tool that a model of the chain does not have."""
        if not self._hosted:
            return
        from evener.encodings.hosted_tools import check_hosted, read_options
        from evener.model import Model

        for tool in self._hosted:
            read_options(tool)
            for model in self._models:
                if isinstance(model, Model):
                    check_hosted(tool, model.origin.wire, model.endpoint.facts.quirks, model=model.name)

    def _keeper(self, store: Store, settings: ModelSettings | None, offered: ToolOffer | None) -> ContextKeeper | None:
        """Return the object that keeps a thread's requests within the models' windows; None if requests are never shortened."""
        if self._context is None:
            return None
        from evener.driver.context_window import ContextKeeper

        return ContextKeeper(
            self._context, specs=self._toolbox.specs, output=self._output, put_blob=store.put_blob,
            summarizer=self._summarizer, settings=settings, offered=offered,
        )  # fmt: skip

    def _add_scratchpad(self, given: bool | Scratchpad) -> None:
        """Add the tool for working notes. The notes begin as `given`."""
        from evener.context.scratchpad import Scratchpad
        from evener.harness.scratchpad import LogNotebook
        from evener.tools.scratchpad import scratchpad_tool

        self._pad = given if isinstance(given, Scratchpad) else Scratchpad()
        self._toolbox = self._toolbox.add(scratchpad_tool(LogNotebook()))

    def _caller(self, store: Store) -> Caller:
        from evener.tools.call import Caller

        return Caller(self._toolbox, threads=self.tool_threads if self._toolbox else None, deps=self._deps, shelf=store)

    async def call(
        self, call: ToolCall, *, approve: bool = False, report: Callable[[Progress], None] | None = None
    ) -> Envelope:
        """Run one tool for another program, outside of any run. Nothing is logged.

        The policy applies, also to runs inside the tool. A call that needs approval is refused, unless `approve` says that the
        user has agreed; if an inner run waits for approval, the call ends. `report` gets the progress, from any thread.
        """
        from evener.call_context import current_policy
        from evener.tools.call import run_call
        from evener.tools.context import ToolContext
        from evener.tools.result import report_failure

        tool = self._toolbox.get(call.name)
        if tool is None:
            return self._toolbox.unknown(call.name)
        judged = self._court(self._name).judge(call)
        if judged.verdict == "deny":
            return report_failure(f"The call is denied: {judged.why or judged.rule}")
        if judged.verdict == "ask" and not approve:
            return report_failure(f"The call needs the user's approval ({judged.why or judged.rule}), and none was given.")
        context = ToolContext[object](call_id=call.id, deps=self._deps, key=call.id)
        if report is not None:
            context = msgspec.structs.replace(context, report=report)
        token = current_policy.set(self._policy)
        try:
            done = await run_call(tool, call, context=context, threads=self.tool_threads)
        finally:
            current_policy.reset(token)
        if done.waits is None:
            return done
        return report_failure(
            f"A run inside the call waits for the user's approval, in thread {done.waits.thread}, and none was given."
        )

    # Agents of this one.

    def _check_rules(self) -> None:
        """Check the rules of the policy against all known tools, also those of the agents."""
        heirs = (self._heir(agent) for agent in self._agents.values() if agent.inherits)
        for one in (self, *heirs):
            if one._policy is not None:
                from evener.policy.rules import check_arguments

                check_arguments(one._policy, one._list_tools())

    def _list_tools(self) -> list[tuple[str, Effect, str]]:
        """Return name, effect and schema of the tools of this harness and of all agents below it: the rules apply to all of
        these.
        """
        own = [(tool.name, tool.effect, tool.schema) for tool in self._toolbox.values()]
        return own + [one for agent in self._agents.values() for one in agent.harness._list_tools()]

    def _agent_tool(self, agent: Subagent) -> Tool:
        from evener.call_context import current_site
        from evener.harness.subagents import subagent_tool

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

    def _tell_hooks(self, event: HookEvent, agent: str, result: RunResult | None) -> tuple[HookAnswer, ...]:
        """Call the hooks through the run around the call, so that it gets their warnings, and a fatal hook ends it."""
        from evener.call_context import current_site
        from evener.hooks import Moment

        site = current_site.get()
        stop, detail = (result.stop, result.detail) if result else (None, "")
        if site is not None and site.hooked is not None:
            return site.hooked(event, subagent=agent, stop=stop, detail=detail)
        about = Moment(event=event, run="", thread="", agent=self._name, subagent=agent, stop=stop, detail=detail)
        return () if self._hooks is None else self._hooks.call(about, _unheard)

    def _heir(self, agent: Subagent) -> Harness:
        """Return the agent's harness with the tools that it inherits. The outer run applies this harness's policy to it."""
        names = [name for name in agent.inherits if name not in agent.harness._toolbox]
        if not names and agent.settings is None:
            return agent.harness
        made = copy(agent.harness)
        made._settings = made._settings if agent.settings is None else agent.settings.over(made._settings)
        made._toolbox = made._toolbox.add(*(self._toolbox[name] for name in names))
        made._deps = self._deps if made._deps is None else made._deps
        return made

    def _court(self, name: str) -> Bench:
        """Return the tools and the judge for calls of this harness, or of the agent inside it that a log names as its owner."""
        from evener.harness.approvals import Bench, allow_all, judge_of

        found: Harness = self
        if name != self._name:
            found = self._inside(name) or self._name_agents(name.rpartition("/")[2]) or self._around(name.rpartition("/")[0])
        caller = found._caller(found._store)
        return Bench(found._toolbox, judge_of(found._toolbox, caller, found._policy) or allow_all)

    def _around(self, name: str) -> Harness:
        """Return the harness of this name, with the additional tools of runs inside its tools' calls."""
        made = copy(self._inside(name) or self)
        inner = {one.name: one for tool in made._toolbox.values() for one in tool.inner if one.name not in made._toolbox}
        made._toolbox = made._toolbox.add(*inner.values()) if inner else made._toolbox
        return made

    def _bound(self, agent: Subagent) -> Harness:
        """Return the agent's harness under both policies: its own and this one's."""
        made = copy(self._heir(agent))
        if self._policy is not None:
            from evener.policy.rules import OPEN

            made._policy = (made._policy or OPEN).under(self._policy)
        return made

    def _inside(self, path: str) -> Harness | None:
        """Return the agent with this path, as in `shop/buyer/payer`; None if there is none, because names may have changed."""
        found: Harness | None = self
        for name in path.removeprefix(self._name).split("/")[1:]:
            agent = found._agents.get(name) if found else None
            found = found._bound(agent) if found and agent else None
        return None if found is self else found

    def _name_agents(self, name: str) -> Harness | None:
        """Return the first agent of this name at any depth. Needed for old logs, which have no paths."""
        for agent in self._agents.values():
            if agent.name == name:
                return self._bound(agent)
            deeper = self._bound(agent)._name_agents(name)
            if deeper is not None:
                return deeper
        return None

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


class Subagent(msgspec.Struct, frozen=True, kw_only=True):
    """Another harness that this one may give tasks to. Each task is a new conversation, with a log of its own in the same
    store.

    `inherits` names tools of the outer harness that the agent also has, as they are when it is called; agents cannot be
    inherited, because that could form a cycle. `settings` override those of its harness.
    """

    name: str
    harness: Harness
    description: str
    inherits: tuple[str, ...] = ()
    settings: ModelSettings | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError("A Subagent needs a name: a text by which the model calls it.")
        if not isinstance(self.harness, Harness):
            raise _wrong("harness", f"the Harness that runs the agent {self.name!r}", self.harness)
        _each(self.inherits, "inherits", "a tuple with the names of tools", lambda one: isinstance(one, str))


def _share_rates(store: Store) -> None:
    """Count the rates of keys in the store, if several machines share it, until the store is closed."""
    if hasattr(store, "cluster"):
        from evener.transport.limiter import share_rates

        share_rates(store)  # type: ignore[arg-type] # it has these tables


def _by_name(agents: Iterable[Subagent]) -> dict[str, Subagent]:
    """Return the agents by name. Raises an error if two have the same name."""
    found: dict[str, Subagent] = {}
    for agent in agents:
        if agent.name in found:
            raise UsageError(f"Two agents are named {agent.name!r}. Give each a name of its own: the model calls them by it.")
        found[agent.name] = agent
    return found


def _unheard(text: str) -> None:
    """Warn about an error of an agent's hook outside of a run: no result could report it."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _facts(tool: Tool) -> ToolFacts:
    verifies = tool.verify is not None
    return ToolFacts(tool.effect, tool.sequential, tool.retries, verifies, tool.approval, tool.timeout, tool.hidden)
