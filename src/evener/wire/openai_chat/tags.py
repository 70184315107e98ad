"""Splits reasoning from an answer that begins with it, between tags, however the text is cut. Pure.

Only the beginning counts: tags later in the text are text. What stands between the tags is kept to the letter.
"""

from evener.wire.openai_chat.thoughts import CLOSING, OPENING

__all__ = ["Tags", "split"]

Piece = tuple[str, str]
"""`reasoning` or `text`, and more of it."""


class Tags:
    """Feed text, get pieces; `close` gives what was held back."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain by now."""
        if self._state == "text":
            return [("text", text)]
        self._held += text
        return self._start() if self._state == "start" else self._think()

    def close(self) -> list[Piece]:
        """What is left when no more text comes."""
        kind = "reasoning" if self._state == "think" else "text"
        held, self._held = self._held, ""
        return [(kind, held)] if held else []

    def _start(self) -> list[Piece]:
        begun = self._held.lstrip()
        if begun.startswith(OPENING):
            self._state, self._held = "think", begun[len(OPENING) :]
            return self._think()
        if OPENING.startswith(begun):
            return []
        self._state = "text"
        return self.close()

    def _think(self) -> list[Piece]:
        thought, found, rest = self._held.partition(CLOSING)
        if found:
            self._state, self._held = "text", ""
            return [piece for piece in (("reasoning", thought), ("text", rest)) if piece[1]]
        kept = next((size for size in range(len(CLOSING) - 1, 0, -1) if thought.endswith(CLOSING[:size])), 0)
        self._held = thought[len(thought) - kept :]
        return [("reasoning", thought[: len(thought) - kept])] if len(thought) > kept else []


def split(text: str) -> list[Piece]:
    """A whole text in its pieces."""
    tags = Tags()
    return [*tags.feed(text), *tags.close()]
