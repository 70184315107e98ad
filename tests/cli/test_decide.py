"""Approvals on the command line: `run --approval`, `approve`, `reject`, the configured policy, and `run --schema`.

Real processes, a strict fake on loopback, and a terminal where one is asked for.
"""

import codecs
import json
import os
import pty
import re
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evener.testing.servers import Call, FakeServer, Text, turn
from tests.cli.run import Done, Home
from tests.cli.test_complete import SENTINEL, asked, point
from tests.patience import PATIENCE, moment

SHOP = '''
from evener import Harness, tool


@tool(effect="write", approval=True)
def pay(amount: int, note: str = "") -> str:
    """Pay."""
    open("paid", "a").write(f"{amount}\\n")
    return f"paid {amount}"


@tool(effect="write")
def send(to: str) -> str:
    """Send."""
    open("sent", "a").write(f"{to}\\n")
    return "sent"


both = [pay, send]
'''
HARNESS = """
import os
from decimal import Decimal

from shop import pay, send

from evener import Harness, Limits, tool


@tool(effect="write")
def wire(amount: int) -> str:
    \"\"\"Pay, and die.\"\"\"
    open("paid", "a").write(f"{amount}\\n")
    if not os.path.exists("again"):
        os.kill(os.getpid(), 9)
    return f"paid {amount}"


model = "anthropic:claude-opus-4-5"
agent = Harness(model, tools=[pay], name="clerk", store="runs.db")
gated = Harness(model, interrupts=["output"], name="gated", store="gated.db")
asking = Harness(model, tools=[wire], unknown_outcome="ask", name="asking", store="asking.db")
tight = Harness(model, tools=[send], limits=Limits(tool_calls=1, cost=Decimal(5)), name="tight", store="tight.db")
"""
PERSON = '{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]}'
OPTIONS = ("--tools", "shop:both", "--store", "runs.db")


@pytest.fixture
def shop(home: Home) -> Iterator[FakeServer]:
    (home.folder / "shop.py").write_text(SHOP, encoding="utf-8")
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        point(home, server, more='model = "anthropic:claude-opus-4-5"')
        yield server


def effects(home: Home, name: str = "paid") -> str:
    path = home.folder / name
    return path.read_text() if path.exists() else ""


def paused(home: Home, shop: FakeServer, *calls: Call, then: str = "Done.") -> tuple[Done, str]:
    """A run that stopped because nobody was there to ask, and its thread."""
    shop.add(turn(*(calls or (Call("pay", {"amount": 5}, id="c1"),))), then)
    done = home.run("run", *OPTIONS, "Pay 5")
    assert done.returncode == 1, done.stderr
    return done, done.stderr.decode().split()[-1]


# Where nobody can be asked.


def test_without_a_terminal_it_stops_and_says_what_to_run(home: Home, shop: FakeServer) -> None:
    done, thread = paused(home, shop)
    said = done.stderr.decode()
    assert "pay needs approval (the tool 'pay' asks before each call):\n  | {\n  |   \"amount\": 5\n  | }" in said
    [line] = re.findall(r"To allow it: evener (approve .*)", said)
    assert line == f"approve --tools shop:both --store runs.db {thread}"
    assert effects(home) == ""
    approved = home.run(*line.split())
    assert approved.returncode == 0, approved.stderr
    [line] = re.findall(r"esume with: evener (resume .*)", approved.stderr.decode())
    assert effects(home) == "", "deciding runs nothing"
    again = home.run(*line.split())
    assert (again.returncode, again.stdout, effects(home)) == (0, b"Done.\n", "5\n"), again.stderr


def test_deciding_needs_no_key_and_no_model(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop)
    home.configure("")
    del home.environ["ANTHROPIC_API_KEY"]
    done = home.run("approve", *OPTIONS, thread)
    assert done.returncode == 0, done.stderr


