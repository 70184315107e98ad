"""What a part is made of, in both directions: its one data field, and the fields beside it that ride in a seal. Pure.

A seal holds the part's other fields as they came (`thoughtSignature`, `thought`, `videoMetadata`), and under the name of the
data field those of its fields that have no neutral word: `{"thoughtSignature": "...", "functionCall": {"id": null}}`. An id
that is null was never given: it is ours, and does not go out.
"""

import re

import msgspec

from evener.transcript.blocks import Remote, Source, Uploaded
from evener.transcript.origin import Seal
from evener.wire.reading import Fields, Items
from evener.wire.text import dumps, fields

__all__ = [
    "KNOWN",
    "NOBODYS",
    "SIGNATURE",
    "UNCITED",
    "WIRE",
    "Raws",
    "Shape",
    "as_list",
    "camel",
    "camel_fields",
    "camel_object",
    "is_bare",
    "named_fields",
    "ours",
    "own_fields",
    "part_of",
    "sealed_text",
    "shape_of",
    "source_of",
]

WIRE = "gemini"
SIGNATURE = "thoughtSignature"
UNCITED = "this wire takes none back"
KNOWN = ("functionCall", "functionResponse", "inlineData", "fileData", "text")
"""The data fields that have a neutral word: a part has one."""
NOBODYS = msgspec.Raw(b"null")
EMPTY = (b"null", b"[]", b"{}", b'""')
SNAKE = re.compile(r"_([a-z0-9])")
FILES = re.compile(r"https://[^/]+/(?:upload/)?v\d\w*/files/[\w-]+|(?!https?:)\w+:.*")
"""What lies in a provider's own store: under its API, or not on the web at all."""

Raws = dict[str, msgspec.Raw]


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a result's text stands in the response object: under which name (empty: it is the object), and as JSON or as text."""

    under: str = ""
    json: bool = False


_shapes = msgspec.json.Decoder(Shape)


def camel(name: str) -> str:
    """A field's name as this wire writes it; requests may also spell it with underscores."""
    return SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def camel_fields(raw: bytes | msgspec.Raw) -> Raws:
    """The fields of an object under their own names, however they were spelled."""
    return {camel(name): value for name, value in fields(raw).items()}


def camel_object(own: Fields, name: str) -> Fields:
    """The fields of an object within these, which is left in place; none when it is absent or something else."""
    return Fields(camel_fields(own.peek_raw(name))) if own.is_object(name) else Fields({})


def as_list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """A repeated field; the API also takes one object where a list is expected."""
    return msgspec.json.decode(raw, type=Items) if bytes(raw)[:1] == b"[" else [raw]


def own_fields(seal: Seal | None) -> Raws:
    """The fields in a seal of this wire; none in any other."""
    return fields(seal.data) if seal and seal.origin.wire == WIRE else {}


def ours(own: Raws) -> Raws:
    """What of a seal tells only how the history was read, and so may go to anyone: that an id was ours, how a result stood."""
    call = {"functionCall": msgspec.Raw(b'{"id":null}')} if is_bare(own) else {}
    shape = shape_of(own)
    return {**call, **({"functionResponse": msgspec.Raw(dumps({"response": shape}))} if shape else {})}


def named_fields(own: Raws) -> list[str]:
    """The names of the fields that a seal of any wire holds for its maker."""
    kept = ours(own)
    names: list[str] = []
    for name, value in own.items():
        if name.startswith("@"):  # not sent itself; it may hold fields of the message
            names += (inner for inner in fields(value) if inner not in ("role", "content")) if bytes(value)[:1] == b"{" else ()
        elif bytes(value) not in EMPTY and kept.get(name) != value:
            names.append(name)
    return names


def part_of(name: str, value: dict[str, object], own: Raws) -> dict[str, object]:
    """A part with one data field, the sealed fields put back to their places."""
    if not own:
        return {name: value}
    beside = {other: field for other, field in own.items() if other != name}
    if name in own:
        value = {**value, **fields(own[name])}
    return {name: {field: one for field, one in value.items() if one != NOBODYS}, **beside}


def is_bare(own: Raws) -> bool:
    """Whether a call came without an id."""
    if not own:
        return False
    call = fields(own["functionCall"]) if bytes(own.get("functionCall", NOBODYS))[:1] == b"{" else {}
    return call.get("id") == NOBODYS


def shape_of(own: Raws) -> Shape | None:
    """How the result stood in its response; None for our own way."""
    if not own:
        return None
    response = fields(own["functionResponse"]) if bytes(own.get("functionResponse", NOBODYS))[:1] == b"{" else {}
    return _shapes.decode(response["response"]) if "response" in response else None


def sealed_text(beside: Raws, name: str = "", inner: Raws | None = None) -> str:
    """The text of a seal; empty when there is nothing to keep."""
    kept: dict[str, object] = dict(beside)
    if inner:
        kept[name] = inner
    return dumps(kept).decode() if kept else ""


def source_of(uri: str, provider: str) -> Source:
    """Where a file lies: in the provider's store, or on the web."""
    return Uploaded(uri, WIRE, provider) if FILES.fullmatch(uri) else Remote(uri)
