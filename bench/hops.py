"""The long campaign of hops: every recorded conversation on every wire, thousands of damaged ones, and long walks.

Needs the recorded traffic (EVENER_CORPUS). Prints what it did and what went wrong; nothing should.
"""

from collections.abc import Iterator

__all__ = ["main"]

SHOWN = 20
HOPS = 50


def main(histories: int, walks: int) -> int:
    """Run the campaign; 1 when anything was refused or lost in silence."""
    from tests.corpus import CORPUS
    from tests.wire import hops

    if CORPUS is None:
        print("no recorded traffic: set EVENER_CORPUS to its folder")
        return 2
    pairs = [(source, target) for source in hops.wires() for target in hops.wires()]
    each = -(-histories // len(pairs))
    whole = [problem for source, target in pairs for problem in hops.moves(source, target)]
    moved = sum(len(hops.recorded(source)) for source, _ in pairs)
    _told(f"{moved} moves of recorded conversations over {len(pairs)} pairs of wires", whole)
    broken = [
        problem
        for number, (source, target) in enumerate(pairs)
        for problem in hops.damaged_moves(source, target, each, seed=number)
    ]
    _told(f"{each * len(pairs)} damaged histories", broken)
    walked = list(_walked(walks))
    _told(f"{walks} walks of {HOPS} hops", walked)
    return 1 if whole or broken or walked else 0


def _walked(walks: int) -> Iterator[str]:
    from tests.wire import hops

    for seed in range(walks):
        yield from hops.walk(HOPS, seed)


def _told(what: str, problems: list[str]) -> None:
    print(f"{what}: {len(problems)} problems")
    for problem in problems[:SHOWN]:
        print(f"  {problem}")
