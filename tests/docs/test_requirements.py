"""docs/requirements.md is up to date, every number that a test names exists, and what is built is shown by a test."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.shape.tree import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import requirements as req  # a script, not a package

SECONDS = 240
DOCUMENT = ROOT / "docs" / "requirements.md"
TOTALS = {"S0": 54, "S1": 32, "S2": 82, "S3": 28, "S4": 31}
"""How many numbers each source document has."""

BUILT = {
    "talking to models": "S0.35, S0.42-S0.50, S1.4-S1.16, S1.26, S2.36-S2.40, S4.8-S4.12, S4.23-S4.25",
    "the loop": (
        "S0.47-S0.54, S1.1-S1.6, S1.14, S1.17-S1.20, S1.28, S1.30, S1.32, S2.1-S2.5, S2.7-S2.35, S4.14-S4.16, S4.22, "
        "S4.26-S4.28"
    ),
    "control": ("S1.8, S1.18, S1.29, S2.6, S2.10, S2.42-S2.44, S2.49-S2.61, S2.68-S2.73, S2.76, S2.78, S4.17-S4.21"),
}
"""What each part of the work that is done was to bring."""

OWED: dict[str, str] = {}
"""What of it is still missing, and why."""


read_claims = req.claims


@cache
def found() -> list[req.Claim]:
    return read_claims(ROOT / "tests")


@cache
def shown() -> dict[str, list[str]]:
    return req.covering(found())


Run = Callable[..., tuple[int | str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the script here: what it ends with and what it prints. The tests of this tree are read once."""
    monkeypatch.setattr(req, "claims", lambda folder: found() if folder == req.TESTS else read_claims(folder))

    def run(*arguments: str) -> tuple[int | str, str]:
        code: int | str
        try:
            code = req.main(arguments)
        except SystemExit as end:
            code = str(end.code)
        return code, capsys.readouterr().out

    return run


def named(source: str) -> list[tuple[str, str]]:
    return [(claim.number, claim.test) for claim in req.named(source, "test_x.py")]


def test_the_document_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "requirements.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_number_that_a_test_names_exists() -> None:
    assert len(found()) > 300
    assert req.unknown(found()) == []


def test_the_table_has_every_number_of_every_source_once_and_in_order() -> None:
    assert {group.name: list(group.asks) for group in req.groups()} == {
        name: [f"{name}.{number}" for number in range(1, total + 1)] for name, total in TOTALS.items()
    }
    phrases = [phrase for group in req.groups() for phrase in group.asks.values()]
    assert all(0 < len(phrase) <= 80 for phrase in phrases)
    assert sum(TOTALS.values()) == 227


@pytest.mark.parametrize("part", BUILT)
def test_what_was_to_be_built_is_shown_by_a_test(part: str) -> None:
    assert [number for number in req.numbers(BUILT[part]) if number not in shown() and number not in OWED] == []


def test_what_is_owed_is_still_owed() -> None:
    assert [number for number in OWED if number in shown()] == []
    assert set(OWED) <= set(req.themes())
    assert [number for number in req.lacking() if number not in shown()] == []


def test_the_document_names_tests_that_exist_and_gaps_with_their_theme() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    covered = sum(number in shown() for group in req.groups() for number in group.asks)
    planted = req.mutants()
    assert f"| all | {covered} | 227 | {sum(planted.values())} |" in text
    assert sum(planted.values()) >= 60
    assert [number for number in planted if number not in shown()] == []  # what is taken away is claimed
    assert text.count("| not yet: ") == 227 - covered
    assert text.count("<br>not yet: ") == len(req.lacking())
    assert all(f"| not yet: {theme} |" in text for number, theme in req.themes().items() if number not in shown())


# How numbers are found.


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("S2.6, S2.68.", ["S2.6", "S2.68"]),
        ("(S2.68-S2.70)", ["S2.68", "S2.69", "S2.70"]),
        ("S0.29 to S0.31", ["S0.29", "S0.30", "S0.31"]),
        ("C12, S3.11-S3.12", ["S3.11", "S3.12"]),
        ("S3.9-S4.1", ["S3.9", "S4.1"]),
        ("AS2.6, XS2.7 and 2.8", []),
    ],
)
def test_a_text_names_numbers_and_ranges(text: str, numbers: list[str]) -> None:
    assert list(req.numbers(text)) == numbers


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("test_s2_6_the_first_rule_decides", ["S2.6"]),
        ("test_s1_18_s1_29_hosted", ["S1.18", "S1.29"]),
        ("test_s2_51_to_54_final", ["S2.51", "S2.52", "S2.53", "S2.54"]),
        ("test_runs_2_6_times", []),
    ],
)
def test_a_name_names_numbers_too(name: str, numbers: list[str]) -> None:
    assert list(req.numbers_in_name(name)) == numbers


def test_a_number_counts_for_the_test_it_stands_in_or_right_above() -> None:
    source = '''"""Of the file: S0.1."""

# Of a section: S0.2

# Right above: S0.3
@mark(["S0.9"])  # beside: S0.4
def test_it() -> None:
    """S0.5."""
    assert x == "S0.9"  # within: S0.6


def no_test() -> None:
    """S0.7."""
'''
    assert named(source) == [
        *((f"S0.{number}", "test_it") for number in (3, 4, 5, 6)),
        ("S0.1", ""),
        ("S0.2", ""),
    ]


def test_a_test_that_names_few_numbers_is_shown_first() -> None:
    wide, narrow = (
        (req.Claim("S0.1", "a.py", "test_wide"), req.Claim("S0.2", "a.py", "test_wide")),
        req.Claim("S0.1", "b.py", "t"),
    )
    assert req.covering([*wide, narrow]) == {"S0.1": ["b.py::t", "a.py::test_wide"], "S0.2": ["a.py::test_wide"]}


# Twins.


@pytest.mark.parametrize(
    ("old", "new"),
    [("| S0.1 |", "| S0.01 |"), ("not yet: a", "`tests/test_x.py::test_x` a"), ("| all | ", "| all | 1")],
)
def test_a_stale_table_is_caught_and_mended(old: str, new: str, tmp_path: Path, run: Run) -> None:
    page, fresh = tmp_path / "requirements.md", req.page(found())
    page.write_text(fresh.replace(old, new, 1), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != fresh
    assert run("--check", str(page)) == (1, "requirements.md is stale. Run `make docs`.\n")
    assert run(str(page)) == (0, "")
    assert page.read_text(encoding="utf-8") == fresh


@pytest.mark.parametrize("number", ["S0.55", "S1.33", "S5.1", "S2.0"])
@pytest.mark.parametrize("where", ["the file", "a test", "a name"])
def test_a_number_that_does_not_exist_is_named(number: str, where: str, tmp_path: Path, run: Run) -> None:
    sources = {
        "the file": f'"""{number}."""\n',
        "a test": f'def test_x() -> None:\n    """{number}."""\n',
        "a name": f"def test_{number.lower().replace('.', '_')}_x() -> None:\n    pass\n",
    }
    (tmp_path / "test_x.py").write_text(sources[where], encoding="utf-8")
    told, _ = run(str(tmp_path / "requirements.md"), str(tmp_path))
    assert f"names {number}" in str(told)
    assert not (tmp_path / "requirements.md").exists()


def test_a_gap_without_a_theme_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "requirements.py"), str(tmp_path / "requirements.md"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert done.returncode == 1
    assert "No test names S0.1, and docs/requirements.toml gives it no theme." in done.stderr
