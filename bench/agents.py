"""Whole agents side by side: our stack, the vendors' SDKs, pydantic-ai and ThinHarness, against one mock server on loopback.

Each library runs in an environment and a process of its own; all are measured in turns, pass by pass, and the least CPU counts:
what else runs on the machine then hurts all of them alike. Wall time is beside it where a disk is waited for.

`compare` measures us alone, in an older revision and in this tree, each with its own driver, against the server of this tree.
The session of aiohttp, which is the same in both, shows the noise: its ratio should be 1. Traces are on by default and part of
our figures; `EVENER_TRACES=off` measures both trees without them.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Protocol

import msgspec

from bench.agent_imports import import_figures, own_figures
from bench.agent_speech import ARGUMENT, RESULT, TOOL, WIRES
from bench.peers import Missing, Peer, environment
from bench.revision import BEFORE, NOW, Side, sides_of
from bench.table import Figure, stand_beside

__all__ = [
    "AGENTS",
    "ANTHROPIC",
    "CALLS",
    "OURS",
    "QUICK",
    "ROOT",
    "USUAL",
    "Order",
    "Said",
    "Scale",
    "compare",
    "drive",
    "figures",
    "serve",
]

AGENTS = {
    "anthropic": Peer("", "anthropic", "2.8.0"),
    "openai": Peer("", "openai", "3.49.0"),
    "pydantic-ai": Peer("", "pydantic-ai-slim[anthropic,openai]", "2.66.0"),
    "thinharness": Peer("", "thinharness", "0.8.0"),
}
OURS = "evener"
ANTHROPIC, CHAT, RESPONSES, GEMINI = WIRES
SPOKEN = {
    "anthropic": (ANTHROPIC,),
    "openai": (CHAT, RESPONSES),
    "pydantic-ai": (ANTHROPIC, CHAT, RESPONSES),
    "thinharness": (ANTHROPIC, CHAT, RESPONSES),
}
CLIENTS = {"aiohttp": "aiohttp", "own": "our transport"}
"""What a whole stack is held against: the cheapest client that is mature, and the one that we made instead of it."""
ROOT = Path(__file__).resolve().parents[1]
DRIVER = Path(__file__).with_name("agent_driver.py")
ABOUT = "Look an item up."
CALLS = 20
PER_MESSAGE = 1.5
"""Microseconds that a turn may cost more for each message of history."""
FEW = 5
"""Deltas of a short answer."""
OURSELVES = (sys.executable, "-W", "ignore", "-m", "bench.agent_ours")
ONE_TOOL = {"loop-write": "loop", "disk-write": "disk", "loop": "loop-read", "disk": "disk-read"}
"""Actions by the names of an older driver: its only tool has no effect class, which means one that writes. None reads."""


class Scale(msgspec.Struct, frozen=True):
    """How much is measured."""

    deltas: int
    paced: int
    fragments: tuple[int, int]
    history: tuple[int, int]
    requests: int
    passes: int


USUAL = Scale(2000, 100, (500, 8000), (20, 2000), 20, 9)
QUICK = Scale(20, 3, (5, 20), (20, 200), 1, 1)


class Order(msgspec.Struct, frozen=True):
    """What one library is to do: an action on a wire, with the server's script; so often in one pass."""

    who: str
    what: str
    wire: str
    script: str
    times: int = 1
    passes: int = 0


class Said(msgspec.Struct, frozen=True):
    """Seconds of one action, and how many deltas, calls or messages there were."""

    cpu: float = 0.0
    wall: float = 0.0
    count: int = 0
    error: str = ""


class Driven(Protocol):
    """A library in its process."""

    def __call__(self, order: Order) -> Said: ...


Found = Mapping[Order, Said]


def figures(scale: Scale, agents: Mapping[str, Peer] = AGENTS) -> list[Figure]:
    """Every bar of streaming, requests, the loop and imports."""
    pythons, missing = _environments(agents)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="evener-agents-"))
        base = stack.enter_context(serve())
        drivers = {OURS: stack.enter_context(drive(OURSELVES, ROOT, base))}
        for name, python in pythons.items():
            command = [str(python), "-W", "ignore", str(DRIVER), name, TOOL, ABOUT, ARGUMENT, RESULT]
            drivers[name] = stack.enter_context(drive(command, Path(folder), base))
        plan = _Plan(scale, tuple(pythons))
        found = _measured(plan.orders(), drivers, scale.passes)
        imports = import_figures(pythons, f"{base}/{plan.short}", min(scale.passes, 5))
    return [*missing, *plan.figures(found), *imports]


