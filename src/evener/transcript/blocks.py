"""The blocks of a message: a closed union, tagged by `kind`. Frozen; to change one, replace it. Pure."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import ClassVar, Literal, TypeVar, final, get_args

import msgspec
from msgspec.structs import asdict, force_setattr

from evener.errors import BadValue

T = TypeVar("T")
_json: msgspec.json.Decoder[dict[str, object]] = msgspec.json.Decoder(dict[str, object])
_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_text(text: object, where: str) -> None:
    """Refuse what is not a str that can be written as UTF-8."""
    if type(text) is not str:
        raise BadValue(f"{where} must be a str, not {type(text).__name__}. Convert it first.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadValue(
                f"{where} holds a lone surrogate at position {error.start}, which no provider accepts. "
                "Decode the source correctly, or replace it with text.encode(errors='replace').decode()."
            ) from None


def check_texts(value: msgspec.Struct, *names: str) -> None:
    """Refuse a value in which one of these fields is not a str that can be written as UTF-8."""
    given = asdict(value)
    for name in names:
        text = given[name]
        if type(text) is not str or not text.isascii():
            check_text(text, f"{type(value).__name__}.{name}")


def check_type(value: object, kinds: tuple[type, ...], where: str) -> None:
    """Refuse other types than these. A subclass (a bool as an int, a block with more fields) could not be read back."""
    if type(value) not in kinds:
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise BadValue(f"{where} must be {names}, not {type(value).__name__}. Make one of those first.")


def check_choice(value: object, allowed: tuple[str, ...], where: str) -> None:
    """Refuse what is not one of these words."""
    if value not in allowed:
        raise BadValue(f"{where} must be one of {', '.join(map(repr, allowed))}, not {value!r:.80}. Pick one of them.")


def check_number(value: object, where: str, *, least: float | None = None, whole: bool = False) -> None:
    """Refuse what is neither None nor a finite number of the right kind."""
    if value is None:
        return
    right = (int,) if whole else (int, float)
    if type(value) not in right:
        kind = "a whole number" if whole else "a number"
        raise BadValue(f"{where} must be {kind} or None, not {type(value).__name__}. Convert it first.")
    if isinstance(value, float) and not isfinite(value):
        raise BadValue(f"{where} must be a finite number, not {value}. No provider takes that.")
    if least is not None and isinstance(value, (int, float)) and value < least:
        raise BadValue(f"{where} must be at least {least}, not {value}.")


def check_object(text: object, where: str) -> None:
    """Refuse what is not a str with the JSON text of an object."""
    check_text(text, where)
    try:
        _objects.decode(str(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadValue(f"{where} must be the JSON text of an object ({error}). Encode a dict with json.dumps first.") from None


def as_tuple(values: Iterable[T], where: str) -> tuple[T, ...]:
    """Return any collection but a text or a mapping as a tuple."""
    if type(values) is tuple:
        return values
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise BadValue(f"{where} must be a collection of values, not a {type(values).__name__}. Put it into a tuple.")
    return tuple(values)


def json_text(value: Mapping[str, object], where: str) -> str:
    """Return the JSON text of a mapping. A number that JSON has not is refused; it would silently become null."""
    try:
        text = msgspec.json.encode(dict(value)).decode()
        wrong = next((key for key in value if type(key) is not str), None)
        infinite = "null" in text and holds_infinity(msgspec.to_builtins(dict(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(f"{where} must be a JSON object: {error}. Convert it first.") from None
    if wrong is not None or infinite:
        what = "NaN or an infinity" if infinite else f"the key {wrong!r}, which is not a str"
        raise BadValue(f"{where} must be a JSON object, but it holds {what}. Convert it first.")
    return text


def json_object(text: str, what: str, *names: str) -> dict[str, object]:
    """Return the object that a JSON text is, decoded afresh. `what` it is has a place for each of the names."""
    try:
        return _json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        named = what.format(*names) if names else what
        raise BadValue(f"{named} is not a JSON object ({error}). Use the text itself instead.") from None


def holds_infinity(value: object) -> bool:
    """True if plain JSON values hold NaN or an infinity, which JSON cannot express."""
    left = [value]
    while left:
        match left.pop():
            case float() as number if not isfinite(number):
                return True
            case dict() as fields:
                left += fields.values()
            case list() | tuple() as items:
                left += items
    return False


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The maker of something, or the model to call: the same five facts.

    `account` is a fingerprint of the credential's account, never the credential.
    """

    wire: str = ""
    provider: str = ""
    endpoint: str = ""
    model: str = ""
    account: str = ""

    def __post_init__(self) -> None:
        check_texts(self, "wire", "provider", "endpoint", "model", "account")

    def owns(self, wire: str, provider: str) -> bool:
        """True if something of this wire and provider (empty: of anyone on the wire) is this one's own."""
        return wire == self.wire and provider in ("", self.provider)


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A provider's own fields on one block (signature, encrypted content, item id, phase): sent back verbatim or not at all.

    `data` is the JSON text of an object. `binding` is the fingerprint of the prefix after which the block was made, without
    cache marks; empty if unknown. `id` is the provider's name for the sealed block, which may be sent only once; empty if it
    has none.
    """

    data: str
    origin: Origin = Origin()
    binding: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        check_object(self.data, "Seal.data")
        if type(self.origin) is not Origin:
            check_type(self.origin, (Origin,), "Seal.origin")
        if self.binding != "":
            check_text(self.binding, "Seal.binding")
        if self.id != "":
            check_text(self.id, "Seal.id")


CacheTtl = Literal["", "5m", "30m", "1h", "12h"]
"""A cache mark after this block: how long the prefix up to here should live. Empty means no mark."""


TTLS: tuple[str, ...] = get_args(CacheTtl)


def _check_marks(block: "TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult") -> None:
    if block.seal is not None:
        check_type(block.seal, (Seal, type(None)), f"{type(block).__name__}.seal")
    if block.cache != "":
        check_choice(block.cache, TTLS, f"{type(block).__name__}.cache")


class Citation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The source of a piece of text. `start` and `end` are offsets in the text; -1 if the provider gives none."""

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int = -1
    end: int = -1

    def __post_init__(self) -> None:
        check_texts(self, "url", "title", "quote")
        check_type(self.start, (int,), "Citation.start")
        check_type(self.end, (int,), "Citation.end")


