"""`evener models`: who can be asked, what they can, and whether the key is there."""

import json

import pytest

from evener.cli.commands.models import Capabilities, capabilities, is_local
from evener.providers.rows import load_rows
from evener.wire.quirks import Quirks
from tests.cli.run import Home

ROWS = load_rows()


def test_every_row_is_listed_with_its_key(home: Home) -> None:
    done = home.run("models", "--providers", OPENAI_API_KEY="sk-sentinel")
    lines = {line.split()[0]: line for line in done.stdout.decode().splitlines()[1:]}
    assert set(lines) == {row.name for row in ROWS.providers}
    assert "set (environment variable OPENAI_API_KEY)" in lines["openai"]
    assert "missing: ANTHROPIC_API_KEY" in lines["anthropic"]
    assert "not needed" in lines["ollama"]
    assert b"sentinel" not in done.stdout
    assert b"\x1b" not in done.stdout


def test_json_has_the_whole_matrix(home: Home) -> None:
    """S1.26, S4.24."""
    row = '[providers.lab]\nlike = "vllm"\nbase_url = "http://localhost:9/v1"\nkeyless = true\n'
    home.configure(row + "quirks.tools = false\nquirks.images = false\n")
    found = {entry["name"]: entry for entry in json.loads(home.run("models", "--providers", "--json").stdout)}
    assert set(found) == {"lab", *(row.name for row in ROWS.providers)}
    able = {name: found[name]["capabilities"] for name in ("lab", "vllm")}
    assert {name for name in able["lab"] if able["lab"][name] != able["vllm"][name]} == {
        "tools",
        "choice",
        "parallel",
        "images",
    }
    for entry in found.values():
        assert set(entry["capabilities"]) == set(Capabilities.__struct_fields__)
    assert found["ollama"]["local"]
    assert not found["openai"]["local"]
    assert found["google"]["key"] == {
        "found": False,
        "needed": True,
        "source": "",
        "variables": ["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    }


def test_one_row_is_shown_closely(home: Home) -> None:
    done = home.run("models", "--provider", "anthropic")
    assert b"https://api.anthropic.com" in done.stdout
    assert b"claude-opus-4" in done.stdout
    assert b"200,000" in done.stdout
    (entry,) = json.loads(home.run("models", "--provider", "anthropic", "--json").stdout)
    known = {one["match"]: one for one in entry["models"]}
    assert known["claude-opus-4[.-]5*"] == {
        "match": "claude-opus-4[.-]5*",
        "window": 200_000,
        "output": 64_000,
        "efforts": ["low", "medium", "high"],
    }


def test_names_that_mean_other_models_somewhere_are_not_shown_there(home: Home) -> None:
    assert b"claude-" not in home.run("models", "--provider", "minimax").stdout


def test_rows_of_the_user_are_listed(home: Home) -> None:
    home.configure('[providers.lab]\nlike = "vllm"\nbase_url = "https://lab.example/v1"\nkey_env = ["LAB_KEY"]\n')
    assert b"missing: LAB_KEY" in home.run("models", "--provider", "lab").stdout


def test_an_unknown_row_is_an_error_with_a_hint(home: Home) -> None:
    done = home.run("models", "--provider", "antropic")
    assert (done.returncode, b"Did you mean anthropic" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("quirks", "missing"),
    [
        (Quirks(), set()),
        (Quirks(tools=False), {"tools", "choice", "parallel"}),
        (Quirks(forced_choice=False), {"choice"}),
        (Quirks(parallel_switch=False), {"parallel"}),
        (Quirks(images=False, documents=False), {"images", "documents"}),
        (Quirks(json_mode=False), {"json"}),
        (Quirks(output_schema=False), {"schema"}),
        (Quirks(effort=False, hosted=False), {"effort", "hosted"}),
    ],
)
def test_the_matrix_comes_from_the_quirks(quirks: Quirks, missing: set[str]) -> None:
    """S1.26, S4.24."""
    able = capabilities(quirks)
    assert {name for name in Capabilities.__struct_fields__ if not getattr(able, name)} == missing


def test_only_this_machine_is_local() -> None:
    local = {row.name for row in ROWS.providers if is_local(row)}
    assert {"ollama", "vllm", "llamacpp", "lmstudio", "local"} <= local
    assert not local & {"anthropic", "openai", "google", "openrouter"}
