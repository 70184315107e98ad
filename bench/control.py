"""`python -m bench control`: races to decide one approval, thousands of paused runs, and random schedules of a tree of agents.

What is promised: of those who decide one approval one wins, and what runs is what the winner said; a run that waits costs no
memory, timer or task; a tree of agents never spends more than its budget. `python -m bench.control ACT ...` is one part, in a
process of its own.
"""

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec

from evener import Harness, Limits, MemoryStore, SqliteStore, tool
from evener import events as ev
from evener.errors import ApprovalStale
from evener.harness.approvals import Decision
from evener.store.protocol import Store
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall, ToolResult

__all__ = ["Cost", "broken_schedules", "main", "pause_apart", "race", "race_processes"]

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 600
"""No part takes longer."""
TOGETHER = 100
"""Runs at once: their steps share commits."""
WARM = 3000
"""Runs that come to their end before anything is measured: they fill the caches of SQLite and of the allocator."""
MEMORY = 5_000_000
PRICE = Decimal("0.004")


def _worker(ask: Ask) -> Line:
    """Pays what the prompt says, once, and ends. Below zero there is nothing to pay."""
    number = int(next(message.text for message in ask.transcript if message.role == "user"))
    last = ask.transcript.last
    if number < 0:
        return "done"
    if last is not None and any(isinstance(block, ToolResult) for block in last.blocks):
        return "done"
    return calls(ToolCall.of(f"c{number}", "pay", {"amount": number}))


def _shop(store: Store, paid: list[int]) -> tuple[Harness, ScriptedModel]:
    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    model = ScriptedModel(_worker)
    return Harness(model, tools=[pay], store=store, page_output=False), model


# Races.


async def race(count: int, *, stores: Sequence[Store], seed: int) -> list[str]:
    """Pause so many runs; for each, everybody who has a store decides at once, and one of them goes on. What went wrong."""
    chance, paid = random.Random(seed), list[int]()
    shops = [_shop(store, paid)[0] for store in stores]

    async def one(number: int) -> list[str]:
        waiting = await chance.choice(shops).run(str(number))
        verdicts = {shop: chance.choice(("allow", "reject")) for shop in shops}
        order = chance.sample(shops, len(shops))
        won = await asyncio.gather(*(_try(shop, waiting.thread, number, Decision(verdicts[shop])) for shop in order))  # type: ignore[arg-type]
        winners = [shop for shop, first in zip(order, won, strict=True) if first]
        if len(winners) != 1:
            return [f"race {number} of seed {seed} has {len(winners)} winners"]
        ended = await chance.choice(shops).resume(waiting.thread)
        times, expected = paid.count(number), int(verdicts[winners[0]] == "allow")
        wrong = [f"race {number} of seed {seed} paid {times} times, and not {expected}"] * (times != expected)
        return wrong + [f"race {number} of seed {seed} ended with {ended.stop}"] * (not ended.ok)

    found: list[str] = []
    for start in range(0, count, TOGETHER):
        for wrong in await asyncio.gather(*(one(number) for number in range(start, min(start + TOGETHER, count)))):
            found += wrong
    return found


async def _try(shop: Harness, thread: str, number: int, decision: Decision) -> bool:
    try:
        await shop.decide(thread, {f"c{number}": decision})
    except ApprovalStale:
        return False
    return True


def race_processes(count: int, *, rivals: int, path: Path) -> list[str]:
    """The same between processes, which are told the moment at which each race begins."""
    threads = asyncio.run(_paused_threads(count, path))
    running = [_start("rival", str(path), stdin=subprocess.PIPE) for _ in range(rivals)]
    try:
        for one in running:
            _line(one)
        found = [wrong for number, thread in enumerate(threads) for wrong in _raced(running, number, thread)]
        for one in running:
            one.communicate(timeout=SECONDS)
    finally:
        for one in running:
            _end(one)
    return found + asyncio.run(_decided_once(threads, path))


