"""Rows as values: names, precedence, and rows of the user's own."""

import subprocess
import sys
from pathlib import Path

import pytest

from evener.errors import UsageError
from evener.providers import load_rows
from evener.providers.rows import plain_name
from evener.wire.quirks import Quirks

OWN = """
[providers.lab]
wire = "openai_responses"
base_url = "http://lab.example:8000/v1"
key_env = ["LAB_KEY"]
quirks.store = false
quirks.max_output = 100

[[models]]
match = ["lab-*"]
window = 1000
quirks.strict = false
quirks.max_output = 200

[[models]]
match = ["lab-big*"]
quirks.max_output = 300

[[models]]
match = ["lab-*"]
providers = ["anthropic"]
quirks.max_output = 400

[[models]]
match = ["lab-*"]
wires = ["anthropic_messages"]
quirks.tools = false
"""


def own(folder: Path, text: str, name: str = "own.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


NAMES = {
    "claude-opus-4-8": "claude-opus-4-8",
    "us.anthropic.claude-opus-4-8": "claude-opus-4-8",
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0": "claude-sonnet-4-5",
    "us-gov.anthropic.claude-3-5-sonnet-20241022-v2:0": "claude-3-5-sonnet",
    "anthropic/claude-opus-4.5": "claude-opus-4.5",
    "anthropic/claude-opus-4.5:beta": "claude-opus-4.5:beta",
    "claude-sonnet-4-5@20250929": "claude-sonnet-4-5",
    "publishers/anthropic/models/claude-opus-5@default": "claude-opus-5",
    "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5-5-v1:0": "claude-opus-5-5",
    "claude-3-opus-latest": "claude-3-opus",
    "openai.gpt-5.6-luna": "gpt-5.6-luna",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "gpt-5.4-mini-2026-03-17": "gpt-5.4-mini",
    "GPT-4.1": "gpt-4.1",
    "qwen2.5:7b": "qwen2.5:7b",
    "o3-2025-04-16": "o3",
}


@pytest.mark.parametrize(("given", "plain"), NAMES.items(), ids=NAMES)
def test_a_name_is_seen_without_what_hosts_add(given: str, plain: str) -> None:
    assert plain_name(given) == plain
    assert plain_name(plain) == plain


def test_defaults_then_provider_then_model_rows_from_first_to_last(tmp_path: Path) -> None:
    rows = load_rows(own(tmp_path, OWN))
    assert rows.quirks("lab", "other") == Quirks(store=False, max_output=100)
    assert rows.quirks("lab", "lab-small") == Quirks(store=False, strict=False, max_output=200)
    assert rows.quirks("lab", "lab-big-2") == Quirks(store=False, strict=False, max_output=300)
    assert rows.facts("lab", "lab-big").window == 1000
    assert rows.facts("lab", "other").window == 0


def test_a_model_row_stays_within_its_providers_and_wires(tmp_path: Path) -> None:
    quirks = load_rows(own(tmp_path, OWN)).quirks("anthropic", "lab-big")
    assert (quirks.max_output, quirks.tools, quirks.strict) == (400, False, False)


def test_a_later_row_wins_even_when_an_earlier_one_is_longer(tmp_path: Path) -> None:
    text = '[[models]]\nmatch = ["lab-big"]\nwindow = 1\n[[models]]\nmatch = ["lab-*"]\nwindow = 2\n'
    assert load_rows(own(tmp_path, text)).facts("openai", "lab-big").window == 2


def test_after_a_fresh_row_only_it_and_later_ones_count(tmp_path: Path) -> None:
    fresh = '[[models]]\nmatch = ["lab-big"]\nfresh = true\nquirks.tools = false\n[[models]]\nmatch = ["lab-*"]\nwindow = 5\n'
    rows = load_rows(own(tmp_path, OWN + fresh))
    assert rows.quirks("lab", "lab-big") == Quirks(store=False, max_output=100, tools=False)
    assert rows.quirks("lab", "lab-small") == Quirks(store=False, max_output=200, strict=False)
    assert rows.facts("lab", "lab-big").window == 5


@pytest.mark.parametrize(("pattern", "covered"), [("lab", True), ("lab:free", True), ("lab:*", True), ("lab:paid", False)])
def test_a_pattern_is_tried_with_and_without_the_tag(pattern: str, covered: bool, tmp_path: Path) -> None:
    rows = load_rows(own(tmp_path, f'[[models]]\nmatch = ["{pattern}"]\nwindow = 7\n'))
    assert rows.facts("openai", "vendor/lab-2026-01-01:free").window == (7 if covered else 0)


def test_a_row_for_a_known_provider_replaces_it_field_by_field(tmp_path: Path) -> None:
    text = '[providers.deepseek-responses]\nbase_url = "https://proxy.example"\nquirks.store = true\n'
    before, after = load_rows().provider("deepseek-responses"), load_rows(own(tmp_path, text)).provider("deepseek-responses")
    assert (after.base_url, after.key_env, after.wire) == ("https://proxy.example", before.key_env, before.wire)
    assert (before.quirks.store, after.quirks.store) == (False, True)
    assert after.quirks.calls_last


def test_the_last_file_has_the_last_word(tmp_path: Path) -> None:
    first = own(tmp_path, '[providers.openai]\nbase_url = "http://a"\n[[models]]\nmatch = ["gpt-4o"]\nwindow = 1\n', "1.toml")
    second = own(tmp_path, '[providers.openai]\nbase_url = "http://b"\n[[models]]\nmatch = ["gpt-4o"]\nwindow = 2\n', "2.toml")
    for files, url, window in [((first, second), "http://b", 2), ((second, first), "http://a", 1)]:
        facts = load_rows(*files).facts("openai", "gpt-4o")
        assert (facts.provider.base_url, facts.window) == (url, window)


def test_like_takes_over_how_to_talk_but_never_whom_to_or_the_key(tmp_path: Path) -> None:
    text = '[providers.own]\nlike = "azure"\nbase_url = "https://own.example"\nkey_env = ["OWN"]\nquirks.phase = false\n'
    made, azure = load_rows(own(tmp_path, text)).provider("own"), load_rows().provider("azure")
    assert (made.wire, made.auth_header, made.quirks.seal_scope) == (azure.wire, azure.auth_header, azure.quirks.seal_scope)
    assert (made.key_env, made.url_env, made.vendor, made.quirks.phase) == (("OWN",), (), "own", False)


def test_changing_a_row_leaves_those_alone_that_are_like_it(tmp_path: Path) -> None:
    text = (
        '[providers.minimax]\nquirks.strict = true\n[providers.own]\nlike = "minimax"\nbase_url = "http://a"\nkeyless = true\n'
    )
    rows = load_rows(own(tmp_path, text))
    assert rows.provider("minimax").quirks.strict
    assert rows.provider("own").quirks.strict  # stated in the file that changes it
    assert not rows.provider("kimi-anthropic").quirks.strict


@pytest.mark.parametrize(("header", "prefix"), [("authorization", "Bearer "), ("x-api-key", ""), ("api-key", "")])
def test_the_prefix_follows_the_header_unless_stated(header: str, prefix: str, tmp_path: Path) -> None:
    row = f'[providers.own]\nwire = "openai_responses"\nbase_url = "http://a"\nkeyless = true\nauth_header = "{header}"\n'
    assert load_rows(own(tmp_path, row)).provider("own").auth_prefix == prefix
    assert load_rows(own(tmp_path, row + 'auth_prefix = "Key "\n')).provider("own").auth_prefix == "Key "


def test_an_address_is_filled_with_what_the_account_needs() -> None:
    vertex = load_rows().provider("vertex")
    url = vertex.url({"region": "us-east5", "project": "p-1"})
    assert url.startswith("https://us-east5-aiplatform.googleapis.com/v1/projects/p-1/locations/us-east5/")
    assert load_rows().provider("openai").url({}) == "https://api.openai.com/v1"


@pytest.mark.parametrize("value", ["", "evil.example/", "a@b", "a:1", "a?b", "a#b", "a b", "a\\b"])
def test_a_part_that_could_lead_elsewhere_never_gets_into_an_address(value: str) -> None:
    with pytest.raises(UsageError, match="Set AWS_REGION or AWS_DEFAULT_REGION, or give the row a base_url"):
        load_rows().provider("bedrock").url({"region": value})


def test_the_same_question_gets_the_same_object() -> None:
    rows = load_rows()
    assert rows.quirks("anthropic", "claude-opus-4-8") is rows.quirks("anthropic", "anthropic/claude-opus-4.8")


def test_importing_reads_no_file_and_loading_reads_no_variable() -> None:
    code = (
        "import sys, os\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append(str(args[0])) if event == 'open' else None)\n"
        "import evener.providers as providers\n"
        "assert not [name for name in seen if name.endswith('.toml')], seen\n"
        "class Closed(dict):\n"
        "    def __getitem__(self, name): raise AssertionError(name)\n"
        "    get = __getitem__\n"
        "os.environ = Closed()\n"
        "providers.load_rows()\n"
        "assert len([name for name in seen if name.endswith('.toml')]) == 2, seen\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
