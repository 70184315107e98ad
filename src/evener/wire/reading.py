"""Takes a JSON object apart field by field, so that what is left over can be kept. Pure; shared by the request readers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Annotated, TypeVar

import msgspec

from evener.errors import UsageError, WireError
from evener.transcript.blocks import Block, CacheTtl, Citation, HostedBlock, ReasoningBlock, TextBlock
from evener.transcript.origin import Origin, Seal
from evener.wire.seals import MESSAGE
from evener.wire.text import dumps, fields, text_in

__all__ = [
    "Fields",
    "Items",
    "cited",
    "keep_beside",
    "message_id",
    "raw_text",
    "read_breakpoint",
    "read_control",
    "read_fields",
    "reading",
]

T = TypeVar("T")
NULL = b"null"
Items = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=100_000)]
"""A list in a request, each item still JSON. No provider takes more, and each costs microseconds."""
NOTHING = msgspec.Raw(b"null")
CONTROLS: dict[str, CacheTtl] = {"": "5m", "5m": "5m", "1h": "1h"}
BREAKPOINTS: dict[str, CacheTtl] = {"": "30m", "30m": "30m", "12h": "12h"}
"""How long a mark lives, by the lifetime that it names."""


class Fields:
    """The fields of one object. Reading a field takes it; `rest` is what was not taken. A null reads as absent but stays.

    A field of another form than expected reads as absent and stays, too, so that an odd field never spoils those beside it.
    Only `carried_text` and `carried_items` refuse it: without what they read there is no request to speak of.
    """

    def __init__(self, own: dict[str, msgspec.Raw]) -> None:
        self._own = own

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return name in self._own and bytes(self._own[name]) != NULL

    def is_text(self, name: str) -> bool:
        """Whether the field is a string."""
        return name in self._own and bytes(self._own[name])[:1] == b'"'

    def is_object(self, name: str) -> bool:
        """Whether the field is an object."""
        return name in self._own and bytes(self._own[name])[:1] == b"{"

    def take(self, name: str) -> msgspec.Raw:
        """The field's JSON, taken away; null when absent."""
        return self._own.pop(name, NOTHING)

    def take_object(self, name: str, default: str) -> str:
        """The JSON text of a field that is an object, taken away; the default when it is absent. Anything else stays."""
        if self.is_object(name):
            return bytes(self._own.pop(name)).decode()
        if not self.has(name):
            self._own.pop(name, None)
        return default

    def put(self, name: str, raw: str) -> None:
        """Put back what was left of a field."""
        self._own[name] = msgspec.Raw(raw.encode())

    def put_rest(self, name: str, inner: "Fields") -> None:
        """Put what was not taken of an object in its place; take the object away when nothing is left."""
        if inner.rest():
            self.put(name, inner.rest_text())
        else:
            self._own.pop(name, None)

    def peek_raw(self, name: str) -> msgspec.Raw:
        """The field's JSON, left in place."""
        return self._own.get(name, NOTHING)

    def peek(self, name: str) -> str:
        """A string field, left in place; empty when it is absent or something else."""
        return text_in(self._own[name]) if self.is_text(name) else ""

    def peek_fields(self, name: str) -> "Fields":
        """The fields of an object, which is left in place; none when it is absent or something else."""
        return Fields(fields(self._own[name])) if self.is_object(name) else Fields({})

    def peek_items(self, name: str) -> list[msgspec.Raw]:
        """The items of a list, which is left in place; none when it is absent or something else."""
        return msgspec.json.decode(self._own[name], type=Items) if bytes(self.peek_raw(name))[:1] == b"[" else []

    def text(self, name: str) -> str:
        """A string field."""
        return self._read(name, str, "")

    def said(self, name: str) -> str:
        """A string field; an empty one stays, because that it is empty was said."""
        return self.text(name) if self.peek(name) else ""

    def carried_text(self, name: str) -> str:
        """A string field that must be one."""
        return self._read(name, str, "", carried=True)

    def flag(self, name: str) -> bool | None:
        """A boolean field."""
        return self._read(name, bool | None, None)  # type: ignore[arg-type]

    def whole(self, name: str, least: int | None = None) -> int | None:
        """An integer field, not below `least`."""
        kind = int if least is None else Annotated[int, msgspec.Meta(ge=least)]
        return self._read(name, kind | None, None)  # type: ignore[arg-type]

    def limit(self, name: str) -> int | None:
        """A number of tokens; what is none, as 0, stays where it is: only its wire knows what it means."""
        return self.whole(name, 1)

    def number(self, name: str) -> float | None:
        """A number field, integers kept as such. One below 0 means nothing to anyone but its wire, and stays where it is."""
        if bytes(self.peek_raw(name)).startswith(b"-"):
            return None
        found: float | None = self._read(name, int | float | None, None)  # type: ignore[arg-type]
        return found

    def carried_items(self, name: str) -> list[msgspec.Raw]:
        """A list field that must be one, each item still JSON."""
        return self._read(name, Items, [], carried=True)

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        return self._read(name, list[str], [])

    def rest(self) -> dict[str, msgspec.Raw]:
        """What nobody has taken."""
        return self._own

    def rest_text(self) -> str:
        """What nobody has taken, as JSON text; empty when there is nothing."""
        return dumps(self._own).decode() if self._own else ""

    def _read(self, name: str, kind: type[T], default: T, *, carried: bool = False) -> T:
        if not self.has(name):
            return default
        try:
            value = msgspec.json.decode(self._own[name], type=kind)
        except msgspec.ValidationError as error:
            if carried:
                raise msgspec.ValidationError(f"{error} - in `{name}`") from None
            return default
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
    """The mark `cache_control`. It is taken in its known form; one that says more counts as well, and stays where it is."""
    return _mark(own, "cache_control", ("type", "ephemeral"), CONTROLS)


