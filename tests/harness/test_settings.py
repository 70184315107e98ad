"""One value says how a model is asked: on every wire, for a harness, a thread, a run, a step, a model and an agent."""

import asyncio
import json

import pytest

from evener import Harness, MemoryStore, ModelSettings, SqliteStore, open_model, tool
from evener.errors import BadDocument, BadValue, UsageError
from evener.harness import Decision, Subagent
from evener.testing import Call, FakeServer, ScriptedModel, Text, calls, turn
from evener.testing.scripted_model import Line
from evener.transcript import Ask, Extra, ToolCall

ROWS = {
    "anthropic_messages": "anthropic:claude-opus-4-5",
    "openai_responses": "openai:gpt-5.1",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-pro-preview",
}
WHOLE = ModelSettings(
    max_output_tokens=9_000, stop=("END",), seed=7, effort="low", show="detailed", foreign_reasoning="text",
    tool_choice="look", parallel=False, service_tier="auto", extra=(Extra("openai_chat", '{"verbosity":"low"}'),),
)  # fmt: skip


@tool(effect="read")
def look(item: str) -> str:
    """Look at an item."""
    return item


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def body(wire: str, settings: ModelSettings) -> dict[str, object]:
    with FakeServer(wire, [turn(Text("done"))]) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        Harness(model, tools=[look], store="memory", settings=settings).run_sync("go")
        assert server.rejected == []
        return json.loads(server.requests[0].body)  # type: ignore[no-any-return]


def test_s4_12_a_choice_of_tools_reaches_every_wire() -> None:
    """S4.12, S1.16: also whether calls may come side by side."""
    named = ModelSettings(tool_choice="look", parallel=False)
    assert body("anthropic_messages", named)["tool_choice"] == {
        "type": "tool", "name": "look", "disable_parallel_tool_use": True,
    }  # fmt: skip
    assert body("openai_responses", named)["tool_choice"] == {"type": "function", "name": "look"}
    assert body("openai_chat", named)["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert body("openai_chat", named)["parallel_tool_calls"] is False
    config = body("gemini", named)["toolConfig"]
    assert config == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}
    assert body("openai_chat", ModelSettings(tool_choice="none"))["tool_choice"] == "none"
    assert body("openai_responses", ModelSettings(tool_choice="required"))["tool_choice"] == "required"


def test_s0_40_readable_reasoning_is_asked_for() -> None:
    """S0.40."""
    sent = body("openai_responses", ModelSettings(effort="low", show="detailed"))
    assert sent["reasoning"] == {"effort": "low", "summary": "detailed"}
    thinking = body("gemini", ModelSettings(effort="low", show="summary"))["generationConfig"]
    assert isinstance(thinking, dict)
    assert thinking["thinkingConfig"]["includeThoughts"] is True


def test_s1_7_stop_seed_tier_and_fields_of_ones_own() -> None:
    """S1.7."""
    given = ModelSettings(
        stop=("END",), seed=7, service_tier="flex", temperature=0.5, extra=(Extra("openai_chat", '{"verbosity":"low"}'),)
    )
    sent = body("openai_chat", given)
    assert {name: sent[name] for name in ("stop", "seed", "service_tier", "temperature", "verbosity")} == {
        "stop": ["END"], "seed": 7, "service_tier": "flex", "temperature": 0.5, "verbosity": "low",
    }  # fmt: skip
    tiered = body("anthropic_messages", ModelSettings(service_tier="auto", stop=("END",)))
    assert (tiered["service_tier"], tiered["stop_sequences"]) == ("auto", ["END"])


def test_s2_65_foreign_reasoning_as_text() -> None:
    """S2.65: what another model thought is told in words, if the user wants that."""
    asked = ask_of(ModelSettings(foreign_reasoning="text"))
    assert asked.foreign_reasoning == "text"
    assert ask_of(ModelSettings()).foreign_reasoning == "drop"


def ask_of(settings: ModelSettings) -> Ask:
    model = ScriptedModel(["done"])
    Harness(model, tools=[look], store="memory", settings=settings).run_sync("go")
    return model.asks[0]


