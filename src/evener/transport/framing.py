"""HTTP/1.1 from a client's side, without I/O: a request as bytes, an answer from bytes. Strict: what is not HTTP is refused.

answer = Framing()
answer.feed(b"...")                # pieces of the body, as far as they came; `status` is 0 until the head is whole
answer.finish()                    # the connection has ended: whether the answer has, too

The head is checked here, more strictly than parsers do (no folded lines, no two lengths). Chunks are read by llhttp. Nothing
is kept but a head that is not whole yet, which has a bound.
"""

import re
from collections.abc import Iterable

import httptools

from evener.errors import BadValue

__all__ = ["Framing", "NotHttp", "head_bytes"]

HEAD, LINES = 64 * 1024, 128
"""Bytes and lines of a head."""
BETWEEN = 16 * 1024
"""Bytes that may come between two pieces of a body: sizes of chunks, what is said beside them, trailers."""
INTERIM = 64
"""Heads of 1xx before the one that counts."""
SWITCHING = 101
BODYLESS = (SWITCHING, 204, 304)

START = b"HTTP/1."
STATUS = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n\0]*)?", re.ASCII)
TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
FIELDS = re.compile(rf"(?:{TOKEN}:[^\r\n\0]*\r\n)*")
SENT = re.compile(rf"{TOKEN} [!-~]+ HTTP/1\.1\n(?:{TOKEN}\r[\t -~\x80-\xff]*\n)*\n")
"""A head as it is checked: what stands between its parts is allowed in none of them."""
MOST_DIGITS = 15
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head that llhttp is given in place of the one that was checked here."""


class NotHttp(Exception):
    """What came breaks the rules of HTTP."""


def head_bytes(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a request. Raises BadValue for what cannot be one; says nothing of the values, which may be secrets."""
    lines = [f"{name}\r{value}\n" for name, value in headers]
    text = f"{method} {target} HTTP/1.1\n{''.join(lines)}\n"
    if not SENT.fullmatch(text) or text.count("\n") != len(lines) + 2:
        raise BadValue(
            "The request cannot be sent: its method or one of its headers has a character that HTTP forbids, a line break "
            "for example. Look for one at the end of a key or of an extra header."
        )
    return text.replace("\r", ": ").replace("\n", "\r\n").encode("latin-1")


