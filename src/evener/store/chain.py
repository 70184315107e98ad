"""The digest chain of a log: each link binds a payload's digest to everything before it. Pure; payloads are never kept here.

    chain_0 = sha256("evener log " + log)
    chain_n = sha256(chain_{n-1} + sha256(payload_n))

It runs over digests, so that a payload can be erased later and the chain still holds.
"""

from hashlib import sha256

__all__ = ["digest_of", "link", "origin_of"]


def origin_of(log: str) -> bytes:
    """What the first link rests on: the log's own name."""
    return sha256(b"evener log " + log.encode()).digest()


def digest_of(payload: bytes) -> bytes:
    """The digest of one payload."""
    return sha256(payload).digest()


def link(before: bytes, digest: bytes) -> bytes:
    """The link after `before`, for a payload of that digest."""
    return sha256(before + digest).digest()
