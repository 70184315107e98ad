"""Repair, case by case: what comes in, what goes out, and what is said about it. The laws are in tests/laws."""

from typing import Literal

import pytest

from evener.transcript import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Remote,
    Repair,
    RepairRules,
    Role,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    Usage,
    repair,
)
from evener.transcript.repair import NO_RESULT

Said = tuple[Role, tuple[Block, ...]]
SEAL = Seal('{"signature":"x"}', Origin("gemini"))
IMAGE, FILE = ImageBlock(Remote("https://example.org/x")), DocumentBlock(Inline("aGk="), "text/plain")
WHY, WHY_TOO = ReasoningBlock("because", SEAL), ReasoningBlock("and also")
BLANK = TextBlock("", seal=SEAL)


def user(*blocks: Block | str) -> Said:
    return "user", tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks)


def said(*blocks: Block | str) -> Said:
    return "assistant", user(*blocks)[1]


def system(*blocks: Block | str) -> Said:
    return "system", user(*blocks)[1]


def call(id: str) -> ToolCall:
    return ToolCall(id, "f")


def result(id: str, text: str = "ok") -> ToolResult:
    return ToolResult(id, (TextBlock(text),))


def none(id: str) -> ToolResult:
    return ToolResult(id, (TextBlock(NO_RESULT),), True)


def hosted(role: Literal["", "user", "assistant"] = "", opens: str = "", closes: str = "", id: str = "") -> HostedBlock:
    return HostedBlock("{}", "w", f"{opens}{closes}", role, opens, closes, id)


def messages(history: list[Said]) -> list[Message]:
    return [Message(role, blocks, id=f"m{number}", created_at=None) for number, (role, blocks) in enumerate(history)]


def shown(history: list[Said], rules: RepairRules | None = None) -> tuple[list[Said], list[str]]:
    legal, losses = repair(messages(history), rules)
    return [(message.role, message.blocks) for message in legal], [f"{loss.kind} {loss.what} {loss.message}" for loss in losses]


# What repair leaves alone.
LEGAL: dict[str, list[Said]] = {
    "nothing": [],
    "one word": [user("hi")],
    "a reply": [user("hi"), said("ho")],
    "the assistant begins": [said("ho"), user("hi")],
    "every kind of block": [
        user("hi", IMAGE, FILE, hosted("user")), said(WHY, "so", IMAGE, FILE, hosted(), call("1")), user(result("1"))],
    "parallel calls": [said(call("1"), call("2")), user(result("1"), result("2"), "and?")],
    "calls and results, again": [said(call("1")), user(result("1")), said(call("2")), user(result("2")), said("done")],
    "reasoning between calls": [said(WHY, call("1"), WHY_TOO, call("2")), user(result("1"), result("2"))],
    "an instruction after results": [said(call("1")), user(result("1")), system("be brief"), system("and kind"), said("ok")],
    "an instruction between users": [user("hi"), system("be brief"), user("ho")],
    "an instruction first": [system("be brief"), user("hi")],
    "an empty result": [said(call("1")), user(ToolResult("1"))],
    "arguments that do not parse": [said(ToolCall("1", "f", '{"a":')), user(result("1"))],
    "a hosted pair": [said(hosted(opens="x", id="x"), hosted("assistant", closes="x"), "found")],
    "a sealed blank beside words": [said(BLANK, "so")],
    "parts of one sealed text": [said(TextBlock("a", seal=Seal("{}", id="t")), TextBlock("b", seal=Seal("{}", id="t")))],
}  # fmt: skip


@pytest.mark.parametrize("history", LEGAL.values(), ids=LEGAL)
@pytest.mark.parametrize("rules", [RepairRules(), RepairRules(True, False, False, True)], ids=["strict", "lenient"])
def test_a_legal_history_is_left_alone(history: list[Said], rules: RepairRules) -> None:
    before = messages(history)
    after, losses = repair(before, rules)
    assert losses == ()
    assert all(one is other for one, other in zip(before, after, strict=True))