def test_show_prints_what_waits_and_decides_nothing(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop, Call("pay", {"amount": 5, "note": "\x1b[31mred\x1b[0m"}, id="c1"))
    shown = home.run("approve", "--store", "runs.db", "--show", thread)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.decode().startswith("c1 pay needs approval")
    assert b"\x1b" not in shown.stdout
    assert home.run("reject", "--store", "runs.db", "--show", thread).stdout == shown.stdout
    assert effects(home) == ""


def test_approve_can_resume_at_once(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop)
    done = home.run("approve", *OPTIONS, "--resume", thread)
    assert (done.returncode, done.stdout, effects(home)) == (0, b"Done.\n", "5\n"), done.stderr


def test_a_rejection_tells_the_model_why(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop)
    silent = home.run("reject", *OPTIONS, thread)
    assert (silent.returncode, b"--why" in silent.stderr) == (2, True)
    done = home.run("reject", *OPTIONS, "--why", "Ask Ann first.", "--resume", thread)
    assert (done.returncode, effects(home)) == (0, ""), done.stderr
    assert "ApprovalRejected: Ask Ann first." in json.dumps(asked(shop))


def test_edited_arguments_run_instead(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop)
    wrong = home.run("approve", *OPTIONS, "--edit", '{"amount": "much"}', thread)
    assert (wrong.returncode, b"do not fit" in wrong.stderr) == (2, True), wrong.stderr
    assert b"The edited arguments do not fit 'pay': amount: " in wrong.stderr
    assert b"call it again" not in wrong.stderr, "that is for models"
    for text, why in (("[3]", "this is another JSON value"), ("{amount: 3}", "this is not valid JSON (")):
        broken = home.run("approve", *OPTIONS, "--edit", text, thread)
        assert (broken.returncode, f"one JSON object, as in '{{\"amount\": 3}}', but {why}" in broken.stderr.decode()) == (
            2,
            True,
        )
    done = home.run("approve", *OPTIONS, "--edit", '{"amount": 3}', "--resume", thread)
    assert (done.returncode, effects(home)) == (0, "3\n"), done.stderr
    said = done.stderr.decode()
    assert "Allowed, with other arguments: c1\npay needs approval" in said
    assert 'with these arguments instead:\n  | {\n  |   "amount": 3\n  | }\n' in said


def test_only_some_are_allowed_and_the_others_rejected(home: Home, shop: FakeServer) -> None:
    calls = [Call("pay", {"amount": amount}, id=f"c{amount}") for amount in (1, 2, 3)]
    _, thread = paused(home, shop, *calls)
    unknown = home.run("approve", *OPTIONS, thread, "--only", "c9")
    assert (unknown.returncode, b"c1, c2, c3" in unknown.stderr) == (2, True)
    several = home.run("approve", *OPTIONS, thread, "--edit", "{}")
    assert (several.returncode, b"--only" in several.stderr) == (2, True)
    done = home.run("approve", *OPTIONS, "--resume", thread, "--only", "c1", "c3")
    assert (done.returncode, sorted(effects(home).split())) == (0, ["1", "3"]), done.stderr
    assert "Only other calls were approved." in json.dumps(asked(shop))


def test_what_is_stale_has_a_clear_line_and_exit_code_one(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop)
    text = (home.folder / "shop.py").read_text()
    (home.folder / "shop.py").write_text(text.replace("amount: int", "amount: int, currency: str = 'EUR'"))
    changed = home.run("approve", *OPTIONS, thread)
    assert (changed.returncode, b"The tool 'pay' has changed." in changed.stderr) == (1, True), changed.stderr
    (home.folder / "shop.py").write_text(text)
    bare = home.run("approve", "--store", "runs.db", thread)
    assert (bare.returncode, b"There is no tool 'pay' here" in bare.stderr) == (1, True), bare.stderr
    assert home.run("approve", *OPTIONS, thread).returncode == 0
    twice = home.run("reject", *OPTIONS, "--why", "no", thread)
    assert (twice.returncode, b"was decided already" in twice.stderr) == (1, True), twice.stderr
    hint = f"It takes effect when the run is resumed: evener resume --tools shop:both --store runs.db {thread}"
    assert hint in twice.stderr.decode()
    shown = home.run("approve", *OPTIONS, "--show", thread)
    assert (shown.returncode, shown.stdout, hint in shown.stderr.decode()) == (0, b"", True), "nothing waits any more"
    assert home.run("run", *OPTIONS, "--resume", thread).returncode == 0
    late = home.run("approve", *OPTIONS, thread)
    assert (late.returncode, b"Nothing waits" in late.stderr) == (1, True)
    assert home.run("approve", *OPTIONS, "nosuchthread").returncode == 2
    assert effects(home) == "5\n"


