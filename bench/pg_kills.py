"""`python -m bench pg-kills`: the kill campaign on PostgreSQL; clients die, and now and then the server does, with `fsync` on.

A real server in a folder of its own, and several lanes: processes that each have one conversation after the other, whose
clients are killed with SIGKILL in the midst of their runs and come back. Meanwhile all processes of the server are killed, and
it recovers; its clients wait for it. The checks are those of `bench.kills`: nothing acknowledged is lost, no write is started
twice, no thread is stuck. Each conversation leaves a line in the journal; a campaign whose journal is there goes on.
"""

import gc
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import campaigns, kills
from bench.kills import Tally
from evener.store.postgres import PostgresStore
from evener.store.protocol import Store
from evener.testing.postgres import PostgresServer

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

__all__ = ["campaign", "main", "run_apart"]

MODULE = "bench.pg_kills"
LANES = 10
FEW_LANES = 3
PATIENCE = 60.0
"""Seconds that a client waits for a server that comes back."""
MOST_DEATHS, MOMENTS = 24, 5
"""A conversation dies often, and gets on by a few steps each time: the processes that end and check it are for many kills."""
A_SCHEMA = 4
"""Conversations of a lane on one schema, beside those of other lanes: each client looks for its own among all of them."""
LOOK = 0.1
LONGEST_SILENCE = 300.0
"""Seconds without a conversation that ended after which a campaign is given up."""


def campaign(
    deaths: int, restarts: int, seed: int, folder: Path, *, journal: Path, lanes: int = LANES, within: str | None = None
) -> Tally:
    """Kill clients and the server so often, and check every conversation. Forks: call it in a process with one thread.

    What the journal has already counts. `within` is where the server's files lie.
    """
    chance = random.Random(seed)
    journal.touch(mode=0o600)
    stop = folder / "stop"
    fork = multiprocessing.get_context("fork").Process
    with PostgresServer(within=within) as server:
        kills.open_store = _opener(server.address)
        gc.freeze()
        running = [fork(target=_converse, args=(folder, journal, chance.randrange(1 << 40), stop)) for _ in range(lanes)]
        try:
            for lane in running:
                lane.start()
            _disturb(server, running, journal, (deaths, restarts), chance)
        finally:
            stop.touch()
            for lane in running:
                lane.join()
    whole = campaigns.read(journal, Tally)
    whole.violations += [f"a lane ended with code {lane.exitcode}" for lane in running if lane.exitcode]
    if whole.kills < deaths or whole.restarts < restarts:
        whole.violations.append(f"only {whole.kills} clients and {whole.restarts} servers were killed")
    return whole


def _opener(address: str) -> kills.OpenStore:
    def open_store(path: Path, *, lease: float = 30.0, busy: float = PATIENCE) -> Store:
        return PostgresStore(address, schema=path.stem, lease=lease, busy=max(busy, PATIENCE))

    return open_store


def _converse(folder: Path, journal: Path, seed: int, stop: Path) -> None:
    """Be a lane: have conversations until there is a stop, or no parent."""
    chance, parent, count = random.Random(seed), os.getppid(), 0
    while not stop.exists() and os.getppid() == parent:
        tally = Tally()
        kills.converse(folder / f"store_{count // A_SCHEMA}", chance, tally, most=MOST_DEATHS, moments=MOMENTS)
        campaigns.note(journal, tally)
        count += 1


def _disturb(
    server: PostgresServer, running: "list[ForkProcess]", journal: Path, wanted: tuple[int, int], chance: random.Random
) -> None:
    """Kill the server at moments that are spread over the campaign, until all is done or nothing goes on."""
    (deaths, restarts), past, size, changed = wanted, campaigns.read(journal, Tally), 0, time.monotonic()
    while past.kills < deaths or past.restarts < restarts:
        if past.restarts < restarts and past.kills * restarts >= (past.restarts + chance.random()) * deaths:
            time.sleep(chance.random() * LOOK)
            server.kill()
            server.start()
            campaigns.note(journal, Tally(restarts=1))
        time.sleep(LOOK)
        if journal.stat().st_size != size:
            past, size, changed = campaigns.read(journal, Tally), journal.stat().st_size, time.monotonic()
        if time.monotonic() - changed > LONGEST_SILENCE or not all(lane.is_alive() for lane in running):
            return


def run_apart(
    deaths: int, restarts: int, seed: int, folder: Path, *, within: str | None = None, seconds: float = 600.0
) -> Tally:
    """A campaign in a process of its own."""
    words = (deaths, restarts, seed, folder, *([within] if within else []))
    return campaigns.finished(campaigns.started(MODULE, *words), Tally, seconds=seconds)


def main(deaths: int, restarts: int, seed: int, journal: Path | None = None) -> int:
    """A campaign, and what it came to; 1 when anything was wrong."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="evener-pg-kills-") as name:
        folder = Path(name)
        whole = campaign(deaths, restarts, seed, folder, journal=journal or folder / "journal")
    print(
        f"seed {seed}: PostgreSQL, {whole.kills:,} kills of clients and {whole.restarts:,} of the server in "
        f"{whole.conversations:,} conversations, {time.monotonic() - begun:.0f} s. Of {whole.acknowledged:,} acknowledged "
        f"events {whole.lost} are lost; {whole.gaps} gaps, {whole.twice} writes started twice, {whole.stuck} threads stuck. "
        f"{len(whole.violations)} violations."
    )
    for violation in whole.violations[:10]:
        print(violation)
    return 1 if whole.violations else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="evener-pg-kills-", dir=sys.argv[4]) as place:
        deaths, restarts, seed = map(int, sys.argv[1:4])
        within, files = sys.argv[5] if sys.argv[5:] else None, Path(place)
        done = campaign(deaths, restarts, seed, files, journal=files / "journal", lanes=FEW_LANES, within=within)
    sys.stdout.write(msgspec.json.encode(done).decode())
