"""Images in events. Serves only raster images whose bytes match their media type, and nothing that a browser might run."""

import binascii
from base64 import b64decode

from evener import events as ev
from evener.errors import EvenerError
from evener.store.protocol import Store
from evener.transcript.blocks import Block, ImageBlock, Inline, Stored
from evener.transcript.message import Message
from evener.wire.media import image_type


async def find_image(store: Store, event: ev.Event, place: str) -> tuple[str, bytes] | None:
    """Return media type and bytes of the image at this place of an event; None if there is no image to show."""
    block = _find(event, place.split("/"))
    if not isinstance(block, ImageBlock):
        return None
    content = await _read(store, block)
    kind = image_type(content)
    return (kind, content) if kind else None


async def _read(store: Store, block: ImageBlock) -> bytes:
    try:
        match block.source:
            case Inline(data=data):
                return b64decode(data, validate=False)
            case Stored(digest=digest):
                return await store.get_blob(digest)
    except (EvenerError, binascii.Error, ValueError):
        return b""
    return b""


def _find(event: ev.Event, steps: list[str]) -> Block | None:
    match event, steps:
        case ev.Prompted(message=message) | ev.Steered(message=message) | ev.Replied(message=message), [
            "message",
            "blocks",
            place,
        ]:
            return _at(message.blocks, place)
        case ev.Imported(messages=messages), ["messages", number, "blocks", place]:
            found = _message(messages, number)
            return _at(found.blocks, place) if found else None
        case ev.CallFinished(content=content), ["content", place]:
            return _at(content, place)
        case _:
            return None


def _message(messages: tuple[Message, ...], place: str) -> Message | None:
    return messages[int(place)] if place.isdecimal() and int(place) < len(messages) else None


def _at(blocks: tuple[Block, ...], place: str) -> Block | None:
    return blocks[int(place)] if place.isdecimal() and int(place) < len(blocks) else None
