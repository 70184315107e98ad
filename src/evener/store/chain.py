"""The digest chain of a log: each link binds a payload's digest to everything before it. Pure; payloads are never kept here.

    chain_0 = sha256("evener log " + log)
    rule 1: chain_n = sha256(chain_{n-1} + sha256(payload_n))
    rule 2: chain_n = sha256(chain_{n-1} + sha256(payload_n) + seq + version + at + kind)

It runs over digests, so that a payload can be erased later and the chain still holds. Rule 1 is that of old files; a link that
was written stays as it is, and what comes after it is linked by the newest rule. A fork begins a chain of its own: its first
payload holds the hash of the event that it goes on from.
"""

import struct
from hashlib import sha256

from evener.errors import StoreError

__all__ = ["MISFITS", "RULE", "digest_of", "link", "origin_of", "stone_of"]

RULE = 2
"""How new events are linked."""

MISFITS = (TypeError, ValueError, AttributeError, struct.error)
"""What is raised for values of another type than was written."""

_place = struct.Struct(">QId").pack
_time = struct.Struct(">d").pack


def origin_of(log: str) -> bytes:
    """What the first link rests on: the log's own name."""
    return sha256(b"evener log " + log.encode()).digest()


def digest_of(payload: bytes) -> bytes:
    """The digest of one payload."""
    return sha256(payload).digest()


def link(before: bytes, digest: bytes, *, seq: int, version: int, at: float, kind: str, rule: int = RULE) -> bytes:
    """The link after `before`, for a payload of that digest at that place."""
    if rule == RULE:
        return sha256(before + digest + _place(seq, version, at) + kind.encode()).digest()
    if rule == 1:
        return sha256(before + digest).digest()
    raise StoreError(
        f"An event is linked by rule {rule}; this Evener knows rules up to {RULE}. Update Evener to open this thread."
    )


def stone_of(digest: bytes, erased: float, payload: bytes) -> bytes:
    """The hash that a tombstone has of itself: of what it stands for, since when, and what it says now."""
    return sha256(b"evener stone" + digest + _time(erased) + payload).digest()
