"""What a text rests on, in the words of Responses. Pure."""

import msgspec

from evener.transcript.blocks import Citation

__all__ = ["read_citation"]


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    start_index: int | None = None
    end_index: int | None = None


_cited = msgspec.json.Decoder(_Cited)


def read_citation(raw: msgspec.Raw) -> Citation:
    """One annotation of a text."""
    read = _cited.decode(raw)
    start, end = read.start_index, read.end_index
    title = read.title or read.filename or ""
    return Citation(read.url or "", title, "", -1 if start is None else start, -1 if end is None else end)
