"""What the tests of the driver share: worlds played by fake servers, models that reach them, and a watch over what is left."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from bench.kill_world import Saga, World
from evener import events as ev
from evener.model import Model, open_model
from evener.testing import Call, FakeServer, Received, Text, Turn, turn
from evener.transcript.blocks import Block, Origin, TextBlock, ToolCall
from evener.transcript.reply import Reply
from evener.transport.exchange import Retries, Transport
from evener.wire import CODECS
from evener.wire.quirks import Quirks
from tests.model.stage import MODELS, NOWHERE, WIRES, fresh_key
from tests.patience import until

__all__ = [
    "WIRES",
    "children",
    "labelled",
    "model_at",
    "others",
    "playing",
    "quick_folder",
    "served",
    "settled",
    "tool_threads",
]

IN_MEMORY = Path("/dev/shm")


@contextmanager
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder where a sync of the disk costs nothing, if there is such a place: durability has tests of its own."""
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder)


# Worlds behind a wire.


def playing(wire: str) -> Callable[[Received], Turn]:
    """A script that plays whichever world the first message of a request names."""

    def script(received: Received) -> Turn:
        ask = CODECS[wire].read_request(received.body, Quirks(), Origin(wire=wire))
        named = re.search(r"world-(\d+)", ask.transcript.messages[0].text)
        assert named is not None
        world = World.of(int(named[1]))
        reply = Saga(world.name, world).answer(ask)
        assert isinstance(reply, Reply)
        parts = [Call(block.name, block.args) if isinstance(block, ToolCall) else Text(_text(block)) for block in reply.blocks]
        return turn(*parts)

    return script


def _text(block: Block) -> str:
    assert isinstance(block, TextBlock)
    return block.text


def served(wire: str, script: object, **settings: object) -> FakeServer:
    """A strict server of this wire that knows the model the tests ask for."""
    return FakeServer(wire, script, models=(MODELS[wire].partition(":")[2],), **settings)  # type: ignore[arg-type]


def model_at(server: FakeServer, wire: str, transport: Transport) -> Model:
    """The model of this wire, at that server. It waits hardly at all before it tries again."""
    return open_model(
        MODELS[wire],
        environ=NOWHERE,
        transport=transport,
        key=fresh_key(),
        base_url=server.url,
        retries=Retries(attempts=2, base=0.001),
    )


def labelled(events: Sequence[ev.Event]) -> list[ev.Event]:
    """The events with each call named by its argument: providers mint ids of their own."""
    labels: dict[str, str] = {}
    found: list[ev.Event] = []
    for event in events:
        match event:
            case ev.Replied(message=message):
                labels |= {call.id: str(call.args["x"]) for call in message.calls}
                blocks = tuple(replace(block, id=labels[block.id]) if isinstance(block, ToolCall) else block
                               for block in message.blocks)  # fmt: skip
                found.append(replace(event, message=replace(message, blocks=blocks)))
            case ev.CallStarted(call=call) | ev.CallFinished(call=call):
                found.append(replace(event, call=labels[call]))
            case _:
                found.append(event)
    return found


# What is left behind.


def others() -> set["asyncio.Task[object]"]:
    """The tasks of this loop besides the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def children() -> set[str]:
    """The ids of the processes that this one has started and that are still there."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found |= set((thread / "children").read_text().split())
    return found


def tool_threads() -> int:
    """How many threads there are for tools, at work or waiting for it."""
    return sum(thread.name == "evener-tool" for thread in threading.enumerate())


async def settled(condition: Callable[[], bool]) -> bool:
    """Whether it comes true in time: for threads, which cannot be awaited."""
    await until(condition)
    return True
