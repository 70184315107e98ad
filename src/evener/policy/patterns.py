"""Regular expressions that take time linear in the text, by RE2. Pure.

Python's own `re` is never given a pattern that came from outside: some take longer than the universe has. Lookarounds and back
references need more than linear time; `compile_pattern` refuses them.
"""

import re
from typing import Protocol

import msgspec

from evener.policy.folding import folded

__all__ = ["Pattern", "Unsupported", "compile_pattern", "folded_pattern"]

SYNTAX = frozenset(r"^$\.*+?()[]{}|/-")

CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
MOST_MEMORY = 8 << 20


class Unsupported(Exception):
    """A pattern that is not understood, and why."""


class _Compiled(Protocol):
    """What RE2 makes of a pattern."""

    def search(self, text: bytes) -> object | None: ...


class Pattern(msgspec.Struct, frozen=True):
    """A compiled pattern."""

    text: str
    compiled: _Compiled

    def occurs_in(self, text: str) -> bool:
        """True if it matches anywhere in a text."""
        return self.compiled.search(text.encode(errors="replace")) is not None


def compile_pattern(text: str, *, ignore_case: bool = False) -> Pattern:
    """Compile a pattern; raise Unsupported."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_MEMORY
    options.case_sensitive = not ignore_case
    try:
        # ECMA 262 and Python write a character's number as \uFFFF, RE2 as \x{FFFF}.
        said = CODE.sub(lambda found: rf"\x{{{found[1]}}}" if found[1] else found[0], text)
        return Pattern(text, re2.compile(said.encode(), options))
    except (re2.error, UnicodeEncodeError) as error:
        raise Unsupported(_words(error)) from None


def folded_pattern(text: str) -> str:
    """Return the pattern with its literal characters folded as `folding.readings` folds a text: case of ASCII stays."""
    pieces = re.findall(r"\\.|.", re.sub(r"\s+", " ", text), re.DOTALL)
    return "".join(piece if piece.isascii() else _folded_literal(piece[-1]) for piece in pieces)


def _folded_literal(char: str) -> str:
    return "".join(f"\\{one}" if one in SYNTAX else one for one in folded(char))


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
