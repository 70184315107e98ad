"""The threads of agents belong to the thread that called them: they move with it, and are erased with it."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from evener import Harness, tool
from evener.errors import BadDocument, StoreError
from evener.events import CallFinished, encode_event
from evener.harness import Decision, Subagent
from evener.result import RunResult
from evener.store import MemoryStore, SqliteStore, export_lines, import_lines, keep
from evener.store.protocol import Erased, LeaseHeld
from evener.store.transfer.lines import End, written
from evener.testing import ScriptedModel, calls
from evener.transcript import ToolCall
from evener.transcript.ask import Ask
from evener.transcript.reply import Reply

AnyStore = MemoryStore | SqliteStore


class World:
    """A boss calls a clerk, the clerk calls a payer, and that one pays and has something signed."""

    def __init__(self, store: AnyStore) -> None:
        self.store = store
        self.done: list[str] = []

        @tool(effect="write")
        def pay() -> str:
            """Pay."""
            self.done.append("pay")
            return "paid"

        @tool(effect="write", approval=True)
        def sign() -> str:
            """Sign."""
            self.done.append("sign")
            return "signed"

        payer = self._made("payer", ["pay", "sign"], tools=[pay, sign])
        clerk = self._made("clerk", ["payer"], agents=[_agent("payer", payer)])
        self.boss = self._made("boss", ["clerk"], agents=[_agent("clerk", clerk)])

    def _made(self, name: str, tools_called: list[str], **parts: object) -> Harness:
        def answer(ask: Ask) -> Reply | str:
            so_far = sum(bool(message.calls) for message in ask.transcript.messages)
            if so_far == len(tools_called):
                return f"the {name} is done"
            called = tools_called[so_far]
            given = {"task": f"private words for the {called}"} if called in ("clerk", "payer") else {}
            return calls(ToolCall.of(f"{name}{so_far}", called, given))

        return Harness(ScriptedModel(answer), store=self.store, name=name, **parts)  # type: ignore[arg-type]

    async def waiting(self) -> RunResult:
        """Everything has begun, and the innermost waits."""
        result = await self.boss.run("private words for the boss")
        assert (result.stop, self.done) == ("approval", ["pay"])
        return result

    async def through(self, thread: str) -> RunResult:
        found = await self.boss.resume(thread)
        await self.boss.decide(thread, {one.key: Decision("allow") for one in found.approvals})
        return await self.boss.resume(thread)


def _agent(name: str, harness: Harness) -> Subagent:
    return Subagent(name=name, description="does it", harness=harness)


def made(kind: str, folder: Path) -> AnyStore:
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "s.db")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    found = made(request.param, tmp_path)
    yield found
    asyncio.run(found.aclose())


async def exported(store: AnyStore, thread: str) -> list[bytes]:
    return [line async for line in export_lines(store, thread)]


async def names(store: AnyStore) -> dict[str, str]:
    """Every thread by whose it is."""
    return {summary.harness: summary.thread for summary in await store.logs()}


def ended(lines: list[bytes]) -> list[bytes]:
    """The lines with a right end, whatever was done to them."""
    return [*lines, written(End(len(lines), sha256(b"".join(lines)).hexdigest()))]


@pytest.mark.parametrize("goal", ["memory", "sqlite"])
def test_a_thread_that_moves_takes_its_agents_along(store: AnyStore, goal: str, tmp_path: Path) -> None:
    """Resumed elsewhere, the agents go on where they were, and what they did is not done again."""

    async def main() -> None:
        result = await World(store).waiting()
        (tmp_path / "other").mkdir()
        other = made(goal, tmp_path / "other")
        lines = await exported(store, result.thread)
        assert await import_lines(other, lines) == result.thread
        assert await names(other) == await names(store)
        assert await exported(other, result.thread) == lines
        world = World(other)
        assert (await world.through(result.thread)).text == "the boss is done"
        assert world.done == ["sign"]
        assert [one for one in await other.verify() if one.damage] == []
        await other.aclose()

    asyncio.run(main())


def test_what_is_there_already_and_the_same_does_not_stand_in_the_way(store: AnyStore) -> None:
    async def main() -> None:
        result = await World(store).waiting()
        clerk = (await names(store))["boss/clerk"]
        other = MemoryStore()
        await import_lines(other, await exported(store, clerk))
        assert set(await names(other)) == {"boss/clerk", "boss/clerk/payer"}
        for _ in range(2):
            await import_lines(other, await exported(store, result.thread))
            assert await names(other) == await names(store)

    asyncio.run(main())


def test_an_import_that_fails_at_an_agent_takes_nothing_in(store: AnyStore) -> None:
    async def main() -> None:
        result = await World(store).waiting()
        other = MemoryStore()
        clerk = (await names(store))["boss/clerk"]
        await import_lines(other, await exported(store, clerk))
        await other.describe(clerk, title="another one")
        with pytest.raises(StoreError, match="is in this store with other content"):
            await import_lines(other, await exported(store, result.thread))
        assert set(await names(other)) == {"boss/clerk", "boss/clerk/payer"}

    asyncio.run(main())


def test_an_export_with_a_thread_that_is_nobodys_agent_is_refused(store: AnyStore) -> None:
    """A file cannot bring threads along that the one it is about did not begin."""

    async def main() -> None:
        lines = await exported(store, (await World(store).waiting()).thread)
        stranger = await exported(store, (await Harness(ScriptedModel(["hi"]), store=store).run("hello")).thread)
        other = MemoryStore()
        with pytest.raises(BadDocument, match="contains a thread that no call of the first thread began"):
            await import_lines(other, ended([*lines[:-1], *stranger[:-1]]))
        with pytest.raises(BadDocument, match="a second time"):
            await import_lines(other, ended([*lines[:-1], *lines[:-1]]))
        assert await other.logs() == []

    asyncio.run(main())


def test_an_agent_that_is_known_to_have_begun_and_is_not_here_is_not_begun_again(store: AnyStore) -> None:
    """Nobody can say what it has done."""

    async def main() -> None:
        result = await World(store).waiting()
        other = MemoryStore()
        held = await other.create(result.thread, (await store.read(result.thread))[0], holder="me")
        await held.append(*(await store.read(result.thread))[1:])
        await held.aclose()
        world = World(other)
        assert (await world.boss.resume(result.thread)).stop == "done"
        (told,) = (event for event in await other.read(result.thread) if isinstance(event, CallFinished))
        assert (told.outcome, world.done) == ("unknown", [])

    asyncio.run(main())


def test_erasing_a_thread_erases_the_agents_inside_it(store: AnyStore) -> None:
    """What was told to an agent is as private as what was told to the thread."""

    async def main() -> None:
        result = await World(store).waiting()
        apart = await World(store).waiting()
        threads = [result.thread, *await store.inside(result.thread)]
        assert len(threads) == 3
        length = sum([summary.events for summary in await store.logs() if summary.thread in threads])
        assert await store.erase(result.thread) == length
        assert {found.summary.thread for found in await store.search("private words")} == {
            apart.thread, *await store.inside(apart.thread),
        }  # fmt: skip
        for thread in threads:
            with pytest.raises(Erased):
                await store.read(thread)
        assert await store.inside(result.thread) == threads[1:]
        assert (await World(store).through(apart.thread)).stop == "done"

    asyncio.run(main())


def test_nothing_is_erased_while_an_agent_inside_is_at_work(store: AnyStore) -> None:
    async def main() -> None:
        result = await World(store).waiting()
        payer = (await names(store))["boss/clerk/payer"]
        held, _ = await store.open(payer, holder="somebody")
        with pytest.raises(LeaseHeld):
            await store.erase(result.thread)
        assert await store.read(result.thread)
        await held.aclose()

    asyncio.run(main())


def test_erasing_one_branch_leaves_the_agents_of_the_others(store: AnyStore) -> None:
    """A call that went on in a fork has an agent of its own there, and only that one goes."""

    async def main() -> None:
        world = World(store)
        result = await world.waiting()
        fork = await world.boss.thread(result.thread).fork()
        assert (await fork.resume()).stop == "approval"
        threads = await store.inside(result.thread)
        before = {summary.log for summary in await store.logs() if not summary.erased}
        await store.erase(fork.log)
        gone = before - {summary.log for summary in await store.logs() if not summary.erased}
        assert fork.log in gone
        assert not gone & {result.thread, *threads}
        assert len(gone) == 3
        assert (await world.through(result.thread)).stop == "done"
        assert world.done == ["pay", "sign"]

    asyncio.run(main())


@pytest.mark.parametrize("force", [False, True])
def test_retention_keeps_or_erases_a_thread_with_its_agents(store: AnyStore, force: bool) -> None:
    """An agent is not taken away from a thread that waits for it, nor left when the thread goes."""

    async def main() -> None:
        result = await World(store).waiting()
        threads = (result.thread, *await store.inside(result.thread))
        late = max(summary.changed for summary in await store.logs()) + 10.0
        swept = await keep(store, older_than=0.0, force=force, clock=lambda: late)
        assert set(swept.erased) == (set(threads) if force else set())
        assert [(one.thread, one.why) for one in swept.spared] == ([] if force else [(result.thread, "waiting")])
        assert all(bool(summary.erased) == force for summary in await store.logs())
        assert (await keep(store, older_than=0.0, force=True, dry=True, clock=lambda: late)).erased == (
            () if force else threads
        )

    asyncio.run(main())


def test_an_agent_is_as_old_as_the_thread_that_it_belongs_to(store: AnyStore) -> None:
    """The thread was used after its agent had come to its end."""

    async def main() -> None:
        world = World(store)
        result = await world.waiting()
        await world.through(result.thread)
        inner = max(summary.changed for summary in await store.logs() if summary.thread != result.thread)
        swept = await keep(store, older_than=0.0, clock=lambda: inner)
        assert (swept.erased, swept.spared) == ((), ())
        assert all(not summary.erased for summary in await store.logs())

    asyncio.run(main())


def test_agents_of_a_thread_that_was_erased_long_ago_can_still_be_erased() -> None:
    """What stays of an erased thread tells whose agents are left."""

    async def main() -> None:
        store = MemoryStore()
        result = await World(store).waiting()
        threads = await store.inside(result.thread)
        kept = [encode_event(event) for event in await store.read(threads[-1])]
        assert any(b"private words" in line for line in kept)
        await store.erase(result.thread, seqs=range(1, (await store.link(result.thread)).seq + 1))
        assert await store.inside(result.thread) == threads
        await store.erase(result.thread)
        assert list(await store.search("private words")) == []

    asyncio.run(main())


def test_the_lines_of_agents_stand_after_those_of_their_thread(store: AnyStore) -> None:
    async def main() -> None:
        result = await World(store).waiting()
        kinds = [msgspec.json.decode(line, type=dict[str, object]) for line in await exported(store, result.thread)]
        threads = [line["thread"] for line in kinds if line["kind"] == "evener.thread"]
        assert threads == [result.thread, *await store.inside(result.thread)]

    asyncio.run(main())
