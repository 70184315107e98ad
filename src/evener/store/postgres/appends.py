"""Group commit: what several logs of a process append at the same time is written in one transaction.

Usually a log has not changed since its holder wrote it, and has no notes: then one statement does it all. Otherwise the rows
of the logs are locked in the order of their numbers, so that two processes never wait for each other, and checked. If the
connection broke during the commit, so that the outcome is unknown, the chain shows whether the events were appended, and
they are not appended twice.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evener.errors import StoreError
from evener.events import VERSION
from evener.store import protocol
from evener.store.integrity import digests
from evener.store.integrity.digests import RULE, digest_of, link
from evener.store.postgres.arrays import PackedArray, pack_bytes, pack_floats, pack_integers, pack_texts
from evener.store.sqlite.rows import AppendedRows, EventRow, HeldLog

if TYPE_CHECKING:
    import sqlite3

    from evener.store.postgres.connection import PostgresConnection
    from evener.store.sqlite.writer import WriterJob


LOCK = "SELECT number FROM logs WHERE number = ANY(%s) OR log = ANY(%s) ORDER BY number FOR NO KEY UPDATE"
ENDS = (
    "SELECT number, epoch, length, head, EXISTS (SELECT 1 FROM inbox i WHERE i.log = l.number AND i.settled = 0), holder, log"
    " FROM logs l WHERE number = ANY(%b::bigint[]) ORDER BY number FOR NO KEY UPDATE"
)
INSERT = (
    "INSERT INTO events (log, seq, version, rule, at, kind, digest, chain, payload)"
    f" SELECT log, seq, {VERSION}, {RULE}, at, kind, digest, chain, payload"
    " FROM unnest(%b::bigint[], %b::bigint[], %b::double precision[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[])"
    " AS new (log, seq, at, kind, digest, chain, payload)"
)
GROW = (
    "UPDATE logs l SET length = n.length, head = n.head, changed = n.changed, lease_until = n.until, claim = n.claim"
    " FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::double precision[], %b::double precision[], %b::text[])"
    " AS n (number, length, head, changed, until, claim) WHERE l.number = n.number"
)
QUICKLY = (
    "WITH new AS (SELECT * FROM unnest("
    "%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bytea[], %b::double precision[],"
    " %b::double precision[], %b::text[])"
    " AS new (number, epoch, before, prior, length, head, changed, until, claim)),"
    " grown AS (UPDATE logs l SET length = new.length, head = new.head, changed = new.changed, lease_until = new.until,"
    " claim = new.claim FROM new WHERE l.number = new.number AND l.epoch = new.epoch AND l.length = new.before"
    " AND l.head = new.prior AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.log = l.number AND i.settled = 0)"
    " RETURNING l.number, new.before, l.length, l.head, l.changed),"
    " marked AS (INSERT INTO checkpoints (log, seq, chain, at) SELECT number, length, head, changed FROM grown"
    f" WHERE before / {digests.EVERY} <> length / {digests.EVERY}"
    " ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, chain = excluded.chain, at = excluded.at),"
    f" added AS ({INSERT} WHERE log IN (SELECT number FROM grown)) SELECT number FROM grown"
)
"""Adds events to the logs that stand where we think and have no note that waits, and returns which these are."""
RENEW = (
    "UPDATE logs l SET lease_until = n.until FROM unnest(%b::bigint[], %b::double precision[]) AS n (number, until)"
    " WHERE l.number = n.number"
)


class LogTail:
    """The end of a log as its holder knows it. Without `head`: unknown. The writer's thread updates it."""

    __slots__ = ("head", "length")

    def __init__(self, length: int = 0, head: bytes = b"") -> None:
        self.length = length
        self.head = head


class AppendJob:
    """Appends rows, if there are any, to a log whose lease is held, and renews the lease until `until`.

    `tail` is the end of the log. `certain`: if a note is waiting, only so many of the rows are appended. `settles`: the
    number of the note that is settled with them. `planned` is the outcome that the last attempt would have had, and the
    chain there, if it appended something.
    """

    __slots__ = ("certain", "held", "planned", "rows", "settles", "tail", "until")

    def __init__(
        self,
        held: HeldLog,
        rows: Sequence[EventRow],
        until: float,
        *,
        tail: LogTail,
        certain: int | None = None,
        settles: int | None = None,
    ) -> None:
        self.held = held
        self.tail = tail
        self.rows = rows
        self.until = until
        self.certain = certain
        self.settles = settles
        self.planned: tuple[AppendedRows, bytes] | None = None

    def __call__(self, _connection: "sqlite3.Connection") -> AppendedRows:
        """Refuse: `write_appends` takes all appends of a group at once."""
        raise StoreError("An append is written with its group, never by itself.")


