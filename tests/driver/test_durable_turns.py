"""A turn on a file: two commits at most, and still everything is on disk before it is acted on or shown."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from evener import events as ev
from evener import streaming as st
from evener import tool
from evener.driver import driver
from evener.errors import StoreError, UsageError
from evener.harness import Harness, Thread
from evener.hooks import Hook
from evener.loop.state import Limits
from evener.store import Note, SqliteStore
from evener.store.sqlite import rows
from evener.store.sqlite.store import SqliteLog
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.tools import call
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from tests.patience import PATIENCE, until

TURNS = 4


def kinds_in(path: Path) -> list[str]:
    """What is on disk, as another process sees it."""
    with closing(sqlite3.connect(path)) as connection:
        return [kind for (kind,) in connection.execute("SELECT kind FROM events ORDER BY seq")]


def script(ask: Ask) -> Line:
    """Call the tool in each turn but the last."""
    number = len(ask.transcript) // 2
    return calls(ToolCall.of(f"c{number}", "look", {"item": number})) if number < TURNS - 1 else "done"


def harness_on(
    store: SqliteStore,
    seen: Callable[[], None] = lambda: None,
    effect: ev.Effect = "write",
    waits_for: Callable[[], bool] = lambda: True,
    **more: object,
) -> Harness:
    @tool(effect=effect)
    async def look(item: int) -> str:
        """Look."""
        if item:
            await until(waits_for)
        seen()
        return f"item {item}"

    return Harness(ScriptedModel(script), tools=[look], store=store, **more)  # type: ignore[arg-type]


BEGUN = ["replied", "call_started"]
WRITTEN = [BEGUN, ["call_finished", "model_called"]]


@pytest.mark.parametrize(
    ("effect", "turns_of"),
    [
        ("write", WRITTEN * (TURNS - 1)),
        ("idempotent", WRITTEN * (TURNS - 1)),
        ("read", [*WRITTEN, *[[kind for commit in WRITTEN for kind in commit]] * (TURNS - 2)]),
    ],
)
def test_a_turn_takes_two_commits_and_a_brief_read_one(
    effect: ev.Effect, turns_of: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call of a tool tells whether it is brief."""
    monkeypatch.setattr(driver, "BRIEF", 3600.0)
    commits: list[list[str]] = []
    append = rows.append

    def counted(*given, **named):  # type: ignore[no-untyped-def]
        commits.append([row.kind for row in named.get("rows") or given[2]])
        return append(*given, **named)

    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")
        monkeypatch.setattr(rows, "append", counted)
        monkeypatch.setattr(rows, "release", None)  # not called: the lease is given back with the last events
        result = await harness_on(store, effect=effect).run("go")
        assert result.text == "done"
        assert await store.verify() == []
        await store.aclose()

    asyncio.run(go())
    begun, *turns, ended = commits
    assert (begun[0], begun[-2:]) == ("opened", ["prompted", "model_called"])
    assert turns == turns_of
    assert ended == ["replied", "finished"]


