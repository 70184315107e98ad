"""Recorded Chat Completions of every provider: answers decode to what they say, however they are cut; requests and turns go
back as they came; errors have their type. The expectation is read from the raw recording by `chat.py`, not by our decoder.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from evener import errors as e
from evener.providers import Rows, load_rows
from evener.testing import check_request
from evener.transcript import Ask, Message, Origin, ReasoningBlock, Reply, TextBlock, ToolResult, Transcript
from evener.transcript import delta as d
from evener.transcript.repair import make_id
from evener.wire import CODECS, Encoded, Quirks, assemble
from tests.corpus import Exchange, exchanges, needs_corpus, usual_recordings
from tests.each import each
from tests.wire import chat

pytestmark = needs_corpus

WIRE = "openai_chat"
CODEC = CODECS[WIRE]
NOTICES = {"logprobs", "moderation", "prompt_filter_results"}
"""What may be left over from an answer: there is no neutral place for it, and it is handed on as it came."""

REFUSALS: dict[tuple[int, str], type[e.ProviderError]] = {
    (400, "invalid_value"): e.InvalidRequest,
    (400, "tool_use_failed"): e.InvalidRequest,
    (400, "unknown_parameter"): e.InvalidRequest,
    (400, "unsupported_value"): e.InvalidRequest,
    (401, ""): e.AuthFailed,
    (404, "model_not_found"): e.ModelNotFound,
    (429, "429"): e.RateLimited,
}
"""How each recorded refusal must come out: status and the provider's code."""

ALL = exchanges(WIRE)
ANSWERED = [one for one in ALL if one.status == 200 and one.provider != "demo"]
STREAMED = [one for one in ANSWERED if one.sse is not None]
BROKEN = [one for one in STREAMED if chat.error_in(one.sse or b"")]
SOUND = [one for one in ANSWERED if one not in BROKEN]
REFUSED = [one for one in ALL if one.status != 200]
ASKED = [one for one in ALL if one.request is not None]


@cache
def rows() -> Rows:
    return load_rows()


def cases(found: Iterable[Exchange]) -> list[object]:
    return [pytest.param(one, id=f"{one.provider}-{one.id}") for one in found]


def target(exchange: Exchange) -> Origin:
    return Origin(WIRE, chat.ROWS[exchange.provider], model=(exchange.request or {}).get("model", "unknown"))


def quirks(exchange: Exchange) -> Quirks:
    return rows().quirks(chat.ROWS[exchange.provider], target(exchange).model)


