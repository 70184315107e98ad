"""What fits a condition, and what is too tricky to say. (S1.8, S1.14) The tables are the documentation of the tricks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.errors import UsageError
from evener.policy import Between, Exactly, Given, Glob, OneOf, Regex, Within
from evener.policy.matchers import MISSING, Matcher, fits, judge

TEXTS = [
    (Glob("git *"), "git push", "yes"),
    (Glob("git *"), "svn push", "no"),
    (Glob("git *"), "GIT push", "unsure"),
    (Glob("git *"), "git  push", "yes"),
    (Glob("git push"), "git  push", "unsure"),
    (Glob("git push"), " git\tpush\n", "unsure"),
    (Glob("git *"), "git push\nrm -rf .", "unsure"),  # a wildcard meets no line break
    (Glob("git *"), "git push\u2028rm -rf .", "unsure"),
    (Glob("a\n*"), "a\nb", "yes"),
    (Glob("git push"), "git pu\u200bsh", "unsure"),
    (Glob("git push"), "\uff47\uff49\uff54 push", "unsure"),
    (Glob("git push"), "g\u0456t push", "no"),  # a letter of another script is another letter
    (Glob("caf\u00e9"), "cafe\u0301", "unsure"),
    (Glob("[ab]?"), "bz", "yes"),
    (Glob("*"), 5, "unsure"),
    (Glob("*"), ["git"], "unsure"),
    (Glob("*"), "x" * 100_001, "unsure"),
    (Regex("[a-z]+"), "abc", "yes"),
    (Regex("[a-z]+"), "abc1", "no"),
    (Regex("a|b"), "ab", "no"),
    (Regex("a|b"), "b\n", "unsure"),
    (Regex("drop .*"), "DROP table", "unsure"),
    (Regex("DROP .*"), "drop table", "unsure"),
    (Regex("drop .*"), "d\u00adrop table", "unsure"),
    (Regex(".*"), "x" * 9_000, "yes"),
    (Regex(".*"), "x" * 100_000, "yes"),
    (Regex(".*"), "x" * 100_001, "unsure"),
    (Regex(".*"), 1, "unsure"),
    (Exactly("GET"), "GET", "yes"),
    (Exactly("GET"), "get", "unsure"),
    (Exactly("GET"), "POST", "no"),
    (Exactly("*"), "x", "no"),
    (Exactly(5), 5, "yes"),
    (Exactly(5), 5.0, "yes"),
    (Exactly(5), 6, "no"),
    (Exactly(5), "5", "unsure"),
    (Exactly(5), " 5.0 ", "unsure"),
    (Exactly(5), "6", "no"),
    (Exactly(5), "five", "unsure"),
    (Exactly(1), True, "unsure"),
    (Exactly(True), 1, "unsure"),
    (Exactly(True), True, "yes"),
    (Exactly(True), False, "no"),
    (Exactly(True), "true", "unsure"),
    (Exactly("5"), 5, "unsure"),
    (Between(least=0, most=10), 10, "yes"),
    (Between(above=0, below=10), 10, "no"),
    (Between(above=100), 10**400, "yes"),
    (Between(above=100), "500", "unsure"),
    (Between(above=100), "5e2", "unsure"),
    (Between(above=100), "\uff15\uff10\uff10", "unsure"),
    (Between(above=100), "1_000", "unsure"),
    (Between(above=100), "50", "no"),
    (Between(above=100), "inf", "unsure"),
    (Between(above=100), "1" * 1_000, "unsure"),
    (Between(above=100), True, "unsure"),
    (Between(above=100), [500], "unsure"),
    (Given(), MISSING, "no"),
    (Given(), "", "yes"),
    (Given(False), MISSING, "yes"),
    (Given(False), 0, "no"),
    (OneOf((Glob("a"), Between(most=5))), 5, "yes"),
    (OneOf((Glob("a"), Glob("b"))), "B", "unsure"),
    (OneOf((Glob("a"), Glob("b"))), "c", "no"),
]


@pytest.mark.parametrize(("matcher", "value", "answer"), TEXTS, ids=lambda part: repr(part)[:50])
def test_a_value_fits_surely_perhaps_or_not(matcher: Matcher, value: object, answer: str) -> None:
    assert judge(matcher, value) == answer


@pytest.mark.parametrize(
    "matcher", [Glob("*"), Regex(".*"), Exactly(""), Between(most=0), Within(("**",)), OneOf((Glob("*"),))]
)
def test_what_is_missing_fits_nothing_that_wants_a_value(matcher: Matcher) -> None:
    assert judge(matcher, MISSING) == "no"


ROOT = "/home/me/project"

PATHS = [
    # path, pattern, root, answer
    ("src/a.py", "src/**", "", "yes"),
    ("src/deep/er/a.py", "src/**/*.py", "", "yes"),
    ("src/a.py", "src/**/*.py", "", "yes"),
    ("src", "src/**", "", "yes"),
    ("srcs/a.py", "src/**", "", "no"),
    ("src/deep/a.py", "src/*", "", "no"),
    ("./src//a.py", "src/*", "", "yes"),
    ("src/./a.py", "src/*", "", "yes"),
    ("src/x/../a.py", "src/*", "", "yes"),
    # stepping out
    ("src/../secret", "src/**", "", "no"),
    ("src/../../secret", "src/**", "", "unsure"),
    ("../secret", "**", "", "unsure"),
    ("src/../../project/src/a", "src/**", ROOT, "yes"),
    ("src/../../secret", "src/**", ROOT, "no"),
    ("../../../etc/passwd", "/etc/**", ROOT, "yes"),
    ("../../../../../etc/passwd", "/etc/**", ROOT, "unsure"),
    ("/etc/../etc/passwd", "/etc/*", "", "yes"),
    ("/../etc/passwd", "/etc/*", "", "unsure"),
    # relative and absolute
    ("/home/me/project/src/a", "src/**", ROOT, "yes"),
    ("/home/me/other/src/a", "src/**", ROOT, "no"),
    ("src/a", "/home/me/project/**", ROOT, "yes"),
    ("/somewhere/src/a", "src/**", "", "unsure"),
    ("/somewhere/lib/a", "src/**", "", "no"),
    ("passwd", "/etc/**", "", "unsure"),
    ("passwd", "/etc/group", "", "no"),
    ("a/[x]/b", "**", "/home/[x]", "yes"),
    ("/home/x/b", "**", "/home/[x]", "no"),
    # case and white space
    ("SRC/a.py", "src/**", "", "unsure"),
    ("/ETC/passwd", "/etc/**", "", "unsure"),
    ("src /a.py", "src/**", "", "unsure"),
    (" /etc/passwd", "lib/**", "", "unsure"),
    ("src/a.py ", "src/**", "", "unsure"),
    ("src/my file.py", "src/**", "", "yes"),
    ("etc./passwd", "lib/**", "", "unsure"),
    ("src/.../a", "src/**", "", "unsure"),
    ("src/.hidden", "src/**", "", "yes"),
    # other readers, other files
    ("src\\..\\secret", "src/**", "", "unsure"),
    ("C:/secret", "src/**", "", "unsure"),
    ("file:///etc/passwd", "src/**", "", "unsure"),
    ("~/.ssh/id", "src/**", "", "unsure"),
    ("~root/x", "src/**", "", "unsure"),
    ("src/~a", "src/**", "", "yes"),
    ("$HOME/x", "src/**", "", "unsure"),
    ("%HOME%/x", "src/**", "", "unsure"),
    ("src/%2e%2e/secret", "src/**", "", "unsure"),
    ("src/100% sure", "src/**", "", "yes"),
    ("src/*", "src/**", "", "unsure"),
    ("src/a\x00.py", "src/**", "", "unsure"),
    ("src/a\nb", "src/**", "", "unsure"),
    # look-alikes
    ("src\u2215..\u2215secret", "src/**", "", "unsure"),
    ("src/\uff0e\uff0e/secret", "src/**", "", "unsure"),
    ("src/\u2025/secret", "src/**", "", "unsure"),
    ("src/a\u202etxt.exe", "src/**", "", "unsure"),
    ("src/a\u200b", "src/**", "", "unsure"),
    ("src/a\u00a0b", "src/**", "", "unsure"),
    ("\uff53rc/a", "lib/**", "", "unsure"),
    ("src/\u00fc\u6f22\u0416.py", "src/**", "", "yes"),
    ("\u0455rc/a", "src/**", "", "no"),
    ("caf\u00e9/x", "cafe\u0301/*", "", "unsure"),
    # too much
    ("a/" * 300, "**", "", "unsure"),
    ("a" * 5_000, "**", "", "unsure"),
    ("", "src/**", "", "no"),
]


@pytest.mark.parametrize(("path", "pattern", "root", "answer"), PATHS, ids=[ascii(case[:2])[:60] for case in PATHS])
def test_a_path_is_normalised_by_its_words_and_doubted_where_it_is_tricky(
    path: str, pattern: str, root: str, answer: str
) -> None:
    assert fits(path, pattern, root=root) == answer
    assert judge(Within((pattern,), root), path) == answer


@given(st.lists(st.sampled_from(("..", ".", "", "src", "a", "b", "SRC", "etc")), max_size=12), st.booleans())
def test_law_a_path_that_surely_fits_lies_below(steps: list[str], absolute: bool) -> None:
    """By an oracle that follows the steps one by one, in a folder without links."""
    path = ("/" if absolute else "") + "/".join(steps)
    here: list[str] = [] if path.startswith("/") else ["home", "me"]
    for step in path.split("/"):
        if step == "..":
            here = here[:-1]
        elif step not in ("", "."):
            here = [*here, step]
    below = here[:3] == ["home", "me", "src"]
    answer = fits(path, "src/**", root="/home/me")
    if answer == "yes":
        assert below
    if below:
        assert answer in ("yes", "unsure")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Within(()),
        lambda: Within("src/**"),  # type: ignore[arg-type]
        lambda: Within(("src/../x",)),
        lambda: Within(("src\\x",)),
        lambda: Within(("src/**.py",)),
        lambda: Within(("",)),
        lambda: Within(("src",), "relative"),
        lambda: Within(("src",), "/a/../b"),
        lambda: Between(),
        lambda: Between(most=float("nan")),
        lambda: Exactly(float("inf")),
        lambda: Exactly(None),  # type: ignore[arg-type]
        lambda: Glob("x" * 1_001),
        lambda: Glob(5),  # type: ignore[arg-type]
        lambda: Regex("("),
        lambda: Regex("a)(b"),
        lambda: Regex("(?=a)"),
        lambda: Regex(r"(a)\1"),
        lambda: OneOf(()),
        lambda: OneOf((OneOf((Glob("a"),)),)),
        lambda: Given(1),  # type: ignore[arg-type]
    ],
)
def test_a_condition_that_cannot_be_meant_is_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        wrong()  # type: ignore[operator]
