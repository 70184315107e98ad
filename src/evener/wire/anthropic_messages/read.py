"""Reads an Anthropic Messages request as an Ask, for translation, tests and the gateway. Pure.

Anything without a neutral form is kept, not refused: unknown fields of a block go into its seal, unknown blocks are hosted
blocks, unknown fields of the body are `extra`.
"""

from base64 import b64encode

import msgspec

from evener.errors import WireError
from evener.transcript.ask import (
    Ask,
    Cache,
    Choice,
    HostedTool,
    OutputSchema,
    Reasoning,
    State,
    ToolSpec,
)
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    ResultContent,
    Seal,
    Source,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.message import Message, Role
from evener.transcript.transcript import Transcript
from evener.wire.anthropic_messages.encode import CHOICES, SETTINGS, SHOWN, WIRE
from evener.wire.anthropic_messages.hosted import Whose, citations_in, hosted_block, read_citation, seal_name
from evener.wire.quirks import Quirks
from evener.wire.reading import (
    Fields,
    keep_beside,
    make_seal,
    message_id,
    raw_text,
    read_citations,
    read_control,
    read_fields,
    reading,
    with_rest,
)
from evener.wire.request import find_word, read_settings

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
WHERE = {"base64": "data", "url": "url", "file": "file_id", "text": "data"}
"""The field that locates media, by the type of their source."""
SWITCHES = {"enabled": "on", "adaptive": "on", "disabled": "off", "between_tools": "between_tools"}
KNOWN_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def read_request(body: bytes, quirks: Quirks, target: Origin | None = None) -> Ask:
    """Return the ask behind a request. `target` is the provider that it was sent to; the seals are then that provider's."""
    with reading("an Anthropic Messages request"):
        return _Reader(read_fields(body), quirks, target or Origin()).ask()


