"""What the events of a stream look like: typed, one form for each that is known. Pure."""

from typing import final

import msgspec

from evener.wire.lenient import Carrying, Count

__all__ = [
    "BEGUN",
    "CARRYING",
    "EVENTS",
    "NOTHING",
    "NO_INPUT",
    "NULL",
    "PIECE",
    "PIECES",
    "Begun",
    "Call",
    "Cited",
    "Counted",
    "Counts",
    "Ended",
    "Event",
    "Finished",
    "Json",
    "Other",
    "Piece",
    "Ping",
    "Signature",
    "Started",
    "Stopped",
    "Text",
    "Thinking",
    "Thought",
    "Words",
    "form_of",
    "read_begun",
    "read_block",
    "read_call",
    "read_event",
    "read_other",
    "read_text",
]

NOTHING = msgspec.Raw(b"")
NULL = msgspec.Raw(b"null")
NO_INPUT = msgspec.Raw(b"{}")


class Details(msgspec.Struct, gc=False):
    """Counts of a part of the output."""

    thinking_tokens: Count = None


class Counts(msgspec.Struct, gc=False):
    """Token counts. A field that is not stated says nothing new."""

    input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens: Count = None
    output_tokens_details: Details | None = None


Counted = Counts | None | msgspec.UnsetType
"""Token counts that may be there, and may be null: then they say nothing new."""


@final
class Text(msgspec.Struct, tag="text_delta", gc=False):
    """More text."""

    text: str = ""


@final
class Thinking(msgspec.Struct, tag="thinking_delta", gc=False):
    """More reasoning."""

    thinking: str = ""


@final
class Json(msgspec.Struct, tag="input_json_delta", gc=False):
    """More of a call's arguments."""

    partial_json: str = ""


@final
class Signature(msgspec.Struct, tag="signature_delta", gc=False):
    """What thinking is signed with, whole."""

    signature: str = ""


@final
class Cited(msgspec.Struct, tag="citations_delta", gc=False):
    """A citation of the text."""

    citation: msgspec.Raw = NOTHING


@final
class Piece(msgspec.Struct, tag="content_block_delta", gc=False):
    """More of a block. By far the most events are this one."""

    delta: Text | Json | Thinking | Signature | Cited
    index: int = 0


@final
class Words(msgspec.Struct, tag="text", forbid_unknown_fields=True, gc=False):
    """A text as it begins, if it has nothing of its own beside it; so with the two below."""

    text: str = ""
    citations: msgspec.Raw = NULL


@final
class Call(msgspec.Struct, tag="tool_use", forbid_unknown_fields=True, gc=False):
    """A call of one of our tools."""

    id: str = ""
    name: str = ""
    input: msgspec.Raw = NO_INPUT


@final
class Thought(msgspec.Struct, tag="thinking", forbid_unknown_fields=True, gc=False):
    """Reasoning. Its signature comes last; what stands for it until then is only kept."""

    thinking: str = ""
    signature: msgspec.Raw = NULL


@final
class Begun(msgspec.Struct, tag="content_block_start", gc=False):
    """A block begins that is nothing else than one of these."""

    content_block: Words | Call | Thought
    index: int = 0


@final
class Ended(msgspec.Struct, tag="content_block_stop", gc=False):
    """A block is complete."""

    index: int = 0


class Opening(msgspec.Struct, gc=False):
    """The message as far as it is known at its start."""

    model: str = ""
    id: str = ""
    type: str = ""
    content: list[msgspec.Raw] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Counted = msgspec.UNSET


@final
class Started(msgspec.Struct, tag="message_start", gc=False):
    """The message begins."""

    message: Opening


class Finish(msgspec.Struct, gc=False):
    """Why the message ends."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = NOTHING


@final
class Finished(msgspec.Struct, tag="message_delta", gc=False):
    """The message is complete, but for its end mark."""

    delta: Finish | None = None
    usage: Counted = msgspec.UNSET


@final
class Stopped(msgspec.Struct, tag="message_stop", gc=False):
    """The end mark."""


@final
class Ping(msgspec.Struct, tag="ping", gc=False):
    """A sign of life."""


Event = Piece | Begun | Ended | Started | Finished | Stopped | Ping
PIECE = "content_block_delta"
PIECES = ("text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta")
BEGUN = "content_block_start"
EVENTS = ("content_block_stop", "message_start", "message_delta", "message_stop", "ping")
"""The names of these: who bears one of them, or is a piece of such a kind, has no other form."""


class AnyBlock(msgspec.Struct):
    """Any block as it begins, as far as all of them are told apart."""

    type: str = ""


class TextBlock(msgspec.Struct):
    """A text as it begins, whatever stands beside it."""

    text: str = ""


class ToolUse(msgspec.Struct):
    """A call as it begins, whatever stands beside it."""

    id: str = ""
    name: str = ""


class AnyBegun(msgspec.Struct):
    """Any block begins."""

    content_block: msgspec.Raw
    index: int = 0


class AnyPiece(msgspec.Struct):
    """A piece of any kind."""

    type: str = ""


class Other(msgspec.Struct):
    """An event of a form that is not among those above."""

    type: str = ""
    index: int = 0
    delta: AnyPiece | None = None
    error: msgspec.Raw = NOTHING


FORMS: dict[str, type[msgspec.Struct]] = {
    "content_block_delta": Piece,
    "content_block_start": AnyBegun,
    "content_block_stop": Ended,
    "message_start": Started,
    "message_delta": Finished,
    "message_stop": Stopped,
    "ping": Ping,
}
"""By the type of an event, the form that it is mended by; any other is an `Other`."""

CARRYING: Carrying = {
    Text: ("text",),
    Json: ("partial_json",),
    Piece: ("delta", "index"),
    AnyBegun: ("content_block", "index"),
    Ended: ("index",),
    Opening: ("type", "content", "stop_reason"),
    Started: ("message",),
    Finish: ("stop_reason",),
    Finished: ("delta",),
    AnyPiece: ("type",),
    Other: ("type", "index", "delta"),
}
"""The fields that must be of their form."""


def form_of(frame: bytes) -> type[msgspec.Struct]:
    """The form of an event, by its type."""
    return FORMS.get(read_type(frame).type, Other)


read_type = msgspec.json.Decoder(AnyPiece).decode
read_text = msgspec.json.Decoder(TextBlock).decode
read_call = msgspec.json.Decoder(ToolUse).decode
read_other = msgspec.json.Decoder(Other).decode
read_begun = msgspec.json.Decoder(AnyBegun).decode
read_block = msgspec.json.Decoder(AnyBlock).decode
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
read_event = _events.decode
