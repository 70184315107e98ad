"""A viewer in a process of its own, for `bench viewer`: serves the store of its argument, and prints the address.

Runs that a page begins are answered by a model that says so many pieces a second, each the time at which it was said.
"""

import asyncio
import sys
from time import time
from typing import Any

from evener import Harness, SqliteStore
from evener.testing.scripted_model import ScriptedModel
from evener.transcript.ask import Ask
from evener.transcript.delta import Delta, TextDelta
from evener.transport.loopback import open_socket
from evener.view.server import Viewer, serve

__all__ = ["PIECES", "RATE"]

RATE = 100
PIECES = 6 * RATE


class PacedModel(ScriptedModel):
    """Says `PIECES` pieces, `RATE` a second: milliseconds since 1970."""

    def stream(self, ask: Ask, *, after: object = None) -> Any:
        made = super().stream(ask, after=after)
        read, clock = made.read, asyncio.get_running_loop().time
        begun, left = 0.0, 0

        async def paced() -> list[Delta]:
            nonlocal begun, left
            if left:
                left -= 1
                await asyncio.sleep(max(0.0, begun + (PIECES - left) / RATE - clock()))
                return [TextDelta(0, f" {time() * 1000:.0f}")]
            found: list[Delta] = await read()
            if any(isinstance(one, TextDelta) for one in found):
                begun, left = clock(), PIECES
            return found

        made.read = paced  # type: ignore[method-assign] # a bench, and the shortest way
        return made


async def main(path: str) -> None:
    """Serve until the process is ended."""
    store = SqliteStore(path)
    harness = Harness(PacedModel(["Times:"] * 100), store=store)
    await serve(Viewer(store, harness=harness), open_socket(), lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
