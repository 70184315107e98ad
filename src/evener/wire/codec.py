"""The interface of every wire: a codec is a frozen record of pure functions, without a base class. No I/O."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from evener.errors import ProviderError
from evener.transcript.ask import Ask
from evener.transcript.blocks import Origin
from evener.transcript.delta import Delta
from evener.transcript.reply import Reply
from evener.wire.quirks import Quirks
from evener.wire.request import Encoded


class Decoder(Protocol):
    """A streamed answer, from bytes to deltas. Never raises on input: an error is a `Failed` delta, the last one."""

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas that these bytes complete."""
        ...

    def close(self) -> list[Delta]:
        """Return the rest, once the bytes have ended. A missing end marker is `Failed(TruncatedStream)`."""
        ...


class Codec(msgspec.Struct, frozen=True):
    """One wire."""

    wire: str
    encode: Callable[[Ask, Quirks, Encoded | None], Encoded]
    decode: Callable[[bytes, Quirks], Reply]
    decoder: Callable[[Quirks], Decoder]
    fault: Callable[[int, Mapping[str, str], bytes], ProviderError]
    read_request: Callable[[bytes, Quirks, Origin], Ask]


def moved(before: Encoded, after: Encoded) -> tuple[str, ...]:
    """Return what changed between two requests of one conversation and invalidates a provider's prompt cache, or a prefix-bound
    seal.

    Empty if the second request only appends to the first.
    """
    found = ["tools"] if before.frame.tools != after.frame.tools else []
    if before.frame.system != after.frame.system:
        found.append("system")
    ours, theirs = before.fold.fragments, after.fold.fragments
    if theirs[: len(ours)] == ours:  # nearly always, and they are the same objects: no fragment is looked at
        return tuple(found)
    for number, fragment in enumerate(ours):
        if number >= len(theirs) or (theirs[number] is not fragment and theirs[number].data != fragment.data):
            found.append(f"messages from {fragment.first!r} on")
            break
    return tuple(found)