def compare(scale: Scale, before: str) -> list[Figure]:
    """Return every figure of ours in an older revision and in this tree, measured in turns."""
    plan = _Plan(scale, ())
    with sides_of(before) as sides, serve() as base, ExitStack() as stack:
        drivers = {name: stack.enter_context(_drive_side(side, base)) for name, side in sides.items()}
        rows = {name: list(plan.own(name)) for name in sides}
        orders = [[order for _, orders, _ in each for order in orders] for each in rows.values()]
        turns = [order for both in zip(*orders, strict=True) for order in both]
        found = _measured(list(dict.fromkeys(turns)), drivers, scale.passes)
        imports = own_figures(sides, f"{base}/{plan.short}", min(scale.passes, 5))
    then, now = ([*_figures(rows[name], found), *imports[name]] for name in (BEFORE, NOW))
    return stand_beside(then, now)


def _environments(agents: Mapping[str, Peer]) -> tuple[dict[str, Path], list[Figure]]:
    pythons, missing = {}, []
    for name, peer in agents.items():
        try:
            pythons[name] = environment(peer)
        except Missing as why:
            missing.append(Figure(f"{name} {peer.version}", most=1.0, note=f"not measured: {why}"))
    return pythons, missing


def _measured(orders: Sequence[Order], drivers: Mapping[str, Driven], passes: int) -> dict[Order, Said]:
    """The least of each, taken in turns. Of paced answers the median: on a busy machine some of their deltas come together."""
    found: dict[Order, list[Said]] = {order: [] for order in orders}
    for number in range(passes):
        for order in orders:
            if not order.passes or number < order.passes:
                found[order].append(drivers[order.who](order))
    return {order: _sum_up(said, median if order.script.endswith("-paced") else min) for order, said in found.items()}


def _sum_up(said: Sequence[Said], choose: Callable[[Iterable[float]], float]) -> Said:
    """Return the last, with times chosen from all; or one that failed."""
    failed = next((one for one in said if one.error), None)
    cpu, wall = choose([one.cpu for one in said]), choose([one.wall for one in said])
    return failed or msgspec.structs.replace(said[-1], cpu=cpu, wall=wall)


# Which figure is made of which orders.


