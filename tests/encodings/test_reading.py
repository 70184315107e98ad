"""One table for all encodings: what a model writes, cut anywhere, becomes the same texts, calls and notices."""

from collections.abc import Callable
from itertools import product

import pytest

from evener.encodings import EncodingName, prepare, reader
from evener.encodings.buffer import MOST, AnswerBuffer, Wait, strip_fence
from evener.encodings.json import read_json
from evener.encodings.react import read_react
from evener.encodings.xml import read_xml
from evener.errors import TruncatedStream
from evener.transcript import Choice, OutputSchema, TextBlock
from evener.transcript.ask import ChoiceMode
from evener.transcript.delta import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    Delta,
    Failed,
    Notice,
    ReasoningDelta,
    SealAdded,
    Started,
    Stopped,
    TextDelta,
    UsageReported,
)
from evener.transcript.reply import Usage
from evener.wire import Quirks, assemble
from tests.each import each
from tests.encodings.talk import CUTS, FLAT, TEXTUAL, Part, asked, call, noticed, read, ready, said, single, streamed, written
from tests.patience import ends

ADD = ("add", '{"a": 17, "b": 23}')
NESTED = ("look", '{"at": "x", "deep": [{"a": {"b": [1, {"c": "}]{"}]}}, "\\"<\\\\"]}')
UNICODE = ("look", '{"at": "Größe \U0001f600 \\ud83d\\ude00 \u2028"}')
TAGGED = ("look", '{"at": "</tool_call> \\nObservation: \\" {"}')
CASES: dict[str, list[Part]] = {
    "one call": [ADD],
    "two calls": [ADD, ("look", '{"at":"x"}')],
    "text only": ["It is 40."],
    "text of many lines": ["It is 40.\n\n  {really}\n- `x` < y\n"],
    "text then call": ["Let me see.", ADD],
    "unknown tool": [("fly", "{}")],
    "unicode": [UNICODE],
    "nested": [NESTED],
    "empty arguments": [("ping", "{}")],
    "marks inside arguments": [TAGGED],
}
MODES: tuple[ChoiceMode, ...] = ("auto", "required", "none", "named")
table = pytest.mark.parametrize("encoding", TEXTUAL)


def rules(mode: ChoiceMode, parallel: bool | None) -> Choice:
    return Choice(mode, ("add",) if mode == "named" else (), parallel)


def breaks(choice: Choice, parts: list[Part]) -> bool:
    called = [part[0] for part in parts if not isinstance(part, str)]
    if choice.mode == "none":
        return bool(called)
    if choice.mode in ("required", "named") and not called:
        return True
    return (choice.mode == "named" and called != ["add"] * len(called)) or (choice.parallel is False and len(called) > 1)


@table
@pytest.mark.parametrize("case", CASES)
@each(("mode", "parallel"), list(product(MODES, (None, True, False))))
def test_what_is_written_is_read(encoding: EncodingName, case: str, mode: ChoiceMode, parallel: bool | None) -> None:
    """S4.10, S4.12."""
    parts, choice = CASES[case], rules(mode, parallel)
    reply = read(ready(encoding, choice=choice), written(encoding, parts))
    assert said(reply) == parts
    assert reply.stop.reason == ("tools" if reply.calls else "done")
    assert noticed(reply) == (["choice_violated"] if breaks(choice, parts) else [])


@table
@pytest.mark.parametrize("case", CASES)
def test_it_is_read_in_a_code_fence_too(encoding: EncodingName, case: str) -> None:
    parts = CASES[case]
    if isinstance(parts[0], str):
        return
    for opening in ("```\n", "```json\n", "Sure.\n\n```xml\n", "<think>hm</think>"):
        closing = "" if opening.startswith("<") else "\n```\n"
        reply = read(ready(encoding), opening + written(encoding, parts) + closing)
        texts = [part for part in said(reply) if isinstance(part, str)]
        assert [part for part in said(reply) if not isinstance(part, str)] == parts
        assert "".join(texts) == opening.split("\n")[0].removeprefix("```json").removeprefix("```")


@table
def test_arguments_may_stand_in_a_fence(encoding: EncodingName) -> None:
    if encoding == "json_schema":
        return
    reply = read(ready(encoding), call(encoding, "add", "\n```json\n" + ADD[1] + "\n```\n"))
    assert said(reply) == [ADD]


