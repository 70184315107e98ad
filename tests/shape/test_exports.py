"""What is public is said once, in a literal sorted `__all__`, and does not change unseen."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.shape.freeze_api import FROZEN, exports, public_api
from tests.shape.tree import Source, sources


def order(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    """Constants, classes, functions, each in natural order: the order that the linter keeps."""
    kind = 0 if re.fullmatch(r"[A-Z][A-Z0-9_]+", name) else 1 if name[:1].isupper() else 2
    natural = [(0, int(piece)) if piece.isdigit() else (1, piece) for piece in re.findall(r"\d+|\D+", name)]
    return kind, natural


def untidy(source: Source) -> Iterator[str]:
    """An `__all__` that is not one literal sorted list without repetition."""
    stores = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id == "__all__" and isinstance(node.ctx, ast.Store)
    ]
    uses = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == "__all__"]
    if not stores:
        return
    names = exports(source.tree)
    if names is None or len(uses) > 1:
        yield f"{source.where}: __all__ is not one literal"
    elif names != sorted(set(names), key=order):
        yield f"{source.where}: __all__ is not sorted; expected {sorted(set(names), key=order)}"


def unlisted(source: Source) -> Iterator[str]:
    """A package that offers names of its own without an `__all__`."""
    if not source.is_package or exports(source.tree) is not None:
        return
    offered = [name for node in source.tree.body for name in offers(node, source.module) if not name.startswith("_")]
    if offered:
        yield f"{source.where}: no __all__, yet it offers {', '.join(offered)}"


def offers(node: ast.stmt, package: str) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.ImportFrom(module=module, names=names, level=level) if level or f"{module}.".startswith(f"{package}."):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def test_every_list_of_exports_is_literal_and_sorted() -> None:
    assert [hit for source in sources() for hit in untidy(source)] == []


def test_every_package_that_exports_says_what() -> None:
    assert [hit for source in sources() for hit in unlisted(source)] == []


@pytest.mark.parametrize("package", [source for source in sources() if source.is_package], ids=lambda s: s.module)
def test_every_exported_name_exists(package: Source) -> None:
    module = import_module(package.module)
    assert [name for name in exports(package.tree) or [] if not hasattr(module, name)] == []


def test_the_public_api_is_the_frozen_one() -> None:
    frozen = FROZEN.read_text(encoding="utf-8").split()
    assert public_api() == frozen, "meant? then run: python tests/shape/freeze_api.py"


@pytest.mark.parametrize(
    "text",
    [
        '__all__ = ["b", "a"]',
        '__all__ = ["a", "a"]',
        '__all__ = ["a"] + other.__all__',
        '__all__ = [name for name in ("a", "b")]',
        '__all__ = ["a"]\n__all__ += ["b"]',
        '__all__ = ["a"]\n__all__.append("b")',
        '__all__ = ["Ask", "CODECS"]',
        '__all__ = ["decode", "Ask"]',
    ],
)
def test_an_untidy_list_is_caught(text: str) -> None:
    assert len(list(untidy(Source("evener/wire/__init__.py", text)))) == 1


@pytest.mark.parametrize("text", ["", '__all__ = ["CODECS", "Ask", "Codec", "decode"]', '__all__: list[str] = ["a"]'])
def test_a_tidy_list_passes(text: str) -> None:
    assert list(untidy(Source("evener/wire/__init__.py", text))) == []


@pytest.mark.parametrize(
    "text", ["from .sse import parse", "from evener.wire.sse import parse", "def parse(): ...", "LIMIT = 1"]
)
def test_an_unlisted_export_is_caught(text: str) -> None:
    assert len(list(unlisted(Source("evener/wire/__init__.py", text)))) == 1


@pytest.mark.parametrize("text", ["import re", "_limit = 1", 'from .sse import parse\n__all__ = ["parse"]'])
def test_a_package_without_exports_or_with_a_list_passes(text: str) -> None:
    assert list(unlisted(Source("evener/wire/__init__.py", text))) == []
