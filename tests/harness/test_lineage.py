"""The tree of a conversation: forks, rollbacks, branches at the same time, and what each of them knows (S3.6)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from evener import Harness, MemoryStore, SqliteStore, Thread, ToolContext, tool
from evener import events as ev
from evener.errors import EvenerError, UsageError
from evener.harness import Subagent
from evener.harness.approvals import Decision
from evener.harness.branches import At, seq_of
from evener.loop.state import fold
from evener.result import RunResult
from evener.store.protocol import Log, NoLog, Store
from evener.testing import Call, FakeServer, Received, Turn, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import Origin, Remote, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.wire import CODECS
from evener.wire.quirks import Quirks
from tests.driver.stage import WIRES, model_at, quick_folder, served
from tests.model.stage import watched
from tests.patience import bytes_moved

STORES = ("memory", "file")


@asynccontextmanager
async def opened(kind: str, tmp_path: Path) -> AsyncIterator[Store]:
    with quick_folder(tmp_path) as folder:
        store: Store = MemoryStore() if kind == "memory" else SqliteStore(folder / "store.db")
        yield store
        await store.aclose()


def echo(ask: Ask) -> str:
    """Says how many user turns there were, and repeats the last one."""
    turns = [message.text for message in ask.transcript if message.role == "user" and message.text]
    return f"{len(turns)}: {turns[-1]}"


def talker(store: Store, **more: object) -> Harness:
    return Harness(ScriptedModel(echo), store=store, **more)  # type: ignore[arg-type]


def said(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


# Forks.


@pytest.mark.parametrize("kind", STORES)
def test_s3_6_a_fork_goes_on_from_any_message_and_leaves_the_rest_alone(kind: str, tmp_path: Path) -> None:
    """S3.6, S3.1."""

    async def go() -> None:
        async with opened(kind, tmp_path) as store:
            thread = talker(store).thread()
            first = await thread.run("one")
            await thread.run("two")
            answer = first.transcript.last
            assert answer is not None
            before = await store.read(thread.log)
            other = await thread.fork(at=answer.id)
            result = await other.run("three")
            assert said(result.transcript) == ["one", "1: one", "three", "2: three"] == said(tuple(result.transcript))
            assert result.transcript.messages[2].parent_id == answer.id, "a child of the parent message"
            assert (result.thread, other.id) == (other.log, other.log) != (thread.log, thread.log)
            assert await store.read(thread.log) == before, "the parent has not changed"
            assert said((await thread.run("four")).transcript)[-1] == "3: four"
            assert await thread.head() == await other.head() == thread.log, "a fork does not move the head"
            events = await store.read(other.log)
            assert fold(events).transcript == result.transcript
            parent = [event for event in events if isinstance(event, ev.Opened)][1]
            assert (parent.thread, parent.parent, parent.parent_seq) == (thread.id, thread.log, seq_of(before, answer.id, "-"))
            link = await store.link(thread.log, parent.parent_seq)
            assert parent.parent_hash == link.hash
            assert await store.verify() == []

    asyncio.run(go())


def test_an_alternative_in_one_call_run_and_watched() -> None:
    """S3.6: `run(prompt, at=)` is an alternative; the branch it was said on stays as it was."""

    async def go() -> None:
        thread = talker(MemoryStore()).thread()
        first = await thread.run("one")
        await thread.run("two")
        assert first.transcript.last is not None
        other = await thread.run("another two", at=first.transcript.last.id)
        assert said(other.transcript) == ["one", "1: one", "another two", "2: another two"]
        async with thread.stream("a third two", at=first.transcript.last.id) as stream:
            assert {event.place.thread async for event in stream} == {(await stream.result()).thread}
            assert (await stream.result()).text == "2: a third two"
        assert said((await thread.state()).transcript.messages) == ["one", "1: one", "two", "2: two"]
        assert len(await thread.branches()) == 3

    asyncio.run(go())


def test_steering_an_alternative_reaches_its_own_branch() -> None:
    """S3.6: what is said to a stream of an alternative is heard there, and not on the branch that it left."""
    gate = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    def script(ask: Ask) -> object:
        told = [message.text for message in ask.transcript if message.role == "user"]
        called = any(message.calls for message in ask.transcript)
        return calls(ToolCall.of("c", "wait", {})) if "go" in told[-1] and not called else f"heard {told[-1]}"

    async def go() -> None:
        harness = Harness(ScriptedModel(script), tools=[wait], store="memory")  # type: ignore[arg-type]
        thread = harness.thread()
        first = await thread.run("hello")
        assert first.transcript.last is not None
        async with thread.stream("go", at=first.transcript.last.id) as stream:
            await stream.steer("left, please")
            gate.set()
            result = await stream.result()
        assert result.text == "heard left, please"
        assert [note for note in said((await thread.state()).transcript.messages) if "left" in note] == []

    asyncio.run(go())


class Counting:
    """A store that writes down what is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[tuple[str, dict[str, object]]] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)

        def noted(*args: object, **settings: object) -> object:
            self.asked.append((name, settings))
            return found(*args, **settings)

        return noted if callable(found) else found


