"""A turn in the words of the Responses API: items, a whole response, events. Sheet sections 3 and 8 to 10. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.testing.servers.answer import event, json_bytes
from evener.testing.servers.mint import Mint
from evener.testing.servers.openai_errors import error_body
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Tokens, Turn, pieces

__all__ = ["ResponsesVoice", "events", "items_of", "response"]

Json = dict[str, object]
Step = tuple[str, Json]
"""An event's type and its fields, not yet numbered."""

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
    """The output items, complete; but where the answer breaks off, the last of them is not."""
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
    """The whole answer; settings of the request are repeated in it."""
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
    """The answer as a stream; the last event is the terminal mark."""
    early = {**reply, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    steps: list[Step] = [("response.created", {"response": early}), ("response.in_progress", {"response": early})]
    for index, (part, item) in enumerate(zip(turn.parts, output, strict=True)):
        steps.append(("response.output_item.added", {"item": _opened(part, item), "output_index": index}))
        place: Json = {"item_id": item.get("id"), "output_index": index}
        steps += ((kind, {**place, **held}) for kind, held in _steps(part, item))
        steps.append(("response.output_item.done", {"item": item, "output_index": index}))
    steps.append((f"response.{reply['status']}", {"response": dict(reply)}))
    return [event({"type": kind, **held, "sequence_number": number}, name=kind) for number, (kind, held) in enumerate(steps)]


def _opened(part: Part, item: Json) -> Json:
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