MALFORMED: dict[tuple[EncodingName, str], tuple[str, list[Part], list[str]]] = {
    ("json_schema", "arguments cut off"): ('{"tool": "add", "arguments": {"a": 1, "b', [("add", '{"a": 1, "b')], []),
    ("json_schema", "cut off after the name"): ('{"tool": "add"', [("add", '{"tool": "add"')], []),
    ("json_schema", "cut off in the name"): ('{"tool": "ad', ['{"tool": "ad'], ["malformed_call"]),
    ("json_schema", "cut off in a key"): ('{"too', ['{"too'], ["malformed_call"]),
    ("json_schema", "no name"): ('{"tool": 5, "arguments": {}}', ['{"tool": 5, "arguments": {}}'], ["malformed_call"]),
    ("json_schema", "a list of none"): ('{"calls": []}', ['{"calls": []}'], ["malformed_call"]),
    ("json_schema", "calls that are no list"): ('{"calls": {}} so', ['{"calls": {}} so'], ["malformed_call"]),
    ("json_schema", "arguments that are a list"): ('{"tool": "add", "arguments": [1]}', [("add", "[1]")], []),
    ("json_schema", "arguments that are broken"): ('{"tool": "add", "arguments": {a: 1}}', [("add", "{a: 1}")], []),
    ("json_schema", "another object"): ('{"result":\n{"tool": 1}}\nwell', ['{"result":\n{"tool": 1}}\nwell'], []),
    ("json_schema", "the answer cut off"): ('{"answer": "It is \\u00e', ["It is \\u00e"], []),
    ("json_schema", "an answer of another kind"): ('{"answer": [1, 2]}', ["[1, 2]"], []),
    ("json_schema", "plain text"): ("It is 40.", ["It is 40."], []),
    ("json_schema", "keys the other way round"): ('{"arguments": {"a":1}, "tool": "add"}', [("add", '{"a":1}')], []),
    ("json_schema", "arguments as a text"): ('{"tool":"add","arguments":"{\\"a\\":1}"}', [("add", '{"a":1}')], []),
    ("json_schema", "a key of its own"): ('{"tool":"add","why":{"x":1},"arguments":{}}', [("add", "{}")], ["unread_field"]),
    ("json_schema", "no arguments"): ('{"tool": "ping"}', [("ping", "{}")], []),
    ("json_schema", "one after the other"): ('{"tool":"ping"}\n{"tool":"ping"}', [("ping", "{}"), ("ping", "{}")], []),
    ("json_schema", "an answer beside a call"): (
        '{"tool":"add","arguments":{"a":1},"answer":"hi"}',
        [("add", '{"a":1}'), "hi"],
        [],
    ),
    ("json_schema", "an answer within a call"): ('{"tool":"add","answer":"hi","arguments":{}}', [("add", "{}"), "hi"], []),
    ("json_schema", "two names"): (
        '{"arguments":{"a":1},"tool":"add","tool":"ping"}',
        [("add", '{"a":1}'), ("ping", "{}")],
        [],
    ),
    ("xml", "backticks in a tag open no fence"): ("<tool_call name='q' x='```'/>```json", [("q", "{}"), "```json"], []),
    ("xml", "unclosed"): ('<tool_call name="add">{"a": 1', [("add", '{"a": 1')], []),
    ("xml", "unclosed at once"): ('<tool_call name="add">', [("add", '<tool_call name="add">')], []),
    ("xml", "half a tag"): ('so <tool_call name="a', ['so <tool_call name="a'], ["malformed_call"]),
    ("xml", "half a word"): ("so <tool_ca", ["so <tool_ca"], []),
    ("xml", "another tag"): ("a <tool_calls> b", ["a <tool_calls> b"], []),
    ("xml", "no name"): ("<tool_call>hm</tool_call>", ["<tool_call>hm</tool_call>"], ["malformed_call"]),
    ("xml", "broken arguments"): ('<tool_call name="add">{a: 1}</tool_call> done', [("add", "{a: 1}"), "done"], []),
    ("xml", "an open string"): ('<tool_call name="add">{"a: 1}</tool_call> done', [("add", '{"a: 1}'), "done"], []),
    ("xml", "no arguments"): ('<tool_call name="ping"></tool_call>', [("ping", "{}")], []),
    ("xml", "closed at once"): ("<tool_call name='ping'/>", [("ping", "{}")], []),
    ("xml", "name inside"): ('<tool_call>\n{"name":"add","arguments":{"a":1}}\n</tool_call>', [("add", '{"a":1}')], []),
    ("react", "unclosed"): ('Action: add\nAction Input: {"a": 1', [("add", '{"a": 1')], []),
    ("react", "unclosed before a label"): (
        'Action: add\nAction Input: {"a": 1\nAction: ping\nAction Input: {}',
        [("add", '{"a": 1'), ("ping", "{}")],
        [],
    ),
    ("react", "no name"): ("Action:\nso", ["Action:\nso"], ["malformed_call"]),
    ("react", "no input"): ("Action: ping", [("ping", "Action: ping")], []),
    ("react", "empty input"): ("Action: ping\nAction Input:", [("ping", "Action: ping")], []),
    ("react", "a label for input"): ("Action: ping\nAction Input:\nFinal Answer: 4", [("ping", "{}"), "4"], []),
    ("react", "a made up result for input"): (
        "Action: ping\nAction Input:\n  Observation: pong",
        [("ping", "{}")],
        ["invented_result"],
    ),
    ("react", "words before the answer"): ("Well.\nFinal Answer: 4", ["Well.\n4"], []),
    ("react", "words for input"): ("Action: look\nAction Input: the sea\n", [("look", "the sea")], []),
    ("react", "input without an action"): ("Action Input: {}", ["Action Input: {}"], []),
    ("react", "a label in a line"): ("The Action: is good", ["The Action: is good"], []),
    ("react", "an invented result"): (
        "Action: ping\nAction Input: {}\nObservation: pong\nFinal Answer: pong",
        [("ping", "{}")],
        ["invented_result"],
    ),
    ("react", "an observation of its own"): ("Observation: it rains", ["Observation: it rains"], []),
}


