"""Explains why a fake provider's prompt cache was missed: it remembers each request, by the id of its answer. No I/O."""

import json
from collections.abc import Mapping, Sequence

import msgspec

BYTES_A_TOKEN = 4


class RememberedRequest(msgspec.Struct, frozen=True):
    """What a cache compares: named sections in the order of the prefix, then the blocks, to which more may be added."""

    sections: tuple[tuple[str, str], ...]
    blocks: tuple[str, ...]

    @classmethod
    def of(cls, sections: Mapping[str, object], blocks: Sequence[object]) -> "RememberedRequest":
        """Return a request in a form that can be compared; cache marks do not count."""
        return cls(tuple((name, canonical(value)) for name, value in sections.items()), tuple(canonical(one) for one in blocks))


class CacheMemory:
    """All answered requests of one server."""

    def __init__(self) -> None:
        self._known: dict[str, RememberedRequest] = {}

    def remember(self, id: str, request: RememberedRequest) -> None:
        """Keep a request under the id of its answer."""
        self._known[id] = request

    def compare(self, id: str, request: RememberedRequest, blocks: str) -> tuple[str, int] | None:
        """Return the first section that differs from that request's, and how many tokens were missed; empty: none does.

        `blocks` is the name for the blocks. None: there is no such request.
        """
        before = self._known.get(id)
        if before is None:
            return None
        for (name, old), (_, new) in zip(before.sections, request.sections, strict=True):
            if old != new:
                return name, sum(map(len, before.blocks)) // BYTES_A_TOKEN
        for place, block in enumerate(before.blocks):
            if place >= len(request.blocks) or request.blocks[place] != block:
                return blocks, sum(map(len, before.blocks[place:])) // BYTES_A_TOKEN
        return "", 0


def canonical(value: object) -> str:
    """Return a value as text that is equal for equal values; cache marks do not count."""
    return json.dumps(_drop_marks(value), sort_keys=True)


def _drop_marks(value: object) -> object:
    if isinstance(value, dict):
        return {
            name: _drop_marks(inner)
            for name, inner in value.items()
            if name not in ("cache_control", "prompt_cache_breakpoint")
        }
    return [_drop_marks(inner) for inner in value] if isinstance(value, list) else value
