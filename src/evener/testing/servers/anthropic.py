"""The fake of the Messages API: routes, keys, and the memory that binds thinking to the conversation it came from.

Written from the wire sheet (sections 1, 8 and 13) and the recordings, never from an encoder.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping

import msgspec

from evener.testing.check import Violation, check_request
from evener.testing.check.shape import fields, items, text
from evener.testing.servers.answer import Answer, streamed, whole
from evener.testing.servers.anthropic_speech import AnthropicVoice, blocks, events, message
from evener.testing.servers.mint import Mint
from evener.testing.servers.received import Received, Route
from evener.testing.servers.turn import Turn
from evener.testing.servers.wire import Refused, Settings, bearer, listed

__all__ = ["AnthropicWire"]

_OTHER = (
    "Invalid signature in thinking block. The block is bound to a different conversation. Remove the block, or set "
    'thinking.block_binding.prefix_mismatch_behavior to "drop_block".'
)


class _Bond(msgspec.Struct, frozen=True):
    """Under which prefix a block was issued, and how many blocks of the same answer stood before it."""

    prefix: str
    index: int


class AnthropicWire:
    """See `Wire`."""

    base = ""
    stamp = "request-id"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mint = Mint(settings.seed)
        self._issued = dict(settings.issued)
        self._bonds: dict[str, _Bond] = {}

    def voice(self, *, streamed: bool) -> AnthropicVoice:
        return AnthropicVoice(streamed, self._mint.id("req_"))

    def unlock(self, received: Received) -> Refused | None:
        offered = received.headers.get("x-api-key") or bearer(received)
        if not self._settings.key or offered == self._settings.key:
            return None
        wrong = "invalid x-api-key" if offered else "x-api-key header is required"
        return Refused(self._error(401, wrong))

    def serve(self, received: Received) -> Answer | None:
        if received.method != "GET":
            return None
        entries = [_model(name) for name in listed(self._settings.models)]
        if received.route == "/v1/models":
            ends = {"first_id": entries[0]["id"], "last_id": entries[-1]["id"]}
            return whole(200, {"data": entries, "has_more": False, **ends})
        name = received.route.removeprefix("/v1/models/")
        return next((whole(200, entry) for entry in entries if entry["id"] == name), None)

    def route(self, received: Received) -> Route | None:
        if received.method != "POST" or received.route != "/v1/messages":
            return None
        body = received.json
        return Route(text(body.get("model")), body.get("stream") is True)

    def judge(self, received: Received, route: Route) -> Refused | None:
        version = received.headers.get("anthropic-version", "")
        if not version:
            return self._refused(Violation("anthropic-version", "missing", "header is required"))
        beta = received.headers.get("anthropic-beta", "")
        found = check_request(
            "anthropic_messages",
            received.body,
            api_version=version,
            betas=[name.strip() for name in beta.split(",") if name.strip()],
            issued=self._issued,
        )
        found = found or list(self._unbound(received.json))
        if found:
            return self._refused(*found)
        if self._settings.models and route.model not in self._settings.models:
            return Refused(self._error(404, f"model: {route.model}"))
        return None

    def say(self, received: Received, route: Route, turn: Turn) -> Answer:
        hidden = fields(received.json.get("thinking")).get("display") == "omitted"
        made = blocks(turn, self._mint, hidden=hidden)
        self._remember(received.json, made)
        reply = message(turn, made, received.json, name=self._mint.id("msg_"), tokens=turn.tokens(received.body))
        headers = (("request-id", self._mint.id("req_")),)
        if not route.streamed:
            return whole(200, reply, headers)
        return streamed(events(turn, reply, made), ending=1, headers=headers)

    def _remember(self, body: Mapping[str, object], made: list[dict[str, object]]) -> None:
        *_, prefix = _prefixes(body)
        for index, block in enumerate(made):
            seal = _seal(block)
            if seal:
                self._issued[seal] = text(block.get("thinking"))
                self._bonds[seal] = _Bond(prefix, index)

    def _unbound(self, body: Mapping[str, object]) -> Iterator[Violation]:
        """Section 8: a thinking block counts only after the very tools, system prompt and messages it was made under."""
        prefixes = _prefixes(body)
        binding = fields(fields(body.get("thinking")).get("block_binding"))
        bound = self._settings.prefix_bound and binding.get("prefix_mismatch_behavior") != "drop_block"
        for place, (path, role, block) in enumerate(_flat(body)):
            seal = _seal(block)
            if role != "assistant" or not seal:
                continue
            if block.get("type") == "redacted_thinking" and seal not in self._issued:
                yield Violation(path, "thinking.altered", "Invalid `data` in `redacted_thinking` block.")
            bond = self._bonds.get(seal)
            start = place - bond.index if bond else -1
            if bound and bond and (start < 0 or prefixes[start] != bond.prefix):
                yield Violation(path, "thinking.prefix", _OTHER)

    def _refused(self, *violations: Violation) -> Refused:
        first = violations[0]
        said = f"{first.path}: {first.message}" if first.path else first.message
        return Refused(self._error(400, said), violations)

    def _error(self, status: int, said: str) -> Answer:
        voice = self.voice(streamed=False)
        return whole(status, voice.error(status, said), (("request-id", voice.request),))


def _model(name: str) -> dict[str, object]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def _seal(block: Mapping[str, object]) -> str:
    match block.get("type"):
        case "thinking":
            return text(block.get("signature"))
        case "redacted_thinking":
            return text(block.get("data"))
    return ""


def _flat(body: Mapping[str, object]) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Path, role and block of all blocks: how they are spread over messages of the same role makes no difference."""
    for number, value in enumerate(items(body.get("messages"))):
        held = fields(value)
        for index, block in enumerate(_blocks(held.get("content"))):
            yield f"messages.{number}.content.{index}", text(held.get("role")), fields(block)


def _blocks(content: object) -> list[object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else items(content)


def _prefixes(body: Mapping[str, object]) -> list[str]:
    """The fingerprint of what stands before each block, and of the whole at the end; cache marks do not count."""
    running = hashlib.sha256(_canonical([items(body.get("tools")), _blocks(body.get("system"))]))
    found = [running.hexdigest()]
    for _path, role, block in _flat(body):
        running.update(_canonical([role, block]))
        found.append(running.hexdigest())
    return found


def _canonical(value: object) -> bytes:
    return json.dumps(_unmarked(value), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _unmarked(value: object) -> object:
    if isinstance(value, dict):
        return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value
