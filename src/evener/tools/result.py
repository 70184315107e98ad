"""The result of a tool call, in one form for everything that a function returns or raises. Pure.

A failed tool is an ordinary result: nothing here raises because of what a tool did. The model never gets a traceback.
"""

import inspect
import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from operator import is_
from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from evener.errors import BadValue
from evener.events import InnerQuestion, Spilled
from evener.tools.schema import is_model_value, model_dump
from evener.transcript.blocks import (
    CONTENTS,
    DocumentBlock,
    ImageBlock,
    Inline,
    ResultContent,
    TextBlock,
    ToolResult,
    check_choice,
    check_object,
    check_type,
    holds_infinity,
    json_object,
    json_text,
)

Outcome = Literal["done", "failed", "unknown"]
"""`unknown`: the call was given up, and it is not known whether it took effect."""
OUTCOMES: tuple[str, ...] = get_args(Outcome)
Scrub = Callable[[str], str]
"""Removes secrets from a text."""

MOST_MESSAGE = 4_000
MOST_MEDIA = 20 << 20


class ModelRetry(Exception):
    """Raise it in a tool to tell the model what to do differently. It counts toward the tool's retries."""


class ToolOutput(msgspec.Struct, frozen=True):
    """A return value with more than content: `metadata` is for the program and never goes to the model.

    `keep`: this result is never left out of requests, as if it were pinned; use it for instructions.
    """

    content: object
    metadata: Mapping[str, object] = {}
    keep: bool = False


