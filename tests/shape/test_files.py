"""A file is one idea, opened by a docstring, and finished."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.each import each
from tests.shape.tree import Source, sources

MOST_FILES = 15
"""Python files in one folder: more cannot be taken in at a glance."""
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def undocumented(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield f"{source.where}: no docstring"


def unfinished(source: Source) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        stub = token.type == tokenize.NAME and token.string == "NotImplementedError"
        if stub or (token.type in (tokenize.COMMENT, tokenize.STRING) and UNFINISHED.search(token.string)):
            yield f"{source.where}:{token.start[0]}: {token.string.strip()}"


def bare_folders(files: Iterable[Source]) -> list[str]:
    """Folders with code but without an `__init__.py`: they would be importable, yet no package."""
    places = [PurePosixPath(source.where) for source in files]
    packages = {place.parent for place in places if place.name == "__init__.py"}
    return sorted({str(place.parent) for place in places} - {str(package) for package in packages})


def crowded(files: Iterable[Source]) -> list[str]:
    """Folders with more Python files than a newcomer can take in."""
    counted = Counter(str(PurePosixPath(source.where).parent) for source in files)
    return [f"{folder}: {many} files" for folder, many in sorted(counted.items()) if many > MOST_FILES]


GATES = (undocumented, unfinished)


@each("source", sources(), lambda source: source.where)
def test_a_file_is_documented_and_finished(source: Source) -> None:
    assert [hit for gate in GATES for hit in gate(source)] == []


def test_every_folder_is_a_package() -> None:
    assert bare_folders(sources()) == []


def test_no_folder_is_crowded() -> None:
    assert crowded(sources()) == []


@pytest.mark.parametrize(("many", "found"), [(15, []), (16, ["evener/wire: 16 files"])])
def test_a_crowded_folder_is_caught(many: int, found: list[str]) -> None:
    below = [Source(f"evener/wire/gemini/part{number}.py", "") for number in range(9)]
    assert crowded([*below, *(Source(f"evener/wire/part{number}.py", "") for number in range(many))]) == found


def test_a_bare_folder_is_caught() -> None:
    files = [Source("evener/__init__.py", ""), Source("evener/wire/sse.py", "")]
    assert bare_folders(files) == ["evener/wire"]


@pytest.mark.parametrize("text", ["", "x = 1", "x = 1\n'''Too late.'''", "# A comment is none."])
def test_a_missing_docstring_is_caught(text: str) -> None:
    assert len(list(undocumented(Source("evener/x.py", text)))) == 1


@pytest.mark.parametrize("text", ["x = 1  # TODO: more", "'''FIXME'''", "def f():\n    raise NotImplementedError", "# XXX"])
def test_unfinished_code_is_caught(text: str) -> None:
    assert len(list(unfinished(Source("evener/x.py", text)))) == 1


def test_finished_code_passes() -> None:
    assert list(unfinished(Source("evener/x.py", "todo = NotImplemented  # a todo list"))) == []
