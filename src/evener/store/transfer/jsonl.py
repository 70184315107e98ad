"""Exports threads as lines of JSON, imports them, and writes a store without a file to a file. Complete or not at all."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from evener.errors import StoreError
from evener.events import decode_event
from evener.store import protocol
from evener.store.integrity.verify import spilled_in
from evener.store.protocol import Summary
from evener.store.sqlite.backup import free_goal, part_of, remove_part
from evener.store.sqlite.erase import named_in
from evener.store.sqlite.store import SqliteStore
from evener.store.transfer.cargo import Cargo, CargoBranch, CargoEvent, CargoThread, Chains
from evener.store.transfer.inspection import Inspection, Spool, ThreadSection
from evener.store.transfer.lines import (
    MOST_BYTES,
    VERSION,
    BlobLine,
    End,
    EventLine,
    Line,
    ThreadLine,
    bad,
    written,
)

PART = 3 << 18
"""How much of a blob stands in one line."""


@runtime_checkable
class Portable(Protocol):
    """A store that can export and import threads: all of ours can."""

    @property
    def encrypted(self) -> bool:
        """True if what lies on its disk is sealed."""
        ...

    async def logs(self, *, thread: str = "") -> Sequence[Summary]: ...

    async def outline(self, thread: str) -> CargoThread:
        """Return the thread of that id, or that the log of that id belongs to."""
        ...

    async def records(self, log: str, *, after: int, until: int) -> list[CargoEvent]:
        """Return some of the log's own events after number `after`, up to `until`; none when there are no more."""
        ...

    async def blobs_among(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that a blob has."""
        ...

    async def get_blob(self, digest: str) -> bytes: ...

    async def inside(self, thread: str) -> Sequence[str]: ...

    async def adopt(self, wholes: Sequence[CargoThread], cargo: Cargo) -> None:
        """Take in threads, all of them whole or nothing at all."""
        ...


async def export_lines(store: Portable, thread: str) -> AsyncIterator[bytes]:
    """Yield the lines of the thread of that id, or that the log of that id belongs to, each with its end.

    The threads of agents inside its calls are part of it: without them a call would be begun again. Events that come while it
    is exported are not.
    """
    digest, count = sha256(), 0
    async for line in _lines(store, [thread, *await store.inside(thread)]):
        data = written(line)
        digest.update(data)
        count += 1
        yield data
    yield written(End(count, digest.hexdigest()))


async def import_lines(store: Portable, lines: Iterable[bytes] | AsyncIterable[bytes]) -> str:
    """Take in what `export_lines` gave; the id of the thread. One that is there already is refused, unless it is the same."""
    inspection = Inspection(Spool(on_disk=not store.encrypted))
    try:
        async for data in _each(lines):
            inspection.add(data)
        sections = inspection.sections()
        new = [section.whole for section in sections if not await _is_there(store, section)]
        if new:
            await store.adopt(new, inspection.cargo)
        return sections[0].whole.thread
    finally:
        inspection.cargo.close()


def file_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, none longer than an export can have."""
    number = 0
    while data := file.readline(MOST_BYTES + 2):
        number += 1
        if len(data) > MOST_BYTES + 1:
            raise bad(number, f"it has more than {MOST_BYTES:,} bytes")
        yield data


async def _lines(store: Portable, threads: Iterable[str]) -> AsyncIterator[Line]:
    names, relied = set[str](), dict[str, tuple[str, int]]()
    for thread in threads:
        async for line in _section(store, await store.outline(thread)):
            if isinstance(line, EventLine) and (named := set(named_in(bytes(line.payload)))):
                names |= named
                relied |= dict.fromkeys(_list_spilled(line), (line.log, line.seq))
            yield line
    kept = await store.blobs_among(names)
    for name in relied.keys() - set(kept):
        raise protocol.incomplete(*relied[name], name)
    for name in kept:
        content = await store.get_blob(name)
        for start in range(0, len(content) or 1, PART):
            yield BlobLine(name, content[start : start + PART], start + PART >= len(content))


async def _section(store: Portable, whole: CargoThread) -> AsyncIterator[Line]:
    """Yield the lines of one thread, but for its blobs."""
    yield ThreadLine(VERSION, whole.thread, whole.head, whole.title, whole.tags)
    chains = Chains(whole.branches)
    for found in whole.branches:
        branch = chains.named(found)
        yield branch
        async for record in _records(store, branch, chains):
            yield EventLine.of(branch.log, record)


async def _records(store: Portable, branch: CargoBranch, chains: Chains) -> AsyncIterator[CargoEvent]:
    """Yield the records of a branch as they lie in a store without a cipher. There, each must be linked as it is stored."""
    following = chains.follow(branch, lambda _, payload: payload)
    seq = branch.base
    while seq < branch.length:
        page = await store.records(branch.log, after=seq, until=branch.length)
        if not page:
            raise protocol.damaged(branch.log, seq + 1)
        for record in page:
            linked = following.link(record)
            if not store.encrypted and linked.chain != record.chain:
                raise protocol.damaged(branch.log, record.seq)
            yield linked
        seq = page[-1].seq


def _list_spilled(line: EventLine) -> Iterable[str]:
    """Return the blobs without which the event has lost a part of what it said."""
    return spilled_in(decode_event(bytes(line.payload), line.version)) if line.erased is None else ()


async def _is_there(store: Portable, section: ThreadSection) -> bool:
    """True if the thread is in the store already: it would be exported to the same bytes. Refuses one that is not the same."""
    thread = section.whole.thread
    there = await store.logs(thread=thread)
    if not there:
        return False
    digest = sha256()
    async for line in _section(store, await store.outline(thread)):
        digest.update(written(line))
    if digest.digest() == section.digest:
        return True
    if all(log.erased for log in there):
        raise StoreError(
            f"The thread {thread!r} was erased in this store and stays erased, so nothing was imported. "
            "Import it into another store."
        )
    raise StoreError(
        f"The thread {thread!r} is in this store with other content, so nothing was imported. Import it into another "
        "store, or erase the one that is here."
    )


async def _each(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterable):
        async for data in lines:
            yield data
    else:
        for data in lines:
            yield data


async def write_file(store: Portable, goal: Path) -> None:
    """Write the store to `goal`, where a `SqliteStore` opens it."""
    free_goal(goal)
    part = part_of(goal)
    file = SqliteStore(part)
    try:
        for thread in sorted({summary.thread for summary in await store.logs()}):
            await import_lines(file, export_lines(store, thread))
        await file.backup(goal)
    finally:
        await file.aclose()
        remove_part(part)
