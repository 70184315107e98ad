"""Where media lie and what they are, in the words of the wires that speak of URLs. Pure: nothing is fetched."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import assert_never

from evener.transcript.blocks import Inline, Remote, Source, Stored, Uploaded
from evener.wire.text import must_fetch

__all__ = ["is_base64", "plain_text", "read_url", "url_of"]

DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def url_of(source: Source, media_type: str) -> str | None:
    """The address of media, a data URL for those that travel along; None when they lie in a provider's own store."""
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


def read_url(url: str) -> tuple[Source, str]:
    """The media behind an address, and their type where the address says it."""
    found = DATA_URL.fullmatch(url)
    return (Inline(found[2]), found[1]) if found else (Remote(url), "")


def is_base64(data: str) -> bool:
    """Whether media are what they must be; padding may be missing."""
    try:
        a2b_base64(data + "=" * (-len(data) % 4), strict_mode=True)
    except (Base64Error, ValueError):
        return False
    return True


def plain_text(data: str) -> str | None:
    """The text that base64 stands for; None when it is none."""
    try:
        return b64decode(data, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return None
