"""System prompts of runs, static, dynamic or callable, and the scratchpad of a conversation. (S1.27, S4.17, S4.18, S4.19)"""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from evener import Harness, Limits, MemoryStore, Tool, ToolOutput, open_model, tool
from evener import events as ev
from evener.context import PromptContext, Scratchpad, SystemPrompt, Template
from evener.context.scratchpad import Notes, show
from evener.errors import BadValue, UsageError
from evener.harness import Subagent
from evener.harness.opening import Given
from evener.testing import Call, FakeServer, ScriptedModel, Text, calls, turn
from evener.transcript import Ask, TextBlock
from evener.transcript.blocks import ToolCall, ToolResult


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    return item


def count() -> Callable[[PromptContext], str]:
    """A part that is different each time."""
    times: list[int] = []

    def told(_: PromptContext) -> str:
        times.append(1)
        return f"This is time {len(times)}."

    return told


def five(role: str = "You are careful.") -> SystemPrompt:
    context = (count(), Template("Run {run}."))
    return SystemPrompt(role=role, tools="Look first.", output="One line.", constraints="Never guess.", context=context)


def systems(model: ScriptedModel) -> list[list[str]]:
    return [[block.text for block in ask.transcript.system_blocks] for ask in model.asks]


def configured(one: Harness, thread: str) -> list[ev.Configured]:
    return [event for event in asyncio.run(one.store.read(thread)) if isinstance(event, ev.Configured)]


def harness(model: ScriptedModel, system: Given, **more: object) -> Harness:
    return Harness(model, system=system, **{"tools": [look], "store": "memory", **more})  # type: ignore[arg-type]


LOOKED = calls(ToolCall.of("c", "look", {"item": "tea"}))


# Rendering (S4.17, S4.18).


def test_s4_17_five_parts_are_rendered_once_a_run_and_written_down() -> None:
    model = ScriptedModel([LOOKED, "one", "two"])
    one = harness(model, five())
    result = one.run_sync("go")
    stable = ["You are careful.", "Look first.", "One line.", "Never guess."]
    assert systems(model)[0] == systems(model)[1] == [*stable, f"This is time 1.\n\nRun {result.run}."]
    again = one.run_sync("go on", thread=result.thread)
    assert systems(model)[2] == [*stable, f"This is time 2.\n\nRun {again.run}."]
    assert [len(event.system) for event in configured(one, result.thread)] == [5, 5]
    assert [block.cache for block in configured(one, result.thread)[0].system] == ["", "", "", "5m", ""]


@pytest.mark.parametrize(
    ("system", "told"),
    [
        (None, []),
        ("Be brief.", ["Be brief."]),
        ([TextBlock("A"), TextBlock("B")], ["A", "B"]),
        (lambda context: f"For {context.deps}.", ["For Acme."]),
        (lambda _: None, []),
        (lambda _: [TextBlock("A", cache="5m"), TextBlock("B")], ["A", "B"]),
        (lambda context: SystemPrompt(role="A", context=f"B for {context.deps}"), ["A", "B for Acme"]),
        (SystemPrompt(role=lambda context: f"For {context.deps}."), ["For Acme."]),
    ],
)
def test_s4_18_a_system_prompt_is_static_dynamic_or_callable(system: Given, told: list[str]) -> None:
    model = ScriptedModel(["hello"])
    one = harness(model, system, deps="Acme")
    result = one.run_sync("go")
    assert systems(model) == [told]
    assert [[block.text for block in event.system] for event in configured(one, result.thread)] == [told]


def test_what_has_not_changed_is_not_written_again() -> None:
    for system in ("Be brief.", SystemPrompt(role="Be brief."), lambda _: "Be brief."):
        one = harness(ScriptedModel(["a", "b"]), system)
        result = one.run_sync("go")
        one.run_sync("go on", thread=result.thread)
        assert len(configured(one, result.thread)) == 1


def test_a_function_that_gives_something_else_is_told_so() -> None:
    with pytest.raises(BadValue):
        harness(ScriptedModel(["a"]), lambda _: 3).run_sync("go")  # type: ignore[arg-type, return-value]


