"""Half an answer does not count and half a call does not run, however politely the stream is closed: all wires, all kinds."""

import json

import pytest

from evener import Harness, open_model, tool
from evener import errors as e
from evener.encodings import EncodingName
from evener.testing import FakeServer
from evener.testing.servers import Call, turn
from evener.testing.servers.status import Raw
from evener.transcript import Reply
from evener.transcript.delta import Delta, Failed, Stopped
from evener.transport.exchange import Retries
from evener.transport.http import HttpTransport
from evener.wire import CODECS, Quirks, assemble
from evener.wire.stream import deltas_of
from tests.model.half import CALL, KINDS, STREAMS, Json, body, data
from tests.model.stage import MODELS, NOWHERE, WIRES, asking, fresh_key, run

wires = pytest.mark.parametrize("wire", WIRES)
kinds = pytest.mark.parametrize("kind", KINDS)
UNSTATED = ("null", "absent")


def deltas(wire: str, events: tuple[Json | str, ...]) -> list[Delta]:
    decoder = CODECS[wire].decoder(Quirks())
    return decoder.feed(data(events)) + decoder.close()


def truncated(wire: str, events: tuple[Json | str, ...]) -> bool:
    last = deltas(wire, events)[-1]
    return isinstance(last, Failed) and type(last.error) is e.TruncatedStream


@wires
@kinds
def test_an_answer_that_is_whole_counts(wire: str, kind: str) -> None:
    streamed = assemble(deltas(wire, STREAMS[wire](kind).whole))
    whole = CODECS[wire].decode(json.dumps(body(wire, kind)).encode(), Quirks())
    for reply in (streamed, whole):
        assert reply.text == ("Hello" if kind in ("text", "all") else "")
        assert [(one.id, one.name, json.loads(one.raw)) for one in reply.calls] == (
            [(CALL[0], CALL[1], json.loads(CALL[2]))] if kind in ("call", "all") else []
        )


@wires
@kinds
def test_a_stream_cut_anywhere_and_closed_by_its_end_mark_is_truncated(wire: str, kind: str) -> None:
    stream = STREAMS[wire](kind)
    for cut in range(len(stream.said) + 1):
        assert truncated(wire, (*stream.said[:cut], *stream.end)), f"cut at {cut}"
        assert truncated(wire, (*stream.said[:cut], "[DONE]")), f"cut at {cut}"


@wires
@kinds
def test_a_call_that_was_never_closed_is_truncated_whatever_the_reason_to_stop(wire: str, kind: str) -> None:
    stream = STREAMS[wire](kind)
    for close in stream.closes:
        said = (*stream.said[:close], *stream.said[close + 1 :])
        assert truncated(wire, (*said, *stream.stop, *stream.end)), f"without {stream.said[close]}"


@wires
@kinds
@pytest.mark.parametrize("reason", UNSTATED)
def test_a_whole_answer_that_does_not_say_why_it_stopped_does_not_count(wire: str, kind: str, reason: str) -> None:
    with pytest.raises(e.TruncatedStream):
        CODECS[wire].decode(json.dumps(body(wire, kind, stopped=reason)).encode(), Quirks())


def test_servers_that_leave_out_what_nobody_needs_are_understood() -> None:
    stream = STREAMS["openai_chat"]("text")
    late: tuple[Json, ...] = (
        {"id": "m1", "choices": [], "usage": {"prompt_tokens": 1}},
        {"choices": [{"index": 0, "delta": {}}]},
    )
    served: list[tuple[Json | str, ...]] = [
        (*stream.said, *stream.stop),
        (*stream.said, *stream.stop, *late, "[DONE]"),
        (*stream.said, *late, *stream.stop),
    ]
    for events in served:
        assert isinstance(deltas("openai_chat", events)[-1], Stopped)
    first, *rest = STREAMS["gemini"]("call").said
    first["candidates"][0]["finishReason"] = "STOP"  # call and reason in one chunk
    assert assemble(deltas("gemini", (first, *rest))).calls
    named = STREAMS["openai_responses"]("text")
    (last,) = named.stop
    last["response"].pop("status")  # the name of the event says it
    assert assemble(deltas("openai_responses", named.whole)).stop.reason == "done"


def test_text_that_was_not_closed_counts_once_the_reason_to_stop_is_there() -> None:
    stream = STREAMS["anthropic_messages"]("text")
    reply = assemble(deltas("anthropic_messages", (*stream.said[:-1], *stream.stop, *stream.end)))
    assert (reply.text, reply.stop.reason) == ("Hello", "done")


