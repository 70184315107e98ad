"""`evener complete`: one model call as a real process, against strict fakes on loopback."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from evener.testing.servers import Call, FakeServer, Refusal, Status, Text, Thinking, Tokens, faults, turn
from evener.testing.servers.provider import Entry
from evener.wire.media import image_type
from tests.cli.run import Home, command

SENTINEL = "sk-sentinel-0123456789abcdef"
SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)

# Provider row, its wire, a model of it, and the variable of its key.
WIRES = {
    "anthropic": ("anthropic_messages", "claude-opus-4-5", "ANTHROPIC_API_KEY"),
    "openai": ("openai_responses", "gpt-5.1", "OPENAI_API_KEY"),
    "openai-chat": ("openai_chat", "gpt-4.1", "OPENAI_API_KEY"),
    "google": ("gemini", "gemini-3-pro-preview", "GEMINI_API_KEY"),
}


def point(home: Home, server: FakeServer, provider: str = "anthropic", *, more: str = "") -> None:
    """Let the provider's row lead to the fake server, and set its key."""
    home.configure(f'{more}\n[providers.{provider}]\nbase_url = "{server.url}"\n')
    home.environ[WIRES[provider][2]] = SENTINEL


@pytest.fixture
def claude(home: Home) -> Iterator[FakeServer]:
    """A fake server that the configured default model leads to."""
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        point(home, server, more='model = "anthropic:claude-opus-4-5"')
        yield server


def asked(server: FakeServer) -> dict[str, object]:
    """The body of the last request."""
    body = json.loads(server.requests[-1].body)
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("provider", WIRES)
def test_every_wire_answers_in_text_and_in_json(provider: str, home: Home) -> None:
    wire, model, _ = WIRES[provider]
    with FakeServer(wire, ["Hello, world.", "And again."], key=SENTINEL) as server:
        point(home, server, provider)
        text = home.run("complete", f"{provider}:{model}", "Hi")
        assert (text.returncode, text.stdout, text.stderr) == (0, b"Hello, world.\n", b"")
        whole = home.run("complete", "-m", f"{provider}:{model}", "Hi", "--json")
        assert whole.returncode == 0, whole.stderr
        assert not server.rejected
    answer = json.loads(whole.stdout)
    assert (answer["text"], answer["provider"], answer["stop"]["reason"]) == ("And again.", provider, "done")
    assert answer["usage"]["input_total"] > 0
    assert float(answer["cost"]["amount"]) > 0
    assert 0 < answer["timing"]["first"] <= answer["timing"]["latency"]


def test_json_has_everything_and_says_what_is_a_lower_bound(home: Home, claude: FakeServer) -> None:
    claude.add(
        turn(Thinking("Hm."), "Yes\x1b[0m.", usage=Tokens(input=100, output=20, cached=60, written=10)),
    )
    done = home.run("complete", "Hi", "--json", "--temperature", "0.5", "-m", "anthropic:claude-unheard-of")
    answer = json.loads(done.stdout)
    assert set(answer) == set("provider model text reasoning calls stop usage cost timing losses".split())
    assert answer["text"] == "Yes\x1b[0m."
    assert answer["reasoning"] == "Hm."
    assert answer["usage"] == {
        "input_total": 100, "uncached": 30, "cache_read": 60, "cache_write": 10, "output_total": 20, "reasoning": 0,
    }  # fmt: skip
    assert answer["cost"]["exact"] is False
    assert "claude-unheard-of" in answer["cost"]["why"]


def test_calls_of_a_model_stand_in_the_json(home: Home, claude: FakeServer) -> None:
    claude.add(turn(Call("weather", {"city": "Oslo"}, id="toolu_1")))
    answer = json.loads(home.run("complete", "Hi", "--json").stdout)
    assert answer["calls"] == [{"id": "toolu_1", "name": "weather", "arguments": '{"city": "Oslo"}'}]


