"""An annotation of this wire as a citation. Pure."""

from contextlib import suppress

import msgspec

from evener.transcript.blocks import Citation
from evener.wire.text import fields, word

__all__ = ["citation", "read_citations"]


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    content: str | None = None
    start_index: int | None = None
    end_index: int | None = None


_cited = msgspec.json.Decoder(_Cited)


def citation(raw: msgspec.Raw) -> Citation:
    """What a text rests on. The facts stand in a field that is named like the annotation's type, or beside it."""
    own = fields(raw)
    read = _cited.decode(own.get(word(own.get("type")), raw))
    start, end = read.start_index, read.end_index
    title, quote = read.title or read.filename or "", read.content or ""
    return Citation(read.url or "", title, quote, -1 if start is None else start, -1 if end is None else end)


def read_citations(raw: msgspec.Raw) -> tuple[Citation, ...]:
    """The citations in a list of annotations; those of a form that nobody knows are left out."""
    if bytes(raw)[:1] != b"[":
        return ()
    found: list[Citation] = []
    for one in msgspec.json.decode(raw, type=list[msgspec.Raw]):
        with suppress(msgspec.ValidationError):
            found.append(citation(one))
    return tuple(found)
