"""What threads cost in memory: `python -m tests.driver.memory_child <wire> <threads> <turns>` prints the sizes as JSON.

A process of its own, because tracemalloc counts everything. No socket: a fake provider's words are handed over as bytes.
"""

import asyncio
import gc
import json
import sys
import tracemalloc

from evener import tool
from evener.events import encode_event
from evener.harness import Harness, Thread
from evener.loop.state import Limits
from evener.model import Answer, open_model
from evener.store.memory import MemoryStore
from evener.testing.servers.provider import WIRES
from evener.testing.servers.turn import Call, Turn, turn
from evener.testing.servers.wire import Received, ServerSettings
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.exchange import Request, Response
from tests.model.stage import MODELS, NOWHERE

SAID = "Let me see what there is to be found about that, before I say anything that I would have to take back later."
FOUND = "The load lies on the third shelf, behind the plough; nobody has asked for it since spring. " * 4


class Canned:
    """Answers each request with a call of the tool, and the last of a conversation with a text."""

    def __init__(self, wire: str, turns: int) -> None:
        self._wire = WIRES[wire](ServerSettings())
        self.url = f"http://127.0.0.1:9{self._wire.base}"
        self._body = json.dumps({"model": MODELS[wire].partition(":")[2], "stream": True}).encode()  # quicker to read again
        self._turns = turns
        self.said = 0

    async def send(self, request: Request) -> Response:
        path = "/" + request.url.split("/", 3)[3]
        received = Received(request.method, path, {name.lower(): value for name, value in request.headers}, self._body)
        route = self._wire.route(received)
        assert route is not None
        answer = self._wire.say(received, route, self._turn())
        frames = tuple(frame for frame in answer.frames if isinstance(frame, bytes))
        return await FakeTransport([FakeAnswer(frames, answer.status, dict(answer.headers))]).send(request)

    def _turn(self) -> Turn:
        self.said += 1
        if self.said % self._turns == 0:
            return turn(SAID)
        return turn(SAID, Call("look", {"item": f"number {self.said} of those that were asked for", "closely": True}))


@tool(effect="read")
async def look(item: str, closely: bool) -> str:
    """Look for something."""
    return f"{item} {closely}: {FOUND}"


async def main(wire: str, count: int, turns: int) -> dict[str, float]:
    canned = Canned(wire, turns)
    model = open_model(MODELS[wire], environ=NOWHERE, transport=canned, key="k", base_url=canned.url)
    store = MemoryStore()
    harness = Harness(
        model, tools=[look], system="You find things.", store=store, limits=Limits(requests=None, tool_calls=None)
    )
    await harness.run("Where is everything?")  # loads and keeps what all share
    tracemalloc.start(1)  # not earlier: to load a table of prices under its eyes takes a minute
    threads: list[Thread] = []
    for number in range(count):
        thread = harness.thread()
        result = await thread.run(f"Where is everything, from {number} on?")
        assert len(result.transcript) == 2 * turns
        del result
        threads.append(thread)
    sent = sum(len(answer.sent.encoded.body) for thread in threads for answer in _answers(thread))
    kept = sum([sum(len(encode_event(event)) for event in await store.read(thread.id)) for thread in threads])
    after = _traced()
    threads.clear()
    thread = None  # type: ignore[assignment]
    idle = _traced()
    await store.aclose()  # which empties it
    return {"live": (after - idle) / sent, "idle": (idle - _traced()) / kept, "sent": sent / count, "kept": kept / count}


def _answers(thread: Thread) -> list[Answer]:
    return [answer for answer in thread._answers.values() if isinstance(answer, Answer)]


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
