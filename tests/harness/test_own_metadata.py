"""What a tool writes into its metadata is its own: no name in it means anything to a run."""

import json

import pytest

from evener import Harness, tool
from evener import events as ev
from evener.events import decode_event
from evener.result import CallRecord
from evener.testing import ScriptedModel, calls
from evener.tools.result import Envelope, ToolOutput
from evener.transcript.blocks import ToolCall

WAITS = {"thread": "t", "inner": []}
METADATA: dict[str, dict[str, object]] = {
    "waits": {"evener_waits": WAITS},
    "waits, malformed": {"evener_waits": 5},
    "cancelled": {"cancelled_by": "hook"},
    "rule": {"rule": "no payments"},
    "rule, another type": {"rule": [1]},
    "spilled": {"spilled": "mine", "characters": -1},
    "notes": {"scratchpad": [{"kind": "appended"}]},
    "fields of ours": {"by_hook": True, "waits": WAITS, "nested": {"requests": 9}, "outcome": "unknown"},
}


@pytest.mark.parametrize("size", [10, 200_000], ids=["short", "spilled"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["ToolOutput", "Envelope"])
@pytest.mark.parametrize("name", METADATA)
def test_metadata_of_a_tool_changes_nothing_and_stays_as_it_is(name: str, wrapped: bool, size: int) -> None:
    metadata = METADATA[name]

    @tool(effect="write")
    def act() -> object:
        """Act."""
        text = "x" * size
        return Envelope(True, text, metadata) if wrapped else ToolOutput(text, metadata)  # type: ignore[arg-type]

    model = ScriptedModel([calls(ToolCall.of("c", "act", {})), "Done."])
    result = Harness(model, tools=[act], store="memory", scratchpad=True).run_sync("Act.")
    assert (result.stop, result.text, result.approvals, result.cancelled_calls) == ("done", "Done.", (), 0)
    [record] = result.records
    assert record.result is not None
    assert (record.ok, record.result.outcome, record.by_hook) == (True, "done", False)
    assert json.loads(record.result.metadata) == metadata
    assert (record.result.spilled is not None) == (size > 50_000)


def test_a_tool_that_once_had_the_name_of_the_scratchpad_writes_no_notes() -> None:
    @tool(name="scratchpad", effect="read")
    def other() -> object:
        """Something else."""
        return ToolOutput("x", {"scratchpad": [5]})

    store = Harness(ScriptedModel([]), store="memory").store
    first = Harness(ScriptedModel([calls(ToolCall.of("c", "scratchpad", {})), "Done."]), tools=[other], store=store)
    thread = first.run_sync("Act.").thread
    result = Harness(ScriptedModel(["Hello."]), store=store, scratchpad=True).run_sync("Hi.", thread=thread)
    assert result.text == "Hello."


def test_results_of_older_logs_are_read_as_they_were_meant() -> None:
    told = {"kind": "call_finished", "at": 1.0, "call": "c", "ok": False, "metadata": '{"cancelled_by":"hook"}'}
    old = decode_event(json.dumps(told).encode())
    assert isinstance(old, ev.CallFinished)
    assert CallRecord(ToolCall.of("c", "act", {}), old).by_hook
    assert not CallRecord(ToolCall.of("c", "act", {}), old, starts=1).by_hook, "a tool has run, so it wrote that"