def test_words_and_stdin_and_options_reach_the_model(home: Home, claude: FakeServer, tmp_path: Path) -> None:
    claude.add("ok")
    (tmp_path / "dot.dat").write_bytes(PNG)
    words = ("Sum", "it up", "--system", "Be brief.", "--max-tokens", "77", "--image", "dot.dat")
    done = home.run("complete", *words, stdin=b"first line\nsecond line\n")
    assert done.returncode == 0, done.stderr
    body = asked(claude)
    assert body["max_tokens"] == 77
    assert "Be brief." in json.dumps(body["system"])
    content = json.dumps(body["messages"])
    assert "first line\\nsecond line\\n\\nSum it up" in content
    assert '"media_type": "image/png"' in content


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (("Hi",), "claude-opus-4-5"),
        (("Hi", "-m", "anthropic/claude-opus-4-6"), "claude-opus-4-6"),
        (("anthropic:claude-opus-4-6", "Hi"), "claude-opus-4-6"),
        (("mine", "Hi"), "claude-opus-4-1"),
        (("anthropic: what is it?",), "claude-opus-4-5"),
        (("antropic:claude", "Hi"), "claude-opus-4-5"),
    ],
)
def test_the_model_is_the_option_or_the_first_word_that_names_one_or_the_configured_one(
    words: tuple[str, ...], model: str, home: Home
) -> None:
    with FakeServer("anthropic_messages", ["ok"], key=SENTINEL) as server:
        point(home, server, more='model = "anthropic:claude-opus-4-5"\naliases.mine = "anthropic:claude-opus-4-1"')
        assert home.run("complete", *words).returncode == 0
        assert asked(server)["model"] == model


def test_effort_is_passed_on_and_losses_stand_on_stderr(home: Home, claude: FakeServer) -> None:
    claude.add("ok", "ok")
    assert home.run("complete", "Hi", "--effort", "high").returncode == 0
    assert "high" in json.dumps(asked(claude))
    done = home.run("complete", "-m", "anthropic:claude-opus-5-5", "Hi", "--temperature", "0.5")
    assert done.stdout == b"ok\n"
    assert b"loss: dropped setting temperature" in done.stderr


def test_who_waits_for_stdin_is_told_and_can_interrupt(home: Home, claude: FakeServer) -> None:
    running = subprocess.Popen(
        command("complete", "Hi"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home.environ, cwd=home.folder,
    )  # fmt: skip
    assert running.stderr is not None
    assert b"Reading standard input" in running.stderr.readline()
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=120) == 130
    assert running.communicate() == (b"", b"")
    assert not claude.requests


# Structured answers.


@pytest.mark.parametrize("as_file", [False, True])
def test_a_schema_gives_json(as_file: bool, home: Home, claude: FakeServer, tmp_path: Path) -> None:
    claude.add('{"a": 1}', '{"a": 2}')
    (tmp_path / "schema.json").write_text(SCHEMA)
    schema = "schema.json" if as_file else SCHEMA
    done = home.run("complete", "Hi", "--schema", schema)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"a": 1})
    assert json.loads(home.run("complete", "Hi", "--schema", schema, "--json").stdout)["output"] == {"a": 2}
    assert "additionalProperties" in json.dumps(asked(claude))


def test_an_answer_that_is_no_json_is_a_failure(home: Home, claude: FakeServer) -> None:
    claude.add("Sorry.")
    done = home.run("complete", "Hi", "--schema", SCHEMA)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"not JSON" in done.stderr


# What goes wrong, and the code that tells.


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a\x01", "image/gif"),
        (b"RIFF\n\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\0\0\0WAVEfmt ", ""),
        (b"GIF8 is no picture", ""),
        (b"", ""),
    ],
)
def test_a_picture_is_known_by_how_it_begins(content: bytes, kind: str) -> None:
    assert image_type(content) == kind