def read_breakpoint(own: Fields) -> CacheTtl:
    """The mark `prompt_cache_breakpoint`. It is taken in its known form; one that says more counts as well, and stays."""
    return _mark(own, "prompt_cache_breakpoint", ("mode", "explicit"), BREAKPOINTS)


def _mark(own: Fields, name: str, known: tuple[str, str], lifetimes: dict[str, CacheTtl]) -> CacheTtl:
    """The lifetime of a mark; the usual one where it names one that we do not know. Empty when there is no mark."""
    mark = own.peek_fields(name)
    if mark.peek(known[0]) != known[1]:
        return ""
    mark.take(known[0])
    if not mark.has("ttl") or mark.peek("ttl") in lifetimes:
        lifetime = lifetimes[mark.text("ttl")]
        if not mark.rest():
            own.take(name)
        return lifetime
    return lifetimes[""]


def cited(raws: Iterable[msgspec.Raw], read: Callable[[msgspec.Raw], Citation]) -> tuple[Citation, ...]:
    """The citations of a text; one of an unknown form is left out, and stays in the seal of its text."""
    found: list[Citation] = []
    for raw in raws:
        with suppress(msgspec.ValidationError):
            found.append(read(raw))
    return tuple(found)


def keep_beside(blocks: tuple[Block, ...], own: Fields, maker: Origin) -> tuple[Block, ...]:
    """The blocks of a message. The first that can be sealed holds the fields of the message that were not taken."""
    if not own.rest():
        return blocks
    for number, block in enumerate(blocks):
        if not isinstance(block, HostedBlock | ReasoningBlock):
            before = fields(block.seal.data) if block.seal else {}
            seal = Seal(dumps({**before, MESSAGE: own.rest()}).decode(), maker, id=block.seal.id if block.seal else "")
            return (*blocks[:number], msgspec.structs.replace(block, seal=seal), *blocks[number + 1 :])
    return (*blocks, TextBlock("", seal=Seal(dumps({MESSAGE: own.rest()}).decode(), maker)))


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
