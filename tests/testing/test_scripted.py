"""The scripted model has the interface of a real one (S0.29 to S0.33, S0.49)."""

import asyncio

import pytest

from evener.errors import UsageError
from evener.testing import ScriptedModel
from evener.testing.scripted import ScriptedCompleter
from evener.transcript import Message, ReasoningBlock, Reply, Stop, TextBlock, ToolCall, ToolSpec, Transcript, Usage
from evener.transcript.completer import Completer

CALLS = Reply((ReasoningBlock("hm"), ToolCall.of("c1", "look", {"at": 1})), Stop("tools"), Usage(10, 10, 0, 0, 5, 2))
DONE = Reply((TextBlock("seen"),), Stop("done"))


async def run(model: Completer, transcript: Transcript, tools: tuple[ToolSpec, ...]) -> tuple[str, Transcript]:
    """The loop of the book in six lines: it never looks at reasoning, nor at who answers."""
    while True:
        reply = await model.complete(transcript, tools)
        transcript = transcript.append(Message.from_assistant_response(reply))
        if reply.is_final:
            return reply.text, transcript
        transcript = transcript.extend(Message.tool_result(call.id, str(call.args)) for call in reply.calls)


def test_a_loop_runs_on_the_script_as_on_any_model() -> None:
    model = ScriptedCompleter([CALLS, DONE], name="script")
    text, transcript = asyncio.run(run(model, Transcript([Message.user_text("Look.")]), (ToolSpec("look"),)))
    assert (text, len(transcript), model.name) == ("seen", 4, "script")
    assert [len(asked) for asked, _ in model.asked] == [1, 3]


def test_a_reply_tells_calls_from_an_end_and_counts_what_is_known() -> None:
    assert (CALLS.is_tool_call, CALLS.is_final, DONE.is_tool_call, DONE.is_final) == (True, False, False, True)
    assert (CALLS.input_tokens, CALLS.output_tokens, CALLS.reasoning_tokens) == (10, 5, 2)
    assert (DONE.input_tokens, DONE.output_tokens, DONE.reasoning_tokens) == (0, 0, 0)


def test_a_script_that_runs_out_says_so() -> None:
    model = ScriptedCompleter([])
    with pytest.raises(UsageError, match="has 0 replies"):
        asyncio.run(model.complete(Transcript()))


def test_a_text_is_no_script() -> None:
    with pytest.raises(UsageError, match="Put the text into a list"):
        ScriptedModel("Hello.")