class _End:
    """The end of a log in this transaction, and what is appended to it."""

    def __init__(self, found: tuple[Any, ...]) -> None:
        self.number, self.epoch, self.length, self.head, self.noted, self.holder, self.log = found
        self.before, self.prior = self.length, self.head
        self.changed = self.until = 0.0
        self.claim = ""
        self.renewed = False


_Row = tuple[int, int, float, str, bytes, bytes, bytes]
"""Log, number, time, kind, digest, chain and payload of an event."""


def lock_logs(connection: "PostgresConnection", numbers: Iterable[int], names: Iterable[str]) -> None:
    """Lock the rows of these logs, in the order of their numbers."""
    wanted = sorted(set(names))
    if wanted:
        connection.raw.execute(LOCK, (sorted(set(numbers)), wanted))


def write_appends(connection: "PostgresConnection", group: Sequence["WriterJob[Any]"], *, alone: bool) -> None:
    """Do the appends of a group; what is refused is noted in its request. `alone`: in a transaction of their own."""
    left = _write_quickly(connection, group) if alone else group
    if left:
        _write_with_care(connection, left, alone=alone)


def _write_quickly(connection: "PostgresConnection", group: "Sequence[WriterJob[Any]]") -> "Sequence[WriterJob[Any]]":
    """Do what one statement can do, in a transaction of its own; the rest, in order."""
    ends: dict[int, _End] = {}
    rows: list[_Row] = []
    jobs: list[AppendJob] = [request.job for request in group]  # type: ignore[misc]  # all are AppendJobs
    tails = {job.held.number: job.tail for job in jobs}
    unfit = {job.held.number for job in jobs if not _is_plain(job) or job.tail is not tails[job.held.number]}
    for request, job in zip(group, jobs, strict=True):
        number, tail = job.held.number, job.tail
        if number not in unfit:
            end = ends.get(number) or _End((number, job.held.epoch, tail.length, tail.head, False, "", job.held.log))
            request.error, request.result = None, _add(connection, job, ends.setdefault(number, end), rows, [])
    if not rows:
        return group
    every = list(ends.values())
    found = connection.raw.execute(
        QUICKLY,
        (
            pack_integers([end.number for end in every]), pack_integers([end.epoch for end in every]),
            pack_integers([end.before for end in every]), pack_bytes([end.prior for end in every]), *_pack_ends(every),
            *_pack_rows(rows),
        ),
    ).fetchall()  # fmt: skip
    grown = {number for (number,) in found}
    return [request for request, job in zip(group, jobs, strict=True) if job.held.number not in grown]


def _is_plain(job: AppendJob) -> bool:
    """True if the job only adds rows, and was not tried before."""
    return bool(job.rows) and bool(job.tail.head) and job.planned is None and job.settles is None


def _write_with_care(connection: "PostgresConnection", group: "Sequence[WriterJob[Any]]", *, alone: bool) -> None:
    raw = connection.raw
    numbers = sorted({request.job.held.number for request in group})  # type: ignore[attr-defined]  # all are AppendJobs
    with raw.pipeline():
        if alone:
            raw.execute("BEGIN")
        cursor = raw.execute(ENDS, (pack_integers(numbers),))
        ends = {found[0]: _End(found) for found in cursor.fetchall()}
    rows: list[_Row] = []
    settled: list[tuple[int, int, int]] = []
    for request in group:
        job: AppendJob = request.job  # type: ignore[assignment]
        request.error = None
        try:
            request.result = _add(connection, job, ends.get(job.held.number), rows, settled)
        except StoreError as error:
            request.error = error
    with raw.pipeline():
        _write(connection, list(ends.values()), rows, settled)
        if alone:
            raw.execute("COMMIT")


