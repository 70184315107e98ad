"""Patterns of schemas take linear time and mean what they mean elsewhere. (S1.19, S1.20)"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import UsageError
from evener.policy.matchers import Regex, Unsupported, compile_pattern

CASES = [
    ("a", "cat", True),
    ("^a", "cat", False),
    ("^c.t$", "cat", True),
    ("^c.t$", "c\nt", False),
    ("^a$", "a\n", False),
    (r"^\d{3}-\d{4}$", "555-1234", True),
    (r"^\d{3}-\d{4}$", "555-123", False),
    (r"^\d+$", "\u0663", False),
    ("^[a-z0-9_-]{1,64}$", "a-tool_1", True),
    ("^[a-z0-9_-]{1,64}$", "", False),
    ("^[^@]+@[^@]+$", "a@b", True),
    ("^[^@]+@[^@]+$", "a@@b", False),
    ("^(?:a|bc)*d?$", "abcad", True),
    ("^(?<year>[0-9]{4})$", "2026", True),
    ("^(?P<year>[0-9]{4})$", "202", False),
    (r"\bcat\b", "a cat!", True),
    (r"\bcat\b", "concatenate", False),
    (r"^\S+\s\S+$", "two words", True),
    (r"^[\w.]+$", "a.b", True),
    (r"^\u0041\x42$", "AB", True),
    (r"^\ud83d\ude00$", "\U0001f600", True),
    (r"^[\uD83D\uDE00-\uD83D\uDE02]$", "\U0001f601", True),
    (r"^\ud83d\ude00$", "\U0001f601", False),
    (r"^\\ud83d\\ude00$", r"\ud83d\ude00", True),
    (r"^\$\{x\}$", "${x}", True),
    ("^a{2,}$", "aaa", True),
    ("^a{2,}$", "a", False),
    ("^a{0}$", "", True),
    ("^a{,2}$", "a{,2}", True),
    ("^(a+?)b*?$", "aab", True),
    (r"^\p{L}+$", "\u00e9t\u00e9", True),
    ("(?i)^a$", "A", True),
    ("^[a-]$", "-", True),
    ("", "anything", True),
    ("^$", "", True),
    ("^(|a)$", "", True),
]


@pytest.mark.parametrize(("pattern", "text", "fits"), CASES)
def test_a_pattern_fits_what_it_should(pattern: str, text: str, fits: bool) -> None:
    assert compile_pattern(pattern).occurs_in(text) is fits


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)", "(?!a)", "(?<=a)", r"(a)\1", "[]", "(", ")", "[a", "*a", "a**", "a++", "a{3,2}", "[z-a]", "a{9999}",
     "\\", r"\u12", r"\ud83d", r"\ud83dx", r"\ude00\ud83d", "\ud83d", "((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9}"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(Unsupported):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", "(?>a)"])
def test_what_the_engine_does_not_have_is_named(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be used in a rule: .* without look-around and back-references"):
        Regex(pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_that_explode_elsewhere_take_linear_time(pattern: str) -> None:
    assert compile_pattern(pattern).occurs_in("a" * 100_000 + "!") is False  # 2 ** 100,000 steps, if each way were tried


pieces = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(?:ab)", "a*", "b+", "a?", "(ab)*", "a{2}", "b{1,2}", "(a|ab)+", "|"]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(pieces, max_size=5).map("".join), st.text("abc", max_size=8), st.booleans())
def test_short_patterns_mean_what_they_mean_to_python(pattern: str, text: str, whole: bool) -> None:
    pattern = f"^(?:{pattern})$" if whole else pattern
    assert compile_pattern(pattern).occurs_in(text) is (re.search(pattern, text) is not None)
