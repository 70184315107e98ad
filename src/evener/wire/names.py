"""Tool names and call ids in the characters a wire takes. Pure, and a function of the name alone: nothing renames the past."""

import re
from functools import lru_cache
from hashlib import blake2b

__all__ = ["lettered_name", "made_id", "nine_id", "short_id", "wire_name"]

FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
LETTERED = re.compile(r"[a-zA-Z_]")
NINE = re.compile(r"[a-zA-Z0-9]{9}")
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@lru_cache(1024)
def wire_name(name: str, limit: int) -> str:
    """The name itself if the wire takes it; else its legal characters and a short hash that keeps different names apart."""
    if name and len(name) <= limit and not FORBIDDEN.search(name):
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{FORBIDDEN.sub('_', name)[: limit - 9]}_{digest}"


def lettered_name(name: str, limit: int) -> str:
    """The same for wires where a name begins with a letter or an underscore."""
    if LETTERED.match(name):
        return wire_name(name, limit)
    return wire_name(f"_{name}_{blake2b(name.encode(), digest_size=4).hexdigest()}", limit)


def made_id(source: str, place: int) -> str:
    """An id for a call that came without one: the same place in the same answer always gives the same."""
    return "call_" + blake2b(f"{source}/{place}".encode(), digest_size=8).hexdigest()


def short_id(id: str, limit: int) -> str:
    """The id itself if it is short enough, for wires that take any character in it."""
    if 0 < len(id) <= limit:
        return id
    return f"{id[: limit - 17]}_{blake2b(id.encode(), digest_size=8).hexdigest()}"


def nine_id(id: str) -> str:
    """The id itself if it is nine letters or digits, for wires that take nothing else; else nine that stand for it."""
    if NINE.fullmatch(id):
        return id
    number = int.from_bytes(blake2b(id.encode(), digest_size=8).digest())
    return "".join(DIGITS[number // 62**place % 62] for place in range(9))
