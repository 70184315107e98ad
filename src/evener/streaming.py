"""What a caller sees of a run while it goes on: typed, in order, with ids that say where it belongs. Pure values.

They show; they are not the log. Prompts, arguments and what the model sees of results are in them, a provider's raw JSON
never is. Pieces that were shown and did not count are taken back by `Retracted`.
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
    """Whose event it is. A run inside another names the run and the call it belongs to."""

    run: str
    thread: str
    agent: str = ""
    parent_run: str = ""
    parent_call: str = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them share. `sequence` counts within a run, from 1."""

    place: Place
    sequence: int


class RunStarted(Shown, frozen=True, tag="run_started"):
    """The run began, or goes on. `prompt` is what the user said to begin it; None where it goes on."""

    model: str
    resumed: bool = False
    prompt: Message | None = None


class RequestStarted(Shown, frozen=True, tag="request_started"):
    """The model is asked."""

    model: str
    number: int


class TextStreamed(Shown, frozen=True, tag="text", gc=False):
    """More of the answer's text."""

    text: str


class ReasoningStreamed(Shown, frozen=True, tag="reasoning", gc=False):
    """More of what the model thinks."""

    text: str


class ArgumentsStreamed(Shown, frozen=True, tag="arguments", gc=False):
    """More of a call's arguments. For showing: the tool runs when the call is complete."""

    call: str
    tool: str
    text: str


class Omitted(Shown, frozen=True, tag="omitted"):
    """Pieces of the answer were left out here, because the reader is far behind. The whole message is in `TurnFinished`."""

    pieces: int
    characters: int


class OutputStreamed(Shown, frozen=True, tag="output"):
    """What is there of a structured answer so far, as plain JSON values. For showing: it is not checked yet."""

    value: object


class TurnFinished(Shown, frozen=True, tag="turn_finished"):
    """The model has answered: the whole message, and what it used."""

    message: Message
    usage: Usage


class ToolStarted(Shown, frozen=True, tag="tool_started"):
    """A tool runs."""

    call: ToolCall


class ToolProgressed(Shown, frozen=True, tag="tool_progressed"):
    """A tool says how far it is. `fraction` is between 0 and 1, -1 when it is not known."""

    call: str
    text: str = ""
    fraction: float = -1.0


class ToolFinished(Shown, frozen=True, tag="tool_finished"):
    """A call has its result."""

    call: ToolCall
    result: CallFinished


class RetryScheduled(Shown, frozen=True, tag="retry_scheduled"):
    """An answer failed; the model is asked again, or another one is."""

    error: str
    wait: float
    model: str


class Retracted(Shown, frozen=True, tag="retracted"):
    """Everything streamed since the last request was started does not count: take it off the screen.

    `wished`: the user stopped it, and knows.
    """

    why: str
    wished: bool = False


class ApprovalRequested(Shown, frozen=True, tag="approval_requested"):
    """A user must decide. The run ends here, and is resumed when it is done."""

    approval: str
    interrupt: Interrupt
    questions: tuple[Question, ...]


class NoticeGiven(Shown, frozen=True, tag="notice_given"):
    """The model is told something: little is left of a limit, or it goes in circles."""

    key: str
    text: str


class Warned(Shown, frozen=True, tag="warned"):
    """Something beside the run went wrong, and the run goes on: a hook that failed."""

    text: str


class RunFailed(Shown, frozen=True, tag="run_failed"):
    """The run could not go on, for a reason outside of it. What was logged stands."""

    error: EvenerError


class RunFinished(Shown, frozen=True, tag="run_finished"):
    """The run came to an end: the last event, with the whole result."""

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
