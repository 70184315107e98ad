"""A request as it is sent, and everything that encoders write around its messages: names, cache marks, tools, settings.
Pure.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import is_
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import astuple, replace

from evener.errors import BadValue
from evener.transcript.ask import FREE_INPUT, Ask, Effort, HostedTool, Settings, ToolSpec
from evener.transcript.blocks import Origin, TextBlock, ToolCall
from evener.transcript.loss import Loss, escape_step, loss_of
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript
from evener.wire.prefix import Fragment, Prefix, data_of, dumps, fields, link, list_telling_fields
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields

NONE_REFUSED: dict[str, str] = {}
FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
LETTERED = re.compile(r"[a-zA-Z_]")
NINE = re.compile(r"[a-zA-Z0-9]{9}")
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Frame(msgspec.Struct, frozen=True):
    """What precedes the messages in a prefix: each tool and each part of the system prompt, without cache marks.

    `source` is the value from which it was made, so that it can be reused. `seed` is the start of the chain over the
    messages.
    """

    tools: tuple[bytes, ...]
    system: tuple[bytes, ...]
    losses: tuple[Loss, ...] = ()
    source: tuple[object, ...] = ()
    target: Origin = Origin()
    seed: bytes = b""


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A request, ready to send. Pass it as `prior` to the next call of the same conversation.

    `names` maps tool names on the wire back to ours, where they differ. `keeps` is how the provider will store the
    conversation from here on: `chain`, `conversation`, or empty for not at all. `fixed` is the encoding of everything except
    the messages; only the wire reads it. `resumed`: the provider stores a part of the conversation.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    losses: tuple[Loss, ...]
    names: tuple[tuple[str, str], ...]
    frame: Frame
    fold: Prefix
    keeps: str = ""
    fixed: object = None
    resumed: bool = False

    @property
    def binding(self) -> str:
        """The fingerprint of everything a reply to this request will rest on (cache marks excluded): stamp it on the reply's
        message. Empty when the provider holds a part of it."""
        return "" if self.resumed else self.fold.tip.hex()


@lru_cache(1024)
def wire_name(name: str, limit: int) -> str:
    """Return the name itself if the wire takes it; else its legal characters and a short hash, so that names stay distinct."""
    if name and len(name) <= limit and not FORBIDDEN.search(name):
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{FORBIDDEN.sub('_', name)[: limit - 9]}_{digest}"


def lettered_name(name: str, limit: int) -> str:
    """Do the same for wires where a name begins with a letter or an underscore."""
    if LETTERED.match(name):
        return wire_name(name, limit)
    return wire_name(f"_{name}_{blake2b(name.encode(), digest_size=4).hexdigest()}", limit)


def short_id(id: str, limit: int) -> str:
    """Return the id itself if it is short enough, for wires that take any character in it."""
    if 0 < len(id) <= limit:
        return id
    return f"{id[: limit - 17]}_{blake2b(id.encode(), digest_size=8).hexdigest()}"


def nine_id(id: str) -> str:
    """Return the id itself if it is nine letters or digits, for wires that take nothing else; else nine that stand for it."""
    if NINE.fullmatch(id):
        return id
    number = int.from_bytes(blake2b(id.encode(), digest_size=8).digest())
    return "".join(DIGITS[number // 62**place % 62] for place in range(9))


SCALE = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGETS = {
    "off": 1024,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
"""Thinking tokens for models that take a budget instead of an effort."""


def effort_for(budget: int) -> Effort:
    """Return the least effort whose thinking fits into a budget of tokens."""
    levels: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
    return next((level for level in levels if BUDGETS[level] >= budget), "max")


def nearest_effort(wanted: str, known: Sequence[str], losses: list[Loss]) -> str:
    """Return the level of the model that is nearest to the one wanted; the higher one of two, but never above max."""
    if wanted in known:
        return wanted
    place = SCALE.index(wanted)
    levels = [SCALE.index(level) for level in known if level in SCALE]
    found = SCALE[min(levels, key=lambda level: (abs(place - level), -level))]
    losses.append(loss_of("degraded", "reasoning.effort", f"this model has no level {wanted!r}; sent as {found!r}"))
    return found


def report_length(ask: Ask, losses: list[Loss]) -> None:
    """Report a request for short or long summaries, where thoughts can only be shown or hidden."""
    if ask.reasoning.show in ("concise", "detailed"):
        why = f"thoughts can only be shown or not here, not {ask.reasoning.show}"
        losses.append(loss_of("degraded", "reasoning.show", why))


Place = tuple[str, int, int, str]
"""Section, number within it, offset within that, lifetime."""
FragmentMark = tuple[int, int, str]
"""Number of the fragment, offset within it, lifetime."""


class Marks(msgspec.Struct, frozen=True):
    """Lifetimes by place: number of the tool, number of the system part; and, in order, those in fragments."""

    tools: dict[int, str] = {}
    system: dict[int, str] = {}
    fragments: list[FragmentMark] = []


NO_MARKS = Marks()
MOST_MOVING = 2


class Wanted(msgspec.Struct, frozen=True):
    """The requested marks, whatever the messages are: those before the messages in order, and limits for those in them.

    `room` is the upper bound for the marks of a request, `ttls` are the lifetimes, the shortest first. `moving` is the
    lifetime of the marks that move with the newest messages; empty if none do. `off`: no marks at all are requested. `usual`
    are the marks on `places` if they and the moving ones fit, with the lifetimes that they request; else None.
    """

    room: int
    ttls: Sequence[str]
    places: tuple[Place, ...] = ()
    moving: str = ""
    off: bool = False
    why: str = ""  # why no marks are sent, for the report
    usual: Marks | None = None


def plan_marks(ask: Ask, quirks: Quirks, ttls: Sequence[str]) -> Wanted:
    """Return the marks that an ask wants beside those on its messages. `ttls` are the wire's lifetimes."""
    mode, by_provider = ask.cache.mode, ask.cache.mode == "provider" and quirks.cache_provider
    room, ttls = quirks.cache_marks - by_provider, quirks.cache_ttls or ttls
    if mode == "off":
        return Wanted(room, ttls, off=True)
    system, (tools, parts) = ask.transcript.system_blocks, _list_marked(ask)
    moving = (ask.cache.ttl or "5m") if mode == "moving" or (mode == "provider" and not by_provider) else ""
    if moving and system:
        parts.setdefault(max(parts, default=len(system) - 1), moving)
    elif moving and ask.tools:
        tools.setdefault(len(ask.tools) - 1, moving)
    places, losses = _places_of(tools, parts), list[Loss]()
    usual = _sort_marks((*places, ("fragments", 0, 0, moving)), ttls, losses) if len(places) + MOST_MOVING <= room else None
    return Wanted(room, ttls, places, moving, usual=None if losses else usual)


