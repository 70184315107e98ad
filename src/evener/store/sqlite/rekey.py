"""Gives an encrypted store another cipher or key: everything in it is encrypted again, in one transaction, or nothing is.

Digests and chains cover encrypted bytes, so links are computed again, as in a transfer to another store, and forks name the
new hashes. The sidecar has the old ones: the store gets a new id in the same transaction, and its sidecar is rewritten after
it. If the process is killed in between, a note of that remains, and the next process that opens the store rewrites the
sidecar.
"""

import asyncio
from hashlib import sha256
from os import PathLike
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from evener.store import protocol
from evener.store.cipher import Cipher, WrongCipher, naming_key, sealed_notes
from evener.store.integrity import digests
from evener.store.integrity.digests import link, origin_of, renew_sidecar, stone_of
from evener.store.redaction import Funnel, Redaction
from evener.store.sqlite import snapshots
from evener.store.sqlite.file import StoreBusy, connect, disconnect, store_error
from evener.store.sqlite.leases import deserted
from evener.store.sqlite.rows import BlobTable
from evener.store.sqlite.transfer import outline, page
from evener.store.sqlite.writer import Interlock
from evener.store.transfer.cargo import CargoBranch, CargoEvent, Chains

if TYPE_CHECKING:
    import sqlite3


async def rekey(path: str | PathLike[str], *, old: Cipher, new: Cipher, busy: float = 10.0) -> None:
    """Seal everything in the store anew. When this returns, the old key opens nothing of it any more.

    LeaseHeld while a thread of it is being run. Until it is done the old key opens the store, from then on the new one. When it
    was interrupted, call it again with the same ciphers. It takes as long as reading and writing the whole store, and as much
    room once more, for which others wait. Backups and exports made before are as they were.
    """
    place = Path(path).absolute().resolve()
    await asyncio.to_thread(_rekey, place, old, new, busy)


def _rekey(path: Path, old: Cipher, new: Cipher, busy: float) -> None:
    import sqlite3

    try:
        connection = connect(path, busy, old)
        done = False
    except WrongCipher as error:
        try:
            connection = connect(path, busy, new)  # it was done, but for the end
            done = True
        except WrongCipher:
            raise error from None
    try:
        if not done:
            with Interlock(path, busy):
                _in_one_transaction(connection, Redaction(Funnel(), old), Redaction(Funnel(), new))
        renew_sidecar(connection, path)
        _empty_log(connection, path)
    except sqlite3.Error as error:
        raise store_error(error, path) from None
    finally:
        disconnect(connection)


def _in_one_transaction(connection: "sqlite3.Connection", old: Redaction, new: Redaction) -> None:
    with connection:  # commits, or rolls back
        connection.execute("BEGIN IMMEDIATE")
        assert old.cipher is not None
        assert new.cipher is not None
        _check_leases(connection)
        key = naming_key(connection, old.cipher)
        for (thread,) in connection.execute("SELECT DISTINCT thread FROM logs").fetchall():
            _reseal_thread(connection, thread, old, new)
        _reseal_notes(connection, old, new)
        snapshots.drop_all(connection)
        contents = _Places(connection, old)
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", sealed_notes(new.cipher, key))
        contents.reseal(new)
        connection.execute("UPDATE meta SET value = lower(hex(randomblob(8))) WHERE key = 'store'")
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('sidecar_due', '1')")


def _check_leases(connection: "sqlite3.Connection") -> None:
    now = time()
    for log, holder, mark, until in connection.execute("SELECT log, holder, claim, lease_until FROM logs WHERE claim <> ''"):
        if until > now and not deserted(mark):
            raise protocol.held(log, holder, until - now)


