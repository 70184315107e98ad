"""Long threads for tests, and a process that has one turn in one: `python -m tests.store.longthreads <path> <thread>`."""

import asyncio
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from bench.memory import most_resident
from evener import Harness
from evener import events as ev
from evener.store import SqliteStore
from evener.testing import ScriptedModel
from evener.transcript import Message, TextBlock, ToolCall
from evener.transcript.reply import Stop, Usage
from tests.patience import bytes_moved

BATCH = 500
KINDS = {"many runs": (40, 2), "large outputs": (20_000, 2), "one run": (100, 0)}
"""Bytes of an output, and how many calls a run has; 0: all calls are in one run."""


def happenings(size: int, calls: int) -> Iterator[ev.Event]:
    """What happens in a thread that never ends, after its first event."""
    at = map(float, count(1_700_000_000))
    yield ev.Configured(at=next(at), model="scripted:model")
    for number in count():
        if number == 0 or (calls and number % calls == 0):
            yield ev.Prompted(at=next(at), run=f"run {number}", message=Message.user_text(f"question {number}"))
        yield ev.ModelCalled(at=next(at), model="scripted:model", id=f"asked {number}")
        call = ToolCall(f"call {number}", "look", f'{{"n":{number}}}')
        said = Message("assistant", (TextBlock("Let me look."), call), usage=Usage(10, 10, 0, 0, 5, 0))
        yield ev.Replied(at=next(at), message=said, stop=Stop("tools"))
        yield ev.CallStarted(at=next(at), call=call.id, tool="look", key=f"key {number}")
        output = f"output {number} " + "o" * size
        yield ev.CallFinished(at=next(at), call=call.id, ok=True, content=(TextBlock(output),))
        if calls and number % calls == calls - 1:
            yield ev.ModelCalled(at=next(at), model="scripted:model", id=f"last {number}")
            yield ev.Replied(at=next(at), message=Message.assistant_text(f"answer {number}"), stop=Stop("done"))
            yield ev.Finished(at=next(at), run=f"run {number - calls + 1}", cause="done")


async def fill(store: SqliteStore, thread: str, events: int, kind: str = "many runs") -> None:
    """Make a thread of so many events."""
    log = await store.create(thread, ev.Opened(at=1_700_000_000.0, thread=thread), holder="test")
    told = islice(happenings(*KINDS[kind]), events - 1)
    while batch := list(islice(told, BATCH)):
        await log.append(*batch)
    await log.aclose()


async def first_turn(path: Path, thread: str) -> None:
    """One turn, and how many bytes were read or written for it, how much memory that took, and the answer."""
    store = SqliteStore(path)
    harness = Harness(ScriptedModel(["Good."]), store=store)
    held, moved = most_resident(), bytes_moved()
    result = await harness.thread(thread).run("How is it?")
    print(bytes_moved() - moved, most_resident() - held, len(result.transcript), result.text)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(first_turn(Path(sys.argv[1]), sys.argv[2]))
