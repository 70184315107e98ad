"""The fake of Chat Completions, as OpenAI or another server implements it. Keeps nothing between requests.

Written from the wire sheet (sections 1, 6 and 9) and the recordings, never from an encoder.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from evener.testing.check import check_request
from evener.testing.check.shape import fields
from evener.testing.servers.answer import HttpAnswer, event, json_bytes, streamed, whole
from evener.testing.servers.openai import OpenAIWire, error_body, refused
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces
from evener.testing.servers.wire import Received, Refused, RequestRoute, ServerSettings, body_route


class ChatStyle(msgspec.Struct, frozen=True, kw_only=True):
    """The deviations of one server.

    `reasoning`: the field that contains it, "chunks" for parts of the content, or "" for none. `usage`: where a stream
    reports it: in a separate chunk if requested, in the finishing chunk (requested or not), in a field of that chunk, inside
    its choice, or in one more chunk with a choice. `comments`: a comment line opens the stream. `error`: how a stream
    breaks. `alphanumeric`: call ids of nine letters or digits. `padding`: chunks are padded with a field of noise.
    """

    reasoning: Literal["", "reasoning_content", "reasoning", "chunks"] = "reasoning_content"
    details: bool = False
    usage: Literal["asked", "finish", "always", "x_groq", "choice", "after"] = "asked"
    comments: bool = False
    error: Literal["data", "event", "chunk"] = "data"
    alphanumeric: bool = False
    padding: bool = False


_PLAIN = ChatStyle()
_NAMED = ChatStyle(reasoning="reasoning")
_STYLES: Mapping[str, ChatStyle] = {
    "openai": ChatStyle(reasoning="", padding=True),
    "azure": ChatStyle(reasoning="", padding=True),
    "xai": ChatStyle(reasoning=""),
    "deepseek": ChatStyle(usage="finish"),
    "kimi": ChatStyle(usage="choice"),
    "moonshot": ChatStyle(usage="choice"),
    "zai": ChatStyle(usage="always"),
    "mistral": ChatStyle(reasoning="chunks", usage="always", alphanumeric=True),
    "groq": ChatStyle(reasoning="reasoning", usage="x_groq", error="event"),
    "openrouter": ChatStyle(reasoning="reasoning", details=True, usage="after", comments=True, error="chunk"),
    "ollama": _NAMED,
    "vllm": _NAMED,
    "cerebras": _NAMED,
}


def style(dialect: str) -> ChatStyle:
    """Return the record of a dialect; reasoning in `reasoning_content` and usage when asked for where nothing else is known."""
    return _STYLES.get(dialect, _PLAIN)


Json = dict[str, object]

_DONE = event("[DONE]")
_STOPS: Mapping[str, str] = {"length": "length", "filter": "content_filter", "stop_sequence": "stop"}


class ChatVoice(msgspec.Struct, frozen=True):
    """See `Voice`."""

    streamed: bool
    style: ChatStyle

    def error(self, status: int, message: str, *, wait: float | None = None) -> Json:
        del wait
        return error_body(status, message)

    def failure(self, status: int, message: str) -> Sequence[bytes]:
        body = self.error(status, message)
        if not self.streamed:
            return [json_bytes(body)]
        match self.style.error:
            case "data":
                return [event(body)]
            case "event":
                return [event(body, name="error")]
            case "chunk":
                choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
                error = {"code": status, "message": message}
                return [event({"id": "gen-0", "error": error, "choices": [choice]}), _DONE]

    def unknown(self, filler: str = "") -> bytes:
        held = {"id": "chatcmpl-0", "object": "chat.weather_report", "choices": [], "filler": filler}
        return event(held) if self.streamed else b" "

    def nothing(self) -> bytes:
        return b": PROCESSING\n\n" if self.streamed else b" "


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """What both forms of an answer need. `calls` are the ids of the calls, `asked` is whether usage was requested."""

    turn: Turn
    name: str
    model: str
    tokens: Tokens
    calls: Sequence[str]
    style: ChatStyle
    asked: bool = False

    def head(self, kind: str) -> Json:
        held = {"id": self.name, "object": kind, "created": 1767225600, "model": self.model}
        padding = {"obfuscation": "xx"} if self.style.padding and kind.endswith("chunk") else {}
        return {**held, "service_tier": "default", "system_fingerprint": "fp_evener", **padding}

    def finish(self) -> str:
        turn = self.turn
        if turn.stop:
            return _STOPS.get(turn.stop, turn.stop)
        return "tool_calls" if turn.calls else "stop"


def completion(reply: ChatReply) -> Json:
    """Return the whole answer."""
    turn, style = reply.turn, reply.style
    message: Json = {"role": "assistant", "content": _content(turn.parts, style), "refusal": None, "annotations": []}
    thought = "".join(part.text for part in turn.parts if isinstance(part, Thinking))
    if thought and style.reasoning.startswith("reasoning"):
        message[style.reasoning] = thought
    if thought and style.details:
        message["reasoning_details"] = [_detail(thought)]
    for part in turn.parts:
        match part:
            case Refusal(text=text):
                message["refusal"] = text
            case Native(value=value):
                message |= value
    if turn.calls:
        message["tool_calls"] = [_call(part, call) for part, call in zip(turn.calls, reply.calls, strict=True)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish()}
    return {**reply.head("chat.completion"), "choices": [choice], "usage": _usage(reply.tokens)}


def _content(parts: Sequence[Part], style: ChatStyle) -> object:
    said = "".join(part.text for part in parts if isinstance(part, Text)) or None
    thoughts = [_chunk(part.text) for part in parts if isinstance(part, Thinking)]
    if style.reasoning != "chunks" or not thoughts:
        return said
    return [*thoughts, {"type": "text", "text": said}] if said else thoughts


def _chunk(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _detail(text: str) -> Json:
    return {"type": "reasoning.text", "text": text, "format": None, "index": 0}


def _call(part: Call, call: str) -> Json:
    return {"id": call, "type": "function", "function": {"name": part.name, "arguments": part.raw}}


def _usage(tokens: Tokens) -> Json:
    read: Json = {"cached_tokens": tokens.cached, "audio_tokens": 0}
    if tokens.written:
        read["cache_write_tokens"] = tokens.written
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": read,
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def chunks(reply: ChatReply) -> tuple[list[bytes], int]:
    """Return the answer as a stream, and how many chunks at its end tell that it is finished."""
    head = reply.head("chat.completion.chunk")
    opening = [b": PROCESSING\n\n"] if reply.style.comments else []
    first: Json = {"role": "assistant", "content": None if reply.turn.calls else "", "refusal": None}
    said = [event(_with_choice(head, delta)) for delta in (first, *_deltas(reply))]
    ending = [*(event(chunk) for chunk in _finish(reply, head)), _DONE]
    return [*opening, *said, *ending], len(ending)


def _with_choice(head: Json, delta: Json, finish: str | None = None) -> Json:
    return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": None}


def _deltas(reply: ChatReply) -> Iterator[Json]:
    number = 0
    for part in reply.turn.parts:
        match part:
            case Text(text=text, pieces=count):
                for piece in pieces(text, count):
                    yield {"content": piece}
            case Refusal(text=text, pieces=count):
                for piece in pieces(text, count):
                    yield {"refusal": piece}
            case Thinking(text=text, pieces=count):
                yield from _thoughts(text, count, reply.style)
            case Native(value=value):
                yield dict(value)
            case Call(pieces=count):
                opened = {"index": number, **_call(part, reply.calls[number])}
                yield {"tool_calls": [{**opened, "function": {"name": part.name, "arguments": ""}}]}
                for piece in pieces(part.raw, count):
                    yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
                number += 1


def _thoughts(text: str, count: int, style: ChatStyle) -> Iterator[Json]:
    for piece in pieces(text, count):
        if style.reasoning == "chunks":
            yield {"content": [_chunk(piece)]}
        elif style.reasoning:
            yield {style.reasoning: piece, **({"reasoning_details": [_detail(piece)]} if style.details else {})}


def _finish(reply: ChatReply, head: Json) -> list[Json]:
    """Return the chunk with the reason, and the usage where this server reports it."""
    last, usage = _with_choice(head, {}, reply.finish()), _usage(reply.tokens)
    match reply.style.usage:
        case "asked":
            return [last, {**head, "choices": [], "usage": usage}] if reply.asked else [last]
        case "finish":
            return [{**last, "usage": usage if reply.asked else None}]
        case "always":
            return [{**last, "usage": usage}]
        case "x_groq":
            return [{**last, "x_groq": {"id": "req_0", "usage": usage}}]
        case "choice":
            choice = {"index": 0, "delta": {}, "finish_reason": reply.finish(), "usage": usage}
            return [{**head, "choices": [choice]}]
        case "after":
            more = _with_choice(head, {"role": "assistant", "content": ""}, reply.finish())
            return [last, {**more, "usage": usage}]


class ChatWire(OpenAIWire):
    """See `Wire`."""

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(settings)
        self._style = style(settings.dialect)

    def voice(self, *, streamed: bool) -> ChatVoice:
        return ChatVoice(streamed, self._style)

    def route(self, received: Received) -> RequestRoute | None:
        return body_route(received, "/v1/chat/completions")

    def judge(self, received: Received, route: RequestRoute) -> Refused | None:
        found = check_request("openai_chat", received.body, dialect=self._settings.dialect)
        if found:
            return refused(found)
        if self._settings.models and route.model not in self._settings.models:
            said = f"The model `{route.model}` does not exist or you do not have access to it."
            return Refused(whole(404, error_body(404, said, code="model_not_found")))
        return None

    def say(self, received: Received, route: RequestRoute, turn: Turn) -> HttpAnswer:
        reply = ChatReply(
            turn=turn,
            name=self._mint.id("chatcmpl-"),
            model=route.model,
            tokens=turn.tokens(received.body),
            calls=[call.id or self._call_id() for call in turn.calls],
            style=self._style,
            asked=fields(received.json.get("stream_options")).get("include_usage") is True,
        )
        if not route.streamed:
            return whole(200, completion(reply))
        said, ending = chunks(reply)
        return streamed(said, ending=ending)

    def _call_id(self) -> str:
        return self._mint.id("", 9) if self._style.alphanumeric else self._mint.id("call_")