@each(("encoding", "case"), MALFORMED)
def test_what_is_malformed_is_kept_and_told(encoding: EncodingName, case: str) -> None:
    text, expected, notices = MALFORMED[encoding, case]
    reply = read(ready(encoding), text)
    assert said(reply) == expected
    assert noticed(reply) == notices


HALVES: dict[tuple[EncodingName, str], str] = {
    ("json_schema", "an answer behind a call"): '{"tool": "add", "arguments": {"a": 1}, "answer": "It is',
    ("json_schema", "a key behind a call"): '{"tool": "add", "arguments": {"a": 1}, "ans',
    ("json_schema", "no brace"): '{"tool": "add", "arguments": {"a": 1}',
    ("json_schema", "a second call"): '{"calls": [{"tool": "ping"}, {"tool": "add", "arguments": {"a"',
    ("json_schema", "a second envelope"): '{"tool": "ping"}\n{"answer": "It',
    ("xml", "no closing tag"): '<tool_call name="add">{"a": 1}',
    ("xml", "name inside"): '<tool_call>{"name":"add","arguments":{}}',
    ("xml", "a second call"): '<tool_call name="ping"/><tool_call name="add">{"a"',
    ("xml", "a second tag"): '<tool_call name="ping"/>\n<tool_call na',
    ("react", "a second call"): 'Action: ping\nAction Input: {}\nAction: add\nAction Input: {"a"',
    ("react", "a second name"): "Action: ping\nAction Input: {}\nAction: ad",
}


@each(("encoding", "case"), HALVES)
def test_an_answer_that_ends_within_a_call_does_not_count_if_a_call_of_it_could_run(encoding: EncodingName, case: str) -> None:
    for cut in CUTS:
        reading = reader(ready(encoding))
        assert reading is not None
        deltas = [TextDelta(0, piece) for piece in cut(HALVES[encoding, case])]
        (*_, last) = [*reading.feed([*deltas]), *reading.feed([Stopped("done", "stop")])]
        assert isinstance(last, Failed)
        assert isinstance(last.error, TruncatedStream)


BLOCK = "See:\n```python\nx = 1\n```"


@table
def test_a_code_block_before_a_call_keeps_its_end(encoding: EncodingName) -> None:
    written = call(encoding, "ping", "{}")
    assert said(read(ready(encoding), f"{BLOCK}\n{written}")) == [BLOCK, ("ping", "{}")]
    assert said(read(ready(encoding), f"{BLOCK}\n```\n{written}\n```")) == [BLOCK, ("ping", "{}")]


