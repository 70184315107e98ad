"""A turn in the words of the Messages API: blocks, a whole message, events, errors. Sheet sections 4, 9 to 11 and 13. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.testing.check.shape import items
from evener.testing.servers.answer import event, json_bytes
from evener.testing.servers.mint import Mint
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces

__all__ = ["AnthropicVoice", "blocks", "events", "message"]

Json = dict[str, object]

TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
STOPS: Mapping[str, str] = {
    "length": "max_tokens",
    "filter": "refusal",
    "pause": "pause_turn",
}
PING = event('{"type": "ping"}', name="ping")


class AnthropicVoice(msgspec.Struct, frozen=True):
    """See `Voice`."""

    streamed: bool
    request: str

    def error(self, status: int, message: str, *, wait: float | None = None) -> Json:
        del wait
        inner: Json = {"type": TYPES.get(status, "api_error"), "message": message}
        return {"type": "error", "error": inner, "request_id": self.request}

    def failure(self, status: int, message: str) -> Sequence[bytes]:
        body = self.error(status, message)
        return [event(body, name="error") if self.streamed else json_bytes(body)]

    def unknown(self, filler: str = "") -> bytes:
        return event({"type": "weather_report", "filler": filler}, name="weather_report") if self.streamed else b" "

    def nothing(self) -> bytes:
        return PING if self.streamed else b" "


def blocks(turn: Turn, mint: Mint, *, hidden: bool) -> list[Json]:
    """The content of the answer. `hidden`: thinking comes with its signature and without its text."""
    return [_block(part, mint, hidden=hidden) for part in turn.parts]


def _block(part: Part, mint: Mint, *, hidden: bool) -> Json:
    match part:
        case Text(text=text) | Refusal(text=text):
            return {"type": "text", "text": text}
        case Thinking(redacted=True):
            return {"type": "redacted_thinking", "data": mint.seal()}
        case Thinking(text=text):
            return {"type": "thinking", "thinking": "" if hidden else text, "signature": mint.seal()}
        case Call():
            call = part.id or mint.id("toolu_01")
            return {"type": "tool_use", "id": call, "name": part.name, "input": part.value, "caller": {"type": "direct"}}
        case Native(value=value):
            return dict(value)


def message(turn: Turn, made: Sequence[Json], body: Mapping[str, object], *, name: str, tokens: Tokens) -> Json:
    """The whole answer. One that stops at a sequence says at which: the first that the request has."""
    stop = _stop(turn)
    sequences = items(body.get("stop_sequences")) if stop == "stop_sequence" else []
    return {
        "model": body.get("model"),
        "id": name,
        "type": "message",
        "role": "assistant",
        "content": list(made),
        "stop_reason": stop,
        "stop_sequence": sequences[0] if sequences else None,
        "stop_details": _stop_details(turn),
        "usage": _usage(tokens),
    }


def _stop(turn: Turn) -> str:
    if turn.stop:
        return STOPS.get(turn.stop, turn.stop)
    if turn.refused:
        return "refusal"
    return "tool_use" if turn.calls else "end_turn"


def _stop_details(turn: Turn) -> Json | None:
    said = next((part.text for part in turn.parts if isinstance(part, Refusal)), None)
    return None if said is None else {"type": "refusal", "category": None, "explanation": said}


def _usage(tokens: Tokens) -> Json:
    """Section 11: what was read from or written to the cache is not part of `input_tokens`."""
    found: Json = {
        "input_tokens": tokens.input - tokens.cached - tokens.written,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": tokens.written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": tokens.output,
        "service_tier": "standard",
        "inference_geo": "global",
    }
    if tokens.reasoning:
        found["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
    return found


def events(turn: Turn, reply: Mapping[str, object], made: Sequence[Json]) -> list[bytes]:
    """The answer as a stream; the last event is the terminal mark."""
    usage = reply["usage"]
    assert isinstance(usage, dict)
    early = {name: value for name, value in usage.items() if name != "output_tokens_details"}
    unsaid = dict.fromkeys(("stop_reason", "stop_sequence", "stop_details"))
    start = {**reply, **unsaid, "content": [], "usage": {**early, "output_tokens": 1}}
    found = [_event("message_start", message=start)]
    for index, (part, block) in enumerate(zip(turn.parts, made, strict=True)):
        opening, *rest = _block_events(index, part, block)
        found += [opening, PING, *rest] if index == 0 else [opening, *rest]
    late = {name: usage[name] for name in usage if name.endswith(("tokens", "tokens_details"))}
    delta = {name: reply[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    return [*found, _event("message_delta", delta=delta, usage=late), _event("message_stop")]


def _block_events(index: int, part: Part, block: Json) -> Iterator[bytes]:
    empty, deltas = _opened(part, block)
    yield _event("content_block_start", index=index, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _opened(part: Part, block: Json) -> tuple[Json, list[Json]]:
    """The block as it starts, and what is then added. What nobody streams comes complete (section 9)."""
    match part:
        case Text(text=text, pieces=count) | Refusal(text=text, pieces=count):
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(text, count)]
        case Thinking(redacted=False, pieces=count):
            said: list[Json] = [{"type": "thinking_delta", "thinking": one} for one in pieces(str(block["thinking"]), count)]
            said.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, said
        case Call(pieces=count):
            raw = "" if part.raw == "{}" else part.raw
            said = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(raw, count)]]
            return {**block, "input": {}}, said
    return dict(block), []


def _event(kind: str, **held: object) -> bytes:
    return event({"type": kind, **held}, name=kind)
