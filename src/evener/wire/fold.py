"""Encoded history that can be kept: settled exchanges as bytes, so that a new turn costs only itself. Pure.

A fragment is the bytes of one settled exchange, without cache marks, and the places where marks may go. Fragments never
change once made; a request joins them. The chain is a running hash over fragments: the prefix a reply rests on.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b

import msgspec

from evener.transcript.loss import Loss
from evener.transcript.repair import Exchange, Repair, RepairRules
from evener.transcript.transcript import Node, Transcript

__all__ = ["Fold", "Fragment", "Key", "Mark", "Render", "chained", "extended", "joined", "opened", "with_marks"]

Mark = tuple[int, str]
"""A place in a fragment where a cache mark may be put, and the lifetime asked for there (empty: none asked)."""


class Fragment(msgspec.Struct, frozen=True):
    """One exchange on the wire.

    `marks` lists, in order, where a mark may stand. `lean` is the same exchange without its thinking, for rows that replay
    only the latest. `first` names the first message. Traits: `assistant_first`, `assistant_last`; `asks`, a person spoke in
    it, so that earlier thinking is history; `paused`, the provider wants it back; `bare_calls`, it has calls and no thinking.
    """

    data: bytes
    marks: tuple[Mark, ...] = ()
    losses: tuple[Loss, ...] = ()
    lean: "Fragment | None" = None
    first: str = ""
    traits: frozenset[str] = frozenset()


class Key(msgspec.Struct, frozen=True):
    """All that shapes a fragment besides its messages. A fold made under another key is of no use."""

    parts: tuple[object, ...]
    rules: RepairRules
    seed: bytes


Render = Callable[[Exchange, bytes], Fragment]
"""A wire's way to write one exchange, given the chain before it."""


class Fold(msgspec.Struct, frozen=True):
    """The encoded past of one transcript, up to `node`, as one wire's `writer` wrote it.

    `marked` numbers the fragments that ask for cache marks. `open` is the exchange that is not settled yet, as it goes out now.
    """

    key: Key
    repair: Repair
    chain: bytes
    writer: Callable[..., Fragment]
    node: Node | None = None
    fragments: tuple[Fragment, ...] = ()
    marked: tuple[int, ...] = ()
    open: tuple[Exchange, Fragment] | None = None


def extended(prior: Fold | None, key: Key, transcript: Transcript, render: Render) -> Fold:
    """The fold of a transcript: from `prior` on if it fits, else from the start. The result is the same."""
    writer = render.func if isinstance(render, partial) else render
    fits = prior is not None and prior.writer is writer and prior.key == key and transcript.extends(prior.node)
    start = prior if prior is not None and fits else Fold(key, Repair(key.rules), key.seed, writer)
    chain, drawn = start.chain, start.open
    state, settled, last = start.repair.advance(transcript.since(start.node), drawn[0] if drawn else None)
    fresh: list[Fragment] = []
    for exchange in settled:  # the first of them most often went out as it is when it was open
        fragment = drawn[1] if drawn is not None and drawn[0] == exchange else render(exchange, chain)
        fresh.append(fragment)
        chain, drawn = chained(chain, fragment.data), None
    count = len(start.fragments)
    marked = (*start.marked, *(count + number for number, fragment in enumerate(fresh) if asks_marks(fragment)))
    open_ = (last, render(last, chain)) if last is not None else None
    return Fold(key, state, chain, writer, transcript.head, (*start.fragments, *fresh), marked, open_)


def asks_marks(fragment: Fragment) -> bool:
    """Whether a cache mark was asked for somewhere in it."""
    return any([ttl for _, ttl in fragment.marks])


def opened(fold: Fold) -> Fragment | None:
    """The open exchange as it goes out now."""
    return fold.open[1] if fold.open else None


def chained(chain: bytes, data: bytes) -> bytes:
    """The chain with one more fragment."""
    return blake2b(data, digest_size=16, key=chain).digest() if data else chain


def with_marks(data: bytes, marks: Sequence[tuple[int, bytes]]) -> bytes:
    """A fragment with marks put in. Places must rise."""
    if not marks:
        return data
    pieces: list[bytes] = []
    before = 0
    for place, mark in marks:
        pieces += (data[before:place], mark)
        before = place
    pieces.append(data[before:])
    return b"".join(pieces)


def joined(opening: bytes, fragments: Sequence[bytes], closing: bytes) -> bytes:
    """A whole body: fragments with commas between them, and what stands around them. Copies each byte of the past once."""
    if len(fragments) < 2:
        return b"".join((opening, *fragments, closing))
    return b",".join((opening + fragments[0], *fragments[1:-1], fragments[-1] + closing))