def test_a_harness_by_its_name_is_decided_about(home: Home, shop: FakeServer) -> None:
    (home.folder / "clerks.py").write_text(HARNESS, encoding="utf-8")
    (home.folder / "evener.toml").write_text('[harness]\nclerk = "clerks:agent"\n', encoding="utf-8")
    home.trust()
    shop.add(turn(Call("pay", {"amount": 5})), "Done.")
    stopped = home.run("run", "--harness", "clerk", "Pay 5")
    thread = stopped.stderr.decode().split()[-1]
    assert f"evener approve --harness clerk {thread}" in stopped.stderr.decode()
    done = home.run("approve", "--harness", "clerk", "--resume", thread)
    assert (done.returncode, done.stdout, effects(home)) == (0, b"Done.\n", "5\n"), done.stderr


def test_an_answer_that_waits_is_shown(home: Home, shop: FakeServer) -> None:
    (home.folder / "clerks.py").write_text(HARNESS, encoding="utf-8")
    shop.add("It is \u202e42.\nIndeed.", "It is 43.")
    stopped = home.run("run", "--harness", "clerks:gated", "What is it?")
    thread = stopped.stderr.decode().split()[-1]
    shown = home.run("approve", "--harness", "clerks:gated", "--show", thread).stdout.decode()
    assert "The final answer needs approval (the final answer):\n  | It is \\u202e42.\n  | Indeed.\n" in shown
    assert home.run("reject", "--harness", "clerks:gated", "--why", "Too short.", thread).returncode == 0
    again = home.run("resume", "--harness", "clerks:gated", "--json", thread)
    assert "  | It is 43." in again.stderr.decode(), "it was not printed in words"


@pytest.mark.parametrize("char", ["\u200b", "\u2060", "\u00ad", "\u3164", "\ufe0f", "\U000e0041", "\u00a0", "\x1b", "\x7f"])
def test_what_cannot_be_seen_is_written_out(char: str, home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop, Call("pay", {"amount": 5, "note": f"a{char}b \u00e4\u6f22"}, id="c1"))
    shown = home.run("approve", "--store", "runs.db", "--show", thread).stdout.decode()
    units = char.encode("utf-16-be")
    written = "".join(f"\\u{units[at] * 256 + units[at + 1]:04x}" for at in range(0, len(units), 2))
    assert f'"note": "a{written}b \u00e4\u6f22"' in shown


# Calls that were interrupted.


def interrupted(home: Home, shop: FakeServer) -> tuple[Done, str]:
    """A run whose process died in a payment, and which asks, resumed, what became of it."""
    (home.folder / "clerks.py").write_text(HARNESS, encoding="utf-8")
    shop.add(turn(Call("wire", {"amount": 5}, id="c1")), "I know.")
    assert home.run("run", "--harness", "clerks:asking", "Pay 5").returncode == -signal.SIGKILL
    [thread] = json.loads(home.run("threads", "--store", "asking.db", "--json").stdout)
    (home.folder / "again").touch()
    stopped = home.run("resume", "--harness", "clerks:asking", thread["thread"])
    assert stopped.returncode == 1, stopped.stderr
    return stopped, thread["thread"]


