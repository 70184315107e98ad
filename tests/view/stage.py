"""Stores for the viewer to show, and a viewer that runs for the length of a block."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from zlib import compress, crc32

from evener import Harness, SqliteStore, tool
from evener import events as ev
from evener.harness import Subagent
from evener.store.protocol import Store
from evener.store.sqlite.leases import new_claim
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import Citation, HostedBlock, ImageBlock, Inline, ReasoningBlock, TextBlock, ToolCall
from evener.transcript.loss import loss_of
from evener.transcript.message import Message
from evener.transcript.reply import Stop, Usage
from evener.transport.loopback import open_socket
from evener.view.server import Viewer, serve

ANSWER = """Here is what I found:

1. The **parser** drops the last field.
2. See `read_row` in [the docs](https://example.org/docs).

| file | lines |
|---|---|
| a.py | 10 |

```python
def read_row(row):
    return row.split(",")
```
"""
PATCH = """--- a/a.py
+++ b/a.py
@@ -1,2 +1,2 @@
 def read_row(row):
-    return row.split(',')[:-1]
+    return row.split(',')
"""


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + crc32(kind + data).to_bytes(4, "big")


def png() -> str:
    """Return a small picture, in base64."""
    rows = b"".join(b"\0" + b"".join(bytes((x * 7, y * 7, 160)) for x in range(32)) for y in range(32))
    size = (32).to_bytes(4, "big")
    head = _chunk(b"IHDR", size + size + b"\x08\x02\0\0\0")
    return b64encode(b"\x89PNG\r\n\x1a\n" + head + _chunk(b"IDAT", compress(rows)) + _chunk(b"IEND", b"")).decode()


@tool(effect="read")
def look(what: str) -> str:
    """Look it up."""
    return found(what)


def found(what: str) -> str:
    """Return what the tool gives."""
    return '{"found": "' + what + '", "places": ["a.py", "b.py"], "count": 2}'


@tool(approval=True)
def edit(path: str, old_string: str, new_string: str) -> str:
    """Edit a file."""
    return f"edited {path}: {len(old_string)} to {len(new_string)} characters"


async def write(store: Store, log: str, *events: ev.Event, harness: str = "shop") -> None:
    """Write a log with these events, and give it back."""
    made = await store.create(log, ev.Opened(at=1_790_000_000.0, thread=log, harness=harness), holder=new_claim())
    if events:
        await made.append(*events)
    await made.aclose()


def turn(n: int, at: float, *, text: str = "ok", cached: int = 0) -> list[ev.Event]:
    """Return a prompt, a request with its answer, a call with its result, an answer, and an end."""
    call = ToolCall.of(f"c{n}", "look", {"what": f"thing {n}"})
    usage = Usage(1000 + 40 * n, 1000 + 40 * n - cached, cached, 0, 60, 10)
    asks = Message("assistant", (ReasoningBlock("Where could it be?"), call), usage=usage)
    says = Message("assistant", (TextBlock(text),), usage=usage)
    cost = Decimal("0.0021")
    return [
        ev.Prompted(at=at, run=f"r{n}", message=Message.user_text(f"Find thing {n}, please.")),
        ev.ModelCalled(at=at + 0.1, model="openai:gpt-5", id=f"m{n}a"),
        ev.Replied(at=at + 1.1, message=asks, stop=Stop("tools"), cost=cost, seconds=1.0, first=0.4),
        ev.CallStarted(at=at + 1.2, call=call.id, tool="look", key=f"k{n}"),
        ev.CallFinished(at=at + 1.5, call=call.id, ok=True, content=(TextBlock(found(f"thing {n}")),), seconds=0.3),
        ev.ModelCalled(at=at + 1.6, model="openai:gpt-5", id=f"m{n}b"),
        ev.Replied(at=at + 2.4, message=says, stop=Stop("done"), cost=cost, seconds=0.8, first=0.3),
        ev.Finished(at=at + 2.5, run=f"r{n}", cause="done"),
    ]


def rich(at: float) -> list[ev.Event]:
    """Return a run with every kind of block."""
    image = ImageBlock(Inline(png()), "image/png")
    call = ToolCall.of("cp", "look", {"what": "the patch"})
    cited = TextBlock(ANSWER, citations=(Citation("https://example.org/a", "A source", "as it says"),))
    hosted = HostedBlock('{"type":"web_search_call","query":"csv"}', "openai_responses", "searched the web for csv")
    loss = loss_of("dropped", "reasoning", "it was made by another provider")
    usage = Usage(5200, 400, 4800, 0, 300, 120)
    return [
        ev.Prompted(at=at, run="rich", message=Message("user", (TextBlock("What is in this picture?"), image))),
        ev.ModelCalled(at=at + 0.2, model="openai:gpt-5", id="ra"),
        ev.ModelFailed(at=at + 0.9, error="RateLimited", message="Too many requests (HTTP 429).", retryable=True, status=429),
        ev.ModelCalled(at=at + 2.9, model="openai:gpt-5", id="rb", notices=(("near:requests", "Only 2 requests are left."),)),
        ev.Replied(
            at=at + 5.0, message=Message("assistant", (ReasoningBlock("A gradient."), hosted, call), usage=usage),
            stop=Stop("tools"), cost=Decimal("0.011"), seconds=2.1, first=0.7, losses=(loss,),
        ),
        ev.CallStarted(at=at + 5.1, call="cp", tool="look", key="kp"),
        ev.CallFinished(at=at + 6.0, call="cp", ok=True, content=(TextBlock(PATCH), image), seconds=0.9),
        ev.ModelCalled(at=at + 6.1, model="openai:gpt-5", id="rc"),
        ev.Replied(
            at=at + 9.0, message=Message("assistant", (cited,), usage=usage), stop=Stop("done"), cost=Decimal("0.012"),
            seconds=2.9, first=0.5,
        ),
        ev.Finished(at=at + 9.1, run="rich", cause="done"),
    ]  # fmt: skip


def shortened(at: float) -> list[ev.Event]:
    """Return a long run in which the context was shortened twice."""
    first, second = turn(0, at, cached=200), turn(1, at + 600, text="second")
    cut = ev.Evicted(at=at + 599, id="e", cuts=(ev.ContextCut("m", 0, "result"),), cause="gate", tokens=900, saved=300)
    summary = Message.user_text("Thing 0 was found.")
    last = next(event.message.id for event in first[::-1] if isinstance(event, ev.Replied))
    made = ev.Compacted(at=at + 599.5, id="c", summary=summary, until=last, tokens=600, saved=500, model="openai:gpt-5")
    return [*first, cut, made, *second]


async def furnish(store: Store) -> dict[str, str]:
    """Fill a store with threads of all sorts; return their names and ids."""
    specs = (look.spec, edit.spec)
    configured = ev.Configured(
        at=1_790_000_001.0, model="openai:gpt-5", system=(TextBlock("You repair parsers."),), tools=specs
    )
    talk = [event for n in range(6) for event in turn(n, 1_790_000_010.0 + 10 * n, cached=300 * n)]
    await write(store, "parser", configured, *talk, *rich(1_790_000_100.0))
    await store.describe("parser", title="Repair the CSV parser", tags=["csv", "urgent"])
    failed = [*turn(0, 1_790_000_200.0)[:2], ev.ModelFailed(at=1_790_000_202.0, error="BadKey", message="The key was refused.")]
    await write(store, "failed", configured, *failed, ev.Finished(at=1_790_000_203.0, run="r0", cause="provider_error"))
    changes = {"path": "a.py", "old_string": "row.split(',')[:-1]", "new_string": "row.split(',')"}
    waits = Harness(
        ScriptedModel([calls(ToolCall.of("e1", "edit", changes)), "It is repaired."]),
        tools=[look, edit],
        store=store,
        name="editor",
    )
    waiting = await waits.run("Repair a.py")
    helper = Subagent(name="helper", harness=Harness(ScriptedModel(["Found it."]), store="memory"), description="Helps.")
    outer = Harness(
        ScriptedModel([calls(ToolCall.of("h", "helper", {"task": "look"})), "All done."]), agents=[helper], store=store
    )
    agents = await outer.run("Let the helper look")
    done = await Harness(ScriptedModel(["First.", "Second."]), store=store).run("Say something")
    fork = await Harness(ScriptedModel(["Another."]), store=store).thread(done.thread).fork(2)
    await Harness(ScriptedModel(["Another."]), store=store).thread(branch=fork.log).run("Say something else")
    await write(store, "erased", configured, *turn(0, 1_790_000_300.0, text="a secret of the user"))
    await store.erase("erased", seqs=[3, 5, 6, 8])
    return {"waiting": waiting.thread, "agents": agents.thread, "forked": done.thread, "branch": fork.log}


@asynccontextmanager
async def viewing(store: Store, *, harness: Harness | None = None) -> AsyncIterator[str]:
    """Serve a viewer of this store, and give its address."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listening = open_socket()
    listening.listen(16)
    viewer = Viewer(store, harness=harness, by="tester", words=("--store", "x.db"))
    work = asyncio.create_task(serve(viewer, listening, told.set_result))
    try:
        yield await told
    finally:
        viewer.closing.set()
        await work


def open_file(folder: Path) -> SqliteStore:
    """Return a store in a file of this folder."""
    return SqliteStore(folder / "store.db")
