"""Makes any history legal before it is encoded, and reports each change as a Loss. Pure, idempotent, incremental.

The history is cut into exchanges: what the assistant said, then what came back before it spoke again. An exchange is
settled when the assistant speaks again: no later message can change it. The rules:

    empty text                      dropped (kept in an assistant's message when sealed); a message left with nothing is dropped
    a block in the wrong role       dropped (a call by the user, a result by the assistant, reasoning by anyone else)
    the same message twice          dropped the second time; a sealed thing goes the second time without its seal
    other messages under one id     renamed
    consecutive same-role messages  merged, the same reasoning kept once; system messages stay apart
    a hosted block without its pair replaced by its line, and so is one in the wrong role
    reasoning with nothing after it dropped
    a call id used before           renamed, with its result
    a call without a result         gets an honest synthetic one
    a result without a call         dropped, and so is a second result for one call
    results                         stand first, in call order
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.calls import Expected, Names, answered, fresh_id, with_unique_ids
from evener.transcript.grown import Growing, Grown
from evener.transcript.hosted import pair_hosted
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.usage import Usage

__all__ = ["Exchange", "Repair", "RepairRules", "repair"]

NOTHING = Grown()

ALLOWED: dict[str, tuple[type, ...]] = {
    "user": (TextBlock, ImageBlock, DocumentBlock, ToolResult, HostedBlock),
    "assistant": (TextBlock, ImageBlock, DocumentBlock, ReasoningBlock, ToolCall, HostedBlock),
    "system": (TextBlock, HostedBlock),
}


class RepairRules(msgspec.Struct, frozen=True):
    """`past_elsewhere`: a provider holds earlier turns, so results may lack their calls. `unique_ids`: over the whole request,
    not only within a turn. `merge`: consecutive user messages become one. `in_flight`: a provider's own tool may still be
    running while the client's results come back."""

    past_elsewhere: bool = False
    unique_ids: bool = True
    merge: bool = True
    in_flight: bool = False


class Exchange(msgspec.Struct, frozen=True):
    """What the assistant said (None at the start of a history), and what came back: user and system messages in order.

    Results for the assistant's calls stand first in `back`, one for each, in call order.
    """

    assistant: Message | None
    back: tuple[Message, ...]
    losses: tuple[Loss, ...]


class Repair(msgspec.Struct, frozen=True):
    """The state of the fold between two messages: the exchange that is still open, and what is known of those before it.

    `held` is reasoning that waits for what it led to; `awaited` are hosted tools that still run; `seen` are the messages by
    their ids, `named` the names that providers gave to sealed things.
    """

    rules: RepairRules = RepairRules()
    open: tuple[Message, ...] = ()
    held: tuple[Message, ...] = ()
    losses: tuple[Loss, ...] = ()
    seen: Grown = NOTHING
    named: Grown = NOTHING
    used_ids: Grown = NOTHING
    awaited: frozenset[str] = frozenset()

    def feed(self, messages: Iterable[Message], known: Exchange | None = None) -> tuple["Repair", list[Exchange]]:
        """Fold more messages in: the new state, and the exchanges that are settled by them.

        Feeding messages one by one or all at once gives the same exchanges. `known` is what `finish` gave in this state: it
        saves work, no more.
        """
        fold = self._fed(messages, known)
        return fold.state(), fold.settled

    def advance(
        self, messages: Iterable[Message], known: Exchange | None = None
    ) -> tuple["Repair", list[Exchange], Exchange | None]:
        """`feed`, and what `finish` would say then: cheaper than one after the other."""
        fold = self._fed(messages, known)
        return fold.state(), fold.settled, fold.finished()

    def _fed(self, messages: Iterable[Message], known: Exchange | None) -> "_Fold":
        fold = _Fold(self)
        fold.known = known if known is not None and self._is_certain() else None
        for message in messages:
            fold.add(message)
        return fold

    def _is_certain(self) -> bool:
        """Whether the open exchange is what it will be when the assistant speaks: nothing is held, no hosted tool runs."""
        if self.held or self.awaited:
            return False
        return not any([isinstance(block, HostedBlock) for message in self.open for block in message.blocks])

    def finish(self) -> Exchange | None:
        """The open exchange as it would be sent now; None when there is nothing to say."""
        return _Fold(self).finished()


def repair(messages: Iterable[Message], rules: RepairRules | None = None) -> tuple[tuple[Message, ...], tuple[Loss, ...]]:
    """A legal history, and what it took."""
    _, exchanges, last = Repair(rules or RepairRules()).advance(messages)
    if last:
        exchanges.append(last)
    legal = [message for exchange in exchanges for message in (exchange.assistant, *exchange.back) if message]
    return tuple(legal), tuple(loss for exchange in exchanges for loss in exchange.losses)


