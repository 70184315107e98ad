"""A Chat Completions request as an Ask: the other direction, for translation, tests and the gateway. Pure.

What has no neutral word is kept, not refused: unknown fields of a message, part or call ride in a seal, unknown parts are
hosted blocks, unknown fields of the body are `extra`. A message that is nothing else is a hosted block as a whole.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

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
    HostedBlock,
    Origin,
    ReasoningBlock,
    ResultContent,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.message import Role
from evener.transcript.transcript import Transcript
from evener.wire.openai import group_messages, read_custom, read_function, read_output_shape
from evener.wire.openai_chat.decode import read_citations, split
from evener.wire.openai_chat.encode import list_settings
from evener.wire.openai_chat.parts import FIELD, REFUSAL, WIRE, hosted_block, read_mark, read_part, seal_text
from evener.wire.prefix import dumps, fields, free_arguments, text_in
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, Items, raw_text, read_control, read_fields, reading, with_rest
from evener.wire.request import SCALE, read_settings

CALLED = ("function", "custom")
MODES = {"auto": "auto", "required": "required", "any": "required", "none": "none"}


def read_choice(body: Fields, quirks: Quirks) -> Choice:
    """Return which tools may or must be called."""
    parallel = body.flag("parallel_tool_calls")
    word = body.peek("tool_choice")
    if word in MODES and (MODES[word] != "required" or word == quirks.required_word):
        body.take("tool_choice")
        return msgspec.convert({"mode": MODES[word], "parallel": parallel, "stated": True}, Choice)
    own = body.peek_fields("tool_choice")
    kind = own.peek("type")
    found: dict[str, object] | None = None
    if kind in ("", *CALLED) and own.is_object(kind or "function"):
        found = _read_named(own, kind or "function")
    elif kind == "allowed_tools":
        found = _read_subset(own)
    if found is None:
        return Choice(parallel=parallel)  # a choice that only this wire knows stays in `extra`
    body.put_rest("tool_choice", own)
    return msgspec.convert({**found, "parallel": parallel, "stated": True}, Choice)


def _read_named(own: Fields, kind: str) -> dict[str, object] | None:
    """Return the one tool that must be called, taken out of the choice."""
    inner = own.peek_fields(kind)
    name = inner.text("name")
    if not name:
        return None
    own.put_rest(kind, inner)
    if own.is_text("type"):
        own.take("type")
    return {"mode": "named", "names": [name]}


def _read_subset(own: Fields) -> dict[str, object] | None:
    """Return the tools that may be called. The choice stays where it is, too, unless it names functions and nothing else."""
    inner = own.peek_fields("allowed_tools")
    tools = [read_fields(raw) for raw in inner.peek_items("tools") if bytes(raw)[:1] == b"{"]
    names = [name for tool in tools for kind in CALLED if (name := tool.peek_fields(kind).peek("name"))]
    mode = MODES.get(inner.peek("mode"))
    if not names:
        return None
    if mode and len(names) == len(inner.peek_items("tools")) and len(inner.rest()) == 2 and len(own.rest()) == 2:
        own.take("type")
        own.take("allowed_tools")
    return {"mode": mode or "auto", "names": names}


def _read_limit(body: Fields, quirks: Quirks) -> int | None:
    """Return the output limit under its new or its old name. It stays under a name that the row does not write, too."""
    for name in ("max_completion_tokens", "max_tokens"):
        raw = body.peek_raw(name)
        limit = body.limit(name)
        if limit is not None:
            if name != quirks.output_field:
                body.put(name, bytes(raw).decode())
            return limit
    return None


def read_output(body: Fields) -> OutputSchema | None:
    """Return the shape of the answer."""
    own = body.peek_fields("response_format")
    inner = own.peek_fields("json_schema")
    found = read_output_shape(own, inner)
    if found is not None:
        if found.schema:
            own.put_rest("json_schema", inner)
        body.put_rest("response_format", own)
    return found


def read_reasoning(body: Fields, quirks: Quirks) -> Reasoning:
    """Return how the model should think."""
    found: dict[str, object] = {"mode": "default"}
    match quirks.reasoning_request:
        case "effort":
            _read_effort(body, "reasoning_effort", found)
        case "object":
            _read_object(body, quirks, found)
        case "thinking":
            _read_effort(body, "reasoning_effort", found)
            _read_switch(body, found)
        case "enable_thinking":
            on = body.flag("enable_thinking")
            found |= {} if on is None else {"mode": "on" if on else "off"}
        case "template":
            pass  # of a template's settings, all stay where they are
    if quirks.reasoning_display == "format" and body.peek("reasoning_format") in ("parsed", "hidden"):
        found["show"] = "summary" if body.text("reasoning_format") == "parsed" else "omitted"
    return msgspec.convert(found, Reasoning)


def _read_effort(own: Fields, field: str, found: dict[str, object]) -> None:
    word = own.peek(field)
    level = "off" if word == "none" else word
    if level in SCALE and word != "off":
        own.take(field)
        found["effort"] = level


def _read_object(body: Fields, quirks: Quirks, found: dict[str, object]) -> None:
    if not body.is_object("reasoning"):
        return
    own = body.peek_fields("reasoning")
    _read_effort(own, "effort", found)
    if "effort" not in found:
        found["budget"] = own.whole("max_tokens", 0)
    on = own.flag("enabled")
    if on is not None:
        found["mode"] = "on" if on else "off"
    if quirks.reasoning_display == "exclude" and bytes(own.peek_raw("exclude")) == b"true":
        own.take("exclude")
        found["show"] = "omitted"
    body.put_rest("reasoning", own)


def _read_switch(body: Fields, found: dict[str, object]) -> None:
    if not body.is_object("thinking"):
        return
    own = body.peek_fields("thinking")
    kind = own.peek("type")
    if kind in ("enabled", "disabled"):
        own.take("type")
        found["mode"] = "on" if kind == "enabled" else "off"
    body.put_rest("thinking", own)


ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "user"}
EMPTY = {"null": b"null", "empty": b'""', "absent": b""}

Raws = dict[str, msgspec.Raw]


def read_request(body: bytes, quirks: Quirks, target: Origin | None = None) -> Ask:
    """Return the ask behind a request. `target` says which provider it was for; its seals then count as that provider's."""
    with reading("a Chat Completions request"):
        return _Reader(read_fields(body), quirks, target or Origin()).ask()