# name: what comes in, what goes out, what is said about it (kind, thing, message)
MENDED: dict[str, tuple[list[Said], list[Said], list[str]]] = {
    # Calls and results: C12, S3.14-S3.16
    "a call without a result": ([said(call("1"))], [said(call("1")), user(none("1"))], ["added tool_result m0"]),
    "a call without a result, then words": (
        [said(call("1")), user("never mind")], [said(call("1")), user(none("1"), "never mind")], ["added tool_result m0"]),
    "one of two results": (
        [said(call("1"), call("2")), user(result("2"))], [said(call("1"), call("2")), user(none("1"), result("2"))],
        ["added tool_result m0"]),
    "a call, and the assistant goes on": (
        [said(call("1")), said("so")], [said(call("1"), "so"), user(none("1"))],
        ["repaired message m1", "added tool_result m0"]),
    "a result without a call": ([user(result("1"), "hi")], [user("hi")], ["repaired tool_result m0"]),
    "only a result without a call": ([user(result("1"))], [], ["repaired tool_result m0"]),
    "a result before its call": (
        [user(result("1")), said(call("1")), user("?")], [said(call("1")), user(none("1"), "?")],
        ["repaired tool_result m0", "added tool_result m1"]),
    "a result too late": (
        [said(call("1")), user("?"), said("hm"), user(result("1"))], [said(call("1")), user(none("1"), "?"), said("hm")],
        ["added tool_result m0", "repaired tool_result m3"]),
    "a foreign result between two of the assistant": (
        [said("a"), user(result("9")), said("b")], [said("a", "b")], ["repaired tool_result m1", "repaired message m2"]),
    "a second result": (
        [said(call("1")), user(result("1", "a"), result("1", "b"))], [said(call("1")), user(result("1", "a"))],
        ["repaired tool_result m1"]),
    "results in separate messages": (
        [said(call("1"), call("2")), user(result("1")), user(result("2"))],
        [said(call("1"), call("2")), user(result("1"), result("2"))], []),
    "results in another order": (
        [said(call("1"), call("2")), user(result("2"), result("1"))],
        [said(call("1"), call("2")), user(result("1"), result("2"))], ["repaired tool_result m0"]),
    "words before results": (
        [said(call("1")), user("wait", result("1"))], [said(call("1")), user(result("1"), "wait")],
        ["repaired tool_result m0"]),
    "an instruction before results": (
        [said(call("1")), system("be brief"), user(result("1"), "hi")],
        [said(call("1")), user(result("1")), system("be brief"), user("hi")], ["repaired tool_result m0"]),
    "words in a message before results": (
        [said(call("1")), user("wait"), user(result("1"), "hi")], [said(call("1")), user(result("1"), "wait", "hi")],
        ["repaired tool_result m0", "repaired message m2"]),
    # Ids
    "one id for two calls": (
        [said(call("1"), call("1")), user(result("1", "a"), result("1", "b"))],
        [said(call("1"), call("1_2")), user(result("1", "a"), result("1_2", "b"))], ["renamed tool_call id m0"]),
    "an id used in an earlier turn": (
        [said(call("1")), user(result("1")), said(call("1")), user(result("1", "b"))],
        [said(call("1")), user(result("1")), said(call("1_2")), user(result("1_2", "b"))], ["renamed tool_call id m2"]),
    "an id that looks like a renamed one": (
        [said(call("1"), call("1"), call("1_2"))],
        [said(call("1"), call("1_2"), call("1_2_2")), user(none("1"), none("1_2"), none("1_2_2"))],
        ["renamed tool_call id m0", "renamed tool_call id m0", *["added tool_result m0"] * 3]),
    "no id": (
        [said(call("")), user(result(""))], [said(call("call_6bea062865bb2b16")), user(result("call_6bea062865bb2b16"))],
        ["renamed tool_call id m0"]),
    # Alternation: S3.11-S3.13, S3.15
    "users in a row": ([user("a"), user("b", IMAGE)], [user("a", "b", IMAGE)], ["repaired message m1"]),
    "assistants in a row": (
        [said("a"), said(call("1")), user(result("1"))], [said("a", call("1")), user(result("1"))], ["repaired message m1"]),
    "reasoning, then its reply": ([said(WHY), said("so")], [said(WHY, "so")], ["repaired message m1"]),
    "the same reasoning twice": (
        [said(WHY_TOO, "a"), said(WHY_TOO, "b")], [said(WHY_TOO, "a", "b")], ["repaired message m1", "repaired reasoning m1"]),
    # Emptiness
    "an empty text": ([user("", "hi", " \n")], [user("hi")], ["repaired text m0", "repaired text m0"]),
    "an empty message": ([user(), said("a")], [said("a")], ["repaired message m0"]),
    "an empty message in between": ([said("a"), user(""), said("b")], [said("a", "b")],
        ["repaired text m1", "repaired message m1", "repaired message m2"]),
    "a sealed blank alone": ([said(BLANK), user("?")], [user("?")], ["repaired message m0"]),
    "a sealed blank of the user": ([user(BLANK, "?")], [user("?")], ["repaired text m0"]),
    # Reasoning with nothing after it: S3.17, C14
    "reasoning only": ([said(WHY), user("?")], [user("?")], ["repaired reasoning m0"]),
    "reasoning at the end": ([user("?"), said(WHY)], [user("?")], ["repaired reasoning m1"]),
    "reasoning after words": ([said("a", WHY, WHY_TOO)], [said("a")], ["repaired reasoning m0", "repaired reasoning m0"]),
    "reasoning after a call": (
        [said(call("1"), WHY), user(result("1"))], [said(call("1")), user(result("1"))], ["repaired reasoning m0"]),
    "reasoning before a sealed blank": ([said("a", WHY, BLANK)], [said("a", BLANK)], ["repaired reasoning m0"]),
    "reasoning and a sealed blank only": (
        [said(WHY, BLANK), user("?")], [user("?")], ["repaired reasoning m0", "repaired text m0"]),
    # Roles
    "a call by the user": ([user("a", call("1"))], [user("a")], ["repaired tool_call m0"]),
    "a result by the assistant": ([said("a", result("1"))], [said("a")], ["repaired tool_result m0"]),
    "reasoning by the user": ([user("a", WHY)], [user("a")], ["repaired reasoning m0"]),
    "a picture in an instruction": ([system("a", IMAGE)], [system("a")], ["repaired image m0"]),
    "a result in an instruction": (
        [said(call("1")), system(result("1"))], [said(call("1")), user(none("1"))],
        ["repaired tool_result m1", "repaired message m1", "added tool_result m0"]),
    "a user's hosted block elsewhere": (
        [said(hosted("user", id="x"))], [said("[provider data omitted]")], ["repaired hosted block m0"]),
    # Hosted pairs
    "a hosted beginning": ([said(hosted(opens="x"), "a")], [said("[x]", "a")], ["repaired hosted block m0"]),
    "a hosted end": ([said(hosted(closes="x"))], [said("[x]")], ["repaired hosted block m0"]),
    "a hosted end before its beginning": (
        [said(hosted(closes="x"), hosted(opens="x"))], [said("[x]", "[x]")], ["repaired hosted block m0"] * 2),
    "a hosted end twice": (
        [said(hosted(opens="x"), hosted(closes="x"), hosted(closes="x"))], [said(hosted(opens="x"), hosted(closes="x"), "[x]")],
        ["repaired hosted block m0"]),
    "a hosted beginning twice": (
        [said(hosted(opens="x"), hosted(opens="x"), hosted(closes="x"))], [said(hosted(opens="x"), "[x]", hosted(closes="x"))],
        ["repaired hosted block m0"]),
    # Sealed things that have a name
    "named reasoning twice": (
        [said(ReasoningBlock("a", Seal("{}", id="r")), "x"), user("?"), said(ReasoningBlock("a", Seal("{}", id="r")), "y")],
        [said(ReasoningBlock("a", Seal("{}", id="r")), "x"), user("?"), said("y")], ["repaired reasoning m2"]),
    "a named text twice": (
        [said(TextBlock("a", seal=Seal("{}", id="t"))), user("?"), said(TextBlock("a", seal=Seal("{}", id="t")))],
        [said(TextBlock("a", seal=Seal("{}", id="t"))), user("?"), said("a")], ["repaired text m2"]),
    "a named blank twice": (
        [said(TextBlock("", seal=Seal("{}", id="t")), "a"), user("?"), said(TextBlock("", seal=Seal("{}", id="t")), "b")],
        [said(TextBlock("", seal=Seal("{}", id="t")), "a"), user("?"), said("b")], ["repaired text m2", "repaired text m2"]),
    "a named hosted block twice": ([said(hosted(id="h"), hosted(id="h"))], [said(hosted(id="h"), "[provider data omitted]")],
        ["repaired hosted block m0"]),
}  # fmt: skip


