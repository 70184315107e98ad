"""How structured answers end a run, and what is left of them for the next one (S2.49, S2.52, S2.56)."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from evener import Harness, Limits, MemoryStore, open_model, tool
from evener import events as ev
from evener.errors import UsageError
from evener.harness import Subagent
from evener.hooks import Hook, HookAnswer, Moment
from evener.replay import replay
from evener.result import RunResult
from evener.testing import Call, FakeServer, ScriptedModel, Text, calls, turn
from evener.tools.tool import Tool
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import ToolCall, ToolResult
from evener.transcript.reply import Reply, Stop

ROWS = {
    "anthropic_messages": "anthropic:claude-opus-4-5",
    "openai_responses": "openai:gpt-5.1",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-pro-preview",
}


@dataclass
class Person:
    """Somebody."""

    name: str
    age: int


GOOD, BAD = {"name": "Maria", "age": 34}, {"name": "Maria"}
LOOKED: list[str] = []


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    LOOKED.append(item)
    return item


def final(value: object, id: str = "f") -> ToolCall:
    return ToolCall(id, "final_result", json.dumps(value))


def cut(*made: ToolCall) -> Reply:
    return Reply(made, Stop("length"))


class Told:
    """Hooks that note every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def hooks(self) -> list[Hook]:
        def handler(moment: Moment) -> HookAnswer:
            self.calls.append(moment.call.name if moment.call else "")
            return None

        return [Hook(event="before_tool_call", handler=handler), Hook(event="after_tool_call", handler=handler)]


# Not counted, not hooked.


def test_wrong_calls_of_final_result_are_no_tool_calls() -> None:
    """S2.52: however many there are, they neither count nor are hooks told."""
    told = Told()
    script = [*(calls(final(BAD, f"f{number}")) for number in range(4)), calls(ToolCall.of("c", "look", {"item": "tea"}))]
    model = ScriptedModel([*script, calls(final(GOOD, "g"))])
    one = Harness(
        model, tools=[look], store="memory", output=Person, output_form="tool", hooks=told.hooks(),
        limits=Limits(tool_calls=1, corrections=5),
    )  # fmt: skip
    result = one.run_sync("go")
    assert (result.stop, result.output) == ("done", Person("Maria", 34))
    assert told.calls == ["look", "look"]
    assert [record.call.name for record in result.records] == ["look"]
    with pytest.raises(UsageError, match="is finished"):
        one.resume_sync(result.thread)
    assert result.resume_state is None


def test_they_do_not_count_in_the_tree_of_runs_either() -> None:
    """S2.52."""
    kid = Harness(
        ScriptedModel([*(calls(final(BAD, f"f{number}")) for number in range(3)), calls(final(GOOD, "g"))]), store="memory",
        output=Person, output_form="tool", limits=Limits(corrections=5),
    )  # fmt: skip
    model = ScriptedModel([calls(ToolCall.of("k", "kid", {"task": "t"})), "done"])
    agents = [Subagent(name="kid", harness=kid, description="d")]
    result = Harness(model, store="memory", agents=agents, limits=Limits(tool_calls=1)).run_sync("go")
    assert (result.stop, result.records[0].ok) == ("done", True)


@pytest.mark.parametrize("output", [None, Person])
def test_no_tool_and_no_agent_takes_its_name(output: type | None) -> None:
    """S2.52: the name is reserved."""

    def final_result(name: str) -> str:
        """Mine."""
        return name

    agent = Subagent(name="final_result", harness=Harness(ScriptedModel([]), store="memory"), description="d")
    for more in ({"tools": [final_result]}, {"agents": [agent]}):
        with pytest.raises(UsageError, match="'final_result' is reserved for structured answers"):
            Harness(ScriptedModel([]), store="memory", output=output, **more)


# Answers that were cut off.


@pytest.mark.parametrize("wire", ROWS)
def test_an_answer_that_was_cut_off_is_an_honest_end_on_every_wire(wire: str) -> None:
    """S2.52, S2.56: the call of `final_result` in it is no tool's, and no other call of it is run."""
    told = Told()
    LOOKED.clear()
    script = [turn(Text("Maria, I think."), Call("look", {"item": "tea"}), Call("final_result", GOOD), stop="length")]
    with FakeServer(wire, script) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        one = Harness(model, tools=[look], store="memory", output=Person, output_form="tool", hooks=told.hooks())
        result = one.run_sync("Who?")
        assert server.rejected == []
    assert (result.stop, result.output, len(result.requests)) == ("length", None, 1)
    assert "cut off (the output limit was reached)" in result.detail
    assert (told.calls, LOOKED, result.pending) == ([], [], ())
    assert result.text == "Maria, I think."
    said = result.transcript.last
    assert said is not None
    assert [call.args for call in said.calls if call.name == "final_result"] == [GOOD], "with everything the model said"


def test_after_an_answer_that_was_cut_off_the_conversation_goes_on() -> None:
    store = MemoryStore()
    model = ScriptedModel([cut(ToolCall.of("c", "look", {"item": "tea"}), final(GOOD)), calls(final(GOOD, "g"))])
    one = Harness(model, tools=[look], store=store, output=Person, output_form="tool")

    async def go() -> tuple[RunResult, list[ev.Event]]:
        thread = one.thread()
        assert (await thread.run("Who?")).stop == "length"
        return await thread.run("Shorter."), await store.read(thread.id)

    result, events = asyncio.run(go())
    assert result.output == Person("Maria", 34)
    told = [block for block in model.asks[1].transcript.messages[2].blocks if isinstance(block, ToolResult)]
    assert [(block.call_id, block.is_error) for block in told] == [("c", True), ("f", True)]
    assert all(block.text.startswith("Not run. The answer was cut off") for block in told)
    assert asyncio.run(replay(events)).ok
    assert asyncio.run(replay(events, harness=one)).ok


