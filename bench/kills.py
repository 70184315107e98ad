"""`python -m bench kills`: a process is killed at a random moment, again and again, and what it left goes on to its end.

Real processes, SIGKILL, a real SQLite file. Each conversation, with its forks and rollbacks, is killed one to four times, then
brought to its end and checked. In a pause a process is stopped at a random moment, beyond its lease, a successor takes over
and comes to the end, and then the first wakes up. `python -m bench.kills <kills> <pauses> <seed> <folder>` is one such
campaign; the command runs one for each core.
"""

import asyncio
import gc
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from bench import campaigns, kill_life
from bench.kill_check import DOUBLE, interrupted, violations
from bench.kill_faults import FAULTS
from bench.kill_life import fork_of, live, root_of, telling
from bench.kill_store import ACKNOWLEDGED, MOVED, digests
from bench.kill_world import TOOLS, Mark, Saga, World, marks
from evener.errors import EvenerError
from evener.events import Event
from evener.store import SqliteStore, Store
from evener.store.protocol import LeaseHeld, LeaseLost
from evener.store.sqlite.file import StoreBusy

__all__ = ["Tally", "campaign", "converse", "main", "run_apart"]

MODULE = "bench.kills"
MOMENTS = 20
"""About as many lines as one life tells."""
MOST_DEATHS = 4
MOST_STUCK = 50
LATER = (0.0, 0.0, 0.0005, 0.003)
LEASE = 0.5
"""Seconds that a holder has which is stopped; where processes are killed, their death is seen at once."""
BUSY = 75
"""The exit code of a successor that found the store locked by a process which was stopped while it wrote."""


class OpenStore(Protocol):
    """Opens the store of a campaign. `path` names it."""

    def __call__(self, path: Path, *, lease: float = 30.0, busy: float = 10.0) -> Store: ...


open_store: OpenStore = SqliteStore
"""What a campaign kills on. `pg_kills` puts another one here."""

Disturbance = Callable[[], tuple[str, ...]]


class Tally(campaigns.Tally):
    """What a campaign came to. `moments` counts what had been told last when a process was killed."""

    kills: int = 0
    restarts: int = 0
    pauses: int = 0
    conversations: int = 0
    branches: int = 0
    events: int = 0
    acknowledged: int = 0
    lost: int = 0
    gaps: int = 0
    twice: int = 0
    stuck: int = 0
    unknown: int = 0
    checked: int = 0
    repeated: int = 0
    moments: dict[str, int] = msgspec.field(default_factory=dict)


class Life(msgspec.Struct, frozen=True):
    """What one process told, and whether it was killed before it was done."""

    told: tuple[str, ...]
    killed: bool


class Stuck(Exception):
    """A life that nobody ended did not come to its end."""


class Locked(Exception):
    """The store is locked by a process that was stopped while it wrote."""


class Death(msgspec.Struct, frozen=True):
    """When to kill: so long after so many lines, or after the first that begins so. With neither: so long after the start."""

    seconds: float
    lines: int = 0
    word: str = ""

    def due(self, told: bytes) -> bool:
        """Whether that has been told."""
        return told.count(b"\n") >= self.lines and (not self.word or f"\n{self.word}".encode() in told)


def campaign(kills: int, pauses: int, seed: int, folder: Path) -> Tally:
    """Kill and pause so often, and check every conversation. Forks: call it in a process with one thread."""
    tally = Tally()
    chance = random.Random(seed)
    gc.freeze()
    while tally.pauses < pauses and tally.stuck < MOST_STUCK:
        seed = chance.randrange(1 << 40)
        _pause(Saga(f"saga-{seed}", World.of(seed)), folder, chance, tally)
    while tally.kills < kills:
        converse(folder / "store.db", chance, tally)
    return tally


def converse(path: Path, chance: random.Random, tally: Tally, *, most: int = MOST_DEATHS, moments: int = MOMENTS) -> None:
    """Have a conversation on the store that `path` names, kill its processes, and check what it left.

    `most` is how many are killed, `moments` about how many lines of a branch one gets to tell.
    """
    saga = Saga.of(chance.randrange(1 << 40))
    side = path.parent / f"{saga.name}.effects"
    told: list[str] = []
    try:
        for _ in range(chance.randint(1, most)):
            life = _life(saga, path, side, death=_death(saga, chance, moments))
            told += life.told
            if not life.killed:
                break
            tally.kills += 1
            last = life.told[-1].partition(" ")[0] if life.told else "nothing"
            tally.moments[last] = tally.moments.get(last, 0) + 1
        else:
            told += _life(saga, path, side, death=None).told
        _count(saga, path, side, told, tally)
    except (Stuck, EvenerError, AssertionError) as error:
        tally.stuck += 1
        tally.violations.append(f"{saga.name}: {error}")


