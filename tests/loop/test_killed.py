"""Killed anywhere, the loop ends the same, and no `write` tool starts twice (S0.48, S1.30, S4.26)."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from evener import events as ev
from evener.loop.plan import ToolFacts
from evener.loop.state import fold
from evener.transcript.blocks import ToolResult
from evener.transcript.message import Message
from tests.loop.world import UNKNOWN, Died, World, killed_at, moments, reply

TOOLS = {
    "look": ToolFacts(effect="read"),
    "book": ToolFacts(effect="idempotent"),
    "pay": ToolFacts(effect="write"),
    "post": ToolFacts(effect="write", verifies=True),
    "step": ToolFacts(effect="write", sequential=True),
}
REPLIES = (
    reply(0, ("look", "a"), ("pay", "b"), ("book", "c")),
    reply(1, ("step", "d"), ("step", "e"), ("look", "f")),
    reply(2, ("post", "g")),
    reply(3, text="the end"),
)


def made() -> World:
    return World(REPLIES, TOOLS)


def said(world: World) -> list[tuple[str, ...]]:
    """The conversation without what an interruption may change."""
    shown = []
    for message in fold(world.events).transcript:
        blocks = tuple(
            f"{block.call_id}: {block.text}" if isinstance(block, ToolResult) else repr(block) for block in message.blocks
        )
        shown.append((message.role, *blocks))
    return shown


def results(world: World) -> list[str]:
    return [
        block.call_id for message in fold(world.events).transcript for block in message.blocks if isinstance(block, ToolResult)
    ]


def unknown(world: World) -> list[str]:
    return [event.call for event in world.events if isinstance(event, ev.CallFinished) and event.outcome == "unknown"]


def effects(world: World, *tools: str) -> list[str]:
    return [call for tool, call in world.effects if tool in tools]


def check(world: World, whole: World) -> None:
    state = fold(world.events)
    assert state.finished is not None
    assert state.finished.cause == "done"
    assert results(world) == results(whole), "each call has one result, in the model's order"
    ran = effects(world, "pay", "step")
    assert len(ran) == len(set(ran)), "a write tool was started twice"
    lost = unknown(world)
    assert len(lost) <= 1
    assert set(lost) <= {call for call in results(whole) if call in ("c0-1", "c1-0", "c1-1")}
    expected = [
        tuple(f"{cell.partition(':')[0]}: {UNKNOWN}" if cell.partition(":")[0] in lost else cell for cell in row)
        for row in said(whole)
    ]
    assert said(world) == expected, "it ends the same but for what nobody knows"


@pytest.mark.parametrize("moment", moments(made))
def test_killed_anywhere_it_resumes_to_the_same_end(moment: int) -> None:
    """S0.48, S4.26."""
    whole = made()
    whole.start()
    whole.drive()
    check(killed_at(moment, made), whole)


def test_killed_twice_and_more_it_resumes_to_the_same_end() -> None:
    whole = made()
    whole.start()
    whole.drive()
    for gap in range(7, 15):  # a process that dies sooner never gets an answer, and ends at its limit of requests
        world = made()
        world.dies_at = gap
        while True:
            try:
                if world.events:
                    world.resume()
                else:
                    world.start()
                world.drive()
                break
            except Died:
                world.dies_at = world.moments + gap
        state = fold(world.events)
        assert state.finished is not None
        assert results(world) == results(whole)
        ran = effects(world, "pay", "step")
        assert len(ran) == len(set(ran))


@given(
    turns=hs.lists(hs.lists(hs.sampled_from(sorted(TOOLS)), min_size=1, max_size=4), min_size=1, max_size=4),
    moment=hs.integers(0, 120),
)
@settings(max_examples=100)
def test_any_conversation_killed_anywhere(turns: list[list[str]], moment: int) -> None:
    replies: list[Message] = [
        reply(number, *((tool, f"{number}{place}") for place, tool in enumerate(turn))) for number, turn in enumerate(turns)
    ]
    replies.append(reply(len(turns), text="the end"))

    def make() -> World:
        return World(replies, TOOLS)

    whole, world = make(), killed_at(moment, make)
    whole.start()
    whole.drive()
    assert results(world) == results(whole)
    ran = effects(world, "pay", "step")
    assert len(ran) == len(set(ran))
    assert all(world.effects.count(effect) <= 2 for effect in world.effects)


def without_started_check(make: Callable[[], World]) -> list[str]:
    """The twin: a world that forgets what was started, as a loop without that check would."""
    double: list[str] = []
    for moment in moments(make):
        world = make()
        world.dies_at = moment
        try:
            world.start()
            world.drive()
        except Died:
            world.dies_at = -1
            world.events = [event for event in world.events if not isinstance(event, ev.CallStarted)]
            world.resume()
            world.drive()
        ran = effects(world, "pay", "step")
        double += [call for call in ran if ran.count(call) > 1]
    return double


def test_without_the_started_check_a_write_starts_twice() -> None:
    assert without_started_check(made) != []