def deltas(exchange: Exchange, pieces: Iterable[bytes]) -> list[d.Delta]:
    decoder = CODEC.decoder(quirks(exchange))
    return [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.close()


def replied(exchange: Exchange) -> Reply:
    if exchange.sse is not None:
        return assemble(deltas(exchange, [exchange.sse]))
    return CODEC.decode(json.dumps(exchange.response).encode(), quirks(exchange))


def asked(exchange: Exchange) -> Ask:
    return CODEC.read_request(json.dumps(exchange.request).encode(), quirks(exchange), target(exchange))


def sent(ask: Ask, how: Quirks, prior: Encoded | None = None) -> Encoded:
    return CODEC.encode(ask, how, prior)


@usual_recordings
def test_every_provider_of_the_recordings_is_here() -> None:
    assert {one.provider for one in ALL} == chat.ROWS.keys()
    assert (len(SOUND), len(BROKEN), len(REFUSED), len(ASKED)) > (400, 2, 15, 400)


# Answers.


@each("exchange", cases(SOUND))
def test_an_answer_decodes_to_what_it_says(exchange: Exchange) -> None:
    reply, said = replied(exchange), chat.answer(exchange)
    thoughts = [block for block in reply.blocks if isinstance(block, ReasoningBlock)]
    assert (reply.id, reply.model) == (said.id, said.model)
    assert (reply.text, "".join(block.text for block in thoughts)) == (said.text, said.reasoning)
    calls = [(id or make_id(said.id, place), name, raw) for place, (id, name, raw) in enumerate(said.calls)]
    assert [(call.id, call.name, call.raw) for call in reply.calls] == calls
    assert (reply.stop.reason, reply.stop.raw) == (said.stop, said.finish)
    usage = reply.usage
    assert (usage.input_total, usage.cache_read, usage.output_total, usage.reasoning) == said.usage
    cited = [one for block in reply.blocks if block.kind == "text" for one in block.citations]
    assert [(one.url, one.title) for one in cited] == said.cited
    assert sum(block.kind == "hosted" for block in reply.blocks) == bool(said.executed)
    assert {name for name, _ in reply.notices} <= NOTICES
    kept = [entry for block in thoughts for entry in block.metadata.get("reasoning_details", [])]  # type: ignore[attr-defined]
    assert join_body(kept) == join_body(said.details)


def join_body(details: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Details as one would send them back: pieces of one text are one entry; a signature comes with the last of them."""
    found: list[list[Any]] = []
    for entry in details:
        key = [entry["type"], entry.get("index"), "", entry.get("data"), entry.get("signature")]
        text = entry.get("text") or entry.get("summary") or ""
        if found and found[-1][:2] == key[:2] and not entry.get("data"):
            found[-1][2] += text
            found[-1][4] = entry.get("signature") or found[-1][4]
        else:
            found.append([*key[:2], text, *key[3:]])
    return [tuple(one) for one in found]


@usual_recordings
def test_a_200_that_is_no_completion_says_so() -> None:
    (echo,) = [one for one in ALL if one.provider == "demo"]
    with pytest.raises(e.WireError, match="chat completion"):
        CODEC.decode((echo.text or "").encode(), Quirks())


@each("exchange", cases(STREAMED))
def test_a_stream_cut_at_every_byte_gives_the_same_deltas(exchange: Exchange) -> None:
    stream = exchange.sse or b""
    whole = deltas(exchange, [stream])
    pieces = deltas(exchange, (stream[place : place + 1] for place in range(len(stream))))
    assert [str(one) for one in pieces] == [str(one) for one in whole]  # errors have no equality


@each("exchange", cases(STREAMED))
def test_a_stream_that_ends_early_is_truncated(exchange: Exchange) -> None:
    stream = re.split(rb'"finish_reason":"|\[DONE\]|"error"', exchange.sse or b"")[0]  # where it says that it ends
    for share in (0.0, 0.1, 0.5, 1.0):
        last = deltas(exchange, [stream[: int(len(stream) * share)]])[-1]
        assert isinstance(last, d.Failed)
        assert type(last.error) is e.TruncatedStream


# Errors.


@each("exchange", cases(REFUSED))
def test_a_refusal_has_its_type_and_the_providers_words(exchange: Exchange) -> None:
    body = exchange.response or {}
    said = body.get("error") or body
    fault = CODEC.fault(exchange.status, exchange.headers, json.dumps(body).encode())
    assert type(fault) is REFUSALS[exchange.status, str(said.get("code") or "")]
    assert fault.message.startswith(said["message"])
    assert (fault.status, fault.code) == (exchange.status, str(said.get("code") or ""))
    relayed = said.get("metadata", {}).get("raw", "")
    assert relayed in fault.message


@each("exchange", cases(BROKEN))
def test_an_error_after_a_200_fails_the_stream_with_the_providers_words(exchange: Exchange) -> None:
    said = chat.error_in(exchange.sse or b"") or {}
    last = deltas(exchange, [exchange.sse or b""])[-1]
    assert isinstance(last, d.Failed)
    assert isinstance(last.error, e.InvalidRequest)
    assert (last.error.message, last.error.code, last.error.status) == (said["message"], str(said["code"]), 0)


# Requests.


def differs(exchange: Exchange) -> tuple[bool, Encoded]:
    encoded = sent(asked(exchange), quirks(exchange))
    return chat.normal(json.loads(encoded.body)) != chat.normal(exchange.request or {}), encoded


def test_a_request_read_and_written_again_is_the_same() -> None:
    different = [(one, encoded) for one in ASKED for changed, encoded in [differs(one)] if changed]
    assert [one.id for one, encoded in different if not encoded.losses] == []
    assert len(different) <= len(ASKED) / 100


@each("exchange", cases(one for one in ASKED if one.status == 200))
def test_a_request_written_again_breaks_no_rule_that_the_recorded_one_kept(exchange: Exchange) -> None:
    ours = check_request(WIRE, sent(asked(exchange), quirks(exchange)).body)
    assert {one.rule for one in ours} <= {one.rule for one in check_request(WIRE, exchange.request or {})}


@each("exchange", cases(one for one in ASKED if len((one.request or {})["messages"]) > 2))
def test_a_request_is_the_same_bytes_with_and_without_the_one_before(exchange: Exchange) -> None:
    ask, how = asked(exchange), quirks(exchange)
    prior: Encoded | None = None
    growing = Transcript((), ask.transcript.system_blocks)
    for message in ask.transcript:
        growing = growing.append(message)
        now = msgspec.structs.replace(ask, transcript=growing)
        encoded = sent(now, how, prior)
        assert facts(encoded) == facts(sent(now, how))
        prior = encoded


def facts(encoded: Encoded) -> tuple[object, ...]:
    return encoded.body, encoded.losses, encoded.binding


# Tool loops: the assistant's turn, decoded, goes back as the recorded client sent it.


def loops() -> Iterator[tuple[Exchange, Exchange]]:
    """Answers, each with a later request of its file that carries it."""
    for one, after in pairwise(SOUND):
        if one.file == after.file and one.provider == after.provider and one.request and after.request:
            before, then = one.request["messages"], after.request["messages"]
            if len(then) > len(before) and then[: len(before)] == before and then[len(before)]["role"] == "assistant":
                yield one, after


LOOPS = list(loops())


@usual_recordings
def test_there_are_loops_of_many_providers() -> None:
    assert len(LOOPS) > 80
    assert len({one.provider for one, _ in LOOPS}) > 8


@each(("one", "after"), [pytest.param(*pair, id=f"{pair[0].provider}-{pair[0].id}") for pair in LOOPS])
def test_a_turn_goes_back_as_the_recorded_client_sent_it(one: Exchange, after: Exchange) -> None:
    ask, how = asked(one), quirks(after)
    reply = replied(one)
    turn = Message.from_assistant_response(reply, origin=target(one))
    done = tuple(ToolResult(call.id, (TextBlock("done"),)) for call in reply.calls)
    answers = Message("user", done) if done else Message.user_text("go on")
    now = msgspec.structs.replace(ask, transcript=ask.transcript.extend((turn, answers)))
    messages = json.loads(sent(now, how).body)["messages"]
    place = len((one.request or {})["messages"])
    ours, theirs = messages[place], (after.request or {})["messages"][place]
    assert [_call(call) for call in ours.get("tool_calls", [])] == [_call(call) for call in theirs.get("tool_calls") or []]
    assert [one["role"] for one in messages[place + 1 :]] == (["tool"] * len(reply.calls) or ["user"])
    assert [one["tool_call_id"] for one in messages[place + 1 :] if reply.calls] == [
        call["id"] for call in ours.get("tool_calls", [])
    ]
    if all(id for id, _, _ in chat.answer(one).calls):  # else every client has made its own
        ids = [call["id"] for call in theirs.get("tool_calls") or []]
        assert [call["id"] for call in ours.get("tool_calls", [])] == ids
    said, wanted = chat.spoken(ours, one.provider), chat.spoken(theirs, one.provider)
    assert said.text.strip() == wanted.text.strip()
    thought = wanted.reasoning.strip()
    assert not thought or said.reasoning.strip() == thought  # a client may leave it out; what it sent, we send
    assert ours.get("reasoning_details") == theirs.get("reasoning_details", ours.get("reasoning_details"))


def _call(call: dict[str, Any]) -> tuple[str, str]:
    return call["function"]["name"], call["function"]["arguments"]
