"""`python -m bench pg-kills`: the kill campaign on PostgreSQL; clients die, and now and then the server does, with `fsync` on.

A real server in a folder of its own. A client is killed with SIGKILL in the midst of its run and comes back; in place of that,
every few lives, all processes of the server are killed and it recovers, while the client goes on. The checks are those of
`bench.kills`: nothing acknowledged is lost, no write is started twice, no thread is stuck.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench import campaigns, kills
from bench.kills import Disturbance, Tally
from evener.store.postgres import PostgresStore
from evener.store.protocol import Store
from evener.testing.postgres import PostgresServer

__all__ = ["campaign", "main", "run_apart"]

MODULE = "bench.pg_kills"
LEAST_PATIENCE = 30.0
"""Seconds that a client waits for a server that comes back."""


def campaign(deaths: int, restarts: int, seed: int, folder: Path, *, within: str | None = None) -> Tally:
    """Kill clients and the server so often, and check every conversation. `within` is where the server's files lie."""
    chance = random.Random(seed)
    with PostgresServer(within=within) as server:

        def open_store(path: Path, *, lease: float = 30.0, busy: float = 10.0) -> Store:
            return PostgresStore(server.address, schema=path.stem, lease=lease, busy=max(busy, LEAST_PATIENCE))

        def disturb(tally: Tally) -> Disturbance | None:
            if tally.restarts >= restarts or chance.random() * max(deaths - tally.kills, 1) > restarts - tally.restarts:
                return None
            return lambda: _restart(server, tally)

        kills.open_store = open_store
        kills.disturb = disturb
        tally = kills.campaign(deaths, 0, seed, folder)
        while tally.restarts < restarts:
            tally.add(kills.campaign(1, 0, chance.randrange(1 << 40), folder))
        return tally


def _restart(server: PostgresServer, tally: Tally) -> tuple[str, ...]:
    server.kill()
    server.start()
    tally.restarts += 1
    return ()


def run_apart(
    deaths: int, restarts: int, seed: int, folder: Path, *, within: str | None = None, seconds: float = 600.0
) -> Tally:
    """A campaign in a process of its own."""
    words = (deaths, restarts, seed, folder, *([within] if within else []))
    return campaigns.finished(campaigns.started(MODULE, *words), Tally, seconds=seconds)


def main(deaths: int, restarts: int, seed: int) -> int:
    """A campaign, and what it came to; 1 when anything was wrong."""
    begun = time.monotonic()
    cores = min(os.cpu_count() or 1, max(deaths, 1))
    shares = [(campaigns.share(deaths, one, cores), campaigns.share(restarts, one, cores)) for one in range(cores)]
    running = [campaigns.started(MODULE, *shared, seed + one, tempfile.gettempdir()) for one, shared in enumerate(shares)]
    whole = campaigns.gathered(running, Tally)
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
        done = campaign(
            int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(place), within=sys.argv[5] if sys.argv[5:] else None
        )
    sys.stdout.write(msgspec.json.encode(done).decode())