def _pause(saga: Saga, folder: Path, chance: random.Random, tally: Tally) -> None:
    """Stop a process in the midst of its run, let another take over, and wake it up again."""
    path, side = folder / "paused.db", folder / f"{saga.name}.effects"
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        _be(saga, path, side, outlet, lease=LEASE)
    os.close(outlet)
    death = Death(chance.choice(LATER) * chance.random(), lines=chance.randint(3, MOMENTS))
    try:
        told, hung = _watched(child, inlet, death, then=lambda: _succeed(saga, path, side, child, tally))
        _, status = os.waitpid(child, 0)
        if hung or status:
            raise Stuck(f"the first ended with status {status} after {told[-3:]}")
        _count(saga, path, side, list(told), tally)
    except (Stuck, EvenerError, AssertionError) as error:
        tally.stuck += 1
        tally.violations.append(f"{saga.name}, paused: {error}")
    finally:
        os.close(inlet)


def _succeed(saga: Saga, path: Path, side: Path, child: int, tally: Tally) -> tuple[str, ...]:
    """The part of the successor while the first is stopped; what it told."""
    for _ in range(MOST_STUCK):
        os.kill(child, signal.SIGSTOP)
        try:
            told = _life(saga, path, side, death=None, lease=LEASE).told
            tally.pauses += 1
            return told
        except Locked:
            pass  # it was stopped while it wrote: it gets a moment to finish that
        finally:
            os.kill(child, signal.SIGCONT)
        time.sleep(0.002)
    raise Stuck("the store stays locked")


def _death(saga: Saga, chance: random.Random, moments: int) -> Death:
    if chance.random() < 0.25:
        return Death(chance.uniform(0.0, 0.12))
    seconds = chance.choice(LATER) * chance.random()
    if saga.back is not None and chance.random() < 0.2:
        return Death(0.0, word=MOVED)  # a moment that is rare otherwise, and soon over
    return Death(seconds, lines=chance.randint(1, moments * len(saga.worlds)))


def _life(saga: Saga, path: Path, side: Path, *, death: Death | None, lease: float = 30.0) -> Life:
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        _be(saga, path, side, outlet, lease=lease)
    os.close(outlet)
    try:
        told, hung = _watched(child, inlet, death)
    finally:
        os.close(inlet)
        _, status = os.waitpid(child, 0)
    if not hung and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Life(told, killed=True)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BUSY:
        raise Locked
    if status:
        raise Stuck(f"it ended with status {status} after {told[-3:]}")
    return Life(told, killed=False)


def _be(saga: Saga, path: Path, side: Path, outlet: int, *, lease: float) -> None:
    """The child: lives, and is gone without a way back. A holder that was replaced meanwhile has nothing more to do."""
    code, tell, end = 1, telling(outlet), time.monotonic() + kill_life.SECONDS / 2
    try:
        while code:
            try:
                asyncio.run(live(saga, open_store(path, lease=lease, busy=lease), side=side, tell=tell))
                code = 0
            except LeaseHeld:
                if time.monotonic() > end:
                    raise
                time.sleep(lease / 20)
    except LeaseLost:
        code = 0
    except StoreBusy:
        code = BUSY
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _watched(child: int, inlet: int, death: Death | None, *, then: Disturbance | None = None) -> tuple[tuple[str, ...], bool]:
    """Read what the child tells, and kill it when its time has come, or when it hangs; whether it did.

    `then` is done in place of the first kill, and gives what others told.
    """
    others: tuple[str, ...] = ()
    told, hung, limit = b"", False, time.monotonic() + kill_life.SECONDS
    end = limit
    while True:
        if death is not None and death.due(told):
            end, death = time.monotonic() + death.seconds, None
        left = end - time.monotonic()
        ready = left > 0 and select.select([inlet], [], [], left)[0]
        if not ready and then is not None and end != limit:
            others, then = then(), None
            end = limit = time.monotonic() + kill_life.SECONDS
        elif not ready:
            os.kill(child, signal.SIGKILL)  # ours, and not waited for yet: the number is still its own
            hung, end = end == limit, time.monotonic() + kill_life.SECONDS
        elif piece := os.read(inlet, 1 << 16):
            told += piece
        else:
            return (*told.decode().splitlines(), *others), hung


class Branch(msgspec.Struct, frozen=True):
    """A branch as the store has it in the end, and the world that it went through."""

    world: World
    log: str
    path: list[Event]
    shared: int


class Book(msgspec.Struct, frozen=True):
    """A conversation as the store has it in the end."""

    branches: list[Branch]
    head: str
    kept: dict[str, set[str]]
    gaps: list[str]