# Stability (S1.27).


@pytest.mark.parametrize("role", [Template("Today is {date}."), Template("Run {run}."), lambda context: str(context.at)])
def test_s1_27_no_time_and_no_id_in_the_stable_parts(role: object) -> None:
    model = ScriptedModel(["a"])
    with pytest.raises(UsageError, match="stable part 'role'"):
        harness(model, SystemPrompt(role=role)).run_sync("go")  # type: ignore[arg-type]
    assert model.asks == []


def test_s1_27_a_stable_part_that_changes_between_runs_is_refused() -> None:
    state = ["a"]
    one = harness(ScriptedModel(["x", "y"]), SystemPrompt(role=lambda _: state[0]))
    one.run_sync("go")
    state[0] = "b"
    with pytest.raises(UsageError, match="differs between two renderings"):
        one.run_sync("go")


def test_s1_27_the_mark_stands_after_the_last_stable_part_and_the_prefix_stays() -> None:
    """S1.12: on the wire, what changes has no mark, and up to the mark two runs send the same."""
    with FakeServer("anthropic_messages", [turn(Call("look", {"item": "tea"})), turn(Text("a")), turn(Text("b"))]) as server:
        model = open_model("anthropic:claude-opus-4-5", base_url=server.url, key="k", environ={})
        one = Harness(model, system=five(), tools=[look], store="memory")
        result = one.run_sync("go")
        one.run_sync("go on", thread=result.thread)
        sent = [request.json["system"] for request in server.requests]
    assert [["cache_control" in block for block in system] for system in sent] == [[False, False, False, True, False]] * 3
    assert sent[0] == sent[1]
    assert sent[0][:4] == sent[2][:4]
    assert sent[0][4] != sent[2][4]


def test_a_prompt_without_a_mark_of_its_own_gets_one_at_its_end() -> None:
    with FakeServer("anthropic_messages", [turn(Text("a"))]) as server:
        model = open_model("anthropic:claude-opus-4-5", base_url=server.url, key="k", environ={})
        Harness(model, system=[TextBlock("A"), TextBlock("B")], store="memory").run_sync("go")
        assert ["cache_control" in block for block in server.requests[0].json["system"]] == [False, True]


# Resumed (S4.18).


def stopped(system: Given, store: MemoryStore) -> str:
    """A run that stopped at a limit, and its thread."""
    result = harness(ScriptedModel([LOOKED]), system, store=store, limits=Limits(requests=1)).run_sync("go")
    assert result.stop == "limit"
    return result.thread


def resumed(system: Given, thread: str, store: MemoryStore) -> list[str]:
    model = ScriptedModel(["done"])
    harness(model, system, store=store, limits=Limits(requests=1)).resume_sync(thread)
    return systems(model)[0]


def test_s4_18_a_resumed_run_keeps_what_it_began_with() -> None:
    cases: list[Callable[[], Given]] = [five, lambda: lambda context: f"It is {context.run} now, {context.at}."]
    for case in cases:
        store = MemoryStore()
        thread = stopped(case(), store)
        before = fold_system(store, thread)
        assert resumed(case(), thread, store) == before
        assert len([1 for event in asyncio.run(store.read(thread)) if isinstance(event, ev.Configured)]) == 1


