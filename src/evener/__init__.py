"""One typed conversation, one loop, any model.

    from evener import Harness, tool

    @tool(effect="read")
    def weather(city: str) -> str:
        "The weather in a city."
        return "snow, -3"

    harness = Harness("local:smollm2", tools=[weather])
    print(harness.run_sync("Is it cold in Oslo?").text)

To run an agent: Harness, RunResult, RunStream, Thread, Limits, ModelSettings, find_harness, run.
Its tools: tool, Tool, ToolContext, ToolOutput, ModelRetry.
What is said: Message, Transcript. Where it is kept: SqliteStore, MemoryStore.
A model by itself: open_model, Model, Answer, Chain.

Further packages: evener.harness (decisions, agents, fan-out), evener.transcript (blocks), evener.errors, evener.hooks,
evener.testing (scripted models, fake providers). Names are loaded when they are first used.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; to load `typing` would take most of the time of this import
if TYPE_CHECKING:
    from evener.events import Limits
    from evener.harness import Harness, RunStream, Thread
    from evener.harness.finding import find_harness
    from evener.harness.simple import run
    from evener.model import Answer, Chain, Model, open_model
    from evener.result import RunResult
    from evener.store.memory import MemoryStore
    from evener.store.sqlite.store import SqliteStore
    from evener.tools import ModelRetry, Tool, ToolContext, ToolOutput, tool
    from evener.transcript import Message, ModelSettings, Transcript

__all__ = [
    "Answer",
    "Chain",
    "Harness",
    "Limits",
    "MemoryStore",
    "Message",
    "Model",
    "ModelRetry",
    "ModelSettings",
    "RunResult",
    "RunStream",
    "SqliteStore",
    "Thread",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Transcript",
    "__version__",
    "find_harness",
    "open_model",
    "run",
    "tool",
]

__version__ = "0.1.0"

_HOMES = {
    "Answer": "evener.model",
    "Chain": "evener.model",
    "Harness": "evener.harness.harness",
    "Limits": "evener.events",
    "MemoryStore": "evener.store.memory",
    "Message": "evener.transcript",
    "Model": "evener.model",
    "ModelRetry": "evener.tools",
    "ModelSettings": "evener.transcript",
    "RunResult": "evener.result",
    "RunStream": "evener.harness.stream",
    "SqliteStore": "evener.store.sqlite",
    "Thread": "evener.harness.thread",
    "Tool": "evener.tools",
    "ToolContext": "evener.tools",
    "ToolOutput": "evener.tools",
    "Transcript": "evener.transcript",
    "find_harness": "evener.harness.finding",
    "open_model": "evener.model",
    "run": "evener.harness.simple",
    "tool": "evener.tools",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'evener' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
