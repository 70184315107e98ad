"""Images that tools return lie in the blobs, and every wire gets them inline (S0.54, S2.34)."""

import asyncio
import struct
import zlib
from base64 import b64encode
from pathlib import Path

import pytest

from evener import events as ev
from evener import tool
from evener.harness import Harness
from evener.store.sqlite.store import SqliteStore
from evener.testing import Call, turn
from evener.transcript.blocks import ImageBlock, Inline, Stored, TextBlock
from tests.driver.stage import WIRES, model_at, served
from tests.model.stage import watched


def png(side: int) -> bytes:
    """An image of noise that does not compress."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes((x * x * 7 + y * 31 + x * y) % 251 for x in range(side * 3)) for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("side", [8, 80], ids=["small", "large"])
def test_an_image_lies_in_a_blob_and_goes_out_inline(wire: str, side: int, tmp_path: Path) -> None:
    picture = png(side)

    @tool(effect="read")
    def draw() -> object:
        """Draw."""
        return [TextBlock("here it is"), ImageBlock(Inline(b64encode(picture).decode()), "image/png")]

    store = SqliteStore(tmp_path / "store.db")

    async def go() -> str:
        async with watched() as watch:
            harness = Harness(model_at(server, wire, watch), tools=[draw], store=store)
            result = await harness.run("Draw!")
            again = await harness.run("And now?", thread=result.thread)
            assert (result.text, again.text) == ("nice", "still nice")
            return result.thread

    async def logged(thread: str) -> list[ImageBlock]:
        events = await store.read(thread)
        await store.aclose()
        done = next(event for event in events if isinstance(event, ev.CallFinished))
        return [block for block in done.content if isinstance(block, ImageBlock)]

    async def whole() -> list[ImageBlock]:
        return await logged(await go())

    script = [turn("let me", Call("draw")), "nice", "still nice"]
    with served(wire, script) as server:
        [image] = asyncio.run(whole())
        assert server.rejected == []
        sent = b64encode(picture)
        assert [sent in request.body for request in server.requests] == [False, True, True]
    assert isinstance(image.source, Stored if side == 80 else Inline)
