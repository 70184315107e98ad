"""Creates ids and times for the public factories. The only impure file of the layer: nothing else here reads a clock."""

from datetime import UTC, datetime
from os import urandom


def new_id() -> str:
    """Return a fresh random id: the digits of a UUID of version 4, without the dashes."""
    made = bytearray(urandom(16))
    made[6] = made[6] & 0x0F | 0x40  # the version
    made[8] = made[8] & 0x3F | 0x80  # the variant
    return made.hex()


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)
