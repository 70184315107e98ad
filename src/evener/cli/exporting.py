"""`evener export` and `evener import`: a thread as lines of JSON, out and in again. Never writes over a file."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from evener.cli.ids import log_of
from evener.cli.stores import inside, option
from evener.cli.terminal import escape_json, say
from evener.errors import UsageError
from evener.store.jsonl import Portable, export_lines, file_lines, import_lines
from evener.store.sqlite import SqliteStore

__all__ = ["export", "take_in", "written"]

PRIVATE = 0o600
STANDARD = "-"


def export(id: str, *, output: str, store: str) -> int:
    """Write the thread."""
    return inside(store, lambda opened: _exported(opened, id, output))


def take_in(file: str, *, store: str) -> int:
    """Read a thread; print its id."""
    return inside(store, lambda opened: _imported(opened, file, store), make=True)


async def _exported(store: SqliteStore, id: str, output: str) -> int:
    log = await log_of(store, id)
    if output == STANDARD:
        shown = escape_json if sys.stdout.isatty() else None
        await _pour(store, log, sys.stdout.buffer, shown=shown)
        return 0
    count = await written(store, log, Path(output))
    say(f"evener: Wrote {count} lines to {output}. They hold everything that was said; only you can read the file.")
    return 0


async def written(store: Portable, log: str, path: Path) -> int:
    """Write the thread of this log into a new file that only its owner can read; how many lines. All or nothing."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and nothing was written. Name another file.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}. Name a file in a folder that can be written.") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            return await _pour(store, log, file)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


async def _pour(store: Portable, log: str, file: BinaryIO, *, shown: Callable[[bytes], bytes] | None = None) -> int:
    """Write the lines as they are; `shown` makes them harmless for a terminal, and no longer an export."""
    count = 0
    async for line in export_lines(store, log):
        file.write(shown(line) if shown else line)
        count += 1
    return count


async def _imported(store: SqliteStore, file: str, where: str) -> int:
    with _source(file) as source:
        thread = await import_lines(store, file_lines(source))
    print(thread)
    say(f"evener: Look at it with: {shlex.join(['evener', 'show', *option(where), thread])}")
    return 0


def _source(file: str) -> AbstractContextManager[BinaryIO]:
    if file == STANDARD:
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}. Give a file that `evener export` wrote.") from None
