"""What is being written, or was sent: characters, and pastes as one piece each. Pure.

In the line that is being written a long paste stands as one character of Unicode's last plane, which is for private use.
"""

import re

import msgspec

from evener.cli.terminal import clean

__all__ = ["Block", "Draft", "Item", "Pastes"]

SHORT_LINES, SHORT = 4, 600
"""Lines and characters up to which a paste is shown as it is."""
MARK = re.compile("[\U00100000-\U0010fffd]")


class Block(msgspec.Struct, frozen=True):
    """A long paste."""

    text: str

    @property
    def label(self) -> str:
        lines = self.text.count("\n") + (not self.text.endswith("\n"))
        what = f"{lines:,} lines" if lines > 1 else f"{len(self.text):,} characters"
        return f"[pasted {what}]"


Item = str | Block


class Draft(msgspec.Struct, frozen=True):
    """What is sent: parts that were typed, and pastes among them."""

    parts: tuple[Item, ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def shown(self) -> str:
        """With pastes by their size."""
        return "".join(part if isinstance(part, str) else part.label for part in self.parts)


class Pastes:
    """The long pastes of one chat, each behind its mark."""

    def __init__(self) -> None:
        self._blocks: dict[str, Block] = {}

    def fold(self, text: str) -> str:
        """Return the text without what steers a terminal; a long one as its mark."""
        cleaned = MARK.sub("", clean(text.replace("\r\n", "\n").replace("\r", "\n")))
        if cleaned.count("\n") < SHORT_LINES and len(cleaned) <= SHORT:
            return cleaned
        mark = chr(0x100000 + len(self._blocks) % 0xFFFE)
        self._blocks[mark] = Block(cleaned)
        return mark

    def draft(self, line: str) -> Draft:
        """Return what the line holds."""
        parts = (self._blocks.get(part, part) for part in re.split(f"({MARK.pattern})", line))
        return Draft(tuple(part for part in parts if part))

    def label(self, char: str) -> str:
        """Return how a character of the line is shown."""
        block = self._blocks.get(char)
        return block.label if block else char
