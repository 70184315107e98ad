"""Safe output on a terminal: control sequences in text from outside are removed, and colour is used only where wanted.

Nothing readable is ever hidden. Where the user decides by what is shown, invisible characters are written as escapes instead.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO
from unicodedata import category

__all__ = [
    "CleanOutput",
    "Cleaner",
    "Style",
    "clean",
    "count",
    "escape",
    "escape_json",
    "flatten",
    "print_bytes",
    "print_json",
    "print_table",
    "say",
    "style_text",
]

Style = Literal["bold", "red", "green", "yellow"]
CODES: Mapping[Style, str] = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}

# Escape sequences that colour, move and erase. They hold no readable text, so they are removed as a whole. The bounds are what
# terminals send; anything longer is not such a sequence.
SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,4}[@-~]")
BEGUN = re.compile(r"(?:\x1b|(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,4})\Z")

# All other control characters except newline and tab, and the marks that change the reading direction.
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Invisible or blank characters that their category does not reveal: fillers, joiners, variation selectors.
UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
UNSEEN_KINDS = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))


class Cleaner:
    """Cleans a text that arrives in pieces. However it is cut, the result is the same."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what can be printed so far. The start of an escape sequence is held back until its end has arrived."""
        whole = self._held + text
        begun = BEGUN.search(whole)
        cut = begun.start() if begun else len(whole)
        self._held = whole[cut:]
        return clean(whole[:cut])

    def close(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return ACTIVE.sub("", held)


class CleanOutput:
    """Prints a text that arrives in pieces on stdout, cleaned."""

    def __init__(self) -> None:
        self._cleaner = Cleaner()
        self.is_in_line = False

    def write(self, text: str) -> None:
        """Print a piece at once."""
        self._print(self._cleaner.feed(text))

    def end(self) -> None:
        """Print what was held back, and end the line if one is open."""
        self._print(self._cleaner.close())
        if self.is_in_line:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self.is_in_line = not text.endswith("\n")


def clean(text: str) -> str:
    """Return the text without control characters and escape sequences."""
    return ACTIVE.sub("", SEQUENCE.sub("", text))


def flatten(text: str, most: int = 0) -> str:
    """Return the text as one clean line, cut to `most` characters if that is not 0."""
    line = " ".join(clean(text).split())
    return line if not most or len(line) <= most else line[: most - 3] + "..."


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`, `3 branches`."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def escape(text: str) -> str:
    """Return the text with invisible characters written as in JSON (`\\u200b`); only spaces and newlines stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate({ord(char): _escape(char) for char in set(text) if _is_unseen(char)})


def _is_unseen(char: str) -> bool:
    return char not in " \n" and (category(char) in UNSEEN_KINDS or UNSEEN.match(char) is not None)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def escape_json(document: bytes) -> bytes:
    """Return the same JSON with control characters as escapes: nothing is lost."""
    text = document.decode()
    return re.sub("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda hit: f"\\u{ord(hit[0]):04x}", text).encode()


def print_bytes(document: bytes) -> None:
    """Print a JSON document on stdout, with control characters as escapes."""
    sys.stdout.buffer.write(escape_json(document) + b"\n")
    sys.stdout.buffer.flush()


def print_json(value: object) -> None:
    """Print a value on stdout as an indented JSON document, with control characters as escapes."""
    import msgspec

    print_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))


def say(text: str) -> None:
    """Print a line on stderr, cleaned: for everything that is not the result."""
    print(clean(text), file=sys.stderr)


def style_text(text: str, style: Style, *, stream: TextIO, environ: Mapping[str, str]) -> str:
    """Return the text in colour if the stream is a terminal and the environment does not forbid it."""
    plain = environ.get("NO_COLOR") or environ.get("TERM") in (None, "dumb") or not stream.isatty()
    return text if plain else f"\x1b[{CODES[style]}m{text}\x1b[0m"


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print columns on stdout, each as wide as its longest cell; the last one is not padded."""
    cells = [[clean(cell) for cell in line] for line in (head, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, line in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        print(text if number else style_text(text, "bold", stream=sys.stdout, environ=os.environ))
