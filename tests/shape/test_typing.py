"""Closed unions instead of guessing: no getattr or hasattr in the pure core, and no Any in values and wires."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.shape.tree import Source, sources


def guesses(source: Source) -> Iterator[str]:
    """Yield each place that asks whether a value has an attribute. A field that a table names is none: it must be there."""
    tabled = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id="getattr") as called, args=[_, ast.Name() | ast.Attribute()]):
                tabled.add(called)
            case ast.Name(id=("getattr" | "hasattr") as name) if node not in tabled:
                yield f"{source.where}:{node.lineno}: uses {name}"


def anys(source: Source) -> Iterator[str]:
    """Any by name, by attribute, and inside a quoted annotation."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Name(id="Any") | ast.Attribute(attr="Any"):
                yield f"{source.where}:{node.lineno}: Any"
            case (
                ast.arg(annotation=ast.Constant(value=str(text))) | ast.AnnAssign(annotation=ast.Constant(value=str(text)))
            ) if re.search(r"\bAny\b", text):
                yield f"{source.where}:{node.lineno}: Any"
            case ast.FunctionDef(returns=ast.Constant(value=str(text))) if re.search(r"\bAny\b", text):
                yield f"{source.where}:{node.lineno}: Any"


def test_transcript_wire_and_loop_match_instead_of_guessing() -> None:
    assert [hit for source in sources("transcript", "wire", "loop") for hit in guesses(source)] == []


def test_transcript_and_wire_are_free_of_any() -> None:
    assert [hit for source in sources("transcript", "wire") for hit in anys(source)] == []


def test_a_field_that_a_table_names_is_no_guess() -> None:
    text = "for row in ROWS:\n    getattr(settings, row.name)"
    assert list(guesses(Source("evener/wire/request.py", text))) == []


@pytest.mark.parametrize(
    "text", ["getattr(x, 'id', None)", "getattr(x, name, None)", "if hasattr(x, 'id'): ...", "map(getattr, xs, ys)"]
)
def test_a_guess_is_caught(text: str) -> None:
    assert len(list(guesses(Source("evener/wire/sse.py", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from typing import Any\nx: Any = 1",
        "import typing\nx: typing.Any = 1",
        "def f(x: dict[str, Any]): ...",
        "def f() -> Any: ...",
        "def f(x: 'list[Any]'): ...",
        "def f() -> 'Any': ...",
        "x: 'Any' = 1",
        "Json = dict[str, Any]",
    ],
)
def test_an_any_is_caught(text: str) -> None:
    assert len(list(anys(Source("evener/wire/sse.py", text)))) == 1


def test_any_as_a_word_passes() -> None:
    text = '"""Any chunking gives the same deltas."""\nif any(x): ...  # Any\nANY = "Any"'
    assert list(anys(Source("evener/wire/sse.py", text))) == []