class _Fold:
    """A Repair while messages are folded in."""

    def __init__(self, state: Repair) -> None:
        self.rules = state.rules
        self.open, self.held, self.losses = list(state.open), list(state.held), list(state.losses)
        self.seen, self.named, self.used = Growing(state.seen), Growing(state.named), Growing(state.used_ids)
        self.awaited = set(state.awaited)
        self.expected = Expected(self.open, elsewhere=self.rules.past_elsewhere)
        self.settled: list[Exchange] = []
        self.known: Exchange | None = None  # the open exchange, as long as nothing was added to it

    def state(self) -> Repair:
        open_, held, losses = tuple(self.open), tuple(self.held), tuple(self.losses)
        seen, named, used = self.seen.done(), self.named.done(), self.used.done()
        return Repair(self.rules, open_, held, losses, seen, named, used, frozenset(self.awaited))

    def finished(self) -> Exchange | None:
        """The open exchange as it would be sent now. The fold is of no use afterwards: take its state first."""
        self.let_go()
        return self.exchange(None) if self.open or self.losses else None

    def add(self, message: Message) -> None:
        """Fold one message in. What is left of it counts: a message that is dropped comes between no two others."""
        losses: list[Loss] = []
        cleaned = self._once(message, losses)
        if cleaned is None:
            self.losses += losses
            self.known = None
        elif cleaned.role != "assistant":
            self.let_go()
            self._open(cleaned, losses)
        elif not _weighs(cleaned.blocks[-1]) and not any(_weighs(block) for block in cleaned.blocks):
            self.held.append(cleaned)
            self.losses += losses
            self.known = None
        else:
            if self.open and self.open[-1].role != "assistant":
                self.settled.append(self._taken() or self.exchange(cleaned))
                self.open, self.losses = [], []
                self.expected = Expected((), elsewhere=False)
            self._open(cleaned, losses)

    def let_go(self) -> None:
        """Give up the reasoning that nothing followed."""
        for message in self.held:
            self.losses += (
                Loss("repaired", block.kind, "nothing followed it in its turn", message.id) for block in message.blocks
            )
        self.held = []

    def _taken(self) -> Exchange | None:
        """The open exchange, if it is known. The ids of its calls are used from now on."""
        known, self.known = self.known, None
        if known is not None and known.assistant is not None:
            for block in known.assistant.blocks:
                if isinstance(block, ToolCall):
                    self.used.add(block.id)
        return known

    def exchange(self, coming: Message | None) -> Exchange:
        """The open exchange; `coming` is the assistant's message that settles it, None while it is open."""
        names: Names = []
        said = [message for message in self.open if message.role == "assistant"]
        back = [message for message in self.open if message.role != "assistant"]
        made = None
        if said:
            said[-1] = _without_trailing_reasoning(said[-1], self.losses)
            used = self.used if self.rules.unique_ids else Growing(NOTHING)
            said = [_merged([with_unique_ids(message, used, names, self.losses) for message in said], self.losses)]
        if names:
            back, made = answered(said[0], back, names, self.losses)
        if self.rules.merge and len(back) > 1:
            back = _joined(back, made, self.losses)
        told, self.awaited = pair_hosted([*said, *back], self.awaited, coming, self.losses, in_flight=self.rules.in_flight)
        return Exchange(told[0] if said else None, tuple(told[len(said) :]), tuple(self.losses))

    def _once(self, message: Message, losses: list[Loss]) -> Message | None:
        """What may stay of a message; None when it stood before or nothing does."""
        if message.id not in self.seen:
            self.seen.add(message.id, message)
        else:
            if self._stands(message):
                losses.append(Loss("repaired", "message", "the same message stands twice", message.id))
                return None
            fresh = fresh_id(message.id, self.seen)
            losses.append(Loss("renamed", "message id", f"another message has it; here it is {fresh!r}", message.id))
            self.seen.add((message.id, message.role, message.blocks))
            self.seen.add(fresh)
            message = replace(message, id=fresh)
        cleaned = _cleaned(message, self.named, losses)
        return self.expected.only(cleaned, losses) if cleaned and cleaned.role == "user" else cleaned

    def _stands(self, message: Message) -> bool:
        """Whether the same was said before under this id: by the first who had it, or by one who was renamed."""
        first = self.seen.get(message.id)
        same = isinstance(first, Message) and (first.role, first.blocks) == (message.role, message.blocks)
        return same or (message.id, message.role, message.blocks) in self.seen

    def _open(self, message: Message, losses: list[Loss]) -> None:
        self.losses += losses
        self.known = None
        for each in (*self.held, message):
            self.open.append(each)
            self.expected.add(each)
        self.held = []


