"""Fake providers of all four wires, and harnesses on them, for the tests of this folder."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from evener import Harness, tool
from evener.context import ContextRules
from evener.events import Event, Limits
from evener.harness import Thread
from evener.model import Model, open_model
from evener.testing import FakeServer, Received, Turn
from evener.transcript.blocks import ImageBlock, Inline, TextBlock
from evener.transport.exchange import Retries
from evener.transport.http import HttpTransport

__all__ = ["ENDLESS", "MODELS", "Answering", "events_of", "fetch", "harness_on", "look", "opened", "serving"]

MODELS = {
    "anthropic_messages": "anthropic:claude-sonnet-4-5",
    "openai_responses": "openai:gpt-5.6-sol",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-flash-preview",
}
ENDLESS = Limits(requests=None, tool_calls=None, repeats=1000, repeats_stop=1000)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
Answering = Callable[[Received], Turn]


@tool(effect="read", output_limit=200_000)
def fetch(n: int) -> str:
    """Fetch something."""
    return f"{n}: " + "words and words " * 500


@tool(effect="read")
def look(n: int) -> list[TextBlock | ImageBlock]:
    """Take a picture."""
    return [TextBlock(f"screen {n}"), ImageBlock(Inline(PIXEL), "image/png")]


def opened(server: FakeServer, name: str, transport: HttpTransport) -> Model:
    """Return the model of that name on this server."""
    return open_model(
        name, transport=transport, base_url=server.url, key="k", environ={}, retries=Retries(attempts=1)
    )  # fmt: skip


@asynccontextmanager
async def serving(wire: str, script: Answering) -> AsyncIterator[tuple[FakeServer, Model]]:
    """Serve a model of this wire. Nothing that it is sent may be refused."""
    name = MODELS[wire]
    dialect = {"openai_chat": "openai", "gemini": "developer"}.get(wire, "")
    with FakeServer(wire, script, dialect=dialect, models=(name.partition(":")[2],)) as server:
        async with HttpTransport() as transport:
            yield server, opened(server, name, transport)
        assert [one.violations for one in server.rejected] == []


def harness_on(model: Model, rules: ContextRules, **more: object) -> Harness:
    """Return a harness with tools whose results are long, or pictures."""
    chosen = {"tools": [fetch, look], "store": "memory", "limits": ENDLESS, **more}
    return Harness(model, context=rules, **chosen)  # type: ignore[arg-type]


E = TypeVar("E", bound=Event)


async def events_of(harness: Harness, thread: Thread, kind: type[E]) -> list[E]:
    """Return the events of one kind in the log of a thread."""
    return [event for event in await harness.store.read(thread.log) if isinstance(event, kind)]