@pytest.mark.parametrize(("history", "legal", "losses"), MENDED.values(), ids=MENDED)
def test_an_illegal_history_is_mended_and_reported(history: list[Said], legal: list[Said], losses: list[str]) -> None:
    """S3.11-S3.17."""
    assert shown(history) == (legal, losses)
    assert shown(legal) == (legal, [])


def test_the_synthetic_result_is_honest() -> None:  # C12
    made = repair(messages([said(call("1"))]))[0][-1].blocks[0]
    assert isinstance(made, ToolResult)
    assert made.is_error
    assert "not known whether it took effect" in made.text


def test_the_same_message_twice_is_dropped_the_second_time() -> None:
    hi, ho = messages([user("hi"), said("ho")])
    legal, losses = repair([hi, ho, hi])
    assert legal == (hi, ho)
    assert [str(loss) for loss in losses] == ["repaired message in message m0: the same message stands twice"]


def test_other_words_under_a_name_used_before_are_kept() -> None:
    one, two = (Message("user", (TextBlock(text),), id="m", created_at=None) for text in ("one", "two"))
    legal, losses = repair([one, two, two], RepairRules(merge=False))
    assert [(message.id, message.text) for message in legal] == [("m", "one"), ("m_2", "two")]
    assert [f"{loss.kind} {loss.what} {loss.message}" for loss in losses] == ["renamed message id m", "repaired message m"]