@pytest.mark.parametrize(
    ("words", "said", "paid", "told"),
    [
        (("reject", "--result", "paid 5, number 17"), "Recorded: it took effect", "5\n", "paid 5, number 17"),
        (("reject",), "the model is told that its outcome is unknown", "5\n", "it is not known whether it took effect"),
        (("approve",), "Allowed: it runs again", "5\n5\n", "paid 5"),
    ],
)
def test_what_became_of_an_interrupted_call_is_said_from_the_command_line(
    words: tuple[str, ...], said: str, paid: str, told: str, home: Home, shop: FakeServer
) -> None:
    stopped, thread = interrupted(home, shop)
    assert "wire was interrupted, and it is not known whether it took effect:\n  | {\n" in stopped.stderr.decode()
    assert f"evener reject --harness clerks:asking {thread} --result RESULT" in stopped.stderr.decode()
    done = home.run(*words, "--harness", "clerks:asking", "--resume", thread)
    assert (done.returncode, done.stdout, effects(home)) == (0, b"I know.\n", paid), done.stderr
    assert said in done.stderr.decode()
    assert told in json.dumps(asked(shop))


def test_a_result_belongs_to_a_call_that_was_interrupted(home: Home, shop: FakeServer) -> None:
    _, thread = paused(home, shop)
    wrong = home.run("reject", *OPTIONS, "--why", "no", "--result", "paid", thread)
    assert (wrong.returncode, b"Interrupted calls that wait: none" in wrong.stderr) == (2, True), wrong.stderr


@pytest.mark.parametrize("approval", ["auto", "deny"])
def test_nobody_guesses_what_became_of_an_interrupted_call(approval: str, home: Home, shop: FakeServer) -> None:
    _, thread = interrupted(home, shop)
    done = home.run("resume", "--harness", "clerks:asking", "--approval", approval, thread)
    assert (done.returncode, effects(home)) == (0, "5\n"), "it was not run again"
    assert "it is not known whether it took effect" in json.dumps(asked(shop))


def test_on_a_terminal_an_interrupted_call_is_asked_about(home: Home, shop: FakeServer) -> None:
    _, thread = interrupted(home, shop)
    with terminal(home, "resume", "--harness", "clerks:asking", thread) as seen:
        seen.until("Did it take effect? [y]es  [u]nknown  [r]un it again ")
        seen.type("n\n")
        seen.until("]un it again ")
        seen.type("y\n")
        seen.until("What was its result?")
        seen.type("paid 5\n")
        assert seen.end() == 0, seen.shown
    assert effects(home) == "5\n"
    assert "paid 5" in json.dumps(asked(shop))


# Limits.


def test_a_limit_on_the_command_line_leaves_the_others_of_the_harness(home: Home, shop: FakeServer) -> None:
    (home.folder / "clerks.py").write_text(HARNESS, encoding="utf-8")
    shop.add(turn(Call("send", {"to": "ann"}), Call("send", {"to": "bob"})), "Done.", "Done.")
    done = home.run("run", "--harness", "clerks:tight", "--max-turns", "7", "Send")
    assert (done.returncode, b"tool calls" in done.stderr) == (1, True), done.stderr
    assert effects(home, "sent").count("\n") <= 1
    own = home.run("run", "--harness", "clerks:tight", "--max-turns", "7", "--max-cost", "nothing", "Send")
    assert own.returncode == 2


# --approval auto and deny.


def test_auto_allows_everything_that_would_be_asked(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Text("First."), Call("pay", {"amount": 5})), turn(Call("pay", {"amount": 6})), "Done.")
    done = home.run("run", *OPTIONS, "--approval", "auto", "Pay")
    assert (done.returncode, done.stdout, effects(home)) == (0, b"First.\nDone.\n", "5\n6\n"), done.stderr


def test_deny_rejects_everything_that_would_be_asked(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5}), Call("send", {"to": "ann"})), "As you wish.")
    done = home.run("run", *OPTIONS, "--approval", "deny", "--json", "Pay")
    result = json.loads(done.stdout)
    assert (done.returncode, result["text"], effects(home), effects(home, "sent")) == (0, "As you wish.", "", "ann\n")
    assert "ApprovalRejected" in json.dumps(asked(shop))


