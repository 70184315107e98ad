"""What a text rests on, in the words of Responses. Pure."""

import msgspec

from evener.transcript import delta as d
from evener.transcript.blocks import Citation
from evener.wire.lenient import Place, read_some

__all__ = ["read_citation"]


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    start_index: Place = None
    end_index: Place = None


def read_citation(raw: msgspec.Raw, found: list[d.Delta] | None = None) -> Citation:
    """One annotation of a text, as far as it can be read; the rest of it is added to `found`, as notices."""
    read = read_some(raw, _Cited, "annotation", [] if found is None else found)
    start, end = read.start_index, read.end_index
    title = read.title or read.filename or ""
    return Citation(read.url or "", title, "", -1 if start is None else start, -1 if end is None else end)