def test_messages_are_merged_under_the_first_name_and_counted_together() -> None:  # S3.13
    origin = Origin("gemini", "p")
    first = Message("assistant", (TextBlock("a"),), id="1", origin=origin, usage=Usage(1))
    second = Message("assistant", (TextBlock("b"),), id="2", origin=origin, usage=Usage(2))
    third = Message("assistant", (TextBlock("c"),), id="3", origin=Origin("openai_chat"))
    merged = repair([first, second])[0][0]
    assert (merged.id, merged.origin, merged.usage) == ("1", origin, Usage(3))
    mixed = repair([first, third])[0][0]
    assert (mixed.origin, mixed.usage) == (None, Usage(1))  # nobody made all of it: no reasoning in it passes for another's


def test_results_that_had_to_be_made_do_not_take_a_users_name() -> None:
    legal, _ = repair(messages([said(call("1")), user("hi")]))
    assert [message.id for message in legal] == ["m0", "m1"]
    legal, _ = repair(messages([said(call("1")), system("hi")]))
    assert [message.id for message in legal] == ["m0", "m0/results", "m1"]


def test_ids_may_repeat_from_turn_to_turn_where_the_rules_say_so() -> None:
    history = [said(call("1")), user(result("1")), said(call("1"), call("1")), user(result("1"), result("1"))]
    legal, losses = shown(history, RepairRules(unique_ids=False))
    assert legal[2] == said(call("1"), call("1_2"))
    assert losses == ["renamed tool_call id m2"]


