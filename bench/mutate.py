"""Makes bad inputs out of good ones, and out of nothing. Pure: the same random source gives the same bytes."""

import json
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from bench.seeds import vocabulary

__all__ = ["mutated", "nonsense"]

PLAIN: tuple[object, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**53, 2**63, 2**64, -(2**63) - 1, 10**40,
    "", " ", "\n", "\x00", "\ud800", "\u2028", "null", "data: ", "x" * 3000, "{}", "[1", [], {}, [[]], [None], {"": ""},
)  # fmt: skip
"""Values that some reader once took for something else."""

SPLICES = (
    b"\n\n", b"\r", b"\r\n\r\n", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"data: ", b"data:", b"event: error\n", b": \n",
    b"data: [DONE]\n\n", b'\\ud800', b"NaN", b"-Infinity", b"1e999", b'"', b"{", b"]", b",", b"null",
)  # fmt: skip
MARK = "@@here@@"
MOST_ITEMS = 300_000  # in one list or object: each costs microseconds, so a million would take seconds whoever reads them
HUGE: tuple[Callable[[int], bytes], ...] = (
    lambda size: b"[" * size,
    lambda size: b'{"a":' * size,
    lambda size: b"[" * size + b"]" * size,
    lambda size: b'{"a":' * size + b"1" + b"}" * size,
    lambda size: b"9" * size,
    lambda size: b"-0." + b"1" * size,
    lambda size: b"1e" + b"9" * size,
    lambda size: b'"' + b"x" * size * 10 + b'"',
    lambda size: b'"' + b"\\u00e9" * size + b'"',
    lambda size: b'"' + b"\\" * size * 2 + b'"',
    lambda size: b"[" + b"{}," * min(size, MOST_ITEMS) + b"0]",
    lambda size: b"{" + b",".join(b'"k%d":0' % number for number in range(min(size, MOST_ITEMS))) + b"}",
)
"""Values that are large in one way; put where a value stood."""

SIZES = (100, 1_000, 5_000, 100_000, 1_000_000)
ROUNDS = (1, 1, 1, 2, 3, 6)
HUGE_ONE_IN = 80
CROSSED_ONE_IN = 15
STOP_ONE_IN = 5


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """The input, damaged in one way or several."""
    for _ in range(random.choice(ROUNDS)):
        data = random.choice(MUTATIONS)(data, random)
    return data if random.randrange(CROSSED_ONE_IN) else _crossed(data, random.choice(others), random)


def nonsense(random: Random) -> bytes:
    """JSON of any shape, in the words of the wires."""
    return _dumped(_invented(random, random.randrange(6)))


def _invented(random: Random, depth: int) -> object:
    keys, texts = vocabulary()
    kind = random.randrange(8) if depth else random.randrange(3)
    if kind < 2:
        return random.choice(texts)
    if kind == 2:
        return random.choice(PLAIN)
    if kind < 5:
        return [_invented(random, depth - 1) for _ in range(random.randrange(4))]
    return {random.choice(keys): _invented(random, depth - 1) for _ in range(random.randrange(6))}


def _dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


# Damage to bytes.


def _cut(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 8, 64, 1024)))


def _flip(data: bytes, random: Random) -> bytes:
    start, _ = _cut(data, random)
    return data[:start] + bytes((random.randrange(256),)) + data[start + 1 :]


def _drop(data: bytes, random: Random) -> bytes:
    start, end = _cut(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, random: Random) -> bytes:
    start, end = _cut(data, random)
    return data[:start] + data[start:end] * random.choice((2, 3, 50)) + data[end:]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _splice(data: bytes, random: Random) -> bytes:
    start, _ = _cut(data, random)
    return data[:start] + random.choice(SPLICES) + data[start:]


def _crossed(data: bytes, other: bytes, random: Random) -> bytes:
    """The start of one and the end of another."""
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


# Damage to a stream: events lost, doubled, out of order.


def _events(data: bytes, random: Random) -> bytes:
    blank = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    events = data.split(blank)
    place, other = random.randrange(len(events)), random.randrange(len(events))
    match random.randrange(4):
        case 0:
            del events[place]
        case 1:
            events.insert(other, events[place])
        case 2:
            events[place], events[other] = events[other], events[place]
        case _:
            events[place:place] = [events[other]] * random.choice((2, 20))
    return blank.join(events)


# Damage to values.


def _value(data: bytes, random: Random) -> bytes:
    """Change one value of the JSON, or of one event's JSON."""
    lines = data.split(b"\n")
    places = [number for number, line in enumerate(lines) if line.lstrip(b"dat: ")[:1] in (b"{", b"[")]
    if not places:
        return data
    whole = not any(line.startswith(b"data:") for line in lines)
    place = random.choice(places)
    text = data if whole else lines[place].removeprefix(b"data:")
    try:
        changed = _changed(json.loads(text), random)
    except (ValueError, RecursionError):
        return data
    if whole:
        return changed
    lines[place] = b"data: " + changed
    return b"\n".join(lines)


def _changed(value: object, random: Random) -> bytes:
    place, other = _place_in(value, random), _place_in(value, random)
    if place is None or other is None:
        return _dumped(random.choice(PLAIN))
    if random.randrange(HUGE_ONE_IN):
        random.choice(CHANGES)(place, other, random)
        return _dumped(value)
    place.put(MARK)
    huge = random.choice(HUGE)(random.choice(SIZES))
    return _dumped(value).replace(f'"{MARK}"'.encode(), huge, 1)


class _Place(msgspec.Struct, frozen=True):
    """Where a value stands: in what, and under which key or number."""

    inside: dict[str, object] | list[object]
    key: str | int

    def get(self) -> object:
        match self.inside, self.key:
            case dict() as inside, str(key):
                return inside[key]
            case list() as inside, int(number):
                return inside[number]
        return None

    def put(self, value: object) -> None:
        match self.inside, self.key:
            case dict() as inside, str(key):
                inside[key] = value
            case list() as inside, int(number):
                inside[number] = value

    def remove(self) -> None:
        match self.inside, self.key:
            case dict() as inside, str(key):
                del inside[key]
            case list() as inside, int(number):
                del inside[number]


def _place_in(value: object, random: Random) -> _Place | None:
    """A place at any depth of a value; None when it holds nothing."""
    found = None
    while value and isinstance(value, (dict, list)):
        found = _Place(value, random.choice(tuple(value)) if isinstance(value, dict) else random.randrange(len(value)))
        value = found.get()
        if not random.randrange(STOP_ONE_IN):
            break
    return found


def _renamed(place: _Place, _: _Place, random: Random) -> None:
    """Move a value under another key, or into a list twice."""
    value = place.get()
    if isinstance(place.inside, dict):
        place.remove()
        place.inside[random.choice(vocabulary()[0])] = value
    else:
        place.inside.insert(random.randrange(len(place.inside) + 1), value)


CHANGES: tuple[Callable[[_Place, _Place, Random], None], ...] = (
    _renamed,
    lambda place, _, __: place.remove(),
    lambda place, other, _: place.put(other.get()),
    lambda place, _, random: place.put(random.choice(vocabulary()[1])),
    lambda place, _, random: place.put(_invented(random, 2)),
    lambda place, _, random: place.put(random.choice(PLAIN)),
)

Mutation = Callable[[bytes, Random], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    _flip, _drop, _repeat, _truncate, _splice, _events, _events, _value, _value, _value, _value, _value, _value,
)  # fmt: skip
