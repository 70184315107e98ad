"""Sees that hosted blocks come in pairs within a history: an end needs its beginning, a beginning its end. Pure.

A block without its counterpart is replaced by its line. Where `in_flight` is allowed, a beginning may wait: for the
assistant's next message, as long as nobody but the client's tools has spoken in between.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from evener.transcript.blocks import HostedBlock, TextBlock, ToolResult
from evener.transcript.loss import Loss
from evener.transcript.message import Message

__all__ = ["pair_hosted"]


def pair_hosted(
    messages: Sequence[Message], awaited: set[str], coming: Message | None, losses: list[Loss], *, in_flight: bool
) -> tuple[list[Message], set[str]]:
    """The messages of one exchange with lines for what is alone, and the ids that are still awaited after it.

    `coming` is the assistant's next message, None while the exchange is open.
    """
    blocks = [(message.role, block) for message in messages for block in message.blocks]
    hosted = [block for _, block in blocks if isinstance(block, HostedBlock)]
    spoken = any(role != "assistant" and not isinstance(block, (ToolResult, HostedBlock)) for role, block in blocks)
    alone, begun = _unpaired(hosted, awaited)
    waiting: set[str] = set()
    if in_flight and not spoken:
        waiting = set(begun) & _closed_by(coming) if coming else set(begun if _may_go_on(messages) else ())
    alone += (block for id, block in begun.items() if block is not None and id not in waiting)
    return [_with_lines(message, alone, losses) for message in messages], waiting


def _unpaired(hosted: Sequence[HostedBlock], awaited: set[str]) -> tuple[list[HostedBlock], dict[str, HostedBlock | None]]:
    """Ends without a beginning, and beginnings without an end (None for those of earlier exchanges)."""
    begun: dict[str, HostedBlock | None] = dict.fromkeys(awaited)
    alone: list[HostedBlock] = []
    for block in hosted:
        if block.closes in begun:
            del begun[block.closes]
        elif block.closes:
            alone.append(block)
        if block.opens:
            begun[block.opens] = block
    return alone, begun


def _may_go_on(messages: Sequence[Message]) -> bool:
    """Whether the provider goes on from here by itself: the turn was paused, or its calls have their results."""
    return bool(messages) and (messages[-1].role != "assistant" or isinstance(messages[-1].blocks[-1], HostedBlock))


def _closed_by(message: Message) -> set[str]:
    return {block.closes for block in message.blocks if isinstance(block, HostedBlock)}


def _with_lines(message: Message, alone: Sequence[HostedBlock], losses: list[Loss]) -> Message:
    lost = [block for block in message.blocks if any(block is one for one in alone)]
    if not lost:
        return message
    losses += (Loss("repaired", "hosted block", "its counterpart is missing; its line stands for it", message.id) for _ in lost)
    blocks = (TextBlock(block.line) if isinstance(block, HostedBlock) and block in lost else block for block in message.blocks)
    return replace(message, blocks=tuple(blocks))
