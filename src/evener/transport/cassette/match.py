"""Matches a sent request with recorded ones, and describes how two of them differ. Pure.

Two requests are the same when method, path, query (credentials aside) and body are; a body that is JSON is compared as JSON.
The host is not compared: a cassette plays for any endpoint.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Final

import msgspec

from evener.transcript.scan import is_deeper, short
from evener.transport.cassette.scrub import CREDENTIAL, query_parts, split_url

DEEPEST = 200
MOST_LINES = 8
MOST_COUNTED = 100
SHOWN = 60  # characters of a value


Json = dict[str, object] | list[object]


class _Missing:
    """The marker of a side that has no value."""


MISSING: Final = _Missing()


class Compared(msgspec.Struct, frozen=True):
    """A request as it is compared. `json` is None when the body is none; `key` is the same for equal requests."""

    method: str
    target: str
    body: bytes
    json: Json | None
    key: tuple[str, str, bytes]

    def __str__(self) -> str:
        return f"{self.method} {_printable(self.target)}"


def normalize(method: str, url: str, *, body: bytes) -> Compared:
    """Return a request in the form that is used for comparison."""
    method, target, value = method.upper(), _target(url), as_json(body)
    return Compared(method, target, body, value, (method, target, body if value is None else _canonical(value).encode()))


def as_json(body: bytes) -> Json | None:
    """Parse an object or a list; None for all else, and for JSON with duplicate keys, lone surrogates or great depth."""
    if body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(body.decode(), object_pairs_hook=unique, parse_constant=refuse_constant)
        _canonical(value).encode()
    except (ValueError, RecursionError):
        return None
    return value if not is_deeper(value, DEEPEST) and isinstance(value, (dict, list)) else None


def find_nearest(recorded: Sequence[Compared], used: Iterable[int], sent: Compared) -> int:
    """Return the number of the recorded request that was probably meant: same target first, then not yet used, then fewest
    differences.
    """
    given = set(used)

    def distance(number: int) -> tuple[bool, bool, int]:
        other = recorded[number]
        changes = sum(1 for _ in islice(_body_differences(other, sent), MOST_COUNTED))
        return (other.method, other.target) != (sent.method, sent.target), number in given, changes

    return min(range(len(recorded)), key=distance)


def difference_lines(recorded: Compared, sent: Compared) -> list[str]:
    """Return one line for each of the first differences."""
    found = list(islice(_differences(recorded, sent), MOST_COUNTED))
    lines = [_line(path, *sides) for path, *sides in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        more = "at least " if len(found) == MOST_COUNTED else ""
        lines.append(f"... and {more}{len(found) - MOST_LINES} more")
    return lines


def _target(url: str) -> str:
    _, path, query = split_url(url)
    parts = sorted(f"{name}={value}" for name, value in query_parts(query) if not CREDENTIAL.search(name))
    return f"{path or '/'}?{'&'.join(parts)}" if parts else path or "/"


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object of these pairs. Raises ValueError for a key that stands twice."""
    value: dict[str, object] = {}
    for key, one in pairs:
        if key in value:
            raise ValueError(f"the key {short(key)!r} stands twice in one object")
        value[key] = one
    return value


def refuse_constant(word: str) -> object:
    """Raise ValueError for NaN and the infinities, which Python's parser accepts."""
    raise ValueError(f"this is not JSON: {word} is not a JSON number")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


Difference = tuple[str, object, object]
"""Path, what was recorded, what was sent."""


def _differences(recorded: Compared, sent: Compared) -> Iterator[Difference]:
    if recorded.method != sent.method:
        yield "method", recorded.method, sent.method
    if recorded.target != sent.target:
        yield "url", recorded.target, sent.target
    yield from _body_differences(recorded, sent)


def _body_differences(recorded: Compared, sent: Compared) -> Iterator[Difference]:
    if recorded.json is not None and sent.json is not None:
        yield from _json_differences("", recorded.json, sent.json)
    elif recorded.body != sent.body:
        yield "body", recorded.body.decode(errors="backslashreplace"), sent.body.decode(errors="backslashreplace")


def _json_differences(path: str, recorded: object, sent: object) -> Iterator[Difference]:
    match recorded, sent:
        case dict(), dict():
            for key in [*recorded, *(key for key in sent if key not in recorded)]:
                yield from _json_differences(f"{path}.{key}", recorded.get(key, MISSING), sent.get(key, MISSING))
        case list(), list():
            for number, (one, other) in enumerate(zip_longest(recorded, sent, fillvalue=MISSING)):
                yield from _json_differences(f"{path}[{number}]", one, other)
        case _ if recorded is MISSING or sent is MISSING or _canonical(recorded) != _canonical(sent):
            yield path, recorded, sent


def _line(path: str, recorded: object, sent: object) -> str:
    place = _printable(_shorten(path.lstrip("."), 0)) or "body"
    if isinstance(recorded, str) and isinstance(sent, str):
        start = _common(recorded, sent)
        return f"{place}: recorded {_shorten(recorded, start)!r}, sent {_shorten(sent, start)!r}"
    if recorded is MISSING:
        return f"{place}: not recorded, sent {_show(sent)}"
    if sent is MISSING:
        return f"{place}: recorded {_show(recorded)}, not sent"
    return f"{place}: recorded {_show(recorded)}, sent {_show(sent)}"


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _show(value: object) -> str:
    return repr(_shorten(value, 0)) if isinstance(value, str) else _printable(_shorten(_canonical(value), 0))


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _shorten(text: str, place: int) -> str:
    """Return the part of the text around a place."""
    start = place - SHOWN // 3 if place > SHOWN // 2 and len(text) > SHOWN else 0
    cut = text[start : start + SHOWN]
    return f"{'...' if start else ''}{cut}{'...' if start + SHOWN < len(text) else ''}"
