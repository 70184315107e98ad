"""Code fences around what a model wrote. Pure: takes them off, changes nothing else."""

import re

__all__ = ["bare"]

FENCED = re.compile(r"\s*```[^\n`]*\n(.*?)\s*(?:```\s*)?\Z", re.DOTALL)


def bare(text: str) -> str:
    """The text without white space and without a fence around it."""
    found = FENCED.match(text)
    return (found[1] if found else text).strip()
