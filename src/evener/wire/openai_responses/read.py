"""A Responses request as an Ask: the other direction, for translation, tests and the gateway. Pure.

What has no neutral word is kept, not refused: unknown fields of an item ride in its seal, unknown items are hosted blocks,
unknown fields of the body are `extra`.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from evener.errors import WireError
from evener.transcript.ask import (
    Ask,
    Cache,
    Choice,
    ChoiceMode,
    Extra,
    HostedTool,
    Namespace,
    OutputSchema,
    Reasoning,
    State,
    ToolSpec,
)
from evener.transcript.blocks import (
    Block,
    CacheTtl,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Origin,
    ReasoningBlock,
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
from evener.wire.media import read_url
from evener.wire.openai import group_messages, read_custom, read_function, read_output_shape
from evener.wire.openai_responses.decode import PARTS
from evener.wire.openai_responses.encode import (
    ADDS_TOOLS,
    ENCRYPTED,
    FREE_ANSWER,
    FREE_CALL,
    SETTINGS,
    WIRE,
    TextSeal,
    continue_item,
    qualify_name,
)
from evener.wire.openai_responses.hosted import hosted_block, hosted_part, is_answer, read_citation
from evener.wire.prefix import MESSAGE, dumps, fields, free_arguments, word
from evener.wire.quirks import Quirks
from evener.wire.reading import (
    Fields,
    Items,
    keep_beside,
    raw_text,
    read_breakpoint,
    read_citations,
    read_fields,
    reading,
)
from evener.wire.request import read_settings

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
SHOWN = {"auto": "summary", "concise": "concise", "detailed": "detailed"}
CALLED = ("function", "custom")
"""The tools that the client runs, as a choice names them."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def read_request(body: bytes, quirks: Quirks, target: Origin | None = None) -> Ask:  # noqa: ARG001 - as every codec's
    """Return the ask behind a request. `target` says which provider it was for; its seals then count as that provider's."""
    with reading("a Responses request"):
        return _Reader(read_fields(body), target or Origin()).ask()


