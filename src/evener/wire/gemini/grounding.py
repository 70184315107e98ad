"""What a text rests on: grounding and citation metadata as citations. The wire counts bytes, we count characters. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from evener.transcript.blocks import Citation
from evener.transcript.delta import CitationAdded, TextDelta

__all__ = ["citations"]


class _Place(msgspec.Struct):
    uri: str | None = None
    title: str | None = None
    fileSearchStore: str | None = None  # noqa: N815 - here and below, the wire's own spelling


class _Source(msgspec.Struct):
    web: _Place | None = None
    retrievedContext: _Place | None = None  # noqa: N815
    maps: _Place | None = None

    def place(self) -> tuple[str, str]:
        """Address and title."""
        found = self.web or self.retrievedContext or self.maps or _Place()
        return found.uri or "", found.title or found.fileSearchStore or ""


class _Segment(msgspec.Struct):
    startIndex: int | None = None  # noqa: N815
    endIndex: int | None = None  # noqa: N815
    text: str | None = None


class _Support(msgspec.Struct):
    segment: _Segment | None = None
    groundingChunkIndices: list[int] | None = None  # noqa: N815


class _Grounding(msgspec.Struct):
    groundingChunks: list[_Source] | None = None  # noqa: N815
    groundingSupports: list[_Support] | None = None  # noqa: N815


class _Cited(msgspec.Struct):
    startIndex: int | None = None  # noqa: N815
    endIndex: int | None = None  # noqa: N815
    uri: str | None = None
    title: str | None = None


class _Citations(msgspec.Struct):
    citations: list[_Cited] | None = None
    citationSources: list[_Cited] | None = None  # noqa: N815


_groundings = msgspec.json.Decoder(_Grounding)
_citations = msgspec.json.Decoder(_Citations)

Said = Sequence[TextDelta]
"""All text of the answer so far, piece by piece."""


STRIDE = 4096
INNER = bytes(range(0x80, 0xC0))
"""Bytes within a character."""


class _Ruler:
    """Finds characters by bytes in a long text, without counting it from the start each time."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.bytes = "".join(piece.text for piece in said).encode()
        self.counts = [0]  # characters before each stride
        for start in range(0, len(self.bytes), STRIDE):
            self.counts.append(self.counts[-1] + _characters(self.bytes[start : start + STRIDE]))
        begins: dict[int, int] = {}
        place = 0
        for piece in said:
            begins.setdefault(piece.index, place)
            place += len(piece.text)
        self.blocks, self.begins = list(begins), list(begins.values())

    def located(self, start: int, end: int, quote: str) -> tuple[int, int, int]:
        """The block a stretch of bytes begins in, and its characters there; -1 where these are not the bytes that are meant."""
        first, last = self._character(start), self._character(end)
        meant = not quote or (end - start == len(quote.encode()) and self.bytes[start:end].decode(errors="replace") == quote)
        if first < 0 or last <= first or not meant:
            return self.said[-1].index, -1, -1
        number = bisect_right(self.begins, first) - 1
        return self.blocks[number], first - self.begins[number], last - self.begins[number]

    def _character(self, place: int) -> int:
        if (
            not 0 <= place <= len(self.bytes)
            or self.bytes[place : place + 1].translate(None, INNER) != self.bytes[place : place + 1]
        ):
            return -1
        stride = place // STRIDE
        return self.counts[stride] + _characters(self.bytes[stride * STRIDE : place])


def _characters(data: bytes) -> int:
    return len(data.translate(None, INNER))


def citations(name: str, raw: msgspec.Raw, said: Said) -> list[CitationAdded]:
    """The citations that this metadata holds; none when it is of another kind or of a shape that nobody knows."""
    if not said:
        return []
    try:
        match name:
            case "groundingMetadata":
                return list(_grounded(_groundings.decode(raw), said))
            case "citationMetadata":
                return list(_cited(_citations.decode(raw), said))
            case _:
                return []
    except msgspec.ValidationError:
        return []


def _grounded(read: _Grounding, said: Said) -> Iterator[CitationAdded]:
    sources = [source.place() for source in read.groundingChunks or ()]
    ruler = _Ruler(said)
    for support in read.groundingSupports or ():
        segment = support.segment or _Segment()
        index, start, end = ruler.located(segment.startIndex or 0, segment.endIndex or 0, segment.text or "")
        for number in support.groundingChunkIndices or ():
            url, title = sources[number] if 0 <= number < len(sources) else ("", "")
            yield CitationAdded(index, Citation(url, title, segment.text or "", start, end))


def _cited(read: _Citations, said: Said) -> Iterator[CitationAdded]:
    ruler = _Ruler(said)
    for one in (*(read.citations or ()), *(read.citationSources or ())):
        index, start, end = ruler.located(one.startIndex or 0, one.endIndex or 0, "")
        yield CitationAdded(index, Citation(one.uri or "", one.title or "", "", start, end))
