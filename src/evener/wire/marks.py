"""Chooses where cache marks stand in a request. Pure; marks are put in last, so kept bytes never change when marks move.

Moving marks stand after the stable prefix (system, or else tools), after the newest settled exchange and after the open one:
each request then finds the mark of the one before it, however many blocks came in between. A system prompt that has a mark of
its own is stable up to there: what comes after it may change, and gets none.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.loss import Loss
from evener.wire.fold import Fragment, with_marks
from evener.wire.quirks import Quirks
from evener.wire.text import dumps

__all__ = ["Marks", "breakpoint_mark", "choose_marks", "control_mark", "control_value", "drawn"]

Place = tuple[str, int, int, str]
"""Section, number within it, offset within that, lifetime."""


SECTIONS = {"tools": 0, "system": 1, "fragments": 2}
"""In the order in which they stand in a request."""


class Marks(msgspec.Struct, frozen=True):
    """Lifetimes by place: number of the tool, number of the system part, or number of the fragment with offsets."""

    tools: dict[int, str] = {}
    system: dict[int, str] = {}
    fragments: dict[int, list[tuple[int, str]]] = {}


def choose_marks(
    ask: Ask, fragments: Sequence[Fragment], marked: Sequence[int], quirks: Quirks, losses: list[Loss], ttls: Sequence[str]
) -> Marks:
    """The marks of this request. `marked` numbers the fragments that ask for some; `ttls` are the wire's lifetimes."""
    if ask.cache.mode == "off":
        return Marks()
    places = {place[:3]: place for place in _asked(ask, fragments, marked)}
    room = quirks.cache_marks - (ask.cache.mode == "provider" and quirks.cache_provider)
    if ask.cache.mode == "moving" or (ask.cache.mode == "provider" and not quirks.cache_provider):
        places = {place[:3]: place for place in _moving(ask, fragments)} | places
    if places and room <= 0:
        losses.append(Loss("dropped", "cache marks", "this endpoint takes none"))
        return Marks()
    ordered = sorted(places.values(), key=_order)
    if len(ordered) > room:
        losses.append(Loss("dropped", "cache marks", f"{len(ordered)} were asked for, the endpoint takes {room}"))
        ordered = [*ordered[:1], *ordered[len(ordered) - room + 1 :]]
    return _sorted_out(ordered, quirks.cache_ttls or ttls, losses)


def _asked(ask: Ask, fragments: Sequence[Fragment], marked: Sequence[int]) -> list[Place]:
    places: list[Place] = [
        ("tools", number, 0, tool.cache) for number, tool in enumerate(ask.tools) if isinstance(tool, ToolSpec) and tool.cache
    ]
    places += (("system", number, 0, part.cache) for number, part in enumerate(ask.transcript.system_blocks) if part.cache)
    for number in marked:
        places += (("fragments", number, place, ttl) for place, ttl in fragments[number].marks if ttl)
    return places


def _moving(ask: Ask, fragments: Sequence[Fragment]) -> list[Place]:
    ttl = ask.cache.ttl or "5m"
    places: list[Place] = []
    system = ask.transcript.system_blocks
    if system:
        own = [number for number, part in enumerate(system) if part.cache]
        places.append(("system", own[-1] if own else len(system) - 1, 0, ttl))
    elif ask.tools:
        places.append(("tools", len(ask.tools) - 1, 0, ttl))
    for number in range(max(0, len(fragments) - 2), len(fragments)):
        if fragments[number].marks:
            places.append(("fragments", number, fragments[number].marks[-1][0], ttl))
    return places


def _order(place: Place) -> tuple[int, int, int]:
    return SECTIONS[place[0]], place[1], place[2]


def _sorted_out(places: Sequence[Place], ttls: Sequence[str], losses: list[Loss]) -> Marks:
    marks = Marks({}, {}, {})
    longest = len(ttls) - 1  # a longer lifetime may not come after a shorter one
    for section, number, offset, asked in places:
        longest = min(longest, ttls.index(asked) if asked in ttls else 0)
        ttl = ttls[longest]
        if ttl != asked:
            losses.append(Loss("degraded", "cache mark", f"no lifetime {asked!r} here; {ttl!r} is used"))
        match section:
            case "tools":
                marks.tools[number] = ttl
            case "system":
                marks.system[number] = ttl
            case _:
                marks.fragments.setdefault(number, []).append((offset, ttl))
    return marks


def drawn(fragments: Sequence[Fragment], marks: Marks, mark: Callable[[str], bytes]) -> list[bytes]:
    """The bytes of the fragments that have some, with their marks put in."""
    found = [fragment.data for fragment in fragments]
    for number, places in marks.fragments.items():
        found[number] = with_marks(found[number], [(place, mark(ttl)) for place, ttl in places])
    return found if all(found) else [data for data in found if data]


def control_value(ttl: str) -> dict[str, object]:
    """A mark of the style `cache_control`; five minutes is what it means when it says nothing."""
    return {"type": "ephemeral"} if ttl in ("", "5m") else {"type": "ephemeral", "ttl": ttl}


@lru_cache(8)
def control_mark(ttl: str) -> bytes:
    """That mark, to be put before a closing brace."""
    return b',"cache_control":' + dumps(control_value(ttl))


@lru_cache(8)
def breakpoint_mark(ttl: str) -> bytes:
    """A mark of the style `prompt_cache_breakpoint`, to be put before a closing brace."""
    value = {"mode": "explicit"} if ttl == "30m" else {"mode": "explicit", "ttl": ttl}
    return b',"prompt_cache_breakpoint":' + dumps(value)
