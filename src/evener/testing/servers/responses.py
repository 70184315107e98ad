"""The fake of the Responses API: routes, and the memory of stored answers, conversations and encrypted reasoning.

Written from the wire sheet (sections 1 and 7) and the recordings, never from an encoder.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.testing.check import Violation, check_request
from evener.testing.check.shape import fields, items, text
from evener.testing.servers.answer import HttpAnswer, event, json_bytes, streamed, whole
from evener.testing.servers.cache_memory import CacheMemory, RememberedRequest
from evener.testing.servers.openai import OpenAIWire, error_body, refused
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces
from evener.testing.servers.wire import Mint, Received, Refused, RequestRoute, ServerSettings, body_route

Json = dict[str, object]
Step = tuple[str, Json]
"""An event's type and its fields, not yet numbered."""

COMPACT = "/v1/responses/compact"
COMPACTS = ("model", "input", "instructions", "previous_response_id", "prompt_cache_key", "prompt_cache_options", "image")
_BROKEN: Mapping[int, str] = {429: "rate_limit_exceeded"}
_ECHOED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}


class ResponsesVoice(msgspec.Struct, frozen=True):
    """See `Voice`."""

    streamed: bool

    def error(self, status: int, message: str, *, wait: float | None = None) -> Json:
        del wait
        return error_body(status, message)

    def failure(self, status: int, message: str) -> Sequence[bytes]:
        if not self.streamed:
            return [json_bytes(self.error(status, message))]
        code = _BROKEN.get(status, "server_error")
        body = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 99}
        return [event(body, name="error")]

    def unknown(self, filler: str = "") -> bytes:
        name = "response.weather_report"
        return event({"type": name, "sequence_number": 99, "filler": filler}, name=name) if self.streamed else b" "

    def nothing(self) -> bytes:
        return event({"type": "keepalive", "sequence_number": 99}, name="keepalive") if self.streamed else b" "


def items_of(turn: Turn, mint: Mint) -> list[Json]:
    """Return the output items, complete; but where the answer breaks off, the last of them is not."""
    made = [_item(part, mint, last=part is turn.parts[-1]) for part in turn.parts]
    if turn.stop and turn.parts and isinstance(turn.parts[-1], Text | Refusal | Call):
        made[-1]["status"] = "incomplete"
    return made


def _item(part: Part, mint: Mint, *, last: bool) -> Json:
    match part:
        case Text(text=text):
            said: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
            phase = "final_answer" if last else "commentary"
            head: Json = {"id": mint.id("msg_", 48), "type": "message", "status": "completed"}
            return {**head, "content": [said], "phase": phase, "role": "assistant"}
        case Refusal(text=text):
            said = {"type": "refusal", "refusal": text}
            head = {"id": mint.id("msg_", 48), "type": "message", "status": "completed"}
            return {**head, "content": [said], "role": "assistant"}
        case Thinking(text=text):
            shown = [] if part.redacted or not text else [{"type": "summary_text", "text": text}]
            head = {"id": mint.id("rs_", 48), "type": "reasoning"}
            return {**head, "encrypted_content": mint.seal(), "summary": shown}
        case Call():
            head = {"id": mint.id("fc_", 48), "type": "function_call", "status": "completed"}
            return {**head, "arguments": part.raw, "call_id": part.id or mint.id("call_"), "name": part.name}
        case Native(value=value):
            return dict(value)


def response(turn: Turn, output: Sequence[Json], body: Mapping[str, object], *, name: str, tokens: Tokens) -> Json:
    """Return the whole answer; settings of the request are repeated in it."""
    reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(turn.stop, turn.stop)
    echoed = {field: usual if body.get(field) is None else body[field] for field, usual in _ECHOED.items()}
    asked, shaped = body.get("reasoning"), body.get("text")
    return {
        "id": name,
        "object": "response",
        "created_at": 1767225600,
        "status": "incomplete" if reason else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": body.get("model"),
        "output": list(output),
        "reasoning": {"effort": None, "summary": None, **(asked if isinstance(asked, dict) else {})},
        "service_tier": "default",
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(shaped if isinstance(shaped, dict) else {})},
        "usage": _usage(tokens),
        **echoed,
    }