async def _paused_threads(count: int, path: Path) -> list[str]:
    store = SqliteStore(path)
    shop, _ = _shop(store, [])
    threads = [(await shop.run(str(number))).thread for number in range(count)]
    await store.aclose()
    return threads


def _raced(running: "list[subprocess.Popen[str]]", number: int, thread: str) -> list[str]:
    moment = time.monotonic() + 0.005
    for one in running:
        assert one.stdin is not None
        one.stdin.write(f"{number} {thread} {moment}\n")
        one.stdin.flush()
    winners = [_line(one) for one in running].count("won")
    return [] if winners == 1 else [f"race {number} between processes has {winners} winners"]


async def _decided_once(threads: list[str], path: Path) -> list[str]:
    """What each log says after it went on: one decision, and the payment as that decision has it."""
    store, paid = SqliteStore(path), list[int]()
    shop, _ = _shop(store, paid)
    found = []
    for number, thread in enumerate(threads):
        await shop.resume(thread)
        decided = [event for event in await store.read(thread) if isinstance(event, ev.ApprovalDecided)]
        allowed = [event.verdict for event in decided].count("allow")
        if len(decided) != 1 or paid.count(number) != allowed:
            found.append(f"race {number}: {len(decided)} decisions, {allowed} of them allow, {paid.count(number)} payments")
    await store.aclose()
    return found


async def _rival(path: str) -> None:
    """Decides whatever it is told to, at the moment that it is told."""
    signal.alarm(SECONDS)
    store = SqliteStore(path)
    shop, _ = _shop(store, [])
    _tell("ready")
    for line in sys.stdin:
        number, thread, moment = line.split()
        time.sleep(max(float(moment) - time.monotonic(), 0.0))
        verdict = Decision("allow" if os.getpid() % 2 else "reject", by=str(os.getpid()))
        _tell("won" if await _try(shop, thread, int(number), verdict) else "stale")
    await store.aclose()


# Paused runs.


class Cost(msgspec.Struct, frozen=True):
    """What paused runs cost their process, beyond what it costs without them."""

    runs: int
    memory: int
    tasks: int
    timers: int
    threads: int

    @property
    def wrong(self) -> list[str]:
        """What is more than was promised."""
        found = [f"{self.runs} paused runs hold {self.memory:,} bytes"] * (self.memory > MEMORY)
        for what, more in (("tasks", self.tasks), ("timers", self.timers), ("threads", self.threads)):
            found += [f"{self.runs} paused runs hold {more} {what}"] * (more > 0)
        return found


def pause_apart(count: int, folder: Path, *, wasteful: bool = False) -> Cost:
    """Pause so many runs in a process of its own. `wasteful` keeps something for each, and must be found out."""
    words = (str(count), str(folder / "paused.db"), *(("wasteful",) if wasteful else ()))
    return msgspec.json.decode(_said(_start("paused", *words)), type=Cost)


async def _paused(count: int, path: Path, *, wasteful: bool) -> Cost:
    store = SqliteStore(path)
    shop, model = _shop(store, [])
    kept: list[object] = []

    async def one(number: int) -> None:
        result = await shop.run(str(number))
        assert result.stop == ("approval" if number >= 0 else "done")
        if wasteful and number >= 0:
            waits = asyncio.get_running_loop().create_future()
            kept.append((bytes(20_000), asyncio.ensure_future(asyncio.wait_for(waits, 3600))))

    async def some(numbers: range) -> None:
        for start in range(0, len(numbers), TOGETHER):
            await asyncio.gather(*(one(number) for number in numbers[start : start + TOGETHER]))
            model.asks.clear()

    await some(range(-WARM, 0))
    await store.logs()  # the store has one thread for reading, which begins with the first read
    before = await _measured()
    await some(range(count))
    after = await _measured()
    return Cost(count, *(then - now for then, now in zip(after, before, strict=True)))


async def _measured() -> tuple[int, int, int, int]:
    """Bytes, tasks, timers, threads."""
    await asyncio.sleep(0.05)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    return pages * os.sysconf("SC_PAGESIZE"), len(asyncio.all_tasks()), len(timers), threading.active_count()


