"""A structured answer while it comes: what is shown depends on the text alone, never on how it was cut, and costs little."""

import json
import sys
from collections.abc import Callable, Iterable
from random import Random
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.encodings import output_text
from evener.tools.outputs import OutputShape, PartialReader
from evener.tools.outputs.partial import PartialJson
from evener.transcript import TextBlock
from evener.transcript.ask import OutputForm
from evener.transcript.delta import ArgumentsDelta, CallBegun, CallEnded, Delta, ReasoningDelta, TextDelta
from tests.encodings.talk import CUTS
from tests.outputs.cases import FORMS, NAMES, NUMBER, TRIP, prepared_for, reply, written

ANY = OutputShape.of({"type": "object"})
NOTHING = "nothing"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)
LEADS = ("", " \n", "```json\n", "  ```\n", "<think>hm {} [1] </think>\n", "7 of 9</think>```json\n", "Sure: ", "``", "```x`\n")
SIGNS = st.text(st.sampled_from('{}[]",:\\/ \n`u0123d8eE+-.aftrnlsx<hik>é😀'), max_size=60)


def seen(pieces: Iterable[str], *, shape: OutputShape = ANY, form: OutputForm = "", wrapped: bool = False) -> list[object]:
    """What is shown after each piece."""
    reader = PartialReader(shape, form=form, wrapped=wrapped)
    found = []
    for piece in pieces:
        reader.feed(piece)
        found.append(reader.snapshot() if reader.begun else NOTHING)
    return found


def cut(text: str, seed: int) -> list[str]:
    random, found = Random(seed), []
    while text:
        size = random.choice((1, 1, 2, 3, 7, 40))
        found.append(text[:size])
        text = text[size:]
    return found


def agree(text: str, seed: int, form: OutputForm, *, wrapped: bool) -> None:
    """After each prefix the same is shown, be it fed at once, letter by letter, or anyhow."""
    letters = [NOTHING, *seen(text, form=form, wrapped=wrapped)]
    place = 0
    pieces = cut(text, seed)
    for piece, shown in zip(pieces, seen(pieces, form=form, wrapped=wrapped), strict=True):
        place += len(piece)
        assert shown == letters[place]
        assert [shown] == seen([text[:place]], form=form, wrapped=wrapped)


@settings(max_examples=50, deadline=None)
@given(
    value=JSON,
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    seed=st.integers(0, 99),
    lead=st.sampled_from(LEADS),
)
def test_any_cutting_shows_the_same(value: object, ascii_only: bool, indent: int | None, seed: int, lead: str) -> None:
    text = lead + json.dumps(value, ensure_ascii=ascii_only, indent=indent) + "\n```"
    agree(text, seed, "prompted", wrapped=bool(seed % 2))
    agree(text.removeprefix(lead), seed, "native", wrapped=bool(seed % 2))


@settings(max_examples=80, deadline=None)
@given(text=SIGNS, seed=st.integers(0, 99), form=st.sampled_from(["native", "prompted"]))
def test_garbage_never_raises_and_shows_the_same_however_it_is_cut(text: str, seed: int, form: OutputForm) -> None:
    agree(text, seed, form, wrapped=False)


