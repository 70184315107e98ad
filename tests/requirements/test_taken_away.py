"""Small behaviours that a mutant showed no test of their number to notice (`python -m bench mutants`)."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from evener import Harness, Limits, ModelSettings, tool
from evener.errors import EvenerError, UsageError
from evener.harness import Subagent
from evener.testing import ScriptedModel, calls
from evener.transcript import Message, Reply, Stop, TextBlock, ToolCall, ToolResult


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    return item


def test_a_result_is_known_by_its_block_in_a_users_message() -> None:
    """S0.6, S0.15."""
    message = Message.tool_result("a", "found")
    assert (message.role, type(message.blocks[0])) == ("user", ToolResult)
    result = Harness(ScriptedModel([calls(ToolCall.of("a", "look", {"item": "x"})), "done"]), tools=[look], store="memory")
    told = [message.role for message in result.run_sync("go").transcript]
    assert told == ["user", "assistant", "user", "assistant"]


def test_a_time_is_kept_in_utc() -> None:
    """S0.12."""
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    kept = Message("user", (TextBlock("x"),), created_at=noon).created_at
    assert kept is not None
    assert (kept.tzinfo, kept.hour) == (UTC, 10)


def test_every_call_of_a_reply_is_collected() -> None:
    """S0.39."""
    made = (ToolCall.of("a", "look", {"item": "x"}), ToolCall.of("b", "look", {"item": "y"}))
    assert Reply(made, Stop("tools")).calls == made
    result = Harness(ScriptedModel([calls(*made), "done"]), tools=[look], store="memory").run_sync("go")
    assert [record.call.id for record in result.records] == ["a", "b"]


def test_readable_reasoning_is_asked_for_without_an_effort() -> None:
    """S0.40."""
    model = ScriptedModel(["done"])
    Harness(model, store="memory", settings=ModelSettings(show="summary")).run_sync("go")
    assert model.asks[0].reasoning.show == "summary"


def test_a_batch_of_an_agent_inside_does_not_start_beyond_the_limit_around_it() -> None:
    """S2.12."""
    ran: list[str] = []

    @tool(effect="read")
    def note(item: str) -> str:
        """Note an item."""
        ran.append(item)
        return item

    batch = [ToolCall.of(f"n{number}", "note", {"item": str(number)}) for number in range(3)]
    kid = Subagent(
        name="kid", harness=Harness(ScriptedModel([calls(*batch), "done"]), tools=[note], store="memory"), description="Helps."
    )
    model = ScriptedModel([calls(ToolCall.of("a", "kid", {"task": "go"})), "done"])
    Harness(model, agents=[kid], store="memory", limits=Limits(tool_calls=3)).run_sync("go")
    assert ran == []


def test_an_effect_that_is_not_there_is_refused() -> None:
    """S2.21."""
    with pytest.raises(EvenerError, match="must be one of"):
        tool(look.function, effect="sometimes")  # type: ignore[call-overload]


def test_functions_are_tools_and_no_two_have_one_name() -> None:
    """S2.23, S2.27."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    model = ScriptedModel([calls(ToolCall.of("a", "double", {"number": 4})), "done"])
    result = Harness(model, tools=[double], store="memory").run_sync("go")
    assert [record.ok for record in result.records] == [True]
    assert "8" in str(result.transcript.messages[2].blocks[0])
    with pytest.raises(UsageError, match="Two tools are named 'look'"):
        Harness(model, tools=[look, look], store="memory")
