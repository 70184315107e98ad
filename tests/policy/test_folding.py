"""Rules that deny or ask see through case, invisible characters and look-alikes; rules that allow keep to what is written."""

import sys
from unicodedata import category

import pytest

from evener.policy import Condition, Exactly, Glob, Regex, Within, matchers
from tests.policy.calls import verdicts

SEEN_THROUGH: tuple[tuple[Condition, str], ...] = (
    (Regex("Drop .*"), "DROP TABLE"),
    (Regex("Drop .*"), "drop table"),
    (Regex("DROP .*"), "dRoP tAbLe"),
    (Regex("[A-Z]+ TABLE"), "drop table"),
    (Regex("(?:Drop|Truncate)\\s+Table \\w+"), "TRUNCATE\u00a0TABLE users"),
    (Regex("drop  table"), "DROP TABLE"),
    (Regex("straße"), "STRASSE"),
    (Regex("STRASSE"), "straße"),
    (Regex("École.*"), "école"),
    (Regex("école"), "E\u0301COLE"),
    (Regex("\uff24\uff32\uff2f\uff30"), "drop"),
    (Regex("drop"), "\uff24\uff32\uff2f\uff30"),
    (Regex("kill"), "\u212aILL"),
    (Regex("\u03c3"), "\u03c2"),
    (Regex("drop table"), "DROP\0TABLE"),
    (Regex("drop table"), "D\u034fROP TA\ufe0fBLE"),
    (Glob("Rm *"), "rM x"),
    (Glob("rm *"), "r\0m x"),
    (Glob("rm *"), "rm\0x"),
    (Glob("rm *"), "rm\u2800x"),
    (Glob("straße"), "STRASSE"),
    (Exactly("prod"), "PR\u034fOD"),
    (Exactly("prod"), "prod\0"),
    (Exactly("prod"), "\ufe0fprod"),
    (Exactly("drop table"), "drop\x7ftable"),
    (Exactly("drop table"), "drop\u3164table"),
    (Within(("secrets/**",)), "secrets/a\u034fb"),
    (Within(("secrets/**",)), "secr\ufe0fets/a"),
    (Within(("secrets/**",)), "SECRETS/a"),
)


@pytest.mark.parametrize(("condition", "value"), SEEN_THROUGH)
def test_a_rule_that_denies_sees_through_it_and_one_that_allows_does_not(condition: Condition, value: str) -> None:
    assert verdicts({"text": condition}, {"text": value}) == (False, True)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        (Regex("Drop .*"), "drip table"),
        (Regex("\\D+"), "123"),
        (Regex("\\S+"), "a b"),
        (Exactly("prod"), "pr\u043ed"),
        (Glob("rm *"), "rn x"),
    ],
)
def test_another_text_is_another_text(condition: Condition, value: str) -> None:
    assert verdicts({"text": condition}, {"text": value}) == (False, False)


def test_every_character_that_is_shown_as_nothing_is_folded_away() -> None:
    """By Unicode's list of default-ignorable code points, and by the categories of control and format characters."""
    assert sum(last - first + 1 for first, last in matchers.IGNORABLE) == 4174
    listed = {code for first, last in matchers.IGNORABLE for code in range(first, last + 1)}
    controls = {code for code in range(sys.maxunicode + 1) if category(chr(code)) in ("Cc", "Cf") and not chr(code).isspace()}
    for code in sorted(listed | controls):
        assert matchers.is_invisible(chr(code)), hex(code)
        assert matchers.fold_text(f"Pr{chr(code)}od") == "prod", hex(code)
    assert not any(matchers.is_invisible(char) for char in " \t\na\u0301ß漢")
