"""Writes one exchange as Anthropic messages: bytes without cache marks, and the places where marks may go. Pure."""

import re
from collections.abc import Sequence
from typing import assert_never

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
    ResultContent,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.message import Message
from evener.transcript.origin import Seal
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment
from evener.wire.media import IMAGES, is_image_taken, is_textual, plain_text, settled
from evener.wire.names import wire_name
from evener.wire.page import Page
from evener.wire.quirks import Quirks
from evener.wire.text import (
    ERROR,
    OPERATOR,
    UNREADABLE,
    as_object,
    dict_of,
    dumps,
    fields,
    is_plain,
    must_fetch,
    placeholder,
)

__all__ = ["WIRE", "render"]

WIRE = "anthropic_messages"
PDF = "application/pdf"
FILES = frozenset(("files",))
"""A trait of a fragment: it names files in the provider's store."""
STARTS = {role: b'{"role":"%s","content":[' % role.encode() for role in ("user", "assistant", "system")}
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def render(ask: Ask, quirks: Quirks, mute: str, leads: bool, exchange: Exchange, chain: bytes) -> Fragment:
    """One exchange: what the assistant said, then what came back. `mute` says why no thinking may go, if so.

    `leads`: a turn that has thinking must begin with it.
    """
    if quirks.thinking_replay == "none":
        mute = "this endpoint takes back no thinking"
    lean = None
    if quirks.thinking_replay == "latest" and not mute:
        lean = _fragment(exchange, Page(ask, quirks, chain, "this endpoint takes back only the latest", leads), None)
    return _fragment(exchange, Page(ask, quirks, chain, mute, leads), lean)


def _fragment(exchange: Exchange, page: Page, lean: Fragment | None) -> Fragment:
    said, back = exchange.assistant, exchange.back
    if said is not None:
        _message(page, "assistant", (said if back or not page.quirks.prefill else _cleanly_ended(page, said),))
    if (
        len(back) > 1
        and page.quirks.mid_system
        and [message.role for message in back] == ["user", *["system"] * (len(back) - 1)]
    ):
        for message in back:
            _message(page, message.role, (message,))
    elif back:
        _message(page, "user", back)
    return page.fragment(exchange, lean)


def _cleanly_ended(page: Page, said: Message) -> Message:
    """What the assistant began and is to go on with: it may not end in white space (sheet 3)."""
    blocks = list(said.blocks)
    while len(blocks) > 1 and type(last := blocks[-1]) is TextBlock and not last.text.strip():
        blocks.pop()
    last = blocks[-1]
    if type(last) is not TextBlock or not last.text[-1:].isspace():
        return said
    page.message = said
    page.lose("repaired", "text", "what is to be gone on with may not end in white space", last, at="text")
    return replace(said, blocks=(*blocks[:-1], replace(last, text=last.text.rstrip())))


def _message(page: Page, role: str, messages: Sequence[Message]) -> None:
    opening = b"," + STARTS[role] if page.pieces else STARTS[role]
    page.pieces.append(opening)
    page.size = page.start = start = page.size + len(opening)
    for message in messages:
        page.message = message
        lead = ""
        if message.role == "system" and role == "user":
            lead = OPERATOR
            page.degrade("message.role", "this endpoint takes none here; sent as marked user text")
        for block in message.blocks:
            page.comma = b"," if page.size > start else b""
            _block(page, block, role, message, lead)
    if page.size == start:
        page.block({"type": "text", "text": "[nothing that this provider can read]"})
    page.close()


def _block(page: Page, block: Block, role: str, message: Message, lead: str) -> None:
    """Write one block, or what goes out of it."""
    match block:
        case TextBlock():
            _text(page, block, lead)
        case ToolCall():
            _call(page, block)
        case ToolResult():
            _result(page, block)
        case ReasoningBlock():
            _reasoning(page, block, message)
        case ImageBlock() | DocumentBlock() | HostedBlock():
            page.block(_plain(page, block, role), block.cache, page.comma)
        case _:
            assert_never(block)


