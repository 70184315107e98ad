"""What Tab offers: commands, models after /model, files after @. Looks at names of files, never into them."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

__all__ = ["Offer", "complete"]

COMMAND = re.compile(r"\s*(/[a-z]*)$")
MODEL = re.compile(r"\s*/model\s+(\S*)$")
FILE = re.compile(r'(?:^|\s)@(?:"([^"]*)|([^\s"]*))$')
MOST = 200


class Offer(msgspec.Struct, frozen=True):
    """What stands in for the last `size` characters before the cursor: `text`, the part that all `choices` share."""

    size: int
    text: str
    choices: tuple[str, ...]


def complete(before: str, *, commands: Sequence[str], models: Sequence[str], folder: Path) -> Offer | None:
    """The offer for the text before the cursor; None when there is nothing to offer."""
    if hit := COMMAND.match(before):
        return _offer(hit[1], [f"{name} " for name in commands if name.startswith(hit[1])])
    if hit := MODEL.match(before):
        return _offer(hit[1], [name for name in models if name.startswith(hit[1])])
    if hit := FILE.search(before):
        typed = hit[1] if hit[1] is not None else hit[2]
        return _offer(before[hit.start() :].lstrip(), [_written(name) for name in _files(typed, folder)])
    return None


def _offer(typed: str, choices: list[str]) -> Offer | None:
    if not choices:
        return None
    shared = _shared(choices)
    return Offer(len(typed), shared if len(shared) >= len(typed) else typed, tuple(choices))


def _shared(choices: list[str]) -> str:
    """What all begin with: what the first and the last in their order share."""
    first, last = min(choices), max(choices)
    differ = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differ, min(len(first), len(last)))]


def _files(typed: str, folder: Path) -> list[str]:
    """Paths that begin like this; folders end in a slash. Hidden ones only when they are asked for."""
    head, _, start = typed.rpartition("/")
    where = Path(os.path.expanduser(head or "/")) if "/" in typed else folder
    try:
        with os.scandir(folder / where) as found:
            names = [entry.name + ("/" if entry.is_dir() else "") for entry in found if entry.name.startswith(start)]
    except OSError:
        return []
    shown = sorted(name for name in names if start or not name.startswith("."))[:MOST]
    return [f"{head}/{name}" if "/" in typed else name for name in shown]


def _written(path: str) -> str:
    """As it is written in a message: with quotes if it has blanks; a file that is complete is followed by one."""
    quoted = f'@"{path}' if re.search(r"\s", path) else f"@{path}"
    if path.endswith("/"):
        return quoted
    return quoted + ('" ' if quoted[1] == '"' else " ")