def _weighs(block: Block) -> bool:
    """Whether a block says something by itself: reasoning and empty text only go with others."""
    return not isinstance(block, ReasoningBlock) and not _is_empty(block)


def _is_empty(block: Block) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()


def _is_plain(block: Block, allowed: tuple[type, ...]) -> bool:
    """Whether there is nothing about a block that may have to be changed: it may stand here, says something, has no seal."""
    return isinstance(block, allowed) and not isinstance(block, HostedBlock) and block.seal is None and not _is_empty(block)


def _cleaned(message: Message, named: Growing, losses: list[Loss]) -> Message | None:
    allowed = ALLOWED[message.role]
    if message.blocks and all([_is_plain(block, allowed) for block in message.blocks]):
        return message
    kept: list[Block] = []
    for block in message.blocks:
        fitting = _fitting(block, message, losses)
        once = _once(fitting, message, named, losses) if fitting else None
        if isinstance(once, TextBlock) and _is_empty(once) and not (once.seal and message.role == "assistant"):
            losses.append(Loss("repaired", "text", "it was empty", message.id))
        elif once:
            kept.append(once)
    for name in {_name(block) for block in kept} - {""}:
        named.add(name)
    if all(_is_empty(block) for block in kept):
        losses.append(Loss("repaired", "message", f"nothing was left of a {message.role} message", message.id))
        return None
    return message if tuple(kept) == message.blocks else replace(message, blocks=tuple(kept))


def _fitting(block: Block, message: Message, losses: list[Loss]) -> Block | None:
    """The block if this message may hold it, the line that stands for it, or nothing."""
    if not isinstance(block, ALLOWED[message.role]):
        losses.append(Loss("repaired", block.kind, f"a {message.role} message cannot hold it", message.id))
        return None
    if isinstance(block, HostedBlock) and block.role not in ("", message.role):
        why = f"a {message.role} message cannot hold it; its line stands for it"
        losses.append(Loss("repaired", "hosted block", why, message.id))
        return TextBlock(block.line)
    return block


def _once(block: Block, message: Message, named: Growing, losses: list[Loss]) -> Block | None:
    """The block, or what may stand for it when the provider's name for it was used before. Parts of one text share a name."""
    name = _name(block)
    if name not in named:
        if name and not isinstance(block, TextBlock):
            named.add(name)
        return block
    why = "the same sealed thing stands twice; the second goes without its seal"
    losses.append(Loss("repaired", block.kind, why, message.id))
    if isinstance(block, HostedBlock):
        return TextBlock(block.line)
    return None if isinstance(block, ReasoningBlock) else replace(block, seal=None)


def _name(block: Block) -> str:
    if isinstance(block, HostedBlock):
        return block.id
    return block.seal.id if block.seal else ""


def _without_trailing_reasoning(message: Message, losses: list[Loss]) -> Message:
    if _weighs(message.blocks[-1]):
        return message
    end = max(number for number, block in enumerate(message.blocks) if _weighs(block)) + 1
    tail = tuple(block for block in message.blocks[end:] if not isinstance(block, ReasoningBlock))
    dropped = len(message.blocks) - end - len(tail)
    losses += [Loss("repaired", "reasoning", "nothing followed it in its turn", message.id)] * dropped
    return replace(message, blocks=(*message.blocks[:end], *tail)) if dropped else message


def _merged(messages: Sequence[Message], losses: list[Loss]) -> Message:
    """The assistant's messages as one. It has an origin only if they share it, so that no reasoning gets a false one."""
    first = messages[0]
    if len(messages) == 1:
        return first
    blocks = list(first.blocks)
    for message in messages[1:]:
        losses.append(Loss("repaired", "message", "consecutive assistant messages were merged", message.id))
        for block in message.blocks:
            if isinstance(block, ReasoningBlock) and block in blocks:
                losses.append(Loss("repaired", "reasoning", "the same reasoning stands before it", message.id))
            else:
                blocks.append(block)
    origin = first.origin if all(message.origin == first.origin for message in messages) else None
    usages = [message.usage for message in messages if message.usage]
    return replace(first, blocks=tuple(blocks), origin=origin, usage=sum(usages, Usage()) if usages else None)


def _joined(messages: Sequence[Message], made: Message | None, losses: list[Loss]) -> list[Message]:
    """Consecutive user messages as one. To put results that were gathered (`made`) before words is not worth a report."""
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before and before.role == message.role == "user":
            if before is not made:
                losses.append(Loss("repaired", "message", "consecutive user messages were merged", message.id))
            joined[-1] = replace(message if before is made else before, blocks=(*before.blocks, *message.blocks))
        else:
            joined.append(message)
    return joined