@pytest.mark.parametrize("at", [None, 3])
def test_forking_reads_no_log(at: At) -> None:
    """Issue 7, "What it must show" 5: forking is O(1). Of the events, one is read: the first, which names the thread."""

    async def go() -> None:
        store = Counting(MemoryStore())
        harness = talker(store)  # type: ignore[arg-type]
        thread = harness.thread()
        await thread.run("one")
        store.asked.clear()
        await thread.fork(at=at)
        reads = [settings for name, settings in store.asked if name in ("read", "open")]
        assert reads == [{"until": 1}]
        assert len(store.asked) <= 5

    asyncio.run(go())


def test_what_is_known_at_the_end_of_a_branch_is_not_read_again_on_its_fork() -> None:
    async def go() -> None:
        store = Counting(MemoryStore())
        thread = talker(store).thread()  # type: ignore[arg-type]
        await thread.run("one")
        other = await thread.fork()
        store.asked.clear()
        assert (await other.run("two")).text == "2: two"
        length = (await store.link(thread.log)).seq  # type: ignore[operator]
        assert [settings["after"] for name, settings in store.asked if name == "open"] == [length + 1]

    asyncio.run(go())


def test_forking_a_long_log_moves_no_more_bytes_than_a_short_one(tmp_path: Path) -> None:
    """Issue 7, "What it must show" 5."""

    async def go() -> None:
        async with opened("file", tmp_path) as store:
            harness = talker(store)
            logs = {}
            for size in (10, 5000):
                held = await store.create(f"log-{size}", ev.Opened(at=1.0, thread=f"log-{size}"), holder="h")
                await held.append(*(ev.Prompted(at=2.0, run="r", message=Message.user_text("x" * 200)) for _ in range(size)))
                await held.aclose()
                logs[size] = f"log-{size}"
            moved = {}
            for size, log in logs.items():
                before = bytes_moved()
                for _ in range(7):
                    await harness.thread(log).fork()
                moved[size] = bytes_moved() - before
            assert moved[5000] < 3 * moved[10] + 500_000, moved  # the long log has 1.5 MB

    asyncio.run(go())


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (object(), "not object"),
        (True, "not True"),
        (0, "not 0"),
        (-1, "not -1"),
        ("", "not ''"),
        (1.5, "not float"),
        (b"id", "not bytes"),
        (1000, "There is no event 1000"),
        ("no such message", "does not contain message 'no such message'"),
    ],
)
def test_a_place_that_is_none_is_refused(at: object, why: str) -> None:
    async def go() -> None:
        store = MemoryStore()
        thread = talker(store).thread()
        await thread.run("one")
        place: Any = at
        acts: list[Callable[[], Awaitable[object]]] = [
            lambda: thread.fork(at=place), lambda: thread.at(place), lambda: thread.run("x", at=place),
        ]  # fmt: skip
        for act in acts:
            with pytest.raises(UsageError, match=why):
                await act()
        assert len(await thread.branches()) == 1, "nothing was made"

    asyncio.run(go())


def test_a_thread_that_has_not_begun_has_nothing_to_fork() -> None:
    async def go() -> None:
        harness = talker(MemoryStore())
        acts: list[Callable[[Thread], Awaitable[object]]] = [
            lambda t: t.fork(), lambda t: t.rollback(), lambda t: t.head(), lambda t: t.branches(), lambda t: t.at(1),
        ]  # fmt: skip
        for act in acts:
            with pytest.raises(NoLog, match="is empty"):
                await act(harness.thread())
            with pytest.raises(NoLog):
                await act(harness.thread("nobody-knows-this-one"))

    asyncio.run(go())


