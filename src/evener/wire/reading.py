"""Takes a JSON object apart field by field, so that what is left over can be kept. Pure; shared by the request readers."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Annotated, TypeVar

import msgspec

from evener.errors import UsageError, WireError
from evener.transcript.blocks import CacheTtl
from evener.wire.text import dumps, fields

__all__ = ["Fields", "Items", "message_id", "raw_text", "read_breakpoint", "read_control", "read_fields", "reading"]

T = TypeVar("T")
NULL = b"null"
Items = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=100_000)]
"""A list in a request, each item still JSON. No provider takes more, and each costs microseconds."""
NOTHING = msgspec.Raw(b"null")


class Fields:
    """The fields of one object. Reading a field takes it; `rest` is what nobody took. A null reads as absent but stays."""

    def __init__(self, own: dict[str, msgspec.Raw]) -> None:
        self._own = own

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return name in self._own and bytes(self._own[name]) != NULL

    def is_text(self, name: str) -> bool:
        """Whether the field is a string."""
        return name in self._own and bytes(self._own[name])[:1] == b'"'

    def take(self, name: str) -> msgspec.Raw:
        """The field's JSON, taken away; null when absent."""
        return self._own.pop(name, NOTHING)

    def put(self, name: str, raw: str) -> None:
        """Put back what was left of a field."""
        self._own[name] = msgspec.Raw(raw.encode())

    def peek_raw(self, name: str) -> msgspec.Raw:
        """The field's JSON, left in place."""
        return self._own.get(name, NOTHING)

    def peek(self, name: str) -> str:
        """A string field, left in place; empty when it is absent or something else."""
        return msgspec.json.decode(self._own[name], type=str) if self.is_text(name) else ""

    def text(self, name: str) -> str:
        """A string field."""
        return self._read(name, str, "")

    def flag(self, name: str) -> bool | None:
        """A boolean field."""
        return self._read(name, bool | None, None)  # type: ignore[arg-type]

    def whole(self, name: str) -> int | None:
        """An integer field."""
        return self._read(name, int | None, None)  # type: ignore[arg-type]

    def limit(self, name: str) -> int | None:
        """A number of tokens; what is none, as 0, stays where it is: only its wire knows what it means."""
        return None if bytes(self.peek_raw(name)).startswith((b"0", b"-")) else self.whole(name)

    def number(self, name: str) -> float | None:
        """A number field, integers kept as such. One below 0 means nothing to anyone but its wire, and stays where it is."""
        if bytes(self.peek_raw(name)).startswith(b"-"):
            return None
        found: float | None = self._read(name, int | float | None, None)  # type: ignore[arg-type]
        return found

    def items(self, name: str) -> list[msgspec.Raw]:
        """A list field, each item still JSON."""
        return self._read(name, Items, [])

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        return self._read(name, list[str], [])

    def rest(self) -> dict[str, msgspec.Raw]:
        """What nobody has taken."""
        return self._own

    def rest_text(self) -> str:
        """What nobody has taken, as JSON text; empty when there is nothing."""
        return dumps(self._own).decode() if self._own else ""

    def _read(self, name: str, kind: type[T], default: T) -> T:
        if not self.has(name):
            return default
        value = msgspec.json.decode(self._own[name], type=kind)
        del self._own[name]
        return value


def read_fields(raw: bytes | msgspec.Raw) -> Fields:
    """The fields of a JSON object."""
    return Fields(fields(raw))


def raw_text(raw: msgspec.Raw, default: str) -> str:
    """JSON as text; the default for null."""
    text = bytes(raw).decode()
    return default if text == "null" else text


def read_control(own: Fields) -> CacheTtl:
    """The mark `cache_control`, taken; anything but the known form stays where it is."""
    kind, ttl = _mark(own, "cache_control")
    if kind != {"type": "ephemeral"} or ttl not in ("", "5m", "1h"):
        return ""
    own.take("cache_control")
    return "1h" if ttl == "1h" else "5m"


def read_breakpoint(own: Fields) -> CacheTtl:
    """The mark `prompt_cache_breakpoint`, taken; anything but the known form stays where it is."""
    kind, ttl = _mark(own, "prompt_cache_breakpoint")
    if kind != {"mode": "explicit"} or ttl not in ("", "30m", "12h"):
        return ""
    own.take("prompt_cache_breakpoint")
    return "12h" if ttl == "12h" else "30m"


def _mark(own: Fields, name: str) -> tuple[dict[str, object], str]:
    """A mark without its lifetime, and that; nothing when there is no mark."""
    raw = own.peek_raw(name)
    if bytes(raw)[:1] != b"{":
        return {}, ""
    mark = msgspec.json.decode(raw, type=dict[str, object])
    ttl = mark.pop("ttl", "")
    return mark, ttl if isinstance(ttl, str) else "?"


def message_id(number: int, raw: msgspec.Raw) -> str:
    """An id for a message that came without one: the same request always gives the same ids."""
    return f"{number}-{blake2b(bytes(raw), digest_size=6).hexdigest()}"


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn every way in which foreign JSON can be wrong into one clear error."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, UsageError) as error:
        raise WireError(f"Expected {what}: {error}. Check which wire the body is for.") from None
