"""Every kind of answer in every mode (S2.5, S2.49 to S2.54): final, run calls, correct by user or by tool, unexpected."""

import json
from typing import NamedTuple

import pytest

from evener.encodings import EncodingName, output_text, prepare
from evener.tools.outputs import Calls, Correct, Final, OutputShape, PartialReader, Unexpected, Verdict, judge
from evener.transcript import Block, Reply, TextBlock, ToolCall
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import HostedBlock
from evener.wire import Quirks
from tests.encodings.talk import FLAT, TEXTUAL, TOOLS, asked, read, streamed
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
    ("empty", TRIP, "", "", "empty; expected JSON"),
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


Means = dict[OutputForm, str]
"""What a turn means in each form; the empty one is text mode."""


class Odd(NamedTuple):
    """A turn, what it means, and the calls that a correction answers."""

    said: Reply
    means: Means
    calls: tuple[str, ...] = ()


def means(text: str, shaped: str, *, native: str = "", tool: str = "", prompted: str = "") -> Means:
    """One word for text mode and one for all forms, unless a form has one of its own."""
    return {"": text, "native": native or shaped, "tool": tool or shaped, "prompted": prompted or shaped}


FITS = '{"city": "Ulm"}'
WORDS = TextBlock("Go to Ulm.")
USER, TOOL = "Correct user", "Correct tool"
ODD: dict[str, Odd] = {
    "fenced": Odd(reply(TextBlock(f"```json\n{FITS}\n```")), means("Final", USER, prompted="Final")),
    "fenced arguments": Odd(reply(final(f"```\n{FITS}\n```")), means("Calls", TOOL), ("f1",)),
    "after thoughts": Odd(reply(TextBlock(f"<think>{{}}</think>{FITS}")), means("Final", USER, prompted="Final")),
    "text instead": Odd(reply(WORDS), means("Final", USER)),
    "the JSON as text": Odd(reply(TextBlock(FITS)), means("Final", "Final", tool=USER)),
    "ordinary calls": Odd(reply(ADD, stop="tools"), means("Calls", "Calls")),
    "ordinary calls and the answer": Odd(reply(TextBlock(FITS), ADD, stop="tools"), means("Calls", "Calls")),
    "text beside the final call": Odd(reply(WORDS, final(FITS)), means("Calls", TOOL, tool="Final"), ("f1",)),
    "the final call with siblings": Odd(reply(ADD, final(FITS), stop="tools"), means("Calls", TOOL), ("f1",)),
    "twice": Odd(reply(final(FITS), final(FITS, "f2")), means("Calls", TOOL), ("f1", "f2")),
    "refusal": Odd(reply(TextBlock("No."), stop="refusal"), means("Final", "Unexpected")),
    "refusal in JSON": Odd(reply(TextBlock(FITS), stop="refusal"), means("Final", "Unexpected")),
    "cut off": Odd(reply(TextBlock('{"city": "U'), stop="length"), means("Final", "Unexpected")),
    "cut off where it fits": Odd(reply(TextBlock(FITS), stop="length"), means("Final", "Unexpected")),
    "a cut final call": Odd(reply(final('{"ci'), stop="length"), means("Calls", "Unexpected")),
    "a full window": Odd(reply(WORDS, stop="context_full"), means("Final", "Unexpected")),
    "paused": Odd(reply(WORDS, stop="paused"), means("Calls", "Calls")),
    "a hosted call that is awaited": Odd(reply(WORDS, HostedBlock("{}", "openai_chat", opens="h")), means("Calls", "Calls")),
    "nothing": Odd(reply(), means("Final", USER)),
}


def kind_of(found: Verdict) -> str:
    return f"Correct {found.by}" if isinstance(found, Correct) else type(found).__name__


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("form", FORMS)
def test_s2_5_what_a_turn_means_in_each_form(form: OutputForm, name: str) -> None:
    odd = ODD[name]
    found = verdict(TRIP, form, odd.said)
    assert kind_of(found) == odd.means[form]
    if isinstance(found, Correct) and found.by == "tool":
        assert found.calls == odd.calls, "ordinary siblings are not corrected: they run"
    if isinstance(found, Final):
        assert found.value == Trip("Ulm")


@pytest.mark.parametrize("name", ODD)
def test_s2_50_in_text_mode_the_final_text_is_the_answer(name: str) -> None:
    odd = ODD[name]
    found = judge(odd.said, odd.said.text, shape=None, tool_names=NAMED)
    assert kind_of(found) == odd.means[""]
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


WRITTEN: dict[EncodingName, str] = {"json_schema": "{}", "xml": "```json\n{}\n```", "react": "Thought: hm\nFinal Answer: {}"}


@pytest.mark.parametrize("encoding", TEXTUAL)
@pytest.mark.parametrize("quirks", [FLAT, Quirks()], ids=["flat", "wrapped"])
@pytest.mark.parametrize(
    ("shape", "text", "value"), [(TRIP, FITS, Trip("Ulm")), (NAMES, '["a"]', ["a"])], ids=["object", "list"]
)
def test_an_answer_beside_calls_in_the_text_is_judged_and_shown_alike(
    encoding: EncodingName, quirks: Quirks, shape: OutputShape, text: str, value: object
) -> None:
    prepared = prepare(asked(output=shape.spec()), quirks, encoding=encoding)
    inner = text
    if encoding == "json_schema":
        inner = text if shape.is_object else f'{{"answer": {text}}}'
        inner = inner if quirks is FLAT else f'{{"value": {inner}}}'
    said = WRITTEN[encoding].replace("{}", inner)
    answer = read(prepared, said)
    assert judge(answer, output_text(answer, prepared), shape=shape, form=prepared.form, tool_names=NAMED) == Final(value, text)
    reader = PartialReader(shape, form=prepared.form, wrapped=prepared.plan is not None and prepared.plan.wrapped)
    reader.add(streamed(prepared, list(said)))
    reader.close()
    assert reader.value == json.loads(text)
