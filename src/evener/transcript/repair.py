"""Makes any history legal before it is encoded, and reports each change as a Loss. Pure, idempotent, incremental.

The history is cut into exchanges: what the assistant said, then what came back before it spoke again. An exchange is
settled when the assistant speaks again: no later message can change it. The rules:

    empty text                      dropped (kept when sealed and not alone); a message left with nothing is dropped
    a block in the wrong role       dropped (a call by the user, a result by the assistant, reasoning by anyone else)
    the same message twice          dropped the second time
    consecutive same-role messages  merged; system messages stay apart
    a hosted block without its pair replaced by its line, and so is one in the wrong role
    reasoning with nothing after it dropped
    a call id used before           renamed, with its result
    a call without a result         gets an honest synthetic one
    a result without a call         dropped, and so is a second result for one call
    results                         stand first, in call order
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

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
from evener.transcript.hosted import pair_hosted
from evener.transcript.loss import Loss
from evener.transcript.message import Message

__all__ = ["Exchange", "Repair", "RepairRules", "repair"]

NO_RESULT = "No result: the call was interrupted before a result was recorded. It is not known whether it took effect."

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

    `held` is reasoning that waits for what it led to; `awaited` are hosted tools that still run.
    """

    rules: RepairRules = RepairRules()
    open: tuple[Message, ...] = ()
    held: tuple[Message, ...] = ()
    losses: tuple[Loss, ...] = ()
    seen: frozenset[str] = frozenset()
    used_ids: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()

    def feed(self, messages: Iterable[Message]) -> tuple["Repair", list[Exchange]]:
        """Fold more messages in: the new state, and the exchanges that are settled by them.

        Feeding messages one by one or all at once gives the same exchanges.
        """
        settled: list[Exchange] = []
        open_, held, losses = list(self.open), list(self.held), list(self.losses)
        past = _Past(self.rules, set(self.used_ids), set(self.awaited))
        seen = set(self.seen)
        for message in messages:
            cleaned = _cleaned(message, seen, losses)
            if cleaned is None:
                continue
            if cleaned.role != "assistant":
                held = _let_go(held, losses)
            elif all(isinstance(block, ReasoningBlock) for block in cleaned.blocks):
                held.append(cleaned)
                continue
            elif _has_come_back(open_):
                settled.append(past.settle(open_, losses, cleaned))
                open_, losses = [], []
            open_ += [*held, cleaned]
            held = []
        used, awaited = frozenset(past.used), frozenset(past.awaited)
        return Repair(self.rules, tuple(open_), tuple(held), tuple(losses), frozenset(seen), used, awaited), settled

    def finish(self) -> Exchange | None:
        """The open exchange as it would be sent now; None when there is nothing to say."""
        losses = list(self.losses)
        _let_go(self.held, losses)
        if not self.open and not losses:
            return None
        return _Past(self.rules, set(self.used_ids), set(self.awaited)).settle(self.open, losses, None)


def repair(messages: Iterable[Message], rules: RepairRules | None = None) -> tuple[tuple[Message, ...], tuple[Loss, ...]]:
    """A legal history, and what it took."""
    state, exchanges = Repair(rules or RepairRules()).feed(messages)
    last = state.finish()
    if last:
        exchanges.append(last)
    legal = [message for exchange in exchanges for message in (exchange.assistant, *exchange.back) if message]
    return tuple(legal), tuple(loss for exchange in exchanges for loss in exchange.losses)


def _has_come_back(messages: Sequence[Message]) -> bool:
    return bool(messages) and messages[-1].role != "assistant"


def _let_go(held: Sequence[Message], losses: list[Loss]) -> list[Message]:
    losses += (Loss("repaired", "reasoning", "nothing followed it in its turn", message.id) for message in held)
    return []


def _cleaned(message: Message, seen: set[str], losses: list[Loss]) -> Message | None:
    if message.id in seen:
        losses.append(Loss("repaired", "message", "the same message stands twice", message.id))
        return None
    seen |= {message.id} - {""}
    kept = [block for block in (_fitting(block, message, losses) for block in message.blocks) if block]
    if all(isinstance(block, TextBlock) and not block.text.strip() for block in kept):
        losses.append(Loss("repaired", "message", f"nothing was left of a {message.role} message", message.id))
        return None
    return message if tuple(kept) == message.blocks else replace(message, blocks=tuple(kept))


def _fitting(block: Block, message: Message, losses: list[Loss]) -> Block | None:
    """The block if it may stand in this message, what may stand for it, or nothing."""
    if not isinstance(block, ALLOWED[message.role]):
        losses.append(Loss("repaired", block.kind, f"a {message.role} message cannot hold it", message.id))
        return None
    if isinstance(block, TextBlock) and not block.seal and not block.text.strip():
        losses.append(Loss("repaired", "text", "it was empty", message.id))
        return None
    if isinstance(block, HostedBlock) and block.role not in ("", message.role):
        why = f"a {message.role} message cannot hold it; its line stands for it"
        losses.append(Loss("repaired", "hosted block", why, message.id))
        return TextBlock(block.line)
    return block


