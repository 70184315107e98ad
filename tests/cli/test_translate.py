"""`evener translate`: the request on stdout, the losses on stderr, and an exit code that tells."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUEST = (ROOT / "examples" / "request.json").read_bytes()
WORDS = ("translate", "--from", "anthropic_messages", "--to", "openai_responses")


def evener(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "evener", *words]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)


def test_the_request_comes_out_on_stdout_and_the_losses_on_stderr() -> None:
    """S4.23."""
    done = evener(*WORDS, "--model", "gpt-5.1", stdin=REQUEST)
    assert done.returncode == 0
    assert json.loads(done.stdout)["model"] == "gpt-5.1"
    assert b"dropped reasoning" in done.stderr


def test_json_puts_both_into_one_object() -> None:
    done = evener(*WORDS, "--model", "gpt-5.1", "--json", stdin=REQUEST)
    both = json.loads(done.stdout)
    assert both["request"]["instructions"] == "Be brief."
    assert both["losses"][0]["what"] == "reasoning"
    assert done.stderr == b""


def test_what_a_request_says_cannot_steer_a_terminal() -> None:
    field, text = "\x1b[31mred\x9b31m", "\x9b2J \u202e"
    asked = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": text}], field: 1}
    done = evener(*WORDS, "--model", "gpt-5.1", stdin=json.dumps(asked, ensure_ascii=False).encode())
    assert b"dropped field red:" in done.stderr
    assert json.loads(done.stdout)["input"][0]["content"] == text
    assert not re.search("[\x1b\x9b\u202e]", (done.stdout + done.stderr).decode())


def test_a_model_name_that_is_kept_is_a_loss() -> None:
    done = evener(*WORDS, stdin=REQUEST)
    assert json.loads(done.stdout)["model"] == "claude-opus-4-5"
    assert b"degraded model" in done.stderr


def test_rows_of_your_own_can_be_named(tmp_path: Path) -> None:
    rows = tmp_path / "rows.toml"
    rows.write_text('[providers.mine]\nlike = "openai"\nbase_url = "http://localhost:9/v1"\nkeyless = true\n', encoding="utf-8")
    done = evener("translate", "--from", "anthropic", "--to", "mine", "--model", "m", "--rows", str(rows), stdin=REQUEST)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "m"


WRONG = {
    "not JSON": (WORDS, b"nonsense", 1, b"Expected an Anthropic Messages request"),
    "nothing": (WORDS, b"", 1, b"Expected an Anthropic Messages request"),
    "not an object": (WORDS, b"[1]", 1, b"Expected an Anthropic Messages request"),
    "too deep": (WORDS, b'{"messages":' + b"[" * 100_000, 1, b"Expected an Anthropic Messages request"),
    "an unknown role": (WORDS, b'{"messages":[{"role":"tool","content":"x"}]}', 1, b"role 'tool'"),
    "an unknown provider": (("translate", "--from", "anthropicc", "--to", "gemini"), b"{}", 2, b"Did you mean anthropic"),
    "an unknown wire": (("translate", "--from", "openai_chatt", "--to", "gemini"), b"{}", 2, b"Did you mean openai_chat?"),
    "a missing file": ((*WORDS, "no-such-file.json"), b"", 2, b"Cannot read no-such-file.json"),
    "a missing word": (("translate", "--from", "anthropic_messages"), b"", 2, b"--to"),
    "no command": ((), b"", 2, b"COMMAND"),
    "missing rows": ((*WORDS, "--rows", "no-such.toml"), b"{}", 2, b"no-such.toml"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line_without_a_traceback(case: str) -> None:
    words, stdin, code, said = WRONG[case]
    done = evener(*words, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_disaster() -> None:
    command = f"{sys.executable} -m evener {' '.join(WORDS)} examples/request.json | true"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert b"Traceback" not in done.stderr
