"""`evener verify`: whether everything is as it was written, in one thread or in the whole store. Changes nothing."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from evener.cli.glance import age, flat, glance, heads
from evener.cli.names import chosen, log_of
from evener.cli.stores import inside, option
from evener.cli.terminal import escape_json, print_json, say, styled
from evener.errors import EvenerError, UsageError
from evener.store.protocol import Finding, Store, Summary
from evener.store.retention import Reason, Spared, keep
from evener.store.sqlite.store import SqliteStore
from evener.store.transfer.jsonl import Portable, export_lines, file_lines, import_lines

__all__ = [
    "backup",
    "confirmed",
    "export",
    "remove",
    "retain",
    "seconds_of",
    "take_in",
    "verify",
    "written",
]


def backup(file: str, *, store: str) -> int:
    """Write the copy."""
    return inside(store, lambda opened: _copied(opened, file))


async def _copied(store: Store, file: str) -> int:
    await store.backup(file)
    say(f"evener: Copied to {file}. To look into it: evener threads --store {file}")
    return 0


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


STAYS = (
    "What stays are tombstones: that there were events, when, of which kind, and their hashes, so that the rest can be "
    "verified. Copies elsewhere (backups, exports) are not touched."
)


def remove(ids: Sequence[str], *, store: str, yes: bool) -> int:
    """Erase; 1 if somebody said no."""
    return inside(store, lambda opened: _removed(opened, ids, yes=yes))


async def _removed(store: Store, ids: Sequence[str], *, yes: bool) -> int:
    logs = await store.logs()
    named = list(dict.fromkeys(chosen(id, logs) for id in ids))
    meant = [(log, await _described(store, log, logs)) for log in named]
    for _, what in meant:
        say(what)
    if not yes and not confirmed("Erase this for good?"):
        say("evener: Nothing was erased.")
        return 1
    for log, _ in meant:
        count = await store.erase(log)
        say(f"evener: Erased {count} events of {log}.")
    say(f"evener: {STAYS}")
    return 0


def confirmed(question: str) -> bool:
    """Whether whoever sits at the terminal says yes. Where nobody does, it must be said on the command line."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError("This cannot be taken back, and nobody is there to be asked. Nothing was done. Say it with --yes.")
    while True:
        sys.stderr.write(f"{question} [y/n] ")
        sys.stderr.flush()
        word = sys.stdin.readline()
        if not word:
            sys.stderr.write("\n")
        if not word or word.strip().lower() in ("n", "no"):
            return False
        if word.strip().lower() in ("y", "yes"):
            return True


async def _described(store: Store, log: str, logs: Sequence[Summary]) -> str:
    """What would be erased, in a line. The id of a thread stands for all its branches."""
    one = next(one for one in logs if one.log == log)
    several = [other for other in logs if other.thread == log]
    try:
        title = one.title or (await glance(store, one)).prompt
    except EvenerError:
        title = one.title
    what = f"thread, {len(several)} branches" if len(several) > 1 else "thread" if one.log == one.thread else "branch"
    agents = len(await store.inside(log)) if several else 0
    more = f", with {agents} {'threads' if agents > 1 else 'thread'} of agents inside its calls" if agents else ""
    return f"{log}  {what}, {one.events} events{more}  {flat(title, 60)}".rstrip()


UNITS = {"h": 3600, "d": 86400, "w": 604800, "y": 31536000}
WHY: dict[Reason, str] = {
    "running": "somebody runs it",
    "waiting": "it waits for a decision; decide, or give --force",
    "damaged": "it cannot be read; run `evener verify`, or give --force",
}


def retain(older: str, *, store: str, dry: bool, yes: bool, force: bool = False) -> int:
    """Erase; 1 if somebody said no."""
    seconds = seconds_of(older)
    return inside(store, lambda opened: _kept(opened, seconds, dry=dry, yes=yes, force=force))


def seconds_of(text: str) -> int:
    """`90d` as seconds."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([hdwy])", text.strip())
    if not found:
        raise UsageError(f"--older-than is {text!r}; write a number and h, d, w or y, as in 90d for ninety days.")
    return int(found[1]) * UNITS[found[2]]


async def _kept(store: Store, seconds: int, *, dry: bool, yes: bool, force: bool) -> int:
    old = await keep(store, older_than=seconds, dry=True, force=force)
    threads = heads(await store.logs())
    for thread in old.erased:
        say(_line(threads[thread]))
    _say_spared(old.spared)
    if not old.erased or dry:
        say(f"evener: {len(old.erased)} threads are that old.{' Nothing was erased.' if dry else ''}")
        return 0
    if not yes and not confirmed(f"Erase these {len(old.erased)} threads for good?"):
        say("evener: Nothing was erased.")
        return 1
    done = await keep(store, older_than=seconds, force=force)
    _say_spared(one for one in done.spared if one not in old.spared)
    say(f"evener: Erased {done.events} events of {len(done.erased)} threads. {STAYS}")
    return 0


def _say_spared(spared: Iterable[Spared]) -> None:
    for one in spared:
        say(f"{one.thread}  is kept: {WHY[one.why]}.")


def _line(logs: Sequence[Summary]) -> str:
    head = logs[0]
    changed = age(max(one.changed for one in logs))
    return f"{head.thread}  {len(logs)} branches, {head.events} events, {changed}  {flat(head.title)}".rstrip()


def verify(id: str, *, store: str, as_json: bool) -> int:
    """Print the findings; 1 if something is damaged."""
    return inside(store, lambda opened: _verified(opened, id, as_json=as_json))


async def _verified(store: Store, id: str, *, as_json: bool) -> int:
    logs = [await log_of(store, id)] if id else []
    if id:
        logs = await _of_thread(store, logs[0])
    found = [one for log in logs or [""] for one in await store.verify(log)]
    found = list(dict.fromkeys(found))  # branches share what lies before them
    damaged = any(one.damage for one in found)
    if as_json:
        print_json(found)
        return int(damaged)
    for one in found:
        print(_finding_line(one))
    if not damaged:
        what = f"thread {logs[0]}" if logs else f"all {len(await store.logs())} logs"
        say(f"evener: Everything that was checked is as it was written: {what}.")
    return int(damaged)


async def _of_thread(store: Store, log: str) -> list[str]:
    """All branches of a thread; a branch that is named by its own id stands for itself."""
    several = [one.log for one in await store.logs(thread=log)]
    return [log, *(one for one in several if one != log)] if log in several else [log]


def _finding_line(one: Finding) -> str:
    mark = styled("damage" if one.damage else "note", "red" if one.damage else "yellow", stream=sys.stdout, environ=os.environ)
    where = f"{flat(one.log)} event {one.seq}: " if one.seq else f"{flat(one.log)}: " if one.log else ""
    return f"{mark}  {where}{flat(one.what)}"
