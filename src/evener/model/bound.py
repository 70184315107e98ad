"""Upper bounds for limits on the cost: the tokens of a request, and whether it writes to a cache for an hour. Pure.

A token is at least one byte, so the size of a text in bytes is an upper bound. The provider has counted everything up to the
last answer of the same model; only newer content is measured here, however long the conversation is. Media have no such
bound: an image counts as the largest one, a document with its size.
"""

import msgspec

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.message import Message

OVERHEAD = 1_000
"""Tokens that a provider may add to a conversation with tools."""
EACH = 16
"""Tokens that it may add to each message and tool."""
IMAGE = 5_000
DOCUMENT = 100_000
"""Tokens of a document whose size is not known."""

_encode = msgspec.json.Encoder().encode


def most_prompt(ask: Ask, window: int = 0) -> int:
    """Return an upper bound of this ask's input tokens: at most the model's window, if that is known (not 0)."""
    tokens = OVERHEAD + sum(len(_encode(block)) for block in ask.transcript.system_blocks)
    tokens += sum(EACH + len(_encode(tool)) for tool in ask.tools)
    tokens += len(_encode(ask.output)) if ask.output else 0
    node = ask.transcript.head
    while node is not None:
        counted = _count(node.message, ask.target)
        tokens += counted or EACH + sum(_size(block) for block in node.message.blocks)
        node = None if counted else node.parent
    return min(tokens, window) if window else tokens


def writes_for_an_hour(ask: Ask) -> bool:
    """True if the request asks to keep anything that it writes to a cache for an hour."""
    marks = {ask.cache.ttl, *(block.cache for block in ask.transcript.system_blocks)}
    if "1h" in marks or any(isinstance(tool, ToolSpec) and tool.cache == "1h" for tool in ask.tools):
        return True
    node = ask.transcript.head
    while node is not None and not _count(node.message, ask.target):
        if any(not isinstance(block, ReasoningBlock) and block.cache == "1h" for block in node.message.blocks):
            return True
        node = node.parent
    return False


def _count(message: Message, target: Origin) -> int:
    """Return the tokens of everything up to this answer and of the answer, if the provider reported them; else 0."""
    used, made = message.usage, message.origin
    if used is None or made is None or not used.input_total or (made.provider, made.model) != (target.provider, target.model):
        return 0
    return used.input_total + used.output_total


def _size(block: Block) -> int:
    match block:
        case TextBlock() | ReasoningBlock() | ToolCall() | HostedBlock():
            return len(_encode(block))
        case ToolResult():
            return EACH + sum(_size(part) for part in block.content)
        case ImageBlock():
            return IMAGE
        case DocumentBlock(source=Inline(data)):
            return max(IMAGE, len(data) * 3 // 4)
        case DocumentBlock(source=Stored(size=size)) if size:
            return max(IMAGE, size)
        case DocumentBlock():
            return DOCUMENT
