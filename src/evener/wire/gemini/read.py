"""Reads a Gemini request as an Ask, for translation, tests and the gateway. Pure.

Fields may be spelled in camel case or with underscores; both are read, and camel case is sent. Anything without a neutral form
is kept, not refused: unknown fields of the body are `extra`. The path has the model and whether to stream.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from evener.errors import WireError
from evener.transcript.ask import Ask, Choice, HostedTool, OutputSchema, Reasoning, State, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    ResultContent,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.message import Message, Role
from evener.transcript.repair import make_id
from evener.transcript.transcript import Transcript
from evener.wire.gemini.encode import JSON, LEVELS, SETTINGS, read_whole
from evener.wire.gemini.parts import (
    HOSTED,
    KNOWN,
    NULL,
    WIRE,
    Raws,
    ResultShape,
    as_list,
    camel_fields,
    camel_object,
    hosted_block,
    is_bare,
    own_fields,
    sealed_text,
    source_of,
)
from evener.wire.gemini.tools import older_schema, read_tools
from evener.wire.prefix import dumps, fields
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, keep_beside, make_seal, message_id, raw_text, reading, with_rest
from evener.wire.request import read_settings
from evener.wire.schema import GEMINI_JSON, transform

ROLES: dict[str, Role] = {"": "user", "user": "user", "function": "user", "model": "assistant"}
STANDARD = str.maketrans("-_", "+/")
"""This wire accepts both alphabets of base64, other wires only the one with plus and slash."""
PLAIN = ("output", "error")
"""The usual keys of a result's text."""


class ContentReader:
    """The contents of one request, read in order, because results refer to earlier calls."""

    def __init__(self, target: Origin) -> None:
        self.target = target
        self.place = ""
        self._ask(())

    def message(self, number: int, raw: msgspec.Raw) -> Message:
        """Read one content."""
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
            blocks = tuple(self._keep(part, "an empty message", "user") for part in parts)
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

    def _keep(self, raw: msgspec.Raw, text: str, role: Literal["", "user"] = "") -> HostedBlock:
        return HostedBlock(bytes(raw).decode(), WIRE, text, role, provider=self.target.provider)

    def _seal(self, beside: Raws, name: str = "", inner: Raws | None = None) -> Seal | None:
        return make_seal(sealed_text(beside, name, inner), self.target)

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
            given or make_id(self.place, place), name, arguments, self._seal(own.rest(), "functionCall", call.rest())
        )

    def _media(self, own: Fields, kind: str) -> ImageBlock | DocumentBlock | None:
        """Take the media of a part. Return None, and take nothing, if their form is unknown."""
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
        call = self._find_call(name, given)
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

    def _find_call(self, name: str, given: str) -> ToolCall | None:
        """Return the call that a result is for: by id, else the first open one of that name."""
        if given:
            return self.open.pop(given, None)
        waiting = self.named.get(name, [])
        while waiting:
            call = self.open.pop(waiting.pop(), None)
            if call:
                return call
        return None

    def _response(self, result: Fields) -> tuple[list[TextBlock], bool]:
        """Take the text of a result and whether it is an error; an unusual place of the text is kept in the seal."""
        raw = result.take("response")
        own = Fields({} if raw == NULL else fields(raw))
        names = list(own.rest())
        if not names:
            return [], False
        under = names[0] if len(names) == 1 else ""
        written = own.is_text(under)
        text = own.peek(under) if written else raw_text(own.peek_raw(under), "null") if under else bytes(raw).decode()
        if under not in PLAIN or not written or not text:
            result.put("response", dumps(ResultShape(under, bool(under) and not written)).decode())
        return [TextBlock(text)] if text else [], under == "error"

    def _inner(self, raw: msgspec.Raw) -> ImageBlock | DocumentBlock | HostedBlock:
        own = Fields(camel_fields(raw))
        found = [name for name in ("inlineData", "fileData") if own.has(name)]
        return (self._media(own, found[0]) if len(found) == 1 else None) or self._keep(raw, "part of a result")


SYSTEM, CONFIG, CHOICE, CALLING = "systemInstruction", "generationConfig", "toolConfig", "functionCallingConfig"


def read_request(body: bytes, quirks: Quirks, target: Origin | None = None) -> Ask:
    """Return the ask behind a request. `target` is the provider and model that it was sent to; the seals are
    then that provider's."""
    with reading("a Gemini request"):
        return _Reader(Fields(camel_fields(body)), quirks, target or Origin()).ask()