WRONG = {
    "no prompt": (("anthropic:claude-opus-4-5",), 2, b"There is no prompt"),
    "no words": ((), 2, b"No model was named"),
    "no model": (("gpt-5.1", "Hi"), 2, b"Write openai:gpt-5.1"),
    "an unknown provider": (("-m", "antropic:x", "Hi"), 2, b"Did you mean anthropic:x"),
    "no key": (("openai:gpt-5.1", "Hi"), 3, b"evener keys set openai"),
    "no region": (("-m", "claude-aws:claude-opus-4-5", "Hi"), 3, b"AWS_REGION"),
    "an unknown effort": (("anthropic:x", "Hi", "--effort", "huge"), 2, b"invalid choice"),
    "no schema": (("anthropic:x", "Hi", "--schema", "none.json"), 2, b"Cannot read none.json"),
    "a schema that is none": (("anthropic:x", "Hi", "--schema", "{nonsense"), 2, b"Give a JSON Schema, or the path"),
    "no picture": (("anthropic:x", "Hi", "--image", "none.png"), 2, b"Cannot read none.png"),
    "a timeout of nothing": (("anthropic:x", "Hi", "--timeout", "0"), 2, b"above 0"),
    "a negative limit": (("anthropic:x", "Hi", "--max-tokens", "-1"), 2, b"max_output_tokens"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_called_wrongly_is_said_in_one_line(case: str, home: Home) -> None:
    words, code, said = WRONG[case]
    done = home.run("complete", *words, ANTHROPIC_API_KEY=SENTINEL, ANTHROPIC_AWS_API_KEY=SENTINEL)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"sentinel" not in done.stderr


FAILED: dict[str, tuple[Entry, int, bytes]] = {
    "a wrong key": (Status(401, f"invalid x-api-key {SENTINEL}\x1b[2J"), 4, b"Check the API key"),
    "a quota": (Status(400, "Your credit balance is too low"), 4, b"HTTP 400"),
    "a stream that breaks off": (faults.Cut(after=4), 5, b""),
    "a reset": (faults.Reset(after=4), 5, b""),
    "silence": (faults.Silent(), 5, b""),
}


@pytest.mark.parametrize("case", FAILED)
def test_a_call_that_fails_ends_with_its_own_code(case: str, home: Home, claude: FakeServer) -> None:
    entry, code, said = FAILED[case]
    claude.add(*[entry] * 5)
    done = home.run("complete", "Hi", "--timeout", "3" if case == "silence" else "100")
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    for unwanted in (b"Traceback", b"sentinel", b"\x1b"):
        assert unwanted not in done.stdout + done.stderr


def test_nobody_at_the_address_is_a_transport_failure(home: Home, claude: FakeServer) -> None:
    claude.close()
    done = home.run("complete", "Hi", "--timeout", "100")
    assert (done.returncode, done.stdout, b"Traceback" in done.stderr) == (5, b"", False)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (turn("half an ans", stop="length"), b"--max-tokens"),
        (turn(Refusal("I will not.")), b"declined"),
    ],
)
def test_an_answer_that_is_cut_or_declined_is_remarked_upon(entry: Entry, said: bytes, home: Home, claude: FakeServer) -> None:
    claude.add(entry)
    done = home.run("complete", "Hi")
    assert (done.returncode, said in done.stderr) == (0, True)


# Terminals, pipes and interrupts.

NASTY = "Hello \x1b[31mred\x1b[0m \x1b]0;owned\x07 \u202eback\x9b2J end"


def test_control_characters_of_the_model_do_not_reach_the_terminal(home: Home, claude: FakeServer) -> None:
    claude.add(turn(Text(NASTY, pieces=len(NASTY))))
    assert home.run("complete", "Hi").stdout.decode() == "Hello red ]0;owned back end\n"


def test_raw_is_what_came(home: Home, claude: FakeServer) -> None:
    claude.add("ok")
    done = home.run("complete", "Hi", "--raw")
    assert done.stdout.startswith(b"event: message_start\ndata: {")
    assert done.stdout.rstrip().endswith(b'data: {"type":"message_stop"}')


@pytest.mark.parametrize("words", [("--raw",), ()])
def test_on_a_terminal_even_raw_bytes_are_cleaned(words: tuple[str, ...], home: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("x\u202e\x7fy")))
    master, slave = pty.openpty()
    running = subprocess.Popen(
        command("complete", "Hi", *words),
        stdin=slave, stdout=slave, stderr=slave, env={**home.environ, "TERM": "xterm"}, cwd=home.folder,
    )  # fmt: skip
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 4096):
            seen += piece
    except OSError:
        pass  # how a terminal says that its other end is closed
    finally:
        os.close(master)
    assert running.wait(timeout=120) == 0
    assert "\u202e".encode() not in seen
    assert b"\x7f" not in seen


def test_the_answer_streams(home: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("one two three", pieces=3), faults=[faults.Stall(after=5)]))
    running = home.start("complete", "Hi", "--timeout", "100")
    try:
        assert running.stdout is not None
        assert os.read(running.stdout.fileno(), 100)  # something is there before the answer has ended
    finally:
        running.kill()
        running.communicate()


def test_interrupted_in_the_middle_it_ends_cleanly_with_130(home: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("one two three", pieces=3), faults=[faults.Stall(after=5)]))
    running = home.start("complete", "Hi", "--timeout", "100")
    assert running.stdout is not None
    assert os.read(running.stdout.fileno(), 100)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, b"")
    assert out.endswith(b"\n")


def test_a_reader_that_goes_away_is_no_disaster(home: Home, claude: FakeServer) -> None:
    long = "\n".join(f"line {number} {'x' * 100}" for number in range(5000))
    claude.add(turn(Text(long, pieces=200)))
    shell = " ".join(command("complete", "Hi")) + " | head -1"
    done = subprocess.run(["sh", "-c", shell], env=home.environ, cwd=home.folder, capture_output=True, timeout=120, check=False)
    assert done.stdout.startswith(b"line 0 ")
    assert done.stderr == b""


def test_an_encoding_without_the_letters_is_no_disaster(home: Home, claude: FakeServer) -> None:
    claude.add("caf\u00e9 \U0001f40e")
    done = home.run("complete", "Hi", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stdout) == (0, b"caf\\xe9 \\U0001f40e\n")
