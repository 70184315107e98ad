"""What `instructions.py` counts: so many requests, or turns of a loop, without a socket.

Arguments: what, on which wire, how many runs. What one run leaves behind is put out of the collector's sight, so that a full
collection does not fall into one count and not into another. `compare` does the runs of several cases in one process, each case
a JSON object: it begins with one run that is not counted, and a mark stands before and after the others.
"""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from bench.agent_driver import KEY, PROMPT, SYSTEM
from bench.agent_ours import PLACES, asked
from bench.agent_server import RESULTS
from bench.agent_speech import ID, MODELS, RESULT, TOKENS, count_tokens, events
from evener.harness import Harness
from evener.loop.state import Limits
from evener.model import Model, open_model
from evener.observe import recorder
from evener.store import MemoryStore, SqliteStore, Store
from evener.tools import tool
from evener.transport.exchange import Request, Response

__all__ = ["CALLS", "compare", "main", "mark"]

CALLS = 20
FEW = 5


class Answered:
    """An answer that is there at once."""

    status = 200
    headers = MappingProxyType({"content-type": "text/event-stream"})

    def __init__(self, content: bytes) -> None:
        self._left = [content]

    async def read(self) -> bytes:
        return self._left.pop() if self._left else b""

    async def aclose(self) -> None:
        pass


class Mock:
    """A model that calls a tool until it has so many results, then speaks. It costs next to nothing itself."""

    def __init__(self, wire: str, calls: int) -> None:
        self._result, self._calls = RESULTS[wire], calls
        self._call = b"".join(events(wire, deltas=FEW, fragments=1)).split(TOKENS)
        self._text = b"".join(events(wire, deltas=FEW, fragments=0)).split(TOKENS)
        self._count = 0

    async def send(self, request: Request) -> Response:
        self._count += 1
        more = request.body.count(self._result) < self._calls
        spoken = count_tokens(request.body).join(self._call if more else self._text)
        return Answered(spoken.replace(ID, b"%016x" % self._count))


def _model(wire: str, calls: int) -> Model:
    provider, tail = PLACES[wire]
    return open_model(f"{provider}:{MODELS[wire]}", key=KEY, base_url=f"http://127.0.0.1:1{tail}", transport=Mock(wire, calls))


async def request(wire: str, runs: int) -> None:
    """Model calls by themselves."""
    model, transcript = _model(wire, 0), asked()
    for number in range(runs * (CALLS + 1)):
        if number == 1:
            gc.collect()
            gc.freeze()
        await model.complete(model.ask(transcript))


async def plain(wire: str, runs: int) -> None:
    """Runs with a tool, without counting tokens. The environment of the process turns traces off, too."""
    await turn(wire, runs, context=False)


async def durable(wire: str, runs: int) -> None:
    """Runs with a tool, on a file."""
    with TemporaryDirectory(prefix="evener-instructions-") as folder:
        store = SqliteStore(Path(folder) / "store.db")
        await turn(wire, runs, store)
        await store.aclose()


def mark() -> None:
    """Call a function of the C library that nothing else calls: valgrind counts anew from there on."""
    os.getloadavg()


async def compare(runs: int, cases: list[str]) -> None:
    """Runs with a tool, in each of these cases: on a wire, with variables, and with the counting of tokens or without."""
    for case in cases:
        given = json.loads(case)
        os.environ.update(given.get("env", {}))
        recorder.RECORDER = recorder.TraceRecorder()
        await turn(given["wire"], runs + 1, context=given.get("context", True), begun=mark)
        mark()
        await asyncio.to_thread(recorder.RECORDER.close, 1.0)


async def turn(
    wire: str, runs: int, store: Store | None = None, *, context: bool = True, begun: Callable[[], None] | None = None
) -> None:
    """Runs with a tool. `begun` is called after the first."""

    @tool
    async def lookup(item: str) -> str:
        """Look an item up."""
        return RESULT if item else ""

    limits = Limits(requests=None, tool_calls=None)
    store = store or MemoryStore()
    harness = Harness(
        _model(wire, CALLS), tools=[lookup], system=SYSTEM, store=store, limits=limits, page_output=False, context=context
    )
    for number in range(runs):
        if number == 1:
            gc.collect()
            gc.freeze()
            if begun is not None:
                begun()
        result = await harness.run(PROMPT)
        assert len(result.records) == CALLS, result


def main() -> None:
    """Do what the arguments say."""
    what, *words = sys.argv[1:]
    if what == "compare":
        asyncio.run(compare(int(words[0]), words[1:]))
    else:
        wire, runs = words
        asyncio.run({"request": request, "turn": turn, "plain": plain, "durable": durable}[what](wire, int(runs)))


if __name__ == "__main__":
    main()