@final
class TextBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="text", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Text, with its citations."""

    kind: ClassVar[Literal["text"]] = "text"
    text: str
    citations: tuple[Citation, ...] = ()
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        if type(self.text) is not str or not self.text.isascii():
            check_text(self.text, "TextBlock.text")
        if self.citations != ():
            force_setattr(self, "citations", as_tuple(self.citations, "TextBlock.citations"))
            for citation in self.citations:
                check_type(citation, (Citation,), "Each of TextBlock.citations")
        if self.seal is not None or self.cache != "":
            _check_marks(self)


class Inline(msgspec.Struct, frozen=True, tag_field="at", tag="inline", forbid_unknown_fields=True):
    """Media in the request itself: base64 text."""

    data: str

    def __post_init__(self) -> None:
        check_text(self.data, "Inline.data")


class Remote(msgspec.Struct, frozen=True, tag_field="at", tag="remote", forbid_unknown_fields=True):
    """Media behind a URL that the provider fetches."""

    url: str

    def __post_init__(self) -> None:
        check_text(self.url, "Remote.url")


class Stored(msgspec.Struct, frozen=True, tag_field="at", tag="stored", forbid_unknown_fields=True):
    """Media in our blob store, by digest. They must be fetched before a codec can send them."""

    digest: str
    size: int = 0

    def __post_init__(self) -> None:
        check_text(self.digest, "Stored.digest")
        check_type(self.size, (int,), "Stored.size")


class Uploaded(msgspec.Struct, frozen=True, tag_field="at", tag="uploaded", forbid_unknown_fields=True, omit_defaults=True):
    """Media in a provider's file store. Only the provider that issued the id can use it."""

    file_id: str
    wire: str = ""
    provider: str = ""

    def __post_init__(self) -> None:
        check_texts(self, "file_id", "wire", "provider")

    def is_for(self, target: Origin) -> bool:
        """True if the target understands this id."""
        return target.owns(self.wire, self.provider)


Source = Inline | Remote | Stored | Uploaded
SOURCES: tuple[type, ...] = get_args(Source)


@final
class ImageBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="image", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An image. `detail` is the resolution at which the model should see it, if the wire has such a setting."""

    kind: ClassVar[Literal["image"]] = "image"
    source: Source
    media_type: str = ""
    detail: str = ""
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        check_type(self.source, SOURCES, "ImageBlock.source")
        check_texts(self, "media_type", "detail")
        _check_marks(self)


@final
class DocumentBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="document", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A file of any other type (PDF, plain text, audio, video), as its media type says."""

    kind: ClassVar[Literal["document"]] = "document"
    source: Source
    media_type: str = ""
    name: str = ""
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        check_type(self.source, SOURCES, "DocumentBlock.source")
        check_texts(self, "media_type", "name")
        _check_marks(self)


