"""Sees that every call has an id of its own and exactly one result, right after it. Pure; a part of repair."""

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b
from typing import Protocol

from msgspec.structs import replace

from evener.transcript.blocks import Block, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import Loss, loss_in
from evener.transcript.message import Message

__all__ = ["Due", "Names", "answered", "expect", "fresh_id", "has_result", "only_due", "with_unique_ids"]

NO_RESULT = "No result: the call was interrupted before a result was recorded. It is not known whether it took effect."

Names = list[tuple[str, str]]
"""The calls of a turn in order: the id that each was made with, and the id it goes under."""


Due = dict[str, int]
"""How many results may still come for each call id; less than none where one came that nobody here asked for."""


class Used(Container[str], Protocol):
    """Ids that are taken."""

    def add(self, name: str, /) -> object: ...


def has_result(message: Message) -> bool:
    """Whether a message brings a result."""
    for block in message.blocks:  # noqa: SIM110 - a generator for each message costs more than all else here
        if type(block) is ToolResult:
            return True
    return False


def expect(due: Due, messages: Iterable[Message]) -> None:
    """Count what messages of an exchange ask for and what they bring."""
    for message in messages:
        for block in message.blocks:
            if type(block) is ToolCall:
                due[block.id] = due.get(block.id, 0) + 1
            elif type(block) is ToolResult:
                due[block.call_id] = due.get(block.call_id, 0) - 1


def only_due(message: Message, due: Due, losses: list[Loss], *, elsewhere: bool) -> Message | None:
    """The message without results that nobody waits for, the others counted; None when nothing else was in it.

    Where calls are `elsewhere`, with the provider, any id may have one.
    """
    kept: list[Block] = []
    for block in message.blocks:
        if type(block) is ToolResult:
            id = block.call_id
            left = due.get(id, 0)
            if left < 0 or (left == 0 and not (elsewhere and id)):
                losses.append(loss_in("repaired", "tool_result", f"no open call {id!r} stands before it", message, block))
                continue
            due[id] = left - 1
        kept.append(block)
    if len(kept) == len(message.blocks):
        return message
    return replace(message, blocks=tuple(kept)) if kept else None


def with_unique_ids(message: Message, used: Used, names: Names, losses: list[Loss]) -> Message:
    """The message with ids that no call before has; they are added to `used` and `names`."""
    blocks: list[Block] = []
    renamed = False
    for block in message.blocks:
        if type(block) is ToolCall:
            wanted = fresh = block.id
            if not wanted or wanted in used:
                fresh = fresh_id(wanted or _made_id(message.id, len(blocks)), used)
                why = f"the id {wanted!r} was used before or empty; sent as {fresh!r}"
                losses.append(loss_in("renamed", "tool_call.id", why, message, block))
                block, renamed = replace(block, id=fresh), True
            used.add(fresh)
            names.append((wanted, fresh))
        blocks.append(block)
    return replace(message, blocks=tuple(blocks)) if renamed else message


def fresh_id(wanted: str, used: Container[object]) -> str:
    """The id that is wanted, or one like it that nobody uses."""
    if wanted not in used:
        return wanted
    taken, free = 1, 2  # by doubling and halving: an id that is used a thousand times costs ten looks
    while f"{wanted}_{free}" in used:
        taken, free = free, free * 2
    while free - taken > 1:
        middle = (taken + free) // 2
        taken, free = (middle, free) if f"{wanted}_{middle}" in used else (taken, middle)
    return f"{wanted}_{free}"


def _made_id(message_id: str, place: int) -> str:
    return "call_" + blake2b(f"{message_id}/{place}".encode(), digest_size=8).hexdigest()


def answered(
    assistant: Message, came: Sequence[Message], names: Names, losses: list[Loss]
) -> tuple[list[Message], Message | None]:
    """The messages that came back, a result for each call standing first and in call order.

    Also the first of them if it had to be made: a message of results only, that belongs to no one. Every result in `came`
    is expected.
    """
    if len(came) == 1 and _answers(came[0].blocks, names):
        return list(came), None
    results, places = _taken(came, names)
    for _, new in names:
        if new not in results:
            losses.append(loss_in("added", "tool_result", f"call {new!r} had none; an honest one was made", assistant))
    if places != sorted(places):
        losses.append(loss_in("repaired", "tool_result", "results were put first and in call order", assistant))
    ordered = tuple(results.get(new) or ToolResult(new, (TextBlock(NO_RESULT),), True) for _, new in names)
    return _led_by(ordered, assistant, came)


def _answers(blocks: tuple[Block, ...], names: Names) -> bool:
    """Whether the blocks are the results as they should be: one for each call, in order, and nothing else."""
    results: Names = []
    for block in blocks:
        if type(block) is not ToolResult:
            return False
        results.append((block.call_id, block.call_id))
    return results == names


def _taken(came: Sequence[Message], names: Names) -> tuple[dict[str, ToolResult], list[int]]:
    """The results under the ids of their calls, and for each block the place where it belongs: those of results come first."""
    due: defaultdict[str, deque[int]] = defaultdict(deque)
    for number, (old, _) in enumerate(names):
        due[old].append(number)
    results: dict[str, ToolResult] = {}
    places: list[int] = []
    for block in (block for message in came for block in message.blocks):
        place = len(names)
        if isinstance(block, ToolResult):
            place = due[block.call_id].popleft()
            new = names[place][1]
            results[new] = block if block.call_id == new else replace(block, call_id=new)
        places.append(place)
    return results, places


def _led_by(
    results: tuple[ToolResult, ...], assistant: Message, came: Sequence[Message]
) -> tuple[list[Message], Message | None]:
    first = next((message for message in came if any(isinstance(block, ToolResult) for block in message.blocks)), None)
    others = [(message, tuple(block for block in message.blocks if not isinstance(block, ToolResult))) for message in came]
    if first is not None and first is came[0]:
        return [_with(first, (*results, *others[0][1])), *(_with(*rest) for rest in others[1:] if rest[1])], None
    rest = [_with(message, blocks) for message, blocks in others if blocks]
    if first is not None and all(message.id != first.id for message in rest):
        return [_with(first, results), *rest], None
    made = Message("user", results, id=f"{first.id if first else assistant.id}/results", created_at=assistant.created_at)
    return [made, *rest], made


def _with(message: Message, blocks: tuple[Block, ...]) -> Message:
    return message if blocks == message.blocks else replace(message, blocks=blocks)
