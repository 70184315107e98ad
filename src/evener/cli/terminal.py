"""Safe output on a terminal: control sequences in text from outside are removed, and colour is used only where wanted.

Nothing readable is ever hidden. Where the user decides by what is shown, invisible characters are written as escapes instead.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TextIO
from unicodedata import category

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
CODES: Mapping[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

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


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]], *, styles: Mapping[str, Style] | None = None) -> None:
    """Print columns on stdout, each as wide as its longest cell; on a terminal, no row is wider than that.

    What does not fit is cut, the widest columns first. `styles` are for cells with exactly this text.
    """
    cells = [[clean(cell) for cell in line] for line in (head, *lines)]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    most = terminal_width()
    while most and sum(widths) + GAP * (len(widths) - 1) > most and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    print_lines(_format_row(line, widths, styles or {}, bold=not number) for number, line in enumerate(cells))


GAP, NARROWEST = 2, 4


def _format_row(cells: Sequence[str], widths: Sequence[int], styles: Mapping[str, Style], *, bold: bool) -> str:
    made = []
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        shown = cut_text(cell, width)
        blank = "" if place == len(widths) - 1 else " " * (width - cell_width(shown))
        style = "bold" if bold else styles.get(cell)
        made.append((paint(shown, style) if style and shown else shown) + blank)
    return (" " * GAP).join(made).rstrip()


def cell_width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(0, wcswidth(text))


def cut_text(text: str, width: int) -> str:
    """Return the text in at most so many columns; a text that was cut ends in dots."""
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > max(0, width - 2):
        text = text[:-1]
    return text + ".."[:width]


def paint(text: str, style: Style) -> str:
    """Return the text in colour if stdout shows it."""
    return style_text(text, style, stream=sys.stdout, environ=os.environ)


def terminal_width() -> int:
    """Return the columns of the terminal that stdout is; 0 if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout; on a terminal, more than a screen of them through the pager of the user."""
    shown = list(lines) if sys.stdout.isatty() else lines
    if not isinstance(shown, list) or not _page(shown):
        for line in shown:
            print(line)


def _page(lines: Sequence[str]) -> bool:
    """Show the lines in a pager, if they need one and there is one. True if it was used."""
    size = shutil.get_terminal_size()
    rows = sum(max(1, -(-cell_width(COLOURS.sub("", line)) // size.columns)) for line in lines)
    words = shlex.split(os.environ.get("PAGER", "less"))
    if rows < size.lines or not words or not sys.stdin.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    program = shutil.which(words[0])
    if program is None:
        return False
    sys.stdout.flush()
    environ = {"LESS": "-FRX", "LESSSECURE": "1", **os.environ}
    with suppress(BrokenPipeError):  # the user has left the pager
        subprocess.run([program, *words[1:]], input="\n".join(lines).encode() + b"\n", env=environ, check=False)
    return True


COLOURS = re.compile(r"\x1b\[[0-9;]*m")
