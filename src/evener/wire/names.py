"""Tool names and call ids in the characters a wire takes. Pure, and a function of the name alone: nothing renames the past."""

import re
from hashlib import blake2b

__all__ = ["short_id", "wire_name"]

FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def wire_name(name: str, limit: int) -> str:
    """The name itself if the wire takes it; else its legal characters and a short hash that keeps different names apart."""
    if name and len(name) <= limit and not FORBIDDEN.search(name):
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{FORBIDDEN.sub('_', name)[: limit - 9]}_{digest}"


def short_id(id: str, limit: int) -> str:
    """The id itself if it is short enough, for wires that take any character in it."""
    if 0 < len(id) <= limit:
        return id
    return f"{id[: limit - 17]}_{blake2b(id.encode(), digest_size=8).hexdigest()}"