def plan_automatic_marks(ask: Ask) -> Wanted:
    """Return what is wanted where the provider places moving marks itself: those on tools and system prompt stay behind."""
    places = _places_of(*_list_marked(ask))
    return Wanted(0, (), places, off=True, why="the provider caches by itself in this mode; no marks are sent")


def plan_own_marks(ask: Ask, quirks: Quirks, ttls: Sequence[str], losses: list[Loss]) -> Wanted:
    """Return what is wanted where the provider places the moving mark itself: beside it, the caller's own on the messages.

    Where the endpoint has no explicit marks, none are sent at all.
    """
    if not quirks.cache_marks:
        report_lifetime(ask, losses)
        return plan_automatic_marks(ask)
    if _places_of(*_list_marked(ask)):
        losses.append(loss_of("dropped", "cache.mark", "tools and instructions take none; they are cached by themselves"))
    return Wanted(quirks.cache_marks, quirks.cache_ttls or ttls)


def cache_options(ask: Ask, quirks: Quirks, ttls: Sequence[str], losses: list[Loss]) -> dict[str, object]:
    """Return the field `prompt_cache_options`: how long the mark lasts that the provider places itself."""
    asked, known = ask.cache.ttl, quirks.cache_ttls or ttls
    if not quirks.cache_marks or not asked or ask.cache.mode not in ("moving", "provider"):
        return {}
    if asked not in known:
        losses.append(loss_of("degraded", "cache.mark", f"no lifetime {asked!r} here; {known[0]!r} is used", at="ttl"))
    return {"prompt_cache_options": {"ttl": asked if asked in known else known[0]}}


