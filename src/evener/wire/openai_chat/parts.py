"""Writes blocks as content parts, and takes them out of a request again: the same table, both ways. Pure."""

import re
from collections.abc import Iterator

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.blocks import (
    CacheTtl,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    Remote,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.wire.media import IMAGES as IMAGE_TYPES
from evener.wire.media import (
    check_detail,
    is_base64,
    is_image_taken,
    is_textual,
    is_web,
    normalize_media,
    plain_text,
    read_url,
    url_of,
)
from evener.wire.prefix import MESSAGE, ExchangeWriter, dumps, fields, placeholder, value_in, why_not_own, why_shut, word
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, read_breakpoint, read_control, read_fields

READABLE = {
    *("arguments", "code", "content", "document_name", "document_url", "filename", "input", "name", "output", "query"),
    *("refusal", "search_results", "results", "text", "title", "transcript", "url"),
}
"""Fields that people can read, wherever they stand."""
OPAQUE = re.compile(r"[A-Za-z0-9+/_=-]{80}|^data:")
"""What people cannot read: base64, signatures, ciphers."""
DEEPEST = 8
LONGEST = 290


def hosted_block(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """Return a part, or a whole message or field of one, that has no neutral word."""
    own = fields(raw)
    name = word(own.get("type")) or word(own.get("role")) or next(iter(own), "")
    said = " ".join(_list_readable(value_in(raw), 0, named=False))
    text = f"{name}: {said}" if said else name
    short = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return HostedBlock(bytes(raw).decode(), WIRE, short, provider=provider)


def _list_readable(value: object, depth: int, *, named: bool) -> Iterator[str]:
    """Yield the words in a value: its readable fields, those of objects within it included."""
    match value:
        case str() if named and value.strip() and not OPAQUE.search(value):
            yield value.strip()
        case dict() if depth < DEEPEST:
            for name, one in value.items():
                yield from _list_readable(one, depth + 1, named=name in READABLE)
        case list() if depth < DEEPEST:
            for one in value:
                yield from _list_readable(one, depth + 1, named=named)


WIRE = "openai_chat"
FIELD = "@field"
UNCITED = "this wire takes none back"
REFUSAL = b'"refusal"'
REWRITTEN = ("content", "role")
"""Fields of a message that every row writes in its own way: nothing is lost with them."""

Raws = dict[str, msgspec.Raw]


class Sealed(msgspec.Struct, frozen=True):
    """The fields of a seal, told apart. `own` may hold fields of ours."""

    own: Raws = {}
    message: Raws = {}


def seal_text(own: Raws, message: Raws) -> str:
    """Return the text of a seal; empty when there is nothing to seal."""
    both = {**own, MESSAGE: message} if message else own
    return dumps(both).decode() if both else ""


def why_foreign(seal: Seal | None, maker: Origin | None, ask: Ask, quirks: Quirks) -> str:
    """Return why something was not made by the target; empty when it was. What has no seal is its message's."""
    if seal is None:
        return why_not_own(maker or Origin(), ask.target, quirks)
    return why_shut(seal, ask.target, quirks)


def open_seal(seal: Seal | None, ask: Ask, quirks: Quirks) -> Sealed:
    """Return what a seal holds for the target; nothing when it is not for it."""
    if seal is None or seal.origin.wire != WIRE or why_foreign(seal, None, ask, quirks):
        return Sealed()
    own = fields(seal.data)
    message = own.pop(MESSAGE, None)
    return Sealed(own, fields(message) if message is not None else {})


def list_left_fields(seal: Seal | None, ask: Ask, quirks: Quirks) -> tuple[list[str], str]:
    """Return the names of the fields of a seal that say something and stay behind, and why they do."""
    why = why_foreign(seal, None, ask, quirks) if seal else ""
    if seal is None or not why:
        return [], ""
    own = fields(seal.data)
    message = own.pop(MESSAGE, None) if seal.origin.wire == WIRE else None
    inner = fields(message) if message is not None else {}
    names = [name for name, value in own.items() if is_there(value) and not name.startswith("@")]
    names += (name for name, value in inner.items() if is_there(value) and name not in REWRITTEN)
    return names, why


def is_there(raw: msgspec.Raw) -> bool:
    """True if an optional field says anything."""
    return bytes(raw) not in (b"null", b"[]", b"{}", b'""')


Part = tuple[dict[str, object], str]
"""A part, and the lifetime of the cache mark that was asked for on it."""

Plain = TextBlock | ImageBlock | DocumentBlock | HostedBlock

FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav"}
FILES = ("file", "document_url", "input_file")
IMAGES = ("image_url", "input_image")
MEDIA = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def media_part(out: ExchangeWriter, block: ImageBlock | DocumentBlock | HostedBlock) -> dict[str, object] | None:
    """Return a part for media or for what only this wire reads; None when the endpoint cannot take it here."""
    if not isinstance(block, HostedBlock):
        block = normalize_media(out, block)
        if isinstance(block.source, Inline) and not is_base64(block.source.data):
            return None
        if isinstance(block.source, Remote) and not is_web(block.source.url):
            return None
    match block:
        case HostedBlock(raw):
            own = fields(raw)
            return dict(own) if out.quirks.hosted and block.is_for(out.ask.target) and _is_taken(own, out.quirks) else None
        case ImageBlock():
            value = _write_image(out, block)
        case DocumentBlock(media_type=kind) if kind.startswith("audio/"):
            value = _write_audio(out, block)
        case DocumentBlock(media_type=kind) if kind.startswith("video/"):
            url = url_of(block.source, kind) if out.quirks.video else None
            value = {"type": "video_url", "video_url": {"url": url}} if url else None
        case DocumentBlock():
            value = _write_file(out, block)
    return _with_sealed(value, open_seal(block.seal, out.ask, out.quirks).own) if value else None


def _with_sealed(value: dict[str, object], own: dict[str, msgspec.Raw]) -> dict[str, object]:
    """Return a part with the fields that were sealed, those of its one object in their place."""
    kind = str(value["type"])
    inner = value.get(kind)
    if kind in own and isinstance(inner, dict):
        own = {**own, kind: msgspec.Raw(dumps({**inner, **fields(own[kind])}))}
        return {**value, **own}
    return {**own, **value}


def report_rest(out: ExchangeWriter, block: TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult) -> None:
    """Report which fields of a block cannot go to the target."""
    if block.seal:
        out.report_fields(block, *list_left_fields(block.seal, out.ask, out.quirks))


def _is_taken(part: dict[str, msgspec.Raw], quirks: Quirks) -> bool:
    """True if the row takes media of this sort; what is none, it does."""
    kind = word(part.get("type"))
    return (quirks.documents or kind not in FILES) and (quirks.images or kind not in IMAGES)


def write_line(out: ExchangeWriter, block: ImageBlock | DocumentBlock | HostedBlock) -> str:
    """Return what stands for media that cannot go, with a report. A text file still goes, as text."""
    file = normalize_media(out, block) if isinstance(block, DocumentBlock) else None
    if file is not None and is_textual(file.media_type) and isinstance(file.source, Inline):
        text = plain_text(file.source.data)
        if text is not None:
            out.degrade("document", "this endpoint takes no text files; sent as text", block)
            return f"[{file.name or 'document'}]\n{text}"
    why = "only its own provider can read it" if isinstance(block, HostedBlock) else "this endpoint cannot take it here"
    out.degrade(block.kind, f"{why}; sent as a line", block)
    return placeholder(block)


def _write_image(out: ExchangeWriter, block: ImageBlock) -> dict[str, object] | None:
    remote = isinstance(block.source, Remote)
    url = url_of(block.source, block.media_type or "image/png")
    if url is None or not out.quirks.images or (remote and not out.quirks.image_urls):
        return None
    if not is_image_taken(block, out.quirks.image_types or IMAGE_TYPES):
        return None
    detail = check_detail(out, block)
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}


def _write_audio(out: ExchangeWriter, block: DocumentBlock) -> dict[str, object] | None:
    sort = FORMATS.get(block.media_type) or block.media_type.removeprefix("audio/")
    if not isinstance(block.source, Inline) or sort not in out.quirks.audio_formats:
        return None
    return {"type": "input_audio", "input_audio": {"data": block.source.data, "format": sort}}


def _write_file(out: ExchangeWriter, block: DocumentBlock) -> dict[str, object] | None:
    kind = block.media_type or "application/pdf"
    if not out.quirks.documents or kind != "application/pdf":  # recorded: other types are refused
        return None
    name = {"filename": block.name} if block.name else {}
    if isinstance(block.source, Uploaded):
        ours = block.source.is_for(out.ask.target)
        return {"type": "file", "file": {"file_id": block.source.file_id, **name}} if ours else None
    url = url_of(block.source, kind)
    if isinstance(block.source, Remote) and not out.quirks.file_urls:
        return None
    if out.quirks.file_part == "document_url":
        return {"type": "document_url", "document_url": url, **({"document_name": block.name} if block.name else {})}
    return {"type": "file", "file": {"filename": block.name or "document.pdf", "file_data": url}}


# The other direction.


def read_part(raw: msgspec.Raw, quirks: Quirks, maker: Origin, message: dict[str, msgspec.Raw]) -> Plain:
    """Return the block of a part of a request. `message` holds fields of the message, for its first block."""
    own = read_fields(raw)
    kind = own.peek("type")
    if kind == "text" and own.is_text("text"):
        own.take("type")
        text, cache = own.text("text"), read_mark(own, quirks)
        return TextBlock(text, seal=_seal(own, maker, message), cache=cache)
    found = _read_media(own, kind, quirks, maker.provider)
    if found is None:
        return hosted_block(raw, maker.provider)
    own.take("type")
    cache = read_mark(own, quirks)
    return msgspec.structs.replace(found, seal=_seal(own, maker, message), cache=cache)


def _seal(own: Fields, maker: Origin, message: dict[str, msgspec.Raw]) -> Seal | None:
    text = seal_text(own.rest(), message)
    return Seal(text, maker) if text else None


def read_mark(own: Fields, quirks: Quirks) -> CacheTtl:
    """Return the cache mark of a part or a tool, where it is of the row's style."""
    return read_control(own) if quirks.cache_style == "control" else read_breakpoint(own)


def _read_media(own: Fields, kind: str, quirks: Quirks, provider: str) -> ImageBlock | DocumentBlock | None:
    """Return the media of a part, taken out of it; None (and nothing taken) when it is not of a known form."""
    if kind == "document_url" and quirks.file_part == kind and own.is_text(kind):
        source, media = read_url(own.text(kind))
        return DocumentBlock(source, media, own.text("document_name"))
    if kind not in ("image_url", "input_audio", "file", "video_url") or bytes(own.peek_raw(kind))[:1] != b"{":
        return None
    inner = own.peek_fields(kind)
    found = _read_known(kind, inner, quirks, provider)
    if found:
        own.put_rest(kind, inner)
    return found


def _read_known(kind: str, inner: Fields, quirks: Quirks, provider: str) -> ImageBlock | DocumentBlock | None:
    """Return the media, with what is known of them taken; None, and nothing taken, when they are of no known form."""
    if kind == "input_audio":
        return _read_audio(inner, quirks)
    if kind == "file":
        return _read_file(inner, provider)
    if not inner.is_text("url") or (kind == "video_url" and not quirks.video):
        return None
    source, media = read_url(inner.text("url"))
    if kind == "image_url":
        return ImageBlock(source, media, inner.text("detail"))
    return DocumentBlock(source, media or "video/mp4")


def _read_audio(inner: Fields, quirks: Quirks) -> DocumentBlock | None:
    sort = inner.peek("format")
    if not inner.is_text("data") or sort not in quirks.audio_formats:
        return None
    inner.take("format")
    return DocumentBlock(Inline(inner.text("data")), MEDIA.get(sort, f"audio/{sort}"))


def _read_file(inner: Fields, provider: str) -> DocumentBlock | None:
    if inner.is_text("file_id") and not inner.has("file_data"):
        return DocumentBlock(Uploaded(inner.text("file_id"), WIRE, provider), "", inner.text("filename"))
    if inner.is_text("file_data") and not inner.has("file_id"):
        source, media = read_url(inner.text("file_data"))
        return DocumentBlock(source, media or "application/pdf", inner.text("filename"))
    return None
