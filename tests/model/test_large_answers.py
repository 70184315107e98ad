"""A large answer holds up no one: other tasks have their turn while it is read, and it costs little more than itself."""

import asyncio
import gzip
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence

import pytest

from evener.model import open_model
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.http import HttpTransport
from tests.model.stage import MODELS, NOWHERE, WIRES, asking, fresh_key, run
from tests.transport.servers import raw, serving, whole

BIG = 3 << 20
SLICE = 64 * 1024


def events(wire: str, text: str) -> Sequence[object]:
    """A whole answer with one large text."""
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    told: Mapping[str, Sequence[object]] = {
        "openai_chat": [
            {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]},
            {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ],
        "gemini": [
            {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]},
            {"candidates": [{"finishReason": "STOP", "index": 0}]},
        ],
        "anthropic_messages": [
            {"type": "message_start", "message": {"id": "m", "model": "x", "role": "assistant", "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ],
        "openai_responses": [
            {"type": "response.created", "response": {"id": "r", "model": "x", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": text},
            {"type": "response.output_item.done", "output_index": 0, "item": message},
            {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [message], "usage": usage}},
        ],
    }
    return told[wire]


def one_line(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def many_lines(event: object) -> bytes:
    """The event over as many lines as JSON allows: `padding` is a long list, and each of its numbers has a line."""
    padded = {**event, "padding": [0] * (BIG // 20)} if isinstance(event, dict) else event
    return b"".join(b"data: " + line + b"\n" for line in json.dumps(padded, indent=0).encode().split(b"\n")) + b"\n"


WRITINGS: dict[str, Callable[[object], bytes]] = {"one line": one_line, "many lines": many_lines}
CASES = [*((wire, "many lines") for wire in WIRES), ("openai_responses", "one line")]
"""Lines are joined before a wire sees them."""


@pytest.mark.parametrize(("wire", "writing"), CASES)
def test_other_tasks_have_their_turn_at_every_slice_of_an_answer_that_came_at_once(wire: str, writing: str) -> None:
    body = b"".join(map(WRITINGS[writing], events(wire, "x" * BIG)))
    if wire == "openai_chat":
        body += b"data: [DONE]\n\n"
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def play() -> str:
        transport = FakeTransport([FakeAnswer((body,), headers={"content-type": "text/event-stream"})])
        model = open_model(MODELS[wire], environ=NOWHERE, transport=transport, key=fresh_key())
        beside = asyncio.create_task(others())
        answer = await model.complete(asking(model))
        beside.cancel()
        await asyncio.wait((beside,))
        return answer.text

    assert len(run(play())) == BIG
    assert turns >= len(body) // SLICE


@pytest.mark.parametrize(("wire", "way"), [*((wire, "streamed") for wire in WIRES), ("openai_responses", "packed")])
def test_over_a_connection_a_large_answer_comes_whole(wire: str, way: str) -> None:
    body = b"".join(map(many_lines, events(wire, "x" * SLICE)))
    if wire == "openai_chat":
        body += b"data: [DONE]\n\n"
    headers = ["content-type: text/event-stream"]
    if way == "packed":
        body = gzip.compress(body, 1)
        headers.append("content-encoding: gzip")

    async def play() -> str:
        async with serving(raw(whole(body, 200, *headers))) as served, HttpTransport() as http:
            model = open_model(MODELS[wire], environ=NOWHERE, transport=http, key=fresh_key(), base_url=served.url)
            return (await model.complete(asking(model))).text

    assert asyncio.run(play()) == "x" * SLICE


def cost(wire: str, writing: str) -> tuple[int, int]:
    """The peak of memory while such an answer is read, and the size of its largest event."""
    written = [*map(WRITINGS[writing], events(wire, "x" * BIG))]
    body = b"".join([*written, b"data: [DONE]\n\n"])
    pieces = tuple(body[at : at + SLICE] for at in range(0, len(body), SLICE))

    async def play() -> int:
        transport = FakeTransport([FakeAnswer(pieces, headers={"content-type": "text/event-stream"})])
        model = open_model(MODELS[wire], environ=NOWHERE, transport=transport, key=fresh_key())
        ask = asking(model)
        tracemalloc.start()
        answer = await model.complete(ask)
        assert len(answer.text) == BIG
        return tracemalloc.get_traced_memory()[1]

    return run(play()), max(map(len, written))


@pytest.mark.parametrize(("wire", "writing"), CASES)
def test_an_answer_with_a_large_event_costs_three_times_its_size_at_most(wire: str, writing: str) -> None:
    program = "import sys\nfrom tests.model.test_large_answers import cost\nprint(*cost(*sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", program, wire, writing], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    peak, size = map(int, done.stdout.split())
    before = BIG if wire == "openai_responses" else 0  # it has told the text in an earlier event as well
    assert peak - before < 3 * size, f"{(peak - before) / size:.2f} times its size"
