"""What a wire does with what it has no place for: it translates, says what changed, and decides nothing."""

import ast
import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

import evener
from evener import Harness, ModelSettings, RunResult, open_model
from evener.testing import FakeServer, Text, turn
from evener.transcript import ImageBlock, Inline, Message, TextBlock, ToolCall
from tests.harness.test_settings import ROWS

RULE = "New rule: be formal."
PAST = (
    Message.user_text("Hi."), Message.assistant_text("Hello."), Message.system_text(RULE), Message.user_text("Look."),
    Message.assistant_tool_call(ToolCall("c1", "look", '{"item": ')), Message.tool_result("c1", "x"),
    Message.assistant_text("ok"),
)  # fmt: skip
BITMAP = ImageBlock(Inline(base64.b64encode(b"BM" + b"0" * 60).decode()), "image/bmp")
LIMITS = {"anthropic_messages": 64_000, "openai_responses": 128_000, "openai_chat": 32_768, "gemini": 65_536}


def sent(wire: str) -> tuple[Any, list[str], RunResult]:
    """Run a hard conversation against a strict fake; the request's body, the codes of its losses, the result."""
    with FakeServer(wire, [turn(Text("done"))]) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        settings = ModelSettings(max_output_tokens=9_000_000)
        harness = Harness(model, store="memory", system="Be brief.", settings=settings)
        result = asyncio.run(harness.thread(history=PAST).run(Message("user", (TextBlock("See."), BITMAP))))
        assert (server.rejected, result.text) == ([], "done")
        return json.loads(server.requests[0].body), [loss.code for loss in result.losses], result


@pytest.mark.parametrize("wire", ROWS)
def test_the_system_prompt_is_at_the_top_and_later_instructions_stay_where_they_were_given(wire: str) -> None:
    """S3.10: an instruction in mid-conversation is not moved to the top; where a wire has no role for it, it is marked."""
    body, codes, _ = sent(wire)
    top = {
        "anthropic_messages": lambda: body["system"][0]["text"],
        "openai_responses": lambda: body["instructions"],
        "openai_chat": lambda: body["messages"][0]["content"],
        "gemini": lambda: body["systemInstruction"]["parts"][0]["text"],
    }
    assert top[wire]() == "Be brief."
    said = next(body[name] for name in ("messages", "input", "contents") if name in body)
    number, holder = next((number, one) for number, one in enumerate(said) if RULE in json.dumps(one))
    assert "Hello." in json.dumps(said[number - 1])
    marked = holder["role"] == "user"
    assert marked == (wire in ("anthropic_messages", "gemini"))
    assert marked == ("instruction from the operator, not from the user" in json.dumps(holder))
    assert marked == ("message.role.degraded" in codes)


@pytest.mark.parametrize("wire", ROWS)
def test_arguments_that_are_no_object_reach_every_wire_and_are_told(wire: str) -> None:
    body, codes, _ = sent(wire)
    assert "_unreadable_arguments" in json.dumps(body)
    assert "tool_call.arguments.degraded" in codes


@pytest.mark.parametrize("wire", ROWS)
def test_images_and_limits_are_fitted_before_anything_is_sent(wire: str) -> None:
    """S3.28: the limit is clamped to the model's own, and an image of a kind that no wire takes is a line of text."""
    body, codes, _ = sent(wire)
    text = json.dumps(body)
    assert f": {LIMITS[wire]}" in text
    assert "9000000" not in text
    assert "[image omitted: image/bmp, 63 bytes]" in text
    assert {"setting.max_output_tokens.degraded", "image.degraded"} <= set(codes)


HIGHER = ("driver", "harness", "loop", "policy", "providers", "store", "tools", "transport", "model", "cli", "hooks")
MOST_LINES = 3_000


@pytest.mark.parametrize("wire", ROWS)
def test_a_wire_knows_nothing_of_who_decides_and_stays_small(wire: str) -> None:
    """S0.34: it gives the same bytes for the same conversation, imports nothing that decides, and is a folder one can read."""
    first, second = sent(wire)[0], sent(wire)[0]
    assert first == second
    folder = Path(evener.__file__).parent / "wire" / wire
    sources = [path.read_text("utf-8") for path in folder.glob("*.py")]
    imported = [node.module or "" for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert [name for name in imported if name.removeprefix("evener.").partition(".")[0] in HIGHER and "evener" in name] == []
    assert sum(text.count("\n") for text in sources) < MOST_LINES
