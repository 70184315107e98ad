"""Counting tokens by kind of block, anchored on what providers reported. (S0.7, S0.21, S3.2)"""

import pytest

from bench.estimate import BARS, judge, samples
from evener.context.accounting import KINDS, Account, KindCount, count_frame, count_message, rates_of, size_message
from evener.transcript import Message, Origin, Transcript
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import ImageBlock, Inline, ReasoningBlock, Seal, TextBlock, ToolCall, ToolResult
from evener.transcript.reply import Usage
from tests.corpus import needs_corpus

RATES = rates_of("anthropic_messages")
TARGET = Origin("anthropic_messages", "anthropic", model="m")
SAID = "word " * 40

KIND_CASES = {
    "user": Message("user", (TextBlock(SAID),)),
    "assistant": Message("assistant", (TextBlock(SAID),)),
    "reasoning": Message("assistant", (ReasoningBlock(SAID),)),
    "calls": Message("assistant", (ToolCall("c", "look", '{"at":"' + SAID + '"}'),)),
    "results": Message("user", (ToolResult("c", (TextBlock(SAID),)),)),
    "media": Message("user", (ToolResult("c", (ImageBlock(Inline("aGk="), "image/png"),)),)),
}


@pytest.mark.parametrize("kind", KIND_CASES)
def test_each_kind_of_block_is_counted_as_itself(kind: str) -> None:
    """S0.7."""
    tally = count_message(KIND_CASES[kind], RATES)
    assert kind in KINDS
    assert max(KINDS, key=tally.of) == kind
    assert tally.total == pytest.approx(sum(tally.of(one) for one in KINDS))
    assert size_message(KIND_CASES[kind], RATES) == pytest.approx((tally.total - tally.media, tally.media))


def test_a_seal_is_not_text() -> None:
    plain = Message("assistant", (ReasoningBlock("so"),))
    sealed = Message("assistant", (ReasoningBlock("so", Seal('{"signature":"' + "x" * 5000 + '"}')),))
    assert count_message(plain, RATES) == count_message(sealed, RATES)


def test_what_was_reported_is_not_estimated_again() -> None:
    """Reasoning is billed as output; in the next prompt it counts only where the provider counts it. (S0.21)"""
    answer = Message("assistant", (TextBlock("x" * 9000),), origin=TARGET, usage=Usage(1000, 1000, 0, 0, 300, 200))
    before = Transcript([Message.user_text("y" * 3600), answer], "s")
    frame = count_frame(before, (), None, RATES).total
    told = Account(RATES, frame).after(before, TARGET)
    assert told.total == pytest.approx(1000 + 100 + RATES.message)
    counted = rates_of("anthropic_messages", counts_reasoning=True)
    assert Account(counted, frame).after(before, TARGET).total == pytest.approx(1300 + RATES.message)
    more = before.append(Message.user_text("z" * 100))
    assert told.after(more, TARGET).total - told.total == pytest.approx(100 * RATES.text + RATES.message)


def test_a_report_of_another_model_or_a_made_up_one_is_no_anchor() -> None:
    other = Origin("gemini", "google", model="m")
    for origin, reported in ((other, 1000), (TARGET, 3)):
        answer = Message("assistant", (TextBlock("x" * 9000),), origin=origin, usage=Usage(reported, reported, 0, 0, 1, 0))
        talk = Transcript([Message.user_text("hi"), answer])
        assert Account(RATES).after(talk, TARGET).reported == 0


def test_a_grown_conversation_is_counted_from_where_it_grew() -> None:
    talk = Transcript([Message.user_text(f"number {n}") for n in range(50)])
    account = Account(RATES).after(talk, TARGET)
    grown = talk.append(Message.user_text("one more"))
    fresh = Account(RATES).after(Transcript(grown.messages), TARGET)
    assert account.after(grown, TARGET).total == pytest.approx(fresh.total)
    assert KindCount(RATES).after(talk).after(grown).messages.total == pytest.approx(fresh.total)
    shorter = Transcript(talk.messages[:10])
    assert account.after(shorter, TARGET).total < account.total
    assert KindCount(RATES).after(talk).after(shorter) == KindCount(RATES).after(shorter)


def test_tools_and_the_system_prompt_are_the_frame() -> None:
    talk = Transcript((), "Be brief. " * 10)
    bare = count_frame(talk, (), None, RATES)
    tools = count_frame(talk, (ToolSpec("look", "Look at it."),), None, RATES)
    assert bare.tools == 0
    assert tools.tools > RATES.tools
    assert tools.system == bare.system > 0


@needs_corpus
@pytest.mark.parametrize("wire", BARS)
def test_the_estimate_is_near_what_was_reported(wire: str) -> None:
    """Fitted on one half of the recordings and judged on the other."""
    errors = sorted(judge(wire, samples(wire)).following)
    assert len(errors) > 5
    assert errors[len(errors) // 2] <= BARS[wire]
