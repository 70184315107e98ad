"""Tool names and call ids on every wire: legal there, told apart, the same for ever, and turned back."""

import json
import re

import pytest

from evener.errors import BadValue
from evener.transcript import Ask, Message, Origin, Reply, Stop, ToolCall, ToolSpec, Transcript
from evener.wire import CODECS, Encoded, Quirks, restored
from evener.wire.request import nine_id, short_id, wire_name

NAMES = ("plain", "mcp__server__tool", "with.dot", "with dot", "ünïcode", "x" * 200, "x" * 199 + "y", "a/b", "a:b", "")
IDS = ("call_1", "toolu|1", "x" * 90, "x" * 89 + "y", "id with spaces", "ä")
LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
wires = pytest.mark.parametrize("wire", CODECS)


def encode(wire: str, talk: Transcript, *tools: ToolSpec, prior: Encoded | None = None) -> Encoded:
    return CODECS[wire].encode(Ask(talk, Origin(wire, "p", "", "m"), tools), Quirks(), prior)


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [found for one in value.values() for found in strings(one)]
    if isinstance(value, list):
        return [found for one in value for found in strings(one)]
    return [value] if isinstance(value, str) else []


def test_names_are_legal_and_different_names_stay_different() -> None:
    sent = [wire_name(name, 64) for name in NAMES]
    assert all(LEGAL.fullmatch(name) for name in sent)
    assert len(set(sent)) == len(NAMES)
    assert [wire_name(name, 64) for name in sent] == sent


@pytest.mark.parametrize(("shorten", "length"), [(lambda id: short_id(id, 40), 40), (nine_id, 9)])
def test_ids_are_short_enough_and_stay_different(shorten: object, length: int) -> None:
    assert callable(shorten)
    sent = [shorten(id) for id in IDS]
    assert all(0 < len(id) <= length for id in sent)
    assert len(set(sent)) == len(IDS)


@wires
def test_a_reply_has_our_names_again(wire: str) -> None:
    encoded = encode(wire, Transcript([Message.user_text("a")]), ToolSpec("with dot"), ToolSpec("plain"))
    ((sent, ours),) = encoded.names
    assert ours == "with dot"
    assert sent in strings(json.loads(encoded.body))
    reply = Reply((ToolCall("1", sent, "{}"), ToolCall("2", "plain", "{}")), Stop("tools"))
    assert [call.name for call in restored(reply, encoded).calls] == ["with dot", "plain"]


@wires
def test_history_calls_a_tool_by_the_name_it_is_declared_under(wire: str) -> None:
    """S3.24."""
    said = Message.assistant_tool_call(ToolCall.of("toolu|1", "with dot", {}))
    talk = Transcript([Message.user_text("a"), said, Message.tool_result("toolu|1", "r")])
    encoded = encode(wire, talk, ToolSpec("with dot"))
    assert strings(json.loads(encoded.body)).count(encoded.names[0][0]) >= 2


@wires
def test_an_old_id_is_never_renamed_by_a_later_message(wire: str) -> None:
    talk = Transcript([Message.user_text("a")])
    before: list[str] = []
    for id in (*IDS, "call_1", "call_1"):  # used again, twice
        talk = talk.extend([Message.assistant_tool_call(ToolCall.of(id, "look", {})), Message.tool_result(id, "r")])
        found = [text for text in strings(json.loads(encode(wire, talk).body)) if text not in ("look", "r", "a")]
        assert found[: len(before)] == before
        before = found


@wires
def test_two_tools_of_one_name_are_refused(wire: str) -> None:
    with pytest.raises(BadValue, match="Two tools would be called 'look'"):
        encode(wire, Transcript([Message.user_text("a")]), ToolSpec("look"), ToolSpec("look"))
