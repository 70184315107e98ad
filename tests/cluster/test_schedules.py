"""Prompts that are submitted by the clock: each time once, also when the worker that did it died before it said so."""

import math
from pathlib import Path

import pytest

from evener import Harness
from evener.cluster import Worker
from evener.cluster.schedules import ScheduleWatch, make_schedule, next_time
from evener.errors import UsageError
from evener.harness.remote import tables_of
from evener.hooks import Hook, Moment
from evener.store.cluster import Schedule
from evener.store.postgres import PostgresStore
from evener.testing.scripted_model import ScriptedModel
from tests.cluster import work_site
from tests.store.stores import new_schema, postgres, run

CENTURY = 36_525 * 86_400.0
"""Seconds between two times of a schedule that is due once while the test runs."""


def test_a_schedule_that_is_due_is_submitted_once_and_performed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_site, "FOLDER", tmp_path)
    harness = work_site.make(postgres().address, new_schema())

    async def scenario() -> None:
        tables = tables_of(harness.store)
        due = Schedule("report", "site", "tea", CENTURY, "", 1_000_000.0)
        assert await tables.put_schedule(due)
        assert not await tables.put_schedule(due)
        watch = ScheduleWatch({"site": harness}, tables, print)
        await watch._submit(due)  # a worker that dies before it notes that it has submitted this
        await Worker({"site": harness}, harness.store).run(until_idle=True)
        await Worker({"site": harness}, harness.store).run(until_idle=True)
        assert [one.thread for one in await harness.store.logs()] == ["report-19700112T134640"]
        assert (tmp_path / "effects").read_text() == "pay tea\n"
        (next,) = await tables.schedules()
        assert next.due > 1_000_000.0
        assert next.due - due.due == CENTURY
        assert await tables.remove_schedule("report")
        assert not await tables.remove_schedule("report")
        await harness.aclose()

    run(scenario())


def test_a_schedule_whose_prompt_is_refused_is_told_and_the_worker_goes_on() -> None:
    def refuse(_: Moment) -> None:
        raise ValueError("not today")

    async def scenario() -> None:
        store = PostgresStore(postgres().address, schema=new_schema())
        hook = Hook(event="user_prompt_submit", handler=refuse, fatal=True)
        harnesses = {
            "strict": Harness(ScriptedModel([]), store=store, name="strict", hooks=[hook]),
            "kind": Harness(ScriptedModel(["x", "x"]), store=store, name="kind"),
        }
        names = {"a": "strict", "b": "kind", "c": "kind"}
        for name, harness in names.items():
            assert await store.cluster.put_schedule(Schedule(name, harness, "tea", CENTURY, "", 1_000_000.0))
        said: list[str] = []
        await Worker(harnesses, store, say=said.append).run(until_idle=True)
        assert [line for line in said if line.startswith("schedule a: HookFailed: ")]
        assert sorted(one.thread[0] for one in await store.logs() if one.events > 1) == ["b", "c"]
        assert all(one.due > 1_000_000.0 for one in await store.cluster.schedules())
        await store.aclose()

    run(scenario())


def test_times_of_a_schedule() -> None:
    weekly = make_schedule("a", "h", "go", cron="0 9 * * 1")
    assert next_time(weekly, 0.0) == (4 * 24 + 9) * 3600.0  # the first Monday of 1970, in UTC
    hourly = Schedule("a", "h", "go", 3600.0, "", 100.0)
    assert [next_time(hourly, now) for now in (100.0, 3699.0, 9000.0)] == [3700.0, 3700.0, 10900.0]
    for wrong in (
        {"every": 60.0, "cron": "* * * * *"},
        {},
        {"cron": "at nine"},
        {"cron": "0 0 30 2 *"},
        {"every": 0.1},
        {"every": math.nan},
        {"every": 1e12},
    ):
        with pytest.raises(UsageError):
            make_schedule("a", "h", "go", **wrong)
    for name, prompt in (("a", " "), (" ", "go")):
        with pytest.raises(UsageError, match="empty"):
            make_schedule(name, "h", prompt, every=60.0)
