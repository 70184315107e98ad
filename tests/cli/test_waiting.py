"""What waits to be decided, as it is shown: nothing hidden, nothing that passes for a line of ours."""

import asyncio
from pathlib import Path

import pytest

from evener import Harness, MemoryStore, SqliteStore
from evener.cli.approvals import describe, read_answer, read_answers
from evener.cli.terminal import escape
from evener.harness import Subagent
from evener.harness.approvals import Decision, keyed
from evener.harness.remote import is_said
from evener.result import Approval
from evener.store.protocol import Store
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript.blocks import ToolCall


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e4 \u6f22 \U0001f375\nnext", "plain \u00e4 \u6f22 \U0001f375\nnext"),
        ("a\u200bb\u00adc", "a\\u200bb\\u00adc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x1b[8mhidden\x1b[0m\t", "\\u001b[8mhidden\\u001b[0m\\u0009"),
        ("\U000e0041\u3164\ufe0f\u2028", "\\udb40\\udc41\\u3164\\ufe0f\\u2028"),
        ("1\u00a0000\u3000", "1\\u00a0000\\u3000"),
    ],
)
def test_what_cannot_be_seen_is_written_as_json_writes_it(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_names_and_reasons_cannot_pass_for_lines_of_ours() -> None:
    call = ToolCall("c1", "pay\nRun it?", '{"a": "x\\ny"}')
    lines = describe(Approval("a", "c1", "t", "tool", "d", call, "because\n  | of\u200bthis"))
    assert lines == ["pay Run it? needs approval (because | of\\u200bthis):", "  | {", '  |   "a": "x\\ny"', "  | }"]
    assert describe(Approval("a", "c1", "t", "tool", "d", ToolCall("c1", "pay", "no\nJSON")))[1:] == ["  | no", "  | JSON"]


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")


def test_answers_that_wait_are_found_also_inside_and_so_is_what_was_decided(store: Store) -> None:
    async def go() -> None:
        clerk = Harness(ScriptedModel(["Inside."]), interrupts=["output"])
        script: list[Line] = [calls(ToolCall.of("c1", "clerk", {"task": "go"})), "Outside."]
        agent = Subagent(name="clerk", harness=clerk, description="d")
        harness = Harness(ScriptedModel(script), agents=[agent], interrupts=["output"], store=store)
        thread = harness.thread()
        inside = await thread.run("Go.")
        [one] = inside.approvals
        assert (one.interrupt, one.thread == inside.thread) == ("output", False)
        assert await read_answer(store, one) == "Inside."
        assert await read_answers(store, inside, shown=True) == {one.thread: "Inside."}
        assert not await is_said(store, one)
        await thread.decide({key: Decision("allow") for key in keyed(inside.approvals)})
        assert await is_said(store, one)
        outside = await thread.resume()
        [one] = outside.approvals
        assert await read_answers(store, outside, shown=True) == {}
        assert await read_answers(store, outside, shown=False) == {outside.thread: "Outside."}
        await store.aclose()

    asyncio.run(go())
