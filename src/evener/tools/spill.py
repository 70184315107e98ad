"""Keeps large output out of the transcript: its beginning and end stay; a blob contains the whole, which a tool reads in
pages.

The text is stored once more, as bytes, and never copied again: paging decodes only what it shows.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Literal, Protocol

import msgspec

from evener.events import Spilled
from evener.tools.result import Envelope, ModelRetry
from evener.tools.tool import Tool, tool
from evener.transcript.blocks import ResultContent, TextBlock
from evener.transport.secrets import known_net

HEAD_SHARE = 0.75
PIECE = 1 << 16
MOST_CHARACTERS = 20_000
MOST_LINES = 2_000
READER = "read_output"


class Blobs(Protocol):
    """A place for large output, by digest. Equal bytes have the same id."""

    def put(self, body: bytes) -> str:
        """Keep the bytes and return their id."""
        ...

    def get(self, id: str) -> bytes | None:
        """Return the bytes of an id; None when there are none."""
        ...


class MemoryBlobs:
    """Blobs in a dict, for tests and for runs that are not stored."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, body: bytes) -> str:
        """Keep the bytes."""
        id = sha256(body).hexdigest()
        self.held.setdefault(id, body)
        return id

    def get(self, id: str) -> bytes | None:
        """Return the bytes of an id."""
        return self.held.get(id)


def spill(envelope: Envelope, blobs: Blobs, *, limit: int) -> Envelope:
    """Return an envelope whose text has at most `limit` characters and a notice; the same one if it has no more than that."""
    texts = [block.text for block in envelope.content if isinstance(block, TextBlock)]
    if sum(map(len, texts)) <= limit:
        return envelope
    whole = texts[0] if len(texts) == 1 else "\n".join(texts)
    net = known_net()
    if net.may_hold(whole.encode("utf-8", "surrogatepass")):
        whole = net.without(whole)  # before it is cut: half of a secret is not found
    id = blobs.put(whole.encode())
    short = TextBlock(_ends(whole, id, limit))
    content: list[ResultContent] = []
    for block in envelope.content:
        if not isinstance(block, TextBlock):
            content.append(block)
        elif short not in content:
            content.append(short)
    return msgspec.structs.replace(envelope, content=tuple(content), spilled=Spilled(id, len(whole)))


def _ends(text: str, id: str, limit: int) -> str:
    head = int(limit * HEAD_SHARE)
    tail = limit - head
    lines = text.count("\n") + (not text.endswith("\n"))
    notice = (
        f"[The output has {len(text):,} characters in {lines:,} lines. Characters {head:,} to {len(text) - tail:,} are left "
        f'out here. Read them with {READER}(id="{id}", offset={head}).]'
    )
    return f"{text[:head]}\n{notice}\n{text[len(text) - tail :] if tail else ''}"


def read_output_tool(blobs: Blobs) -> Tool:
    """Return the tool that pages through spilled output."""

    def read_output(
        id: Annotated[str, "the id that the shortened output names"],
        offset: Annotated[int, msgspec.Meta(ge=0, description="where to begin, counted from 0")] = 0,
        limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHARACTERS, description="how much to read")] = 10_000,
        unit: Annotated[Literal["characters", "lines"], "what offset and limit count"] = "characters",
    ) -> str:
        """Read a part of a tool's output that was too large to be shown whole."""
        body = blobs.get(id)
        if body is None:
            raise ModelRetry(f"There is no output with the id {id[:80]!r}. Use the id that the shortened output names.")
        if unit == "lines":
            return _line_page(body, offset, min(limit, MOST_LINES))
        return _character_page(body, offset, limit)

    return tool(read_output, name=READER, effect="read", output_limit=4 * MOST_CHARACTERS)


def _character_page(body: bytes, offset: int, limit: int) -> str:
    found: list[str] = []
    seen = 0
    for piece in _pieces(body):
        start, end = max(0, offset - seen), offset + limit - seen
        if start < len(piece) and end > 0:
            found.append(piece[start:end])
        seen += len(piece)
    text = "".join(found)
    if not text:
        return f"[The output ends at character {seen:,}. There is nothing from character {offset:,} on.]"
    end = offset + len(text)
    onward = f" Go on with offset={end}." if end < seen else " This is the end."
    return f"{text}\n[Characters {offset:,} to {end:,} of {seen:,}.{onward}]"


def _line_page(body: bytes, offset: int, limit: int) -> str:
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if offset >= lines:
        return f"[The output has {lines:,} lines. There is no line {offset:,}.]"
    start = 0
    for _ in range(offset):
        start = body.index(b"\n", start) + 1
    end, taken = start, 0
    while taken < limit and end < len(body):
        stop = body.find(b"\n", end)
        end = len(body) if stop < 0 else stop + 1
        taken += 1
    shown = body[start : min(end, start + 4 * MOST_CHARACTERS)].decode(errors="replace")
    if len(shown) > MOST_CHARACTERS or end - start > 4 * MOST_CHARACTERS:
        kept = shown[:MOST_CHARACTERS]
        begin = sum(map(len, _pieces(body[:start]))) if not body.isascii() else start
        whole = kept.count("\n")
        return (
            f"{kept}\n[Lines {offset:,} to {offset + whole:,} of {lines:,}, cut after {len(kept):,} characters. "
            f'Go on with unit="characters", offset={begin + len(kept)}.]'
        )
    last = offset + taken
    onward = f" Go on with offset={last}." if last < lines else " This is the end."
    return f"{shown.removesuffix(chr(10))}\n[Lines {offset:,} to {last:,} of {lines:,}.{onward}]"


def _pieces(body: bytes) -> Iterator[str]:
    """Yield the text of the bytes in pieces, so that the whole is never in memory twice. No piece cuts a character."""
    start = 0
    while start < len(body):
        end = min(start + PIECE, len(body))
        while end < len(body) and end > start and body[end] & 0xC0 == 0x80:
            end -= 1
        end = end if end > start else min(start + PIECE, len(body))
        yield body[start:end].decode(errors="replace")
        start = end
