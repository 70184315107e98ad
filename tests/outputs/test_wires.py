"""Structured answers over all wires, streamed and whole: asked for, answered wrongly, corrected, accepted (S2.10, S2.49-S2.56).

The servers are strict: a correction that the provider would not take is refused there.
"""

import json

import pytest
from msgspec.structs import replace

from evener.encodings.forms import FINAL_RESULT
from evener.model import Answer, Model, open_model
from evener.testing import Call, FakeServer, Refusal, Turn, turn
from evener.tools.outputs import Calls, Correct, Final, OutputShape, PartialReader, Unexpected, Verdict, judge
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import ToolResult
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from tests.encodings.talk import TOOLS
from tests.model.stage import MODELS, MODES, NOWHERE, WIRES, fresh_key, run, watched
from tests.outputs.cases import FORMS, NAMES, TRIP, Trip, written

NAMED = tuple(tool.name for tool in TOOLS)
ANSWERS: list[tuple[OutputShape, str, str, object]] = [
    (TRIP, '{"city": "Ulm", "days": "two"}', '{"city": "Ulm", "days": 2}', Trip("Ulm", 2)),
    (NAMES, '["a", 7]', '["a", "b"]', ["a", "b"]),
]
ADD = Call("add", {"a": 1, "b": 2})


def said(shape: OutputShape, form: OutputForm, text: str) -> Turn:
    """A turn that answers in this form."""
    raw = written(shape, form, text)
    return turn(Call(FINAL_RESULT, raw)) if form == "tool" else turn(raw)


def corrected(transcript: Transcript, answer: Answer, verdict: Correct) -> Transcript:
    """The conversation with the correction, as a run would go on with it. Ordinary calls beside it have their results, too."""
    transcript = transcript.append(answer.message)
    if verdict.by == "user":
        return transcript.append(Message.user_text(verdict.message))
    results = [
        ToolResult(call.id, verdict.message, is_error=True) if call.id in verdict.calls else ToolResult(call.id, "3")  # type: ignore[arg-type]  # a str is taken
        for call in answer.reply.calls
    ]
    return transcript.append(Message("user", tuple(results)))


Heard = tuple[Verdict, object]
"""What an answer means, and what was shown of it while it came."""


def conversation(wire: str, shape: OutputShape, form: OutputForm, script: list[Turn], *, streamed: bool = True) -> list[Heard]:
    """The verdict on each answer, and on those after it while there are corrections or calls."""

    async def play(url: str) -> list[Heard]:
        found: list[Heard] = []
        async with watched() as watch:
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, base_url=url, key=fresh_key())
            transcript = Transcript([Message.user_text("Where to?")], "Be brief.")
            for _ in script:
                answer, shown = await asked(model, transcript, shape, form, streamed=streamed)
                verdict = judge(answer.reply, answer.output, shape=shape, form=form, tool_names=NAMED)
                found.append((verdict, shown))
                match verdict:
                    case Correct():
                        transcript = corrected(transcript, answer, verdict)
                    case Calls():
                        results = tuple(ToolResult(call.id, "3") for call in answer.reply.calls)  # type: ignore[arg-type]
                        transcript = transcript.append(answer.message).append(Message("user", results))
        return found

    with FakeServer(wire, script) as server:
        found = run(play(server.url))
        assert server.rejected == []
        assert server.left == 0
    return found


async def asked(
    model: Model, transcript: Transcript, shape: OutputShape, form: OutputForm, *, streamed: bool
) -> tuple[Answer, object]:
    ask = model.ask(transcript, TOOLS, output=shape.spec(form))
    reader = PartialReader(shape, form=form)
    async with model.stream(ask if streamed else replace(ask, stream=False)) as stream:
        while deltas := await stream.read():
            reader.add(deltas)
        reader.close()
        answer = stream.answer
    assert answer.sent.prepared.form == form
    return answer, reader.value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "wrong", "right", "value"), ANSWERS, ids=["object", "list"])
