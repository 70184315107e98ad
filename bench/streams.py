"""Streamed answers that look like real ones, for each wire and each shape. Made up, the same bytes on every run.

Three shapes: `text` (words), `arguments` (tool calls in fragments; where calls come whole, one after every so many words) and
`reasoning` (thinking, then a word). Line ends, padding, field order and the fields nobody reads are as the providers send them.
"""

import json
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import msgspec

__all__ = ["SHAPES", "STREAMS", "Stream", "stream_of"]

SHAPES = ("text", "arguments", "reasoning")
WORDS = (
    "The| harness| pulls| with| whichever| horse| is| in| front|,| and| the| load| does| not| notice|.\n\n|-| **Even|er**|:"
    '| a| bar| \u2014| of| wood|,| as| old| as| the| plough|.| It| says| "gee"| or| "haw"|;| caf\u00e9|s| answer| too|.\n'
).split("|")
FRAGMENTS = '{"|path|":| "|src|/|notes|.md|",| "|lines|":| [|12|,| |48|],| "|text|":| "|one|\\n|two|"}'.split("|")
ARGUMENTS = "".join(FRAGMENTS)
SIGNATURE = "EuoCCkYICBgCKkDPqznn" * 24
REPLY_ID = "0a4bc5e23769d65c00696d5e657050819db65effaff84247"

Events = Iterator[bytes]


class Stream(msgspec.Struct, frozen=True):
    """One streamed answer. `deltas` counts the events that carry a piece of the shape."""

    wire: str
    shape: str
    events: tuple[bytes, ...]
    deltas: int

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self.events)

    def chunks(self, size: int) -> list[bytes]:
        """The bytes as a socket hands them out: pieces of this many bytes; one event each for 0."""
        if not size:
            return list(self.events)
        data = self.data
        return [data[start : start + size] for start in range(0, len(data), size)]


