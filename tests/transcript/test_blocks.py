"""Blocks: a closed union of frozen values that cannot be made wrong."""

from collections.abc import Callable
from typing import assert_never

import msgspec
import pytest
from msgspec.structs import fields, replace

from evener.errors import BadValue
from evener.transcript import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    Seal,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
    Usage,
)

LONE = "\ud800"
SEAL = Seal('{"signature":"c2ln"}', Origin("anthropic_messages"))
ONE_OF_EACH: list[Block] = [
    TextBlock("hi"),
    ImageBlock(Remote("https://example.org/x.png")),
    DocumentBlock(Inline("aGk="), "text/plain"),
    ReasoningBlock("because"),
    ToolCall("1", "add", '{"a":1}'),
    ToolResult("1", (TextBlock("2"),)),
    HostedBlock("{}", "gemini"),
]
KINDS = ["text", "image", "document", "reasoning", "tool_call", "tool_result", "hosted"]


@pytest.mark.parametrize(("block", "kind"), list(zip(ONE_OF_EACH, KINDS, strict=True)), ids=KINDS)
def test_a_block_tells_its_kind_in_python_and_in_json(block: Block, kind: str) -> None:  # S0.9, S0.10
    assert block.kind == kind
    assert msgspec.json.decode(msgspec.json.encode(block), type=dict[str, object])["kind"] == kind


@pytest.mark.parametrize(
    "value", [*ONE_OF_EACH, SEAL, Origin(), Citation(), Usage(), Inline(""), Stored(""), Uploaded("")], ids=repr
)
def test_a_value_cannot_be_changed(value: msgspec.Struct) -> None:  # S0.11
    for field in fields(value):
        with pytest.raises(AttributeError):
            setattr(value, field.name, None)
    with pytest.raises(AttributeError):
        value.__dict__  # noqa: B018 - there is none to write to
    assert len({value, replace(value)}) == 1  # it is hashable, and a replacement with nothing new is equal


def test_a_change_is_a_replacement() -> None:  # S0.11
    block = TextBlock("hi")
    assert replace(block, text="ho") == TextBlock("ho")
    assert block == TextBlock("hi")


def test_a_match_on_kinds_is_exhaustive() -> None:
    def size(block: Block) -> int:
        match block:
            case TextBlock(text) | ReasoningBlock(text):
                return len(text)
            case ToolCall(raw=raw) | HostedBlock(raw=raw):
                return len(raw)
            case ToolResult():
                return len(block.text)
            case ImageBlock() | DocumentBlock():
                return 1000
            case _:
                assert_never(block)

    assert [size(block) for block in ONE_OF_EACH] == [2, 1000, 1000, 7, 7, 1, 2]


def test_arguments_are_decoded_afresh_on_each_look() -> None:  # S0.9, S0.17
    call = ToolCall("1", "add", '{"a": {"b": [1]}}')
    call.args["a"] = "changed"
    inner = call.args["a"]
    assert isinstance(inner, dict)
    inner["b"].append(2)
    assert call.args == {"a": {"b": [1]}}
    assert call.raw == '{"a": {"b": [1]}}'


def test_arguments_given_as_a_mapping_are_copied() -> None:  # S0.17
    args: dict[str, object] = {"a": [1]}
    calls = [ToolCall("1", "add", args), ToolCall.of("1", "add", args)]  # type: ignore[arg-type]
    args["a"] = "changed"
    for call in calls:
        assert call.args == {"a": [1]}
        assert call.raw == '{"a":[1]}'


@pytest.mark.parametrize("raw", ["", "{", "[]", "null", '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}', '{"a":' * 5000])
def test_arguments_that_do_not_parse_are_kept_and_never_guessed(raw: str) -> None:
    call = ToolCall("1", "add", raw)
    assert call.raw == raw
    assert not call.parses
    with pytest.raises(BadValue, match="not a JSON object"):
        call.args  # noqa: B018


def test_a_call_without_arguments_has_none() -> None:
    assert ToolCall("1", "now").args == {}
    assert ToolCall("1", "now").parses


class Opaque: ...


