"""Every kind of answer in every mode (S2.5, S2.49 to S2.54): final, run calls, correct by user or by tool, unexpected."""

from typing import NamedTuple

import pytest

from evener.encodings import output_text
from evener.tools.outputs import Calls, Correct, Final, OutputShape, Unexpected, Verdict, judge
from evener.transcript import Block, Reply, TextBlock, ToolCall
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import HostedBlock
from tests.encodings.talk import TOOLS
from tests.outputs.cases import FORMS, NAMES, NUMBER, PET, TRIP, Cat, Dog, Trip, answered, final, prepared_for, reply, written

NAMED = tuple(tool.name for tool in TOOLS)
ADD = ToolCall("c1", "add", '{"a":1,"b":2}')


def verdict(shape: OutputShape, form: OutputForm, said: Reply) -> Verdict:
    """Through the encodings, as a run does it: `value` is put around and taken off there, and nowhere else."""
    prepared = prepared_for(shape, form)
    assert prepared.form == form
    return judge(said, output_text(said, prepared), shape=shape, form=prepared.form, tool_names=NAMED)


VALID = [
    ("object", TRIP, '{"city": "Ulm", "days": 2}', Trip("Ulm", 2)),
    ("default", TRIP, '{"city": "Ulm"}', Trip("Ulm", 3)),
    ("wrapped scalar", NUMBER, "42", 42),
    ("list", NAMES, '["a", "b"]', ["a", "b"]),
    ("union, first", PET, '{"lives": 9}', Cat(9)),
    ("union, second", PET, '{"tricks": ["roll"]}', Dog(["roll"])),
]
INVALID = [
    ("invalid JSON", TRIP, '{"city": "Ulm"', "city", "not JSON"),
    ("empty", TRIP, "", "", "it is empty"),
    ("wrong type", TRIP, '{"city": 7}', "city", "expected a string"),
    ("extra field", TRIP, '{"city": "Ulm", "dys": 3}', "dys", "did you mean days?"),
    ("missing field", TRIP, '{"days": 3}', "city", "required, but missing"),
    ("out of bounds", TRIP, '{"city": "Ulm", "days": 11}', "days", "at most 10"),
    ("twice the same key", TRIP, '{"city": "Ulm", "city": "Rom"}', "city", "stands twice"),
    ("not a number", NUMBER, "NaN", None, "NaN and Infinity are not JSON"),
    ("wrong scalar", NUMBER, '"42"', "", "expected a whole number"),
    ("wrong item", NAMES, '["a", 2]', "[1]", "expected a string"),
    ("no form of a union", PET, '{"lives": "nine"}', "lives", "expected a whole number"),
    ("another kind", TRIP, "[1]", "", "expected an object"),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "shape", "text", "value"), VALID, ids=[case[0] for case in VALID])
def test_s2_51_to_54_an_answer_that_fits_is_final(
    form: OutputForm, name: str, shape: OutputShape, text: str, value: object
) -> None:
    found = verdict(shape, form, reply(answered(shape, form, text)))
    assert found == Final(value, text), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "shape", "text", "path", "words"), INVALID, ids=[case[0] for case in INVALID])
def test_s2_10_an_answer_that_does_not_fit_is_to_be_corrected(
    form: OutputForm, name: str, shape: OutputShape, text: str, path: str | None, words: str
) -> None:
    found = verdict(shape, form, reply(answered(shape, form, text)))
    assert isinstance(found, Correct), name
    assert words in found.problems[0].message
    assert path is None or found.problems[0].path == path
    assert (found.by, found.calls) == (("tool", ("f1",)) if form == "tool" else ("user", ()))
    assert found.problems[0].message in found.message
    assert found.message.splitlines()[-1].startswith("Call final_result again" if form == "tool" else "Answer again with only")


class Odd(NamedTuple):
    """A turn, what it means in each mode, and whom the correction names."""

    said: Reply
    text: str
    native: str
    tool: str
    prompted: str
    calls: tuple[str, ...] = ()


