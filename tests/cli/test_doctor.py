"""`evener doctor`: what is there, what is broken, and the fix."""

import json
import socket
import threading

import pytest

from evener.testing.servers import FakeServer
from tests.cli.run import Done, Home

SENTINEL = "sk-sentinel-0123456789abcdef"

Findings = dict[str, dict[str, str]]


def findings(done: Done) -> Findings:
    assert b"sentinel" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    return {one["about"]: one for one in json.loads(done.stdout)}


def test_a_fresh_machine_is_fine(home: Home) -> None:
    done = home.run("doctor", "--offline", "--json")
    found = findings(done)
    assert done.returncode == 0
    for package in ("python", "evener", "msgspec"):
        assert found[package]["state"] == "ok"
    assert found["config"]["text"].startswith("no file")
    assert "none yet" in found["key file"]["text"]
    assert not [one for one in found.values() if one["state"] == "problem"]


def test_the_text_has_a_line_for_each_finding_and_no_colour_off_a_terminal(home: Home) -> None:
    done = home.run("doctor", "--offline", TERM="xterm")
    assert done.returncode == 0
    assert done.stdout.startswith(b"ok      python: ")
    assert b"\x1b" not in done.stdout


def test_keys_are_found_and_their_addresses_reached_without_sending_them(home: Home) -> None:
    with FakeServer("openai_responses", key=SENTINEL) as server:
        home.configure(f'[providers.openai]\nbase_url = "{server.url}"\n[providers.openai-chat]\nbase_url = "{server.url}"\n')
        home.run("keys", "set", "openai", stdin=SENTINEL.encode())
        done = home.run("doctor", "--json")
        found = findings(done)
        assert done.returncode == 0
        assert found["key of openai"] == {"about": "key of openai", "state": "ok", "text": "key file"}
        assert found["openai, openai-chat"]["state"] == "ok"
        assert len(server.requests) == 1
        received = server.requests[0]
        assert SENTINEL not in repr((received.headers, received.body))


def test_an_address_with_a_key_that_does_not_answer_is_a_problem(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        home.configure(f'[providers.anthropic]\nbase_url = "http://127.0.0.1:{taken.getsockname()[1]}"\n')
        done = home.run("doctor", "--json", ANTHROPIC_API_KEY=SENTINEL)
    found = findings(done)
    assert done.returncode == 1
    assert found["anthropic"]["state"] == "problem"
    assert found["anthropic"]["fix"]


def test_a_server_that_takes_and_never_answers_holds_nobody_up(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        home.configure(f'[providers.anthropic]\nbase_url = "http://127.0.0.1:{silent.getsockname()[1]}"\n')
        taken: list[socket.socket] = []
        thread = threading.Thread(target=lambda: taken.append(silent.accept()[0]), daemon=True)
        thread.start()
        done = home.run("doctor", "--json", ANTHROPIC_API_KEY=SENTINEL)
        thread.join(120)
        for connection in taken:
            connection.close()
    assert (done.returncode, findings(done)["anthropic"]["state"]) == (1, "problem")


def test_a_server_of_ones_own_that_does_not_run_is_no_problem(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        home.configure(f'[providers.mine]\nlike = "ollama"\nbase_url = "http://127.0.0.1:{port}/v1"\nkeyless = true\n')
        done = home.run("doctor", "--json")
    assert (done.returncode, findings(done)["mine"]["state"]) == (0, "note")


BROKEN = {
    "a config file": ("modell = 1", {}, "config", "no such setting"),
    "a model without its key": ('model = "openai:gpt-5.1"', {}, "model", "evener keys set openai"),
    "a model without its region": (
        'model = "claude-aws:claude-opus-4-5"', {"ANTHROPIC_AWS_API_KEY": SENTINEL}, "model", "AWS_REGION",
    ),
    "a variable": ("", {"OPENAI_API_KEY": f"{SENTINEL} {SENTINEL}"}, "OPENAI_API_KEY", "unset OPENAI_API_KEY"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_configured_and_broken_is_a_problem_with_its_fix(case: str, home: Home) -> None:
    config, environ, about, said = BROKEN[case]
    home.configure(config)
    home.environ |= environ
    done = home.run("doctor", "--offline", "--json")
    finding = findings(done)[about]
    assert (done.returncode, finding["state"]) == (1, "problem")
    assert said in finding["text"] + finding["fix"]


def test_a_key_file_that_is_open_to_others_is_a_problem_with_the_exact_fix(home: Home) -> None:
    home.run("keys", "set", "openai", stdin=SENTINEL.encode())
    assert home.run("doctor", "--offline").returncode == 0
    home.keys.chmod(0o644)
    done = home.run("doctor", "--offline", "--json")
    finding = findings(done)["key file"]
    assert (done.returncode, finding["state"]) == (1, "problem")
    assert f"chmod 600 {home.keys}" in finding["fix"]


def test_a_key_file_that_is_not_understood_is_not_mended_by_its_mode(home: Home) -> None:
    home.run("keys", "set", "openai", stdin=SENTINEL.encode())
    home.keys.write_text("broken [")
    assert f"rm {home.keys}" in findings(home.run("doctor", "--offline", "--json"))["key file"]["fix"]
    home.keys.unlink()
    home.keys.mkdir()
    assert f"mv {home.keys}" in findings(home.run("doctor", "--offline", "--json"))["key file"]["fix"]


def test_a_key_that_needs_more_is_noted(home: Home) -> None:
    found = findings(home.run("doctor", "--offline", "--json", ANTHROPIC_AWS_API_KEY=SENTINEL))
    assert found["key of claude-aws"]["state"] == "note"
    assert "AWS_REGION" in found["key of claude-aws"]["fix"]


@pytest.mark.parametrize("model", ["local:nope", "local-anthropic:nope.gguf"])
def test_a_local_model_that_is_not_there_is_a_problem(model: str, home: Home) -> None:
    pytest.importorskip("xllamacpp")
    home.configure(f'model = "{model}"')
    done = home.run("doctor", "--offline", "--json")
    problems = [finding for finding in json.loads(done.stdout) if finding["state"] == "problem"]
    assert (done.returncode, [finding["about"] for finding in problems]) == (1, [model])


def test_a_home_that_is_not_there_is_no_reason_to_fail(home: Home) -> None:
    done = home.run("doctor", "--offline", "--json", HOME="/nonexistent")
    assert (done.returncode, findings(done)["key file"]["state"]) == (0, "ok")


def test_the_local_model_is_looked_for(home: Home) -> None:
    found = findings(home.run("doctor", "--offline", "--json"))
    if found["xllamacpp"]["state"] == "ok":
        assert "weights not downloaded yet" in found["local:smollm2"]["text"]
    else:
        assert found["xllamacpp"]["fix"] == "pip install 'evener[local]'"