class Framing:
    """The answer to a request of this method while it comes. `reusable`: after its end the connection may carry another."""

    __slots__ = (
        "_between",
        "_chunks",
        "_held",
        "_interim",
        "_left",
        "_method",
        "_part",
        "ended",
        "framed",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self, method: str = "POST") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self.reusable = False
        self.framed = True
        self._method = method
        self._held = b""
        self._left = 0  # bytes of the body that are still to come
        self._between = 0  # bytes since the last piece of a chunk
        self._chunks: _Chunks | None = None
        self._part = "head"
        self._interim = 0

    @property
    def begun(self) -> bool:
        """Whether anything has come."""
        return bool(self.status or self._held or self._interim)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; the pieces of the body among them. Raises NotHttp."""
        if self._part == "head":
            data = self._head(data)
        if not data:
            return []
        if self.ended:
            self.reusable = False  # more than the answer came
            if self._method == "CONNECT":
                raise NotHttp  # the server at the other end never speaks first
            return []
        if self._part == "length":
            return self._counted(data)
        return [data] if self._part == "close" else self._chunked(data)

    def finish(self) -> bool:
        """The connection has ended. Whether the answer is whole."""
        self.reusable = False
        if self._part == "close":
            self.ended = True
        return self.ended

    # The head.

    def _head(self, data: bytes) -> bytes:
        """Read the head; what is left behind it."""
        held = self._held + data if self._held else data
        while True:
            if held[: len(START)] != START[: len(held)]:
                raise NotHttp
            end = held.find(b"\r\n\r\n")
            if end < 0:
                lines = held.count(b"\n")
                if len(held) > HEAD + 1 or lines > LINES or lines != held.count(b"\r\n"):
                    raise NotHttp
                self._held = held
                return b""
            self._held = b""
            rest = held[end + 4 :]
            if self._is_final(held[: end + 2].decode("latin-1")):
                return rest
            if not rest:
                return rest
            held = rest

    def _is_final(self, text: str) -> bool:
        first, _, fields = text.partition("\r\n")
        found = STATUS.fullmatch(first)
        if found is None or len(text) > HEAD or text.count("\n") > LINES or not FIELDS.fullmatch(fields):
            raise NotHttp
        status = int(found[2])
        if status < 200 and status != SWITCHING:
            self._interim += 1
            if self._interim > INTERIM:
                raise NotHttp
            return False
        headers = self.headers
        for line in fields.split("\r\n")[:-1]:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.status = status
        self._frame(first_version=found[1])
        return True

    def _frame(self, *, first_version: str) -> None:
        """How the body ends."""
        headers = self.headers
        wishes = headers.get("connection", "").lower()
        self.reusable = "close" not in wishes if first_version == "1" else "keep-alive" in wishes
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self.status in BODYLESS or self._method == "HEAD" or (self._method == "CONNECT" and self.status < 300):
            self.ended, self._part = True, "length"
            self.reusable = self.reusable and self.status != SWITCHING
        elif coding is not None:
            if coding.lower() != "chunked":
                raise NotHttp
            self._part, self._chunks = "chunks", _Chunks()
            self.reusable = self.reusable and length is None
        elif length is not None:
            self._left = _length(length)
            self._part, self.ended = "length", not self._left
        else:
            self._part, self.framed, self.reusable = "close", False, False

    # The body.

    def _counted(self, data: bytes) -> list[bytes]:
        if len(data) > self._left:
            data = data[: self._left]
            self.reusable = False
        self._left -= len(data)
        self.ended = not self._left
        return [data]

    def _chunked(self, data: bytes) -> list[bytes]:
        chunks = self._chunks
        assert chunks is not None
        pieces = chunks.feed(data)
        self._between = self._between + len(data) if not pieces else 0
        if self._between > BETWEEN:
            raise NotHttp
        if chunks.ended:
            self.ended, self._chunks = True, None
            self.reusable = self.reusable and not chunks.followed
        return pieces


class _Chunks:
    """A body that comes in chunks, read by llhttp. `followed`: more than the body came."""

    __slots__ = ("_parser", "_sink")

    def __init__(self) -> None:
        self._sink = _Sink()
        self._parser = httptools.HttpResponseParser(self._sink)
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)  # some servers pad sizes
        self._parser.feed_data(CHUNKED)

    @property
    def ended(self) -> bool:
        return self._sink.ended

    @property
    def followed(self) -> bool:
        return self._sink.followed

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of the body among these bytes. Raises NotHttp."""
        sink = self._sink
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not sink.ended:
                raise NotHttp from None
            sink.followed = True
        pieces = sink.pieces[: sink.end] if sink.ended else sink.pieces.copy()
        sink.pieces.clear()
        return pieces


class _Sink:
    """What llhttp reports to. It does not know the parser, so that both are freed at once."""

    __slots__ = ("end", "ended", "followed", "on_body", "pieces")

    def __init__(self) -> None:
        self.ended = self.followed = False
        self.end = 0  # how many pieces there were at the end: what another answer behind it says is none of its body
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # the parser asks for it once

    def on_message_complete(self) -> None:
        if not self.ended:
            self.ended, self.end = True, len(self.pieces)

    def on_message_begin(self) -> None:
        self.followed = self.ended


def _length(text: str) -> int:
    """A length; the same one twice is one."""
    stated = {part.strip(" \t") for part in text.split(",")}
    found = stated.pop()
    if stated or not found.isascii() or not found.isdecimal() or len(found) > MOST_DIGITS:
        raise NotHttp
    return int(found)