class _Past:
    """What earlier exchanges have used up, while messages are folded in."""

    def __init__(self, rules: RepairRules, used: set[str], awaited: set[str]) -> None:
        self.rules = rules
        self.used = used
        self.awaited = awaited

    def settle(self, messages: Sequence[Message], losses: list[Loss], coming: Message | None) -> Exchange:
        """The exchange of these messages; `coming` is the assistant's message that settles it, None while it is open."""
        assistant = _merged([message for message in messages if message.role == "assistant"], losses)
        wire_ids: list[tuple[str, str]] = []
        if assistant:
            assistant = _without_trailing_reasoning(assistant, losses)
            used = self.used if self.rules.unique_ids else set()
            assistant = _with_unique_ids(assistant, used, wire_ids, losses)
        came = [message for message in messages if message.role != "assistant"]
        if assistant or not self.rules.past_elsewhere:
            came = _answered(assistant, came, wire_ids, losses)
        else:
            came = _answered_once(came, losses)
        back = _joined(came, losses) if self.rules.merge else came
        whole = [assistant, *back] if assistant else back
        told, self.awaited = pair_hosted(whole, self.awaited, coming, losses, in_flight=self.rules.in_flight)
        return Exchange(told.pop(0) if assistant else None, tuple(told), tuple(losses))


def _answered_once(came: Sequence[Message], losses: list[Loss]) -> list[Message]:
    """Results for calls that only the provider knows: kept, but one for each."""
    answered: set[str] = set()
    kept: list[Message] = []
    for message in came:
        blocks: list[Block] = []
        for block in message.blocks:
            if isinstance(block, ToolResult) and block.call_id in answered:
                losses.append(Loss("repaired", "tool_result", f"call {block.call_id!r} has one already", message.id))
                continue
            answered |= {block.call_id} if isinstance(block, ToolResult) else set()
            blocks.append(block)
        if blocks:
            kept.append(message if len(blocks) == len(message.blocks) else replace(message, blocks=tuple(blocks)))
    return kept


def _merged(messages: Sequence[Message], losses: list[Loss]) -> Message | None:
    if len(messages) < 2:
        return messages[0] if messages else None
    for message in messages[1:]:
        losses.append(Loss("repaired", "message", f"consecutive {message.role} messages were merged", message.id))
    return replace(messages[0], blocks=tuple(block for message in messages for block in message.blocks))


def _without_trailing_reasoning(message: Message, losses: list[Loss]) -> Message:
    blocks = list(message.blocks)
    while isinstance(blocks[-1], ReasoningBlock):
        blocks.pop()
        losses.append(Loss("repaired", "reasoning", "nothing followed it in its turn", message.id))
    return message if len(blocks) == len(message.blocks) else replace(message, blocks=tuple(blocks))


def _with_unique_ids(message: Message, used: set[str], wire_ids: list[tuple[str, str]], losses: list[Loss]) -> Message:
    blocks: list[Block] = []
    for place, block in enumerate(message.blocks):
        if isinstance(block, ToolCall):
            fresh = _fresh_id(block.id or _made_id(message.id, place), used)
            used.add(fresh)
            wire_ids.append((block.id, fresh))
            if fresh != block.id:
                why = f"the id {block.id!r} was used before or empty; sent as {fresh!r}"
                losses.append(Loss("renamed", "tool_call id", why, message.id))
                block = replace(block, id=fresh)
        blocks.append(block)
    return message if all(old == new for old, new in wire_ids) else replace(message, blocks=tuple(blocks))


def _fresh_id(wanted: str, used: set[str]) -> str:
    fresh, number = wanted, 2
    while fresh in used:
        fresh, number = f"{wanted}_{number}", number + 1
    return fresh


def _made_id(message_id: str, place: int) -> str:
    return "call_" + blake2b(f"{message_id}/{place}".encode(), digest_size=8).hexdigest()


def _answered(
    assistant: Message | None, came: Sequence[Message], wire_ids: list[tuple[str, str]], losses: list[Loss]
) -> list[Message]:
    """The messages that came back, with exactly one result for each call, first and in call order."""
    waiting = list(wire_ids)
    results: dict[str, ToolResult] = {}
    rest: list[Message] = []
    for message in came:
        others: list[Block] = []
        for block in message.blocks:
            if not isinstance(block, ToolResult):
                others.append(block)
                continue
            paired = next((pair for pair in waiting if pair[0] == block.call_id), None)
            if paired is None:
                why = f"no open call {block.call_id!r} stands before it"
                losses.append(Loss("repaired", "tool_result", why, message.id))
                continue
            waiting.remove(paired)
            results[paired[1]] = block if paired[1] == block.call_id else replace(block, call_id=paired[1])
        if others:
            rest.append(message if len(others) == len(message.blocks) else replace(message, blocks=tuple(others)))
    if assistant is None or not wire_ids:
        return rest
    for _, wire_id in waiting:
        losses.append(Loss("added", "tool_result", f"call {wire_id!r} had none; an honest one was made", assistant.id))
    ordered = tuple(results.get(new) or ToolResult(new, (TextBlock(NO_RESULT),), True) for _, new in wire_ids)
    return [_results_message(assistant, came, ordered), *rest]


def _results_message(assistant: Message, came: Sequence[Message], results: tuple[ToolResult, ...]) -> Message:
    first = next((message for message in came if any(isinstance(block, ToolResult) for block in message.blocks)), None)
    if first:
        mixed = any(not isinstance(block, ToolResult) for block in first.blocks)
        return replace(first, role="user", blocks=results, id=f"{first.id}/results" if mixed else first.id)
    return Message("user", results, id=f"{assistant.id}/results", created_at=assistant.created_at)


def _joined(messages: Sequence[Message], losses: list[Loss]) -> list[Message]:
    """Merge consecutive user messages. That a message's results stand before its words is not worth a report."""
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before and before.role == message.role == "user":
            own = before.id == f"{message.id}/results"
            if not own:
                losses.append(Loss("repaired", "message", "consecutive user messages were merged", message.id))
            joined[-1] = replace(message if own else before, blocks=(*before.blocks, *message.blocks))
        else:
            joined.append(message)
    return joined