def fold_system(store: MemoryStore, thread: str) -> list[str]:
    found = [event.system for event in asyncio.run(store.read(thread)) if isinstance(event, ev.Configured)]
    return [block.text for block in found[-1]]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (SystemPrompt(role="Old.", context="c1"), SystemPrompt(role="New.", context="c2"), ["New.", "c2"]),
        (SystemPrompt(role="Same.", context="c1"), SystemPrompt(role="Same.", context="c2"), ["Same.", "c1"]),
        (SystemPrompt(role="A.", tools="B.", context="c1"), SystemPrompt(role="A.", context="c2"), ["A.", "c2"]),
        (SystemPrompt(role="A.", context="c1"), SystemPrompt(role="A.", tools="B."), ["A.", "B."]),
        ("Old.", "New.", ["New."]),
        ([TextBlock("A."), TextBlock("B.")], "A.", ["A."]),
        ("Old.", SystemPrompt(role="New."), ["New."]),
        (SystemPrompt(role="Old.", context="c1"), "New.", ["New."]),
        (SystemPrompt(role="Old.", context="c1"), lambda _: "New.", ["New."]),
        (lambda _: "Old.", lambda _: "New.", ["Old."]),
    ],
)
def test_s4_18_a_resumed_run_takes_a_change_of_the_stable_parts(before: Given, after: Given, told: list[str]) -> None:
    store = MemoryStore()
    thread = stopped(before, store)
    assert resumed(after, thread, store) == told


# The scratchpad (S4.19).


def note(id: str, action: str, **more: object) -> ToolCall:
    return ToolCall.of(id, "scratchpad", {"action": action, **more})


def pad_harness(script: object, **more: object) -> Harness:
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)  # type: ignore[arg-type]
    return Harness(model, **{"store": "memory", "scratchpad": True, **more})  # type: ignore[arg-type]


def texts(pad: Scratchpad | None, section: str = "plan") -> list[str]:
    assert pad is not None
    return [item.text for item in pad.section(section).items]  # type: ignore[arg-type]


def results(ask: Ask) -> list[str]:
    return [block.text for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]


PLAN = calls(note("a", "append", section="plan", text="Boil water"), note("b", "append", section="plan", text="Pour"))


def test_s4_19_the_model_keeps_notes_and_the_program_sees_them() -> None:
    model = ScriptedModel([PLAN, calls(note("c", "remove", section="plan", number=1)), "done"])
    result = pad_harness(model).run_sync("Make tea.")
    assert texts(result.scratchpad) == ["Pour"]
    shown = results(model.asks[1])
    assert "Boil water" in shown[1], "each call sees what the one before it wrote"
    assert [spec.name for spec in model.asks[0].tools] == ["scratchpad"]
    assert show(result.scratchpad or Scratchpad(), "user") == "## Plan\n2. Pour"


def test_s4_19_notes_are_not_in_the_system_prompt() -> None:
    model = ScriptedModel([PLAN, "one", "two"])
    one = pad_harness(model, system="Be brief.")
    one.run_sync("go on", thread=one.run_sync("go").thread)
    assert systems(model) == [["Be brief."]] * 3


def test_s4_19_the_pad_is_a_fold_of_the_log_and_belongs_to_the_conversation() -> None:
    """No event of its own; another process, another object, another conversation."""
    store = MemoryStore()
    first = pad_harness([PLAN, "one"], store=store).run_sync("go")
    kinds = {type(event).__name__ for event in asyncio.run(store.read(first.thread))}
    plain = harness(ScriptedModel([LOOKED, "one"]), None, store=store).run_sync("go")
    assert kinds == {type(event).__name__ for event in asyncio.run(store.read(plain.thread))}
    model = ScriptedModel([calls(note("c", "append", section="plan", text="Drink")), "two", "three", "four"])
    second = pad_harness(model, store=store)
    again = second.run_sync("go on", thread=first.thread)
    assert texts(again.scratchpad) == ["Boil water", "Pour", "Drink"]
    assert texts(second.run_sync("a third time", thread=first.thread).scratchpad) == ["Boil water", "Pour", "Drink"]
    assert texts(second.run_sync("elsewhere").scratchpad) == []


def test_one_thread_object_reads_the_log_once_and_still_knows_its_notes() -> None:
    async def twice() -> list[list[str]]:
        batches = [PLAN, "one", calls(note("c", "append", section="plan", text="Drink")), "two"]
        thread = pad_harness(batches).thread()
        return [texts((await thread.run("go")).scratchpad) for _ in range(2)]

    assert asyncio.run(twice()) == [["Boil water", "Pour"], ["Boil water", "Pour", "Drink"]]


