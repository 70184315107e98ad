"""Answers of every wire, event by event, each with its parts told apart: what it says, why it stopped, and its end mark."""

import json
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
KINDS = ("text", "reasoning", "call", "hosted", "all")
CALL = ("c1", "pay", '{"amount":1}')


@dataclass(frozen=True)
class Streamed:
    """A stream: the events before its reason to stop, those that give it, and the end mark alone."""

    said: tuple[Json, ...]
    stop: tuple[Json, ...]
    end: tuple[Json | str, ...]
    closes: tuple[int, ...] = ()
    """Which events close a call; without one of them it is half a call, whatever is said later."""

    @property
    def whole(self) -> tuple[Json | str, ...]:
        return (*self.said, *self.stop, *self.end)


def data(events: tuple[Json | str, ...]) -> bytes:
    """The events as a server sends them."""
    return "".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in events).encode()


def _wanted(kind: str) -> tuple[str, ...]:
    return ("reasoning", "text", "hosted", "call") if kind == "all" else (kind,)


def anthropic(kind: str) -> Streamed:
    """Messages."""
    blocks: dict[str, tuple[Json, list[Json]]] = {
        "text": ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Hel"}, {"type": "text_delta", "text": "lo"}]),
        "reasoning": (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}],
        ),
        "call": (
            {"type": "tool_use", "id": CALL[0], "name": CALL[1], "input": {}},
            [{"type": "input_json_delta", "partial_json": part} for part in ("", CALL[2][:5], CALL[2][5:])],
        ),
        "hosted": (
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"query":"x"}'}],
        ),
    }
    message = {"type": "message", "id": "m1", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 1}}
    said: list[Json] = [{"type": "message_start", "message": message}]
    closes = []
    for index, name in enumerate(_wanted(kind)):
        block, deltas = blocks[name]
        said.append({"type": "content_block_start", "index": index, "content_block": block})
        said += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        said.append({"type": "content_block_stop", "index": index})
        closes += [len(said) - 1] if name in ("call", "hosted") else []
    reason = "tool_use" if kind in ("call", "all") else "end_turn"
    stop = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}
    return Streamed(tuple(said), (stop,), ({"type": "message_stop"},), tuple(closes))


