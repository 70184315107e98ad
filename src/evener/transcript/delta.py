"""The neutral pieces of a streamed answer. Every decoder yields only these; the Assembler builds a reply from them. Pure.

`index` identifies the block within the reply and its position: blocks are ordered by index, whichever came first. Numbers
may be skipped. Pieces of different blocks may interleave.
"""

from typing import Literal, final

import msgspec

from evener.errors import EvenerError
from evener.transcript.blocks import Citation, HostedBlock
from evener.transcript.reply import StopReason, Usage


@final
class Started(msgspec.Struct, frozen=True, gc=False):
    """The provider has begun to answer."""

    id: str
    model: str


@final
class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text."""

    index: int
    text: str


@final
class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More readable reasoning."""

    index: int
    text: str


@final
class CitationAdded(msgspec.Struct, frozen=True, gc=False):
    """A citation for the text of this block."""

    index: int
    citation: Citation


SealedKind = Literal["text", "reasoning", "call", "media"]


@final
class SealAdded(msgspec.Struct, frozen=True, gc=False):
    """The block's opaque fields, complete: the last ones count. `block` says what is sealed if nothing else was sent."""

    index: int
    block: SealedKind
    data: str
    id: str = ""


@final
class CallBegun(msgspec.Struct, frozen=True, gc=False):
    """A tool call has begun."""

    index: int
    id: str
    name: str


@final
class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the arguments' JSON text. For display: only a finished call may run."""

    index: int
    text: str


@final
class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """The call is complete; this is the whole text of its arguments."""

    index: int
    raw: str


@final
class HostedAdded(msgspec.Struct, frozen=True, gc=False):
    """A block of the provider's own, complete and verbatim."""

    index: int
    block: HostedBlock


@final
class MediaAdded(msgspec.Struct, frozen=True, gc=False):
    """An image or another file that the model made, complete: base64 text."""

    index: int
    media_type: str
    data: str


@final
class UsageReported(msgspec.Struct, frozen=True, gc=False):
    """Token counts so far: a snapshot, the last one counts."""

    usage: Usage


@final
class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The turn is complete: the provider's end marker has arrived."""

    reason: StopReason
    raw: str = ""
    detail: str = ""


@final
class Notice(msgspec.Struct, frozen=True, gc=False):
    """An event of an unknown form: its name and its JSON text."""

    name: str
    raw: str


@final
class Failed(msgspec.Struct, frozen=True):
    """The stream ended in an error; nothing follows. Earlier deltas stay valid."""

    error: EvenerError


Delta = (
    Started
    | TextDelta
    | ReasoningDelta
    | CitationAdded
    | SealAdded
    | CallBegun
    | ArgumentsDelta
    | CallEnded
    | HostedAdded
    | MediaAdded
    | UsageReported
    | Stopped
    | Notice
    | Failed
)
