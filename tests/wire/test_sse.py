"""Server-sent events, by the HTML standard's rules: the same data however the bytes are cut."""

import pytest

from evener.errors import WireError
from evener.wire.sse import SseReader

NAMED = b"event: x\ndata: %d\n\n"
CASES: dict[str, tuple[bytes, list[bytes]]] = {
    "one event": (b"data: a\n\n", [b"a"]),
    "no blank after the colon": (b"data:a\n\ndata:b\n\n", [b"a", b"b"]),
    "only one blank is dropped": (b"data:  a\n\n", [b" a"]),
    "an empty one": (b"data: \n\ndata\n\n", [b""]),
    "several lines": (b"data: a\ndata: b\n\n", [b"a\nb"]),
    "names and ids": (b"event: x\nid: 1\ndata: a\nretry: 9\n\n", [b"a"]),
    "a comment": (b": hello\n\ndata: a\n\n: data: b\n\n", [b"a"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "CR": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "all line ends": (b"data: a\r\n\ndata: b\n\rdata: c\r\r\n", [b"a", b"b", b"c"]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    "many blank lines": (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
    "no blank line at the end": (b"data: a\n\ndata: b", [b"a", b"b"]),
    "a line separator is no line end": ("data: a\u2028b\x85\x0bc\n\n".encode(), ["a\u2028b\x85\x0bc".encode()]),
    "a run of one name": (b"".join(NAMED % n for n in range(9)), [b"%d" % n for n in range(9)]),
    "another name in a run": (NAMED % 1 * 4 + b"event: ping\ndata: p\n\n" + NAMED % 2 * 3, [b"1"] * 4 + [b"p"] + [b"2"] * 3),
    "more lines in a run": (NAMED % 1 * 3 + b"event: x\ndata: a\ndata: b\nid: 4\n\n" + NAMED % 2, [b"1"] * 3 + [b"a\nb", b"2"]),
    "names that come and go": (
        b"data: a\n\n" + NAMED % 1 * 2 + b"data: b\n\ndata: c\n\n" + NAMED % 2,
        [b"a", b"1", b"1", b"b", b"c", b"2"],
    ),
    "a name without data": (b"event: x\n\n" + NAMED % 1 + b"event: y\n\n" + NAMED % 2, [b"1", b"2"]),
    "a name behind its data": (NAMED % 1 + b"data: a\nevent: x\n\n" + b"event: x\nid: 7\ndata: b\n\n", [b"1", b"a", b"b"]),
    "a comment that looks like data": (b"data: x\n: data: y\n\n" * 3 + b"data: x\n: data: z\n\n", [b"x"] * 4),
    "a name that looks like data": (b"event: data: y\ndata: x\n\n" * 3, [b"x"] * 3),
}


def read(data: bytes, size: int, most: int = 1000) -> list[bytes]:
    reader = SseReader(max_frame=most)
    found = [event for start in range(0, len(data), size) for event in reader.feed(data[start : start + size])]
    return found + reader.close()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 1000])
@pytest.mark.parametrize("case", CASES)
def test_events_are_the_same_in_any_chunks(case: str, size: int) -> None:
    data, events = CASES[case]
    assert read(data, size) == events


@pytest.mark.parametrize("case", CASES)
def test_one_event_a_chunk_is_the_same(case: str) -> None:
    data, events = CASES[case]
    reader = SseReader()
    pieces = data.replace(b"\n\n", b"\n\n\xff").split(b"\xff") if b"\xff" not in data else [data]
    assert [event for piece in pieces for event in reader.feed(piece)] + reader.close() == events


@pytest.mark.parametrize("size", [1, 50, 200])
def test_an_event_beyond_the_cap_is_an_error(size: int) -> None:
    data = b"data: a\n\ndata: " + b"x" * 100 + b"\n\n"
    with pytest.raises(WireError, match="larger than 60 bytes"):
        read(data, size, most=60)


def test_small_events_beyond_the_cap_together_are_fine() -> None:
    assert SseReader(max_frame=20).feed(b"data: a\n\n" * 10) == [b"a"] * 10


@pytest.mark.parametrize("first", [b"\xef", b"\xef\xbb"])
def test_half_a_byte_order_mark_is_not_taken_for_half_an_event(first: bytes) -> None:
    reader = SseReader(max_frame=14)
    rest = b"\xef\xbb\xbf\n\ndata: abcdefg"[len(first) :]
    assert reader.feed(first) == reader.feed(rest) == []
    assert reader.feed(b"\n\n") == [b"abcdefg"]
