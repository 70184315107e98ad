"""Writes every thread of a store that has no file as the file of one that has. Whole or not at all, as a backup is."""

from pathlib import Path

from evener.store.backup import free_goal, part_of, remove_part
from evener.store.jsonl import Portable, export_lines, import_lines
from evener.store.sqlite import SqliteStore

__all__ = ["write_file"]


async def write_file(store: Portable, goal: Path) -> None:
    """Write the store to `goal`, where a `SqliteStore` opens it."""
    free_goal(goal)
    part = part_of(goal)
    file = SqliteStore(part)
    try:
        for thread in sorted({summary.thread for summary in await store.logs()}):
            await import_lines(file, export_lines(store, thread))
        await file.backup(goal)
    finally:
        await file.aclose()
        remove_part(part)
