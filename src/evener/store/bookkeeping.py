"""What the tables say around the events must fit them: heads, inboxes, erased logs, blobs. As SQL; reads only."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from evener import events as ev
from evener.errors import EvenerError
from evener.store.blobs import Shelf
from evener.store.guard import UNREADABLE, Guard, What
from evener.store.log import Finding
from evener.transcript.blocks import DocumentBlock, ImageBlock, Stored, TextBlock, ToolResult
from evener.transcript.message import Message

if TYPE_CHECKING:
    import sqlite3

__all__ = ["around", "labels", "media_in", "shelves", "spilled_in"]

SPILLED = '"spilled"'
NAME = re.compile("[0-9a-f]{64}")


def around(connection: "sqlite3.Connection", numbers: Collection[int] | None) -> Iterator[Finding]:
    """Heads, inboxes and erased logs: of these logs, or of all."""
    heads = connection.execute(
        "SELECT h.thread, h.log FROM heads h LEFT JOIN logs l ON l.log = h.log WHERE l.thread IS NOT h.thread"
    )
    for thread, head in heads if numbers is None else ():
        yield Finding(thread, 0, f"The thread stands on {head!r}, which is not one of its logs.")
    settled = connection.execute(
        "SELECT l.number, l.log, i.number FROM inbox i JOIN logs l ON l.number = i.log"
        " WHERE i.settled < 0 OR i.settled > l.length OR typeof(i.settled) != 'integer'"
    )
    for number, log, note in settled:
        if numbers is None or number in numbers:
            yield Finding(log, 0, f"Note {note} is said to be settled by an event that is not there.")
    gone = connection.execute(
        "SELECT l.number, l.log, min(e.seq) FROM logs l JOIN events e ON e.log = l.number"
        " WHERE l.erased IS NOT NULL AND e.erased IS NULL GROUP BY l.number"
    )
    for number, log, seq in gone:
        if numbers is None or number in numbers:
            yield Finding(log, seq, "The log is said to be erased, and this event is not.")


def labels(connection: "sqlite3.Connection", threads: Collection[str], guard: Guard) -> Iterator[Finding]:
    """Titles and tags of these threads open."""
    titles = connection.execute("SELECT log, thread, title FROM logs ORDER BY number").fetchall()
    tags = connection.execute("SELECT thread, thread, tag FROM tags").fetchall()
    stored: tuple[tuple[What, list[tuple[str, str, str | bytes]]], ...] = (("title", titles), ("tag", tags))
    for what, rows in stored:
        for name, thread, text in rows:
            if thread in threads and guard.label(what, thread, text) == UNREADABLE != text:
                yield Finding(name, 0, f"A {what} of it cannot be read.")


def shelves(connection: "sqlite3.Connection", names: Iterable[str] | None, guard: Guard) -> Iterator[Finding]:
    """Each blob is what its name says: those of the names, or all."""
    shelf = Shelf(connection, guard)
    wanted = None if names is None else shelf.places(names)
    for place, size in connection.execute("SELECT digest, size FROM blobs").fetchall():
        try:
            if (wanted is None or place in wanted) and shelf.check(place) != size:
                yield Finding("", 0, f"The blob {place!r} has another size than the one that is noted.")
        except EvenerError as error:
            yield Finding("", 0, str(error))


def media_in(event: ev.Event) -> Iterator[str]:
    """The names of the blobs that an event relies on."""
    match event:
        case ev.MediaFetched():
            yield event.digest
        case ev.Prompted() | ev.Steered() | ev.Replied():
            yield from _in_message(event.message)
        case ev.Imported():
            for message in event.messages:
                yield from _in_message(message)
        case ev.CallFinished():
            yield from _in_blocks(event.content)
            yield from spilled_in(event)


def spilled_in(event: ev.Event) -> Iterator[str]:
    """Yield the name of the blob that holds the whole output of a call, when the event has the ends of it only.

    Older logs have it in the metadata. A program may have metadata of the same name, so the text must name it, too.
    """
    if not isinstance(event, ev.CallFinished):
        return
    if event.spilled is not None:
        yield event.spilled.id
    elif SPILLED in event.metadata:
        found = _decoded(event.metadata)
        name = found.spilled if found is not None else ""
        if NAME.fullmatch(name) and any(isinstance(block, TextBlock) and name in block.text for block in event.content):
            yield name


class _Metadata(msgspec.Struct, frozen=True):
    spilled: str


def _decoded(metadata: str) -> _Metadata | None:
    try:
        return msgspec.json.decode(metadata, type=_Metadata)
    except msgspec.MsgspecError:
        return None


def _in_message(message: Message) -> Iterator[str]:
    for block in message.blocks:
        yield from _in_blocks(block.content if isinstance(block, ToolResult) else (block,))


def _in_blocks(blocks: Collection[object]) -> Iterator[str]:
    for block in blocks:
        match block:
            case ImageBlock(source=Stored(digest=digest)) | DocumentBlock(source=Stored(digest=digest)):
                yield digest
