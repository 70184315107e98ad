"""Search in JSON lines: paths, conditions, projection, snippets, limits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.toolset import jsonl
from evener.toolset.jsonl import JsonlTools, RowCondition
from evener.toolset.shell.sandbox import bwrap_works, find_program, landlock_works
from tests.toolset.calls import Caller

ROWS: list[object] = [
    {"user": {"name": "Ann"}, "items": [{"price": 5}, {"price": 50}], "at": "2026-01-05", "note": "please call back soon"},
    {"user": {"name": "Bob"}, "items": [{"price": 7}], "at": "2026-02-01T12:00:00Z", "paid": True},
    {"user": {"name": "Cy\u00e9"}, "items": [], "at": 1_780_000_000, "paid": 1, "tags": ["a", "b"]},
    ["a row that is a list"],
]

CASES: list[tuple[dict[str, object], list[int]]] = [
    ({"field": "user.name", "value": "Ann"}, [1]),
    ({"field": "user.name", "operator": "not_equals", "value": "Ann"}, [2, 3, 5]),
    ({"field": "user.name", "operator": "contains", "value": "O"}, [2]),
    ({"field": "tags", "operator": "contains", "value": "b"}, [3]),
    ({"field": "user.name", "operator": "matches", "value": "^(Ann|Bob)$"}, [1, 2]),
    ({"field": "items.*.price", "operator": "least", "value": 7}, [1, 2]),
    ({"field": "items.0.price", "operator": "most", "value": 5}, [1]),
    ({"field": "at", "operator": "after", "value": "2026-02-01"}, [2, 3]),
    ({"field": "at", "operator": "before", "value": "2026-01-31T23:59:59+00:00"}, [1]),
    ({"field": "paid", "operator": "exists"}, [2, 3]),
    ({"field": "paid", "operator": "missing"}, [1, 5]),
    ({"field": "paid", "value": True}, [2]),
    ({"field": "paid", "value": 1}, [3]),
    ({"field": "0", "operator": "contains", "value": "list"}, [5]),
]


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    lines = [json.dumps(row) for row in ROWS]
    lines.insert(3, "{this is no JSON")
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return Caller(JsonlTools(tmp_path).tools)


def numbers(text: str) -> list[int]:
    return [int(line.partition(":")[0]) for line in text.splitlines() if line[0].isdigit()]


@pytest.mark.parametrize(("condition", "found"), CASES, ids=[json.dumps(case[0]) for case in CASES])
def test_a_condition_finds_its_rows(condition: dict[str, object], found: list[int], caller: Caller) -> None:
    """S2.74."""
    shown = caller.call("search_jsonl", {"path": "rows.jsonl", "conditions": [condition]}).text
    assert numbers(shown) == found


TEXTS = (
    "a",
    "ann",
    "Ann",
    "A\u212a",
    "stra\u00dfe",
    "STRASSE",
    "x/y",
    'q"q',
    "\n",
    "\\",
    "\U0001f600",
    "",
    "1",
    "caf\u00e9",
    "\ufb01",
)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """Rows as different writers write them: with surplus escapes, broken, empty, with CR LF, after a byte order mark."""
    texts = st.sampled_from(TEXTS)
    inner = st.one_of(texts, st.integers(0, 9), st.booleans(), st.none(), st.lists(texts, max_size=2))
    rows = draw(st.lists(st.dictionaries(st.sampled_from(("a", "b.c", "name", "\u00e9")), inner, max_size=3), max_size=8))
    lines = []
    for row in rows:
        text = json.dumps(row, ensure_ascii=draw(st.booleans()))
        text = text.replace("/", "\\/") if draw(st.booleans()) else text
        text = re.sub("[an]", lambda hit: f"\\u{ord(hit[0]):04X}", text) if draw(st.booleans()) and ": n" not in text else text
        lines.append(draw(st.sampled_from((text, text, text, text[:-1], "", " "))).encode())
    body = draw(st.sampled_from((b"\n", b"\r\n"))).join(lines)
    return draw(st.sampled_from((b"", b"\xef\xbb\xbf"))) + body + draw(st.sampled_from((b"", b"\n")))


CONDITIONS = st.fixed_dictionaries(
    {
        "field": st.sampled_from(("a", "name", "*", "a.0", "a.*", "\u00e9", "none")),
        "operator": st.sampled_from(("equals", "contains", "not_equals", "exists", "missing", "matches")),
        "value": st.sampled_from(TEXTS),
    }
)


def every_spelling(text: str) -> Iterator[str]:
    """Yield a text as JSON may write it."""
    plain = json.dumps(text, ensure_ascii=False)
    yield from (plain, json.dumps(text), plain.replace("/", "\\/"))
    units = text.encode("utf-16-be")
    yield '"' + "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2)) + '"'


def test_a_line_that_fits_is_never_left_out(tmp_path: Path) -> None:
    """S2.74. Each text, in each spelling, as a name and as a value, against each wanted one."""
    lines = [f"{{{name}: {value}}}" for text in TEXTS for value in every_spelling(text) for name in every_spelling("k\u00e9y")]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tools, fits = JsonlTools(tmp_path), 0
    for operator in ("equals", "contains", "exists"):
        for text in TEXTS:
            wanted = [RowCondition("k\u00e9y", operator, text)]
            found = numbers_and_rows(tools.search_jsonl("rows.jsonl", wanted, limit=1_000))
            assert found == shown_without_needles(tools, wanted), (operator, text)
            fits += len(found)
    assert fits > 1_000


def spell(condition: dict[str, str]) -> dict[str, str]:
    quoted = condition["operator"] == "matches"
    return {**condition, "value": "".join(f"\\x{{{ord(char):x}}}" for char in condition["value"])} if quoted else condition


def test_leaving_out_lines_that_cannot_fit_changes_no_result(tmp_path: Path) -> None:
    """S2.74. Against a search that parses every line; each engine must give the same text."""
    if not find_program("rg"):
        pytest.skip("ripgrep is not installed")
    path, plain, found = tmp_path / "rows.jsonl", JsonlTools(tmp_path, ripgrep_from=None), [0]

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(json_lines(), st.lists(CONDITIONS.map(spell), min_size=1, max_size=2))
    def compare(body: bytes, conditions: list[dict[str, str]]) -> None:
        path.write_bytes(body)
        wanted = msgspec.convert(conditions, list[RowCondition])
        by_ripgrep = JsonlTools(tmp_path, ripgrep_from=0).search_jsonl("rows.jsonl", wanted)
        assert by_ripgrep == plain.search_jsonl("rows.jsonl", wanted)
        every = shown_without_needles(plain, wanted)
        assert numbers_and_rows(by_ripgrep) == every
        found[0] += bool(every)

    compare()
    assert found[0] >= 5  # of them some had rows


def numbers_and_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[0].isdigit()]


def shown_without_needles(tools: JsonlTools, wanted: list[RowCondition]) -> list[str]:
    """What is found when every line is parsed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evener.toolset.jsonl.needle_of", lambda _: "")
        return numbers_and_rows(tools.search_jsonl("rows.jsonl", wanted, limit=1_000))


