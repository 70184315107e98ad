"""Evictions and compactions of random histories: nothing is lost, undoing is exact, and doing it twice changes nothing.

(S0.16, S3.4, S3.6, S3.8, S3.22)
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bench.planning import count_calls
from evener import events as ev
from evener.context.accounting import rates_of
from evener.context.compaction import plan_compaction
from evener.context.eviction import is_prompt, plan_eviction
from evener.context.gate import ContextRules
from evener.context.view import SUMMARY
from evener.harness.harness import store_of, to_the_end
from evener.loop.state import RunState, apply, fold
from evener.store.protocol import state_of
from evener.transcript import Message
from evener.transcript.blocks import (
    Block,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.repair import repair
from evener.transcript.reply import Stop
from tests.patience import PATIENCE

RATES = rates_of("anthropic_messages")
RULES = ContextRules()


def messages_of(random: Random) -> Iterator[Message]:
    """A legal history: prompts, answers with calls, reasoning and text; results of many sizes, in one message or in several."""
    for turn in range(random.randint(1, 25)):
        if turn == 0 or random.random() < 0.2:
            yield Message("user", (TextBlock(f"prompt {turn} " * random.randint(1, 20)),), id=f"p{turn}")
        said: list[Block] = [ReasoningBlock("thought " * random.randint(1, 50))] if random.random() < 0.4 else []
        said.append(TextBlock(f"step {turn}"))
        calls = [ToolCall(f"c{turn}-{n}", "look", "{}") for n in range(random.randint(1, 3))]
        yield Message("assistant", (*said, *calls), id=f"a{turn}")
        results = [ToolResult(call.id, content_of(random)) for call in calls]
        if random.random() < 0.7:
            yield Message("user", tuple(results), id=f"r{turn}")
        else:  # as other programs write them: a message for each
            yield from (Message("user", (result,), id=f"r{turn}-{n}") for n, result in enumerate(results))


def content_of(random: Random) -> tuple[TextBlock | ImageBlock, ...]:
    if random.random() < 0.3:
        return (TextBlock("screen"), ImageBlock(Inline("aGk="), "image/png"))
    return (TextBlock("found " * random.choice((1, 50, 500, 3000))),)


def history(seed: int) -> tuple[Random, RunState]:
    random = Random(seed)
    return random, fold((ev.Opened(at=0.0, thread="t"), ev.Imported(at=0.0, messages=tuple(messages_of(random)))))


def evicted(state: RunState, random: Random, pinned: frozenset[str]) -> ev.Evicted | None:
    found = plan_eviction(
        state.view.messages, random.choice((500.0, 5_000.0, 1e9)), rates=RATES, rules=RULES, pinned=pinned,
        excerpt=random.choice((None, None, 500, 0)),
    )  # fmt: skip
    head = state.transcript.messages[-1].id
    return ev.Evicted(at=1.0, id="e1", cuts=found.cuts, cause="gate", head=head) if found.cuts else None


def compacted(state: RunState, pinned: frozenset[str]) -> ev.Compacted | None:
    found = plan_compaction(state.view.messages, 2_000.0, rates=RATES, pinned=pinned, forced=True)
    if found is None:
        return None
    summary = Message("user", (TextBlock(SUMMARY + "what was found"),), id="summary")
    return ev.Compacted(at=2.0, id="e2", summary=summary, until=found.until, kept=found.kept, head="x")


@pytest.mark.parametrize("block", range(10))
def test_a_hundred_random_histories(block: int) -> None:
    """Ten times: a thousand. Each is evicted, compacted, undone and gone on with."""
    for seed in range(block * 100, block * 100 + 100):
        random, state = history(seed)
        whole = state.transcript.messages
        pinned = frozenset(random.sample([one.id for one in whole], min(2, len(whole))))
        event = evicted(state, random, pinned)
        if event is not None:
            edited = apply(state, event)
            check(edited, whole, pinned)
            left = plan_eviction(edited.view.messages, 1e9, rates=RATES, rules=RULES, pinned=pinned, excerpt=500)
            done = {(cut.message, cut.block, cut.part) for cut in event.cuts if cut.kind != "reasoning"}
            assert not done & {(cut.message, cut.block, cut.part) for cut in left.cuts if cut.kind != "reasoning"}
            undone = apply(edited, ev.ContextRestored(at=3.0, id="e1"))
            assert (undone.view.messages, counts(undone)) == (whole, (0, 0))
            state = edited
        before = state.view.messages
        summary = compacted(state, pinned)
        if summary is not None:
            edited = apply(state, summary)
            check(edited, whole, pinned)
            assert {one.id for one in before if is_prompt(one)} <= {one.id for one in edited.view}
            assert apply(edited, summary).view.messages == edited.view.messages  # a second time changes nothing
            more = apply(edited, ev.Imported(at=4.0, messages=(Message("user", (TextBlock("on"),), id="more"),)))
            undone = apply(more, ev.ContextRestored(at=5.0, id="e2"))
            assert [one.id for one in undone.view] == [*(one.id for one in before), "more"]
            assert undone.view.messages[: len(before)] == before
            assert counts(undone) == counts(state)
            assert apply(undone, ev.ContextRestored(at=6.0, id="")).view.messages == undone.transcript.messages


def counts(state: RunState) -> tuple[int, int]:
    """Return how many evictions and compactions there are in what requests hold."""
    return (state.context.evictions, state.context.compactions) if state.context else (0, 0)


def check(state: RunState, whole: tuple[Message, ...], pinned: frozenset[str]) -> None:
    """The transcript is as it was; the view is legal, has every pinned message as it was, and no call without its result."""
    assert state.transcript.messages == whole
    known = {one.id: one.blocks for one in whole}
    shown = {one.id: one.blocks for one in state.view}
    for id in pinned:
        assert shown[id] == known[id]
    called = [call.id for one in state.view for call in one.calls]
    answered = [block.call_id for one in state.view for block in one.blocks if isinstance(block, ToolResult)]
    assert called == answered
    assert not [loss for loss in repair(state.view)[1] if loss.what in ("tool_call", "tool_result")]


def test_only_a_summary_can_be_sealed() -> None:
    """What a provider did itself is no summary: once the sealed one is undone, any model can read what is there."""
    _, state = history(1)
    searched = Message("assistant", (HostedBlock('{"type":"web_search_call","n":1e999}', "openai_responses"),), id="searched")
    state = apply(state, ev.Imported(at=1.0, messages=(searched, Message("user", (TextBlock("on"),), id="on"))))
    event = evicted(state, Random(1), frozenset())
    assert event is not None
    state = apply(state, event)
    origin = Origin(wire="openai_responses", provider="openai", model="m")
    sealed = HostedBlock('{"type":"compaction","encrypted_content":"x"}', "openai_responses")
    summary = Message("assistant", (sealed,), id="summary", origin=origin)
    state = apply(state, ev.Compacted(at=2.0, id="e2", summary=summary, until="a0"))
    assert state.context is not None
    assert state.context.sealed == origin
    state = apply(state, ev.ContextRestored(at=3.0, id="e2"))
    assert state.context is not None
    assert state.context.sealed is None


def test_an_answer_after_an_edit_joins_both() -> None:
    _, state = history(1)
    event = evicted(state, Random(1), frozenset())
    assert event is not None
    state = apply(state, event)
    said = Message("assistant", (TextBlock("so"),), id="answer")
    state = apply(state, ev.Replied(at=2.0, message=said, stop=Stop("done")))
    assert state.view.last == state.transcript.last
    assert state.view.messages != state.transcript.messages


CHILD = """
import asyncio, sys
from evener import Harness
from evener.context import ContextRules
from evener.testing import ScriptedModel, says

