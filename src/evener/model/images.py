"""Images that fit an endpoint: an image that is larger than its row allows is made smaller, or replaced by a line of text.

Pillow (the extra `images`) does it, always in the same way: the same image gives the same bytes, so the provider's prompt
cache stays valid. The cost for a longer conversation is that of its new images.
"""

import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO

from msgspec.structs import replace

from evener.transcript.blocks import ImageBlock, Inline, TextBlock
from evener.transcript.loss import Loss, loss_in
from evener.transcript.message import Message
from evener.wire.quirks import Quirks

HEAD = 64 * 1024
"""Bytes of an image that are looked at for its size."""
LEAST_SIDE, QUALITY = 64, 85
KEPT = 64
"""How many images that were made smaller are kept."""


def fit_image(block: ImageBlock, message: Message, quirks: Quirks, losses: list[Loss]) -> ImageBlock | TextBlock:
    why = _why_too_large(block, quirks)
    if not why:
        return block
    assert isinstance(block.source, Inline)
    smaller = _shrink(block.source.data, quirks.image_bytes, quirks.image_side)
    if smaller is None:
        hint = "" if find_spec("PIL") else "; install evener[images] to have such images made smaller"
        losses.append(loss_in("dropped", "image", f"{why}{hint}", message, block))
        return TextBlock(f"[image omitted: {why}]")
    losses.append(loss_in("degraded", "image", f"made smaller: {why}", message, block))
    return replace(block, source=Inline(smaller[0]), media_type=smaller[1])


def _why_too_large(block: ImageBlock, quirks: Quirks) -> str:
    """Return why an endpoint does not take an image, in words; empty when it does, or when its bytes are elsewhere."""
    if type(block.source) is not Inline:
        return ""
    size = len(block.source.data) * 3 // 4
    if 0 < quirks.image_bytes < size:
        return f"it has {size:,} bytes, and the endpoint takes {quirks.image_bytes:,}"
    if quirks.image_side:
        width, height = size_of(block.source.data)
        if max(width, height) > quirks.image_side:
            return f"it has {width} x {height} pixels, and the endpoint takes {quirks.image_side} a side"
    return ""


def size_of(data: str) -> tuple[int, int]:
    """Return width and height of an image in base64, from its first bytes; zeros where they do not say."""
    try:
        head = b64decode(data[: HEAD * 4 // 3 // 4 * 4])
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return struct.unpack(">II", head[16:24])
        if head[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack("<HH", head[6:10])
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp_size(head)
        if head.startswith(b"\xff\xd8"):
            return next(_jpeg_sizes(head), (0, 0))
    except (Base64Error, ValueError, struct.error):
        return 0, 0
    return 0, 0


def _webp_size(head: bytes) -> tuple[int, int]:
    match head[12:16]:
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF


def _jpeg_sizes(head: bytes) -> Iterator[tuple[int, int]]:
    """Yield the size in each start of a frame."""
    place = 2
    while place + 9 < len(head) and head[place] == 0xFF:
        marker, length = head[place + 1], int.from_bytes(head[place + 2 : place + 4])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[place + 5 : place + 9])
            yield width, height
        place += 2 + length


@lru_cache(KEPT)
def _shrink(data: str, most_bytes: int, most_side: int) -> tuple[str, str] | None:
    """Return the image within these limits, and its type; None where it cannot be read. The same input gives the same bytes."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(BytesIO(b64decode(data))) as opened:
            opened.load()
            image = opened.convert("RGBA" if opened.mode in ("RGBA", "LA", "PA") or "transparency" in opened.info else "RGB")
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    side = min(max(image.size), most_side or max(image.size))
    while side >= LEAST_SIDE:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        kind = "PNG" if image.mode == "RGBA" else "JPEG"
        out = BytesIO()
        image.save(out, kind, **({"quality": QUALITY} if kind == "JPEG" else {"optimize": False}))
        if not most_bytes or out.tell() <= most_bytes:
            return b64encode(out.getvalue()).decode(), f"image/{kind.lower()}"
        side = side * 3 // 4
    return None
