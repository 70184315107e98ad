"""An eventful life of a store, what was told in it, and what must be true of any files it may have left.

Several logs at once, appends of one to three events, small and large, notes, blobs, a fork, and a store that is closed and
opened again in between. Whenever a promise was made, the recording has a mark of it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path

import msgspec

from evener.errors import EvenerError
from evener.events import Event, Opened
from evener.store import Log, Note, SqliteStore
from evener.store.protocol import NoLog
from tests.store.proofs.disk import Files, Mark, Step
from tests.store.proofs.recorder import Recorder
from tests.store.stores import opened, said

__all__ = ["FILE", "Scene", "flaws_of", "laid_out", "lived", "told_in"]

FILE = "evener.db"
HEADS = f"{FILE}.heads"
LOGS = ("a", "b", "c")
FORK = "fork of c"
ROUNDS = 6
LATER = 4e9
"""A time by which every lease is over."""


class Scene(msgspec.Struct, frozen=True):
    """What was written in the end: the events of each log, and at which lengths an append ended."""

    events: dict[str, list[Event]]
    ends: dict[str, frozenset[int]]


def lived(folder: Path, recorder: Recorder) -> Scene:
    """Live through it in this folder."""
    recorder.watched = folder / HEADS
    return asyncio.run(_live(folder / FILE, recorder))


async def _live(path: Path, recorder: Recorder) -> Scene:
    for life in range(2):
        store = SqliteStore(path, clock=repeat(LATER * life).__next__)
        await asyncio.gather(*(_fill(store, name, life, recorder) for name in LOGS))
        await store.aclose()
    store = SqliteStore(path)
    events = {name: await store.read(name) for name in (*LOGS, FORK)}
    await store.aclose()
    marks = [_told(step) for step in recorder.steps if isinstance(step, Mark)]
    return Scene(events, {name: frozenset(length for log, length in marks if log == name) for name in events})


async def _fill(store: SqliteStore, name: str, life: int, recorder: Recorder) -> None:
    log: Log = (await store.open(name, holder="h"))[0] if life else await store.create(name, opened(name), holder="h")
    recorder.mark(f"{name}: {log.length}")
    for number in range(ROUNDS):
        size = 1 + (number + life) % 3
        text = "x" * (9000 if number == 3 else 300)
        await log.append(*(said(f"{life}.{number}.{piece} {text}") for piece in range(size)))
        recorder.mark(f"{name}: {log.length}")
        if number == 2:
            await store.post(name, Note(f"{life}", "steer", "{}"))
            await log.settle((await log.notes())[0].number, said(f"{life}.note"))
            recorder.mark(f"{name}: {log.length}")
    await store.put_blob(f"{name} {life}".encode() * 2000)
    await log.aclose()
    if name in FORK and not life:
        await _fork(store, name, recorder)


async def _fork(store: SqliteStore, name: str, recorder: Recorder) -> None:
    link = await store.link(name, 5)
    first = Opened(at=3.0, thread=name, harness="h", parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
    log = await store.create(FORK, first, holder="h")
    recorder.mark(f"{FORK}: {log.length}")
    await store.move_head(name, FORK)
    for number in range(ROUNDS):
        await log.append(said(f"{number} on the fork"), said("x" * 200))
        recorder.mark(f"{FORK}: {log.length}")
    await log.aclose()


def told_in(steps: Iterable[Step]) -> dict[str, int]:
    """How long each log surely is: the greatest length that was acknowledged."""
    told: dict[str, int] = {}
    for step in steps:
        if isinstance(step, Mark):
            name, length = _told(step)
            told[name] = max(length, told.get(name, 0))
    return told


def _told(mark: Mark) -> tuple[str, int]:
    name, _, length = mark.text.partition(": ")
    return name, int(length)


def laid_out(files: Files, folder: Path) -> Path:
    """Write the files into a new folder; the path of the store in it."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / FILE


async def flaws_of(path: Path, scene: Scene, told: dict[str, int]) -> list[str]:
    """What is wrong with the store at `path`, if so much was acknowledged: every sentence is a broken promise."""
    store = SqliteStore(path, clock=lambda: 2 * LATER)
    found: list[str] = []
    try:
        for name in scene.events:
            found += await _flaws_of_log(store, name, scene, told.get(name, 0))
        found += [f"{one.log}: damaged at {one.seq}: {one.what}" for one in await store.verify() if one.damage]
    except EvenerError as error:
        found.append(f"it cannot be used: {error}")
    finally:
        await store.aclose()
    return found


async def _flaws_of_log(store: SqliteStore, name: str, scene: Scene, told: int) -> list[str]:
    try:
        log, events = await store.open(name, holder="next")
    except NoLog:
        return [f"{name}: lost, with {told} acknowledged events"] if told else []
    found = _differences(name, events, scene, told)
    await log.append(said("and on"))
    again = await store.read(name)
    if [*events, said("and on")] != again:
        found.append(f"{name}: cannot go on")
    return found


def _differences(name: str, events: Sequence[Event], scene: Scene, told: int) -> list[str]:
    found = []
    many = len(events)
    if many < told:
        found.append(f"{name}: lost, {many} of {told} acknowledged events are there")
    if list(events) != scene.events[name][:many]:
        found.append(f"{name}: changed")
    if many not in scene.ends[name]:
        found.append(f"{name}: partial, it ends at {many} within an append")
    return found