def test_a_policy_in_the_config_file_counts(home: Home, shop: FakeServer) -> None:
    policy = '[[policy]]\nname = "small"\ntool = "pay"\nverdict = "allow"\narguments.amount = { most = 10 }\n'
    policy += '[[policy]]\nname = "no mail"\ntool = "send"\nverdict = "deny"\nreason = "Not from here."\n'
    point(home, shop, more=f'model = "anthropic:claude-opus-4-5"\n{policy}')
    shop.add(turn(Call("pay", {"amount": 5}), Call("send", {"to": "ann"})), "Done.")
    done = home.run("run", *OPTIONS, "Pay")
    assert (done.returncode, effects(home), effects(home, "sent")) == (0, "5\n", ""), done.stderr
    assert "Not from here." in json.dumps(asked(shop))


def test_the_policy_of_a_project_can_forbid_and_not_permit(home: Home, shop: FakeServer) -> None:
    rules = '[[policy]]\ntool = "pay"\nverdict = "allow"\n[[policy]]\ntool = "send"\nverdict = "deny"\n'
    (home.folder / "evener.toml").write_text(rules, encoding="utf-8")
    shop.add(turn(Call("pay", {"amount": 5}), Call("send", {"to": "ann"})), "Done.")
    done = home.run("run", *OPTIONS, "Pay")
    assert (done.returncode, effects(home), effects(home, "sent")) == (1, "", ""), "the tool still asks"
    thread = done.stderr.decode().split()[-1]
    again = home.run("approve", *OPTIONS, "--resume", thread)
    assert (again.returncode, effects(home), effects(home, "sent")) == (0, "5\n", ""), again.stderr


# On a terminal.


class Terminal:
    """A process on a terminal of its own; reads until it shows what is waited for."""

    def __init__(self, home: Home, *words: str) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self.process = home.start_on(theirs, *words, TERM="dumb")
        os.close(theirs)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, text: str) -> None:
        """The next place where this is shown."""
        end = moment(PATIENCE)
        start = len(self.shown)
        while text not in self.shown[start:]:
            assert select.select([self._ours], [], [], max(end - moment(), 0))[0], self.shown
            assert self._read(), self.shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        return self.process.wait(120)

    def _read(self) -> bool:
        """Add what it writes next, which may end within a letter; False at its end."""
        try:
            read = os.read(self._ours, 1 << 16)
        except OSError:
            return False
        self.shown += self._decoder.decode(read)
        return bool(read)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(120)
        os.close(self._ours)


@contextmanager
def terminal(home: Home, *words: str) -> Iterator[Terminal]:
    opened = Terminal(home, *words)
    try:
        yield opened
    finally:
        opened.close()


def test_on_a_terminal_it_asks_with_cleaned_arguments(home: Home, shop: FakeServer) -> None:
    shop.add(
        turn(Call("pay", {"amount": 5})), turn(Call("send", {"to": "\x1b]0;evil\x07ann"}), Call("pay", {"amount": 6})), "Ok."
    )
    with terminal(home, "run", *OPTIONS, "Pay") as seen:
        seen.until("Run it? [y]es  [n]o  [e]dit  [a]lways run pay ")
        assert '"amount": 5' in seen.shown
        seen.type("perhaps\n")
        seen.until("Run it? [y]es  [n]o  [e]dit  [a]lways run pay ")
        seen.type("y\n")
        seen.until("Run it? [y]es  [n]o  [e]dit  [a]lways run pay ")
        assert '"amount": 6' in seen.shown
        assert "\x1b" not in seen.shown
        seen.type("n\n")
        seen.until("Why not?")
        seen.type("too dear\n")
        assert seen.end() == 0, seen.shown
    assert seen.shown.endswith("Ok.\r\n")
    assert (effects(home), effects(home, "sent") != "") == ("5\n", True)
    assert "ApprovalRejected: too dear" in json.dumps(asked(shop))


