"""The interface of every wire: a codec is a frozen record of pure functions, no base class. No I/O."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from evener.errors import ProviderError
from evener.transcript.ask import Ask
from evener.transcript.blocks import Origin
from evener.transcript.delta import Delta
from evener.transcript.loss import Loss
from evener.transcript.reply import Reply
from evener.wire.prefix import Prefix
from evener.wire.quirks import Quirks

__all__ = ["Codec", "Decoder", "Encoded", "Frame", "moved"]


class Frame(msgspec.Struct, frozen=True):
    """What stands before the messages in a prefix: each tool and each part of the system prompt, without cache marks.

    `source` is what it was made from, so that it can be reused. `seed` is where the chain over the messages begins.
    """

    tools: tuple[bytes, ...]
    system: tuple[bytes, ...]
    losses: tuple[Loss, ...] = ()
    source: tuple[object, ...] = ()
    target: Origin = Origin()
    seed: bytes = b""


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A request, ready to send. Give it back as `prior` for the next call of the same conversation.

    `names` maps tool names on the wire back to ours, where they differ. `keeps` is how the provider will hold the conversation
    from here on: `chain`, `conversation`, or empty for not at all. `fixed` is what the wire has made of all but the messages;
    only the wire itself reads it. `resumed`: the provider holds a part of the conversation.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    losses: tuple[Loss, ...]
    names: tuple[tuple[str, str], ...]
    frame: Frame
    fold: Prefix
    keeps: str = ""
    fixed: object = None
    resumed: bool = False

    @property
    def binding(self) -> str:
        """The fingerprint of everything a reply to this request will rest on (cache marks excluded): stamp it on the reply's
        message. Empty when the provider holds a part of it."""
        return "" if self.resumed else self.fold.tip.hex()


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
    """Name what a provider's prompt cache (or a prefix-bound seal) will notice between two requests of one conversation.

    Empty when the second only appends to the first.
    """
    sections = (("tools", before.frame.tools, after.frame.tools), ("system", before.frame.system, after.frame.system))
    found = [name for name, old, new in sections if old != new]
    ours, theirs = before.fold.fragments, after.fold.fragments
    for number, fragment in enumerate(ours):
        if number >= len(theirs) or (theirs[number] is not fragment and theirs[number].data != fragment.data):
            found.append(f"messages from {fragment.first!r} on")
            break
    return tuple(found)
