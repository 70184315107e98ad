"""The fake of generateContent: routes, keys, and the memory of the thought signatures it issued.

Written from the wire sheet (sections 1, 7 and 12) and the recordings, never from an encoder.
"""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

import msgspec

from evener.testing.check import Violation, check_request
from evener.testing.check.shape import fields, items, text
from evener.testing.servers.answer import Answer, streamed, whole
from evener.testing.servers.gemini_speech import GeminiVoice, chunks, framed, pieces_of, response
from evener.testing.servers.mint import Mint
from evener.testing.servers.received import Received, Route
from evener.testing.servers.turn import Turn
from evener.testing.servers.wire import Refused, Settings, bearer, listed

__all__ = ["GeminiWire"]

_PATH = re.compile(r".*/models/(?P<model>[^/:]+):(?P<verb>generateContent|streamGenerateContent)")
_MODELS = re.compile(r"/v1(?:beta)?/models(?:/(?P<model>[^/:]+))?")
# Section 7: taken in place of a signature that was never made, as text and in base64.
_SKIP = frozenset(("skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I"))
_REASON = "type.googleapis.com/google.rpc.ErrorInfo"


class GeminiWire:
    """See `Wire`."""

    base = ""
    stamp = ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mint = Mint(settings.seed)
        self._issued = {_plain(seal) for seal in settings.issued}

    def voice(self, *, streamed: bool) -> GeminiVoice:
        return GeminiVoice(streamed)

    def unlock(self, received: Received) -> Refused | None:
        """Section 12: a wrong key is a 400 here, a missing one a 403."""
        offered = received.headers.get("x-goog-api-key") or received.query.get("key") or bearer(received)
        if not self._settings.key or offered == self._settings.key:
            return None
        if not offered:
            said = "Method doesn't allow unregistered callers. Please use API Key or other form of API consumer identity."
            return Refused(whole(403, self.voice(streamed=False).error(403, said)))
        body = self.voice(streamed=False).error(400, "API key not valid. Please pass a valid API key.")
        detail = {"@type": _REASON, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        return Refused(whole(400, {"error": {**fields(body["error"]), "details": [detail]}}))

    def serve(self, received: Received) -> Answer | None:
        hit = _MODELS.fullmatch(received.route)
        if received.method != "GET" or hit is None:
            return None
        entries = {name: _model(name) for name in listed(self._settings.models)}
        if hit["model"] is None:
            return whole(200, {"models": list(entries.values())})
        return whole(200, entries[hit["model"]]) if hit["model"] in entries else None

    def route(self, received: Received) -> Route | None:
        hit = _PATH.fullmatch(received.route)
        if received.method != "POST" or hit is None:
            return None
        return Route(unquote(hit["model"]), _streams(received) and received.query.get("alt") == "sse")

    def judge(self, received: Received, route: Route) -> Refused | None:
        found = check_request("gemini", received.body, model=route.model, dialect=self._settings.dialect)
        found = found or list(self._foreign(received.json))
        voice = self.voice(streamed=False)
        if found:
            first = found[0]
            said = f"{first.path}: {first.message}" if first.path else first.message
            return Refused(whole(400, voice.error(400, said)), tuple(found))
        if self._settings.models and route.model not in self._settings.models:
            said = (
                f"models/{route.model} is not found for API version v1beta, or is not supported for generateContent. "
                "Call ModelService.ListModels to see the list of available models and their supported methods."
            )
            return Refused(whole(404, voice.error(404, said)))
        return None

    def say(self, received: Received, route: Route, turn: Turn) -> Answer:
        made = pieces_of(turn, self._mint, thoughts=_shows_thoughts(received.json))
        self._issued |= {_plain(seal) for group in made for piece in group if (seal := _signature(piece))}
        tokens, name = turn.tokens(received.body), self._mint.id("", 22)
        if not _streams(received):
            return whole(200, response(turn, made, model=route.model, name=name, tokens=tokens))
        parts = chunks(turn, made, model=route.model, name=name, tokens=tokens)
        if not route.streamed:
            return whole(200, parts)
        return msgspec.structs.replace(streamed(framed(parts), ending=1), headers=(("content-type", "text/event-stream"),))

    def _foreign(self, body: Mapping[str, object]) -> Iterator[Violation]:
        """Section 7: only signatures of its own, or the word for none."""
        for index, content in enumerate(items(body.get("contents"))):
            for number, part in enumerate(items(fields(content).get("parts"))):
                seal = _signature(fields(part))
                if seal and _plain(seal) not in self._issued and _plain(seal) not in _SKIP:
                    path = f"contents[{index}].parts[{number}]"
                    yield Violation(path, "thought_signature.altered", "Thought signature is not valid: altered or foreign.")


def _streams(received: Received) -> bool:
    """Without `alt=sse` the stream is one JSON array (section 1)."""
    return received.route.endswith(":streamGenerateContent")


def _shows_thoughts(body: Mapping[str, object]) -> bool:
    config = fields(body.get("generationConfig") or body.get("generation_config"))
    thinking = fields(config.get("thinkingConfig") or config.get("thinking_config"))
    return (thinking.get("includeThoughts") or thinking.get("include_thoughts")) is True


def _signature(part: Mapping[str, object]) -> str:
    return text(part.get("thoughtSignature")) or text(part.get("thought_signature"))


def _plain(seal: str) -> str:
    """The same for both alphabets of base64, padded or not: it is bytes that were signed."""
    return seal.replace("-", "+").replace("_", "/").rstrip("=") if seal not in _SKIP else seal


def _model(name: str) -> dict[str, object]:
    limits = {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}
    verbs = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "version": "001", "displayName": name, **limits, "supportedGenerationMethods": verbs}
