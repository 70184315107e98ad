"""Bytes that no provider should send: valid documents with one thing wrong, and worse. For the laws of the wires."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.golden.cases import FOLDER, cases

Path = tuple[str | int, ...]
HOLE = "\x00hole\x00"

# JSON texts, legal and not, that stand where something else is expected.
VALUES = (
    *("null", "true", "0", "-1", "1.5", '""', '"x"', "[]", "{}", "[null]", '[""]', '{"type":"text"}', '[{"type":"text"}]'),
    *("1e999", "-1e999", "9" * 400, "9" * 5000, "-" + "9" * 30, "1e-999", "18446744073709551616", "NaN", "Infinity", "-NaN"),
    *(
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\u0000"',
        '"\\x"',
        '"\t"',
        "01",
        "1.",
        "'x'",
        "",
        "tru",
        '{"a":1,"a":2}',
        '{"a"}',
        "[1,]",
    ),
    *("[" * 100_000, '{"a":' * 100_000, "[" * 2000 + "]" * 2000, '{"a":' * 2000 + "1" + "}" * 2000),
)
BYTES = (b"\xff", b'"\xff"', b'"\xed\xa0\x80"', b'"\xc3', b'"\xf0\x9f\x90"', b'"\xc0\x80"', b"\xef\xbb\xbf{}", b"\x00")


def documents(wire: str, *files: str) -> list[Any]:
    """The golden JSON of a wire."""
    return [json.loads(case.bytes(file)) for file in files for case in cases(file) if case.wire == wire]


def events(wire: str) -> list[list[Any]]:
    """The events of each golden stream of a wire that is framed in the usual way."""
    found = []
    for path in sorted((FOLDER / wire).glob("*/response.sse")):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = [line[6:] for line in text.split("\n") if line.startswith("data: {")]
        if path.parent.name not in ("odd_framing", "cut_off_stream"):
            found.append([json.loads(line) for line in lines])
    return found


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """Every place in a document."""
    yield here
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*here, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from paths(item, (*here, place))


def with_hole(value: Any, path: Path) -> Any:
    """The document with one value replaced."""
    if not path:
        return HOLE
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_hole(value[path[0]], path[1:])
    return copy


def filled(value: Any, path: Path, filling: bytes) -> bytes:
    """The document as bytes, with other bytes at one place."""
    return json.dumps(with_hole(value, path)).encode().replace(json.dumps(HOLE).encode(), filling)


def without(value: Any, path: Path) -> Any:
    """The document without one key or item."""
    if not path:
        return {}
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(value[path[0]], path[1:])
    return copy


@st.composite
def spoilt(draw: DrawFn, document: Any) -> bytes:
    """A document with one thing wrong."""
    path = draw(st.sampled_from(list(paths(document))))
    match draw(st.sampled_from(["value", "value", "bytes", "gone", "cut", "flipped"])):
        case "value":
            return filled(document, path, draw(st.sampled_from(VALUES)).encode())
        case "bytes":
            return filled(document, path, draw(st.sampled_from(BYTES)))
        case "gone":
            return json.dumps(without(document, path)).encode()
        case "cut":
            body = json.dumps(document, ensure_ascii=False).encode()
            return body[: draw(st.integers(0, len(body)))]
        case _:
            whole = bytearray(json.dumps(document).encode())
            whole[draw(st.integers(0, len(whole) - 1))] = draw(st.integers(0, 255))
            return bytes(whole)
