"""Events that are staged are written with the next ones, in one commit, or not at all."""

import asyncio
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import Opened
from evener.store import LeaseHeld, LeaseLost, Note
from evener.store.integrity.digests import Checkpoint
from evener.store.redaction import Funnel
from evener.store.sqlite import rows
from evener.store.sqlite.store import SqliteStore
from tests.store.stores import opened, run, said, texts


def count_rows(commits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the number of rows of each append from now on."""
    append = rows.append

    def counted(connection, held, rows, *more):  # type: ignore[no-untyped-def]
        commits.append(len(rows))
        return append(connection, held, rows, *more)

    monkeypatch.setattr(rows, "append", counted)


def test_staged_events_are_written_first_with_the_next_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        count_rows(commits, monkeypatch)
        assert log.stage(said("one")) == (said("one"),)
        assert log.stage(said("two")) == (said("two"),)
        assert (log.length, texts(await store.read("a"))) == (1, [])
        assert await log.append(said("three")) == (said("three"),)
        assert (log.length, texts(await store.read("a"))) == (4, ["one", "two", "three"])
        assert await store.verify() == []
        log.stage(said("four"))
        await log.renew()
        assert texts(await store.read("a"))[3:] == ["four"]
        assert commits == [3, 1]
        await store.aclose()

    run(scenario())


def test_what_is_staged_and_never_written_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        log.stage(said("one"))
        await log.aclose()
        assert len(await store.read("a")) == 1
        await store.aclose()

    run(scenario())


def test_a_note_stops_what_would_follow_and_not_what_was_staged(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        assert await log.append_unless_noted(said("one")) == (said("one"),)
        other = SqliteStore(tmp_path / "store.db")
        await other.post("a", Note("key", "cancel"))
        log.stage(said("two"))
        assert await log.append_unless_noted(said("three")) is None
        assert (log.length, texts(await store.read("a"))) == (3, ["one", "two"])
        assert await log.append_unless_noted(said("three")) is None
        assert log.length == 3
        log.stage(said("four"))
        (note,) = await log.notes()
        await log.settle(note.number, said("five"))
        assert await log.append_unless_noted(said("six")) == (said("six"),)
        assert texts(await store.read("a")) == ["one", "two", "four", "five", "six"]
        await other.aclose()
        await store.aclose()

    run(scenario())


def test_nothing_is_staged_while_a_write_is_under_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        second = await store.create("b", opened(), holder="me")  # so that the store's thread writes
        writing = asyncio.ensure_future(log.append(said("one")))
        await asyncio.sleep(0)
        assert log.stage(said("two")) is None
        await writing
        assert log.stage(said("two")) == (said("two"),)
        await log.append()
        assert texts(await store.read("a")) == ["one", "two"]
        await second.aclose()
        await store.aclose()

    run(scenario())


def test_staged_events_stay_staged_when_the_write_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        log.stage(said("one"))
        with pytest.raises(StoreError, match="Note 7"):
            await log.settle(7, said("never"))
        await log.append(said("two"))
        assert texts(await store.read("a")) == ["one", "two"]
        await store.aclose()

    run(scenario())


def test_a_holder_that_lost_its_lease_writes_nothing_that_was_staged(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        log.stage(said("one"))
        taken, _ = await store.open("a", holder="you", force=True)
        with pytest.raises(LeaseLost):
            await log.append_unless_noted(said("two"))
        assert taken.length == len(await store.read("a")) == 1
        await store.aclose()

    run(scenario())


def test_secrets_are_taken_out_before_an_event_is_staged(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db", funnel=Funnel(secrets=lambda: ("hunter2hunter2",)))
        log = await store.create("a", Opened(at=1.0, thread="a"), holder="me")
        kept = log.stage(said("it is hunter2hunter2"))
        assert kept is not None
        await log.append()
        assert texts(list(kept)) == texts(await store.read("a")) == ["it is [secret]"]
        await store.aclose()

    run(scenario())


def test_a_begun_log_is_created_with_its_first_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []

    async def scenario() -> None:
        store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
        count_rows(commits, monkeypatch)
        log = store.begin("a", opened(), holder="me")
        assert (log.exists, log.length, list(await log.notes()), list(await store.logs())) == (False, 1, [], [])
        log.stage(said("one"))
        assert await log.append_unless_noted(said("two")) == (said("two"),)
        assert (log.exists, log.length, commits) == (True, 3, [3])
        assert await other.read("a") == [opened(), said("one"), said("two")]
        with pytest.raises(LeaseHeld):
            await other.open("a", holder="you")
        await log.append(said("three"))
        await log.aclose()
        taken, _ = await other.open("a", holder="you")
        assert (taken.lease.epoch, taken.lease.rival, taken.length) == (2, "", 4)
        assert await store.verify() == []
        await other.aclose()
        await store.aclose()

    run(scenario())


def test_a_begun_log_that_is_not_written_was_never_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await store.begin("a", opened(), holder="me").aclose()
        assert list(await store.logs()) == []
        await (await store.create("a", opened(), holder="me")).aclose()
        late = store.begin("a", opened(), holder="me")
        with pytest.raises(StoreError, match="already"):
            await late.append(said("one"))
        assert await store.read("a") == [opened()]
        await store.aclose()

    run(scenario())


def test_the_last_events_give_the_lease_back_in_their_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
        first = await store.create("a", opened(), holder="me")
        second = store.begin("b", opened(), holder="me")
        monkeypatch.setattr(rows, "release", None)  # not called: it has a commit of its own
        for log in (first, second):
            log.stage(said("one"))
            assert await log.append_last(said("two")) == (said("two"),)
            taken, events = await other.open(log.lease.log, holder="you")
            assert (events, taken.lease.rival) == ([opened(), said("one"), said("two")], "")
            with pytest.raises(StoreError):
                await log.append(said("three"))
            await log.aclose()
            await taken.append_last(said("three"))
        assert [mark.seq for mark in store._sidecar.read().entries if isinstance(mark, Checkpoint)] == [3, 4, 3, 4]
        assert await store.verify() == []
        await other.aclose()
        await store.aclose()

    run(scenario())


def test_the_lease_stays_if_a_note_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
        log = await store.create("a", opened(), holder="me")
        log.stage(said("one"))
        await other.post("a", Note("key", "steer"))
        assert await log.append_last(said("end")) is None
        with pytest.raises(LeaseHeld):
            await other.open("a", holder="you")
        (note,) = await log.notes()
        await log.settle(note.number, said("two"))
        assert await log.append_last(said("end")) == (said("end"),)
        _, events = await other.open("a", holder="you")
        assert texts(events) == ["one", "two", "end"]
        await other.aclose()
        await store.aclose()

    run(scenario())
