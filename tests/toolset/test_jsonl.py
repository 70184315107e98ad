"""Search in JSON lines: paths, conditions, projection, snippets, limits."""

import json
from pathlib import Path

import pytest

from evener.toolset.jsonl import JsonlTools
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
    assert shown.endswith("[1 lines are no JSON]")


def test_fields_snippets_and_limits(caller: Caller) -> None:
    """S2.74."""

    def search(**more: object) -> str:
        return caller.call("search_jsonl", {"path": "rows.jsonl", **more}).text

    assert search(fields=["user.name", "items.*.price"], limit=1).splitlines() == [
        '1: {"user.name":"Ann","items.*.price":[5,50]}',
        "[3 more rows fit; 1 lines are no JSON]",
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
