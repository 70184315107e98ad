"""`python -m bench kills`: a process is killed at a random moment, again and again, and what it left goes on to its end.

Real processes, SIGKILL, a real SQLite file. Each conversation is killed one to three times, then brought to its end and
checked. `python -m bench.kills <kills> <seed> <folder>` is one such campaign; the command runs one for each core.
"""

import asyncio
import gc
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import msgspec

from bench.kill_check import interrupted, violations
from bench.kill_life import ACKNOWLEDGED, digests, forget_starts, live, telling
from bench.kill_world import TOOLS, World, marks
from evener.events import Event
from evener.store import rows

__all__ = ["Tally", "campaign", "main", "run_apart"]

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 60.0
"""Nothing that one process does takes longer; a campaign of 1,000 kills takes about a minute."""
MOMENTS = 30
"""About as many lines as one life tells."""
LATER = (0.0, 0.0, 0.0005, 0.003)


class Tally(msgspec.Struct):
    """What a campaign came to. `moments` counts what had been told last when a process was killed."""

    kills: int = 0
    conversations: int = 0
    events: int = 0
    acknowledged: int = 0
    lost: int = 0
    unknown: int = 0
    checked: int = 0
    repeated: int = 0
    moments: dict[str, int] = {}
    violations: list[str] = []

    def add(self, other: "Tally") -> None:
        """Both together."""
        for name in ("kills", "conversations", "events", "acknowledged", "lost", "unknown", "checked", "repeated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.moments = dict(Counter(self.moments) + Counter(other.moments))
        self.violations += other.violations


class Life(msgspec.Struct, frozen=True):
    """What one process told, and whether it was killed before it was done."""

    told: tuple[str, ...]
    killed: bool


class Death(msgspec.Struct, frozen=True):
    """When to kill: so long after so many lines. No lines: so long after the start."""

    lines: int
    seconds: float


def campaign(kills: int, seed: int, folder: Path, *, forgetful: bool = False) -> Tally:
    """Kill so often, and check every conversation. Forks: call it in a process with one thread."""
    tally = Tally(moments={}, violations=[])
    chance = random.Random(seed)
    gc.freeze()
    while tally.kills < kills:
        world = World.of(chance.randrange(1 << 40))
        _converse(world, folder, chance, tally, forgetful=forgetful)
    return tally


def _converse(world: World, folder: Path, chance: random.Random, tally: Tally, *, forgetful: bool) -> None:
    path, side = folder / "store.db", folder / f"{world.name}.effects"
    told: list[str] = []
    for _ in range(chance.randint(1, 3)):
        begun = time.monotonic()
        life = _life(world, path, side, death=_death(chance), forgetful=forgetful)
        told += life.told
        if not life.killed:
            break
        tally.kills += 1
        last = life.told[-1].partition(" ")[0] if life.told else "nothing"
        tally.moments[last] = tally.moments.get(last, 0) + 1
        assert time.monotonic() - begun < SECONDS
    else:
        told += _life(world, path, side, death=None, forgetful=forgetful).told
    _count(world, path, side, told, tally)


def _death(chance: random.Random) -> Death:
    if chance.random() < 0.25:
        return Death(0, chance.uniform(0.0, 0.12))
    return Death(chance.randint(1, MOMENTS), chance.choice(LATER) * chance.random())


def _life(world: World, path: Path, side: Path, *, death: Death | None, forgetful: bool) -> Life:
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        _be(world, path, side, outlet, forgetful=forgetful)
    os.close(outlet)
    try:
        told = _watched(child, inlet, death)
    finally:
        os.close(inlet)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Life(told, killed=death is not None)
    if status:
        raise RuntimeError(f"{world.name} ended with status {status} after {told[-3:]}")
    return Life(told, killed=False)


def _be(world: World, path: Path, side: Path, outlet: int, *, forgetful: bool) -> None:
    """The child: lives, and is gone without a way back."""
    code = 1
    try:
        if forgetful:
            forget_starts()
        asyncio.run(live(world, path=path, side=side, tell=telling(outlet)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _watched(child: int, inlet: int, death: Death | None) -> tuple[str, ...]:
    """Read what the child tells, and kill it when its time has come."""
    told = b""
    end = time.monotonic() + (death.seconds if death is not None and not death.lines else SECONDS)
    while True:
        if death is not None and death.lines and told.count(b"\n") >= death.lines:
            end, death = time.monotonic() + death.seconds, Death(0, 0.0)
        left = end - time.monotonic()
        ready = left > 0 and select.select([inlet], [], [], left)[0]
        if not ready:
            os.kill(child, signal.SIGKILL)  # ours, and not waited for yet: the number is still its own
            end = time.monotonic() + SECONDS
        elif piece := os.read(inlet, 1 << 16):
            told += piece
        else:
            return tuple(told.decode().splitlines())


def _count(world: World, path: Path, side: Path, told: list[str], tally: Tally) -> None:
    events, effects = _events(world, path), marks(side)
    side.unlink(missing_ok=True)
    kept = set(digests(events))
    acknowledged = [digest for line in told if line.startswith(ACKNOWLEDGED) for digest in line.split()[1:]]
    lost = [digest for digest in acknowledged if digest not in kept]
    names = {call: name for turn in world.turns for name, call in turn}
    tally.conversations += 1
    tally.events += len(events)
    tally.acknowledged += len(acknowledged)
    tally.lost += len(lost)
    for call in interrupted(events):
        kind = TOOLS[names[call]]
        tally.unknown += kind.once
        tally.checked += kind.verifies
        tally.repeated += kind.effect != "write"
    found = violations(events, effects, world)
    if lost:
        found.append(f"{len(lost)} acknowledged events are lost")
    tally.violations += [f"{world.name}: {text}" for text in found]


def _events(world: World, path: Path) -> list[Event]:
    """The whole log: the store's own reading follows the chain, and takes no gap."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT log FROM logs WHERE harness = ?", (world.name,)).fetchall()
        assert len(found) == 1, f"{world.name} has {len(found)} logs"
        return rows.read(connection, found[0][0], 0)
    finally:
        connection.close()


def run_apart(kills: int, seed: int, folder: Path, *, forgetful: bool = False, seconds: float = 600.0) -> Tally:
    """A campaign in a process of its own, with its files in a new folder below this one."""
    running = _start(kills, seed, folder, forgetful=forgetful)
    try:
        said, complaints = running.communicate(timeout=seconds)
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    if running.returncode:
        raise RuntimeError(f"The campaign of seed {seed} failed: {complaints[-2000:]}")
    return msgspec.json.decode(said, type=Tally)


def _start(kills: int, seed: int, folder: Path, *, forgetful: bool = False) -> "subprocess.Popen[str]":
    words = (str(kills), str(seed), str(folder), *(("forgetful",) if forgetful else ()))
    command = [sys.executable, "-W", "error", "-m", "bench.kills", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main(kills: int, seed: int) -> int:
    """Campaigns on every core, and what they came to; 1 when anything was wrong."""
    cores = min(os.cpu_count() or 1, kills)
    begun = time.monotonic()
    folder = Path(tempfile.gettempdir())
    running = [_start(kills // cores + (number < kills % cores), seed + number, folder) for number in range(cores)]
    whole = Tally(moments={}, violations=[])
    for one in running:
        said, complaints = one.communicate()
        if one.returncode:
            print(complaints, file=sys.stderr)
            return 1
        whole.add(msgspec.json.decode(said, type=Tally))
    for text in whole.violations[:20]:
        print(text)
    print(
        f"seed {seed}: {whole.kills:,} kills in {whole.conversations:,} conversations, {time.monotonic() - begun:.0f} s. "
        f"Of {whole.acknowledged:,} acknowledged events {whole.lost} are lost. In flight were {whole.unknown} writes (their "
        f"outcome is told as unknown), {whole.checked} that were checked, {whole.repeated} that were repeated. "
        f"{len(whole.violations)} violations."
    )
    print(f"killed after: {json.dumps(whole.moments)}")
    return 1 if whole.violations else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="evener-kills-", dir=sys.argv[3]) as place:
        done = campaign(int(sys.argv[1]), int(sys.argv[2]), Path(place), forgetful="forgetful" in sys.argv[4:])
    sys.stdout.write(msgspec.json.encode(done).decode())