class _Reader:
    def __init__(self, body: Fields, quirks: Quirks, target: Origin) -> None:
        self.body = body
        self.quirks = quirks
        model = body.text("model") or target.model
        self.target = Origin(WIRE, target.provider, target.endpoint, model, target.account)

    def ask(self) -> Ask:
        body, quirks = self.body, self.quirks
        raws = body.carried_items("messages")
        opening = self._split_opening(raws)
        messages = group_messages(self._read_messages(raws[len(opening) :]), self.target)
        ask = Ask(
            transcript=Transcript(messages, self._read_system(opening)),
            target=self.target,
            tools=tuple(self._read_tool(raw) for raw in (body.carried_items("tools") if _list(body.peek_raw("tools")) else ())),
            choice=read_choice(body, quirks),
            settings=replace(read_settings(list_settings(quirks), body), max_output_tokens=_read_limit(body, quirks)),
            reasoning=read_reasoning(body, quirks),
            output=read_output(body),
            cache=self._read_cache(),
            state=State(store=body.flag("store")) if bytes(body.peek_raw("store")) == b"true" else State(),
            stream=self._read_stream(),
        )
        return with_rest(ask, body)

    def _read_stream(self) -> bool:
        stream = self.body.flag("stream") or False
        if stream and self.quirks.stream_usage:
            options = self.body.peek_fields("stream_options")
            if self.body.is_object("stream_options"):
                self.body.take("stream_options")
            if not self.body.has("stream_options") and not options.rest():
                self.body.put("stream_options", "null")  # counts were not asked for: say so, or we would
            elif self.body.has("stream_options"):
                pass  # of no form that we know: it goes as it came
            elif not options.flag("include_usage"):
                self.body.put("stream_options", dumps({"include_usage": False, **options.rest()}).decode())
            elif options.rest():
                self.body.put("stream_options", options.rest_text())
        return stream

    def _read_cache(self) -> Cache:
        key = self.body.text("prompt_cache_key")
        ttl = read_control(self.body) if self.quirks.cache_style == "control" else ""
        return Cache("provider", ttl, key) if ttl else Cache(key=key)

    # The system prompt: the messages before anybody else speaks.

    def _split_opening(self, raws: Sequence[msgspec.Raw]) -> list[Fields]:
        opening: list[Fields] = []
        for raw in raws:
            own = read_fields(raw)
            parts = own.peek_raw("content")
            words = bytes(parts)[:1] == b'"' or (bytes(parts)[:1] == b"[" and all(_is_text(part) for part in _list(parts)))
            if ROLES.get(own.peek("role")) != "system" or not words:
                break
            opening.append(own)
        return opening

    def _read_system(self, opening: Sequence[Fields]) -> list[TextBlock]:
        found: list[TextBlock] = []
        for own in opening:
            content = own.take("content")
            plain = len(opening) == 1 and own.peek("role") == self.quirks.system_role and len(own.rest()) == 1
            if bytes(content)[:1] == b'"' or len(_list(content)) == 1:
                message = {} if plain else dict(own.rest())
            else:
                message = dict(own.rest())
            blocks = self._read_content(content, message)
            found += (block for block in blocks if isinstance(block, TextBlock))
        return found

    # Messages.

    def _read_messages(self, raws: Sequence[msgspec.Raw]) -> Iterator[tuple[Role, str, tuple[Block, ...], msgspec.Raw]]:
        """Yield each message; consecutive results belong together."""
        for raw in raws:
            own = read_fields(raw)
            role = own.carried_text("role")
            yield ROLES.get(role, "user"), "result" if role == "tool" else "", self._read_blocks(role, own, raw), raw

    def _read_blocks(self, role: str, own: Fields, raw: msgspec.Raw) -> tuple[Block, ...]:
        match ROLES.get(role):
            case None if role != "function":
                raise WireError(f"A message has the role {role!r}. Expected one of {', '.join(ROLES)}.")
            case None:
                return (self._read_hosted(raw),)
            case "assistant":
                return tuple(self._read_said(own, raw))
            case "user" if role == "tool":
                return (self._read_result(own),)
            case "system" if role != self.quirks.system_role:
                own.put("role", dumps(role).decode())
        content = own.take("content")
        blocks: tuple[Block, ...] = tuple(self._read_content(content, own.rest()))
        lost = own.rest() and all(isinstance(block, HostedBlock) for block in blocks)
        return (self._read_hosted(raw),) if lost else blocks

    def _read_content(self, content: msgspec.Raw, message: Raws) -> list[ResultContent]:
        """Return the blocks of a content. `message` holds fields that the first of them must carry."""
        if bytes(content)[:1] == b'"':
            return [self._text(text_in(content), {}, message)]
        blocks: list[ResultContent] = []
        for raw in _list(content):
            block = read_part(raw, self.quirks, self.target, message)
            message = message if isinstance(block, HostedBlock) else {}
            blocks.append(block)
        return blocks

    def _text(self, text: str, own: Raws, message: Raws) -> TextBlock:
        return TextBlock(text, seal=self._seal(own, message))

    def _seal(self, own: Raws, message: Raws) -> Seal | None:
        text = seal_text(own, message)
        return Seal(text, self.target) if text else None

    def _read_result(self, own: Fields) -> ToolResult:
        content = own.take("content")
        call = own.carried_text("tool_call_id")
        blocks = tuple(self._read_content(content, {})) if bytes(content) != b'""' else ()
        return ToolResult(call, blocks, seal=self._seal({}, own.rest()))

    # What the assistant said.

    def _read_said(self, own: Fields, raw: msgspec.Raw) -> list[Block]:
        makers = [*self._read_thoughts(own), *self._read_words(own)]
        calls = own.carried_items("tool_calls") if bytes(own.peek_raw("tool_calls")) not in (b"[]", b"null") else []
        found = [(block, sealed) for block, sealed in (*makers, *((self._read_call(call)) for call in calls))]
        message = own.rest()
        cited = read_citations(own.peek_raw("annotations"))
        blocks: list[Block] = []
        for block, sealed in found:
            if cited and isinstance(block, TextBlock):
                block, cited = replace(block, citations=cited), ()
            if isinstance(block, HostedBlock):
                blocks.append(block)
                continue
            seal = self._seal(sealed, message)
            message = {}
            blocks.append(replace(block, seal=seal) if seal else block)
        return [self._read_hosted(raw)] if message else blocks

    def _read_thoughts(self, own: Fields) -> list[tuple[ReasoningBlock, Raws]]:
        """Take reasoning out of the fields of the message. An empty one stays among them."""
        details = own.peek_raw("reasoning_details")
        field = next((name for name in ("reasoning_content", "reasoning") if own.peek(name)), "")
        if bytes(details)[:1] == b"[" and bytes(details) != b"[]":
            entries = [fields(raw) for raw in _list(details) if bytes(raw)[:1] == b"{"]
            texts = [text_in(entry.get("text")) or text_in(entry.get("summary")) for entry in entries]
            own.take("reasoning_details")
            return [(ReasoningBlock(own.peek(field) or "".join(texts)), {"reasoning_details": details})]
        if not field:
            return []
        strange = field != self.quirks.reasoning_field and not (
            field == "reasoning" and self.quirks.reasoning_field == "reasoning_details"
        )
        sealed = {FIELD: msgspec.Raw(dumps(field))} if strange else {}
        return [(ReasoningBlock(own.text(field)), sealed)]

    def _read_words(self, own: Fields) -> list[tuple[Block, Raws]]:
        """Return the content in its blocks; an empty one stays among the fields unless the row would write the same."""
        content = own.take("content")
        found: list[tuple[Block, Raws]] = []
        if bytes(content)[:1] == b'"' and bytes(content) != b'""':
            text = text_in(content)
            tagged = self.quirks.think_tags or self.quirks.reasoning_field == "tags"
            pieces = split(text) if tagged else [("text", text)]
            found += ((TextBlock(text) if kind == "text" else ReasoningBlock(text), {}) for kind, text in pieces)
        elif bytes(content)[:1] == b"[" and bytes(content) != b"[]":
            found += (self._read_part(raw) for raw in _list(content))
        elif bytes(content) not in (EMPTY[self.quirks.empty_content], b"null"):
            own.put("content", bytes(content).decode())
        refusal = own.text("refusal") if own.peek("refusal") else ""
        return [*found, *([(TextBlock(refusal), {FIELD: msgspec.Raw(REFUSAL)})] if refusal else [])]

    def _read_part(self, raw: msgspec.Raw) -> tuple[Block, Raws]:
        own = read_fields(raw)
        match own.peek("type"):
            case "text" if own.is_text("text"):
                own.take("type")
                cache = read_mark(own, self.quirks)
                return TextBlock(own.text("text"), cache=cache), own.rest()
            case "thinking" if bytes(own.peek_raw("thinking"))[:1] == b"[":
                inner = [fields(one) for one in own.peek_items("thinking") if bytes(one)[:1] == b"{"]
                text = "".join(text_in(one.get("text")) for one in inner)
                own.take("type")
                return ReasoningBlock(text), own.rest()
            case "refusal" if own.is_text("refusal"):
                return TextBlock(own.text("refusal")), own.rest()
            case _:
                return self._read_hosted(raw), {}

    def _read_hosted(self, raw: msgspec.Raw) -> HostedBlock:
        return hosted_block(raw, self.target.provider)

    def _read_call(self, raw: msgspec.Raw) -> tuple[ToolCall, Raws]:
        own = read_fields(raw)
        id = own.carried_text("id")
        if own.peek("type") == "custom":
            custom = read_fields(own.take("custom"))
            call = ToolCall(id, custom.carried_text("name"), free_arguments(custom.carried_text("input")))
            if custom.rest():
                own.put("custom", custom.rest_text())
            return call, own.rest()
        if own.peek("type") == "function":
            own.take("type")
        function = read_fields(own.take("function"))
        arguments = function.take("arguments")
        text = text_in(arguments) if bytes(arguments)[:1] == b'"' else raw_text(arguments, "{}")
        call = ToolCall(id, function.carried_text("name"), text or "{}")
        if function.rest():
            own.put("function", function.rest_text())
        return call, own.rest()

    # Tools.

    def _read_tool(self, raw: msgspec.Raw) -> ToolSpec | HostedTool:
        own = read_fields(raw)
        if own.peek("type") == "custom" and own.is_object("custom"):
            own.take("type")
            return read_custom(own, own.peek_fields("custom"), self.target)
        if own.peek("type") not in ("", "function") or not own.has("function"):
            return HostedTool(WIRE, raw_text(raw, "{}"), own.peek("name") or own.peek("type"), self.target.provider)
        if own.peek("type") == "function":
            own.take("type")
        cache = read_control(own) if self.quirks.cache_style == "control" else ""
        return read_function(own, read_fields(own.take("function")), self.target, cache)


def _list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return [] if bytes(raw) == b"null" else msgspec.json.decode(raw, type=Items)


def _is_text(raw: msgspec.Raw) -> bool:
    own = read_fields(raw)
    return own.peek("type") == "text" and own.is_text("text")
