"""Encoding one more turn with `prior`, against joining and hashing the same fragments. Repair and moving cache marks are on."""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice

from bench.clock import cheapest
from bench.table import Figure
from bench.talk import Turn, ask_of, quirks_of, turns
from evener.wire import CODECS, Encoded

__all__ = ["SIZES", "figures"]

SIZES = (20, 200, 2000)
MOST = 3.0
FULL_PASSES = 3


def figures(sizes: Sequence[int], passes: int) -> list[Figure]:
    """Every registered wire at each number of messages. The bar is about the largest."""
    return [figure for wire in CODECS for figure in _of(wire, sizes, passes)]


def _of(wire: str, sizes: Sequence[int], passes: int) -> list[Figure]:
    found: list[Figure] = []
    wanted = {size // 2: size for size in sizes}
    for number, turn in enumerate(islice(turns(wire), max(wanted) + 1)):
        if number in wanted:
            before = found[-1] if found else None
            found.append(_figure(wire, turn, wanted[number], before, passes, most=MOST if number == max(wanted) else 0.0))
    return found


def _figure(wire: str, turn: Turn, size: int, before: Figure | None, passes: int, *, most: float) -> Figure:
    encode, ask, quirks = CODECS[wire].encode, ask_of(wire, turn.transcript), quirks_of(wire)
    encoded = _checked(wire, turn)
    fragments = [fragment.data for fragment in encoded.fold.fragments]
    new = fragments[len(turn.prior.fold.fragments) if turn.prior else 0 :]
    ours, floor, least = (
        cost * 1e6
        for cost in cheapest(
            (
                lambda: encode(ask, quirks, turn.prior),
                lambda: blake2b(b",".join(fragments)).digest(),
                lambda: (b",".join(fragments), blake2b(b",".join(new)).digest()),
            ),
            passes,
        )
    )
    full = cheapest((lambda: encode(ask, quirks, None),), FULL_PASSES)[0] * 1e6
    notes = [f"without prior {full:,.0f} us", f"body {len(encoded.body) / 1e3:,.0f} kB"]
    if before:
        notes.append(f"growth {(ours - before.ours) / (size - _size(before)):.2f} us a message")
    notes.append(f"{ours / least:.1f}x of joining all and hashing the new")
    return Figure(f"encode {wire}, {size:,} messages", ours, floor, most=most, note="; ".join(notes))


def _size(figure: Figure) -> int:
    return int(figure.name.split(", ")[1].split()[0].replace(",", ""))


def _checked(wire: str, turn: Turn) -> Encoded:
    """The request, and a look that `prior` made it cheaper and nothing else, and that no seal was left behind."""
    ask, quirks = ask_of(wire, turn.transcript), quirks_of(wire)
    with_prior = CODECS[wire].encode(ask, quirks, turn.prior)
    without = CODECS[wire].encode(ask, quirks, None)
    same = (with_prior.body, with_prior.binding, with_prior.losses) == (without.body, without.binding, without.losses)
    if not same:
        raise AssertionError(f"{wire}: with and without prior the request differs at {len(turn.transcript)} messages")
    dead = [loss for loss in with_prior.losses if quirks.prefix_bound and loss.message]
    if dead:
        raise AssertionError(f"{wire}: {len(dead)} losses in the history, the first one: {dead[0]}")
    return with_prior
