"""What loading a library costs in a fresh interpreter, and what its first answer costs there: CPU and resident memory.

An import alone says little where parts are loaded when they are first used. The first answer, to one question on loopback, has
all of them: the library, its HTTP client, the model, and the agent where there is one.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from sys import executable

import msgspec

from bench.revision import Side
from bench.table import Figure

__all__ = ["import_figures", "own_figures"]

OURS = "evener"
IMPORTS = {
    OURS: "import evener",
    "anthropic": "import anthropic",
    "openai": "import openai",
    "pydantic-ai": "import pydantic_ai",
    "thinharness": "import thinharness",
}
FIRST = """
import asyncio
from evener import Harness, open_model
model = open_model("anthropic:claude-sonnet-4-5", key="none", base_url={base!r})
result = asyncio.run(Harness(model, store="memory").run("Look things up until you know."))
assert result.ok, result.stop
"""
THEIRS = """
import asyncio, sys
sys.path.insert(0, {folder!r})
import agent_driver
async def first():
    act = await agent_driver.PEERS[{name!r}]["loop"]({wire!r}, {base!r})
    await act()
asyncio.run(first())
"""
PROBE = """
import time
start = time.process_time()
{code}
cpu = time.process_time() - start
try:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    import resource
    memory = pages * resource.getpagesize()
except OSError:
    import resource
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(cpu, memory)
"""


class Cost(msgspec.Struct, frozen=True):
    """Milliseconds of CPU, and megabytes of the whole process."""

    cpu: float
    memory: float


def import_figures(pythons: Mapping[str, Path], base: str, passes: int) -> list[Figure]:
    """Ours beside each peer's: the import alone, then the first answer of the server at `base`."""
    found = []
    everybody = {OURS: Path(executable), **pythons}
    firsts = {name: FIRST.format(base=base) if name == OURS else _theirs(name, base) for name in everybody}
    for what, codes in (("import", IMPORTS), ("first answer", firsts)):
        costs = _costs(codes, everybody, passes)
        ours = costs.pop(OURS)
        for name, cost in costs.items():
            bar, note = (1.0, "") if what == "import" else (0.0, "ours loads a price list")
            found.append(Figure(f"{what}, CPU, {name}", ours.cpu, cost.cpu, "ms", most=bar, note=note))
            found.append(Figure(f"{what}, memory, {name}", ours.memory, cost.memory, "MB", most=bar, note=note))
    return found


def own_figures(sides: Mapping[str, Side], base: str, passes: int) -> dict[str, list[Figure]]:
    """Return what our first answer costs in each of these trees. `bench.loading` has the import alone."""
    code, python = FIRST.format(base=base), Path(executable)
    runs = [{name: _probe(python, code, side.variables) for name, side in sides.items()} for _ in range(passes)]
    return {
        name: [
            Figure("first answer, CPU", min(run[name].cpu for run in runs), unit="ms"),
            Figure("first answer, memory", min(run[name].memory for run in runs), unit="MB"),
        ]
        for name in sides
    }


def _theirs(name: str, base: str) -> str:
    wire = "openai_responses" if name == "openai" else "anthropic_messages"
    return THEIRS.format(folder=str(Path(__file__).parent), name=name, wire=wire, base=base)


def _costs(codes: Mapping[str, str], pythons: Mapping[str, Path], passes: int) -> dict[str, Cost]:
    runs = [{name: _probe(python, codes[name]) for name, python in pythons.items()} for _ in range(passes)]
    return {name: Cost(min(run[name].cpu for run in runs), min(run[name].memory for run in runs)) for name in pythons}


def _probe(python: Path, code: str, variables: Mapping[str, str] | None = None) -> Cost:
    command = [str(python), "-W", "ignore", "-c", PROBE.format(code=code)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=variables)
    cpu, memory = done.stdout.split()
    return Cost(float(cpu) * 1e3, float(memory) / 1e6)