def _list_marked(ask: Ask) -> tuple[dict[int, str], dict[int, str]]:
    """Return the lifetimes of the marks on tools and on parts of the system prompt, by their numbers."""
    tools: dict[int, str] = {
        number: tool.cache for number, tool in enumerate(ask.tools) if isinstance(tool, ToolSpec) and tool.cache
    }
    return tools, {number: part.cache for number, part in enumerate(ask.transcript.system_blocks) if part.cache}


def _places_of(tools: dict[int, str], parts: dict[int, str]) -> tuple[Place, ...]:
    before = [("tools", number, 0, ttl) for number, ttl in sorted(tools.items())]
    return (*before, *(("system", number, 0, ttl) for number, ttl in sorted(parts.items())))


def report_lifetime(ask: Ask, losses: list[Loss]) -> None:
    """Report a lifetime that was asked for where the provider caches by itself."""
    if ask.cache.ttl and ask.cache.mode != "off":
        losses.append(loss_of("dropped", "cache.mark", "the provider caches by itself, for as long as it likes", at="ttl"))


def choose_marks(wanted: Wanted, fragments: Sequence[Fragment], marked: Sequence[int], losses: list[Loss]) -> Marks:
    """Return the marks of this request. `marked` numbers the fragments that ask for some."""
    if wanted.off and wanted.why and (wanted.places or marked):
        losses.append(loss_of("dropped", "cache.mark", wanted.why))
    if wanted.off or not (wanted.places or marked or wanted.moving):
        return NO_MARKS
    moving = _list_moving(fragments, wanted.moving) if wanted.moving else []
    if wanted.usual is not None and not marked:
        return Marks(wanted.usual.tools, wanted.usual.system, moving)
    inside: list[Place] = []
    for number in marked:
        inside += [("fragments", number, place, ttl) for place, ttl in fragments[number].marks if ttl]
    inside += [("fragments", *mark) for mark in moving]
    if marked:
        inside.sort()
    places, room = [*wanted.places, *inside] if wanted.places else inside, wanted.room
    if places and room <= 0:
        losses.append(loss_of("dropped", "cache.mark", "this endpoint takes none"))
        return NO_MARKS
    if len(places) > room:
        losses.append(loss_of("dropped", "cache.mark", f"{len(places)} were asked for, the endpoint takes {room}"))
        places = [*places[:1], *places[len(places) - room + 1 :]]
    return _sort_marks(places, wanted.ttls, losses)


def _list_moving(fragments: Sequence[Fragment], ttl: str) -> list[FragmentMark]:
    """Return the marks that move with the newest messages: at the end of the last ones, where none was asked for."""
    found: list[FragmentMark] = []
    number = max(0, len(fragments) - MOST_MOVING)
    for fragment in fragments[number:]:
        marks = fragment.marks
        if marks and not marks[-1][1]:
            found.append((number, marks[-1][0], ttl))
        number += 1
    return found


def _sort_marks(places: Sequence[Place], ttls: Sequence[str], losses: list[Loss]) -> Marks:
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


def insert_marks(fragments: Sequence[Fragment], marks: Marks, mark: Callable[[str], bytes]) -> list[bytes]:
    """Return the bytes of the fragments that are not empty, with their marks inserted."""
    found: list[bytes] = [*map(data_of, fragments)]
    if marks.fragments:
        for number, place, ttl in reversed(marks.fragments):  # the last first: so the places before it stay where they are
            data = found[number]
            found[number] = b"".join((data[:place], mark(ttl), data[place:]))
    return found if all(found) else [data for data in found if data]


def control_value(ttl: str) -> dict[str, object]:
    """Return a mark of the style `cache_control`; without a lifetime it means five minutes."""
    return {"type": "ephemeral"} if ttl in ("", "5m") else {"type": "ephemeral", "ttl": ttl}