def _usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def events(turn: Turn, reply: Mapping[str, object], output: Sequence[Json]) -> list[bytes]:
    """Return the answer as a stream; the last event is the terminal mark."""
    early = {**reply, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    steps: list[Step] = [("response.created", {"response": early}), ("response.in_progress", {"response": early})]
    for index, (part, item) in enumerate(zip(turn.parts, output, strict=True)):
        steps.append(("response.output_item.added", {"item": _open_item(part, item), "output_index": index}))
        place: Json = {"item_id": item.get("id"), "output_index": index}
        steps += ((kind, {**place, **held}) for kind, held in _steps(part, item))
        steps.append(("response.output_item.done", {"item": item, "output_index": index}))
    steps.append((f"response.{reply['status']}", {"response": dict(reply)}))
    return [event({"type": kind, **held, "sequence_number": number}, name=kind) for number, (kind, held) in enumerate(steps)]


def _open_item(part: Part, item: Json) -> Json:
    match part:
        case Text() | Refusal():
            return {**item, "status": "in_progress", "content": []}
        case Thinking():
            return {**item, "summary": []}
        case Call():
            return {**item, "status": "in_progress", "arguments": ""}
        case Native():
            return item


def _steps(part: Part, item: Json) -> Iterator[Step]:
    match part:
        case Text(text=text, pieces=count):
            part_: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
            yield "response.content_part.added", {"content_index": 0, "part": {**part_, "text": ""}}
            for piece in pieces(text, count):
                yield "response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": [], "obfuscation": "xx"}
            yield "response.output_text.done", {"content_index": 0, "logprobs": [], "text": text}
            yield "response.content_part.done", {"content_index": 0, "part": part_}
        case Refusal(text=text, pieces=count):
            yield "response.content_part.added", {"content_index": 0, "part": {"type": "refusal", "refusal": ""}}
            for piece in pieces(text, count):
                yield "response.refusal.delta", {"content_index": 0, "delta": piece}
            yield "response.refusal.done", {"content_index": 0, "refusal": text}
            yield "response.content_part.done", {"content_index": 0, "part": {"type": "refusal", "refusal": text}}
        case Thinking(text=text, pieces=count) if item["summary"]:
            yield from _summary(text, count)
        case Call(pieces=count):
            for piece in pieces(part.raw, count):
                yield "response.function_call_arguments.delta", {"delta": piece, "obfuscation": "xx"}
            yield "response.function_call_arguments.done", {"arguments": part.raw}


def _summary(text: str, count: int) -> Iterator[Step]:
    part: Json = {"type": "summary_text", "text": text}
    yield "response.reasoning_summary_part.added", {"summary_index": 0, "part": {**part, "text": ""}}
    for piece in pieces(text, count):
        yield "response.reasoning_summary_text.delta", {"summary_index": 0, "delta": piece, "obfuscation": "xx"}
    yield "response.reasoning_summary_text.done", {"summary_index": 0, "text": text}
    yield "response.reasoning_summary_part.done", {"summary_index": 0, "part": part}


class _Missing(Exception):
    """Something is referred to that is not stored."""

    def __init__(self, status: int, said: str, *, param: str, code: str | None = None) -> None:
        super().__init__(said)
        self.refused = Refused(
            whole(status, error_body(status, said, param=param, code=code)), (Violation(param, "state.missing", said),)
        )


