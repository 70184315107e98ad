"""Imports go one way, and the pure layers import nothing that could make them impure."""

import ast
from collections.abc import Iterable, Iterator

import pytest

from tests.shape.tree import Source, sources

# From the bottom up. A part imports from lower rows only; parts of one row may know each other in one direction.
LAYERS = (
    ("errors", "private_file"),
    ("transcript",),
    ("events",),
    ("wire",),
    ("context", "policy", "encodings"),
    ("loop",),
    ("transport", "providers", "local"),
    (
        *("model", "tools", "toolset", "store", "observe", "translate"),
        *("result", "resume_state", "streaming", "budget", "call_context", "hooks", "router"),
    ),
    ("driver",),
    ("harness",),
    ("replay",),
    ("acp", "cluster", "mcp", "skills", "web"),
    ("cli", "view", "gateway", "testing", "demo", "__main__", "__init__"),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

PURE = ("errors", "transcript", "events", "wire", "context", "policy", "encodings", "loop")
IMPURE_MODULES = frozenset(
    "asyncio builtins concurrent glob http importlib io locale logging multiprocessing os pathlib platform random "
    "secrets select selectors shutil signal socket sqlite3 ssl subprocess tempfile threading time urllib.request "
    "uuid".split()
)
IMPURE_CALLS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})
# A datetime is a value and may be used anywhere; asking for the present one is reading the clock.
CLOCK = frozenset({"now", "today", "utcnow"})
# The public factories mint ids and times, and they do it here.
# A codec is loaded when it is first asked for.
EXEMPT = {"evener/transcript/mint.py": CLOCK | {"os"}, "evener/wire/__init__.py": frozenset({"importlib"})}


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Line and absolute name of each import, wherever it stands: in functions and under TYPE_CHECKING too."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = absolute(source, level, module or "")
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield node.lineno, name
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield node.lineno, name


def absolute(source: Source, level: int, module: str) -> str:
    if level == 0:
        return module
    here = source.module.split(".")
    package = here if source.is_package else here[:-1]
    base = package[: len(package) - (level - 1)]
    return ".".join([*base, module] if module else base)


def own_imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """Line, name and part of each import from Evener itself. A name taken from `evener` belongs to `__init__`."""
    for line, name in imported(source):
        match name.split("."):
            case ["evener", "__version__"]:
                continue
            case ["evener"]:
                yield line, name, "__init__"
            case ["evener", part, *_]:
                yield line, name, part if part in RANK else "__init__"


def wrong_ways(files: Iterable[Source]) -> list[str]:
    files = list(files)
    wrong = [f"{source.where}: {source.part!r} has no place in LAYERS" for source in files if source.part not in RANK]
    sideways: dict[tuple[str, str], str] = {}
    for source in files:
        if source.part not in RANK:
            continue
        for line, name, part in own_imports(source):
            found = f"{source.where}:{line}: {source.part} imports {name}"
            if RANK[part] > RANK[source.part]:
                wrong.append(f"{found}, which is above it")
            elif RANK[part] == RANK[source.part] and part != source.part:
                sideways.setdefault((source.part, part), found)
    return wrong + [f"{found}, which imports it in turn" for edge, found in sideways.items() if returns(edge, sideways)]


def returns(edge: tuple[str, str], edges: Iterable[tuple[str, str]]) -> bool:
    """Whether the far end of an edge leads back to its near end."""
    start, reached, grown = edge[0], {edge[1]}, True
    while grown:
        new = {far for near, far in edges if near in reached} - reached
        reached |= new
        grown = bool(new)
    return start in reached


def impurities(source: Source) -> Iterator[str]:
    allowed = EXEMPT.get(source.where, frozenset())
    for line, name in imported(source):
        prefixes = {name.rsplit(".", cut)[0] for cut in range(name.count(".") + 1)}
        if prefixes & (IMPURE_MODULES - allowed):
            yield f"{source.where}:{line}: imports {name}"
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"{source.where}:{node.lineno}: calls {name}()"
            case ast.Attribute(attr=name, value=owner) if name in CLOCK - allowed and ast.unparse(owner) != "mint":
                yield f"{source.where}:{node.lineno}: reads the clock with {ast.unparse(node)}"


def test_imports_go_one_way() -> None:
    assert wrong_ways(sources()) == []


@pytest.mark.parametrize("source", sources(*PURE), ids=lambda source: source.where)
def test_a_pure_layer_has_no_io_clock_randomness_or_environment(source: Source) -> None:
    assert list(impurities(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        Source("evener/wire/sse.py", "import evener.model"),
        Source("evener/wire/sse.py", "from evener.loop.plan import plan"),
        Source("evener/wire/sse.py", "from evener import loop"),
        Source("evener/wire/sse.py", "from evener import Harness"),
        Source("evener/wire/sse.py", "from ..loop import plan"),
        Source("evener/wire/gemini/__init__.py", "from ...loop import plan"),
        Source("evener/errors.py", "from . import transcript"),
        Source("evener/transcript/ask.py", "if TYPE_CHECKING:\n    from evener.wire import Codec"),
        Source("evener/loop/plan.py", "def f():\n    import evener.providers"),
        Source("evener/loop/plan.py", "import importlib\nimportlib.import_module('evener.driver')"),
        Source("evener/helpers.py", ""),
    ],
    ids=lambda source: f"{source.where}: {source.text}",
)
def test_an_import_from_above_is_caught(source: Source) -> None:
    assert len(wrong_ways([source])) == 1


@pytest.mark.parametrize(
    "source",
    [
        Source("evener/loop/plan.py", "from evener.wire import sse\nfrom ..transcript import Ask\nfrom . import state"),
        Source("evener/loop/__init__.py", "from .plan import plan"),
        Source("evener/transport/http.py", "from evener import __version__"),
        Source("evener/__init__.py", "from evener.harness import Harness"),
        Source("evener/cli/__init__.py", "from evener import gateway"),
    ],
    ids=lambda source: f"{source.where}: {source.text}",
)
def test_an_import_from_below_or_beside_passes(source: Source) -> None:
    assert wrong_ways([source]) == []


def test_neighbours_that_import_each_other_are_caught() -> None:
    model = Source("evener/model.py", "from evener import tools")
    tools = Source("evener/tools/__init__.py", "from evener import store")
    store = Source("evener/store/__init__.py", "from evener import model")
    assert wrong_ways([model, tools]) == []
    assert len(wrong_ways([model, tools, store])) == 3


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import os.path",
        "from time import monotonic",
        "from datetime import datetime\nt = datetime.now()",
        "import datetime as d\nf(default_factory=d.datetime.utcnow)",
        "import urllib.request",
        "from urllib import request",
        "def f():\n    import random",
        "def f(path):\n    return open(path)",
    ],
)
def test_an_impure_import_is_caught(text: str) -> None:
    assert len(list(impurities(Source("evener/loop/plan.py", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import json",
        "import datetime",
        "mint.now()",
        "from urllib.parse import quote",
        "from evener.policy import time",
    ],
)
def test_a_pure_import_passes(text: str) -> None:
    assert list(impurities(Source("evener/loop/plan.py", text))) == []


def test_only_the_mint_may_read_the_clock_and_only_that() -> None:
    text = "import os\nimport uuid\ndatetime.now()"
    assert list(impurities(Source("evener/transcript/mint.py", text))) == ["evener/transcript/mint.py:2: imports uuid"]
    assert len(list(impurities(Source("evener/wire/mint.py", text)))) == 3
