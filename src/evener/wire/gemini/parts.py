"""The parts of Gemini's contents, in both directions: one data field, and the fields beside it, which go into a seal. Pure.

A seal has the part's other fields unchanged (`thoughtSignature`, `thought`, `videoMetadata`), and, under the name of the data
field, the inner fields that have no neutral form: `{"thoughtSignature": "...", "functionCall": {"id": null}}`. A null id means
that the provider gave none: the id is ours, and is not sent.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from evener.transcript.blocks import HostedBlock, Remote, Seal, Source, Uploaded
from evener.wire.prefix import dumps, fields, value_in, word
from evener.wire.reading import Fields, Items
from evener.wire.request import lettered_name

LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", re.ASCII)


@lru_cache(1024)
def function_name(name: str, limit: int) -> str:
    """Return the name if the wire accepts it; else a replacement within the row's limit."""
    return name if LEGAL.fullmatch(name) else lettered_name(name, limit)


CIRCULATED = ("toolCall", "toolResponse")
"""Inputs and outputs of the provider's own tools: parts that only some endpoints send and accept (sheet 3)."""

BEGINNINGS = ("executableCode", "toolCall")
ENDS = ("codeExecutionResult", "toolResponse")
HOSTED = (*BEGINNINGS, *ENDS)

READABLE = ("code", "output", "args", "response")
OPAQUE = re.compile(r"[A-Za-z0-9+/_=-]{80}|^data:")
"""Unreadable text: base64, signatures, ciphers."""
SECRET = re.compile("signature|encrypted|token|^data$", re.IGNORECASE)
DEEPEST = 8
LONGEST = 290


def hosted_block(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """Return a part of the provider's own as a block."""
    own = camel_fields(raw)
    kind = next((name for name in HOSTED if name in own), "")
    inner = camel_fields(own[kind]) if kind and bytes(own[kind])[:1] == b"{" else {}
    whose: Literal["", "assistant"] = "assistant" if kind else ""
    name = word(inner.get("id"))
    opens, closes = (name, "") if kind in BEGINNINGS else ("", name)
    return HostedBlock(bytes(raw).decode(), WIRE, _line(own, kind, inner), whose, opens, closes, provider=provider)


def _line(own: dict[str, msgspec.Raw], kind: str, inner: dict[str, msgspec.Raw]) -> str:
    named = [kind or next(iter(own), "empty part"), word(inner.get("toolType")), word(inner.get("outcome"))]
    said = " ".join(text for name in READABLE if name in inner for text in _words(value_in(inner[name]), 0))
    text = " ".join(name for name in named if name) + (f": {said}" if said else "")
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _words(value: object, depth: int) -> Iterator[str]:
    """Yield the readable texts in a value."""
    match value:
        case str() if value.strip() and not OPAQUE.search(value):
            yield value.strip()
        case dict() if depth < DEEPEST:
            for name, one in value.items():
                if not SECRET.search(name):
                    yield from _words(one, depth + 1)
        case list() if depth < DEEPEST:
            for one in value:
                yield from _words(one, depth + 1)


WIRE = "gemini"
SIGNATURE = "thoughtSignature"
UNCITED = "this wire takes none back"
KNOWN = ("functionCall", "functionResponse", "inlineData", "fileData", "text")
"""The data fields that have a neutral form. A part has one of them."""
NULL = msgspec.Raw(b"null")
EMPTY = (b"null", b"[]", b"{}", b'""')
SNAKE = re.compile(r"_([a-z0-9])")
FILES = re.compile(r"https://[^/]+/(?:upload/)?v\d\w*/files/[\w-]+|(?!https?:)\w+:.*")
"""Addresses in a provider's own store: within its API, or with a scheme other than http."""

Raws = dict[str, msgspec.Raw]


class ResultShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of a result's text in the response object: its key (empty: the text is the object), and whether it is JSON."""

    under: str = ""
    json: bool = False


_shapes = msgspec.json.Decoder(ResultShape)


def camel(name: str) -> str:
    """Return a field's name in camel case; requests may also spell it with underscores."""
    return SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def camel_fields(raw: bytes | msgspec.Raw) -> Raws:
    """Return the fields of an object under their camel case names."""
    return {camel(name): value for name, value in fields(raw).items()}


def camel_object(own: Fields, name: str) -> Fields:
    """Return the fields of an inner object, and leave it in place; no fields if it is absent or not an object."""
    return Fields(camel_fields(own.peek_raw(name))) if own.is_object(name) else Fields({})


def as_list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a repeated field; the API also takes one object where a list is expected."""
    return msgspec.json.decode(raw, type=Items) if bytes(raw)[:1] == b"[" else [raw]


def own_fields(seal: Seal | None) -> Raws:
    """Return the fields in a seal of this wire; none in any other."""
    return fields(seal.data) if seal and seal.origin.wire == WIRE else {}


def ours(own: Raws) -> Raws:
    """Return the part of a seal that is for any provider: that an id was ours, and the form of a result."""
    call = {"functionCall": msgspec.Raw(b'{"id":null}')} if is_bare(own) else {}
    shape = shape_of(own)
    return {**call, **({"functionResponse": msgspec.Raw(dumps({"response": shape}))} if shape else {})}


def named_fields(own: Raws) -> list[str]:
    """Return the names of the provider's fields in a seal of any wire."""
    kept = ours(own)
    names: list[str] = []
    for name, value in own.items():
        if name.startswith("@"):  # not sent itself; it may contain fields of the message
            names += (inner for inner in fields(value) if inner not in ("role", "content")) if bytes(value)[:1] == b"{" else ()
        elif bytes(value) not in EMPTY and kept.get(name) != value:
            names.append(name)
    return names


def part_of(name: str, value: dict[str, object], own: Raws) -> dict[str, object]:
    """Return a part with one data field, and with the sealed fields restored."""
    if not own:
        return {name: value}
    beside = {other: field for other, field in own.items() if other != name}
    if name in own:
        value = {**value, **fields(own[name])}
    return {name: {field: one for field, one in value.items() if one != NULL}, **beside}


def is_bare(own: Raws) -> bool:
    """True if a call came without an id."""
    if not own:
        return False
    call = fields(own["functionCall"]) if bytes(own.get("functionCall", NULL))[:1] == b"{" else {}
    return call.get("id") == NULL


def shape_of(own: Raws) -> ResultShape | None:
    """Return the form of the result in its response; None for our own form."""
    if not own:
        return None
    response = fields(own["functionResponse"]) if bytes(own.get("functionResponse", NULL))[:1] == b"{" else {}
    return _shapes.decode(response["response"]) if "response" in response else None


def sealed_text(beside: Raws, name: str = "", inner: Raws | None = None) -> str:
    """Return the text of a seal; empty when there is nothing to keep."""
    kept: dict[str, object] = dict(beside)
    if inner:
        kept[name] = inner
    return dumps(kept).decode() if kept else ""


def source_of(uri: str, provider: str) -> Source:
    """Return the source of a file: the provider's store, or the web."""
    return Uploaded(uri, WIRE, provider) if FILES.fullmatch(uri) else Remote(uri)
