"""Names of functions on this wire, which takes more than others: also dots and colons, and 128 characters (sheet 4). Pure."""

import re
from functools import lru_cache

from evener.wire.names import lettered_name

__all__ = ["function_name"]

LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", re.ASCII)


@lru_cache(1024)
def function_name(name: str, limit: int) -> str:
    """The name itself if the wire takes it; else one within the row's limit that stands for it."""
    return name if LEGAL.fullmatch(name) else lettered_name(name, limit)
