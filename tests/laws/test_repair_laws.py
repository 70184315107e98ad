"""Repair makes any history legal, says what it did, and does it once. (C12, S3.11-S3.17)"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evener.transcript import (
    Block,
    Exchange,
    HostedBlock,
    Loss,
    Message,
    ReasoningBlock,
    Repair,
    RepairRules,
    TextBlock,
    ToolCall,
    ToolResult,
    repair,
)
from evener.transcript.repair import ALLOWED
from tests.laws.strategies import histories, wild

law = settings(max_examples=50, deadline=None)
rules = st.builds(RepairRules, st.booleans(), st.booleans(), st.booleans(), st.booleans())
here = st.builds(RepairRules, st.just(False), st.booleans(), st.booleans(), st.booleans())


@law
@given(histories(), rules)
def test_a_legal_history_passes_unchanged(history: list[Message], rules: RepairRules) -> None:
    assert repair(history, rules) == (tuple(history), ())


@law
@given(wild(), rules)
def test_a_second_repair_changes_and_reports_nothing(history: list[Message], rules: RepairRules) -> None:
    legal, _ = repair(history, rules)
    assert repair(legal, rules) == (legal, ())


@law
@given(wild(), rules, st.lists(st.integers(0, 12)))
def test_any_chunking_gives_the_same(history: list[Message], rules: RepairRules, cuts: list[int]) -> None:
    whole = Repair(rules).feed(history)
    state, settled = Repair(rules), list[Exchange]()
    for start, end in pairwise([0, *sorted(cuts), len(history)]):
        state, more = state.feed(history[start:end])
        settled += more
    assert (state, settled) == whole
    assert state.finish() == whole[0].finish()


@law
@given(wild(), rules)
def test_what_is_settled_never_changes(history: list[Message], rules: RepairRules) -> None:
    state, settled = Repair(rules), list[Exchange]()
    for message in history:
        state.finish()  # looking does not touch
        state, more = state.feed([message])
        settled += more
        assert state.feed(())[0] == state
    assert Repair(rules).feed(history)[1] == settled


@law
@given(wild(), here)
def test_each_call_has_one_result_right_after_it_in_call_order(history: list[Message], rules: RepairRules) -> None:
    """S3.14-S3.16."""
    assert list(unpaired(repair(history, rules)[0])) == []


@law
@given(wild(), rules)
def test_ids_of_calls_are_unique_and_not_empty(history: list[Message], rules: RepairRules) -> None:
    turns = [[call.id for call in message.calls] for message in repair(history, rules)[0]]
    for ids in [[id for turn in turns for id in turn]] if rules.unique_ids else turns:
        assert all(ids)
        assert len(ids) == len(set(ids))


@law
@given(wild())
def test_results_for_calls_that_are_elsewhere_come_once(history: list[Message]) -> None:
    legal, _ = repair(history, RepairRules(past_elsewhere=True))
    start = next((number for number, message in enumerate(legal) if message.role == "assistant"), len(legal))
    known = [block.call_id for message in legal[:start] for block in message.blocks if isinstance(block, ToolResult)]
    assert all(known)
    assert len(known) == len(set(known))
    assert list(unpaired(legal[start:])) == []


@law
@given(wild(), rules)
def test_roles_alternate(history: list[Message], rules: RepairRules) -> None:
    """S3.11."""
    for before, after in pairwise(repair(history, rules)[0]):
        assert before.role != "assistant" or after.role != "assistant"
        assert not rules.merge or before.role != "user" or after.role != "user"


@law
@given(wild(), rules)
def test_every_message_says_something_that_its_role_may_say(history: list[Message], rules: RepairRules) -> None:
    for message in repair(history, rules)[0]:
        weighty = [block for block in message.blocks if not isinstance(block, ReasoningBlock) and not is_empty(block)]
        assert weighty
        assert all(isinstance(block, ALLOWED[message.role]) for block in message.blocks)
        for block in message.blocks:
            assert not is_empty(block) or (message.role == "assistant" and isinstance(block, TextBlock) and block.seal)
            assert not isinstance(block, HostedBlock) or block.role in ("", message.role)
        thoughts = [number for number, block in enumerate(message.blocks) if isinstance(block, ReasoningBlock)]
        last = max(number for number, block in enumerate(message.blocks) if any(block is one for one in weighty))
        assert not thoughts or thoughts[-1] < last


@law
@given(wild(), rules)
def test_hosted_blocks_come_in_pairs(history: list[Message], rules: RepairRules) -> None:
    begun: set[str] = set()
    legal, _ = repair(history, replace(rules, in_flight=False))
    for block in (block for message in legal for block in message.blocks if isinstance(block, HostedBlock)):
        assert not block.closes or block.closes in begun
        begun.discard(block.closes)
        assert not block.opens or block.opens not in begun
        begun |= {block.opens} - {""}
    assert not begun


@law
@given(wild(), rules)
def test_a_sealed_thing_that_has_a_name_goes_out_once(history: list[Message], rules: RepairRules) -> None:
    named = [
        (message.id, block.seal.id)
        for message in repair(history, rules)[0]
        for block in message.blocks
        if isinstance(block, (ReasoningBlock, ToolCall)) and block.seal and block.seal.id
    ]
    assert len(named) == len({name for _, name in named})


@law
@given(wild(), rules)
def test_what_the_user_said_is_never_dropped(history: list[Message], rules: RepairRules) -> None:
    once = list({(message.id, message.role, message.blocks): message for message in history}.values())
    assert user_texts(once) <= user_texts(repair(history, rules)[0])


@law
@given(wild(), rules)
def test_whatever_is_missing_was_reported(history: list[Message], rules: RepairRules) -> None:
    legal, losses = repair(history, rules)
    assert unreported(history, legal, losses) == Counter()


@law
@given(wild(), rules)
def test_nothing_is_invented_but_honest_results_and_lines(history: list[Message], rules: RepairRules) -> None:
    legal, losses = repair(history, rules)
    told = Counter(loss.what for loss in losses)
    new = Counter(essence(block) for message in legal for block in message.blocks)
    new -= Counter(essence(block) for message in history for block in message.blocks)
    made = Counter(block.kind for block in new.elements())
    assert made["tool_result"] <= sum(loss.kind == "added" for loss in losses)
    assert made["text"] <= told["hosted block"] + told["hosted"] + told["text"]
    assert all(block.seal is None for block in new.elements() if isinstance(block, (TextBlock, ToolCall, ToolResult)))
    assert not made["reasoning"]
    assert not made["hosted"]


def is_empty(block: Block) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()


def unpaired(history: Sequence[Message]) -> Iterator[str]:
    """What is wrong between calls and results."""
    due: list[str] = []
    for number, message in enumerate(history):
        results = [block.call_id for block in message.blocks if isinstance(block, ToolResult)]
        if results != due:
            yield f"message {number} has the results {results}, expected {due}"
        if not all(isinstance(block, ToolResult) for block in message.blocks[: len(due)]):
            yield f"message {number} has something before its results"
        due = [call.id for call in message.calls]
    if due:
        yield f"no results for {due}"


def user_texts(history: Sequence[Message]) -> Counter[str]:
    return Counter(
        block.text
        for message in history
        if message.role == "user"
        for block in message.blocks
        if isinstance(block, TextBlock) and not is_empty(block)
    )


def essence(block: Block) -> Block:
    """A block without what may be renamed."""
    if isinstance(block, ToolCall):
        return replace(block, id="")
    return replace(block, call_id="") if isinstance(block, ToolResult) else block


def unreported(history: Sequence[Message], legal: Sequence[Message], losses: Sequence[Loss]) -> Counter[str]:
    """How many blocks of each kind are gone without a loss of their kind, in a message that was not reported as a whole."""
    gone = Counter(essence(block) for message in history for block in message.blocks)
    gone -= Counter(essence(block) for message in legal for block in message.blocks)
    missing: Counter[str] = Counter(block.kind for block in gone.elements())
    missing -= Counter(loss.what.removesuffix(" block") for loss in losses)
    whole = [loss.message for loss in losses if loss.what == "message" and "merged" not in loss.why]
    for id in whole:
        missing -= Counter(block.kind for message in history if message.id == id for block in message.blocks)
    return missing


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([Message("assistant", (ToolCall("a", "f"),), id="1")], "no results for ['a']"),
        ([Message.tool_result("a", "x")], "message 0 has the results ['a'], expected []"),
        (
            [
                Message("assistant", (ToolCall("a", "f"),)),
                Message("user", (TextBlock("x"), ToolResult("a", ()))),
            ],
            "message 1 has something before its results",
        ),
    ],
)
def test_a_broken_pair_is_caught(history: list[Message], why: str) -> None:
    assert list(unpaired(history)) == [why]


def test_an_unreported_loss_is_caught() -> None:
    history = [Message.user_text("x"), Message("user", (ReasoningBlock("y"),), id="2")]
    assert unreported(history, history[:1], ()) == Counter(reasoning=1)
    assert unreported(history, history[:1], [Loss("repaired", "reasoning", "", "2")]) == Counter()
    assert unreported(history, history[:1], [Loss("repaired", "message", "", "2")]) == Counter()
    assert unreported(history, history[:1], [Loss("repaired", "message", "were merged", "2")]) == Counter(reasoning=1)
