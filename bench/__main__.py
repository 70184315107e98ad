"""The commands: `python -m bench` prints figures; the others (`peers`, `fuzz`, `hops`, `swaps`, `kills` and so on) run long."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom

import msgspec

from bench import (
    agents,
    caching,
    clients,
    cluster,
    control,
    corpus,
    decode,
    durable,
    editors,
    encode,
    estimate,
    forks,
    framing,
    fronts,
    fuzz,
    hops,
    imports,
    instructions,
    kills,
    loading,
    mcp_reference,
    mcp_suite,
    mutants,
    paths,
    paths_opinion,
    peers,
    pg_kills,
    pg_store,
    planning,
    repairs,
    requests,
    schemas,
    searching,
    shell_attacks,
    skill_verdicts,
    store,
    store_damage,
    swaps,
    threads,
    tracing,
    trees,
    viewer,
    viewer_hostile,
    windows,
)
from bench.agent_speech import WIRES
from bench.revision import FIRST
from bench.table import Figure, failed, printed, printed_beside

__all__ = ["main"]


class Scale(msgspec.Struct, frozen=True):
    """How much is measured."""

    deltas: int
    sizes: tuple[int, ...]
    passes: int


USUAL = Scale(2000, encode.SIZES, 15)
QUICK = Scale(50, (4, 8), 1)

FIGURES: dict[str, Callable[[Scale], list[Figure]]] = {
    "decode": lambda scale: decode.figures(scale.deltas, scale.passes),
    "encode": lambda scale: encode.figures(scale.sizes, scale.passes),
    "imports": lambda scale: imports.figures(min(scale.passes, 5)),
    "clients": lambda scale: clients.figures(scale.deltas, min(scale.passes, 7)),
    "store": lambda scale: store.figures(scale.deltas // 4, scale.passes),
    "agents": lambda scale: agents.figures(agents.QUICK if scale == QUICK else agents.USUAL),
    "peers": lambda scale: peers.figures(peers.PEERS, scale.deltas // 2, min(scale.passes, 7)),
}
BESIDE: dict[str, Callable[[Scale, str], list[Figure]]] = {
    "agents": lambda scale, before: agents.compare(agents.QUICK if scale == QUICK else agents.USUAL, before),
    "clients": lambda scale, before: clients.compare(scale.deltas, scale.passes, before),
}
"""Figures of ours alone, in an older revision and in this tree: with `--before`."""
COMMANDS: dict[str, Callable[[argparse.Namespace, int], int]] = {
    "caching": lambda chosen, seed: caching.main(seed, chosen.runs),
    "control": lambda chosen, seed: control.main(chosen.races, chosen.paused, chosen.schedules, seed=seed),
    "corpus": lambda _chosen, _: corpus.main(),
    "damage": lambda chosen, seed: store_damage.main(chosen.files, seed),
    "durable": lambda chosen, _: durable.main(chosen.passes),
    "editors": lambda _chosen, _: editors.main(),
    "estimate": lambda chosen, _: estimate.main(fitting=chosen.fit),
    "forks": lambda chosen, seed: forks.main(chosen.forks, seed),
    "framing": lambda chosen, seed: framing.main(chosen.seconds, seed),
    "fronts": lambda _chosen, _: fronts.main(),
    "fuzz": lambda chosen, seed: fuzz.main(chosen.seconds, seed, chosen.replay),
    "hops": lambda chosen, _: hops.main(chosen.histories, chosen.walks or 40),
    "instructions": lambda chosen, _: instructions.main(chosen.wires, chosen.before),
    "kills": lambda chosen, seed: kills.main(chosen.kills, seed, pauses=chosen.pauses),
    "mlflow": lambda _chosen, _: tracing.mlflow(),
    "loading": lambda chosen, _: loading.main(chosen.before or FIRST),
    "mcp": lambda chosen, _: mcp_suite.main(chosen.scenario),
    "mcp-servers": lambda _chosen, _: mcp_reference.main(),
    "mutants": lambda _chosen, _: mutants.main(),
    "pg-store": lambda chosen, _: pg_store.main(512, min(chosen.seconds, 10.0)),
    "pg-kills": lambda chosen, seed: pg_kills.main(chosen.kills, chosen.restarts, seed, chosen.journal),
    "planning": lambda _chosen, _: planning.main(),
    "paths": lambda chosen, seed: paths.main(chosen.attempts, seed),
    "opinion": lambda chosen, seed: paths_opinion.main(min(chosen.attempts, 1_000), seed),
    "repairs": lambda _chosen, _: repairs.main(),
    "requests": lambda _chosen, _: requests.main(),
    "schemas": lambda _chosen, _: schemas.main(),
    "search": lambda chosen, _: searching.main(chosen.tree),
    "shell": lambda _chosen, _: shell_attacks.main(),
    "skills": lambda chosen, seed: skill_verdicts.main(chosen.count, seed),
    "swaps": lambda _chosen, _: swaps.main(),
    "viewer": lambda chosen, _: viewer.main(chosen.events, chosen.threads),
    "viewer-hostile": lambda _chosen, _: viewer_hostile.main(),
    "worker-kills": lambda chosen, _: cluster.main_kills(chosen.kills, chosen.engine, chosen.journal),
    "worker-scale": lambda chosen, _: cluster.main_scale(chosen.runs, chosen.engine),
    "worker-trees": lambda chosen, seed: trees.main(chosen.schedules, seed, chosen.journal),
    "windows": lambda chosen, _: windows.main(chosen.turns),
    "tracing": lambda _chosen, _: tracing.main(),
    "threads": lambda chosen, seed: threads.main(chosen.walks or 4, seed, hops=chosen.hops),
}
"""Commands that print what they found by themselves, given the arguments and a seed."""
USUALLY = ("decode", "encode", "imports")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("all", *FIGURES, *COMMANDS),
        default="all",
        help="all: decode, encode, imports",
    )
    parser.add_argument("--before", default="", help="agents, clients, instructions, loading: a revision to compare with")
    parser.add_argument("--wires", type=_wires, default=WIRES, help="instructions: these wires only, with commas between")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, the figures mean nothing")
    parser.add_argument("--seconds", type=float, default=60.0, help="fuzz, framing: how long")
    parser.add_argument(
        "--seed", type=int, help="fuzz, framing, paths, threads, kills, forks, damage, control: same seed, same inputs"
    )
    parser.add_argument("--histories", type=int, default=10_000, help="hops: how many damaged histories")
    parser.add_argument("--walks", type=int, help="hops: how many walks, by default 40; threads: 4")
    parser.add_argument("--kills", type=int, default=10_000, help="kills, pg-kills, worker-kills: how many processes to kill")
    parser.add_argument("--engine", choices=cluster.ENGINES, default="temporal", help="worker-kills, worker-scale")
    parser.add_argument("--restarts", type=int, default=200, help="pg-kills: how often to kill the server")
    parser.add_argument("--journal", type=Path, help="pg-kills, worker-kills, worker-trees: what was done, to go on from")
    parser.add_argument("--pauses", type=int, default=500, help="kills: how many processes to stop beyond their lease")
    parser.add_argument("--forks", type=int, default=10_000, help="forks: how many forks to make of running threads")
    parser.add_argument("--hops", type=int, default=200, help="threads: how many hops a walk has")
    parser.add_argument("--files", type=int, default=1000, help="damage: how many files to damage")
    parser.add_argument("--races", type=int, default=1000, help="control: how many races, in one process and between several")
    parser.add_argument("--paused", type=int, default=10_000, help="control: how many runs wait at once")
    parser.add_argument("--schedules", type=int, default=1000, help="control, worker-trees: orders of a tree of agents")
    parser.add_argument("--attempts", type=int, default=1_000_000, help="paths, opinion: how many odd paths")
    parser.add_argument("--tree", type=int, default=100_000, help="search: how many files to search")
    parser.add_argument("--runs", type=int, default=50, help="caching: how many runs of agents; worker-scale: of threads")
    parser.add_argument("--turns", type=int, default=2000, help="windows: how many model turns")
    parser.add_argument("--count", type=int, default=5000, help="skills: how many skills to make")
    parser.add_argument("--passes", type=int, default=40, help="durable: how often each kind of run is measured")
    parser.add_argument("--scenario", default="", help="mcp: one scenario of the conformance suite; all by default")
    parser.add_argument("--fit", action="store_true", help="estimate: print constants that are fitted anew")
    parser.add_argument("--events", type=int, default=10_000, help="viewer: events of the long thread")
    parser.add_argument("--threads", type=int, default=10_000, help="viewer: how many threads to list")
    parser.add_argument("--replay", type=Path, help="fuzz: run one saved input again")
    chosen = parser.parse_args(arguments)
    if chosen.what in COMMANDS:
        return COMMANDS[chosen.what](chosen, SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed)
    names = USUALLY if chosen.what == "all" else (chosen.what,)
    scale = QUICK if chosen.quick else USUAL
    if chosen.before and chosen.what in BESIDE:
        figures = BESIDE[chosen.what](scale, chosen.before)
        print(printed_beside(figures, chosen.before))
    else:
        figures = [figure for name in names for figure in FIGURES[name](scale)]
        print(printed(figures, {"agents": "other", "clients": "client", "peers": "peer"}.get(chosen.what, "floor")))
    missed = failed(figures)
    barred = sum(bool(figure.bar) for figure in figures)
    if barred:
        print(f"{barred - len(missed)} of {barred} bars met")
    return 1 if missed and chosen.strict else 0


def _wires(text: str) -> tuple[str, ...]:
    wires = tuple(text.split(","))
    if unknown := set(wires) - set(WIRES):
        raise argparse.ArgumentTypeError(f"no wire is called {min(unknown)!r}; there are {', '.join(WIRES)}")
    return wires


if __name__ == "__main__":
    sys.exit(main())
