"""A fake computer: it remembers what was done, and shows a plain screen whose shade changes with each action."""

import struct
import zlib

from evener.encodings.native.actions import Action, Navigate, Screen
from evener.toolset.computer.tools import Shot

__all__ = ["FakeComputer"]


class FakeComputer:
    """A computer, or with `browses` a browser. `done` are the actions so far, `says` is what it answers to each."""

    def __init__(self, screen: Screen = (1280, 800), *, browses: bool = False, says: str = "") -> None:
        self.screen = screen
        self.browses = browses
        self.says = says
        self.address = "about:blank" if browses else ""
        self.done: list[Action] = []

    async def screenshot(self) -> Shot:
        """Return a screen of one shade of grey."""
        return Shot(_png(self.screen, len(self.done) % 256), self.address)

    async def act(self, action: Action) -> str:
        """Remember the action."""
        self.done.append(action)
        if isinstance(action, Navigate):
            self.address = action.url
        return self.says


def _png(screen: Screen, shade: int) -> bytes:
    width, height = screen
    rows = (b"\0" + bytes([shade]) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    made = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)
