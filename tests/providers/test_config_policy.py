"""The policy in config files: rules and defaults of the user's own, and of a project, which may forbid and not permit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evener.errors import BadRow
from evener.policy.rules import Policy, Ruling, decide
from evener.providers.config import load_config
from evener.transcript.blocks import ToolCall

OWN, NEAR = ".config/evener/config.toml", "p/evener.toml"
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return write


def policy(tmp_path: Path) -> Policy | None:
    folder = tmp_path / "p"
    folder.mkdir(exist_ok=True)
    return load_config(folder, environ={"HOME": str(tmp_path)}).policy


def judged(tmp_path: Path, tool: str, *, approval: bool = False, effect: str = "write", **arguments: object) -> Ruling:
    found = policy(tmp_path)
    assert found is not None
    return decide(ToolCall.of("c", tool, arguments), effect=effect, approval=approval, policy=found)  # type: ignore[arg-type]


def rule(tool: str, verdict: str, more: str = "") -> str:
    return f'[[policy]]\ntool = "{tool}"\nverdict = "{verdict}"\n{more}\n'


def test_without_a_word_of_it_there_is_no_policy(tmp_path: Path, write: Write) -> None:
    write(OWN, 'model = "openai:x"')
    write(NEAR, '[harness]\nclerk = "clerks:agent"')
    assert policy(tmp_path) is None


def test_the_users_rules_and_defaults_count_and_rules_have_names(tmp_path: Path, write: Write) -> None:
    write(OWN, rule("pay", "deny") + rule("pay*", "allow", 'name = "small"') + '[policy_default]\nwrite = "allow"\n')
    assert judged(tmp_path, "pay").rule == "rule 1 of config.toml"
    assert judged(tmp_path, "pay_little").rule == "small"
    assert judged(tmp_path, "other").verdict == "allow"
    assert judged(tmp_path, "other", effect="idempotent").verdict == "ask"


def test_a_relative_path_starts_in_the_working_folder(tmp_path: Path, write: Write) -> None:
    write(OWN, rule("edit", "allow", 'arguments.file = { path = "src/**" }'))
    assert judged(tmp_path, "edit", file=str((tmp_path / "p").resolve() / "src" / "a.py")).verdict == "allow"
    assert judged(tmp_path, "edit", file="src/../../x").verdict == "ask"


@pytest.mark.parametrize(
    ("own", "near", "verdict"),
    [
        ("allow", "deny", "deny"),
        ("allow", "ask", "ask"),
        ("ask", "allow", "ask"),
        ("deny", "allow", "deny"),
        ("allow", "allow", "allow"),
    ],
)
def test_a_project_may_forbid_and_not_permit(own: str, near: str, verdict: str, tmp_path: Path, write: Write) -> None:
    write(OWN, rule("pay", own))
    write(NEAR, rule("pay", near))
    assert judged(tmp_path, "pay").verdict == verdict


def test_a_project_cannot_take_an_approval_back_from_a_user_without_a_policy(tmp_path: Path, write: Write) -> None:
    write(NEAR, rule("pay", "allow") + rule("send", "deny", 'name = "no mail"') + '[policy_default]\nwrite = "allow"\n')
    assert judged(tmp_path, "pay", approval=True).verdict == "ask"
    assert judged(tmp_path, "pay").verdict == "allow"
    assert judged(tmp_path, "send") == Ruling("deny", "no mail (evener.toml)", "The rule 'no mail (evener.toml)' says 'deny'.")


def test_a_trusted_project_has_the_first_word(tmp_path: Path, write: Write) -> None:
    write(OWN, 'trusted = ["~/p"]\n' + rule("*", "deny") + '[policy_default]\nread = "ask"\nwrite = "deny"\n')
    write(NEAR, rule("pay", "allow") + '[policy_default]\nread = "allow"\n')
    assert judged(tmp_path, "pay").verdict == "allow"
    assert judged(tmp_path, "send").rule == "rule 1 of config.toml"
    found = policy(tmp_path)
    assert found is not None
    assert (found.default.read, found.default.write, found.also) == ("allow", "deny", ())


def test_two_rules_of_one_name_in_files_that_count_alike_are_an_error(tmp_path: Path, write: Write) -> None:
    write(OWN, 'trusted = ["~/p"]\n' + rule("a", "deny", 'name = "x"'))
    write(NEAR, rule("b", "deny", 'name = "x"'))
    with pytest.raises(BadRow, match=r"evener\.toml.*Two rules are called 'x'"):
        policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (rule("pay", "alow"), "policy rule 1"),
        ("policy = 3", "expected a list of tables"),
        ('[policy_default]\nwritte = "deny"', "Did you mean 'write'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str, tmp_path: Path, write: Write) -> None:
    write(OWN, text)
    with pytest.raises(BadRow) as caught:
        policy(tmp_path)
    assert said in str(caught.value)
    assert "config.toml" in str(caught.value)


def test_a_policy_that_is_trusted_less_explains_itself(tmp_path: Path, write: Write) -> None:
    write(OWN, rule("*", "allow", 'name = "all"'))
    write(NEAR, rule("look", "deny") + rule("pay", "deny"))
    found = policy(tmp_path)
    assert found is not None
    assert "is denied by 'rule 2 of evener.toml'" in found.explain(ToolCall.of("c", "pay", {}))
