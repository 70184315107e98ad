"""Replies: what a model answered, whole, and how a loop reads it."""

import pytest

from evener.transcript import Block, ReasoningBlock, Reply, Seal, Stop, StopReason, TextBlock, ToolCall, Usage

WHY = ReasoningBlock("because", Seal('{"signature":"x"}'))
ADD, SUB = ToolCall("1", "add", '{"a":1}'), ToolCall("2", "sub")


def reply(*blocks: Block, reason: StopReason = "done") -> Reply:
    return Reply(blocks, Stop(reason), Usage(10, 7, 2, 1, 5, 3), "resp_1", "m")


def test_a_reply_is_frozen() -> None:  # S0.29
    with pytest.raises(AttributeError):
        reply().id = "x"  # type: ignore[misc]


def test_a_reply_is_read_by_its_parts() -> None:  # S0.29
    whole = reply(WHY, TextBlock("a"), ReasoningBlock("again"), ADD, TextBlock("b"), SUB)
    assert whole.text == "ab"
    assert [(call.id, call.name, call.args) for call in whole.calls] == [("1", "add", {"a": 1}), ("2", "sub", {})]
    assert whole.reasoning_text == "because\n\nagain"
    assert whole.reasoning_metadata == ({"signature": "x"}, {})
    assert (whole.input_tokens, whole.output_tokens, whole.reasoning_tokens) == (10, 5, 3)


def test_tokens_are_zero_when_nobody_says() -> None:  # S0.32
    silent = Reply((), Stop("done"))
    assert (silent.input_tokens, silent.output_tokens, silent.reasoning_tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    ("whole", "is_tool_call", "is_final"),
    [
        (reply(TextBlock("a")), False, True),
        (reply(), False, True),
        (reply(ADD, reason="tools"), True, False),
        (reply(TextBlock("a"), ADD, reason="tools"), True, False),
        (reply(ADD, reason="length"), True, False),
        (reply(TextBlock("a"), reason="refusal"), False, True),
        (reply(TextBlock("a"), reason="paused"), False, False),
        (reply(reason="pending"), False, False),
    ],
    ids=lambda value: value.stop.reason if isinstance(value, Reply) else "",
)
def test_the_loop_sees_calls_and_ends_and_never_reasoning(  # S0.30, S0.33
    whole: Reply, is_tool_call: bool, is_final: bool
) -> None:
    for same in (whole, reply(WHY, *whole.blocks, reason=whole.stop.reason)):
        assert same.is_tool_call is is_tool_call
        assert same.is_final is is_final


def test_a_stop_keeps_the_providers_word() -> None:
    stop = Stop("length", "max_output_tokens", "cut off")
    assert (stop.reason, stop.raw, stop.detail) == ("length", "max_output_tokens", "cut off")
