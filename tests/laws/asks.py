"""Asks for Hypothesis: any settings around any history, made fit to be sent to one wire."""

import json
from collections.abc import Callable, Iterable, Sequence

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
    Seal,
    Settings,
    Stored,
    TextBlock,
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


SEALED = ("reasoning", "text", "tool_call")
"""The kinds of block that a provider puts something of its own on."""


def opaque(wire: str, word: str) -> dict[str, dict[str, object]]:
    """What a provider of this wire puts on its own blocks, by kind, with a word in each that would betray it."""
    match wire:
        case "anthropic_messages":
            cited = {"type": "web_search_result_location", "cited_text": "x", "title": "x", "url": "x", "encrypted_index": word}
            return {
                "reasoning": {"signature": word},
                "text": {"citations": [cited]},
                "tool_call": {"caller": {"type": "code_execution_20250825", "tool_id": word}},
            }
        case "openai_responses":
            return {
                "reasoning": {"id": f"rs_{word}", "summary": [], "encrypted_content": word},
                "text": {"item": {"id": f"msg_{word}", "phase": "commentary", "status": "completed"}},
                "tool_call": {"id": f"fc_{word}", "status": "completed"},
            }
        case "gemini":
            return {kind: {"thoughtSignature": word} for kind in SEALED}
        case _:
            return {kind: {"signature": word} for kind in SEALED}


def sealed_by(history: Iterable[Message], makers: Sequence[Origin]) -> tuple[list[Message], list[tuple[str, Origin]]]:
    """The history with a seal on all that an assistant says, made by these in turn; and the word in each seal.

    No other block has one, and no hosted block is of a maker's wire: what is in it is made up.
    """
    words: list[tuple[str, Origin]] = []

    def change(block: Block) -> Block:
        block = loaded(block)
        if isinstance(block, HostedBlock):
            return replace(block, wire="telegraph")
        maker = makers[len(words) % len(makers)]
        data = opaque(maker.wire, f"word{len(words)}word").get(block.kind)
        if data is None:
            return replace(block, seal=None)
        words.append((f"word{len(words)}word", maker))
        return replace(block, seal=Seal(json.dumps(data), maker))

    told = mapped(history, change)
    return [message if message.role == "assistant" else unsealed(message) for message in told], words


def unsealed(message: Message) -> Message:
    """The message without seals."""
    return mapped([message], lambda block: block if isinstance(block, HostedBlock) else replace(block, seal=None))[0]