CONTROL = b',"cache_control":'
"""How that mark begins, before a closing brace."""


@lru_cache(8)
def control_mark(ttl: str) -> bytes:
    """Return that mark, to be put before a closing brace."""
    return CONTROL + dumps(control_value(ttl))


def find_moving_marks(body: bytes, start: int, end: int) -> int:
    """Return where in a part of a body the marks begin that move with the newest messages: the last two. -1: none."""
    last = body.rfind(CONTROL, start, end)
    before = body.rfind(CONTROL, start, last) if last > 0 else last
    return before if before >= 0 else last


def with_control(data: bytes, ttl: str) -> bytes:
    """Return an object with that mark; unchanged where it has one of its provider's, which says more than ours can."""
    if b'"cache_control"' in data and "cache_control" in fields(data):
        return data
    return data[:-1] + control_mark(ttl) + b"}"


@lru_cache(8)
def breakpoint_mark(ttl: str) -> bytes:
    """Return a mark of the style `prompt_cache_breakpoint`, to be put before a closing brace."""
    value = {"mode": "explicit"} if ttl == "30m" else {"mode": "explicit", "ttl": ttl}
    return b',"prompt_cache_breakpoint":' + dumps(value)


RequestSource = tuple[object, ...]
Address = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Path, headers, and the names of tools that differ on the wire: all of a request but its body."""
MakeTool = Callable[[ToolSpec | HostedTool, Quirks, list[Loss]], bytes]
MakePart = Callable[[TextBlock], bytes]
TYPED = ("response_format", "text.format", "output_config.format", "tool_choice")
"""Objects that mean nothing without their type."""
READ_TOO = ("conversation", "max_completion_tokens", "max_tokens")
"""Fields that are kept as they were spelled although they were read: dropping them is no loss."""
CONVERSATION = ("messages", "input", "contents")
NOTHING_SAID = b'{"role":"user","content":"(nothing was said)"}'
CONTINUE = b'{"role":"user","content":"Continue."}'
BEGIN = b'{"role":"user","content":"(The conversation begins with the assistant.)"}'


class Fixed(msgspec.Struct, frozen=True, eq=False):
    """A wire's encoding of everything in an ask except its messages: the same `source` always gives the same."""

    source: RequestSource

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and type(other) is type(self) and other.source == self.source


F = TypeVar("F", bound=Fixed)
W = TypeVar("W", bound=str)


class KeptRequests(Generic[F]):
    """Caches the fixed part of the requests of a conversation, or of many with one model: only their messages differ.

    It is encoded again if something else has changed; otherwise it is taken from the prior request or from the last one made
    here.
    """

    __slots__ = ("_kind", "_last", "_make")

    def __init__(self, kind: type[F], make: Callable[[Ask, Quirks, Encoded | None, RequestSource], F]) -> None:
        self._kind = kind
        self._make = make
        self._last: F | None = None

    def of(self, ask: Ask, quirks: Quirks, prior: Encoded | None) -> F:
        """Return what is fixed for this ask."""
        settings = ask.settings
        written = (type(settings.temperature), type(settings.top_p))  # 1 and 1.0 are equal, but not written alike
        source: RequestSource = (quirks, ask.transcript.system_blocks, written, astuple(ask)[1:])  # all but the transcript
        if prior is not None:
            found = prior.fixed
            if isinstance(found, self._kind) and found.source == source:
                return found
        last = self._last  # read once: another thread may replace it
        if last is None or last.source != source:
            last = self._last = self._make(ask, quirks, prior, source)
        return last


def without_messages(ask: Ask) -> Ask:
    """Return the ask without its messages, for code that must not depend on them nor keep them."""
    return replace(ask, transcript=Transcript((), ask.transcript.system_blocks))


