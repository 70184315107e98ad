"""A blob that a log relies on and that is gone or changed is told by `verify` and by an export."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import CallFinished
from evener.store import SqliteStore, export_lines
from evener.tools import Toolbox, tool
from evener.tools.call import Caller, CallSite, Threads
from evener.transcript import ToolCall
from tests.store.stores import opened, run


@tool(effect="read", output_limit=400)
def print_much() -> str:
    """Says much."""
    return "line of output\n" * 200


async def filled(path: Path) -> None:
    store = SqliteStore(path)
    log = await store.create("a", opened("t"), holder="me")
    caller = Caller(Toolbox([print_much]), threads=Threads(), shelf=store)
    finished = await caller.run(ToolCall.of("c", "print_much", {}), CallSite("r", "k", lambda *_: None))
    stranger = CallFinished(at=3.0, call="d", ok=True, metadata='{"spilled": "' + "ab" * 32 + '"}')
    await log.append(finished, stranger)
    await store.aclose()


@pytest.mark.parametrize("which", ["", "t"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("SELECT 1", None),
        ("DELETE FROM blobs", "relies on the blob .* which is not in the store"),
        ("UPDATE blobs SET content = zeroblob(size)", "is not what was stored"),
    ],
)
def test_a_spilled_output_that_is_gone_or_changed_is_told(tmp_path: Path, damage: str, told: str | None, which: str) -> None:
    path = tmp_path / "evener.db"
    run(filled(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(damage)

    async def scenario() -> None:
        store = SqliteStore(path)
        found = [finding for finding in await store.verify(which) if finding.damage]
        if told is None:
            assert found == []
            assert [line async for line in export_lines(store, "t")]
        else:
            [finding] = found
            assert re.search(told, finding.what)
            with pytest.raises(StoreError, match=r"(not complete|not what was stored)"):
                [line async for line in export_lines(store, "t")]
        await store.aclose()

    run(scenario())
