"""Every misbehaviour does what it says, on every wire, whole and streamed, and ends when the client or the server goes."""

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from evener.testing import Empty, FakeServer, Html, Raw, Redirect, Text, faults, turn
from tests.patience import PATIENCE, threads_end, wait_until
from tests.testing.conversations import WIRES
from tests.testing.raw import STREAM, Heard, ask, body_of, connect, hear, request

SHORT = 0.15
MODES = {"whole": False, "streamed": True}


def ended(*ends: str) -> Callable[[Heard, bytes], bool]:
    """The answer began, stopped before its end, and in this way."""
    return lambda heard, good: heard.status == 200 and heard.end in ends and len(heard.body) < len(good)


def pieces_in(body: bytes) -> int:
    return len(body.split()) + body.count(b" ")


def never_ended(heard: Heard, good: bytes) -> bool:
    return heard.end == "silent" and good not in heard.body and pieces_in(heard.body) > 20


def framed(body: bytes) -> bytes:
    """Without the differences that line ends and marks of byte order make."""
    return body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")


def length_is_wrong(heard: Heard, good: bytes) -> bool:
    return int(heard.headers["content-length"]) == len(good) + 64 and heard.end == "short"


HAPPENS: dict[str, tuple[faults.Fault, Callable[[Heard, bytes], object]]] = {
    "cut": (faults.Cut(), ended("whole")),
    "torn": (faults.Torn(), ended("short")),
    "reset": (faults.Reset(), ended("reset")),
    "stall": (faults.Stall(), ended("silent")),
    "stall after the head": (faults.Stall(after=0), lambda heard, _good: (heard.body, heard.end) == (b"", "silent")),
    "silent": (faults.Silent(), lambda heard, _good: (heard.status, heard.end) == (0, "silent")),
    "slow": (faults.Slow(head=0.01, between=0.001), lambda heard, good: heard.body == good and heard.end == "whole"),
    "error event": (faults.ErrorEvent(), lambda heard, _good: heard.status == 200 and b"Overloaded" in heard.body),
    "inserted bytes": (faults.Insert(b"@@@"), lambda heard, good: heard.body.replace(b"@@@", b"") == good != heard.body),
    "malformed json": (faults.Malformed(), lambda heard, good: len(heard.body) > len(good)),
    "malformed sse": (faults.Malformed("sse"), lambda heard, good: len(heard.body) > len(good)),
    "malformed utf-8": (faults.Malformed("utf8"), lambda heard, good: len(heard.body) > len(good)),
    "nul bytes": (faults.Malformed("nul"), lambda heard, _good: b"\x00" in heard.body),
    "huge": (faults.Huge(100_000), lambda heard, good: len(heard.body) >= len(good) + 100_000),
    "endless": (faults.Endless(every=0.001), never_ended),
    "endless comments": (faults.Endless(every=0.001, kind="comment"), never_ended),
    "unfinished": (faults.Unfinished(), ended("whole")),
    "twice": (faults.Twice(), lambda heard, good: heard.body.startswith(good) and len(heard.body) > len(good)),
    "extra": (faults.ExtraBytes(b"more"), lambda heard, good: heard.body == good + b"more"),
    "gzip": (faults.Gzip(), lambda heard, good: heard.headers["content-encoding"] == "gzip" and heard.body == good),
    "truncated gzip": (faults.Gzip(lost=30), lambda heard, good: good.startswith(heard.body) and heard.body != good),
    "bytewise": (faults.Bytewise(), lambda heard, good: heard.body == good),
    "other line ends": (faults.Crlf(), lambda heard, good: framed(heard.body) == framed(good)),
    "byte order mark": (faults.Bom(), lambda heard, good: heard.body == b"\xef\xbb\xbf" + good),
    "wrong length": (faults.WrongLength(), length_is_wrong),
    "hung up": (faults.HangUp("said"), lambda heard, good: heard.headers["connection"] == "close" and heard.body == good),
}
SPEECH = Text("This is a sentence of some length.", pieces=6)
WAITS: dict[str, dict[str, Any]] = {
    "silent": {"patience": SHORT},
    "stall": {"patience": PATIENCE, "settle": SHORT},
    "endless": {"patience": PATIENCE, "enough": lambda body: pieces_in(body) > 20},
}
"""How long to listen to an answer that does not end."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HAPPENS)
@pytest.mark.parametrize("wire", WIRES)
def test_the_fault_happens(wire: str, name: str, mode: str) -> None:
    fault, happened = HAPPENS[name]
    with FakeServer(wire, [turn(SPEECH)], seed="same") as server:
        good = ask(server, wire, streamed=MODES[mode])
    with FakeServer(wire, [turn(SPEECH, faults=(fault,))], seed="same") as server:
        bad = ask(server, wire, streamed=MODES[mode], **WAITS.get(name.split()[0], {"patience": PATIENCE}))
    assert good.end == "whole"
    assert happened(bad, good.body)


ENDINGS = {
    "anthropic_messages": (b"event: message_stop", b"message_delta"),
    "openai_responses": (b"response.completed", b"response.output_item.done"),
    "openai_chat": (b'"finish_reason":"stop"', b'"content":'),
    "gemini": (b"finishReason", b"candidates"),
}


@pytest.mark.parametrize("wire", WIRES)
def test_an_unfinished_stream_has_everything_but_the_terminal_mark(wire: str) -> None:
    with FakeServer(wire, [faults.Unfinished()]) as server:
        body = ask(server, wire, streamed=True).body
    missing, there = ENDINGS[wire]
    assert missing not in body
    assert there in body


def test_only_the_last_event_can_be_missing() -> None:
    with FakeServer("openai_chat", [faults.Unfinished(frames=1)]) as server:
        body = ask(server, "openai_chat", streamed=True).body
    assert b'"finish_reason":"stop"' in body
    assert b"[DONE]" not in body


STREAM_ERRORS: dict[str, Callable[[Heard], object]] = {
    "": lambda heard: "error" in heard.events[-1] and b"[DONE]" not in heard.body,
    "groq": lambda heard: b"event: error\n" in heard.body and b"[DONE]" not in heard.body,
    "openrouter": lambda heard: heard.events[-1]["choices"] and b"[DONE]" in heard.body,
}


@pytest.mark.parametrize("dialect", STREAM_ERRORS)
def test_a_chat_stream_breaks_in_the_way_of_its_dialect(dialect: str) -> None:
    body = {**body_of("openai_chat", streamed=True), "model": "some-model"}
    with FakeServer("openai_chat", [faults.ErrorEvent()], dialect=dialect) as server:
        assert STREAM_ERRORS[dialect](ask(server, "openai_chat", body, streamed=True))


def test_faults_add_up() -> None:
    wrong = (faults.UnknownEvent(), faults.Crlf(), faults.Bom(), faults.Bytewise(), faults.Gzip(), faults.HangUp())
    with FakeServer("anthropic_messages", [turn("Hello.", faults=wrong)]) as server:
        heard = ask(server, "anthropic_messages", streamed=True)
    assert heard.body.startswith(b"\xef\xbb\xbfevent: message_start\r\n")
    assert b"weather_report" in heard.body


@pytest.mark.parametrize("wire", WIRES)
def test_other_things_can_come_instead_of_an_answer(wire: str) -> None:
    with FakeServer(wire, [Html(), Empty(), Redirect("/there"), Raw(b"[1]")]) as server:
        page, empty, redirect, raw = (ask(server, wire, streamed=True) for _ in range(4))
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (empty.status, empty.body) == (200, b"")
    assert (redirect.status, redirect.headers["location"]) == (307, "/there")
    assert raw.body == b"[1]"


def test_a_connection_that_is_hung_up_in_silence_is_closed() -> None:
    with FakeServer("openai_chat", [turn("Hi.", faults=(faults.HangUp(),))]) as server, connect(server) as link:
        link.sendall(request(server, "POST", "/chat/completions", json.dumps(body_of("openai_chat")).encode()))
        heard = hear(link)
        assert (heard.end, "connection" in heard.headers) == ("whole", False)
        assert link.recv(1) == b""


def test_a_huge_frame_is_never_held_as_a_whole() -> None:
    size, read = 48_000_000, 0
    with FakeServer("gemini", [turn("Hi.", faults=(faults.Huge(size),))]) as server, connect(server) as link:
        tracemalloc.start()
        try:
            link.sendall(request(server, "POST", STREAM, json.dumps(body_of("gemini")).encode()))
            while read < size:
                read += len(link.recv(65536))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4_000_000


def test_the_document_names_every_fault_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
    [table] = re.findall(r"\| fault \| what happens \|\n(.*?)\n\n", page, re.DOTALL)
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {fault.__name__ for fault in get_args(faults.Fault)}


ENDLESS_FAULTS: list[Any] = [
    faults.Stall(),
    faults.Silent(),
    faults.Slow(head=200.0),
    faults.Slow(between=200.0),
    faults.Endless(every=0.001),
    faults.Huge(10**12),
]


@pytest.mark.parametrize("fault", ENDLESS_FAULTS, ids=repr)
def test_what_would_never_end_ends_when_the_server_closes(fault: faults.Fault) -> None:
    with threads_end(), FakeServer("openai_chat", [turn(SPEECH, faults=(fault,))]) as server, connect(server) as link:
        _begin(server, link)
        server.close()


@pytest.mark.parametrize("fault", ENDLESS_FAULTS, ids=repr)
def test_what_would_never_end_ends_when_the_client_goes(fault: faults.Fault) -> None:
    with FakeServer("openai_chat", [turn(SPEECH, faults=(fault,)), "Next."]) as server:
        with connect(server) as link:
            _begin(server, link)
        assert ask(server, "openai_chat").status == 200
        wait_until(lambda: server.connections == 0)


def _begin(server: FakeServer, link: Any) -> None:
    """A request is under way."""
    body = json.dumps(body_of("openai_chat", streamed=True)).encode()
    link.sendall(request(server, "POST", "/chat/completions", body))
    wait_until(lambda: server.requests)
