"""The tree as the shape tests see it: source files as values, so that a twin can make up a bad one."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


@dataclass(frozen=True)
class Source:
    """A Python file. `where` is its path below src, as in `evener/wire/sse.py`."""

    where: str
    text: str

    @property
    def is_package(self) -> bool:
        return self.where.endswith("/__init__.py")

    @property
    def module(self) -> str:
        return self.where.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def part(self) -> str:
        """The name below `evener` that has a layer: `wire` for all of wire/; `__init__` for the package itself."""
        return self.where.removesuffix(".py").split("/")[1]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.where)


def sources(*parts: str) -> list[Source]:
    """All files of the package, or those of the named parts. A part that does not exist yet has none."""
    return [source for source in _read() if not parts or source.part in parts]


@cache
def _read() -> tuple[Source, ...]:
    """All files of the package, once for all tests: to parse them takes seconds."""
    paths = sorted((SRC / "evener").rglob("*.py"))
    return tuple(Source(path.relative_to(SRC).as_posix(), path.read_text(encoding="utf-8")) for path in paths)


def tree_files(root: Path = ROOT) -> Iterator[Path]:
    """All files that belong to the tree: neither git's own nor what .gitignore names."""
    ignored = [".git", *(line.rstrip("/") for line in (root / ".gitignore").read_text().split())]
    folders = [root]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if any(fnmatch(path.name, pattern) for pattern in ignored):
                continue
            if path.is_dir():
                folders.append(path)
            else:
                yield path
