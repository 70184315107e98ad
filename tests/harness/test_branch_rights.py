"""A write that was started, and an approval that was given, belong to the branch: a fork does neither again."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener import events as ev
from evener.driver.record import events_of
from evener.harness import Decision, Subagent, Thread
from evener.result import RunResult
from evener.store import SqliteStore
from evener.store.transfer.jsonl import export_lines, import_lines
from evener.testing import ScriptedModel, calls
from evener.tools.context import ToolContext
from evener.tools.tool import Tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall, ToolResult

AnyStore = MemoryStore | SqliteStore
DEADLINE = 60.0


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AnyStore:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.db")


class Bank:
    """Tools that count effects by key. `gate` holds the first effect back once it has begun."""

    def __init__(self, *, open_gate: bool = True) -> None:
        self.effects: list[tuple[str, str, int]] = []
        self.verified: list[str] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        if open_gate:
            self.gate.set()

    async def act(self, name: str, amount: int, key: str) -> str:
        if not self.begun.is_set():
            self.begun.set()
            await self.gate.wait()
        self.effects.append((name, key, amount))
        return f"{name} {amount}"

    def took_effect(self, amount: int, context: ToolContext[object]) -> bool:
        del amount
        self.verified.append(context.key)
        return any(key == context.key for _, key, _ in self.effects)

    def tools(self) -> list[Tool]:
        def made(name: str, **more: object) -> Tool:
            async def run(amount: int, context: ToolContext[object]) -> str:
                return await self.act(name, amount, context.key)

            return tool(run, name=name, description="Acts.", **more)  # type: ignore[call-overload, no-any-return]

        return [
            made("look", effect="read"),
            made("book", effect="idempotent"),
            made("pay", effect="write"),
            made("post", effect="write", verify=self.took_effect),
            made("sign", effect="write", approval=True),
            made("seal", effect="write", approval=True, verify=self.took_effect),
        ]

    @property
    def keys(self) -> list[str]:
        return [key for _, key, _ in self.effects]


def one_call(name: str) -> Callable[[Ask], object]:
    """Calls the tool once, then repeats its result."""

    def answer(ask: Ask) -> object:
        last = ask.transcript.last
        results = [block.text for block in last.blocks if isinstance(block, ToolResult)] if last else []
        return f"so: {results[0]}" if results else calls(ToolCall.of("c", name, {"amount": 5}))

    return answer


def agent(bank: Bank, name: str, store: AnyStore, **more: object) -> Harness:
    return Harness(ScriptedModel(one_call(name)), tools=bank.tools(), store=store, **more)  # type: ignore[arg-type]


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE))


async def number_of(store: AnyStore, log: str, kind: type[ev.Event]) -> int:
    return next(number for number, event in enumerate(await store.read(log), 1) if isinstance(event, kind))


async def allow(thread: Thread, result: RunResult, **more: object) -> None:
    await thread.decide({one.key: Decision("allow", **more) for one in result.approvals})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pay", "post", "sign", "seal"])
def test_a_write_under_way_on_another_branch_is_never_run_in_a_fork(name: str, store: AnyStore) -> None:
    async def scenario() -> None:
        bank = Bank(open_gate=False)
        thread = agent(bank, name, store).thread()
        parent = asyncio.create_task(_to_its_end(thread))
        await bank.begun.wait()
        forks = [await thread.fork() for _ in range(3)]
        told = [(await fork.resume()).text for fork in forks]
        assert all("not known whether it took effect" in text for text in told)
        grandchild = await forks[0].fork(at=await number_of(store, thread.log, ev.CallStarted))
        assert "not known whether it took effect" in (await grandchild.resume()).text
        bank.gate.set()
        assert (await parent).text == f"so: {name} 5"
        assert len(bank.effects) == 1
        late = await thread.fork(at=await number_of(store, thread.log, ev.CallStarted))
        assert (await late.resume()).text == f"so: {name} 5", "settled by the result of the branch that started it"
        assert len(bank.effects) == 1
        await store.aclose()

    run(scenario())


async def _to_its_end(thread: Thread) -> RunResult:
    result = await thread.run("go")
    while result.stop == "approval":
        await allow(thread, result)
        result = await thread.resume()
    return result


def test_verify_may_settle_a_write_of_another_branch_as_done(store: AnyStore) -> None:
    """The effect is there, and the branch that started the call does not know it yet."""

    async def scenario() -> None:
        bank = Bank(open_gate=False)
        thread = agent(bank, "post", store).thread()
        parent = asyncio.create_task(thread.run("go"))
        await bank.begun.wait()
        [pending] = (await thread.state()).calls
        bank.effects.append(("post", pending.key, 5))  # it has taken effect, and has not returned
        result = await (await thread.fork()).resume()
        assert "this call took effect" in result.text
        bank.effects.clear()
        bank.gate.set()
        await parent
        assert len(bank.effects) == 1
        await store.aclose()

    run(scenario())


@pytest.mark.parametrize("name", ["look", "book"])
def test_a_call_that_may_run_twice_runs_again_under_the_key_of_its_first_start(name: str, store: AnyStore) -> None:
    async def scenario() -> None:
        bank = Bank()
        thread = agent(bank, name, store).thread()
        await thread.run("go")
        fork = await thread.fork(at=await number_of(store, thread.log, ev.CallStarted))
        assert (await fork.resume()).text == f"so: {name} 5"
        assert len(bank.effects) == 2
        assert len(set(bank.keys)) == 1
        await store.aclose()

    run(scenario())


def test_a_fork_that_is_resumed_twice_does_not_take_the_write_for_its_own(store: AnyStore) -> None:
    """To ask `verify` is no start of the fork's: a process that dies while it asks leaves the call where it belongs."""

    async def scenario() -> None:
        bank = Bank(open_gate=False)
        asked = asyncio.Event()

        async def hang(amount: int) -> bool:
            del amount
            asked.set()
            await asyncio.sleep(3600)
            return False

        @tool(effect="write", verify=hang)
        async def post(amount: int, context: ToolContext[object]) -> str:
            """Post."""
            return await bank.act("post", amount, context.key)

        def harness(*tools: Tool) -> Harness:
            return Harness(ScriptedModel(one_call("post")), tools=list(tools), store=store)  # type: ignore[arg-type]

        thread = harness(post).thread()
        parent = asyncio.create_task(thread.run("go"))
        await bank.begun.wait()
        fork = await thread.fork()
        async with fork.resume_stream():
            await asked.wait()  # and leave
        again = harness(*bank.tools()).thread(fork.id)
        assert "not known whether it took effect" in (await again.resume()).text
        bank.gate.set()
        await parent
        assert len(bank.effects) == 1
        await store.aclose()

    run(scenario())


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("name", ["sign", "seal"])
def test_every_fork_asks_again_for_what_was_allowed_and_did_not_run(name: str, edited: bool, store: AnyStore) -> None:
    async def scenario() -> None:
        bank = Bank()
        thread = agent(bank, name, store).thread()
        asked = await thread.run("go")
        await allow(thread, asked, **({"arguments": {"amount": 1}} if edited else {}))
        await thread.resume()
        assert len(bank.effects) == 1
        decided = await number_of(store, thread.log, ev.ApprovalDecided)
        for _ in range(2):
            fork = await thread.fork(at=decided)
            again = await fork.resume()
            assert (again.stop, [one.call.args for one in again.approvals if one.call]) == ("approval", [{"amount": 5}])
            deeper = await (await fork.fork()).resume()
            assert deeper.stop == "approval"
        assert len(bank.effects) == 1
        await allow(fork, again)
        assert (await fork.resume()).text == f"so: {name} 5"
        assert len(set(bank.keys)) == 2, "another branch, another call"
        await store.aclose()

    run(scenario())


