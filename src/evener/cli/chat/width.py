"""How many columns text takes on a terminal, and which characters stay together. Pure."""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["clipped", "clusters", "columns"]

JOINER = "\u200d"
JAMO = range(0x1160, 0x1200)  # the parts of a Korean syllable that are drawn into the one before


@lru_cache(maxsize=4096)
def _columns(char: str) -> int:
    if char < "\u0300":
        return 1
    if unicodedata.category(char) in ("Mn", "Me", "Cf") or ord(char) in JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clusters(text: str) -> Iterator[str]:
    """The text in pieces that the cursor steps over at once: a character and what is drawn onto it."""
    if text.isascii():
        yield from text
        return
    held = ""
    for char in text:
        if held and held != "\n" and (_columns(char) == 0 or held.endswith(JOINER)):
            held += char
            continue
        if held:
            yield held
        held = char
    if held:
        yield held


def columns(text: str) -> int:
    """The columns that a text without line ends takes."""
    if text.isascii():
        return len(text)
    return sum(max(map(_columns, cluster)) for cluster in clusters(text))


def clipped(text: str, width: int) -> str:
    """The text on one row of this width; what does not fit is shown as three dots."""
    line = " ".join(text.split())
    if columns(line) <= width:
        return line
    kept, used = "", 0
    for cluster in clusters(line):
        used += columns(cluster)
        if used > width - 3:
            break
        kept += cluster
    return kept + "..."[: max(width, 0)]