def test_a_fork_of_an_erased_thread_is_refused(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened("file", tmp_path) as store:
            thread = talker(store).thread()
            await thread.run("one")
            other = await thread.fork()
            await store.erase(thread.id)
            for act in (thread.fork, other.fork, talker(store).thread(thread.id).fork):
                with pytest.raises(EvenerError, match="erased"):
                    await act()

    asyncio.run(go())


# In the middle of things.

PAID: list[str] = []


@tool
async def pay(amount: int, context: ToolContext[object]) -> str:
    """Pay."""
    PAID.append(f"{amount} {context.key}")
    return f"paid {amount}"


def payer(ask: Ask) -> object:
    last = ask.transcript.last
    assert last is not None
    results = [block.text for block in last.blocks if isinstance(block, ToolResult)]
    return f"so: {' '.join(results)}" if results or "never" in last.text else calls(ToolCall.of("c", "pay", {"amount": 5}))


def test_a_message_with_open_calls_runs_them_on_each_branch_with_keys_of_its_own() -> None:
    """A call that was only asked for is another call on each branch: an idempotent backend must not swallow the second."""
    PAID.clear()

    async def go() -> None:
        store = MemoryStore()
        harness = Harness(ScriptedModel(payer), tools=[pay], store=store)  # type: ignore[arg-type]
        thread = harness.thread()
        result = await thread.run("pay 5")
        asked = next(message for message in result.transcript if message.calls)
        other = await thread.fork(at=asked.id)
        state = await other.state()
        assert [(one.call.name, one.status) for one in state.calls] == [("pay", "asked")]
        again = await other.resume()
        assert again.text == result.text == "so: paid 5"
        keys = [line.split()[1] for line in PAID]
        assert len(keys) == 2 == len(set(keys))
        third = await thread.fork(at=asked.id)
        spoke = await third.run("never mind")
        assert "Not run" in str(spoke.transcript.messages[2].blocks), "a prompt moves on from what was not started"
        assert len(PAID) == 2

    asyncio.run(go())


def test_a_write_that_had_started_before_the_fork_is_not_started_again() -> None:
    """The branch that started it has its result by now, so the model gets that."""
    PAID.clear()

    async def go() -> None:
        store = MemoryStore()
        harness = Harness(ScriptedModel(payer), tools=[pay], store=store)  # type: ignore[arg-type]
        thread = harness.thread()
        await thread.run("pay 5")
        events = await store.read(thread.log)
        started = next(number for number, event in enumerate(events, 1) if isinstance(event, ev.CallStarted))
        other = await thread.fork(at=started)
        result = await other.resume()
        assert result.text == "so: paid 5"
        assert len(PAID) == 1
        assert result.records[0].starts == 1

    asyncio.run(go())


def test_an_idempotent_call_that_had_started_is_repeated_with_the_same_key() -> None:
    seen: list[str] = []

    @tool(effect="idempotent")
    async def book(context: ToolContext[object]) -> str:
        """Book."""
        seen.append(context.key)
        return "booked"

    def script(ask: Ask) -> object:
        return "end" if len(ask.transcript) > 1 else calls(ToolCall.of("c", "book", {}))

    async def go() -> None:
        store = MemoryStore()
        thread = Harness(ScriptedModel(script), tools=[book], store=store).thread()  # type: ignore[arg-type]
        await thread.run("book")
        events = await store.read(thread.log)
        started = next(number for number, event in enumerate(events, 1) if isinstance(event, ev.CallStarted))
        assert (await (await thread.fork(at=started)).resume()).text == "end"
        assert len(seen) == 2
        assert len(set(seen)) == 1

    asyncio.run(go())


@pytest.mark.parametrize("kind", STORES)
def test_every_event_of_a_run_can_be_forked_after(kind: str, tmp_path: Path) -> None:
    """Wherever it is cut, the branch can be resumed or spoken to, and no write starts twice on its path."""
    PAID.clear()

    async def go() -> None:
        async with opened(kind, tmp_path) as store:
            harness = Harness(ScriptedModel(payer), tools=[pay], store=store)  # type: ignore[arg-type]
            thread = harness.thread()
            result = await thread.run("pay 5")
            length = len(await store.read(thread.log))
            for seq in range(1, length + 1):
                fork = await thread.fork(at=seq)
                try:
                    ended: RunResult | None = await fork.resume()
                except UsageError as error:
                    assert "no run to resume" in str(error) or "is finished" in str(error)  # noqa: PT017
                    ended = None
                assert ended is None or ended.stop == "done"
                spoken = await fork.run("and again")
                assert spoken.stop == "done"
                starts = [event.call for event in await store.read(fork.log) if isinstance(event, ev.CallStarted)]
                assert len(starts) <= 2, "one of each prompt"
            assert (await thread.state()).transcript == result.transcript
            assert await store.verify() == []

    asyncio.run(go())


def test_a_running_log_can_be_forked_by_anybody_and_both_go_on() -> None:
    """The fork shares what was written by then; what is under way there is interrupted here."""

    async def go() -> None:
        begun, gate = asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def look() -> str:
            """Look."""
            begun.set()
            await gate.wait()
            return "seen"

        def script(ask: Ask) -> object:
            return "end" if len(ask.transcript) > 1 else calls(ToolCall.of("c", "look", {}))

        store = MemoryStore()
        harness = Harness(ScriptedModel(script), tools=[look], store=store)  # type: ignore[arg-type]
        thread = harness.thread()
        running = asyncio.create_task(thread.run("go"))
        await begun.wait()
        with pytest.raises(UsageError, match="is running in this process"):
            await thread.rollback()
        other = await thread.fork()
        elsewhere = await harness.thread(thread.log).fork()
        resumed = asyncio.gather(other.resume(), elsewhere.resume())
        gate.set()
        results = [await running, *await resumed]
        assert {result.text for result in results} == {"end"}
        assert len({result.thread for result in results}) == 3

    asyncio.run(go())


# Many at once.


@pytest.mark.parametrize("kind", STORES)
def test_eight_branches_of_one_thread_run_at_the_same_time(kind: str, tmp_path: Path) -> None:
    """S3.6: branches are logs of their own: no cross-talk, and each chain is whole."""

    @tool(effect="read")
    async def look(place: int) -> str:
        """Look."""
        await asyncio.sleep(0.001)
        return f"place {place}"

    def script(ask: Ask) -> object:
        results = [block.text for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]
        number = next(int(part) for part in ask.transcript.messages[-1 - 2 * len(results)].text.split() if part.isdigit())
        return f"saw {results}" if len(results) > 3 else calls(ToolCall.of(f"c{len(results)}", "look", {"place": number}))

    async def go() -> None:
        async with opened(kind, tmp_path) as store:
            harness = Harness(ScriptedModel(script), tools=[look], store=store)  # type: ignore[arg-type]
            thread = harness.thread(history=[Message.user_text("Look around.")])
            trunk = await thread.run("branch 0")
            seq = next(number for number, event in enumerate(await store.read(thread.log), 1) if isinstance(event, ev.Prompted))
            forks = [await thread.fork(at=seq - 1) for _ in range(8)]
            results = await asyncio.gather(*(fork.run(f"branch {number}") for number, fork in enumerate(forks, 1)))
            assert trunk.text == f"saw {['place 0'] * 4}"
            for number, result in enumerate(results, 1):
                assert result.text == f"saw {[f'place {number}'] * 4}"
                assert said(result.transcript)[:2] == ["Look around.", f"branch {number}"]
            assert len({result.thread for result in results}) == 8
            assert await store.verify() == []
            for fork in forks:
                assert await store.verify(fork.log) == []

    asyncio.run(go())


@pytest.mark.parametrize("wire", WIRES)
def test_eight_branches_run_at_the_same_time_over_sockets(wire: str, tmp_path: Path) -> None:
    """S3.6: one thread, one file, eight connections; each branch hears its own answers, and no request is refused."""

    @tool(effect="read")
    async def look(place: str) -> str:
        """Look."""
        return f"seen {place}"

    def script(received: Received) -> Turn:
        ask = CODECS[wire].read_request(received.body, Quirks(), Origin(wire=wire))
        results = [block.text for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]
        word = next(message.text for message in reversed(ask.transcript.messages) if message.text.startswith("branch"))
        mine = [text for text in results if word in text]
        return turn(Call("look", {"place": word})) if len(mine) < 3 else turn(f"{word}: {len(results)} results")

    async def go(folder: Path, server: FakeServer) -> None:
        store = SqliteStore(folder / "store.db")
        async with watched() as watch:
            harness = Harness(model_at(server, wire, watch), tools=[look], store=store)
            thread = harness.thread()
            await thread.run("branch trunk")
            forks = [await thread.fork() for _ in range(8)]
            results = await asyncio.gather(*(fork.run(f"branch {number}") for number, fork in enumerate(forks)))
        assert [result.text for result in results] == [f"branch {number}: 6 results" for number in range(8)]
        assert [one for one in await store.verify() if one.damage] == []
        await store.aclose()

    with quick_folder(tmp_path) as folder, served(wire, script) as server:
        asyncio.run(go(folder, server))
        assert [rejected.violations for rejected in server.rejected] == []
        assert len(server.requests) == 4 * 9


# Rollback.


@pytest.mark.parametrize("kind", STORES)
def test_a_rollback_deletes_nothing_and_the_thread_stands_on_the_new_branch(kind: str, tmp_path: Path) -> None:
    """S3.6: rollback is easy. S3.4: nothing is gone because of it."""

    async def go() -> None:
        async with opened(kind, tmp_path) as store:
            harness = talker(store)
            thread = harness.thread()
            await thread.run("one")
            await thread.run("two")
            await thread.run("three")
            old, whole = thread.log, await store.read(thread.log)
            await thread.rollback(turns=2)
            assert (thread.id, await thread.head()) == (old, thread.log)
            assert thread.log != old
            assert said((await thread.state()).transcript.messages) == ["one", "1: one"]
            assert (await thread.run("other two")).text == "2: other two"
            again = harness.thread(thread.id)
            assert said((await again.state()).transcript.messages)[-1] == "2: other two", "the id of a thread is its head"
            assert await store.read(old) == whole
            past = harness.thread(thread.id, branch=old)
            assert (await past.run("four")).text == "4: four"
            assert past.log == old
            assert await thread.head() == thread.log, "a run on another branch does not move the head"
            difference = await thread.diff(old)
            assert said(difference.only_a) == ["two", "2: two", "three", "3: three", "four", "4: four"]
            assert said(difference.only_b) == ["other two", "2: other two"]
            await thread.rollback()
            await thread.rollback()
            assert said((await thread.state()).transcript.messages) == []
            assert (await thread.run("fresh")).text == "1: fresh"
            assert await store.verify() == []

    asyncio.run(go())


@pytest.mark.parametrize("turns", [0, -1, True, "1", 1.0, None])
def test_turns_that_are_no_number_are_refused(turns: object) -> None:
    async def go() -> None:
        thread = talker(MemoryStore()).thread()
        await thread.run("one")
        with pytest.raises(UsageError, match="number of user turns"):
            await thread.rollback(turns)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"Cannot roll back .* user turns: log .* has 1"):
            await thread.rollback(2)

    asyncio.run(go())


