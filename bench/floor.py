"""The least that reading a stream can cost: cut it into events and parse each. Knows nothing of answers, handles no oddity."""

from collections.abc import Callable, Sequence

import msgspec
import orjson

__all__ = ["PARSERS", "split_and_parse"]

# The few fields in which each wire carries the pieces of an answer.


class _AnthropicDelta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""


class _AnthropicEvent(msgspec.Struct):
    type: str = ""
    index: int = 0
    delta: _AnthropicDelta | None = None


class _ResponsesEvent(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    content_index: int = 0
    delta: str = ""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _ChatDelta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _ChatDelta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


class _FunctionCall(msgspec.Struct):
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"")


class _Part(msgspec.Struct):
    text: str | None = None
    thought: bool = False
    functionCall: _FunctionCall | None = None  # noqa: N815 - the wire's own spelling


class _Content(msgspec.Struct):
    parts: list[_Part] = []


class _Candidate(msgspec.Struct):
    content: _Content | None = None


class _Answer(msgspec.Struct):
    candidates: list[_Candidate] = []


TYPES: dict[str, type] = {
    "anthropic_messages": _AnthropicEvent,
    "openai_responses": _ResponsesEvent,
    "openai_chat": _Chunk,
    "gemini": _Answer,
}

Parse = Callable[[bytes], object]

PARSERS: dict[str, tuple[Parse, ...]] = {
    wire: (orjson.loads, msgspec.json.Decoder(shape).decode) for wire, shape in TYPES.items()
}
"""The parsers to try for each wire: one for any JSON, one that knows the fields."""


def split_and_parse(chunks: Sequence[bytes], parse: Parse, blank: bytes) -> None:
    """Cut at blank lines, skip to the data, parse. `blank` is the stream's own blank line."""
    rest = b""
    for chunk in chunks:
        *events, rest = (rest + chunk).split(blank)
        for event in events:
            try:
                parse(event[event.find(b"data: ") + 6 :])
            except ValueError:  # a closing word that is no JSON
                continue
