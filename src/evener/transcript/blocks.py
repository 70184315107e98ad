"""The blocks a message is made of: a closed union, tagged by `kind`. Frozen; a change is a replacement. Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from evener.errors import BadValue
from evener.transcript.origin import Seal

__all__ = [
    "Block",
    "CacheTtl",
    "Citation",
    "DocumentBlock",
    "HostedBlock",
    "ImageBlock",
    "Inline",
    "ReasoningBlock",
    "Remote",
    "ResultContent",
    "Source",
    "Stored",
    "TextBlock",
    "ToolCall",
    "ToolResult",
    "Uploaded",
]

CacheTtl = Literal["", "5m", "30m", "1h", "12h"]
"""A cache mark after this block: how long the prefix up to here should live. Empty means no mark."""


def check_text(text: object, where: str) -> None:
    """Refuse what cannot be written as UTF-8, at the moment it is made and not when it is sent."""
    if type(text) is not str:
        raise BadValue(f"{where} must be a str, not {type(text).__name__}. Convert it before making the block.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadValue(
                f"{where} holds a lone surrogate at position {error.start}, which no provider accepts. "
                "Decode the source correctly, or replace it with text.encode(errors='replace')."
            ) from None


class Citation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a piece of text rests on. `start` and `end` are offsets in the text, -1 when the provider gives none."""

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int = -1
    end: int = -1


class TextBlock(msgspec.Struct, frozen=True, tag_field="kind", tag="text", forbid_unknown_fields=True, omit_defaults=True):
    """Words. Citations ride on them."""

    text: str
    citations: tuple[Citation, ...] = ()
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        check_text(self.text, "TextBlock.text")

    @property
    def kind(self) -> Literal["text"]:
        return "text"


class Inline(msgspec.Struct, frozen=True, tag_field="at", tag="inline", forbid_unknown_fields=True):
    """Media that travels with the request: base64 text."""

    data: str


class Remote(msgspec.Struct, frozen=True, tag_field="at", tag="remote", forbid_unknown_fields=True):
    """Media behind a URL that the provider fetches."""

    url: str


class Stored(msgspec.Struct, frozen=True, tag_field="at", tag="stored", forbid_unknown_fields=True):
    """Media in our blob store, by digest. It must be fetched before a codec can send it."""

    digest: str
    size: int = 0


class Uploaded(msgspec.Struct, frozen=True, tag_field="at", tag="uploaded", forbid_unknown_fields=True, omit_defaults=True):
    """Media in a provider's file store. Only the wire that minted the id understands it."""

    file_id: str
    wire: str = ""


Source = Inline | Remote | Stored | Uploaded


class ImageBlock(msgspec.Struct, frozen=True, tag_field="kind", tag="image", forbid_unknown_fields=True, omit_defaults=True):
    """A picture. `detail` is the resolution the model should look at, where a wire knows such a thing."""

    source: Source
    media_type: str = ""
    detail: str = ""
    seal: Seal | None = None
    cache: CacheTtl = ""

    @property
    def kind(self) -> Literal["image"]:
        return "image"


class DocumentBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="document", forbid_unknown_fields=True, omit_defaults=True
):
    """A file of any other type (PDF, plain text, audio, video): the media type decides."""

    source: Source
    media_type: str = ""
    name: str = ""
    seal: Seal | None = None
    cache: CacheTtl = ""

    @property
    def kind(self) -> Literal["document"]:
        return "document"


class ReasoningBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="reasoning", forbid_unknown_fields=True, omit_defaults=True
):
    """What a model thought before it spoke, under one name for all vendors. Text is for people, the seal for its maker."""

    text: str = ""
    seal: Seal | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "ReasoningBlock.text")

    @property
    def kind(self) -> Literal["reasoning"]:
        return "reasoning"

    @property
    def metadata(self) -> dict[str, object]:
        """The maker's opaque fields, decoded afresh."""
        return msgspec.json.decode(self.seal.data, type=dict[str, object]) if self.seal else {}


