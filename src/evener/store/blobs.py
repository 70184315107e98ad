"""The jobs on blobs, as SQL: content by its SHA-256. What is read is what was written, or an error.

With a cipher the SHA-256 would tell everybody who can read the file which known content lies there. So a blob lies there under
an HMAC of it, by a key that the store has made up and sealed. What was stored before that lies under the SHA-256 still.
"""

import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from evener.store import refusals
from evener.store.cipher import naming_key
from evener.store.guard import Guard

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Shelf"]


class Shelf:
    """The blobs of a store, through one connection."""

    def __init__(self, connection: "sqlite3.Connection", guard: Guard) -> None:
        self._connection = connection
        self._guard = guard
        self._key = b"" if guard.cipher is None else naming_key(connection, guard.cipher)

    def name_of(self, content: bytes) -> tuple[str, bool]:
        """The name of the content, and whether it is stored, whole."""
        digest = sha256(content).hexdigest()
        return digest, self._stored(digest) == content

    def put(self, digest: str, content: bytes) -> None:
        """Keep the content; what was there under its name and has been damaged is mended."""
        place = self._places(digest)[0]
        self._connection.execute(
            "INSERT INTO blobs (digest, size, content) VALUES (?, ?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET size = excluded.size, content = excluded.content",
            (place, len(content), self._guard.seal("blob", place, content)),
        )

    def get(self, digest: str) -> bytes:
        """The content of that name."""
        content = self._stored(digest)
        if content is None:
            raise refusals.no_blob(digest)
        if sha256(content).hexdigest() != digest:
            raise refusals.spoiled_blob(digest)
        return content

    def check(self, place: str) -> int:
        """The size of what lies in a place. Raises when it is not what belongs there."""
        content = self.content(place)
        if place not in self._places(sha256(content).hexdigest()):
            raise refusals.spoiled_blob(place)
        return len(content)

    def content(self, place: str) -> bytes:
        """What lies in a place."""
        (found,) = self._connection.execute("SELECT content FROM blobs WHERE digest = ?", (place,)).fetchone()
        return self._guard.open("blob", place, bytes(found))

    def among(self, names: Iterable[str]) -> set[str]:
        """Those of the names that a blob has."""
        return {name for name in names if any(map(self._is_there, self._places(name)))}

    def places(self, names: Iterable[str]) -> set[str]:
        """Where the blobs of these names lie, as far as they are there."""
        return {place for name in names for place in self._places(name) if self._is_there(place)}

    def drop(self, names: Iterable[str]) -> None:
        """Let go of the blobs of these names."""
        places = [(place,) for name in names for place in self._places(name)]
        self._connection.executemany("DELETE FROM blobs WHERE digest = ?", places)

    def _is_there(self, place: str) -> bool:
        return self._connection.execute("SELECT 1 FROM blobs WHERE digest = ?", (place,)).fetchone() is not None

    def _places(self, digest: str) -> tuple[str, ...]:
        """Where a blob of that name may lie; the first is where a new one goes."""
        return (hmac.digest(self._key, digest.encode(), "sha256").hex(), digest) if self._key else (digest,)

    def _stored(self, digest: str) -> bytes | None:
        for place in self._places(digest):
            found = self._connection.execute("SELECT content FROM blobs WHERE digest = ?", (place,)).fetchone()
            if found is not None:
                return self._guard.open("blob", place, bytes(found[0]))
        return None