def test_a_rejection_stays_rejected_in_a_fork(store: AnyStore) -> None:
    async def scenario() -> None:
        bank = Bank()
        thread = agent(bank, "sign", store).thread()
        asked = await thread.run("go")
        await thread.decide({one.key: Decision("reject") for one in asked.approvals})
        await thread.resume()
        fork = await thread.fork(at=await number_of(store, thread.log, ev.ApprovalDecided))
        assert "ApprovalRejected" in (await fork.resume()).text
        assert bank.effects == []
        await store.aclose()

    run(scenario())


def test_a_decision_to_run_an_interrupted_write_again_counts_for_its_branch_only() -> None:
    """A person may decide so in a fork; what was decided before the fork does not count there."""

    async def scenario() -> None:
        store, bank = MemoryStore(), Bank(open_gate=False)
        harness = agent(bank, "pay", store, unknown_outcome="ask")
        thread = harness.thread()
        async with thread.stream("go"):
            await bank.begun.wait()  # and leave
        bank.gate.set()
        asked = await thread.resume()
        await allow(thread, asked)
        await thread.resume()
        fork = await thread.fork(at=await number_of(store, thread.log, ev.ApprovalDecided))
        again = await fork.resume()
        # The branch that ran it has its result, so there is nothing to ask.
        assert (again.stop, again.text, len(bank.effects)) == ("done", "so: pay 5", 1)

    run(scenario())


