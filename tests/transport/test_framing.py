"""HTTP/1.1 without a socket: the same answer however its bytes are cut, and nothing is taken for HTTP that is not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from evener.errors import BadValue
from evener.transport.connection import HEAD, LINES, Framing, NotHttp, head_bytes

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


def fed(*pieces: bytes, method: str = "POST") -> tuple[Framing, bytes]:
    answer = Framing(method)
    parts = [part for piece in pieces for part in answer.feed(piece)]
    assert all(parts), "an empty piece would be taken for the end"
    return answer, b"".join(parts)


def chunked(pieces: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    filled = [piece for piece in pieces if piece]
    return b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in filled) + b"0\r\n" + trailer + b"\r\n"


@given(
    some.lists(some.binary(max_size=300), max_size=8),
    some.sampled_from(["length", "chunks", "extended", "trailed", "close"]),
    some.lists(some.integers(0, 3000), max_size=12),
    some.booleans(),
)
def test_cut_anywhere_an_answer_is_the_same(pieces: list[bytes], how: str, cuts: list[int], interim: bool) -> None:
    body = b"".join(pieces)
    wire = {
        "length": OK + b"content-length: %d\r\nx-a: 1\r\nX-A:2\r\n\r\n" % len(body) + body,
        "chunks": CHUNKED + chunked(pieces),
        "extended": CHUNKED + chunked(pieces, b' ;name="value"'),
        "trailed": CHUNKED + chunked(pieces, trailer=b"x-checked: yes\r\n"),
        "close": OK + b"\r\n" + body,
    }[how]
    wire = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + wire if interim else wire
    places = sorted({min(cut, len(wire)) for cut in cuts})
    parts = [wire[start:end] for start, end in zip([0, *places], [*places, len(wire)], strict=True)]
    answer, got = fed(*parts)
    assert (answer.status, got) == (200, body)
    assert answer.ended is (how != "close")
    assert answer.reusable is (how != "close")
    assert answer.finish()
    if how == "length":
        assert answer.headers["x-a"] == "1, 2"


@given(some.binary(max_size=200), some.integers(0, 200))
def test_whatever_comes_it_is_read_or_refused(noise: bytes, keep: int) -> None:
    """Noise behind any beginning of a real answer ends in a status or in NotHttp, never in another error."""
    start = (CHUNKED + chunked([b"hello", b"world"]))[:keep]
    answer = Framing()
    try:
        for at in range(0, len(start + noise), 7):
            answer.feed((start + noise)[at : at + 7])
        answer.finish()
    except NotHttp:
        return
    assert answer.status in range(1000)


REFUSED = {
    "another protocol": b"SSH-2.0-x\r\n\r\n",
    "the first byte": b"\x16",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "no status": b"HTTP/1.1 \r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status below 100": b"HTTP/1.1 099 OK\r\n\r\n",
    "digits of another script": "HTTP/1.1 \uff12\uff10\uff10 OK\r\n\r\n".encode(),
    "a folded header": OK + b"a: b\r\n c\r\n\r\n",
    "a space before the colon": OK + b"a : b\r\n\r\n",
    "a header without a name": OK + b": b\r\n\r\n",
    "a header without a colon": OK + b"ab\r\n\r\n",
    "a bare line feed": OK + b"a: b\nc: d\r\n\r\n",
    "a null": OK + b"a: \0\r\n\r\n",
    "two lengths": OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    "a signed length": OK + b"content-length: +1\r\n\r\n",
    "no length": OK + b"content-length:\r\n\r\n",
    "a length beyond reason": OK + b"content-length: 9999999999999999\r\n\r\n",
    "a coding that was not asked for": OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "a chunk of no size": CHUNKED + b"\r\n",
    "a chunk with a prefix": CHUNKED + b"0x5\r\nhello\r\n",
    "a chunk with a sign": CHUNKED + b"-5\r\n",
    "a chunk with an underscore": CHUNKED + b"1_0\r\n",
    "a chunk beyond reason": CHUNKED + b"f" * 17 + b"\r\n",
    "a chunk that is longer than it says": CHUNKED + b"2\r\nabc\r\n",
    "a head of bare line feeds": b"HTTP/1.1 200 OK\n\n",
    "a chunk with a bare line feed": CHUNKED + b"2;a\nb\r\nxx\r\n",
    "a trailer that is none": CHUNKED + b"0\r\nnothing\r\n\r\n",
    "a length with an odd space": OK + b"content-length: \x0b1\r\n\r\n",
    "an extension without end": CHUNKED + b"2;" + b"a" * 70_000,
    "the same header too often": OK + b"a: b\r\n" * 130 + b"\r\n",
    "a line without end": CHUNKED + b"1" * 5000,
    "trailers without end": CHUNKED + b"0\r\n" + b"a: b\r\n" * 20_000,
    "a head without end": OK + b"a: b\r\n" * 20_000,
    "too many headers": OK + b"".join(b"a%d: b\r\n" % number for number in range(130)) + b"\r\n",
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("cut", [1, 100_000_000], ids=["by the byte", "whole"])
def test_what_is_not_http_is_refused_however_it_comes(name: str, cut: int) -> None:
    wire = REFUSED[name][:70_000]
    with pytest.raises(NotHttp):
        fed(*(wire[at : at + cut] for at in range(0, len(wire), cut)))


@pytest.mark.parametrize("cut", [1, 1000, 100_000_000])
def test_the_bounds_are_the_same_however_it_comes(cut: int) -> None:
    """As much as is allowed, to the byte."""
    head = OK + b"a: b\r\n" * (LINES - 2)
    head += b"x: " + b"y" * (HEAD - len(head) - 5) + b"\r\n\r\n"
    trailed = CHUNKED + b"2;" + b"a" * 4_000 + b"\r\nxx\r\n0\r\n" + b"t: u\r\n" * 120 + b"\r\n"
    for wire in (head, trailed):
        answer, _ = fed(*(wire[at : at + cut] for at in range(0, len(wire), cut)))
        assert answer.finish()


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200\r\ncontent-length: 0, 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 9\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive, close\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200", False),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", False),
    ],
)
def test_a_connection_is_kept_only_when_both_sides_know_where_the_answer_ended(head: bytes, reusable: bool) -> None:
    answer, body = fed(head)
    assert (answer.ended, body, answer.reusable) == (True, b"", reusable)


BEHIND = {
    "junk": b"x",
    "a line break": b"\r\n",
    "half a line break": b"\r",
    "a bare line feed": b"\n",
    "an answer without a length": b"HTTP/1.1 200 OK\r\n\r\nmore",
    "an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmore",
    "an answer without a body": b"HTTP/1.1 204 No Content\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "more than fits between two chunks": b"\xff" * 20_000,
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 7, 100_000_000])
@pytest.mark.parametrize("body", [chunked([b"hello"]), chunked([b"hello"], trailer=b"t: u\r\n")], ids=["", "trailed"])
def test_what_comes_behind_an_answer_is_none_of_it_and_ends_the_connection(behind: str, cut: int, body: bytes) -> None:
    wire = body + BEHIND[behind]
    answer, got = fed(CHUNKED, *(wire[at : at + cut] for at in range(0, len(wire), cut)))
    assert (answer.ended, got, answer.reusable) == (True, b"hello", False)


@pytest.mark.parametrize("cut", range(1, 12))
def test_the_end_of_an_answer_is_found_however_it_comes(cut: int) -> None:
    wire = chunked([b"hello"], trailer=b"t: u\r\n")
    answer, got = fed(CHUNKED, *(wire[at : at + cut] for at in range(0, len(wire), cut)))
    assert (answer.ended, got, answer.reusable) == (True, b"hello", True)


def test_nobody_speaks_in_a_tunnel_before_we_do() -> None:
    with pytest.raises(NotHttp):
        fed(b"HTTP/1.1 200 OK\r\n\r\n", b"\x16", method="CONNECT")


def test_an_answer_to_head_ends_with_its_head() -> None:
    assert fed(OK + b"content-length: 9\r\n\r\n", method="HEAD")[0].reusable
    assert fed(OK + b"transfer-encoding: chunked\r\n\r\n", method="HEAD")[0].ended


@pytest.mark.parametrize(
    ("came", "begun"), [(b"", False), (b"H", True), (b"HTTP/1.1 100 X\r\n\r\n", True), (OK + b"\r\n", True)]
)
def test_any_byte_begins_an_answer(came: bytes, begun: bool) -> None:
    assert fed(came)[0].begun is begun


def test_a_tunnel_has_no_body_when_it_stands() -> None:
    assert fed(b"HTTP/1.0 200 Connection established\r\n\r\n", method="CONNECT")[0].ended
    assert not fed(b"HTTP/1.1 407 No\r\ncontent-length: 5\r\n\r\n", method="CONNECT")[0].ended


@pytest.mark.parametrize("cut", [b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n"])
def test_a_body_that_stops_early_is_not_whole(cut: bytes) -> None:
    answer, _ = fed(CHUNKED + cut)
    assert not answer.finish()


def test_a_request_is_written_as_given() -> None:
    said = head_bytes("POST", "/v1?x=1", [("host", "a"), ("X-Latin", "é")])
    assert said == b"POST /v1?x=1 HTTP/1.1\r\nhost: a\r\nX-Latin: \xe9\r\n\r\n"


@pytest.mark.parametrize(
    "header",
    [
        ("a", "b\r\nc: d"),
        ("a", "b\nc"),
        ("a", "b\0"),
        ("a b", "c"),
        ("", "c"),
        ("a:", "c"),
        ("a\r\nb", "c"),
        ("a", "\u2028"),
        ("a: b", "c"),
    ],
)
def test_a_header_that_would_be_more_than_one_is_refused_without_its_value(header: tuple[str, str]) -> None:
    with pytest.raises(BadValue, match="cannot be sent") as failed:
        head_bytes("POST", "/", [("x-key", "secret-value"), header])
    assert not re.search("secret-value", str(failed.value))
