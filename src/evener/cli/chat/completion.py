"""What Tab offers: commands, models after /model, files after @. Looks at names of files, never into them."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

__all__ = ["Offers"]

COMMAND = re.compile(r"\s*(/[a-z]*)$")
MODEL = re.compile(r"\s*/model\s+(\S*)$")
FILE = re.compile(r'(?:^|\s)(@(?:"([^"]*)|([^\s"]*)))$')
MOST = 200


class Offers(Completer):
    """What may stand at the cursor. `models` is asked only where a model may stand."""

    def __init__(self, *, commands: Sequence[str], models: Callable[[], Sequence[str]], folder: Path) -> None:
        self._commands = commands
        self._models = models
        self._folder = folder

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """Yield what may stand in for the word before the cursor."""
        typed, choices = self._choices(document.text_before_cursor)
        for choice in choices:
            yield Completion(choice, -len(typed), display=choice.strip())

    def _choices(self, before: str) -> tuple[str, list[str]]:
        if hit := COMMAND.match(before):
            return hit[1], [f"{name} " for name in self._commands if name.startswith(hit[1])]
        if hit := MODEL.match(before):
            return hit[1], [name for name in self._models() if name.startswith(hit[1])]
        if hit := FILE.search(before):
            return hit[1], [_written(name) for name in _files(hit[2] if hit[2] is not None else hit[3], self._folder)]
        return "", []


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
