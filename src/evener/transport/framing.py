"""HTTP/1.1 from a client's side, without I/O: a request as bytes, an answer from bytes. Strict: what is not HTTP is refused.

answer = Framing()
answer.feed(b"...")                # pieces of the body, as far as they came; `status` is 0 until the head is whole
answer.finish()                    # the connection has ended: whether the answer has, too

Nothing is kept but a head or a line that is not whole yet, and both have a bound.
"""

import re
from collections.abc import Iterable

from evener.errors import BadValue

__all__ = ["Framing", "NotHttp", "head_bytes"]

HEAD, LINES, LINE = 64 * 1024, 128, 4 * 1024
"""Bytes and lines of a head, bytes of a line between chunks: more than anybody means."""
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
SIZE = re.compile(rb"\r\n([0-9a-fA-F]{1,%d})[ \t]*(?:;[^\r\n\0]*)?\r\n" % MOST_DIGITS)
"""The line before a chunk, with the end of the one before it: how large the chunk is; what else it says is passed over."""


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

    __slots__ = ("_held", "_interim", "_left", "_method", "_part", "ended", "framed", "headers", "reusable", "status")

    def __init__(self, method: str = "POST") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self.reusable = False
        self.framed = True
        self._method = method
        self._held = b""
        self._left = 0  # bytes of the body, or of the present chunk, that are still to come
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
        return [data] if self._part == "close" else self._chunks(data)

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
            self._part, self._held = "size", b"\r\n"  # the end of the head, which the first line comes behind
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

    def _chunks(self, data: bytes) -> list[bytes]:
        held = self._held + data if self._held else data
        at, size, pieces = 0, len(held), []
        part, left = self._part, self._left
        while at < size and not self.ended:
            if part == "size":
                found = SIZE.match(held, at)
                if found is None or found.end() - at > LINE + 4:
                    break
                at, left = found.end(), int(found[1], 16)
                part = "chunk" if left else "trailer"
                if at == size:
                    break
            if part == "chunk":
                piece = held[at : at + left]
                pieces.append(piece)
                at += len(piece)
                left -= len(piece)
                part = "chunk" if left else "size"
            else:
                end = held.find(b"\r\n", at)
                if end < 0:
                    break
                self._trailer(held[at:end])
                at = end + 2
        self._part, self._left = part, left
        if self.ended:
            self.reusable = self.reusable and at == size
        elif at < size:
            self._keep(held[at:])
        else:
            self._held = b""
        return pieces

    def _keep(self, cut: bytes) -> None:
        """A line that is not whole yet. One that cannot become what is due is refused."""
        begins = 2 if self._part == "size" else 0
        if len(cut) > begins + LINE + 1 or (begins and (cut[:2] != b"\r\n"[: len(cut)] or cut.find(b"\r\n", 2) >= 0)):
            raise NotHttp
        self._held = cut

    def _trailer(self, line: bytes) -> None:
        """A line behind the last chunk; an empty one ends the answer."""
        self._interim += 1
        self.ended = not line
        if self._interim > LINES or len(line) > LINE or (line and not FIELDS.fullmatch(f"{line.decode('latin-1')}\r\n")):
            raise NotHttp


def _length(text: str) -> int:
    """A length; the same one twice is one."""
    stated = {part.strip(" \t") for part in text.split(",")}
    found = stated.pop()
    if stated or not found.isascii() or not found.isdecimal() or len(found) > MOST_DIGITS:
        raise NotHttp
    return int(found)
