"""The JSON form of transcripts and messages: versioned and strict; every version stays readable. Pure.

    {"evener": "transcript", "version": 1, "system": [block, ...], "messages": [message, ...]}
    {"evener": "message", "version": 1, "message": message}

A field with its default value is omitted, except `id` and `created_at` of a message. A document is not trusted: every error
in it is a BadDocument with its place, and then nothing of it is loaded.
"""

import re
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Literal, TypeVar, get_args

import msgspec

from evener.errors import BadDocument, BadValue
from evener.transcript.blocks import CONTENTS, TTLS, Block, Origin, Source, TextBlock
from evener.transcript.message import ROLES, Message, Role
from evener.transcript.reply import Usage
from evener.transcript.scan import checked_bytes, path_at, repeated_key, short
from evener.transcript.transcript import Transcript

VERSION: Literal[1] = 1
MAX_BYTES = 64 << 20

D = TypeVar("D", "_TranscriptDocument", "_MessageDocument")


class _Header(msgspec.Struct):
    """The header of every document. It is read first, so that a newer version is recognised before its new keys are."""

    evener: str
    version: int


class _StoredMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message as it is stored: reading it adds nothing."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    role: Role
    created_at: Annotated[datetime, msgspec.Meta(tz=True)] | None
    blocks: tuple[Block, ...]
    parent_id: str = ""
    origin: Origin | None = None
    usage: Usage | None = None


class _TranscriptDocument(msgspec.Struct, forbid_unknown_fields=True):
    evener: Literal["transcript"]
    version: Literal[1]
    system: tuple[TextBlock, ...]
    messages: tuple[_StoredMessage, ...]


class _MessageDocument(msgspec.Struct, forbid_unknown_fields=True):
    evener: Literal["message"]
    version: Literal[1]
    message: _StoredMessage


_headers = msgspec.json.Decoder(_Header)
_transcripts = msgspec.json.Decoder(_TranscriptDocument)
_messages = msgspec.json.Decoder(_MessageDocument)
_encoder = msgspec.json.Encoder()


def dump(transcript: Transcript) -> bytes:
    """Return the transcript as UTF-8 JSON."""
    if not isinstance(transcript, Transcript):
        raise BadValue(f"dump takes a Transcript, not {type(transcript).__name__}. For a Message there is dump_message.")
    messages = tuple(_store(message) for message in transcript)
    return _encode(_TranscriptDocument("transcript", VERSION, transcript.system_blocks, messages))


def load(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> Transcript:
    """Return the transcript that `dump` wrote. A text of more than `max_bytes` is not looked at."""
    document = _decode(checked_bytes(data, max_bytes), "transcript", _transcripts)
    messages = [_message(stored, f"messages[{number}]") for number, stored in enumerate(document.messages)]
    for number, (before, message) in enumerate(pairwise(messages), 1):
        if message.parent_id != before.id:
            path = f"messages[{number}].parent_id"
            raise _bad(path, f"it is {short(message.parent_id)!r}, but the message before it is {short(before.id)!r}")
    return Transcript(messages, document.system)


def dump_message(message: Message) -> bytes:
    """Return one message as UTF-8 JSON."""
    if not isinstance(message, Message):
        raise BadValue(f"dump_message takes a Message, not {type(message).__name__}. For a Transcript there is dump.")
    return _encode(_MessageDocument("message", VERSION, _store(message)))


def load_message(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> Message:
    """Return the message that `dump_message` wrote."""
    return _message(_decode(checked_bytes(data, max_bytes), "message", _messages).message, "message")


def _store(message: Message) -> _StoredMessage:
    return _StoredMessage(
        message.id, message.role, message.created_at, message.blocks, message.parent_id, message.origin, message.usage
    )


def _message(stored: _StoredMessage, path: str) -> Message:
    try:
        return Message(stored.role, stored.blocks, stored.id, stored.parent_id, stored.created_at, stored.origin, stored.usage)
    except BadValue as error:
        raise _bad(path, str(error)) from None


def _encode(document: _TranscriptDocument | _MessageDocument) -> bytes:
    try:
        return _encoder.encode(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(f"This {document.evener} cannot be written as JSON: {error}. Correct that value.") from None


def _decode(body: bytes, kind: str, decoder: "msgspec.json.Decoder[D]") -> D:
    try:
        _check_header(body, kind)
        document = decoder.decode(body)
    except msgspec.ValidationError as error:
        why, _, place = str(error).partition(" - at `$")
        path = place.strip(".`")
        raise _bad(path, short(why) + (_list_expected(path) if why.startswith("Invalid") else "")) from None
    except msgspec.DecodeError as error:
        raise _describe_malformed(body, str(error)) from None
    except RecursionError:
        raise _bad("", "it is nested deeper than any document of Evener's") from None
    twice = repeated_key(body.decode())
    if twice is not None:
        raise _bad(twice, "this key stands twice in its object")
    return document


def _check_header(body: bytes, kind: str) -> None:
    """Say at once when this is another document, or one of another time."""
    try:
        header = _headers.decode(body)
    except msgspec.ValidationError as error:
        raise BadDocument(
            f'This is not an Evener document: {short(str(error))}. One begins with {{"evener":"{kind}","version":{VERSION}. '
            "Check that it is the right file."
        ) from None
    if header.evener != kind:
        raise BadDocument(f"This is an Evener {short(header.evener)!r} document, not a {kind}. Load it as that kind.")
    if header.version > VERSION:
        raise BadDocument(
            f"This {kind} was written by a newer Evener: it has version {header.version}, and this one reads up to {VERSION}. "
            "Update Evener to read it.",
            path="version",
        )
    if header.version < VERSION:
        raise BadDocument(f"There is no version {header.version} of a {kind}; the first is 1. Correct it.", path="version")


def _list_expected(path: str) -> str:
    """Return the words that may stand at a path; empty where any text may."""
    inside, _, key = path.rpartition(".")
    words: tuple[str, ...] = {"role": ROLES, "cache": TTLS, "at": _tags(get_args(Source))}.get(key, ())
    if key == "kind":
        blocks = (TextBlock,) if inside.startswith("system") else CONTENTS if ".content[" in inside else get_args(Block)
        words = _tags(blocks)
    return f"; expected one of {', '.join(map(repr, words))}" if words else ""


def _tags(kinds: tuple[type[msgspec.Struct], ...]) -> tuple[str, ...]:
    return tuple(str(kind.__struct_config__.tag) for kind in kinds)


def _describe_malformed(body: bytes, why: str) -> BadDocument:
    found = re.search(r"\(byte (\d+)\)", why)
    byte = int(found[1]) if found else len(body)
    if body[byte : byte + 8].startswith((b"NaN", b"Infinity")):
        why = f"NaN and Infinity are not JSON (byte {byte:,})"
    return _bad(path_at(body, byte), why)


def _bad(path: str, why: str) -> BadDocument:
    where = f"{short(path)}: " if path else ""
    return BadDocument(f"Cannot read the document: {where}{why.rstrip('.')}. Correct it there, or dump it again.", path=path)
