"""`evener keys`: what is stored is used, and is shown to nobody."""

import json
import os
import pty
import subprocess

import pytest

from tests.cli.run import Home, command

SENTINEL = "sk-sentinel-0123456789abcdef"


def test_a_key_from_stdin_is_stored_and_used_and_never_shown(home: Home) -> None:
    done = home.run("keys", "set", "anthropic", stdin=f"  {SENTINEL}\n".encode())
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"Stored ANTHROPIC_API_KEY (" in done.stderr
    assert home.keys.stat().st_mode & 0o777 == 0o600
    assert home.keys.parent.stat().st_mode & 0o777 == 0o700
    listed = home.run("keys", "list", "--json")
    (only,) = json.loads(listed.stdout)
    assert (only["variable"], only["source"], only["providers"]) == ("ANTHROPIC_API_KEY", "key file", ["anthropic"])
    assert only["fingerprint"] not in SENTINEL
    shown = home.run("models", "--provider", "anthropic")
    assert b"set (key file)" in shown.stdout
    for output in (done, listed, shown, home.run("keys", "list")):
        assert b"sentinel" not in output.stdout + output.stderr


def test_the_environment_comes_first_and_that_is_said(home: Home) -> None:
    done = home.run("keys", "set", "anthropic", stdin=b"from-file", ANTHROPIC_API_KEY=SENTINEL)
    assert b"is set, too, and takes precedence" in done.stderr
    listed = home.run("keys", "list", ANTHROPIC_API_KEY=SENTINEL)
    assert b"environment variable ANTHROPIC_API_KEY" in listed.stdout


def test_a_key_is_removed(home: Home) -> None:
    home.run("keys", "set", "google", stdin=SENTINEL.encode())
    done = home.run("keys", "remove", "google")
    assert (done.returncode, b"Removed GEMINI_API_KEY" in done.stderr) == (0, True)
    assert SENTINEL not in home.keys.read_text()
    again = home.run("keys", "remove", "google")
    assert (again.returncode, b"Nothing to remove" in again.stderr) == (1, True)


def test_a_variable_can_be_named_itself(home: Home) -> None:
    assert home.run("keys", "set", "AZURE_OPENAI_RESOURCE", stdin=b"mine").returncode == 0
    (only,) = json.loads(home.run("keys", "list", "--json").stdout)
    assert (only["variable"], only["providers"]) == ("AZURE_OPENAI_RESOURCE", ["azure", "azure-chat"])
    assert home.run("keys", "remove", "AZURE_OPENAI_RESOURCE").returncode == 0


def test_a_key_whose_row_is_gone_is_still_listed_and_can_be_removed(home: Home) -> None:
    home.configure('[providers.lab]\nlike = "vllm"\nbase_url = "https://lab.example/v1"\nkey_env = ["LAB_KEY"]\n')
    assert home.run("keys", "set", "lab", stdin=SENTINEL.encode()).returncode == 0
    home.configure("")
    (only,) = json.loads(home.run("keys", "list", "--json").stdout)
    assert (only["variable"], only["source"], only["providers"]) == ("LAB_KEY", "key file", [])
    assert b"LAB_KEY" in home.run("keys", "list").stdout
    assert home.run("keys", "remove", "LAB_KEY").returncode == 0
    assert SENTINEL not in home.keys.read_text()


def test_the_path_is_told(home: Home) -> None:
    assert home.run("keys", "path").stdout.decode().strip() == str(home.keys)
    assert home.run("keys", "path", XDG_CONFIG_HOME="/elsewhere").stdout == b"/elsewhere/evener/keys.toml\n"


WRONG = {
    "the key as a word": (("set", "anthropic", SENTINEL), b"", 2, b"too many words"),
    "the key as an option": (("set", "anthropic", f"--key={SENTINEL}"), b"", 2, b"unknown options: --key"),
    "the key instead of a name": (("set", SENTINEL), b"", 2, b"no provider or variable with that name"),
    "a near name": (("set", "antropic"), b"", 2, b"Did you mean anthropic?"),
    "nothing": (("set", "anthropic"), b"", 2, b"cannot be a key"),
    "two lines": (("set", "anthropic"), f"{SENTINEL}\n{SENTINEL}".encode(), 2, b"cannot be a key"),
    "no text": (("set", "anthropic"), b"\xff\xfe", 2, b"not UTF-8 text"),
    "a key with its header": (("set", "anthropic"), f"Bearer {SENTINEL}".encode(), 2, b"cannot be a key"),
    "a local model": (("set", "local"), b"x", 2, b"needs no key"),
    "no command": ((), b"", 2, b"COMMAND"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_without_the_key(case: str, home: Home) -> None:
    words, stdin, code, said = WRONG[case]
    done = home.run("keys", *words, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr
    assert b"sentinel" not in done.stderr
    assert b"Traceback" not in done.stderr
    assert not home.keys.exists()


def test_a_file_that_is_open_to_others_is_refused_with_the_command_that_mends_it(home: Home) -> None:
    home.run("keys", "set", "anthropic", stdin=SENTINEL.encode())
    home.keys.chmod(0o644)
    for words in (("keys", "list"), ("keys", "remove", "anthropic"), ("models", "--providers")):
        done = home.run(*words)
        assert (done.returncode, f"chmod 600 {home.keys}".encode() in done.stderr) == (2, True)
        assert b"sentinel" not in done.stdout + done.stderr


def test_without_a_home_there_is_no_place_for_keys(home: Home) -> None:
    done = home.run("keys", "path", HOME="")
    assert (done.returncode, b"Set HOME" in done.stderr) == (2, True)


def on_a_terminal(home: Home, typed: bytes) -> tuple[int, bytes]:
    """The exit code and all that was seen when this is typed at the question."""
    master, slave = pty.openpty()
    running = subprocess.Popen(
        command("keys", "set", "anthropic"),
        stdin=slave, stdout=slave, stderr=slave, env=home.environ, cwd=home.folder, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 1024):
            seen += piece
            if b"not shown" in seen and typed:
                os.write(master, typed)
                typed = b""
    except OSError:
        pass  # how a terminal says that its other end is closed
    finally:
        os.close(master)
    return running.wait(timeout=120), seen


def test_on_a_terminal_the_key_is_asked_for_and_not_shown(home: Home) -> None:
    code, seen = on_a_terminal(home, SENTINEL.encode() + b"\n")
    assert code == 0
    assert b"Stored ANTHROPIC_API_KEY" in seen
    assert b"sentinel" not in seen
    assert SENTINEL in home.keys.read_text()


def test_nothing_typed_is_nothing_stored(home: Home) -> None:
    code, seen = on_a_terminal(home, b"\x04")
    assert (code, b"Traceback" in seen, home.keys.exists()) == (2, False, False)