def test_a_rollback_keeps_the_history_that_a_thread_began_with() -> None:
    async def go() -> None:
        thread = talker(MemoryStore()).thread(history=[Message.user_text("Earlier."), Message.user_text("Later.")])
        await thread.run("one")
        await thread.rollback()
        assert said((await thread.run("two")).transcript)[:-1] == ["Earlier.", "Later.", "two"]

    asyncio.run(go())


# Looking.


def test_the_tree_parents_first_and_where_branches_part() -> None:
    async def go() -> None:
        store = MemoryStore()
        thread = talker(store).thread()
        await thread.run("one")
        first = await thread.fork()
        await first.run("two a")
        second = await first.fork(at=2)
        await second.run("other")
        third = await first.fork()
        tree = await third.branches()
        assert tree[0].log == thread.log
        places = {one.log: number for number, one in enumerate(tree)}
        assert all(places[one.parent] < places[one.log] for one in tree if one.parent)
        parents = {one.log: (one.parent, one.at) for one in tree}
        assert parents[second.log] == (thread.log, 2), "the event lies in the first log"
        assert parents[third.log][0] == first.log
        assert [one.log for one in tree if one.head] == [thread.log]
        assert (await third.diff(second.log)).at == 2
        both = await thread.diff(first.log, third.log)
        assert (both.only_a, both.only_b) == ((), ())
        assert both.common == (await first.state()).transcript.messages[-1].id
        same = await thread.diff(thread.log)
        assert (same.only_a, same.only_b) == ((), ())
        with pytest.raises(UsageError, match="no branch of thread"):
            await thread.diff("elsewhere")

    asyncio.run(go())