class _Reader:
    def __init__(self, body: Fields, quirks: Quirks, target: Origin) -> None:
        self.body = body
        self.quirks = quirks
        self.target = Origin(WIRE, target.provider, target.endpoint, target.model, target.account)

    def ask(self) -> Ask:
        body = self.body
        if not body.has("contents"):
            raise WireError("Expected a Gemini request, but there are no contents. Check which wire the body is for.")
        turns = ContentReader(self.target)
        messages = [turns.message(number, raw) for number, raw in enumerate(as_list(body.take("contents")))]
        choice = camel_object(body, CHOICE)
        config = camel_object(body, CONFIG)
        calling = camel_object(choice, CALLING)
        strict = True if calling.peek("mode") == "VALIDATED" else None
        entries = as_list(body.take("tools")) if body.has("tools") else []
        tools = tuple(tool for entry in entries for tool in read_tools(entry, self.quirks, self.target.provider, strict=strict))
        ask = Ask(
            transcript=Transcript(messages, self._system()),
            target=self.target,
            tools=tools,
            choice=_choice(calling, tools),
            settings=read_settings(SETTINGS, config),
            reasoning=self._reasoning(config),
            output=self._output(config),
            state=State(),
            stream=False,
        )
        _put(choice, CALLING, calling)
        _put(body, CHOICE, choice)
        _put(body, CONFIG, config)
        return with_rest(ask, body)

    def _system(self) -> list[TextBlock]:
        """Take the system prompt; what is not plain text stays in `extra`."""
        if self.body.is_text(SYSTEM):
            return [TextBlock(self.body.text(SYSTEM))]
        own = camel_object(self.body, SYSTEM)
        raws = as_list(own.take("parts")) if own.has("parts") else []
        parts = [Fields(camel_fields(raw)) for raw in raws if bytes(raw)[:1] == b"{"]
        if not parts or len(parts) < len(raws) or not all(part.is_text("text") for part in parts):
            return []
        self.body.put_rest(SYSTEM, own)
        return [TextBlock(part.text("text"), seal=make_seal(part.rest_text(), self.target)) for part in parts]

    def _reasoning(self, config: Fields) -> Reasoning:
        found: dict[str, object] = {"mode": "default"}
        own = camel_object(config, "thinkingConfig")
        level = own.peek("thinkingLevel")
        if level.lower() in LEVELS:
            found["effort"] = own.text("thinkingLevel").lower()
        budget = read_whole(own, "thinkingBudget")
        if budget is not None:
            found |= {"mode": "off"} if budget == 0 else {"mode": "on"} if budget < 0 else {"mode": "on", "budget": budget}
        shown = own.flag("includeThoughts")
        if shown is not None:
            found["show"] = "summary" if shown else "omitted"
        _put(config, "thinkingConfig", own)
        return msgspec.convert(found, Reasoning)

    def _output(self, config: Fields) -> OutputSchema | None:
        """Take the output schema. One that we would write differently stays in `extra`, too."""
        if config.peek("responseMimeType") != JSON:
            return None
        if config.is_object("responseSchema"):
            return OutputSchema(older_schema(raw_text(config.peek_raw("responseSchema"), "{}")))
        config.take("responseMimeType")
        if not config.is_object("responseJsonSchema"):
            return OutputSchema()
        schema = raw_text(config.peek_raw("responseJsonSchema"), "{}")
        if self.quirks.json_schemas and transform(schema, GEMINI_JSON)[0] == schema:
            config.take("responseJsonSchema")
        return OutputSchema(schema)


def _put(holder: Fields, name: str, own: Fields) -> None:
    """Put the remaining fields of an object back; an empty object, or another value, stays unchanged."""
    if holder.is_object(name) and bytes(holder.peek_raw(name)) != b"{}":
        holder.put_rest(name, own)


def _choice(own: Fields, tools: tuple[ToolSpec | HostedTool, ...]) -> Choice:
    """Take the choice of functions; fields without a neutral form stay in `extra`."""
    if not any(isinstance(tool, ToolSpec) for tool in tools):
        return Choice()
    mode = own.peek("mode")
    if mode not in ("AUTO", "VALIDATED", "ANY", "NONE"):
        return Choice()
    own.take("mode")
    names = own.texts("allowedFunctionNames") if mode in ("VALIDATED", "ANY") else []
    match mode:
        case "ANY":
            return Choice("named" if len(names) == 1 else "required", tuple(names), stated=True)
        case "NONE":
            return Choice("none", stated=True)
        case _:
            return Choice("auto", tuple(names), stated=True)
