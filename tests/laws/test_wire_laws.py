"""Laws of writing: `prior` changes nothing, the past never changes, marks are only marks, seals stay with their makers."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evener.providers import load_rows
from evener.testing import check_request
from evener.testing.check import CHECKS
from evener.transcript import (
    Ask,
    Block,
    Cache,
    DocumentBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Encoded, Quirks, moved
from tests.laws.asks import asks, caches, opaque, sealed_by, sendable, target, thoughts, tools
from tests.laws.strategies import histories, wild

law = settings(max_examples=40, deadline=None)
wires = pytest.mark.parametrize("wire", CODECS)
MARKS = ("cache_control", "prompt_cache_breakpoint", "prompt_cache_options")
quirks = st.sampled_from(
    [
        Quirks(),
        Quirks(),
        Quirks(thinking_replay="latest"),
        Quirks(prefix_bound=True, seal_scope="model"),
        Quirks(unique_ids=False, mid_system=False, prefill=False, first_user=True),
        Quirks(calls_last=True, item_ids=False, hosted=False, images=False, documents=False),
    ]
)


def encode(ask: Ask, prior: Encoded | None = None, quirks: Quirks | None = None) -> Encoded:
    return CODECS[ask.target.wire].encode(ask, quirks or Quirks(), prior)


def result(encoded: Encoded) -> tuple[object, ...]:
    return encoded.path, encoded.headers, encoded.body, encoded.losses, encoded.binding, encoded.names


def makers(wire: str) -> list[Origin]:
    """The one who is asked, and others: on another wire, at another host, another model of the same one."""
    us = target(wire)
    elsewhere = next(other for other in CODECS if other != wire)
    return [
        us,
        replace(us, wire=elsewhere),
        replace(us, provider="q"),
        replace(us, endpoint="e"),
        replace(us, model="n"),
        Origin(),
    ]


@wires
@law
@given(data=st.data(), history=wild().map(sendable), cuts=st.lists(st.integers(0, 12), max_size=4), quirks=quirks)
def test_a_prior_request_changes_nothing(
    wire: str, data: st.DataObject, history: list[Message], cuts: list[int], quirks: Quirks
) -> None:
    ask, prior = data.draw(asks(wire)), None
    for start, end in pairwise([0, *sorted(cuts), max(12, len(history))]):
        ask = replace(ask, transcript=ask.transcript.extend(history[start:end]))
        if data.draw(st.booleans()):
            ask = replace(ask, cache=data.draw(caches), reasoning=data.draw(thoughts), tools=data.draw(tools))
        again = encode(ask, prior, quirks)
        assert result(again) == result(encode(ask, None, quirks))
        prior = again


def asked_at(history: list[Message]) -> list[int]:
    """Where the model is asked: after all that came back, before it speaks again."""
    ends = range(1, len(history) + 1)
    heard = [end for end in ends if history[end - 1].role != "assistant"]
    return [end for end in heard if end == len(history) or history[end].role == "assistant"]


def past(encoded: Encoded) -> bytes:
    """The bytes of the history, without the bracket that ends it. It is the last field of a request."""
    _, begin, rest = re.split(rb'("(?:messages|input|contents)":\[)', encoded.body, maxsplit=1)
    assert begin
    assert rest.endswith(b"]}")
    return rest[:-2]


@wires
@law
@given(data=st.data(), history=histories().map(sendable))
def test_what_was_sent_once_is_sent_the_same_for_ever(wire: str, data: st.DataObject, history: list[Message]) -> None:
    ask = replace(data.draw(asks(wire)), cache=Cache("off"))
    sent = [encode(replace(ask, transcript=ask.transcript.extend(history[:end]))) for end in asked_at(history)]
    for before, after in pairwise(sent):
        assert past(after).startswith(past(before))
        assert moved(before, after) == ()


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(item) for name, item in value.items() if name not in MARKS}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def with_texts_as_lists(value: Any) -> Any:
    """Where a mark stands, a text becomes a list of one."""
    if isinstance(value, dict):
        told = {name: with_texts_as_lists(item) for name, item in value.items()}
        for name in ("system", "content", "output"):
            if isinstance(told.get(name), str):
                told[name] = [told[name]]
            elif isinstance(told.get(name), list):
                told[name] = [
                    item["text"] if isinstance(item, dict) and item.keys() == {"type", "text"} else item for item in told[name]
                ]
        return told
    return [with_texts_as_lists(item) for item in value] if isinstance(value, list) else value


@wires
@law
@given(data=st.data(), history=wild().map(sendable), cache=caches)
def test_cache_marks_are_all_that_caching_changes(wire: str, data: st.DataObject, history: list[Message], cache: Cache) -> None:
    ask = data.draw(asks(wire))
    ask = replace(ask, transcript=ask.transcript.extend(history))
    marked, plain = encode(replace(ask, cache=cache)), encode(replace(ask, cache=Cache("off")))
    assert marked.binding == plain.binding
    assert moved(plain, marked) == ()
    assert with_texts_as_lists(unmarked(json.loads(marked.body))) == with_texts_as_lists(unmarked(json.loads(plain.body)))
    assert not any(mark in plain.body.decode() for mark in MARKS)


@wires
@law
@given(data=st.data(), history=wild(), turn=st.integers(0, 5), scope=st.sampled_from(["provider", "model"]))
def test_what_a_provider_sealed_goes_to_nobody_else(
    wire: str, data: st.DataObject, history: list[Message], turn: int, scope: Any
) -> None:
    """S0.22, S2.65."""
    others = makers(wire)
    sealed, words = sealed_by(history, others[turn:] + others[:turn])
    ask = data.draw(asks(wire))
    body = encode(replace(ask, transcript=ask.transcript.extend(sealed)), None, Quirks(seal_scope=scope)).body.decode()
    mine = (target(wire), replace(target(wire), model="n")) if scope == "provider" else (target(wire),)
    assert [maker for word, maker in words if maker not in mine and word in body] == []


@wires
def test_a_users_own_fields_stay_on_their_wire(wire: str) -> None:
    for other in CODECS:
        seal = Seal('{"word":"secret","item":{"word":"secret"},"part":{"word":"secret"}}', target(other))
        picture, paper = (
            ImageBlock(Inline("aGk="), "image/png", seal=seal),
            DocumentBlock(Inline("aGk="), "text/plain", seal=seal),
        )
        asked = Message("user", (TextBlock("Look.", seal=seal), picture, paper))
        came = Message("user", (ToolResult("c", (TextBlock("x", seal=seal), TextBlock("y")), seal=seal),))
        history = [asked, Message.assistant_tool_call(ToolCall("c", "look")), came]
        body = encode(Ask(Transcript(history, [TextBlock("Be kind.", seal=seal)]), target(wire))).body
        assert (b"secret" in body) <= (wire == other)


@pytest.mark.parametrize("wire", [wire for wire in CODECS if wire in CHECKS])
@law
@given(data=st.data(), history=wild(), turn=st.integers(0, 5), quirks=quirks)
def test_any_history_becomes_a_request_that_is_not_refused(
    wire: str, data: st.DataObject, history: list[Message], turn: int, quirks: Quirks
) -> None:
    """S3.9."""
    others = makers(wire)
    ask = data.draw(asks(wire))
    sealed, _ = sealed_by(history, others[turn:] + others[:turn])
    encoded = encode(replace(ask, transcript=ask.transcript.extend(sealed)), None, replace(quirks, unique_ids=True))
    assert check_request(wire, encoded.body) == []


# Models of every habit, by their rows: sampling, forced choice, budgets, prefill, bound seals.
MODELS = [
    *(
        ("anthropic", f"claude-{name}")
        for name in (
            "3-5-haiku",
            "sonnet-4-5",
            "opus-4-6",
            "opus-4-8",
            "sonnet-5",
            "opus-5-5",
            "sonnet-5-5",
            "haiku-5-5",
            "fable-5-2",
        )
    ),
    *(("openai", name) for name in ("gpt-4o", "o3", "gpt-5", "gpt-5-pro", "gpt-5.1", "gpt-5.4", "gpt-5.6-sol", "gpt-6.1-sol")),
]


@pytest.mark.parametrize(("provider", "model"), MODELS)
@settings(law, max_examples=25)
@given(data=st.data(), history=wild(), turn=st.integers(0, 3))
def test_no_model_refuses_what_its_row_lets_out(
    provider: str, model: str, data: st.DataObject, history: list[Message], turn: int
) -> None:
    facts = load_rows().facts(provider, model)
    wire = facts.provider.wire
    us = Origin(wire, provider, model=model)
    others = [us, replace(us, model="n"), replace(us, provider="q"), target(next(other for other in CODECS if other != wire))]
    sealed, _ = sealed_by(history, others[turn:] + others[:turn])
    ask = replace(data.draw(asks(wire)), target=us)
    encoded = encode(replace(ask, transcript=ask.transcript.extend(sealed)), None, facts.quirks)
    assert check_request(wire, encoded.body, api_version=facts.quirks.api_version) == []


# Seals that are bound to what stands before them.

BOUND = Quirks(prefix_bound=True)
bound_wires = pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses"])


def conversation(wire: str, calls: list[bool]) -> Ask:
    """As many turns as there are calls to be made or not, each thought about, sealed and bound."""
    ask = Ask(Transcript([Message("user", (TextBlock("Begin."),), id="m0")], "Be kind."), target(wire), (ToolSpec("look"),))
    prior = None
    for number, called in enumerate(calls):
        prior = encode(ask, prior, BOUND)
        data = opaque(wire, f"word{number}word")["reasoning"]
        thought = ReasoningBlock("Hm.", Seal(json.dumps(data), ask.target, prior.binding))
        said: Block = ToolCall(f"call_{number}", "look") if called else TextBlock(f"I say {number}.")
        heard: Block = ToolResult(f"call_{number}", (TextBlock("seen"),)) if called else TextBlock(f"And {number}?")
        turn = [Message("assistant", (thought, said), id=f"a{number}"), Message("user", (heard,), id=f"u{number}")]
        ask = replace(ask, transcript=ask.transcript.extend(turn))
    return ask


def words_in(encoded: Encoded, count: int) -> list[int]:
    return [number for number in range(count) if f"word{number}word".encode() in encoded.body]


@bound_wires
@law
@given(calls=st.lists(st.booleans(), min_size=1, max_size=5), cache=caches)
def test_while_nothing_moves_every_bound_seal_goes_back(wire: str, calls: list[bool], cache: Cache) -> None:
    encoded = encode(replace(conversation(wire, calls), cache=cache), None, BOUND)
    assert words_in(encoded, len(calls)) == list(range(len(calls)))
    assert [loss for loss in encoded.losses if "reasoning" in loss.what] == []


def edited(block: Block) -> Block:
    match block:
        case TextBlock(text):
            return replace(block, text=f"{text} Or not.")
        case ToolCall():
            return replace(block, raw='{"at":"else"}')
        case ToolResult():
            return replace(block, content=(TextBlock("unseen"),))
        case _:
            return block


@bound_wires
@law
@given(calls=st.lists(st.booleans(), min_size=1, max_size=5), data=st.data())
def test_after_an_edit_no_later_seal_goes_out_and_a_loss_says_so(wire: str, calls: list[bool], data: st.DataObject) -> None:
    ask = conversation(wire, calls)
    messages = list(ask.transcript)
    place = data.draw(st.integers(0, len(messages) - 1))
    messages[place] = replace(messages[place], blocks=tuple(edited(block) for block in messages[place].blocks))
    encoded = encode(replace(ask, transcript=Transcript(messages, ask.transcript.system_blocks)), None, BOUND)
    alive = (place + 1) // 2  # the turn that was edited was thought about before
    assert words_in(encoded, len(calls)) == list(range(alive))
    dropped = [loss.message for loss in encoded.losses if (loss.kind, loss.what) == ("dropped", "reasoning")]
    assert dropped == [f"a{number}" for number in range(alive, len(calls))]


@bound_wires
def test_another_system_prompt_or_tool_leaves_no_bound_seal_alive(wire: str) -> None:
    ask = conversation(wire, [True, False])
    for other in (replace(ask, tools=()), replace(ask, transcript=ask.transcript.with_system("Be brief."))):
        encoded = encode(other, None, BOUND)
        assert words_in(encoded, 2) == []
        assert sum((loss.kind, loss.what) == ("dropped", "reasoning") for loss in encoded.losses) == 2


@wires
def test_what_moved_is_named(wire: str) -> None:
    said = [Message("user", (TextBlock("Hi."),), id="m0"), Message("assistant", (TextBlock("Ho."),), id="m1")]
    said += [Message("user", (TextBlock("And?"),), id="m2"), Message("assistant", (TextBlock("So."),), id="m3")]
    said += [Message("user", (TextBlock("Well."),), id="m4")]
    ask = Ask(Transcript(said, "Be kind."), target(wire), (ToolSpec("look"),))
    before = encode(ask)

    def after(**changes: Any) -> tuple[str, ...]:
        return moved(before, encode(replace(ask, **changes)))

    assert after() == after(cache=Cache("moving")) == ()
    assert after(transcript=ask.transcript.append(Message.assistant_text("End."))) == ()
    assert after(tools=(ToolSpec("look", "Looks."),)) == ("tools",)
    assert after(transcript=ask.transcript.with_system("Be brief.")) == ("system",)
    assert after(tools=(), transcript=ask.transcript.with_system(None)) == ("tools", "system")
    second = replace(said[2], blocks=(TextBlock("What?"),))
    assert after(transcript=Transcript([*said[:2], second, *said[3:]], "Be kind.")) == ("messages from 'm1' on",)
    assert after(transcript=Transcript(said[1:], "Be kind.")) == ("messages from 'm0' on",)
