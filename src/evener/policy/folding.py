"""What a text looks like to a careless eye: the same for texts that differ only in tricks. Pure, linear in the text.

Full-width and other compatible forms, accents written in one or two characters, invisible characters, kinds and amounts of
white space, and case are folded. Letters of other scripts that look alike are not: they are other letters, and a tool that
is given them reaches something else.
"""

from unicodedata import category, normalize

__all__ = ["folded", "has_breaks", "visible"]

BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def visible(text: str) -> str:
    """The text in compatible forms, without invisible characters, with single spaces. Case stays."""
    if not text.isascii():
        text = text.translate({ord(char): _form(char) for char in set(text)})
    return " ".join(text.split())


def folded(text: str) -> str:
    """The same without case."""
    return visible(text).casefold()


def has_breaks(text: str) -> bool:
    """Whether the text has more than one line, by anybody's reckoning."""
    return not BREAKS.isdisjoint(text)


def _form(char: str) -> str:
    # One by one: a long run of accents would take quadratic time to be put in order.
    return "" if category(char) == "Cf" else normalize("NFKD", char)
