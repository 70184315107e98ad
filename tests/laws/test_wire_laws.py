"""Laws of writing: `prior` changes nothing, the past never changes, marks are only marks, seals stay with their makers."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evener.testing import check_request
from evener.testing.check import CHECKS
from evener.transcript import Ask, Cache, Message, ReasoningBlock, Seal, TextBlock, Transcript
from evener.wire import CODECS, Encoded, Quirks, moved
from tests.laws.asks import OWN_SEALS, asks, caches, plausible, sealed_with_needles, sendable, target, thoughts, tools
from tests.laws.strategies import histories, wild

QUIRKS = Quirks()
law = settings(max_examples=80, deadline=None)
wires = pytest.mark.parametrize("wire", CODECS)
CONVERSATION = (b'"messages":[', b'"input":[', b'"contents":[')
MARKS = ("cache_control", "prompt_cache_breakpoint")


def encode(ask: Ask, prior: Encoded | None = None, quirks: Quirks = QUIRKS) -> Encoded:
    return CODECS[ask.target.wire].encode(ask, quirks, prior)


def result(encoded: Encoded) -> tuple[object, ...]:
    return encoded.path, encoded.headers, encoded.body, encoded.losses, encoded.binding, encoded.names


@wires
@law
@given(data=st.data(), history=wild().map(sendable), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_a_prior_request_changes_nothing(wire: str, data: st.DataObject, history: list[Message], cuts: list[int]) -> None:
    ask, prior = data.draw(asks(wire)), None
    for start, end in pairwise([0, *sorted(cuts), max(12, len(history))]):
        ask = replace(ask, transcript=ask.transcript.extend(history[start:end]))
        if data.draw(st.booleans()):
            ask = replace(ask, cache=data.draw(caches), reasoning=data.draw(thoughts), tools=data.draw(tools))
        again = encode(ask, prior)
        assert result(again) == result(encode(ask))
        prior = again


def turns(history: list[Message]) -> list[int]:
    """Where the model is asked: after all that came back, before it speaks again."""
    return [
        place
        for place in range(1, len(history) + 1)
        if history[place - 1].role != "assistant" and (place == len(history) or history[place].role == "assistant")
    ]


def said(encoded: Encoded) -> bytes:
    """The conversation in a request: what stands before it are settings, and thinking may be off for a single request."""
    return encoded.body[min(encoded.body.index(name) for name in CONVERSATION if name in encoded.body) :]


@wires
@law
@given(data=st.data(), history=histories().map(sendable))
def test_what_was_sent_once_is_sent_the_same_for_ever(wire: str, data: st.DataObject, history: list[Message]) -> None:
    ask = replace(data.draw(asks(wire)), cache=Cache("off"))
    sent = [encode(replace(ask, transcript=ask.transcript.extend(history[:end]))) for end in turns(history)]
    for before, after in pairwise(sent):
        assert before.body.endswith(b"]}")
        assert said(after).startswith(said(before)[:-2])
        assert moved(before, after) == ()


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(item) for name, item in value.items() if name not in MARKS}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def system_as_blocks(body: dict[str, Any]) -> dict[str, Any]:
    """A marked system prompt is a list, an unmarked one a text."""
    system = body.get("system")
    return {**body, "system": [{"type": "text", "text": system}]} if isinstance(system, str) else body


@wires
@law
@given(data=st.data(), history=wild().map(sendable), cache=caches)
def test_cache_marks_are_all_that_caching_changes(wire: str, data: st.DataObject, history: list[Message], cache: Cache) -> None:
    ask = data.draw(asks(wire))
    ask = replace(ask, transcript=ask.transcript.extend(history))
    marked, plain = encode(replace(ask, cache=cache)), encode(replace(ask, cache=Cache("off")))
    assert marked.binding == plain.binding
    assert moved(plain, marked) == ()
    assert system_as_blocks(unmarked(json.loads(marked.body))) == system_as_blocks(unmarked(json.loads(plain.body)))
    assert not any(mark in plain.body.decode() for mark in MARKS)


@wires
@law
@given(data=st.data(), history=wild())
def test_a_seal_never_leaves_for_anyone_but_its_maker(wire: str, data: st.DataObject, history: list[Message]) -> None:
    ask = data.draw(asks(wire))
    sealed, needles = sealed_with_needles(history)
    body = encode(replace(ask, transcript=ask.transcript.extend(sealed))).body.decode()
    for needle, seal in needles:
        if (seal.origin.wire, seal.origin.provider) != (wire, ask.target.provider):
            assert needle not in body


@pytest.mark.parametrize("wire", [wire for wire in CODECS if wire in CHECKS])
@law
@given(data=st.data(), history=wild())
def test_any_history_becomes_a_request_that_is_not_refused(wire: str, data: st.DataObject, history: list[Message]) -> None:
    ask = data.draw(asks(wire))
    encoded = encode(replace(ask, transcript=ask.transcript.extend(plausible(history, wire))))
    assert check_request(wire, encoded.body) == []