def _text(page: Page, block: TextBlock, lead: str) -> None:
    if not block.text.strip():
        page.drop("text", "it was empty and only its seal counted, which is not of this wire", block)
        return
    own: dict[str, object] = {"type": "text", "text": lead + block.text}
    if block.seal is not None or block.citations:
        own = {**page.unsealed(block), **own}
    page.block(own, block.cache, page.comma)


def _reasoning(page: Page, block: ReasoningBlock, message: Message) -> None:
    why, value = _replayable(page, block, message)
    if value is not None:
        page.thought = True
        page.write(page.comma + dumps(value))  # never a mark here: thinking takes none (sheet 12)
        return
    page.shut = True
    if block.text.strip() and page.ask.foreign_reasoning == "text":
        page.degrade("reasoning", f"sent as plain text: {why}", block)
        page.block({"type": "text", "text": block.text}, "", page.comma)
    else:
        page.drop("reasoning", why, block)


def _replayable(page: Page, block: ReasoningBlock, message: Message) -> tuple[str, dict[str, object] | None]:
    """The thinking block to send back, or why it cannot go."""
    quirks = page.quirks
    if page.mute:
        return page.mute, None
    if page.leads and page.size > page.start and not page.thought:
        return "its turn did not begin with it, as it must while thinking has a budget", None
    if block.seal is None:
        own = message.origin is not None and message.origin.provider == page.ask.target.provider
        if quirks.thinking_kept == "sealed" or not own:
            return "it carries no signature of this provider", None
        return "", {"type": "thinking", "thinking": block.text}
    if quirks.thinking_kept == "unsealed":
        return "this endpoint takes back unsigned thinking only", None
    if page.shut and quirks.prefix_bound:
        return "an earlier thinking block of its turn was dropped", None
    return _sealed(page, block, block.seal)


def _sealed(page: Page, block: ReasoningBlock, seal: Seal) -> tuple[str, dict[str, object] | None]:
    why = page.shut_why(seal)
    if why:
        return why, None
    own = fields(seal.data)
    if "data" in own:
        return "", {"type": "redacted_thinking", **own}
    signature = own.get("signature")
    if page.quirks.thinking_kept == "sealed" and (signature is None or bytes(signature) in (b'""', b"null")):
        return "its signature is missing, as after an aborted stream", None
    return "", {"type": "thinking", "thinking": block.text, **own}


def _call(page: Page, call: ToolCall) -> None:
    arguments: object = as_object(call.raw)
    if arguments is None:
        page.degrade("tool_call.arguments", f"they were not a JSON object; sent under {UNREADABLE!r}", call, at="raw")
        arguments = {UNREADABLE: call.raw}
    id, name = wire_name(call.id, page.quirks.id_length), wire_name(call.name, page.quirks.name_length)
    if id != call.id:
        page.rename("tool_call.id", call, call.id, id)
    if name != call.name:
        page.rename("tool_call.name", call, call.name, name)
    own: dict[str, object] = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    page.block({**page.unsealed(call), **own} if call.seal else own, call.cache, page.comma)


def _result(page: Page, result: ToolResult) -> None:
    own: dict[str, object] = {"type": "tool_result", "tool_use_id": wire_name(result.call_id, page.quirks.id_length)}
    if result.seal:
        own = {**page.unsealed(result), **own}
    content = [block for block in result.content if type(block) is not TextBlock or block.text.strip()]
    if result.is_error:
        own["is_error"] = True
        if not content:
            page.lose("added", "tool_result.text", "an error without a word is refused", result)
            content = [TextBlock("error")]
        elif any(type(block) is not TextBlock for block in content):
            _mixed_error(page, result, content, own)
            return
    if len(content) == 1 and type(only := content[0]) is TextBlock and is_plain(only):
        own["content"] = only.text
        page.block(own, result.cache, page.comma)
    elif not content:
        page.block(own, result.cache, page.comma)  # no content at all is legal, an empty list is not (sheet 3)
    else:
        page.write(page.comma + dumps(own)[:-1] + b',"content":[')
        for number, block in enumerate(content):
            page.block(_plain(page, block, "result"), block.cache, b"," if number else b"")
        page.write(b"]}")
        if "cache_control" not in own:
            page.mark(result.cache)