def frame_of(ask: Ask, quirks: Quirks, prior: Encoded | None, tool: MakeTool, part: MakePart) -> Frame:
    """Return tools and system prompt as bytes; those of `prior` when nothing about them is new."""
    system = ask.transcript.system_blocks
    source = (ask.tools, system, quirks, tool)
    if prior and prior.frame.target == ask.target and all(map(is_, prior.frame.source, source)):
        return prior.frame
    losses: list[Loss] = []
    tools: tuple[bytes, ...] = ()
    if ask.tools and not quirks.tools:
        losses.append(loss_of("dropped", "tool", "this endpoint takes none"))
    else:
        own = [_strip_tool(one, ask.target, quirks, losses) for one in ask.tools]
        tools = tuple(tool(one, quirks, losses) if one else b"" for one in own)
        _refuse_many(len(tools) - tools.count(b""), ask.target, quirks)
    parts = tuple(part(one) for one in system)
    seed = link(link(b"evener", b",".join(tools)), b",".join(parts))
    return Frame(tools, parts, tuple(losses), source, ask.target, seed)


def _refuse_many(number: int, target: Origin, quirks: Quirks) -> None:
    if quirks.most_tools and number > quirks.most_tools:
        raise BadValue(
            f"{number} tools are offered to {target.model!r}, and {target.provider or 'its provider'} takes at most "
            f"{quirks.most_tools} in a request. Offer fewer, or let one tool do the work of several."
        )


def is_declared_inline(tool: ToolSpec | HostedTool, target: Origin, quirks: Quirks) -> bool:
    """True if a block of the conversation declares the tool to the provider asked, as that block goes there verbatim."""
    return tool.inline and quirks.hosted and target.wire == tool.wire and target.owns(tool.wire, tool.provider)


def _strip_tool(
    tool: ToolSpec | HostedTool, target: Origin, quirks: Quirks, losses: list[Loss]
) -> ToolSpec | HostedTool | None:
    """Return the tool without what belongs to another provider on the same wire; None when nothing is left to offer."""
    if tool.inline and is_declared_inline(tool, target, quirks):
        return None
    if tool.wire != target.wire or target.owns(tool.wire, tool.provider):
        return tool
    if isinstance(tool, HostedTool):
        losses.append(loss_of("dropped", "tool.hosted", f"only {tool.provider} can run it", name=tool.name))
        return None
    if not tool.extra:
        return tool
    names = ", ".join(list_telling_fields(tool.extra))
    if names:
        losses.append(loss_of("dropped", "tool.fields", f"only {tool.provider} knows {names}", name=tool.name))
    return replace(tool, extra="")


def write_hosted_tool(tool: HostedTool, wire: str, quirks: Quirks, losses: list[Loss]) -> bytes:
    """Return the declaration of a tool that the provider runs; empty, with a report, for another provider."""
    if tool.wire == wire and quirks.hosted:
        return tool.raw.encode()
    losses.append(loss_of("dropped", "tool.hosted", "only its own provider can run it", name=tool.name))
    return b""


def as_function(tool: ToolSpec, losses: list[Loss]) -> ToolSpec:
    """Return the tool as a plain function, for an endpoint without free-text tools and namespaces of tools."""
    if tool.namespace is not None:
        why = f"there are no namespaces here; sent as {tool.name!r}, without what {tool.namespace.name!r} says of itself"
        losses.append(loss_of("degraded", "tool.namespace", why, name=tool.name))
    if tool.free is not None:
        why = "no tool takes free text here; offered as a function of one string"
        losses.append(loss_of("degraded", "tool.free", why, name=tool.name))
        if tool.free.grammar:
            why = "it is not enforced here; the description holds it"
            losses.append(loss_of("degraded", "tool.grammar", why, name=tool.name))
            syntax = f" ({tool.free.syntax})" if tool.free.syntax else ""
            rule = f"`{FREE_INPUT}` must be a text that fits this grammar{syntax}:\n{tool.free.grammar}"
            tool = replace(tool, description=f"{tool.description}\n\n{rule}".strip())
    return tool


