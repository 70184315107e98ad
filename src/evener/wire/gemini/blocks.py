"""Writes one exchange as Gemini contents, a message of ours as one content. Pure.

Rules (sheets 2, 3 and 7): only users and models speak; all results of a turn stand in one content, in call order, and each is
an object; a signature goes back on its own part, unchanged, and nothing is merged with a part that has one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.message import Message
from evener.transcript.origin import Origin, Seal
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment
from evener.wire.gemini.hosted import CIRCULATED
from evener.wire.gemini.names import function_name
from evener.wire.gemini.parts import (
    SIGNATURE,
    UNCITED,
    WIRE,
    Raws,
    camel,
    is_bare,
    named_fields,
    ours,
    own_fields,
    part_of,
    shape_of,
)
from evener.wire.media import is_base64, is_image_taken, is_textual, settled
from evener.wire.names import short_id
from evener.wire.page import Page
from evener.wire.quirks import Quirks
from evener.wire.seals import why_shut
from evener.wire.text import OPERATOR, as_object, fields, must_fetch, placeholder

__all__ = ["WIRE", "render"]

IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
MODEL, USER = b'{"role":"model","parts":[', b'{"role":"user","parts":['
"""How a content begins."""
CIRCULATES = frozenset(("circulated",))
"""A trait of a fragment."""

Value = dict[str, object]
Part = tuple[Value, str]
"""A part and the lifetime of a cache mark that was asked for on it."""

NOTHING_LEFT: tuple[Part] = (({"text": "[nothing that this provider can read]"}, ""),)


def render(ask: Ask, quirks: Quirks, exchange: Exchange, chain: bytes) -> Fragment:
    """One exchange: what the model said, then what came back."""
    page = Page(ask, quirks, chain)
    calls: Mapping[str, ToolCall] = {}
    if exchange.assistant is not None:
        calls = {call.id: call for call in exchange.assistant.calls}
        _content(page, MODEL, _said(page, exchange.assistant))
    parts: list[Part] = []
    before = None
    for message in exchange.back:
        if before is not None and not _share(before, message, quirks):
            _content(page, USER, parts)
            parts = []
        _back(page, message, calls, parts)
        before = message
    if before is not None:
        _content(page, USER, parts)
    return page.fragment(exchange, None)


def _share(before: Message, message: Message, quirks: Quirks) -> bool:
    """Whether two messages stand in one content: the two halves of one do, and all do where turns must alternate."""
    return quirks.merge_turns or before.id == f"{message.id}/results"


def _content(page: Page, opening: bytes, parts: Sequence[Part]) -> None:
    lead = b"," + opening if page.pieces else opening
    for value, cache in parts or NOTHING_LEFT:
        page.block(value, cache, lead)
        lead = b","
    page.close()


def _opened(page: Page, block: TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult) -> Raws:
    """The fields of a seal that may go out; other models of its maker know all but the signature."""
    seal = block.seal
    if seal is None:
        return {}
    own, why = own_fields(seal), page.shut_why(seal)
    if not why:
        return page.put_beside(own)
    if own.pop(SIGNATURE, None):
        page.drop("reasoning.signature", why, block)
    why = why_shut(seal, page.ask.target, replace(page.quirks, seal_scope="provider"), page.chain)
    if not why:
        return page.put_beside(own)
    page.leave(block, named_fields(own if seal.origin.wire == WIRE else fields(seal.data)), why)
    return ours(own)


# What the model said.


def _said(page: Page, message: Message) -> list[Part]:
    page.message = message
    parts: list[Part] = []
    signs = bool(page.quirks.call_signature)
    for block in message.blocks:
        match block:
            case TextBlock():
                parts += _text(page, block, message)
            case ReasoningBlock():
                parts += _reasoning(page, block)
            case ToolCall():
                parts.append((_call(page, block, signs=signs), block.cache))
                signs = False
            case ImageBlock() | DocumentBlock():
                parts.append((_media(page, block) or _line(page, block), block.cache))
            case HostedBlock():
                parts.append((_hosted(page, block, message), block.cache))
            case ToolResult():
                page.drop("tool_result", "a model's turn cannot hold it", block)
            case _:
                assert_never(block)
    return parts


def _text(page: Page, block: TextBlock, message: Message) -> Iterator[Part]:
    own = _opened(page, block)
    if message.origin is None or message.origin.wire != WIRE:
        page.uncited(block, UNCITED)
    if block.text.strip() or SIGNATURE in own:
        yield {"text": block.text, **own}, block.cache
    else:
        page.drop("text", "it was empty and its seal cannot go", block)


def _reasoning(page: Page, block: ReasoningBlock) -> Iterator[Part]:
    why = "it carries nothing that this provider could verify"
    if page.quirks.thinking_replay == "none":
        why = "this endpoint takes back no reasoning"
    elif block.seal:
        why = page.shut_why(block.seal)
    if not why:
        page.thought = True
        yield {"text": block.text, "thought": True, **own_fields(block.seal)}, ""
    elif block.text.strip() and page.ask.foreign_reasoning == "text":
        page.degrade("reasoning", f"sent as plain text: {why}", block)
        yield {"text": block.text}, ""
    else:
        page.drop("reasoning", why, block)


def _call(page: Page, call: ToolCall, *, signs: bool) -> Value:
    own = _opened(page, call)
    name, id = function_name(call.name, page.quirks.name_length), short_id(call.id, page.quirks.id_length)
    if name != call.name:
        page.rename("tool_call.name", call, call.name, name)
    value: Value = {"name": name, "args": msgspec.Raw(page.arguments(call).encode())}
    if not is_bare(own):
        value = {"id": id, **value}
        if id != call.id:
            page.rename("tool_call.id", call, call.id, id)
    part = part_of("functionCall", value, own)
    if signs and SIGNATURE not in part:
        why = "the first call of a turn needs one and has none that this model could verify; a stand-in is sent"
        page.lose("added", "reasoning.signature", why, call)
        part[SIGNATURE] = page.quirks.call_signature
    return part


def _hosted(page: Page, block: HostedBlock, message: Message) -> Value:
    own = _hosted_fields(page, block) or {}
    circulated = any(camel(name) in CIRCULATED for name in own)
    if not own or (circulated and page.quirks.hosted_beside != "flag"):
        return _line(page, block)
    if circulated:
        page.traits |= CIRCULATES
    signed = [name for name in own if camel(name) == SIGNATURE]
    why = page.shut_why(Seal(block.raw, message.origin or Origin())) if signed and message.role == "assistant" else ""
    if why:
        page.drop("reasoning.signature", why, block)
    return {name: value for name, value in own.items() if not why or name not in signed}


def _line(page: Page, block: ImageBlock | DocumentBlock | HostedBlock) -> Value:
    page.degrade(block.kind, "it cannot go here; sent as a line", block)
    return {"text": placeholder(block)}


# What came back.


def _back(page: Page, message: Message, calls: Mapping[str, ToolCall], parts: list[Part]) -> None:
    """Add the parts of a message: its results, what they could not hold, and the rest."""
    page.message = message
    lead = ""
    if message.role == "system":
        lead = OPERATOR
        page.degrade("message.role", "this wire takes none here; sent as marked user text")
    after: list[Part] = []
    for block in message.blocks:
        if type(block) is ToolResult:
            parts.append((_result(page, block, calls, after), block.cache))
    if after:
        parts += after
    for block in message.blocks:
        if type(block) is not ToolResult:
            _spoken(page, block, message, lead, parts)


def _spoken(page: Page, block: Block, message: Message, lead: str, parts: list[Part]) -> None:
    match block:
        case TextBlock():
            if block.citations:
                page.uncited(block, UNCITED)
            value: Value = {"text": lead + block.text}
            if block.seal is not None:
                value |= _opened(page, block)
            parts.append((value, block.cache))
        case ImageBlock() | DocumentBlock():
            parts.append((_media(page, block) or _line(page, block), block.cache))
        case HostedBlock():
            parts.append((_hosted(page, block, message), block.cache))
        case ReasoningBlock() | ToolCall() | ToolResult():
            page.drop(block.kind, "a user's turn cannot hold it", block)
        case _:
            assert_never(block)


def _result(page: Page, result: ToolResult, calls: Mapping[str, ToolCall], after: list[Part]) -> Value:
    """A function's response; what it cannot hold goes `after` all of them."""
    call = calls.get(result.call_id)
    own = _opened(page, result)
    texts: list[str] = []
    media: list[Value] = []
    for block in result.content:
        if block.cache:
            page.drop("cache.mark", "this wire takes none; caching is automatic", block, at="cache")
        if isinstance(block, TextBlock):
            texts.append(block.text)
            page.uncited(block, UNCITED)
            _opened(page, block)  # only reported: a response is words, and no reader seals them
            continue
        value = _hosted_fields(page, block) if isinstance(block, HostedBlock) else _media(page, block)
        if value is None:
            texts.append(str(_line(page, block)["text"]))
        elif isinstance(block, HostedBlock) or _media_type(value) in page.quirks.result_parts:
            media.append(value)
        else:
            page.degrade("tool_result.media", "a function's response cannot hold it here; it stands after the results", block)
            label = f"[{block.kind} from {call.name if call else result.call_id}]"
            after += (({"text": label}, ""), (value, block.cache))
    value = {
        "name": function_name(call.name, page.quirks.name_length) if call else "",
        "response": _response(result, own, texts),
    }
    if call is None or not is_bare(own_fields(call.seal)):
        value = {"id": short_id(result.call_id, page.quirks.id_length), **value}
    return _response_part({**value, "parts": media} if media else value, own)


