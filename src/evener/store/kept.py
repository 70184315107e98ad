"""One log in memory: its events as one run of bytes, a line each (their JSON has no line breaks), and what else is known of it.

Nothing is copied by a fork, which holds on to its parent. The chain is the one of SQLite; it is reckoned when somebody asks.
"""

from collections.abc import Callable, Iterable

import msgspec

from evener.events import VERSION, Event, Opened, Rival
from evener.store import refusals
from evener.store.chain import digest_of, link, origin_of
from evener.store.checkpoints import EVERY
from evener.store.log import Link, Note

__all__ = ["Kept"]


class Glance(msgspec.Struct, frozen=True):
    """What the chain needs to know of a line."""

    kind: str
    at: float


class Start(msgspec.Struct, frozen=True):
    """What is known of a call that was started."""

    key: str


STARTED = b'"call_started"'
_glance = msgspec.json.Decoder(Glance)
_start = msgspec.json.Decoder(Start)


class Kept:
    """All there is of one log. `base` is how many events of its path lie before its own, `length` counts along the path.

    `unsettled` has the open notes by number, `keys` every key ever used. `marks` has the chain after each `EVERY` events and
    where the next line begins, as far as that was reckoned; `digests` has those of erased events. `rival` is who may still act
    on what was under way before the present holder, until that one has written.
    """

    __slots__ = (
        "base", "began", "changed", "digests", "epoch", "erased", "harness", "holder", "keys", "length", "lines", "log",
        "marks", "parent", "rival", "thread", "unsettled", "until",
    )  # fmt: skip

    def __init__(self, log: str, first: Event, parent: "Kept | None" = None) -> None:
        opened = first if isinstance(first, Opened) else Opened(at=first.at, thread=log)
        self.log, self.thread, self.harness = log, opened.thread, opened.harness
        self.parent = parent
        self.base = self.length = opened.parent_seq if parent else 0
        self.lines = bytearray()
        self.began = self.changed = first.at
        self.epoch, self.holder, self.until = 0, "", 0.0
        self.rival: Rival = ""
        self.erased: float | None = None
        self.keys: set[str] = set()
        self.unsettled: dict[int, Note] = {}
        self.marks: list[tuple[int, bytes]] = []
        self.digests: dict[int, bytes] = {}

    def path(self, after: int, until: int) -> list[bytes]:
        """The lines of the path after number `after` up to `until`."""
        pieces: list[list[bytes]] = []
        kept: Kept | None = self
        while kept is not None and until > after:
            if until > kept.base:
                pieces.append(bytes(kept.lines).split(b"\n")[max(after - kept.base, 0) : until - kept.base])
            until, kept = min(until, kept.base), kept.parent
        return [line for piece in reversed(pieces) for line in piece]

    def said(self) -> list[bytes]:
        """The lines of its own events; nothing in place of an erased one."""
        lines = self.path(self.base, self.length)
        return [b"" if seq in self.digests else line for seq, line in enumerate(lines, self.base + 1)]

    def keys_started(self) -> list[str]:
        """The keys of the calls that were started in it, erased or not."""
        lines = bytes(self.lines).split(b"\n")
        return [_start.decode(line).key for line in lines if STARTED in line and _glance.decode(line).kind == "call_started"]

    def link(self, seq: int) -> Link:
        """The event of that number on the path, and its hash."""
        kept = self
        while kept.parent is not None and seq <= kept.base:
            kept = kept.parent
        if not kept.base < seq <= self.length:
            raise refusals.no_event(self.log, seq)
        return Link(kept.log, seq, kept._chain(seq).hex())

    def blank(self, seqs: Iterable[int], change: Callable[[bytes], bytes]) -> int:
        """Change the lines of those numbers that are its own, and keep their digests; how many it were."""
        lines = self.path(self.base, self.length)
        wanted = [seq for seq in seqs if self.base < seq <= self.length and seq not in self.digests]
        for seq in wanted:
            line = lines[seq - self.base - 1]
            self.digests[seq] = digest_of(line)
            lines[seq - self.base - 1] = change(line)
        self.lines = bytearray(b"".join([line + b"\n" for line in lines]))
        self.marks = []
        return len(wanted)

    def _chain(self, seq: int) -> bytes:
        if not self.marks:
            self.marks.append((0, origin_of(self.log)))
        known = min((seq - self.base) // EVERY, len(self.marks) - 1)
        (offset, chain), number = self.marks[known], self.base + known * EVERY
        while number < seq:
            end = self.lines.index(b"\n", offset)
            number += 1
            line, offset = bytes(self.lines[offset:end]), end + 1
            seen, digest = _glance.decode(line), self.digests.get(number) or digest_of(line)
            chain = link(chain, digest, seq=number, version=VERSION, at=seen.at, kind=seen.kind)
            if number - self.base == len(self.marks) * EVERY:
                self.marks.append((offset, chain))
        return chain