def test_a_whole_turn_may_stand_in_a_fence() -> None:
    assert said(read(ready("react"), "```\nThought: so\nFinal Answer: 4\n```\n")) == ["4"]
    assert said(read(ready("react"), f"```\nThought: so\nFinal Answer: {BLOCK}")) == [BLOCK]


def test_thoughts_stay_apart() -> None:
    assert read(ready("react"), "Thought: one.\nThought: two.\nFinal Answer: 4").reasoning_text == "one.\ntwo."


READERS: dict[EncodingName, Callable[[AnswerBuffer], Wait[None]]] = {
    "json_schema": read_json,
    "xml": read_xml,
    "react": read_react,
}


@table
@pytest.mark.parametrize("lead", ["", "\n", "{", "```json\n", "```", '<tool_call name="ping">', "Action: ping\nAction Input:"])
@pytest.mark.parametrize("blank", [" ", "\n"])
def test_blanks_without_end_are_not_held_back(encoding: EncodingName, lead: str, blank: str) -> None:
    """Small models write them until they are stopped; each is looked at a few times, not as often as there are others."""
    tape = AnswerBuffer(READERS[encoding])
    for char in lead + blank * 3000:
        tape.feed(char)
    assert len(tape.held) <= 2 * MOST


def test_a_fence_around_many_blanks_is_taken_off() -> None:
    assert strip_fence("```\n" + " " * 200_000 + "x\n```") == "x"


def test_a_thought_is_reasoning_and_the_final_answer_is_the_text() -> None:
    """S4.9."""
    reply = read(ready("react"), "Thought: easy.\nIndeed.\n\nFinal Answer: It is\n\n40.")
    assert (reply.reasoning_text, reply.text) == ("easy.\nIndeed.", "It is\n\n40.")
    reply = read(ready("react"), "Thought: hm\nAction: ping\nAction Input: {}")
    assert [block.kind for block in reply.blocks] == ["reasoning", "tool_call"]


@table
def test_nothing_half_read_is_shown(encoding: EncodingName) -> None:
    """Text that was shown is never part of a call, and arguments are shown while they come."""
    text = written(encoding, ["Well then.", ADD]) if encoding != "json_schema" else written(encoding, [ADD])
    deltas = streamed(ready(encoding), single(text))
    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert shown == ("" if encoding == "json_schema" else "Well then.")
    pieces = [delta.text for delta in deltas if isinstance(delta, ArgumentsDelta)]
    assert "".join(pieces) == ADD[1]
    assert len(pieces) > 10
    assert [type(delta) for delta in deltas if isinstance(delta, CallBegun | CallEnded)] == [CallBegun, CallEnded]


def test_a_final_text_is_streamed_out_of_its_string() -> None:
    text = '{"answer": "a\\n\\"b\\" \\u00e9\\ud83d\\ude00\\ud83d \\x \\\\"}'
    deltas = streamed(ready("json_schema"), single(text))
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(pieces) == 'a\n"b" é\U0001f600\ufffd \\x \\'
    assert len(pieces) > 8


def test_text_is_shown_as_it_comes() -> None:
    for encoding in ("xml", "react"):
        reading = reader(ready(encoding))
        assert reading is not None
        assert reading.feed([TextDelta(0, "Hello wor")]) == [TextDelta(0, "Hello wor")]
        assert reading.feed([TextDelta(0, "ld. ")]) == [TextDelta(0, "ld.")]


@table
def test_everything_else_passes_through(encoding: EncodingName) -> None:
    reading = reader(ready(encoding))
    assert reading is not None
    usage = Usage(10, 7, 2, 1, 5, 3)
    passed: list[Delta] = [
        Started("r1", "m"),
        ReasoningDelta(0, "hm"),
        SealAdded(0, "reasoning", '{"signature":"s"}'),
        UsageReported(usage),
    ]
    found = reading.feed([*passed, TextDelta(1, written(encoding, [ADD])), Notice("odd", "{}"), Stopped("done", "stop")])
    reply = assemble(found)
    assert (reply.id, reply.usage, reply.notices, reply.stop.raw) == ("r1", usage, (("odd", "{}"),), "stop")
    assert [block.kind for block in reply.blocks] == ["reasoning", "tool_call"]
    assert reply.blocks[0].seal is not None  # type: ignore[union-attr]


