"""Recorded requests of all wires, read and written again under the rows of their providers: are they the same request?

The normal forms of `normal.py`, `chat.py` and `gemini.py` write out what the API takes as said; apart from the order of keys
all else counts, the type of a number included. Whatever differs must be a Loss that says so, with its code.
"""

import json
from dataclasses import dataclass
from functools import cache

from evener.wire import CODECS, Encoded
from tests.corpus import Exchange
from tests.wire import request_swaps as swaps
from tests.wire.normal import text_of
from tests.wire.request_swaps import NORMAL, target

__all__ = ["BAR", "NORMAL", "Trip", "trips"]

BAR = 0.99
"""Of the recorded requests, at least this many come back the same."""


@dataclass(frozen=True)
class Trip:
    """A request that was read and written again."""

    exchange: Exchange
    same: bool
    encoded: Encoded

    def __str__(self) -> str:
        told = "; ".join(f"{loss} [{loss.code}]" for loss in self.encoded.losses)
        return f"{self.exchange.wire}/{self.exchange.id}: {'the same' if self.same else 'differs'}: {told or 'nothing said'}"


@cache
def trips(wire: str) -> tuple[Trip, ...]:
    """Every recorded request of a wire."""
    codec, form = CODECS[wire], NORMAL[wire]
    found: list[Trip] = []
    for exchange in swaps.requests(wire):
        quirks = swaps.quirks_of(exchange)
        ask = codec.read_request(json.dumps(exchange.request).encode(), quirks, target(exchange))
        encoded = codec.encode(ask, quirks, None)
        same = text_of(form(json.loads(encoded.body))) == text_of(form(exchange.request or {}))
        found.append(Trip(exchange, same, encoded))
    return tuple(found)