@settings(max_examples=60, deadline=None)
@given(value=JSON, ascii_only=st.booleans(), seed=st.integers(0, 99))
def test_in_the_end_it_is_the_answer(value: object, ascii_only: bool, seed: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    growing = PartialJson()
    for piece in cut(text, seed):
        growing.feed(piece)
    growing.close()
    assert growing.value == growing.snapshot() == json.loads(text)
    assert json.dumps(growing.value) == json.dumps(json.loads(text))  # true is not 1
    assert growing.begun
    assert growing.ended
    assert not growing.broken


@settings(max_examples=40, deadline=None)
@given(value=JSON, seed=st.integers(0, 99), lead=st.sampled_from(LEADS[:6]))
def test_in_the_end_it_is_what_the_encodings_read_out_of_a_prompted_answer(value: object, seed: int, lead: str) -> None:
    said = lead + json.dumps(value) + ("\n```" if "```" in lead else "")
    reader = PartialReader(ANY, form="prompted")
    for piece in cut(said, seed):
        reader.feed(piece)
    reader.close()
    assert [reader.value] == [json.loads(output_text(reply(TextBlock(said)), prepared_for(ANY, "prompted")))]


SHOWN: list[tuple[str, object]] = [
    ("", NOTHING),
    ("{", {}),
    ('{"ci', {}),
    ('{"city"', {}),
    ('{"city": ', {}),
    ('{"city": "', {"city": ""}),
    ('{"city": "U', {"city": "U"}),
    ('{"city": "U\\', {"city": "U"}),
    ('{"city": "U\\u00e', {"city": "U"}),
    ('{"city": "U\\u00e9', {"city": "Ué"}),
    ('{"city": "\\ud83d', {"city": ""}),
    ('{"city": "\\ud83d\\ude0', {"city": ""}),
    ('{"city": "\\ud83d\\ude00', {"city": "😀"}),
    ('{"city": "U", "days": 1', {"city": "U"}),
    ('{"city": "U", "days": 12,', {"city": "U", "days": 12}),
    ('{"city": "U", "ok": tru', {"city": "U"}),
    ('{"city": "U", "ok": true}', {"city": "U", "ok": True}),
    ('{"a": [1, [2, {"b": nul', {"a": [1, [2, {}]]}),
    ('{"a": [1, [2, {"b": null ', {"a": [1, [2, {"b": None}]]}),
    ("[ ", []),
    ('{ "a": [ \n ], "b": { } ', {"a": [], "b": {}}),
    ("[1, 2, ]", [1, 2]),
    ("[1 2]", [1]),
    ("[01]", []),
    ("[NaN]", []),
    ("[1e999]", []),
    ("[" + "1" * 401 + "]", []),
    ('{"a": 1}}}]', {"a": 1}),
    ('{"a": 1, "a": "x', {"a": "x"}),
    ("Sure! {}", NOTHING),
]


@pytest.mark.parametrize(("text", "value"), SHOWN)
def test_what_is_shown_of_a_text(text: str, value: object) -> None:
    assert seen([text])[-1] == value
    if text:
        assert seen(text)[-1] == value


def test_what_is_too_deep_is_shown_as_far_as_it_is_not() -> None:
    (shown,) = seen(["[" * 10_000])
    depth = 0
    while isinstance(shown, list):
        depth, shown = depth + 1, shown[0] if shown else None
    assert depth == 100


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "text"), [(TRIP, '{"city": "Ulm"}'), (NAMES, '["a", "b"]'), (NUMBER, "42")])
def test_s2_54_the_object_around_a_value_is_not_shown(form: OutputForm, shape: OutputShape, text: str) -> None:
    said = written(shape, form, text)
    prepared = prepared_for(shape, form)
    for wrapped in (None, prepared.plan is not None and prepared.plan.wrapped):
        reader = PartialReader(shape, form=form, wrapped=wrapped)
        for letter in said:
            reader.feed(letter)
            assert type(reader.value) in (type(None), type(json.loads(text)))
        reader.close()
        assert reader.value == json.loads(text)


def test_a_snapshot_stays_and_the_value_grows() -> None:
    reader = PartialReader(ANY)
    reader.feed('{"done": [1], "open": [{"a": "x')
    kept, live = reader.snapshot(), reader.value
    reader.feed('y"}, 2], "more": 3}')
    assert kept == {"done": [1], "open": [{"a": "x"}]}
    assert live is reader.value
    assert live == {"done": [1], "open": [{"a": "xy"}, 2], "more": 3}


def test_it_says_whether_anything_has_changed() -> None:
    growing = PartialJson()
    assert [growing.feed(letter) for letter in '{"a": 12}'] == [True, *[False] * 7, True]
    assert not growing.feed(" 7")


# Deltas of a turn.

