"""`python -m bench worker-trees`: trees of 20 agents over 4 worker processes, each with one budget that the store holds.

The agent at the root hands 19 tasks to the cluster and waits for them. Agents ask and act by chance, wait by chance, and want
far more than the tree may use; now and then a worker is killed. The checks read the logs of the whole tree.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import msgspec

from bench import campaigns
from bench.cluster import Site, open_site
from evener import Harness, Limits, tool
from evener import events as ev
from evener.store.postgres import PostgresStore
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply

__all__ = ["LIMITS", "TreeReport", "grow_trees", "main", "make_tree_harness"]

AGENTS = 20
WORKERS = 4
PRICE = Decimal("0.01")
LIMITS = Limits(requests=60, tool_calls=50, cost=Decimal("0.55"), repeats=50, repeats_stop=60)
ADDRESS = "EVENER_BENCH_ADDRESS"
SECONDS = 1800.0
TOGETHER = 4
SOON = 2.0
DEATHS = 0.25
"""How many of the groups of trees have a worker killed while they grow."""
COUNTED = ("requests", "tool_calls", "cost")


def make_tree_harness(store: PostgresStore) -> Harness:
    """Return the harness of all agents: a prompt `tree SEED` is a root, `leaf SEED` one of its agents."""

    @tool
    async def hand_out(seed: int) -> str:
        """Hand tasks to other agents, on any machine."""
        made = [await harness.submit(f"leaf {seed * AGENTS + number}") for number in range(AGENTS - 1)]
        ended = await asyncio.gather(*(one.result() for one in made))
        return f"{len(ended)} ended"

    @tool(effect="write")
    async def act(number: int) -> str:
        """Do something that takes a moment."""
        await asyncio.sleep(number % 7 / 200)
        return "done"

    def answer(ask: Ask) -> Reply | str:
        kind, seed = next(one.text for one in ask.transcript if one.role == "user" and one.text).split()
        turn = sum(one.role == "assistant" for one in ask.transcript)
        if kind == "tree":
            return "all ended" if turn else calls(ToolCall.of("root", "hand_out", {"seed": int(seed)}))
        chance = random.Random(f"{seed} {turn}")
        if turn >= chance.randint(1, 8):
            return "done"
        many = chance.choice((1, 1, 1, 2, 4))
        return calls(*(ToolCall.of(f"c{turn}-{one}", "act", {"number": chance.randrange(100)}) for one in range(many)))

    model = ScriptedModel(answer, price=PRICE)
    harness = Harness(model, tools=[hand_out, act], store=store, name="trees", limits=LIMITS, page_output=False)
    return harness


class TreeReport(campaigns.Tally):
    """What the trees came to. `used` has the amounts of each; what exceeds a limit is a violation."""

    trees: int = 0
    agents: int = 0
    kills: int = 0
    limited: int = 0
    used: list[dict[str, float]] = msgspec.field(default_factory=list)

    @property
    def most(self) -> dict[str, float]:
        """The largest amounts that a tree used."""
        return {name: max(one[name] for one in self.used) for name in COUNTED}


async def grow_trees(
    harness: Harness,
    trees: int,
    *,
    seed: int = 0,
    journal: Path | None = None,
    disturb: Callable[[], int] = lambda: 0,
) -> TreeReport:
    """Grow so many trees, some at a time, and check each. What the journal has counts. `disturb` returns its kills."""
    report = campaigns.read(journal, TreeReport)
    while report.trees < trees:
        numbers = range(report.trees, min(report.trees + TOGETHER, trees))
        roots = [await harness.submit(f"tree {seed + number}") for number in numbers]
        grown = TreeReport(kills=disturb())
        async with asyncio.timeout(SECONDS):
            for root in roots:
                result = await root.result()
                await _check(harness, root.log, result.run, grown)
        report.add(grown)
        campaigns.note(journal, grown)
    return report


async def _check(harness: Harness, root: str, run: str, report: TreeReport) -> None:
    """Sum up what the logs of a tree say, and compare it with the limits."""
    store = harness.store
    assert isinstance(store, PostgresStore)
    logs = await store.cluster.members_of(run)
    used = dict.fromkeys(COUNTED, Decimal(0))
    for log in logs:
        for event in await store.read(log):
            match event:
                case ev.ModelCalled():
                    used["requests"] += 1
                case ev.CallStarted():
                    used["tool_calls"] += 1
                case ev.Replied(cost=cost) | ev.ModelFailed(cost=cost):
                    used["cost"] += cost
                case ev.Finished(cause="limit"):
                    report.limited += 1
                case _:
                    pass
    report.trees += 1
    report.agents += len(logs)
    report.used.append({name: float(amount) for name, amount in used.items()})
    for name, amount in used.items():
        if amount > getattr(LIMITS, name):
            report.violations.append(f"{root}: {name} {amount} of {getattr(LIMITS, name)}")


async def _grow_with_deaths(site: Site, trees: int, seed: int, journal: Path | None) -> TreeReport:
    """Grow trees over worker processes, and kill one of these while some of the trees grow."""
    store = PostgresStore(site.postgres.address, lease=2.0, busy=60.0)
    chance = random.Random(seed)

    def kill() -> None:
        site.kill_worker(chance.choice(site.workers))
        site.start_worker(16)

    def kill_soon() -> int:
        if chance.random() > DEATHS:
            return 0
        asyncio.get_running_loop().call_later(chance.random() * SOON, kill)
        return 1

    try:
        return await grow_trees(make_tree_harness(store), trees, seed=seed % 1_000_000, journal=journal, disturb=kill_soon)
    finally:
        await store.aclose()


def main(trees: int, seed: int, journal: Path | None = None) -> int:
    """Print what the trees used at most; 1 when a limit was exceeded."""
    began = time.monotonic()
    with open_site("postgres", harness="bench.trees:harness") as site:
        for _ in range(WORKERS):
            site.start_worker(16)
        report = asyncio.run(_grow_with_deaths(site, trees, seed, journal))
    shown = ", ".join(f"{name} {amount:g} of {getattr(LIMITS, name)}" for name, amount in report.most.items())
    print(
        f"seed {seed}: {report.trees} trees with {report.agents:,} agents over {WORKERS} worker processes, "
        f"{report.kills} of these killed, {time.monotonic() - began:.0f} s. {report.limited} agents stopped at a limit. Used "
        f"at most by a tree: {shown}. {len(report.violations)} limits exceeded."
    )
    for line in report.violations[:10]:
        print(line)
    return 1 if report.violations else 0


if ADDRESS in os.environ:
    harness = make_tree_harness(PostgresStore(os.environ[ADDRESS], lease=2.0, busy=60.0))
