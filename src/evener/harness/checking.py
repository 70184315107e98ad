"""What a caller may give to a harness: wrong kinds are refused at once, with what was expected, before anything happens."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import Literal, Protocol, get_args

from evener.context.scratchpad import Scratchpad
from evener.encodings.forms import FINAL_RESULT
from evener.errors import UsageError
from evener.events import Interrupt
from evener.hooks import Hook
from evener.loop.limits import Limits
from evener.model.seam import Askable
from evener.policy.rules import Policy
from evener.resume_state import ResumeState
from evener.tools.tool import Tool
from evener.transcript.ask import HostedTool
from evener.transcript.message import Message

__all__ = ["OUTCOMES", "UnknownOutcome", "check_harness", "check_names", "check_thread", "models_of", "told_first"]

UnknownOutcome = Literal["tell", "ask"]
OUTCOMES: Mapping[UnknownOutcome, tuple[Interrupt, ...]] = {"tell": (), "ask": ("outcome",)}

STORE = ("create", "open", "read", "link", "head", "move_head", "post", "logs", "put_blob", "get_blob", "aclose")


def models_of(model: object) -> tuple[str | Askable, ...]:
    """The chain of models that was given, the preferred one first."""
    given = tuple(model) if isinstance(model, Sequence) and not isinstance(model, str) else (model,)
    if not given:
        raise UsageError('A harness needs a model. Name one, for example Harness("local:smollm2"), which needs no key.')
    for one in given:
        if not isinstance(one, str) and not _has(one, ("ask", "stream", "most_cost", "capped")):
            raise _wrong("model", 'a model string such as "local:smollm2", a model, or a list of these', one)
    return given


def check_harness(
    *,
    tools: object,
    name: object,
    store: object,
    limits: object,
    policy: object,
    interrupts: object,
    decide_within: object,
    hooks: object,
    agents: object,
    scratchpad: object,
    unknown_outcome: object,
    media_from: object = "public",
) -> None:
    """Refuse the first of these that is not what it has to be."""
    _each(tools, "tools", "a list of tools or functions", _is_tool)
    _each(hooks, "hooks", "a list of Hook", lambda one: isinstance(one, Hook))
    _each(agents, "agents", "a list of Subagent", lambda one: _has(one, ("name", "harness", "description")))
    words = get_args(Interrupt)
    shown = f"a set of words out of {', '.join(map(repr, words))}"
    _each(interrupts, "interrupts", shown, lambda one: isinstance(one, str) and one in words)
    for what, value, kinds, expected in (
        ("name", name, (str,), "a text"),
        ("limits", limits, (Limits, type(None)), "Limits(...), or None"),
        ("policy", policy, (Policy, type(None)), "a Policy, or None"),
        ("decide_within", decide_within, (int, float), "a number of seconds, 0 for ever"),
        ("scratchpad", scratchpad, (bool, Scratchpad), "True, False or a Scratchpad"),
    ):
        if not isinstance(value, kinds):
            raise _wrong(what, expected, value)
    if not isinstance(decide_within, int | float) or not decide_within >= 0:
        raise UsageError(f"`decide_within` is a number of seconds, 0 for ever; not {decide_within!r}.")
    if not isinstance(unknown_outcome, str) or unknown_outcome not in OUTCOMES:
        raise UsageError(f'`unknown_outcome` is "tell" or "ask"; not {unknown_outcome!r}.')
    if media_from not in ("public", "anywhere"):
        raise UsageError(f'`media_from` is "public" or "anywhere"; not {media_from!r}.')
    if store is not None and not isinstance(store, str | PathLike) and not _has(store, STORE):
        raise _wrong("store", 'a path, "memory", a MemoryStore, a SqliteStore, or an object with the methods of Store', store)


class Heir(Protocol):
    """An agent, as far as it names tools."""

    @property
    def inherits(self) -> tuple[str, ...]: ...


def check_names(tools: Collection[str], agents: Mapping[str, Heir]) -> None:
    """Refuse a tool whose name is taken, and agents that inherit what cannot be inherited."""
    if FINAL_RESULT in tools:
        raise UsageError(f"A tool is called {FINAL_RESULT!r}: calls of that name are structured answers. Rename the tool.")
    for agent, heir in agents.items():
        wrong = next((name for name in heir.inherits if name not in tools or name in agents), None)
        if wrong is not None:
            raise UsageError(f"The agent {agent!r} cannot inherit {wrong!r}: only tools of its harness, and no agents.")


def check_thread(id: object, *, branch: object, limits: object) -> None:
    """Refuse what cannot name or bound a thread."""
    for what, value in (("id", id), ("branch", branch)):
        if not isinstance(value, str):
            raise _wrong(what, "the id that a result names (a text), empty for a new thread", value)
    if limits is not None and not isinstance(limits, Limits):
        raise _wrong("limits", "Limits(...), or None", limits)


def told_first(id: str, history: Iterable[Message], resume_from: ResumeState | str | None) -> tuple[Message, ...]:
    """What a new thread begins with."""
    _each(history, "history", "a list of Message", lambda one: isinstance(one, Message))
    told = tuple(history)
    if resume_from is not None:
        if told:
            raise UsageError("A thread begins with a history or with a resume state, not with both. Give one of them.")
        if not isinstance(resume_from, ResumeState | str | bytes):
            raise _wrong("resume_from", "the `resume_state` of a result, or its text", resume_from)
        told = (resume_from if isinstance(resume_from, ResumeState) else ResumeState(resume_from)).messages
    if id and told:
        raise UsageError(f"Thread {id} has a history of its own. Give messages from elsewhere to a new thread only.")
    return told


def _each(given: object, what: str, expected: str, fits: Callable[[object], bool]) -> None:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _wrong(what, f"{expected}; leave it out for none", given)
    if isinstance(given, Sequence | set | frozenset | Mapping):  # anything else is gone once it was looked at
        for one in given:
            if not fits(one):
                raise _wrong(what, expected, one)


def _is_tool(one: object) -> bool:
    if isinstance(one, HostedTool):
        raise UsageError(
            "A harness offers no tools that a provider runs: no policy, approval or log of ours would hold for their calls. "
            "Give it tools that run here, or ask a model by itself with `Model.ask(..., tools)`."
        )
    return isinstance(one, Tool) or callable(one)


def _has(value: object, names: Iterable[str]) -> bool:
    return not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _wrong(what: str, expected: str, value: object) -> UsageError:
    shown = f"the text {value!r}" if isinstance(value, str) else type(value).__name__
    return UsageError(f"`{what}` takes {expected}; not {shown}.")
