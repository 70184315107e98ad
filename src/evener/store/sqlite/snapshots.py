"""The state of a long log without reading all of it: from a saved state, and the events after it. As SQL.

A saved state is only a hint: it says for which event and chain it was made, and by which code. If one of these does not
match, it is ignored, and the state is computed from an earlier one or from the beginning of the log. Of the messages it has
only the last: the others are read from their events on access (`PagedNode`), so computing a state takes no more memory than
a few of its events, however large the log is. If requests contain less than the whole conversation, that part is saved
whole.

The table is created with the first saved state. Erasing in a thread drops all saved states of it, in the transaction that
erases; another key drops all. A fork uses those of its parents.
"""

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from sys import modules
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from evener import __version__
from evener.errors import EvenerError, StoreError
from evener.loop.state import RunState, apply, fold
from evener.store.integrity.digests import MISFITS
from evener.store.protocol import Damaged
from evener.store.redaction import Redaction
from evener.store.sqlite import reading
from evener.store.sqlite.file import only_read
from evener.store.sqlite.writer import Job, WriterThread
from evener.transcript.blocks import TextBlock
from evener.transcript.message import Message
from evener.transcript.transcript import Node, Transcript, paged

if TYPE_CHECKING:
    import sqlite3


EVERY = 1024
"""A fold is kept after so many events. A shorter log has none, and is in memory as a whole."""
SELDOM = 16 * EVERY
"""The same for a log that is being written to."""
BYTES = 8 << 20
"""A fold is kept, too, when the events since the last one have more bytes than this."""
STEP = 4 * EVERY
"""How many events are folded in one transaction beside other work: where a reader holds up a writer, not for long."""
LAST_STEPS = 2.0
"""Seconds that the closing of a store may spend on folds that are not finished."""
AT_ONCE = 16
"""How many events are in memory while a log is folded."""
TABLE = (
    """
    CREATE TABLE IF NOT EXISTS folds (
        id INTEGER PRIMARY KEY,
        log INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        chain BLOB NOT NULL,
        code TEXT NOT NULL,
        state BLOB NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX IF NOT EXISTS folds_in_order ON folds (log, seq)",
)
CODE = (
    "evener.context.view", "evener.encodings.forms", "evener.events", "evener.loop.state", "evener.store.sqlite.snapshots",
    "evener.transcript.blocks", "evener.transcript.message", "evener.transcript.transcript", "evener.transcript.reply",
    "evener.transcript.ask",
)  # fmt: skip


Alone = Callable[[Job[Node | None]], Node | None]


class Snapshot(msgspec.Struct, frozen=True):
    """A state to save: its log, its event, and how many erasures there had been."""

    number: int
    seq: int
    chain: bytes
    erasures: str
    state: bytes


class Folded(msgspec.Struct, frozen=True):
    """The state of a log at the event `seq`, and the states that are worth saving. `more`: the log has later events."""

    state: RunState
    seq: int
    due: tuple[Snapshot, ...] = ()
    more: bool = False


class Pager:
    """Reads the messages of a paged state, on its own connection, so that it works after the store was closed."""

    def __init__(self, alone: Alone, guard: Redaction) -> None:
        self._alone = alone
        self._guard = guard

    def paged(
        self, depth: int, last: Message | None, system: tuple[TextBlock, ...], *, media: bool, log: str, seq: int
    ) -> Transcript:
        """Return the transcript at that event of the log, which has so many messages: with the last of them only.

        `media`: some of them have media that lie elsewhere.
        """
        if last is None:
            return Transcript((), system)
        load = partial(self._before, log, seq, depth, last.id)
        return paged(last, load, depth=depth, system=system, media=media)

    def _before(self, log: str, seq: int, depth: int, last: str) -> Node | None:
        head = self._alone(partial(_head_at, log=log, seq=seq, guard=self._guard))
        if head is None or head.depth != depth or head.message.id != last:
            raise Damaged(
                f"The messages of the log {log!r} up to event {seq} have changed since the log was opened. Nothing was "
                "written. Open the thread again."
            )
        return head.parent


def _head_at(connection: "sqlite3.Connection", log: str, seq: int, guard: Redaction) -> Node | None:
    with closing(reading.stream(connection, log, 0, seq, guard)) as events:
        return fold(events).transcript.head


def fold_log(
    connection: "sqlite3.Connection", log: str, guard: Redaction, pager: Pager, until: int | None = None, step: int = 0
) -> Folded:
    """Return the state at the end of the log, or after the event `until`. Called in a transaction that reads.

    With `step`, no more than so many events after the last kept fold.
    """
    pieces = reading.pieces(connection, log, until=until)
    end = pieces[-1].until if pieces else 0
    if end < EVERY:
        with closing(reading.stream(connection, log, 0, until, guard)) as events:
            return Folded(fold(events), end)
    seq, state = _nearest(connection, pieces, guard, pager)
    goal = min(end, seq + step) if step else end
    walk = _Walk(connection, pieces, guard, pager, seq)
    with closing(reading.stream(connection, log, seq, goal, guard)) as events:
        for event in events:
            state = walk.after(apply(state, event))
    return walk.ended(state, more=goal < end)


class _Walk:
    """One pass over a log, from the event `seq` on."""

    def __init__(
        self, connection: "sqlite3.Connection", pieces: list[reading.PathSection], guard: Redaction, pager: Pager, seq: int
    ) -> None:
        self._connection = connection
        self._pieces = pieces
        self._guard = guard
        self._pager = pager
        self._kept = self._seq = seq
        self._due: list[Snapshot] = []

    def after(self, state: RunState) -> RunState:
        """Return the state one event further on, without the messages that would pile up."""
        self._seq += 1
        if self._seq % AT_ONCE:
            return state
        state = self._page(state)
        if self._seq % EVERY == 0:
            self._keep(state)
        return state

    def ended(self, state: RunState, *, more: bool) -> Folded:
        """Return the state at the end of the walk, and the folds that are due."""
        state = self._page(state)
        if self._seq > self._kept and self._bytes() > BYTES:
            self._keep(state)
        return Folded(state, self._seq, tuple(self._due), more)

    def _page(self, state: RunState) -> RunState:
        now = state.transcript
        flat = self._pager.paged(
            len(now), now.last, now.system_blocks, media=now.has_far_media, log=self._piece().log, seq=self._seq
        )
        return msgspec.structs.replace(state, transcript=flat)

    def _piece(self) -> reading.PathSection:
        return next(piece for piece in self._pieces if self._seq <= piece.until)

    def _keep(self, state: RunState) -> None:
        piece = self._piece()
        found = self._connection.execute(
            "SELECT chain FROM events WHERE log = ? AND seq = ?", (piece.number, self._seq)
        ).fetchone()
        sealed = self._guard.seal("fold", piece.log, _encode(state), number=self._seq)
        self._due.append(Snapshot(piece.number, self._seq, found[0], _erasures(self._connection), sealed))
        self._kept = self._seq

    def _bytes(self) -> int:
        """Return how many bytes the events since the last kept fold have."""
        query = "SELECT coalesce(sum(length(payload)), 0) FROM events WHERE log = ? AND seq > ? AND seq <= ?"
        spans = [(piece.number, self._kept, piece.until) for piece in self._pieces if self._kept < piece.until]
        return sum(self._connection.execute(query, span).fetchone()[0] for span in spans)


class Folder:
    """Folds logs and keeps the folds, beside whatever else is done. `folded` is what a job does, but for the log."""

    def __init__(self, reader: WriterThread, writer: WriterThread, folded: Callable[..., Folded]) -> None:
        self._reader = reader
        self._writer = writer
        self._folded = folded
        self._busy: dict[str, bool] = {}  # logs that are being folded, and whether that is to be done once more
        self._reached: dict[str, int] = {}  # how far they were folded
        self._steps = 0

    def job(self, log: str, until: int | None = None) -> "Callable[[sqlite3.Connection], Folded]":
        """Return the job that folds this log, to its end or up to an event."""
        return partial(self._folded, log=log, until=until)

    def soon(self, log: str) -> None:
        """Fold the log and keep that, step by step. Never waits, never raises."""
        if log in self._busy:
            self._busy[log] = True
            return
        self._busy[log] = False
        self._reader.send(partial(self._try, log=log), partial(self._found, log))

    def keep(self, found: Folded) -> None:
        """Keep what is worth it. When it cannot be written, nothing is lost."""
        self._found("", found)

    async def finish(self) -> None:
        """Let what is being folded come to its end, for a bounded time."""
        until, steps = monotonic() + LAST_STEPS, -1
        while self._busy and steps != self._steps and monotonic() < until:
            steps = self._steps
            with suppress(StoreError):
                await self._reader.run(_pass)
                await self._writer.run(_pass)

    def _try(self, connection: "sqlite3.Connection", log: str) -> Folded:
        try:
            return self._folded(connection, log=log, step=STEP)
        except BaseException:
            self._busy.pop(log, None)
            raise

    def _found(self, log: str, found: Folded) -> None:
        self._steps += 1
        if found.due and not only_read(self._writer.path):
            self._writer.send(partial(put, snapshots=found.due), lambda _: self._finish(log, found))
        else:
            self._busy.pop(log, None)

    def _finish(self, log: str, found: Folded) -> None:
        """Fold on from what was kept. Where it is not found again, that is the end."""
        wanted = self._busy.pop(log, False) or found.more
        if log and wanted and found.seq > self._reached.get(log, 0):
            self._reached[log] = found.seq
            self.soon(log)


def _pass(connection: "sqlite3.Connection") -> None:
    """Do nothing to the data: only take the caller's turn."""


def put(connection: "sqlite3.Connection", snapshots: Iterable[Snapshot]) -> None:
    """Keep folds, unless something was erased since they were made. Called in a transaction that writes."""
    for statement in TABLE:
        connection.execute(statement)
    erasures = _erasures(connection)
    for one in snapshots:
        if one.erasures == erasures and _chain_at(connection, one.number, one.seq) == one.chain:
            connection.execute("DELETE FROM folds WHERE log = ? AND code <> ?", (one.number, code()))
            connection.execute(
                "INSERT OR REPLACE INTO folds (log, seq, chain, code, state) VALUES (?, ?, ?, ?, ?)",
                (one.number, one.seq, one.chain, code(), one.state),
            )


def drop(connection: "sqlite3.Connection", numbers: Iterable[int]) -> None:
    """Forget what was kept of the threads of these logs: something of them is erased."""
    if _is_there(connection):
        connection.executemany(
            "DELETE FROM folds WHERE log IN"
            " (SELECT number FROM logs WHERE thread = (SELECT thread FROM logs WHERE number = ?))",
            [(number,) for number in numbers],
        )


def drop_all(connection: "sqlite3.Connection") -> None:
    """Forget everything that was kept."""
    if _is_there(connection):
        connection.execute("DELETE FROM folds")


@cache
def code() -> str:
    """Return a hash of the source that folds. A fold that other code made may be another one."""
    made = sha256(__version__.encode())
    for name in CODE:
        place = modules[name].__file__
        try:
            made.update(Path(place or "").read_bytes())
        except OSError:  # installed without its source: the version must do
            made.update(name.encode())
    return made.hexdigest()


def _nearest(
    connection: "sqlite3.Connection", pieces: list[reading.PathSection], guard: Redaction, pager: Pager
) -> tuple[int, RunState]:
    """Return the last fold on the path that fits, and where it stands; the beginning if there is none."""
    if not _is_there(connection):
        return 0, RunState()
    for piece in reversed(pieces):
        found = connection.execute(
            "SELECT seq, chain, state FROM folds WHERE log = ? AND seq > ? AND seq <= ? AND code = ? ORDER BY seq DESC LIMIT 1",
            (piece.number, piece.base, piece.until, code()),
        ).fetchone()
        if found is not None and _chain_at(connection, piece.number, found[0]) == found[1]:
            seq, _, sealed = found
            try:
                return seq, _decode(guard.open("fold", piece.log, sealed, number=seq), piece.log, seq, pager)
            except (EvenerError, msgspec.MsgspecError, *MISFITS):
                continue
    return 0, RunState()


def _chain_at(connection: "sqlite3.Connection", number: int, seq: int) -> object:
    found = connection.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (number, seq)).fetchone()
    return found[0] if found else None


