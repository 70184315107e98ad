"""A provider of two members is enough for the loop: a name, and one call."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from evener import Harness, ModelSettings, tool
from evener.errors import ServerError, UsageError
from evener.harness import fan_out
from evener.testing import calls, says
from evener.transcript import Reply, ToolCall, ToolSpec, Transcript


@dataclass(frozen=True)
class Sum:
    """A sum."""

    total: int


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Echo:
    """Says what it is told, after one call of a tool."""

    name = "echo"

    async def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        last = transcript.last
        if tools and tools[-1].name == "final_result":
            return calls(ToolCall.of("f", "final_result", {"total": 5}))
        if tools and len(transcript) == 1:
            return calls(ToolCall.of("a", "add", {"a": 2, "b": 3}))
        result = last.blocks[0] if last else None
        return says(f"It is {result.content[0].text}." if hasattr(result, "content") else last.text if last else "")  # type: ignore[union-attr]


class Blocking:
    """The same without a coroutine."""

    name = "blocking"

    def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        del tools
        return says(transcript.last.text.upper() if transcript.last else "")


class Broken:
    """Fails, or answers with something else."""

    name = "broken"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        del transcript, tools
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer  # type: ignore[return-value]


def test_s0_31_the_loop_takes_a_provider_with_a_name_and_complete() -> None:
    """S0.31, S0.53, S1.6: a tool runs, and the model is known by its name."""
    result = Harness(Echo(), tools=[add], store="memory").run_sync("What is 2 + 3?")
    assert (result.text, result.requests[0].model, result.records[0].ok) == ("It is 5.", "echo", True)


def test_its_answers_may_be_typed() -> None:
    """S2.49."""
    assert Harness(Echo(), output=Sum, store="memory").run_sync("go").output == Sum(5)


def test_complete_may_be_a_plain_function() -> None:
    """S0.31."""
    assert Harness(Blocking(), store="memory").run_sync("hello").text == "HELLO"


def test_it_may_be_asked_many_things_at_once() -> None:
    entries = asyncio.run(fan_out(Blocking(), ["a", "b"]))
    assert [entry.text for entry in entries] == ["A", "B"]


def test_what_it_cannot_be_told_is_a_loss() -> None:
    settings = ModelSettings(temperature=0.5, stop=("END",))
    result = Harness(Blocking(), store="memory", settings=settings).run_sync("hello")
    assert [loss.code for loss in result.losses] == ["setting.temperature.dropped", "setting.stop.dropped"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [(ValueError("no"), "'broken' failed: ValueError: no"), ("text", "gave a str. Return an evener.transcript.Reply")],
)
def test_what_goes_wrong_in_it_is_told_with_its_name(answer: object, says: str) -> None:
    with pytest.raises(ServerError, match=says):
        Harness(Broken(answer), store="memory").run_sync("go")


def test_without_a_name_it_is_refused() -> None:
    provider = Blocking()
    provider.name = ""
    with pytest.raises(UsageError, match="needs a `name`"):
        Harness(provider, store="memory")
