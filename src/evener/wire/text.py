"""JSON text as bytes: small writers the codecs share. Pure."""

from collections.abc import Callable

import msgspec

from evener.errors import BadValue
from evener.transcript.ask import FREE_INPUT, ToolSpec
from evener.transcript.blocks import (
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Remote,
    ResultContent,
    Stored,
    TextBlock,
    ToolCall,
    Uploaded,
)
from evener.transcript.loss import Loss, loss_of

__all__ = [
    "ERROR",
    "OPERATOR",
    "UNREADABLE",
    "as_object",
    "dict_of",
    "dumps",
    "fields",
    "free_arguments",
    "free_text",
    "is_plain",
    "merged",
    "must_fetch",
    "placeholder",
    "telling_fields",
    "text_in",
    "with_tool_extra",
    "word",
]

UNREADABLE = "_unreadable_arguments"
"""The key under which a call's arguments travel that are not a JSON object."""

OPERATOR = "[instruction from the operator, not from the user]\n"
"""What a system message begins with where it can only stand as the user's."""

ERROR = "ERROR: "
"""What a failed tool's result begins with where there is no flag for it."""

dumps: Callable[[object], bytes] = msgspec.json.Encoder().encode
"""JSON bytes."""

fields: Callable[[str | bytes | msgspec.Raw], dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The fields of a JSON object, each still as its own text."""


def merged(own: dict[str, object], raw: str) -> dict[str, object]:
    """Our fields and then the fields of a seal that we do not write ourselves, verbatim."""
    return {**fields(raw), **own} if raw else own


def dict_of(value: object) -> dict[str, object]:
    """The value if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def with_tool_extra(own: dict[str, object], tool: ToolSpec, wire: str, losses: list[Loss]) -> dict[str, object]:
    """A tool's declaration with the fields that only this wire knows; those of another wire are reported."""
    if not tool.extra:
        return own
    if tool.wire == wire:
        return {**own, **fields(tool.extra)}
    names = ", ".join(telling_fields(tool.extra))
    if not names:
        return own
    losses.append(loss_of("dropped", "tool.fields", f"only {tool.wire} knows {names}", name=tool.name))
    return own


def telling_fields(raw: str) -> list[str]:
    """The names of the fields of an object that say something."""
    found: list[str] = []
    for name, value in fields(raw).items():
        inner = telling_fields(bytes(value).decode()) if bytes(value)[:1] == b"{" else None
        if (inner is None and bytes(value) not in (b"null", b'""')) or inner:
            found.append(name)
    return found


def as_object(raw: str) -> msgspec.Raw | None:
    """JSON text that is an object, ready to be embedded; None when it is not one."""
    try:
        fields(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return msgspec.Raw(raw.encode())


def is_plain(block: ResultContent) -> bool:
    """Whether a block is words and nothing else, so that a bare text can stand for it."""
    return type(block) is TextBlock and block.seal is None and not block.citations and not block.cache


def placeholder(block: ImageBlock | DocumentBlock | HostedBlock) -> str:
    """One readable line that stands for what a wire cannot carry."""
    if isinstance(block, HostedBlock):
        return block.line
    what = "image" if isinstance(block, ImageBlock) else "document"
    match block.source:
        case Inline(data):
            where = f"{len(data) * 3 // 4} bytes"
        case Remote(url):
            where = url
        case Stored(digest):
            where = digest
        case Uploaded(file_id):
            where = file_id
    kind = block.media_type or "unknown type"
    return f"[{what} omitted: {kind}, {where}]"


def must_fetch(what: str) -> BadValue:
    """The error for media that lies in our store and was not fetched before encoding."""
    return BadValue(f"The {what} is stored by digest and was not loaded. Replace its source by Inline(...) before encoding.")


def word(raw: msgspec.Raw | None) -> str:
    """A JSON value as a word to show: a string without its quotes, nothing for null."""
    return bytes(raw).decode(errors="replace").strip('"') if raw is not None and bytes(raw) != b"null" else ""


def free_text(call: ToolCall) -> str:
    """The text that a call of a tool was made with that takes free text; all that was written where there is no such text."""
    own = as_object(call.raw)
    given = fields(own).get(FREE_INPUT) if own is not None else None
    return text_in(given) if given is not None and bytes(given)[:1] == b'"' else call.raw


def free_arguments(text: str) -> str:
    """The arguments of a call that was made with a text: the JSON text of an object."""
    return dumps({FREE_INPUT: text}).decode()


def text_in(raw: msgspec.Raw | None) -> str:
    """The text that a JSON string is; empty for anything else."""
    return msgspec.json.decode(raw, type=str) if raw is not None and bytes(raw)[:1] == b'"' else ""
