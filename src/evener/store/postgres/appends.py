"""Group commit: what several logs of a process append at one moment is written in one transaction, in two round trips.

The rows of all these logs are locked in the order of their numbers, so that two processes never wait for each other. An append
that cannot be told from lost, because the connection broke while it was committed, is recognised by its chain and not repeated.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evener.errors import StoreError
from evener.events import VERSION
from evener.store import protocol
from evener.store.integrity import digests
from evener.store.integrity.digests import RULE, digest_of, link
from evener.store.sqlite.rows import AppendedRows, EventRow, HeldLog

if TYPE_CHECKING:
    import sqlite3

    from evener.store.postgres.connection import PostgresConnection
    from evener.store.sqlite.writer import WriterJob

__all__ = ["AppendJob", "lock_logs", "write_appends"]


LOCK = "SELECT number FROM logs WHERE number = ANY(%s) OR log = ANY(%s) ORDER BY number FOR NO KEY UPDATE"
ENDS = (
    "SELECT number, epoch, length, head, EXISTS (SELECT 1 FROM inbox i WHERE i.log = l.number AND i.settled = 0), holder, log"
    " FROM logs l WHERE number = ANY(%s) ORDER BY number FOR NO KEY UPDATE"
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
RENEW = (
    "UPDATE logs l SET lease_until = n.until FROM unnest(%b::bigint[], %b::double precision[]) AS n (number, until)"
    " WHERE l.number = n.number"
)


class AppendJob:
    """Adds rows to a log that is held, if there are any, and renews its lease until `until`.

    `certain`: only so many of the rows are added when a note waits to be settled. `settles`: the number of the note that is
    settled with them. `planned` is what the last attempt would have led to, and the chain there, if it added something.
    """

    __slots__ = ("certain", "held", "planned", "rows", "settles", "until")

    def __init__(
        self, held: HeldLog, rows: Sequence[EventRow], until: float, *, certain: int | None = None, settles: int | None = None
    ) -> None:
        self.held = held
        self.rows = rows
        self.until = until
        self.certain = certain
        self.settles = settles
        self.planned: tuple[AppendedRows, bytes] | None = None

    def __call__(self, _connection: "sqlite3.Connection") -> AppendedRows:
        """Refuse: `write_appends` takes all appends of a group at once."""
        raise StoreError("An append is written with its group, never by itself.")


class _End:
    """Where a log stands in this transaction, and what is added to it."""

    def __init__(self, found: tuple[Any, ...]) -> None:
        self.number, self.epoch, self.length, self.head, self.noted, self.holder, self.log = found
        self.before = self.length
        self.changed = self.until = 0.0
        self.claim = ""
        self.renewed = False


class _Row(NamedTuple):
    log: int
    seq: int
    at: float
    kind: str
    digest: bytes
    chain: bytes
    payload: bytes


def lock_logs(connection: "PostgresConnection", numbers: Iterable[int], names: Iterable[str]) -> None:
    """Lock the rows of these logs, in the order of their numbers."""
    wanted = sorted(set(names))
    if wanted:
        connection.raw.execute(LOCK, (sorted(set(numbers)), wanted))


def write_appends(connection: "PostgresConnection", group: Sequence["WriterJob[Any]"], *, commit: bool) -> None:
    """Do the appends of a group within the transaction; what is refused is noted in its request. `commit` ends it."""
    raw = connection.raw
    numbers = sorted({request.job.held.number for request in group})  # type: ignore[attr-defined]  # all are AppendJobs
    with raw.pipeline():
        cursor = raw.execute(ENDS, (numbers,))
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
        if commit:
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
    for row in added:
        digest = digest_of(row.payload)
        end.length += 1
        end.head = link(end.head, digest, seq=end.length, version=VERSION, at=row.at, kind=row.kind)
        rows.append(_Row(end.number, end.length, row.at, row.kind, digest, end.head, row.payload))
        end.changed, end.claim = row.at, job.held.mark
    end.until, end.renewed = job.until, True
    grown = AppendedRows(end.length, noted=noted)
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
        raw.execute(INSERT, [list(column) for column in zip(*rows, strict=True)])
        raw.execute(
            GROW,
            (
                [end.number for end in grown], [end.length for end in grown], [end.head for end in grown],
                [end.changed for end in grown], [end.until for end in grown], [end.claim for end in grown],
            ),
        )  # fmt: skip
    if renewed:
        raw.execute(RENEW, ([end.number for end in renewed], [end.until for end in renewed]))
    for length, number, note in settled:
        raw.execute("UPDATE inbox SET settled = %s WHERE log = %s AND number = %s", (length, number, note))
    for end in grown:
        if digests.due(end.before, end.length):
            raw.execute(
                "INSERT INTO checkpoints (log, seq, chain, at) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, chain = excluded.chain, at = excluded.at",
                (end.number, end.length, end.head, end.changed),
            )


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
