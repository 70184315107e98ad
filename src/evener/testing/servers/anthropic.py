"""The fake of the Messages API: routes, keys, and a memory that binds reasoning to the conversation in which it was made.

Written from the wire sheet (sections 1, 8 and 13) and the recordings, never from an encoder.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.testing.check import Violation, check_request
from evener.testing.check.shape import fields, items, text
from evener.testing.servers.answer import HttpAnswer, event, json_bytes, streamed, whole
from evener.testing.servers.cache_memory import CacheMemory, RememberedRequest, canonical
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces
from evener.testing.servers.wire import Mint, Received, Refused, RequestRoute, ServerSettings, bearer, body_route, listed

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
COMPACTING = "compact-2026-09-04"
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
    """Return the content of the answer. `hidden`: thinking comes with its signature and without its text."""
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
            member = {"toolset_name": part.toolset} if part.toolset else {}
            head: Json = {"type": "tool_use", "id": call, "name": part.name, "input": part.value}
            return {**head, "caller": {"type": "direct"}, **member}
        case Native(value=value):
            return dict(value)


def message(turn: Turn, made: Sequence[Json], body: Mapping[str, object], *, name: str, tokens: Tokens) -> Json:
    """Return the whole answer. One that stops at a sequence says at which: the first that the request has."""
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
    """Return the usage. Tokens read from or written to the cache are not part of `input_tokens` (section 11)."""
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
    """Return the answer as a stream; the last event is the terminal mark."""
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
    empty, deltas = _open_block(part, block)
    yield _event("content_block_start", index=index, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _open_block(part: Part, block: Json) -> tuple[Json, list[Json]]:
    """Return the block as it starts, and what is then added. A block that is not streamed comes complete (section 9)."""
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


_OTHER = (
    "Invalid signature in thinking block. The block is bound to a different conversation. Remove the block, or set "
    'thinking.block_binding.prefix_mismatch_behavior to "drop_block".'
)


class _Bond(msgspec.Struct, frozen=True):
    """The prefix after which a block was issued, and the number of blocks of the same answer before it."""

    prefix: str
    index: int


class AnthropicWire:
    """See `Wire`."""

    base = ""
    stamp = "request-id"

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._mint = Mint(settings.seed)
        self._issued = dict(settings.issued)
        self._bonds: dict[str, _Bond] = {}
        self._compactions: dict[str, str] = {}  # by signature: the content that was signed
        self._cache = CacheMemory()

    def voice(self, *, streamed: bool) -> AnthropicVoice:
        return AnthropicVoice(streamed, self._mint.id("req_"))

    def unlock(self, received: Received) -> Refused | None:
        offered = received.headers.get("x-api-key") or bearer(received)
        if not self._settings.key or offered == self._settings.key:
            return None
        wrong = "invalid x-api-key" if offered else "x-api-key header is required"
        return Refused(self._error(401, wrong))

    def serve(self, received: Received) -> HttpAnswer | None:
        if received.method != "GET":
            return None
        entries = [_model(name) for name in listed(self._settings.models)]
        if received.route == "/v1/models":
            ends = {"first_id": entries[0]["id"], "last_id": entries[-1]["id"]}
            return whole(200, {"data": entries, "has_more": False, **ends})
        name = received.route.removeprefix("/v1/models/")
        return next((whole(200, entry) for entry in entries if entry["id"] == name), None)

    def route(self, received: Received) -> RequestRoute | None:
        return body_route(received, "/v1/messages")

    def judge(self, received: Received, route: RequestRoute) -> Refused | None:
        version = received.headers.get("anthropic-version", "")
        if not version:
            return self._refuse(Violation("anthropic-version", "missing", "header is required"))
        named = received.headers.get("anthropic-beta", "").split(",")
        betas = [name.strip() for name in named if name.strip()]
        found = check_request("anthropic_messages", received.body, api_version=version, betas=betas, issued=self._issued)
        found = found or list(self._unbound(received.json)) or list(self._find_misuse(received.json, betas))
        if found:
            return self._refuse(*found)
        if self._settings.models and route.model not in self._settings.models:
            return Refused(self._error(404, f"model: {route.model}"))
        return None

    def say(self, received: Received, route: RequestRoute, turn: Turn) -> HttpAnswer:
        hidden = fields(received.json.get("thinking")).get("display") == "omitted"
        if received.json.get("compaction") is not None and not turn.stop:
            turn = self._compact(turn)
        made = blocks(turn, self._mint, hidden=hidden)
        self._remember(received.json, made)
        reply = message(turn, made, received.json, name=self._mint.id("msg_"), tokens=turn.tokens(received.body))
        found = self._diagnose(received.json, text(reply["id"]))
        if received.json.get("diagnostics") is not None:
            reply["diagnostics"] = found
        return streamed(events(turn, reply, made), ending=1) if route.streamed else whole(200, reply)

    def _compact(self, turn: Turn) -> Turn:
        """Return the turn as one signed block: its text is the summary."""
        said = "".join(part.text for part in turn.parts if isinstance(part, Text))
        signature = self._mint.seal()
        self._compactions[signature] = said
        block = Native({"type": "compaction", "content": said or None, "signature": signature})
        return msgspec.structs.replace(turn, parts=(block,), stop="compaction")

    def _find_misuse(self, body: Mapping[str, object], betas: Sequence[str]) -> Iterator[Violation]:
        """Yield what is wrong about compactions: those that are asked for, and those that are sent back."""
        if body.get("compaction") is not None:
            if COMPACTING not in betas:
                yield Violation("compaction", "compaction.beta", f"Extra inputs are not permitted without {COMPACTING}.")
            if body.get("context_management") is not None:
                yield Violation("compaction", "compaction.edits", "compaction cannot be used with context_management.")
            last = fields((items(body.get("messages")) or [{}])[-1])
            if last.get("role") == "assistant":
                yield Violation("messages", "compaction.incomplete_turn", "compaction_incomplete_turn: a turn is open.")
        for place, (path, _role, block) in enumerate(_flat(body)):
            if block.get("type") != "compaction" or block.get("signature") is None:
                continue
            signed = self._compactions.get(text(block.get("signature")))
            if place:
                yield Violation(path, "compaction.misplaced", "compaction_block_misplaced: it must come first in messages.")
            if signed is None:
                yield Violation(path, "compaction.signature", "compaction_signature_invalid")
            elif signed != text(block.get("content")):
                yield Violation(path, "compaction.content", "compaction_content_mismatch")

    def _diagnose(self, body: Mapping[str, object], name: str) -> Json | None:
        """Return why the prompt cache was missed, against the answer that the request names; None when it was not."""
        sections = {"model": body.get("model"), "tools": body.get("tools"), "system": body.get("system")}
        request = RememberedRequest.of(sections, [[role, dict(block)] for _path, role, block in _flat(body)])
        self._cache.remember(name, request)
        asked = fields(body.get("diagnostics"))
        previous = text(asked.get("previous_message_id"))
        if not previous:
            return None
        found = self._cache.compare(previous, request, "messages")
        if found is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        what, tokens = found
        return {"cache_miss_reason": {"type": f"{what}_changed", "cache_missed_input_tokens": tokens}} if what else None

    def _remember(self, body: Mapping[str, object], made: list[dict[str, object]]) -> None:
        *_, prefix = _prefixes(body)
        for index, block in enumerate(made):
            seal = _seal(block)
            if seal:
                self._issued[seal] = text(block.get("thinking"))
                self._bonds[seal] = _Bond(prefix, index)

    def _unbound(self, body: Mapping[str, object]) -> Iterator[Violation]:
        """Report thinking blocks that do not follow exactly the tools, system prompt and messages they were made with (section
        8).
        """
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

    def _refuse(self, *violations: Violation) -> Refused:
        return Refused(self._error(400, str(violations[0])), violations)

    def _error(self, status: int, said: str) -> HttpAnswer:
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
    """Yield path, role and block of all blocks, so that their distribution over messages of one role makes no difference."""
    for number, value in enumerate(items(body.get("messages"))):
        held = fields(value)
        for index, block in enumerate(_blocks(held.get("content"))):
            yield f"messages.{number}.content.{index}", text(held.get("role")), fields(block)


def _blocks(content: object) -> list[object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else items(content)


def _prefixes(body: Mapping[str, object]) -> list[str]:
    """Return the fingerprint of the request before each block, and of the whole at the end, without cache marks."""
    running = hashlib.sha256(canonical([items(body.get("tools")), _blocks(body.get("system"))]).encode())
    found = [running.hexdigest()]
    for _path, role, block in _flat(body):
        running.update(canonical([role, block]).encode())
        found.append(running.hexdigest())
    return found