class ResponsesWire(OpenAIWire):
    """See `Wire`."""

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(settings)
        self._issued = dict(settings.issued)
        self._bound: dict[str, str] = {}  # which reasoning each item was made with
        self._replies: dict[str, Json] = {}
        self._chains: dict[str, list[object]] = {}
        self._conversations: dict[str, list[object]] = {}
        self._items: dict[str, Json] = {}
        self._compactions: set[str] = set()  # what was encrypted in them
        self._cache = CacheMemory()

    def voice(self, *, streamed: bool) -> ResponsesVoice:
        return ResponsesVoice(streamed)

    def held(self, name: str) -> list[object] | None:
        """Return the items up to an answer, or in a conversation; None when they are not stored."""
        found = self._chains.get(name, self._conversations.get(name))
        return None if found is None else list(found)

    def forget(self) -> None:
        """Delete everything that is stored. Encrypted reasoning that the client has stays valid."""
        self._replies, self._chains, self._conversations, self._items = {}, {}, {}, {}

    def serve(self, received: Received) -> HttpAnswer | None:
        if received.method == "POST" and received.route == "/v1/conversations":
            name = self._mint.id("conv_", 48)
            self._conversations[name] = items(received.json.get("items"))
            return whole(200, {"id": name, "object": "conversation", "created_at": 1767225600, "metadata": {}})
        name = received.route.removeprefix("/v1/responses/")
        if received.method == "GET" and name in self._replies:
            return whole(200, self._replies[name])
        return super().serve(received)

    def route(self, received: Received) -> RequestRoute | None:
        return body_route(received, "/v1/responses", COMPACT)

    def judge(self, received: Received, route: RequestRoute) -> Refused | None:
        found = check_request("openai_responses", received.body, issued=self._issued, bound=self._bound)
        found = found or list(self._find_misuse(received))
        if found:
            return refused(found)
        if self._settings.models and route.model not in self._settings.models:
            said = f"The requested model '{route.model}' does not exist."
            return Refused(whole(400, error_body(400, said, param="model", code="model_not_found")))
        try:
            whole_body = self._unfold(received.json)
        except _Missing as missing:
            return missing.refused
        found = check_request("openai_responses", whole_body, issued=self._issued, bound=self._bound)
        return refused(found) if found else None

    def say(self, received: Received, route: RequestRoute, turn: Turn) -> HttpAnswer:
        body = received.json
        if received.route == COMPACT:
            return whole(200, self._compact(received, turn))
        output, name = items_of(turn, self._mint), self._mint.id("resp_", 48)
        reply = response(turn, output, body, name=name, tokens=turn.tokens(received.body))
        self._diagnose(body, reply)
        conversation = _conversation(body)
        if conversation:
            reply["conversation"] = {"id": conversation}
        if self._settings.retention:
            self._remember(body, reply, output)
        else:
            reply["store"] = False
            self._issue(output)
        if turn.forgets:
            self.forget()
        return streamed(events(turn, reply, output), ending=1) if route.streamed else whole(200, reply)

    def _find_misuse(self, received: Received) -> Iterator[Violation]:
        """Yield what is wrong about compactions: fields that their address does not take, and items that are not from here."""
        body = received.json
        for name in body if received.route == COMPACT else ():
            if name not in COMPACTS:
                yield Violation(name, "unknown", f"Unknown parameter: '{name}'.")
        for number, value in enumerate(items(body.get("input"))):
            item = fields(value)
            if item.get("type") == "compaction" and text(item.get("encrypted_content")) not in self._compactions:
                said = "The encrypted content of the compaction could not be verified."
                yield Violation(f"input[{number}].encrypted_content", "compaction.altered", said)

    def _compact(self, received: Received, turn: Turn) -> Json:
        """Return all that the user said, and one item that stands for the rest."""
        sealed = self._mint.seal()
        self._compactions.add(sealed)
        said = [item for value in items(received.json.get("input")) if (item := fields(value)).get("role") == "user"]
        users = [{"id": self._mint.id("msg_", 48), "type": "message", "status": "completed", **item} for item in said]
        made = {"id": self._mint.id("cmp_", 48), "type": "compaction", "encrypted_content": sealed}
        usage = _usage(turn.tokens(received.body))
        name = self._mint.id("resp_", 48)
        return {"id": name, "object": "response.compaction", "created_at": 1767225600, "output": [*users, made], "usage": usage}

    def _diagnose(self, body: Mapping[str, object], reply: Json) -> None:
        """Add why the prompt cache was missed, against the answer that the request names."""
        names = ("model", "prompt_cache_key", "tools", "text", "reasoning", "service_tier")
        given = body.get("input")
        said = [given] if isinstance(given, str) else items(given)
        request = RememberedRequest.of({name: body.get(name) for name in names}, [body.get("instructions"), *said])
        self._cache.remember(text(reply["id"]), request)
        previous = text(fields(body.get("prompt_cache_options")).get("comparison_response_id"))
        if not previous:
            return
        found = self._cache.compare(previous, request, "input")
        if found is None:
            reply["prompt_cache_diagnostics"] = {"type": "comparison_response_not_found"}
        elif not found[0]:
            reply["prompt_cache_diagnostics"] = {"type": "cache_hit"}
        else:
            what = {"text": "text_format", "reasoning": "reasoning_effort"}.get(found[0], found[0])
            told = {"reason": f"{what}_changed", "cache_missed_tokens": found[1]}
            reply["prompt_cache_diagnostics"] = {"type": "cache_miss", **told}

    def _issue(self, output: Sequence[Json]) -> None:
        reasoning = ""
        for item in output:
            if item.get("type") == "reasoning":
                self._issued[text(item.get("encrypted_content"))] = ""
                reasoning = text(item.get("id"))
            elif reasoning:
                self._bound[text(item.get("id"))] = reasoning

    def _remember(self, body: Mapping[str, object], reply: Json, output: Sequence[Json]) -> None:
        self._issue(output)
        conversation = _conversation(body)
        if body.get("store") is False and not conversation:
            return
        taken = [*items(self._unfold(body).get("input")), *output]
        if conversation:
            self._conversations[conversation] = taken
        if body.get("store") is not False:
            self._replies[text(reply["id"])] = reply
            self._chains[text(reply["id"])] = taken
            self._items |= {text(item.get("id")): item for item in output}

    def _unfold(self, body: Mapping[str, object]) -> Json:
        """Return the request with the stored items in its input, as a stateless client would send it."""
        given = body.get("input")
        said: list[object] = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
        told = {name: value for name, value in body.items() if name not in ("previous_response_id", "conversation")}
        return {**told, "input": [*self._history(body), *self._resolve(said)]}

    def _history(self, body: Mapping[str, object]) -> list[object]:
        previous, conversation = text(body.get("previous_response_id")), _conversation(body)
        if (previous or conversation) and not self._settings.retention:
            what, param = ("Previous response", "previous_response_id") if previous else ("Conversation ID", "conversation")
            said = f"{what} cannot be used for this organization due to Zero Data Retention."
            raise _Missing(400, said, param=param, code="unsupported_parameter")
        if previous and previous not in self._chains:
            said = f"Previous response with id '{previous}' not found."
            raise _Missing(400, said, param="previous_response_id", code="previous_response_not_found")
        if conversation and conversation not in self._conversations:
            raise _Missing(404, f"Conversation with id '{conversation}' not found.", param="conversation")
        return self._chains.get(previous, []) + self._conversations.get(conversation, [])

    def _resolve(self, said: Sequence[object]) -> Iterator[object]:
        for value in said:
            item = fields(value)
            if item.get("type") != "item_reference":
                yield value
                continue
            name = text(item.get("id"))
            if name not in self._items:
                raise _Missing(404, f"Item with id '{name}' not found.", param="input")
            yield self._items[name]


def _conversation(body: Mapping[str, object]) -> str:
    given = body.get("conversation")
    return given if isinstance(given, str) else text(fields(given).get("id"))
