"""What the events and the items of an answer look like: typed, the plain forms first, then any form. Pure."""

from typing import Annotated, Literal, final

import msgspec

from evener.wire.openai_responses.usage import Counts
from evener.wire.reading import Items

__all__ = [
    "NOTHING",
    "NULL",
    "AnyEvent",
    "Event",
    "PlainCall",
    "PlainMessage",
    "Response",
    "read_any_event",
    "read_call",
    "read_event",
    "read_message",
    "read_name",
    "read_part",
    "read_reasoning",
    "read_response",
    "responses",
]

NOTHING = msgspec.Raw(b"")
NULL = msgspec.Raw(b"null")
Nothing = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=0)]


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

    annotations: Nothing = []
    logprobs: Nothing = []
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


class Event(msgspec.Struct, gc=False):
    """An event as nearly all are: its item has a plain form."""

    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""
    item: PlainMessage | PlainCall | Reasoning | None = None
    response: Response | None = None
    error: msgspec.Raw = NOTHING


class AnyEvent(msgspec.Struct, gc=False):
    """An event that may hold anything, as far as it is not looked into."""

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
    role: str | None = None
    error: msgspec.Raw = NOTHING


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


responses = msgspec.json.Decoder(Response)
read_response = responses.decode
read_event = msgspec.json.Decoder(Event).decode
read_any_event = msgspec.json.Decoder(AnyEvent).decode
read_name = msgspec.json.Decoder(Named).decode
read_reasoning = msgspec.json.Decoder(Reasoned).decode
read_call = msgspec.json.Decoder(Call).decode
read_message = msgspec.json.Decoder(Message).decode
read_part = msgspec.json.Decoder(Part).decode
