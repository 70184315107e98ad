"""Recovery of effects: intent before dispatch, a key of ours, `verify` where there is one, else honesty or a question."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evener import Harness, MemoryStore, Thread, ToolContext, tool
from evener import events as ev
from evener.errors import ApprovalStale, EvenerError, UsageError
from evener.events import Verdict
from evener.harness import Subagent
from evener.harness.approvals import Decision
from evener.harness.harness import UnknownOutcome
from evener.policy import Policy, Rule
from evener.result import RunResult
from evener.store.protocol import Note, Store
from evener.store.sqlite.store import SqliteStore
from evener.testing.scripted_model import ScriptedModel, calls
from evener.testing.servers import Call, FakeServer, turn
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall, ToolResult
from evener.transcript.reply import Reply
from tests.shape.tree import ROOT


def payer(ask: Ask) -> object:
    last = ask.transcript.last
    assert last is not None
    results = [block.text for block in last.blocks if isinstance(block, ToolResult)]
    return " / ".join(results) if results else calls(ToolCall.of("c", "pay", {"amount": 5}))


class Bank:
    """Pays. While it `stands`, a payment waits for ever, before it is made or `after`."""

    def __init__(self, store: Store, *, unknown: UnknownOutcome = "ask", **settings: Any) -> None:
        self.stands = True
        self.begun = asyncio.Event()
        self.paid: list[str] = []

        async def pay(amount: int, context: ToolContext[object]) -> str:
            """Pay."""
            self.begun.set()
            if self.stands:
                await asyncio.sleep(60)
            self.paid.append(f"{amount} {context.key}")
            return f"paid {amount}"

        self.harness = Harness(ScriptedModel(payer), tools=[tool(pay, **settings)], store=store, unknown_outcome=unknown)  # type: ignore[arg-type]

    async def crashed(self, thread: Thread, prompt: str = "pay 5") -> None:
        """A run that died while it paid."""
        self.begun.clear()
        task = asyncio.create_task(thread.run(prompt) if prompt else thread.resume())
        await self.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


DECISIONS: dict[str, tuple[Decision, str, int]] = {
    "it did not happen: run it": (Decision("allow"), "paid 5", 1),
    "it happened: here is the result": (Decision("reject", result="receipt 17"), "receipt 17", 0),
    "it happened and gave nothing": (Decision("reject", result=""), "took effect", 0),
    "unknown": (Decision("reject", why="The bank is closed."), "not known whether it took effect", 0),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_a_user_decides_what_became_of_an_interrupted_write(case: str) -> None:
    """S4.26: asked once, decided once, and done once."""
    decision, told, paid = DECISIONS[case]

    async def go() -> None:
        store = MemoryStore()
        bank = Bank(store)
        thread = bank.harness.thread()
        await bank.crashed(thread)
        bank.stands = False
        asked = await thread.resume()
        assert (asked.stop, bank.paid) == ("approval", [])
        [waits] = asked.approvals
        assert (waits.interrupt, waits.key, waits.thread) == ("outcome", "outcome:c", thread.log)
        assert waits.call is not None
        assert waits.call.args == {"amount": 5}
        assert "is unknown" in waits.why
        again = await thread.resume()
        assert [one.id for one in again.approvals] == [waits.id], "it is not asked twice"
        await thread.decide({waits.key: decision})
        with pytest.raises(ApprovalStale):
            await thread.decide({waits.key: Decision("allow")})
        result = await thread.resume()
        assert result.stop == "done"
        assert told in result.text
        assert len(bank.paid) == paid
        [record] = result.records
        assert record.starts == 1 + paid
        assert record.result is not None
        assert record.result.outcome == ("unknown" if case == "unknown" else "done")
        keys = {event.key for event in await store.read(thread.log) if isinstance(event, ev.CallStarted)}
        assert len(keys) == 1, "every start has the same key"
        if case == "unknown":
            assert "The bank is closed." in result.text
        with pytest.raises(ApprovalStale, match="Nothing waits"):
            await thread.decide({waits.key: Decision("allow")})

    asyncio.run(go())


def test_interrupted_again_it_is_asked_again() -> None:
    """A decision counts for one start."""

    async def go() -> None:
        bank = Bank(MemoryStore())
        thread = bank.harness.thread()
        await bank.crashed(thread)
        seen = set()
        for _ in range(3):
            [waits] = (await thread.resume()).approvals
            seen.add(waits.id)
            await thread.decide({waits.key: Decision("allow")})
            await bank.crashed(thread, prompt="")
        assert len(seen) == 3
        bank.stands = False
        [waits] = (await thread.resume()).approvals
        await thread.decide({waits.key: Decision("allow")})
        assert (await thread.resume()).text == "paid 5"
        assert len(bank.paid) == 1

    asyncio.run(go())


@pytest.mark.parametrize(
    ("settings", "paid"),
    [
        ({"effect": "write", "verify": lambda amount: amount == 5}, 0),
        ({"effect": "write", "verify": lambda amount: amount != 5}, 1),
        ({"effect": "idempotent"}, 1),
        ({"effect": "read"}, 1),
    ],
)
def test_nobody_is_asked_about_what_can_be_verified_or_repeated(settings: dict[str, Any], paid: int) -> None:
    async def go() -> RunResult:
        bank = Bank(MemoryStore(), **settings)
        thread = bank.harness.thread()
        await bank.crashed(thread)
        bank.stands = False
        result = await thread.resume()
        assert len(bank.paid) == paid
        return result

    assert asyncio.run(go()).stop == "done"


def test_told_by_default_and_asked_when_it_is_said() -> None:
    async def go(unknown: UnknownOutcome, **more: object) -> str:
        bank = Bank(MemoryStore(), unknown=unknown)
        thread = bank.harness.thread(**more)  # type: ignore[arg-type]
        await bank.crashed(thread)
        return (await thread.resume()).stop

    assert asyncio.run(go("tell")) == "done"
    assert asyncio.run(go("ask")) == "approval"
    harness = Harness(ScriptedModel(payer), store="memory", interrupts=["outcome"])  # type: ignore[arg-type]
    assert harness.thread() is not None


def test_decisions_that_do_not_fit_are_refused_and_decide_nothing() -> None:
    async def go() -> None:
        bank = Bank(MemoryStore())
        thread = bank.harness.thread()
        await bank.crashed(thread)
        [waits] = (await thread.resume()).approvals
        for decision, why in (
            (Decision("allow", result="x"), "runs again and takes no result"),
            (Decision("allow", arguments={"amount": 6}), "with the same arguments"),
            (Decision("reject", arguments={"amount": 6}), "with the same arguments"),
        ):
            with pytest.raises(UsageError, match=why):
                await thread.decide({waits.key: decision})
        with pytest.raises(UsageError, match="one decision for each approval that waits"):
            await thread.decide({"c": Decision("allow")})
        await thread.decide({waits.key: Decision("reject")})

    asyncio.run(go())


def test_a_call_that_has_not_run_has_no_result_to_give() -> None:
    async def go() -> None:
        bank = Bank(MemoryStore(), approval=True)
        thread = bank.harness.thread()
        [waits] = (await thread.run("pay")).approvals
        with pytest.raises(UsageError, match="has no result"):
            await thread.decide({waits.key: Decision("reject", result="x")})

    asyncio.run(go())


def test_arguments_that_were_edited_run_again_as_they_were_edited() -> None:
    """Also where nobody is asked: an idempotent call is repeated with what it was started with."""

    async def go(unknown: UnknownOutcome, **settings: object) -> list[str]:
        bank = Bank(MemoryStore(), unknown=unknown, approval=True, **settings)
        thread = bank.harness.thread()
        [waits] = (await thread.run("pay")).approvals
        await thread.decide({waits.key: Decision("allow", arguments={"amount": 7})})
        await bank.crashed(thread, prompt="")
        bank.stands = False
        result = await thread.resume()
        for lost in result.approvals:
            await thread.decide({lost.key: Decision("allow")})
            result = await thread.resume()
        assert "The user changed the arguments" in result.text
        return [line.split()[0] for line in bank.paid]

    assert asyncio.run(go("ask")) == ["7"]
    assert asyncio.run(go("tell", effect="idempotent")) == ["7"]


def test_siblings_wait_for_the_decision() -> None:
    """S2.68: neither the call nor its siblings go on before somebody has decided."""
    looked: list[str] = []

    async def go() -> None:
        begun = asyncio.Event()
        stands = True

        @tool(sequential=True)
        async def pay() -> str:
            """Pay."""
            begun.set()
            if stands:
                await asyncio.sleep(60)
            return "paid"

        @tool(effect="read")
        def look() -> str:
            """Look."""
            looked.append("looked")
            return "seen"

        def script(ask: Ask) -> object:
            if len(ask.transcript) > 1:
                return "end"
            return calls(ToolCall.of("a", "pay", {}), ToolCall.of("b", "look", {}))

        harness = Harness(ScriptedModel(script), tools=[pay, look], store="memory", unknown_outcome="ask")  # type: ignore[arg-type]
        thread = harness.thread()
        task = asyncio.create_task(thread.run("go"))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        stands = False
        result = await thread.resume()
        assert [one.interrupt for one in result.approvals] == ["outcome"]
        assert looked == []
        await thread.decide({"outcome:a": Decision("reject", result="paid by hand")})
        assert (await thread.resume()).stop == "done"
        assert looked == ["looked"]

    asyncio.run(go())


def test_the_question_of_an_agent_inside_reaches_whoever_resumes() -> None:
    async def go() -> None:
        store = MemoryStore()
        bank = Bank(store)
        clerk = Subagent(name="clerk", harness=bank.harness, description="Pays.")

        def boss(ask: Ask) -> object:
            results = [block.text for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]
            return f"boss: {results[-1]}" if results else calls(ToolCall.of("b", "clerk", {"task": "pay 5"}))

        harness = Harness(ScriptedModel(boss), agents=[clerk], store=store)  # type: ignore[arg-type]
        thread = harness.thread()
        await bank.crashed(thread)
        bank.stands = False
        asked = await thread.resume()
        [waits] = asked.approvals
        assert (waits.interrupt, waits.thread != thread.log) == ("outcome", True)
        assert waits.call is not None
        assert (waits.call.id, waits.call.name, waits.call.args) == ("c", "pay", {"amount": 5})
        await thread.decide({waits.key: Decision("allow")})
        assert (await thread.resume()).text == "boss: paid 5"
        assert len(bank.paid) == 1

    asyncio.run(go())


def test_a_prompt_moves_on_from_an_undecided_outcome() -> None:
    async def go() -> None:
        bank = Bank(MemoryStore())
        thread = bank.harness.thread()
        await bank.crashed(thread)
        await thread.resume()
        bank.stands = False
        result = await thread.run("forget it")
        assert "not known whether this call took effect" in str(result.transcript.messages[2].blocks)

    asyncio.run(go())


def test_a_fork_asks_for_itself() -> None:
    """The question of one branch is not decided on another."""

    async def go() -> None:
        bank = Bank(MemoryStore())
        thread = bank.harness.thread()
        await bank.crashed(thread)
        bank.stands = False
        fork = await thread.fork()
        [ours] = (await thread.resume()).approvals
        [theirs] = (await fork.resume()).approvals
        assert ours.id != theirs.id
        await fork.decide({theirs.key: Decision("reject", result="it was paid")})
        assert "it was paid" in (await fork.resume()).text
        assert (await thread.resume()).stop == "approval"

    asyncio.run(go())


# Killed.

FIRST, SECOND = "anthropic:claude-opus-4-5", "openai:gpt-5.1"


def words(*given: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tests.harness.interrupted", *map(str, given)]


def environ(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "EVENER_HOME": str(home / "evener")}


def elsewhere(home: Path, *given: object) -> str:
    done = subprocess.run(words(*given), cwd=ROOT, env=environ(home), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def killed(home: Path, *given: object) -> None:
    """A process that is killed (SIGKILL) while its tool stands still."""
    running = subprocess.Popen(words(*given), cwd=ROOT, env=environ(home), stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
    finally:
        running.kill()
        running.wait(120)
        if running.stdout is not None:
            running.stdout.close()


def only_thread(path: Path) -> str:
    async def go() -> str:
        store = SqliteStore(path)
        [one] = await store.logs()
        await store.aclose()
        return one.log

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("stands", "verdict", "result", "told"),
    [("before", "allow", "", "paid 5"), ("after", "reject", "receipt 17", "receipt 17"), ("after", "reject", "", "not known")],
)
def test_killed_in_the_middle_of_a_write_others_ask_decide_and_go_on(
    stands: str, verdict: Verdict, result: str, told: str, tmp_path: Path
) -> None:
    """kill -9, then three more processes and another provider: paid exactly once, whatever was decided."""
    path, paid = tmp_path / "runs.db", tmp_path / "runs.db.paid"
    with FakeServer("anthropic_messages", [turn(Call("pay", {"amount": 5}, id="c1"))], key="sk-loopback") as server:
        killed(tmp_path, "start", path, FIRST, server.url, stands)
    thread = only_thread(path)
    with FakeServer("openai_responses", ["So it is."], key="sk-loopback") as server:
        assert elsewhere(tmp_path, "resume", path, thread, SECOND, server.url) == "approval outcome outcome:c1"
        assert server.requests == [], "the model is not asked before the decision"
        assert elsewhere(tmp_path, "decide", path, thread, "outcome:c1", verdict, result) == "decided"
        assert elsewhere(tmp_path, "decide", path, thread, "outcome:c1", "allow").startswith("stale")
        assert elsewhere(tmp_path, "resume", path, thread, SECOND, server.url) == "done So it is."
        assert server.rejected == []
        assert told in server.requests[-1].body.decode()
    assert len(paid.read_text().splitlines()) == 1


def test_killed_again_after_the_decision_it_is_asked_again(tmp_path: Path) -> None:
    """Decided to run it, killed while it ran: nobody runs it a third time without being told to."""
    path, paid = tmp_path / "runs.db", tmp_path / "runs.db.paid"
    with FakeServer("anthropic_messages", [turn(Call("pay", {"amount": 5}, id="c1"))], key="sk-loopback") as server:
        killed(tmp_path, "start", path, FIRST, server.url, "before")
    thread = only_thread(path)
    with FakeServer("openai_responses", ["So it is."], key="sk-loopback") as server:
        assert elsewhere(tmp_path, "resume", path, thread, SECOND, server.url).startswith("approval")
        assert elsewhere(tmp_path, "decide", path, thread, "outcome:c1", "allow") == "decided"
        killed(tmp_path, "resume", path, thread, SECOND, server.url, "after")
        assert elsewhere(tmp_path, "resume", path, thread, SECOND, server.url) == "approval outcome outcome:c1"
        assert elsewhere(tmp_path, "decide", path, thread, "outcome:c1", "reject", "it was paid") == "decided"
        assert elsewhere(tmp_path, "resume", path, thread, SECOND, server.url) == "done So it is."
    lines = paid.read_text().splitlines()
    assert len(lines) == 1


# What a harness is given.

WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "tools": (lambda: Harness(ScriptedModel([]), tools=None), "`tools` takes a list of tools or functions"),  # type: ignore[arg-type]
    "a tool": (lambda: Harness(ScriptedModel([]), tools=[5]), "not int"),  # type: ignore[list-item]
    "one text as tools": (lambda: Harness(ScriptedModel([]), tools="add"), "not the text 'add'"),  # type: ignore[arg-type]
    "store": (lambda: Harness(ScriptedModel([]), store=object()), "`store` takes a path"),  # type: ignore[arg-type]
    "a store's class": (lambda: Harness(ScriptedModel([]), store=MemoryStore), "`store` takes a path"),  # type: ignore[arg-type]
    "interrupts": (lambda: Harness(ScriptedModel([]), interrupts=["everything"]), "'tool', 'output'"),  # type: ignore[list-item]
    "one interrupt": (lambda: Harness(ScriptedModel([]), interrupts="output"), "not the text 'output'"),  # type: ignore[arg-type]
    "no interrupts": (lambda: Harness(ScriptedModel([]), interrupts=None), "leave it out"),  # type: ignore[arg-type]
    "model": (lambda: Harness(5), "`model` takes a model string"),  # type: ignore[arg-type]
    "no models": (lambda: Harness([]), "needs a model"),
    "a model in a chain": (lambda: Harness([ScriptedModel([]), None]), "`model` takes"),  # type: ignore[list-item]
    "limits": (lambda: Harness(ScriptedModel([]), limits=5), "`limits` takes Limits"),  # type: ignore[arg-type]
    "policy": (lambda: Harness(ScriptedModel([]), policy="allow"), "`policy` takes a Policy"),  # type: ignore[arg-type]
    "hooks": (lambda: Harness(ScriptedModel([]), hooks=[print]), "`hooks` takes"),  # type: ignore[list-item]
    "agents": (lambda: Harness(ScriptedModel([]), agents=[5]), "`agents` takes"),  # type: ignore[list-item]
    "name": (lambda: Harness(ScriptedModel([]), name=None), "`name` takes a text"),  # type: ignore[arg-type]
    "decide_within": (lambda: Harness(ScriptedModel([]), decide_within=-1), "0 for no deadline"),
    "no decide_within": (lambda: Harness(ScriptedModel([]), decide_within=None), "0 for no deadline"),  # type: ignore[arg-type]
    "unknown_outcome": (lambda: Harness(ScriptedModel([]), unknown_outcome="guess"), '"tell" or "ask"'),  # type: ignore[arg-type]
    "scratchpad": (lambda: Harness(ScriptedModel([]), scratchpad="yes"), "`scratchpad` takes"),  # type: ignore[arg-type]
    "id": (lambda: Harness(ScriptedModel([])).thread(5), "`id` takes the id"),  # type: ignore[arg-type]
    "branch": (lambda: Harness(ScriptedModel([])).thread(branch=None), "`branch` takes"),  # type: ignore[arg-type]
    "a thread's limits": (lambda: Harness(ScriptedModel([])).thread(limits="low"), "`limits` takes"),  # type: ignore[arg-type]
    "history": (lambda: Harness(ScriptedModel([])).thread(history="hello"), "`history` takes"),  # type: ignore[arg-type]
    "a message": (lambda: Harness(ScriptedModel([])).thread(history=["hello"]), "`history` takes"),  # type: ignore[list-item]
    "prompt": (lambda: Harness(ScriptedModel([]), store="memory").run_sync(None), "A prompt is a text"),  # type: ignore[arg-type]
    "a block": (lambda: Harness(ScriptedModel([]), store="memory").run_sync([5]), "int"),  # type: ignore[list-item]
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_of_a_wrong_kind_is_refused_with_what_was_expected(case: str) -> None:
    act, told = WRONG[case]
    with pytest.raises(UsageError) as found:
        act()
    assert told in str(found.value)


class Till:
    """A tool whose first start never ends; remembers with what it was started, and what its `verify` was asked about."""

    def __init__(self, effect: str, *, verifies: bool, approval: bool = True) -> None:
        self.ran: list[int] = []
        self.checked: list[int] = []

        async def pay(amount: int) -> str:
            """Pay."""
            self.ran.append(amount)
            if len(self.ran) == 1:
                await asyncio.sleep(60)
            return f"paid {amount}"

        def check(amount: int) -> bool:
            self.checked.append(amount)
            return False

        settings: dict[str, Any] = {"verify": check} if verifies else {}
        self.tool = tool(pay, approval=approval, effect=effect, **settings)  # type: ignore[call-overload]

    async def crashed(self, harness: Harness, *, decision: Decision | None) -> str:
        """A run of which somebody decided, perhaps, and that died while the tool ran."""
        thread = harness.thread()
        if decision is not None:
            await thread.run("pay")
            await thread.decide({"c": decision})
        task = asyncio.create_task(thread.run("pay") if decision is None else thread.resume())
        while not self.ran:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return thread.id


@pytest.mark.parametrize(("effect", "verifies"), [("idempotent", False), ("read", False), ("write", True)])
def test_what_is_repeated_is_what_was_allowed(effect: str, verifies: bool) -> None:
    async def main() -> None:
        till, store = Till(effect, verifies=verifies), MemoryStore()
        script: list[Reply | EvenerError | str] = [calls(ToolCall.of("c", "pay", {"amount": 5000})), "done"]
        harness = Harness(ScriptedModel(script), tools=[till.tool], store=store)
        thread = await till.crashed(harness, decision=Decision("allow", arguments={"amount": 3}))
        result = await harness.resume(thread)
        assert (till.ran, till.checked) == ([3, 3], [3] * verifies)
        assert result.ok

    asyncio.run(main())


@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_a_repetition_is_judged_by_the_rules_of_now(verdict: str) -> None:
    async def main() -> None:
        till, store = Till("idempotent", verifies=False, approval=False), MemoryStore()
        script: list[Reply | EvenerError | str] = [calls(ToolCall.of("c", "pay", {"amount": 5000})), "done"]
        thread = await till.crashed(Harness(ScriptedModel(script), tools=[till.tool], store=store), decision=None)
        policy = Policy((Rule(tool="pay", verdict=verdict),))  # type: ignore[arg-type]
        stricter = Harness(ScriptedModel(["done"]), tools=[till.tool], store=store, policy=policy)
        result = await stricter.resume(thread)
        assert till.ran == [5000]
        if verdict == "deny":
            assert result.ok
            assert [record.result.outcome for record in result.records if record.result] == ["unknown"]
        else:
            assert [approval.key for approval in result.approvals] == ["c"]
            await stricter.decide(thread, {"c": Decision("allow")})
            assert (await stricter.resume(thread)).ok
            assert till.ran == [5000, 5000]

    asyncio.run(main())


def test_edited_arguments_that_are_not_those_that_were_judged_do_not_run() -> None:
    async def main() -> None:
        till, store = Till("read", verifies=False), MemoryStore()
        till.ran.append(0)  # no start hangs
        harness = Harness(
            ScriptedModel([calls(ToolCall.of("c", "pay", {"amount": 5})), "done"]), tools=[till.tool], store=store
        )
        waiting = await harness.run("pay")
        forged = {
            "id": waiting.approvals[0].id,
            "key": "c",
            "verdict": "allow",
            "arguments": '{"amount":99999}',
            "digest": "bogus",
        }
        note = Note("forged", "decide", msgspec.json.encode({"decisions": [forged]}).decode())
        assert await store.post(waiting.thread, note)
        result = await harness.resume(waiting.thread)
        assert till.ran == [0]
        assert "ApprovalStale" in str([record.result for record in result.records])

    asyncio.run(main())