LOOP: dict[str, object] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    "args",
    [
        {"a": Opaque()},
        {"a": float("nan")},
        {"a": [1, {"b": float("inf")}]},
        {"a": None, "b": (float("-inf"),)},
        {1: 2},
        {"a": LONE},
        {LONE: 1},
        LOOP,
    ],
    ids=lambda args: repr(args)[:30].encode("ascii", "replace").decode(),
)
def test_arguments_that_are_not_json_are_refused(args: dict[str, object]) -> None:  # S0.53
    with pytest.raises(BadValue, match="arguments of a tool call must be a JSON object"):
        ToolCall.of("1", "add", args)


def test_reasoning_has_one_name_and_keeps_its_makers_fields() -> None:  # S0.9, S0.20
    block = ReasoningBlock("because", SEAL)
    assert block.metadata == {"signature": "c2ln"}
    block.metadata["signature"] = "changed"
    assert block.metadata == {"signature": "c2ln"}
    assert ReasoningBlock("because").metadata == {}


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("", ()),
        ("4", (TextBlock("4"),)),
        ([TextBlock("a"), TextBlock("b")], (TextBlock("a"), TextBlock("b"))),
        (iter([TextBlock("a")]), (TextBlock("a"),)),
    ],
    ids=["empty", "text", "list", "iterator"],
)
def test_the_content_of_a_result_is_always_blocks(content: object, blocks: tuple[TextBlock, ...]) -> None:  # S0.5
    result = ToolResult("1", content)  # type: ignore[arg-type]
    assert result.content == blocks
    assert result.text == "\n".join(block.text for block in blocks)
    assert not result.is_error


def test_citations_given_as_a_list_are_frozen() -> None:
    block = TextBlock("a", [Citation("u")])  # type: ignore[arg-type]
    assert block == TextBlock("a", (Citation("u"),))
    assert hash(block) == hash(TextBlock("a", (Citation("u"),)))


class Loud(str):
    """A str that is not one."""


class Wider(TextBlock, frozen=True, tag="text", tag_field="kind"):  # type: ignore[misc]
    """A block that could not be read back."""

    more: int = 0


def made(kind: Callable[..., object], *given: object, **named: object) -> Callable[[], object]:
    return lambda: kind(*given, **named)