class Waits(msgspec.Struct, frozen=True):
    """What a run inside a call waits for: the thread in which to decide, and the questions."""

    thread: str
    inner: tuple[InnerQuestion, ...]


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The result of one call. `retry`: the model can correct it, and it counts toward the tool's retries.

    `meta` is the JSON text of an object for the program; the model does not get it. A str as content is one text block.
    `spilled` names the blob with the whole of a shortened text. With `waits` the call has no result yet: a run inside it
    waits. `keep`: the result is never left out of requests. `reveals` names hidden tools to declare from now on.
    """

    ok: bool
    content: tuple[ResultContent, ...] = ()
    meta: str = "{}"
    retry: bool = False
    outcome: Outcome = "done"
    spilled: Spilled | None = None
    waits: Waits | None = None
    keep: bool = False
    reveals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.ok) is not bool:
            check_type(self.ok, (bool,), "Envelope.ok")
        if isinstance(self.content, str):
            force_setattr(self, "content", (TextBlock(self.content),) if self.content else ())
        for block in self.content:
            if type(block) not in CONTENTS:
                check_type(block, CONTENTS, "Each of Envelope.content")
        if self.meta != "{}":
            if type(self.meta) is not str and isinstance(self.meta, Mapping):
                force_setattr(self, "meta", json_text(self.meta, "Envelope.meta"))
            check_object(self.meta, "Envelope.meta")
        if type(self.retry) is not bool:
            check_type(self.retry, (bool,), "Envelope.retry")
        if self.outcome not in OUTCOMES:
            check_choice(self.outcome, OUTCOMES, "Envelope.outcome")

    @property
    def metadata(self) -> dict[str, object]:
        """The metadata, decoded anew each time."""
        return json_object(self.meta, "The metadata of a result")

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))

    def to_result(self, call_id: str) -> ToolResult:
        """Return the block that answers the call."""
        return ToolResult(call_id, self.content, is_error=not self.ok)


def report_failure(text: str, *, retry: bool = False, outcome: Outcome = "failed") -> Envelope:
    """Return the envelope of a call that failed, with the text for the model."""
    return Envelope(False, (TextBlock(_sound(text)),), retry=retry, outcome=outcome)


def envelope_of(value: object) -> Envelope:
    """Return an envelope with whatever a function returned. What cannot be shown to a model makes a failed one that says so."""
    try:
        if type(value) is str:  # nearly always
            return Envelope(True, (TextBlock(_sound(value)),) if value else ())
        match value:
            case Envelope():
                return value
            case ToolOutput():
                meta = json_text(value.metadata, "ToolOutput.metadata")
                return Envelope(True, _content(value.content), meta, keep=value.keep)
        return Envelope(True, _content(value))
    except (BadValue, TypeError, ValueError, OverflowError, RecursionError) as error:
        return report_failure(
            f"The tool ran, but what it returned ({type(value).__name__}) cannot be shown: {_message(error)}. "
            "Its author should return a text, a JSON value, an image, or blocks of content."
        )


def report_error(error: BaseException, name: str) -> Envelope:
    """Return the envelope for an exception that a function raised: its type and its message."""
    if isinstance(error, ModelRetry):
        return report_failure(_message(error) or f"The tool {name!r} asks for a different call.", retry=True)
    return report_failure(f"The tool {name!r} failed with {_describe(error)}"[:MOST_MESSAGE])


def scrub_envelope(envelope: Envelope, scrub: Scrub) -> Envelope:
    """Return an envelope without secrets in its texts; the same one if there were none."""

    def clean(block: ResultContent) -> ResultContent:
        if not isinstance(block, TextBlock) or (text := scrub(block.text)) == block.text:
            return block
        return msgspec.structs.replace(block, text=text)

    content = tuple(map(clean, envelope.content))
    return envelope if all(map(is_, content, envelope.content)) else msgspec.structs.replace(envelope, content=content)


def _describe(error: BaseException) -> str:
    words = _message(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(_describe(part) for part in error.exceptions[:3])
        text = f"{text} [{inner}]"
    return text


def _message(error: BaseException) -> str:
    try:
        return _sound(str(error))[:MOST_MESSAGE]
    except Exception:  # __str__ of a foreign exception is foreign code
        return "(its message cannot be read)"


def _content(value: object) -> tuple[ResultContent, ...]:
    match value:
        case None:
            return (TextBlock("(no output)"),)
        case str():
            return (TextBlock(_sound(value)),) if value else ()
        case bytes() | bytearray() | memoryview():
            return (_media(bytes(value)),)
        case list() | tuple() if any(type(item) in CONTENTS for item in value):
            return tuple(block for item in value for block in _blocks(item))
    return _blocks(value)


def _blocks(value: object) -> tuple[ResultContent, ...]:
    """Return a block as it is; else the JSON text of a value."""
    if isinstance(value, TextBlock | ImageBlock | DocumentBlock) or type(value) in CONTENTS:
        return (value,)  # type: ignore[return-value]  # CONTENTS are the types of ResultContent
    if isinstance(value, str | bytes):
        return _content(value)
    return (TextBlock(_json(value)),)


def _sound(text: str) -> str:
    """Return a plain str that can be encoded: a lone surrogate (from a file name, say) becomes a question mark."""
    return str.__str__(text) if text.isascii() else text.encode(errors="replace").decode()


def media_type(data: bytes) -> str:
    """Return the type of an image or a document that models are shown, by its first bytes; empty for anything else."""
    from evener.wire.media import image_type

    return "application/pdf" if data.startswith(b"%PDF-") else image_type(data)


def _media(data: bytes) -> ResultContent:
    """Return a block for bytes, by what they begin with: an image, a document, or text."""
    if len(data) > MOST_MEDIA:
        raise BadValue(f"it has {len(data):,} bytes, and at most {MOST_MEDIA:,} are allowed; make it smaller")
    kind = media_type(data)
    if kind.startswith("image/"):
        return ImageBlock(Inline(b64encode(data).decode()), kind)
    if kind:
        return DocumentBlock(Inline(b64encode(data).decode()), kind)
    try:
        return TextBlock(data.decode())
    except UnicodeDecodeError:
        raise BadValue("these bytes are neither text nor a known kind of image or document") from None


def _json(value: object) -> str:
    """Return the compact JSON text of a value."""
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
        raise BadValue(f"a {type(value).__name__} has not run yet; collect what it gives into a list")
    try:
        text = msgspec.json.encode(value, enc_hook=_encodable).decode()
    except OverflowError:
        text = json.dumps(msgspec.to_builtins(value, enc_hook=_encodable), separators=(",", ":"), ensure_ascii=False)
    if "null" in text and holds_infinity(msgspec.to_builtins(value, enc_hook=_encodable)):
        raise BadValue("it holds NaN or an infinity, which JSON cannot express")
    return text


def _encodable(value: object) -> object:
    if is_model_value(value):
        return model_dump(value)
    match value:  # msgspec takes these classes, but not their subclasses, such as numpy's float64
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