class _Reader:
    def __init__(self, body: Fields, quirks: Quirks, target: Origin) -> None:
        self.body = body
        self.quirks = quirks
        model = body.text("model") or target.model
        self.target = Origin(WIRE, target.provider, target.endpoint, model, target.account)

    def ask(self) -> Ask:
        body = self.body
        system = tuple(self._system())
        messages = [self._message(number, raw) for number, raw in enumerate(body.carried_items("messages"))]
        if self.quirks.version_in_body and body.peek("anthropic_version") == self.quirks.api_version:
            body.take("anthropic_version")
        ttl = read_control(body)
        ask = Ask(
            transcript=Transcript(messages, system),
            target=self.target,
            tools=tuple(self._tool(raw) for raw in body.carried_items("tools")),
            choice=self._choice(),
            settings=read_settings(SETTINGS, body),
            reasoning=self._reasoning(),
            cache=Cache("provider", ttl) if ttl else Cache(),
            state=State(),
            stream=body.flag("stream") or False,
        )
        return with_rest(msgspec.structs.replace(ask, output=self._output()), body)

    def _system(self) -> list[TextBlock]:
        if self.body.is_text("system"):
            text = self.body.carried_text("system")
            return [TextBlock(text)] if text else []
        parts = []
        for raw in self.body.carried_items("system"):
            own = read_fields(raw)
            if own.peek("type") != "text":
                raise WireError("Expected text blocks in `system`. Move anything else into a message.")
            parts.append(self._text(own))
        return parts

    def _message(self, number: int, raw: msgspec.Raw) -> Message:
        own = read_fields(raw)
        role = ROLES.get(said := own.carried_text("role"))
        if role is None:
            raise WireError(f"messages[{number}] has the role {said!r}. Expected user, assistant or system.")
        if own.is_text("content"):
            blocks: tuple[Block, ...] = (TextBlock(own.carried_text("content")),)
        else:
            blocks = tuple(self._block(block) for block in own.carried_items("content"))
        origin = self.target if role == "assistant" else None
        kept = keep_beside(blocks, own, self.target)
        return Message(role, kept, id=message_id(number, raw), created_at=None, origin=origin)

    def _block(self, raw: msgspec.Raw) -> Block:
        own = read_fields(raw)
        match own.peek("type"):
            case "text":
                return self._text(own)
            case "thinking" | "redacted_thinking" as kind:
                own.take("type")
                text = own.text("thinking") if kind == "thinking" else ""
                rest = own.rest_text()
                return ReasoningBlock(text, make_seal(rest, self.target, seal_name(rest)))
            case "tool_use":
                return self._call(own)
            case "tool_result":
                return self._result(own)
            case _:
                return self._media(raw)

    def _call(self, own: Fields) -> ToolCall:
        own.take("type")
        cache = read_control(own)
        arguments = raw_text(own.take("input"), "{}")
        return ToolCall(own.carried_text("id"), own.carried_text("name"), arguments, self._seal(own), cache)

    def _result(self, own: Fields) -> ToolResult:
        own.take("type")
        cache = read_control(own)
        content: tuple[ResultContent, ...]
        if own.is_text("content"):
            text = own.carried_text("content")
            content = (TextBlock(text),) if text else ()
        else:
            content = tuple(self._inner(raw) for raw in own.carried_items("content"))
        is_error = own.flag("is_error") or False
        return ToolResult(own.carried_text("tool_use_id"), content, is_error, self._seal(own), cache)

    def _inner(self, raw: msgspec.Raw) -> ResultContent:
        own = read_fields(raw)
        if own.peek("type") != "text":
            return self._media(raw, "result")
        return self._text(own)

    def _text(self, own: Fields) -> TextBlock:
        own.take("type")
        cache = read_control(own)
        citations = read_citations(citations_in(own.peek_raw("citations")), read_citation)
        return TextBlock(own.carried_text("text"), citations, self._seal(own), cache)

    def _media(self, raw: msgspec.Raw, whose: Whose = "") -> ImageBlock | DocumentBlock | HostedBlock:
        own = read_fields(raw)
        kind = own.peek("type")
        inner = own.peek_fields("source")
        source = _source(inner, self.target.provider) if kind in ("image", "document") else None
        if source is None:
            return hosted_block(own.rest(), self.target.provider, whose)
        own.take("type")
        own.put_rest("source", inner)
        cache = read_control(own)
        if kind == "image":
            return ImageBlock(source[0], source[1], seal=self._seal(own), cache=cache)
        return DocumentBlock(source[0], source[1], own.text("title"), self._seal(own), cache)

    def _seal(self, own: Fields) -> Seal | None:
        return make_seal(own.rest_text(), self.target)

    def _tool(self, raw: msgspec.Raw) -> ToolSpec | HostedTool:
        own = read_fields(raw)
        if own.peek("type") not in ("", "custom"):
            return HostedTool(WIRE, raw_text(raw, "{}"), own.peek("name") or own.peek("type"), self.target.provider)
        cache = read_control(own)
        schema = own.take_object("input_schema", '{"type":"object","properties":{}}')
        name, description, strict = own.carried_text("name"), own.said("description"), own.flag("strict")
        return ToolSpec(name, description, schema, strict, own.rest_text(), WIRE, cache, self.target.provider)

    def _choice(self) -> Choice:
        own = self.body.peek_fields("tool_choice")
        mode = find_word(CHOICES, own.peek("type"))
        if mode is None:
            return Choice()  # a choice that only this wire knows stays in `extra`
        own.take("type")
        disabled = own.flag("disable_parallel_tool_use")
        parallel = None if disabled is None else not disabled
        name = own.text("name")
        self.body.put_rest("tool_choice", own)
        return Choice(mode, (name,) if name else (), parallel, stated=True)

    def _reasoning(self) -> Reasoning:
        effort = self.body.peek_fields("output_config").peek("effort")
        found: dict[str, object] = {"mode": "default", "effort": effort if effort in KNOWN_EFFORTS else None}
        own = self.body.peek_fields("thinking")
        kind = own.peek("type")
        if kind in SWITCHES:
            found |= {"mode": SWITCHES[kind], "budget": own.whole("budget_tokens", 0)}
            if show := find_word(SHOWN, own.peek("display")):
                own.take("display")
                found["show"] = show
            needs_type = (
                kind == "enabled" and found["budget"] is None
            )  # without the type, we would write adaptive thinking or a budget
            if (
                "budget_tokens" not in own.rest() and not needs_type
            ):  # else the type of thinking stays in `extra` with its budget
                own.take("type")
            self.body.put_rest("thinking", own)
        return msgspec.convert(found, Reasoning)

    def _output(self) -> OutputSchema | None:
        """Take the output schema, and the effort beside it."""
        output = None
        own = self.body.peek_fields("output_config")
        if own.rest():
            if own.peek("effort") in KNOWN_EFFORTS:
                own.take("effort")
            shape = own.peek_fields("format")
            if shape.peek("type") == "json_schema" and shape.is_object("schema"):
                shape.take("type")
                output = OutputSchema(shape.take_object("schema", "{}"), strict=True)  # it is always enforced here
                own.put_rest("format", shape)
            self.body.put_rest("output_config", own)
        return output


def _source(own: Fields, provider: str) -> tuple[Source, str] | None:
    """Take the source of media and their type. Return None, and take nothing, if the form is unknown."""
    kind = own.peek("type")
    where = WHERE.get(kind, "")
    if not own.is_text(where):
        return None
    own.take("type")
    value, media = own.text(where), own.text("media_type")
    found: Source
    match kind:
        case "base64":
            found = Inline(value)
        case "url":
            found = Remote(value)
        case "file":
            found = Uploaded(value, WIRE, provider)
        case _:
            found = Inline(b64encode(value.encode()).decode())
    return found, media
