"""The commands: `python -m bench` prints figures; `peers` and those that are not among the figures run long."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom

import msgspec

from bench import (
    agents,
    clients,
    control,
    corpus,
    decode,
    encode,
    fuzz,
    hops,
    imports,
    instructions,
    kills,
    peers,
    requests,
    store,
    store_damage,
    threads,
)
from bench.table import Figure, failed, printed

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
PLAIN: dict[str, Callable[[], int]] = {"instructions": instructions.main, "corpus": corpus.main, "requests": requests.main}
"""Commands without options."""
USUALLY = ("decode", "encode", "imports")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=(
            "all",
            *FIGURES,
            "fuzz",
            "hops",
            "corpus",
            "requests",
            "kills",
            "damage",
            "control",
            "threads",
            "instructions",
        ),
        default="all",
        help="all: decode, encode, imports",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, the figures mean nothing")
    parser.add_argument("--seconds", type=float, default=60.0, help="fuzz: how long")
    parser.add_argument("--seed", type=int, help="fuzz, threads, kills, damage, control: the same seed gives the same inputs")
    parser.add_argument("--histories", type=int, default=10_000, help="hops: how many damaged histories")
    parser.add_argument("--walks", type=int, help="hops: how many walks, by default 40; threads: 4")
    parser.add_argument("--kills", type=int, default=10_000, help="kills: how many processes to kill")
    parser.add_argument("--hops", type=int, default=200, help="threads: how many hops a walk has")
    parser.add_argument("--files", type=int, default=1000, help="damage: how many files to damage")
    parser.add_argument("--races", type=int, default=1000, help="control: how many races, in one process and between several")
    parser.add_argument("--paused", type=int, default=10_000, help="control: how many runs wait at once")
    parser.add_argument("--schedules", type=int, default=1000, help="control: how many orders of a tree of agents")
    parser.add_argument("--replay", type=Path, help="fuzz: run one saved input again")
    chosen = parser.parse_args(arguments)
    if chosen.what == "fuzz":
        seed = SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
        return fuzz.main(chosen.seconds, seed, chosen.replay)
    if chosen.what == "hops":
        return hops.main(chosen.histories, chosen.walks or 40)
    if chosen.what in PLAIN:
        return PLAIN[chosen.what]()
    if chosen.what == "kills":
        return kills.main(chosen.kills, SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed)
    if chosen.what == "damage":
        return store_damage.main(chosen.files, SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed)
    if chosen.what == "threads":
        seed = SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
        return threads.main(chosen.walks or 4, seed, hops=chosen.hops)
    if chosen.what == "control":
        seed = SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
        return control.main(chosen.races, chosen.paused, chosen.schedules, seed=seed)
    names = USUALLY if chosen.what == "all" else (chosen.what,)
    scale = QUICK if chosen.quick else USUAL
    figures = [figure for name in names for figure in FIGURES[name](scale)]
    print(printed(figures, {"agents": "other", "clients": "client", "peers": "peer"}.get(chosen.what, "floor")))
    missed = failed(figures)
    barred = sum(bool(figure.bar) for figure in figures)
    if barred:
        print(f"{barred - len(missed)} of {barred} bars met")
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
