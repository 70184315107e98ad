"""What no server should say, and some do: ends that are none, dates and counts beyond all bounds."""

import json

import pytest

from evener import errors as e
from evener.transcript.delta import Delta, Failed, Stopped
from evener.wire import CODECS
from evener.wire.faults import fault
from evener.wire.quirks import Quirks
from evener.wire.stream import assemble

NOW = "Thu, 01 Jan 2026 00:00:00 GMT"
NEVER = ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", "Fri, 99999999999999999999 Dec 2026 23:59:59 GMT")


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def read(wire: str, body: bytes) -> list[Delta]:
    decoder = CODECS[wire].decoder(Quirks())
    return [*decoder.feed(body), *decoder.close()]


@pytest.mark.parametrize("dates", [(NEVER[0], NOW), (NEVER[1], NOW), (NOW, NEVER[0])])
def test_a_date_that_no_calendar_has_is_no_wait(dates: tuple[str, str]) -> None:
    error = fault(429, {"retry-after": dates[0], "date": dates[1]}, b"{}")
    assert (type(error), error.retry_after) == (e.RateLimited, None)


@pytest.mark.parametrize(
    "said",
    [
        "prompt is too long: {} tokens > 200000 maximum",
        "maximum context length is {} tokens",
        "input token count ({}) exceeds the maximum number of tokens allowed (5)",
    ],
)
def test_a_count_that_is_too_long_to_be_one_is_not_read(said: str) -> None:
    body = json.dumps({"error": {"message": said.format("9" * 5000)}}).encode()
    assert type(fault(400, {}, body)) is e.ContextTooLong


def chat(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


COUNTS = event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"prompt_tokens": 9}})


def said(text: str) -> bytes:
    parts = {"role": "model", "parts": [{"text": text}]}
    return event({"candidates": [{"content": parts, "finishReason": "STOP", "index": 0}]})


@pytest.mark.parametrize(
    ("wire", "whole", "last"),
    [("openai_chat", chat({"content": "Hi"}) + chat({}, "stop"), COUNTS), ("gemini", said("All of "), said("it."))],
)
def test_half_an_event_at_the_end_is_a_truncation_whatever_came_before(wire: str, whole: bytes, last: bytes) -> None:
    for cut in range(len(b"data: "), len(last) - 3):
        *_, end = read(wire, whole + last[:cut])
        assert isinstance(end, Failed), (cut, end)
        assert type(end.error) is e.TruncatedStream
    assert isinstance(read(wire, whole + last[:-2])[-1], Stopped)  # only the blank line is missing


@pytest.mark.parametrize(
    ("wire", "body"),
    [("openai_chat", b"data: [DONE]\n\n"), ("anthropic_messages", b'event: message_stop\ndata: {"type": "message_stop"}\n\n')],
)
def test_the_terminal_mark_alone_is_no_answer(wire: str, body: bytes) -> None:
    *_, end = read(wire, body)
    assert isinstance(end, Failed), end


SAID = {"error": {"type": "overloaded_error", "code": 529, "status": "UNAVAILABLE", "message": "Come back later."}}


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat", "gemini"])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_error_that_calls_itself_a_stream_is_told(wire: str, indent: int | None) -> None:
    body = json.dumps({"type": "error", **SAID} if wire == "anthropic_messages" else SAID, indent=indent).encode()
    *_, end = read(wire, body)
    assert isinstance(end, Failed), end
    assert "Come back later." in str(end.error)


def test_a_whole_answer_that_calls_itself_a_stream_is_one() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    body = json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
    assert assemble(read("openai_chat", body)).text == "Hi."


ODD: list[dict[str, object]] = [
    {"content": "Hel"},
    {"content": "lo", "role": "assistant", "refusal": None},
    {"content": ""},
    {"content": " you"},
    {"reasoning_content": "Hm."},
    {"content": "!"},
    {"content": "?", "tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{}"}}]},
    {"content": "."},
]


@pytest.mark.parametrize("number", range(len(ODD) + 1))
def test_words_are_the_same_whatever_stands_beside_them(number: int) -> None:
    """A field that nobody knows has a chunk read in its general form: from the chunk of this number on, all have one."""
    chunks: list[dict[str, object]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in ODD]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})

    def played(first: int) -> list[Delta]:
        frames = [{**chunk, "unknown": 1} if place >= first else chunk for place, chunk in enumerate(chunks)]
        said = [event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [frame]}) for frame in frames]
        return read("openai_chat", b"".join(said) + b"data: [DONE]\n\n")

    assert played(number) == played(len(chunks))
    assert isinstance(played(number)[-1], Stopped)