CUT_STOPS = ("length", "content_filter", "a reason of tomorrow")
BROKEN_OFF = ("error", "insufficient_system_resource", "network_error", "abort")


def cut_calls(wire: str, reason: str, call: Json) -> list[Reply]:
    """An answer of two calls, the last of which was cut off: streamed, and as one document."""
    first: Json = {"type": "function", "id": "c0", "function": {"name": "look", "arguments": ""}}
    if wire == "openai_chat":
        streamed: list[Json] = [{"tool_calls": [{"index": index, **one}]} for index, one in enumerate((first, call))]
        choices: list[Json] = [{"index": 0, "delta": delta} for delta in streamed] + [
            {"index": 0, "delta": {}, "finish_reason": reason}
        ]
        events: tuple[Json, ...] = tuple({"id": "m1", "model": "m", "choices": [choice]} for choice in choices)
        whole: Json = {
            "id": "m1",
            "model": "m",
            "choices": [{"message": {"tool_calls": [first, call]}, "finish_reason": reason}],
        }
    else:
        why = {"length": "max_output_tokens"}.get(reason, reason)
        looked = {"type": "function_call", "id": "f0", "call_id": "c0", "name": "look", "arguments": "", "status": "completed"}
        inner = call.get("function") or call["custom"]
        item: Json = {"id": "f1", "call_id": call["id"], "status": "incomplete", **inner}
        item["type"] = "function_call" if "function" in call else "custom_tool_call"
        whole = {"id": "m1", "object": "response", "status": "incomplete", "output": [looked, item]}
        whole["incomplete_details"] = {"reason": why}
        done: list[Json] = [
            {"type": "response.output_item.done", "output_index": n, "item": one} for n, one in enumerate(whole["output"])
        ]
        events = (*done, {"type": "response.incomplete", "response": whole})
    return [assemble(deltas(wire, events)), CODECS[wire].decode(json.dumps(whole).encode(), Quirks())]


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("reason", CUT_STOPS)
@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": ""}},
        {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "rm -rf /srv/old"}},
        {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "{}"}},
        {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": ""}},
    ],
)
def test_a_call_that_was_cut_off_has_no_arguments_to_run_with(wire: str, reason: str, call: Json) -> None:
    for reply in cut_calls(wire, reason, call):
        first, last = reply.calls
        assert (first.raw, first.parses, last.parses) == ("{}", True, False)
        assert last.raw in ("", "rm -rf /srv/old")
        assert assemble(deltas_of(reply)) == reply


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_block_that_was_closed_before_its_arguments_came_has_none_to_run_with(reason: str) -> None:
    stream = STREAMS["anthropic_messages"]("call")
    (stop,) = stream.stop
    stop["delta"]["stop_reason"] = reason
    said = [one for one in stream.said if one["type"] != "content_block_delta"]
    (call,) = assemble(deltas("anthropic_messages", (*said, *stream.stop, *stream.end))).calls
    assert not call.parses


@pytest.mark.parametrize("reason", BROKEN_OFF)
@kinds
def test_an_answer_that_the_server_broke_off_does_not_count_although_it_gives_a_reason(kind: str, reason: str) -> None:
    stream = STREAMS["openai_chat"](kind)
    (stop,) = stream.stop
    stop["choices"][0]["finish_reason"] = reason
    assert truncated("openai_chat", stream.whole)
    with pytest.raises(e.TruncatedStream, match=f"broke it off .{reason}"):
        CODECS["openai_chat"].decode(json.dumps(body("openai_chat", kind, stopped=reason)).encode(), Quirks())


# Through the public doors.


def halves(wire: str, kind: str) -> dict[str, Raw]:
    """The half answers that a polite server may send."""
    stream = STREAMS[wire](kind)
    found = {
        "streamed": Raw(data((*stream.said, *stream.end)), content_type="text/event-stream"),
        "begun": Raw(data((*stream.said[:2], *stream.end)), content_type="text/event-stream"),
    }
    for reason in UNSTATED:
        found[reason] = Raw(json.dumps(body(wire, kind, stopped=reason)).encode())
    return found


@wires
@pytest.mark.parametrize("kind", ["text", "call"])
def test_a_model_gives_no_answer_for_half_of_one(wire: str, kind: str) -> None:
    async def ask(half: Raw) -> None:
        async with HttpTransport(trust_env=False) as http:
            with FakeServer(wire, [half]) as server:
                model = open_model(
                    MODELS[wire], environ=NOWHERE, transport=http, key=fresh_key(), base_url=server.url,
                    retries=Retries(attempts=1),
                )  # fmt: skip
                with pytest.raises(e.TruncatedStream):
                    await model.complete(asking(model))

    for half in halves(wire, kind).values():
        run(ask(half))


