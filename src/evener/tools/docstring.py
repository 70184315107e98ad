"""Reads a docstring: what a function does, and what each of its parameters means. Pure; Google and reST styles."""

import inspect
import re

__all__ = ["read_docstring"]

ARGUMENTS = frozenset(("Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:", "Keyword Arguments:"))
UNSAID = frozenset(("Raises:", "Example:", "Examples:", "See Also:"))
"""Sections that are for programmers."""
GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
REST = re.compile(r"^:(\w+)\s*([^:]*):\s*(.*)$")
PARAMETERS = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description, and the descriptions of the parameters by name."""
    lines = inspect.cleandoc(text or "").splitlines()
    said, listed = _cut(lines)
    parameters = _google(listed)
    said, fields = _fields(said)
    for field in fields:
        kind, subject, words = field
        if kind in PARAMETERS and subject:
            parameters[subject.split()[-1].lstrip("*")] = words
        elif kind in ("return", "returns"):
            said.append(f"Returns: {words}")
    return "\n".join(said).strip(), parameters


def _cut(lines: list[str]) -> tuple[list[str], list[str]]:
    """The lines without the sections that do not belong to the description, and the lines of the parameters."""
    said: list[str] = []
    listed: list[str] = []
    sink = said
    for line in lines:
        if line in ARGUMENTS:
            sink = listed
        elif line in UNSAID:
            sink = []
        else:
            if line and not line[0].isspace():
                sink = said
            sink.append(line)
    return said, listed


def _google(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    words: list[str] = []
    for line in lines:
        start = GOOGLE.match(line[depth:])
        if start is not None:
            words = found.setdefault(start[1], [])
            words.append(start[2])
        else:
            words.append(line.strip())
    return {name: " ".join(filter(None, words)) for name, words in found.items()}


def _fields(lines: list[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The lines that are no reST fields, and the fields: kind, subject and words."""
    said: list[str] = []
    fields: list[tuple[str, str, str]] = []
    within = False
    for line in lines:
        start = REST.match(line)
        if start is not None:
            fields.append((start[1], start[2].strip(), start[3].strip()))
            within = True
        elif within and line[:1].isspace():
            kind, subject, words = fields[-1]
            fields[-1] = (kind, subject, f"{words} {line.strip()}".strip())
        else:
            within = within and not line.strip()
            said.append(line)
    return said, fields
