"""What an import costs in a fresh interpreter: CPU and resident memory, beside the one dependency that we have anyway."""

import subprocess
import sys

import msgspec

from bench.table import Figure

__all__ = ["figures"]

FLOOR = "msgspec"
MODULES = ("evener", "evener.wire")
PROBE = """
import time
start = time.process_time()
import {module}
cpu = time.process_time() - start
import bench.memory
print(cpu, bench.memory.resident())
"""


class Cost(msgspec.Struct, frozen=True):
    """Milliseconds of CPU, and bytes of the whole process."""

    cpu: float
    memory: float


def figures(passes: int) -> list[Figure]:
    """Ours against the floor."""
    modules = (FLOOR, *MODULES)
    runs = [[_probe(module) for module in modules] for _ in range(passes)]
    best = [Cost(min(cost.cpu for cost in costs), min(cost.memory for cost in costs)) for costs in zip(*runs, strict=True)]
    floor, *ours = best
    return [
        Figure(
            f"import {module}",
            cost.cpu,
            floor.cpu,
            "ms",
            note=f"process of {cost.memory / 1e6:.1f} MB, with {FLOOR} alone {floor.memory / 1e6:.1f} MB",
        )
        for module, cost in zip(MODULES, ours, strict=True)
    ]


def _probe(module: str) -> Cost:
    code = PROBE.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    cpu, memory = done.stdout.split()
    return Cost(float(cpu) * 1e3, float(memory))
