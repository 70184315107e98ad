"""A thread in transfer from one store to another: its branches, its events as they are stored, and their links. Pure.

The stored bytes depend on the store: a cipher changes them, a funnel may remove a secret. Then links are computed again in
the transfer, and a fork names the new hash of its parent. Where nothing changes, every link stays the same.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Protocol

import msgspec
from msgspec.structs import replace

from evener.errors import StoreError
from evener.events import VERSION, Opened, decode_event, encode_event
from evener.store import protocol
from evener.store.integrity.digests import digest_of, link, origin_of

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class CargoLine(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """What all lines of an exported thread share."""


class CargoBranch(CargoLine, frozen=True, tag="branch"):
    """One log without its events. `base` is the number of events of its path before its own; `erased` is the time of its
    erasure.

    In an exported thread it is the line that begins a log.
    """

    log: Name
    harness: str
    began: float
    changed: float
    length: Count
    base: Count = 0
    parent: str = ""
    parent_hash: str = ""
    erased: float | None = None


class CargoThread(msgspec.Struct, frozen=True):
    """One thread without its events. Parents come before their forks."""

    thread: str
    head: str
    title: str
    tags: tuple[str, ...]
    branches: tuple[CargoBranch, ...]


class CargoEvent(msgspec.Struct, frozen=True):
    """One event as it is stored, but not encrypted: its place, its link, and its payload. `erased` is the time of its
    erasure.
    """

    seq: int
    version: int
    rule: int
    at: float
    kind: str
    digest: bytes
    chain: bytes
    payload: bytes
    erased: float | None = None


class Blob(msgspec.Struct, frozen=True):
    """The content that events of the thread name."""

    digest: str
    content: bytes


Stored = Callable[[int, bytes], bytes]
"""What a store keeps of the payload of an event with that number."""


class Cargo(Protocol):
    """The content of a thread, which can be read repeatedly. Never in memory as a whole."""

    def records(self, log: str) -> Iterator[CargoEvent]:
        """Return the events of one branch, in order."""
        ...

    def blobs(self) -> Iterator[Blob]:
        """Return the blobs, one by one."""
        ...


class Chains:
    """Links the records of a thread, branch by branch, and knows the hashes that forks name."""

    def __init__(self, branches: Iterable[CargoBranch]) -> None:
        self._forked = {(branch.parent, branch.base) for branch in branches if branch.parent}
        self._hashes: dict[tuple[str, int], str] = {}

    def named(self, branch: CargoBranch) -> CargoBranch:
        """Return the branch with the hash that its parent has here."""
        if not branch.parent:
            return branch
        known = self._hashes.get((branch.parent, branch.base))
        if known is None:  # the parent does not stand before it, or has no such event
            raise protocol.damaged(branch.log, branch.base)
        return replace(branch, parent_hash=known)

    def follow(self, branch: CargoBranch, stored: Stored) -> "Following":
        """Return what links the records of that branch, one by one, in a store that keeps `stored(number, payload)` of each."""
        return Following(branch, stored, self._note)

    def linked(self, branch: CargoBranch, records: Iterable[CargoEvent], stored: Stored) -> Iterator[CargoEvent]:
        """Return the records of the branch as they lie in such a store."""
        return map(self.follow(branch, stored).link, records)

    def _note(self, log: str, record: CargoEvent) -> None:
        if (log, record.seq) in self._forked:
            self._hashes[log, record.seq] = record.chain.hex()


class Following:
    """One branch in transfer."""

    def __init__(self, branch: CargoBranch, stored: Stored, note: Callable[[str, CargoEvent], None]) -> None:
        self._branch = branch
        self._stored = stored
        self._note = note
        self._chain = origin_of(branch.log)

    def link(self, record: CargoEvent) -> CargoEvent:
        """Return the next record as it lies there."""
        branch = self._branch
        if branch.parent and record.seq == branch.base + 1:
            record = _bound(record, branch.parent_hash)
        payload = self._stored(record.seq, record.payload)
        digest = record.digest if record.erased is not None else digest_of(payload)
        self._chain = link(
            self._chain, digest, seq=record.seq, version=record.version, at=record.at, kind=record.kind, rule=record.rule
        )
        linked = replace(record, digest=digest, chain=self._chain, payload=payload)
        self._note(branch.log, linked)
        return linked


def _bound(record: CargoEvent, parent_hash: str) -> CargoEvent:
    """Return the first record of a fork, naming that hash."""
    event = decode_event(record.payload, record.version)
    if not isinstance(event, Opened) or event.parent_hash == parent_hash:
        return record
    return replace(record, payload=encode_event(replace(event, parent_hash=parent_hash)), version=VERSION)


def holds_a_secret(blob: Blob) -> StoreError:
    """Return the error for a blob that must not be stored as it is, and that events name as it is."""
    return StoreError(
        f"The blob {blob.digest!r} holds a secret that this process uses, so nothing was imported. Where the thread was "
        "exported, erase the event that names it, and export the thread again."
    )
