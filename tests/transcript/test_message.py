"""Messages: a role, blocks in order, where they came from; made by factories."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import fields, replace

from evener.errors import BadValue
from evener.transcript import (
    Block,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Reply,
    Seal,
    Stop,
    TextBlock,
    ToolCall,
    ToolResult,
    Usage,
)

LONE = "\ud800"
WHY = ReasoningBlock("because")
ADD = ToolCall("1", "add", '{"a":1}')


@pytest.mark.parametrize(
    ("message", "role", "blocks"),
    [
        (Message.user_text("hi"), "user", (TextBlock("hi"),)),
        (Message.system_text("be brief"), "system", (TextBlock("be brief"),)),
        (Message.assistant_text("ho"), "assistant", (TextBlock("ho"),)),
        (Message.assistant_text("ho", reasoning=WHY), "assistant", (WHY, TextBlock("ho"))),  # S0.14
        (Message.assistant_tool_call(ADD), "assistant", (ADD,)),
        (Message.assistant_tool_call(ADD, ADD, reasoning=WHY), "assistant", (WHY, ADD, ADD)),  # S0.14
        (Message.tool_result("1", "2"), "user", (ToolResult("1", (TextBlock("2"),)),)),  # S0.15
        (Message.tool_result("1", "", is_error=True), "user", (ToolResult("1", (), True),)),
        (Message.tool_result("1", [TextBlock("2")]), "user", (ToolResult("1", (TextBlock("2"),)),)),
        (Message("user", [TextBlock("a"), TextBlock("b")]), "user", (TextBlock("a"), TextBlock("b"))),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_factory_makes_a_role_and_blocks(message: Message, role: str, blocks: tuple[Block, ...]) -> None:  # S0.8, S0.13
    """S4.6."""
    assert message.role == role
    assert message.blocks == blocks


def test_a_message_knows_when_it_was_made_and_has_a_name_of_its_own() -> None:  # S0.1, S0.12
    before = datetime.now(UTC)
    one, two = Message.user_text("hi"), Message.user_text("hi")
    assert one.created_at is not None
    assert before <= one.created_at <= datetime.now(UTC)
    assert one.created_at.tzinfo is UTC
    assert UUID(one.id).version == 4
    assert one.id != two.id
    assert one.parent_id == ""
    assert one != two


def test_a_message_is_frozen() -> None:  # S0.11
    message = Message.user_text("hi")
    for field in fields(message):
        with pytest.raises(AttributeError):
            setattr(message, field.name, None)
    assert {message, replace(message)} == {message}


def test_time_is_kept_in_utc() -> None:
    there = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=1, minutes=30)))
    message = Message("user", (), created_at=there)
    assert message.created_at == there
    assert message.created_at is not None
    assert message.created_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Message("tool", ()), "Unknown role 'tool'"),  # type: ignore[arg-type]
        (lambda: Message(["user"], ()), "Unknown role"),  # type: ignore[arg-type]
        (lambda: Message("user", "hi"), "not a str"),  # type: ignore[arg-type]
        (lambda: Message("user", 5), "Message.blocks"),  # type: ignore[arg-type]
        (lambda: Message("user", TextBlock("a")), "Message.blocks"),  # type: ignore[arg-type]
        (lambda: Message("user", ("hi",)), "Message.blocks"),  # type: ignore[arg-type]
        (lambda: Message("user", ({"type": "text", "text": "hi"},)), "Message.blocks"),  # type: ignore[arg-type]
        (lambda: Message("user", (), id=5), "Message.id"),  # type: ignore[arg-type]
        (lambda: Message("user", (), id=LONE), "Message.id"),
        (lambda: Message("user", (), id=""), "Message.id"),
        (lambda: Message("user", (), parent_id=None), "Message.parent_id"),  # type: ignore[arg-type]
        (lambda: Message("user", (), created_at="today"), "Message.created_at"),  # type: ignore[arg-type]
        (lambda: Message("user", (), created_at=datetime(2026, 1, 1)), "time zone"),
        (lambda: Message("user", (), created_at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))), "9999"),
        (lambda: Message("user", (), origin="me"), "Message.origin"),  # type: ignore[arg-type]
        (lambda: Message("user", (), usage=3), "Message.usage"),  # type: ignore[arg-type]
        (lambda: Message.user_text(5), "TextBlock.text"),  # type: ignore[arg-type]
        (lambda: Message.tool_result("1", [WHY]), "ToolResult.content"),  # type: ignore[list-item]
    ],
)
def test_a_message_that_cannot_exist_is_refused(make: Callable[[], Message], match: str) -> None:  # S0.5, S0.6
    with pytest.raises(BadValue, match=match):
        make()


def reply(*blocks: Block) -> Reply:
    return Reply(blocks, Stop("done"), Usage(input_total=3, output_total=2))


def test_a_reply_becomes_one_message_with_all_its_blocks_in_order() -> None:  # S0.17, S0.39, C7
    two = ToolCall("2", "add", '{"a":2}')
    origin = Origin("anthropic_messages", "p", "", "m")
    message = Message.from_assistant_response(reply(WHY, TextBlock("so"), ADD, two), origin=origin)
    assert message.role == "assistant"
    assert message.blocks == (WHY, TextBlock("so"), ADD, two)
    assert message.calls == (ADD, two)
    assert message.text == "so"
    assert message.origin == origin
    assert message.usage == Usage(input_total=3, output_total=2)


def test_the_arguments_of_a_reply_are_copied() -> None:  # S0.17
    message = Message.from_assistant_response(reply(ADD))
    message.calls[0].args["a"] = "changed"
    assert message.calls[0].args == ADD.args == {"a": 1}


def test_the_providers_own_counts_are_in_the_metadata_of_message_and_reasoning() -> None:  # S0.17
    thought = ReasoningBlock("", Seal('{"signature":"x"}'))
    counted = Usage(input_total=9, cache_read=4, output_total=7, reasoning=5)
    message = Message.from_assistant_response(Reply((thought, WHY, TextBlock("so")), Stop("done"), counted))
    first, second, _ = message.blocks
    assert isinstance(first, ReasoningBlock)
    assert isinstance(second, ReasoningBlock)
    assert first.metadata == {"provider_tokens": 5, "signature": "x"}
    assert second.metadata == WHY.metadata  # the count is of all reasoning, so it stands once
    assert message.metadata["signature"] == "x"
    assert message.metadata["provider_tokens"] == {
        "input_total": 9, "uncached": 0, "cache_read": 4, "cache_write": 0, "output_total": 7, "reasoning": 5,
    }  # fmt: skip
    assert Message.user_text("hi").metadata == {}
    kept = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert (kept, kept.metadata) == (message, message.metadata)


def test_an_empty_reply_is_an_empty_text() -> None:  # S0.17
    assert Message.from_assistant_response(reply()).blocks == (TextBlock(""),)


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        (ReasoningBlock("because"), True),
        (ReasoningBlock("", Seal('{"signature":"x"}')), True),
        (ReasoningBlock(""), False),
    ],
    ids=["text", "seal", "neither"],
)
def test_reasoning_is_kept_when_it_has_text_or_fields(block: ReasoningBlock, kept: bool) -> None:  # S0.17
    blocks = Message.from_assistant_response(reply(block, TextBlock("so"))).blocks
    assert [one.kind for one in blocks] == (["reasoning", "text"] if kept else ["text"])


def test_seals_are_stamped_with_who_made_them_and_under_which_prefix() -> None:  # S0.22
    seal = Seal('{"signature":"x"}', id="sig_1")
    origin = Origin("gemini", "p", "", "m")
    image = ImageBlock(Inline("aGk="), seal=seal)
    said = reply(ReasoningBlock("", seal), TextBlock("a", seal=seal), replace(ADD, seal=seal), image)
    blocks = Message.from_assistant_response(said, origin=origin, binding="f00d").blocks
    stamped = Seal(seal.data, origin, "f00d", "sig_1")
    assert [block.seal for block in blocks if not isinstance(block, ToolResult) and block.kind != "hosted"] == [stamped] * 4
