"""What is being written, or was sent: characters, and pastes as one piece each. Pure values."""

import msgspec

__all__ = ["Block", "Draft", "Item"]


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
