"""Approvals and interrupts: the whole batch waits; decisions are made once, about exactly what was asked."""

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from evener import Harness, Limits, MemoryStore, SqliteStore, Tool, tool
from evener import events as ev
from evener.errors import ApprovalStale, UsageError
from evener.harness.approvals import Decision
from evener.result import RunResult
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import TextBlock, ToolCall

ALLOW, REJECT = Decision("allow"), Decision("reject", "too dear")


class Shop:
    """Tools that note what they do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self, *, unit: str = "EUR") -> list[Tool]:
        def pay(amount: int) -> str:
            self.done.append(f"pay {amount}")
            return f"paid {amount} {unit}"

        def look(item: str) -> str:
            self.done.append(f"look {item}")
            return item

        schema = {
            "type": "object",
            "properties": {"amount": {"type": "integer", "maximum": 100}},
            "required": ["amount"],
            "title": unit,
        }
        return [
            Tool.of("pay", schema, function=lambda arguments: pay(**arguments), description="Pay.", approval=True),
            tool(look, description="Look.", effect="read"),
        ]


PAY, LOOK = ToolCall.of("c1", "pay", {"amount": 5}), ToolCall.of("c2", "look", {"item": "tea"})


def paused(
    shop: Shop, store: object = None, *, model: ScriptedModel | None = None, **more: object
) -> tuple[Harness, RunResult]:
    scripted = model or ScriptedModel([calls(PAY, LOOK), "done"])
    one = Harness(scripted, tools=shop.tools(), store=store or MemoryStore(), **more)  # type: ignore[arg-type]
    return one, one.run_sync("buy tea")


def test_a_call_that_needs_a_decision_holds_up_the_whole_batch() -> None:
    """S2.6, S2.68, S4.20."""
    shop = Shop()
    _, result = paused(shop)
    assert (result.stop, shop.done) == ("approval", [])
    assert [approval.call for approval in result.approvals] == [PAY]
    assert [call.id for call in result.pending] == ["c1", "c2"]


def test_allowed_it_runs_once_with_its_siblings_in_order() -> None:
    """S2.71, S2.73."""
    shop = Shop()
    one, result = paused(shop)

    async def go() -> RunResult:
        await one.decide(result.thread, {"c1": ALLOW})
        return await one.resume(result.thread)

    final = asyncio.run(go())
    assert (final.text, sorted(shop.done)) == ("done", ["look tea", "pay 5"])
    assert [record.call.id for record in final.records] == ["c1", "c2"]
    assert final.run == result.run


def test_rejected_it_never_runs_and_the_model_is_told_why() -> None:
    """S2.72, S4.21."""
    shop = Shop()
    model = ScriptedModel([calls(PAY, LOOK), "done"])
    one, result = paused(shop, model=model)

    async def go() -> RunResult:
        await one.decide(result.thread, {"c1": REJECT})
        return await one.resume(result.thread)

    final = asyncio.run(go())
    assert shop.done == ["look tea"]
    assert final.records[0].result is not None
    assert final.records[0].result.content == (TextBlock("ApprovalRejected: too dear"),)


def test_edited_arguments_run_and_the_models_own_call_stays() -> None:
    shop = Shop()
    one, result = paused(shop)

    async def go() -> RunResult:
        await one.decide(result.thread, {"c1": Decision("allow", arguments={"amount": 3})})
        return await one.resume(result.thread)

    final = asyncio.run(go())
    assert "pay 3" in shop.done
    assert final.records[0].call == PAY
    assert final.records[0].result is not None
    assert 'What ran: {"amount":3}' in str(final.records[0].result.content[0])


@pytest.mark.parametrize(
    ("decisions", "error", "said"),
    [
        ({}, UsageError, "missing: c1"),
        ({"c1": ALLOW, "c2": ALLOW}, UsageError, "not asked for: c2"),
        ({"c1": Decision("allow", arguments={"amount": 1000})}, UsageError, "do not fit"),
        ({"c1": Decision("allow", arguments={"amount": "x"})}, UsageError, "do not fit"),
        ({"c1": Decision("allow", digest="other")}, ApprovalStale, "another digest"),
    ],
)
def test_a_wrong_decision_is_refused_and_the_right_one_still_counts(
    decisions: dict[str, Decision], error: type[Exception], said: str
) -> None:
    """S2.70."""
    shop = Shop()
    one, result = paused(shop)

    async def go() -> None:
        with pytest.raises(error, match=said):
            await one.decide(result.thread, decisions)
        await one.decide(result.thread, {"c1": Decision("allow", digest=result.approvals[0].digest)})
        assert (await one.resume(result.thread)).ok

    asyncio.run(go())
    assert shop.done.count("pay 5") == 1


def test_it_is_decided_exactly_once() -> None:
    shop = Shop()
    one, result = paused(shop)

    async def race() -> int:
        async def attempt(number: int) -> bool:
            try:
                await one.decide(result.thread, {"c1": ALLOW if number % 2 else REJECT})
            except ApprovalStale:
                return False
            return True

        return sum(await asyncio.gather(*(attempt(number) for number in range(50))))

    assert asyncio.run(race()) == 1


def test_a_decision_after_another_one_or_a_cancel_is_stale_whatever_waits_now() -> None:
    """It would be about something else, or be lost: a run that was cancelled asks anew when it is resumed."""
    shop = Shop()
    again = ToolCall.of("c9", "pay", {"amount": 9})
    one, result = paused(shop, model=ScriptedModel([calls(PAY), calls(again), "done"]))
    shown = {"c1": Decision("allow", digest=result.approvals[0].digest)}

    async def go() -> None:
        thread = one.thread(result.thread)
        await thread.decide({"c1": REJECT})
        (waits,) = (await thread.resume()).approvals
        with pytest.raises(ApprovalStale, match=r"c1 no longer waits in thread .* Still waiting: c9"):
            await thread.decide(shown)
        await thread.cancel("enough")
        ended = await thread.resume()
        assert (ended.stop, ended.approvals, await thread.approvals()) == ("cancelled", (), ())
        with pytest.raises(ApprovalStale, match="or the run continued or ended"):
            await thread.decide({"c9": Decision("allow", digest=waits.digest)})
        (anew,) = (await thread.resume()).approvals
        assert anew.id != waits.id
        await thread.decide({"c9": Decision("allow", digest=anew.digest)})
        assert (await thread.resume()).ok

    asyncio.run(go())
    assert shop.done == ["pay 9"]


def test_a_changed_schema_is_asked_about_again() -> None:
    """S2.70."""
    shop = Shop()
    store = MemoryStore()
    one, result = paused(shop, store)

    async def go() -> None:
        other = Harness(ScriptedModel(["done"]), tools=shop.tools(unit="USD"), store=store)
        with pytest.raises(ApprovalStale, match="has changed"):
            await other.decide(result.thread, {"c1": ALLOW})
        await one.decide(result.thread, {"c1": ALLOW})  # decided by a process that has the old schema
        again = await other.resume(result.thread)
        assert again.stop == "approval"
        assert again.approvals[0].digest != result.approvals[0].digest
        assert shop.done == []
        await other.decide(result.thread, {"c1": ALLOW})
        assert (await other.resume(result.thread)).ok

    asyncio.run(go())
    assert shop.done.count("pay 5") == 1


def test_a_decision_that_comes_too_late_is_stale_and_it_is_asked_again() -> None:
    shop = Shop()
    one, result = paused(shop, decide_within=0.001)

    async def go() -> None:
        await asyncio.sleep(0.01)
        with pytest.raises(ApprovalStale, match="deadline for"):
            await one.decide(result.thread, {"c1": ALLOW})
        again = await one.resume(result.thread)
        assert again.stop == "approval"
        assert again.approvals[0].id != result.approvals[0].id

    asyncio.run(go())
    assert shop.done == []


def test_another_process_decides_and_another_model_goes_on(tmp_path: Path) -> None:
    """S2.69, S2.71."""
    shop = Shop()
    _, result = paused(shop, SqliteStore(tmp_path / "runs.db"))

    async def elsewhere() -> RunResult:
        other = Harness(ScriptedModel(["as you wish"], name="other:model"), tools=shop.tools(), store=tmp_path / "runs.db")
        await other.decide(result.thread, {"c1": ALLOW})
        return await other.resume(result.thread)

    final = asyncio.run(elsewhere())
    assert (final.text, sorted(shop.done)) == ("as you wish", ["look tea", "pay 5"])


# Other interrupts (S4.20).


def interrupted(interrupt: str, script: list[object], **more: object) -> tuple[Harness, RunResult]:
    one = Harness(ScriptedModel(script), tools=Shop().tools()[1:], store="memory", interrupts=[interrupt], **more)  # type: ignore[arg-type, list-item]
    return one, one.run_sync("go")


def decided(one: Harness, result: RunResult, decision: Decision) -> RunResult:
    async def go() -> RunResult:
        await one.decide(result.thread, {result.approvals[0].key: decision})
        return await one.resume(result.thread)

    return asyncio.run(go())


def test_the_final_answer_waits_to_be_accepted() -> None:
    """S4.20, S4.21."""
    one, result = interrupted("output", ["first", "second"])
    assert (result.stop, result.text) == ("approval", "first")
    again = decided(one, result, Decision("reject", "Say it better."))
    assert (again.stop, again.text) == ("approval", "second")
    assert decided(one, again, ALLOW).ok


def test_each_step_waits_to_be_allowed() -> None:
    """S4.20, S4.21."""
    one, result = interrupted("step", [calls(LOOK), "done"])
    assert result.stop == "approval"
    second = decided(one, result, ALLOW)
    assert second.stop == "approval"
    assert decided(one, second, Decision("reject", "enough")).stop == "cancelled"


def test_a_limit_may_be_extended() -> None:
    """S4.20, S4.21."""
    one, result = interrupted("limit", [calls(LOOK), "done"], limits=Limits(requests=1))
    assert result.stop == "approval"
    assert "1 of 1 model requests" in result.approvals[0].why
    assert decided(one, result, ALLOW).ok
    one, result = interrupted("limit", [calls(LOOK), "done"], limits=Limits(requests=1))
    assert decided(one, result, REJECT).stop == "limit"


def test_paused_runs_cost_nothing_but_their_bytes_in_the_store(tmp_path: Path) -> None:
    """S2.69: no object, task, timer or thread for a run that waits. `bench control` has 10,000 of them."""
    many, script = 200, [calls(PAY)]

    async def measured() -> tuple[int, int, int]:
        loop = asyncio.get_running_loop()
        store = SqliteStore(tmp_path / "runs.db")
        model = ScriptedModel(lambda _: script[0])
        one = Harness(model, tools=Shop().tools(), store=store)

        async def pause(times: int) -> int:
            for _ in range(times):
                assert (await one.run("go")).stop == "approval"
                model.asks.clear()
            gc.collect()
            return sys.getallocatedblocks()

        await pause(20)  # whatever is made once is there
        before = await pause(20)
        grown = await pause(many) - before
        timers = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        waits = len(asyncio.all_tasks()) - 1 + len(timers) + one.tool_threads.busy
        logs = len(await store.logs())
        await store.aclose()
        return grown, waits, logs

    grown, waits, logs = asyncio.run(measured())
    assert (waits, logs) == (0, many + 40)
    assert grown < 2 * many, "an object, a task or a timer kept for each run would be dozens of blocks of memory"


def test_a_step_that_was_rejected_is_asked_about_again_when_the_run_is_resumed() -> None:
    """S4.21: a rejection ends the run; it is no dead end."""
    model = ScriptedModel(["done"])
    one = Harness(model, store="memory", interrupts=["step"])

    async def go() -> RunResult:
        first = await one.run("go")
        [asked] = first.approvals
        await one.decide(first.thread, {asked.key: REJECT})
        stopped = await one.resume(first.thread)
        assert (stopped.stop, stopped.detail, model.asks) == ("cancelled", "too dear", [])
        again = await one.resume(first.thread)
        assert (again.stop, [two.key for two in again.approvals]) == ("approval", [asked.key])
        assert again.approvals[0].id != asked.id
        await one.decide(first.thread, {asked.key: ALLOW})
        return await one.resume(first.thread)

    result = asyncio.run(go())
    assert (result.stop, result.text) == ("done", "done")


def test_a_rejected_call_stays_rejected_when_the_run_is_resumed() -> None:
    """S4.21: what was decided about a call holds."""
    shop = Shop()
    one, result = paused(shop)

    async def go() -> RunResult:
        await one.decide(result.thread, {"c1": REJECT})
        await one.thread(result.thread).cancel("later")
        stopped = await one.resume(result.thread)
        assert stopped.stop == "cancelled"
        return await one.resume(result.thread)

    final = asyncio.run(go())
    assert (final.stop, shop.done) == ("done", ["look tea"])


def test_the_log_says_who_decided_what() -> None:
    """S1.8, S1.24."""
    shop = Shop()
    one, result = paused(shop)

    async def go() -> list[ev.Event]:
        await one.decide(result.thread, {"c1": Decision("allow", by="ann", arguments={"amount": 4})})
        await one.resume(result.thread)
        return await one.store.read(result.thread)

    events = asyncio.run(go())
    [asked] = [event for event in events if isinstance(event, ev.ApprovalAsked)]
    [decision] = [event for event in events if isinstance(event, ev.ApprovalDecided)]
    [started] = [event for event in events if isinstance(event, ev.CallStarted) and event.call == "c1"]
    assert decision.by == "ann"
    assert decision.digest == started.digest != asked.questions[0].digest


def test_a_decision_that_is_neither_is_refused_when_it_is_made() -> None:
    with pytest.raises(UsageError, match=r"Decision\.verdict"):
        Decision("maybe")  # type: ignore[arg-type]
