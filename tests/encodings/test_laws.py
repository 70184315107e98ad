"""Laws of the encodings, for any text, any history and any cut."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evener.encodings import EncodingName, prepare, reader
from evener.encodings.history import call_text
from evener.encodings.prepared import TextStyle
from evener.testing import check_request
from evener.transcript import Ask, Choice, HostedBlock, Message, Origin, OutputSchema, ToolCall, Transcript
from evener.transcript.delta import Delta, Failed, Stopped, TextDelta
from evener.wire import CODECS, Quirks, assemble
from tests.encodings.talk import FLAT, TEXTUAL, ready
from tests.laws.asks import asks, mapped, sendable
from tests.laws.strategies import histories, wild

law = settings(max_examples=50, deadline=None)
textual = pytest.mark.parametrize("encoding", TEXTUAL)
wires = pytest.mark.parametrize("wire", CODECS)
ALL: tuple[EncodingName, ...] = ("native", *TEXTUAL)

# What the readers look for, and what may stand around it.
SHARDS = (
    *(
        '{"tool": "add", "arguments": ',
        '{"calls": [',
        '{"answer": "',
        '{"value": ',
        '"tool"',
        '"arguments"',
        ":",
        "]",
        "}",
        "{",
    ),
    *('<tool_call name="add">', "<tool_call>", "</tool_call>", "<tool_call", "<", ">", '{"name":"f","arguments":{}}'),
    *("Thought:", "Action: add", "Action Input:", "Observation:", "Final Answer:", "Action:", "\nAction: f\nAction Input: "),
    *(
        "```",
        "```json\n",
        "\n```",
        "</think>",
        "\n",
        " ",
        ",",
        '"',
        "\\",
        "\\u00",
        "\\ud83d",
        "\\ude00",
        "é\U0001f600",
        "word",
        "1",
    ),
)
texts = st.lists(st.sampled_from(SHARDS), max_size=14).map("".join)
names = st.sampled_from(["add", "a.b c", "Größe", "x<y&\"z'", "tool"])
values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(SHARDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SHARDS), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["a", "b", *SHARDS]), values, max_size=3).map(json.dumps)
outputs = st.sampled_from(
    [
        None,
        OutputSchema('{"type":"object","properties":{"x":{"type":"string"}}}'),
        OutputSchema('{"type":"string"}'),
        OutputSchema(),
    ]
)


def folded(prepared_by: EncodingName, pieces: Sequence[str], quirks: Quirks, output: OutputSchema | None) -> object:
    reading = reader(ready(prepared_by, quirks=quirks, output=output))
    assert reading is not None
    found: list[Delta] = []
    for piece in pieces:
        found += reading.feed([TextDelta(0, piece)])
    found += reading.feed([Stopped("done")])
    if isinstance(found[-1], Failed):  # half an answer: what was shown of it
        return assemble([*found[:-1], Stopped("cancelled")]), str(found[-1].error)
    return assemble(found), ""


@textual
@law
@given(text=texts, cuts=st.lists(st.integers(0, 120), max_size=6), wrapped=st.booleans(), output=outputs)
def test_any_cut_gives_the_same_reply(
    encoding: EncodingName, text: str, cuts: list[int], wrapped: bool, output: OutputSchema | None
) -> None:
    quirks = Quirks(any_output=not wrapped)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    ragged = [text[start:end] for start, end in pairwise(places)]
    once = folded(encoding, [text], quirks, output)
    assert folded(encoding, list(text), quirks, output) == once
    assert folded(encoding, ragged, quirks, output) == once


@textual
@law
@given(text=texts)
def test_no_word_is_lost(encoding: EncodingName, text: str) -> None:
    """Every word that a model wrote is somewhere in the reply: in its text, its calls, its reasoning or its notices.

    Only the language that a code fence names goes with the fence.
    """
    kept = str(folded(encoding, [text], FLAT, None))
    assert text.count("word") - text.count("```word") <= kept.count("word")


@textual
@law
@given(calls=st.lists(st.tuples(names, arguments), min_size=1, max_size=3), wrapped=st.booleans())
def test_a_call_that_is_rendered_is_read_back(encoding: EncodingName, calls: list[tuple[str, str]], wrapped: bool) -> None:
    quirks = Quirks(any_output=not wrapped, strict=False)
    style = TextStyle(encoding, Origin(), "drop", wrapped=wrapped)
    text = call_text(style, [ToolCall(str(number), name, raw) for number, (name, raw) in enumerate(calls)])
    if encoding == "react":
        calls = [(name.strip("\"'"), raw) for name, raw in calls]
    reply = assemble_all(encoding, text, quirks)
    assert [(call.name, call.raw) for call in reply] == calls


def assemble_all(encoding: EncodingName, text: str, quirks: Quirks) -> tuple[ToolCall, ...]:
    reading = reader(ready(encoding, quirks=quirks))
    assert reading is not None
    return assemble(reading.feed([TextDelta(0, text), Stopped("done")])).calls


quirks = st.builds(
    Quirks,
    tools=st.booleans(),
    output_schema=st.booleans(),
    json_mode=st.booleans(),
    forced_choice=st.booleans(),
    parallel_switch=st.booleans(),
    strict=st.booleans(),
    output_form=st.sampled_from(["", "native", "tool", "prompted"]),
)


def unhosted(history: list[Message]) -> list[Message]:
    """The history with its media loaded, and without blocks that are made up for a real wire."""
    return mapped(
        sendable(history), lambda block: replace(block, wire="telegraph") if isinstance(block, HostedBlock) else block
    )


def legal(ask: Ask, quirks: Quirks) -> list[str]:
    encoded = CODECS[ask.target.wire].encode(ask, quirks, None)
    return [str(one) for one in check_request(ask.target.wire, encoded.body)]


@wires
@pytest.mark.parametrize("encoding", ALL)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), history=wild().map(unhosted), quirks=quirks, output=outputs)
def test_a_prepared_ask_is_accepted_by_every_codec(
    wire: str, encoding: EncodingName, data: st.DataObject, history: list[Message], quirks: Quirks, output: OutputSchema | None
) -> None:
    ask = data.draw(asks(wire))
    ask = replace(ask, transcript=ask.transcript.extend(history), output=output)
    prepared = prepare(ask, quirks, encoding=encoding)
    assert legal(prepared.ask, quirks) == []
    again = prepare(ask, quirks, encoding=encoding)
    assert (again.ask, again.losses, again.encoding, again.form) == (
        *(prepared.ask, prepared.losses),
        *(prepared.encoding, prepared.form),
    )


@wires
@pytest.mark.parametrize("encoding", ALL)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), history=histories().map(sendable), cuts=st.lists(st.integers(0, 10), max_size=3))
def test_a_prior_one_changes_nothing(
    wire: str, encoding: EncodingName, data: st.DataObject, history: list[Message], cuts: list[int]
) -> None:
    ask = data.draw(asks(wire))
    prior, encoded, codec = None, None, CODECS[wire]
    done = 0
    for end in [*sorted(cuts), len(history)]:
        ask = replace(ask, transcript=ask.transcript.extend(history[done : max(done, end)]))
        done = max(done, end)
        if data.draw(st.booleans()):
            ask = replace(ask, choice=data.draw(st.sampled_from([Choice(), Choice("required"), Choice("none")])))
        prior = prepare(ask, FLAT, encoding=encoding, prior=prior)
        fresh = prepare(ask, FLAT, encoding=encoding)
        assert (prior.ask, prior.losses, prior.seed) == (fresh.ask, fresh.losses, fresh.seed)
        encoded = codec.encode(prior.ask, FLAT, encoded)
        assert encoded.body == codec.encode(fresh.ask, FLAT, None).body


@textual
@law
@given(history=histories().map(sendable))
def test_no_call_and_no_result_is_left_in_the_history(encoding: EncodingName, history: list[Message]) -> None:
    ask = Ask(Transcript(history), Origin("openai_chat", "p", model="m"))
    made = prepare(ask, FLAT, encoding=encoding).ask.transcript
    assert {block.kind for message in made for block in message.blocks} & {"tool_call", "tool_result"} == set()