FITS = '{"city": "Ulm"}'
WORDS = TextBlock("Go to Ulm.")
ODD: dict[str, Odd] = {
    "fenced": Odd(reply(TextBlock(f"```json\n{FITS}\n```")), "Final", "Correct user", "Correct user", "Final"),
    "fenced arguments": Odd(reply(final(f"```\n{FITS}\n```")), "Calls", *["Correct tool"] * 3, calls=("f1",)),
    "after thoughts": Odd(reply(TextBlock(f"<think>{{}}</think>{FITS}")), "Final", *["Correct user"] * 2, prompted="Final"),
    "text instead": Odd(reply(WORDS), "Final", *["Correct user"] * 3),
    "the JSON as text": Odd(reply(TextBlock(FITS)), "Final", "Final", "Correct user", "Final"),
    "ordinary calls": Odd(reply(ADD, stop="tools"), *["Calls"] * 4),
    "ordinary calls and the answer": Odd(reply(TextBlock(FITS), ADD, stop="tools"), *["Calls"] * 4),
    "text beside the final call": Odd(reply(WORDS, final(FITS)), "Calls", "Correct tool", "Final", "Correct tool", ("f1",)),
    "the final call with siblings": Odd(reply(ADD, final(FITS), stop="tools"), "Calls", *["Correct tool"] * 3, calls=("f1",)),
    "twice": Odd(reply(final(FITS), final(FITS, "f2")), "Calls", *["Correct tool"] * 3, calls=("f1", "f2")),
    "refusal": Odd(reply(TextBlock("No."), stop="refusal"), "Final", *["Unexpected"] * 3),
    "refusal in JSON": Odd(reply(TextBlock(FITS), stop="refusal"), "Final", *["Unexpected"] * 3),
    "cut off": Odd(reply(TextBlock('{"city": "U'), stop="length"), "Final", *["Unexpected"] * 3),
    "cut off where it fits": Odd(reply(TextBlock(FITS), stop="length"), "Final", *["Unexpected"] * 3),
    "a cut final call": Odd(reply(final('{"ci'), stop="length"), "Calls", *["Unexpected"] * 3),
    "a full window": Odd(reply(WORDS, stop="context_full"), "Final", *["Unexpected"] * 3),
    "paused": Odd(reply(WORDS, stop="paused"), *["Calls"] * 4),
    "a hosted call that is awaited": Odd(reply(WORDS, HostedBlock("{}", "openai_chat", opens="h1")), *["Calls"] * 4),
    "nothing": Odd(reply(), "Final", *["Correct user"] * 3),
}


def kind_of(found: Verdict) -> str:
    return f"Correct {found.by}" if isinstance(found, Correct) else type(found).__name__


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("form", FORMS)
def test_s2_5_what_a_turn_means_in_each_form(form: OutputForm, name: str) -> None:
    odd = ODD[name]
    found = verdict(TRIP, form, odd.said)
    assert kind_of(found) == getattr(odd, form)
    if isinstance(found, Correct) and found.by == "tool":
        assert found.calls == odd.calls, "ordinary siblings are not corrected: they run"
    if isinstance(found, Final):
        assert found.value == Trip("Ulm")


@pytest.mark.parametrize("name", ODD)
def test_s2_50_in_text_mode_the_final_text_is_the_answer(name: str) -> None:
    odd = ODD[name]
    found = judge(odd.said, odd.said.text, shape=None, tool_names=NAMED)
    assert kind_of(found) == odd.text
    if isinstance(found, Final):
        assert found.value == found.text == odd.said.text


def test_s2_52_the_correction_says_what_was_wrong_with_the_final_call() -> None:
    def told(*calls: Block) -> str:
        found = verdict(TRIP, "tool", reply(*calls))
        assert isinstance(found, Correct)
        return found.message

    assert "together with other tools" in told(ADD, final(FITS))
    assert "called 2 times" in told(final(FITS), final(FITS, "f2"))
    assert "written as text" in told(WORDS)


@pytest.mark.parametrize("form", ["native", "prompted"])
def test_a_users_own_tool_may_have_the_name_where_it_is_not_reserved(form: OutputForm) -> None:
    assert judge(reply(final(FITS)), "", shape=TRIP, form=form, tool_names=("final_result",)) == Calls()
    found = judge(reply(final(FITS)), "", shape=TRIP, form=form, tool_names=NAMED)
    assert isinstance(found, Correct)
    assert "no tool final_result now" in found.message


def test_a_refusal_is_told_in_the_models_words() -> None:
    for said, words in [
        (reply(TextBlock("I will not."), stop="refusal"), "The model declined to answer: I will not."),
        (reply(TextBlock("No."), stop="refusal", detail="Unsafe."), "The model declined to answer: Unsafe."),
        (reply(stop="refusal"), "The model declined to answer."),
    ]:
        assert judge(said, said.text, shape=TRIP, form="native") == Unexpected(words)


@pytest.mark.parametrize("form", ["native", "tool"])
def test_s2_54_the_value_is_taken_off_once(form: OutputForm) -> None:
    """A shape with a field called `value` keeps it; one that is wrapped loses one layer only."""
    held = OutputShape.of({"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]})
    assert verdict(held, form, reply(answered(held, form, '{"value": 1}'))) == Final({"value": 1}, '{"value": 1}')
    either = OutputShape.of({"anyOf": [{"type": "object", "properties": {"value": {}}}, {"type": "null"}]})
    assert written(either, form, '{"value": 1}') == '{"value": {"value": 1}}'
    assert verdict(either, form, reply(answered(either, form, '{"value": 1}'))) == Final({"value": 1}, '{"value": 1}')
