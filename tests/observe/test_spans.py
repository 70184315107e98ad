"""Spans are a fold of the log: names, shapes, ids, nesting; the same for past runs and live ones."""

import json
from decimal import Decimal

import msgspec
import pytest

from evener import Harness, MemoryStore, tool
from evener import events as ev
from evener.errors import EvenerError, TruncatedStream
from evener.harness import Subagent
from evener.harness.approvals import Decision
from evener.observe import current_trace, join_trace, recorder
from evener.observe.conventions import (
    Attribute,
    add_usage,
    cut_text,
    describe_messages,
    describe_tools,
    origin_attributes,
    provider_name,
    settings_attributes,
)
from evener.observe.lines import TraceSpan
from evener.observe.metrics import Metrics
from evener.observe.recorder import EndedRun, TraceSettings
from evener.observe.spans import fold_lines, fold_spans
from evener.observe.trace_context import parse_traceparent, span_id
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import ModelSettings, ToolSpec
from evener.transcript.blocks import (
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.message import Message
from evener.transcript.reply import Reply, Stop, Usage
from tests.to_the_end import to_the_end

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@tool(effect="read")
def look(what: str) -> str:
    """Look it up."""
    return f"found {what}"


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def by_kind(spans: list[TraceSpan]) -> dict[str, list[TraceSpan]]:
    found: dict[str, list[TraceSpan]] = {}
    for span in spans:
        found.setdefault(span.kind, []).append(span)
    return found


async def read(store: MemoryStore, log: str, *, content: bool = False) -> list[TraceSpan]:
    return fold_spans(await store.read(log), log=log, content=content)


@to_the_end
async def test_a_run_is_an_agent_span_with_its_requests_and_calls_inside() -> None:
    """S2.45: agent, model and tool spans by the GenAI names. S2.35: one span per call."""
    store = MemoryStore()
    one = Harness(
        ScriptedModel([calls(ToolCall.of("c", "look", {"what": "it"})), "done"]), tools=[look], store=store, name="shop"
    )
    result = await one.run("go")
    spans = by_kind(await read(store, result.thread))
    (agent,) = spans["agent"]
    assert agent.name == "invoke_agent shop"
    assert agent.attributes["gen_ai.conversation.id"] == result.thread
    assert agent.attributes["gen_ai.usage.input_tokens"] == result.usage.input_total
    assert agent.attributes["evener.stop"] == "done"
    assert [span.parent for span in spans["model"] + spans["tool"]] == [agent.span] * 3
    assert {span.trace for span in spans["model"] + spans["tool"]} == {agent.trace}
    assert spans["tool"][0].name == "execute_tool look"
    assert spans["tool"][0].attributes["gen_ai.tool.call.id"] == "c"
    assert all(span.name.startswith("chat ") and span.end >= span.start for span in spans["model"])
    assert not any(span.content for several in spans.values() for span in several), "S2.48: nothing that was said"


@to_the_end
async def test_content_is_a_switch_of_its_own() -> None:
    """S2.48."""
    store = MemoryStore()
    one = Harness(ScriptedModel([calls(ToolCall.of("c", "look", {"what": "it"})), "done"]), tools=[look], store=store)
    result = await one.run("go")
    spans = by_kind(await read(store, result.thread, content=True))
    first, second = spans["model"]
    assert json.loads(first.content["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "go"}]}
    ]
    (answered,) = json.loads(second.content["gen_ai.input.messages"])
    assert answered["role"] == "tool"
    assert answered["parts"][0]["response"] == "found it"
    (output,) = json.loads(first.content["gen_ai.output.messages"])
    assert output["finish_reason"] == "tool_call"
    assert output["parts"] == [{"type": "tool_call", "id": "c", "name": "look", "arguments": {"what": "it"}}]
    assert json.loads(first.content["gen_ai.tool.definitions"])[0]["name"] == "look"
    assert spans["tool"][0].content == {"gen_ai.tool.call.arguments": '{"what":"it"}', "gen_ai.tool.call.result": "found it"}


@to_the_end
async def test_a_wait_for_a_decision_is_a_span_and_the_run_stays_one_trace() -> None:
    store = MemoryStore()
    one = Harness(ScriptedModel([calls(ToolCall.of("c", "pay", {"amount": 3})), "done"]), tools=[pay], store=store)
    waits = await one.run("go")
    (open_span,) = by_kind(await read(store, waits.thread))["approval"]
    assert not open_span.end
    await one.decide(waits.thread, {"c": Decision("allow")})
    await one.resume(waits.thread)
    spans = by_kind(await read(store, waits.thread))
    (approval,) = spans["approval"]
    assert approval.attributes["evener.approval.verdict"] == "allow"
    assert approval.span == open_span.span
    assert len(spans["agent"]) == 1
    assert spans["agent"][0].end


@to_the_end
async def test_all_spans_of_a_run_are_of_one_trace_whose_id_is_that_of_the_run_also_if_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[EndedRun] = []
    monkeypatch.setattr(recorder.RECORDER, "_settings", TraceSettings("somewhere"))
    monkeypatch.setattr(recorder.RECORDER, "record", kept.append)
    store = MemoryStore()
    asks, looks = calls(ToolCall.of("c", "pay", {"amount": 3})), calls(ToolCall.of("d", "look", {"what": "it"}))
    one = Harness(ScriptedModel([asks, looks, "done"]), tools=[pay, look], store=store)
    waits = await one.run("go")
    await one.decide(waits.thread, {"c": Decision("allow")})
    await one.resume(waits.thread)
    (run,) = [event.run for event in await store.read(waits.thread) if isinstance(event, ev.Prompted)]
    before, after = (recorder.spans_of([part], content=False) for part in kept)
    assert [span.kind for span in before] == ["model"]
    assert [span.kind for span in after] == ["agent", "approval", "tool", "model", "tool", "model"]
    later = await read(store, waits.thread)
    assert {span.trace for span in (*before, *after, *later)} == {run}
    assert {span.span for span in (*before, *after)} == {span.span for span in later}
    assert len({span.span for span in later}) == len(later)


@to_the_end
async def test_an_agent_inside_a_call_is_part_of_the_trace_around_it() -> None:
    """The log of the agent names the span of the call around it: it can be exported by itself."""
    store = MemoryStore()
    inner = Subagent(name="helper", harness=Harness(ScriptedModel(["found"]), store="memory"), description="Helps.")
    model = ScriptedModel([calls(ToolCall.of("c", "helper", {"task": "look"})), "done"])
    result = await Harness(model, agents=[inner], store=store).run("go")
    outer = by_kind(await read(store, result.thread))
    (below,) = await store.inside(result.thread)
    nested = by_kind(await read(store, below))
    assert nested["agent"][0].parent == outer["tool"][0].span
    assert nested["agent"][0].trace == nested["model"][0].trace == outer["agent"][0].trace


@to_the_end
async def test_a_callers_traceparent_is_taken_and_handed_on_to_tools() -> None:
    seen: list[str] = []

    @tool(effect="read")
    def peek() -> str:
        """Peek."""
        found = current_trace.get()
        assert found is not None
        seen.append(found.header)
        return "ok"

    store = MemoryStore()
    one = Harness(ScriptedModel([calls(ToolCall.of("c", "peek", {})), "done"]), tools=[peek], store=store)
    with join_trace(CALLER):
        result = await one.run("go")
    spans = by_kind(await read(store, result.thread))
    assert spans["agent"][0].trace == "0af7651916cd43dd8448eb211c80319c"
    assert spans["agent"][0].parent == "b7ad6b7169203331"
    assert seen == [f"00-{spans['agent'][0].trace}-{spans['tool'][0].span}-01"]
    assert current_trace.get() is None


def test_a_traceparent_that_is_not_valid_is_no_traceparent() -> None:
    wrong = ["", "00-0-0-0", CALLER.replace("00-", "ff-"), CALLER + "-more", f"00-{'0' * 32}-{'1' * 16}-01", CALLER.upper()]
    assert [parse_traceparent(text) for text in wrong] == [None] * len(wrong)
    assert parse_traceparent(CALLER) is not None
    assert parse_traceparent(CALLER.replace("00-", "01-", 1) + "-later") is not None, "a later version may say more"
    assert parse_traceparent(CALLER.replace("00-", "01-", 1) + ".later") is None
    found = parse_traceparent(CALLER[:-2] + "ff")
    assert found is not None
    assert found.header == CALLER[:-2] + "03", "flags that we do not know are not passed on"


def log_of_a_failure() -> list[ev.Event]:
    message = Message("assistant", (TextBlock("hi"),), usage=Usage(10, 2, 5, 3, 4, 1))
    return [
        ev.Opened(at=1.0, thread="t", harness="shop"),
        ev.Prompted(at=2.0, run="r", message=Message.user_text("go")),
        ev.ModelCalled(at=3.0, model="openai:gpt-5", id="m1"),
        ev.ModelFailed(at=4.0, error="RateLimited", message="slow down", status=429),
        ev.ModelCalled(at=6.0, model="openai:gpt-5", id="m2"),
        ev.Replied(at=8.0, message=message, stop=Stop("done"), first=0.5, seconds=2.0, tries=2, reply="resp"),
        ev.Finished(at=9.0, run="r", cause="done"),
    ]


def test_a_failure_and_the_pause_before_the_retry_have_spans() -> None:
    agent, failed, retry, answered = fold_spans(log_of_a_failure(), log="t")
    assert (agent.kind, failed.kind, retry.kind, answered.kind) == ("agent", "model", "retry", "model")
    assert (failed.error, failed.attributes["http.response.status_code"]) == ("RateLimited", 429)
    assert (retry.start, retry.end) == (4.0, 6.0)
    assert answered.span == span_id("r", "m2")
    assert answered.attributes["gen_ai.provider.name"] == "openai"
    assert answered.attributes["gen_ai.request.model"] == "gpt-5"
    assert answered.attributes["gen_ai.response.time_to_first_chunk"] == 0.5
    assert answered.attributes["gen_ai.usage.cache_read.input_tokens"] == 5
    written = {name: value for name, value in answered.attributes.items() if name.startswith("gen_ai.usage.cache_")}
    assert written["gen_ai.usage.cache_write.input_tokens"] == written["gen_ai.usage.cache_creation.input_tokens"] == 3


def test_a_compaction_is_a_span_and_counts_for_its_run() -> None:
    events = log_of_a_failure()
    summary = Message.user_text("in short")
    made = ev.Compacted(
        at=5.5, id="c", summary=summary, until="m", tokens=900, saved=700, model="openai:small", usage=Usage(90, 90, 0, 0, 9),
        cost=Decimal("0.5"),
    )  # fmt: skip
    cut = ev.Evicted(at=5.6, id="e", cuts=(ev.ContextCut("m", 0, "result"),), cause="gate", tokens=200, saved=50)
    failed = ev.CompactionFailed(at=5.7, detail="no summary", model="openai:small")
    spans = fold_spans([*events[:4], made, cut, failed, *events[4:]], log="t", content=True)
    one, two, three = by_kind(spans)["compaction"]
    assert (one.name, one.start, one.end, one.parent) == ("compaction", 4.0, 5.5, spans[0].span)
    assert one.attributes["gen_ai.conversation.compacted"] is True
    assert one.attributes["gen_ai.request.model"] == "small"
    assert "in short" in one.content["gen_ai.output.messages"]
    assert (two.name, two.attributes["evener.compaction.saved"]) == ("compaction eviction", 50)
    assert three.error == "compaction_failed"
    assert spans[0].attributes["gen_ai.usage.input_tokens"] == 100
    assert spans[0].attributes["evener.cost.usd"] == 0.5
    metrics = Metrics()
    metrics.add([*events[:4], made])
    assert 'evener_compactions_total{provider="openai",model="small",outcome="done"} 1' in metrics.text()


@to_the_end
async def test_a_live_run_of_a_branch_has_the_same_spans_as_its_log_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread, the tools and their descriptions, too: a run hands over its own events only."""
    kept: list[EndedRun] = []
    monkeypatch.setattr(recorder.RECORDER, "_settings", TraceSettings("somewhere"))
    monkeypatch.setattr(recorder.RECORDER, "record", kept.append)
    store = MemoryStore()
    down = TruncatedStream("cut off")
    script: list[Reply | EvenerError | str] = ["one", down, calls(ToolCall.of("c", "look", {"what": "it"})), "two"]
    one = Harness(ScriptedModel(script), tools=[look], store=store, name="shop")
    first = await one.run("go")
    fork = await one.thread(first.thread).fork()
    await fork.run("again")
    later = fold_spans(await store.read(fork.log), log=fork.log, agent="shop", content=True)
    live = recorder.spans_of([kept[-1]], content=True)
    assert [span.kind for span in live] == ["agent", "model", "retry", "model", "tool", "model"]
    assert live == later[-len(live) :]
    assert live[0].attributes["gen_ai.conversation.id"] == first.thread
    assert live[4].attributes["gen_ai.tool.description"] == "Look it up."


@pytest.mark.parametrize("later", [100.0, -100.0], ids=["the clock goes on", "the clock is set back"])
def test_what_a_run_that_stopped_has_recorded_is_not_recorded_again_and_what_a_dead_one_had_is(later: float) -> None:
    asks = Message("assistant", (ToolCall.of("c", "pay", {"amount": 3}),))
    asked: list[ev.Event] = [
        ev.Prompted(at=200.0, run="r", message=Message.user_text("go")),
        ev.ModelCalled(at=201.0, model="m", id="m1"),
        ev.Replied(at=202.0, message=asks, stop=Stop("tools")),
    ]
    at = 203.0 + later
    question = ev.ApprovalAsked(at=203.0, id="q", interrupt="tool", questions=(ev.Question("c", "d"),))
    waited: list[ev.Event] = [*asked, question, ev.ApprovalDecided(at=at, id="q", key="c", digest="d", verdict="allow")]
    started = ev.CallStarted(at=at, call="c", tool="pay", key="k")
    goes_on: list[ev.Event] = [
        ev.CallFinished(at=at + 1, call="c", ok=True, content=()),
        ev.ModelCalled(at=at + 2, model="m", id="m2"),
        ev.Finished(at=at + 3, run="r", cause="done"),
    ]
    stopped = EndedRun("t", "", (*waited, started, *goes_on), again=5)
    assert [span.kind for span in recorder.spans_of([stopped], content=False)] == ["agent", "approval", "tool", "model"]
    died = EndedRun("t", "", (*asked, started, ev.Resumed(at=at, epoch=2), *goes_on), again=5)
    assert [span.kind for span in recorder.spans_of([died], content=False)] == ["agent", "model", "tool", "model"]
    twice = EndedRun("t", "", (*waited, started, ev.Resumed(at=at, epoch=2), *goes_on), again=7)
    assert [span.kind for span in recorder.spans_of([twice], content=False)] == ["agent", "approval", "tool", "model"]
    for run in (stopped, died, twice):
        assert all(span.end >= span.start for span in recorder.spans_of([run], content=False))


def test_events_of_an_earlier_run_are_not_recorded_with_one_that_was_resumed() -> None:
    first = log_of_a_failure()[4:]  # its prompt is not among them
    again: list[ev.Event] = [
        ev.Prompted(at=20.0, run="s", message=Message.user_text("go")),
        ev.Finished(at=21.0, run="s", cause="done"),
    ]
    (span,) = recorder.spans_of([EndedRun("t", "", (*first, *again), first=5, again=9)], content=False)
    assert (span.kind, span.seq, span.end) == ("agent", 8, 21.0)


@to_the_end
async def test_calls_of_one_id_in_two_turns_have_spans_of_their_own() -> None:
    """Some servers number the calls of each answer anew."""
    store = MemoryStore()
    script = [calls(ToolCall.of("call_0", "look", {"what": what})) for what in ("it", "more")]
    result = await Harness(ScriptedModel([*script, "done"]), tools=[look], store=store).run("go")
    one, other = by_kind(await read(store, result.thread))["tool"]
    assert one.span != other.span


@to_the_end
async def test_a_question_ends_with_the_run_that_is_given_up() -> None:
    store = MemoryStore()
    one = Harness(ScriptedModel([calls(ToolCall.of("c", "pay", {"amount": 3}))]), tools=[pay], store=store)
    waits = await one.run("go")
    thread = one.thread(waits.thread)
    await thread.cancel("never mind")
    await thread.resume()
    spans = by_kind(await read(store, waits.thread))
    assert (spans["approval"][0].end, spans["approval"][0].error) == (spans["agent"][0].end, "interrupted")


def test_a_failure_after_which_nothing_is_tried_again_has_no_retry() -> None:
    failed = log_of_a_failure()[:4]
    ends = ev.Finished(at=9.0, run="r", cause="provider_error")
    assert [span.kind for span in fold_spans([*failed, ends], log="t")] == ["agent", "model"]
    stopped = fold_spans([*failed, msgspec.structs.replace(ends, cause="cancelled")], log="t")
    assert [span.kind for span in stopped] == ["agent", "model", "retry"], "the pause was cut off"


def test_what_was_under_way_when_a_holder_died_ends_as_interrupted() -> None:
    events: list[ev.Event] = [
        *log_of_a_failure()[:2],
        ev.ModelCalled(at=3.0, model="m", id="m1"),
        ev.Resumed(at=9.0, epoch=2),
    ]
    assert [(span.kind, span.end, span.error) for span in fold_spans(events, log="t")][1] == ("model", 9.0, "interrupted")


def test_a_call_that_is_started_again_by_another_holder_is_one_span_from_its_first_start() -> None:
    started = ev.CallStarted(at=4.0, call="c", tool="look", key="k")
    events: list[ev.Event] = [
        *log_of_a_failure()[:2],
        started,
        ev.Resumed(at=9.0, epoch=2),
        msgspec.structs.replace(started, at=10.0),
        ev.CallFinished(at=11.0, call="c", ok=True, content=()),
        ev.Finished(at=12.0, run="r", cause="done"),
    ]
    (span,) = by_kind(fold_spans(events, log="t"))["tool"]
    assert (span.start, span.end, span.error) == (4.0, 11.0, "")


def test_folding_is_a_function_of_the_log_alone() -> None:
    events = log_of_a_failure()
    again = [ev.decode_event(ev.encode_event(event)) for event in events]
    assert msgspec.json.encode(fold_spans(events, log="t")) == msgspec.json.encode(fold_spans(again, log="t"))


@pytest.mark.parametrize("odd", ["", "k", "0" * 16 + 16 * "a", 32 * "A", 31 * "b", 33 * "b", 31 * "b" + " ", 32 * "é"])
def test_a_line_has_the_id_of_its_span_also_beside_keys_that_are_no_ids_and_after_another_run(odd: str) -> None:
    events: list[ev.Event] = []
    for number, key in enumerate((32 * "c", odd, 32 * "d")):
        events += [
            ev.Prompted(at=1.0, run=f"run {number}", message=Message("user", (TextBlock("go"),))),
            ev.CallStarted(at=2.0, call="call", tool="look", key=key),
            ev.CallFinished(at=3.0, call="call", ok=True),
        ]
    lines, spans, *_ = fold_lines(events, log="t", agent="")
    whole = fold_spans(events, log="t")
    assert [line.span for line in lines] == [span.span for span in whole if span.kind == "tool"]
    assert [span.span for span in spans] == [span.span for span in whole if span.kind == "agent"]


def test_parts_of_messages_have_the_conventions_shapes() -> None:
    image = ImageBlock(Inline("AAAA"), "image/png")
    message = Message("assistant", (ReasoningBlock("hm"), TextBlock("hi"), ToolCall("c", "f", "not json"), image))
    results = Message("user", (ToolResult("c", (TextBlock("ok"),)), TextBlock("and?")))
    first, second, third = json.loads(describe_messages((message, results)))
    assert [part["type"] for part in first["parts"]] == ["reasoning", "text", "tool_call", "text"]
    assert first["parts"][2]["arguments"] == "not json"
    assert second == {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "ok", "result": "ok"}]}
    assert third["role"] == "user"
    (made,) = json.loads(describe_tools([ToolSpec("f", "Do it.")]))
    assert made["parameters"]["type"] == "object"


def test_what_a_providers_own_tools_did_is_a_server_tool_call() -> None:
    asked = HostedBlock('{"type":"web_search_call"}', "openai_responses", "searched", opens="w1")
    told = HostedBlock('{"type":"web_search_tool_result"}', "anthropic_messages", "found", closes="w1")
    file = DocumentBlock(Uploaded("f1"), "application/pdf")
    ((first, second, third),) = [one["parts"] for one in json.loads(describe_messages([Message("user", (asked, told, file))]))]
    assert (first["type"], first["id"], first["name"]) == ("server_tool_call", "w1", "web_search_call")
    assert first["server_tool_call"]["type"] == "web_search_call"
    assert second["server_tool_call_response"]["type"] == "web_search_tool_result"
    assert third == {"type": "file", "modality": "document", "mime_type": "application/pdf", "file_id": "f1"}


def test_a_text_that_is_too_long_is_cut_between_words() -> None:
    """Half a key would pass a filter that knows the key."""
    made = cut_text("word " * 10_000)
    assert made.endswith("word... (50,000 characters)")
    assert "k" * 100 not in cut_text("a " * 16_000 + "k" * 5_000)
    assert cut_text("short") == "short"


def test_settings_and_origin_have_the_conventions_names() -> None:
    settings = ModelSettings(effort="low", max_output_tokens=7, temperature=0.5)
    assert settings_attributes(settings) == {
        "gen_ai.request.max_tokens": 7, "gen_ai.request.temperature": 0.5, "gen_ai.request.reasoning.level": "low",
    }  # fmt: skip
    found = origin_attributes(Origin(endpoint="http://127.0.0.1:8080/v1", model="m"))
    assert found == {"gen_ai.response.model": "m", "server.address": "127.0.0.1", "server.port": 8080}
    assert origin_attributes(Origin(endpoint="http://[")) == {}


def test_providers_are_called_what_the_conventions_call_them() -> None:
    known = {"anthropic:x": "anthropic", "google:x": "gcp.gemini", "google-vertex:x": "gcp.vertex_ai", "kimi:x": "moonshot_ai"}
    assert {model: provider_name(model) for model in known} == known
    assert provider_name("my-server:x") == "my-server"
    found: dict[str, Attribute] = {}
    add_usage(found, Usage(1, 1))
    assert "gen_ai.usage.cache_write.input_tokens" not in found


def test_metrics_are_written_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    metrics.add(log_of_a_failure())
    lines = metrics.text().splitlines()
    assert 'evener_requests_total{provider="openai",model="gpt-5"} 1' in lines
    assert 'evener_errors_total{provider="openai",model="gpt-5",error_type="RateLimited"} 1' in lines
    assert 'evener_tokens_total{provider="openai",model="gpt-5",kind="cache_read"} 5' in lines
    assert 'evener_request_seconds_bucket{provider="openai",model="gpt-5",le="2.5"} 1' in lines
    assert 'evener_request_seconds_bucket{provider="openai",model="gpt-5",le="1"} 0' in lines
    assert 'evener_runs_total{cause="done"} 1' in lines
    assert "# TYPE evener_first_token_seconds histogram" in lines
