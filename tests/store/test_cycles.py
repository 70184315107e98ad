"""Logs that name each other as parents, by somebody's hand: nothing waits for ever, and everything says what is wrong."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evener import Harness
from evener.store import Damaged, SqliteStore, export_lines
from evener.testing import ScriptedModel
from tests.store.stores import run


async def spoiled(path: Path) -> tuple[str, str]:
    """A thread whose fork and the fork of that name each other; the thread and the last of them."""
    store = SqliteStore(path)
    thread = Harness(ScriptedModel(lambda _: "answer"), store=store).thread()
    await thread.run("one")
    fork = await thread.fork()
    await fork.run("two")
    last = await fork.fork()
    await last.run("three")
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE logs SET parent = ? WHERE log = ?", (last.log, fork.log))
    return thread.id, last.log


def test_a_circle_of_parents_is_damage_wherever_it_is_met(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        thread, last = await spoiled(path)
        store = SqliteStore(path)
        harness = Harness(ScriptedModel(lambda _: "answer"), store=store)
        with pytest.raises(Damaged, match="name each other as parents"):
            await harness.thread(thread).branches()
        with pytest.raises(Damaged):
            await store.read(last)
        with pytest.raises(Damaged):
            [line async for line in export_lines(store, thread)]
        assert any(finding.damage for finding in await store.verify(last))
        assert await store.erase(thread) > 0
        await store.aclose()

    run(scenario())
