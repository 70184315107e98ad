"""Decoding a stream against the floor: splitting and parsing the same bytes with the fastest parser installed."""

from collections.abc import Sequence

import msgspec

from bench.clock import cheapest
from bench.floor import PARSERS, split_and_parse
from bench.streams import SHAPES, STREAMS, Stream, stream_of
from bench.table import Figure
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks

__all__ = ["CHUNKS", "check", "decode_all", "figures"]

MOST = 2.0
CHUNKS = {"16 KiB": 16 * 1024, "an event": 0}
"""How a socket hands out the bytes: large reads when we lag behind, one event each when we do not."""

KINDS: dict[str, tuple[type, ...]] = {
    "text": (d.TextDelta,),
    "arguments": (d.ArgumentsDelta, d.CallEnded, d.TextDelta),
    "reasoning": (d.ReasoningDelta,),
}


def figures(deltas: int, passes: int) -> list[Figure]:
    """Every registered wire, every shape, both sizes of chunks: CPU per delta."""
    found = []
    for wire in CODECS:
        if wire not in STREAMS:
            found.append(Figure(f"decode {wire}", note="no stream of this wire is made up yet"))
            continue
        for shape in SHAPES:
            stream = stream_of(wire, shape, deltas)
            check(stream)
            found += (_figure(stream, called, size, passes) for called, size in CHUNKS.items())
    return found


def check(stream: Stream) -> None:
    """See that the decoder understood every delta: a bench of misread bytes would measure nothing."""
    found = decode_all(stream.wire, stream.chunks(0))
    pieces = sum(isinstance(delta, KINDS[stream.shape]) for delta in found)
    if pieces < stream.deltas or not isinstance(found[-1], d.Stopped):
        raise AssertionError(f"{stream.wire} {stream.shape}: {pieces} pieces of {stream.deltas}, ended by {found[-1]}")


def decode_all(wire: str, chunks: Sequence[bytes]) -> list[d.Delta]:
    """All deltas of a stream."""
    decoder = CODECS[wire].decoder(Quirks())
    found = [delta for chunk in chunks for delta in decoder.feed(chunk)]
    return found + decoder.close()


def decode(wire: str, chunks: Sequence[bytes]) -> None:
    """Decode and let go, as one who shows each delta and keeps none."""
    decoder = CODECS[wire].decoder(Quirks())
    for chunk in chunks:
        decoder.feed(chunk)
    decoder.close()


def _figure(stream: Stream, called: str, size: int, passes: int) -> Figure:
    chunks = stream.chunks(size)
    blank = b"\r\n\r\n" if b"\r\n\r\n" in stream.events[0] else b"\n\n"
    plain, typed = PARSERS[stream.wire]
    costs = cheapest(
        (
            lambda: decode(stream.wire, chunks),
            lambda: split_and_parse(chunks, plain, blank),
            lambda: split_and_parse(chunks, typed, blank),
        ),
        passes,
    )
    ours, orjson, typed_msgspec = (cost / stream.deltas * 1e6 for cost in costs)
    note = "floor: orjson" if orjson < typed_msgspec else f"floor: msgspec {msgspec.__version__}, typed"
    return Figure(
        f"decode {stream.wire} {stream.shape}, {called} a chunk", ours, min(orjson, typed_msgspec), most=MOST, note=note
    )
