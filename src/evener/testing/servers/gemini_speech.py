"""A turn in the words of generateContent: parts, a whole response, chunks. Gemini sheet sections 3 and 7 to 12. Pure."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from evener.testing.servers.answer import event
from evener.testing.servers.mint import Mint
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces

__all__ = ["GeminiVoice", "chunks", "pieces_of", "response"]

Json = dict[str, object]

STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_STOPS: Mapping[str, str] = {"length": "MAX_TOKENS", "filter": "SAFETY", "stop_sequence": "STOP"}
_RETRY = "type.googleapis.com/google.rpc.RetryInfo"


class GeminiVoice(msgspec.Struct, frozen=True):
    """See `Voice`."""

    streamed: bool

    def error(self, status: int, message: str, *, wait: float | None = None) -> Json:
        held: Json = {"code": status, "message": message, "status": STATUSES.get(status, "UNKNOWN")}
        if wait is not None:
            held["details"] = [{"@type": _RETRY, "retryDelay": f"{wait:g}s"}]
        return {"error": held}

    def failure(self, status: int, message: str) -> Sequence[bytes]:
        """An error of 529 is no word of this provider's: it says 503."""
        body = self.error(503 if status == 529 else status, message)
        return [_event(body) if self.streamed else spaced(body)]

    def unknown(self, filler: str = "") -> bytes:
        return _event({"weatherReport": {"filler": filler}}) if self.streamed else b" "

    def nothing(self) -> bytes:
        return b": \r\n\r\n" if self.streamed else b" "


def pieces_of(turn: Turn, mint: Mint, *, thoughts: bool) -> list[list[Json]]:
    """The parts of the answer, each in the pieces in which it is streamed.

    Section 7: a signature sits on the first call of a step, or else closes the text. `thoughts`: they are shown when asked for.
    """
    found = [_parts(part, mint, thoughts=thoughts) for part in turn.parts]
    signed = any(isinstance(part, Thinking) for part in turn.parts)
    calls = [group[0] for part, group in zip(turn.parts, found, strict=True) if isinstance(part, Call)]
    if calls:
        calls[0]["thoughtSignature"] = mint.seal()
    elif signed:
        found.append([{"text": "", "thoughtSignature": mint.seal()}])
    return [group for group in found if group]


def _parts(part: Part, mint: Mint, *, thoughts: bool) -> list[Json]:
    match part:
        case Text(text=text, pieces=count):
            return [{"text": piece} for piece in pieces(text, count)]
        case Thinking(text=text, pieces=count):
            shown = thoughts and not part.redacted
            return [{"text": piece, "thought": True} for piece in pieces(text, count)] if shown else []
        case Call():
            call: Json = {"id": part.id or mint.id("", 8), "name": part.name, "args": part.value}
            return [{"functionCall": call}]
        case Native(value=value):
            return [dict(value)]
        case Refusal():
            return []


def response(turn: Turn, made: Sequence[Sequence[Json]], *, model: str, name: str, tokens: Tokens) -> Json:
    """The whole answer: the pieces of a part are one, and the signature sits on the text that it closes."""
    parts = [_joined(group) for group in made]
    if len(parts) > 1 and parts[-1].get("text") == "" and "text" in parts[-2] and "thought" not in parts[-2]:
        parts[-2:] = [{**parts[-1], **parts[-2]}]
    return _chunk(turn, parts, _usage(tokens), model=model, name=name, last=True)


def _joined(group: Sequence[Json]) -> Json:
    if len(group) == 1:
        return group[0]
    return {**group[0], "text": "".join(str(piece.get("text", "")) for piece in group)}


def chunks(turn: Turn, made: Sequence[Sequence[Json]], *, model: str, name: str, tokens: Tokens) -> list[Json]:
    """The answer in pieces; the last one has the finish reason and the final usage."""
    flat = [piece for group in made for piece in group]
    counted = [{"modality": "TEXT", "tokenCount": tokens.input}]
    early: Json = {"promptTokenCount": tokens.input, "totalTokenCount": tokens.input, "promptTokensDetails": counted}
    shown = [_chunk(turn, [piece], early, model=model, name=name, last=False) for piece in flat]
    final = shown.pop() if shown and _closes(flat[-1]) else None
    parts: list[Json] = [flat[-1]] if final else [{"text": ""}]
    return [*shown, _chunk(turn, [] if turn.refused else parts, _usage(tokens), model=model, name=name, last=True)]


def _closes(piece: Mapping[str, object]) -> bool:
    """Calls and signatures come with the finish reason; text is followed by an empty part that has it."""
    return "text" not in piece or "thoughtSignature" in piece


def _chunk(turn: Turn, parts: Sequence[Json], usage: Json, *, model: str, name: str, last: bool) -> Json:
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = _stop(turn)
        said = next((part.text for part in turn.parts if isinstance(part, Refusal)), "")
        said = said or ("Model generated function call(s)." if turn.calls else "")
        if said:
            candidate["finishMessage"] = said
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": name}


def _stop(turn: Turn) -> str:
    if turn.stop:
        return _STOPS.get(turn.stop, turn.stop)
    return "SAFETY" if turn.refused else "STOP"


def _usage(tokens: Tokens) -> Json:
    """Section 10: thoughts are not among the candidates' tokens; what is zero is absent."""
    found: Json = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    extra = {"cachedContentTokenCount": tokens.cached, "thoughtsTokenCount": tokens.reasoning}
    return {**found, **{name: count for name, count in extra.items() if count}}


def spaced(value: object) -> bytes:
    """JSON as this provider spaces it. Separators of lines are escaped: its own SDK would cut an event there."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ": "))
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode()


def _event(value: object) -> bytes:
    return event(spaced(value).decode(), line="\r\n")


def framed(values: Sequence[Json]) -> list[bytes]:
    """The chunks as server-sent events."""
    return [_event(value) for value in values]
