"""An Ask as a Chat Completions request. Pure: the same ask gives the same bytes, with or without `prior`."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

import msgspec

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import Exchange, RepairRules
from evener.wire.openai import TEMPERATURE, TOP_P, fit_key, refused_settings, write_output_shape, write_parallel
from evener.wire.openai_chat.parts import (
    FIELD,
    REFUSAL,
    UNCITED,
    WIRE,
    Part,
    list_left_fields,
    media_part,
    open_seal,
    report_rest,
    why_foreign,
    write_line,
)
from evener.wire.prefix import (
    ERROR,
    OPERATOR,
    OWN_MARKS,
    ExchangeWriter,
    Fragment,
    LazyChain,
    Prefix,
    Render,
    dumps,
    extend_prefix,
    fields,
    free_text,
    join_body,
    start_prefix,
    with_tool_extra,
    word,
)
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields
from evener.wire.request import (
    SCALE,
    Address,
    Encoded,
    Fixed,
    Frame,
    KeptRequests,
    Marks,
    RequestSource,
    Setting,
    Wanted,
    add_losses,
    as_function,
    bound_history,
    breakpoint_mark,
    cache_options,
    choose_marks,
    choose_stops,
    control_mark,
    control_value,
    declare_name,
    effort_for,
    find_chosen_tools,
    frame_of,
    headers_of,
    insert_marks,
    list_fragments,
    names_of,
    nearest_effort,
    nine_id,
    output_limit,
    pass_number,
    path_of,
    plan_marks,
    plan_own_marks,
    read_stops,
    report_choice,
    report_length,
    short_id,
    wire_name,
    with_control,
    with_extra,
    without_messages,
    write_hosted_tool,
    write_settings,
)
from evener.wire.schema import OPENAI_PLAIN, OPENAI_STRICT
from evener.wire.tool_schema import declare_schema

Body = dict[str, object]


def thinks(ask: Ask) -> bool | None:
    """True if the ask wants reasoning on; None if it leaves that to the model."""
    wanted = ask.reasoning
    if wanted.mode == "off" or wanted.effort == "off":
        return False
    asked = wanted.effort is not None or wanted.budget is not None
    return True if wanted.mode == "on" or (wanted.mode in ("auto", "between_tools") and asked) else None


def _write_reasoning(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """Return the fields for effort and visibility of reasoning, in the row's spelling."""
    if ask.reasoning.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    level = _find_level(ask, quirks, offered=offered, losses=losses)
    on = thinks(ask)
    match quirks.reasoning_request:
        case "effort":
            body = _write_effort(level, quirks, losses)
            _report_unsaid(level, quirks, losses, on=on)
        case "object":
            body = _write_object(ask, quirks, level, losses)
        case "thinking":
            body = _write_thinking(quirks, level, on, losses)
        case "enable_thinking" | "template":
            if level not in (None, "off", quirks.default_effort):
                losses.append(loss_of("degraded", "reasoning.effort", "this endpoint can only switch thinking on and off"))
            switch: Body = {} if on is None else {"enable_thinking": on}
            nested = quirks.reasoning_request == "template" and switch
            body = {"chat_template_kwargs": switch} if nested else switch
    return _write_display(ask, quirks, body, losses)