def test_a_resumed_run_has_its_notes() -> None:
    store = MemoryStore()
    result = pad_harness([PLAN], store=store, limits=Limits(requests=1)).run_sync("go")
    assert (result.stop, texts(result.scratchpad)) == ("limit", ["Boil water", "Pour"])
    model = ScriptedModel([calls(note("c", "show")), "done"])
    again = pad_harness(model, store=store).resume_sync(result.thread)
    assert texts(again.scratchpad) == ["Boil water", "Pour"]
    assert "2. Pour" in results(model.asks[1])[-1]


def test_a_call_that_is_repeated_after_a_crash_is_noted_once() -> None:
    store = MemoryStore()
    one = pad_harness([PLAN, "done"], store=store)
    result = one.run_sync("go")
    events = asyncio.run(store.read(result.thread))
    last = max(number for number, event in enumerate(events) if isinstance(event, ev.CallFinished))
    again = asyncio.run(crashed(events[:last], ScriptedModel(["done"])))
    assert again == ["Boil water", "Pour"]


async def crashed(events: list[ev.Event], model: ScriptedModel) -> list[str]:
    """A log that ends in the middle of a call, and what its pad is once it was resumed."""
    store = MemoryStore()
    log = await store.create("t", msgspec.structs.replace(events[0], thread="t"), holder="h")
    await log.append(*events[1:])
    await log.aclose()
    return texts((await pad_harness(model, store=store).resume("t")).scratchpad)


def test_s4_19_each_section_has_its_visibility() -> None:
    first = Scratchpad(memory=Notes(visibility="hidden"), reasoning=Notes(visibility="user"))
    model = ScriptedModel([calls(note("a", "append", section="memory", text="x")), PLAN, "done"])
    result = pad_harness(model, scratchpad=first).run_sync("go")
    assert "not yours" in results(model.asks[1])[0]
    assert texts(result.scratchpad, "memory") == []
    assert result.scratchpad is not None
    assert result.scratchpad.memory.visibility == "hidden"


def test_what_other_tools_write_into_their_metadata_is_their_own() -> None:
    @tool(effect="read")
    def odd() -> ToolOutput:
        """Odd."""
        return ToolOutput("odd", {"scratchpad": "no changes at all"})

    result = pad_harness([calls(ToolCall.of("o", "odd", {})), PLAN, "done"], tools=[odd]).run_sync("go")
    assert texts(result.scratchpad) == ["Boil water", "Pour"]


def test_runs_at_once_have_their_own_notes() -> None:
    def script(ask: Ask) -> object:
        text = ask.transcript.messages[0].text
        return calls(note("a", "append", section="plan", text=text)) if len(ask.transcript) == 1 else "done"

    async def together() -> list[list[str]]:
        one = pad_harness(script)
        found = await asyncio.gather(*(one.run(f"task {number}") for number in range(10)))
        return [texts(result.scratchpad) for result in found]

    assert asyncio.run(together()) == [[f"task {number}"] for number in range(10)]


def test_an_agent_has_notes_of_its_own() -> None:
    inner = ScriptedModel([calls(note("x", "append", section="plan", text="Inner")), "inner done"])
    agent = Subagent(name="next", harness=pad_harness(inner), description="Goes on.")
    hand = calls(ToolCall.of("n", "next", {"task": "go"}))
    model = ScriptedModel([PLAN, hand, calls(note("c", "append", section="plan", text="Drink")), "done"])
    result = pad_harness(model, agents=[agent]).run_sync("go")
    assert texts(result.scratchpad) == ["Boil water", "Pour", "Drink"]
    assert results(inner.asks[1])[0].endswith("## Plan\n1. Inner")


def test_without_it_there_is_none() -> None:
    result = Harness(ScriptedModel(["hello"]), store="memory").run_sync("go")
    assert result.scratchpad is None
    with pytest.raises(UsageError, match="Two tools"):
        Harness(ScriptedModel([]), store="memory", scratchpad=True, tools=[named("scratchpad")])


def named(name: str) -> Tool:
    return tool(lambda: "x", name=name, description="X.")
