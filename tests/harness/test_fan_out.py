"""Independent one-shot prompts at once: order, failures of single entries, bounds, budgets. (S2.56, S2.78)"""

import asyncio
import json
import random
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pytest

from evener import Harness, Limits, MemoryStore, Message, tool
from evener import streaming as st
from evener.call_context import DEEPEST
from evener.errors import AuthFailed, EvenerError, Overloaded, UsageError
from evener.harness.harness import Subagent
from evener.harness.opening import Prompt
from evener.harness.parallel import Entry, fan_out, parallel_llm_tool
from evener.result import RunResult
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.transcript.ask import Ask
from evener.transcript.blocks import TextBlock, ToolCall, ToolResult
from evener.transcript.reply import Reply, Stop, Usage
from tests.patience import at_some_pace


class Person(msgspec.Struct):
    name: str
    age: int


GOOD, BAD = '{"name": "Maria", "age": 34}', '{"name": "Maria"}'


def asked(ask: Ask) -> str:
    return ask.transcript.messages[0].text


def echo(ask: Ask) -> Line:
    """Fails where it is told to, each time; else says the prompt in capitals."""
    text = asked(ask)
    match text.partition(" ")[0]:
        case "refuse":
            return Reply((TextBlock("No."),), Stop("refusal", detail="not this"), Usage(10, 10, 0, 0, 5, 0))
        case "cut":
            return Reply((TextBlock("Half an ans"),), Stop("length"), Usage(10, 10, 0, 0, 5, 0))
        case "break":
            raise ZeroDivisionError("a model that is not ours")
        case "deny":
            return AuthFailed("The key was not accepted.")
        case _:
            return says(text.upper())


def fan(model: ScriptedModel, prompts: Sequence[Prompt], **more: object) -> tuple[Entry, ...]:
    return asyncio.run(fan_out(model, prompts, **more))  # type: ignore[arg-type]


# Entries.


def test_s2_78_each_prompt_is_answered_alone_and_in_order() -> None:
    model = ScriptedModel(echo)
    prompts: list[Prompt] = ["a", Message.user_text("b"), [TextBlock("c")]]
    found = fan(model, prompts, system="Be loud.")
    assert [(entry.text, entry.output, entry.ok) for entry in found] == [("A", "A", True), ("B", "B", True), ("C", "C", True)]
    assert [entry.prompt for entry in found] == prompts
    assert all(entry.usage == says("x").usage for entry in found)
    assert sorted(asked(ask) for ask in model.asks) == ["a", "b", "c"]
    assert all(len(ask.transcript) == 1 and not ask.tools for ask in model.asks)
    assert {ask.transcript.system for ask in model.asks} == {"Be loud."}


@pytest.mark.parametrize(
    ("prompt", "told", "text"),
    [
        ("refuse it", "not this", "No."),
        ("cut it", "length", "Half an ans"),
        ("break it", "ZeroDivisionError: a model that is not ours", ""),
        ("deny it", "The key was not accepted.", ""),
        (42, "A prompt is a text", ""),
    ],
)
def test_s2_78_an_entry_that_fails_says_why_and_fails_no_other(prompt: Prompt, told: str, text: str) -> None:
    first, failed, last = fan(ScriptedModel(echo), ["one", prompt, "two"])
    assert (first.text, last.text) == ("ONE", "TWO")
    assert not failed.ok
    assert told in failed.error
    assert (failed.text, failed.output) == (text, None)


def test_nothing_asked_is_nothing_answered() -> None:
    assert fan(ScriptedModel([]), []) == ()


