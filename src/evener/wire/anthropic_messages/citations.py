"""What a text rests on, in Anthropic's words. Pure."""

import msgspec

from evener.transcript import delta as d
from evener.transcript.blocks import Citation
from evener.wire.lenient import Place, read_some

__all__ = ["citations_in", "read_citation"]


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    document_title: str | None = None
    cited_text: str | None = None
    start_char_index: Place = None
    end_char_index: Place = None


def citations_in(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The citations in the field of that name, each still JSON; none when it is no list."""
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None and bytes(raw)[:1] == b"[" else []


def read_citation(raw: msgspec.Raw, found: list[d.Delta] | None = None) -> Citation:
    """One citation, as far as it can be read; the rest of it is added to `found`, as notices."""
    read = read_some(raw, _Cited, "citation", [] if found is None else found)
    start, end = read.start_char_index, read.end_char_index
    title = read.title or read.document_title or ""
    quote = read.cited_text or ""
    return Citation(read.url or "", title, quote, -1 if start is None else start, -1 if end is None else end)
