"""`python -m bench forks`: a running thread is forked at every one of its events, and every fork goes on to its end.

Real processes and a real SQLite file. In each round one process runs a thread and is held in the middle of a call; it is then
killed, stopped beyond its lease, or left alone. Meanwhile another process forks the thread at each event, resumes each fork,
and decides what it asks; where the holder is killed or stopped, a successor takes the thread over. Then the first goes on. A
ledger on disk counts effects by idempotency key. `python -m bench.forks <forks> <seed> <folder>` is one campaign; the command
runs one for each core.
"""

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import product
from pathlib import Path

import msgspec

from bench import campaigns
from bench.fork_faults import FAULTS
from evener import events as ev
from evener.errors import UsageError
from evener.harness import Decision, Harness, Thread
from evener.store import SqliteStore
from evener.store.protocol import LeaseHeld, LeaseLost
from evener.store.sqlite.file import StoreBusy
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.tools.context import ToolContext
from evener.tools.tool import Effect, Tool, tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall

__all__ = ["Tally", "campaign", "main", "run_apart"]

MODULE = "bench.forks"
LEASE = 0.5
"""Seconds. A holder that is stopped longer than this is taken over."""
DEADLINE = 60.0
TURNS = 2


class Kind(msgspec.Struct, frozen=True):
    """A tool of the campaign. `once`: no key may take effect twice."""

    effect: Effect
    verifies: bool = False
    approved: bool = False

    @property
    def once(self) -> bool:
        return self.effect == "write"


KINDS = {
    "look": Kind("read"),
    "book": Kind("idempotent"),
    "pay": Kind("write"),
    "post": Kind("write", verifies=True),
    "sign": Kind("write", approved=True),
    "seal": Kind("write", verifies=True, approved=True),
}
MODES = ("kill", "pause", "none")
MOMENTS = ("begun", "acted")
CASES = tuple(product(KINDS, MODES, MOMENTS, range(TURNS)))


class Tally(campaigns.Tally):
    """What a campaign came to. `asked` counts questions in forks, `blocked` pauses that held the store's own lock."""

    forks: int = 0
    rounds: int = 0
    asked: int = 0
    effects: int = 0
    unknown: int = 0
    settled: int = 0
    blocked: int = 0
    cases: dict[str, int] = msgspec.field(default_factory=dict)


class Stage(msgspec.Struct, frozen=True):
    """One round: which tool, what happens to its holder, in which turn and when, and where everything lies."""

    tool: str
    mode: str
    moment: str
    turn: int
    folder: Path
    seed: int

    @property
    def kind(self) -> Kind:
        return KINDS[self.tool]

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def store(self) -> SqliteStore:
        return SqliteStore(self.folder / "store.db", lease=LEASE)

    def entries(self) -> list[str]:
        """The key of each effect so far."""
        return self.ledger.read_text().split() if self.ledger.exists() else []


# The agent.


def answer(ask: Ask, name: str) -> Line:
    """One call a turn, then the end."""
    turn = sum(message.role == "assistant" for message in ask.transcript)
    return says("The end.") if turn >= TURNS else calls(ToolCall.of(f"c{turn}", name, {"turn": turn}))


def agent(stage: Stage, store: SqliteStore, hold: Callable[[str, int], Coroutine[object, object, None]]) -> Harness:
    """`hold` is awaited before and after an effect."""

    async def act(turn: int, context: ToolContext[object]) -> str:
        await hold("begun", turn)
        _enter(stage.ledger, context.key)
        await hold("acted", turn)
        return f"done {turn}"

    def took_effect(turn: int, context: ToolContext[object]) -> bool:
        del turn
        return context.key in stage.entries()

    kind = stage.kind
    made: Tool = tool(
        act, name=stage.tool, description="Acts.", effect=kind.effect, approval=kind.approved,
        verify=took_effect if kind.verifies else None,
    )  # fmt: skip
    model = ScriptedModel(lambda ask: answer(ask, stage.tool))
    return Harness(model, tools=[made], store=store, name="forks", page_output=False)


def _enter(ledger: Path, key: str) -> None:
    """Durable when this returns, as an effect on the world is."""
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{key}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


async def _freely(moment: str, turn: int) -> None:
    """Hold nothing back."""


# The lives of processes.