def _count(saga: Saga, path: Path, side: Path, told: list[str], tally: Tally) -> None:
    book, effects = asyncio.run(_read(saga, path)), marks(side)
    side.unlink(missing_ok=True)
    lines = [line.split()[1:] for line in told if line.startswith(ACKNOWLEDGED)]
    lost = [digest for log, *added in lines for digest in added if digest not in book.kept.get(log, ())]
    moves = [line.split()[1] for line in told if line.startswith(MOVED)]
    found = [text for branch in book.branches for text in _violations(branch, effects, tally)]
    tally.conversations += 1
    tally.branches += len(book.branches)
    tally.events += sum(len(branch.path) - branch.shared for branch in book.branches)
    tally.acknowledged += sum(len(added) for _, *added in lines)
    tally.lost += len(lost) + (moves[-1:] not in ([], [book.head]))
    tally.gaps += len(book.gaps)
    tally.twice += sum(DOUBLE in text for text in found)
    found += book.gaps
    if lost:
        found.append(f"{len(lost)} acknowledged events are lost")
    if moves[-1:] not in ([], [book.head]):
        found.append(f"the head was moved to {moves[-1]} and is {book.head}")
    tally.violations += [f"{saga.name}: {text}" for text in found]


def _violations(branch: Branch, effects: list[Mark], tally: Tally) -> list[str]:
    names = {call: name for turn in branch.world.turns for name, call in turn}
    for call in interrupted(branch.path[branch.shared :]):
        kind = TOOLS[names[call]]
        tally.unknown += kind.once
        tally.checked += kind.verifies
        tally.repeated += kind.effect != "write"
    return violations(branch.path, effects, branch.world, shared=branch.shared)


async def _read(saga: Saga, path: Path) -> Book:
    """All of the conversation: the store's own reading follows the chain, and takes no gap."""
    store = open_store(path)
    try:
        root = await root_of(saga, store)
        head = await store.head(root)
        named = [(saga.root, root), (saga.fork, await fork_of(root, store) if saga.fork else ""), (saga.back, head)]
        summaries = {summary.log: summary for summary in await store.logs(thread=root)}
        paths: dict[str, list[Event]] = {}
        gaps = [f"{one.log} {one.seq}: {one.what}" for one in await store.verify(root) if one.damage]
        for log, summary in summaries.items():
            paths[log] = await store.read(log)
            if len(paths[log]) != summary.events:
                gaps.append(f"{log} has {len(paths[log])} events of {summary.events}")
        branches = [Branch(world, log, paths[log], summaries[log].parent_seq) for world, log in named if world is not None]
        return Book(branches, head, {log: set(digests(events)) for log, events in paths.items()}, gaps)
    finally:
        await store.aclose()


def run_apart(kills: int, seed: int, folder: Path, *, pauses: int = 0, fault: str = "", seconds: float = 600.0) -> Tally:
    """A campaign in a process of its own, with its files in a new folder below this one, and one of the FAULTS if asked for."""
    return campaigns.finished(campaigns.started(MODULE, kills, pauses, seed, folder, fault=fault), Tally, seconds=seconds)


def main(kills: int, seed: int, *, pauses: int = 0) -> int:
    """Campaigns on every core, and what they came to; 1 when anything was wrong."""
    cores = min(os.cpu_count() or 1, max(kills, pauses, 1))
    begun = time.monotonic()
    shares = [(campaigns.share(kills, number, cores), campaigns.share(pauses, number, cores)) for number in range(cores)]
    running = [campaigns.started(MODULE, *shared, seed + number, tempfile.gettempdir()) for number, shared in enumerate(shares)]
    whole = campaigns.gathered(running, Tally)
    print(
        f"seed {seed}: {whole.kills:,} kills and {whole.pauses:,} pauses in {whole.conversations:,} conversations with "
        f"{whole.branches:,} branches, {time.monotonic() - begun:.0f} s. Of {whole.acknowledged:,} acknowledged events "
        f"{whole.lost} are lost; {whole.gaps} gaps, {whole.twice} writes started twice, {whole.stuck} threads stuck. In flight "
        f"were {whole.unknown} writes (their outcome is told as unknown), {whole.checked} that were checked, {whole.repeated} "
        "that were repeated. "
        f"{len(whole.violations)} violations."
    )
    print(f"killed after: {json.dumps(whole.moments)}")
    return 1 if whole.violations else 0


if __name__ == "__main__":
    for named in sys.argv[5:]:
        FAULTS[named]()
    with tempfile.TemporaryDirectory(prefix="evener-kills-", dir=sys.argv[4]) as place:
        done = campaign(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(place))
    sys.stdout.write(msgspec.json.encode(done).decode())