def _mixed_error(page: Page, result: ToolResult, content: Sequence[ResultContent], own: dict[str, object]) -> None:
    """Write an error that is not only words. With the flag, only words are taken; so its text says that it is one."""
    parts = [(_plain(page, block, "result"), block.cache) for block in content]
    if any(value["type"] != "text" for value, _ in parts):
        page.degrade("tool_result.error", f"an error may hold only text; the text begins with {ERROR!r}", result, at="is_error")
        del own["is_error"]
        parts.insert(0, ({"type": "text", "text": ERROR.strip()}, ""))
    page.write(page.comma + dumps(own)[:-1] + b',"content":[')
    for number, (value, cache) in enumerate(parts):
        page.block(value, cache, b"," if number else b"")
    page.write(b"]}")
    if "cache_control" not in own:
        page.mark(result.cache)


def _plain(page: Page, block: TextBlock | ImageBlock | DocumentBlock | HostedBlock, role: str) -> dict[str, object]:
    match block:
        case TextBlock(text):
            return {**page.unsealed(block), "type": "text", "text": text}
        case HostedBlock(raw, role=whose) if block.is_for(page.ask.target) and page.quirks.hosted and whose in ("", role):
            return dict(fields(raw))
        case HostedBlock(text=text):
            page.degrade("hosted", f"only its own provider can read it; sent as a line ({text or 'no text'})", block)
            return {"type": "text", "text": placeholder(block)}
        case ImageBlock():
            value = _image(page, block) if role != "assistant" else None
        case DocumentBlock():
            value = _document(page, block) if role != "assistant" else None
    if value is None:
        page.degrade(block.kind, "this endpoint cannot take it here; sent as a line", block)
        return {"type": "text", "text": placeholder(block)}
    own = page.unsealed(block)
    if "source" in own:  # fields of it that we have no word for
        value["source"] = {**dict_of(value["source"]), **fields(own["source"])}
    return {**own, **value}


def _image(page: Page, block: ImageBlock) -> dict[str, object] | None:
    block = settled(page, block)
    if not page.quirks.images or not is_image_taken(block, page.quirks.image_types or IMAGES):  # sheet 3
        return None
    source = _source(page, block.source, block.media_type)
    if source is None:
        return None
    if block.detail:
        page.drop("image.detail", "this wire has none", block, at="detail")
    return {"type": "image", "source": source}


def _document(page: Page, block: DocumentBlock) -> dict[str, object] | None:
    block = settled(page, block)
    if not page.quirks.documents or not _is_taken(block.source, block.media_type):
        return None
    if isinstance(block.source, Inline) and is_textual(block.media_type):
        source = _text_source(block.source.data)
    else:
        source = _source(page, block.source, block.media_type)
    if source is None:
        return None
    return {"type": "document", "source": source, **({"title": block.name} if block.name else {})}


def _is_taken(source: Source, media_type: str) -> bool:
    """Whether a document of this type can go: PDF and text, unless it was uploaded; an address may leave it open."""
    known = media_type == PDF or is_textual(media_type)
    return known or isinstance(source, Uploaded) or (not media_type and isinstance(source, Remote))


def _text_source(data: str) -> dict[str, object] | None:
    text = plain_text(data)
    return None if text is None else {"type": "text", "media_type": "text/plain", "data": text}


def _source(page: Page, source: Source, media_type: str) -> dict[str, object] | None:
    match source:
        case Inline(data):
            whole = media_type and len(data) % 4 == 0 and BASE64.fullmatch(data)
            return {"type": "base64", "media_type": media_type, "data": data} if whole else None
        case Remote(url):
            return {"type": "url", "url": url}
        case Uploaded(file_id):
            if not page.quirks.uploads or not source.is_for(page.ask.target):
                return None
            page.traits |= FILES
            return {"type": "file", "file_id": file_id}
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(source)