def test_a_choice_per_step_then_the_usual() -> None:
    """S4.12."""
    model = ScriptedModel([calls(ToolCall.of("a", "look", {"item": "x"})), "done"])
    Harness(model, tools=[look], store="memory").run_sync("go", settings=ModelSettings(tool_choices=("look",)))
    assert [(ask.choice.mode, ask.choice.names) for ask in model.asks] == [("named", ("look",)), ("auto", ())]


def test_a_run_stands_over_its_thread_and_that_over_the_harness() -> None:
    model = ScriptedModel(["1", "2", "3"])
    harness = Harness(model, store="memory", settings=ModelSettings(temperature=0.1, top_p=0.5, seed=1))
    thread = harness.thread(settings=ModelSettings(temperature=0.2))
    asyncio.run(thread.run("go", settings=ModelSettings(seed=2)))
    harness.with_settings(ModelSettings(top_k=3)).run_sync("go")
    first, second = (ask.settings for ask in model.asks)
    assert (first.temperature, first.top_p, first.seed) == (0.2, 0.5, 2)
    assert (second.temperature, second.top_k, second.seed) == (0.1, 3, 1)


def test_the_short_arguments_of_a_harness_hold_for_any_model_and_its_settings_stand_over_them() -> None:
    model = ScriptedModel(["one", "two"])
    Harness(model, store="memory", effort="low", max_output_tokens=300, temperature=0.5).run_sync("go")
    longer = ModelSettings(max_output_tokens=900)
    Harness(model, store="memory", max_output_tokens=300, temperature=0.5, settings=longer).run_sync("go")
    first, second = model.asks
    assert (first.settings.max_output_tokens, first.settings.temperature, first.reasoning.effort) == (300, 0.5, "low")
    assert (second.settings.max_output_tokens, second.settings.temperature) == (900, 0.5)


def test_an_agent_has_settings_of_its_own() -> None:
    inner = ScriptedModel(["found"])
    agent = Subagent(
        name="kid", harness=Harness(inner, store="memory"), description="Helps.", settings=ModelSettings(temperature=0.0)
    )
    outer = ScriptedModel([calls(ToolCall.of("a", "kid", {"task": "go"})), "done"])
    Harness(outer, agents=[agent], store="memory", settings=ModelSettings(temperature=1.0)).run_sync("go")
    assert [ask.settings.temperature for ask in (*inner.asks, *outer.asks)] == [0.0, 1.0, 1.0]


def test_a_model_is_opened_with_them() -> None:
    with FakeServer("openai_chat", [turn(Text("done"))]) as server:
        settings = ModelSettings(seed=3, tool_choice="required", service_tier="flex", foreign_reasoning="text")
        model = open_model(ROWS["openai_chat"], base_url=server.url, key="k", environ={}, settings=settings, temperature=0.3)
        Harness(model, tools=[look], store="memory").run_sync("go")
        sent = json.loads(server.requests[0].body)
    assert (sent["seed"], sent["temperature"], sent["tool_choice"], sent["service_tier"]) == (3, 0.3, "required", "flex")


def test_those_of_a_run_survive_its_pause_with_its_metadata(tmp_path: object) -> None:
    """S2.69: another process, with another harness object, goes on with the settings and the metadata of the run."""
    store = f"{tmp_path}/log.db"
    script: list[Line] = [calls(ToolCall.of("a", "pay", {"amount": 5})), "done"]
    first = ScriptedModel(script)
    paused = Harness(first, tools=[pay], store=SqliteStore(store)).run_sync(
        "go", settings=ModelSettings(seed=9), metadata={"ticket": 7}
    )
    assert (paused.stop, paused.metadata) == ("approval", {"ticket": 7})
    second = ScriptedModel(lambda _: "done")
    again = Harness(second, tools=[pay], store=SqliteStore(store))
    [waits] = asyncio.run(again.thread(paused.thread).approvals())
    again.decide_sync(paused.thread, {waits.key: Decision("allow")})
    result = again.resume_sync(paused.thread)
    assert (result.text, result.metadata, second.asks[0].settings.seed) == ("done", {"ticket": 7}, 9)


