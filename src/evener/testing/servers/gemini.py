"""The fake of generateContent: routes, keys, and a memory of the thought signatures that it issued.

Written from the wire sheet (sections 1, 7 and 12) and the recordings, never from an encoder.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

import msgspec

from evener.testing.check import Violation, check_request
from evener.testing.check.shape import fields, items, text
from evener.testing.servers.answer import HttpAnswer, event, streamed, whole
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces
from evener.testing.servers.wire import Mint, Received, Refused, RequestRoute, ServerSettings, bearer, listed

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
        """Return the error event; this provider says 503 where others say 529."""
        body = self.error(503 if status == 529 else status, message)
        return [_event(body) if self.streamed else spaced(body)]

    def unknown(self, filler: str = "") -> bytes:
        return _event({"weatherReport": {"filler": filler}}) if self.streamed else b" "

    def nothing(self) -> bytes:
        return b": \r\n\r\n" if self.streamed else b" "


def pieces_of(turn: Turn, mint: Mint, *, thoughts: bool) -> list[list[Json]]:
    """Return the parts of the answer, each in the pieces in which it is streamed.

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
    """Return the whole answer: the pieces of a part are one, and the signature sits on the text that it closes."""
    parts = [_join(group) for group in made]
    if len(parts) > 1 and parts[-1].get("text") == "" and "text" in parts[-2] and "thought" not in parts[-2]:
        parts[-2:] = [{**parts[-1], **parts[-2]}]
    return _chunk(turn, parts, _usage(tokens), model=model, name=name, last=True)


def _join(group: Sequence[Json]) -> Json:
    if len(group) == 1:
        return group[0]
    return {**group[0], "text": "".join(str(piece.get("text", "")) for piece in group)}


def chunks(turn: Turn, made: Sequence[Sequence[Json]], *, model: str, name: str, tokens: Tokens) -> list[Json]:
    """Return the answer in pieces; the last one has the finish reason and the final usage."""
    flat = [piece for group in made for piece in group]
    counted = [{"modality": "TEXT", "tokenCount": tokens.input}]
    early: Json = {"promptTokenCount": tokens.input, "totalTokenCount": tokens.input, "promptTokensDetails": counted}
    shown = [_chunk(turn, [piece], early, model=model, name=name, last=False) for piece in flat]
    final = shown.pop() if shown and _closes(flat[-1]) else None
    parts: list[Json] = [flat[-1]] if final else [{"text": ""}]
    return [*shown, _chunk(turn, [] if turn.refused else parts, _usage(tokens), model=model, name=name, last=True)]


def _closes(piece: Mapping[str, object]) -> bool:
    """True if this piece comes with the finish reason: a call or a signature. After text an empty part has it."""
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
    """Return the usage. Thoughts are not part of the candidates' tokens, and zeros are omitted (section 10)."""
    found: Json = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    extra = {"cachedContentTokenCount": tokens.cached, "thoughtsTokenCount": tokens.reasoning}
    return {**found, **{name: count for name, count in extra.items() if count}}


