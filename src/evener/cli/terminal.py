"""Manners on a terminal: what a model or a provider says cannot steer it, and colour appears only where it is wanted.

Text from outside goes through here before it is printed. Nothing readable is ever hidden: only what steers is removed. Where
somebody decides by what is shown, what cannot be seen is written out instead.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO
from unicodedata import category

__all__ = ["Cleaner", "Style", "clean", "escape_json", "escaped", "print_json", "print_table", "say", "styled"]

Style = Literal["bold", "red", "green", "yellow"]
CODES: Mapping[Style, str] = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}

# The sequences that colour, move and erase. They hold no readable text, so they go as a whole; the bounds are what
# terminals send, and what is longer is no such sequence.
SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,4}[@-~]")
BEGUN = re.compile(r"(?:\x1b|(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,4})\Z")

# Everything else that steers: controls but for line end and tab, and the marks that turn the reading direction around.
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# What looks like nothing, or like a blank, beside what its category says: fillers, joiners, choosers of a variant.
UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
UNSEEN_KINDS = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))


class Cleaner:
    """Cleans a text that comes in pieces: any cutting gives the same result."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """What can be printed so far. The start of a sequence is held back until it is known what it is."""
        whole = self._held + text
        begun = BEGUN.search(whole)
        cut = begun.start() if begun else len(whole)
        self._held = whole[cut:]
        return clean(whole[:cut])

    def close(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return ACTIVE.sub("", held)


def clean(text: str) -> str:
    """The text without what would steer a terminal."""
    return ACTIVE.sub("", SEQUENCE.sub("", text))


def escaped(text: str) -> str:
    """The text with everything that cannot be seen written as JSON writes it (`\\u200b`); only blanks and line ends stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate({ord(char): _escape(char) for char in set(text) if _is_unseen(char)})


def _is_unseen(char: str) -> bool:
    return char not in " \n" and (category(char) in UNSEEN_KINDS or UNSEEN.match(char) is not None)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def escape_json(document: bytes) -> bytes:
    """The same JSON, with escapes for what would steer a terminal: nothing is lost."""
    text = document.decode()
    return re.sub("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda hit: f"\\u{ord(hit[0]):04x}", text).encode()


def print_json(value: object) -> None:
    """A value as an indented JSON document on stdout; what would steer a terminal is escaped."""
    import msgspec

    sys.stdout.buffer.write(escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2)) + b"\n")


def say(text: str) -> None:
    """One line on stderr, cleaned: what is beside the result."""
    print(clean(text), file=sys.stderr)


def styled(text: str, style: Style, *, stream: TextIO, environ: Mapping[str, str]) -> str:
    """The text with its colour, where the stream is a terminal and nobody asked for none."""
    plain = environ.get("NO_COLOR") or environ.get("TERM") in (None, "dumb") or not stream.isatty()
    return text if plain else f"\x1b[{CODES[style]}m{text}\x1b[0m"


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]], *, environ: Mapping[str, str]) -> None:
    """Columns on stdout, as wide as they must be; the last one runs free."""
    cells = [[clean(cell) for cell in line] for line in (head, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, line in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        print(text if number else styled(text, "bold", stream=sys.stdout, environ=environ))
