"""Decompresses a body as it arrives: gzip and deflate, with limits for the memory in use."""

import zlib

from evener.errors import TruncatedStream, WireError
from evener.transport.exchange import OFFERED

GZIP, DEFLATE, BARE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
FORMATS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": DEFLATE}

PIECE = 64 * 1024
SLICE = 16 * 1024
"""Compressed bytes given to zlib at once: it copies what it does not use yet."""

MEMBERS = 1000
"""A gzip body may have several members; an honest one has no more than this."""


class Inflater:
    """One body's decompressor."""

    def __init__(self, encoding: str) -> None:
        if encoding not in FORMATS:
            raise WireError(
                f"The answer is compressed as {encoding[:40]!r}, and only {OFFERED} was offered. "
                "Check the proxies between you and the provider."
            )
        self._format = FORMATS[encoding]
        self._zlib = zlib.decompressobj(self._format)
        self._first = b""
        self._fed = memoryview(b"")
        self._held = b""
        self._begun = False
        self._full = False
        self._members = 1

    def feed(self, compressed: bytes) -> None:
        """Add the next bytes. Call it only if `take` returns nothing."""
        if self._format == DEFLATE and len(self._first) < 2:
            self._first += compressed
            if len(self._first) < 2:
                self._begun = True
                return
            compressed = self._first
            if not _has_header(compressed):
                self._zlib = zlib.decompressobj(BARE)
        self._fed = memoryview(compressed)

    def take(self) -> bytes:
        """Return the next piece; empty if more bytes are needed."""
        while self._held or self._full or self._fed:
            if not self._held and not self._full:
                self._held, self._fed = bytes(self._fed[:SLICE]), self._fed[SLICE:]
            if self._zlib.eof and not self._next_member():
                continue
            if piece := self._step():
                return piece
        return b""

    def finish(self) -> None:
        """End the body. Raises TruncatedStream if it is incomplete."""
        if self._begun and not self._zlib.eof:
            raise TruncatedStream("The compressed answer stopped in the middle and is discarded. Send the request again.")

    def _step(self) -> bytes:
        piece = self._decompress()
        if piece is None:
            raise WireError(
                "The compressed answer is damaged: it is not what its content-encoding says. Send the request again."
            )
        self._begun = True
        self._full = len(piece) == PIECE and not self._zlib.eof
        self._held = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
        return piece

    def _decompress(self) -> bytes | None:
        try:
            return self._zlib.decompress(self._held, PIECE)
        except zlib.error:
            return None

    def _next_member(self) -> bool:
        """Begin another member. True if one follows. Zeros after the last one are padding."""
        if self._format != GZIP or not self._held.strip(b"\0"):
            self._held, self._full = b"", False
            return False
        self._members += 1
        if self._members > MEMBERS:
            raise WireError(
                f"The compressed answer has more than {MEMBERS} members. Check the proxies between you and the provider."
            )
        self._zlib = zlib.decompressobj(GZIP)
        return True


def _has_header(content: bytes) -> bool:
    """True if the body begins with deflate's own header: some servers leave it out."""
    return content[0] & 15 == 8 and (content[0] << 8 | content[1]) % 31 == 0