async def _hold(stage: Stage) -> None:
    """The holder: runs the thread, and waits in the call until the gate opens. Being replaced is its expected end."""

    async def hold(moment: str, turn: int) -> None:
        if (moment, turn) != (stage.moment, stage.turn):
            return
        (stage.folder / "reached").touch()
        while not (stage.folder / "gate").exists():
            await asyncio.sleep(0.005)

    store = stage.store()
    thread = agent(stage, store, hold).thread()
    try:
        result = await thread.run("Go.")
        while result.stop == "approval":
            await thread.decide({one.key: Decision("allow") for one in result.approvals})
            result = await thread.resume()
    except LeaseLost:
        pass
    finally:
        await store.aclose()


async def _branch(stage: Stage) -> None:
    """The other process: forks the thread at every event, resumes the forks, and takes the thread over if it may."""
    chance = random.Random(stage.seed)
    store = stage.store()
    tally = Tally()
    try:
        harness = agent(stage, store, _freely)
        root = next(one.log for one in await store.logs() if not one.parent)
        thread = harness.thread(root, branch=root)
        for number in range(1, (await store.link(root)).seq + 1):
            await _try(store, thread, number, chance, tally)
        if stage.mode != "none" and not (stage.folder / "gate").exists():
            await _take_over(harness.thread(root, branch=root))
    except StoreBusy:
        tally.blocked += 1
    finally:
        await store.aclose()
    name = f"branched-{len(list(stage.folder.glob('branched-*')))}"
    (stage.folder / name).write_bytes(msgspec.json.encode(tally))


async def _try(store: SqliteStore, thread: Thread, number: int, chance: random.Random, tally: Tally, depth: int = 0) -> None:
    """One fork, to its end or to a question that stays open; now and then a fork of it."""
    fork = await thread.fork(at=number)
    tally.forks += 1
    try:
        result = await fork.resume()
        while result.stop == "approval":
            tally.asked += 1
            if chance.random() < 0.4:
                break
            await fork.decide({one.key: Decision("allow") for one in result.approvals})
            result = await fork.resume()
    except UsageError:
        return  # there is no run yet, or it came to its end
    if depth < 1 and chance.random() < 0.2:
        await _try(store, fork, chance.randint(1, (await store.link(fork.log)).seq), chance, tally, depth + 1)


