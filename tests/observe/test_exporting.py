"""Where spans go: files of the day, a collector, and nothing at all. No run waits for any of them."""

import asyncio
import json
import re
import socket
import stat
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener import Harness, MemoryStore, tool
from evener import events as ev
from evener.observe import join_trace, recorder
from evener.observe.conventions import LONGEST, WORD
from evener.observe.export import KEY_SHAPES, may_look_like_key, redact_spans, trace_funnel
from evener.observe.lines import TraceSpan, encode_spans
from evener.observe.otlp import OtlpSink, send_all, traces_url
from evener.observe.recorder import KEPT, EndedRun, TraceFolder, TraceRecorder, TraceSettings, record_run
from evener.observe.spans import fold_spans
from evener.observe.trace_context import trace_header
from evener.store.redaction import Funnel
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Stop
from evener.transport.secrets import note_secret
from tests.observe.collector import attributes, collecting
from tests.observe.test_spans import log_of_a_failure
from tests.patience import PATIENCE
from tests.to_the_end import to_the_end

SPANS = fold_spans(log_of_a_failure(), log="t")


def run_of(log: str = "t") -> EndedRun:
    return EndedRun(log, "shop", tuple(log_of_a_failure()))


def lines(folder: Path) -> list[TraceSpan]:
    return [
        msgspec.json.decode(line, type=TraceSpan) for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines()
    ]


@tool(effect="read")
def look(what: str) -> str:
    """Look it up."""
    return f"found {what}"


@to_the_end
async def test_a_run_leaves_its_spans_in_the_folder_that_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.46."""
    mine = TraceRecorder(TraceSettings(str(tmp_path / "traces")))
    monkeypatch.setattr(recorder, "RECORDER", mine)
    one = Harness(ScriptedModel([calls(ToolCall.of("c", "look", {"what": "it"})), "done"]), tools=[look], store="memory")
    await one.run("a very private prompt")
    mine.close(PATIENCE)
    spans = lines(tmp_path / "traces")
    assert sorted(span.kind for span in spans) == ["agent", "model", "model", "tool"]
    (file,) = (tmp_path / "traces").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"private" not in file.read_bytes()


@pytest.mark.parametrize("word", ["off", "0", "No", "FALSE"])
def test_a_variable_switches_the_files_off(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.46."""
    monkeypatch.setenv("EVENER_TRACES", word)
    monkeypatch.delenv("EVENER_OTLP", raising=False)
    assert not TraceSettings.of_environment().is_on