def stream_of(wire: str, shape: str, deltas: int) -> Stream:
    """A stream with this many deltas, or a few more: the last call is complete."""
    if shape == "arguments":
        deltas = -(-deltas // len(FRAGMENTS)) * len(FRAGMENTS)
    return Stream(wire, shape, tuple(STREAMS[wire](shape, deltas)), deltas)


def words(count: int, size: int = 1) -> Iterator[str]:
    """Pieces of text, `size` words each."""
    source = cycle(WORDS)
    return ("".join(islice(source, size)) for _ in range(count))


def fragments(count: int) -> Iterator[tuple[int, str]]:
    """Pieces of arguments with the number of their call: the text of each call is cut the same way."""
    return ((number // len(FRAGMENTS), FRAGMENTS[number % len(FRAGMENTS)]) for number in range(count))


def compact(value: object) -> bytes:
    """JSON without blanks, as most providers write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# Anthropic Messages: named events, padded with blanks before the last brace.


def anthropic(shape: str, count: int) -> Events:
    """A turn of one block, or of one call after the other."""
    usage = {"input_tokens": 690, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 512, "output_tokens": 8}
    message = {"model": "a-model", "id": f"msg_{REPLY_ID}", "type": "message", "role": "assistant", "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": {**usage, "service_tier": "standard"}}
    yield _padded("message_start", {"message": start}, 4)
    yield b'event: ping\ndata: {"type": "ping"}\n\n'
    yield from ANTHROPIC[shape](count)
    reason = "tool_use" if shape == "arguments" else "end_turn"
    yield _padded("message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}, 9)
    yield _padded("message_stop", {}, 7)


def _padded(kind: str, fields: dict[str, object], blanks: int) -> bytes:
    data = compact({"type": kind, **fields})
    return b"event: %s\ndata: %s%s}\n\n" % (kind.encode(), data[:-1], b" " * (blanks % 15))


def _block(index: int, block: dict[str, object], deltas: Iterator[dict[str, object]]) -> Events:
    yield _padded("content_block_start", {"index": index, "content_block": block}, 5)
    for number, delta in enumerate(deltas):
        yield _padded("content_block_delta", {"index": index, "delta": delta}, number * 7)
    yield _padded("content_block_stop", {"index": index}, 3)


def _anthropic_text(count: int) -> Events:
    deltas: Iterator[dict[str, object]] = ({"type": "text_delta", "text": text} for text in words(count, 6))
    return _block(0, {"type": "text", "text": ""}, deltas)


def _anthropic_arguments(count: int) -> Events:
    pieces = list(fragments(count))
    for call in range(pieces[-1][0] + 1):
        own: list[dict[str, object]] = [
            {"type": "input_json_delta", "partial_json": text} for number, text in pieces if number == call
        ]
        block: dict[str, object] = {"type": "tool_use", "id": f"toolu_{call:024d}", "name": "write_note", "input": {}}
        yield from _block(call, block, iter(own))


def _anthropic_reasoning(count: int) -> Events:
    def deltas() -> Iterator[dict[str, object]]:
        for text in words(count, 4):
            yield {"type": "thinking_delta", "thinking": text}
        yield {"type": "signature_delta", "signature": SIGNATURE}

    yield from _block(0, {"type": "thinking", "thinking": "", "signature": ""}, deltas())
    yield from _block(1, {"type": "text", "text": ""}, iter([{"type": "text_delta", "text": "Yes."}]))


ANTHROPIC: dict[str, Callable[[int], Events]] = {
    "text": _anthropic_text,
    "arguments": _anthropic_arguments,
    "reasoning": _anthropic_reasoning,
}


# OpenAI Responses: named, numbered events; whole items again at their end.


class _Numbered:
    """Writes events with a rising number."""

    def __init__(self) -> None:
        self.number = -1

    def event(self, kind: str, **fields: object) -> bytes:
        self.number += 1
        data = compact({"type": kind, "sequence_number": self.number, **fields})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


def responses(shape: str, count: int) -> Events:
    """A response of one item, or of one call after the other."""
    out = _Numbered()
    response: dict[str, object] = {"id": f"resp_{REPLY_ID}", "object": "response", "created_at": 1768775269}
    response |= {"status": "in_progress", "error": None, "incomplete_details": None, "instructions": "Be brief."}
    response |= {"model": "a-model", "output": [], "parallel_tool_calls": True, "store": False, "temperature": 1.0}
    response |= {"tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": None, "metadata": {}}
    yield out.event("response.created", response=response)
    yield out.event("response.in_progress", response=response)
    items: list[dict[str, object]] = []
    yield from RESPONSES[shape](out, count, items)
    usage = {"input_tokens": 1243, "input_tokens_details": {"cached_tokens": 1024}, "output_tokens": count}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1243 + count}
    yield out.event("response.completed", response={**response, "status": "completed", "output": items, "usage": usage})


def _responses_text(out: _Numbered, count: int, items: list[dict[str, object]]) -> Events:
    place: dict[str, object] = {"item_id": f"msg_{REPLY_ID}", "output_index": len(items), "content_index": 0}
    item: dict[str, object] = {"id": f"msg_{REPLY_ID}", "type": "message", "status": "in_progress", "role": "assistant"}
    yield out.event("response.output_item.added", output_index=len(items), item={**item, "content": []})
    empty = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    yield out.event("response.content_part.added", **place, part=empty)
    said = list(words(count))
    for number, text in enumerate(said):
        yield out.event("response.output_text.delta", **place, delta=text, logprobs=[], obfuscation=REPLY_ID[: number % 16])
    whole = {**empty, "text": "".join(said)}
    yield out.event("response.output_text.done", **place, text="".join(said), logprobs=[])
    yield out.event("response.content_part.done", **place, part=whole)
    done = {**item, "status": "completed", "content": [whole]}
    yield out.event("response.output_item.done", output_index=len(items), item=done)
    items.append(done)


def _responses_arguments(out: _Numbered, count: int, items: list[dict[str, object]]) -> Events:
    pieces = list(fragments(count))
    for call in range(pieces[-1][0] + 1):
        place: dict[str, object] = {"item_id": f"fc_{call:048d}", "output_index": call}
        item: dict[str, object] = {"id": f"fc_{call:048d}", "type": "function_call", "status": "in_progress"}
        item |= {"arguments": "", "call_id": f"call_{call:024d}", "name": "write_note"}
        yield out.event("response.output_item.added", output_index=call, item=item)
        own = [text for number, text in pieces if number == call]
        for number, text in enumerate(own):
            padding = REPLY_ID[: number % 16]
            yield out.event("response.function_call_arguments.delta", **place, delta=text, obfuscation=padding)
        yield out.event("response.function_call_arguments.done", **place, arguments="".join(own))
        done = {**item, "status": "completed", "arguments": "".join(own)}
        yield out.event("response.output_item.done", output_index=call, item=done)
        items.append(done)


def _responses_reasoning(out: _Numbered, count: int, items: list[dict[str, object]]) -> Events:
    place: dict[str, object] = {"item_id": f"rs_{REPLY_ID}", "output_index": 0, "summary_index": 0}
    item: dict[str, object] = {"id": f"rs_{REPLY_ID}", "type": "reasoning", "encrypted_content": SIGNATURE}
    yield out.event("response.output_item.added", output_index=0, item={**item, "summary": []})
    yield out.event("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
    thought = list(words(count))
    for number, text in enumerate(thought):
        yield out.event("response.reasoning_summary_text.delta", **place, delta=text, obfuscation=REPLY_ID[: number % 16])
    part = {"type": "summary_text", "text": "".join(thought)}
    yield out.event("response.reasoning_summary_text.done", **place, text="".join(thought))
    yield out.event("response.reasoning_summary_part.done", **place, part=part)
    done: dict[str, object] = {**item, "summary": [part]}
    yield out.event("response.output_item.done", output_index=0, item=done)
    items.append(done)
    yield from _responses_text(out, 1, items)


RESPONSES: dict[str, Callable[[_Numbered, int, list[dict[str, object]]], Events]] = {
    "text": _responses_text,
    "arguments": _responses_arguments,
    "reasoning": _responses_reasoning,
}


# OpenAI Chat Completions: nameless chunks, each with the whole envelope, and a closing word.


def chat(shape: str, count: int) -> Events:
    """One choice."""
    yield _chunk({"role": "assistant", "content": "", "refusal": None}, 13)
    for number, delta in enumerate(CHAT[shape](count)):
        yield _chunk(delta, number * 5)
    yield _chunk({}, 10, "tool_calls" if shape == "arguments" else "stop")
    usage = {"prompt_tokens": 1243, "completion_tokens": count, "total_tokens": 1243 + count}
    details = {"cached_tokens": 1024, "audio_tokens": 0}
    yield _enveloped([], {**usage, "prompt_tokens_details": details, "completion_tokens_details": {"reasoning_tokens": 0}}, 0)
    yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, object], padding: int, finish: str | None = None) -> bytes:
    return _enveloped([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], None, padding)


def _enveloped(choices: list[dict[str, object]], usage: dict[str, object] | None, padding: int) -> bytes:
    envelope: dict[str, object] = {"id": f"chatcmpl-{REPLY_ID[:29]}", "object": "chat.completion.chunk", "created": 1754688908}
    envelope |= {"model": "a-model", "service_tier": "default", "system_fingerprint": "fp_ff25b2783a", "choices": choices}
    return b"data: %s\n\n" % compact({**envelope, "usage": usage, "obfuscation": REPLY_ID[: padding % 16]})


def _chat_text(count: int) -> Iterator[dict[str, object]]:
    return ({"content": text} for text in words(count))


def _chat_arguments(count: int) -> Iterator[dict[str, object]]:
    begun = -1
    for call, text in fragments(count):
        if call != begun:
            begun = call
            named = {"name": "write_note", "arguments": ""}
            yield {"tool_calls": [{"index": call, "id": f"call_{call:024d}", "type": "function", "function": named}]}
        yield {"tool_calls": [{"index": call, "function": {"arguments": text}}]}


def _chat_reasoning(count: int) -> Iterator[dict[str, object]]:
    for text in words(count):
        yield {"content": None, "reasoning_content": text}
    yield {"content": "Yes."}


CHAT: dict[str, Callable[[int], Iterator[dict[str, object]]]] = {
    "text": _chat_text,
    "arguments": _chat_arguments,
    "reasoning": _chat_reasoning,
}


# Gemini: whole answers in small, CRLF line ends, blanks after colons; calls are never cut up.


def gemini(shape: str, count: int) -> Events:
    """One candidate."""
    for number, part in enumerate(GEMINI[shape](count)):
        yield _answer(part, number, "")
    yield _answer({"text": ""}, count, "STOP")


def _answer(part: dict[str, object], number: int, finish: str) -> bytes:
    candidate: dict[str, object] = {"content": {"parts": [part], "role": "model"}}
    candidate |= {"finishReason": finish, "index": 0} if finish else {"index": 0}
    usage = {"promptTokenCount": 55, "candidatesTokenCount": number, "totalTokenCount": 55 + number}
    details = [{"modality": "TEXT", "tokenCount": 55}]
    value = {"candidates": [candidate], "usageMetadata": {**usage, "promptTokensDetails": details}}
    named = {"modelVersion": "a-model", "responseId": REPLY_ID[:23]}
    return b"data: %s\r\n\r\n" % json.dumps({**value, **named}, separators=(",", ": "), ensure_ascii=False).encode()


def _gemini_text(count: int) -> Iterator[dict[str, object]]:
    return ({"text": text} for text in words(count, 12))


def _gemini_arguments(count: int) -> Iterator[dict[str, object]]:
    for number, text in enumerate(words(count, 12), 1):
        signed = {"thoughtSignature": SIGNATURE} if number == len(FRAGMENTS) else {}
        call: dict[str, object] = {"functionCall": {"name": "write_note", "args": json.loads(ARGUMENTS)}, **signed}
        yield {"text": text} if number % len(FRAGMENTS) else call


def _gemini_reasoning(count: int) -> Iterator[dict[str, object]]:
    for text in words(count, 20):
        yield {"text": text, "thought": True}
    yield {"text": "Yes."}


GEMINI: dict[str, Callable[[int], Iterator[dict[str, object]]]] = {
    "text": _gemini_text,
    "arguments": _gemini_arguments,
    "reasoning": _gemini_reasoning,
}

STREAMS: dict[str, Callable[[str, int], Events]] = {
    "anthropic_messages": anthropic,
    "openai_responses": responses,
    "openai_chat": chat,
    "gemini": gemini,
}
