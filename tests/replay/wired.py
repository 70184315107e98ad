"""Recordings made on strict fake servers, and those of branches: see `recordings`."""

import asyncio
from contextlib import suppress
from random import Random

from evener import Harness, Limits, tool
from evener import streaming as st
from evener.harness.approvals import Decision
from evener.store.protocol import Store
from evener.testing import Call, Received, Text, Thinking, Turn, faults, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import ImageBlock, Remote, TextBlock, ToolCall
from tests.driver.stage import model_at, served
from tests.model.stage import WIRES, watched
from tests.replay.recordings import KINDS, batch, harness, kind, tools

__all__ = ["KINDS"]


def speech(random: Random, *, most: int = 3) -> Turn:
    """A turn with thoughts, words and calls, as the dice have it."""
    thought = [Thinking("Let me think.")] * (random.random() < 0.6)
    count = random.randint(0, most)
    made = [Call(random.choice(("look", "book", "pay")), {"x": random.choice("abcde")}) for _ in range(count)]
    return turn(*thought, Text("So be it."), *made)


def speaker(random: Random) -> object:
    left = [speech(random) for _ in range(4)]

    def answer(received: Received) -> Turn:
        del received
        return left.pop(0) if left else turn("That is all.")

    return answer


async def on_wire(wire: str, random: Random, store: Store, **settings: object) -> tuple[str, Harness]:
    with served(wire, speaker(random)) as server:
        async with watched() as http:
            one = Harness(model_at(server, wire, http), tools=tools(random), store=store, **settings)  # type: ignore[arg-type]
            thread = one.thread()
            for text in ("one", "two"):
                await thread.run(text)
            assert server.rejected == []
    return thread.id, one


@kind
async def on_anthropic(random: Random, store: Store) -> tuple[str, Harness]:
    return await on_wire("anthropic_messages", random, store)


@kind
async def on_responses(random: Random, store: Store) -> tuple[str, Harness]:
    return await on_wire("openai_responses", random, store)


@kind
async def on_chat(random: Random, store: Store) -> tuple[str, Harness]:
    return await on_wire("openai_chat", random, store)


@kind
async def on_gemini(random: Random, store: Store) -> tuple[str, Harness]:
    return await on_wire("gemini", random, store)


@kind
async def in_a_chain(random: Random, store: Store) -> tuple[str, Harness]:
    return await on_wire("openai_responses", random, store, state="chain")


@kind
async def in_a_conversation(random: Random, store: Store) -> tuple[str, Harness]:
    return await on_wire("openai_responses", random, store, state="conversation")


@kind
async def forgotten(random: Random, store: Store) -> tuple[str, Harness]:
    """The provider loses what it held."""
    lines = [turn("one", forgets=True), speech(random), "and so on", "two", "three"]
    with served("openai_responses", lines) as server:
        async with watched() as http:
            one = Harness(model_at(server, "openai_responses", http), tools=tools(random), store=store, state="chain")
            thread = one.thread()
            for text in ("a", "b"):
                await thread.run(text)
    return thread.id, one


@kind
async def hopping(random: Random, store: Store) -> tuple[str, Harness]:
    """Each run on another wire."""
    wires = random.sample(WIRES, k=len(WIRES))
    thread, one = "", None
    async with watched() as http:
        for wire in wires:
            with served(wire, speaker(random)) as server:
                one = Harness(model_at(server, wire, http), tools=tools(random), store=store)
                thread = (await one.run(f"on {wire}", thread=thread)).thread
    assert one is not None
    return thread, one


@kind
async def broken_streams(random: Random, store: Store) -> tuple[str, Harness]:
    """Answers that break off, and an overload: asked again, then another wire."""
    bad = [turn("This breaks off", faults=[faults.Cut(after=2)]) for _ in range(3)]
    with served("anthropic_messages", bad) as first, served("openai_chat", speaker(random)) as second:
        async with watched() as http:
            chain = [model_at(first, "anthropic_messages", http), model_at(second, "openai_chat", http)]
            one = Harness(chain, tools=tools(random), store=store, limits=Limits(retries=1))
            stream = one.stream("go")
            async for _ in stream:
                pass
            return (await stream.result()).thread, one


# Branches, and what was interrupted.


@kind
async def forked(random: Random, store: Store) -> tuple[str, Harness]:
    """A fork at any event, also in the middle of what was written at once; then a fork of the fork."""
    one = harness(random, store, lambda ask: batch(random, len(ask.transcript)) if random.random() < 0.6 else "done")
    thread = one.thread()
    await thread.run("go")
    for text in ("other", "still other"):
        length = (await store.link(thread.log)).seq
        thread = await thread.fork(at=random.randint(3, length))
        state = await thread.state()
        await (thread.resume() if state.finished is None and random.random() < 0.5 else thread.run(text))
    return thread.log, one


@kind
async def rolled_back(random: Random, store: Store) -> tuple[str, Harness]:
    one = harness(random, store, lambda ask: batch(random, len(ask.transcript)) if random.random() < 0.5 else "done")
    thread = one.thread()
    for text in "abc":
        await thread.run(text)
    await thread.rollback(turns=random.randint(1, 2))
    await thread.run("d")
    return thread.log, one


@kind
async def lost_in_the_middle(random: Random, store: Store) -> tuple[str, Harness]:
    """A tool of each effect was under way when its process went away; of the `write` somebody is asked what became of it."""
    hangs = [True]

    @tool(effect="read")
    async def look(x: str) -> str:
        """Look."""
        return await hang(x)

    def took_effect(x: str) -> bool:
        return random.random() < 0.5 and bool(x)

    @tool(effect="write", verify=took_effect)
    async def send(x: str) -> str:
        """Send."""
        return await hang(x)

    @tool(effect="write")
    async def pay(x: str) -> str:
        """Pay."""
        return await hang(x)

    async def hang(x: str) -> str:
        if hangs[0]:
            await asyncio.Event().wait()
        return x

    names = random.sample(("look", "send", "pay"), k=3)
    lines = [calls(*(ToolCall.of(f"c-{name}", name, {"x": "a"}) for name in names)), "done"]
    asks = random.choice(("ask", "tell"))
    one = Harness(ScriptedModel(lines), tools=[look, send, pay], store=store, unknown_outcome=asks)  # type: ignore[arg-type]
    thread = one.thread()
    stream = thread.stream("go")
    started = 0
    async for event in stream:
        started += isinstance(event, st.ToolStarted)
        if started == len(names):
            await stream.aclose()
    with suppress(asyncio.CancelledError):
        await stream.result()
    hangs[0] = False
    result = await thread.resume()
    if result.stop == "approval":
        (approval,) = result.approvals
        chosen = random.choice((Decision("allow"), Decision("reject"), Decision("reject", why="I saw it fail")))
        await thread.decide({approval.key: chosen})
        result = await thread.resume()
    return thread.log, one


@kind
async def fetched(random: Random, store: Store) -> tuple[str, Harness]:
    """A model that must be given as bytes what lies behind a URL."""

    class Blind(ScriptedModel):
        @property
        def fetches(self) -> bool:
            return True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"\x89PNG\r\n\x1a\n" + random.randbytes(40)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        shown = [ImageBlock(Remote(f"http://127.0.0.1:{port}/{number}.png")) for number in range(3)]
        one = harness(random, store, Blind([batch(random, 0), "seen"]), media_from="anywhere")
        result = await one.run([TextBlock("Look."), *shown])
    return result.thread, one