class ToolCall(msgspec.Struct, frozen=True, tag_field="kind", tag="tool_call", forbid_unknown_fields=True, omit_defaults=True):
    """The model asks for a tool. `raw` is the JSON text of the arguments as the model wrote it; a mapping is taken, too.

    Arguments that do not parse are kept as they are: `args` then raises, `parses` tells.
    """

    id: str
    name: str
    raw: str = "{}"
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        if isinstance(self.raw, Mapping):
            force_setattr(self, "raw", encode_arguments(self.raw))
        check_text(self.raw, "ToolCall.raw")
        check_text(self.id, "ToolCall.id")
        check_text(self.name, "ToolCall.name")

    @classmethod
    def of(cls, id: str, name: str, args: Mapping[str, object]) -> "ToolCall":
        """A call with arguments given as a mapping."""
        return cls(id, name, encode_arguments(args))

    @property
    def kind(self) -> Literal["tool_call"]:
        return "tool_call"

    @property
    def args(self) -> dict[str, object]:
        """The arguments, decoded afresh on each access: changing them changes nothing here."""
        try:
            return msgspec.json.decode(self.raw, type=dict[str, object])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadValue(
                f"The arguments of call {self.id!r} to {self.name!r} are not a JSON object ({error}). "
                "Read `raw` for what the model wrote, and answer the call with an error result."
            ) from None

    @property
    def parses(self) -> bool:
        """Whether `raw` is a JSON object."""
        try:
            self.args  # noqa: B018 - reading it is the test
        except BadValue:
            return False
        return True


def encode_arguments(args: Mapping[str, object]) -> str:
    """The JSON text of arguments given as a mapping."""
    try:
        return msgspec.json.encode(dict(args)).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(f"Tool arguments must be a JSON object: {error}. Convert them first.") from None


class ToolResult(
    msgspec.Struct, frozen=True, tag_field="kind", tag="tool_result", forbid_unknown_fields=True, omit_defaults=True
):
    """What a tool gave back for one call. Content is always blocks inside; a str is taken as one text block."""

    call_id: str
    content: "tuple[ResultContent, ...]" = ()
    is_error: bool = False
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        check_text(self.call_id, "ToolResult.call_id")
        if isinstance(self.content, str):
            force_setattr(self, "content", (TextBlock(self.content),) if self.content else ())
        elif type(self.content) is not tuple:
            force_setattr(self, "content", tuple(self.content))
        for block in self.content:
            if not isinstance(block, (TextBlock, ImageBlock, DocumentBlock, HostedBlock)):
                raise BadValue(
                    f"A ToolResult holds text, images and documents, not {type(block).__name__}. Convert it to one of them."
                )

    @property
    def kind(self) -> Literal["tool_result"]:
        return "tool_result"

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


class HostedBlock(msgspec.Struct, frozen=True, tag_field="kind", tag="hosted", forbid_unknown_fields=True, omit_defaults=True):
    """What a provider's own tools did, or anything else only its wire understands: verbatim there, one line elsewhere.

    `raw` is the JSON text of the wire's own block or item, `text` the line that stands for it on other wires. `role` says
    whose message it belongs to on its wire, or `result` inside a tool result; empty is any. A block that `opens` an id waits
    for the one that `closes` it.
    """

    raw: str
    wire: str
    text: str = ""
    role: Literal["", "user", "assistant", "system", "result"] = ""
    opens: str = ""
    closes: str = ""
    cache: CacheTtl = ""

    @property
    def line(self) -> str:
        """What stands for it where it cannot go."""
        return f"[{self.text or 'provider data omitted'}]"

    @property
    def kind(self) -> Literal["hosted"]:
        return "hosted"


ResultContent = TextBlock | ImageBlock | DocumentBlock | HostedBlock
Block = TextBlock | ImageBlock | DocumentBlock | ReasoningBlock | ToolCall | ToolResult | HostedBlock