class _Plan:
    """The orders, and the figures they make. An order that failed leaves a figure with its error."""

    def __init__(self, scale: Scale, peers: Sequence[str]) -> None:
        self.scale = scale
        self.peers = peers
        self.burst = f"0-{scale.deltas}-0-burst"
        self.paced = f"0-{scale.paced}-0-paced"
        self.short = f"0-{FEW}-0-burst"
        self.tools = f"{CALLS}-{FEW}-1-burst"

    def orders(self) -> list[Order]:
        """All, in the order of a pass."""
        return list(dict.fromkeys(order for make in self._rows() for order in make[1]))

    def figures(self, found: Found) -> list[Figure]:
        """The table."""
        return _figures(self._rows(), found)

    def own(self, who: str) -> Iterator["Row"]:
        """Yield the figures of one of our drivers by itself."""
        deltas, paced, requests = self.scale.deltas, self.scale.paced, self.scale.requests
        for wire in WIRES:
            yield (f"request, {wire}", [Order(who, "text", wire, self.short, requests)], _alone(1, count=FEW))
            yield (f"paced delta, {wire}", [Order(who, "text", wire, self.paced)], _alone(paced, count=paced))
            yield (f"burst delta, {wire}", [Order(who, "text", wire, self.burst)], _alone(deltas, count=deltas))
        for client, name in CLIENTS.items():
            yield (f"request, {name} alone", [Order(who, f"bare-{client}", ANTHROPIC, self.short, requests)], _alone(1))
            typed = Order(who, f"{client}-typed", ANTHROPIC, self.paced)
            yield (f"paced delta, {name}, splitting, parsing", [typed], _alone(paced))
        named = f"turn of a {CALLS}-call loop"
        for wire in WIRES:
            yield (f"{named}, {wire}", [Order(who, "loop-write", wire, self.tools)], _alone(CALLS + 1, count=CALLS))
        yield from self._durable(who, "disk-write", f"{named} on SQLite")
        for size in self.scale.history:
            order = Order(who, f"turn-{size}", ANTHROPIC, self.short, FEW)
            yield (f"turn after {size:,} messages", [order], _alone(1, count=size))
        yield from self._growth(who)
        yield (f"{named}, a tool that reads", [Order(who, "loop", ANTHROPIC, self.tools)], _alone(CALLS + 1, count=CALLS))
        yield from self._durable(who, "disk", f"{named} on SQLite, a tool that reads")

    def _durable(self, who: str, what: str, name: str) -> Iterator["Row"]:
        order = Order(who, what, ANTHROPIC, self.tools)
        yield (name, [order], _alone(CALLS + 1, count=CALLS))
        yield (f"{name}, wall", [order], _alone(CALLS + 1, "wall", count=CALLS))

    def _rows(self) -> Iterator["Row"]:
        yield from self._streaming()
        yield from self._requests()
        yield from self._loops()
        yield from self._growth(OURS)
        yield from self._disk()

    def _streaming(self) -> Iterator["Row"]:
        deltas = self.scale.deltas
        for client, name in CLIENTS.items():
            for wire in WIRES:
                orders = [Order(OURS, what, wire, self.burst) for what in ("text", f"{client}-plain", f"{client}-typed")]
                yield (f"burst delta, {wire}, {name}, splitting, parsing", orders, _floor(deltas))
        for peer, least in (("anthropic", 5.0), ("openai", 0.0), ("pydantic-ai", 15.0)):
            for wire in SPOKEN[peer] if peer in self.peers else ():
                bar = least if wire == ANTHROPIC else 0.0
                orders = [Order(who, "text", wire, self.burst) for who in (OURS, peer)]
                yield (f"burst delta, {wire}, {peer}", orders, _ratio(deltas, least=bar, count=deltas))
                orders = [Order(who, "text", wire, self.paced, passes=3) for who in (OURS, peer)]
                yield (f"paced delta, {wire}, {peer}", orders, _ratio(self.scale.paced, note="a wake-up each"))
        for client, name in CLIENTS.items():
            orders = [Order(OURS, what, ANTHROPIC, self.paced, passes=3) for what in ("text", f"{client}-typed")]
            note = "a wake-up each"
            yield (f"paced delta, {ANTHROPIC}, {name}, splitting, parsing", orders, _ratio(self.scale.paced, note=note))

    def _requests(self) -> Iterator["Row"]:
        for client, name in CLIENTS.items():
            for wire in WIRES:
                orders = [Order(OURS, what, wire, self.short, self.scale.requests) for what in ("text", f"bare-{client}")]
                yield (f"request, {wire}, {name} alone", orders, _ratio(1, most=2.0))

    def _loops(self) -> Iterator["Row"]:
        bars = {"thinharness": 2.0, "pydantic-ai": 10.0}
        for peer in self.peers:
            for wire in SPOKEN[peer]:
                bar = bars.get(peer, 0.0) if wire == ANTHROPIC else 0.0
                orders = [Order(who, "loop", wire, self.tools) for who in (OURS, peer)]
                yield (f"turn of a {CALLS}-call loop, {wire}, {peer}", orders, _ratio(CALLS + 1, least=bar, count=CALLS))

    def _growth(self, who: str) -> Iterator["Row"]:
        small, large = self.scale.history
        orders = [Order(who, f"turn-{size}", ANTHROPIC, self.short, FEW) for size in (small, large)]
        yield (f"growth a message, {small} to {large:,}", orders, _growth(large - small))
        few, many = self.scale.fragments
        for wire in (ANTHROPIC, CHAT, RESPONSES):
            orders = [
                Order(who, "text", wire, f"1-{FEW}-{size}-burst", times) for size, times in ((1, 10), (few, 3), (many, 1))
            ]
            yield (f"argument fragment, {wire}, {many:,} beside {few}", orders, _fragments(few, many))

    def _disk(self) -> Iterator["Row"]:
        orders = [Order(OURS, what, ANTHROPIC, self.tools) for what in ("loop", "disk", "commits")]
        memory, disk, _ = orders
        named = f"turn of a {CALLS}-call loop on SQLite"
        writing = [memory, *(Order(OURS, what, ANTHROPIC, self.tools) for what in ("disk-write", "commits-write"))]
        for tool, own in (("", orders), (", a tool that writes", writing)):
            yield (f"{named}{tool}, a memory log", [own[1], memory], _ratio(CALLS + 1, most=2.0, count=CALLS))
            yield (f"{named}{tool} beyond a memory log, bare SQLite", own, _beyond_memory)
            yield (f"{named}{tool}, wall, bare SQLite", own, _waiting)
        if "thinharness" in self.peers:
            thin = Order("thinharness", "loop", ANTHROPIC, self.tools)
            yield (f"{named}, thinharness in memory", [disk, thin], _ratio(CALLS + 1, count=CALLS))


Row = tuple[str, list[Order], Callable[[str, Sequence[Said]], Figure]]


def _figures(rows: Iterable[Row], found: Found) -> list[Figure]:
    return [_figure(name, [found[order] for order in orders], make) for name, orders, make in rows]


def _figure(name: str, said: Sequence[Said], make: Callable[[str, Sequence[Said]], Figure]) -> Figure:
    made = make(name, said)
    error = next((one.error for one in said if one.error), "")
    return Figure(name, most=made.most, least=made.least, note=f"not measured: {error}") if error else made