@final
class ReasoningBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="reasoning", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Reasoning of a model, in one form for all vendors. The text is for people, the seal for its maker.

    `tokens` is the provider's count of the tokens of all reasoning in the message, on its first block; 0 if the provider
    states none.
    """

    kind: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str = ""
    seal: Seal | None = None
    tokens: int = 0

    def __post_init__(self) -> None:
        check_text(self.text, "ReasoningBlock.text")
        check_type(self.seal, (Seal, type(None)), "ReasoningBlock.seal")
        if self.tokens != 0:
            check_number(self.tokens, "ReasoningBlock.tokens", least=0, whole=True)

    @property
    def metadata(self) -> dict[str, object]:
        """The provider's count as `provider_tokens`, and the maker's opaque fields, decoded afresh."""
        counted: dict[str, object] = {"provider_tokens": self.tokens} if self.tokens else {}
        return counted | json_object(self.seal.data, "The seal of a reasoning block") if self.seal else counted


@final
class ToolCall(
    msgspec.Struct, frozen=True, tag_field="kind", tag="tool_call", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A tool call of the model. `raw` is the JSON text of the arguments as the model wrote it; a mapping is also accepted.

    Arguments that do not parse are kept unchanged: then `args` raises, and `parses` is False. `redacted`: something was
    removed from the arguments before they were stored. Such a call must not run.
    """

    kind: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    raw: str = "{}"
    seal: Seal | None = None
    cache: CacheTtl = ""
    redacted: bool = False

    def __post_init__(self) -> None:
        if type(self.raw) is not str and isinstance(self.raw, Mapping):
            force_setattr(self, "raw", json_text(self.raw, "The arguments of a tool call"))
        raw, id, name = self.raw, self.id, self.name
        if not (type(raw) is type(id) is type(name) is str and raw.isascii() and id.isascii() and name.isascii()):
            check_texts(self, "raw", "id", "name")
        if self.redacted is not False:
            check_type(self.redacted, (bool,), "ToolCall.redacted")
        if self.seal is not None or self.cache != "":
            _check_marks(self)

    @classmethod
    def of(cls, id: str, name: str, args: Mapping[str, object]) -> "ToolCall":
        """Return a call with arguments given as a mapping."""
        return cls(id, name, json_text(args, "The arguments of a tool call"))

    @property
    def args(self) -> dict[str, object]:
        """The arguments, decoded afresh on each access: changing them changes nothing here."""
        return json_object(self.raw, "The argument text of call {!r} to {!r}", self.id, self.name)

    @property
    def parses(self) -> bool:
        """True if `raw` is a JSON object."""
        try:
            self.args  # noqa: B018 - reading it is the test
        except BadValue:
            return False
        return True


@final
class ToolResult(
    msgspec.Struct, frozen=True, tag_field="kind", tag="tool_result", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """The result of one call. The content is stored as blocks; a str becomes one text block."""

    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    call_id: str
    content: "tuple[ResultContent, ...]" = ()
    is_error: bool = False
    seal: Seal | None = None
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        if type(self.call_id) is not str or not self.call_id.isascii():
            check_text(self.call_id, "ToolResult.call_id")
        if type(self.content) is not tuple and isinstance(self.content, str):
            force_setattr(self, "content", (TextBlock(self.content),) if self.content else ())
        elif type(self.content) is not tuple:
            force_setattr(self, "content", as_tuple(self.content, "ToolResult.content"))
        for block in self.content:
            if type(block) not in CONTENTS:
                check_type(block, CONTENTS, "Each of ToolResult.content")
        if self.is_error is not False:
            check_type(self.is_error, (bool,), "ToolResult.is_error")
        if self.seal is not None or self.cache != "":
            _check_marks(self)

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


HostedRole = Literal["", "user", "assistant", "system", "result"]
HOSTED_ROLES: tuple[str, ...] = get_args(HostedRole)


@final
class HostedBlock(
    msgspec.Struct, frozen=True, tag_field="kind", tag="hosted", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A block of a provider's own tools, or another that only its wire knows: sent there verbatim, elsewhere as one line.

    `raw` is the JSON text of the wire's own block or item, `text` the line that replaces it on other wires. `role` says to
    which role's message it belongs on its wire, or `result` inside a tool result; empty is any. A block that `opens` an id
    waits for the one that `closes` it. `id` is the provider's name for it, which may be sent only once. With `provider` it
    is for that provider only, not for others on the same wire.
    """

    kind: ClassVar[Literal["hosted"]] = "hosted"
    raw: str
    wire: str
    text: str = ""
    role: HostedRole = ""
    opens: str = ""
    closes: str = ""
    id: str = ""
    provider: str = ""
    cache: CacheTtl = ""

    def __post_init__(self) -> None:
        check_object(self.raw, "HostedBlock.raw")
        check_texts(self, "wire", "text", "opens", "closes", "id", "provider")
        check_choice(self.role, HOSTED_ROLES, "HostedBlock.role")
        check_choice(self.cache, TTLS, "HostedBlock.cache")

    def is_for(self, target: Origin) -> bool:
        """True if it may go to the target, verbatim."""
        return target.owns(self.wire, self.provider)

    @property
    def line(self) -> str:
        """What stands for it where it cannot go."""
        return f"[{self.text or 'provider data omitted'}]"


ResultContent = TextBlock | ImageBlock | DocumentBlock | HostedBlock
Block = TextBlock | ImageBlock | DocumentBlock | ReasoningBlock | ToolCall | ToolResult | HostedBlock
CONTENTS: tuple[type[msgspec.Struct], ...] = get_args(ResultContent)