def _media_type(part: Value) -> str:
    data = part.get("inlineData", part.get("fileData"))
    return str(data.get("mimeType", "")) if isinstance(data, dict) else ""


def _response_part(value: Value, own: Raws) -> Value:
    if "functionResponse" not in own:
        return {"functionResponse": value, **own}
    inner = {name: field for name, field in fields(own["functionResponse"]).items() if name != "response"}
    beside = {name: field for name, field in own.items() if name != "functionResponse"}
    return part_of("functionResponse", {**value, **inner}, beside)


def _response(result: ToolResult, own: Raws, texts: Sequence[str]) -> object:
    """A result as an object: as it stood when it was read, else as its output or its error."""
    text, shape = "\n".join(texts), shape_of(own)
    if shape and (shape.under == "error") == result.is_error:
        value = _json(text) if shape.json else None
        if shape.under:
            return {shape.under: text if value is None else value}
        return as_object(text) or {"output": text}
    if result.is_error:
        return {"error": text}
    return {"output": text} if texts else {}


def _json(text: str) -> msgspec.Raw | None:
    try:
        return msgspec.json.decode(text, type=msgspec.Raw).copy()
    except (msgspec.MsgspecError, RecursionError):
        return None


def _hosted_fields(page: Page, block: HostedBlock) -> Value | None:
    """A part of the provider's own as it came; None when it is not for whom we ask, or holds media that the row refuses."""
    own = fields(block.raw)
    media = any(camel(name) in ("inlineData", "fileData") for name in own)
    taken = page.quirks.hosted and (not media or (page.quirks.images and page.quirks.documents))
    return dict(own) if taken and block.is_for(page.ask.target) else None


