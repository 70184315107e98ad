"""The neutral pieces of a streamed answer. Every decoder yields these and nothing else; the Assembler folds them. Pure.

`index` names the block within the reply and says where it stands: blocks are in the order of their index, whichever came
first. Numbers may be left out. Pieces of different blocks may interleave.
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
    """The block's opaque fields, complete: the last one counts. `block` says what it seals if nothing else was sent."""

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
    """More of the arguments' JSON text. For showing: only a finished call may run."""

    index: int
    text: str


@final
class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """The call is complete, and this is the whole text of its arguments."""

    index: int
    raw: str


@final
class HostedAdded(msgspec.Struct, frozen=True, gc=False):
    """A block of the provider's own, complete and verbatim."""

    index: int
    block: HostedBlock


@final
class MediaAdded(msgspec.Struct, frozen=True, gc=False):
    """A picture or another file that the model made, complete: base64 text."""

    index: int
    media_type: str
    data: str


@final
class UsageReported(msgspec.Struct, frozen=True, gc=False):
    """Token counts so far: a snapshot, the last one counts."""

    usage: Usage


@final
class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The turn is over, with the wire's terminal mark seen."""

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
    """The stream ended in an error; nothing follows. What came before it stands."""

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
