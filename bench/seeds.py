"""Valid inputs to start fuzzing from: made-up streams, requests of our own, and the golden cases of the tests."""

import json
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec

from bench.streams import SHAPES, STREAMS, stream_of
from bench.talk import ask_of, quirks_of, turns
from evener.transcript.json import dump
from evener.wire import CODECS

__all__ = ["Seeds", "seeds", "vocabulary"]

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
BODIES: dict[str, dict[str, object]] = {
    "openai_chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "a-model",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "The notes are in order.",
                    "refusal": None,
                    "reasoning_content": "Two notes are missing.",
                    "annotations": [{"type": "url_citation", "url_citation": {"url": "a://b", "end_index": 3}}],
                    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}},
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "Two notes are missing.", "thought": True},
                        {"text": "The notes are in order.", "thoughtSignature": "c2lnbmVk"},
                        {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2lnbmVk"},
                        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                    ],
                },
                "finishReason": "STOP",
                "index": 0,
                "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}],
                "groundingMetadata": {
                    "groundingChunks": [{"web": {"uri": "a://b", "title": "A page"}}],
                    "groundingSupports": [{"segment": {"startIndex": 0, "endIndex": 3}, "groundingChunkIndices": [0]}],
                },
            }
        ],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "thoughtsTokenCount": 2},
        "modelVersion": "a-model",
        "responseId": "1",
    },
}
"""Whole answers, for wires that the golden cases do not cover well."""

TURNS = 3
DELTAS = 4


class Seeds(msgspec.Struct, frozen=True):
    """Valid inputs of one wire, by what reads them."""

    stream: tuple[bytes, ...]
    body: tuple[bytes, ...]
    request: tuple[bytes, ...]
    fault: tuple[bytes, ...]
    document: tuple[bytes, ...]


@cache
def seeds(wire: str) -> Seeds:
    """The valid inputs of a wire, in a fixed order."""
    talk = list(islice(turns(wire), TURNS))
    requests = [CODECS[wire].encode(ask_of(wire, turn.transcript), quirks_of(wire), None).body for turn in talk]
    streams = [stream_of(wire, shape, DELTAS).data for shape in SHAPES] if wire in STREAMS else []
    return Seeds(
        stream=(*streams, *_golden(wire, "response.sse")),
        body=(*([json.dumps(BODIES[wire]).encode()] if wire in BODIES else ()), *_golden(wire, "response.json")),
        request=(*requests, *_golden(wire, "request.json")),
        fault=_faults(wire),
        document=tuple(dump(turn.transcript) for turn in talk),
    )


def _golden(wire: str, name: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((GOLDEN / wire).glob(f"*/{name}")))


def _faults(wire: str) -> tuple[bytes, ...]:
    plain = b'{"type":"error","error":{"type":"overloaded_error","message":"Busy","code":529,"status":"UNAVAILABLE"}}'
    return (plain, b"[%s]" % plain, b"<html>Bad gateway</html>", *_golden(wire, "error.json"))


@cache
def vocabulary() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys, and the short texts, that occur in the valid inputs of all wires."""
    keys: set[str] = set()
    texts: set[str] = set()
    for wire in CODECS:
        for data in (*seeds(wire).body, *seeds(wire).request, *_events(wire)):
            _gather(json.loads(data), keys, texts)
    return tuple(sorted(keys)), tuple(sorted(texts))


def _events(wire: str) -> list[bytes]:
    lines = [line for stream in seeds(wire).stream for line in stream.splitlines() if line.startswith(b"data: {")]
    return [line[6:] for line in lines if _is_json(line[6:])]


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _gather(value: object, keys: set[str], texts: set[str]) -> None:
    match value:
        case dict():
            keys.update(value)
            for inner in value.values():
                _gather(inner, keys, texts)
        case list():
            for inner in value:
                _gather(inner, keys, texts)
        case str() if len(value) < 40:
            texts.add(value)
