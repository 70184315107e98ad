"""What the events and the items of an answer look like: typed, the plain forms first, then any form. Pure."""

from functools import reduce
from operator import or_
from typing import Literal, final

import msgspec

from evener.wire.lenient import Carrying
from evener.wire.openai_responses.usage import Counts
from evener.wire.reading import Items

__all__ = [
    "CARRYING",
    "NOTHING",
    "NULL",
    "REPEATED",
    "TERMINAL",
    "AnyEvent",
    "Arguments",
    "Begun",
    "Completed",
    "Created",
    "Ended",
    "Known",
    "Part",
    "PlainCall",
    "PlainMessage",
    "Reasoned",
    "Refusal",
    "Response",
    "Summary",
    "Thought",
    "Words",
    "form_of",
    "read_any_event",
    "read_call",
    "read_event",
    "read_message",
    "read_name",
    "read_response",
]

NOTHING = msgspec.Raw(b"")
NULL = msgspec.Raw(b"null")


class Reason(msgspec.Struct, gc=False):
    """Why an answer is not complete."""

    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """The answer as a whole."""

    id: str | None = None
    object: str = ""
    status: str | None = None
    error: msgspec.Raw = NOTHING
    incomplete_details: Reason | None = None
    model: str | None = None
    output: Items | None = None
    usage: Counts | None = None


class PlainPart(msgspec.Struct, tag="output_text", forbid_unknown_fields=True, gc=False):
    """A part of a message that is words and nothing else."""

    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()
    text: str = ""


@final
class PlainMessage(msgspec.Struct, tag="message", forbid_unknown_fields=True, gc=False):
    """A message of such parts. Any other field makes it another form of item; so with calls."""

    id: str
    status: str
    content: list[PlainPart]
    role: Literal["assistant"] = "assistant"


@final
class PlainCall(msgspec.Struct, tag="function_call", forbid_unknown_fields=True, gc=False):
    """A call of one of our tools."""

    id: str
    status: str
    arguments: str
    call_id: str
    name: str


class Reasoning(msgspec.Struct, tag="reasoning", gc=False):
    """A reasoning item, of any form: all of it is kept as it came."""


class Opened(msgspec.Struct, tag="message", gc=False):
    """A message that begins, of any form: what it holds is told later."""

    role: str | None = None


class Event(msgspec.Struct, gc=False):
    """What every event may have, used or not: who bears a known name and has these in another form is not the event we know."""

    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""


@final
class Words(Event, tag="response.output_text.delta", gc=False):
    """More text. By far the most events are this one."""


@final
class Arguments(Event, tag="response.function_call_arguments.delta", gc=False):
    """More of a call's arguments."""


@final
class Summary(Event, tag="response.reasoning_summary_text.delta", gc=False):
    """More of a summary of the reasoning."""


@final
class Thought(Event, tag="response.reasoning_text.delta", gc=False):
    """More of the reasoning itself."""


@final
class Refusal(Event, tag="response.refusal.delta", gc=False):
    """More of a refusal."""


@final
class Begun(Event, tag="response.output_item.added", gc=False):
    """An item begins. Only calls have something to tell."""

    item: PlainCall | Opened | Reasoning | None = None


@final
class Ended(Event, tag="response.output_item.done", gc=False):
    """An item is complete. It has a plain form, as nearly all have."""

    item: PlainMessage | PlainCall | Reasoning | None = None


@final
class Created(Event, tag="response.created", gc=False):
    """The answer begins."""

    response: Response | None = None


@final
class Completed(Event, tag="response.completed", gc=False):
    """The answer is complete."""

    response: Response | None = None


class Repeated(Event, gc=False):
    """An event whose content stands again elsewhere, if it reports no error: there is nothing to look at."""

    error: None = None


REPEATED: frozenset[type[msgspec.Struct]] = frozenset(
    msgspec.defstruct("Repeated", (), bases=(Repeated,), tag=f"response.{name}", gc=False)
    for name in (
        "in_progress",
        "queued",
        "content_part.added",
        "content_part.done",
        "output_text.done",
        "output_text.annotation.added",
        "refusal.done",
        "function_call_arguments.done",
        "reasoning_summary_part.added",
        "reasoning_summary_part.done",
        "reasoning_summary_text.done",
        "reasoning_text.done",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "file_search_call.in_progress",
        "file_search_call.searching",
        "file_search_call.completed",
        "code_interpreter_call.in_progress",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
    )
)
"""A form for each of those that come often enough to be known by their whole name."""

Known = Words | Arguments | Summary | Thought | Refusal | Begun | Ended | Created | Completed | Repeated


class AnyEvent(msgspec.Struct, gc=False):
    """An event of any name. It may hold anything, as far as it is not looked into."""

    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""
    item: msgspec.Raw = NOTHING
    response: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class Named(msgspec.Struct, gc=False):
    """Anything, as far as it says what it is."""

    type: str = ""
    role: msgspec.Raw = NULL
    error: msgspec.Raw = NOTHING


class Terminal(msgspec.Struct, gc=False):
    """The answer has ended, in any way."""

    response: Response
    type: str = ""


class Text(msgspec.Struct, gc=False):
    """A part of a reasoning item."""

    type: str = ""
    text: str = ""


class Reasoned(msgspec.Struct, gc=False):
    """What can be read of a reasoning item."""

    summary: list[Text] | None = None
    content: list[Text] | None = None


class Call(msgspec.Struct, gc=False):
    """Any call."""

    call_id: str = ""
    name: str = ""
    arguments: str | None = None
    input: str | None = None
    namespace: msgspec.Raw = NOTHING


class Message(msgspec.Struct, gc=False):
    """Any message."""

    content: Items = []


class Part(msgspec.Struct, gc=False):
    """Any part of one."""

    type: str = ""
    text: str = ""
    refusal: str = ""
    annotations: Items | None = None
    logprobs: msgspec.Raw = NOTHING


TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
FORMS: dict[str, type[msgspec.Struct]] = {
    "response.output_text.delta": Words,
    "response.function_call_arguments.delta": Arguments,
    "response.reasoning_summary_text.delta": Summary,
    "response.reasoning_text.delta": Thought,
    "response.refusal.delta": Refusal,
    "response.created": Created,
    **dict.fromkeys(TERMINAL, Terminal),
}
"""By the type of an event, the form that it is mended by; any other is an `AnyEvent`."""

CARRYING: Carrying = {
    Words: ("output_index", "content_index", "delta"),
    Arguments: ("output_index", "delta"),
    Summary: ("output_index",),
    Thought: ("output_index",),
    Refusal: ("output_index",),
    Terminal: ("type", "response"),
    Response: ("status", "output"),
    AnyEvent: ("type", "output_index", "item"),
    Part: ("type", "text"),
    Named: ("type",),
}
"""The fields that must be of their form."""


def form_of(frame: bytes) -> type[msgspec.Struct]:
    """The form of an event, by its type."""
    return FORMS.get(read_name(frame).type, AnyEvent)


_forms = Words | Arguments | Summary | Thought | Refusal | Begun | Ended | Created | Completed
_events: msgspec.json.Decoder[Known] = msgspec.json.Decoder(reduce(or_, REPEATED, _forms))
read_response = msgspec.json.Decoder(Response).decode
read_event = _events.decode
read_any_event = msgspec.json.Decoder(AnyEvent).decode
read_name = msgspec.json.Decoder(Named).decode
read_call = msgspec.json.Decoder(Call).decode
read_message = msgspec.json.Decoder(Message).decode
