"""Requirements about wires and traces whose tests stopped at a function, shown once more through the public API."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.windows import PIXEL
from evener import Harness, MemoryStore, ModelSettings, RunResult, open_model, tool
from evener.errors import InvalidRequest
from evener.observe import recorder
from evener.observe.lines import TraceSpan
from evener.observe.recorder import TraceRecorder, TraceSettings
from evener.testing import Call, FakeServer, ScriptedModel, Text, faults, turn
from evener.transcript import ImageBlock, Inline, Message, Origin, ReasoningBlock, Seal, TextBlock, ToolCall, ToolResult
from evener.transcript.ask import OutputForm
from tests.harness.test_settings import ROWS
from tests.observe.collector import collecting
from tests.patience import PATIENCE

ELSEWHERE = Origin(wire="openai_chat", provider="deepseek", endpoint="https://api.deepseek.com", model="deepseek-v4-pro")
SEALED = ReasoningBlock("Tea is cheaper.", Seal('{"signature":"bWFkZQ=="}', ELSEWHERE))


@tool(effect="read")
def look(item: str) -> str:
    """Look at an item."""
    return f"a blue {item}"


def asked(wire: str, past: list[Message], **more: Any) -> tuple[Any, RunResult]:
    """Go on from the past with a strict server; the body of the request, and the result."""
    with FakeServer(wire, [turn(Text("done"))]) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        result = asyncio.run(Harness(model, tools=[look], store="memory", **more).thread(history=past).run("Go on."))
        assert (server.rejected, result.text) == ([], "done")
        return json.loads(server.requests[0].body), result


@pytest.mark.parametrize("wire", ROWS)
@pytest.mark.parametrize("how", ["drop", "text"])
def test_s2_65_what_another_provider_thought_leads_its_turn_as_text_and_its_seal_stays(wire: str, how: Any) -> None:
    past = [Message.user_text("Tea?"), Message("assistant", (SEALED, TextBlock("Tea.")), origin=ELSEWHERE)]
    body, result = asked(wire, past, settings=ModelSettings(foreign_reasoning=how))
    sent = json.dumps(body)
    assert "bWFkZQ==" not in sent
    assert ("Tea is cheaper." in sent) is (how == "text")
    if how == "text":
        assert sent.index("Tea is cheaper.") < sent.index('"Tea."')
    assert [(loss.kind, loss.what) for loss in result.losses] == [("degraded" if how == "text" else "dropped", "reasoning")]


PAST = [
    Message.user_text("One."),
    Message.user_text("Two."),
    Message.assistant_text("Let me see."),
    Message.assistant_tool_call(ToolCall("c1", "look", '{"item":"cup"}'), ToolCall("c2", "look", '{"item":"jug"}')),
    Message.tool_result("c2", "a jug"),
    Message.tool_result("c1", "a cup"),
    Message("assistant", (SEALED, ToolCall("c3", "look", '{"item":"pot"}')), origin=ELSEWHERE),
    Message("user", (ToolResult("c9", (TextBlock("of no call"),)), TextBlock("Never mind."))),
    Message.assistant_text("Well."),
]


def test_s3_11_a_history_that_no_server_takes_is_mended_before_it_is_sent() -> None:
    """S3.11-S3.17: roles alternate, neighbours are one turn, results follow their calls in order, and no half is alone."""
    body, result = asked("anthropic_messages", PAST)
    said = [
        (one["role"], [part.get("text") or part.get("tool_use_id") or part.get("id") for part in one["content"]])
        for one in body["messages"]
    ]
    assert said == [
        ("user", ["One.", "Two."]),
        ("assistant", ["Let me see.", "c1", "c2"]),
        ("user", ["c1", "c2"]),
        ("assistant", ["c3"]),
        ("user", ["c3", "Never mind."]),
        ("assistant", ["Well."]),
        ("user", ["Go on."]),
    ]
    assert "not known whether it took effect" in json.dumps(body["messages"][4])
    told = {(loss.kind, loss.what) for loss in result.losses}
    assert told == {("repaired", "message"), ("repaired", "tool_result"), ("added", "tool_result"), ("dropped", "reasoning")}


@pytest.mark.parametrize("wire", ROWS)
def test_s2_53_a_prompted_answer_has_its_schema_in_the_instructions_alone(wire: str) -> None:
    with FakeServer(wire, [turn(Text('{"city":"Ulm"}'))]) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        shape = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        result = Harness(model, store="memory", output=shape, output_form="prompted", system="Be brief.").run_sync("Where to?")
        assert (server.rejected, result.output) == ([], {"city": "Ulm"})
        body = json.loads(server.requests[0].body)
    fields = {"anthropic_messages": "system", "openai_responses": "instructions", "gemini": "systemInstruction"}
    told = json.dumps(body.pop(fields[wire]) if wire in fields else body["messages"].pop(0))
    assert "city" in told
    assert "city" not in json.dumps(body)


NAMED: dict[str, list[str]] = {"native": ["json_schema"], "tool": ["final_result"], "prompted": []}


@pytest.mark.parametrize("form", NAMED)
def test_s2_49_a_row_may_name_the_form_of_answers(form: OutputForm, tmp_path: Path) -> None:
    answer = turn(Call("final_result", {"city": "Ulm"})) if form == "tool" else turn(Text('{"city":"Ulm"}'))
    shape = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    with FakeServer("openai_chat", [answer]) as server:
        (tmp_path / "evener").mkdir()
        row = f'wire = "openai_chat"\nkeyless = true\nbase_url = "{server.url}"\nquirks.output_form = "{form}"\n'
        (tmp_path / "evener" / "config.toml").write_text(f"[providers.lab]\n{row}", "utf-8")
        model = open_model("lab:m", environ={"XDG_CONFIG_HOME": str(tmp_path)})
        result = Harness(model, store="memory", output=shape).run_sync("Where to?")
        body = json.loads(server.requests[0].body)
    assert result.output == {"city": "Ulm"}
    assert [word for word in ("json_schema", "final_result") if word in json.dumps(body)] == NAMED[form]


def test_s4_29_a_log_holds_our_messages_and_another_wire_goes_on_from_it() -> None:
    store = MemoryStore()
    first, thread = None, ""
    for wire, script in (("gemini", [turn(Call("look", {"item": "cup"})), "blue"]), ("anthropic_messages", ["still blue"])):
        with FakeServer(wire, script) as server:  # type: ignore[arg-type]
            model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
            result = Harness(model, tools=[look], store=store).run_sync("Look.", thread=thread)
            assert server.rejected == []
        first, thread = first or result, result.thread
    assert first is not None
    assert result.transcript.messages[:4] == first.transcript.messages
    assert [[type(block) for block in message.blocks] for message in first.transcript] == [
        [TextBlock], [ToolCall], [ToolResult], [TextBlock],
    ]  # fmt: skip
    assert {type(message) for message in result.transcript} == {Message}


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat"])
def test_s4_16_a_call_that_breaks_off_is_not_run_and_the_model_is_asked_again(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the stream ends: before the call, in its arguments, or after them and before the end of the turn."""
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))
    looked: list[str] = []

    @tool(effect="read")
    def find(item: str = "nothing") -> str:
        """Find an item."""
        looked.append(item)
        return "found"

    broke = 0
    for after in range(1, 9):
        looked.clear()
        broken = turn(Call("find", {"item": "cup"}), faults=[faults.Cut(after=after)])
        with FakeServer(wire, [broken, turn(Call("find", {"item": "jug"})), "done"]) as server:
            model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
            result = Harness(model, tools=[find], store="memory").run_sync("Find it.")
        lost = bool(result.requests[0].error)
        assert (result.text, looked) == ("done", ["jug"] if lost else ["cup", "jug"])
        broke += lost
    assert broke > 3


PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def table_of(first: str) -> dict[str, dict[str, str]]:
    """Return the table of the page whose first heading is this: row, then column, then cell."""
    head, _, *rows = PAGE[PAGE.index(f"\n| {first} |") :].strip().partition("\n\n")[0].partition("\n<!--")[0].splitlines()
    names = [cell.strip(" `").removeprefix("Implementation: `") for cell in head.strip("|").split(" | ")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {row[0]: dict(zip(names, row, strict=True)) for row in cells}


@pytest.mark.parametrize("wire", ROWS)
def test_s4_5_the_page_compares_the_wires_and_their_streams_are_as_it_says(wire: str) -> None:
    """A column for each wire: system prompt, calls, results, several calls at once, streaming."""
    with FakeServer(wire, [turn(Text("Let me see."), Call("look", {"item": "cup"})), "blue"]) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        result = Harness(model, tools=[look], store="memory", settings=ModelSettings(keep_raw=True)).run_sync("Look.")
    streams = table_of("Streaming")
    assert list(streams) == ["an event", "arguments of a call", "the end"]
    for row in streams.values():
        assert row[wire].split("`")[1] in result.raw_responses[0].decode()
    roles = table_of("Role")
    assert all(roles[row][wire] for row in ("System", "Assistant's tool call", "Tool Result"))
    assert table_of("Constraint")["one call at a time"][wire]


@pytest.mark.parametrize("row", ["minimax", "deepseek-anthropic", "kimi-anthropic"])
def test_s3_19_a_third_party_gets_its_own_thinking_and_none_that_another_signed(row: str) -> None:
    """S3.18, S3.19."""
    with FakeServer("anthropic_messages", [turn(Text("done"))]) as server:
        model = open_model(f"{row}:some-model", base_url=server.url, key="k", environ={})
        claude = Origin(wire="anthropic_messages", provider="anthropic", model="claude-opus-4-8")
        past = [
            Message.user_text("Tea?"),
            Message(
                "assistant", (ReasoningBlock("signed", Seal('{"signature":"c2ln"}', claude)), TextBlock("Tea.")), origin=claude
            ),
            Message.user_text("Or milk?"),
            Message("assistant", (ReasoningBlock("unsigned"), TextBlock("Milk.")), origin=model.origin),
        ]
        with pytest.raises(InvalidRequest, match=r"messages\.3\.content\.0\.signature"):  # the fake is strict as Anthropic is
            asyncio.run(Harness(model, store="memory").thread(history=past).run("Go on."))
        sent = [one["content"] for one in json.loads(server.requests[0].body)["messages"]]
    assert sent[1] == [{"type": "text", "text": "Tea."}]
    assert sent[3] == [{"type": "thinking", "thinking": "unsigned"}, {"type": "text", "text": "Milk."}]


def test_s4_25_what_a_row_lacks_is_done_in_a_lesser_way_and_told(tmp_path: Path) -> None:
    shape = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    picture = ImageBlock(Inline(PIXEL), "image/png")
    with FakeServer("openai_chat", [turn(Text('{"city":"Ulm"}')), turn(Call("final_result", {"city": "Ulm"}))]) as server:
        (tmp_path / "evener").mkdir()
        row = f'wire = "openai_chat"\nkeyless = true\nbase_url = "{server.url}"\n'
        lacks = 'quirks.images = false\nquirks.output_schema = false\nquirks.output_form = "native"\n'
        (tmp_path / "evener" / "config.toml").write_text(f"[providers.full]\n{row}[providers.lean]\n{row}{lacks}", "utf-8")
        results = [
            Harness(open_model(name, environ={"XDG_CONFIG_HOME": str(tmp_path)}), store="memory", output=shape).run_sync(
                [TextBlock("Where is it?"), picture]
            )
            for name in ("full:m", "lean:m")
        ]
        full, lean = (request.body.decode() for request in server.requests)
    assert [result.output for result in results] == [{"city": "Ulm"}] * 2
    assert ("image_url" in full, "json_schema" in full, results[0].losses) == (True, True, ())
    assert ("image_url" in lean, "json_schema" in lean) == (False, False)
    assert {loss.what for loss in results[1].losses} == {"image", "output schema"}


# Traces.


class Sink:
    """Keeps what it is sent, or fails."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.spans = fails, 0

    def send(self, spans: Sequence[TraceSpan]) -> None:
        if self.fails:
            raise OSError("no room")
        self.spans += len(spans)

    def close(self, seconds: float) -> None:
        del seconds


def test_s2_45_every_sink_has_the_spans_and_a_broken_one_changes_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = Sink(fails=True), Sink(fails=False)
    mine = TraceRecorder(TraceSettings("anywhere"), sinks=[broken, sound])
    monkeypatch.setattr(recorder, "RECORDER", mine)
    results = [Harness(ScriptedModel(["done"]), store="memory").run_sync("go") for _ in range(2)]
    mine.close(PATIENCE)
    assert [(result.text, result.warnings) for result in results] == [("done", ())] * 2
    assert (sound.spans, mine.dropped) == (4, 2)


def test_s2_47_a_run_is_sent_to_the_collector_that_a_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("EVENER_TRACES", "off")
        monkeypatch.setenv("EVENER_OTLP", collector.url)
        mine = TraceRecorder()
        monkeypatch.setattr(recorder, "RECORDER", mine)
        assert Harness(ScriptedModel(["done"]), store="memory", name="shop").run_sync("go").ok
        mine.close(PATIENCE)
    assert sorted(span.name.partition(" ")[0] for span in collector.spans) == ["chat", "invoke_agent"]


@pytest.mark.parametrize("content", [False, True])
def test_s2_48_a_live_run_is_traced_with_its_words_only_where_that_is_wanted(
    content: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENER_TRACES", str(tmp_path))
    monkeypatch.setenv("EVENER_TRACE_CONTENT", "on" if content else "")
    mine = TraceRecorder()
    monkeypatch.setattr(recorder, "RECORDER", mine)
    assert Harness(ScriptedModel(["done"]), store="memory").run_sync("a private word").ok
    mine.close(PATIENCE)
    [file] = tmp_path.iterdir()
    assert (b"a private word" in file.read_bytes()) is content
    assert len(file.read_bytes().splitlines()) == 2
