"""Mints ids and times for the public factories. The only impure file of the layer: nothing else here reads a clock."""

from datetime import UTC, datetime
from uuid import uuid4

__all__ = ["new_id", "now"]


def new_id() -> str:
    """A fresh random id."""
    return uuid4().hex


def now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)
