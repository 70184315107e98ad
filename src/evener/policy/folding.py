"""What a text looks like to a careless eye: the same for texts that differ only in tricks. Pure, linear in the text.

Full-width and other compatible forms, accents written in one or two characters, invisible and control characters, kinds and
amounts of white space, and case are folded. Letters of other scripts that look alike are not: they are other letters, and a
tool that is given them reaches something else.
"""

from functools import cache
from unicodedata import category, normalize

__all__ = ["folded", "has_breaks", "is_invisible", "readings", "visible"]

BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
BLANK = "\u2800"
"""Braille's empty cell: a blank to the eye, and no white space to Unicode."""

IGNORABLE = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt, 4,174 code points): shown as nothing."""


def visible(text: str, *, instead: str = "") -> str:
    """The text in compatible forms, with single spaces, and with `instead` for what cannot be seen. Case stays."""
    if not (text.isascii() and text.isprintable()):
        text = text.translate({ord(char): _form(char, instead) for char in set(text)})
    return " ".join(text.split())


def folded(text: str) -> str:
    """The same without case."""
    return _caseless(visible(text))


def readings(text: str) -> frozenset[str]:
    """The text without case: what cannot be seen is nothing to one reader, and parts words for another."""
    return frozenset((folded(text), _caseless(visible(text, instead=" "))))


def has_breaks(text: str) -> bool:
    """Whether the text has more than one line, by anybody's reckoning."""
    return not BREAKS.isdisjoint(text)


@cache
def is_invisible(char: str) -> bool:
    """True if a character is shown as nothing: a control, format or default-ignorable one that is no white space."""
    if char.isspace():
        return False
    code = ord(char)
    return category(char) in ("Cc", "Cf") or any(first <= code <= last for first, last in IGNORABLE)


def _caseless(text: str) -> str:
    """Case folding may give characters that have a compatible form of their own, and the other way round."""
    folded = text.casefold()
    return folded if folded.isascii() else folded.translate({ord(char): normalize("NFKD", char) for char in set(folded)})


def _form(char: str, instead: str) -> str:
    # One by one: a long run of accents would take quadratic time to be put in order.
    if is_invisible(char):
        return instead
    return " " if char == BLANK else normalize("NFKD", char)