def _find_level(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> str | None:
    """Return the effort on our scale; None if the ask has none."""
    wanted = ask.reasoning
    level: str | None = "off" if wanted.mode == "off" else wanted.effort
    if level is None and wanted.budget is not None and quirks.reasoning_request != "object":
        level = effort_for(wanted.budget)
        losses.append(loss_of("degraded", "reasoning.budget", f"this endpoint has efforts only; sent as {level!r}"))
    silent = level == "off" or (level is None and quirks.default_effort in ("", "off"))
    if offered and not quirks.effort_with_tools and not silent:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes tools only while it does not reason"))
        return "off"
    return level


def _write_effort(level: str | None, quirks: Quirks, losses: list[Loss]) -> Body:
    if level is None:
        return {}
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return {}
    if quirks.efforts == ("off",) and level != "off":
        losses.append(loss_of("dropped", "reasoning.effort", "this model can only be told not to reason"))
        return {}
    return {"reasoning_effort": _spell_effort(level, quirks, losses)}


def _report_unsaid(level: str | None, quirks: Quirks, losses: list[Loss], *, on: bool | None) -> None:
    """Report a wish for thinking that the request does not express, if the model does not think by default."""
    if on and level is None and not quirks.thinks_unasked and quirks.default_effort in ("", "off"):
        losses.append(loss_of("dropped", "reasoning.mode", "this endpoint has no switch for it; name an effort", name="on"))


def _spell_effort(level: str, quirks: Quirks, losses: list[Loss]) -> str:
    found = nearest_effort(level, quirks.efforts or SCALE, losses)
    return "none" if found == "off" else found


def _write_object(ask: Ask, quirks: Quirks, level: str | None, losses: list[Loss]) -> Body:
    wanted = ask.reasoning
    body: Body = {}
    if wanted.mode in ("on", "off"):
        body["enabled"] = wanted.mode == "on"
    if wanted.budget is not None:
        body["max_tokens"] = wanted.budget
        if wanted.effort is not None:
            losses.append(loss_of("dropped", "reasoning.effort", "this endpoint takes it or a budget, not both"))
    elif level is not None and wanted.mode != "off":
        body["effort"] = _spell_effort(level, quirks, losses)
    return {"reasoning": body} if body else {}


def _write_thinking(quirks: Quirks, level: str | None, on: bool | None, losses: list[Loss]) -> Body:
    body: Body = {}
    kind = "enabled" if on else "disabled"
    if on is not None and kind in quirks.thinking_modes:
        body["thinking"] = {"type": kind}
    elif on is False:
        losses.append(
            loss_of("degraded", "reasoning.mode", "this model always thinks; the least effort is asked for", name="off")
        )
    else:
        _report_unsaid(level, quirks, losses, on=on)
    if level is None or (level == "off" and "thinking" in body):
        return body
    return body | _write_effort(level, quirks, losses)


def _write_display(ask: Ask, quirks: Quirks, body: Body, losses: list[Loss]) -> Body:
    show = ask.reasoning.show
    if not show:
        return body
    if quirks.reasoning_display:
        report_length(ask, losses)
    match quirks.reasoning_display:
        case "format":
            return {**body, "reasoning_format": "hidden" if show == "omitted" else "parsed"}
        case "exclude":
            ours = body.get("reasoning")
            known = ours if isinstance(ours, dict) else {}
            return {**body, "reasoning": {**known, "exclude": True}} if show == "omitted" else body
        case _:
            losses.append(loss_of("dropped", "reasoning.show", "this endpoint decides itself what it shows"))
            return body


def _write_choice(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """Return the fields `tool_choice` and `parallel_tool_calls`. Neither may be sent without tools."""
    wanted = ask.choice
    if not offered:
        if wanted.stated and wanted.mode in ("auto", "none"):
            losses.append(loss_of("dropped", "tool_choice", "there are no tools to choose from"))
        report_choice(ask, losses)
        return {}
    body = write_parallel(ask, quirks, losses)
    value = _write_mode(ask, quirks, losses)
    return {**body, "tool_choice": value} if value != "auto" or wanted.stated else body


def _write_mode(ask: Ask, quirks: Quirks, losses: list[Loss]) -> object:
    wanted = ask.choice
    names = find_chosen_tools(ask, quirks, losses)
    forced = wanted.mode == "required" or (wanted.mode == "named" and len(names) == 1)
    busy = thinks(ask) or (quirks.thinks_unasked and thinks(ask) is None)
    if forced and not (quirks.forced_choice and (quirks.forced_choice_thinking or not busy)):
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    if wanted.mode == "named":
        return _write_named(ask, names, quirks, losses)
    mode = quirks.required_word if wanted.mode == "required" else wanted.mode
    if not names or mode == "none":
        return mode
    if not quirks.tool_subsets:
        losses.append(loss_of("degraded", "tool_choice", "this endpoint has no subsets; every tool is offered"))
        return mode
    tools = [_name_tool(ask, quirks, name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _name_tool(ask: Ask, quirks: Quirks, name: str) -> Body:
    """Return a tool as a choice names it."""
    free = [tool.name for tool in ask.tools if isinstance(tool, ToolSpec) and tool.free is not None and quirks.custom_tools]
    kind = "custom" if any(wire_name(one, quirks.name_length) == name for one in free) else "function"
    return {"type": kind, kind: {"name": name}}


def _write_named(ask: Ask, names: list[str], quirks: Quirks, losses: list[Loss]) -> object:
    if len(names) != 1:
        return "auto"
    if not quirks.named_choice:
        losses.append(loss_of("degraded", "tool_choice", "this endpoint cannot force one tool; it must call some tool"))
        return quirks.required_word
    return _name_tool(ask, quirks, names[0])


def list_settings(quirks: Quirks) -> tuple[Setting, ...]:
    """Return the row's field names for sampling, stop sequences and the seed."""
    most = quirks.stop_bytes or math.inf
    why, illegal = "this endpoint has none", "an empty stop sequence, or one that is too long, is rejected"
    stops = Setting("stop", "stop", quirks.stops, choose_stops, read_stops, illegal=illegal)
    return (
        TEMPERATURE,
        TOP_P,
        Setting("top_k", "top_k" if quirks.top_k else "", write=pass_number, read=Fields.whole, why=why),
        Setting("seed", quirks.seed_field, write=pass_number, read=Fields.whole, why=why),
        msgspec.structs.replace(stops, is_legal=lambda text: 0 < len(text.encode()) <= most),
    )


def _write_output_format(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the field `response_format`."""
    if ask.output is None:
        return {}
    shape = write_output_shape(ask.output, quirks, losses)
    if "schema" not in shape:
        return {"response_format": shape} if shape else {}
    return {"response_format": {"type": shape.pop("type"), "json_schema": shape}}


class _Group(msgspec.Struct):
    """The parts of one system message. `apart`: the request that it was read from had it as a message of its own."""

    own: dict[str, object]
    apart: bool = False
    parts: list[bytes] = []
    texts: list[str] = []
    listed: bool = False


def _write_system(ask: Ask, quirks: Quirks, marks: Marks, losses: list[Loss], note: str = "") -> tuple[bytes, ...]:
    """Return the messages of the system prompt, with its cache marks. `note` is added after it."""
    mark = _mark(quirks)
    groups: list[_Group] = []
    for number, block in enumerate((*ask.transcript.system_blocks, *([TextBlock(note)] if note else ()))):
        _report_system(block, str(number), ask, quirks, losses)
        if not block.text:
            continue
        sealed = open_seal(block.seal, ask, quirks)
        lead = OPERATOR if quirks.system_role == "user" and not groups else ""
        if not groups or sealed.message:
            own: dict[str, object] = {"role": quirks.system_role, **sealed.message}
            own |= {"role": "user"} if quirks.system_role == "user" else {}
            groups.append(_Group(own, bool(sealed.message)))
        group = groups[-1]
        text = lead + block.text
        part = dumps({"type": "text", "text": text, **sealed.own})
        group.listed = group.listed or bool(block.cache or sealed.own) or marks_move(quirks)
        marked = number in marks.system and not OWN_MARKS & sealed.own.keys()
        group.parts.append(part[:-1] + mark(marks.system[number]) + b"}" if marked else part)
        group.texts.append(text)
    if groups and quirks.system_role == "user":
        losses.append(loss_of("degraded", "system", "this model takes none; sent as marked user text"))
    return tuple(_write_group(group) for group in groups)


def _report_system(block: TextBlock, at: str, ask: Ask, quirks: Quirks, losses: list[Loss]) -> None:
    """Report the fields of a part that are not sent."""
    names, why = list_left_fields(block.seal, ask, quirks)
    if names:
        losses.append(loss_of("dropped", "system.fields", f"{', '.join(names)}: {why}", at=f"{at}/seal"))
    if block.citations:
        losses.append(loss_of("dropped", "system.citations", UNCITED, at=f"{at}/citations"))
    if not block.text:
        losses.append(loss_of("dropped", "system.part", "it was empty", at=at))


def marks_move(quirks: Quirks) -> bool:
    """True if we place cache marks ourselves, so that any content may get one."""
    return quirks.cache_style == "control" and quirks.cache_marks > 0


def _write_group(group: _Group) -> bytes:
    if group.listed or (group.apart and len(group.parts) > 1):
        return dumps(group.own)[:-1] + b',"content":[' + b",".join(group.parts) + b"]}"
    return dumps({**group.own, "content": "\n".join(group.texts)})


OPENING, CLOSING = "<think>", "</think>"
FILLER = "OK."
NO_WORDS = {"type": "text", "text": ""}
NOTHING_LEFT = "[nothing that this provider can read]"
Sealable = TextBlock | ImageBlock | DocumentBlock | ReasoningBlock | ToolCall | ToolResult
LISTED = ("user", "tool")
"""Roles whose messages may get a cache mark later. Their content is always a list, so that its bytes do not change then."""


class MessageDraft(msgspec.Struct, eq=False, gc=False):
    """One message to write: its fields without the content, and the parts of the content."""

    own: dict[str, object]
    parts: list[Part] = []
    verbatim: bytes = b""


def render(ask: Ask, quirks: Quirks, free: frozenset[str], exchange: Exchange, chain: LazyChain) -> Fragment:
    """Return one exchange: what the assistant said, then what came back. `free` are the names of tools that take free text."""
    mute = "" if quirks.reasoning_field and quirks.thinking_replay != "none" else "this endpoint takes back no reasoning"
    lean = None
    if quirks.thinking_replay == "latest" and not mute:
        leaner = ExchangeWriter(ask, quirks, chain, "this endpoint takes back only the latest", free_tools=free)
        lean = _write_exchange(exchange, leaner).fragment(exchange, None)
    return _write_exchange(exchange, ExchangeWriter(ask, quirks, chain, mute, free_tools=free)).fragment(exchange, lean)


def _write_exchange(exchange: Exchange, out: ExchangeWriter) -> ExchangeWriter:
    if exchange.assistant is not None:
        out.message = exchange.assistant
        _write_message(out, _draft_assistant(out, exchange.assistant))
    turns: list[MessageDraft] = []
    for message in exchange.back:
        out.message = message
        results: list[ToolResult] = []
        for block in message.blocks:
            if type(block) is ToolResult:
                results.append(block)
        others: Sequence[Block] = message.blocks
        if results:
            turns += _draft_results(out, results, exchange.assistant)
            others = [block for block in others if type(block) is not ToolResult] if len(results) < len(others) else ()
        if others:
            turns.append(_draft_spoken(out, message, others))
    for turn in turns if len(turns) < 2 else _order_turns(out, turns):
        _write_message(out, turn)
    return out


def _write_message(out: ExchangeWriter, turn: MessageDraft) -> None:
    """Write a message. Its content is a text if that loses nothing, else a list, which can have marks."""
    comma = b"," if out.pieces else b""
    own, parts = turn.own, turn.parts
    if turn.verbatim:
        out.write(comma + turn.verbatim)
    elif not parts:
        out.write(comma + dumps(own))
    elif len(parts) == 1 and parts[0][0] == NO_WORDS:
        out.write(comma + dumps({**own, "content": ""}))  # the API rejects an empty text in a list
    elif len(parts) == 1 and is_text(parts[0]) and not (marks_move(out.quirks) and own["role"] in LISTED):
        own["content"] = parts[0][0]["text"]
        out.write(comma + dumps(own))
    else:
        out.write(comma + dumps(own)[:-1] + b',"content":[')
        for number, (value, cache) in enumerate(parts):
            out.block(value, cache, b"," if number else b"")
        out.write(b"]}")


def is_text(part: Part) -> bool:
    """True if a part is only text, so that a plain text can replace it."""
    value, cache = part
    return not cache and len(value) == 2 and "type" in value and "text" in value


def text_part(out: ExchangeWriter, block: TextBlock, lead: str = "") -> Part:
    """Return a text as a part, with `lead` before it."""
    value: dict[str, object] = {"type": "text", "text": lead + block.text}
    if block.seal is not None:
        value |= open_seal(block.seal, out.ask, out.quirks).own
    return value, block.cache


def _join_texts(out: ExchangeWriter, parts: list[Part]) -> list[Part]:
    """Join texts to one text if the endpoint does not accept lists of texts."""
    if len(parts) < 2 or out.quirks.text_parts or not all(is_text(part) for part in parts):
        return parts
    out.degrade("text", "this endpoint takes one; they were joined by newlines")
    return [({"type": "text", "text": "\n".join(str(value["text"]) for value, _ in parts)}, "")]


# The assistant's message.


def _draft_assistant(out: ExchangeWriter, message: Message) -> MessageDraft:
    whole = message.blocks[0]
    if len(message.blocks) == 1 and type(whole) is HostedBlock and _is_whole(out, whole, message):
        return MessageDraft({"role": "assistant"}, verbatim=whole.raw.encode())
    draft = _AssistantDraft(out, message)
    for block in message.blocks:
        if draft.calls and type(block) is not ToolCall:
            out.degrade("message.order", "on this wire all calls come last")
        if type(block) is not HostedBlock and block.seal is not None:
            draft.fields |= open_seal(block.seal, out.ask, out.quirks).message
            if type(block) is not ReasoningBlock:
                report_rest(out, block)
        draft.add(block)
    return draft.finish()


def _is_whole(out: ExchangeWriter, block: HostedBlock, message: Message) -> bool:
    """True if a block is a message of the target, which is sent back unchanged."""
    return not why_foreign(None, message.origin, out.ask, out.quirks) and _is_message(out, block)


class _AssistantDraft:
    """Collects the blocks of an assistant's message. `fields` are those other than content, reasoning and calls."""

    def __init__(self, out: ExchangeWriter, message: Message) -> None:
        self.out = out
        self.message = message
        self.fields: dict[str, object] = {}
        self.calls: list[dict[str, object]] = []
        self._parts: list[Part] = []
        self._thoughts: dict[str, object] = {}  # the fields of reasoning
        self._details: list[msgspec.Raw] = []
        self._lead = ""  # reasoning to be written before the next text

    def add(self, block: Block) -> None:
        """Add one block."""
        match block:
            case ToolCall():
                self.calls.append(_write_call(self.out, block))
            case TextBlock():
                self._add_text(block)
            case ReasoningBlock():
                self._add_reasoning(block)
            case HostedBlock():
                self._add_hosted(block)
            case DocumentBlock() if "audio" in self.fields:
                pass  # the field `audio` refers to the sound by its id
            case ImageBlock() | DocumentBlock():
                self._say(write_line(self.out, block))
            case ToolResult():
                self.out.drop("tool_result", "an assistant turn cannot hold it", block)
            case _:
                assert_never(block)

    def finish(self) -> MessageDraft:
        """Return the message, with the fields that the row requires: content or a replacement, reasoning beside calls."""
        if self._lead:
            self._say(self._lead)
        quirks = self.out.quirks
        if self.calls and quirks.reasoning_owed and quirks.reasoning_field in ("reasoning_content", "reasoning"):
            self._thoughts.setdefault(quirks.reasoning_field, "")
        if self._parts:
            self.fields.pop("content", None)
        elif not self.calls and self.fields.keys().isdisjoint(("content", "refusal", "audio")):
            self._say(NOTHING_LEFT)
        elif "content" not in self.fields and quirks.empty_content != "absent":
            self.fields["content"] = "" if quirks.empty_content == "empty" else None
        own: dict[str, object] = {"role": "assistant", **self.fields, **self._thoughts}
        return MessageDraft({**own, **({"tool_calls": self.calls} if self.calls else {})}, _join_texts(self.out, self._parts))

    def _say(self, text: str) -> None:
        """Add a text of our own."""
        self._parts.append(({"type": "text", "text": text}, ""))

    def _add_reasoning(self, block: ReasoningBlock) -> None:
        out = self.out
        foreign = why_foreign(block.seal, self.message.origin, out.ask, out.quirks)
        if foreign and block.text.strip() and out.ask.foreign_reasoning == "text":
            out.degrade("reasoning", f"sent as plain text: {foreign}", block)
            self._say(block.text)
            return
        alone = out.quirks.thinking_replay == "tools" and not self.message.calls
        why = foreign or ("this endpoint takes back reasoning only beside calls" if alone else out.mute)
        if why:
            out.drop("reasoning", why, block)
            return
        out.thought = True
        own = open_seal(block.seal, out.ask, out.quirks).own
        field = word(own.pop(FIELD, None)) or out.quirks.reasoning_field
        match field:
            case "chunks":
                self._parts.append(({"type": "thinking", "thinking": [{"type": "text", "text": block.text}], **own}, ""))
            case "tags":
                self._lead += f"{OPENING}{block.text}{CLOSING}"
            case "reasoning_details" if "reasoning_details" in own:
                self._details += msgspec.json.decode(own["reasoning_details"], type=list[msgspec.Raw])
                self._thoughts["reasoning_details"] = msgspec.Raw(dumps(self._details))
            case _:
                field = "reasoning" if field == "reasoning_details" else field
                before = self._thoughts.get(field)
                self._thoughts[field] = f"{before}\n\n{block.text}" if before else block.text

    def _add_text(self, block: TextBlock) -> None:
        own = open_seal(block.seal, self.out.ask, self.out.quirks).own
        if "annotations" not in self.fields:
            self.out.report_citations(block, UNCITED)
        if bytes(own.get(FIELD, b"")) == REFUSAL:
            self.fields["refusal"] = block.text
        elif "audio" in own:
            self.fields["audio"] = {"id": fields(own["audio"])["id"]}
        elif bytes(own.get("type", b"")) == REFUSAL:
            self._parts.append(({**own, "refusal": block.text}, ""))
        elif block.text.strip() or self._lead:
            self._parts.append(text_part(self.out, block, self._lead))
            self._lead = ""
        else:
            self.out.drop("text", "it was empty and its seal cannot be sent", block)

    def _add_hosted(self, block: HostedBlock) -> None:
        """Add a part unchanged, or fields of the message, if the row accepts them."""
        out = self.out
        value = media_part(out, block) if not why_foreign(None, self.message.origin, out.ask, out.quirks) else None
        if value is not None and "type" in value:
            self._parts.append((value, block.cache))
        elif value is not None and value.keys() <= set(out.quirks.answer_fields):
            self.fields |= value
        else:
            self._say(write_line(out, block))


def _write_call(out: ExchangeWriter, call: ToolCall) -> dict[str, object]:
    own = open_seal(call.seal, out.ask, out.quirks).own if call.seal else {}
    inner = own.pop("function", None)
    name, id = wire_name(call.name, out.quirks.name_length), _id(call.id, out.quirks)
    if name != call.name:
        out.rename("tool_call.name", call, call.name, name)
    if id != call.id:
        out.rename("tool_call.id", call, call.id, id)
    if call.cache:
        out.drop("cache.mark", "calls take none here", call, at="cache")
    value: dict[str, object] = {"type": "function", **own, "id": id}
    if call.name in out.free_tools or bytes(own.get("type", b"")) == b'"custom"':
        more = fields(own["custom"]) if "custom" in own else {}
        return {**value, "type": "custom", "custom": {**more, "name": name, "input": free_text(call)}}
    kept = fields(inner) if inner is not None else {}
    return {**value, "function": {**kept, "name": name, "arguments": out.arguments(call)}}


def _id(id: str, quirks: Quirks) -> str:
    match quirks.id_charset:
        case "nine":
            return nine_id(id)
        case "word":
            return wire_name(id, quirks.chat_id_length)
        case "any":
            return short_id(id, quirks.chat_id_length)
        case _:
            assert_never(quirks.id_charset)


# The messages after it: results and user messages.


def _draft_results(out: ExchangeWriter, results: Sequence[ToolResult], assistant: Message | None) -> list[MessageDraft]:
    """Return the results of a message, then the media that they cannot contain."""
    names = {call.id: call.name for call in assistant.calls} if assistant and out.quirks.result_name else {}
    media: list[Part] = []
    turns = [_draft_result(out, result, names.get(result.call_id, ""), media) for result in results]
    if media:
        out.degrade("tool_result.media", "it holds only text here; they follow in a user message")
        turns.append(MessageDraft({"role": "user"}, media))
    return turns


def _draft_result(out: ExchangeWriter, result: ToolResult, name: str, media: list[Part]) -> MessageDraft:
    id = _id(result.call_id, out.quirks)
    own: dict[str, object] = {"role": "tool", "tool_call_id": id}
    if name:
        own["name"] = wire_name(name, out.quirks.name_length)
    if result.seal:
        own |= open_seal(result.seal, out.ask, out.quirks).message
        report_rest(out, result)
    parts: list[Part] = []
    for block in result.content:
        if type(block) is not HostedBlock and block.seal is not None:
            report_rest(out, block)
        if type(block) is TextBlock:
            out.report_citations(block, UNCITED)
            parts += [text_part(out, block)] if block.text else []
            continue
        value = media_part(out, block) if type(block) is not HostedBlock else None
        if value is None:
            parts.append(({"type": "text", "text": write_line(out, block)}, ""))
            continue
        label = f"file {len(media) // 2 + 1} of the result of {id}"
        parts.append(({"type": "text", "text": f"[{label} follows below]"}, ""))
        media += (({"type": "text", "text": f"[{label}]"}, ""), (value, block.cache))
    if result.is_error:
        out.degrade("tool_result.error", f"this wire has none; the text begins with {ERROR!r}", result, at="is_error")
        first = parts.pop(0) if parts else ({"type": "text", "text": ""}, "")
        parts.insert(0, ({**first[0], "text": f"{ERROR}{first[0]['text']}"}, first[1]))
    if result.cache and parts:
        parts[-1] = (parts[-1][0], result.cache)
    return MessageDraft(own, _join_texts(out, parts) or [(dict(NO_WORDS), "")])


def _draft_spoken(out: ExchangeWriter, message: Message, blocks: Sequence[Block]) -> MessageDraft:
    """Return a message of the user or the operator."""
    own: dict[str, object] = {"role": message.role}
    lead = ""
    if message.role == "system":
        own["role"] = out.quirks.system_role
        if not out.quirks.mid_system or out.quirks.system_role == "user":
            own["role"], lead = "user", OPERATOR
            out.degrade("message.role", "this endpoint takes none here; sent as marked user text")
    for block in blocks:
        if type(block) is not HostedBlock and block.seal is not None:
            own |= _list_sealed_fields(out, block, lead)
    whole = blocks[0]
    if len(blocks) == 1 and type(whole) is HostedBlock and _is_message(out, whole):
        return MessageDraft(own, verbatim=whole.raw.encode())
    parts: list[Part] = []
    for block in blocks:
        if type(block) is TextBlock and not block.text and len(blocks) > 1:
            out.drop("text", "it was empty", block)
            continue
        parts.append(_write_part(out, block, lead))
        lead = ""
    parts = parts or [(dict(NO_WORDS), "")]
    return MessageDraft(own, parts if out.quirks.text_parts else _join_texts(out, parts))


def _list_sealed_fields(out: ExchangeWriter, block: Sealable, lead: str) -> dict[str, object]:
    """Return the fields of the message in a block's seal. With `lead`, our own role replaces the sealed one."""
    if not isinstance(block, ReasoningBlock):
        report_rest(out, block)
    sealed = open_seal(block.seal, out.ask, out.quirks).message
    return {name: value for name, value in sealed.items() if not lead or name != "role"}


def _is_message(out: ExchangeWriter, block: HostedBlock) -> bool:
    return block.is_for(out.ask.target) and out.quirks.hosted and "role" in fields(block.raw)


def _write_part(out: ExchangeWriter, block: Block, lead: str) -> Part:
    match block:
        case TextBlock():
            if block.citations:
                out.report_citations(block, UNCITED)
            return text_part(out, block, lead)
        case ImageBlock() | DocumentBlock() | HostedBlock():
            value = media_part(out, block)
            return (value, block.cache) if value else ({"type": "text", "text": write_line(out, block)}, "")
        case _:
            return {"type": "text", "text": f"[{block.kind} omitted]"}, ""


def _order_turns(out: ExchangeWriter, turns: list[MessageDraft]) -> list[MessageDraft]:
    """Return the messages, merged or with a filler between them if the endpoint requires that."""
    found: list[MessageDraft] = []
    for turn in turns:
        before = found[-1] if found else None
        if before and before.own["role"] == "tool" != turn.own["role"] and not out.quirks.tool_then_user:
            found.append(MessageDraft({"role": "assistant"}, [({"type": "text", "text": FILLER}, "")]))
            why = "a tool result must be followed by the assistant here; a filler of the assistant stands between"
            out.lose("added", "message", why, name="assistant")
            before = None
        if before and out.quirks.merge_turns and before.own == turn.own == {"role": "user"}:
            before.parts += turn.parts
        else:
            found.append(turn)
    return found


PATH = "/chat/completions"
DIALECTS = (OPENAI_PLAIN, OPENAI_STRICT)
TTLS = {"breakpoint": ("30m",), "control": ("5m", "1h")}
JSON_NOTE = "Answer with one JSON object and nothing else."
NESTED = (
    *("reasoning", "thinking", "stream_options", "chat_template_kwargs", "response_format", "response_format.json_schema"),
    *("tool_choice", "tool_choice.function", "tool_choice.custom"),
)
"""Objects that we write and the caller may add to."""


class _Fixed(Fixed, frozen=True, eq=False):
    """The parts that do not depend on the messages. `opening` is the body up to them, `system` the system prompt's messages.
    Both have `marks`, the cache marks before the messages. `json_mode`: a message must mention JSON."""

    frame: Frame
    start: Prefix
    draw: Render
    wanted: Wanted
    address: Address
    marks: Marks
    head: bytes
    opening: bytes
    system: tuple[bytes, ...]
    losses: tuple[Loss, ...]
    system_losses: tuple[Loss, ...]
    json_mode: bool


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """Return the request for this ask. `prior` is the last one of this conversation: it saves work and changes nothing."""
    fixed = _fixed.of(ask, quirks, prior)
    fold = extend_prefix(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = list_fragments(fold, quirks)
    losses = list(fixed.losses)
    marks = _pick_marks(fixed.wanted, fragments, marked, quirks, losses)
    messages = insert_marks(fragments, marks, _mark(quirks))
    note = _json_note(ask, losses) if fixed.json_mode else ""
    opening, system = fixed.opening, fixed.system
    if note or marks.tools != fixed.marks.tools or marks.system != fixed.marks.system:
        opening, system = _write_opening(fixed.head, fixed.frame, marks), _write_system(ask, quirks, marks, losses, note)
    else:
        losses += fixed.system_losses
    if messages or not system or quirks.first_user:
        bound_history(messages, fragments, quirks, losses, prefill=quirks.prefill)
    add_losses(fold, fragments, losses)
    path, headers, names = fixed.address
    body = join_body(opening, [*system, *messages], b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, "", fixed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: RequestSource) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _write_tool, lambda block: dumps(block.text))
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    start = start_prefix((render, quirks, ask.target, ask.foreign_reasoning), rules, frame.seed)
    moved = ask.cache.mode in ("moving", "provider") and not marks_move(
        quirks
    )  # the API caches a growing prompt by itself (sheet 3)
    losses, system_losses = list(frame.losses), list[Loss]()
    ttls = TTLS[quirks.cache_style]
    wanted = plan_own_marks(ask, quirks, ttls, losses) if moved else plan_marks(ask, quirks, ttls)
    body = _write_head(ask, quirks, any(frame.tools), losses)
    head = dumps(body)[:-1]
    marks = _pick_marks(wanted, [], (), quirks, [])
    return _Fixed(
        source,
        frame,
        start,
        partial(render, ask, quirks, _free_tools(ask, quirks)),
        wanted,
        (path_of(ask, quirks, PATH), headers_of(ask, WIRE), names_of(ask.tools, quirks)),
        marks,
        head,
        _write_opening(head, frame, marks),
        _write_system(ask, quirks, marks, system_losses),
        tuple(losses),
        tuple(system_losses),
        body.get("response_format") == {"type": "json_object"},
    )


_fixed = KeptRequests(_Fixed, _fix)


def _write_opening(head: bytes, frame: Frame, marks: Marks) -> bytes:
    """Return the body up to the messages."""
    marked = [
        with_control(data, marks.tools[number]) if number in marks.tools else data
        for number, data in enumerate(frame.tools)
        if data
    ]
    tools = b",".join(marked)
    return head + (b',"tools":[' + tools + b"]" if tools else b"") + b',"messages":['


def _mark(quirks: Quirks) -> Callable[[str], bytes]:
    return control_mark if quirks.cache_style == "control" else breakpoint_mark


def _write_tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """Return one tool; empty if it is not sent."""
    if isinstance(tool, HostedTool):
        return write_hosted_tool(tool, WIRE, quirks, losses)
    free = tool.free if quirks.custom_tools else None
    kind = "function" if free is None else "custom"
    tool = as_function(tool if free is None else msgspec.structs.replace(tool, free=None), losses)
    own: dict[str, object] = {"name": declare_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    if free is None:
        own["parameters"], strict = declare_schema(tool, DIALECTS, quirks, losses)
        if strict is not None:
            own["strict"] = strict
    elif free.grammar:
        own["format"] = {"type": "grammar", "grammar": {"definition": free.grammar, "syntax": free.syntax}}
    extra = with_tool_extra({}, tool, WIRE, losses)
    inner = extra.pop(kind, None)
    return dumps({"type": kind, kind: {**own, **(fields(inner) if isinstance(inner, msgspec.Raw) else {})}, **extra})


def _free_tools(ask: Ask, quirks: Quirks) -> frozenset[str]:
    """Return the names of the tools that take free text."""
    if not quirks.custom_tools:
        return frozenset()
    return frozenset(tool.name for tool in ask.tools if isinstance(tool, ToolSpec) and tool.free is not None)


def _write_head(ask: Ask, quirks: Quirks, offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Return every field but tools and messages."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    if ask.stream and quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    limit = output_limit(ask, quirks, losses)
    if limit is not None and not _is_spelled(ask):
        body[quirks.output_field] = limit
    refused = refused_settings(ask, quirks) if ask.settings.samples else {}
    body |= write_settings(list_settings(quirks), ask.settings, losses, refused)
    body |= _write_reasoning(ask, quirks, offered=offered, losses=losses)
    body |= _write_choice(ask, quirks, offered=offered, losses=losses)
    body |= _write_output_format(ask, quirks, losses)
    body |= _write_kept(ask, quirks, losses)
    return with_extra(body, ask, WIRE, NESTED, losses)


def _is_spelled(ask: Ask) -> bool:
    """True if the caller's own fields contain the output limit, under either of its names."""
    own = [extra for extra in ask.extra if extra.is_for(WIRE, ask.target.provider)]
    return any(name in fields(extra.body) for extra in own for name in ("max_completion_tokens", "max_tokens"))


def _json_note(ask: Ask, losses: list[Loss]) -> str:
    """Return a sentence about JSON if the prompt does not mention it, because the API then rejects JSON mode (sheet 5). Only
    the first messages are read: later ones must not change the prompt."""
    first = ask.transcript.first
    opening = (ask.transcript.system or "") + (first.text if first else "")
    if "json" in opening.lower():
        return ""
    losses.append(loss_of("added", "system", "JSON mode is refused where no message speaks of JSON; a sentence was added"))
    return JSON_NOTE


def _write_kept(ask: Ask, quirks: Quirks, losses: list[Loss]) -> dict[str, object]:
    """Return the fields that ask the provider to store the answer, or to cache the prompt."""
    body: dict[str, object] = {}
    if ask.state.mode != "replay":
        losses.append(loss_of("degraded", "state.mode", "this wire keeps no state; what is given is sent", name=ask.state.mode))
    if ask.state.store:
        if quirks.store:
            body["store"] = True
        else:
            losses.append(loss_of("dropped", "state.store", "this endpoint keeps nothing"))
    if ask.state.sealed:
        losses.append(loss_of("dropped", "state.sealed", "this wire has no such wish"))
    if ask.cache.key:
        if quirks.cache_key:
            body["prompt_cache_key"] = fit_key(ask, losses)
        else:
            losses.append(loss_of("dropped", "cache.key", "this endpoint has none"))
    if ask.cache.mode == "provider" and quirks.cache_provider and marks_move(quirks):
        body["cache_control"] = control_value(ask.cache.ttl)
    if quirks.cache_style == "breakpoint":
        body |= cache_options(ask, quirks, TTLS["breakpoint"], losses)
    return body


def _pick_marks(
    wanted: Wanted, fragments: list[Fragment], marked: tuple[int, ...], quirks: Quirks, losses: list[Loss]
) -> Marks:
    """Return the cache marks. In the style `breakpoints`, only content may have them (sheet 3)."""
    marks = choose_marks(wanted, fragments, marked, losses)
    if marks.tools and quirks.cache_style != "control":
        losses.append(loss_of("dropped", "cache.mark", "tools take none; they are cached by themselves"))
        return msgspec.structs.replace(marks, tools={})
    return marks
