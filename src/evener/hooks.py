"""Functions of the user that are called at events of a run, and may intervene at some. Called in order, synchronously.

    run_start            when a run begins
    user_prompt_submit   may cancel, may add context; also called for messages that steer a busy run
    before_tool_call     may cancel
    after_tool_call      may rewrite the result for the model
    before_subagent_run  may cancel
    after_subagent_run   when the agent has answered
    limit_reached        when a limit ended the run; hooks cannot change limits
    run_end              at most once per run: when it ends or is aborted, not while it waits for a decision

A run that stopped has ended, even if it is resumed later: its result then says how it continued. If a hook raises, the result
reports it, and the run continues; if the hook is `fatal`, the run ends with its error.
"""

from collections.abc import Callable, Coroutine, Iterable
from inspect import iscoroutinefunction
from typing import Literal, get_args

import msgspec

from evener.errors import BadValue, EvenerError, UsageError
from evener.events import CallFinished, StopCause
from evener.transcript.blocks import ResultContent, TextBlock, ToolCall
from evener.transcript.message import Message

__all__ = [
    "AddContext",
    "Cancel",
    "Hook",
    "HookAnswer",
    "HookEvent",
    "HookFailed",
    "Hooks",
    "Moment",
    "Rewrite",
    "rewrite_result",
]

HookEvent = Literal[
    "run_start", "user_prompt_submit", "before_tool_call", "after_tool_call", "before_subagent_run", "after_subagent_run",
    "limit_reached", "run_end",
]  # fmt: skip
EVENTS: tuple[str, ...] = get_args(HookEvent)
MOST_KNOWN = 10_000
ABOUT_TOOLS = ("before_tool_call", "after_tool_call")
ABOUT_AGENTS = ("before_subagent_run", "after_subagent_run")


class HookFailed(EvenerError):
    """A fatal hook has failed."""


class Cancel(msgspec.Struct, frozen=True):
    """Cancel it. Before a tool or a subagent the model gets the reason; at a prompt the run ends."""

    why: str = ""


class AddContext(msgspec.Struct, frozen=True):
    """Send this text to the model, too."""

    text: str


class Rewrite(msgspec.Struct, frozen=True):
    """The model gets this content instead of the result: a text, or blocks."""

    content: str | tuple[ResultContent, ...]


HookAnswer = Cancel | AddContext | Rewrite | None
RIGHTS: dict[str, tuple[type, ...]] = {
    "user_prompt_submit": (Cancel, AddContext),
    "before_tool_call": (Cancel,),
    "after_tool_call": (Rewrite,),
    "before_subagent_run": (Cancel,),
}


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a hook. Fields that do not apply to the event are empty."""

    event: HookEvent
    run: str
    thread: str
    agent: str = ""
    prompt: Message | None = None
    call: ToolCall | None = None
    result: CallFinished | None = None
    subagent: str = ""
    stop: StopCause | None = None
    detail: str = ""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A function for one event. `tools` and `agents` limit it to these names, if the event concerns one."""

    event: HookEvent
    handler: Callable[[Moment], HookAnswer]
    tools: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    fatal: bool = False

    def __post_init__(self) -> None:
        if self.event not in EVENTS:
            raise BadValue(f"There is no hook event {self.event!r}. Known are {', '.join(EVENTS)}.")
        if iscoroutinefunction(self.handler):
            raise BadValue(f"The hook for {self.event!r} is async. Hooks are called synchronously: make it a plain function.")
        if self.tools is not None and self.event not in ABOUT_TOOLS:
            raise BadValue(f"A hook for {self.event!r} is not about a tool; leave `tools` out.")
        if self.agents is not None and self.event not in ABOUT_AGENTS:
            raise BadValue(f"A hook for {self.event!r} is not about a subagent; leave `agents` out.")

    def wants(self, moment: Moment) -> bool:
        """True if the hook is called for this event."""
        if self.event != moment.event:
            return False
        if self.tools is not None and (moment.call is None or moment.call.name not in self.tools):
            return False
        return self.agents is None or moment.subagent in self.agents


class Hooks:
    """The hooks of a harness, in order."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._hooks = tuple(hooks)
        self._ended: dict[str, None] = {}

    def ends(self, run: str) -> bool:
        """True if `run_end` was not reported for this run before; marks it as reported."""
        if run in self._ended:
            return False
        self._ended[run] = None
        if len(self._ended) > MOST_KNOWN:
            del self._ended[next(iter(self._ended))]
        return True

    def call(self, moment: Moment, report: Callable[[str], None]) -> tuple[HookAnswer, ...]:
        """Call the hooks for this event and return their answers.

        A cancelling answer stops further calls; errors are reported.
        """
        found: list[HookAnswer] = []
        for hook in self._hooks:
            if not hook.wants(moment):
                continue
            answer = self._ask(hook, moment, report)
            if answer is not None:
                found.append(answer)
            if isinstance(answer, Cancel):
                break
        return tuple(found)

    def _ask(self, hook: Hook, moment: Moment, report: Callable[[str], None]) -> HookAnswer:
        try:
            answer = hook.handler(moment)
            if answer is None or isinstance(answer, RIGHTS.get(hook.event, ())):
                return answer
            if isinstance(answer, Coroutine):
                answer.close()
                raise UsageError("it is async; hooks are called synchronously, so make it a plain function")
            raise UsageError(f"it answered with {type(answer).__name__}, which a hook for {hook.event!r} may not return")
        except Exception as error:
            text = f"A hook for {hook.event!r} failed with {type(error).__name__}: {error}"
            if hook.fatal:
                after = "The run had ended already" if hook.event == "run_end" else "The run ends, as the hook is fatal"
                raise HookFailed(f"{text}. {after}; fix the hook to continue the thread.") from error
            report(text)
            return None


def rewrite_result(result: CallFinished, answers: Iterable[HookAnswer]) -> CallFinished:
    """Return the result as the model gets it, with the rewritten content.

    A hook cannot change whether the call may be retried.
    """
    for answer in answers:
        if isinstance(answer, Rewrite):
            content = (TextBlock(answer.content),) if isinstance(answer.content, str) else answer.content
            result = msgspec.structs.replace(result, content=content)
    return result
