"""What a model cannot do, on every wire: the request is legal, something lesser is asked for, and a loss names it.

Each row has its twin: where the model can, the same ask costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from evener.encodings import prepare
from evener.errors import BadValue
from evener.testing import check_request
from evener.transcript import (
    Ask,
    Block,
    Cache,
    Choice,
    DocumentBlock,
    ImageBlock,
    Inline,
    Loss,
    Message,
    OutputSchema,
    Reasoning,
    Settings,
    TextBlock,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Quirks
from tests.each import each
from tests.encodings.talk import WIRES, asked

CLOSED = '{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}'
TOOLS = (ToolSpec("add", "Add.", CLOSED), ToolSpec("look", "Look.", CLOSED))
ANTHROPIC, RESPONSES, CHAT, GEMINI = "anthropic_messages", "openai_responses", "openai_chat", "gemini"
BIG = Settings(max_output_tokens=16_000)


@dataclass(frozen=True)
class Row:
    """A capability: an ask that needs it, quirks of a model without it, and what stands for it.

    `loss` is what the report must name. `shown` must be in the request instead, `hidden` must not. `never` lists wires that
    have no such thing, so that there is no twin; `always` those on which every model has it.
    """

    ask: Callable[[Ask], Ask]
    without: Quirks
    loss: str
    shown: str = ""
    hidden: str = ""
    never: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    having: Quirks = field(default_factory=Quirks)


def said(*blocks: Block) -> Callable[[Ask], Ask]:
    return lambda ask: replace(ask, transcript=Transcript([Message("user", (TextBlock("See:"), *blocks))], "Be brief."))


def choosing(choice: Choice) -> Callable[[Ask], Ask]:
    return lambda ask: replace(ask, choice=choice, tools=TOOLS)


def shaped(output: OutputSchema) -> Callable[[Ask], Ask]:
    talk = Transcript([Message.user_text("Tell me in JSON.")], "Be brief.")
    return lambda ask: replace(ask, output=output, transcript=talk)


def set_to(settings: Settings) -> Callable[[Ask], Ask]:
    return lambda ask: replace(ask, settings=settings)


def thinking(reasoning: Reasoning) -> Callable[[Ask], Ask]:
    return lambda ask: replace(ask, reasoning=reasoning, settings=BIG)


def told_later(ask: Ask) -> Ask:
    return replace(ask, transcript=ask.transcript.append(Message.system_text("Be kind.")))


def begun(ask: Ask) -> Ask:
    return replace(ask, transcript=ask.transcript.append(Message.assistant_text("It is")))


def marked(ask: Ask) -> Ask:
    history = [Message("user", (TextBlock("a", cache="5m" if ask.target.wire == ANTHROPIC else "30m"),))]
    return replace(ask, transcript=Transcript(history, "Be brief."))


PICTURE = ImageBlock(Inline("iVBORw0KGgo="), "image/png")
PAPER = DocumentBlock(Inline("JVBERi0xLjQ="), "application/pdf")
SOUND = DocumentBlock(Inline("UklGRg=="), "audio/wav")
SEVERAL = Choice("required", ("add", "look"))
ROWS: dict[str, Row] = {
    "vision": Row(said(PICTURE), Quirks(images=False), "image", "image omitted", "iVBORw0KGgo"),
    "documents": Row(said(PAPER), Quirks(documents=False), "document", "document omitted", "JVBERi0xLjQ"),
    "audio": Row(
        said(SOUND), Quirks(audio_formats=(), documents=False), "document", "omitted", "UklGRg", (ANTHROPIC, RESPONSES)
    ),
    "tools, with a schema": Row(choosing(Choice()), Quirks(tools=False), "tools", '\\"tool\\"', '"tools":'),
    "tools, without a schema": Row(
        choosing(Choice()), Quirks(tools=False, output_schema=False), "tools", "<tool_call", '"tools":'
    ),
    "forced choice": Row(choosing(Choice("required")), Quirks(forced_choice=False), "tool choice", "must call a tool"),
    "named choice": Row(
        choosing(Choice("named", ("add",))), Quirks(forced_choice=False), "tool choice", "must call the tool add"
    ),
    "one tool by name": Row(
        choosing(Choice("named", ("add",))), Quirks(named_choice=False), "tool choice", "must call the tool add"
    ),
    "a choice of some": Row(
        choosing(SEVERAL), Quirks(tool_subsets=False), "tool choice", "no other tools than add, look", never=(ANTHROPIC,)
    ),
    "one call at a time": Row(
        choosing(Choice(parallel=False)), Quirks(parallel_switch=False), "parallel switch", "at most one tool", never=(GEMINI,)
    ),
    "several calls at once": Row(
        choosing(Choice(parallel=True)), Quirks(parallel_switch=False), "parallel switch", "several tools at once"
    ),
    "structured output": Row(
        shaped(OutputSchema(CLOSED)), Quirks(output_schema=False), "output schema", "final_result", "json_schema"
    ),
    "structured output, without tools": Row(
        shaped(OutputSchema(CLOSED)), Quirks(output_schema=False, tools=False), "output schema", "fits this JSON Schema"
    ),
    "structured output beside tools": Row(
        lambda ask: replace(ask, output=OutputSchema(CLOSED), tools=TOOLS),
        Quirks(output_beside=False),
        "output schema",
        "final_result",
    ),
    "JSON mode": Row(
        shaped(OutputSchema()), Quirks(json_mode=False), "output schema", "one JSON object", "json_object", never=(ANTHROPIC,)
    ),
    "system role": Row(
        lambda ask: ask,
        Quirks(system_role="user"),
        "system prompt",
        "instruction from the operator",
        always=(ANTHROPIC, RESPONSES, GEMINI),
    ),
    "system messages in between": Row(
        told_later, Quirks(mid_system=False), "system", "instruction from the operator", never=(GEMINI,), always=(RESPONSES,)
    ),
    "stop sequences": Row(
        set_to(Settings(stop=("END",))), Quirks(stops=0), "setting stop", never=(RESPONSES,), always=(ANTHROPIC, GEMINI)
    ),
    "sampling": Row(set_to(Settings(temperature=0.5)), Quirks(sampling="none"), "setting temperature", hidden="temperature"),
    "seed": Row(
        set_to(Settings(seed=7)), Quirks(seed_field=""), "setting seed", never=(ANTHROPIC, RESPONSES), always=(GEMINI,)
    ),
    "reasoning effort": Row(
        thinking(Reasoning(effort="high")), Quirks(effort=False, thinking_modes=()), "reasoning", hidden="effort"
    ),
    "reasoning budget": Row(
        thinking(Reasoning(budget=2048)),
        Quirks(effort=False, thinking_modes=(), thinking_control="none"),
        "reasoning",
        hidden="budget",
        having=Quirks(thinking_control="budget", reasoning_request="object"),
        never=(RESPONSES,),
    ),
    "reasoning display": Row(
        thinking(Reasoning(effort="high", show="summary")),
        Quirks(show=False),
        "reasoning display",
        having=Quirks(reasoning_display="format"),
    ),
    "cache marks": Row(marked, Quirks(cache_marks=0), "cache marks", hidden="cache_control", never=(GEMINI,)),
    "cache key": Row(
        lambda ask: replace(ask, cache=Cache(key="k")), Quirks(cache_key=False), "cache key", never=(ANTHROPIC, GEMINI)
    ),
    "prefill": Row(begun, Quirks(prefill=False), "user message", "Continue.", always=(RESPONSES, GEMINI)),
}
CELLS = [(name, wire) for name in ROWS for wire in WIRES]


def sent(ask: Ask, quirks: Quirks) -> tuple[str, list[Loss]]:
    prepared = prepare(ask, quirks)
    encoded = CODECS[ask.target.wire].encode(prepared.ask, quirks, None)
    assert check_request(ask.target.wire, encoded.body) == []
    return encoded.body.decode(), [*prepared.losses, *encoded.losses]


@each(("name", "wire"), CELLS)
def test_what_a_model_cannot_do_is_asked_for_in_a_lesser_way_and_reported(name: str, wire: str) -> None:
    """S1.26, S4.25."""
    row = ROWS[name]
    body, losses = sent(row.ask(asked(wire, tools=())), row.without)
    if wire in row.always:
        return
    assert [loss for loss in losses if loss.what.startswith(row.loss)], losses
    assert row.shown in body
    assert not row.hidden or row.hidden not in body


@each(("name", "wire"), CELLS)
def test_what_a_model_can_do_costs_nothing(name: str, wire: str) -> None:
    """S4.25."""
    row = ROWS[name]
    _, losses = sent(row.ask(asked(wire, tools=())), row.having)
    if wire not in row.never:
        assert losses == []


@pytest.mark.parametrize("wire", WIRES)
def test_a_choice_that_is_told_in_words_leaves_the_field_alone(wire: str) -> None:
    prepared = prepare(replace(asked(wire), choice=Choice("named", ("add",))), Quirks(forced_choice=False))
    assert prepared.ask.choice == Choice()
    assert prepared.ask.transcript.system == "Be brief.\nDo not answer yet: you must call the tool add now."


@pytest.mark.parametrize("reasoning", [Reasoning(effort="high"), Reasoning(mode="on"), Reasoning(budget=2000)])
def test_a_choice_that_thinking_forbids_is_told_in_words(reasoning: Reasoning) -> None:
    ask = replace(asked(), choice=Choice("required"), reasoning=reasoning)
    quirks = Quirks(forced_choice_thinking=False)
    assert [loss.what for loss in prepare(ask, quirks).losses] == ["tool choice"]
    assert prepare(replace(ask, reasoning=Reasoning(effort="off")), quirks).losses == ()


def test_an_encoding_that_is_not_there_is_refused() -> None:
    encoding: Any = "yaml"
    with pytest.raises(BadValue, match="There is no encoding 'yaml'"):
        prepare(asked(), Quirks(), encoding=encoding)