def spaced(value: object) -> bytes:
    """Return JSON with this provider's spacing. Line separators are escaped, because its SDK would cut an event there."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ": "))
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode()


def _event(value: object) -> bytes:
    return event(spaced(value).decode(), line="\r\n")


_PATH = re.compile(r".*/models/(?P<model>[^/:]+):(?P<verb>generateContent|streamGenerateContent)")
_MODELS = re.compile(r"/v1(?:beta)?/models(?:/(?P<model>[^/:]+))?")
# Section 7: taken in place of a signature that was never made, as text and in base64.
_SKIP = frozenset(("skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I"))
_REASON = "type.googleapis.com/google.rpc.ErrorInfo"


class GeminiWire:
    """See `Wire`."""

    base = ""
    stamp = ""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._mint = Mint(settings.seed)
        self._issued = {_plain(seal) for seal in settings.issued}

    def voice(self, *, streamed: bool) -> GeminiVoice:
        return GeminiVoice(streamed)

    def unlock(self, received: Received) -> Refused | None:
        """Return the refusal of a wrong key (a 400 here) or of a missing one (a 403; section 12)."""
        offered = received.headers.get("x-goog-api-key") or received.query.get("key") or bearer(received)
        if not self._settings.key or offered == self._settings.key:
            return None
        if not offered:
            said = "Method doesn't allow unregistered callers. Please use API Key or other form of API consumer identity."
            return Refused(whole(403, self.voice(streamed=False).error(403, said)))
        body = self.voice(streamed=False).error(400, "API key not valid. Please pass a valid API key.")
        detail = {"@type": _REASON, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        return Refused(whole(400, {"error": {**fields(body["error"]), "details": [detail]}}))

    def serve(self, received: Received) -> HttpAnswer | None:
        hit = _MODELS.fullmatch(received.route)
        if received.method != "GET" or hit is None:
            return None
        entries = {name: _model(name) for name in listed(self._settings.models)}
        if hit["model"] is None:
            return whole(200, {"models": list(entries.values())})
        return whole(200, entries[hit["model"]]) if hit["model"] in entries else None

    def route(self, received: Received) -> RequestRoute | None:
        hit = _PATH.fullmatch(received.route)
        if received.method != "POST" or hit is None:
            return None
        return RequestRoute(unquote(hit["model"]), _streams(received) and received.query.get("alt") == "sse")

    def judge(self, received: Received, route: RequestRoute) -> Refused | None:
        found = check_request("gemini", received.body, model=route.model, dialect=self._settings.dialect)
        found = found or list(self._foreign(received.json))
        voice = self.voice(streamed=False)
        if found:
            return Refused(whole(400, voice.error(400, str(found[0]))), tuple(found))
        if self._settings.models and route.model not in self._settings.models:
            said = (
                f"models/{route.model} is not found for API version v1beta, or is not supported for generateContent. "
                "Call ModelService.ListModels to see the list of available models and their supported methods."
            )
            return Refused(whole(404, voice.error(404, said)))
        return None

    def say(self, received: Received, route: RequestRoute, turn: Turn) -> HttpAnswer:
        made = pieces_of(turn, self._mint, thoughts=_shows_thoughts(received.json))
        self._issued |= {_plain(seal) for group in made for piece in group if (seal := _signature(piece))}
        tokens, name = turn.tokens(received.body), self._mint.id("", 22)
        if not _streams(received):
            return whole(200, response(turn, made, model=route.model, name=name, tokens=tokens))
        parts = chunks(turn, made, model=route.model, name=name, tokens=tokens)
        if not route.streamed:
            return whole(200, parts)
        return streamed([_event(part) for part in parts], ending=1, kind="text/event-stream")

    def _foreign(self, body: Mapping[str, object]) -> Iterator[Violation]:
        """Report signatures that this server has not made; the word for "no signature" is allowed (section 7)."""
        for index, content in enumerate(items(body.get("contents"))):
            for number, part in enumerate(items(fields(content).get("parts"))):
                seal = _signature(fields(part))
                if seal and _plain(seal) not in self._issued and _plain(seal) not in _SKIP:
                    path = f"contents[{index}].parts[{number}]"
                    yield Violation(path, "thought_signature.altered", "Thought signature is not valid: altered or foreign.")


def _streams(received: Received) -> bool:
    """True if the request asks for server-sent events; without `alt=sse` the stream is one JSON array (section 1)."""
    return received.route.endswith(":streamGenerateContent")


def _shows_thoughts(body: Mapping[str, object]) -> bool:
    config = fields(body.get("generationConfig") or body.get("generation_config"))
    thinking = fields(config.get("thinkingConfig") or config.get("thinking_config"))
    return (thinking.get("includeThoughts") or thinking.get("include_thoughts")) is True


def _signature(part: Mapping[str, object]) -> str:
    return text(part.get("thoughtSignature")) or text(part.get("thought_signature"))


def _plain(seal: str) -> str:
    """Return the signature in one spelling of base64, so that both alphabets, padded or not, compare as equal."""
    return seal.replace("-", "+").replace("_", "/").rstrip("=") if seal not in _SKIP else seal


def _model(name: str) -> dict[str, object]:
    limits = {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}
    verbs = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "version": "001", "displayName": name, **limits, "supportedGenerationMethods": verbs}
