"""A Responses request as an Ask: the other direction, for translation, tests and the gateway. Pure.

What has no neutral word is kept, not refused: unknown fields of an item ride in its seal, unknown items are hosted blocks,
unknown fields of the body are `extra`.
"""

import msgspec

from evener.errors import WireError
from evener.transcript.ask import (
    Ask,
    Cache,
    Choice,
    ChoiceMode,
    Extra,
    HostedTool,
    OutputSchema,
    Reasoning,
    Settings,
    State,
    ToolSpec,
)
from evener.transcript.blocks import (
    Block,
    CacheTtl,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    ReasoningBlock,
    ResultContent,
    Source,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.message import Message, Role
from evener.transcript.origin import Origin, Seal
from evener.transcript.transcript import Transcript
from evener.wire.media import read_url
from evener.wire.openai_responses.blocks import WIRE, TextSeal
from evener.wire.openai_responses.citations import read_citation
from evener.wire.openai_responses.controls import ENCRYPTED
from evener.wire.openai_responses.decode import PARTS
from evener.wire.openai_responses.hosted import hosted_block, is_answer
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, Items, cited, message_id, raw_text, read_breakpoint, read_fields, reading
from evener.wire.text import dumps, word

__all__ = ["read_request"]

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
SHOWN = {"auto": "summary", "concise": "concise", "detailed": "detailed"}
CALLED = ("function", "custom")
"""The tools that the client runs, as a choice names them."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def read_request(body: bytes, quirks: Quirks, target: Origin | None = None) -> Ask:  # noqa: ARG001 - as every codec's
    """The ask behind a request. `target` says whom it was for; its seals then count as that provider's."""
    with reading("a Responses request"):
        return _Reader(read_fields(body), target or Origin()).ask()


class _Reader:
    def __init__(self, body: Fields, target: Origin) -> None:
        self.body = body
        self.hosted: set[str] = set()  # calls that are not function calls, but may be answered like them
        model = body.text("model") or target.model
        self.target = Origin(WIRE, target.provider, target.endpoint, model, target.account)

    def ask(self) -> Ask:
        body = self.body
        system: list[TextBlock] = []
        if body.peek("instructions"):
            system.append(TextBlock(body.text("instructions")))
        messages = self._messages()
        while messages and messages[0].role == "system" and all(isinstance(b, TextBlock) for b in messages[0].blocks):
            system += (block for block in messages.pop(0).blocks if isinstance(block, TextBlock))
        cache = Cache(key=body.text("prompt_cache_key"))
        ask = Ask(
            transcript=Transcript(messages, system),
            target=self.target,
            tools=tuple(self._tool(raw) for raw in body.carried_items("tools")),
            choice=self._choice(),
            settings=Settings(body.whole("max_output_tokens", 0), body.number("temperature"), body.number("top_p")),
            reasoning=self._reasoning(),
            output=self._output(),
            cache=cache,
            state=self._state(),
            stream=body.flag("stream") or False,
        )
        rest = body.rest_text()
        return msgspec.structs.replace(ask, extra=(Extra(WIRE, rest, provider=self.target.provider),)) if rest else ask

    def _messages(self) -> list[Message]:
        """Items, grouped into messages: consecutive items of the assistant are one, so are consecutive results."""
        if self.body.is_text("input"):
            return [Message("user", (TextBlock(self.body.carried_text("input")),), id="0", created_at=None)]
        messages: list[Message] = []
        before = ""
        for number, raw in enumerate(self.body.carried_items("input")):
            role, kind, blocks = self._item(raw)
            if messages and before == kind and kind in ("said", "result"):
                messages[-1] = msgspec.structs.replace(messages[-1], blocks=(*messages[-1].blocks, *blocks))
            else:
                origin = self.target if role == "assistant" else None
                messages.append(Message(role, blocks, id=message_id(number, raw), created_at=None, origin=origin))
            before = kind
        return messages

    def _item(self, raw: msgspec.Raw) -> tuple[Role, str, tuple[Block, ...]]:
        """Who says it, how it groups, and its blocks."""
        own = read_fields(raw)
        match own.peek("type"):
            case "" | "message":
                return self._message(own)
            case "reasoning":
                return "assistant", "said", (self._reasoned(own),)
            case "function_call":
                own.take("type")
                arguments = own.carried_text("arguments")
                call = ToolCall(own.carried_text("call_id"), own.carried_text("name"), arguments, self._seal(own))
                return "assistant", "said", (call,)
            case "function_call_output" if own.peek("call_id") not in self.hosted:
                return "user", "result", (self._result(own),)
            case kind:
                self.hosted |= {own.peek("call_id")} - {""}
                hosted = hosted_block(raw, self.target.provider)
                if own.has("role"):
                    return ROLES.get(own.peek("role"), "system"), "hosted", (hosted,)
                return ("user", "hosted", (hosted,)) if is_answer(kind) else ("assistant", "said", (hosted,))

    def _message(self, own: Fields) -> tuple[Role, str, tuple[Block, ...]]:
        role = own.peek("role")
        if role not in ROLES:
            raise WireError(f"An input item has the role {role!r}. Expected one of {', '.join(ROLES)}.")
        content = own.take("content")
        speaker = own.take("role")
        item = own.rest()
        if role == "assistant" or bytes(item.get("type", b"")) == b'"message"':
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
            blocks = [self._part(part, item) for part in msgspec.json.decode(content, type=Items)]
        return ROLES[role], "said" if role == "assistant" else "spoken", tuple(blocks)

    def _part(self, raw: msgspec.Raw, item: dict[str, msgspec.Raw]) -> Block:
        own = read_fields(raw)
        match own.peek("type"):
            case "input_text":
                own.take("type")
                cache = read_breakpoint(own)
                return self._input(own, item, cache)
            case "output_text":
                own.take("type")
                text = own.carried_text("text")
                if bytes(own.peek_raw("annotations")) == b"[]" and "id" in item:
                    own.take("annotations")
                return TextBlock(text, cited(own.peek_items("annotations"), read_citation), self._text_seal(item, own.rest()))
            case "refusal":
                return TextBlock(own.carried_text("refusal"), seal=self._text_seal(item, own.rest()))
            case _:
                return self._media(raw)

    def _media(self, raw: msgspec.Raw) -> ImageBlock | DocumentBlock | HostedBlock:
        own = read_fields(raw)
        kind = own.peek("type")
        source = _source(own, self.target.provider) if kind in ("input_image", "input_file") else None
        if source is None:
            return hosted_block(raw, self.target.provider)
        own.take("type")
        cache = read_breakpoint(own)
        if kind == "input_image":
            detail = own.text("detail")
            return ImageBlock(source[0], source[1], detail, self._seal(own), cache)
        return DocumentBlock(source[0], source[1], own.text("filename"), self._seal(own), cache)

    def _reasoned(self, own: Fields) -> ReasoningBlock:
        own.take("type")
        parts = [part for name in ("summary", "content") for part in own.peek_items(name) if bytes(part)[:1] == b"{"]
        texts = [read_fields(part).peek("text") for part in parts]
        return ReasoningBlock(PARTS.join(text for text in texts if text), self._seal(own))

    def _result(self, own: Fields) -> ToolResult:
        own.take("type")
        content: tuple[ResultContent, ...]
        if own.is_text("output"):
            text = own.carried_text("output")
            content = (TextBlock(text),) if text else ()
        else:
            content = tuple(self._inner(raw) for raw in own.carried_items("output"))
        return ToolResult(own.carried_text("call_id"), content, seal=self._seal(own))

    def _inner(self, raw: msgspec.Raw) -> ResultContent:
        own = read_fields(raw)
        if own.peek("type") != "input_text":
            return self._media(raw)
        own.take("type")
        cache = read_breakpoint(own)
        return self._input(own, {}, cache)

    def _input(self, own: Fields, item: dict[str, msgspec.Raw], cache: CacheTtl) -> TextBlock:
        """A text that is not the assistant's: a seal on it names its role, so that it is never taken for one of those."""
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

    def _tool(self, raw: msgspec.Raw) -> ToolSpec | HostedTool:
        own = read_fields(raw)
        if own.peek("type") != "function":
            return HostedTool(WIRE, raw_text(raw, "{}"), own.peek("name") or own.peek("type"), self.target.provider)
        for name in ("type", *(("description",) if not own.has("description") else ())):
            own.take(name)
        schema = own.take_object("parameters", '{"type":"object","properties":{}}')
        name, description, strict = own.carried_text("name"), own.text("description"), own.flag("strict")
        return ToolSpec(name, description, schema, strict, own.rest_text(), WIRE, provider=self.target.provider)

    def _choice(self) -> Choice:
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
            return self._subset(own, parallel)
        return Choice(parallel=parallel)  # a choice that only this wire knows stays in `extra`

    def _subset(self, own: Fields, parallel: bool | None) -> Choice:
        """A choice among some tools. It stays in `extra`, too, where it names more than functions."""
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

    def _reasoning(self) -> Reasoning:
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

    def _output(self) -> OutputSchema | None:
        own = self.body.peek_fields("text")
        shape = own.peek_fields("format")
        output = _format(shape)
        if output:
            own.put_rest("format", shape)
        if self.body.is_object("text"):
            self.body.put_rest("text", own)
        return output

    def _state(self) -> State:
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


def _format(own: Fields) -> OutputSchema | None:
    """The shape of the answer, taken; None, and nothing taken, when it is of no known form."""
    match own.peek("type"):
        case "json_object":
            own.take("type")
            return OutputSchema()
        case "json_schema" if own.is_object("schema"):
            own.take("type")
            schema = own.take_object("schema", "{}")
            return OutputSchema(schema, own.text("name"), own.text("description"), own.flag("strict"))
        case _:
            return None


def _source(own: Fields, provider: str) -> tuple[Source, str] | None:
    """Where the media lies, and its type."""
    present = [name for name in ("image_url", "file_url", "file_data", "file_id") if own.has(name)]
    if len(present) != 1 or not own.is_text(present[0]):
        return None
    value = own.carried_text(present[0])
    if present[0] == "file_id":
        return Uploaded(value, WIRE, provider), ""
    return read_url(value)