def test_a_conversation_as_it_was_at_any_message_and_event() -> None:
    async def go() -> None:
        store = MemoryStore()
        thread = talker(store).thread()
        result = await thread.run("one")
        await thread.run("two")
        events = await store.read(thread.log)
        for number in range(1, len(events) + 1):
            assert await thread.at(number) == fold(events[:number])
        for number, message in enumerate((await thread.state()).transcript, 1):
            state = await thread.at(message.id)
            assert len(state.transcript) == number
            assert state.transcript.last is not None
            assert state.transcript.last.id == message.id
        assert result.transcript.last is not None
        assert (await thread.at(result.transcript.last.id)).transcript == result.transcript

    asyncio.run(go())


def test_a_branch_of_another_thread_is_refused() -> None:
    async def go() -> None:
        harness = talker(MemoryStore())
        one, two = harness.thread(), harness.thread()
        await one.run("one")
        await two.run("two")
        fork = await one.fork()
        with pytest.raises(UsageError, match="is a branch of thread"):
            await harness.thread(two.id, branch=fork.log).run("x")
        with pytest.raises(NoLog):
            await harness.thread(one.id, branch="nowhere").run("x")
        assert (await harness.thread(branch=fork.log).run("three")).thread == fork.log

    asyncio.run(go())


# What follows the path: notes, media, settings.


