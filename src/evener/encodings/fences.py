"""Code fences around what a model wrote. Pure: takes them off, changes nothing else."""

import re

__all__ = ["bare"]

FENCE = "```"
OPENING = re.compile(rf"\s*{FENCE}[^\n`]*\n")


def bare(text: str) -> str:
    """The text without white space and without a fence around it."""
    found = OPENING.match(text)
    if not found:
        return text.strip()
    return text[found.end() :].strip().removesuffix(FENCE).rstrip()
