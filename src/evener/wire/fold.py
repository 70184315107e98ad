"""Encoded history that can be kept: settled exchanges as bytes, so that a new turn costs only itself. Pure.

A fragment is the bytes of one settled exchange, without cache marks, and the places where marks may go. Fragments never
change once made; a request joins them. The chain is a running hash over fragments: the prefix a reply rests on.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from evener.transcript.loss import Loss
from evener.transcript.repair import Exchange, Repair, RepairRules
from evener.transcript.transcript import Node, Transcript

__all__ = ["Fold", "Fragment", "Key", "Mark", "Render", "chained", "extended", "joined", "started"]

Mark = tuple[int, str]
"""A place in a fragment where a cache mark may be put, and the lifetime asked for there (empty: none asked)."""


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """One exchange on the wire.

    `marks` lists, in order, where a mark may stand. `lean` is the same exchange without its thinking, for rows that replay
    only the latest. `first` names the first message. Traits: `assistant_first`, `assistant_last`; `asks`, a person spoke in
    it, so that earlier thinking is history; `paused`, the provider wants it back; `bare_calls`, it has calls and no thinking;
    `marked`, somebody asked for a cache mark in it.
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


class Fold(msgspec.Struct, frozen=True, gc=False):
    """The encoded past of one transcript, up to `node`.

    `open` is the exchange that is not settled yet, as it goes out now; `chain` ends before it. `marked` numbers the settled
    fragments that ask for cache marks, `lossy` those that have losses; `traits` are those of any of them.
    """

    key: Key
    repair: Repair
    chain: bytes
    node: Node | None = None
    fragments: tuple[Fragment, ...] = ()
    marked: tuple[int, ...] = ()
    lossy: tuple[int, ...] = ()
    traits: frozenset[str] = frozenset()
    open: tuple[Exchange, Fragment] | None = None

    @property
    def tip(self) -> bytes:
        """The chain with the open exchange: what an answer rests on. Few ask for it."""
        return chained(self.chain, self.open[1].data) if self.open else self.chain


def started(parts: tuple[object, ...], rules: RepairRules, seed: bytes) -> Fold:
    """The fold of no messages at all."""
    return Fold(Key(parts, rules, seed), Repair(rules), seed)


def extended(prior: Fold | None, start: Fold, transcript: Transcript, render: Render) -> Fold:
    """The fold of a transcript: from `prior` on if it fits, else from the start. The result is the same."""
    key = start.key
    if prior is None or (prior.key is not key and prior.key != key) or not transcript.extends(prior.node):
        prior = start
    chain, marked, lossy, traits = prior.chain, prior.marked, prior.lossy, prior.traits
    known, drawn = prior.open or (None, None)
    state, settled, last = prior.repair.advance(transcript.since(prior.node), known)
    fresh: list[Fragment] = []
    for exchange in settled:
        if drawn is not None and (exchange is known or exchange == known):  # it goes out as it did when it was open
            fragment, chain = drawn, prior.tip
        else:
            fragment = render(exchange, chain)
            chain = chained(chain, fragment.data)
        drawn = None
        number = len(prior.fragments) + len(fresh)
        if "marked" in fragment.traits:
            marked += (number,)
        if fragment.losses or (fragment.lean and fragment.lean.losses):
            lossy += (number,)
        if not fragment.traits <= traits:
            traits |= fragment.traits
        fresh.append(fragment)
    fragments = (*prior.fragments, *fresh) if fresh else prior.fragments
    if last is None:
        return Fold(key, state, chain, transcript.head, fragments, marked, lossy, traits)
    return Fold(key, state, chain, transcript.head, fragments, marked, lossy, traits, (last, render(last, chain)))


def chained(chain: bytes, data: bytes) -> bytes:
    """The chain with one more fragment."""
    return blake2b(data, digest_size=16, key=chain).digest() if data else chain


def joined(opening: bytes, fragments: Sequence[bytes], closing: bytes) -> bytes:
    """A whole body: fragments with commas between them, and what stands around them. Copies each byte of the past once."""
    if not fragments:
        return opening + closing
    pieces = list(fragments)
    pieces[0] = opening + pieces[0]
    pieces[-1] += closing
    return b",".join(pieces)
