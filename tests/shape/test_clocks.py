"""No test depends on how fast the machine is: tests read no clock, and a guard against a hang is patient."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.each import each
from tests.shape.tree import ROOT, Source

CLOCKS = {"clock_gettime", "monotonic", "perf_counter", "process_time", "thread_time"} | {
    "clock_gettime_ns", "monotonic_ns", "perf_counter_ns", "process_time_ns", "thread_time_ns", "time_ns",
}  # fmt: skip
KEEPERS = {"tests/patience.py", "tests/shape/test_clocks.py"}
"""Where a clock is read for all other tests, and where one is written about."""
LEAST = 60.0
"""Seconds that a guard against a hang leaves at least."""
POSITION = {"join": 0, "settimeout": 0, "timeout": 0, "wait": 0, "wait_for": 1}
"""Calls that wait, and which of their arguments says how long; else `timeout` does."""


def files_of_tests() -> list[Source]:
    """All files of the tests."""
    return [
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(Path(ROOT / "tests").rglob("*.py"))
    ]


def clocks(source: Source) -> Iterator[str]:
    """Find every place that reads a real clock, in the text of a program for a child process, too."""
    for node in ast.walk(source.tree):
        match node:
            case ast.ImportFrom(module="time", names=names) if any(name.name in CLOCKS | {"time"} for name in names):
                found = "imports a clock"
            case ast.Attribute(attr=name) if name in CLOCKS:
                found = f"reads {name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="time")):
                found = "reads time.time"
            case ast.Constant(value=str(text)) if any(f"{name}()" in text for name in CLOCKS):
                found = "has a program that reads a clock"
            case _:
                continue
        yield f"{source.where}:{node.lineno}: {found}"


def hasty(source: Source) -> Iterator[str]:
    """Find guards that a busy machine may meet: between a second and a minute. Shorter ones are deadlines meant to pass."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and _name(node) != "tool":
            place = POSITION.get(_name(node), len(node.args))
            for value in [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "timeout")]:
                seconds = value.value if isinstance(value, ast.Constant) else None
                if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 1 <= seconds < LEAST:
                    yield f"{source.where}:{node.lineno}: waits for {seconds} seconds"


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


@each("source", files_of_tests(), lambda source: source.where)
def test_a_test_reads_no_clock_and_is_patient(source: Source) -> None:
    assert source.where in KEEPERS or [*clocks(source), *hasty(source)] == []


@pytest.mark.parametrize(
    "text",
    [
        "from time import monotonic",
        "from time import sleep, time",
        "import time\nassert time.perf_counter() - start < 2",
        "import time\nstart = time.time()",
        "clock = time.process_time",
        "PROGRAM = 'import time; end = time.monotonic() + 20'",
    ],
)
def test_a_clock_is_caught(text: str) -> None:
    assert len(list(clocks(Source("tests/x.py", text)))) == 1


@pytest.mark.parametrize("text", ["from time import sleep", "import time\ntime.sleep(0.1)", "clock.time()", "'monotonic'"])
def test_what_reads_no_clock_passes(text: str) -> None:
    assert list(clocks(Source("tests/x.py", text))) == []


@pytest.mark.parametrize("text", ["thread.join(5)", "process.wait(timeout=20)", "asyncio.timeout(10)", "wait_for(x(), 2)"])
def test_a_hasty_guard_is_caught(text: str) -> None:
    assert len(list(hasty(Source("tests/x.py", text)))) == 1


@pytest.mark.parametrize("text", ["thread.join()", "process.wait(60)", "asyncio.timeout(0.01)", "asyncio.timeout(SECONDS)"])
def test_a_patient_guard_passes(text: str) -> None:
    assert list(hasty(Source("tests/x.py", text))) == []
