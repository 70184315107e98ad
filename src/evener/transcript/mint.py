"""Mints ids and times for the public factories. The only impure file of the layer: nothing else here reads a clock."""

from datetime import UTC, datetime
from os import urandom

VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id() -> str:
    """Return a fresh random id: the digits of a UUID of version 4, without the dashes."""
    digits = urandom(16).hex()
    return f"{digits[:12]}4{digits[13:16]}{VARIANTS[digits[16]]}{digits[17:]}"


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)
