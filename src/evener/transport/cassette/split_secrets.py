"""Finds and removes secrets that are split over several events: joining the deltas would make them whole again. Pure.

A response is read as JSON documents: SSE events, lines, or the items of one array. Texts at the same path, with equal
indexes of their parts, form a channel: a client joins the texts of a channel.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from evener.transport.secrets import REDACTED

DATA = re.compile(rb"(?:^data:[^\r\n]*(?:\r\n|\n|\r|\Z))+", re.MULTILINE)
PAYLOAD = re.compile(rb"^data:[ ]?([^\r\n]*)", re.MULTILINE)
LINE = re.compile(rb"[^\r\n]+")
PARTS = ("item_id", "choice", "candidate")

Place = tuple[object, ...]
Holder = dict[str, object] | list[object]


class Document:
    """One JSON document of a response, and its span. Changed in place while secrets are removed."""

    def __init__(self, start: int, end: int, value: Holder) -> None:
        self.start, self.end, self.value = start, end, value
        self.is_changed = False


class Leaf(msgspec.Struct):
    """A text in a document."""

    document: Document
    holder: Holder
    key: str | int
    content: bytes

    def put(self, content: bytes) -> None:
        self.content = content
        self.holder[self.key] = content.decode("utf-8", "surrogatepass")  # type: ignore[index]  # a name of a dict, else a place
        self.document.is_changed = True


def channels(whole: bytes) -> Iterator[bytes]:
    """Return the joined text of each channel."""
    return (b"".join(leaf.content for leaf in leaves) for leaves in _channels(_documents(whole)))


def remove_split_secrets(whole: bytes, pattern: re.Pattern[bytes]) -> bytes:
    """Return the response without secrets that are split over several of its documents; the same object if there are none."""
    documents = _documents(whole)
    for leaves in _channels(documents):
        for found in reversed(list(pattern.finditer(b"".join(leaf.content for leaf in leaves)))):
            _take_out(leaves, *found.span())
    changed = [document for document in documents if document.is_changed]
    if not changed:
        return whole
    pieces, at = [], 0
    for document in changed:
        pieces += [whole[at : document.start], msgspec.json.encode(document.value)]
        at = document.end
    return b"".join((*pieces, whole[at:]))


def _take_out(leaves: list[Leaf], start: int, end: int) -> None:
    """Replace a span of the joined text: the mark at its beginning, nothing for the rest of it."""
    at = 0
    for leaf in leaves:
        length = len(leaf.content)
        first, last = max(start - at, 0), min(end - at, length)
        if first < last:
            mark = REDACTED.encode() if at <= start else b""
            leaf.put(leaf.content[:first] + mark + leaf.content[last:])
        at += length


def _channels(documents: Iterable[Document]) -> list[list[Leaf]]:
    found: dict[Place, list[Leaf]] = {}
    for document in documents:
        for place, leaf in _leaves(document, document.value, ()):
            found.setdefault(place, []).append(leaf)
    return [leaves for leaves in found.values() if len(leaves) > 1]


def _leaves(document: Document, holder: Holder, place: Place) -> Iterator[tuple[Place, Leaf]]:
    left: list[tuple[Holder, Place]] = [(holder, place)]
    while left:
        holder, place = left.pop()
        if isinstance(holder, dict):
            place = (*place, *((name, value) for name, value in holder.items() if _tells_apart(name, value)))
            items: Iterable[tuple[str | int, object]] = holder.items()
        else:
            items = enumerate(holder)
        for key, value in items:
            if isinstance(value, str):
                yield (*place, key), Leaf(document, holder, key, value.encode("utf-8", "surrogatepass"))
            elif isinstance(value, dict | list):
                left.append((value, (*place, key)))


def _tells_apart(name: str, value: object) -> bool:
    return (name.endswith("index") or name in PARTS) and isinstance(value, int | str)


def _documents(whole: bytes) -> list[Document]:
    if b"data:" in whole:
        return [document for event in DATA.finditer(whole) for document in _of_event(event)]
    return _items(whole) or [document for line in LINE.finditer(whole) for document in _read(line.start(), line.end(), line[0])]


def _of_event(event: re.Match[bytes]) -> list[Document]:
    """Parse the lines of an event as one document; if they are not one, parse each line as a document."""
    lines = list(PAYLOAD.finditer(event[0]))
    start, spans = event.start(), [line.span(1) for line in lines]
    joined = _read(start + spans[0][0], start + spans[-1][1], b"\n".join(line[1] for line in lines))
    return joined or [
        document
        for line, (first, last) in zip(lines, spans, strict=True)
        for document in _read(start + first, start + last, line[1])
    ]


def _items(whole: bytes) -> list[Document]:
    try:
        raws = msgspec.json.decode(whole, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        return []
    found, at = [], 0
    for raw in raws:
        content = bytes(raw)
        at = whole.index(content, at)
        found += _read(at, at + len(content), content)
        at += len(content)
    return found


def _read(start: int, end: int, content: bytes) -> list[Document]:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return []
    return [Document(start, end, value)] if isinstance(value, dict | list) else []