def test_a_person_may_run_a_write_of_another_branch_in_a_fork() -> None:
    async def scenario() -> None:
        store, bank = MemoryStore(), Bank(open_gate=False)
        thread = agent(bank, "pay", store, unknown_outcome="ask").thread()
        async with thread.stream("go"):
            await bank.begun.wait()  # and leave: it never happens there
        bank.gate.set()
        fork = await thread.fork()
        asked = await fork.resume()
        assert [one.interrupt for one in asked.approvals] == ["outcome"]
        beside = await (await fork.fork()).resume()
        assert beside.stop == "approval"
        await allow(fork, asked)
        assert (await fork.resume()).text == "so: pay 5"
        assert len(bank.effects) == 1

    run(scenario())


@pytest.mark.parametrize("kind", [ev.ApprovalDecided, ev.Continued])
def test_more_allowance_beyond_a_limit_is_for_the_branch_it_was_given_to(kind: type[ev.Event]) -> None:
    async def scenario() -> None:
        store, bank = MemoryStore(), Bank()
        harness = agent(bank, "look", store, limits=Limits(requests=1), interrupts=["limit"])
        thread = harness.thread()
        asked = await thread.run("go")
        assert [one.interrupt for one in asked.approvals] == ["limit"]
        await allow(thread, asked)
        assert (await thread.resume()).ok
        fork = await thread.fork(at=await number_of(store, thread.log, kind))
        again = await fork.resume()
        assert [one.interrupt for one in again.approvals] == ["limit"]

    run(scenario())


def test_an_approval_inside_an_agent_is_asked_for_again_in_a_fork() -> None:
    async def scenario() -> None:
        store, bank = MemoryStore(), Bank()
        clerk = Harness(ScriptedModel(one_call("sign")), tools=bank.tools(), store=store)  # type: ignore[arg-type]

        def boss(ask: Ask) -> object:
            last = ask.transcript.last
            results = [block.text for block in last.blocks if isinstance(block, ToolResult)] if last else []
            return results[0] if results else calls(ToolCall.of("b", "clerk", {"task": "Sign."}))

        harness = Harness(
            ScriptedModel(boss),  # type: ignore[arg-type]
            agents=[Subagent(name="clerk", harness=clerk, description="Signs.")],
            store=store,
        )
        thread = harness.thread()
        asked = await thread.run("go")
        fork = await thread.fork()
        await allow(thread, asked)
        again = await fork.resume()
        assert (again.stop, len(bank.effects)) == ("approval", 0)
        assert (await thread.resume()).text == "so: sign 5"
        assert len(bank.effects) == 1
        await allow(fork, again)
        await fork.resume()
        assert len(set(bank.keys)) == len(bank.effects) == 2

    run(scenario())


async def _heed(store: SqliteStore, log: str) -> None:
    """Take in what was decided, as a process does that dies before it starts the call."""
    held, _ = await store.open(log, holder="short-lived")
    for note in await held.notes():
        await held.settle(note.number, *events_of(note))
    await held.aclose()


@pytest.mark.parametrize("way", ["export", "backup"])
@pytest.mark.parametrize("case", ["posted", "decided", "started"])
def test_a_copy_in_another_store_asks_again_and_runs_no_write_that_was_started(case: str, way: str, tmp_path: Path) -> None:
    """Both the copy and the original may be gone on with, so neither may count on what only one of them can do."""

    async def scenario() -> None:
        name = "post" if case == "started" else "sign"
        source, bank = SqliteStore(tmp_path / "source.db"), Bank(open_gate=False)
        thread = agent(bank, name, source).thread()
        if case == "started":
            async with thread.stream("go"):
                await bank.begun.wait()  # and leave
        else:
            await allow(thread, await thread.run("go"))
            await _heed(source, thread.log) if case == "decided" else None
        if way == "backup":
            await source.backup(tmp_path / "copy.db")
        copy = SqliteStore(tmp_path / "copy.db")
        if way == "export":
            await import_lines(copy, [line async for line in export_lines(source, thread.id)])
        bank.gate.set()
        result = await agent(bank, name, copy).thread(thread.id).resume()
        assert bank.effects == []
        assert "not known" in result.text if case == "started" else result.stop == "approval"
        await copy.aclose()
        await source.aclose()

    run(scenario())
