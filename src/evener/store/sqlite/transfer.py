"""Threads that leave a SQLite store and enter one, as SQL. An import is complete or does not happen."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from evener.store import protocol
from evener.store.integrity import digests
from evener.store.integrity.digests import Checkpoint, Stone, digest_of, origin_of, stone_of, store_id
from evener.store.redaction import Redaction
from evener.store.sqlite import rows
from evener.store.sqlite.catalog import label_of
from evener.store.sqlite.leases import COPY
from evener.store.sqlite.rows import BlobTable
from evener.store.transfer.cargo import Blob, Cargo, CargoBranch, CargoEvent, CargoThread, Chains, holds_a_secret

if TYPE_CHECKING:
    import sqlite3


ROWS = 500
BATCH = 200
LISTED = "log, harness, began, changed, length, base, parent, parent_hash, erased"
STORED = "seq, version, rule, at, kind, digest, chain, payload, erased, stone"


def outline(connection: "sqlite3.Connection", thread: str, guard: Redaction) -> CargoThread:
    """Return the thread of that id, or that the log of that id belongs to."""
    found = connection.execute(
        "SELECT thread, title FROM logs WHERE thread = ? OR log = ? ORDER BY thread = ? DESC LIMIT 1", (thread,) * 3
    ).fetchone()
    if found is None:
        raise protocol.no_log(thread)
    owner, title = found
    sealed = connection.execute("SELECT tag FROM tags WHERE thread = ?", (owner,)).fetchall()
    tags = [guard.open_text("tag", owner, tag) for (tag,) in sealed]
    listed = connection.execute(f"SELECT {LISTED} FROM logs WHERE thread = ? ORDER BY number", (owner,)).fetchall()
    branches = tuple(CargoBranch(*row) for row in listed)
    return CargoThread(
        owner, rows.head(connection, owner), guard.open_text("title", owner, title), tuple(sorted(tags)), branches
    )


def page(connection: "sqlite3.Connection", log: str, after: int, until: int, guard: Redaction) -> list[CargoEvent]:
    """Return some of the log's own events after number `after`, up to `until`, as they were before they were sealed."""
    found = connection.execute(
        f"SELECT {STORED} FROM events WHERE log = (SELECT number FROM logs WHERE log = ?) AND seq > ? AND seq <= ?"
        " ORDER BY seq LIMIT ?",
        (log, after, until, ROWS),
    )
    records: list[CargoEvent] = []
    with closing(found) as rows:  # open, it would keep the connection at this moment
        for seq, version, rule, at, kind, digest, chain, payload, erased, stone in rows:
            whole = isinstance(payload, bytes) and (
                digest_of(payload) == digest if erased is None else stone_of(digest, erased, payload) == stone
            )
            if not whole or seq != after + len(records) + 1:
                raise protocol.damaged(log, seq)
            plain = guard.open("event", log, payload, number=seq)
            records.append(CargoEvent(seq, version, rule, at, kind, bytes(digest), bytes(chain), plain, erased))
    return records


def adopt(
    connection: "sqlite3.Connection", wholes: Sequence[CargoThread], cargo: Cargo, guard: Redaction
) -> list[Checkpoint | Stone]:
    """Take in threads with all branches and blobs. Gives what the sidecar is told: where they end, what is erased."""
    for name in (name for whole in wholes for name in (whole.thread, *(branch.log for branch in whole.branches))):
        if connection.execute("SELECT 1 FROM logs WHERE log = ? OR thread = ?", (name, name)).fetchone():
            raise protocol.already_there(name)
    connection.execute("SAVEPOINT adoption")
    try:
        told = [one for whole in wholes for one in _adopt(connection, whole, cargo, guard)]
        for blob in cargo.blobs():
            _shelve(connection, blob, guard)
        return told
    except BaseException:
        connection.execute("ROLLBACK TO adoption")
        raise
    finally:
        connection.execute("RELEASE adoption")


def _adopt(connection: "sqlite3.Connection", whole: CargoThread, cargo: Cargo, guard: Redaction) -> list[Checkpoint | Stone]:
    label = label_of(whole.title, whole.tags, guard.funnel)
    title = guard.seal_text("title", whole.thread, label.title or "")
    chains, told = Chains(whole.branches), list[Checkpoint | Stone]()
    for branch in map(chains.named, whole.branches):
        number = _begin(connection, whole.thread, branch, title, guard)
        told += _fill(connection, number, branch, chains.linked(branch, cargo.records(branch.log), _store(branch, guard)))
    connection.execute(rows.SET_HEAD, (whole.thread, whole.head))
    tags = [(whole.thread, guard.seal_text("tag", whole.thread, tag)) for tag in label.tags or ()]
    connection.executemany("INSERT INTO tags (thread, tag) VALUES (?, ?)", tags)
    return told


def _store(branch: CargoBranch, guard: Redaction) -> Callable[[int, bytes], bytes]:
    return lambda seq, payload: guard.seal("event", branch.log, guard.funnel.clean(payload), number=seq)


def _begin(connection: "sqlite3.Connection", thread: str, branch: CargoBranch, title: str | bytes, guard: Redaction) -> int:
    connection.execute(
        "INSERT INTO logs (log, thread, harness, parent, parent_seq, parent_hash, began, changed, length, head, epoch, holder,"
        f" claim, lease_until, base, title, erased) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, '', '{COPY}', 0, ?, ?, ?)",
        (
            branch.log, thread, guard.funnel.text(branch.harness), branch.parent, branch.base, branch.parent_hash, branch.began,
            branch.changed, branch.length, origin_of(branch.log), branch.base, title, branch.erased,
        ),
    )  # fmt: skip
    return int(rows.log_of(connection, branch.log, "number")[0])


def _fill(
    connection: "sqlite3.Connection", number: int, branch: CargoBranch, records: Iterator[CargoEvent]
) -> list[Checkpoint | Stone]:
    """Store the records of a branch. Return where it ends, and its tombstones."""
    seq, chain, told, store = branch.base, origin_of(branch.log), list[Checkpoint | Stone](), store_id(connection)
    while batch := list(islice(records, BATCH)):
        rows = [
            (
                number, record.seq, record.version, record.rule, record.at, record.kind, record.digest, record.chain,
                record.payload, record.erased, _stone(record),
            )
            for record in batch
        ]  # fmt: skip
        connection.executemany(f"INSERT INTO events (log, {STORED}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        told += [Stone(store, branch.log, row[1], row[-1].hex()) for row in rows if row[-1] is not None]
        seq, chain = batch[-1].seq, batch[-1].chain
    connection.execute("UPDATE logs SET head = ? WHERE number = ?", (chain, number))
    mark = digests.put(connection, number, seq=seq, chain=chain)
    return [*told, mark] if mark else told


def _stone(record: CargoEvent) -> bytes | None:
    return None if record.erased is None else stone_of(record.digest, record.erased, record.payload)


def _shelve(connection: "sqlite3.Connection", blob: Blob, guard: Redaction) -> None:
    if guard.funnel.blob(blob.content) != blob.content:
        raise holds_a_secret(blob)
    shelf = BlobTable(connection, guard)
    digest, stored = shelf.name_of(blob.content)
    if not stored:
        shelf.put(digest, blob.content)