def test_the_scratchpad_follows_the_path_of_a_fork() -> None:
    def script(ask: Ask) -> object:
        last = ask.transcript.last
        assert last is not None
        if any(isinstance(block, ToolResult) for block in last.blocks):
            return "noted"
        noted = {"action": "append", "section": "plan", "text": last.text}
        return calls(ToolCall.of(f"c{len(ask.transcript)}", "scratchpad", noted))

    async def go() -> None:
        store = MemoryStore()
        harness = Harness(ScriptedModel(script), store=store, scratchpad=True)  # type: ignore[arg-type]
        thread = harness.thread()
        first = await thread.run("alpha")
        end = first.transcript.last
        assert end is not None
        await thread.run("beta")
        known = await thread.fork()
        gamma = await known.run("gamma")
        delta = await thread.run("delta", at=end.id)
        there = await harness.thread(delta.thread).run("epsilon")

        def noted(result: RunResult) -> list[bool]:
            return [word in str(result.scratchpad) for word in ("alpha", "beta", "gamma", "delta", "epsilon")]

        assert noted(gamma) == [True, True, True, False, False]
        assert noted(delta) == [True, False, False, True, False]
        assert noted(there) == [True, False, False, True, True]
        assert noted(await thread.run("zeta")) == [True, True, False, False, False]

    asyncio.run(go())


def test_media_and_settings_follow_the_path_of_a_fork() -> None:
    """What was fetched before the fork is at hand on it, and what it was made with is known."""

    async def go() -> None:
        store = MemoryStore()
        thread = talker(store, system="Be brief.").thread()
        await thread.run("one")
        log, _ = await store.open(thread.log, holder="h", after=0)
        await log.append(ev.MediaFetched(at=9.0, source="https://example.org/a.png", digest="d"))
        await log.aclose()
        other = await talker(store, system="Be brief.").thread(thread.id).fork()
        state = await other.state()
        assert dict(state.media) == {"https://example.org/a.png": "d"}
        assert state.config is not None
        await other.run("two")
        configured = [event for event in await store.read(other.log) if isinstance(event, ev.Configured)]
        assert len(configured) == 1, "nothing changed, so nothing was written"
        assert Remote("https://example.org/a.png").url in dict(state.media)

    asyncio.run(go())


def test_the_fork_of_a_named_harness_belongs_to_the_harness_that_forks() -> None:
    async def go() -> None:
        store = MemoryStore()
        thread = talker(store, name="shop").thread()
        await thread.run("one")
        unnamed = await talker(store).thread(thread.id).fork()
        named = await talker(store, name="office").thread(thread.id).fork()
        assert (await unnamed.state()).harness == "shop"
        assert (await named.state()).harness == "office"

    asyncio.run(go())