def _add(
    connection: "PostgresConnection",
    job: AppendJob,
    end: _End | None,
    rows: list[_Row],
    settled: list[tuple[int, int, int]],
) -> AppendedRows:
    """Add the rows of one job to those that will be written. Refuses a holder that was replaced."""
    if job.planned is not None and _is_done(connection, job, *job.planned):
        return job.planned[0]
    if end is None or end.epoch != job.held.epoch or end.log != job.held.log:
        raise protocol.lost(job.held.log, end.holder if end else "")
    if job.settles is not None and not _is_open(connection, job.held.number, job.settles, settled):
        raise protocol.no_note(job.held.log, job.settles)
    noted = bool(end.noted) and job.certain is not None
    added = job.rows[: job.certain] if noted else job.rows
    number, length, head = end.number, end.length, end.head
    for row in added:
        digest, at, kind = digest_of(row.payload), row.at, row.kind
        length += 1
        head = link(head, digest, seq=length, version=VERSION, at=at, kind=kind)
        rows.append((number, length, at, kind, digest, head, row.payload))
    if added:
        end.length, end.head, end.changed, end.claim = length, head, added[-1].at, job.held.mark
    end.until, end.renewed = job.until, True
    grown = AppendedRows(end.length, noted=noted, head=end.head)
    if added or job.settles is not None:  # renewing twice does no harm
        job.planned = (grown, end.head)
    if job.settles is not None:
        settled.append((end.length, end.number, job.settles))
    return grown


def _write(connection: "PostgresConnection", ends: list[_End], rows: list[_Row], settled: list[tuple[int, int, int]]) -> None:
    raw = connection.raw
    grown = [end for end in ends if end.length != end.before]
    renewed = [end for end in ends if end.length == end.before and end.renewed]
    if rows:
        raw.execute(INSERT, _pack_rows(rows))
        raw.execute(GROW, (pack_integers([end.number for end in grown]), *_pack_ends(grown)))
    if renewed:
        raw.execute(RENEW, (pack_integers([end.number for end in renewed]), pack_floats([end.until for end in renewed])))
    for length, number, note in settled:
        raw.execute("UPDATE inbox SET settled = %s WHERE log = %s AND number = %s", (length, number, note))
    for end in grown:
        if digests.due(end.before, end.length):
            raw.execute(
                "INSERT INTO checkpoints (log, seq, chain, at) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, chain = excluded.chain, at = excluded.at",
                (end.number, end.length, end.head, end.changed),
            )


def _pack_rows(rows: list[_Row]) -> tuple[PackedArray, ...]:
    logs, seqs, times, kinds, hashes, chains, payloads = zip(*rows, strict=True)
    return (
        pack_integers(logs), pack_integers(seqs), pack_floats(times), pack_texts(kinds),
        pack_bytes(hashes), pack_bytes(chains), pack_bytes(payloads),
    )  # fmt: skip


def _pack_ends(ends: list[_End]) -> tuple[PackedArray, ...]:
    return (
        pack_integers([end.length for end in ends]), pack_bytes([end.head for end in ends]),
        pack_floats([end.changed for end in ends]), pack_floats([end.until for end in ends]),
        pack_texts([end.claim for end in ends]),
    )  # fmt: skip


def _is_open(connection: "PostgresConnection", log: int, note: int, settled: list[tuple[int, int, int]]) -> bool:
    """True if the note is there and not settled, neither before nor by this group."""
    found = connection.raw.execute("SELECT 1 FROM inbox WHERE log = %s AND number = %s AND settled = 0", (log, note)).fetchone()
    return found is not None and (log, note) not in {(number, one) for _, number, one in settled}


def _is_done(connection: "PostgresConnection", job: AppendJob, grown: AppendedRows, head: bytes) -> bool:
    """True if an attempt whose answer was lost did commit."""
    if job.settles is not None:
        query = "SELECT 1 FROM inbox WHERE log = %s AND number = %s AND settled = %s"
        values: tuple[object, ...] = (job.held.number, job.settles, grown.length)
    else:
        query = "SELECT 1 FROM events WHERE log = %s AND seq = %s AND chain = %s"
        values = (job.held.number, grown.length, head)
    return connection.raw.execute(query.encode(), values).fetchone() is not None