# What the next turn sees.


@pytest.mark.parametrize("wire", ROWS)
def test_an_accepted_answer_has_a_result_in_the_next_turn(wire: str) -> None:
    """S2.52: the model is not told that its answer was interrupted."""

    async def go() -> tuple[RunResult, str]:
        script = [turn(Call("final_result", GOOD)), turn(Call("final_result", GOOD))]
        with FakeServer(wire, script) as server:
            model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
            thread = Harness(model, store="memory", output=Person, output_form="tool").thread()
            assert (await thread.run("Who?")).output == Person("Maria", 34)
            result = await thread.run("And now?")
            assert server.rejected == []
            return result, server.requests[-1].body.decode()

    result, body = asyncio.run(go())
    assert result.output == Person("Maria", 34)
    assert "Accepted." in body
    assert "nterrupted" not in body
    assert [loss for loss in result.losses if loss.kind == "added"] == []


def test_an_answer_that_somebody_rejects_is_not_called_accepted() -> None:
    """S4.20."""
    from evener.harness.approvals import Decision

    model = ScriptedModel([calls(final(GOOD, "f1")), calls(final(GOOD, "f2"))])
    one = Harness(model, store="memory", output=Person, output_form="tool", interrupts=["output"])

    async def go() -> RunResult:
        paused = await one.run("Who?")
        await one.decide(paused.thread, {paused.approvals[0].key: Decision("reject", "too old")})
        return await one.resume(paused.thread)

    asyncio.run(go())
    told = model.asks[1].transcript.messages[-1]
    assert told.text == "The answer was not accepted. too old"
    assert isinstance(told.blocks[0], ToolResult)
    assert told.blocks[0].text == "Received."


# Forms.

DEFAULTS: list[tuple[str, str, OutputForm]] = [
    ("anthropic_messages", "anthropic:claude-opus-4-5", "native"),
    ("anthropic_messages", "anthropic:claude-3-5-haiku-latest", "tool"),
    ("anthropic_messages", "minimax:minimax-m2", "tool"),
    ("openai_responses", "openai:gpt-5.1", "native"),
    ("openai_responses", "xai:grok-4", "native"),
    ("openai_chat", "openai-chat:gpt-4.1", "native"),
    ("openai_chat", "mistral:mistral-large-latest", "native"),
    ("openai_chat", "deepseek:deepseek-chat", "tool"),
    ("openai_chat", "zai:glm-4.6", "tool"),
    ("gemini", "google:gemini-3-pro-preview", "native"),
]


def form_of(body: dict[str, Any]) -> Literal["native", "tool", "prompted"]:
    """How a request asks for a structured answer, told from the bytes that were sent."""
    text = json.dumps(body)
    if '"final_result"' in text:
        return "tool"
    fields = ("output_config", "response_format", "responseJsonSchema", "responseSchema", "json_schema")
    return "native" if any(f'"{name}"' in text for name in fields) else "prompted"


@pytest.mark.parametrize(("wire", "model", "form"), DEFAULTS, ids=[model for _, model, _ in DEFAULTS])
def test_each_row_has_its_own_default_form(wire: str, model: str, form: OutputForm) -> None:
    """S2.49: through whole runs, as the servers see them."""
    answer = turn(Call("final_result", GOOD)) if form == "tool" else turn(Text(json.dumps(GOOD)))
    with FakeServer(wire, [answer]) as server:
        opened = open_model(model, base_url=server.url, key="k", environ={})
        result = Harness(opened, store="memory", output=Person).run_sync("Who?")
        assert server.rejected == []
        [sent] = server.requests
    assert (result.output, form_of(json.loads(sent.body))) == (Person("Maria", 34), form)


# Names and unions that one wire refuses.

ODD: list[tuple[dict[str, object], object]] = [
    ({"type": "object", "properties": {"städt": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n", "städt"],
      "additionalProperties": False}, {"n": 1, "städt": "Köln"}),
    ({"type": "object", "oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
                                  {"properties": {"k": {"const": "b"}}, "required": ["k"]}]}, {"k": "a", "x": 3}),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}]}, {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), ODD, ids=["names", "oneOf", "anyOf"])
@pytest.mark.parametrize("wire", ROWS)
def test_names_and_unions_at_the_top_of_a_schema_work(wire: str, schema: dict[str, object], value: dict[str, object]) -> None:
    """S2.52, S2.55: of a structured answer, and of an ordinary tool."""
    got: list[object] = []

    def note(arguments: dict[str, object]) -> str:
        """Note."""
        got.append(arguments)
        return "noted"

    own = Tool.of("note", schema, function=note)
    script = [turn(Call("note", value)), turn(Call("final_result", value))]
    with FakeServer(wire, script) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        one = Harness(model, tools=[own], store="memory", output=schema, output_form="tool")
        result = one.run_sync("go")
        assert server.rejected == []
    assert (result.output, got) == (value, [value])


def test_what_was_only_described_is_still_enforced_and_said() -> None:
    """S1.20."""
    schema = ODD[0][0]
    wrong = {"n": 1, "städt": 5}
    script = [turn(Call("final_result", wrong)), turn(Call("final_result", {"n": 1, "städt": "Köln"}))]
    with FakeServer("anthropic_messages", script) as server:
        model = open_model(ROWS["anthropic_messages"], base_url=server.url, key="k", environ={})
        result = Harness(model, store="memory", output=schema, output_form="tool").run_sync("go")
    assert (result.output, len(result.requests)) == ({"n": 1, "städt": "Köln"}, 2)
    assert any("städt: this wire takes no such names" in loss.why for loss in result.losses)
