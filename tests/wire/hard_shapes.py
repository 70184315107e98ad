"""Conversations and asks that providers are known to refuse as they are, and the rows that each of them is sent to.

A shape is a name and an ask without a target. `rows_and_models` are all built-in rows, each with models of different habits.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from evener.providers.rows import Rows, load_rows
from evener.testing import check_request
from evener.testing.check import DIALECTS, Violation
from evener.transcript import (
    Ask,
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Remote,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
    Uploaded,
)
from evener.transcript.ask import Cache, Choice, HostedTool, OutputSchema, Reasoning, Settings
from evener.translate import origin
from evener.wire import CODECS, Encoded

Json = dict[str, object]
NOWHERE = Origin()

CLAUDES = ("claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-5-5", "claude-3-5-haiku-latest")
GPTS = ("gpt-4o", "gpt-5", "gpt-5.4", "o3")
GEMINIS = ("gemini-2.0-flash", "gemini-2.5-flash", "gemini-3-pro-preview", "gemini-3.8-flash")
MODELS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("anthropic", "claude-aws", "bedrock", "bedrock-mantle", "vertex", "foundry"), CLAUDES),
    **dict.fromkeys(("openai", "azure", "bedrock-mantle-openai", "openai-chat", "azure-chat"), GPTS),
    **dict.fromkeys(("google", "google-vertex"), GEMINIS),
    "openrouter-anthropic": ("anthropic/claude-opus-4.6",),
    "openrouter": ("anthropic/claude-opus-4.6", "openai/gpt-4o"),
    "deepseek": ("deepseek-v4-pro", "deepseek-chat"),
    "kimi": ("kimi-k3", "kimi-k2.6"),
    "groq": ("openai/gpt-oss-120b", "qwen/qwen3-32b"),
    "xai": ("grok-4.5", "grok-4.20"),
}
"""Models of different habits. A row that is not listed has a model that nobody knows."""
UNKNOWN = ("house-model",)

PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
SVG = b64encode(b"<svg/>").decode()
PDF = b64encode(b"%PDF-1.7").decode()


@cache
def rows() -> Rows:
    return load_rows()


def rows_and_models() -> Iterator[tuple[str, str]]:
    """Every built-in row, with each model that it may have."""
    for row in rows().providers:
        for model in MODELS.get(row.name, MODELS.get(row.vendor, UNKNOWN) if row.wire == "openai_chat" else UNKNOWN):
            yield row.name, model


# Tools, as they come from elsewhere.

WORD: Json = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
NUMBER: Json = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
SCHEMAS: dict[str, Json] = {
    "nothing": {},
    "no type": {"properties": {"word": {"type": "string"}}},
    "no properties": {"type": "object"},
    "an object or null": {**WORD, "type": ["object", "null"]},
    "anyOf": {"anyOf": [WORD, NUMBER]},
    "oneOf beside properties": {**WORD, "oneOf": [{"required": ["word"]}, {"required": ["other"]}]},
    "oneOf with a kind": {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}, "a": {}}, "required": ["kind"]},
            {"type": "object", "properties": {"kind": {"const": "b"}, "b": {}}, "required": ["kind"]},
        ]
    },
    "anyOf of an object and other types": {"anyOf": [WORD, {"type": "null"}, {"type": "string"}]},
    "allOf": {"allOf": [WORD, NUMBER]},
    "allOf that contradicts": {"allOf": [WORD, {"type": "object", "properties": {"word": {"type": "integer"}}}]},
    "a reference": {"$ref": "#/$defs/Word", "$defs": {"Word": WORD}},
    "a reference to a reference": {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [WORD, NUMBER]}}},
    "older definitions": {"$ref": "#/definitions/Word", "definitions": {"Word": WORD}},
    "a tree": {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}, "right": {"$ref": "#/$defs/Node"}}}
        },
    },
    "an object of itself, or null": {"anyOf": [{"type": "object", "properties": {"child": {"$ref": "#"}}}, {"type": "null"}]},
    "a tuple": {"type": "object", "properties": {"at": {"type": "array", "items": [{"type": "number"}, {"type": "string"}]}}},
    "a closed tuple": {
        "type": "object",
        "properties": {
            "at": {"type": "array", "items": [{"type": "number"}], "additionalItems": False},
            "to": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False, "minItems": 2},
        },
    },
    "a list of anything": {"type": "object", "properties": {"list": {"type": "array"}, "more": {"type": ["array", "null"]}}},
    "true and false": {"type": "object", "properties": {"a": True, "b": False, "c": {"type": "array", "items": True}}},
    "an older draft": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "required": True},
            "kind": {"type": "STRING"},
            "any": {"type": "any"},
            "none": {"enum": []},
            "odd": "string",
        },
    },
    "a reference to nowhere": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/gone"}, "b": {"$ref": "https://x.example/s"}},
    },
    "not": {**WORD, "not": {"required": ["other"]}},
    "if": {**WORD, "if": {"required": ["word"]}, "then": {"required": ["more"]}},
    "names with brackets": {"type": "object", "properties": {"filter[id]": {"type": "string"}, "$top": {"type": "integer"}}},
    "another type": {"type": "string"},
    "only other types": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "a root that is an external reference": {"$ref": "https://x.example/s"},
    "a root that refers to itself": {"$ref": "#"},
}


def said(*blocks: Block | str) -> Message:
    return Message("user", tuple(TextBlock(one) if isinstance(one, str) else one for one in blocks))


def looped(*results: ToolResult, before: tuple[Message, ...] = (said("Go."),)) -> tuple[Message, ...]:
    calls = tuple(ToolCall(result.call_id, "look", '{"word":"oak"}') for result in results)
    return (*before, Message("assistant", calls), Message("user", results))


def result(*content: object, is_error: bool = False) -> ToolResult:
    blocks = tuple(TextBlock(one) if isinstance(one, str) else one for one in content)
    return ToolResult("call_1", blocks, is_error)  # type: ignore[arg-type]


def image(media_type: str, data: str = PNG) -> ImageBlock:
    return ImageBlock(Inline(data), media_type)


LOOK = ToolSpec("look", "Looks a word up.", json.dumps(WORD))
SEARCHED = '{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"oak"}}'
CONVERSATIONS: dict[str, tuple[Message, ...]] = {
    "an empty text": (said(""),),
    "a blank text": (said(" \n"),),
    "an empty text beside another": (said("", "Hello."),),
    "a blank answer": (said("Hi."), Message.assistant_text(" "), said("So?")),
    "a prefilled answer that ends in a blank": (said("Hi."), Message.assistant_text("An oak is ")),
    "a prefilled answer that ends in blank texts": (said("Hi."), Message("assistant", (TextBlock("An oak\n"), TextBlock(" ")))),
    "an error with an image": looped(result("Broken:", image("image/png"), is_error=True)),
    "an error that is an image": looped(result(image("image/png"), is_error=True)),
    "an error with an image of no type": looped(result(image("image/svg+xml", SVG), is_error=True)),
    "an empty error": looped(result(is_error=True)),
    "an empty result": looped(result()),
    "a result of an empty text": looped(result("")),
    "a result of empty and blank texts": looped(result("", " ", "")),
    "a result of an empty text and an image": looped(result("", image("image/png"))),
    "an uploaded image": (said("See:", ImageBlock(Uploaded("file_1"))),),
    "an uploaded file in a result": looped(result(DocumentBlock(Uploaded("file_1"), "application/pdf"))),
    **{
        f"an image of type {kind}": (said("See:", image(kind)),)
        for kind in ("image/jpg", "IMAGE/PNG", "image/png; charset=x", "")
    },
    **{
        f"an image of type {kind}": (said("See:", image(kind, SVG)),)
        for kind in ("image/heic", "image/svg+xml", "image/bmp", "image/tiff", "image/avif", "image/gif", "image/x-icon")
    },
    "an image in a data URL": (said("See:", ImageBlock(Remote(f"data:image/png;charset=x;base64,{PNG}"))),),
    "an SVG image behind an address": (said("See:", ImageBlock(Remote("https://x.example/a.svg?b"))),),
    "an image of a refused type behind an address": (said("See:", ImageBlock(Remote("https://x.example/a"), "image/heic")),),
    "an empty image": (said("See:", ImageBlock(Inline(""), "image/png")),),
    "an image with an odd detail": (said("See:", ImageBlock(Inline(PNG), "image/png", "tiny")),),
    "a refused image in a result": looped(result(image("image/heic", SVG))),
    "a PDF in capitals": (said("Read:", DocumentBlock(Inline(PDF), "Application/PDF; x=y", "a.pdf")),),
    "a JSON file": (said("Read:", DocumentBlock(Inline(b64encode(b"{}").decode()), "application/json", "a.json")),),
    "a Word file": (said("Read:", DocumentBlock(Inline(PDF), "application/msword", "a.doc")),),
    "calls with odd names": (
        said("Go."),
        Message("assistant", (ToolCall("call:1|x", "look.up/it", "{}"), ToolCall("call:2", "", "not json"))),
        Message("user", (ToolResult("call:1|x", ()), ToolResult("call:2", ()))),
    ),
}


def _searched(target: Origin, thinker: str) -> tuple[Message, ...]:
    """A hosted search, the reasoning that it was made with, and the answer. The reasoning is perhaps of another model."""
    maker = target if target.wire == "openai_responses" else Origin("openai_responses", "openai", "", "gpt-5")
    thought = Seal('{"id":"rs_1","encrypted_content":"sealed"}', replace(maker, model=thinker or maker.model))
    answer = TextBlock("A tree.", seal=Seal('{"item":{"id":"msg_1","status":"completed"},"part":{}}', maker))
    search = HostedBlock(SEARCHED, "openai_responses", "searched", id="ws_1", provider=maker.provider)
    return (said("Go."), Message("assistant", (ReasoningBlock("", thought), search, answer), origin=maker), said("And an elm?"))


SETTINGS: dict[str, Callable[[Ask], Ask]] = {
    "a reasoning budget that leaves one token": lambda ask: replace(
        ask, settings=Settings(1025), reasoning=Reasoning(budget=1024)
    ),
    "an effort with a low limit of the answer": lambda ask: replace(ask, settings=Settings(1100), reasoning=Reasoning("high")),
    "a reasoning budget above the limit of the answer": lambda ask: replace(
        ask, settings=Settings(2000), reasoning=Reasoning(budget=4000)
    ),
    "an answer of at most one token": lambda ask: replace(ask, settings=Settings(1)),
    "stops that are empty, blank and many": lambda ask: replace(ask, settings=Settings(stop=("", " ", *"abcde", "f" * 40))),
    "sampling out of range": lambda ask: replace(ask, settings=Settings(temperature=9.0, top_p=-0.5, top_k=-1)),
    "temperature and top_p together": lambda ask: replace(ask, settings=Settings(temperature=0.5, top_p=0.5)),
    "sampling while thinking": lambda ask: replace(ask, settings=Settings(4096, 0.2, 0.3, 5), reasoning=Reasoning(budget=2048)),
    "a long key for the cache": lambda ask: replace(ask, cache=Cache(key="k" * 200)),
    "parallel calls switched off, without tools": lambda ask: replace(ask, choice=Choice(parallel=False, stated=True)),
    "a forced choice without tools": lambda ask: replace(ask, choice=Choice("required")),
    "a forced choice while thinking": lambda ask: replace(
        ask, tools=(LOOK,), choice=Choice("named", ("look",)), reasoning=Reasoning("high", show="summary")
    ),
    "a choice of a tool that is not offered": lambda ask: replace(ask, tools=(LOOK,), choice=Choice("named", ("dig",))),
    "a subset of tools": lambda ask: replace(ask, tools=(LOOK, replace(LOOK, name="dig")), choice=Choice("required", ("dig",))),
    "an odd name of a tool": lambda ask: replace(ask, tools=(replace(LOOK, name="look.up/ it"), replace(LOOK, name="x" * 200))),
    "a tool without a name": lambda ask: replace(ask, tools=(replace(LOOK, name=""), replace(LOOK, name="1st"))),
    "two tools of one name": lambda ask: replace(ask, tools=(LOOK, LOOK)),
    "200 tools": lambda ask: replace(ask, tools=tuple(replace(LOOK, name=f"t{number}") for number in range(200))),
    "128 tools": lambda ask: replace(ask, tools=tuple(replace(LOOK, name=f"t{number}") for number in range(128))),
    "a hosted tool of another wire": lambda ask: replace(ask, tools=(LOOK, HostedTool("nobody", '{"type":"x"}', "x"))),
    "a JSON object": lambda ask: replace(ask, output=OutputSchema()),
    "a shape and tools": lambda ask: replace(ask, tools=(LOOK,), output=OutputSchema(json.dumps(WORD), "a word!", strict=True)),
    "an empty conversation": lambda ask: replace(ask, transcript=Transcript(())),
    "no effort and tools": lambda ask: replace(ask, tools=(LOOK,), reasoning=Reasoning("off")),
    "the most effort": lambda ask: replace(ask, reasoning=Reasoning("max", mode="on", show="detailed")),
    "an empty system prompt": lambda ask: replace(ask, transcript=Transcript((said("Hi."),), "")),
}


def shapes() -> Iterator[tuple[str, Callable[[Origin], Ask]]]:
    """Each shape, as a function of whom it is sent to."""
    for name, messages in CONVERSATIONS.items():
        yield name, partial(_told, messages)
    for name, schema in SCHEMAS.items():
        yield f"schema: {name}", partial(_offered, ToolSpec("look", "", json.dumps(schema)))
        yield f"schema: {name}, strict", partial(_offered, ToolSpec("look", "", json.dumps(schema), True))
    for name, change in SETTINGS.items():
        yield name, partial(_changed, change)
    yield "a search with its reasoning", lambda target: Ask(Transcript(_searched(target, "")), target)
    yield "a search whose reasoning is of another model", lambda target: Ask(Transcript(_searched(target, "another")), target)


def _told(messages: tuple[Message, ...], target: Origin) -> Ask:
    return Ask(Transcript(_own(messages, target)), target, (LOOK,))


def _offered(tool: ToolSpec, target: Origin) -> Ask:
    return Ask(Transcript((said("Go."),)), target, (tool,))


def _changed(change: Callable[[Ask], Ask], target: Origin) -> Ask:
    return change(Ask(Transcript((said("Go."),)), target))


def _own(messages: tuple[Message, ...], target: Origin) -> tuple[Message, ...]:
    """The messages, their uploaded files being those of whom they are sent to."""

    def owned(block: object) -> object:
        if isinstance(block, ToolResult):
            return replace(block, content=tuple(map(owned, block.content)))
        if isinstance(block, ImageBlock | DocumentBlock) and isinstance(block.source, Uploaded):
            return replace(block, source=Uploaded(block.source.file_id, target.wire, target.provider))
        return block

    return tuple(replace(message, blocks=tuple(map(owned, message.blocks))) for message in messages)


def sent(row: str, model: str, make: Callable[[Origin], Ask]) -> Encoded:
    """The request that a row gets of a shape."""
    provider = rows().provider(row)
    return CODECS[provider.wire].encode(make(origin(provider, model)), rows().quirks(row, model), None)


def refusals(row: str, model: str, encoded: Encoded) -> list[Violation]:
    """Why the API behind a row would refuse a request, as far as is known."""
    wire = rows().provider(row).wire
    headers = {name.lower(): value for name, value in encoded.headers}
    betas = [beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip()]
    body = json.loads(encoded.body)
    if wire == "anthropic_messages":
        body.setdefault("model", model)
    known = DIALECTS.get(wire, ())
    dialect = next((name for name in (row, row.removesuffix("-chat"), rows().provider(row).vendor) if name in known), "")
    dialect = {"google": "developer", "google-vertex": "vertex"}.get(row, dialect)
    bonds: dict[str, Any] = {"bound": {"ws_1": "rs_1", "msg_1": "rs_1"}} if wire == "openai_responses" else {}
    return check_request(wire, body, model=model, dialect=dialect, betas=betas, **bonds)
