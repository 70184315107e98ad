"""Chooses where cache marks stand in a request. Pure; marks are put in last, so kept bytes never change when marks move.

Moving marks stand after the stable prefix (system, or else tools), after the newest settled exchange and after the open one:
each request then finds the mark of the one before it, however many blocks came in between. A system prompt that has a mark of
its own is stable up to there: what comes after it may change, and gets none.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.loss import Loss, loss_of
from evener.wire.fold import Fragment
from evener.wire.quirks import Quirks
from evener.wire.text import dumps, fields

__all__ = [
    "Marks",
    "Wanted",
    "automatic_marks",
    "breakpoint_mark",
    "choose_marks",
    "control_mark",
    "control_value",
    "drawn",
    "report_lifetime",
    "wanted_marks",
    "with_control",
]

Place = tuple[str, int, int, str]
"""Section, number within it, offset within that, lifetime."""


class Marks(msgspec.Struct, frozen=True):
    """Lifetimes by place: number of the tool, number of the system part; and, in order, fragment, offset and lifetime."""

    tools: dict[int, str] = {}
    system: dict[int, str] = {}
    fragments: list[tuple[int, int, str]] = []


NO_MARKS = Marks()


class Wanted(msgspec.Struct, frozen=True):
    """The marks that are wanted, whatever the messages are: those before them in order, and what those in them must heed.

    `room` is for how many there is room, `ttls` are the lifetimes, the shortest first. `moving` is the lifetime of the marks
    that move with the newest messages; empty when none do. `off`: none at all are wanted.
    """

    room: int
    ttls: Sequence[str]
    places: tuple[Place, ...] = ()
    moving: str = ""
    off: bool = False
    why: str = ""  # why there are none, where some may have been asked for


def wanted_marks(ask: Ask, quirks: Quirks, ttls: Sequence[str]) -> Wanted:
    """What an ask wants beside the marks on its messages. `ttls` are the wire's lifetimes."""
    mode, by_provider = ask.cache.mode, ask.cache.mode == "provider" and quirks.cache_provider
    room, ttls = quirks.cache_marks - by_provider, quirks.cache_ttls or ttls
    if mode == "off":
        return Wanted(room, ttls, off=True)
    system = ask.transcript.system_blocks
    tools = {number: tool.cache for number, tool in enumerate(ask.tools) if isinstance(tool, ToolSpec) and tool.cache}
    parts = {number: part.cache for number, part in enumerate(system) if part.cache}
    moving = (ask.cache.ttl or "5m") if mode == "moving" or (mode == "provider" and not by_provider) else ""
    if moving and system:
        parts.setdefault(max(parts, default=len(system) - 1), moving)
    elif moving and ask.tools:
        tools.setdefault(len(ask.tools) - 1, moving)
    places = (*(("tools", number, 0, ttl) for number, ttl in sorted(tools.items())),)
    places += (*(("system", number, 0, ttl) for number, ttl in sorted(parts.items())),)
    return Wanted(room, ttls, places, moving)


def automatic_marks(ask: Ask) -> Wanted:
    """Return what is wanted where the provider places moving marks itself: those on tools and system prompt stay behind."""
    tools = ((number, tool.cache) for number, tool in enumerate(ask.tools) if isinstance(tool, ToolSpec) and tool.cache)
    parts = ((number, part.cache) for number, part in enumerate(ask.transcript.system_blocks) if part.cache)
    places = (*(("tools", number, 0, ttl) for number, ttl in tools), *(("system", number, 0, ttl) for number, ttl in parts))
    return Wanted(0, (), places, off=True, why="the provider caches by itself in this mode; no marks are sent")


def report_lifetime(ask: Ask, losses: list[Loss]) -> None:
    """Report a lifetime that was asked for where the provider caches by itself."""
    if ask.cache.ttl and ask.cache.mode != "off":
        losses.append(loss_of("dropped", "cache.mark", "the provider caches by itself, for as long as it likes", at="ttl"))


