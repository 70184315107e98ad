"""Reads contents as messages: a content is a message, a part is a block. Pure.

What has no neutral word is kept, not refused: unknown fields of a part ride in its seal, unknown parts are hosted blocks. Calls
without ids get ours, and results without ids go to the calls they stand for, in order.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from evener.errors import WireError
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    ResultContent,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.message import Message, Role
from evener.transcript.origin import Origin, Seal
from evener.wire.gemini.hosted import HOSTED, hosted_block
from evener.wire.gemini.parts import (
    KNOWN,
    NOBODYS,
    WIRE,
    Raws,
    Shape,
    as_list,
    camel_fields,
    camel_object,
    is_bare,
    own_fields,
    sealed_text,
    source_of,
)
from evener.wire.names import made_id
from evener.wire.reading import Fields, keep_beside, message_id, raw_text
from evener.wire.text import dumps, fields

__all__ = ["Turns"]

ROLES: dict[str, Role] = {"": "user", "user": "user", "function": "user", "model": "assistant"}
STANDARD = str.maketrans("-_", "+/")
"""This wire takes both alphabets of base64, other wires only the one with plus and slash."""
PLAIN = ("output", "error")
"""Where the text of a result stands when nobody says otherwise."""


class Turns:
    """The contents of one request, read in order: results look for the calls before them."""

    def __init__(self, target: Origin) -> None:
        self.target = target
        self.place = ""
        self._ask(())

    def message(self, number: int, raw: msgspec.Raw) -> Message:
        """One content."""
        own = Fields(camel_fields(raw))
        role = ROLES.get(said := own.carried_text("role"))
        parts = as_list(own.take("parts")) if own.has("parts") else []
        if role is None:
            raise WireError(f"contents[{number}] has the role {said!r}. Expected the role user or model, and parts.")
        self.place = message_id(number, raw)
        if role == "assistant":
            self._ask(())
        blocks = tuple(self._block(place, part) for place, part in enumerate(parts))
        if role == "user" and all(isinstance(block, TextBlock) and not block.text.strip() for block in blocks):
            blocks = tuple(self._kept(part, "an empty message", "user") for part in parts)
        if role == "assistant":
            self._ask(blocks)
        origin = self.target if role == "assistant" else None
        kept = keep_beside(blocks, own, self.target)
        return Message(role, kept, id=self.place, created_at=None, origin=origin)

    def _ask(self, blocks: Sequence[Block]) -> None:
        """Note the calls that have no result yet, by id and by name."""
        self.open = {block.id: block for block in blocks if isinstance(block, ToolCall)}
        self.named: dict[str, list[str]] = {}
        for call in reversed(self.open.values()):
            self.named.setdefault(call.name, []).append(call.id)

    def _block(self, place: int, raw: msgspec.Raw) -> Block:
        own = Fields(camel_fields(raw))
        found = [name for name in (*KNOWN, *HOSTED) if own.has(name)]
        match found:
            case ["text"] if own.is_text("text"):
                return self._text(own)
            case ["functionCall"] if own.is_object("functionCall"):
                return self._call(place, own)
            case ["functionResponse"] if own.is_object("functionResponse"):
                return self._result(own)
            case ["inlineData"] | ["fileData"] if own.is_object(found[0]):
                return self._media(own, found[0]) or hosted_block(raw, self.target.provider)
            case _:
                return hosted_block(raw, self.target.provider)

    def _kept(self, raw: msgspec.Raw, text: str, role: Literal["", "user"] = "") -> HostedBlock:
        return HostedBlock(bytes(raw).decode(), WIRE, text, role, provider=self.target.provider)

    def _seal(self, beside: Raws, name: str = "", inner: Raws | None = None) -> Seal | None:
        text = sealed_text(beside, name, inner)
        return Seal(text, self.target) if text else None

    def _text(self, own: Fields) -> TextBlock | ReasoningBlock:
        text = own.text("text")
        seal = self._seal(own.rest())
        thought = bytes(own.peek_raw("thought")) == b"true"
        return ReasoningBlock(text, seal) if thought else TextBlock(text, seal=seal)

    def _call(self, place: int, own: Fields) -> ToolCall:
        call = Fields(camel_fields(own.take("functionCall")))
        arguments = raw_text(call.take("args"), "{}")
        name, given = call.carried_text("name"), call.carried_text("id")
        if not given:
            call.put("id", "null")
        return ToolCall(
            given or made_id(self.place, place), name, arguments, self._seal(own.rest(), "functionCall", call.rest())
        )

    def _media(self, own: Fields, kind: str) -> ImageBlock | DocumentBlock | None:
        """The media of a part; None, and nothing taken, where it says in no known form what it is."""
        media = camel_object(own, kind)
        inline, where = kind == "inlineData", "data" if kind == "inlineData" else "fileUri"
        if (media.has("mimeType") and not media.is_text("mimeType")) or not media.is_text(where):
            return None
        own.take(kind)
        media_type, named, value = media.text("mimeType"), media.peek("displayName"), media.text(where)
        source = Inline(value.translate(STANDARD)) if inline else source_of(value, self.target.provider)
        seal = self._seal(own.rest(), kind, media.rest())
        if media_type.startswith("image/"):
            return ImageBlock(source, media_type, seal=seal)
        return DocumentBlock(source, media_type, named, seal)

    def _result(self, own: Fields) -> ToolResult:
        result = Fields(camel_fields(own.take("functionResponse")))
        name, given = result.carried_text("name"), result.carried_text("id")
        call = self._answered(name, given)
        if call and not given and not is_bare(own_fields(call.seal)):
            result.put("id", "null")
        if call and name != call.name:
            result.put("name", dumps(name).decode())
        texts, failed = self._response(result)
        media: list[ResultContent] = [self._inner(raw) for raw in result.peek_items("parts")]
        if media or bytes(result.peek_raw("parts")) == b"[]":
            result.take("parts")
        seal = self._seal(own.rest(), "functionResponse", result.rest())
        return ToolResult(call.id if call else given, (*texts, *media), failed, seal)

    def _answered(self, name: str, given: str) -> ToolCall | None:
        """The call that a result is for: by id, else the first open one of that name."""
        if given:
            return self.open.pop(given, None)
        waiting = self.named.get(name, [])
        while waiting:
            call = self.open.pop(waiting.pop(), None)
            if call:
                return call
        return None

    def _response(self, result: Fields) -> tuple[list[TextBlock], bool]:
        """The text of a result and whether it is an error; where it stood is left in the seal unless it is the usual place."""
        raw = result.take("response")
        own = Fields({} if raw == NOBODYS else fields(raw))
        names = list(own.rest())
        if not names:
            return [], False
        under = names[0] if len(names) == 1 else ""
        written = own.is_text(under)
        text = own.peek(under) if written else raw_text(own.peek_raw(under), "null") if under else bytes(raw).decode()
        if under not in PLAIN or not written or not text:
            result.put("response", dumps(Shape(under, bool(under) and not written)).decode())
        return [TextBlock(text)] if text else [], under == "error"

    def _inner(self, raw: msgspec.Raw) -> ImageBlock | DocumentBlock | HostedBlock:
        own = Fields(camel_fields(raw))
        found = [name for name in ("inlineData", "fileData") if own.has(name)]
        return (self._media(own, found[0]) if len(found) == 1 else None) or self._kept(raw, "part of a result")