# What is made, and the field that the error names.
WRONG: list[tuple[Callable[[], object], str]] = [
    (made(TextBlock, 5), "TextBlock.text"),
    (made(TextBlock, None), "TextBlock.text"),
    (made(TextBlock, b"hi"), "TextBlock.text"),
    (made(TextBlock, Loud("hi")), "TextBlock.text"),
    (made(TextBlock, LONE), "TextBlock.text"),
    (made(TextBlock, "a", "cited"), "TextBlock.citations"),
    (made(TextBlock, "a", ("cited",)), "TextBlock.citations"),
    (made(TextBlock, "a", seal="x"), "TextBlock.seal"),
    (made(TextBlock, "a", cache="2h"), "TextBlock.cache"),
    (made(TextBlock, "a", cache=None), "TextBlock.cache"),
    (made(Citation, 5), "Citation.url"),
    (made(Citation, "u", LONE), "Citation.title"),
    (made(Citation, "u", "t", LONE), "Citation.quote"),
    (made(Citation, start=1.0), "Citation.start"),
    (made(Citation, end=True), "Citation.end"),
    (made(Inline, b"aGk="), "Inline.data"),
    (made(Remote, LONE), "Remote.url"),
    (made(Stored, 5), "Stored.digest"),
    (made(Stored, "d", "5"), "Stored.size"),
    (made(Uploaded, None), "Uploaded.file_id"),
    (made(Uploaded, "f", LONE), "Uploaded.wire"),
    (made(Uploaded, "f", "w", LONE), "Uploaded.provider"),
    (made(ImageBlock, "https://example.org"), "ImageBlock.source"),
    (made(ImageBlock, Inline(""), 5), "ImageBlock.media_type"),
    (made(ImageBlock, Inline(""), detail=LONE), "ImageBlock.detail"),
    (made(ImageBlock, Inline(""), seal={}), "ImageBlock.seal"),
    (made(DocumentBlock, None), "DocumentBlock.source"),
    (made(DocumentBlock, Inline(""), LONE), "DocumentBlock.media_type"),
    (made(DocumentBlock, Inline(""), name=5), "DocumentBlock.name"),
    (made(DocumentBlock, Inline(""), cache=0), "DocumentBlock.cache"),
    (made(ReasoningBlock, 5), "ReasoningBlock.text"),
    (made(ReasoningBlock, "a", {"signature": "x"}), "ReasoningBlock.seal"),
    (made(ReasoningBlock, "a", None, -1), "ReasoningBlock.tokens"),
    (made(ToolCall, 5, "f"), "ToolCall.id"),
    (made(ToolCall, "1", LONE), "ToolCall.name"),
    (made(ToolCall, "1", "f", 5), "ToolCall.raw"),
    (made(ToolCall, "1", "f", LONE), "ToolCall.raw"),
    (made(ToolCall, "1", "f", seal=5), "ToolCall.seal"),
    (made(ToolResult, None), "ToolResult.call_id"),
    (made(ToolResult, "1", 5), "ToolResult.content"),
    (made(ToolResult, "1", {"text": "a"}), "ToolResult.content"),
    (made(ToolResult, "1", ("a",)), "ToolResult.content"),
    (made(ToolResult, "1", (ToolCall("2", "f"),)), "ToolResult.content"),
    (made(ToolResult, "1", (Wider("a"),)), "ToolResult.content"),
    (made(ToolCall, "1", "f", redacted=1), "ToolCall.redacted"),
    (made(ToolResult, "1", is_error=1), "ToolResult.is_error"),
    (made(HostedBlock, "not json", "w"), "HostedBlock.raw"),
    (made(HostedBlock, "[]", "w"), "HostedBlock.raw"),
    (made(HostedBlock, '{"a":NaN}', "w"), "HostedBlock.raw"),
    (made(HostedBlock, '{"a":' * 5000, "w"), "HostedBlock.raw"),
    (made(HostedBlock, {}, "w"), "HostedBlock.raw"),
    (made(HostedBlock, "{}", 5), "HostedBlock.wire"),
    (made(HostedBlock, "{}", "w", LONE), "HostedBlock.text"),
    (made(HostedBlock, "{}", "w", role="tool"), "HostedBlock.role"),
    (made(HostedBlock, "{}", "w", opens=5), "HostedBlock.opens"),
    (made(HostedBlock, "{}", "w", closes=LONE), "HostedBlock.closes"),
    (made(HostedBlock, "{}", "w", id=None), "HostedBlock.id"),
    (made(HostedBlock, "{}", "w", provider=5), "HostedBlock.provider"),
    (made(HostedBlock, "{}", "w", cache="x"), "HostedBlock.cache"),
    (made(Seal, ""), "Seal.data"),
    (made(Seal, "[1]"), "Seal.data"),
    (made(Seal, '{"a":1} '.rstrip() + "x"), "Seal.data"),
    (made(Seal, {"a": 1}), "Seal.data"),
    (made(Seal, "{}", "w"), "Seal.origin"),
    (made(Seal, "{}", Origin(), b"x"), "Seal.binding"),
    (made(Seal, "{}", Origin(), "", LONE), "Seal.id"),
    (made(Origin, 5), "Origin.wire"),
    (made(Origin, provider=LONE), "Origin.provider"),
    (made(Origin, endpoint=None), "Origin.endpoint"),
    (made(Origin, model=b"m"), "Origin.model"),
    (made(Origin, account=1), "Origin.account"),
]


@pytest.mark.parametrize(("make", "field"), WRONG, ids=[f"{number}-{field}" for number, (_, field) in enumerate(WRONG)])
def test_a_wrong_field_is_refused_when_the_value_is_made(make: Callable[[], object], field: str) -> None:  # S0.5, S0.53
    with pytest.raises(BadValue, match=field):
        make()


def test_every_field_of_every_value_is_checked() -> None:
    values = (TextBlock, ImageBlock, DocumentBlock, ReasoningBlock, ToolCall, ToolResult, HostedBlock)
    values += (Citation, Inline, Remote, Stored, Uploaded, Seal, Origin)  # type: ignore[assignment]
    known = {f"{value.__name__}.{field.name}" for value in values for field in fields(value)}
    shared = {
        f"{kind}.{field}" for kind in ("ImageBlock", "DocumentBlock", "ToolCall", "ToolResult") for field in ("seal", "cache")
    }
    assert known - {field for _, field in WRONG} <= shared  # the same check as TextBlock's