def test_without_a_word_traces_are_kept_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.46: on by default."""
    monkeypatch.delenv("EVENER_TRACES")
    monkeypatch.setenv("EVENER_HOME", str(tmp_path))
    found = TraceSettings.of_environment()
    assert found.folder == str(tmp_path / "traces")
    assert not found.content, "S2.48: off by default"


def test_spans_that_were_written_when_the_run_last_stopped_are_not_written_again(tmp_path: Path) -> None:
    mine = TraceRecorder(TraceSettings(str(tmp_path)))
    mine.record(EndedRun("t", "shop", tuple(log_of_a_failure()), again=7))
    mine.close(PATIENCE)
    assert [span.kind for span in lines(tmp_path)] == ["agent"]


def test_a_folder_that_cannot_be_written_costs_the_spans_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    mine = TraceRecorder(TraceSettings(str(tmp_path / "file")))
    mine.record(run_of())
    mine.close(PATIENCE)
    assert mine.dropped == 1


def test_each_day_has_a_file_and_only_the_newest_ones_are_kept(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path)
    for at in (-1.0, 0.0, 86_399.9, 86_400.0, 0.5):
        folder.send([TraceSpan(kind="agent", name="a", trace="t", span="s", start=at, end=at)])
    counts = {file.name: len(file.read_bytes().splitlines()) for file in sorted(tmp_path.iterdir())}
    assert counts == {"1969-12-31.jsonl": 1, "1970-01-01.jsonl": 3, "1970-01-02.jsonl": 1}
    for day in range(3, 40):
        folder.send([TraceSpan(kind="agent", name="a", trace="t", span="s", start=0.0, end=day * 86_400.0)])
    assert min(file.name for file in tmp_path.iterdir()) == "1970-01-10.jsonl"
    assert len(list(tmp_path.iterdir())) == KEPT + 1, "old ones are deleted before the new one is made"


@pytest.mark.parametrize("times", [1, 2])
def test_a_recorder_that_was_closed_begins_anew_and_may_be_closed_twice(tmp_path: Path, times: int) -> None:
    mine = TraceRecorder(TraceSettings(str(tmp_path)))
    for number in range(3):
        mine.record(run_of(f"t{number}"))
        for _ in range(times):
            mine.close(PATIENCE)
    assert sum(span.kind == "agent" for span in lines(tmp_path)) == 3


class StuckSink:
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def send(self, spans: object) -> None:
        del spans
        self.go.wait(PATIENCE)

    def close(self, seconds: float) -> None:
        del seconds


def test_a_sink_that_hangs_fills_the_queue_and_then_runs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "WAITING", 4)
    stuck = StuckSink()
    mine = TraceRecorder(TraceSettings(), sinks=[stuck])
    for _ in range(20):
        mine.record(run_of())  # returns at once, or this test never ends
    assert mine.dropped >= 20 - 2 * 4 - 1
    stuck.go.set()
    mine.close(PATIENCE)


def test_a_collector_gets_the_spans_by_otlp() -> None:
    """S2.47."""
    with collecting() as collector:
        assert send_all(SPANS, collector.url, headers={"x-mlflow-experiment-id": "1"})
    assert collector.headers[0]["x-mlflow-experiment-id"] == "1"
    by_name = {span.name: span for span in collector.spans}
    agent = by_name["invoke_agent shop"]
    answered = collector.spans[-1]
    assert answered.parent_span_id == agent.span_id
    assert attributes(answered)["gen_ai.usage.cache_creation.input_tokens"] == 3
    assert attributes(answered)["gen_ai.response.finish_reasons"] == ["stop"]
    assert agent.start_time_unix_nano == 2_000_000_000


@pytest.mark.parametrize(("at", "sent"), [(1e300, 2**63), (-1e300, 0)])
def test_a_time_that_is_none_is_sent_as_the_nearest_that_is(at: float, sent: int) -> None:
    """An imported log can hold any."""
    with collecting() as collector:
        assert send_all([msgspec.structs.replace(SPANS[0], start=at, end=at)], collector.url)
    assert (collector.spans[0].start_time_unix_nano, collector.spans[0].end_time_unix_nano) == (sent, sent)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_collector_that_refuses_is_told_of(status: int) -> None:
    with collecting(status) as collector:
        assert not send_all(SPANS, collector.url)


def test_live_spans_wait_in_a_bounded_queue_and_a_dead_collector_costs_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no one listens
        sink = OtlpSink(f"http://127.0.0.1:{taken.getsockname()[1]}")
        for _ in range(1_500):
            sink.send(SPANS)  # 6,000 spans, and the queue has room for 4,096: it never waits
        sink.close(0.01)


def test_the_end_waits_for_a_collector_that_hangs_only_as_long_as_it_was_told() -> None:
    with collecting() as collector:
        collector.hold.clear()
        sink = OtlpSink(collector.url)
        for _ in range(300):
            sink.send(SPANS)  # several batches
        sink.close(0.01)
        assert len(collector.headers) < 3  # with patience it would have tried them all
        collector.hold.set()


def test_live_spans_reach_a_slow_collector_by_themselves() -> None:
    with collecting() as collector:
        collector.hold.clear()
        sink = OtlpSink(collector.url)
        sink.send(SPANS)
        collector.hold.set()
        sink.close(PATIENCE)
        assert collector.came.wait(PATIENCE)
    assert len(collector.spans) == len(SPANS)


def test_an_address_that_is_none_is_refused() -> None:
    assert traces_url("http://localhost:4318") == "http://localhost:4318/v1/traces"
    assert traces_url("http://localhost:4318/v1/traces") == "http://localhost:4318/v1/traces"
    with pytest.raises(Exception, match="begins with http"):
        traces_url("localhost:4318")


def test_of_a_thousand_planted_secrets_none_leaves() -> None:
    """With capture off nothing that was said leaves; with capture on no key does."""
    secrets = [f"sk-{number:04d}-{'q7Zx' * 6}" for number in range(1_000)]
    note_secret(*secrets)

    async def talk() -> list[TraceSpan]:
        store = MemoryStore()
        asked = calls(ToolCall.of("c", "look", {"what": " ".join(secrets[:500])}))
        one = Harness(ScriptedModel([asked, " ".join(secrets[500:])]), tools=[look], store=store)
        result = await one.run(" ".join(secrets))
        return fold_spans(await store.read(result.thread), log="t", content=True)

    spans = asyncio.run(talk())
    planted = " ".join(secrets)
    spans[0].attributes["evener.extra"] = planted
    spans[0].content["gen_ai.input.messages"] = planted
    spans[0].name += f" {secrets[0]}"
    for content in (False, True):
        left = encode_spans(redact_spans(spans, Funnel(), content=content)).decode()
        assert [secret for secret in secrets if secret in left] == []


def test_keys_that_this_process_never_used_are_known_by_their_shape() -> None:
    """A trace of an old thread is made by a process that has none of its keys."""
    shapes = [
        "sk-proj-{}", "sk-ant-api03-{}", "sk_live_{}", "ghp_{}", "github_pat_{}", "xoxb-{}", "AIzaSy{}", "hf_{}", "gsk_{}",
        "eyJhbGciOi.{}.sig", "Authorization: Bearer {}", "API_KEY={}", "postgres://user:{}@host/db",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", "\x1b[32msk-{}\x1b[0m", "\x1fsk-{}",
        "?k=%22sk-{}%22", "AccountKey={}", '{{"password":"{}"}}', '{{"x": "{{\\"client_secret\\": \\"{}\\"}}"}}',
    ]  # fmt: skip
    keys = [f"{number:03d}{'aB3dE6gH' * 5}" for number in range(1_000)]
    said = [shapes[place % len(shapes)].format(key) for place, key in enumerate(keys)]
    events: list[ev.Event] = [
        ev.Prompted(at=1.0, run="r", message=Message.user_text("\n".join(said))),
        ev.ModelCalled(at=2.0, model="openai:gpt-5", id="m"),
        ev.Replied(at=3.0, message=Message("assistant", (TextBlock(" ".join(said)),)), stop=Stop("done")),
        ev.Finished(at=4.0, run="r", cause="done"),
    ]
    spans = fold_spans(events, log="t", content=True)
    for content in (False, True):
        left = encode_spans(redact_spans(spans, trace_funnel(), content=content)).decode()
        assert [key for key in keys if key in left] == []
    assert json.loads(next(redact_spans(spans, trace_funnel(), content=True)).content["gen_ai.input.messages"]), "still JSON"


@pytest.mark.parametrize("between", [",", '","', "A"], ids=["commas", "minified JSON", "nothing"])
def test_no_part_of_a_key_is_left_where_a_text_was_cut(between: str) -> None:
    """A filter that knows the key does not know the half of it."""
    key = "Zq7Tn4Wm1Kp8Xs3Vb6Hd9Rf2Lc5Gj0Ya"
    note_secret(key)
    for place in (*range(0, 48, 8), *range(WORD - 8, WORD + 48, 8)):
        filling = f"{between}B" * ((LONGEST - place) // (len(between) + 1))
        text = f"{filling}{between}{key}{between}{'C' * LONGEST}"
        spec = ToolSpec("look", text[LONGEST - 1_000 :], "{}")
        events: list[ev.Event] = [
            ev.Configured(at=1.0, model="m", tools=(spec,)),
            ev.Prompted(at=1.0, run="r", message=Message.user_text(text)),
            ev.CallStarted(at=2.0, call="c", tool="look", key="k"),
        ]
        spans = fold_spans(events, log="t", content=True)
        left = encode_spans(redact_spans(spans, trace_funnel(), content=True)).decode()
        assert key[:8] not in left, place


@pytest.mark.parametrize("shape", KEY_SHAPES)
@given(data=st.data())
def test_all_that_looks_like_a_key_holds_one_of_the_words_that_are_looked_for_first(shape: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(shape))
    assert re.search(shape, text)
    assert not text.isascii() or may_look_like_key(text)
    assert not text.isascii() or may_look_like_key("", f"id{chr(0)}{text}{chr(0)}id")


@to_the_end
async def test_without_a_caller_no_request_has_a_traceparent() -> None:
    assert trace_header() == ()
    with join_trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00") as joined:
        assert trace_header() == (("traceparent", joined.header),)


def test_recording_is_off_in_these_tests() -> None:
    record_run("t", "", log_of_a_failure())
    assert recorder.RECORDER.dropped == 0
