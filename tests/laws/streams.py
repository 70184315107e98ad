"""Streams that a provider might send, made up at random: what is said, as events, in any legal framing."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Json = dict[str, Any]
Said = tuple[str, str]
"""A block's kind, and its text or the JSON text of its arguments."""

# Line ends that only Unicode knows, signs of SSE's own, and characters of every length.
SIGNS = '\u2028\u2029\u0085\x0b:\r\n\t"\\{}é\U0001f40e'
texts = st.text(st.sampled_from(SIGNS) | st.characters(exclude_categories=["Cs"]), max_size=8)
pieces = st.lists(texts, max_size=3)
objects = st.dictionaries(texts, texts, max_size=2).map(json.dumps)
turns = st.lists(st.tuples(st.sampled_from(["text", "reasoning", "call"]), pieces, objects), max_size=4)


@dataclass(frozen=True)
class Stream:
    """A stream as bytes, and what it says."""

    data: bytes
    said: tuple[Said, ...]


def _split(text: str, parts: int) -> list[str]:
    size = max(1, len(text) // max(1, parts))
    return [text[start : start + size] for start in range(0, len(text), size)]


def anthropic(turn: list[tuple[str, list[str], str]]) -> list[Json]:
    """The events of a turn."""
    kinds = {"text": ("text", "text_delta", "text"), "reasoning": ("thinking", "thinking_delta", "thinking")}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, (kind, parts, arguments) in enumerate(turn):
        if kind == "call":
            block: Json = {"type": "tool_use", "id": f"toolu_{index}", "name": "look", "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in _split(arguments, len(parts))]
        else:
            name, delta, field = kinds[kind]
            block = {"type": name, field: ""}
            deltas = [{"type": delta, field: part} for part in parts]
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events += [{"type": "ping"}, {"type": "content_block_stop", "index": index}]
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    return [*events, stop, {"type": "message_stop"}]


def responses(turn: list[tuple[str, list[str], str]]) -> list[Json]:
    """The events of a turn."""
    events: list[Json] = [{"type": "response.created", "response": {"id": "resp_1", "model": "m"}}]
    output: list[Json] = []
    for index, (kind, parts, arguments) in enumerate(turn):
        whole, place = "".join(parts), {"output_index": index, "content_index": 0}
        match kind:
            case "call":
                item: Json = {"type": "function_call", "id": "fc_1", "call_id": f"call_{index}", "name": "look"}
                begun, item = {**item, "arguments": ""}, {**item, "arguments": arguments}
                deltas, name = _split(arguments, len(parts)), "function_call_arguments"
            case "text":
                begun = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
                item = {**begun, "content": [{"type": "output_text", "text": whole, "annotations": []}]}
                deltas, name = parts, "output_text"
            case _:
                begun = {"type": "reasoning", "id": "rs_1", "summary": []}
                item = {**begun, "encrypted_content": "E", "summary": [{"type": "summary_text", "text": whole}]}
                deltas, name = parts, "reasoning_summary_text"
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events += ({"type": f"response.{name}.delta", **place, "delta": delta} for delta in deltas)
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        output.append(item)
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": output}
    return [*events, {"type": "response.completed", "response": response}]


WRITERS: dict[str, Callable[[list[tuple[str, list[str], str]]], list[Json]]] = {
    "anthropic_messages": anthropic,
    "openai_responses": responses,
}


@st.composite
def streams(draw: DrawFn, wire: str) -> Stream:
    """A stream of this wire in any legal framing: line ends, comments, names, data on several lines."""
    turn = draw(turns)
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines: list[str] = []
    for event in WRITERS[wire](turn):
        indent = draw(st.sampled_from([None, None, 1]))
        data = json.dumps(event, ensure_ascii=draw(st.booleans()), indent=indent).split("\n")
        before = draw(st.sampled_from([[], [": ping"], ["id: 7", "retry: 9"], [f"event: {event['type']}"], ["", ""]]))
        lines += [*before, *(draw(st.sampled_from(["data: ", "data:"])) + line for line in data), ""]
    ending = draw(st.sampled_from([end, ""]))
    text = draw(st.sampled_from(["", "\ufeff"])) + end.join(lines) + ending
    said = [(kind, arguments if kind == "call" else "".join(parts)) for kind, parts, arguments in turn]
    return Stream(text.encode(), tuple(said))


def cut(data: bytes) -> SearchStrategy[list[bytes]]:
    """The same bytes in pieces, empty ones among them."""
    places = st.lists(st.integers(0, len(data)), max_size=12).map(lambda found: [0, *sorted(found), len(data)])
    return places.map(lambda found: [data[start:end] for start, end in pairwise(found)])
