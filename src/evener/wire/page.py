"""The bytes of one exchange while it is written, with its losses and the places where cache marks may go. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.blocks import Block, DocumentBlock, HostedBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import Loss, LossKind, loss_in, loss_of
from evener.transcript.message import Message
from evener.transcript.origin import Seal
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment, Mark
from evener.wire.quirks import Quirks
from evener.wire.seals import MESSAGE, telling, why_shut
from evener.wire.text import UNREADABLE, as_object, dumps, fields

__all__ = ["OWN_MARKS", "Page"]

Sealed = TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult
CITED = ("annotations", "citations")
"""What a seal calls the citations, which have a report of their own."""
OWN_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
"""Cache marks that say more than we can: they stay on their block as they came."""
ASKS, MARKED = frozenset(("asks",)), frozenset(("marked",))
"""Traits of a fragment."""


class Page(msgspec.Struct, eq=False, gc=False):
    """The bytes of an exchange while it is written."""

    ask: Ask
    quirks: Quirks
    chain: bytes
    mute: str = ""  # why no thinking is replayed, if so
    leads: bool = False  # a turn that has thinking must begin with it
    message: Message | None = None  # the one that is written
    size: int = 0
    comma: bytes = b""  # what stands before the next block of a message
    start: int = 0  # where the content of the current message begins
    thought: bool = False  # thinking was written
    shut: bool = False  # a seal of this turn was dead: those after it rest on it and are dead, too
    place: int = 0  # the last one where a mark may stand; 0: none yet
    traits: frozenset[str] = frozenset()  # of the fragment, beside those that its messages tell
    pieces: list[bytes] = []
    marks: list[Mark] = []  # those that somebody asked for
    losses: list[Loss] = []
    free_tools: frozenset[str] = frozenset()  # the names of tools that take free text, where the wire has some
    free: list[str] = []  # the ids of calls that were written with a text instead of arguments
    beside: dict[str, msgspec.Raw] = {}  # fields of the message that only its maker knows

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)

    def block(self, value: dict[str, object], cache: str = "", lead: bytes = b"") -> None:
        """Write a block and remember that a mark may stand before its last brace. What leads it stands before it."""
        data = lead + dumps(value)
        self.pieces.append(data)
        self.size = size = self.size + len(data)
        if cache:
            if not OWN_MARKS.isdisjoint(value):
                return  # it holds its mark already, in its maker's words
            self.marks.append((size - 1, cache))
        self.place = size - 1

    def mark(self, cache: str) -> None:
        """Remember that a mark may stand before the brace that was written last."""
        self.place = self.size - 1
        if cache:
            self.marks.append((self.place, cache))

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
            return self.put_beside(fields(block.seal.data))
        self.uncited(block, why)
        self.leave(block, telling(block.seal.data), why)
        return {}

    def put_beside(self, own: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        """The fields of a block, without those of its message: these are written when it is closed."""
        if MESSAGE in own:
            self.beside = fields(own.pop(MESSAGE))
        return own

    def close(self) -> None:
        """End the list of blocks of a message, and the message."""
        end = b"]}"
        if self.beside:
            end = b"]," + dumps(self.beside)[1:]
            self.beside = {}
        self.pieces.append(end)
        self.size += len(end)

    def uncited(self, block: Sealed, why: str) -> None:
        """Report that a text's citations do not go, if it has any."""
        if type(block) is TextBlock and block.citations:
            self.drop("text.citations", why, block, at="citations")

    def leave(self, block: Sealed, names: Iterable[str], why: str) -> None:
        """Report the fields of a block that stay behind, if there are any."""
        cited = CITED if isinstance(block, TextBlock) and block.citations else ()
        if left := [name for name in names if name not in cited]:
            self.drop(f"{block.kind}.fields", f"{', '.join(left)}: {why}", block, at="seal")

    def arguments(self, call: ToolCall) -> str:
        """The JSON text of a call's arguments, an object in any case."""
        if as_object(call.raw) is not None:
            return call.raw
        self.degrade("tool_call.arguments", f"they were not a JSON object; sent under {UNREADABLE!r}", call, at="raw")
        return dumps({UNREADABLE: call.raw}).decode()

    def rename(self, topic: str, block: Block, ours: str, sent: str) -> None:
        """Report a name that goes out instead of ours."""
        self.lose("renamed", topic, f"{ours!r} is not legal here; sent as {sent!r}", block)

    def drop(self, topic: str, why: str, block: Block | None = None, *, at: str = "") -> None:
        self.lose("dropped", topic, why, block, at=at)

    def degrade(self, topic: str, why: str, block: Block | None = None, *, at: str = "") -> None:
        self.lose("degraded", topic, why, block, at=at)

    def lose(self, kind: LossKind, topic: str, why: str, block: Block | None = None, *, name: str = "", at: str = "") -> None:
        """Report a loss in the message that is written; `block` is the one that it is about."""
        if self.message is None:  # the system prompt
            place = [str(number) for number, one in enumerate(self.ask.transcript.system_blocks) if one is block]
            self.losses.append(loss_of(kind, topic.replace("text.", "system."), why, at="/".join((*place[:1], at))))
        else:
            self.losses.append(loss_in(kind, topic, why, self.message, block, name=name, at=at))

    def fragment(self, exchange: Exchange, lean: Fragment | None) -> Fragment:
        """What was written. Only marks that someone asked for are kept, and the last place, where a moving mark may go."""
        said, back, traits = exchange.assistant, exchange.back, self.traits
        if said is not None:
            traits = traits.union(self._noted(said, back))
        if back and (type(back[0].blocks[0]) is not ToolResult or _is_asking(back)):
            traits = traits | ASKS if traits else ASKS
        marks: tuple[Mark, ...] = ((self.place, ""),) if self.place else ()
        if self.marks:
            traits |= MARKED
            marks = (*self.marks, *(marks if self.marks[-1][0] != self.place else ()))
        losses = (*exchange.losses, *self.losses) if self.losses else exchange.losses
        first = said.id if said is not None else back[0].id if back else ""
        return Fragment(b"".join(self.pieces), marks, losses, lean, first, traits)

    def _noted(self, said: Message, back: Sequence[Message]) -> list[str]:
        """The traits that what the assistant said has."""
        traits, last = ["assistant_first"], said.blocks[-1]
        if not back:
            traits.append("assistant_last")
        if type(last) is HostedBlock and last.is_for(self.ask.target):
            traits.append("paused")
        if not self.thought and (type(last) is ToolCall or said.calls):
            traits.append("bare_calls")
        return traits


def _is_asking(back: Sequence[Message]) -> bool:
    """Whether there is more in it than results."""
    for message in back:
        for block in message.blocks:
            if type(block) is not ToolResult:
                return True
    return False
