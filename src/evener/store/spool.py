"""Holds the lines of an import between checking and storing them: in memory while they are few, else in a private file.

The file has no name and vanishes when it is closed. It is plain, so a store that encrypts has its imports kept in memory.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import cast

import msgspec

from evener.store.lines import BlobLine, EventLine, Line, written
from evener.store.moving import Blob, Record

__all__ = ["Spool"]

IN_MEMORY = 64 << 20

_lines = msgspec.json.Decoder(Line)


class Spool:
    """Lines that were checked. Read as often as is asked, from any thread, one reader at a time. Close it."""

    def __init__(self, *, on_disk: bool) -> None:
        from tempfile import SpooledTemporaryFile

        self._file = SpooledTemporaryFile(max_size=IN_MEMORY if on_disk else 0)  # noqa: SIM115 - closed by `close`
        self._places: dict[str, tuple[int, int]] = {}
        self._blobs: list[int] = []
        self._end = 0

    def add(self, line: EventLine | BlobLine) -> None:
        """Keep a line."""
        if isinstance(line, EventLine):
            start, count = self._places.get(line.log, (self._end, 0))
            self._places[line.log] = (start, count + 1)
        else:
            self._blobs.append(self._end)
        self._end += self._file.write(written(line))

    def records(self, log: str) -> Iterator[Record]:
        """The events of one branch, in order."""
        place, count = self._places[log]
        for _ in range(count):
            line, place = self._at(place)
            yield cast(EventLine, line).record

    def blobs(self) -> Iterator[Blob]:
        """The blobs, each put together from its parts."""
        content = bytearray()
        for place in self._blobs:
            line = cast(BlobLine, self._at(place)[0])
            content += line.content
            if line.last:
                yield Blob(sha256(content).hexdigest(), bytes(content))
                content = bytearray()

    def close(self) -> None:
        """Let go of everything."""
        self._file.close()

    def _at(self, place: int) -> tuple[Line, int]:
        self._file.seek(place)
        data = self._file.readline()
        line: Line = _lines.decode(data)
        return line, place + len(data)
