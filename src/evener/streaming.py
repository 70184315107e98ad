"""The events of a run for its caller: typed, in order, with ids of their run. Pure values.

They are for display; they are not the log. They contain prompts, arguments and the results that the model gets, but never a
provider's raw JSON. `Retracted` takes back pieces that were shown and do not count.
"""

import msgspec

from evener.errors import EvenerError
from evener.events import CallFinished, Interrupt, Question
from evener.result import RunResult
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Usage

__all__ = [
    "ApprovalRequested",
    "ArgumentsStreamed",
    "NoticeGiven",
    "Omitted",
    "OutputStreamed",
    "Place",
    "ReasoningStreamed",
    "RequestStarted",
    "Retracted",
    "RetryScheduled",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "StreamEvent",
    "TextStreamed",
    "ToolFinished",
    "ToolProgressed",
    "ToolStarted",
    "TurnFinished",
    "Warned",
]


class Place(msgspec.Struct, frozen=True):
    """The run of an event. A run inside another one names the outer run and call."""

    run: str
    thread: str
    agent: str = ""
    parent_run: str = ""
    parent_call: str = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that all these events share. `sequence` counts within a run, from 1."""

    place: Place
    sequence: int


class RunStarted(Shown, frozen=True, tag="run_started"):
    """The run began, or continues. `prompt` is the message that began it; None if it continues."""

    model: str
    resumed: bool = False
    prompt: Message | None = None


class RequestStarted(Shown, frozen=True, tag="request_started"):
    """A model request starts."""

    model: str
    number: int


class TextStreamed(Shown, frozen=True, tag="text", gc=False):
    """More of the answer's text."""

    text: str


class ReasoningStreamed(Shown, frozen=True, tag="reasoning", gc=False):
    """More of the model's reasoning."""

    text: str


class ArgumentsStreamed(Shown, frozen=True, tag="arguments", gc=False):
    """More of a call's arguments. For display: the tool runs when the call is complete."""

    call: str
    tool: str
    text: str


class Omitted(Shown, frozen=True, tag="omitted"):
    """Pieces of the answer were left out here, because the reader is far behind. The whole message is in `TurnFinished`."""

    pieces: int
    characters: int


class OutputStreamed(Shown, frozen=True, tag="output"):
    """The structured answer so far, as plain JSON values. For display: it is not validated yet."""

    value: object


class TurnFinished(Shown, frozen=True, tag="turn_finished"):
    """The model has answered: the whole message, and its usage."""

    message: Message
    usage: Usage


class ToolStarted(Shown, frozen=True, tag="tool_started"):
    """A tool starts."""

    call: ToolCall


class ToolProgressed(Shown, frozen=True, tag="tool_progressed"):
    """A tool reports progress. `fraction` is between 0 and 1; -1 if unknown."""

    call: str
    text: str = ""
    fraction: float = -1.0


class ToolFinished(Shown, frozen=True, tag="tool_finished"):
    """A call has its result."""

    call: ToolCall
    result: CallFinished


class RetryScheduled(Shown, frozen=True, tag="retry_scheduled"):
    """An answer failed; the same or another model is called next."""

    error: str
    wait: float
    model: str


class Retracted(Shown, frozen=True, tag="retracted"):
    """Everything streamed since the last request began is void: remove it from the screen.

    `wished`: the user stopped it, so no explanation is needed.
    """

    why: str
    wished: bool = False


class ApprovalRequested(Shown, frozen=True, tag="approval_requested"):
    """A user must decide. The run ends here, and can be resumed after the decision."""

    approval: str
    interrupt: Interrupt
    questions: tuple[Question, ...]


class NoticeGiven(Shown, frozen=True, tag="notice_given"):
    """The model gets a notice: a limit is nearly used up, or the same call is repeated."""

    key: str
    text: str


class Warned(Shown, frozen=True, tag="warned"):
    """A problem that does not stop the run, such as a hook that failed."""

    text: str


class RunFailed(Shown, frozen=True, tag="run_failed"):
    """The run could not continue, for a reason outside of it. Logged events stay."""

    error: EvenerError


class RunFinished(Shown, frozen=True, tag="run_finished"):
    """The run stopped: the last event, with the whole result."""

    result: RunResult


StreamEvent = (
    ApprovalRequested
    | RunStarted
    | RequestStarted
    | TextStreamed
    | ReasoningStreamed
    | ArgumentsStreamed
    | Omitted
    | OutputStreamed
    | TurnFinished
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | RetryScheduled
    | Retracted
    | NoticeGiven
    | Warned
    | RunFailed
    | RunFinished
)
