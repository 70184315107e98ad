"""`prior` is only ever a help: one of another wire, provider, model, conversation or set of tools changes nothing."""

from itertools import product

import pytest

from evener.transcript import Ask, Cache, Message, Origin, Settings, ToolCall, ToolSpec, Transcript
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


@pytest.mark.parametrize("wire", CODECS)
def test_what_a_conversation_shares_is_made_once_though_others_speak_in_between(wire: str) -> None:
    codec = CODECS[wire]
    first = codec.encode(asked(wire), QUIRKS, None)
    codec.encode(asked(wire, TALK.with_system("Be kind.")), QUIRKS, None)
    assert codec.encode(asked(wire, LONGER), QUIRKS, first).fixed is first.fixed
    assert codec.encode(asked(wire, LONGER, model="n"), QUIRKS, first).fixed is not first.fixed


@pytest.mark.parametrize("wire", CODECS)
def test_what_a_conversation_shares_holds_none_of_its_messages(wire: str) -> None:
    shared = repr(CODECS[wire].encode(asked(wire), QUIRKS, None).fixed)
    assert "Transcript of 0 messages" in shared
    assert "Transcript of 3 messages" not in shared


@pytest.mark.parametrize("wire", CODECS)
def test_a_request_is_equal_to_the_same_one_made_otherwise(wire: str) -> None:
    codec = CODECS[wire]
    prior = codec.encode(asked(wire), QUIRKS, None)
    quick = codec.encode(asked(wire, LONGER), QUIRKS, prior)
    codec.encode(asked(wire, model="n"), QUIRKS, None)
    assert quick == codec.encode(asked(wire, LONGER), QUIRKS, None)
    assert quick != codec.encode(asked(wire, LONGER, model="n"), QUIRKS, None)


@pytest.mark.parametrize("wire", CODECS)
def test_where_no_marks_are_wanted_none_are_lost(wire: str) -> None:
    ask = Ask(TALK, Origin(wire, "p", "", "m"), TOOLS, cache=Cache("provider"))
    lost = CODECS[wire].encode(ask, Quirks(cache_marks=0), None).losses
    assert [loss for loss in lost if loss.what == "cache marks"] == []


def test_values_of_an_ask_are_checked_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="finite"):
        Settings(temperature=float("nan"))


@pytest.mark.parametrize("wire", CODECS)
def test_a_number_is_written_as_it_was_given_whatever_went_before(wire: str) -> None:
    whole, broken = (Ask(TALK, Origin(wire, "p", "", "m"), settings=Settings(temperature=heat)) for heat in (1, 1.0))
    bodies = [CODECS[wire].encode(ask, QUIRKS, None).body for ask in (whole, broken, whole)]
    assert bodies[0] == bodies[2] != bodies[1]
