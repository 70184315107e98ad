"""`evener backup`, `export`, `import`, `rm`, `retain` and `verify`: copy, move, erase and check what a store holds."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from evener.cli.glance import format_age, glance, group_by_thread
from evener.cli.names import find_log, match_id
from evener.cli.stores import open_store, same_store, with_store
from evener.cli.terminal import count, escape_json, flatten, paint, print_json, say
from evener.errors import EvenerError, StoreError, UsageError
from evener.store.protocol import Finding, Store, Summary
from evener.store.retention import Reason, Spared, keep
from evener.store.transfer.jsonl import Portable, export_lines, file_lines, import_lines

if TYPE_CHECKING:
    from evener.cli.stores import KeptStore


async def backup(store: Store, file: str) -> int:
    """Copy the store into a new file."""
    await store.backup(file)
    say(f"evener: Copied to {file}. Read it with: {shlex.join(['evener', 'threads', '--store', file])}")
    return 0


PRIVATE = 0o600
STANDARD = "-"


def copy(ids: Sequence[str], *, source: str, target: str) -> int:
    """Copy threads from one store to another, and verify them there; return 1 if a copy is damaged."""
    if source == target:
        raise UsageError("--from and --to name the same store. Name two stores.")
    return with_store(source, lambda opened: with_copy(opened, ids, target))


async def with_copy(source: "KeptStore", ids: Sequence[str], target: str) -> int:
    """Open the target, copy, and close it."""
    opened = open_store(target, make=True)
    try:
        return await _copy(source, opened, ids)
    finally:
        await opened.aclose()


async def _copy(source: "KeptStore", target: "KeptStore", ids: Sequence[str]) -> int:
    logs = await source.logs()
    named = [match_id(id, logs) for id in ids]
    chosen = {one.thread: one.log for one in logs if not named or one.log in named or one.thread in named}
    within = {inner for thread in chosen for inner in await source.inside(thread)}  # these come with their callers
    damaged, refused = 0, 0
    for thread, log in chosen.items():
        if thread in within and not named:
            continue
        try:
            damaged += await _copy_thread(source, target, log)
        except StoreError as error:
            if error.retryable:
                raise
            refused += 1  # one that is there with other content does not keep the rest from being copied
            say(f"evener: {error}")
    copied = count(len(chosen) - refused, "thread") + (f", and not {refused}" if refused else "")
    say(f"evener: Copied {copied}; {'damage was found' if damaged else 'every copy verified'}.")
    return int(damaged + refused > 0)


async def _copy_thread(source: "KeptStore", target: "KeptStore", log: str) -> bool:
    """Copy the thread of a log, and print its id. True if the copy is damaged."""
    copied = await import_lines(target, export_lines(source, log))
    found = [one for one in await target.verify(copied) if one.damage]
    for one in found:
        say(_format_finding(one))
    print(copied)
    return bool(found)


async def export(store: "KeptStore", id: str, *, output: str, html: bool = False) -> int:
    """Write a thread as JSON Lines, or as a page."""
    return await (_export_page if html else _export)(store, await find_log(store, id), output)


async def _export_page(store: "KeptStore", log: str, output: str) -> int:
    from evener.cli.reports.html import page_of, write_page

    if output == STANDARD:
        sys.stdout.write(await page_of(store, log))
        return 0
    size = await write_page(store, log, Path(output))
    say(f"evener: Wrote {count(size, 'character')} to {output}. The page holds the whole conversation; only you can read it.")
    return 0


def import_thread(file: str, *, store: str) -> int:
    """Read an exported thread into the store; print its id."""
    return with_store(store, lambda opened: _import(opened, file, store), make=True)


async def _export(store: "KeptStore", log: str, output: str) -> int:
    if output == STANDARD:
        shown = escape_json if sys.stdout.isatty() else None
        await _write_lines(store, log, sys.stdout.buffer, shown=shown)
        return 0
    lines = await write_export(store, log, Path(output))
    say(f"evener: Wrote {count(lines, 'line')} to {output}. The file holds the whole conversation; only you can read it.")
    return 0


async def write_export(store: Portable, log: str, path: Path) -> int:
    """Write the thread of a log into a new file that only its owner can read; return the number of lines. All or nothing."""
    created = create_private(path)
    try:
        with created as file:
            return await _write_lines(store, log, file)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def create_private(path: Path) -> BinaryIO:
    """Return a new file that only its owner can read. UsageError if it cannot be made."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb")
    except FileExistsError:
        raise UsageError(f"{path} exists already; nothing was written. Name another file.") from None
    except OSError as error:
        raise UsageError(f"Cannot create {path}: {error.strerror}. Name a file in a folder that you can write to.") from None


async def _write_lines(store: Portable, log: str, file: BinaryIO, *, shown: Callable[[bytes], bytes] | None = None) -> int:
    """Write the lines; return their number. `shown` escapes them for a terminal; such lines cannot be imported."""
    written = 0
    async for line in export_lines(store, log):
        file.write(shown(line) if shown else line)
        written += 1
    return written


async def _import(store: Portable, file: str, where: str) -> int:
    with _open_source(file) as source:
        thread = await import_lines(store, file_lines(source))
    print(thread)
    say(f"evener: Read it with: {shlex.join(['evener', 'show', *same_store(where), thread])}")
    return 0


