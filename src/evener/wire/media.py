"""Sources and types of media: normalized, sniffed, and as URLs. Pure: nothing is fetched."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import TypeVar, assert_never
from urllib.parse import urlsplit

from msgspec.structs import replace

from evener.transcript.blocks import DocumentBlock, ImageBlock, Inline, Remote, Source, Stored, Uploaded
from evener.wire.prefix import ExchangeWriter, must_fetch

DATA_URL = re.compile(r"data:([^,]*?);base64,(.*)", re.DOTALL | re.IGNORECASE)
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The types of images that most wires take."""
DETAILS = ("auto", "low", "high", "original")
OTHER_NAMES = {
    **dict.fromkeys(("image/jpg", "image/pjpeg", "image/jpe", "image/jfif"), "image/jpeg"),
    **dict.fromkeys(("image/x-png", "image/apng"), "image/png"),
    **dict.fromkeys(("application/x-pdf", "application/acrobat"), "application/pdf"),
}
"""The usual media type for each of its other names."""
SUFFIXES = {
    **dict.fromkeys(("svg", "svgz"), "image/svg+xml"),
    **dict.fromkeys(("tif", "tiff"), "image/tiff"),
    "bmp": "image/bmp",
    "heic": "image/heic",
    "heif": "image/heif",
    "avif": "image/avif",
    "ico": "image/ico",
}
"""Suffixes of file names that tell a type of image which most endpoints refuse."""
BEGINNINGS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"....ftyp(heic|heix|hevc|mif1|msf1)", re.DOTALL), "image/heic"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "image/avif"),
    (re.compile(rb"II\*\x00|MM\x00\*"), "image/tiff"),
    (re.compile(rb"BM....\x00\x00\x00\x00", re.DOTALL), "image/bmp"),
)
"""The first bytes of an image of each type."""
TEXTUAL = re.compile(
    r"text/.*|application/(json|xml|yaml|x-yaml|toml|javascript|x-javascript|x-python|x-sh|sql|csv|graphql)|.*\+(json|xml|yaml)"
)
UNSAFE = str.maketrans("-_", "+/")

MediaBlock = TypeVar("MediaBlock", bound=ImageBlock | DocumentBlock)


def normalize_media(out: ExchangeWriter, block: MediaBlock) -> MediaBlock:
    """Return the block with its type and its bytes as every wire writes them; the same one if nothing changes.

    A type is in lower case, without parameters and by its usual name; the type of an image is that of its bytes. A data URL
    becomes inline data, and base64 gets its standard alphabet and padding.
    """
    source, kind = block.source, _normalize_type(block.media_type)
    if type(source) is Remote and source.url[:5].lower() == "data:":
        source, stated = read_url(source.url)
        kind = kind or _normalize_type(stated)
    if type(source) is Inline:
        data = _normalize_base64(source.data)
        source = source if data == source.data else Inline(data)
        found = _sniff(data) if type(block) is ImageBlock else ""
        if found and kind and found != kind:
            out.lose("repaired", "image", f"it is of type {found}, but was declared as {kind}", block, at="media_type")
        kind = found or kind
    if source is block.source and kind == block.media_type:
        return block
    return replace(block, source=source, media_type=kind)


def is_image_taken(block: ImageBlock, types: tuple[str, ...]) -> bool:
    """True if a wire with these types takes a normalized image. An image may leave its type open."""
    if type(block.source) is Inline:
        return (not block.media_type or block.media_type in types) and is_base64(block.source.data)
    kind = block.media_type
    if not kind and type(block.source) is Remote:
        kind = SUFFIXES.get(_path(block.source.url).rpartition(".")[2].lower(), "")
    return not kind or kind in types or type(block.source) is Uploaded


def check_detail(out: ExchangeWriter, block: ImageBlock) -> str:
    """Return the detail level of an image; empty, with a report, for an unknown level."""
    if block.detail in ("", *DETAILS):
        return block.detail
    out.drop("image.detail", f"it is one of {', '.join(DETAILS)}", block, at="detail")
    return ""


def is_textual(kind: str) -> bool:
    """True if files of a type are text, so that their text can go where the file cannot."""
    return TEXTUAL.fullmatch(kind) is not None


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _normalize_type(media_type: str) -> str:
    kind = media_type.partition(";")[0].strip().lower()
    return OTHER_NAMES.get(kind, kind)


def _normalize_base64(data: str) -> str:
    if any(space in data for space in " \n\r\t"):
        data = "".join(data.split())
    if "-" in data or "_" in data:
        data = data.translate(UNSAFE)
    return data + "=" * (-len(data) % 4)


def _sniff(data: str) -> str:
    """Return the type that the first bytes of an image show; empty when they show none."""
    try:
        first = a2b_base64(data[:24])
    except (Base64Error, ValueError):
        return ""
    return sniff(first)


def sniff(content: bytes) -> str:
    """Return the type of image that the bytes begin like; empty when they begin like none."""
    return next((kind for form, kind in BEGINNINGS if form.match(content)), "")


def image_type(content: bytes) -> str:
    """Return the type of an image that most wires take, by its first bytes; empty for anything else."""
    kind = sniff(content)
    return kind if kind in IMAGES else ""


def url_of(source: Source, media_type: str) -> str | None:
    """Return the address of media: a data URL for inline ones, None for those in a provider's own store."""
    match source:
        case Inline(data):
            return f"data:{media_type};base64,{data}"
        case Remote(url):
            return url
        case Uploaded():
            return None
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(source)


def is_web(url: str) -> bool:
    """True if an address may be fetched over HTTP. False for schemes such as `gs` or `file`, which few endpoints support."""
    scheme, named, _ = url.partition("://")
    return not named or scheme.lower() in ("http", "https")


def read_url(url: str) -> tuple[Source, str]:
    """Return the media behind an address, and their type where the address states it."""
    found = DATA_URL.fullmatch(url)
    return (Inline(found[2]), found[1]) if found else (Remote(url), "")


def is_base64(data: str) -> bool:
    """True if the text is base64 and not empty; padding may be missing."""
    if not data:
        return False
    try:
        a2b_base64(data + "=" * (-len(data) % 4), strict_mode=True)
    except (Base64Error, ValueError):
        return False
    return True


def plain_text(data: str) -> str | None:
    """Return the text that base64 encodes; None when it is no UTF-8 text."""
    try:
        return b64decode(data, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return None