def declare_name(tool: ToolSpec, quirks: Quirks, losses: list[Loss], rename: Callable[[str, int], str] = wire_name) -> str:
    """Return a tool's name for its declaration, and report a name other than its own."""
    name = rename(tool.name, quirks.name_length)
    if name != tool.name:
        losses.append(loss_of("renamed", "tool.name", f"sent as {name!r}", name=tool.name))
    return name


def names_of(
    tools: Iterable[ToolSpec | HostedTool], quirks: Quirks, rename: Callable[[str, int], str] = wire_name
) -> tuple[tuple[str, str], ...]:
    """Return tool names on the wire and ours, where they differ: `restored` turns them back in a reply."""
    pairs = [(rename(tool.name, quirks.name_length), tool.name) for tool in tools if isinstance(tool, ToolSpec)]
    if len({sent for sent, _ in pairs}) < len(pairs):
        twice = next(ours for number, (sent, ours) in enumerate(pairs) if any(sent == other for other, _ in pairs[:number]))
        raise BadValue(f"Two tools would be called {twice!r} on the wire. Give each tool a name of its own.")
    return tuple(pair for pair in pairs if pair[0] != pair[1])


def restored(reply: Reply, encoded: Encoded) -> Reply:
    """Return the reply with its calls under our names, where the request had to use others."""
    ours = dict(encoded.names)
    if not ours:
        return reply
    blocks = (
        replace(block, name=ours.get(block.name, block.name)) if isinstance(block, ToolCall) else block
        for block in reply.blocks
    )
    return replace(reply, blocks=tuple(blocks))


