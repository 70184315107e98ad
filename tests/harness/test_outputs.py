"""Structured answers of runs, in every form on every wire, streamed and whole (S2.5, S2.10, S2.49-S2.56, S2.60)."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from evener import Harness, Limits, open_model, tool
from evener import streaming as st
from evener.testing import Call, FakeServer, ScriptedModel, Text, calls, says, turn
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import ToolCall, ToolResult


@dataclass
class Person:
    """Somebody."""

    name: str
    age: int


GOOD, BAD = {"name": "Maria", "age": 34}, {"name": "Maria"}
ROWS = {
    "anthropic_messages": "anthropic:claude-opus-4-5",
    "openai_responses": "openai:gpt-5.1",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-pro-preview",
}
FORMS: tuple[OutputForm, ...] = ("native", "tool", "prompted")


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    return item


def final(value: object, id: str = "f") -> ToolCall:
    return ToolCall(id, "final_result", json.dumps(value))


def run(script: object, **more: object) -> tuple[object, ScriptedModel]:
    model = ScriptedModel(script)  # type: ignore[arg-type]
    return Harness(model, tools=[look], store="memory", output=Person, **more).run_sync("go"), model  # type: ignore[arg-type]


# Every form, every wire.


def served(form: OutputForm, value: object) -> object:
    return turn(Call("final_result", value)) if form == "tool" else turn(Text(json.dumps(value), pieces=4))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wire", ROWS)
def test_a_wrong_answer_is_corrected_and_a_right_one_ends_the_run(wire: str, form: OutputForm) -> None:
    """S2.10, S2.51, S2.52, S2.53."""
    script = [turn(Call("look", {"item": "tea"})), served(form, BAD), served(form, GOOD)]
    with FakeServer(wire, script) as server:  # type: ignore[arg-type]
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        result = Harness(model, tools=[look], store="memory", output=Person, output_form=form).run_sync("Who?")
        assert server.rejected == []
    assert (result.stop, result.output) == ("done", Person("Maria", 34))
    assert len(result.requests) == 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wire", ROWS)
def test_partial_objects_come_while_it_is_streamed(wire: str, form: OutputForm) -> None:
    async def watched() -> list[object]:
        with FakeServer(wire, [served(form, GOOD)]) as server:  # type: ignore[list-item]
            model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
            async with Harness(model, store="memory", output=Person, output_form=form).stream("Who?") as stream:
                return [event.value async for event in stream if isinstance(event, st.OutputStreamed)]

    seen = asyncio.run(watched())
    assert seen[-1] == GOOD


@pytest.mark.parametrize("wire", ROWS)
def test_a_value_that_is_no_object_travels_in_one(wire: str) -> None:
    """S2.54."""
    for form in FORMS:
        value = [1, 2, 3] if form == "prompted" else {"value": [1, 2, 3]}
        with FakeServer(wire, [served(form, value)]) as server:  # type: ignore[list-item]
            model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
            result = Harness(model, store="memory", output=list[int], output_form=form).run_sync("Count.")
        assert result.output == [1, 2, 3], (form, result.text, result.detail)


def test_without_a_shape_the_text_is_the_answer() -> None:
    """S2.50."""
    for output in (None, str):
        result = Harness(ScriptedModel(["hello"]), store="memory", output=output).run_sync("hi")
        assert (result.text, result.output) == ("hello", "hello")


# What counts, and what does not.


def test_a_model_that_never_gets_it_right_ends_with_everything_it_said() -> None:
    """S2.56, S2.60."""
    result, model = run(lambda _: json.dumps(BAD))
    assert result.stop == "output_retries"  # type: ignore[attr-defined]
    assert len(model.asks) == 1 + Limits().corrections
    assert "age" in result.detail  # type: ignore[attr-defined]
    said = [message.text for message in result.transcript if message.role == "assistant"]  # type: ignore[attr-defined]
    assert said == [json.dumps(BAD)] * len(model.asks)
    assert result.output is None  # type: ignore[attr-defined]


def test_final_result_is_no_tool_call() -> None:
    """S2.52."""
    result, model = run([calls(final(GOOD))], output_form="tool", limits=Limits(tool_calls=1))
    assert (result.output, result.records) == (Person("Maria", 34), ())  # type: ignore[attr-defined]
    assert "final_result" not in [spec.name for spec in model.asks[0].tools]


def test_with_siblings_it_is_corrected_and_the_siblings_run() -> None:
    """S2.52."""
    batch = calls(ToolCall.of("c", "look", {"item": "tea"}), final(GOOD))
    result, model = run([batch, calls(final(GOOD, "f2"))], output_form="tool")
    assert result.output == Person("Maria", 34)  # type: ignore[attr-defined]
    told = {block.call_id: block for block in model.asks[1].transcript.messages[-1].blocks if isinstance(block, ToolResult)}
    assert (told["c"].text, told["c"].is_error) == ("tea", False)
    assert "alone" in told["f"].text


def test_text_in_place_of_the_call_is_corrected_by_the_user() -> None:
    result, model = run([says("Maria is 34."), calls(final(GOOD))], output_form="tool")
    assert result.output == Person("Maria", 34)  # type: ignore[attr-defined]
    assert "final_result" in model.asks[1].transcript.messages[-1].text


def test_corrections_count_as_requests() -> None:
    """S2.57."""
    result, _ = run(lambda _: json.dumps(BAD), limits=Limits(requests=2))
    assert result.stop == "limit"  # type: ignore[attr-defined]