def test_ripgrep_finds_the_lines_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.74. Few of its lines are parsed; long ones keep the numbers right."""
    if not find_program("rg") or (landlock_works() and bwrap_works()):
        pytest.skip("ripgrep or a sandbox is not there")
    long = json.dumps({"name": "x" * (5 << 20)})
    (tmp_path / "rows.jsonl").write_text("\n".join([long, *(f'{{"name": "n{number}"}}' for number in range(50_000))]))
    parsed: list[bytes] = []
    lines_at = jsonl._lines_at

    def note(line: tuple[int, bytes]) -> tuple[int, bytes]:
        parsed.append(line[1])
        return line

    monkeypatch.setattr(jsonl, "_lines_at", lambda *given: map(note, lines_at(*given)))
    wanted = [RowCondition("name", "equals", "n49999")]
    shown = JsonlTools(tmp_path).search_jsonl("rows.jsonl", wanted)
    assert shown == '50001: {"name":"n49999"}'
    assert len(parsed) == 1
    assert (
        JsonlTools(tmp_path, ripgrep_from=None).search_jsonl("rows.jsonl", [RowCondition("name", "equals", "n49999")]) == shown
    )


def test_fields_snippets_and_limits(caller: Caller) -> None:
    """S2.74."""

    def search(**more: object) -> str:
        return caller.call("search_jsonl", {"path": "rows.jsonl", **more}).text

    assert search(fields=["user.name", "items.*.price"], limit=1).splitlines() == [
        '1: {"user.name":"Ann","items.*.price":[5,50]}',
        "[3 more rows fit; 1 lines that may fit are no JSON]",
    ]
    assert search(snippet="call").splitlines()[0] == "1: note: please call back soon"
    assert search(conditions=[{"field": "none", "operator": "exists"}]).startswith("No row fits.")


def test_wrong_conditions_say_what_to_do(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to("/etc/passwd")
    for condition, told in (
        ({"field": "a", "operator": "least", "value": "x"}, "needs a number"),
        ({"field": "a", "operator": "after", "value": "soon"}, "needs a date"),
        ({"field": "a", "operator": "matches", "value": "("}, "cannot be used"),
    ):
        result = caller.call("search_jsonl", {"path": "rows.jsonl", "conditions": [condition]})
        assert told in result.text
        assert result.retry
    assert "leads out" in caller.call("search_jsonl", {"path": "away"}).text
