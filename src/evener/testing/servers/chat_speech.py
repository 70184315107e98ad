"""A turn in the words of Chat Completions and its dialects: a whole completion, chunks. Sheet sections 6, 7 and 9. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.testing.servers.answer import event, json_bytes
from evener.testing.servers.chat_styles import Style
from evener.testing.servers.openai_errors import error_body
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces

__all__ = ["ChatVoice", "chunks", "completion"]

Json = dict[str, object]

_DONE = event("[DONE]")
_STOPS: Mapping[str, str] = {"length": "length", "filter": "content_filter", "stop_sequence": "stop"}


class ChatVoice(msgspec.Struct, frozen=True):
    """See `Voice`."""

    streamed: bool
    style: Style

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


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What both forms of an answer need. `calls` are the ids of the calls, `asked` is whether usage was asked for."""

    turn: Turn
    name: str
    model: str
    tokens: Tokens
    calls: Sequence[str]
    style: Style
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


def completion(reply: Reply) -> Json:
    """The whole answer."""
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


def _content(parts: Sequence[Part], style: Style) -> object:
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


def chunks(reply: Reply) -> tuple[list[bytes], int]:
    """The answer as a stream, and how many chunks at its end tell that it is finished."""
    head = reply.head("chat.completion.chunk")
    opening = [b": PROCESSING\n\n"] if reply.style.comments else []
    first: Json = {"role": "assistant", "content": None if reply.turn.calls else "", "refusal": None}
    said = [event(_with_choice(head, delta)) for delta in (first, *_deltas(reply))]
    ending = [*(event(chunk) for chunk in _finishing(reply, head)), _DONE]
    return [*opening, *said, *ending], len(ending)


def _with_choice(head: Json, delta: Json, finish: str | None = None) -> Json:
    return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": None}


def _deltas(reply: Reply) -> Iterator[Json]:
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


def _thoughts(text: str, count: int, style: Style) -> Iterator[Json]:
    for piece in pieces(text, count):
        if style.reasoning == "chunks":
            yield {"content": [_chunk(piece)]}
        elif style.reasoning:
            yield {style.reasoning: piece, **({"reasoning_details": [_detail(piece)]} if style.details else {})}


def _finishing(reply: Reply, head: Json) -> list[Json]:
    """The chunk with the reason, and the usage where this server reports it."""
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
