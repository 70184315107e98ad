"""Rules in a config file: read strictly, with errors that say where, what and what to do."""

import tomllib

import pytest

from evener.errors import BadRow
from evener.policy import Between, Defaults, Exactly, Given, Glob, OneOf, Policy, Regex, Rule, Within, read_policy
from tests.policy.calls import decided

TEXT = """
[[policy]]
name = "no force"
tool = "git_*"
effect = ["write"]
verdict = "deny"
reason = "History is not rewritten here."
[policy.arguments]
branch = "release/*"
"options.force" = true
amount = { above = 0, most = 100 }
file = { path = ["src/**"] }
other = { path = "docs/*", root = "/elsewhere" }
message = { regex = "[A-Z][a-z ]+" }
exact = { value = "*" }
glob = { glob = "a*" }
absent = { given = false }
several = ["a", 1, true]

[[policy]]
tool = "*"
effect = "read"
verdict = "allow"

[policy_default]
write = "deny"
"""


def read(text: str, root: str = "") -> Policy:
    document = tomllib.loads(text)
    return read_policy(document.get("policy", []), file="evener.toml", default=document.get("policy_default"), root=root)


def test_a_file_says_what_python_says() -> None:
    expected = Policy(
        (
            Rule(
                name="no force",
                tool="git_*",
                effect=("write",),
                verdict="deny",
                reason="History is not rewritten here.",
                arguments={
                    "branch": Glob("release/*"),
                    "options.force": Exactly(True),
                    "amount": Between(above=0, most=100),
                    "file": Within(("src/**",), "/project"),
                    "other": Within(("docs/*",), "/elsewhere"),
                    "message": Regex("[A-Z][a-z ]+"),
                    "exact": Exactly("*"),
                    "glob": Glob("a*"),
                    "absent": Given(False),
                    "several": OneOf((Glob("a"), Exactly(1), Exactly(True))),
                },
            ),
            Rule(tool="*", effect=("read",), verdict="allow"),
        ),
        Defaults(write="deny"),
    )
    assert read(TEXT, "/project") == expected
    assert decided(read(TEXT), "anything").verdict == "deny"


def test_a_file_without_rules_has_the_defaults() -> None:
    assert read("") == Policy()


RULE = '[[policy]]\ntool = "*"\nverdict = "deny"\n'

WRONG = [
    ('policy = "deny"', "evener.toml, policy: expected a list of tables"),
    ("policy = [1]", "policy rule 1: expected a table, found a number"),
    ('[[policy]]\nverdict = "deny"', "rule 1, field 'tool': it is missing. Say which tools"),
    ('[[policy]]\ntool = "*"', 'rule 1, field \'verdict\': it is missing. Write "allow" or "deny" or "ask".'),
    ('[[policy]]\ntool = "*"\nverdict = "maybe"', "field 'verdict': this text does not fit. Write \"allow\""),
    ('[[policy]]\ntool = 5\nverdict = "deny"', "field 'tool': a number does not fit. Write a text in quotes."),
    ('[[policy]]\ntool = ""\nverdict = "deny"', "policy rule 1: rule.tool must be a pattern"),
    (RULE + "verdit = 1", "field 'verdit': there is no such field. Did you mean 'verdict'?"),
    (RULE + 'effect = "danger"', "field 'effect': this text does not fit. Write \"read\" or"),
    (RULE + "name = 1", "field 'name': a number does not fit"),
    (RULE + 'name = "mine"\nreason = 1', "policy rule 1 (mine), field 'reason': a number does not fit"),
    (RULE + "arguments = 1", "field 'arguments': expected a table"),
    (RULE + "arguments.a = 2026-01-01", "field 'arguments.a': a value of this kind does not fit"),
    (RULE + "arguments.a = []", "field 'arguments.a': oneOf needs at least one"),
    (RULE + "arguments.a = [[1]]", "field 'arguments.a': a list does not fit"),
    (RULE + "arguments.a = {}", "field 'arguments.a': it must have exactly one kind of condition"),
    (RULE + 'arguments.a = { glob = "a", regex = "b" }', "it must have exactly one kind of condition"),
    (RULE + 'arguments.a = { glob = "a", root = "/" }', "it must have exactly one kind of condition"),
    (RULE + "arguments.a = { least = 1, value = 2 }", "it must have exactly one kind of condition"),
    (RULE + "arguments.a.b = true", "field 'arguments.a.b': there is no such field. Known are value, glob"),
    (RULE + "arguments.a = { least = true }", "field 'arguments.a.least': a truth value does not fit. Write a number."),
    (RULE + "arguments.a = { given = 1 }", "field 'arguments.a.given': a number does not fit"),
    (RULE + "arguments.a = { value = [1] }", "field 'arguments.a.value': a list does not fit"),
    (RULE + 'arguments.a = { regex = "(?=x)" }', "field 'arguments.a.regex': the regular expression"),
    (RULE + 'arguments.a = { path = "../x" }', "field 'arguments.a.path': '../x' is no pattern"),
    (RULE + 'arguments.a = { path = "x", root = "y" }', "field 'arguments.a.path': within.root must be an absolute path"),
    (RULE + 'arguments."a..b" = 1', "policy rule 1: 'a..b' is no path"),
    (RULE + 'name = "x"\n' + RULE + 'name = "x"', "evener.toml, policy: two rules are called 'x'"),
    ('[policy_default]\nreed = "ask"', "policy_default, field 'reed': there is no such field. Did you mean 'read'?"),
    ('[policy_default]\nread = "no"', "policy_default, field 'read': this text does not fit"),
    ("policy_default = 1", "policy_default: expected a table"),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_not_understood_is_an_error_that_says_where(text: str, words: str) -> None:
    with pytest.raises(BadRow) as caught:
        read(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("evener.toml")
    assert str(caught.value).endswith(".")
