"""Asks for Hypothesis: any settings around any history, made fit to be sent to one wire."""

import json
from collections.abc import Callable, Iterable

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from evener.transcript import (
    Ask,
    Block,
    Cache,
    Choice,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    OutputSchema,
    Reasoning,
    ReasoningBlock,
    Seal,
    Settings,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
)

SCHEMA = '{"type":"object","properties":{"at":{"type":"string"}},"required":["at"],"additionalProperties":false}'
TOOLS = (ToolSpec("look", "Look at it.", SCHEMA, True), ToolSpec("a.b c", "Odd name."), ToolSpec("plain", cache="5m"))

tools = st.lists(st.sampled_from(TOOLS), unique_by=lambda tool: tool.name, max_size=3).map(tuple)
choices = st.builds(
    Choice, st.sampled_from(["auto", "required", "none"]), parallel=st.sampled_from([None, True, False])
) | st.sampled_from([Choice("named", ("look",)), Choice("named", ("gone",)), Choice("required", ("look", "plain"))])
limits = st.builds(
    Settings,
    st.sampled_from([None, 16, 1024, 5000]),
    st.sampled_from([None, 0, 0.5, 1]),
    st.sampled_from([None, 0.5]),
    st.sampled_from([None, 40]),
    st.sampled_from([(), ("END",), (" ",)]),
    st.sampled_from([None, 7]),
)
thoughts = st.builds(
    Reasoning,
    st.sampled_from([None, "off", "low", "medium", "max"]),
    st.sampled_from([None, 1024, 4000]),
    st.sampled_from(["auto", "auto", "default", "on", "off"]),
    st.sampled_from(["", "summary", "omitted"]),
)
caches = st.builds(Cache, st.sampled_from(["off", "marks", "moving", "provider"]), st.sampled_from(["", "5m", "1h"]))
systems = st.sampled_from(["", "Be kind."]) | st.just((TextBlock("Be kind."), TextBlock("Be brief.", cache="1h")))


def target(wire: str) -> Origin:
    """Whom the asks are for."""
    return Origin(wire, "p", model="m")


def asks(wire: str) -> SearchStrategy[Ask]:
    """An ask without a history."""
    return st.builds(
        Ask,
        systems.map(lambda system: Transcript((), system)),
        st.just(target(wire)),
        tools,
        choices,
        limits,
        thoughts,
        st.none() | st.just(OutputSchema(SCHEMA)),
        caches,
        foreign_reasoning=st.sampled_from(["drop", "text"]),
    )


def mapped(history: Iterable[Message], change: Callable[[Block], Block]) -> list[Message]:
    """The history with every block changed, those inside results first."""

    def deep(block: Block) -> Block:
        if isinstance(block, ToolResult):
            block = replace(block, content=tuple(change(inner) for inner in block.content))
        return change(block)

    return [replace(message, blocks=tuple(deep(block) for block in message.blocks)) for message in history]


def loaded(block: Block) -> Block:
    """Media out of the store: nothing else can be encoded."""
    if isinstance(block, ImageBlock | DocumentBlock) and isinstance(block.source, Stored):
        return replace(block, source=Inline("aGVsbG8="))
    return block


def sendable(history: Iterable[Message]) -> list[Message]:
    """The history with its media loaded."""
    return mapped(history, loaded)


# What each wire puts on its own blocks.
OWN_SEALS = {
    "anthropic_messages": {"reasoning": {"signature": "SIG"}, "tool_call": {"caller": {"type": "direct"}}},
    "openai_responses": {
        "reasoning": {"summary": [], "encrypted_content": "ENC"},
        "text": {"item": {"phase": "commentary"}},
        "tool_call": {"status": "completed"},
    },
}


def plausible(history: Iterable[Message], wire: str) -> list[Message]:
    """The history with seals and hosted blocks of this wire that this wire could have made."""
    own = OWN_SEALS.get(wire, {})

    def change(block: Block) -> Block:
        block = loaded(block)
        if isinstance(block, HostedBlock):
            return replace(block, wire="telegraph") if block.wire == wire else block
        if block.seal is None or block.seal.origin.wire != wire:
            return block
        data = own.get(block.kind)
        return replace(block, seal=replace(block.seal, data=json.dumps(data)) if data else None)

    return mapped(history, change)


def sealed_with_needles(history: Iterable[Message]) -> tuple[list[Message], list[tuple[str, Seal]]]:
    """The history with a word in each seal that occurs nowhere else, and those words."""
    needles: list[tuple[str, Seal]] = []

    def change(block: Block) -> Block:
        block = loaded(block)
        if isinstance(block, HostedBlock) or block.seal is None:
            return block
        needle = f"NEEDLE-{len(needles)}-"
        data = {"signature": needle, "encrypted_content": needle, "item": {"phase": needle}, "part": {"x": needle}}
        needles.append((needle, block.seal))
        return replace(block, seal=replace(block.seal, data=json.dumps(data)))

    return mapped(history, change), needles


def calls_and_thoughts(block: Block) -> bool:
    """Whether a block is one whose seal a provider verifies."""
    return isinstance(block, ReasoningBlock | ToolCall)
