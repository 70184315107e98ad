"""Any recorded conversation can move to any wire: legal there, and whatever did not survive is a Loss.

The long form (10,000 damaged histories, more walks) is `python -m bench hops`.
"""

import json

import pytest

from evener.transcript import Ask, Message, Origin, ReasoningBlock, Seal, TextBlock, ToolCall, Transcript
from evener.translate import translate
from evener.wire import CODECS
from tests.corpus import needs_corpus
from tests.wire import hops

PAIRS = [(source, target) for source in hops.wires() for target in hops.wires()]


@needs_corpus
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_recorded_conversation_is_legal_on_every_wire_and_nothing_is_lost_in_silence(source: str, target: str) -> None:
    assert list(hops.moves(source, target)) == []


@needs_corpus
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_damaged_history_is_legal_on_every_wire(source: str, target: str) -> None:
    """S3.9."""
    assert list(hops.damaged_moves(source, target, count=300, seed=7)) == []


@needs_corpus
@pytest.mark.parametrize("seed", range(4))
def test_a_walk_over_fifty_hops_is_never_refused(seed: int) -> None:
    assert list(hops.walk(50, seed)) == []


@needs_corpus
def test_what_vanishes_without_a_loss_is_noticed() -> None:
    one = hops.recorded("anthropic_messages")[0]
    encoded = CODECS["anthropic_messages"].encode(one.ask, hops.quirks_of("anthropic_messages", one.ask.target.model), None)
    more = Ask(one.ask.transcript.append(Message.user_text("never sent")), one.ask.target)
    assert hops.unaccounted(one.ask, encoded) == []
    assert hops.unaccounted(more, encoded) != []


def _sealed(maker: Origin, binding: str) -> Message:
    thought = ReasoningBlock("two calls", Seal('{"signature":"c2ln"}', maker, binding))
    return Message("assistant", (thought, TextBlock("Looking."), ToolCall.of("toolu_1", "look", {})), origin=maker)


def test_there_and_back_again_the_seal_is_still_valid_where_the_prefix_is_untouched() -> None:
    """S2.64, S2.65."""
    anthropic, responses = CODECS["anthropic_messages"], CODECS["openai_responses"]
    bound = hops.quirks_of("anthropic_messages", "claude-fable-5-2")
    assert bound.prefix_bound
    maker = Origin("anthropic_messages", "anthropic", "", "claude-fable-5-2")
    talk = Transcript([Message.user_text("Look.")], system="Be brief.")
    first = anthropic.encode(Ask(talk, maker), bound, None)
    talk = talk.extend([_sealed(maker, first.binding), Message.tool_result("toolu_1", "seen")])

    away = responses.encode(
        Ask(talk, Origin("openai_responses", "openai", "", "gpt-5")), hops.quirks_of("openai_responses", "gpt-5"), None
    )
    assert b"c2ln" not in away.body
    assert [loss.what for loss in away.losses] == ["reasoning"]

    talk = talk.extend([Message.assistant_text("From elsewhere."), Message.user_text("And now?")])
    back = anthropic.encode(Ask(talk, maker), bound, None)
    assert b'"signature":"c2ln"' in back.body
    assert back.losses == ()


def test_a_seal_stays_behind_once_something_before_it_has_changed() -> None:
    anthropic = CODECS["anthropic_messages"]
    bound = hops.quirks_of("anthropic_messages", "claude-fable-5-2")
    maker = Origin("anthropic_messages", "anthropic", "", "claude-fable-5-2")
    first = anthropic.encode(Ask(Transcript([Message.user_text("Look.")]), maker), bound, None)
    edited = Transcript([Message.user_text("Look!"), _sealed(maker, first.binding), Message.tool_result("toolu_1", "seen")])
    encoded = anthropic.encode(Ask(edited, maker), bound, None)
    assert b"c2ln" not in encoded.body
    assert "changed since" in str(encoded.losses[0])


def test_translate_keeps_what_the_other_wire_has_a_word_for() -> None:
    request = {
        "model": "claude-opus-4-5",
        "max_tokens": 2048,
        "temperature": 0.5,
        "system": "Be brief.",
        "metadata": {"user_id": "u"},
        "messages": [{"role": "user", "content": "Hi"}],
    }
    found = translate(json.dumps(request).encode(), source="anthropic_messages", target="openai_responses", model="gpt-4o")
    body = json.loads(found.body)
    assert (body["instructions"], body["max_output_tokens"], body["temperature"]) == ("Be brief.", 2048, 0.5)
    assert [loss.what for loss in found.losses] == ["field metadata.user_id"]
