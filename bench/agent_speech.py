"""What the mock server of `agents.py` says: words or one tool call, whole or streamed, on every wire. Made up, always the same.

Ids and the size of the prompt are placeholders here. `fill` puts a fresh id in their place, as no provider uses one twice, and
the tokens of the request, because a conversation that grows while its reported size does not looks as if the server cut it.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise

from bench.streams import REPLY_ID, compact, stream_of, words

__all__ = ["ARGUMENT", "ID", "MODELS", "RESULT", "TOKENS", "TOOL", "WIRES", "answer", "count_tokens", "events", "fill"]

ID = REPLY_ID[:16].encode()
TOOL = "lookup"
ARGUMENT = "item"
RESULT = ("Record found: the load lies on the third shelf, behind the plough, and nobody has asked for it since spring. " * 3)[
    :300
]
PLACE = ID.decode()
TOKENS = b"9876543"
CACHED = 1024
PROMPT_TOKENS = re.compile(rb'("(?:input_tokens|prompt_tokens|promptTokenCount)":) ?\d+')
MODELS = {
    "anthropic_messages": "claude-sonnet-4-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
    "gemini": "gemini-2.5-flash",
}
"""Who speaks: models that everybody has a row, a profile and a price for."""
WIRES = tuple(MODELS)

Json = dict[str, object]


def events(wire: str, *, deltas: int, fragments: int) -> list[bytes]:
    """A streamed answer, event by event: so many pieces of text or, with `fragments`, one call in so many pieces."""
    made = STREAMED[wire](fragments) if fragments else stream_of(wire, "text", deltas).events
    return [_named(wire, event) for event in made]


def answer(wire: str, *, deltas: int, fragments: int) -> bytes:
    """The same as one JSON text."""
    return _named(wire, compact(WHOLE[wire](deltas, fragments)))


def _named(wire: str, text: bytes) -> bytes:
    return PROMPT_TOKENS.sub(rb"\g<1>" + TOKENS, text.replace(b"a-model", MODELS[wire].encode()))


def fill(text: bytes, id: bytes, body: bytes) -> bytes:
    """Put this id and the tokens of this request in their places. The size of the text stays the same."""
    return text.replace(ID, id).replace(TOKENS, count_tokens(body))


def count_tokens(body: bytes) -> bytes:
    """Return the size of this request, never below what the answers say was in the cache: no provider reports that."""
    return b"%-7d" % (CACHED + len(body) // 3)


def arguments(fragments: int) -> str:
    """The arguments of a call that is streamed in so many pieces."""
    return json.dumps({ARGUMENT: f"{PLACE} " + "of the plough " * max(0, fragments - 2)})


def cut(fragments: int) -> list[str]:
    """The arguments in pieces of about the same size."""
    text = arguments(fragments)
    ends = [len(text) * number // fragments for number in range(fragments + 1)]
    return [text[start:end] for start, end in pairwise(ends)]


def _sse(kind: str, fields: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), compact({"type": kind, **fields}))


# Anthropic Messages.


def _anthropic(content: list[Json], stop: str | None) -> Json:
    usage = {"input_tokens": 690, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 512, "output_tokens": 8}
    message: Json = {"model": "a-model", "id": f"msg_{REPLY_ID}", "type": "message", "role": "assistant", "content": content}
    return {**message, "stop_reason": stop, "stop_sequence": None, "usage": {**usage, "service_tier": "standard"}}


def _anthropic_call() -> Json:
    return {"type": "tool_use", "id": f"toolu_{PLACE}", "name": TOOL, "input": {}}


def _anthropic_whole(deltas: int, fragments: int) -> Json:
    if not fragments:
        return _anthropic([{"type": "text", "text": "".join(words(deltas, 6))}], "end_turn")
    return _anthropic([{**_anthropic_call(), "input": json.loads(arguments(fragments))}], "tool_use")


def _anthropic_streamed(fragments: int) -> Iterator[bytes]:
    yield _sse("message_start", {"message": _anthropic([], None)})
    yield _sse("content_block_start", {"index": 0, "content_block": _anthropic_call()})
    for text in cut(fragments):
        yield _sse("content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": text}})
    yield _sse("content_block_stop", {"index": 0})
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    yield _sse("message_delta", {"delta": stop, "usage": {"input_tokens": 690, "output_tokens": 20}})
    yield _sse("message_stop", {})


# OpenAI Chat Completions.


def _chat(kind: str, choices: list[Json], usage: Json | None) -> Json:
    named = {"id": f"chatcmpl-{REPLY_ID[:29]}", "object": kind, "created": 1754688908, "model": "a-model"}
    return {**named, "service_tier": "default", "system_fingerprint": "fp_ff25b2783a", "choices": choices, "usage": usage}


def _chat_usage() -> Json:
    details = {"cached_tokens": CACHED, "audio_tokens": 0}
    counts = {"prompt_tokens": 1243, "completion_tokens": 20, "total_tokens": 1263}
    return {**counts, "prompt_tokens_details": details, "completion_tokens_details": {"reasoning_tokens": 0}}


def _chat_call(text: str) -> Json:
    return {"id": f"call_{PLACE}", "type": "function", "function": {"name": TOOL, "arguments": text}}


def _chat_whole(deltas: int, fragments: int) -> Json:
    message: Json = {"role": "assistant", "content": None if fragments else "".join(words(deltas)), "refusal": None}
    if fragments:
        message["tool_calls"] = [_chat_call(arguments(fragments))]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if fragments else "stop"}
    return _chat("chat.completion", [choice], _chat_usage())


def _chat_chunk(delta: Json, finish: str | None = None) -> bytes:
    choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: %s\n\n" % compact(_chat("chat.completion.chunk", [choice], None))


def _chat_streamed(fragments: int) -> Iterator[bytes]:
    yield _chat_chunk({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **_chat_call("")}], "refusal": None})
    for text in cut(fragments):
        yield _chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    yield _chat_chunk({}, "tool_calls")
    yield b"data: %s\n\n" % compact(_chat("chat.completion.chunk", [], _chat_usage()))
    yield b"data: [DONE]\n\n"


# OpenAI Responses.


def _response(status: str, output: list[Json]) -> Json:
    response: Json = {"id": f"resp_{REPLY_ID}", "object": "response", "created_at": 1768775269, "status": status}
    response |= {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "model": "a-model"}
    response |= {"output": output, "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": []}
    usage: Json = {"input_tokens": 1243, "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens": 20}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1263}
    return {**response, "top_p": 1.0, "store": False, "usage": usage if status == "completed" else None}


def _response_call(status: str, text: str) -> Json:
    item: Json = {"id": f"fc_{REPLY_ID}", "type": "function_call", "status": status, "arguments": text}
    return {**item, "call_id": f"call_{PLACE}", "name": TOOL}


def _response_whole(deltas: int, fragments: int) -> Json:
    if fragments:
        return _response("completed", [_response_call("completed", arguments(fragments))])
    content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": "".join(words(deltas))}]
    item: Json = {"id": f"msg_{REPLY_ID}", "type": "message", "status": "completed", "role": "assistant", "content": content}
    return _response("completed", [item])


def _response_streamed(fragments: int) -> Iterator[bytes]:
    place: Json = {"item_id": f"fc_{REPLY_ID}", "output_index": 0}
    done = _response_call("completed", arguments(fragments))
    told: list[tuple[str, Json]] = [
        ("response.created", {"response": _response("in_progress", [])}),
        ("response.in_progress", {"response": _response("in_progress", [])}),
        ("response.output_item.added", {"output_index": 0, "item": _response_call("in_progress", "")}),
        *(("response.function_call_arguments.delta", {**place, "delta": text}) for text in cut(fragments)),
        ("response.function_call_arguments.done", {**place, "name": TOOL, "arguments": arguments(fragments)}),
        ("response.output_item.done", {"output_index": 0, "item": done}),
        ("response.completed", {"response": _response("completed", [done])}),
    ]
    return (_sse(kind, {"sequence_number": number, **fields}) for number, (kind, fields) in enumerate(told))


# Gemini: a call always comes whole.


def _gemini_whole(deltas: int, fragments: int) -> Json:
    call: Json = {"functionCall": {"name": TOOL, "args": json.loads(arguments(fragments))}} if fragments else {}
    part = call or {"text": "".join(words(deltas, 12))}
    candidate = {"content": {"parts": [part], "role": "model"}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 55, "candidatesTokenCount": 20, "totalTokenCount": 75}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "a-model", "responseId": REPLY_ID[:23]}


def _gemini_streamed(fragments: int) -> Iterator[bytes]:
    yield b"data: %s\r\n\r\n" % compact(_gemini_whole(0, fragments))


WHOLE = {
    "anthropic_messages": _anthropic_whole,
    "openai_chat": _chat_whole,
    "openai_responses": _response_whole,
    "gemini": _gemini_whole,
}
STREAMED = {
    "anthropic_messages": _anthropic_streamed,
    "openai_chat": _chat_streamed,
    "openai_responses": _response_streamed,
    "gemini": _gemini_streamed,
}
