"""Nothing vanishes in silence: whatever stands in an ask is in the request, or a loss names its place.

One leaf of the ask is set at a time. Either the request then differs (and has the leaf's own words, if it has some), or a loss
has a path that covers the leaf, or lies within it. All built-in rows, on their wires.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import assert_never

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from msgspec.structs import replace

from evener.encodings import prepare
from evener.providers.rows import Provider, load_rows
from evener.transcript.ask import Ask, Cache, Choice, Extra, HostedTool, OutputSchema, Reasoning, Settings, State, ToolSpec
from evener.transcript.blocks import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    ResultContent,
    Seal,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import CODES, Loss
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.translate import origin
from evener.wire import CODECS, Encoded
from tests.laws.strategies import histories

ROWS = load_rows()
MODELS = {
    "anthropic_messages": "claude-sonnet-4-5",
    "openai_responses": "gpt-5.5",
    "openai_chat": "gpt-4.1",
    "gemini": "gemini-2.5-flash",
}
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"x": {"type": "string"}, "zebra": {"type": "string"}},
        "required": ["x", "zebra"],
        "additionalProperties": False,
    }
)
TOOLS = (ToolSpec("look", "Looks.", SCHEMA), ToolSpec("idle"))
MARK = "zebra"
PICTURE, PDF = "aW1hZ2V6", "JVBERi0xLjQK"
ELSEWHERE = Origin(wire="elsewhere", provider="elsewhere", model="m")


class Leaf(msgspec.Struct, frozen=True):
    """A place in an ask, the ask with something there, and the words that must stand in the request, if it has some."""

    path: str
    ask: Ask
    base: Ask
    word: str = ""

    def __str__(self) -> str:
        return self.path


def base_of(target: Origin, *, tools: bool) -> Ask:
    talk = [Message("user", (TextBlock("Hi."),), id="m1"), Message("assistant", (TextBlock("Hello."),), id="m2")]
    if tools:
        talk += [
            Message("user", (TextBlock("Look."),), id="m3"),
            Message("assistant", (TextBlock("I do."), ToolCall("c1", "look", '{"x":"y","zebra":"z"}')), id="m4"),
            Message("user", (ToolResult("c1", (TextBlock("seen"),)),), id="m5"),
        ]
    else:
        talk.append(Message("user", (TextBlock("Look."),), id="m3"))
    return Ask(Transcript(talk, system="Be brief."), target, TOOLS if tools else (), cache=Cache("marks"), stream=False)


def with_block(ask: Ask, message: str, place: int, block: Block) -> Ask:
    def changed(one: Message) -> Message:
        return replace(one, blocks=(*one.blocks[:place], block, *one.blocks[place + 1 :])) if one.id == message else one

    return replace(ask, transcript=Transcript([changed(one) for one in ask.transcript], system=ask.transcript.system_blocks))


def leaves(target: Origin) -> Iterator[Leaf]:
    plain, tools = base_of(target, tools=False), base_of(target, tools=True)
    yield from settings(plain)
    yield from wishes(plain, tools)
    yield from of_tools(tools)
    yield from of_words(tools, target)
    yield from of_calls(tools, target)
    yield from of_system(plain, target)


def settings(plain: Ask) -> Iterator[Leaf]:
    for name, value in (
        ("max_output_tokens", 7777), ("temperature", 0.25), ("top_p", 0.5), ("top_k", 7), ("stop", (MARK,)), ("seed", 77),
    ):  # fmt: skip
        made = replace(plain, settings=msgspec.convert({name: value}, Settings))
        yield Leaf(f"settings/{name}", made, plain, MARK if name == "stop" else "")
    for wish in ("low", "high", "max"):
        yield Leaf("reasoning/effort", replace(plain, reasoning=msgspec.convert({"effort": wish}, Reasoning)), plain)
    yield Leaf("reasoning/budget", replace(plain, reasoning=Reasoning(budget=3000)), plain)
    yield Leaf("reasoning/mode", replace(plain, reasoning=Reasoning(mode="between_tools")), plain)
    thinks = replace(plain, reasoning=Reasoning(mode="on", effort="high"), settings=Settings(max_output_tokens=30_000))
    for show in ("summary", "concise", "detailed"):
        for base in (plain, thinks):
            wished = replace(base.reasoning, show=show)
            yield Leaf("reasoning/show", replace(base, reasoning=wished), base)
    short = replace(
        plain, reasoning=Reasoning(mode="on", effort="high", show="summary"), settings=Settings(max_output_tokens=30_000)
    )
    for show in ("concise", "detailed"):  # as against a mere wish to see them
        yield Leaf("reasoning/show", replace(short, reasoning=replace(short.reasoning, show=show)), short)
    yield Leaf("cache/key", replace(plain, cache=Cache("marks", key=MARK)), plain, MARK)
    moving = replace(plain, cache=Cache("moving"))
    yield Leaf("cache/ttl", replace(plain, cache=Cache("moving", ttl="1h")), moving)
    yield Leaf("state/store", replace(plain, state=State(store=True)), plain)
    yield Leaf(
        "state/mode", replace(plain, state=State("chain", MARK, store=True)), replace(plain, state=State(store=True)), MARK
    )
    yield Leaf("state/sealed", replace(plain, state=State(sealed=True)), replace(plain, state=State(sealed=False)))


def wishes(plain: Ask, tools: Ask) -> Iterator[Leaf]:
    for wire in CODECS:
        body = json.dumps({MARK: 1})
        yield Leaf(f"extra/{MARK}", replace(plain, extra=(Extra(wire, body),)), plain, MARK)
        yield Leaf(f"extra/{MARK}", replace(plain, extra=(Extra(wire, body, provider="another"),)), plain, MARK)
        yield Leaf(f"extra/headers/{MARK}", replace(plain, extra=(Extra(wire, headers=((MARK, "1"),)),)), plain, MARK)
    for choice in (
        Choice("required"),
        Choice("none"),
        Choice("named", ("look",)),
        Choice("required", ("look",)),
        Choice("auto", ("look",)),
    ):
        yield Leaf("choice", replace(tools, choice=choice), tools)
    yield Leaf("choice", replace(tools, choice=Choice("named", ("look",))), replace(tools, choice=Choice("required")))
    yield Leaf("choice", replace(tools, choice=Choice("required", ("look",))), replace(tools, choice=Choice("required")))
    yield Leaf("choice", replace(plain, choice=Choice("required")), plain)
    for parallel in (True, False):
        yield Leaf("choice/parallel", replace(tools, choice=Choice(parallel=parallel)), tools)
        yield Leaf("choice/parallel", replace(plain, choice=Choice(parallel=parallel)), plain)
    shaped = OutputSchema(SCHEMA)
    for base in (plain, tools):
        whole = replace(base, output=shaped)
        yield Leaf("output", whole, base)
        yield Leaf("output/schema", whole, replace(base, output=OutputSchema(SCHEMA.replace(MARK, "giraffe"))), MARK)
        yield Leaf("output/strict", replace(base, output=replace(shaped, strict=True)), whole)
        yield Leaf("output/description", replace(base, output=replace(shaped, description=MARK * 2)), whole, MARK * 2)
        odd = '{"type":"object","properties":{"zebra":{"type":"string","not":{"const":"quagga"}}}}'
        yield Leaf("output/schema", replace(base, output=OutputSchema(odd, strict=True)), base, "quagga")
        loose = '{"type":"object","additionalProperties":{"type":"string","title":"quagga"}}'
        yield Leaf("output/schema", replace(base, output=OutputSchema(loose, strict=True)), base, "quagga")


def of_tools(tools: Ask) -> Iterator[Leaf]:
    look, idle = TOOLS

    def given(tool: ToolSpec) -> Ask:
        return replace(tools, tools=(tool, idle))

    yield Leaf("tools/look/description", given(replace(look, description=MARK * 2)), tools, MARK * 2)
    yield Leaf("tools/look/strict", given(replace(look, strict=True)), tools)
    for keyword, value in {
        "default": MARK, "examples": [MARK], "minLength": 2, "pattern": "^z", "format": MARK, "const": MARK, "title": MARK,
        "description": MARK, "enum": [MARK, 1], "$comment": MARK, "not": {"const": MARK}, "contentEncoding": MARK,
        "x-own": MARK,
    }.items():  # fmt: skip
        node = {
            "type": "object",
            "properties": {"x": {"type": "string", keyword: value}},
            "required": ["x"],
            "additionalProperties": False,
        }
        bare = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
        for strict in (None, True):
            spec = replace(look, schema=json.dumps(node), strict=strict)
            other = given(replace(look, schema=json.dumps(bare), strict=strict))
            yield Leaf(f"tools/look/schema/properties/x/{keyword}", given(spec), other)
    for wire in (*CODECS, "elsewhere"):
        extra = replace(look, extra=json.dumps({MARK * 2: 1}), wire=wire)
        yield Leaf("tools/look/extra", given(extra), tools, MARK * 2)
        yield Leaf("tools/look/extra", given(replace(extra, provider="another")), tools, MARK * 2)
        hosted = HostedTool(wire, json.dumps({"type": "quagga", "name": "quagga"}), "quagga")
        yield Leaf("tools/quagga", replace(tools, tools=(*TOOLS, hosted)), tools, "quagga")
    yield Leaf("tools/look/cache", given(replace(look, cache="5m")), tools)
    long = replace(look, name="z" * 140)
    yield Leaf(f"tools/{long.name}/name", given(long), tools, long.name)


def in_message(
    tools: Ask, message: str, place: int, block: Block, word: str = "", at: str = "", before: Block | None = None
) -> Leaf:
    base = tools if before is None else with_block(tools, message, place, before)
    path = f"messages/{message}/blocks/{place}" + (f"/{at}" if at else "")
    return Leaf(path, with_block(tools, message, place, block), base, word)


def seals_for(target: Origin) -> list[Seal]:
    """Seals of whom we ask, and of another; most wires seal in shapes of their own."""
    makers = (target, ELSEWHERE) if target.wire == "anthropic_messages" else (ELSEWHERE,)
    return [Seal(json.dumps({"quagga": "okapi"}), maker) for maker in makers]


def of_words(tools: Ask, target: Origin) -> Iterator[Leaf]:

    seals, leaf = seals_for(target), partial(in_message, tools)
    for message, place in (("m1", 0), ("m2", 0), ("m4", 0)):
        text = TextBlock(MARK)
        yield leaf(message, place, text, MARK)
        yield leaf(message, place, replace(text, cache="5m"), at="cache", before=text)
        yield leaf(
            message, place, replace(text, citations=(Citation("https://okapi.example", "Okapi"),)), "okapi", "citations", text
        )
        for seal in seals:
            yield leaf(message, place, replace(text, seal=seal), "okapi", "seal", text)
    for whose in (None, *seals):
        yield leaf("m2", 0, ReasoningBlock("quagga", whose), "quagga" if whose is None else "okapi")


def of_calls(tools: Ask, target: Origin) -> Iterator[Leaf]:
    seals, leaf = seals_for(target), partial(in_message, tools)
    call, result = ToolCall("c1", "look", '{"x":"okapi","zebra":"z"}'), ToolResult("c1", (TextBlock("seen"),))
    yield leaf("m4", 1, call, "okapi")
    yield leaf("m4", 1, ToolCall("c1", "look", "no JSON: okapi"), "okapi")
    yield leaf("m4", 1, replace(call, cache="5m"), at="cache", before=call)
    for seal in seals:
        yield leaf("m4", 1, replace(call, seal=replace(seal, data='{"quagga":"giraffe"}')), "giraffe", "seal", call)
        sealed = replace(result, seal=replace(seal, data='{"quagga":"giraffe"}'))
        yield leaf("m5", 0, sealed, "giraffe", "seal", result)
    yield leaf("m5", 0, replace(result, is_error=True), "", "is_error", result)
    yield leaf("m5", 0, replace(result, cache="5m"), "", "cache", result)
    for inner in media(target):
        word = next(word for word in (PICTURE, PDF, "okapi") if word in repr(inner))
        yield leaf("m5", 0, ToolResult("c1", (TextBlock("seen"), inner)), word, "content/1", result)
        yield leaf("m3", 0, inner, word)
        yield leaf("m2", 0, inner, word)
        for message in ("m2", "m3"):
            yield leaf(message, 0, replace(inner, cache="5m"), "", "cache", inner)
        marked = ToolResult("c1", (TextBlock("seen"), replace(inner, cache="5m")))
        yield leaf("m5", 0, marked, "", "content/1/cache", ToolResult("c1", (TextBlock("seen"), inner)))
        if not isinstance(inner, HostedBlock):
            for seal in seals:
                yield leaf("m3", 0, replace(inner, seal=replace(seal, data='{"quagga":"giraffe"}')), "giraffe", "seal", inner)
    picture = ImageBlock(Inline(PICTURE), "image/png")
    yield leaf("m3", 0, replace(picture, detail="low"), "", "detail", picture)
    paper = DocumentBlock(Inline(PDF), "application/pdf")
    yield leaf("m3", 0, replace(paper, name="okapi.pdf"), "okapi", "name", paper)
    for citing in (TextBlock("seen", (Citation("https://okapi.example"),)), *(TextBlock("seen", seal=seal) for seal in seals)):
        yield leaf("m5", 0, ToolResult("c1", (citing,)), "okapi", "content/0", result)
    yield leaf("m5", 0, ToolResult("c1", (TextBlock("seen", cache="5m"),)), "", "content/0/cache", result)


def of_system(plain: Ask, target: Origin) -> Iterator[Leaf]:
    seals = seals_for(target)
    for number, part in enumerate(
        (
            TextBlock("okapi"),
            TextBlock("x", (Citation("https://okapi.example"),)),
            *(TextBlock("x", seal=seal) for seal in seals),
        )
    ):
        base = replace(plain, transcript=Transcript(list(plain.transcript), system=[TextBlock("x"), TextBlock("y")]))
        made = replace(plain, transcript=Transcript(list(plain.transcript), system=[part, TextBlock("y")]))
        yield Leaf("system/0" if number else "system", made, base, "okapi")
    marked = replace(plain, transcript=Transcript(list(plain.transcript), system=[TextBlock("Be brief.", cache="5m")]))
    yield Leaf("system/0/cache", marked, plain)


def media(target: Origin) -> Iterator[ImageBlock | DocumentBlock | HostedBlock]:
    yield ImageBlock(Inline(PICTURE), "image/png")
    yield ImageBlock(Inline(PICTURE), "image/okapi")
    yield ImageBlock(Remote("https://okapi.example/a.png"), "image/png")
    yield ImageBlock(Uploaded("okapi", target.wire, target.provider), "image/png")
    yield ImageBlock(Uploaded("okapi", "elsewhere"), "image/png")
    yield DocumentBlock(Inline(PDF), "application/pdf", "a.pdf")
    yield DocumentBlock(Remote("https://okapi.example/a.pdf"), "application/pdf", "a.pdf")
    yield DocumentBlock(Inline(PDF), "application/x-okapi", "a.pdf")
    yield HostedBlock('{"type":"quagga","okapi":1}', target.wire, "okapi", provider=target.provider)
    yield HostedBlock('{"type":"quagga","okapi":1}', "elsewhere", "okapi")


WHOLE = {"cache": "/cache", "reasoning/mode": "reasoning/", "output/schema": "output/strict"}
"""Places whose loss is one of others, too: marks are counted together; where nothing thinks, nothing thinks hard."""


def covers(loss: Loss, path: str) -> bool:
    """Whether a loss is about this place, about what it stands in, or about something in it."""
    if WHOLE.get(loss.path, "-") in path:
        return True
    one, other = f"{loss.path}/", f"{path}/"
    return one.startswith(other) or other.startswith(one)


def is_met(leaf: Leaf, row: Provider, *, prepared: bool) -> bool:
    """Whether the endpoint does by itself what is asked for."""
    ask, quirks = leaf.ask, ROWS.quirks(row.name, leaf.ask.target.model)
    in_text = prepared and quirks.tool_encoding != "native"
    match leaf.path:
        case "choice/parallel":
            return bool(ask.tools) and (in_text or row.wire == "gemini")  # one envelope holds one call; this wire makes many
        case "reasoning/show":
            return quirks.reasoning_display == "exclude" and ask.reasoning.show == "summary"  # shown unless excluded
        case "output/strict" | "tools/look/strict":
            return in_text or (row.wire in ("anthropic_messages", "gemini") and leaf.path == "output/strict")  # enforced always
        case "state/sealed":
            return row.wire in ("anthropic_messages", "gemini")  # signed always
        case _:
            return False


def encoded(ask: Ask, row: Provider, *, prepared: bool) -> tuple[Encoded, tuple[Loss, ...]]:
    quirks = ROWS.quirks(row.name, ask.target.model)
    made = prepare(ask, quirks) if prepared else None
    found = CODECS[row.wire].encode(made.ask if made else ask, quirks, None)
    return found, (*(made.losses if made else ()), *found.losses)


def vanished(leaf: Leaf, row: Provider, *, prepared: bool) -> str:
    """What is wrong; empty when nothing is."""
    sent, losses = encoded(leaf.ask, row, prepared=prepared)
    if wrong := [loss for loss in losses if not (loss.code and loss.path)]:
        return f"{leaf}: a loss without code or path: {wrong}"
    if any(covers(loss, leaf.path) for loss in losses) or is_met(leaf, row, prepared=prepared):
        return ""
    in_text = prepared and ROWS.quirks(row.name, leaf.ask.target.model).tool_encoding != "native"
    if in_text and any(loss.message and f"messages/{loss.message}/" in leaf.path for loss in losses):
        return ""  # calls and results are other blocks there
    before, _ = encoded(leaf.base, row, prepared=prepared)
    whole, old = (one.body + repr(one.headers).encode() + one.path.encode() for one in (sent, before))
    if leaf.word:
        return (
            ""
            if leaf.word.encode() in whole
            else f"{leaf}: {leaf.word!r} is in no request and no loss: {[one.code for one in losses]}"
        )
    return (
        ""
        if whole != old
        else f"{leaf}: nothing changed, and no loss says so: {leaf.ask.reasoning} {[one.code for one in losses]}"
    )


@pytest.mark.parametrize("prepared", [True, False], ids=["prepared", "translated"])
@pytest.mark.parametrize("row", ROWS.providers, ids=lambda row: row.name)
def test_nothing_vanishes_in_silence(row: Provider, prepared: bool) -> None:
    target = origin(row, MODELS[row.wire])
    found = {text for leaf in leaves(target) if (text := vanished(leaf, row, prepared=prepared))}
    assert sorted(found) == []


# Any conversation: a mark is planted in each block.


def planted(block: Block, mark: str) -> Block:
    match block:
        case TextBlock(text=text):
            return replace(block, text=mark) if text.strip() else block
        case ReasoningBlock():
            return replace(block, text=mark)
        case ToolCall():
            return replace(block, raw=json.dumps({"mark": mark}))
        case ToolResult():
            return replace(block, content=(TextBlock(mark), *(at_hand(one) for one in block.content)))
        case ImageBlock() | DocumentBlock():
            return replace(at_hand(block), source=Remote(f"https://{mark}.example"))
        case HostedBlock():
            return replace(block, text=mark, raw=json.dumps({"type": "web_search", "mark": mark}))
        case _:
            assert_never(block)


def at_hand(block: ResultContent) -> ResultContent:
    stored = isinstance(block, ImageBlock | DocumentBlock) and isinstance(block.source, Stored)
    return replace(block, source=Inline(PICTURE)) if stored else block


@pytest.mark.parametrize("wire", CODECS)
@settings_of(max_examples=40)
@given(history=histories())
def test_nothing_of_any_conversation_vanishes_in_silence(wire: str, history: list[Message]) -> None:
    row = next(row for row in ROWS.providers if row.wire == wire)
    talk = [
        replace(one, blocks=tuple(planted(block, f"mark-{one.id}-{place}-") for place, block in enumerate(one.blocks)))
        for one in history
    ]
    ask = Ask(Transcript(talk), origin(row, MODELS[wire]), TOOLS, stream=False)
    sent, losses = encoded(ask, row, prepared=True)
    assert all(loss.code in CODES and loss.path for loss in losses)
    lost = [loss.path for loss in losses]
    for message in talk:
        for place, block in enumerate(message.blocks):
            here = f"messages/{message.id}/blocks/{place}"
            is_told = any(path == here or path.startswith(f"{here}/") or path == f"messages/{message.id}" for path in lost)
            is_empty = isinstance(block, TextBlock) and not block.text
            assert is_told or is_empty or f"mark-{message.id}-{place}-".encode() in sent.body


@pytest.mark.parametrize("path", ["settings/seed", "messages/m1/blocks/0", "tools/look/schema/properties/x/default"])
def test_what_vanishes_is_found(path: str) -> None:
    row = ROWS.provider("openai")
    bare = base_of(origin(row, MODELS[row.wire]), tools=True)
    assert vanished(Leaf(path, bare, bare), row, prepared=True)
    assert vanished(Leaf(path, bare, bare, "quagga"), row, prepared=False)


@pytest.mark.parametrize(
    ("path", "is_covered"),
    [("settings", True), ("settings/seed", True), ("settings/seed/x", True), ("settings/se", False), ("settings/stop", False)],
)
def test_a_loss_covers_its_place_what_it_stands_in_and_what_stands_in_it(path: str, is_covered: bool) -> None:
    assert covers(Loss("dropped", "w", "y", code="setting.seed.dropped", path=path), "settings/seed") is is_covered
