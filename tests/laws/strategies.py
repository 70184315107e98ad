"""Conversations for Hypothesis: legal ones, and what is left of them after damage. For the laws of every layer.

histories()         legal by the rules of repair: it must leave them alone
damaged(history)    the same after messages and blocks were dropped, doubled, moved, emptied or renamed
messages()          any message: each block kind in each role
wild()              anything of the above
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import count, product
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from evener.transcript import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Remote,
    ResultContent,
    Role,
    Seal,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Transcript,
    Uploaded,
    Usage,
)
from evener.transcript.blocks import HostedRole

T = TypeVar("T")

# One draw takes a whole block from a pool: what the laws are about is how blocks stand together.
WORDS = ("hello", "a", "Grüße", "\U0001f600", "line\u2028line", " padded ", '"quoted\\')
BLANKS = ("", " ", "\n\t")
IDS = ("", "a", "b", "a_2", "call_1", "Größe 4")
NAMES = ("", "rs_1", "sig_1")
ROLES: tuple[Role, ...] = ("user", "assistant", "system")
TIMES = (None, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC))
OBJECTS = ("{}", '{"signature":"c2ln"}', '{"id":"x_1","parts":[1,2.50,null]}', '{"q":"Größe \\u00e9 \\ud83d\\ude00"}')
ARGUMENTS = (*OBJECTS, "", "{", "[]", '{"a":')
ORIGINS = (None, Origin("gemini", "p", "", "m"), Origin("anthropic_messages", "q", "https://x", "n", "acc"), Origin())
USAGES = (None, Usage(), Usage(10, 7, 2, 1, 5, 3))
SOURCES: tuple[Source, ...] = (
    Inline("aGVsbG8="),
    Remote("https://example.org/x"),
    Stored("sha256:0", 5),
    Uploaded("file_1", "openai_responses"),
)
CITED = (Citation("https://example.org", "t", "q", 0, 1), Citation())
SEALS = tuple(
    Seal(data, origin, binding) for data, origin, binding in zip(OBJECTS, ORIGINS[1:], ("", "f00d", ""), strict=False) if origin
)
MAYBE_SEALED = (None, *SEALS)


def sealed(names: Iterable[str]) -> list[Seal | None]:
    """No seal, and one under each name."""
    return [None, *(replace(SEALS[number % len(SEALS)], id=name) for number, name in enumerate(names))]


SPOKEN = (
    *(TextBlock(text) for text in WORDS),
    *(TextBlock("sealed", (), seal) for seal in SEALS),
    TextBlock("marked", cache="5m"),
    TextBlock("cited", CITED, SEALS[0], "1h"),
)
SILENT = tuple(TextBlock(blank, CITED[:number]) for number, blank in enumerate(BLANKS))
IMAGES = tuple(ImageBlock(source, "image/png", cache="5m" if number else "") for number, source in enumerate(SOURCES))
DOCUMENTS = tuple(
    DocumentBlock(source, media, "x") for source, media in product(SOURCES[:2], ("application/pdf", "text/plain"))
)
HOSTED = (HostedBlock("{}", "gemini"), HostedBlock('{"type":"web_search"}', "openai_responses", "looked", cache="1h"))
MEDIA: tuple[ImageBlock | DocumentBlock | HostedBlock, ...] = (*IMAGES, *DOCUMENTS, *HOSTED)
CONTENTS: tuple[tuple[ResultContent, ...], ...] = (
    (),
    (SPOKEN[0],),
    (SILENT[0],),
    (SPOKEN[1], IMAGES[0]),
    (DOCUMENTS[0], HOSTED[1]),
)
THOUGHTS = tuple(ReasoningBlock(text, seal) for text, seal in product(("", "because"), MAYBE_SEALED))
PAIRS = (("", ""), ("x", ""), ("y", ""), ("", "x"), ("", "y"), ("x", "y"), ("x", "x"))
WHOSE: tuple[HostedRole, ...] = ("", "user", "assistant", "system", "result")

WILD: tuple[Block, ...] = (
    *SPOKEN,
    *SILENT,
    *MEDIA,
    *THOUGHTS,
    *(TextBlock(text, (), seal) for text, seal in product(("", "x"), sealed(NAMES))),
    *(ReasoningBlock(text, seal) for text, seal in product(("", "x"), sealed(NAMES))),
    *(ToolCall(id, "f", raw) for id, raw in product(IDS, ("{}", '{"a":'))),
    *(ToolCall("a", "f", "{}", seal) for seal in sealed(NAMES)),
    *(ToolResult(id, content) for id, content in product(IDS, CONTENTS[:2])),
    *(ToolResult("a", content, True, SEALS[0], "5m") for content in CONTENTS),
    *(HostedBlock("{}", "gemini", "h", opens=opens, closes=closes) for opens, closes in PAIRS),
    *(HostedBlock("{}", "gemini", "h", whose, id=name) for whose, name in product(WHOSE, NAMES)),
)
"""Every kind of block, with names and ids that collide, are foreign or empty."""


def messages() -> SearchStrategy[Message]:
    """Any message: each block kind in each role. Ids may collide."""
    return st.builds(
        Message,
        st.sampled_from(ROLES),
        st.lists(st.sampled_from(WILD), max_size=4).map(tuple),
        st.sampled_from([f"w{number}" for number in range(20)]),
        created_at=st.sampled_from(TIMES),
        origin=st.sampled_from(ORIGINS),
        usage=st.sampled_from(USAGES),
    )


class _Writer:
    """Writes one legal conversation. Ids are numbers in order."""

    def __init__(self, draw: DrawFn) -> None:
        self.draw = draw
        self.serial = count()

    def one(self, pool: Sequence[T]) -> T:
        return self.draw(st.sampled_from(pool))

    def message(self, role: Role, blocks: Sequence[Block]) -> Message:
        origin, usage = (self.one(ORIGINS), self.one(USAGES)) if role == "assistant" else (None, None)
        return Message(role, tuple(blocks), f"m{next(self.serial)}", "", self.one(TIMES), origin, usage)

    def said(self) -> list[Block]:
        some = st.sampled_from([self.words, self.call, self.call, self.pair, self.media])
        kinds = self.draw(st.lists(some, min_size=1, max_size=3))
        return [block for kind in kinds for block in (*self.thought(), *kind())]

    def thought(self) -> list[Block]:
        block = self.one((None, *THOUGHTS))
        if block and block.seal and self.one((False, True)):
            block = replace(block, seal=replace(block.seal, id=f"rs_{next(self.serial)}"))
        return [block] if block else []

    def words(self) -> list[Block]:
        blank = self.one((None, *SEALS))
        return [*([TextBlock("", seal=blank)] if blank else []), self.one(SPOKEN)]

    def call(self) -> list[Block]:
        return [ToolCall(f"call_{next(self.serial)}", self.one(WORDS), self.one(ARGUMENTS), self.one(MAYBE_SEALED))]

    def pair(self) -> list[Block]:
        id = f"srv_{next(self.serial)}"
        return [replace(self.one(HOSTED), opens=id, id=id), HostedBlock("{}", "gemini", "ended", "assistant", closes=id)]

    def media(self) -> list[Block]:
        return [self.one(MEDIA)]

    def came_back(self, calls: Sequence[ToolCall]) -> list[Message]:
        results = [ToolResult(call.id, self.one(CONTENTS), self.one((False, True))) for call in calls]
        others = [self.one((*SPOKEN, *MEDIA)) for _ in range(self.one((0, 0, 1, 2)) if results else 1)]
        back = [self.message("user", [*results, *others])]
        after: tuple[Role, ...] = self.one(((), (), (), ("system",), ("system", "system"), ("system", "user")))
        return back + [self.message(role, [self.one(SPOKEN)]) for role in after]


@st.composite
def histories(draw: DrawFn, *, max_exchanges: int = 3) -> list[Message]:
    """A legal conversation: what repair must leave alone, whatever its rules."""
    writer = _Writer(draw)
    made = list(writer.came_back(())) if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, max_exchanges))):
        spoken = writer.message("assistant", writer.said())
        made += [spoken, *writer.came_back(spoken.calls)]
    if draw(st.booleans()) and made:
        made.append(writer.message("assistant", writer.words()))
    return made


def _dropped(_draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    return history[:at] + history[at + 1 :]


def _doubled(draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    copy = history[at] if draw(st.booleans()) else replace(history[at], id=f"{history[at].id}-again")
    where = draw(st.integers(0, len(history)))
    return [*history[:where], copy, *history[where:]]


def _moved(draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    rest = history[:at] + history[at + 1 :]
    where = draw(st.integers(0, len(rest)))
    return [*rest[:where], history[at], *rest[where:]]


def _intruded(draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    return [*history[:at], draw(messages()), *history[at:]]


def _recast(draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    return [*history[:at], replace(history[at], role=draw(st.sampled_from(ROLES))), *history[at + 1 :]]


def _reshuffled(draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    blocks = draw(st.permutations(history[at].blocks))
    kept = blocks[draw(st.integers(0, 1)) :]
    doubled = [*kept, *kept[:1]] if draw(st.booleans()) else kept
    return [*history[:at], replace(history[at], blocks=tuple(doubled)), *history[at + 1 :]]


def _altered(draw: DrawFn, history: list[Message], at: int) -> list[Message]:
    blocks = list(history[at].blocks)
    if not blocks:
        return history
    place = draw(st.integers(0, len(blocks) - 1))
    match blocks[place]:
        case TextBlock() as text:
            blocks[place] = replace(text, text=draw(st.sampled_from((*BLANKS, *WORDS))))
        case ToolCall() as call:
            blocks[place] = replace(call, id=draw(st.sampled_from(IDS)))
        case ToolResult() as result:
            blocks[place] = replace(result, call_id=draw(st.sampled_from(IDS)))
        case ReasoningBlock(seal=Seal() as seal) as thought:
            blocks[place] = replace(thought, seal=replace(seal, id=draw(st.sampled_from(NAMES))))
        case _:
            blocks[place] = draw(st.sampled_from(WILD))
    return [*history[:at], replace(history[at], blocks=tuple(blocks)), *history[at + 1 :]]


Damage = Callable[[DrawFn, list[Message], int], list[Message]]
DAMAGE: tuple[Damage, ...] = (_dropped, _doubled, _moved, _intruded, _recast, _reshuffled, _altered)


@st.composite
def damaged(draw: DrawFn, history: list[Message]) -> list[Message]:
    """The history after one to four accidents."""
    for _ in range(draw(st.integers(1, 4))):
        if history:
            history = draw(st.sampled_from(DAMAGE))(draw, history, draw(st.integers(0, len(history) - 1)))
    return history


def wild() -> SearchStrategy[list[Message]]:
    """Any list of messages: legal, damaged, or never a conversation at all."""
    return st.one_of(histories().flatmap(damaged), st.lists(messages(), max_size=6), histories())


def transcripts() -> SearchStrategy[Transcript]:
    """Any transcript, under any system prompt."""
    return st.builds(Transcript, wild(), st.lists(st.sampled_from((*SPOKEN, *SILENT)), max_size=2))
