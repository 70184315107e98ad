"""Docstrings of functions say what to expect: a verb comes first, and a boolean says when it is true."""

import ast
from collections.abc import Iterator

import pytest

from tests.shape.tree import Source, sources

NO_VERBS = frozenset(
    "A All An Any Every How If It Its No On That The There These This What When Where Whether Which Who With".split()
)
PROPERTIES = ("property", "cached_property", "setter")


def functions(source: Source) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Functions with a docstring, properties aside: those are named like values."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not any(ast.unparse(one).endswith(PROPERTIES) for one in node.decorator_list):
                yield node, text


def without_verb(source: Source) -> Iterator[str]:
    for node, text in functions(source):
        if text.split()[0].rstrip(",.:;") in NO_VERBS:
            yield f"{source.where}: {node.name}: {text.splitlines()[0]}"


def vague_booleans(source: Source) -> Iterator[str]:
    """Docstrings of functions that return a bool, which open with "Return" and do not say when it is true or false."""
    for node, text in functions(source):
        plain = node.returns is not None and ast.unparse(node.returns) == "bool"
        if plain and text.startswith(("Return ", "Whether ")) and "True" not in text and "False" not in text:
            yield f"{source.where}: {node.name}: {text.splitlines()[0]}"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    assert [found for source in sources() for found in without_verb(source)] == []


def test_booleans_say_when_they_are_true() -> None:
    assert [found for source in sources() for found in vague_booleans(source)] == []


@pytest.mark.parametrize("text", ["The head of a thread.", "What was said.", "Whether it is there."])
def test_a_docstring_without_a_verb_is_caught(text: str) -> None:
    assert len(list(without_verb(Source("evener/bad.py", f'def head() -> str:\n    """{text}"""\n')))) == 1


def test_a_vague_boolean_is_caught() -> None:
    assert list(vague_booleans(Source("evener/bad.py", 'def fits() -> bool:\n    """Return the fit."""\n')))