def test_s2_10_an_invalid_answer_is_corrected_and_the_valid_one_is_final(
    form: OutputForm, wire: str, mode: str, shape: OutputShape, wrong: str, right: str, value: object
) -> None:
    script = [said(shape, form, wrong), said(shape, form, right)]
    (first, early), (second, late) = conversation(wire, shape, form, script, streamed=MODES[mode])
    assert isinstance(first, Correct)
    assert first.by == ("tool" if form == "tool" else "user")
    assert first.problems[0].path in ("days", "[1]")
    assert isinstance(second, Final)
    assert second.value == value
    assert (early, late) == (json.loads(wrong), json.loads(right))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS)
def test_s2_51_tools_come_first_and_text_is_corrected(form: OutputForm, wire: str, mode: str) -> None:
    script = [turn(ADD), turn("Go to Ulm."), said(TRIP, form, '{"city": "Ulm"}')]
    found = [verdict for verdict, _ in conversation(wire, TRIP, form, script, streamed=MODES[mode])]
    assert [type(verdict) for verdict in found] == [Calls, Correct, Final]
    assert isinstance(found[1], Correct)
    assert found[1].by == "user"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_s2_52_the_final_call_stands_alone_and_once(wire: str, mode: str) -> None:
    final = Call(FINAL_RESULT, '{"city": "Ulm"}')
    script = [turn(ADD, final), turn(final, Call(FINAL_RESULT, '{"city": "Rom"}')), turn(final)]
    found = [verdict for verdict, _ in conversation(wire, TRIP, "tool", script, streamed=MODES[mode])]
    assert [type(verdict) for verdict in found] == [Correct, Correct, Final]
    assert [len(verdict.calls) for verdict in found if isinstance(verdict, Correct)] == [1, 2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_s2_53_only_a_prompted_answer_may_stand_in_a_fence(wire: str, mode: str) -> None:
    fenced = turn('```json\n{"city": "Ulm"}\n```')
    ((found, shown),) = conversation(wire, TRIP, "prompted", [fenced], streamed=MODES[mode])
    assert isinstance(found, Final)
    assert (found.value, shown) == (Trip("Ulm"), {"city": "Ulm"})
    ((found, shown),) = conversation(wire, TRIP, "native", [fenced], streamed=MODES[mode])
    assert isinstance(found, Correct)
    assert "code fence" in found.message
    assert shown is None


ENDS = {"refusal": (turn(Refusal("I will not.")), "declined"), "length": (turn('{"city": "U', stop="length"), "cut off")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("end", ENDS)
def test_a_refusal_or_a_cut_answer_is_no_answer(end: str, form: OutputForm, wire: str, mode: str) -> None:
    script, words = ENDS[end]
    ((found, _),) = conversation(wire, TRIP, form, [script], streamed=MODES[mode])
    assert isinstance(found, Unexpected)
    assert words in found.why


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_s2_50_without_a_shape_the_text_is_the_answer(wire: str, mode: str) -> None:
    async def play(url: str) -> Answer:
        async with watched() as watch:
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, base_url=url, key=fresh_key())
            ask = model.ask(Transcript([Message.user_text("Where to?")]), TOOLS)
            return await model.complete(ask if MODES[mode] else replace(ask, stream=False))

    with FakeServer(wire, [turn("To Ulm.")]) as server:
        answer = run(play(server.url))
    assert judge(answer.reply, answer.output, shape=None, tool_names=NAMED) == Final("To Ulm.", "To Ulm.")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS)
def test_s2_56_a_model_that_never_gets_it_right_is_corrected_each_time_with_a_legal_request(
    wire: str, form: OutputForm
) -> None:
    """The loop decides when it is enough; each of these corrections counts (S2.60)."""
    found = conversation(wire, TRIP, form, [said(TRIP, form, '{"city": 7}')] * 4)
    assert all(isinstance(verdict, Correct) for verdict, _ in found)
