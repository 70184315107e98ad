"""The lines that an exported thread is made of: their form, and how one from an untrusted file is read. Pure.

    {"kind":"evener.thread","version":1,"thread":...,"head":...,"title":...,"tags":[...]}
    {"kind":"branch","log":...,"harness":...,"began":...,"changed":...,"length":...}              a fork names its parent, too
    {"kind":"event","log":...,"seq":1,"version":1,"rule":2,"at":...,"event":"opened","digest":...,"chain":...,"payload":{...}}
    {"kind":"blob","digest":...,"content":"<base64>","last":true}                                 a large one in several parts
    {"kind":"end","lines":...,"sha256":...}                                                       of all bytes before

Threads of agents inside its calls follow it, each from its line of the first kind on; blobs come after all of them. A payload
stands there byte for byte as it is stored, so that its digest can be checked.
"""

from typing import Annotated, TypeVar

import msgspec

from evener.errors import BadDocument
from evener.store.transfer.cargo import CargoBranch, CargoEvent, CargoLine, Count, Name
from evener.transcript.scan import checked_bytes, repeated_key, short

VERSION = 1
MOST_BYTES = 64 << 20
"""The longest line that is read."""

Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ThreadLine(CargoLine, frozen=True, tag="evener.thread"):
    """The first line."""

    version: int
    thread: Name
    head: Name
    title: str = ""
    tags: tuple[str, ...] = ()


class EventLine(CargoLine, frozen=True, tag="event"):
    """An event of the log that began last."""

    log: Name
    seq: Count
    version: Count
    rule: Count
    at: float
    event: str
    digest: Hex
    chain: Hex
    payload: msgspec.Raw
    erased: float | None = None

    @classmethod
    def of(cls, log: str, record: CargoEvent) -> "EventLine":
        return cls(
            log, record.seq, record.version, record.rule, record.at, record.kind, record.digest.hex(), record.chain.hex(),
            msgspec.Raw(record.payload), record.erased,
        )  # fmt: skip

    @property
    def record(self) -> CargoEvent:
        return CargoEvent(
            self.seq, self.version, self.rule, self.at, self.event, bytes.fromhex(self.digest), bytes.fromhex(self.chain),
            bytes(self.payload), self.erased,
        )  # fmt: skip


class BlobLine(CargoLine, frozen=True, tag="blob"):
    """A blob, or a part of one."""

    digest: Hex
    content: bytes
    last: bool = False


class End(CargoLine, frozen=True, tag="end"):
    """The last line: how many lines stand before it, and the hash of their bytes."""

    lines: Count
    sha256: Hex


Line = ThreadLine | CargoBranch | EventLine | BlobLine | End
T = TypeVar("T", bound=Line)


class _Glance(msgspec.Struct):
    """What the first line says of itself; read first, so that a newer export is recognised before its new keys are."""

    kind: str
    version: int = 0


_glance = msgspec.json.Decoder(_Glance)
_lines = msgspec.json.Decoder(Line)


def written(line: Line) -> bytes:
    """Return the line, with its end."""
    return msgspec.json.encode(line) + b"\n"


def read(data: bytes, number: int) -> Line:
    """Return the line of that number in its file."""
    content = checked_bytes(data.rstrip(b"\r\n"), MOST_BYTES)
    try:
        if number == 1:
            _check_header(content)
        line: Line = _lines.decode(content)
    except (msgspec.MsgspecError, ValueError) as error:
        raise bad(number, short(str(error))) from None
    except RecursionError:
        raise bad(number, "it is nested deeper than any line of an export") from None
    if not isinstance(line, BlobLine) and (twice := repeated_key(content.decode())) is not None:
        raise bad(number, f"the key {short(twice)!r} stands twice in its object")
    return line


def bad(number: int, why: str) -> BadDocument:
    """Return the error for a file that cannot be taken in."""
    return BadDocument(
        f"Line {number:,} of the export is wrong: {why.rstrip('.')}. Nothing was imported. Export the thread again."
    )


def _check_header(content: bytes) -> None:
    header = _glance.decode(content)
    if header.kind != "evener.thread":
        raise BadDocument(
            f'This is not an exported thread: its first line says {short(header.kind)!r}, and should say "evener.thread". '
            "Check that it is the right file."
        )
    if header.version != VERSION:
        raise BadDocument(
            f"This export has version {header.version}, and this Evener reads version {VERSION}. Nothing was imported. "
            "Read it with the Evener that wrote it, or a newer one."
        )
