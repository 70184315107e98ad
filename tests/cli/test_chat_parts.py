"""The parts of the chat that need no terminal: the screen, the tally, commands, questions about approvals."""

import asyncio
from collections.abc import Mapping
from decimal import Decimal

import pytest
from msgspec.structs import replace

from evener.cli.approvals import ask_decisions
from evener.cli.chat.commands import COMMANDS, command_of, waits
from evener.cli.chat.overheard import Overheard
from evener.cli.chat.question import PAUSE, UserQuestion
from evener.cli.chat.screen import ScreenLine
from evener.cli.chat.session import Tally, format_losses, format_short
from evener.errors import UsageError
from evener.events import Interrupt
from evener.harness.approvals import Decision
from evener.loop.state import Spent
from evener.result import Approval
from evener.transcript.blocks import ToolCall
from evener.transcript.loss import Loss
from evener.transcript.reply import Usage
from tests.cli.stage import Stage
from tests.patience import run_on_virtual_time


def lines(*texts: str) -> list[ScreenLine]:
    return [ScreenLine(text) for text in texts]


def test_lines_scroll_away_above_rows_that_stay() -> None:
    with Stage() as stage:
        for number in range(10):
            stage.say(ScreenLine(f"line {number}"))
            assert stage.terminal.text.endswith(f"line {number}\n>\nstatus")
        assert stage.terminal.whole.splitlines() == [*(f"line {number}" for number in range(10)), ">", "status"]


def test_what_was_said_since_the_mark_is_taken_off_while_it_is_in_sight() -> None:
    with Stage() as stage:
        stage.say(ScreenLine("kept"))
        stage.screen.mark()
        stage.say(*lines("gone", "a line that is wider than the screen"))
        stage.screen.say(ScreenLine("never drawn"))
        assert stage.screen.take_back()
        stage.say(ScreenLine("instead"))
        assert stage.terminal.text == "kept\ninstead\n>\nstatus"
        stage.screen.mark()
        stage.say(*lines(*"abcdef"))
        assert not stage.screen.take_back()
        stage.say(ScreenLine("x"))
        assert stage.terminal.whole == "kept\ninstead\na\nb\nc\nd\ne\nf\nx\n>\nstatus"


def test_a_redraw_fills_a_screen_of_any_size() -> None:
    with Stage(40, 10) as stage:
        stage.say(*lines("one two three four five six seven", "end"))
        stage.resize(12, 5)
        stage.draw()
        assert stage.terminal.lines == ["five six", "seven", "end", ">", "status"]
        stage.resize(40, 10)
        stage.draw()
        assert stage.terminal.text == "one two three four five six seven\nend\n>\nstatus"


def test_what_no_longer_fits_after_a_resize_scrolls_away_and_is_not_lost() -> None:
    words = [f"word{number}" for number in range(40)]
    with Stage(60, 10) as stage:
        stage.say(*lines("begin", " ".join(words[:20])))
        stage.screen.say(*lines(" ".join(words[20:])))
        stage.resize(20, 6)  # what is in sight does not fit, nor what is new
        stage.draw()
        assert "".join(stage.terminal.whole.split()).endswith("begin" + "".join(words) + ">status")
        stage.resize(20, 4)  # the terminal has scrolled the rest away itself
        stage.draw()
        assert stage.terminal.whole.count("word39") == 1


def test_the_status_has_tokens_cache_cost_and_context() -> None:
    tally = Tally()
    assert tally.status("m") == "m"
    tally.window = 200_000
    tally.turn(Usage(1000, 600, 400, 0, 50, 0))
    tally.run("a", Spent(1, 0, Usage(1000, 600, 400, 0, 50, 0), Decimal("0.0123"), True))
    assert tally.status("m") == "m \u00b7 1.1k tokens \u00b7 40% cached \u00b7 $0.0123 \u00b7 context 1%"
    tally.run("a", Spent(2, 1, Usage(3000, 600, 2400, 0, 50, 0), Decimal("0.02"), False))
    assert tally.spent.requests == 2
    assert tally.status("m").split(" \u00b7 ")[1:4] == ["3k tokens", "80% cached", ">=$0.0200"]
    assert any("a lower bound" in line for line in tally.lines())
    assert [format_short(count) for count in (950, 1234, 34_000, 250_000, 1_000_000)] == ["950", "1.2k", "34k", "250k", "1M"]


