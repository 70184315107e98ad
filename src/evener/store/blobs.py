"""The jobs on blobs, as SQL: content by its SHA-256. What is read is what was written, or an error."""

from hashlib import sha256
from typing import TYPE_CHECKING

from evener.store import refusals
from evener.store.guard import Guard

if TYPE_CHECKING:
    import sqlite3

__all__ = ["get", "name_of", "put"]


def name_of(connection: "sqlite3.Connection", content: bytes, guard: Guard) -> tuple[str, bool]:
    """The name of the content, and whether it is stored, whole."""
    digest = sha256(content).hexdigest()
    return digest, _stored(connection, digest, guard) == content


def put(connection: "sqlite3.Connection", digest: str, content: bytes, guard: Guard) -> None:
    """Keep the content; what was there under its name and has been damaged is mended."""
    connection.execute(
        "INSERT INTO blobs (digest, size, content) VALUES (?, ?, ?)"
        " ON CONFLICT (digest) DO UPDATE SET size = excluded.size, content = excluded.content",
        (digest, len(content), guard.seal("blob", digest, content)),
    )


def get(connection: "sqlite3.Connection", digest: str, guard: Guard) -> bytes:
    """The content of that name."""
    content = _stored(connection, digest, guard)
    if content is None:
        raise refusals.no_blob(digest)
    if sha256(content).hexdigest() != digest:
        raise refusals.spoiled_blob(digest)
    return content


def _stored(connection: "sqlite3.Connection", digest: str, guard: Guard) -> bytes | None:
    found = connection.execute("SELECT content FROM blobs WHERE digest = ?", (digest,)).fetchone()
    return None if found is None else guard.open("blob", digest, bytes(found[0]))
