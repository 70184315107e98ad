"""Mints ids and times for the public factories. The only impure file of the layer: nothing else here reads a clock."""

from datetime import UTC, datetime
from os import urandom

__all__ = ["new_id", "now"]

RANDOM = 0xFFFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF
VERSION_4 = 0x00000000_0000_4000_8000_000000000000


def new_id() -> str:
    """A fresh random id: the digits of a UUID of version 4, without the dashes."""
    return f"{int.from_bytes(urandom(16)) & RANDOM | VERSION_4:032x}"


def now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)
