"""Paused runs outlive their process: decided by another one, once, and resumed on another provider; waiting costs nothing.

The long forms are `python -m bench control`.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.control import broken_schedules, pause_apart, race, race_processes
from evener import Harness, Limits, MemoryStore, SqliteStore, tool
from evener.budget import Budget
from evener.errors import ApprovalStale
from evener.events import Verdict
from evener.harness import Subagent
from evener.harness.approvals import Decision, keyed
from evener.policy.rules import Defaults, Policy, Rule
from evener.result import RunResult
from evener.store.protocol import Note
from evener.testing.scripted_model import ScriptedModel, calls
from evener.testing.servers import Call, FakeServer, turn
from evener.transcript.blocks import ToolCall
from tests.shape.tree import ROOT

OTHERS = {
    "openai_responses": "openai:gpt-5.1",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-pro-preview",
}


def words(*given: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tests.harness.elsewhere", *map(str, given)]


def elsewhere(home: Path, *given: object) -> str:
    """What another process says, which must end well by itself."""
    environ = {**os.environ, "HOME": str(home), "EVENER_HOME": str(home / "evener")}
    done = subprocess.run(words(*given), cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def killed_while_it_waits(home: Path, path: Path) -> tuple[str, str, str]:
    """A process that runs until it must ask, and is killed then. The thread, the key and the digest of what waits."""
    environ = {**os.environ, "HOME": str(home), "EVENER_HOME": str(home / "evener")}
    with FakeServer("anthropic_messages", [turn(Call("pay", {"amount": 5}, id="c1"))], key="sk-loopback") as server:
        command = words("start", path, "anthropic:claude-opus-4-5", server.url)
        running = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
        try:
            assert running.stdout is not None
            stop, thread, key, digest = running.stdout.readline().split()
        finally:
            running.kill()
            running.wait(120)
            if running.stdout is not None:
                running.stdout.close()
        assert (stop, server.rejected) == ("approval", [])
    return thread, key, digest


@pytest.mark.parametrize("wire", OTHERS)
def test_killed_decided_elsewhere_and_resumed_on_another_provider(wire: str, tmp_path: Path) -> None:
    path, paid = tmp_path / "runs.db", tmp_path / "runs.db.paid"
    thread, key, digest = killed_while_it_waits(tmp_path, path)
    assert elsewhere(tmp_path, "decide", path, thread, key, "allow", digest) == "decided"
    assert not paid.exists(), "deciding runs nothing"
    with FakeServer(wire, ["It is paid."], key="sk-loopback") as server:
        assert elsewhere(tmp_path, "resume", path, thread, OTHERS[wire], server.url) == "done It is paid."
        assert server.rejected == []
        assert b"paid 5" in server.requests[-1].body
    assert paid.read_text() == "5\n"


def test_a_decision_for_something_else_is_stale_in_every_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    thread, key, digest = killed_while_it_waits(tmp_path, path)
    other = digest[::-1]
    assert elsewhere(tmp_path, "decide", path, thread, key, "allow", other).startswith("stale The decision about 'c1' has")
    changed = elsewhere(tmp_path, "decide", path, thread, key, "allow", digest, "USD")
    assert changed.startswith("stale The tool 'pay' has changed.")
    assert elsewhere(tmp_path, "decide", path, thread, key, "reject", digest) == "decided"
    assert elsewhere(tmp_path, "decide", path, thread, key, "allow", digest).startswith(
        f"stale Thread {thread} is already decided"
    )
    with FakeServer("openai_responses", ["As you wish."], key="sk-loopback") as server:
        assert elsewhere(tmp_path, "resume", path, thread, "openai:gpt-5.1", server.url) == "done As you wish."
    assert not (tmp_path / "runs.db.paid").exists()


# Races.


def raced(path: Path, count: int, kind: type[SqliteStore] = SqliteStore) -> list[str]:
    async def go() -> list[str]:
        stores = [kind(path) for _ in range(4)]
        try:
            return await race(count, stores=stores, seed=6)
        finally:
            for store in stores:
                await store.aclose()

    return asyncio.run(go())


def test_a_thousand_races_to_decide_have_one_winner_each(tmp_path: Path) -> None:
    assert raced(tmp_path / "runs.db", 1000) == []


def test_races_between_processes_have_one_winner_each(tmp_path: Path) -> None:
    assert race_processes(40, rivals=4, path=tmp_path / "runs.db") == []


class Careless(SqliteStore):
    """Tells everybody that theirs was the first."""

    async def post(self, log: str, note: Note) -> bool:
        await super().post(log, note)
        return True


def test_a_race_with_two_winners_is_caught(tmp_path: Path) -> None:
    assert "has 4 winners" in raced(tmp_path / "runs.db", 1, Careless)[0]


# Waiting.


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured with /proc")
def test_a_thousand_paused_runs_hold_no_memory_task_or_timer(tmp_path: Path) -> None:
    cost = pause_apart(1000, tmp_path)
    assert cost.wrong == []


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured with /proc")
def test_paused_runs_that_hold_something_are_caught(tmp_path: Path) -> None:
    wrong = " ".join(pause_apart(400, tmp_path, wasteful=True).wrong)
    assert all(what in wrong for what in ("bytes", "400 tasks", "400 timers"))


# Trees.


def test_a_schedule_that_spends_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_schedules(range(1000, 1003)) == []
    monkeypatch.setattr(Budget, "_full", lambda _self, _cost, _whose: None)
    assert len(broken_schedules(range(1000, 1003))) > 0


PAID: list[int] = []


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return "paid"


def agents_that_pay(*amounts: int, store: MemoryStore, policy: Policy | None = None) -> Harness:
    """A root whose agents each want to pay, all under the same call id."""
    agents = [
        Subagent(
            name=f"a{amount}",
            harness=Harness(
                ScriptedModel([calls(ToolCall.of("p", "pay", {"amount": amount})), "paid"]),
                tools=[pay], store=store, policy=policy, limits=Limits(requests=9),
            ),
            description="Pays.",
        )
        for amount in amounts
    ]  # fmt: skip
    batch = calls(*(ToolCall.of(f"c{amount}", f"a{amount}", {"task": "pay"}) for amount in amounts))
    return Harness(ScriptedModel([batch, "done"]), agents=agents, store=store)


def test_calls_of_the_same_id_in_two_agents_are_decided_each_by_itself() -> None:
    PAID.clear()
    root = agents_that_pay(5, 5000, store=MemoryStore())

    async def go() -> RunResult:
        waiting = keyed((await root.run("go")).approvals)
        assert len(waiting) == 2
        assert len({one.key for one in waiting.values()}) == 1
        small = {name for name, one in waiting.items() if one.call and one.call.args == {"amount": 5}}
        verdicts: dict[str, Verdict] = {name: "allow" if name in small else "reject" for name in waiting}
        thread = next(log.log for log in await root.store.logs() if log.harness == "")
        await root.decide(thread, {name: Decision(verdict) for name, verdict in verdicts.items()})
        return await root.resume(thread)

    assert asyncio.run(go()).text == "done"
    assert PAID == [5]


class Slow(MemoryStore):
    """Lets others go first at every step, as a disk does."""

    async def post(self, log: str, note: Note) -> bool:
        await asyncio.sleep(0)
        return await super().post(log, note)


def test_two_who_decide_about_several_agents_never_both_win_a_part() -> None:
    """Whatever order they name the decisions in: else each could be first with another part, and both be told they lost."""

    async def go(flip: bool) -> int:
        root = agents_that_pay(1, 2, store=Slow())
        result = await root.run("go")
        names = list(keyed(result.approvals))

        async def attempt(order: list[str], verdict: Verdict) -> bool:
            try:
                await root.decide(result.thread, {name: Decision(verdict) for name in order})
            except ApprovalStale:
                return False
            return True

        orders = (names, names[::-1]) if flip else (names, names)
        return sum(await asyncio.gather(attempt(list(orders[0]), "allow"), attempt(list(orders[1]), "reject")))

    assert [asyncio.run(go(flip)) for flip in (False, True)] == [1, 1]


def test_edited_arguments_are_judged_again_when_they_run() -> None:
    """A rule that came between the decision and the resumption counts."""
    PAID.clear()
    store = MemoryStore()
    strict = Policy((Rule(tool="pay", verdict="deny", arguments={"amount": 3}, name="not 3"),), Defaults.all("allow"))

    async def go() -> RunResult:
        asking = ScriptedModel([calls(ToolCall.of("p", "pay", {"amount": 5}))])
        result = await Harness(asking, tools=[pay], store=store).run("go")
        lenient = Harness(ScriptedModel([]), tools=[pay], store=store)
        await lenient.decide(result.thread, {"p": Decision("allow", arguments={"amount": 3})})
        return await Harness(ScriptedModel(["done"]), tools=[pay], store=store, policy=strict).resume(result.thread)

    final = asyncio.run(go())
    assert (final.text, PAID) == ("done", [])
    assert final.records[0].result is not None
    assert "not 3" in str(final.records[0].result.content)
