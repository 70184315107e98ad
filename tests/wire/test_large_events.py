"""A large event costs little more than itself, in memory and in what is done at once, however it is cut into lines."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from evener.errors import WireError
from evener.wire.eventstream import EventStreamReader
from evener.wire.sse import SseReader
from tests.wire.test_eventstream import chunk

BIG = 3 << 20
SLICE = 64 * 1024


def lines_of(text: bytes, size: int, opening: bytes = b"data: ", ending: bytes = b"\n") -> bytes:
    """An event with its data in lines of so many bytes."""
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    return b"".join(opening + piece + ending for piece in pieces) + ending


SHAPES: dict[str, Callable[[bytes], bytes]] = {
    "one line": lambda text: b"data: " + text + b"\n\n",
    "one line without a blank": lambda text: b"data:" + text + b"\n\n",
    "a named line": lambda text: b"event: message\ndata: " + text + b"\n\n",
    "short lines": lambda text: lines_of(text, 2),
    "long lines": lambda text: lines_of(text, 100_000),
    "lines without a blank": lambda text: lines_of(text, 7, b"data:"),
    "CRLF": lambda text: lines_of(text, 5, ending=b"\r\n"),
    "CR": lambda text: lines_of(text, 5, ending=b"\r"),
    "comments between": lambda text: lines_of(text, 1000, b": ping\ndata: "),
    "other fields between": lambda text: lines_of(text, 1000, b"id: 1\ndata\nretry: 5\ndata: "),
    "a long comment before": lambda text: b":" + b"c" * 200_000 + b"\ndata: " + text + b"\n\n",
    "blank lines before": lambda text: b"\n\n\n" + b"data: " + text + b"\n\n",
}


def plain(event: bytes) -> list[bytes]:
    """The data as the standard words it, with no care for cost."""
    text = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = [line[5:].removeprefix(b" ") for line in text.split(b"\n") if line.startswith(b"data:")]
    return [b"\n".join(lines)] if lines else []


def fed(reader: SseReader, data: bytes, sizes: Callable[[], int]) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = sizes()
        found += reader.feed(data[at : at + size])
        at += size
    return found + reader.close()


@pytest.mark.parametrize("cutting", ["whole", "slices", "by chance"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_event_has_the_data_of_its_lines_however_it_is_cut(shape: str, cutting: str) -> None:
    random = Random(shape + cutting)
    small, large = b"data: before\n\n", SHAPES[shape](bytes(random.choices(b'{"a":[]} data:\xc3\xa4', k=300_000)))
    sizes = {"whole": lambda: 1 << 30, "slices": lambda: SLICE, "by chance": lambda: int(random.paretovariate(0.5))}[cutting]
    behind = b"data: behind\n\ndata: and\ndata: last\n\n"
    found = fed(SseReader(), small + large + behind + small + large, sizes)
    assert found == [b"before", *plain(large), b"behind", b"and\nlast", b"before", *plain(large)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_event_that_the_stream_ends_on_is_still_told(shape: str) -> None:
    event = SHAPES[shape](b"x" * 300_000).rstrip(b"\r\n")
    assert fed(SseReader(), event, lambda: 50_000) == plain(event)


def test_a_large_json_text_that_calls_itself_a_stream_is_told() -> None:
    text = b'\n{"text": "' + b"x" * 300_000 + b'"}'
    assert fed(SseReader(), text, lambda: 50_000) == [text]


def test_comments_alone_are_no_event_and_have_a_bound() -> None:
    assert fed(SseReader(), b": ping\n" * 100_000 + b"\ndata: x\n\n", lambda: 50_000) == [b"x"]
    with pytest.raises(WireError, match="larger than 1000000 bytes"):
        fed(SseReader(max_frame=1_000_000), b": ping\n" * 200_000, lambda: 50_000)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bound_counts_all_bytes_of_an_event(shape: str) -> None:
    reader = SseReader(max_frame=1_000_000)
    with pytest.raises(WireError, match="larger than 1000000 bytes"):
        fed(reader, SHAPES[shape](b"x" * 1_100_000), lambda: 50_000)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """The peak of the memory that was asked for within, in bytes."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(shape: str, size: int) -> tuple[int, int]:
    """The peak of memory while such an event of 3 MB is read in pieces of this size, and the size of the event."""
    share = len(SHAPES[shape](b"x" * 10_000)) / 10_000
    event, reader = SHAPES[shape](b"x" * int(BIG / share)), SseReader()
    with traced() as peak:
        for at in range(0, len(event), size):
            for frame in reader.feed(event[at : at + size]):
                assert len(frame) > BIG / share / 2
        return peak(), len(event)


@pytest.mark.parametrize("size", [SLICE, 1 << 30], ids=["in slices", "whole"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reading_a_large_event_costs_three_times_its_size_at_most(shape: str, size: int) -> None:
    peak, event = measured(shape, size)
    assert peak < 3 * event


def test_a_large_frame_of_the_binary_framing_costs_three_times_its_size_at_most() -> None:
    frame, reader = chunk("x" * (6 << 20)), EventStreamReader()
    with traced() as peak:
        found = [event for at in range(0, len(frame), SLICE) for event in reader.feed(frame[at : at + SLICE])]
        assert len(found) == 1
        assert len(found[0]) > 6 << 20
        assert peak() < 3 * len(frame)