RAW = '{"city": "Ulm", "days": 2}'
TURNS: list[tuple[OutputForm, list[Delta]]] = [
    ("native", [ReasoningDelta(0, '{"no": 1}'), TextDelta(1, RAW[:9]), TextDelta(1, RAW[9:])]),
    ("native", [CallBegun(0, "c", "final_result"), ArgumentsDelta(0, "{}"), TextDelta(1, RAW)]),
    ("prompted", [TextDelta(0, "```json\n"), TextDelta(0, RAW), TextDelta(0, "```")]),
    ("tool", [TextDelta(0, "{}"), CallBegun(1, "f", "final_result"), ArgumentsDelta(1, RAW), CallEnded(1, RAW)]),
    ("tool", [CallBegun(1, "f", "final_result"), CallEnded(1, RAW)]),
    (
        "tool",
        [
            *(CallBegun(0, "c", "add"), CallBegun(1, "f", "final_result"), ArgumentsDelta(0, '{"a": 1}')),
            *(ArgumentsDelta(1, RAW[:9]), CallEnded(0, '{"a": 1}'), ArgumentsDelta(1, RAW[9:]), CallEnded(1, RAW)),
        ],
    ),
    (
        "tool",
        [
            *(CallBegun(0, "f", "final_result"), ArgumentsDelta(0, '{"city": "Rom"}')),
            *(CallBegun(1, "g", "final_result"), ArgumentsDelta(1, RAW)),
        ],
    ),
]


@pytest.mark.parametrize(("form", "deltas"), TURNS)
def test_the_answer_is_found_among_the_deltas(form: OutputForm, deltas: list[Delta]) -> None:
    reader = PartialReader(TRIP, form=form)
    assert reader.add(deltas)
    assert reader.value == {"city": "Ulm", "days": 2}
    other = PartialReader(TRIP, form=form)
    for delta in deltas:
        other.add([delta])
    assert other.value == reader.value
    assert not PartialReader(TRIP, form=form).add([])


# The cost.

LONG_TEXT: dict[str, Callable[[int], str]] = {
    "one string": lambda count: '{"a": "' + "word " * count + '"}',
    "many items": lambda count: "[" + '"wor",' * count + "1]",
    "many members": lambda count: "{" + ",".join(f'"{number:06d}":{number % 10}' for number in range(count)) + "}",
    "escapes": lambda count: '["' + "\\u00e9" * count + '"]',
    "thoughts": lambda count: "hm {} " * count + "</think>{}",
    "space": lambda count: "     " * count + "{}",
    "after the end": lambda count: "{}" + "     " * count,
    "a fence that does not end": lambda count: "```" + "jsonj" * count,
}


class Rereads:
    """What must not be: it reads everything again at each piece."""

    def __init__(self) -> None:
        self._text = ""
        self.value: object = None

    def feed(self, text: str) -> bool:
        self._text += text
        growing = PartialJson()
        growing.feed(self._text)
        self.value = growing.value
        return True


def work(reader: PartialReader | Rereads, pieces: Iterable[str]) -> int:
    """How many functions are called, of Python and of C, to read these pieces and to look at the value after each."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for piece in pieces:
            reader.feed(piece)
            assert reader.value is not ...
    finally:
        sys.setprofile(None)
    return calls


def fragments(name: str, count: int) -> list[str]:
    text = LONG_TEXT[name](count)
    return [text[place : place + 6] for place in range(0, len(text), 6)]


@pytest.mark.parametrize("name", LONG_TEXT)
@pytest.mark.parametrize("form", ["native", "prompted"])
def test_eight_times_the_fragments_are_eight_times_the_work(name: str, form: OutputForm) -> None:
    small, large = fragments(name, 1_000), fragments(name, 8_000)
    once, again = work(PartialReader(ANY, form=form), small), work(PartialReader(ANY, form=form), large)
    assert again / len(large) <= 1.1 * once / len(small)


def test_reading_all_again_is_caught() -> None:
    small, large = fragments("many items", 50), fragments("many items", 400)
    assert work(Rereads(), large) / len(large) > 4 * work(Rereads(), small) / len(small)


def test_8000_fragments_are_read() -> None:
    for text_of in LONG_TEXT.values():
        text = text_of(8_000)
        for cutting in CUTS[:2]:
            seen_last = PartialReader(ANY, form="prompted")
            for piece in cutting(text):
                seen_last.feed(piece)
                assert seen_last.value is not ...