def headers_of(ask: Ask, wire: str, *own: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the wire's headers and the caller's."""
    given = (header for extra in ask.extra if extra.is_for(wire, ask.target.provider) for header in extra.headers)
    return (("content-type", "application/json"), *own, *given)


def path_of(ask: Ask, quirks: Quirks, default: str) -> str:
    """Return the path below the base URL."""
    path = (quirks.stream_path if ask.stream and quirks.stream_path else quirks.path) or default
    return path.replace("{model}", quote(ask.target.model, safe=":@")) if "{model}" in path else path


# The controls of a request: one row for each neutral setting, for the encoder and the reader of a wire.


class Setting(msgspec.Struct, frozen=True):
    """How a wire writes and reads one field of `Settings`.

    `field` is its name on the wire; empty where there is none, so that the setting is dropped with the reason `why`. `most` is
    the upper bound of a number, and of the number of stop sequences. `write` returns what is sent; None where the encoder
    writes the field elsewhere. `read` takes the value out of the fields of the body. `is_legal` and `illegal` are for stop
    sequences: True if one is accepted, and why others are not.
    """

    name: str
    field: str = ""
    most: float = math.inf
    write: Callable[..., object] | None = None
    read: Callable[[Fields, str], object] = Fields.number
    why: str = "this wire has none"
    is_legal: Callable[[str], object] = bool
    illegal: str = "an empty stop sequence is rejected"


def write_settings(
    rows: Iterable[Setting], settings: Settings, losses: list[Loss], refused: Mapping[str, str] = NONE_REFUSED
) -> dict[str, object]:
    """Return the fields of these settings, in the order of the rows. `refused` holds the reason for each forbidden setting."""
    body: dict[str, object] = {}
    for row in rows:
        value = getattr(settings, row.name)
        if row.write is None or value is None or value == ():
            continue
        why = refused.get(row.name, "") if row.field else row.why
        if why:
            losses.append(loss_of("dropped", f"setting.{row.name}", why))
        elif (written := row.write(row, value, losses)) is not None:
            body[row.field] = written
    return body


def read_settings(rows: Iterable[Setting], body: Fields) -> Settings:
    """Return the settings that the fields of a body state, and take these away."""
    return Settings(**{row.name: row.read(body, row.field) for row in rows if row.field})  # type: ignore[arg-type]


def hold_number(row: Setting, value: float, losses: list[Loss]) -> float:
    """Return a number between 0 and the most that the wire takes."""
    if 0 <= value <= row.most:
        return value
    losses.append(loss_of("degraded", f"setting.{row.name}", f"{value} lies outside 0 to {row.most}; the bound is sent"))
    return max(0, min(value, row.most))


def pass_number(row: Setting, value: float, losses: list[Loss]) -> float:  # noqa: ARG001 - as every way to write
    """Return a number as it was given."""
    return value


def choose_stops(row: Setting, stops: tuple[str, ...], losses: list[Loss]) -> list[str] | None:
    """Return the stop sequences that the wire takes; None when there are none."""
    legal = [text for text in stops if row.is_legal(text)]
    if len(legal) < len(stops):
        losses.append(loss_of("dropped", "setting.stop", row.illegal))
    if len(legal) > row.most:
        why = f"{len(legal)} sequences, and {row.most} are taken; the rest was left out"
        losses.append(loss_of("dropped", "setting.stop", why))
        legal = legal[: int(row.most)]
    return legal or None


def read_stops(body: Fields, field: str) -> tuple[str, ...]:
    """Take the stop sequences of a body: a list, or one text."""
    return (body.text(field),) if body.is_text(field) else tuple(body.texts(field))


def find_word(words: Mapping[W, str], found: str) -> W | None:
    """Return the neutral word for one of a wire: the first that is written so; None when there is none."""
    return next((ours for ours, theirs in words.items() if theirs == found), None)


def output_limit(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int | None:
    """Return the output limit that was asked for, clamped to what the model can do."""
    limit = ask.settings.max_output_tokens
    if limit is not None and quirks.max_output and limit > quirks.max_output:
        losses.append(loss_of("degraded", "setting.max_output_tokens", f"clamped to the model's {quirks.max_output}"))
        return quirks.max_output
    return limit


def report_choice(ask: Ask, losses: list[Loss]) -> None:
    """Report what was said about tools where there are none."""
    if ask.choice.mode in ("required", "named"):
        losses.append(loss_of("dropped", "tool_choice", "there are no tools to choose from"))
    if ask.choice.parallel is not None:
        losses.append(loss_of("dropped", "tool_choice.parallel", "there are no tools to call"))


def report_unforced(losses: list[Loss]) -> None:
    """Report that a model which must call a tool may choose instead."""
    losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))


def find_chosen_tools(ask: Ask, quirks: Quirks, losses: list[Loss], rename: Callable[[str, int], str] = wire_name) -> list[str]:
    """Return the tools that a choice names and that are offered, by their names on the wire; report that one is not offered."""
    known = {tool.name for tool in ask.tools if isinstance(tool, ToolSpec)}
    names = [rename(name, quirks.name_length) for name in ask.choice.names if name in known]
    if len(names) < len(ask.choice.names) or (ask.choice.mode == "named" and len(names) != 1):
        losses.append(loss_of("degraded", "tool_choice", "a named tool is not offered"))
    return names


def report_stateless(ask: Ask, losses: list[Loss]) -> None:
    """Report what a wire has no word for that keeps nothing between requests."""
    if ask.cache.key:
        losses.append(loss_of("dropped", "cache.key", "this wire has none"))
    if ask.state.store:
        losses.append(loss_of("dropped", "state.store", "this wire keeps no answers"))
    if ask.state.mode != "replay":
        elsewhere = ask.state.id and not ask.state.after
        sent = "what the provider holds is not sent" if elsewhere else "the whole conversation is sent"
        losses.append(loss_of("degraded", "state.mode", f"this wire keeps no state; {sent}", name=ask.state.mode))


def with_extra(
    body: dict[str, object],
    ask: Ask,
    wire: str,
    nested: Iterable[str],
    losses: list[Loss],
    typed: tuple[str, ...] = TYPED,
) -> dict[str, object]:
    """Add the caller's own fields for this wire to the body; those for others, and those that we write, are reported.

    Fields in `nested` are objects that we write, too: theirs are added to ours. `a.b` is the field b of a. Those in `typed`
    mean nothing without their type: fields that stood beside it do not go alone.
    """
    offered = any(not tool.inline for tool in ask.tools)
    written = {*CONVERSATION, *(["tools"] if offered else ()), *(["system"] if ask.transcript.system_blocks else ())}
    for extra in ask.extra:
        if not extra.is_for(wire, ask.target.provider):
            only = f"only {extra.provider or 'the wire'} on {extra.wire} knows it"
            losses += _report_unknown(fields(extra.body), only)
            losses += (loss_of("dropped", "extra.header", only, name=name) for name, _ in extra.headers)
            continue
        theirs = fields(extra.body)
        losses += (
            loss_of("dropped", "extra", "the ask sets this field already", name=name) for name in theirs if name in written
        )
        _add(body, {name: value for name, value in theirs.items() if name not in written}, (tuple(nested), typed), losses)
    return body


def _report_unknown(theirs: dict[str, msgspec.Raw], why: str) -> Iterator[Loss]:
    """Yield the losses of fields that do not go; for an object, those of its fields."""
    for name, value in theirs.items():
        if name in READ_TOO:
            continue
        inner = fields(value) if bytes(value)[:1] == b"{" else {}
        if not inner and bytes(value) != b"[]":
            yield loss_of("dropped", "extra", why, name=name)
        for field in inner:
            found = loss_of("dropped", "extra", why, name=f"{name}.{field}")
            yield replace(found, path=f"extra/{escape_step(name)}/{escape_step(field)}")


def _add(
    ours: dict[str, object],
    theirs: dict[str, msgspec.Raw],
    known: tuple[tuple[str, ...], ...],
    losses: list[Loss],
    place: str = "",
) -> None:
    nested, typed = known
    for name, value in theirs.items():
        inner, own = ours.get(name), fields(value) if place + name in nested and bytes(value)[:1] == b"{" else None
        if own is not None and isinstance(inner, dict):
            ours[name] = inner = dict(inner)
            _add(inner, own, known, losses, f"{place}{name}.")
        elif own is not None and place + name in typed and "type" not in own:
            losses += _report_unknown({place + name: value}, "what it belongs to is not in this request")
        else:
            ours[name] = value


def list_fragments(fold: Prefix, quirks: Quirks) -> tuple[list[Fragment], tuple[int, ...]]:
    """Return all fragments, the open one included, and the numbers of those that ask for cache marks."""
    marked = fold.marked
    if fold.open is None:
        fragments = [*fold.fragments]
    else:
        fragments = [*fold.fragments, fold.open[1]]
        if "marked" in fold.open[1].traits:
            marked += (len(fold.fragments),)
    return fragments if quirks.thinking_replay != "latest" else _keep_latest(fragments), marked


def _keep_latest(fragments: list[Fragment]) -> list[Fragment]:
    """Leave thinking only in the turns since the user last spoke, where only the latest goes back."""
    asked = [number for number, fragment in enumerate(fragments) if "asks" in fragment.traits]
    bound = asked[-1] + 1 if asked else 0
    return [(fragment.lean or fragment) if number < bound else fragment for number, fragment in enumerate(fragments)]


def add_losses(fold: Prefix, fragments: list[Fragment], losses: list[Loss]) -> None:
    """Report the losses of the fragments, the open one included."""
    for number in fold.lossy:
        losses += fragments[number].losses
    if fold.open is not None:
        losses += fragments[-1].losses


def bound_history(
    messages: list[bytes], fragments: list[Fragment], quirks: Quirks, losses: list[Loss], *, prefill: bool
) -> None:
    """Make the history begin and end with the role that the endpoint demands."""
    if not messages:
        messages.append(NOTHING_SAID)
        losses.append(loss_of("added", "message", "an empty conversation is rejected; a note stands for it", name="user"))
    if not fragments or (prefill and not quirks.first_user):
        return
    first, last = fragments[0], fragments[-1]
    first, last = first if first.data else last, last if last.data else first
    if quirks.first_user and first.data and "assistant_first" in first.traits:
        messages.insert(0, BEGIN)
        losses.append(loss_of("added", "message", "the history must begin with the user", name="user"))
    if not prefill and last.data and "assistant_last" in last.traits and "paused" not in last.traits:
        messages.append(CONTINUE)
        losses.append(loss_of("added", "message", "the history may not end with the assistant", name="user"))