def test_s2_81_they_are_written_and_read() -> None:
    """S2.81: one value, as JSON."""
    assert ModelSettings.from_json(WHOLE.to_json()) == WHOLE
    assert ModelSettings().to_json() == "{}"
    with pytest.raises(BadDocument, match="not the JSON of ModelSettings"):
        ModelSettings.from_json('{"temprature": 1}')


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"effort": "huge"}, "effort must be one of"),
        ({"stop": "END"}, "must be a collection"),
        ({"max_output_tokens": 0}, "at least 1"),
        ({"extra": (Extra("gemini", "{}", (("x-key", "s"),)),)}, "Set headers with open_model"),
        ({"parallel": 1}, "must be bool or None"),
    ],
)
def test_a_wrong_setting_is_refused_when_it_is_made(given: dict[str, object], says: str) -> None:
    with pytest.raises(BadValue, match=says):
        ModelSettings(**given)  # type: ignore[arg-type]


def test_a_choice_of_a_tool_that_is_not_there_is_refused() -> None:
    harness = Harness(ScriptedModel([]), tools=[look], store="memory")
    with pytest.raises(UsageError, match="names the tool 'loook', but the tools are: look"):
        harness.run_sync("go", settings=ModelSettings(tool_choice="loook"))


def test_s2_17_the_prompt_is_in_the_first_event() -> None:
    """S2.17."""

    async def first() -> object:
        async with Harness(ScriptedModel(["done"]), store="memory").stream("Hello.") as stream:
            async for event in stream:
                return event
        return None

    event = asyncio.run(first())
    assert event.prompt.text == "Hello."  # type: ignore[attr-defined]


def test_s2_18_children_can_be_hidden_from_one_of_several_readers() -> None:
    """S2.18."""

    async def seen() -> tuple[set[str], set[str], str]:
        kid = Subagent(name="kid", harness=Harness(ScriptedModel(["found"]), store="memory"), description="Helps.")
        model = ScriptedModel([calls(ToolCall.of("a", "kid", {"task": "go"})), "done"])
        async with Harness(model, agents=[kid], store="memory").stream("go") as stream:
            own = stream.subscribe(children=False)
            everything, alone = await asyncio.gather(_runs(stream), _runs(own))
            return everything, alone, (await stream.result()).run

    everything, alone, run = asyncio.run(seen())
    assert (len(everything), alone) == (2, {run})


async def _runs(stream: object) -> set[str]:
    return {event.place.run async for event in stream}  # type: ignore[attr-defined]


def test_s2_27_tools_are_added_later_to_the_same_map() -> None:
    """S2.27."""
    model = ScriptedModel(["1", calls(ToolCall.of("a", "look", {"item": "x"})), "done"])
    harness = Harness(model, store=MemoryStore())
    begun = harness.run_sync("go")
    more = harness.with_tools(look)
    result = more.run_sync("again", thread=begun.thread)
    assert ([spec.name for spec in model.asks[1].tools], result.records[0].ok, list(harness.tools)) == (["look"], True, [])


def test_what_a_run_used_says_what_was_tried_again() -> None:
    """S2.8, S2.30, S2.57, S2.58."""
    model = ScriptedModel(
        [calls(ToolCall("a", "look", '{"thing": 1}')), calls(ToolCall.of("b", "look", {"item": "x"})), "done"]
    )
    used = Harness(model, tools=[look], store="memory").run_sync("go").used
    assert (used.requests, used.tool_calls, used.tool_retries, used.output_retries) == (3, 2, (("look", 1),), 0)


def test_a_tool_is_still_a_function() -> None:
    assert look("x") == "x"
    assert pay(amount=3) == "paid 3"


def test_a_call_that_was_forced_on_every_wire_runs() -> None:
    for wire, row in ROWS.items():
        with FakeServer(wire, [turn(Call("look", {"item": "x"})), turn(Text("done"))]) as server:
            model = open_model(row, base_url=server.url, key="k", environ={})
            result = Harness(model, tools=[look], store="memory").run_sync("go", settings=ModelSettings(tool_choices=("look",)))
            assert (result.text, server.rejected) == ("done", [])