def _reseal_thread(connection: "sqlite3.Connection", thread: str, old: Redaction, new: Redaction) -> None:
    whole = outline(connection, thread, old)
    chains = Chains(whole.branches)
    for branch in map(chains.named, whole.branches):
        _reseal_log(connection, branch, chains, old, new)
    title = new.seal_text("title", thread, whole.title)
    connection.execute("UPDATE logs SET title = ? WHERE thread = ?", (title, thread))
    connection.execute("DELETE FROM tags WHERE thread = ?", (thread,))
    tags = [(thread, new.seal_text("tag", thread, tag)) for tag in whole.tags]
    connection.executemany("INSERT INTO tags (thread, tag) VALUES (?, ?)", tags)


def _reseal_log(connection: "sqlite3.Connection", branch: CargoBranch, chains: Chains, old: Redaction, new: Redaction) -> None:
    """Seal one log again: no earlier holder goes on, and what is damaged is refused rather than linked as if it were whole."""
    (number,) = connection.execute("SELECT number FROM logs WHERE log = ?", (branch.log,)).fetchone()
    following = chains.follow(branch, lambda seq, payload: new.seal("event", branch.log, payload, number=seq))
    seq, before, head = branch.base, origin_of(branch.log), origin_of(branch.log)
    while seq < branch.length:
        records = page(connection, branch.log, seq, branch.length, old)
        if not records:
            raise protocol.damaged(branch.log, seq + 1)
        for record in records:
            before = _check(branch.log, before, record)
        linked = [following.link(record) for record in records]
        connection.executemany(
            "UPDATE events SET version = ?, digest = ?, chain = ?, payload = ?, stone = ? WHERE log = ? AND seq = ?",
            [(one.version, one.digest, one.chain, one.payload, _stone(one), number, one.seq) for one in linked],
        )
        seq, head = linked[-1].seq, linked[-1].chain
    connection.execute(
        "UPDATE logs SET head = ?, parent_hash = ?, epoch = epoch + 1, holder = '', claim = '', lease_until = 0"
        " WHERE number = ?",
        (head, branch.parent_hash, number),
    )
    digests.put(connection, number, seq=seq, chain=head)


def _check(log: str, before: bytes, record: CargoEvent) -> bytes:
    """Return the chain at the record, which must be the one that is stored."""
    place = {"seq": record.seq, "version": record.version, "at": record.at, "kind": record.kind, "rule": record.rule}
    if link(before, record.digest, **place) != record.chain:  # type: ignore[arg-type]  # each is what it is in a record
        raise protocol.damaged(log, record.seq)
    return record.chain


def _stone(record: CargoEvent) -> bytes | None:
    return None if record.erased is None else stone_of(record.digest, record.erased, record.payload)


def _reseal_notes(connection: "sqlite3.Connection", old: Redaction, new: Redaction) -> None:
    rows = connection.execute("SELECT l.log, i.log, i.number, i.body FROM inbox i JOIN logs l ON l.number = i.log").fetchall()
    for log, owner, number, body in rows:
        sealed = new.seal_text("note", log, old.open_text("note", log, body, number=number), number=number)
        connection.execute("UPDATE inbox SET body = ? WHERE log = ? AND number = ?", (sealed, owner, number))


class _Places:
    """The stored blobs: each is decrypted, and stored under its new name."""

    def __init__(self, connection: "sqlite3.Connection", old: Redaction) -> None:
        self._connection = connection
        self._old = old
        self._shelf = BlobTable(connection, old)
        self._places = [place for (place,) in connection.execute("SELECT digest FROM blobs").fetchall()]

    def reseal(self, new: Redaction) -> None:
        shelf = BlobTable(self._connection, new)
        for place in self._places:
            content = self._shelf.content(place)
            self._connection.execute("DELETE FROM blobs WHERE digest = ?", (place,))
            shelf.put(sha256(content).hexdigest(), content)


def _empty_log(connection: "sqlite3.Connection", path: Path) -> None:
    """Truncate SQLite's write-ahead file: until then it contains content that was encrypted with the old key."""
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreBusy(
            f"The store {path} is sealed with the new key, but {path.name}-wal still has content sealed with the old "
            "key, because another process reads an older version of the store. Close the others, and call rekey again."
        )