def chat(kind: str) -> Streamed:
    """Chat Completions."""
    call: list[Json] = [{"index": 0, "id": CALL[0], "type": "function", "function": {"name": CALL[1], "arguments": ""}}]
    pieces: dict[str, list[Json]] = {
        "text": [{"content": "Hel"}, {"content": "lo"}],
        "reasoning": [{"reasoning_content": "Hm."}],
        "call": [
            {"tool_calls": call},
            *({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in (CALL[2][:5], CALL[2][5:])),
        ],
        "hosted": [{"executed_tools": [{"index": 0, "type": "search", "output": "x"}]}],
    }

    def chunk(delta: Json, **more: object) -> Json:
        return {"id": "m1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}

    said = [chunk({"role": "assistant", "content": ""}), *(chunk(one) for name in _wanted(kind) for one in pieces[name])]
    stop = chunk({}, finish_reason="tool_calls" if kind in ("call", "all") else "stop")
    return Streamed(tuple(said), (stop,), ("[DONE]",))


def responses(kind: str) -> Streamed:
    """Responses."""
    items: dict[str, tuple[Json, Json, str, list[str]]] = {
        "text": (
            {"type": "message", "id": "t1", "role": "assistant", "status": "in_progress", "content": []},
            {"status": "completed", "content": [{"type": "output_text", "text": "Hello", "annotations": []}]},
            "output_text",
            ["Hel", "lo"],
        ),
        "reasoning": (
            {"type": "reasoning", "id": "r1", "summary": []},
            {"summary": [{"type": "summary_text", "text": "Hm."}]},
            "reasoning_summary_text",
            ["Hm."],
        ),
        "call": (
            {
                "type": "function_call",
                "id": "f1",
                "status": "in_progress",
                "call_id": CALL[0],
                "name": CALL[1],
                "arguments": "",
            },
            {"status": "completed", "arguments": CALL[2]},
            "function_call_arguments",
            [CALL[2][:5], CALL[2][5:]],
        ),
        "hosted": (
            {"type": "web_search_call", "id": "w1", "status": "in_progress"},
            {"status": "completed", "action": {"type": "search", "query": "x"}},
            "",
            [],
        ),
    }
    said: list[Json] = [{"type": "response.created", "response": {"id": "m1", "model": "m", "status": "in_progress"}}]
    closes = []
    for index, name in enumerate(_wanted(kind)):
        item, more, event, deltas = items[name]
        place = {"output_index": index, "item_id": item["id"]}
        said.append({"type": "response.output_item.added", **place, "item": item})
        said += ({"type": f"response.{event}.delta", **place, "content_index": 0, "delta": one} for one in deltas)
        said.append({"type": "response.output_item.done", **place, "item": {**item, **more}})
        closes += [len(said) - 1] if name in ("call", "hosted") else []
    last = {"id": "m1", "object": "response", "status": "completed", "model": "m", "output": []}
    return Streamed(tuple(said), ({"type": "response.completed", "response": last},), ("[DONE]",), tuple(closes))


def gemini(kind: str) -> Streamed:
    """Gemini."""
    parts: dict[str, list[Json]] = {
        "text": [{"text": "Hel"}, {"text": "lo"}],
        "reasoning": [{"text": "Hm.", "thought": True}],
        "call": [{"functionCall": {"id": CALL[0], "name": CALL[1], "args": json.loads(CALL[2])}}],
        "hosted": [{"executableCode": {"language": "PYTHON", "code": "1"}}],
    }

    def chunk(*parts: Json, **more: object) -> Json:
        return {"responseId": "m1", "modelVersion": "m", "candidates": [{"content": {"parts": list(parts)}, **more}]}

    said = [chunk(part) for name in _wanted(kind) for part in parts[name]]
    return Streamed(tuple(said), (chunk(finishReason="STOP"),), ())


STREAMS = {"anthropic_messages": anthropic, "openai_responses": responses, "openai_chat": chat, "gemini": gemini}


def body(wire: str, kind: str, *, stopped: object = None) -> Json:
    """The same answer as one document. Without `stopped` it says why it stopped, else that stands in its place."""
    wanted = _wanted(kind)
    why: dict[str, str] = {
        "openai_chat": "stop",
        "anthropic_messages": "end_turn",
        "gemini": "STOP",
        "openai_responses": "completed",
    }
    reason = stopped if stopped is not None else why[wire]
    reason = None if reason == "null" else reason
    match wire:
        case "openai_chat":
            message: Json = {"role": "assistant", "content": "Hello" if "text" in wanted else None}
            if "reasoning" in wanted:
                message["reasoning_content"] = "Hm."
            if "call" in wanted:
                message["tool_calls"] = [
                    {"id": CALL[0], "type": "function", "function": {"name": CALL[1], "arguments": CALL[2]}}
                ]
            if "hosted" in wanted:
                message["executed_tools"] = [{"index": 0}]
            document: Json = {"id": "m1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}
            holder, name = document["choices"][0], "finish_reason"
        case "anthropic_messages":
            blocks = {
                "text": {"type": "text", "text": "Hello"},
                "reasoning": {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                "call": {"type": "tool_use", "id": CALL[0], "name": CALL[1], "input": json.loads(CALL[2])},
                "hosted": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            }
            document = {
                "type": "message",
                "id": "m1",
                "model": "m",
                "content": [blocks[one] for one in wanted],
                "stop_reason": reason,
            }
            holder, name = document, "stop_reason"
        case "gemini":
            chunks = [one["candidates"][0]["content"]["parts"][0] for one in gemini(kind).said]
            document = {"responseId": "m1", "candidates": [{"content": {"parts": chunks}, "finishReason": reason}]}
            holder, name = document["candidates"][0], "finishReason"
        case _:
            items = [one["item"] for one in responses(kind).said if one["type"] == "response.output_item.done"]
            document = {"id": "m1", "object": "response", "model": "m", "output": items, "status": reason}
            holder, name = document, "status"
    if reason == "absent":
        del holder[name]
    return document