def _open_source(file: str) -> AbstractContextManager[BinaryIO]:
    if file == STANDARD:
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}. Give a file that `evener export` wrote.") from None


STAYS = (
    "Tombstones remain: the number, time, kind and hash of each event, so that the rest can be verified. Copies elsewhere "
    "(backups, exports) are not erased."
)


async def remove(store: Store, ids: Sequence[str], *, yes: bool) -> int:
    """Erase threads; return 1 if the user did not confirm it."""
    logs = await store.logs()
    named = list(dict.fromkeys(match_id(id, logs) for id in ids))
    meant = [(log, await _describe(store, log, logs)) for log in named]
    for _, what in meant:
        say(what)
    if not yes and not confirm("Erase this for good?"):
        say("evener: Nothing was erased.")
        return 1
    for log, _ in meant:
        erased = await store.erase(log)
        say(f"evener: Erased {count(erased, 'event')} of {log}.")
    say(f"evener: {STAYS}")
    return 0


def confirm(question: str) -> bool:
    """Ask the user at the terminal; True if the answer is yes. UsageError if there is no terminal: --yes must be given then."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError("This cannot be undone, and there is no terminal to ask on. Nothing was done. Confirm it with --yes.")
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


async def _describe(store: Store, log: str, logs: Sequence[Summary]) -> str:
    """Return what would be erased, as one line. The id of a thread stands for all its branches."""
    one = next(one for one in logs if one.log == log)
    several = [other for other in logs if other.thread == log]
    try:
        title = one.title or (await glance(store, one)).prompt
    except EvenerError:
        title = one.title
    what = f"thread, {count(len(several), 'branch')}" if len(several) > 1 else "thread" if one.log == one.thread else "branch"
    agents = len(await store.inside(log)) if several else 0
    more = f", with {count(agents, 'thread')} of subagents" if agents else ""
    return f"{log}  {what}, {count(one.events, 'event')}{more}  {flatten(title, 60)}".rstrip()


UNITS = {"h": 3600, "d": 86400, "w": 604800, "y": 31536000}
WHY: dict[Reason, str] = {
    "running": "a process is running it",
    "waiting": "it waits for a decision; decide it, or use --force",
    "damaged": "it cannot be read; run `evener verify`, or use --force",
}


def parse_age(text: str) -> int:
    """Return `90d` in seconds."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([hdwy])", text.strip())
    if not found:
        raise UsageError(f"--older-than is {text!r}; write a number and h, d, w or y, as in 90d for ninety days.")
    return int(found[1]) * UNITS[found[2]]


async def retain(store: Store, older_than: str, *, dry_run: bool, yes: bool, force: bool) -> int:
    """Erase old threads; return 1 if the user did not confirm it."""
    seconds = parse_age(older_than)
    old = await keep(store, older_than=seconds, dry=True, force=force)
    threads = group_by_thread(await store.logs())
    for thread in old.erased:
        say(_line(threads[thread]))
    _say_spared(old.spared)
    many = count(len(old.erased), "thread")
    if not old.erased or dry_run:
        say(f"evener: {many} of that age.{' Nothing was erased.' if dry_run else ''}")
        return 0
    if not yes and not confirm(f"Erase {many} for good?"):
        say("evener: Nothing was erased.")
        return 1
    done = await keep(store, older_than=seconds, force=force)
    _say_spared(one for one in done.spared if one not in old.spared)
    say(f"evener: Erased {count(done.events, 'event')} of {count(len(done.erased), 'thread')}. {STAYS}")
    return 0


def _say_spared(spared: Iterable[Spared]) -> None:
    for one in spared:
        say(f"{one.thread}  kept: {WHY[one.why]}.")


def _line(logs: Sequence[Summary]) -> str:
    head = logs[0]
    changed = format_age(max(one.changed for one in logs))
    return (
        f"{head.thread}  {count(len(logs), 'branch')}, {count(head.events, 'event')}, {changed}  {flatten(head.title)}".rstrip()
    )


async def verify(store: Store, id: str, *, as_json: bool) -> int:
    """Print the findings; return 1 if there is damage."""
    logs = await _list_branches(store, await find_log(store, id)) if id else []
    found = [one for log in logs or [""] for one in await store.verify(log)]
    found = list(dict.fromkeys(found))  # branches share the events before their fork
    damaged = any(one.damage for one in found)
    if as_json:
        print_json(found)
        return int(damaged)
    for one in found:
        print(_format_finding(one))
    if not damaged:
        checked = len(logs) if logs else len(await store.logs())
        say(f"evener: OK: {count(checked, 'log')} verified, no damage.")
    return int(damaged)


async def _list_branches(store: Store, log: str) -> list[str]:
    """Return the branches of a thread; for the id of a branch, only that branch."""
    several = [one.log for one in await store.logs(thread=log)]
    return [log, *(one for one in several if one != log)] if log in several else [log]


def _format_finding(one: Finding) -> str:
    mark = paint("damage", "red") if one.damage else paint("note", "yellow")
    where = f"{flatten(one.log)} event {one.seq}: " if one.seq else f"{flatten(one.log)}: " if one.log else ""
    return f"{mark}  {where}{flatten(one.what)}"
