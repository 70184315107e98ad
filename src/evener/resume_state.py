"""A conversation in one text, from which another run can continue on any provider. Includes sealed reasoning.

    {"kind": "evener.resume_state", "version": 1, "sensitive": true, "model": ..., "origin": ..., "messages": [...]}

It contains the whole conversation, so it is never printed by accident, and its file is readable by its owner only. Its
content is not trusted: every error is a BadDocument with its place. Tools and the system prompt come from the harness.
"""

import re
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec

from evener.errors import BadDocument, UsageError
from evener.private_file import write_private
from evener.transcript.blocks import Origin
from evener.transcript.json import dump, load
from evener.transcript.message import Message
from evener.transcript.scan import checked_bytes, path_at, repeated_key, short
from evener.transcript.transcript import Transcript

__all__ = ["ResumeState"]

KIND: Literal["evener.resume_state"] = "evener.resume_state"
VERSION: Literal[1] = 1
MOST_BYTES = 64 << 20
MODEL = re.compile(r"[^\s\x00-\x1f\x7f]{1,256}")
BEFORE, AFTER = b'{"evener":"transcript","version":1,"system":[],"messages":', b"}"


class _Header(msgspec.Struct):
    kind: str
    version: int


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["evener.resume_state"]
    version: Literal[1]
    sensitive: Literal[True]
    model: str
    origin: Origin | None
    messages: msgspec.Raw


class _Messages(msgspec.Struct):
    messages: msgspec.Raw


_headers = msgspec.json.Decoder(_Header)
_documents = msgspec.json.Decoder(_Document)
_parts = msgspec.json.Decoder(_Messages)


class ResumeState:
    """Pass it to `Harness.run(..., resume_from=...)`. `text` is the JSON to store: as secret as the conversation itself.

    Media in a store are named, not contained: continue in the same store, or without them.
    """

    __slots__ = ("_document", "_messages", "_text")

    def __init__(self, text: str | bytes, *, max_bytes: int = MOST_BYTES) -> None:
        """Read and check `text`. A text of more than `max_bytes` is refused before it is read."""
        body = checked_bytes(text, max_bytes)
        self._document = _read(body)
        self._messages = _list_said(self._document, max_bytes + len(BEFORE))
        twice = repeated_key(body.decode())
        if twice is not None:
            raise _bad(twice, "this key stands twice in its object")
        self._text = body.decode()

    @classmethod
    def of(cls, transcript: Transcript, *, model: str) -> "ResumeState":
        """Make the state of a conversation whose run ended with an answer of this model."""
        last = transcript.last
        messages = _parts.decode(dump(transcript)).messages
        document = _Document(KIND, VERSION, True, model, last.origin if last else None, messages)
        return cls(msgspec.json.encode(document), max_bytes=1 << 40)

    @classmethod
    def load(cls, path: str | PathLike[str], *, max_bytes: int = MOST_BYTES) -> "ResumeState":
        """Read a file that `save` wrote."""
        try:
            with Path(path).open("rb") as file:
                return cls(file.read(max_bytes + 1), max_bytes=max_bytes)
        except OSError as error:
            raise UsageError(f"The resume state {path} cannot be read: {error.strerror}.") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file that only its owner can read. An existing file is replaced atomically."""
        try:
            write_private(Path(path), self._text.encode())
        except OSError as error:
            raise UsageError(f"The resume state cannot be written to {path}: {error.strerror}. Give another path.") from None

    @property
    def text(self) -> str:
        """The state as JSON. Sensitive: it holds the whole conversation."""
        return self._text

    @property
    def model(self) -> str:
        """The model that answered last, as `provider:model`. Any other model may continue."""
        return self._document.model

    @property
    def origin(self) -> Origin | None:
        """The origin of the last answer."""
        return self._document.origin

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the conversation."""
        return self._messages

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResumeState) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("A resume state is sensitive and not pickled. Keep its `text`, or `save` it.")

    def __repr__(self) -> str:
        return f"<ResumeState of {len(self._messages)} messages with {self.model}; sensitive, not shown>"


def _read(body: bytes) -> _Document:
    try:
        header = _headers.decode(body)
        if header.kind != KIND:
            raise BadDocument(f"This is {short(header.kind)!r}, not a resume state: expected {KIND!r}.", path="kind")
        if header.version > VERSION:
            raise BadDocument(
                f"This resume state has version {header.version}, and this Evener reads up to {VERSION}. Update Evener.",
                path="version",
            )
        document = _documents.decode(body)
    except msgspec.ValidationError as error:
        why, _, place = str(error).partition(" - at `$")
        raise _bad(place.strip(".`"), why) from None
    except msgspec.DecodeError as error:
        found = re.search(r"\(byte (\d+)\)", str(error))
        raise _bad(path_at(body, int(found[1]) if found else len(body)), str(error)) from None
    except RecursionError:
        raise _bad("", "it is nested deeper than any document of Evener's") from None
    if not MODEL.fullmatch(document.model):
        raise _bad("model", "it is not a model's name, such as provider:model")
    return document


def _list_said(document: _Document, max_bytes: int) -> tuple[Message, ...]:
    """Return the messages, if a prompt can follow them."""
    found = load(BEFORE + bytes(document.messages) + AFTER, max_bytes=max_bytes).messages
    if not found or found[-1].role != "assistant" or found[-1].calls:
        raise _bad("messages", "they do not end with an answer of the model, so no prompt can follow them")
    if found[-1].origin != document.origin:
        raise _bad("origin", "it is not that of the last message")
    return found


def _bad(path: str, why: str) -> BadDocument:
    where = f"{short(path)}: " if path else ""
    return BadDocument(f"Cannot read the resume state: {where}{short(why).rstrip('.')}. Take it from a result anew.", path=path)
