"""The bytes of one exchange while it is written, with its losses and the places where cache marks may go. Pure."""

from collections.abc import Iterable

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.blocks import DocumentBlock, HostedBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import Loss
from evener.transcript.origin import Origin, Seal
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment, Mark
from evener.wire.quirks import Quirks
from evener.wire.seals import telling, why_shut
from evener.wire.text import UNREADABLE, as_object, dumps, fields

__all__ = ["Page"]

Sealed = TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult
CITED = ("annotations", "citations")
"""What a seal calls the citations, which have a report of their own."""


class Page:
    """The bytes of an exchange while it is written."""

    def __init__(self, wire: str, ask: Ask, quirks: Quirks, chain: bytes) -> None:
        self.wire = wire
        self.ask = ask
        self.quirks = quirks
        self.chain = chain
        self.mute = ""  # why no thinking is replayed, if so
        self.pieces: list[bytes] = []
        self.size = 0
        self.marks: list[Mark] = []
        self.losses: list[Loss] = []
        self.message = ""
        self.leads = False  # a turn that has thinking must begin with it
        self.start = 0  # where the content of the current message begins
        self.thought = False  # thinking was written
        self.shut = False  # a seal of this turn was dead: those after it rest on it and are dead, too
        self.traits: set[str] = set()  # of the fragment, beside those that its messages tell

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)

    def block(self, value: dict[str, object], cache: str = "") -> None:
        """Write a block and remember that a mark may stand before its last brace."""
        self.write(dumps(value))
        self.marks.append((self.size - 1, cache))

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
        if isinstance(block, TextBlock) and block.citations:
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

    def renamed(self, what: str, ours: str, sent: str) -> str:
        """The name that goes out, and a report when it is not ours."""
        if sent != ours:
            self.losses.append(Loss("renamed", what, f"{ours!r} is not legal here; sent as {sent!r}", self.message))
        return sent

    def drop(self, what: str, why: str) -> None:
        self.losses.append(Loss("dropped", what, why, self.message))

    def degrade(self, what: str, why: str) -> None:
        self.losses.append(Loss("degraded", what, why, self.message))

    def fragment(self, exchange: Exchange, lean: Fragment | None) -> Fragment:
        """What was written. Only marks that someone asked for are kept, and the last place, where a moving mark may go."""
        marks = (*[mark for mark in self.marks[:-1] if mark[1]], *self.marks[-1:])
        first = exchange.assistant or (exchange.back[0] if exchange.back else None)
        losses = (*exchange.losses, *self.losses)
        traits = frozenset(_traits(exchange, self.ask.target, thought=self.thought) | self.traits)
        return Fragment(b"".join(self.pieces), marks, losses, lean, first.id if first else "", traits)


def _traits(exchange: Exchange, target: Origin, *, thought: bool) -> set[str]:
    traits: set[str] = set()
    said, back = exchange.assistant, exchange.back
    if said is not None:
        traits.add("assistant_first")
        if not back:
            traits.add("assistant_last")
        last = said.blocks[-1]
        if isinstance(last, HostedBlock) and last.is_for(target):
            traits.add("paused")
        if not thought and said.calls:
            traits.add("bare_calls")
    if any([not isinstance(block, ToolResult) for message in back for block in message.blocks]):
        traits.add("asks")
    return traits