# Media, on both sides.


def _media(page: Page, block: ImageBlock | DocumentBlock) -> Value | None:
    """An image or a file as a part; None when this endpoint cannot take it."""
    if isinstance(block, ImageBlock):
        block, image = settled(page, block), True
        taken = page.quirks.images and is_image_taken(block, page.quirks.image_types or IMAGES)
    else:
        block, image = _textual(settled(page, block)), False
        taken = page.quirks.documents and (not isinstance(block.source, Inline) or _is_taken(block.media_type))
    if not taken:
        return None
    kind = {"mimeType": block.media_type} if block.media_type else {}
    match block.source:
        case Inline(data):
            if not is_base64(data):
                return None
            name, value = "inlineData", {"mimeType": "image/png" if image else "application/pdf", **kind, "data": data}
        case Remote(url):
            name, value = "fileData", {**kind, "fileUri": url}
        case Uploaded(file_id):
            if not block.source.is_for(page.ask.target):
                return None
            name, value = "fileData", {**kind, "fileUri": file_id}
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(block.source)
    own = _opened(page, block)
    sealed = fields(own[name]) if name in own else {}
    return part_of(name, {**value, **_labels(page, block, sealed)}, own)


def _textual(block: DocumentBlock) -> DocumentBlock:
    """A text of a type that has a name of its own goes as plain text."""
    plain = is_textual(block.media_type) and not block.media_type.startswith("text/") and isinstance(block.source, Inline)
    return replace(block, media_type="text/plain") if plain else block


def _is_taken(kind: str) -> bool:
    return not kind or kind == "application/pdf" or kind.startswith(("text/", "audio/", "video/"))


def _labels(page: Page, block: ImageBlock | DocumentBlock, sealed: Raws) -> Value:
    if isinstance(block, ImageBlock):
        if block.detail not in ("", "auto"):
            page.drop("image.detail", "this wire has none for one image", block, at="detail")
        return {}
    if not block.name or "displayName" in sealed:
        return {}
    if not page.quirks.media_names:
        page.drop("document.name", "this endpoint takes none", block, at="name")
        return {}
    return {"displayName": block.name}