@wires
def test_a_harness_runs_no_half_call_and_asks_again(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))
    runs: list[int] = []

    @tool(effect="write")
    def pay(amount: int = 0) -> str:
        """Pay."""
        runs.append(amount)
        return "paid"

    async def go(half: Raw) -> None:
        async with HttpTransport(trust_env=False) as http:
            with FakeServer(wire, [half, "All is well."]) as server:
                model = open_model(
                    MODELS[wire], environ=NOWHERE, transport=http, key=fresh_key(), base_url=server.url,
                    retries=Retries(attempts=1),
                )  # fmt: skip
                result = await Harness(model, tools=[pay], store="memory").run("Pay.")
                assert (result.text, result.stop) == ("All is well.", "done")

    for half in halves(wire, "call").values():
        run(go(half))
    assert runs == []


@wires
def test_a_call_cut_by_the_output_limit_before_its_arguments_does_not_run(wire: str) -> None:
    runs: list[int] = []

    @tool(effect="write")
    def pay(amount: int = 0) -> str:
        """Pay."""
        runs.append(amount)
        return "paid"

    async def go() -> None:
        async with HttpTransport(trust_env=False) as http:
            with FakeServer(wire, [turn(Call("pay", {}), stop="length"), turn(Call("pay", {"amount": 7})), "Paid."]) as server:
                model = open_model(MODELS[wire], environ=NOWHERE, transport=http, key=fresh_key(), base_url=server.url)
                result = await Harness(model, tools=[pay], store="memory").run("Pay.")
                assert (result.text, result.stop) == ("Paid.", "done")

    run(go())
    assert runs == [7]


WRITTEN: dict[EncodingName, str] = {
    "json_schema": '{"tool": "pay", "arguments": {"amount": 7}, "answer": "Now."}',
    "xml": 'So.\n<tool_call name="pay">{"amount": 7}</tool_call>',
    "react": 'Thought: so\nAction: pay\nAction Input: {"amount": 7}',
}


@pytest.mark.parametrize("encoding", WRITTEN)
def test_no_call_of_a_text_that_was_cut_runs_however_politely_it_ended(
    encoding: EncodingName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))
    runs: list[int] = []

    @tool(effect="write")
    def pay(amount: int = 0) -> str:
        """Pay."""
        runs.append(amount)
        return "paid"

    said: list[str] = []

    async def cut_everywhere(text: str) -> None:
        async def go(first: str) -> None:
            said[:] = [first, "All is well."]
            assert (await Harness(model, tools=[pay], store="memory").run("Pay.")).stop == "done"

        with FakeServer("openai_chat", lambda _: turn(said.pop(0))) as server:
            model = open_model(
                MODELS["openai_chat"], environ=NOWHERE, key=fresh_key(), base_url=server.url,
                encoding=encoding, retries=Retries(attempts=1),
            )  # fmt: skip
            for cut in {*range(12, len(text), 6), *range(len(text) - 4, len(text))}:
                await go(text[:cut])
                assert runs == [], text[:cut]
            await go(text)

    run(cut_everywhere(WRITTEN[encoding]))
    assert runs == [7]


def test_an_assembler_makes_no_reply_of_a_call_that_was_not_closed() -> None:
    from evener.transcript import delta as d

    half: list[Delta] = [d.CallBegun(0, "c", "pay"), d.ArgumentsDelta(0, "{}"), d.Stopped("tools", "tool_use")]
    with pytest.raises(e.TruncatedStream, match="pay"):
        assemble(half)
    assert isinstance(assemble([*half[:2], d.CallEnded(0, "{}"), half[2]]), Reply)


@pytest.mark.parametrize(
    ("candidate", "detail"),
    [
        ({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(pay(1))"}, "print(pay(1))"),
        ({"finishReason": "OTHER", "content": {"parts": [{"text": "Hm.", "thought": True}]}}, "OTHER"),
    ],
)
def test_an_answer_that_says_nothing_and_stops_for_an_odd_reason_is_no_final_answer(candidate: Json, detail: str) -> None:
    async def go() -> None:
        said = Raw(data(({"responseId": "m1", "candidates": [candidate]},)), content_type="text/event-stream")
        async with HttpTransport(trust_env=False) as http:
            with FakeServer("gemini", [said]) as server:
                model = open_model(MODELS["gemini"], environ=NOWHERE, transport=http, key=fresh_key(), base_url=server.url)
                result = await Harness(model, store="memory").run("Pay.")
                assert (result.stop, result.detail) == ("unexpected", f"The model gave no answer ({detail}).")

    run(go())