def script(ask):
    if ask.tools or "compact the conversation" not in (ask.transcript.system or ""):
        return says("word " * 400)
    print("summing up", flush=True)
    return says("<summary>They spoke of words, at length.</summary>")

async def main():
    harness = Harness(ScriptedModel(script), store=sys.argv[1], context=ContextRules(window=100_000))
    thread = harness.thread()
    for number in range(4):
        await thread.run(f"Say something, {number}.")
    print(thread.id, flush=True)
    while True:
        await thread.compact()
        await thread.restore_context()

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 2, 5])
def test_killed_in_the_middle_of_compacting_it_is_the_old_or_the_new_one(tmp_path: Path, after: int) -> None:
    path = tmp_path / "evener.db"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stdout is not None
    log = child.stdout.readline().strip()
    for _ in range(after):
        assert child.stdout.readline().strip() == "summing up"
    child.send_signal(signal.SIGKILL)
    child.wait(PATIENCE)
    child.stdout.close()

    async def look() -> RunState:
        store = store_of(path)
        try:
            return await state_of(store, log)
        finally:
            await store.aclose()

    state = to_the_end(look())
    said = [one.id for one in state.transcript]
    shown = [one.id for one in state.view]
    assert len(said) == 8
    assert shown == said or any(one.text.startswith(SUMMARY) for one in state.view)
    assert state.calls == ()


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat", "gemini"])
def test_planning_an_eviction_costs_less_than_encoding_the_thread_once(wire: str) -> None:
    """The short form of `python -m bench planning`: functions called instead of instructions."""
    assert count_calls("plan", wire, 1_000) < count_calls("encode", wire, 1_000)


def test_screenshots_go_first_then_verbose_results_then_reasoning_and_never_a_prompt() -> None:
    """S3.8: with a goal that grows, each kind is taken out only once all of the one before it is gone."""
    messages = [Message("user", (TextBlock("Find it. " * 2_000),), id="p")]
    for number in range(12):
        content = (TextBlock("found " * 900),) if number % 2 else (TextBlock("screen"), ImageBlock(Inline("aGk="), "image/png"))
        said = (ReasoningBlock("I think so. " * 50), ToolCall(f"c{number}", "look", "{}"))
        messages += [
            Message("assistant", said, id=f"a{number}"),
            Message("user", (ToolResult(f"c{number}", content),), id=f"r{number}"),
        ]
    whole = plan_eviction(messages, 1e9, rates=RATES, rules=RULES)
    kinds = {"screenshot": 0, "result": 1, "reasoning": 2}
    most = [sum(cut.kind == kind for cut in whole.cuts) for kind in kinds]
    assert all(most)
    assert most[0] == 3  # of six, the three newest stay
    for goal in range(1, int(whole.saved), 500):
        found = plan_eviction(messages, float(goal), rates=RATES, rules=RULES)
        assert found.saved >= min(goal, whole.saved)
        counts = [sum(cut.kind == kind for cut in found.cuts) for kind in kinds]
        assert counts[1] == 0 or counts[0] == most[0]
        assert counts[2] == 0 or counts[1] == most[1]
        assert not any(cut.message == "p" for cut in found.cuts)