async def _take_over(thread: Thread) -> None:
    """Resume the thread itself, as soon as its lease is over."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            result = await thread.resume()
            break
        except LeaseHeld:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(LEASE / 20)
    while result.stop == "approval":
        await thread.decide({one.key: Decision("allow") for one in result.approvals})
        result = await thread.resume()


def _start(life: Callable[[Stage], Coroutine[object, object, None]], stage: Stage) -> int:
    """Begin a life in a forked process; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        asyncio.run(life(stage))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _ended(child: int, what: str, killed: bool = False) -> list[str]:
    """Wait for a process; what is wrong with its end. One that hangs is killed."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return [] if killed or status == 0 else [f"{what} ended with status {status}"]
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return [f"{what} hangs"]


# Rounds.


def campaign(forks: int, seed: int, folder: Path, shown: tuple[str, ...] = ()) -> Tally:
    """Make so many forks, in rounds over all cases, or those of one tool and mode. Call it in a process with one thread.

    Every tool and mode has its turn before the first comes again.
    """
    whole = Tally()
    chance = random.Random(seed)
    cases = [case for case in CASES if not shown or case[:2] == shown]
    chance.shuffle(cases)
    seen: Counter[tuple[str, str]] = Counter()
    order = []
    for case in cases:
        order.append((seen[case[:2]], case))
        seen[case[:2]] += 1
    cases = [case for _, case in sorted(order, key=lambda one: one[0])]
    while whole.forks < forks:
        name, mode, moment, turn = cases[whole.rounds % len(cases)]
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _round(Stage(name, mode, moment, turn, Path(place), chance.randrange(1 << 40)), whole)
    return whole


def _round(stage: Stage, whole: Tally) -> None:
    wrong: list[str] = []
    holder = _start(_hold, stage)
    reached = time.monotonic() + DEADLINE
    while not (stage.folder / "reached").exists() and time.monotonic() < reached:
        time.sleep(0.002)
    if stage.mode == "kill":
        os.kill(holder, signal.SIGKILL)
        wrong += _ended(holder, "the holder", killed=True)
    elif stage.mode == "pause":
        os.kill(holder, signal.SIGSTOP)
    wrong += _ended(_start(_branch, stage), "the forking process")
    (stage.folder / "gate").touch()
    if stage.mode != "kill":
        os.kill(holder, signal.SIGCONT)
        wrong += _ended(holder, "the holder")
    wrong += _ended(_start(_branch, stage), "the forking process afterwards")
    for file in stage.folder.glob("branched-*"):
        whole.add(msgspec.json.decode(file.read_bytes(), type=Tally))
    case = f"{stage.tool} {stage.mode}"
    wrong += asyncio.run(_violations(stage, whole))
    whole.rounds += 1
    whole.cases[case] = whole.cases.get(case, 0) + 1
    whole.violations += [f"{case} {stage.moment} {stage.turn}: {text}" for text in wrong]


async def _violations(stage: Stage, tally: Tally) -> list[str]:
    """What is wrong with the logs and the ledger."""
    store = stage.store()
    try:
        logs = {one.log: await store.read(one.log, after=one.parent_seq) for one in await store.logs()}
    finally:
        await store.aclose()
    took = Counter(stage.entries())
    tally.effects += sum(took.values())
    for own in logs.values():
        tally.unknown += sum(isinstance(event, ev.CallFinished) and event.outcome == "unknown" for event in own)
        tally.settled += sum(len(event.results) for event in own if isinstance(event, ev.Resumed))
    wrong = [f"{count} effects under one key" for count in took.values() if stage.kind.once and count > 1]
    wrong += _starts(stage.kind, logs)
    for log, own in logs.items() if stage.kind.approved else ():
        wrong += _unapproved(log, own)
    return wrong


def _starts(kind: Kind, logs: dict[str, list[ev.Event]]) -> list[str]:
    """A call of a write runs on one branch only."""
    where: dict[str, set[str]] = {}
    for log, own in logs.items():
        for event in own:
            if isinstance(event, ev.CallStarted) and not event.verifying:
                where.setdefault(event.key, set()).add(log)
    return [f"{len(found)} branches started one key" for found in where.values() if kind.once and len(found) > 1]


def _unapproved(log: str, own: list[ev.Event]) -> list[str]:
    """Each start of this log's own was allowed on this log, and each decision counts for one call."""
    allowed: Counter[str] = Counter()
    wrong: list[str] = []
    for event in own:
        match event:
            case ev.ApprovalDecided(key=call, verdict="allow"):
                allowed[call] += 1
            case ev.CallStarted(call=call, verifying=False) if not allowed[call]:
                wrong.append(f"{log} started {call}, which was not allowed there")
            case _:
                pass
    return wrong


# The command.


def run_apart(forks: int, seed: int, folder: Path, *, fault: str = "", seconds: float = 600.0) -> Tally:
    """A campaign in a process of its own, with one of the FAULTS if asked for."""
    return campaigns.finished(campaigns.started(MODULE, forks, seed, folder, fault=fault), Tally, seconds=seconds)


def main(forks: int, seed: int) -> int:
    """Run a campaign on each core; the exit code."""
    begun, cores = time.monotonic(), os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="evener-forks-") as folder:
        shares = [campaigns.share(forks, number, cores) for number in range(cores)]
        whole = campaigns.gathered(
            [campaigns.started(MODULE, forks, seed + number, folder) for number, forks in enumerate(shares)], Tally
        )
    print(
        f"seed {seed}: {whole.forks:,} forks in {whole.rounds:,} rounds, {time.monotonic() - begun:.0f} s. {whole.effects:,} "
        f"effects; {whole.asked:,} questions in forks; {whole.unknown:,} calls told as unknown, {whole.settled:,} settled by "
        f"another branch's result; {whole.blocked} pauses held the store itself. {len(whole.violations)} violations."
    )
    print(f"rounds: {json.dumps(dict(sorted(whole.cases.items())))}")
    return 1 if whole.violations else 0


if __name__ == "__main__":
    only: tuple[str, ...] = ()
    for named in sys.argv[4:]:
        put_in_place, only = FAULTS[named]
        put_in_place()
    with tempfile.TemporaryDirectory(prefix="evener-forks-", dir=sys.argv[3]) as place:
        done = campaign(int(sys.argv[1]), int(sys.argv[2]), Path(place), only)
    sys.stdout.write(msgspec.json.encode(done).decode())
