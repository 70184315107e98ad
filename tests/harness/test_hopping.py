"""A conversation that hops: across four strict servers, branches and processes, and nothing is refused or lost in silence.

The long form, with the embedded model, is `python -m bench threads`.
"""

from pathlib import Path

import pytest

from bench.thread_check import Said, lost_in_silence
from bench.thread_stage import Heard
from bench.threads import Walk, walk
from evener.testing import Received, Rejected, Violation
from evener.transcript.blocks import ImageBlock, Inline, ReasoningBlock, Seal, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from tests.driver.stage import quick_folder

HOPS = 40
KILLS = 3


def test_a_conversation_hops_over_wires_branches_and_deaths(tmp_path: Path) -> None:
    """S1.21, S1.22, S1.23, S1.24, S2.64, S3.1, S3.6: never refused, every loss listed, every branch verifies and replays."""
    with quick_folder(tmp_path) as folder:
        tally = walk(HOPS, 1, folder, kills=KILLS)
    assert tally.violations == []
    assert (tally.hops, tally.kills, tally.refused) == (HOPS, KILLS, 0)
    assert set(tally.wires) == {"anthropic_messages", "openai_responses", "openai_chat", "gemini"}
    assert set(tally.modes) == {"replay", "chain", "conversation"}
    assert min(tally.forks, tally.rollbacks, tally.resumed, tally.forgotten) > 0
    assert tally.answers >= HOPS
    assert {"dropped reasoning", "dropped seal of tool_call"} <= set(tally.lost)
    assert {"text", "reasoning", "tool_call", "tool_result", "image"} <= set(tally.kept)


# The checks themselves.


def test_a_walk_whose_requests_held_nothing_or_were_refused_is_told(tmp_path: Path) -> None:
    class Deaf(dict[str, Heard]):
        def __setitem__(self, mark: str, heard: Heard) -> None:
            super().__setitem__(mark, Heard({}, None))

    with quick_folder(tmp_path) as folder:
        one = Walk(folder, 3, local=0, kills=0, hops=3)
        one.stage.heard = Deaf()
        tally = one.go(3)
    assert tally.answers >= 3
    assert sum("lost in silence" in text for text in tally.violations) > tally.answers
    wrong = Rejected(Received("POST", "/", {}, b""), (Violation("messages[0]", "order", "may not stand here"),))
    one.stage.servers["openai_chat"].rejected.append(wrong)
    one.complain()
    assert tally.violations[-1] == "refused by openai_chat: messages[0]: may not stand here"


SEALED = ReasoningBlock("Hm.", Seal('{"signature":"c2ln"}'))
PICTURE = ImageBlock(Inline("aW1hZ2U="), "image/png")
TALK = Transcript(
    [
        Message("user", (TextBlock("Draw."), PICTURE), id="m1"),
        Message("assistant", (SEALED, TextBlock("I will."), ToolCall("c1", "paint", '{"x":"a boat"}')), id="m2"),
        Message("user", (ToolResult("c1", (TextBlock("drawn"),)),), id="m3"),
    ],
    system="Be brief.",
)
BODY = {
    "system": "Be brief.",
    "messages": [
        {"content": [{"text": "Draw."}, {"data": "aW1hZ2U="}]},
        {
            "content": [
                {"thinking": "Hm.", "signature": "c2ln"},
                {"text": "I will."},
                {"name": "paint", "input": {"x": "a boat"}},
            ]
        },
        {"content": [{"result": "drawn"}]},
    ],
}


def without(word: str) -> object:
    """The body with one word taken out of it."""

    def cut(value: object) -> object:
        match value:
            case dict():
                return {key: cut(one) for key, one in value.items()}
            case list():
                return [cut(one) for one in value]
            case _:
                return "" if value == word else value

    return cut(BODY)


def test_a_request_that_holds_everything_needs_no_loss() -> None:
    assert lost_in_silence(TALK, Said(BODY), ()) == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("Draw.", "m1"),
        ("aW1hZ2U=", "m1"),
        ("c2ln", "m2"),
        ("I will.", "m2"),
        ("paint", "m2"),
        ("a boat", "m2"),
        ("drawn", "m3"),
    ],
)
def test_whatever_is_missing_must_have_a_loss(word: str, message: str) -> None:
    body = without(word)
    assert len(lost_in_silence(TALK, Said(body), ())) == 1
    assert lost_in_silence(TALK, Said(body), (Loss("dropped", "it", "because", message),)) == []
    assert len(lost_in_silence(TALK, Said(body), (Loss("dropped", "it", "because", "m9"),))) == 1


def test_a_lost_system_prompt_is_noticed() -> None:
    assert lost_in_silence(TALK, Said(without("Be brief.")), ()) == ["system: 'Be brief.'"]
