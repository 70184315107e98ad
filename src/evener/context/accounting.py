"""Estimates the tokens of a conversation, by kind of block, starting from the counts that the provider reported. Pure.

A tokenizer would be no better than a few constants for each wire (`RATES`, fitted on recorded usage by `python -m bench
estimate`): most of the error is in what providers add to messages and tools. What the provider has counted is not estimated
again: the estimate covers only what came after the last answer. Seals are not text, and count as 0. Counting a longer
conversation costs only its new part. A turn updates a few numbers (`Account`); the kinds are counted on demand
(`KindCount`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, assert_never, get_args

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import HostedTool, OutputSchema, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    ResultContent,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.message import Message
from evener.transcript.transcript import Node, Transcript

ContextKind = Literal["system", "tools", "user", "assistant", "reasoning", "calls", "results", "media"]
KINDS: tuple[ContextKind, ...] = get_args(ContextKind)

SCREENSHOT = 1465
"""Tokens of a usual screenshot, where a wire has no number of its own (S3.22)."""


class TokenRates(msgspec.Struct, frozen=True):
    """Tokens for each byte of a kind, and what a provider adds for each message, call, tool, and request with tools."""

    text: float = 0.25
    json: float = 0.3  # arguments of calls
    result: float = 0.3
    schema: float = 0.2  # declarations of tools: name, description and schema
    message: float = 4.0
    call: float = 8.0  # each call, and each result
    tool: float = 8.0
    tools: float = 0.0  # as soon as there is one tool
    base: float = 0.0
    image: int = SCREENSHOT
    page: float = 0.25  # each byte of a document in text; of others, a hundredth of it
    hidden: float = 1.0  # the part of an answer's hidden reasoning that is in the next prompt


RATES: dict[str, TokenRates] = {
    "anthropic_messages": TokenRates(
        text=0.287, json=0.3, result=0.312, schema=0.495, message=2.234, call=10.297, tool=2.0, tools=487.679, base=4.52,
        hidden=0.0,
    ),
    "openai_responses": TokenRates(
        text=0.237, json=0.976, result=0.392, schema=0.166, message=3.887, call=2.0, tool=2.0, tools=5.929, base=2.627,
        image=765,
    ),
    "openai_chat": TokenRates(
        text=0.212, json=0.544, result=0.228, schema=0.05, message=1.897, call=5.373, tool=10.789, tools=22.791, base=5.608,
        image=765, hidden=0.0,
    ),
    "gemini": TokenRates(
        text=0.215, json=0.3, result=0.285, schema=0.05, message=1.0, call=12.926, tool=13.004, image=1120, hidden=0.0
    ),
}  # fmt: skip
"""By wire. What `python -m bench estimate --fit` prints; how far they are from what was reported stands in docs/context.md."""

USUAL = TokenRates()
IMPLAUSIBLE, ENOUGH = 4.0, 1000.0
"""What was reported is no anchor when it is so many times less than the estimate, and that is of some size: it was made up."""
NO_EDITS: Mapping[str, float] = {}


def rates_of(wire: str, *, counts_reasoning: bool | None = None) -> TokenRates:
    """Return the constants of a wire. `counts_reasoning`: what the row says of reasoning that is not shown."""
    rates = RATES.get(wire, USUAL)
    return rates if counts_reasoning is None else replace(rates, hidden=float(counts_reasoning))


class ContextTally(msgspec.Struct, frozen=True):
    """Tokens by kind."""

    system: float = 0.0
    tools: float = 0.0
    user: float = 0.0
    assistant: float = 0.0
    reasoning: float = 0.0
    calls: float = 0.0
    results: float = 0.0
    media: float = 0.0

    def __add__(self, other: "ContextTally") -> "ContextTally":
        return ContextTally(
            self.system + other.system,
            self.tools + other.tools,
            self.user + other.user,
            self.assistant + other.assistant,
            self.reasoning + other.reasoning,
            self.calls + other.calls,
            self.results + other.results,
            self.media + other.media,
        )

    @property
    def total(self) -> float:
        """All of them."""
        return self.system + self.tools + self.user + self.assistant + self.reasoning + self.calls + self.results + self.media

    def of(self, kind: ContextKind) -> float:
        """Return the tokens of one kind."""
        return float(self.__getattribute__(kind))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def count_block(block: Block | ResultContent, rates: TokenRates) -> float:
    """Return the tokens of one block. A seal counts nothing: it is opaque, and providers do not count it as text."""
    match block:
        case TextBlock():
            return _bytes(block.text) * rates.text
        case ToolResult():
            return sum(size_result(block.content, rates))
        case ToolCall():
            return rates.call + _bytes(block.name) * rates.text + _bytes(block.raw) * rates.json
        case ReasoningBlock() | HostedBlock():
            return _bytes(block.text) * rates.text
        case ImageBlock():
            return float(rates.image)
        case DocumentBlock():
            return _count_document(block, rates)
    assert_never(block)


def _count_document(block: DocumentBlock, rates: TokenRates) -> float:
    """Return the tokens of a document. One whose bytes are not available counts as one page."""
    match block.source:
        case Inline(data):
            size = len(data) * 3 // 4
        case Stored(size=size):
            pass
        case _:
            size = 0
    share = rates.page if block.media_type.startswith("text/") else rates.page / 100
    return max(size * share, float(SCREENSHOT) if size == 0 else 0.0)


def size_result(content: Sequence[ResultContent], rates: TokenRates) -> tuple[float, float]:
    """Return the tokens of a result without its pictures and documents, and those of these."""
    told, shown = rates.call, 0.0
    for part in content:
        if type(part) is TextBlock:
            text = part.text
            told += (len(text) if text.isascii() else len(text.encode())) * rates.result
        elif type(part) is HostedBlock:
            told += count_block(part, rates)
        else:
            shown += count_block(part, rates)
    return told, shown


def size_message(message: Message, rates: TokenRates) -> tuple[float, float]:
    """Return the tokens of a message without its pictures and documents, and those of these.

    Called with every turn: texts are measured in place, as a call costs more than that does.
    """
    told, shown = rates.message, 0.0
    for block in message.blocks:
        if type(block) is ToolResult:
            more, media = size_result(block.content, rates)
            told += more
            shown += media
        elif type(block) is ToolCall:
            name, raw = block.name, block.raw
            told += (
                rates.call
                + (len(name) if name.isascii() else len(name.encode())) * rates.text
                + (len(raw) if raw.isascii() else len(raw.encode())) * rates.json
            )
        elif type(block) is TextBlock or type(block) is ReasoningBlock or type(block) is HostedBlock:
            text = block.text
            told += (len(text) if text.isascii() else len(text.encode())) * rates.text
        else:
            shown += count_block(block, rates)
    return told, shown


def size_messages(messages: Iterable[Message], rates: TokenRates) -> float:
    """Return the tokens of all these messages."""
    tokens = 0.0
    for message in messages:
        told, shown = size_message(message, rates)
        tokens += told + shown
    return tokens


def count_message(message: Message, rates: TokenRates) -> ContextTally:
    """Return the tokens of one message, by kind. Pictures inside results count as media."""
    said, reasoning, calls, results, media = rates.message, 0.0, 0.0, 0.0, 0.0
    for block in message.blocks:
        match block:
            case ToolResult():
                told, shown = size_result(block.content, rates)
                results += told
                media += shown
            case ToolCall():
                calls += count_block(block, rates)
            case ReasoningBlock():
                reasoning += count_block(block, rates)
            case ImageBlock() | DocumentBlock():
                media += count_block(block, rates)
            case _:
                said += count_block(block, rates)
    by_role = {"assistant": "assistant", "user": "user"}.get(message.role, "system")
    return ContextTally(reasoning=reasoning, calls=calls, results=results, media=media, **{by_role: said})


def count_frame(
    transcript: Transcript, tools: Iterable[ToolSpec | HostedTool], output: OutputSchema | None, rates: TokenRates
) -> ContextTally:
    """Return the tokens of what stands before the messages: the system prompt, the tools and the shape of the answer."""
    system = sum(_bytes(block.text) for block in transcript.system_blocks) * rates.text
    declared, any_tool = 0.0, False
    for tool in tools:
        any_tool = True
        if type(tool) is ToolSpec:
            declared += rates.tool + (_bytes(tool.name) + _bytes(tool.description) + _bytes(tool.schema)) * rates.schema
    if output is not None and output.schema:
        declared += (_bytes(output.schema) + _bytes(output.description)) * rates.schema
    if any_tool:
        declared += rates.tools
    return ContextTally(system=system + rates.base + (rates.message if transcript.system_blocks else 0.0), tools=declared)


class KindCount(msgspec.Struct, frozen=True):
    """The estimate of the messages up to `node`, by kind."""

    rates: TokenRates = USUAL
    messages: ContextTally = ContextTally()
    node: Node | None = None

    def after(self, transcript: Transcript) -> "KindCount":
        """Return the count of a conversation: what is new is added if it goes on from here, else all is counted."""
        new = transcript.grown_from(self.node)
        tally = ContextTally() if new is None else self.messages
        for message in transcript.messages if new is None else new:
            tally += count_message(message, self.rates)
        return KindCount(self.rates, tally, transcript.head)


class Account(msgspec.Struct, frozen=True, gc=False):
    """The size of a conversation up to `node`. `reported` is the provider's count of the prompt that ended there, answer
    included; 0 if it gave none. `since` is the estimate of what came after that. `frame`, `plain` and `media` are estimates:
    of everything before the messages, of the messages without images and documents, and of those. `edited`: the provider
    shortens conversations itself, so it may count much less than it is sent.
    """

    rates: TokenRates = USUAL
    frame: float = 0.0
    node: Node | None = None
    reported: float = 0.0
    since: float = 0.0
    plain: float = 0.0
    media: float = 0.0
    edited: bool = False

    @property
    def total(self) -> float:
        """The tokens of the next prompt: what was reported and what is new; all of it estimated where nothing was reported."""
        return max(self.reported + self.since, 0.0) if self.reported else self.frame + self.plain + self.media

    def framed(self, frame: float) -> "Account":
        """Return it under another system prompt or other tools: the difference is added to what was reported."""
        return self if frame == self.frame else replace(self, frame=frame, since=self.since + frame - self.frame)

    def after(self, transcript: Transcript, target: Origin, *, saved: Mapping[str, float] = NO_EDITS) -> "Account":
        """Return the count of a conversation: what is new is added if it goes on from here, else all is counted.

        Answers of the `target` say what their prompt was. `saved` is what edits took away after the message of that id; an
        empty id says that they put something back, so that no answer knows the prompt.
        """
        if self.node is transcript.head:
            return self
        new = transcript.grown_from(self.node)
        start = self if new is not None else Account(self.rates, self.frame, edited=self.edited)
        rates, reported, since, plain, media = self.rates, start.reported, start.since, start.plain, start.media
        for message in transcript.messages if new is None else new:
            more, shown = size_message(message, rates)
            plain += more
            media += shown
            since += more + shown
            told = _count_reported(message, target, rates) if message.usage is not None else 0.0
            # a picture may be smaller than it is taken for, so it is no reason to doubt what was reported
            if told and "" not in saved and (self.edited or told * IMPLAUSIBLE >= plain + self.frame - ENOUGH):
                reported, since = told, 0.0
            if saved:
                since -= saved.get(message.id, 0.0)
        return Account(rates, self.frame, transcript.head, reported, since, plain, media, self.edited)


def _count_reported(message: Message, target: Origin, rates: TokenRates) -> float:
    """Return the tokens up to this answer and of the answer, if the same model reported them; else 0."""
    used, made = message.usage, message.origin
    if used is None or made is None or made.model != target.model or made.provider != target.provider or not used.input_total:
        return 0.0
    return used.input_total + used.output_total - used.reasoning * (1 - rates.hidden) + rates.message