def test_the_start_of_a_call_is_on_disk_before_the_tool_runs(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await harness_on(store, lambda: seen.append(kinds_in(tmp_path / "store.db")[-2:])).run("go")
        await store.aclose()

    asyncio.run(go())
    assert seen == [BEGUN] * (TURNS - 1)


def test_a_read_that_waits_after_all_has_its_start_on_disk_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one was brief, so the next ones begin before they are written; they then take their time."""
    monkeypatch.setattr(driver, "BRIEF", 3600.0)
    seen: list[list[str]] = []

    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")

        def last() -> list[str]:
            return kinds_in(tmp_path / "store.db")[-2:]

        await harness_on(store, lambda: seen.append(last()), effect="read", waits_for=lambda: last() == BEGUN).run("go")
        assert await store.verify() == []
        await store.aclose()

    asyncio.run(go())
    assert seen == [BEGUN] * (TURNS - 1)


def test_what_a_caller_is_shown_is_on_disk(tmp_path: Path) -> None:
    shown: list[str] = []
    told = {st.TurnFinished: "replied", st.ToolStarted: "call_started", st.ToolFinished: "call_finished"}

    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")
        numbers = []
        async with harness_on(store).stream("go") as stream:
            async for event in stream:
                numbers.append(event.sequence)
                if kind := told.get(type(event)):
                    shown.append(kind)
                    assert shown.count(kind) <= kinds_in(tmp_path / "store.db").count(kind)
        assert numbers == list(range(1, len(numbers) + 1))
        await store.aclose()

    asyncio.run(go())
    assert shown == [*["replied", "call_started", "call_finished"] * (TURNS - 1), "replied"]


def test_a_wish_to_stop_from_elsewhere_keeps_the_tool_from_starting(tmp_path: Path) -> None:
    """It comes while the model answers, and nothing but the file tells of it."""
    path = tmp_path / "store.db"
    ran: list[None] = []

    async def go() -> None:
        store, other = SqliteStore(path), SqliteStore(path)

        class Watching(ScriptedModel):
            def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
                stream = super().stream(ask, after=after)
                read = stream.read

                async def late() -> object:
                    pieces = await read()
                    if not pieces:
                        (log,) = await other.logs()
                        await other.post(log.log, Note("stop", "cancel", '{"why": "enough"}'))
                    return pieces

                stream.read = late  # type: ignore[assignment,method-assign]
                return stream

        @tool
        async def look(item: int) -> str:
            """Look."""
            ran.append(None)
            return str(item)

        limits = Limits(requests=3)
        result = await Harness(Watching(script), tools=[look], store=store, limits=limits).run("go")
        assert result.stop == "cancelled"
        await other.aclose()
        await store.aclose()

    asyncio.run(go())
    assert ran == []
    assert kinds_in(path)[-3:] == ["replied", "cancelled", "finished"]


def test_a_note_between_a_result_and_the_next_request_leaves_the_request_uncounted(tmp_path: Path) -> None:
    """The result is written, the note is heeded, and the one request that is left is made with both."""
    path = tmp_path / "store.db"

    async def go() -> None:
        store, other = SqliteStore(path), SqliteStore(path)
        threads: list[str] = []

        @tool
        async def look(item: int) -> str:
            """Look."""
            (log,) = await other.logs()
            threads.append(log.log)
            await other.post(log.log, Note(f"say{item}", "steer", '{"text": "hurry"}'))
            return str(item)

        limits = Limits(requests=2)
        model = ScriptedModel(lambda ask: calls(ToolCall.of("c0", "look", {"item": 0})) if len(ask.transcript) == 1 else "done")
        result = await Harness(model, tools=[look], store=store, limits=limits).run("go")
        assert (result.text, len(result.requests)) == ("done", 2)
        await other.aclose()
        await store.aclose()

    asyncio.run(go())
    kinds = kinds_in(path)
    assert kinds[kinds.index("call_finished") :] == ["call_finished", "steered", "model_called", "replied", "finished"]


def test_a_turn_that_could_not_be_written_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")
        write, failing = SqliteLog.append_unless_noted, StoreError("No room.")

        async def full(self: SqliteLog, *events: ev.Event) -> tuple[ev.Event, ...] | None:
            if any(isinstance(event, ev.CallStarted) for event in events):
                raise failing
            return await write(self, *events)

        monkeypatch.setattr(SqliteLog, "append_unless_noted", full)
        shown: list[st.StreamEvent] = []
        async with harness_on(store).stream("go") as stream:
            async for event in stream:
                shown.append(event)
            with pytest.raises(StoreError) as caught:
                await stream.result()
        assert caught.value is failing
        assert not any(isinstance(event, st.TurnFinished | st.ToolStarted) for event in shown)
        assert [event.sequence for event in shown] == list(range(1, len(shown) + 1))
        await store.aclose()

    asyncio.run(go())


def test_with_hooks_each_event_is_on_disk_before_the_hook_is_asked(tmp_path: Path) -> None:
    path, seen = tmp_path / "store.db", []

    async def go() -> None:
        store = SqliteStore(path)
        hook = Hook(event="before_tool_call", handler=lambda _: seen.append(kinds_in(path)[-1]))
        await harness_on(store, hooks=[hook]).run("go")
        await store.aclose()

    asyncio.run(go())
    assert seen == ["replied"] * (TURNS - 1)


def test_a_thread_whose_first_write_fails_is_as_if_it_had_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")
        thread = harness_on(store).thread()
        with monkeypatch.context() as patch:
            patch.setattr(rows, "begin", None)
            with pytest.raises(StoreError) as caught:
                await thread.run("go")
        assert (caught.value.thread, thread.id, list(await store.logs())) == ("", "", [])
        with pytest.raises(UsageError, match="empty"):
            await thread.run("")
        assert (await thread.context()).messages == 0
        result = await thread.run("go")
        assert (result.text, result.thread) == ("done", thread.id)
        assert (await thread.run("again")).thread == thread.id
        await store.aclose()

    asyncio.run(go())


def test_a_note_that_comes_with_the_end_is_read_before_the_run_ends(tmp_path: Path) -> None:
    async def go() -> None:
        store = SqliteStore(tmp_path / "store.db")
        other = SqliteStore(tmp_path / "store.db")

        def answer(ask: Ask) -> Line:
            if len(ask.transcript) == 1:
                (log,) = asyncio.run_coroutine_threadsafe(other.logs(), loop).result(60)
                note = Note("say", "steer", '{"text": "hurry"}')
                asyncio.run_coroutine_threadsafe(other.post(log.log, note), loop).result(60)
            return f"{len(ask.transcript)}"

        loop = asyncio.new_event_loop()
        beside = threading.Thread(target=loop.run_forever)
        beside.start()
        result = await Harness(ScriptedModel(answer), store=store).run("go")
        assert result.text == "3"
        await other.aclose()
        await store.aclose()
        loop.call_soon_threadsafe(loop.stop)
        beside.join()
        loop.close()

    asyncio.run(go())
    kinds = kinds_in(tmp_path / "store.db")
    assert kinds[-5:] == ["replied", "steered", "model_called", "replied", "finished"]


def test_a_run_that_is_cancelled_as_it_begins_leaves_its_thread_or_nothing(tmp_path: Path) -> None:
    """Several at once, so that the store's thread writes."""
    many = 60

    async def cancelled(thread: Thread, after: int) -> None:
        task = asyncio.ensure_future(thread.run("go"))
        for _ in range(after):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def go() -> None:
        store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
        harness = harness_on(store)
        threads = [harness.thread() for _ in range(many)]
        await asyncio.gather(*(cancelled(thread, number) for number, thread in enumerate(threads)))
        left = {thread.id for thread in threads if thread.id}
        assert {one.log for one in await store.logs()} == left
        assert 0 < len(left) < many
        for id in left:
            log, _ = await other.open(id, holder="me")
            await log.aclose()
        for thread in threads:
            result = await (thread.resume() if thread.id and (await thread.state()).finished is None else thread.run("go"))
            assert result.text == "done"
        assert await store.verify() == []
        await other.aclose()
        await store.aclose()

    asyncio.run(go())


def test_a_tool_that_goes_on_after_the_run_leaves_its_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "GRACE", 0.01)

    async def go() -> None:
        store, other = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
        begun, over = threading.Event(), threading.Event()

        @tool(effect="write")
        def look(item: int) -> str:
            """Look."""
            begun.set()
            over.wait(PATIENCE)
            return str(item)

        thread = Harness(ScriptedModel(script), tools=[look], store=store).thread()
        run = asyncio.ensure_future(thread.run("go"))
        await until(begun.is_set)
        await thread.cancel()
        assert (await run).stop == "cancelled"
        log, _ = await other.open(thread.id, holder="me")
        assert log.lease.rival == "holder"
        over.set()
        await other.aclose()
        await store.aclose()

    asyncio.run(go())
