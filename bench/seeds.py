"""Valid inputs to start fuzzing from: made-up streams, requests of our own, and the golden cases of the tests."""

import json
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec

from bench.streams import SHAPES, STREAMS, stream_of
from bench.talk import ask_of, quirks_of, turns
from evener.transcript.json import dump
from evener.wire import CODECS

__all__ = ["Seeds", "seeds", "vocabulary"]

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
TURNS = 3
DELTAS = 4


class Seeds(msgspec.Struct, frozen=True):
    """Valid inputs of one wire, by what reads them."""

    stream: tuple[bytes, ...]
    body: tuple[bytes, ...]
    request: tuple[bytes, ...]
    fault: tuple[bytes, ...]
    document: tuple[bytes, ...]


@cache
def seeds(wire: str) -> Seeds:
    """The valid inputs of a wire, in a fixed order."""
    talk = list(islice(turns(wire), TURNS))
    requests = [CODECS[wire].encode(ask_of(wire, turn.transcript), quirks_of(wire), None).body for turn in talk]
    streams = [stream_of(wire, shape, DELTAS).data for shape in SHAPES] if wire in STREAMS else []
    return Seeds(
        stream=(*streams, *_golden(wire, "response.sse")),
        body=_golden(wire, "response.json"),
        request=(*requests, *_golden(wire, "request.json")),
        fault=_faults(wire),
        document=tuple(dump(turn.transcript) for turn in talk),
    )


def _golden(wire: str, name: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((GOLDEN / wire).glob(f"*/{name}")))


def _faults(wire: str) -> tuple[bytes, ...]:
    plain = b'{"type":"error","error":{"type":"overloaded_error","message":"Busy","code":529,"status":"UNAVAILABLE"}}'
    return (plain, b"[%s]" % plain, b"<html>Bad gateway</html>", *_golden(wire, "error.json"))


@cache
def vocabulary() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys, and the short texts, that occur in the valid inputs of all wires."""
    keys: set[str] = set()
    texts: set[str] = set()
    for wire in CODECS:
        for data in (*seeds(wire).body, *seeds(wire).request, *_events(wire)):
            _gather(json.loads(data), keys, texts)
    return tuple(sorted(keys)), tuple(sorted(texts))


def _events(wire: str) -> list[bytes]:
    lines = [line for stream in seeds(wire).stream for line in stream.splitlines() if line.startswith(b"data: {")]
    return [line[6:] for line in lines if _is_json(line[6:])]


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _gather(value: object, keys: set[str], texts: set[str]) -> None:
    match value:
        case dict():
            keys.update(value)
            for inner in value.values():
                _gather(inner, keys, texts)
        case list():
            for inner in value:
                _gather(inner, keys, texts)
        case str() if len(value) < 40:
            texts.add(value)