def _erasures(connection: "sqlite3.Connection") -> str:
    found = connection.execute("SELECT value FROM meta WHERE key = 'erasures'").fetchone()
    return str(found[0]) if found else ""


def _is_there(connection: "sqlite3.Connection") -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'folds'").fetchone() is not None


# A state as bytes.


class _Kept(msgspec.Struct, frozen=True):
    """A saved state, and separately the saved part of its transcript: everything except its messages, and the last of these.

    `view` are the messages that requests contain, if these are not all: no more than fit into a model's window. `before` are
    those before the newest edit.
    """

    state: RunState
    depth: int
    last: Message | None
    system: tuple[TextBlock, ...]
    media: bool
    view: tuple[Message, ...] | None = None
    before: tuple[Message, ...] | None = None


def _encode_nothing(value: object) -> None:
    """Encode nothing in place of the transcript within the state."""
    assert isinstance(value, Transcript)


_encoder = msgspec.json.Encoder(enc_hook=_encode_nothing)
_decoder = msgspec.json.Decoder(_Kept, dec_hook=lambda _kind, _value: Transcript())


def _encode(state: RunState) -> bytes:
    transcript = state.transcript
    view, before = (state.context.transcript, state.context.before) if state.context else (None, None)
    kept = _Kept(
        state, len(transcript), transcript.last, transcript.system_blocks, transcript.has_far_media,
        None if view is None else view.messages, None if before is None else before.messages,
    )  # fmt: skip
    return _encoder.encode(kept)


def _decode(content: bytes, log: str, seq: int, pager: Pager) -> RunState:
    kept = _decoder.decode(content)
    transcript = pager.paged(kept.depth, kept.last, kept.system, media=kept.media, log=log, seq=seq)
    context = kept.state.context
    if context is not None:
        view = None if kept.view is None else Transcript(kept.view, kept.system)
        before = None if kept.before is None else Transcript(kept.before, kept.system)
        context = msgspec.structs.replace(context, transcript=view, before=before)
    return msgspec.structs.replace(kept.state, transcript=transcript, context=context)
