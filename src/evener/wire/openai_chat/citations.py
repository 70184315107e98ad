"""An annotation of this wire as a citation. Pure."""

import msgspec

from evener.transcript import delta as d
from evener.transcript.blocks import Citation
from evener.wire.lenient import Place, read_some
from evener.wire.text import fields, word

__all__ = ["citation", "read_citations"]


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    content: str | None = None
    start_index: Place = None
    end_index: Place = None


NOTHING_CITED = Citation()


def citation(raw: msgspec.Raw, found: list[d.Delta]) -> Citation | None:
    """What a text rests on, as far as it can be read; what is no citation is added to `found` as a notice.

    The facts stand in a field that is named like the annotation's type, or beside it.
    """
    if bytes(raw)[:1] != b"{":
        found.append(d.Notice("annotation", bytes(raw).decode()))
        return None
    own = fields(raw)
    odd: list[d.Delta] = []
    read = read_some(own.get(word(own.get("type")), raw), _Cited, "annotation", odd)
    start, end = read.start_index, read.end_index
    title, quote = read.title or read.filename or "", read.content or ""
    cited = Citation(read.url or "", title, quote, -1 if start is None else start, -1 if end is None else end)
    if odd:
        found.append(d.Notice("annotation", bytes(raw).decode()))
    return None if odd and cited == NOTHING_CITED else cited


def read_citations(raw: msgspec.Raw) -> tuple[Citation, ...]:
    """The citations in a list of annotations; those of a form that nobody knows are left out."""
    if bytes(raw)[:1] != b"[":
        return ()
    found = (citation(one, []) for one in msgspec.json.decode(raw, type=list[msgspec.Raw]))
    return tuple(one for one in found if one is not None)
