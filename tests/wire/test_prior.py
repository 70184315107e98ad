"""`prior` is only ever a help: one of another wire, provider, model, conversation or set of tools changes nothing."""

from itertools import product

import pytest

from evener.transcript import Ask, Message, Origin, Settings, ToolCall, ToolSpec, Transcript
from evener.wire import CODECS, Quirks

QUIRKS = Quirks()
TOOLS = (ToolSpec("look"),)
TALK = Transcript([Message.user_text("a"), Message.assistant_text("b"), Message.user_text("c")], system="Be brief.")
LONGER = TALK.extend([Message.assistant_tool_call(ToolCall.of("1", "look", {})), Message.tool_result("1", "seen")])
FORK = TALK.extend([Message.assistant_text("another way"), Message.user_text("and now?")])


def asked(
    wire: str, talk: Transcript = TALK, tools: tuple[ToolSpec, ...] = TOOLS, provider: str = "p", model: str = "m"
) -> Ask:
    return Ask(talk, Origin(wire, provider, "", model), tools)


@pytest.mark.parametrize(("mine", "other"), list(product(CODECS, CODECS)))
def test_a_prior_request_on_another_wire_changes_nothing(mine: str, other: str) -> None:
    for target in (asked(mine), asked(other)):  # also with a target that names the wrong wire
        prior = CODECS[other].encode(target, QUIRKS, None)
        assert CODECS[mine].encode(target, QUIRKS, prior).body == CODECS[mine].encode(target, QUIRKS, None).body


@pytest.mark.parametrize("wire", CODECS)
def test_a_prior_request_about_something_else_changes_nothing(wire: str) -> None:
    codec = CODECS[wire]
    asks = [
        asked(wire),
        asked(wire, LONGER),
        asked(wire, FORK),
        asked(wire, LONGER.with_system("Be kind.")),
        asked(wire, Transcript([Message.user_text("other")])),
        asked(wire, tools=()),
        asked(wire, tools=(ToolSpec("other"),)),
        asked(wire, provider="q"),
        asked(wire, model="n"),
    ]
    for before, after in product(asks, asks):
        prior = codec.encode(before, QUIRKS, None)
        fresh = codec.encode(after, QUIRKS, None)
        again = codec.encode(after, QUIRKS, prior)
        assert (again.body, again.losses, again.binding, again.names) == (fresh.body, fresh.losses, fresh.binding, fresh.names)


@pytest.mark.parametrize("wire", CODECS)
def test_a_prior_request_under_other_quirks_changes_nothing(wire: str) -> None:
    codec, other = CODECS[wire], Quirks(name_length=30, id_length=30, tools=False, hosted=False, mid_system=False)
    prior = codec.encode(asked(wire, LONGER), other, None)
    assert codec.encode(asked(wire, LONGER), QUIRKS, prior).body == codec.encode(asked(wire, LONGER), QUIRKS, None).body


def test_values_of_an_ask_are_checked_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="finite"):
        Settings(temperature=float("nan"))
