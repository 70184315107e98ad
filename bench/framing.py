"""Holds our HTTP framing against h11, and against the parser that it replaced, on damaged chunked answers.

What two of them take to its end must be the same, no cut may change what we read, and a connection that h11 would not use
again is not kept.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Protocol

import h11

from bench.revision import FIRST, read_file
from evener.transport.connection import Framing, NotHttp

__all__ = ["main"]

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SIGNS = b"\r\n0123456789abcdefx;: \t\0\xff-+_"
PADDED = re.compile(rb"\r\n[0-9a-fA-F]+[ \t]+;")
"""Blanks between a size and what is said beside it: llhttp takes them when sizes may be padded, h11 does not."""

Read = tuple[bytes, bool] | None
"""The body and whether it has ended; None when it was refused."""
Kept = tuple[Read, bool]
"""And whether the connection may carry another answer."""


def main(seconds: float, seed: int) -> int:
    """Run for some time; print what was found, and return 1 when the two disagree."""
    random, end = Random(seed), time.monotonic() + seconds
    counts, wrong = Counter[str](), list[bytes]()
    old, refusal = _load_old()
    while time.monotonic() < end and len(wrong) < 10:
        wire = _damaged(random)
        (ours, kept), (theirs, keeps) = _ours(wire, _cuts(random, wire)), _theirs(wire)
        before = _read(old(), refusal, wire, [])
        counts["answers"] += 1
        counts["refused by both"] += ours is None and theirs is None
        counts["refused by us alone"] += ours is None and theirs is not None
        counts["ended in both"] += ours is not None and ours[1] and ours == theirs
        counts["ended and kept"] += kept
        counts["refused by the old parser"] += before is None
        counts["ended in the old parser and in ours"] += before is not None and before[1] and before == ours
        disagrees = ours is not None and ours[1] and ours != theirs and not PADDED.search(wire)
        disagrees = disagrees or (before is not None and before[1] and ours is not None and ours[1] and ours != before)
        disagrees = disagrees or (kept and not keeps and not PADDED.search(wire))
        if disagrees or (ours, kept) != _ours(wire, list(range(1, len(wire)))):
            wrong.append(wire)
    print(f"seed {seed}:", ", ".join(f"{count} {what}" for what, count in counts.items()))
    for wire in wrong:
        print(f"DISAGREE {wire!r}")
    return 1 if wrong else 0


def _damaged(random: Random) -> bytes:
    pieces = [random.randbytes(random.randrange(1, 30)) for _ in range(random.randrange(4))]
    beside = (b"", b"", b";a=b", b" ", b';a="b"')
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), random.choice(beside), piece) for piece in pieces)
    behind = random.choice((b"", b"", b"x", b"\r", b"\r\n", HEAD + b"1\r\nx\r\n", b"HTTP/1.1 200 OK\r\n\r\nmore"))
    wire = bytearray(HEAD + body + b"0\r\n" + random.choice((b"", b"", b"t: u\r\n")) + b"\r\n" + behind)
    for _ in range(random.randrange(3)):
        at = random.randrange(len(HEAD), len(wire))
        match random.randrange(3):
            case 0:
                wire[at] = random.choice(SIGNS)
            case 1:
                wire.insert(at, random.choice(SIGNS))
            case _:
                del wire[at]
    return bytes(wire)


def _cuts(random: Random, wire: bytes) -> list[int]:
    return sorted(random.randrange(len(wire)) for _ in range(random.randrange(4)))


class Answer(Protocol):
    """An answer while it comes."""

    ended: bool

    def feed(self, data: bytes) -> list[bytes]:
        """Read more of it."""
        ...


def _load_old() -> tuple[Callable[[], Answer], type[Exception]]:
    """Return the parser that was written by hand, and what it raises. It is read from the history of this tree."""
    old = ModuleType("old_framing")
    exec(compile(read_file(FIRST, "src/evener/transport/framing.py"), "framing.py", "exec"), old.__dict__)
    return old.Framing, old.NotHttp


def _ours(wire: bytes, cuts: list[int]) -> Kept:
    answer = Framing()
    read = _read(answer, NotHttp, wire, cuts)
    return read, read is not None and answer.ended and answer.reusable


def _read(answer: Answer, refusal: type[Exception], wire: bytes, cuts: list[int]) -> Read:
    try:
        parts = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
        return b"".join(piece for part in parts for piece in answer.feed(part)), answer.ended
    except refusal:
        return None


def _theirs(wire: bytes) -> Kept:
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    peer.send(h11.EndOfMessage())
    body = b""
    try:
        peer.receive_data(wire)
        while True:
            match peer.next_event():
                case h11.Data(data=data):
                    body += bytes(data)
                case h11.EndOfMessage():
                    return (body, True), peer.their_state is h11.DONE and not peer.trailing_data[0]
                case h11.NEED_DATA | h11.PAUSED:
                    return (body, False), False
    except h11.RemoteProtocolError:
        return None, False