def _floor(deltas: int) -> Callable[[str, Sequence[Said]], Figure]:
    def make(name: str, said: Sequence[Said]) -> Figure:
        ours, plain, typed = (one.cpu / deltas * 1e6 for one in said)
        note = "orjson" if plain < typed else "typed msgspec"
        return Figure(name, ours, min(plain, typed), most=2.0, note=note)

    return make


def _ratio(
    parts: int, *, most: float = 0.0, least: float = 0.0, count: int = 0, note: str = ""
) -> Callable[[str, Sequence[Said]], Figure]:
    """Ours beside the other, for each of so many parts. Whoever counted less than `count` did not do the work."""

    def make(name: str, said: Sequence[Said]) -> Figure:
        if min(one.count for one in said) < count:
            counted = " and ".join(str(one.count) for one in said)
            return Figure(name, most=most, least=least, note=f"not measured: {counted} of {count} were seen")
        ours, other = (one.cpu / parts * 1e6 for one in said)
        return Figure(name, ours, other, most=most, least=least, note=note)

    return make


def _alone(parts: int, time: str = "cpu", *, count: int = 0) -> Callable[[str, Sequence[Said]], Figure]:
    """Make a figure of one order, for each of so many parts: its `cpu` or its `wall` time."""
    of = attrgetter(time)

    def make(name: str, said: Sequence[Said]) -> Figure:
        (one,) = said
        if one.count < count:
            return Figure(name, note=f"not measured: {one.count} of {count} were seen")
        return Figure(name, of(one) / parts * 1e6)

    return make


def _growth(messages: int) -> Callable[[str, Sequence[Said]], Figure]:
    def make(name: str, said: Sequence[Said]) -> Figure:
        small, large = (one.cpu * 1e6 for one in said)
        note = f"a turn costs {small:,.0f} us, then {large:,.0f}; the bar is {PER_MESSAGE:g} us"
        return Figure(name, max((large - small) / messages, 1e-3), PER_MESSAGE, most=1.0, note=note)

    return make


def _fragments(few: int, many: int) -> Callable[[str, Sequence[Said]], Figure]:
    def make(name: str, said: Sequence[Said]) -> Figure:
        one, some, all_ = (one.cpu * 1e6 for one in said)
        return Figure(name, max(all_ - one, 1e-3) / (many - 1), max(some - one, 1e-3) / (few - 1), most=1.1)

    return make


def _beyond_memory(name: str, said: Sequence[Said]) -> Figure:
    """The CPU that durability adds to a turn, beside that of plain SQLite for the same rows in the same commits."""
    memory, disk, bare = said
    turns = CALLS + 1
    note = f"{bare.count / turns:.1f} commits a turn of {bare.cpu / max(bare.count, 1) * 1e6:,.0f} us each"
    return Figure(name, max(disk.cpu - memory.cpu, 1e-9) / turns * 1e6, bare.cpu / turns * 1e6, note=note)


def _waiting(name: str, said: Sequence[Said]) -> Figure:
    """The same in wall time, which is mostly that of the disk."""
    memory, disk, bare = said
    turns, each = CALLS + 1, bare.wall / max(bare.count, 1)
    extra, each = max(disk.wall - memory.wall, 1e-9) / turns, max(each, 1e-9)
    note = f"a bare commit takes {each * 1e6:,.0f} us; beyond a memory log a turn takes {extra / each:.1f} of them"
    return Figure(name, disk.wall / turns * 1e6, bare.wall / turns * 1e6, note=note)


# The processes.


@contextmanager
def serve() -> Iterator[str]:
    """The mock server; its address."""
    command = [sys.executable, "-m", "bench.agent_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


@contextmanager
def drive(command: Sequence[str], folder: Path, base: str, variables: Mapping[str, str] | None = None) -> Iterator[Driven]:
    """One library in its own process, for as long as it is needed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=folder, env=variables) as process:
        told, heard = process.stdin, process.stdout
        assert told is not None
        assert heard is not None

        def obey(order: Order) -> Said:
            said = {"what": order.what, "wire": order.wire, "base": f"{base}/{order.script}", "times": order.times}
            with suppress(BrokenPipeError):  # it has ended, so there is no line
                told.write(json.dumps(said) + "\n")
                told.flush()
            line = heard.readline()
            return msgspec.json.decode(line, type=Said) if line else Said(error=f"{order.who} ended")

        try:
            yield obey
        finally:
            with suppress(BrokenPipeError):
                told.close()


@contextmanager
def _drive_side(side: Side, base: str) -> Iterator[Driven]:
    """Start our driver of a tree. One with a single tool is asked by its own names of the actions."""
    with drive(OURSELVES, side.tree, base, side.variables) as driven:
        if '"disk-write"' in (side.tree / "bench" / "agent_ours.py").read_text():
            yield driven
        else:
            yield lambda order: driven(msgspec.structs.replace(order, what=ONE_TOOL.get(order.what, order.what)))