def test_a_slash_is_a_command_only_where_it_looks_like_one() -> None:
    assert command_of("/model  gpt ") == ("/model", "gpt")
    assert command_of("/HELP") == ("/help", "")
    assert command_of("/etc/hosts is what?") is None
    assert command_of("and /model") is None
    assert [name for name in COMMANDS if waits(name)] == [
        "/model",
        "/models",
        "/new",
        "/resume",
        "/mcp",
        "/context",
        "/compact",
        "/undo",
        "/restore",
        "!",
        "/fork",
        "/export",
        "/continue",
    ]
    assert not waits("/nothing")


def test_losses_are_counted() -> None:
    losses = [Loss("dropped", "reasoning", "why", "m1"), Loss("dropped", "reasoning", "why", "m2"), Loss("renamed", "x", "y")]
    assert format_losses(losses) == ["dropped reasoning (2 times): why", "renamed x: y"]


# Approvals.


class Thread:
    """Takes decisions, after refusing some."""

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)
        self.decided: Mapping[str, Decision] = {}

    async def decide(self, decisions: Mapping[str, Decision]) -> None:
        if self.refusals:
            raise UsageError(self.refusals.pop(0))
        self.decided = decisions


class Person:
    """Answers from a script."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.told: list[str] = []

    def tell(self, *lines: str, important: bool = False) -> None:  # noqa: ARG002
        self.told += lines

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        self.told.append(f"{question} {'  '.join(choices.values())}")
        assert self.answers[0] in choices
        assert otherwise in choices
        return self.answers.pop(0)

    async def line(self, question: str, text: str) -> str:
        self.told.append(question + text)
        return self.answers.pop(0)


def waiting(key: str, call: ToolCall | None, why: str = "", interrupt: Interrupt | None = None) -> Approval:
    return Approval("a", key, "t", interrupt or ("tool" if call else "limit"), "d", call, why)


PAY = waiting("c1", ToolCall("c1", "pay", '{"amount": 5, "to": "\\u001b[2Jx"}'), "it writes")
LOST = waiting("outcome:c1", ToolCall("c1", "pay", '{"amount": 5}'), interrupt="outcome")


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        (("yes",), Decision("allow", digest="d")),
        (("no", "too much"), Decision("reject", "too much", digest="d")),
        (("edit", '{"amount": 1}'), Decision("allow", arguments={"amount": 1}, digest="d")),
        (("edit", "[1", '{"amount": 2}'), Decision("allow", arguments={"amount": 2}, digest="d")),
        (("edit", "", "yes"), Decision("allow", digest="d")),
    ],
)
def test_an_approval_is_asked_for_and_decided(answers: tuple[str, ...], made: Decision) -> None:
    person, thread = Person(*answers), Thread()
    asyncio.run(ask_decisions(thread, [PAY], asker=person, always=set(), by="ann"))
    assert thread.decided == {"c1": replace(made, by="ann")}
    assert person.answers == []
    assert person.told[0] == "pay needs approval (it writes):"
    assert "\x1b" not in "".join(person.told)


def test_always_asks_once_and_a_refused_edit_is_asked_for_again() -> None:
    always: set[str] = set()
    person, thread = Person("always"), Thread()
    asyncio.run(ask_decisions(thread, [PAY, waiting("c2", ToolCall("c2", "pay", "{}"))], asker=person, always=always))
    assert (set(thread.decided), always) == ({"c1", "c2"}, {"pay"})
    assert "Run it? [y]es  [n]o  [e]dit  [a]lways run pay" in person.told
    assert "pay runs without a question from now on, whatever its arguments." in person.told
    person, thread = Person("edit", '{"amount": "x"}', "yes", "no", ""), Thread("amount must be a number")
    asyncio.run(ask_decisions(thread, [PAY, waiting("limit", None, "a limit")], asker=person, always=set()))
    assert "Refused: amount must be a number" in person.told
    with pytest.raises(UsageError):
        asyncio.run(ask_decisions(Thread("no"), [PAY], asker=Person("yes"), always=set()))


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        (("yes", "paid 5"), Decision("reject", digest="d", result="paid 5")),
        (("yes", ""), Decision("reject", digest="d", result="")),
        (("unknown",), Decision("reject", digest="d")),
        (("run",), Decision("allow", digest="d")),
    ],
)
def test_what_became_of_an_interrupted_call_is_asked_even_of_a_tool_that_always_runs(
    answers: tuple[str, ...], made: Decision
) -> None:
    person, thread = Person(*answers), Thread()
    asyncio.run(ask_decisions(thread, [LOST], asker=person, always={"pay"}))
    assert thread.decided == {"outcome:c1": made}
    assert person.told[0] == "pay was interrupted, and it is not known whether it took effect:"
    assert "Did it take effect? [y]es  [u]nknown  [r]un it again" in person.told
    assert "[e]dit" not in "".join(person.told)


def test_an_edited_call_is_shown_as_it_will_run() -> None:
    person, thread = Person("edit", '{"amount": 1}'), Thread()
    asyncio.run(ask_decisions(thread, [PAY], asker=person, always=set()))
    assert person.told[-5:] == ["With these arguments instead:", "  | {", '  |   "amount": 1', "  | }", "Allowed: pay"]


def test_an_answer_that_nobody_has_seen_is_shown_before_it_is_accepted() -> None:
    person, thread = Person("yes"), Thread()
    asyncio.run(
        ask_decisions(thread, [waiting("output:1", None, interrupt="output")], asker=person, always=set(), answers={"t": "42."})
    )
    assert person.told == ["The final answer needs approval:", "  | 42.", "Accept it? [y]es  [n]o"]


# Questions.


def test_a_key_counts_only_after_a_pause_that_begins_anew_with_each_key() -> None:
    async def go() -> None:
        question = UserQuestion("Run it?", {"yes": "[y]es", "no": "[n]o"}, otherwise="no")
        assert question.shown(writing=False) == "Run it? ... "
        await asyncio.sleep(PAUSE * 0.6)
        question.wait()
        await asyncio.sleep(PAUSE * 0.9)
        assert not question.is_ready
        await asyncio.sleep(PAUSE * 0.2)
        assert question.is_ready
        assert question.shown(writing=False) == "Run it? [y]es  [n]o "
        assert question.shown(writing=True) == "Run it? (Ctrl-U, then answer) "
        assert not question.choose("x"), "it begins a message"
        assert not question.choose("yes"), "so does this"
        assert question.choose("yn")
        assert not question.is_ready, "several answers at once are none"
        await asyncio.sleep(PAUSE)
        assert question.choose("Y")
        assert question.answer.result() == "yes"
        assert UserQuestion("Why not? ").is_ready
        assert not UserQuestion("Why not? ").choose("y")

    run_on_virtual_time(go())


# What tools print.


def test_what_is_printed_is_plain_lines_and_counted_where_it_is_too_much() -> None:
    overheard = Overheard()
    overheard._hear(b"\x1b[2Jone\n\n10%\r20%\r\ntw")
    assert overheard.take() == ["one", "20%"]
    overheard._hear(b"o\x07")
    assert overheard.take() == []
    assert overheard.close() == ["two"]
    overheard._hear(b"".join(b"line %d\n" % number for number in range(1000)) + b"x" * 10_000 + b"\n")
    lines = overheard.close()
    assert (lines[0], lines[-1], len(lines)) == ("line 0", "and 971 more lines, not shown", 31)
    overheard._hear(b"y" * 1_000_000 + b"\n")
    [line] = overheard.close()
    assert len(line) == 500