# Agents inside.

DONE: list[str] = []


@tool(approval=True)
async def sign(paper: str, context: ToolContext[object]) -> str:
    """Sign."""
    DONE.append(f"{paper} {context.key}")
    return f"signed {paper}"


def clerk(ask: Ask) -> object:
    results = [block.text for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]
    return f"clerk: {results[-1]}" if results else calls(ToolCall.of("s", "sign", {"paper": "A"}))


def boss(ask: Ask) -> object:
    results = [block.text for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]
    return f"boss: {results[-1]}" if results else calls(ToolCall.of("c", "clerk", {"task": "sign A"}))


def office(store: Store, **more: object) -> Harness:
    inner = Harness(ScriptedModel(clerk), tools=[sign], store=store, **more)  # type: ignore[arg-type]
    agent = Subagent(name="clerk", harness=inner, description="Signs.")
    return Harness(ScriptedModel(boss), agents=[agent], store=store)  # type: ignore[arg-type]


def test_a_fork_has_agents_of_its_own_and_decides_for_itself() -> None:
    """The agent of one branch waits; on a fork its own waits, and deciding there decides nothing here."""
    DONE.clear()

    async def go() -> None:
        store = MemoryStore()
        thread = office(store).thread()
        first = await thread.run("go")
        assert first.stop == "approval"
        [waits] = first.approvals
        other = await thread.fork()
        with pytest.raises(EvenerError, match="Nothing waits"):
            await other.decide({waits.key: Decision("allow")})
        second = await other.resume()
        assert second.stop == "approval"
        [waiting] = second.approvals
        assert waiting.thread != waits.thread
        await other.decide({waiting.key: Decision("reject", why="not here")})
        assert "ApprovalRejected" in (await other.resume()).text
        assert DONE == []
        await thread.decide({waits.key: Decision("allow")})
        assert (await thread.resume()).text == "boss: clerk: signed A"
        assert len(DONE) == 1
        assert await store.verify() == []

    asyncio.run(go())


def test_what_an_agent_had_done_before_the_fork_is_not_done_again_on_it() -> None:
    """The agent's thread is forked where it stands, on a fork of a fork, too; when it had ended, its answer is taken."""
    DONE.clear()

    async def go() -> None:
        store = MemoryStore()
        thread = office(store).thread()
        [waits] = (await thread.run("go")).approvals
        await thread.decide({waits.key: Decision("allow")})
        result = await thread.resume()
        events = await store.read(thread.log)
        started = [number for number, event in enumerate(events, 1) if isinstance(event, ev.CallStarted)]
        for at in started:
            other = await thread.fork(at=at)
            assert (await other.resume()).text == result.text
            deeper = await other.fork(at=at + 1)
            assert (await deeper.resume()).text == result.text
            late = await other.fork(at=max(number for number, event in enumerate(await store.read(other.log), 1)
                                           if isinstance(event, ev.CallStarted)))  # fmt: skip
            assert (await late.resume()).text == result.text
        assert len(DONE) == 1, "signed once, on all branches together"

    asyncio.run(go())


def test_a_call_that_was_only_asked_for_has_another_agent_on_each_branch() -> None:
    async def go() -> None:
        store = MemoryStore()
        thread = office(store).thread()
        result = await thread.run("go")
        asked = next(message for message in result.transcript if message.calls)
        [ours] = result.approvals
        [theirs] = (await (await thread.fork(at=asked.id)).resume()).approvals
        assert ours.thread != theirs.thread
        assert len(await store.logs(thread=theirs.thread)) == 1, "it begins afresh"

    asyncio.run(go())


def test_a_held_log_is_forked_without_its_lease(tmp_path: Path) -> None:
    """Whoever holds the log, here or elsewhere, is not disturbed: its next append succeeds."""

    async def go() -> None:
        async with opened("file", tmp_path) as store:
            harness = talker(store)
            result = await harness.run("one")
            held: Log = (await store.open(result.thread, holder="somebody else"))[0]
            assert (await (await harness.thread(result.thread).fork()).run("two")).text == "2: two"
            thread = harness.thread(result.thread)
            await thread.rollback()
            await held.append(ev.Steered(at=1.0, message=Message.user_text("still here")))
            await held.aclose()

    asyncio.run(go())
