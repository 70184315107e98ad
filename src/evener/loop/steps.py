"""What the plan wants done. The driver performs steps and reports each as events; a step is never state. Pure values."""

import msgspec

from evener.events import Interrupt, Question, StopCause
from evener.transcript.blocks import ToolCall

__all__ = [
    "AskApproval",
    "CallModel",
    "ContinueTurn",
    "Extend",
    "FetchMedia",
    "Finish",
    "RefuseCall",
    "RunTool",
    "SettleCall",
    "Step",
]


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model that stands at this place of the chain. `wait`: seconds to let pass first. `notices`: key and text."""

    model: int = 0
    wait: float = 0.0
    notices: tuple[tuple[str, str], ...] = ()


class ContinueTurn(msgspec.Struct, frozen=True):
    """The provider paused its turn: send it back as it is, so that it goes on."""

    model: int = 0


class FetchMedia(msgspec.Struct, frozen=True):
    """Media behind a URL must be at hand before the model can be asked."""

    url: str


class RunTool(msgspec.Struct, frozen=True):
    """Start a call. `again`: an earlier start was interrupted, and the tool may be repeated with the same key.

    `verifying`: do not run it, ask its `verify` whether the interrupted start took effect. `final`: it is not run whatever
    that says, for the interrupted start may still take effect. `arguments`: the JSON text of those that a person put in place
    of the model's. `rule`: of the policy, if one allowed it.
    """

    call: ToolCall
    again: bool = False
    verifying: bool = False
    arguments: str = ""
    rule: str = ""
    final: bool = False

    @property
    def runs(self) -> ToolCall:
        """The call as it runs: the model's own, but for arguments that somebody put in place of its."""
        return msgspec.structs.replace(self.call, raw=self.arguments) if self.arguments else self.call


class SettleCall(msgspec.Struct, frozen=True):
    """Give an interrupted call its honest result: nobody knows whether it took effect, and it is not run again.

    `result`: what it gave, if somebody knows that it happened. `why`: what somebody has to say about it otherwise.
    """

    call: ToolCall
    result: str | None = None
    why: str = ""


class AskApproval(msgspec.Struct, frozen=True):
    """Somebody must decide before anything of this goes on."""

    interrupt: Interrupt
    questions: tuple[Question, ...]


class RefuseCall(msgspec.Struct, frozen=True):
    """Give a call its result without running it: the policy denies it, or somebody rejected it."""

    call: ToolCall
    text: str
    rule: str = ""


class Extend(msgspec.Struct, frozen=True):
    """Somebody allowed to go on beyond a limit: a fresh allowance."""


class Finish(msgspec.Struct, frozen=True):
    """The run is over."""

    cause: StopCause
    detail: str = ""


Step = CallModel | ContinueTurn | FetchMedia | RunTool | SettleCall | RefuseCall | AskApproval | Extend | Finish
