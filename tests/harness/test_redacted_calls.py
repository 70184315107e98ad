"""A call whose arguments hold what is not stored: it never runs as another call, and every run of it sees the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from evener import Harness, tool
from evener.events import CallFinished, CallStarted, encode_event
from evener.harness import Decision
from evener.loop.plan import NOT_KEPT
from evener.replay import replay
from evener.store import Funnel, MemoryStore, SqliteStore, export_lines, import_lines
from evener.testing import ScriptedModel, calls
from evener.tools import Tool
from evener.transcript import TextBlock, ToolCall, Transcript
from evener.transcript.ask import Ask
from evener.transcript.reply import Reply

SECRET = "sk-proj-AbCdEf1234567890"
NUMBER = "555-123-4567"
PATTERN = r"\b\d{3}-\d{3}-\d{4}\b"

AnyStore = MemoryStore | SqliteStore


class World:
    """What tools did, and what the model was shown."""

    def __init__(self, store: AnyStore, argument: str) -> None:
        self.store = store
        self.done: list[str] = []
        self.seen: list[Transcript] = []
        self._argument = argument

    def harness(self, name: str) -> Harness:
        return Harness(ScriptedModel(lambda ask: self._answer(ask, name)), tools=self._tools(), store=self.store)

    def _answer(self, ask: Ask, name: str) -> Reply | str:
        self.seen.append(ask.transcript)
        made = any(message.calls for message in ask.transcript.messages)
        return f"Said {self._argument}." if made else calls(ToolCall.of("c", name, {"to": self._argument}))

    def _tools(self) -> list[Tool]:
        @tool(effect="write")
        def send(to: str) -> str:
            """Send it."""
            self.done.append(to)
            return f"sent to {to}"

        @tool(effect="write", approval=True)
        def ask_first(to: str) -> str:
            """Send it, if somebody agrees."""
            self.done.append(to)
            return "sent"

        @tool(effect="idempotent")
        def put(to: str) -> str:
            """Put it there."""
            self.done.append(to)
            return "put"

        return [send, ask_first, put]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    funnel = Funnel(secrets=lambda: (SECRET,), patterns=[PATTERN])
    made = MemoryStore(funnel=funnel) if request.param == "memory" else SqliteStore(tmp_path / "s.db", funnel=funnel)
    yield made
    asyncio.run(made.aclose())


@pytest.mark.parametrize("argument", [SECRET, NUMBER])
@pytest.mark.parametrize("name", ["send", "ask_first", "put"])
def test_a_call_with_something_that_is_not_stored_is_refused_at_once(store: AnyStore, name: str, argument: str) -> None:
    """It is neither run nor asked about, the model is told why, and a replay finds the same."""

    async def main() -> None:
        world = World(store, argument)
        result = await world.harness(name).run("go")
        assert (result.stop, result.approvals, world.done) == ("done", (), [])
        events = await store.read(result.thread)
        assert not any(isinstance(event, CallStarted) for event in events)
        (told,) = (event for event in events if isinstance(event, CallFinished))
        assert (told.ok, told.outcome, told.content[0]) == (False, "failed", TextBlock(NOT_KEPT))
        assert argument.encode() not in b"".join(map(encode_event, events))
        assert (await replay(events)).ok

    asyncio.run(main())


def test_a_run_goes_on_with_what_is_stored_and_gives_what_was_said(store: AnyStore) -> None:
    """The model sees the same in this process as in the next; whoever asked gets its last words as they were."""

    async def main() -> None:
        world = World(store, SECRET)
        thread = world.harness("send").thread()
        result = await thread.run(f"Tell {NUMBER} of {SECRET}")
        assert result.text == f"Said {SECRET}."
        assert [message.text for message in world.seen[0].messages] == ["Tell [secret] of [secret]"]
        await thread.run("and now?")
        live = world.seen[-1]
        assert live.messages[1].calls == (ToolCall("c", "send", '{"to":"[secret]"}', redacted=True),)
        assert live.messages[3].text == "Said [secret]."
        again = World(store, SECRET)
        await again.harness("send").thread((await thread.fork(at=live.messages[3].id)).log).run("and now?")
        assert [one.blocks for one in again.seen[0].messages] == [one.blocks for one in live.messages]

    asyncio.run(main())


def test_a_fork_from_before_the_call_does_not_run_it_either(store: AnyStore) -> None:
    async def main() -> None:
        world = World(store, NUMBER)
        thread = world.harness("send").thread()
        result = await thread.run("go")
        fork = await thread.fork(at=result.transcript.messages[1].id)
        assert (await fork.resume()).stop == "done"
        assert world.done == []

    asyncio.run(main())


def test_a_model_may_write_the_word_that_stands_for_a_secret(store: AnyStore) -> None:
    """Nothing was taken out of these arguments: it is the call that the model made."""

    async def main() -> None:
        world = World(store, "[secret]")
        assert (await world.harness("send").run("go")).stop == "done"
        assert world.done == ["[secret]"]

    asyncio.run(main())


def test_arguments_that_somebody_put_in_place_are_not_run_without_what_was_taken_out(store: AnyStore) -> None:
    """S4.21: what was decided is not what would run."""

    async def main() -> None:
        world = World(store, "home")
        thread = world.harness("ask_first").thread()
        assert (await thread.run("go")).stop == "approval"
        await thread.decide({"c": Decision("allow", arguments={"to": SECRET})})
        assert (await thread.resume()).stop == "done"
        assert world.done == []

    asyncio.run(main())


@pytest.mark.parametrize("name", ["put", "send", "ask_first"])
def test_a_call_that_lost_a_part_on_its_way_into_another_store_is_not_repeated(store: AnyStore, name: str) -> None:
    """It was started with other arguments, so nobody can tell what became of it, and the key is not used for another."""

    async def main() -> None:
        source = MemoryStore(funnel=Funnel(secrets=tuple))
        world = World(source, NUMBER)
        thread = world.harness(name).thread()
        result = await thread.run("go")
        if result.approvals:
            await thread.decide({"c": Decision("allow")})
            await thread.resume()
        assert world.done == [NUMBER]
        events = await source.read(thread.log)
        started = next(number for number, event in enumerate(events, 1) if isinstance(event, CallStarted))
        fork = await thread.fork(at=started)  # as if the process had died there
        await import_lines(store, [line async for line in export_lines(source, thread.id)])
        other = World(store, NUMBER)
        result = await other.harness(name).thread(thread.id, branch=fork.log).resume()
        assert (result.stop, other.done) == ("done", [])
        (record,) = result.records
        assert record.result is not None
        assert record.result.outcome == "unknown"
        await source.aclose()

    asyncio.run(main())
