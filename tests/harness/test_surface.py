"""What a program finds around its runs: names, a logger, threads that wait, labels of branches, calls that are run once."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import evener
from evener import Harness, MemoryStore, SqliteStore, tool
from evener.errors import ServerError, UsageError
from evener.events import Effect
from evener.harness import Decision
from evener.result import RunResult
from evener.store import LeaseHeld
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript import ToolCall


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def test_the_package_lists_its_names_and_reads_like_a_page() -> None:
    assert set(dir(evener)) == set(evener.__all__)
    done = subprocess.run([sys.executable, "-c", "import evener; help(evener)"], capture_output=True, text=True, check=True)
    assert "harness.run_sync(" in done.stdout
    assert [name for name in evener.__all__ if name.strip("_") not in done.stdout.replace("VERSION", "version")] == []


@pytest.mark.parametrize("effect", ["read", "idempotent", "write"])
def test_s0_52_the_same_call_twice_in_one_batch_is_run_once_unless_it_writes(effect: Effect) -> None:
    """S0.52."""
    ran: list[str] = []

    @tool(effect=effect)
    async def look(item: str) -> str:
        """Look."""
        ran.append(item)
        await asyncio.sleep(0)
        return item

    asked = [
        ToolCall("a", "look", '{"item": "x"}'),
        ToolCall("b", "look", '{"item":"x"}'),
        ToolCall("c", "look", '{"item":"y"}'),
    ]
    result = Harness(ScriptedModel([calls(*asked), "done"]), tools=[look], store="memory").run_sync("go")
    told = [record.result.content[0].text for record in result.records if record.result]  # type: ignore[union-attr]
    assert [record.ok for record in result.records] == [True] * 3
    assert sorted(ran) == (["x", "x", "y"] if effect == "write" else ["x", "y"])
    assert told[0] == told[1]


def test_a_call_that_fails_fails_for_its_twin_too() -> None:
    ran: list[str] = []

    @tool(effect="read")
    def look(item: str) -> str:
        """Look."""
        ran.append(item)
        raise ValueError("no")

    asked = [ToolCall.of(name, "look", {"item": "x"}) for name in "ab"]
    result = Harness(ScriptedModel([calls(*asked), "done"]), tools=[look], store="memory").run_sync("go")
    assert ([record.ok for record in result.records], len(ran)) == ([False, False], 1)


def test_the_logger_is_silent_and_tells_who_listens(caplog: pytest.LogCaptureFixture) -> None:
    code = (
        "from evener import Harness; from evener.testing import ScriptedModel; from evener.errors import ServerError\n"
        "try: Harness(ScriptedModel([ServerError('down')]*9), store='memory').run_sync('secret words')\n"
        "except ServerError: pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    with caplog.at_level(logging.INFO, "evener"):
        Harness(ScriptedModel(["done"]), store="memory").run_sync("secret words")
        with pytest.raises(ServerError):
            Harness(ScriptedModel([ServerError("down")] * 9), store="memory").run_sync("secret words")
    told = caplog.text
    assert ["begins" in told, "stopped: done, 1 requests" in told, "failed in thread" in told] == [True] * 3
    assert "secret words" not in told


@pytest.mark.parametrize("kind", [MemoryStore, SqliteStore])
def test_a_store_lists_the_threads_that_wait(kind: type[MemoryStore] | type[SqliteStore], tmp_path: object) -> None:
    script: list[Line] = [calls(ToolCall.of("a", "pay", {"amount": 5})), "done"]

    async def go() -> tuple[list[str], list[str], str]:
        store = SqliteStore(f"{tmp_path}/log.db") if kind is SqliteStore else MemoryStore()
        harness = Harness(ScriptedModel([*script, "never"]), tools=[pay], store=store)
        await harness.with_model(ScriptedModel(["done"])).run("nothing waits")
        paused = await harness.run("pay")
        before = [one.thread for one in await store.waiting()]
        await harness.decide(paused.thread, {"a": Decision("allow")})
        await harness.resume(paused.thread)
        after = [one.thread for one in await store.waiting()]
        await harness.aclose()
        return before, after, paused.thread

    before, after, thread = asyncio.run(go())
    assert (before, after) == ([thread], [])


def test_a_branch_has_a_label() -> None:
    async def go() -> tuple[str, str]:
        harness = Harness(ScriptedModel(["1", "2"]), store=MemoryStore())
        thread = harness.thread()
        await thread.run("go")
        fork = await thread.fork(label="the cheaper way")
        with pytest.raises(UsageError, match="one line of at most 80"):
            await thread.fork(label="x\ny")
        from evener.cli.commands.stored.threads import tree_lines

        return fork.id, "\n".join(await tree_lines(harness.store, fork.log))

    fork, tree = asyncio.run(go())
    assert f"{fork[:8]}" in tree
    assert "[the cheaper way]" in tree


def test_the_traceback_of_a_sync_run_begins_with_the_error_of_the_run() -> None:
    with pytest.raises(UsageError) as caught:
        Harness(ScriptedModel(["done"]), store="memory").resume_sync("")
    assert caught.value.__context__ is None


def test_of_two_callers_that_begin_one_thread_at_once_one_finds_it_busy_or_continues_it(tmp_path: Path) -> None:
    async def go() -> list[RunResult | BaseException]:
        store = SqliteStore(tmp_path / "x.db")
        harness = Harness(ScriptedModel(lambda _: "done"), store=store)
        both = await asyncio.gather(*(harness.thread("chat", begin=True).run("go") for _ in range(2)), return_exceptions=True)
        await store.aclose()
        return both

    both = asyncio.run(go())
    assert any(isinstance(one, RunResult) for one in both)
    assert all(isinstance(one, RunResult | LeaseHeld) for one in both), both