# Schedules.


def broken_schedules(seeds: Sequence[int]) -> list[str]:
    """Runs trees of agents in the order that each seed decides; in which one spent more than it might, and how much.

    One is of twenty agents, at once and to the end. The other is two levels deep, with limits on each and prices that vary:
    it pauses, fails, is cancelled and dies with its process, and goes on.
    """
    from tests.harness.forest import overspent
    from tests.harness.test_subagents import tree

    found = []
    for seed in seeds:
        chance = random.Random(seed)
        most, money = chance.randrange(5, 70), Decimal(chance.randrange(20, 300)) / 1000
        root, models = tree(20, Limits(requests=most, cost=money, tool_calls=None), PRICE, MemoryStore(), chance)
        result = asyncio.run(root.run("go"))
        asked = sum(len(model.asks) for model in models)
        if asked > most or max(asked * PRICE, result.cost) > money or result.stop not in ("done", "limit"):
            found.append(f"schedule {seed}: {asked} of {most} requests, ${asked * PRICE} of ${money}, {result.stop}")
        found += [f"schedule {seed}, with pauses and deaths: {text}" for text in overspent(seed)]
    return found


# Processes, and the command.


def _start(*words: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", "-m", "bench.control", *words]
    return subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, text=True)


def _said(running: "subprocess.Popen[str]") -> str:
    try:
        said, _ = running.communicate(timeout=SECONDS)
    finally:
        _end(running)
    if running.returncode:
        raise RuntimeError(f"A part ended with {running.returncode}: {running.args!r}")
    return said


def _end(running: "subprocess.Popen[str]") -> None:
    if running.poll() is None:
        running.kill()
        running.wait()
    for pipe in (running.stdin, running.stdout):
        if pipe is not None:
            pipe.close()


def _line(running: "subprocess.Popen[str]") -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def _tell(text: str) -> None:
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


async def _race_here(count: int, path: Path, seed: int) -> list[str]:
    stores = [SqliteStore(path) for _ in range(4)]
    found = await race(count, stores=stores, seed=seed)
    for store in stores:
        await store.aclose()
    return found


def main(races: int, paused: int, schedules: int, *, seed: int) -> int:
    """All of it, and what it came to; 1 when anything was wrong."""
    found: list[str] = []

    def part(what: str, work: Callable[[], list[str]]) -> None:
        begun = time.monotonic()
        wrong = work()
        found.extend(wrong)
        print(f"{what}: {len(wrong)} violations, {time.monotonic() - begun:.0f} s", flush=True)

    with tempfile.TemporaryDirectory(prefix="evener-control-") as name:
        folder = Path(name)
        part(f"seed {seed}: {races:,} races of 4 stores", lambda: asyncio.run(_race_here(races, folder / "a.db", seed)))
        part(f"{races:,} races of 4 processes", lambda: race_processes(races, rivals=4, path=folder / "b.db"))
        cost = pause_apart(paused, folder)
        part(
            f"{paused:,} paused runs hold {cost.memory / 1e6:.1f} MB, {cost.tasks} tasks, {cost.timers} timers",
            lambda: cost.wrong,
        )
        part(f"{schedules:,} schedules of 20 agents, and of 17 that pause and die", lambda: _schedules(schedules, seed))
    for text in found[:20]:
        print(text)
    return 1 if found else 0


def _schedules(count: int, seed: int) -> list[str]:
    cores = min(os.cpu_count() or 1, count)
    running = [_start("schedules", str(seed + part), str(seed + count), str(cores)) for part in range(cores)]
    return [text for one in running for text in msgspec.json.decode(_said(one), type=list[str])]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["rival", place]:
            asyncio.run(_rival(place))
        case ["paused", many, place, *more]:
            _tell(msgspec.json.encode(asyncio.run(_paused(int(many), Path(place), wasteful=bool(more)))).decode())
        case ["schedules", first, end, step]:
            _tell(msgspec.json.encode(broken_schedules(range(int(first), int(end), int(step)))).decode())
