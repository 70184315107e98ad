"""Where somebody is asked what became of an interrupted `write`: each takes effect exactly once, killed anywhere.

And forks: the state on a new branch is the state there was, but for what was under way.
"""

import pytest
from msgspec.structs import replace

from evener import events as ev
from evener.loop.plan import ApprovalGate, AskApproval, Judgement, RefuseCall, RunTool, SettleCall, Setup, plan
from evener.loop.state import RunState, apply, fold, outcome_key
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Stop
from tests.loop.test_killed import REPLIES, TOOLS, effects, made, results, said
from tests.loop.world import Died, World, killed_at, moments

ASKING = Setup(models=("one", "two"), tools=TOOLS, gate=ApprovalGate(interrupts=frozenset({"outcome"})))


def asking() -> World:
    return World(REPLIES, TOOLS, setup=ASKING)


def whole() -> World:
    world = asking()
    world.start()
    world.drive()
    return world


@pytest.mark.parametrize("moment", moments(asking))
def test_killed_anywhere_each_write_takes_effect_exactly_once(moment: int) -> None:
    """S4.26: what nobody knows is asked, once for each start; nobody who can look is told that it is unknown."""
    world = killed_at(moment, asking)
    ran = effects(world, "pay", "step")
    assert sorted(ran) == sorted(effects(whole(), "pay", "step"))
    assert len(world.asked) == len(set(world.asked)) <= 1
    assert said(world) == said(whole())
    assert not any(isinstance(event, ev.CallFinished) and event.outcome == "unknown" for event in world.events)


def test_killed_again_and_again_each_write_takes_effect_exactly_once() -> None:
    """A start that is interrupted is asked about; the decision about an earlier one does not count for it."""
    for gap in range(13, 21):  # a process that dies sooner does not get from the question to the effect
        world = asking()
        world.dies_at = gap
        for _ in range(100):
            try:
                world.resume() if world.events else world.start()
                world.drive()
                break
            except Died:
                world.dies_at = world.moments + gap
        assert fold(world.events).finished is not None
        ran = effects(world, "pay", "step")
        assert len(ran) == len(set(ran)), f"gap {gap}"
        assert results(world) == results(whole())


def test_without_the_question_a_killed_write_may_never_happen() -> None:
    """The twin: told only, the model does not know, and what had not taken effect never does."""
    never = [
        moment
        for moment in moments(made)
        if sorted(effects(killed_at(moment, made), "pay", "step")) != sorted(effects(whole(), "pay", "step"))
    ]
    assert never


# One interrupted call, step by step.

CALL = ToolCall("c", "pay", '{"x":1}')
REPLY = Message("assistant", (CALL,), id="r")


def interrupted(*more: ev.Event, edited: str = "") -> RunState:
    decided = ev.ApprovalDecided(at=3.0, id="a", key="c", verdict="allow", arguments=edited)
    return fold(
        (
            ev.Opened(at=1.0, thread="t"),
            ev.Prompted(at=1.0, run="run", message=Message.user_text("go")),
            ev.ModelCalled(at=2.0, model="one"),
            ev.Replied(at=2.0, message=REPLY, stop=Stop("tools")),
            ev.ApprovalAsked(at=3.0, id="a", interrupt="tool", questions=(ev.Question("c", "d"),)),
            decided,
            ev.CallStarted(at=4.0, call="c", tool="pay", key="k"),
            ev.Resumed(at=9.0, epoch=1),
            *more,
        )
    )


def asked(expires: float = 0.0, digest: str = "") -> ev.ApprovalAsked:
    question = ev.Question(outcome_key("c"), digest)
    return ev.ApprovalAsked(at=10.0, id="b", interrupt="outcome", questions=(question,), expires=expires)


def decided(verdict: ev.Verdict, result: str | None = None, why: str = "") -> ev.ApprovalDecided:
    return ev.ApprovalDecided(at=11.0, id="b", key=outcome_key("c"), verdict=verdict, result=result, why=why)


def test_an_interrupted_write_is_asked_about_once_and_waited_for() -> None:
    [step] = plan(interrupted(), ASKING)
    assert isinstance(step, AskApproval)
    assert (step.interrupt, [question.key for question in step.questions]) == ("outcome", ["outcome:c"])
    waiting = interrupted(asked())
    assert plan(waiting, ASKING) == ()
    assert waiting.phase == "waiting"