def choose_marks(wanted: Wanted, fragments: Sequence[Fragment], marked: Sequence[int], losses: list[Loss]) -> Marks:
    """The marks of this request. `marked` numbers the fragments that ask for some."""
    if wanted.off and wanted.why and (wanted.places or marked):
        losses.append(loss_of("dropped", "cache.mark", wanted.why))
    if wanted.off or not (wanted.places or marked or wanted.moving):
        return NO_MARKS
    inside: list[Place] = []
    for number in marked:
        inside += [("fragments", number, place, ttl) for place, ttl in fragments[number].marks if ttl]
    if wanted.moving:
        number = len(fragments) - 2 if len(fragments) > 2 else 0
        for fragment in fragments[number:]:
            marks = fragment.marks
            if marks and not marks[-1][1]:
                inside.append(("fragments", number, marks[-1][0], wanted.moving))
            number += 1
        if marked:
            inside.sort()
    places, room = [*wanted.places, *inside] if wanted.places else inside, wanted.room
    if places and room <= 0:
        losses.append(loss_of("dropped", "cache.mark", "this endpoint takes none"))
        return NO_MARKS
    if len(places) > room:
        losses.append(loss_of("dropped", "cache.mark", f"{len(places)} were asked for, the endpoint takes {room}"))
        places = [*places[:1], *places[len(places) - room + 1 :]]
    return _sorted_out(places, wanted.ttls, losses)


def _sorted_out(places: Sequence[Place], ttls: Sequence[str], losses: list[Loss]) -> Marks:
    marks = Marks()
    longest = len(ttls) - 1  # a longer lifetime may not come after a shorter one
    ttl = ttls[longest]
    for section, number, offset, asked in places:
        if asked != ttl:
            place = ttls.index(asked) if asked in ttls else 0
            if place < longest:
                longest, ttl = place, ttls[place]
            if asked != ttl:
                losses.append(loss_of("degraded", "cache.mark", f"no lifetime {asked!r} here; {ttl!r} is used"))
        if section == "fragments":
            marks.fragments.append((number, offset, ttl))
        elif section == "system":
            marks.system[number] = ttl
        else:
            marks.tools[number] = ttl
    return marks


def drawn(fragments: Sequence[Fragment], marks: Marks, mark: Callable[[str], bytes]) -> list[bytes]:
    """The bytes of the fragments that have some, with their marks put in."""
    found: list[bytes] = []
    for fragment in fragments:
        found.append(fragment.data)
    if marks.fragments:
        for number, place, ttl in reversed(marks.fragments):  # the last first: so the places before it stay where they are
            data = found[number]
            found[number] = b"".join((data[:place], mark(ttl), data[place:]))
    return found if all(found) else [data for data in found if data]


def control_value(ttl: str) -> dict[str, object]:
    """A mark of the style `cache_control`; five minutes is what it means when it says nothing."""
    return {"type": "ephemeral"} if ttl in ("", "5m") else {"type": "ephemeral", "ttl": ttl}


@lru_cache(8)
def control_mark(ttl: str) -> bytes:
    """That mark, to be put before a closing brace."""
    return b',"cache_control":' + dumps(control_value(ttl))


def with_control(data: bytes, ttl: str) -> bytes:
    """An object with that mark; as it is where it has one of its maker's, which says more than ours can."""
    if b'"cache_control"' in data and "cache_control" in fields(data):
        return data
    return data[:-1] + control_mark(ttl) + b"}"


@lru_cache(8)
def breakpoint_mark(ttl: str) -> bytes:
    """A mark of the style `prompt_cache_breakpoint`, to be put before a closing brace."""
    value = {"mode": "explicit"} if ttl == "30m" else {"mode": "explicit", "ttl": ttl}
    return b',"prompt_cache_breakpoint":' + dumps(value)