@pytest.mark.parametrize(
    ("prompts", "more"), [("one text", {}), (["a"], {"concurrency": 0}), (["a"], {"retries": -1}), (["a"], {"output": complex})]
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(prompts: Sequence[str], more: dict[str, object]) -> None:
    model = ScriptedModel(echo)
    with pytest.raises(EvenerError):
        fan(model, prompts, **more)
    assert model.asks == []


def test_a_failure_that_may_pass_is_tried_again_as_often_as_allowed() -> None:
    def busy(ask: Ask) -> Line:
        times = sum(asked(one) == asked(ask) for one in model.asks)
        return says("at last") if times > int(asked(ask)) else Overloaded("Busy.", retry_after=0.001)

    model = ScriptedModel(busy)
    found = fan(model, ["0", "1", "2"], retries=1)
    assert [entry.text for entry in found] == ["at last", "at last", ""]
    assert "Busy." in found[2].error
    assert [sum(asked(ask) == text for ask in model.asks) for text in "012"] == [1, 2, 2]


def test_a_call_of_a_tool_that_is_not_there_does_not_go_on_for_ever() -> None:
    model = ScriptedModel(lambda ask: calls(ToolCall.of(f"c{len(ask.transcript)}", "look", {"n": len(ask.transcript)})))
    [entry] = fan(model, ["x"])
    assert not entry.ok
    assert len(model.asks) == 2


# Structured answers.


def test_s2_78_answers_may_be_structured_and_are_corrected_one_by_one() -> None:
    def script(ask: Ask) -> Line:
        again = len(ask.transcript) > 1
        return says(GOOD if asked(ask) == "right" or (again and asked(ask) == "later") else BAD)

    model = ScriptedModel(script)
    right, later, never = fan(model, ["right", "later", "never"], output=Person)
    assert right.output == later.output == Person("Maria", 34)
    assert later.usage.input_total == 2 * right.usage.input_total
    corrections = [ask.transcript.messages[-1].text for ask in model.asks if len(ask.transcript) > 1]
    assert all("age" in text for text in corrections)
    assert (never.output, never.text) == (None, BAD)
    assert len(model.asks) == 5


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_s2_56_an_entry_that_stays_wrong_has_failed_after_its_retries(retries: int) -> None:
    model = ScriptedModel(lambda _: says(BAD))
    [entry] = fan(model, ["x"], output=Person, retries=retries)
    assert len(model.asks) == 1 + retries
    assert "age" in entry.error


def test_the_answer_as_a_call_is_corrected_as_its_result() -> None:
    def script(ask: Ask) -> Line:
        return calls(ToolCall("f", "final_result", GOOD if len(ask.transcript) > 1 else BAD))

    model = ScriptedModel(script)
    [entry] = fan(model, ["x"], output=Person, output_form="tool")
    assert entry.output == Person("Maria", 34)
    assert isinstance(model.asks[1].transcript.messages[-1].blocks[0], ToolResult)


# Bounds.


class Counting(ScriptedModel):
    """Knows how many calls were under way at once. Each waits as long as the seed says."""

    def __init__(self, rng: random.Random, price: Decimal | None = None) -> None:
        super().__init__(echo, price=price)
        self._rng = rng
        self.now = self.most = 0

    def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
        stream = super().stream(ask, after=after)
        read, close, waits = stream.read, stream.aclose, self._rng.randrange(6)
        self.now += 1
        self.most = max(self.most, self.now)

        async def slowly():  # type: ignore[no-untyped-def]
            for _ in range(waits):
                await asyncio.sleep(0)
            return await read()

        async def closed() -> None:
            self.now -= 1
            await close()

        stream.read, stream.aclose = slowly, closed  # type: ignore[method-assign]
        return stream


@pytest.mark.parametrize("concurrency", [1, 3, 8, 100])
def test_at_most_so_many_are_under_way_at_once(concurrency: int) -> None:
    """S2.78: at once, as many as may be."""
    model = Counting(random.Random(concurrency))
    found = fan(model, [str(number) for number in range(40)], concurrency=concurrency)
    assert [entry.text for entry in found] == [str(number) for number in range(40)]
    assert model.most == min(concurrency, 40)


@pytest.mark.parametrize("seed", range(20))
def test_alone_it_keeps_to_limits_of_its_own(seed: int) -> None:
    rng = random.Random(seed)
    model = Counting(rng, Decimal("0.01"))
    most, money = rng.randrange(1, 30), Decimal(rng.randrange(1, 30)) / 100
    found = fan(model, ["x"] * 20, limits=Limits(requests=most, cost=money))
    assert len(model.asks) == min(20, most, int(money * 100))
    assert sum(entry.cost for entry in found) == len(model.asks) * Decimal("0.01")
    assert all("tree of runs" in entry.error or "left" in entry.error for entry in found if not entry.ok)


def test_there_is_no_limit_unless_one_is_given() -> None:
    assert all(entry.ok for entry in fan(ScriptedModel(echo), ["x"] * 120))


def test_what_is_not_answered_in_time_has_failed_and_the_rest_is_kept() -> None:
    class Hanging(ScriptedModel):
        def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
            stream = super().stream(ask, after=after)
            if asked(ask) == "hang":

                async def never():  # type: ignore[no-untyped-def]
                    await asyncio.Event().wait()

                stream.read = never  # type: ignore[method-assign]
            return stream

    def attempt(pace: float) -> None:
        found = fan(Hanging(echo), ["a", "hang", "b", "hang", "c"], concurrency=2, limits=Limits(seconds=pace))
        assert [entry.text for entry in found] == ["A", "", "B", "", ""]
        assert f"not answered within the {pace:g} seconds" in found[1].error
        assert "not begun" in found[4].error

    at_some_pace(attempt)


def test_cancelled_it_leaves_nothing_under_way() -> None:
    model = Counting(random.Random(1))

    async def cancelled() -> None:
        task = asyncio.create_task(fan_out(model, ["x"] * 50))
        while not model.asks:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    assert model.now == 0


# Inside a run.


def parallel(id: str, *prompts: str) -> ToolCall:
    return ToolCall.of(id, "parallel_llm", {"prompts": list(prompts)})


def root(model: ScriptedModel, *batches: Reply, **more: object) -> Harness:
    script = [*batches, "done"]
    return Harness(ScriptedModel(script), tools=[parallel_llm_tool(model)], **{"store": "memory", **more})  # type: ignore[arg-type]


def told(result: RunResult, number: int = 0) -> list[dict[str, object]]:
    found = result.records[number].result
    assert found is not None
    [block] = found.content
    assert isinstance(block, TextBlock)
    return json.loads(block.text)  # type: ignore[no-any-return]


def test_s2_78_a_model_may_ask_several_prompts_at_once() -> None:
    model = ScriptedModel(echo, price=Decimal("0.01"))
    one = root(model, calls(parallel("c", "a", "deny", "b")))
    result = one.run_sync("go")
    first, failed, last = told(result)
    assert (first, last) == ({"number": 1, "text": "A"}, {"number": 3, "text": "B"})
    assert failed.keys() == {"number", "error"}
    assert "The key was not accepted." in str(failed["error"])
    done = result.records[0].result
    assert done is not None
    assert done.nested is not None
    assert (done.ok, done.nested.requests, done.nested.cost) == (True, 3, Decimal("0.02"))
    assert result.usage.input_total == 40, "two answers of the root, two of the entries"
    assert one.tools["parallel_llm"].effect == "read"


def test_a_call_without_any_answer_has_failed() -> None:
    result = root(ScriptedModel(echo), calls(parallel("c", "deny", "deny"))).run_sync("go")
    assert result.records[0].result is not None
    assert (result.records[0].result.ok, result.records[0].result.outcome) == (False, "failed")


@pytest.mark.parametrize("prompts", [[], ["x"] * 33, [1], "x"])
def test_the_number_of_prompts_is_bounded(prompts: object) -> None:
    model = ScriptedModel(echo)
    result = root(model, calls(ToolCall.of("c", "parallel_llm", {"prompts": prompts}))).run_sync("go")
    assert result.records[0].result is not None
    assert result.records[0].result.retry
    assert model.asks == []


@pytest.mark.parametrize("seed", range(20))
def test_inside_a_run_it_draws_on_the_budget_of_the_tree(seed: int) -> None:
    rng = random.Random(seed)
    model = Counting(rng)
    most = rng.randrange(2, 24)
    batch = calls(*(parallel(f"c{number}", *(f"{letter}{number}" for letter in "abcdef")) for number in range(3)))
    result = root(model, batch, limits=Limits(requests=most)).run_sync("go")
    assert len(model.asks) == min(18, most - 1)
    assert result.stop == ("done" if most >= 20 else "limit")
    answered = sum("text" in entry for number in range(3) for entry in told(result, number))
    assert answered == len(model.asks)


def test_limits_of_its_own_count_only_outside_of_runs() -> None:
    """The budget of the tree stands in their place."""
    model = ScriptedModel(echo)

    @tool(effect="read")
    async def look() -> int:
        """Look."""
        return sum(entry.ok for entry in await fan_out(model, ["x"] * 5, limits=Limits(requests=2)))

    harness = Harness(ScriptedModel([calls(ToolCall.of("c", "look", {})), "done"]), tools=[look], store="memory")
    assert "5" in str(harness.run_sync("go").records[0].result)
    assert sum(entry.ok for entry in fan(model, ["x"] * 5, limits=Limits(requests=2))) == 2


def test_s2_78_a_tool_of_ones_own_may_be_structured() -> None:
    model = ScriptedModel(lambda _: says(GOOD))

    @tool(effect="read")
    async def people(texts: list[str]) -> list[int]:
        """How old the people in the texts are."""
        return [entry.output.age for entry in await fan_out(model, texts, output=Person) if entry.output]

    call = ToolCall.of("c", "people", {"texts": ["a", "b"]})
    result = Harness(ScriptedModel([calls(call), "done"]), tools=[people], store="memory").run_sync("go")
    assert result.records[0].result is not None
    assert result.records[0].result.content == (TextBlock("[34,34]"),)
    assert result.records[0].result.nested is not None
    assert result.records[0].result.nested.requests == 2


def test_events_of_entries_belong_to_the_call() -> None:
    async def watched() -> list[st.StreamEvent]:
        async with root(ScriptedModel(echo), calls(parallel("c", "a", "b"))).stream("go") as stream:
            return [event async for event in stream]

    seen = asyncio.run(watched())
    inner = [event for event in seen if event.place.parent_call == "c"]
    assert sorted(event.text for event in inner if isinstance(event, st.TextStreamed)) == ["A", "B"]
    assert {event.place.parent_run for event in inner} == {seen[0].place.run}
    assert len({event.place.run for event in inner}) == 2


def test_the_deepest_agent_may_fan_out_too() -> None:
    """Entries have no tools, so they cannot go deeper."""
    store = MemoryStore()
    one = root(ScriptedModel(echo), calls(parallel("c", "a")), store=store)
    for level in range(DEEPEST):
        down = ToolCall.of(f"d{level}", "next", {"task": "go"})
        agent = Subagent(name="next", harness=one, description="Goes on.")
        one = Harness(ScriptedModel([calls(down), "up"]), agents=[agent], store=store)
    result = one.run_sync("go")
    assert result.records[0].result is not None
    assert result.records[0].result.nested is not None
    assert result.records[0].result.nested.requests == 2 * DEEPEST + 1


def test_a_prompt_list_given_as_text_is_told_so() -> None:
    with pytest.raises(UsageError, match="several prompts"):
        fan(ScriptedModel(echo), "hello")