@table
def test_a_seal_stays_on_text_that_is_only_text(encoding: EncodingName) -> None:
    for text, kinds in (("Hello.", ["text"]), (written(encoding, [ADD]), ["tool_call"])):
        reading = reader(ready(encoding))
        assert reading is not None
        reply = assemble(reading.feed([TextDelta(0, text), SealAdded(0, "text", '{"id":"x"}'), Stopped("done")]))
        assert [block.kind for block in reply.blocks] == kinds
        assert [bool(block.seal) for block in reply.blocks if isinstance(block, TextBlock)] == [True] * kinds.count("text")
        assert noticed(reply) == ([] if kinds == ["text"] else ["text_seal"])


@table
def test_a_stream_that_fails_gives_what_came_and_then_the_error(encoding: EncodingName) -> None:
    reading = reader(ready(encoding))
    assert reading is not None
    failed = Failed(TruncatedStream("cut"))
    found = reading.feed([TextDelta(0, "Hello\n"), failed])
    assert [delta.text for delta in found if isinstance(delta, TextDelta)] == ["Hello", "\n"]
    assert found[-1] is failed


@table
def test_an_answer_that_was_cut_off_stays_so(encoding: EncodingName) -> None:
    text = written(encoding, [ADD])[:-4]
    reply = read(ready(encoding), text, stop="length")
    assert reply.stop.reason == "length"
    assert not reply.calls[0].parses


@table
def test_ids_are_the_same_for_the_same_place_and_no_others(encoding: EncodingName) -> None:
    """S4.11."""
    ids = [call.id for call in read(ready(encoding), written(encoding, [ADD, ADD])).calls]
    again = [call.id for call in read(ready(encoding), written(encoding, [ADD, ADD])).calls]
    assert ids == again
    assert len(set(ids)) == 2


def test_nothing_is_read_where_calls_are_native_or_there_are_none() -> None:
    assert reader(ready("native")) is None
    assert reader(prepare(asked(tools=()), FLAT, encoding="xml")) is None


def test_an_envelope_may_be_wrapped() -> None:
    prepared = ready("json_schema", quirks=Quirks())
    assert said(read(prepared, '{"value": {"tool": "ping", "arguments": {}}}')) == [("ping", "{}")]
    assert said(read(prepared, '{"value":{"answer":"Hi"}}')) == ["Hi"]
    assert said(read(prepared, '{"tool": "ping", "arguments": {}}')) == [("ping", "{}")]
    assert said(read(prepared, '{"value": {"x": 1}}')) == ['{"value": {"x": 1}}']


def test_null_stands_for_an_argument_that_was_left_out() -> None:
    prepared = ready("json_schema")
    text = '{"tool": "look", "arguments": {"at": "x", "deep": null}}'
    assert said(read(prepared, text)) == [("look", '{"at":"x"}')]
    lenient = ready("json_schema", quirks=Quirks(strict=False, any_output=True))
    assert said(read(lenient, text)) == [("look", '{"at": "x", "deep": null}')]


SHAPE = OutputSchema('{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}')


def test_an_answer_of_the_callers_shape_is_the_text() -> None:
    prepared = ready("json_schema", output=SHAPE)
    assert said(read(prepared, '{"sum": 40}')) == ['{"sum": 40}']
    assert said(read(prepared, written("json_schema", [ADD]))) == [ADD]
    listed = ready("json_schema", output=OutputSchema('{"type":"array","items":{"type":"number"}}'))
    assert said(read(listed, '{"answer": [1, "]", 2]}')) == ['[1, "]", 2]']


@table
def test_many_calls_in_one_piece_are_read_as_one_by_one(encoding: EncodingName) -> None:
    """A server may send a whole answer at once: what is read of it must not be copied for each call."""
    parts: list[Part] = [ADD] * 15_000
    text = written(encoding, parts)

    def check(pieces: list[str]) -> None:
        assert said(assemble(streamed(ready(encoding), pieces))) == parts

    with ends():
        check([text])
        check([text[at : at + 1000] for at in range(0, len(text), 1000)])
