"""Structured reasoning (`reasoning_details`) put together again: it must go back whole and unchanged. Pure.

In a stream an entry of text or summary comes in pieces: those of one type and index that follow each other are one entry.
Encrypted entries always stand alone, even with equal indices (sheet 9).
"""

from collections.abc import Sequence

import msgspec

from evener.wire.text import dumps, fields, text_in

__all__ = ["Details"]

TEXTS = {b'"reasoning.text"': "text", b'"reasoning.summary"': "summary"}
NULL = b"null"


class _Entry(msgspec.Struct):
    """One entry: its fields, and the pieces of its text."""

    own: dict[str, msgspec.Raw]
    texts: str
    pieces: list[str] = []

    def raw(self) -> dict[str, msgspec.Raw]:
        """The entry, its pieces joined."""
        return {**self.own, self.texts: msgspec.Raw(dumps("".join(self.pieces)))} if self.pieces else self.own


class Details:
    """Entries as they come."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(self, entries: Sequence[msgspec.Raw], *, whole: bool) -> str:
        """Take entries in, the pieces of some or the whole list; the readable part of them."""
        shown: list[str] = []
        for raw in entries:
            own = fields(raw.copy())
            texts = TEXTS.get(bytes(own.get("type", b"")), "")
            text = text_in(own.get(texts))
            shown.append(text)
            last = self._entries[-1] if self._entries else None
            if last is None or whole or not texts or not _same(last.own, own):
                self._entries.append(_Entry(own, texts, [] if whole or not text else [text]))
            else:
                last.own |= {name: value for name, value in own.items() if bytes(value) != NULL and name != texts}
                last.pieces.append(text)
        return "".join(shown)

    def sealed(self) -> dict[str, msgspec.Raw]:
        """The field that goes back; nothing when there were no entries."""
        if not self._entries:
            return {}
        return {"reasoning_details": msgspec.Raw(dumps([entry.raw() for entry in self._entries]))}


def _same(one: dict[str, msgspec.Raw], other: dict[str, msgspec.Raw]) -> bool:
    return all(bytes(one.get(name, NULL)) == bytes(other.get(name, NULL)) for name in ("type", "index"))
