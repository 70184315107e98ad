"""What an answer looks like, whole or in chunks, in every dialect: typed, and never stricter than it must be. Pure."""

from typing import Literal

import msgspec

from evener.wire.lenient import Carrying
from evener.wire.openai_chat.counts import Counts
from evener.wire.reading import Items

__all__ = [
    "CARRYING",
    "NOTHING_SAID",
    "Call",
    "Choice",
    "Chunk",
    "Function",
    "Message",
    "form_of",
    "is_there",
    "read_chunk",
    "read_custom",
    "read_opening",
    "read_words",
]

NULL = msgspec.Raw(b"null")
Object = dict[str, msgspec.Raw] | None
Some = dict[str, msgspec.Raw] | list[msgspec.Raw] | str | bool | None
"""Something that is there or not: null costs nothing, and no form of it is an error."""


class Function(msgspec.Struct, gc=False):
    """The function of a call. Arguments are a text; some send the object itself."""

    name: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None


class Custom(msgspec.Struct, gc=False):
    """A tool of free text."""

    name: str | None = None
    input: str | None = None


class Call(msgspec.Struct, gc=False):
    """A call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: msgspec.Raw = NULL  # looked into where there is no function


class Message(msgspec.Struct, gc=False):
    """A message, or a delta of one."""

    content: str | Items | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    refusal: str | None = None
    reasoning_details: Items | None = None
    annotations: Items | None = None
    audio: Object = None
    function_call: Function | None = None
    executed_tools: Items | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers; nobody here asks for more than one."""

    index: int | None = None
    delta: Message | None = None
    logprobs: Some = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    message: Message | None = None
    usage: Object = None
    error: Some = None


class Chunk(msgspec.Struct, gc=False):
    """A whole answer or a chunk of one, as far as each chunk is looked at."""

    choices: list[Choice] | None = None
    usage: Counts | None = None
    error: Some = None
    moderation: Some = None
    prompt_filter_results: Some = None


class Opening(Chunk, gc=False):
    """A chunk, and what it shares with all the others."""

    id: str | None = None
    model: str | None = None
    object: str | None = None


class _Words(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str | None = None
    role: str | None = None
    refusal: None = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None


class _Speaking(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    delta: _Words
    index: Literal[0] | None = None
    logprobs: None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None


class Words(msgspec.Struct, gc=False):
    """A chunk that is more words, or their end, and nothing else: with any other field its choice is of another form."""

    choices: tuple[_Speaking]
    usage: None = None
    error: None = None
    moderation: None = None
    prompt_filter_results: None = None


CARRYING: Carrying = {
    Function: ("name", "arguments"),
    Call: ("index", "id", "function"),
    Message: ("content", "tool_calls", "function_call"),
    Choice: ("index", "delta", "message", "finish_reason"),
    Opening: ("choices",),
}
"""The fields that must be of their form."""


def form_of(frame: bytes) -> type[Opening]:  # noqa: ARG001 - other wires look at the event
    """The form of every chunk."""
    return Opening


NOTHING_SAID = Message()
read_custom = msgspec.json.Decoder(Custom).decode
read_chunk = msgspec.json.Decoder(Chunk).decode
read_opening = msgspec.json.Decoder(Opening).decode
read_words = msgspec.json.Decoder(Words).decode


def is_there(raw: msgspec.Raw) -> bool:
    """Whether an optional field says anything."""
    return bytes(raw) not in (b"null", b"[]", b"{}", b'""')
