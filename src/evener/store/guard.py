"""What stands between content and the disk: the funnel takes secrets out, the cipher seals what is left to its place.

Both stores send everything through here before it is stored: payloads, notes, titles, tags, blobs. Nothing else does either.
"""

from typing import Literal

from evener.errors import EvenerError
from evener.store.chain import MISFITS
from evener.store.cipher import Cipher, opened
from evener.store.funnel import Funnel

__all__ = ["UNREADABLE", "Guard", "What"]

UNREADABLE = "[unreadable]"
"""What stands in a list for a title or a tag that does not open."""

What = Literal["event", "note", "title", "tag", "blob", "fold"]


class Guard:
    """The funnel and the cipher of a store. Content is sealed to what it is, whose, and its number there."""

    __slots__ = ("cipher", "funnel")

    def __init__(self, funnel: Funnel, cipher: Cipher | None = None) -> None:
        self.funnel = funnel
        self.cipher = cipher

    def seal(self, what: What, owner: str, content: bytes, *, number: int = 0) -> bytes:
        """Content as it lies in the file."""
        return content if self.cipher is None else self.cipher.seal(content, _about(what, owner, number).encode())

    def open(self, what: What, owner: str, stored: bytes, *, number: int = 0) -> bytes:
        """As it was before it was sealed. StoreError when it does not open."""
        return stored if self.cipher is None else opened(self.cipher, stored, _about(what, owner, number))

    def seal_text(self, what: What, owner: str, text: str, *, number: int = 0) -> str | bytes:
        """Text as it lies in the file: text without a cipher, bytes with one. No text stays no text."""
        return text if self.cipher is None or not text else self.seal(what, owner, text.encode(), number=number)

    def open_text(self, what: What, owner: str, stored: str | bytes, *, number: int = 0) -> str:
        """As it was before it was sealed. StoreError when it does not open."""
        return stored if isinstance(stored, str) else self.open(what, owner, stored, number=number).decode()

    def label(self, what: What, owner: str, stored: str | bytes) -> str:
        """A title or a tag for a list: one that does not open must not hide the others."""
        try:
            return self.open_text(what, owner, stored)
        except (EvenerError, *MISFITS):
            return UNREADABLE


def _about(what: What, owner: str, number: int) -> str:
    return f"{what} {number} {owner}"