class _Reader:
    def __init__(self, body: Fields, target: Origin) -> None:
        self.body = body
        self.hosted: set[str] = set()  # calls that are not function calls, but may be answered like them
        self.added: list[ToolSpec | HostedTool] = []  # tools that items of the conversation declare
        model = body.text("model") or target.model
        self.target = Origin(WIRE, target.provider, target.endpoint, model, target.account)

    def ask(self) -> Ask:
        body = self.body
        system: list[TextBlock] = []
        if body.peek("instructions"):
            system.append(TextBlock(body.text("instructions")))
        messages = self._read_messages()
        while messages and messages[0].role == "system" and (blocks := self._split_opening(messages[0].blocks)):
            system += blocks
            del messages[0]
        tools = self._read_tools()
        cache = Cache(key=body.text("prompt_cache_key"))
        ask = Ask(
            transcript=Transcript(messages, system),
            target=self.target,
            tools=tools,
            choice=self._read_choice(tools),
            settings=read_settings(SETTINGS, body),
            reasoning=self._read_reasoning(),
            output=self._read_output(),
            cache=cache,
            state=self._read_state(),
            stream=body.flag("stream") or False,
        )
        rest = body.rest_text()
        return replace(ask, extra=(Extra(WIRE, rest, provider=self.target.provider),)) if rest else ask

    def _split_opening(self, blocks: Sequence[Block]) -> list[TextBlock]:
        """Return the blocks of a message as parts of the system prompt; none when they cannot be. An item that adds tools is an
        empty part."""
        found: list[TextBlock] = []
        for number, block in enumerate(blocks):
            if number and isinstance(block, TextBlock) and block.seal is not None:
                block = replace(block, seal=continue_item(block.seal))
            if isinstance(block, HostedBlock) and bytes(fields(block.raw).get("type", b"")) == ADDS_TOOLS:
                block = TextBlock("", seal=self._text_seal(fields(block.raw), {}))
            if not isinstance(block, TextBlock):
                return []
            found.append(block)
        return found

    def _read_messages(self) -> list[Message]:
        """Return items as messages: consecutive items of the assistant are one, so are consecutive results."""
        if self.body.is_text("input"):
            return [Message("user", (TextBlock(self.body.carried_text("input")),), id="0", created_at=None)]
        return group_messages(((*self._read_item(raw), raw) for raw in self.body.carried_items("input")), self.target)

    def _read_item(self, raw: msgspec.Raw) -> tuple[Role, str, tuple[Block, ...]]:
        """Return the role of an item, the group that it joins and its blocks."""
        own = read_fields(raw)
        match own.peek("type"):
            case "" | "message":
                return self._read_message(own)
            case "reasoning":
                return "assistant", "said", (self._read_thoughts(own),)
            case "function_call" | "custom_tool_call" as kind:
                return "assistant", "said", (self._read_call(own, kind),)
            case "function_call_output" | "custom_tool_call_output" if own.peek("call_id") not in self.hosted:
                return "user", "result", (self._read_result(own),)
            case kind:
                self.hosted |= {own.peek("call_id")} - {""}
                if kind in ("additional_tools", "tool_search_output"):
                    self.added += (tool for one in own.peek_items("tools") for tool in self._read_tool(one))
                hosted = hosted_block(raw, self.target.provider)
                if own.has("role"):
                    return ROLES.get(own.peek("role"), "system"), "", (hosted,)
                return ("user", "", (hosted,)) if is_answer(kind) else ("assistant", "said", (hosted,))

    def _read_call(self, own: Fields, kind: str) -> ToolCall:
        """Return a call. One that was made with a text has it as its one argument; its seal says so and names its namespace."""
        name = qualify_name(own.peek("namespace"), own.carried_text("name"))
        if kind == FREE_CALL:
            arguments = free_arguments(own.carried_text("input"))
        else:
            own.take("type")
            arguments = own.carried_text("arguments")
        return ToolCall(own.carried_text("call_id"), name, arguments, self._seal(own))

    def _read_message(self, own: Fields) -> tuple[Role, str, tuple[Block, ...]]:
        role = own.peek("role")
        if role not in ROLES:
            raise WireError(f"An input item has the role {role!r}. Expected one of {', '.join(ROLES)}.")
        content = own.take("content")
        speaker = own.take("role")
        item = own.rest()
        if role != "assistant" or "id" in item:  # where an id stands, we write it; elsewhere it says nothing
            item.pop("type", None)
        if role in ("developer", "system") or (role == "user" and item):
            item = {"role": speaker, **item}
        blocks: list[Block]
        if bytes(content)[:1] == b'"':
            text = msgspec.json.decode(content, type=str)
            if role == "assistant" and not text:
                item["content"] = content  # an empty answer that this provider took: sealed, so that it is not repaired
            blocks = [TextBlock(text, seal=self._text_seal(item, {}))]
        else:
            blocks = [self._read_part(part, item) for part in msgspec.json.decode(content, type=Items)]
            if role != "assistant" and own.rest() and not any(isinstance(block, TextBlock) for block in blocks):
                blocks = self._keep_fields(blocks, own)
            if role == "developer":  # a part of this wire's own tells it from a system message, too
                blocks = [self._with_role(block, speaker) if isinstance(block, HostedBlock) else block for block in blocks]
        return ROLES[role], "said" if role == "assistant" else "", tuple(blocks)

    def _with_role(self, block: HostedBlock, speaker: msgspec.Raw) -> HostedBlock:
        return msgspec.structs.replace(block, raw=dumps({**fields(block.raw), "role": speaker}).decode())

    def _keep_fields(self, blocks: list[Block], own: Fields) -> list[Block]:
        """Keep the fields of a message that has no text to hold them: another part holds them."""
        first = next(iter(blocks), None)
        if all(isinstance(block, HostedBlock) for block in blocks) and isinstance(first, HostedBlock):
            raw = dumps({**fields(first.raw), MESSAGE: own.rest()}).decode()
            return [replace(first, raw=raw), *blocks[1:]]
        return list(keep_beside(tuple(blocks), own, self.target))

    def _read_part(self, raw: msgspec.Raw, item: dict[str, msgspec.Raw]) -> Block:
        own = read_fields(raw)
        match own.peek("type"):
            case "input_text":
                own.take("type")
                cache = read_breakpoint(own)
                return self._read_text(own, item, cache)
            case "output_text":
                own.take("type")
                text = own.carried_text("text")
                if bytes(own.peek_raw("annotations")) == b"[]" and "id" in item:
                    own.take("annotations")
                return TextBlock(
                    text, read_citations(own.peek_items("annotations"), read_citation), self._text_seal(item, own.rest())
                )
            case "refusal":
                return TextBlock(own.carried_text("refusal"), seal=self._text_seal(item, own.rest()))
            case _:
                return self._read_media(raw)

    def _read_media(self, raw: msgspec.Raw) -> ImageBlock | DocumentBlock | HostedBlock:
        own = read_fields(raw)
        kind = own.peek("type")
        source = _read_source(own, self.target.provider) if kind in ("input_image", "input_file") else None
        if source is None:
            return hosted_part(raw, self.target.provider)
        own.take("type")
        cache = read_breakpoint(own)
        if kind == "input_image":
            detail = own.text("detail")
            return ImageBlock(source[0], source[1], detail, self._seal(own), cache)
        return DocumentBlock(source[0], source[1], own.text("filename"), self._seal(own), cache)

    def _read_thoughts(self, own: Fields) -> ReasoningBlock:
        own.take("type")
        parts = [part for name in ("summary", "content") for part in own.peek_items(name) if bytes(part)[:1] == b"{"]
        texts = [read_fields(part).peek("text") for part in parts]
        return ReasoningBlock(PARTS.join(text for text in texts if text), self._seal(own))

    def _read_result(self, own: Fields) -> ToolResult:
        if own.peek("type") != FREE_ANSWER:
            own.take("type")
        content: tuple[ResultContent, ...]
        if own.is_text("output"):
            text = own.carried_text("output")
            content = (TextBlock(text),) if text else ()
        else:
            content = tuple(self._read_inner(raw) for raw in own.carried_items("output"))
        return ToolResult(own.carried_text("call_id"), content, seal=self._seal(own))

    def _read_inner(self, raw: msgspec.Raw) -> ResultContent:
        own = read_fields(raw)
        if own.peek("type") != "input_text":
            return self._read_media(raw)
        own.take("type")
        cache = read_breakpoint(own)
        return self._read_text(own, {}, cache)

    def _read_text(self, own: Fields, item: dict[str, msgspec.Raw], cache: CacheTtl) -> TextBlock:
        """Return a text that is not the assistant's: a seal on it names its role, so that it is never taken for such a one."""
        text = own.carried_text("text")
        if own.rest() and "role" not in item:
            item = {**item, "role": msgspec.Raw(b'"user"')}
        return TextBlock(text, seal=self._text_seal(item, own.rest()), cache=cache)

    def _seal(self, own: Fields) -> Seal | None:
        name = own.peek("id")
        rest = own.rest_text()
        return Seal(rest, self.target, id=name) if rest else None

    def _text_seal(self, item: dict[str, msgspec.Raw], part: dict[str, msgspec.Raw]) -> Seal | None:
        if not item and not part:
            return None
        return Seal(dumps(TextSeal(item, part)).decode(), self.target, id=word(item.get("id")))

    def _read_tools(self) -> tuple[ToolSpec | HostedTool, ...]:
        """Return the tools of the request, then those that the conversation declares and that are not among them."""
        empty = bytes(self.body.peek_raw("tools")) == b"[]"  # it stays in `extra`: that there are none was said
        given = [] if empty else self.body.carried_items("tools")
        found = [tool for raw in given for tool in self._read_tool(raw)]
        names = {tool.name for tool in found if isinstance(tool, ToolSpec)}
        for tool in self.added:
            if isinstance(tool, HostedTool):
                found.append(replace(tool, inline=True))
            elif tool.name not in names:
                names.add(tool.name)
                found.append(replace(tool, inline=True))
        return tuple(found)

    def _read_tool(self, raw: msgspec.Raw) -> list[ToolSpec | HostedTool]:
        """Return what one declaration offers: a tool, the tools of a namespace, or what stands for a search elsewhere."""
        own = read_fields(raw)
        hosted = HostedTool(WIRE, raw_text(raw, "{}"), own.peek("name") or own.peek("type"), self.target.provider)
        match own.peek("type"):
            case "function":
                own.take("type")
                return [read_function(own, own, self.target)]
            case "custom":
                own.take("type")
                return [read_custom(own, own, self.target)]
            case "namespace" if own.is_text("name"):
                return self._read_namespace(own) or [hosted]
            case "tool_search" if own.peek("execution") == "client":
                schema = own.take_object("parameters", '{"type":"object","properties":{}}')
                search = ToolSpec("tool_search", own.text("description"), schema, None, "", WIRE, inline=True)
                return [hosted, replace(search, provider=self.target.provider)]
            case _:
                return [hosted]

    def _read_namespace(self, own: Fields) -> list[ToolSpec | HostedTool]:
        """Return the tools of a namespace; none where it holds anything else, so that it is kept whole."""
        inner = [read_fields(one) for one in own.peek_items("tools") if bytes(one)[:1] == b"{"]
        if len(inner) < len(own.peek_items("tools")) or any(one.peek("type") not in CALLED for one in inner):
            return []
        for name in ("type", "tools"):
            own.take(name)
        space = Namespace(own.carried_text("name"), own.text("description"), own.rest_text())
        specs: list[ToolSpec] = []
        for one in inner:
            read = read_function if word(one.take("type")) == "function" else read_custom
            specs.append(read(one, one, self.target))
        return [replace(spec, name=space.prefix + spec.name, namespace=space) for spec in specs]

    def _read_choice(self, tools: Sequence[ToolSpec | HostedTool]) -> Choice:
        """Return which tools may or must be called. A tool in a namespace is named without it."""
        found = self._read_mode()
        spaced = {tool.bare_name: tool.name for tool in tools if isinstance(tool, ToolSpec)}
        plain = {tool.name for tool in tools}
        names = tuple(name if name in plain else spaced.get(name, name) for name in found.names)
        return replace(found, names=names) if names != found.names else found

    def _read_mode(self) -> Choice:
        parallel = self.body.flag("parallel_tool_calls")
        if self.body.peek("tool_choice") in ("auto", "required", "none"):
            return msgspec.convert({"mode": self.body.text("tool_choice"), "parallel": parallel, "stated": True}, Choice)
        own = self.body.peek_fields("tool_choice")
        if own.peek("type") in CALLED and own.is_text("name"):
            names = (own.text("name"),)
            own.take("type")
            self.body.put_rest("tool_choice", own)
            return Choice("named", names, parallel, stated=True)
        if own.peek("type") == "allowed_tools":
            return self._read_subset(own, parallel)
        return Choice(parallel=parallel)  # a choice that only this wire knows stays in `extra`

    def _read_subset(self, own: Fields, parallel: bool | None) -> Choice:
        """Return a choice among some tools. It stays in `extra`, too, where it names more than functions."""
        named = [read_fields(tool) for tool in own.peek_items("tools") if bytes(tool)[:1] == b"{"]
        names = tuple(tool.peek("name") for tool in named if tool.peek("type") in CALLED and tool.peek("name"))
        mode: ChoiceMode = "required" if own.peek("mode") == "required" else "auto"
        if not names:
            return Choice(parallel=parallel)
        if own.peek("mode") in ("auto", "required"):
            own.take("mode")
        if len(names) == len(own.peek_items("tools")) and all(len(tool.rest()) == 2 for tool in named):
            own.take("tools")
        if own.rest().keys() == {"type"}:
            own.take("type")
        self.body.put_rest("tool_choice", own)
        return Choice(mode, names, parallel, stated=True)

    def _read_reasoning(self) -> Reasoning:
        own = self.body.peek_fields("reasoning")
        found: dict[str, object] = {"mode": "default"}
        if own.peek("effort") in EFFORTS:
            effort = own.text("effort")
            found["effort"] = "off" if effort == "none" else effort
        if own.peek("summary") in SHOWN:
            found["show"] = SHOWN[own.text("summary")]
        if self.body.is_object("reasoning"):
            self.body.put_rest("reasoning", own)
        return msgspec.convert(found, Reasoning)

    def _read_output(self) -> OutputSchema | None:
        own = self.body.peek_fields("text")
        shape = own.peek_fields("format")
        output = read_output_shape(shape, shape)
        if output:
            own.put_rest("format", shape)
        if self.body.is_object("text"):
            self.body.put_rest("text", own)
        return output

    def _read_state(self) -> State:
        body = self.body
        included = body.texts("include")
        if [name for name in included if name != ENCRYPTED]:
            body.put("include", dumps([name for name in included if name != ENCRYPTED]).decode())
        sealed = ENCRYPTED in included
        store = body.flag("store")
        if body.is_text("conversation"):
            return State("conversation", body.text("conversation"), store, sealed)
        if body.peek_fields("conversation").peek("id"):  # it stays in `extra`, too, as it was spelled
            return State("conversation", body.peek_fields("conversation").peek("id"), store, sealed)
        if body.is_text("previous_response_id"):
            return State("chain", body.text("previous_response_id"), store, sealed)
        return State("replay", "", store, sealed)


def _read_source(own: Fields, provider: str) -> tuple[Source, str] | None:
    """Return where the media lies, and its type."""
    present = [name for name in ("image_url", "file_url", "file_data", "file_id") if own.has(name)]
    if len(present) != 1 or not own.is_text(present[0]):
        return None
    if present[0] == "file_data" and not own.peek("file_data").startswith("data:"):
        return None
    value = own.carried_text(present[0])
    if present[0] == "file_id":
        return Uploaded(value, WIRE, provider), ""
    return read_url(value)
