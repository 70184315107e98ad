"""The bytes of one exchange while it is written, with its losses and the places where cache marks may go. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.blocks import DocumentBlock, HostedBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.origin import Seal
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment, Mark
from evener.wire.quirks import Quirks
from evener.wire.seals import telling, why_shut
from evener.wire.text import UNREADABLE, as_object, dumps, fields

__all__ = ["Page"]

Sealed = TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult
CITED = ("annotations", "citations")
"""What a seal calls the citations, which have a report of their own."""


class Page(msgspec.Struct, eq=False, gc=False):
    """The bytes of an exchange while it is written."""

    ask: Ask
    quirks: Quirks
    chain: bytes
    mute: str = ""  # why no thinking is replayed, if so
    leads: bool = False  # a turn that has thinking must begin with it
    message: str = ""  # the id of the one that is written
    size: int = 0
    comma: bytes = b""  # what stands before the next block of a message
    start: int = 0  # where the content of the current message begins
    thought: bool = False  # thinking was written
    shut: bool = False  # a seal of this turn was dead: those after it rest on it and are dead, too
    pieces: list[bytes] = []
    marks: list[Mark] = []
    losses: list[Loss] = []
    traits: set[str] = set()  # of the fragment, beside those that its messages tell

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)

    def block(self, value: dict[str, object], cache: str = "", lead: bytes = b"") -> None:
        """Write a block and remember that a mark may stand before its last brace. What leads it stands before it."""
        data = lead + dumps(value)
        self.pieces.append(data)
        self.size = size = self.size + len(data)
        self.marks.append((size - 1, cache))
        if cache:
            self.traits.add("marked")

    def mark(self, cache: str) -> None:
        """Remember that a mark may stand before the brace that was written last."""
        self.marks.append((self.size - 1, cache))
        if cache:
            self.traits.add("marked")

    def shut_why(self, seal: Seal) -> str:
        """Why a seal must stay behind; empty when it may go."""
        return why_shut(seal, self.ask.target, self.quirks, self.chain)

    def unsealed(self, block: Sealed) -> dict[str, msgspec.Raw]:
        """The fields that a block's maker put on it, if they may go; else none, and what they said is reported.

        They are judged like every seal, but are bound to nothing before them: only thinking is.
        """
        if block.seal is None:
            self.uncited(block, "nothing on it says whose they are")
            return {}
        why = self.shut_why(msgspec.structs.replace(block.seal, binding=""))
        if not why:
            return fields(block.seal.data)
        self.uncited(block, why)
        self.leave(block, telling(block.seal.data), why)
        return {}

    def uncited(self, block: Sealed, why: str) -> None:
        """Report that a text's citations do not go, if it has any."""
        if type(block) is TextBlock and block.citations:
            self.drop("citations", why)

    def leave(self, block: Sealed, names: Iterable[str], why: str) -> None:
        """Report the fields of a block that stay behind, if there are any."""
        cited = CITED if isinstance(block, TextBlock) and block.citations else ()
        if left := [name for name in names if name not in cited]:
            what = "seal" if isinstance(block, ToolCall) else "fields"
            self.drop(f"{what} of {block.kind}", f"{', '.join(left)}: {why}")

    def arguments(self, call: ToolCall) -> str:
        """The JSON text of a call's arguments, an object in any case."""
        if as_object(call.raw) is not None:
            return call.raw
        self.degrade("tool_call arguments", f"they were not a JSON object; sent under {UNREADABLE!r}")
        return dumps({UNREADABLE: call.raw}).decode()

    def rename(self, what: str, ours: str, sent: str) -> None:
        """Report a name that goes out instead of ours."""
        self.losses.append(Loss("renamed", what, f"{ours!r} is not legal here; sent as {sent!r}", self.message))

    def drop(self, what: str, why: str) -> None:
        self.losses.append(Loss("dropped", what, why, self.message))

    def degrade(self, what: str, why: str) -> None:
        self.losses.append(Loss("degraded", what, why, self.message))

    def fragment(self, exchange: Exchange, lean: Fragment | None) -> Fragment:
        """What was written. Only marks that someone asked for are kept, and the last place, where a moving mark may go."""
        marks = self.marks[-1:]
        if "marked" in self.traits:
            marks[:0] = [mark for mark in self.marks[:-1] if mark[1]]
        said, back = exchange.assistant, exchange.back
        first = said if said is not None else back[0] if back else None
        if said is not None:
            self._note_said(said, back)
        if _is_asking(back):
            self.traits.add("asks")
        losses = (*exchange.losses, *self.losses) if self.losses else exchange.losses
        return Fragment(b"".join(self.pieces), tuple(marks), losses, lean, first.id if first else "", frozenset(self.traits))

    def _note_said(self, said: Message, back: Sequence[Message]) -> None:
        traits, last = self.traits, said.blocks[-1]
        traits.add("assistant_first")
        if not back:
            traits.add("assistant_last")
        if type(last) is HostedBlock and last.is_for(self.ask.target):
            traits.add("paused")
        if not self.thought and (type(last) is ToolCall or said.calls):
            traits.add("bare_calls")


def _is_asking(back: Sequence[Message]) -> bool:
    """Whether there is more in it than results."""
    for message in back:
        for block in message.blocks:
            if type(block) is not ToolResult:
                return True
    return False