def test_on_a_terminal_arguments_are_edited_and_a_tool_is_allowed_from_now_on(home: Home, shop: FakeServer) -> None:
    shop.add(*(turn(Call("pay", {"amount": amount})) for amount in (5, 6, 7)), "Ok.")
    with terminal(home, "run", *OPTIONS, "Pay") as seen:
        seen.until("[a]lways run pay ")
        seen.type("e\n")
        seen.until("Arguments: ")
        seen.type("[3]\n")
        seen.until(
            "must be a JSON object, but this is another JSON value. Correct them, or send an empty line to give up.\r\n"
            "Arguments: "
        )
        seen.type("\n")
        seen.until("[a]lways run pay ")
        seen.type("edit\n")
        seen.until("Arguments: ")
        seen.type('{"amount": 3}\n')
        seen.until("[a]lways run pay ")
        seen.type("a\n")
        assert seen.end() == 0, seen.shown
    assert "Allowed, as chosen before: pay" in seen.shown
    assert effects(home) == "3\n6\n7\n"


@pytest.mark.parametrize(("how", "code"), [("\x04", 1), ("interrupt", 130)])
def test_who_leaves_without_an_answer_has_decided_nothing(how: str, code: int, home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5})), "Done.")
    with terminal(home, "run", *OPTIONS, "Pay") as seen:
        seen.until("Run it? [y]es  [n]o  [e]dit  [a]lways run pay ")
        if how == "interrupt":
            seen.process.send_signal(signal.SIGINT)
        else:
            seen.type(how)
        assert seen.end() == code, seen.shown
    thread = seen.shown.split()[-1]
    done = home.run("approve", *OPTIONS, "--resume", thread)
    assert (done.returncode, effects(home)) == (0, "5\n"), done.stderr


def test_what_was_typed_before_the_question_is_no_answer(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5})), "Done.")
    with terminal(home, "run", *OPTIONS, "Pay") as seen:
        seen.type("y\n")
        seen.until("Run it? [y]es  [n]o  [e]dit  [a]lways run pay ")
        assert effects(home) == ""
        seen.type("n\n")
        seen.until("Why not?")
        seen.type("\n")
        assert seen.end() == 0, seen.shown
    assert effects(home) == ""


# --schema.


def test_a_structured_answer_is_printed_as_json_alone(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Text("Let me pay."), Call("pay", {"amount": 5})), '{"name":"Ann","age":30}')
    (home.folder / "person.json").write_text(PERSON, encoding="utf-8")
    done = home.run("run", *OPTIONS, "--approval", "auto", "--schema", "person.json", "Who?")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"name": "Ann", "age": 30}), done.stderr
    assert effects(home) == "5\n"


def test_an_answer_that_stays_wrong_ends_with_what_it_said(home: Home, shop: FakeServer) -> None:
    shop.add(*(['{"name":"Ann"}'] * 3))
    done = home.run("run", "--schema", PERSON, "Who?", "--store", "runs.db")
    assert (done.returncode, done.stdout) == (1, b""), done.stderr
    assert b'{"name":"Ann"}' in done.stderr
    assert home.run("run", "--schema", "{", "Who?").returncode == 2
    assert home.run("run", "--schema", PERSON, "--harness", "x:y", "Who?").returncode == 2


def test_an_answer_by_a_call_that_stays_wrong_ends_with_what_it_said(home: Home, shop: FakeServer) -> None:
    shop.add(*([turn(Call("final_result", {"name": "Ann"}))] * 3))
    old = ("-m", "anthropic:claude-3-5-haiku-latest")
    done = home.run("run", *old, "--schema", PERSON, "Who?", "--store", "runs.db")
    assert (done.returncode, done.stdout) == (1, b""), done.stderr
    assert re.search(r'The last answer of the model: {"name": ?"Ann"}', done.stderr.decode()), done.stderr
