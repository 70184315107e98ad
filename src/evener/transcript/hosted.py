"""Sees that hosted blocks come in pairs within a history: an end needs its beginning, a beginning its end. Pure.

A block without its counterpart is replaced by its line. Where `in_flight` is allowed, a beginning may wait: for the
assistant's next message, as long as nobody but the client's tools has spoken in between.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from evener.transcript.blocks import Block, HostedBlock, TextBlock, ToolResult
from evener.transcript.loss import Loss, loss_in
from evener.transcript.message import Message

__all__ = ["pair_hosted"]

Place = tuple[int, int]
"""A block by its message's number in the exchange and its own in the message: equal blocks are not the same."""


def pair_hosted(
    messages: Sequence[Message], awaited: frozenset[str], coming: Message | None, losses: list[Loss], *, in_flight: bool
) -> tuple[list[Message], frozenset[str]]:
    """The messages of one exchange with lines for what is alone, and the ids that are still awaited after it.

    `coming` is the assistant's next message, None while the exchange is open.
    """
    told = list(messages)
    while True:
        alone, waiting = _alone(told, awaited, coming, in_flight=in_flight)
        if not alone:
            return told, frozenset(waiting)
        told = [_with_lines(message, number, alone, losses) for number, message in enumerate(told)]  # may leave others alone


def _alone(
    messages: Sequence[Message], awaited: frozenset[str], coming: Message | None, *, in_flight: bool
) -> tuple[set[Place], set[str]]:
    """The blocks that lack their counterpart, and the ids that may still be awaited."""
    alone, begun = _unpaired(messages, awaited)
    waiting: set[str] = set()
    if in_flight and not _spoken(messages, alone):
        waiting = set(begun) & _closed_by(coming) if coming else set(begun if _may_go_on(messages, alone) else ())
    given_up = {place for id, place in begun.items() if place and id not in waiting}
    if _spoken(messages, given_up):  # their lines are words, and after words nothing waits
        waiting, given_up = set(), {place for place in begun.values() if place}
    return alone | given_up, waiting


def _unpaired(messages: Sequence[Message], awaited: frozenset[str]) -> tuple[set[Place], dict[str, Place | None]]:
    """Ends without a beginning or begun twice, and beginnings without an end (None for those of earlier exchanges)."""
    begun: dict[str, Place | None] = dict.fromkeys(awaited)
    alone: set[Place] = set()
    for place, block in _placed(messages):
        if not isinstance(block, HostedBlock):
            continue
        if (block.closes and block.closes not in begun) or (block.opens and block.opens in begun):
            alone.add(place)
            continue
        if block.closes:
            del begun[block.closes]
        if block.opens:
            begun[block.opens] = place
    return alone, begun


def _placed(messages: Sequence[Message]) -> Iterable[tuple[Place, Block]]:
    return (((number, place), block) for number, message in enumerate(messages) for place, block in enumerate(message.blocks))


def _spoken(messages: Sequence[Message], lines: set[Place]) -> bool:
    """Whether anyone but the assistant and the client's tools has said something; a block that becomes a line is said."""
    return any(
        messages[place[0]].role != "assistant" and (place in lines or not isinstance(block, (ToolResult, HostedBlock)))
        for place, block in _placed(messages)
    )


def _may_go_on(messages: Sequence[Message], lines: set[Place]) -> bool:
    """Whether the provider goes on from here by itself: the turn was paused, or its calls have their results."""
    if not messages:
        return False
    last = messages[-1]
    paused = isinstance(last.blocks[-1], HostedBlock) and (len(messages) - 1, len(last.blocks) - 1) not in lines
    return last.role != "assistant" or paused


def _closed_by(message: Message) -> set[str]:
    return {block.closes for block in message.blocks if isinstance(block, HostedBlock)}


def _with_lines(message: Message, number: int, alone: set[Place], losses: list[Loss]) -> Message:
    blocks: list[Block] = []
    for place, block in enumerate(message.blocks):
        if isinstance(block, HostedBlock) and (number, place) in alone:
            losses.append(loss_in("repaired", "hosted", "its counterpart is missing; its line stands for it", message, block))
            block = TextBlock(block.line)
        blocks.append(block)
    return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))