def test_each_decision_has_its_step() -> None:
    assert plan(interrupted(asked(), decided("allow")), ASKING) == (RunTool(CALL, again=True),)
    assert plan(interrupted(asked(), decided("reject", "paid 5")), ASKING) == (SettleCall(CALL, "paid 5"),)
    assert plan(interrupted(asked(), decided("reject", "")), ASKING) == (SettleCall(CALL, ""),)
    assert plan(interrupted(asked(), decided("reject", why="ask the bank")), ASKING) == (
        SettleCall(CALL, None, "ask the bank"),
    )
    told = replace(ASKING, gate=ApprovalGate())
    assert plan(interrupted(), told) == (SettleCall(CALL),)


def test_a_new_start_forgets_the_decision_about_the_one_before() -> None:
    again = (asked(), decided("allow"), ev.CallStarted(at=12.0, call="c", tool="pay", key="k"))
    assert plan(interrupted(*again), ASKING) == ()
    [step] = plan(interrupted(*again, ev.Resumed(at=13.0, epoch=2)), ASKING)
    assert isinstance(step, AskApproval)


def test_arguments_that_were_edited_stay_edited_however_it_is_started_again() -> None:
    """Once somebody has put others in place of the model's, those are what runs, after a crash, too."""
    edited = '{"x":2}'
    assert plan(interrupted(asked(), decided("allow"), edited=edited), ASKING) == (RunTool(CALL, again=True, arguments=edited),)
    for facts, verifying in (("book", False), ("post", True)):
        setup = replace(ASKING, tools={"pay": TOOLS[facts]})
        [step] = plan(interrupted(edited=edited), setup)
        assert step == RunTool(CALL, again=True, verifying=verifying, arguments=edited)


def test_the_question_is_asked_again_when_its_time_is_over_or_the_tool_has_changed() -> None:
    late = plan(interrupted(asked(expires=20.0)), ASKING, now=30.0)
    changed = Setup(
        models=("one",), tools=TOOLS,
        gate=ApprovalGate(judge=lambda call: Judgement(digest=f"new {call.name}"), interrupts=frozenset({"outcome"})),
    )  # fmt: skip
    for steps in (late, plan(interrupted(asked(digest="old pay")), changed)):
        assert isinstance(steps[0], AskApproval)


def test_a_rule_that_denies_the_call_now_is_heeded_before_it_runs_again() -> None:
    gate = ApprovalGate(judge=lambda _: Judgement("deny", "no-pay", "not any more"), interrupts=frozenset({"outcome"}))
    [step] = plan(interrupted(asked(), decided("allow")), replace(ASKING, gate=gate))
    assert isinstance(step, RefuseCall)


# Forks.


def test_on_a_fork_what_was_under_way_is_interrupted_and_all_else_is_as_it_was() -> None:
    world = whole()
    for number in range(1, len(world.events) + 1):
        before = fold(world.events[:number])
        opened = ev.Opened(at=99.0, thread="t", parent="t", parent_seq=number, parent_hash="h")
        after = apply(before, opened)
        assert after.asking == ""
        assert [one.status for one in after.calls] == [
            "interrupted" if one.status in ("started", "paused") else one.status for one in before.calls
        ]
        assert [one.source for one in after.calls] == ["t" if one.here else "" for one in before.calls]
        assert (after.transcript, after.run, after.config) == (before.transcript, before.run, before.config)
        assert (after.spent.requests, after.spent.usage) == (before.spent.requests, before.spent.usage)
        assert after.thread == before.thread


def test_a_fork_without_a_past_is_a_beginning() -> None:
    opened = ev.Opened(at=1.0, thread="t", harness="shop", parent="p", parent_seq=4, parent_hash="h")
    assert fold((opened,)) == RunState(thread="t", harness="shop", last=1.0)


def test_a_call_remembers_the_branch_on_which_it_was_started_last() -> None:
    state = interrupted()
    fork = ev.Opened(at=20.0, thread="t", parent="t", parent_seq=8, parent_hash="h")
    one = apply(state, fork)
    assert [(call.here, call.source) for call in one.calls] == [(False, "t")]
    again = apply(one, ev.CallStarted(at=21.0, call="c", tool="pay", key="k"))
    assert [(call.here, call.source) for call in again.calls] == [(True, "t")]
    unstarted = apply(one, replace(fork, parent="f1"))
    assert [call.source for call in unstarted.calls] == ["t"], "it was not started there"
    started = apply(again, replace(fork, parent="f1"))
    assert [call.source for call in started.calls] == ["f1"]