def test_users_stay_apart_where_the_rules_say_so() -> None:
    rules = RepairRules(merge=False)
    assert shown([user("a"), user("b")], rules) == ([user("a"), user("b")], [])
    history = [said(call("1")), user("a"), user(result("1"), "b")]
    assert shown(history, rules) == (
        [said(call("1")), user(result("1")), user("a"), user("b")],
        ["repaired tool_result m0"],
    )


@pytest.mark.parametrize(
    ("history", "legal", "losses"),
    [
        ([user(result("1"), "hi")], [user(result("1"), "hi")], []),
        ([user(result("1")), user(result("1"))], [user(result("1"))], ["repaired tool_result m1"]),
        ([user(result(""), "hi")], [user("hi")], ["repaired tool_result m0"]),
        ([user(result("1")), said("a"), user(result("2"))], [user(result("1")), said("a")], ["repaired tool_result m2"]),
        ([said("a"), user(result("1"))], [said("a")], ["repaired tool_result m1"]),
    ],
)
def test_results_may_lack_calls_that_the_provider_holds(
    history: list[Said], legal: list[Said], losses: list[str]
) -> None:  # C1
    assert shown(history, RepairRules(past_elsewhere=True)) == (legal, losses)


BEGUN, ENDED = hosted("assistant", opens="x"), hosted("assistant", closes="x")


@pytest.mark.parametrize(
    ("history", "waits"),
    [
        ([said(BEGUN, call("1")), user(result("1")), said(ENDED, "done")], True),
        ([said(BEGUN, call("1")), user(result("1"), "hurry"), said(ENDED, "done")], False),
        ([said(BEGUN, call("1")), user(result("1")), said("done")], False),
        ([said(BEGUN, call("1")), user(result("1"))], True),
        ([said("a", BEGUN)], True),
        ([said(BEGUN, "a")], False),
        ([said(BEGUN, hosted("assistant", closes="y"))], False),
        ([said(BEGUN, call("1")), user(result("1"), hosted("user", closes="y")), said(ENDED)], False),
    ],
    ids=[
        "for its end, past results",
        "not past words",
        "not for what does not come",
        "for the next request",
        "for a paused turn",
        "not when the turn is over",
        "not when the pause is a line",
        "not past a line",
    ],
)
def test_a_hosted_tool_may_still_run_where_the_rules_say_so(history: list[Said], waits: bool) -> None:
    rules = RepairRules(in_flight=True)
    legal, losses = shown(history, rules)
    assert (BEGUN in legal[0][1]) is waits
    assert shown(legal, rules) == (legal, [])
    assert waits is (losses == [])


def test_an_exchange_is_settled_when_the_assistant_speaks_again() -> None:
    first, *rest = messages([user("hi"), said(call("1")), user(result("1")), user("and?"), said("so")])
    state, settled = Repair().feed([first])
    assert settled == []
    for message, count in zip(rest, [1, 0, 0, 1], strict=True):
        state, settled = state.feed([message])
        assert len(settled) == count
    assert settled[0].assistant == rest[0]
    assert [loss.message for loss in settled[0].losses] == ["m3"]
    last = state.finish()
    assert last is not None
    assert (last.assistant, last.back, last.losses) == (rest[-1], (), ())


def test_a_loss_is_told_with_the_exchange_that_it_happened_in() -> None:
    state, settled = Repair().feed(messages([user("hi"), said("ho", "")]))
    assert settled[0].losses == ()
    last = state.finish()
    assert last is not None
    assert [loss.message for loss in last.losses] == ["m1"]


def test_looking_at_the_open_exchange_changes_nothing() -> None:
    state, _ = Repair().feed(messages([said(call("1")), said(WHY)]))
    assert state.finish() == state.finish()
    assert Repair().finish() is None


def test_a_long_turn_of_many_calls_is_quick() -> None:
    ids = [str(number) for number in range(5_000)]
    history = messages([said(*map(call, ids)), *(user(result(id)) for id in reversed(ids))])
    legal, _ = repair(history)
    assert [block.call_id for block in legal[1].blocks if isinstance(block, ToolResult)] == ids
