"""What loading a library costs in a fresh interpreter, and what it costs until it could ask a model: CPU and resident memory."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from sys import executable

import msgspec

from bench.table import Figure

__all__ = ["import_figures"]

IMPORTS = {
    "evener": "import evener",
    "anthropic": "import anthropic",
    "openai": "import openai",
    "pydantic-ai": "import pydantic_ai",
    "thinharness": "import thinharness",
}
READY = {
    "evener": """
import asyncio
from evener import Harness, open_model
async def ready():
    from evener.transport.pool import open_pool
    harness = Harness(open_model("anthropic:a-model", key="none"), store="memory")
    await (await open_pool(1, None)).aclose()
asyncio.run(ready())
""",
    "anthropic": "import anthropic; client = anthropic.AsyncAnthropic(api_key='none'); client.messages",
    "openai": "import openai; client = openai.AsyncOpenAI(api_key='none'); client.responses; client.chat.completions",
    "pydantic-ai": """
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
agent = Agent(AnthropicModel("a-model", provider=AnthropicProvider(api_key="none")))
""",
    "thinharness": """
import thinharness
config = thinharness.HarnessConfig(model="anthropic:a-model", api_key="none", local_tracing=False)
harness = thinharness.Harness(config)
""",
}
PROBE = """
import time
start = time.process_time()
{code}
cpu = time.process_time() - start
import resource
print(cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Cost(msgspec.Struct, frozen=True):
    """Milliseconds of CPU, and megabytes of the whole process."""

    cpu: float
    memory: float


def import_figures(pythons: Mapping[str, Path], passes: int) -> list[Figure]:
    """Ours beside each peer's: the import alone, then all that is needed before the first request."""
    found = []
    for what, codes in (("import", IMPORTS), ("ready to ask", READY)):
        costs = _costs(codes, {"evener": Path(executable), **pythons}, passes)
        ours = costs.pop("evener")
        for name, cost in costs.items():
            found.append(Figure(f"{what}, CPU, {name}", ours.cpu, cost.cpu, "ms", most=1.0))
            found.append(Figure(f"{what}, memory, {name}", ours.memory, cost.memory, "MB", most=1.0))
    return found


def _costs(codes: Mapping[str, str], pythons: Mapping[str, Path], passes: int) -> dict[str, Cost]:
    runs = [{name: _probe(python, codes[name]) for name, python in pythons.items()} for _ in range(passes)]
    return {name: Cost(min(run[name].cpu for run in runs), min(run[name].memory for run in runs)) for name in pythons}


def _probe(python: Path, code: str) -> Cost:
    command = [str(python), "-W", "ignore", "-c", PROBE.format(code=code)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    cpu, memory = done.stdout.split()
    return Cost(float(cpu) * 1e3, float(memory) / 1024)
