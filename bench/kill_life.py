"""One life of a process that has a conversation: it begins it or goes on with it, from wherever the last life left it.

Runs in a forked child until it is done or killed. What it tells goes to a pipe at once, a line each. Where it stands is read
from the store alone: the same plan is gone through in every life, and what is done already is left as it is.
"""

import asyncio
import os
from pathlib import Path

from bench.kill_store import telling_store
from bench.kill_world import Saga, Tell, World, agent
from evener.harness import Harness, Thread
from evener.loop.state import RunState
from evener.store.protocol import Store

__all__ = ["fork_of", "live", "root_of", "telling", "through"]

SECONDS = 240.0
"""No life takes longer, also on a busy machine: one that does hangs."""


def telling(pipe: int) -> Tell:
    """Writes lines to a pipe, unbuffered."""

    def tell(text: str) -> None:
        os.write(pipe, text.encode() + b"\n")

    return tell


async def live(saga: Saga, store: Store, *, side: Path, tell: Tell) -> None:
    """Bring the conversation and its branches to their ends, and close the store."""
    told = telling_store(store, tell)
    harness = agent(saga, store=told, side=side, tell=tell)
    tell("ready")
    root = await root_of(saga, store)
    thread = harness.thread(root, branch=root) if root else harness.thread()
    await through(thread, saga.root)
    branches = [_on_a_fork(harness, told, thread.id, saga.fork), _after_a_rollback(harness, told, thread.id, saga.back)]
    if saga.together:
        await asyncio.gather(*branches)
    else:
        for branch in branches:
            await branch
    tell("done")
    await store.aclose()


async def root_of(saga: Saga, store: Store) -> str:
    """The first log of the conversation, if it has begun."""
    known = [summary.log for summary in await store.logs() if summary.harness == saga.name and not summary.parent]
    if len(known) > 1:
        raise AssertionError(f"{saga.name} was begun {len(known)} times")
    return known[0] if known else ""


async def fork_of(root: str, store: Store) -> str:
    """The log that goes on from the end of the first one, if there is one."""
    end = (await store.link(root)).seq
    known = [summary.log for summary in await store.logs(thread=root) if (summary.parent, summary.parent_seq) == (root, end)]
    if len(known) > 1:
        raise AssertionError(f"{root} was forked at its end {len(known)} times")
    return known[0] if known else ""


async def _on_a_fork(harness: Harness, store: Store, root: str, world: World | None) -> None:
    if world is not None:
        known = await fork_of(root, store)
        await through(harness.thread(known) if known else await harness.thread(root, branch=root).fork(), world)


async def _after_a_rollback(harness: Harness, store: Store, root: str, world: World | None) -> None:
    if world is not None:
        thread = harness.thread(root)
        if await store.head(root) == root:
            await thread.rollback()
        await through(thread, world)


async def through(thread: Thread, world: World) -> None:
    """Have the run that the world is about: begun, resumed, or done already."""
    state = await thread.state() if thread.id else RunState()
    if not any(message.text == world.prompt for message in state.transcript.messages):
        await thread.run(world.prompt)
    elif state.finished is None:
        await thread.resume()
