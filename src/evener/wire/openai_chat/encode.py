"""An Ask as a Chat Completions request. Pure: the same ask gives the same bytes, with or without `prior`."""

import math
from collections.abc import Callable, Mapping, Sequence
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
from evener.wire.codec import Encoded, Frame
from evener.wire.openai import TEMPERATURE, TOP_P, fit_key, refused_settings, write_output_shape, write_parallel
from evener.wire.openai_chat.parts import (
    FIELD,
    REFUSAL,
    UNCITED,
    WIRE,
    Part,
    is_text,
    left_behind,
    line,
    media_part,
    opened,
    report_rest,
    text_part,
    why_foreign,
)
from evener.wire.prefix import (
    ERROR,
    OPERATOR,
    OWN_MARKS,
    ExchangeWriter,
    Fragment,
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
    Fixed,
    KeptRequests,
    Marks,
    RequestSource,
    Setting,
    Wanted,
    add_losses,
    as_function,
    bound_history,
    breakpoint_mark,
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
    plan_automatic_marks,
    plan_marks,
    read_stops,
    report_choice,
    report_length,
    report_lifetime,
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

__all__ = ["CLOSING", "OPENING", "WIRE", "encode", "list_settings"]


Body = dict[str, object]


def thinks(ask: Ask) -> bool | None:
    """Whether thinking is to be on; None when that is left to the model."""
    wanted = ask.reasoning
    if wanted.mode == "off" or wanted.effort == "off":
        return False
    asked = wanted.effort is not None or wanted.budget is not None
    return True if wanted.mode == "on" or (wanted.mode in ("auto", "between_tools") and asked) else None


def reasoning(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """How hard to think, and what to show of it, in the row's spelling."""
    if ask.reasoning.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    level = _level(ask, quirks, offered=offered, losses=losses)
    on = thinks(ask)
    match quirks.reasoning_request:
        case "effort":
            body = _effort(level, quirks, losses)
            _unsaid(level, quirks, losses, on=on)
        case "object":
            body = _object(ask, quirks, level, losses)
        case "thinking":
            body = _thinking(quirks, level, on, losses)
        case "enable_thinking" | "template":
            if level not in (None, "off", quirks.default_effort):
                losses.append(loss_of("degraded", "reasoning.effort", "this endpoint can only switch thinking on and off"))
            switch: Body = {} if on is None else {"enable_thinking": on}
            nested = quirks.reasoning_request == "template" and switch
            body = {"chat_template_kwargs": switch} if nested else switch
    return _shown(ask, quirks, body, losses)


def _level(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> str | None:
    """The effort on our scale; None when nothing was said."""
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


def _effort(level: str | None, quirks: Quirks, losses: list[Loss]) -> Body:
    if level is None:
        return {}
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return {}
    if quirks.efforts == ("off",) and level != "off":
        losses.append(loss_of("dropped", "reasoning.effort", "this model can only be told not to reason"))
        return {}
    return {"reasoning_effort": _word(level, quirks, losses)}


def _unsaid(level: str | None, quirks: Quirks, losses: list[Loss], *, on: bool | None) -> None:
    """Report that thinking was to be on and nothing says so, where the model would not think by itself."""
    if on and level is None and not quirks.thinks_unasked and quirks.default_effort in ("", "off"):
        losses.append(loss_of("dropped", "reasoning.mode", "this endpoint has no switch for it; name an effort", name="on"))


def _word(level: str, quirks: Quirks, losses: list[Loss]) -> str:
    found = nearest_effort(level, quirks.efforts or SCALE, losses)
    return "none" if found == "off" else found


def _object(ask: Ask, quirks: Quirks, level: str | None, losses: list[Loss]) -> Body:
    wanted = ask.reasoning
    body: Body = {}
    if wanted.mode in ("on", "off"):
        body["enabled"] = wanted.mode == "on"
    if wanted.budget is not None:
        body["max_tokens"] = wanted.budget
        if wanted.effort is not None:
            losses.append(loss_of("dropped", "reasoning.effort", "this endpoint takes it or a budget, not both"))
    elif level is not None and wanted.mode != "off":
        body["effort"] = _word(level, quirks, losses)
    return {"reasoning": body} if body else {}


def _thinking(quirks: Quirks, level: str | None, on: bool | None, losses: list[Loss]) -> Body:
    body: Body = {}
    kind = "enabled" if on else "disabled"
    if on is not None and kind in quirks.thinking_modes:
        body["thinking"] = {"type": kind}
    elif on is False:
        losses.append(
            loss_of("degraded", "reasoning.mode", "this model always thinks; the least effort is asked for", name="off")
        )
    else:
        _unsaid(level, quirks, losses, on=on)
    if level is None or (level == "off" and "thinking" in body):
        return body
    return body | _effort(level, quirks, losses)


def _shown(ask: Ask, quirks: Quirks, body: Body, losses: list[Loss]) -> Body:
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


def choice(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """The fields `tool_choice` and `parallel_tool_calls`, neither of which may be sent without tools."""
    wanted = ask.choice
    if not offered:
        if wanted.stated and wanted.mode in ("auto", "none"):
            losses.append(loss_of("dropped", "tool_choice", "there are no tools to choose from"))
        report_choice(ask, losses)
        return {}
    body = write_parallel(ask, quirks, losses)
    value = _choice(ask, quirks, losses)
    return {**body, "tool_choice": value} if value != "auto" or wanted.stated else body


def _choice(ask: Ask, quirks: Quirks, losses: list[Loss]) -> object:
    wanted = ask.choice
    names = find_chosen_tools(ask, quirks, losses)
    forced = wanted.mode == "required" or (wanted.mode == "named" and len(names) == 1)
    busy = thinks(ask) or (quirks.thinks_unasked and thinks(ask) is None)
    if forced and not (quirks.forced_choice and (quirks.forced_choice_thinking or not busy)):
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    if wanted.mode == "named":
        return _named(ask, names, quirks, losses)
    mode = quirks.required_word if wanted.mode == "required" else wanted.mode
    if not names or mode == "none":
        return mode
    if not quirks.tool_subsets:
        losses.append(loss_of("degraded", "tool_choice", "this endpoint has no subsets; every tool is offered"))
        return mode
    tools = [_called(ask, quirks, name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _called(ask: Ask, quirks: Quirks, name: str) -> Body:
    """A tool as a choice names it."""
    free = [tool.name for tool in ask.tools if isinstance(tool, ToolSpec) and tool.free is not None and quirks.custom_tools]
    kind = "custom" if any(wire_name(one, quirks.name_length) == name for one in free) else "function"
    return {"type": kind, kind: {"name": name}}


def _named(ask: Ask, names: list[str], quirks: Quirks, losses: list[Loss]) -> object:
    if len(names) != 1:
        return "auto"
    if not quirks.named_choice:
        losses.append(loss_of("degraded", "tool_choice", "this endpoint cannot force one tool; it must call some tool"))
        return quirks.required_word
    return _called(ask, quirks, names[0])


def list_settings(quirks: Quirks) -> tuple[Setting, ...]:
    """Return how the row spells sampling, stop sequences and the seed."""
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


def output_format(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `response_format`."""
    shape = write_output_shape(ask, quirks, losses)
    if "schema" not in shape:
        return {"response_format": shape} if shape else {}
    return {"response_format": {"type": shape.pop("type"), "json_schema": shape}}


class _Group(msgspec.Struct):
    """The parts of one message. `apart`: a request had it so."""

    own: dict[str, object]
    apart: bool = False
    parts: list[bytes] = []
    texts: list[str] = []
    listed: bool = False


def system_messages(ask: Ask, quirks: Quirks, marks: Mapping[int, bytes], losses: list[Loss], note: str = "") -> list[bytes]:
    """The messages that hold the system prompt. `marks` are those of its parts, by number; `note` is said after them."""
    groups: list[_Group] = []
    for number, block in enumerate((*ask.transcript.system_blocks, *([TextBlock(note)] if note else ()))):
        _report(block, str(number), ask, quirks, losses)
        if not block.text:
            continue
        sealed = opened(block.seal, ask, quirks)
        lead = OPERATOR if quirks.system_role == "user" and not groups else ""
        if not groups or sealed.message:
            own: dict[str, object] = {"role": quirks.system_role, **sealed.message}
            own |= {"role": "user"} if quirks.system_role == "user" else {}
            groups.append(_Group(own, bool(sealed.message)))
        group = groups[-1]
        text = lead + block.text
        part = dumps({"type": "text", "text": text, **sealed.own})
        group.listed = group.listed or bool(block.cache or sealed.own) or marks_move(quirks)
        group.parts.append(part[:-1] + marks[number] + b"}" if number in marks and not OWN_MARKS & sealed.own.keys() else part)
        group.texts.append(text)
    if groups and quirks.system_role == "user":
        losses.append(loss_of("degraded", "system", "this model takes none; sent as marked user text"))
    return [_message(group) for group in groups]


def _report(block: TextBlock, at: str, ask: Ask, quirks: Quirks, losses: list[Loss]) -> None:
    """Say what of a part does not go out."""
    names, why = left_behind(block.seal, ask, quirks)
    if names:
        losses.append(loss_of("dropped", "system.fields", f"{', '.join(names)}: {why}", at=f"{at}/seal"))
    if block.citations:
        losses.append(loss_of("dropped", "system.citations", UNCITED, at=f"{at}/citations"))
    if not block.text:
        losses.append(loss_of("dropped", "system.part", "it was empty", at=at))


def marks_move(quirks: Quirks) -> bool:
    """Whether we place cache marks ourselves, so that any content may get one."""
    return quirks.cache_style == "control" and quirks.cache_marks > 0


def _message(group: _Group) -> bytes:
    if group.listed or (group.apart and len(group.parts) > 1):
        return dumps(group.own)[:-1] + b',"content":[' + b",".join(group.parts) + b"]}"
    return dumps({**group.own, "content": "\n".join(group.texts)})


OPENING, CLOSING = "<think>", "</think>"


class Thoughts:
    """The reasoning of one assistant message while it is written.

    `fields` are those of the message, `lead` stands before its next text; a part is handed back to stand in its place.
    """

    def __init__(self, page: ExchangeWriter, message: Message) -> None:
        self.page = page
        self.message = message
        self.fields: dict[str, object] = {}
        self.lead = ""
        self._details: list[msgspec.Raw] = []

    def add(self, block: ReasoningBlock) -> dict[str, object] | None:
        """Take one block in; a content part when it goes as one."""
        foreign = why_foreign(block.seal, self.message.origin, self.page.ask, self.page.quirks)
        if foreign and block.text.strip() and self.page.ask.foreign_reasoning == "text":
            self.page.degrade("reasoning", f"sent as plain text: {foreign}", block)
            return {"type": "text", "text": block.text}
        why = foreign or self._why_not()
        if why:
            self.page.drop("reasoning", why, block)
            return None
        self.page.thought = True
        return self._written(block)

    def owe(self) -> None:
        """Where calls must come with reasoning, say that there was none."""
        field = self.page.quirks.reasoning_field
        if self.page.quirks.reasoning_owed and field in ("reasoning_content", "reasoning"):
            self.fields.setdefault(field, "")

    def _why_not(self) -> str:
        """Why the row wants nothing back of this message; empty when it does."""
        if self.page.quirks.thinking_replay == "tools" and not self.message.calls:
            return "this endpoint takes back reasoning only beside calls"
        return self.page.mute

    def _written(self, block: ReasoningBlock) -> dict[str, object] | None:
        own = opened(block.seal, self.page.ask, self.page.quirks).own
        field = word(own.pop(FIELD, None)) or self.page.quirks.reasoning_field
        match field:
            case "chunks":
                return {"type": "thinking", "thinking": [{"type": "text", "text": block.text}], **own}
            case "tags":
                self.lead += f"{OPENING}{block.text}{CLOSING}"
            case "reasoning_details" if "reasoning_details" in own:
                self._details += msgspec.json.decode(own["reasoning_details"], type=list[msgspec.Raw])
                self.fields["reasoning_details"] = msgspec.Raw(dumps(self._details))
            case _:
                field = "reasoning" if field == "reasoning_details" else field
                before = self.fields.get(field)
                self.fields[field] = f"{before}\n\n{block.text}" if before else block.text
        return None


FILLER = "OK."
NO_WORDS = {"type": "text", "text": ""}
NOTHING_LEFT = "[nothing that this provider can read]"
Sealable = TextBlock | ImageBlock | DocumentBlock | ReasoningBlock | ToolCall | ToolResult
LISTED = ("user", "tool")
"""Where a mark may come to stand one day: there the content is a list from the beginning, and never changes."""


class MessageDraft(msgspec.Struct, eq=False, gc=False):
    """One message on its way out: its fields but the content, and the parts of that."""

    own: dict[str, object]
    parts: list[Part] = []
    verbatim: bytes = b""


def render(ask: Ask, quirks: Quirks, free: frozenset[str], exchange: Exchange, chain: bytes) -> Fragment:
    """One exchange: what the assistant said, then what came back. `free` are the names of tools that take free text."""
    mute = "" if quirks.reasoning_field and quirks.thinking_replay != "none" else "this endpoint takes back no reasoning"
    lean = None
    if quirks.thinking_replay == "latest" and not mute:
        leaner = ExchangeWriter(ask, quirks, chain, "this endpoint takes back only the latest", free_tools=free)
        lean = _page(exchange, leaner).fragment(exchange, None)
    return _page(exchange, ExchangeWriter(ask, quirks, chain, mute, free_tools=free)).fragment(exchange, lean)


def _page(exchange: Exchange, page: ExchangeWriter) -> ExchangeWriter:
    if exchange.assistant is not None:
        page.message = exchange.assistant
        _write(page, _assistant(page, exchange.assistant))
    turns: list[MessageDraft] = []
    for message in exchange.back:
        page.message = message
        results: list[ToolResult] = []
        for block in message.blocks:
            if type(block) is ToolResult:
                results.append(block)
        others: Sequence[Block] = message.blocks
        if results:
            turns += _results(page, results, exchange.assistant)
            others = [block for block in others if type(block) is not ToolResult] if len(results) < len(others) else ()
        if others:
            turns.append(_spoken(page, message, others))
    for turn in turns if len(turns) < 2 else _in_order(page, turns):
        _write(page, turn)
    return page


def _write(page: ExchangeWriter, turn: MessageDraft) -> None:
    """A message. Its content is a text where that says it all, else a list in which marks may stand."""
    comma = b"," if page.pieces else b""
    own, parts = turn.own, turn.parts
    if turn.verbatim:
        page.write(comma + turn.verbatim)
    elif not parts:
        page.write(comma + dumps(own))
    elif len(parts) == 1 and parts[0][0] == NO_WORDS:
        page.write(comma + dumps({**own, "content": ""}))  # in a list, an empty text is refused
    elif len(parts) == 1 and is_text(parts[0]) and not (marks_move(page.quirks) and own["role"] in LISTED):
        own["content"] = parts[0][0]["text"]
        page.write(comma + dumps(own))
    else:
        page.write(comma + dumps(own)[:-1] + b',"content":[')
        for number, (value, cache) in enumerate(parts):
            page.block(value, cache, b"," if number else b"")
        page.write(b"]}")


def _joined(page: ExchangeWriter, parts: list[Part]) -> list[Part]:
    """Texts as one text, where the endpoint wants no lists of them."""
    if len(parts) < 2 or page.quirks.text_parts or not all(is_text(part) for part in parts):
        return parts
    page.degrade("text", "this endpoint takes one; they were joined by newlines")
    return [({"type": "text", "text": "\n".join(str(value["text"]) for value, _ in parts)}, "")]


# What the assistant said.


class Saying:
    """An assistant's message while its blocks are gone through."""

    def __init__(self, page: ExchangeWriter, message: Message) -> None:
        self.page = page
        self.message = message
        self.thoughts = Thoughts(page, message)
        self.parts: list[Part] = []
        self.calls: list[dict[str, object]] = []
        self.fields: dict[str, object] = {}  # of the message, beside content and calls

    def say(self, text: str) -> None:
        """Add words of ours."""
        self.parts.append(({"type": "text", "text": text}, ""))


def _assistant(page: ExchangeWriter, message: Message) -> MessageDraft:
    whole = message.blocks[0]
    if len(message.blocks) == 1 and isinstance(whole, HostedBlock) and _is_whole(page, whole, message):
        return MessageDraft({"role": "assistant"}, verbatim=whole.raw.encode())
    saying = Saying(page, message)
    for block in message.blocks:
        if saying.calls and not isinstance(block, ToolCall):
            page.degrade("message.order", "on this wire all calls come last")
        if not isinstance(block, HostedBlock):
            saying.fields |= opened(block.seal, page.ask, page.quirks).message
        if not isinstance(block, HostedBlock | ReasoningBlock):
            report_rest(page, block)
        _add(saying, block)
    if saying.thoughts.lead:
        saying.say(saying.thoughts.lead)
    _fill(saying)
    own: dict[str, object] = {"role": "assistant", **saying.fields, **saying.thoughts.fields}
    return MessageDraft({**own, **({"tool_calls": saying.calls} if saying.calls else {})}, _joined(page, saying.parts))


def _is_whole(page: ExchangeWriter, block: HostedBlock, message: Message) -> bool:
    """Whether a block is a message of whom we ask, which goes back as it came."""
    return not why_foreign(None, message.origin, page.ask, page.quirks) and _is_message(page, block)


def _add(saying: Saying, block: Block) -> None:
    match block:
        case ToolCall():
            saying.calls.append(_call(saying.page, block))
        case TextBlock():
            _said(saying, block)
        case ReasoningBlock():
            part = saying.thoughts.add(block)
            saying.parts += [(part, "")] if part else []
        case HostedBlock():
            _hosted(saying, block)
        case DocumentBlock() if "audio" in saying.fields:
            pass  # the sound goes back by its id
        case ImageBlock() | DocumentBlock():
            saying.say(line(saying.page, block))
        case ToolResult():
            saying.page.drop("tool_result", "an assistant turn cannot hold it", block)
        case _:
            assert_never(block)


def _fill(saying: Saying) -> None:
    """See that the message has what the row demands of one: content or a stand-in for it, reasoning beside calls."""
    fields_, quirks = saying.fields, saying.page.quirks
    if saying.calls:
        saying.thoughts.owe()
    if saying.parts:
        fields_.pop("content", None)
    elif not saying.calls and fields_.keys().isdisjoint(("content", "refusal", "audio")):
        saying.say(NOTHING_LEFT)
    elif "content" not in fields_ and quirks.empty_content != "absent":
        fields_["content"] = "" if quirks.empty_content == "empty" else None


def _said(saying: Saying, block: TextBlock) -> None:
    page, thoughts = saying.page, saying.thoughts
    own = opened(block.seal, page.ask, page.quirks).own
    if "annotations" not in saying.fields:
        page.report_citations(block, UNCITED)
    if bytes(own.get(FIELD, b"")) == REFUSAL:
        saying.fields["refusal"] = block.text
    elif "audio" in own:
        saying.fields["audio"] = {"id": fields(own["audio"])["id"]}
    elif bytes(own.get("type", b"")) == REFUSAL:
        saying.parts.append(({**own, "refusal": block.text}, ""))
    elif block.text.strip() or thoughts.lead:
        saying.parts.append(text_part(page, block, thoughts.lead))
        thoughts.lead = ""
    else:
        page.drop("text", "it was empty and only its seal counted", block)


def _hosted(saying: Saying, block: HostedBlock) -> None:
    """A part goes back as it came; so do fields of the message, where the row takes them."""
    page = saying.page
    value = media_part(page, block) if not why_foreign(None, saying.message.origin, page.ask, page.quirks) else None
    if value is not None and "type" in value:
        saying.parts.append((value, block.cache))
    elif value is not None and value.keys() <= set(page.quirks.answer_fields):
        saying.fields |= value
    else:
        saying.say(line(page, block))


def _call(page: ExchangeWriter, call: ToolCall) -> dict[str, object]:
    own = opened(call.seal, page.ask, page.quirks).own if call.seal else {}
    inner = own.pop("function", None)
    name, id = wire_name(call.name, page.quirks.name_length), _id(call.id, page.quirks)
    if name != call.name:
        page.rename("tool_call.name", call, call.name, name)
    if id != call.id:
        page.rename("tool_call.id", call, call.id, id)
    if call.cache:
        page.drop("cache.mark", "calls take none here", call, at="cache")
    value: dict[str, object] = {"type": "function", **own, "id": id}
    if call.name in page.free_tools or bytes(own.get("type", b"")) == b'"custom"':
        more = fields(own["custom"]) if "custom" in own else {}
        return {**value, "type": "custom", "custom": {**more, "name": name, "input": free_text(call)}}
    kept = fields(inner) if inner is not None else {}
    return {**value, "function": {**kept, "name": name, "arguments": page.arguments(call)}}


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


# What came back.


def _results(page: ExchangeWriter, results: Sequence[ToolResult], assistant: Message | None) -> list[MessageDraft]:
    """The results of a message, then what they could not hold."""
    names = {call.id: call.name for call in assistant.calls} if assistant and page.quirks.result_name else {}
    media: list[Part] = []
    turns = [_result(page, result, names.get(result.call_id, ""), media) for result in results]
    if media:
        page.degrade("tool_result.media", "it holds only text here; they follow in a user message")
        turns.append(MessageDraft({"role": "user"}, media))
    return turns


def _result(page: ExchangeWriter, result: ToolResult, name: str, media: list[Part]) -> MessageDraft:
    id = _id(result.call_id, page.quirks)
    own: dict[str, object] = {"role": "tool", "tool_call_id": id}
    if name:
        own["name"] = wire_name(name, page.quirks.name_length)
    if result.seal:
        own |= opened(result.seal, page.ask, page.quirks).message
        report_rest(page, result)
    parts: list[Part] = []
    for block in result.content:
        if not isinstance(block, HostedBlock):
            report_rest(page, block)
        if isinstance(block, TextBlock):
            page.report_citations(block, UNCITED)
            parts += [text_part(page, block)] if block.text else []
            continue
        value = media_part(page, block) if not isinstance(block, HostedBlock) else None
        if value is None:
            parts.append(({"type": "text", "text": line(page, block)}, ""))
            continue
        label = f"file {len(media) // 2 + 1} of the result of {id}"
        parts.append(({"type": "text", "text": f"[{label} follows below]"}, ""))
        media += (({"type": "text", "text": f"[{label}]"}, ""), (value, block.cache))
    if result.is_error:
        page.degrade("tool_result.error", f"this wire has none; the text begins with {ERROR!r}", result, at="is_error")
        first = parts.pop(0) if parts else ({"type": "text", "text": ""}, "")
        parts.insert(0, ({**first[0], "text": f"{ERROR}{first[0]['text']}"}, first[1]))
    if result.cache and parts:
        parts[-1] = (parts[-1][0], result.cache)
    return MessageDraft(own, _joined(page, parts) or [(dict(NO_WORDS), "")])


def _spoken(page: ExchangeWriter, message: Message, blocks: Sequence[Block]) -> MessageDraft:
    """What a person or the operator said."""
    own: dict[str, object] = {"role": message.role}
    lead = ""
    if message.role == "system":
        own["role"] = page.quirks.system_role
        if not page.quirks.mid_system or page.quirks.system_role == "user":
            own["role"], lead = "user", OPERATOR
            page.degrade("message.role", "this endpoint takes none here; sent as marked user text")
    for block in blocks:
        if type(block) is not HostedBlock and block.seal is not None:
            own |= _sealed_fields(page, block, lead)
    whole = blocks[0]
    if len(blocks) == 1 and type(whole) is HostedBlock and _is_message(page, whole):
        return MessageDraft(own, verbatim=whole.raw.encode())
    parts: list[Part] = []
    for block in blocks:
        if type(block) is TextBlock and not block.text and len(blocks) > 1:
            page.drop("text", "it was empty", block)
            continue
        parts.append(_spoken_part(page, block, lead))
        lead = ""
    parts = parts or [(dict(NO_WORDS), "")]
    return MessageDraft(own, parts if page.quirks.text_parts else _joined(page, parts))


def _sealed_fields(page: ExchangeWriter, block: Sealable, lead: str) -> dict[str, object]:
    """The fields of the message that a block's seal holds; whose it is, ours says where it is led."""
    if not isinstance(block, ReasoningBlock):
        report_rest(page, block)
    sealed = opened(block.seal, page.ask, page.quirks).message
    return {name: value for name, value in sealed.items() if not lead or name != "role"}


def _is_message(page: ExchangeWriter, block: HostedBlock) -> bool:
    return block.is_for(page.ask.target) and page.quirks.hosted and "role" in fields(block.raw)


def _spoken_part(page: ExchangeWriter, block: Block, lead: str) -> Part:
    match block:
        case TextBlock():
            if block.citations:
                page.report_citations(block, UNCITED)
            return text_part(page, block, lead)
        case ImageBlock() | DocumentBlock() | HostedBlock():
            value = media_part(page, block)
            return (value, block.cache) if value else ({"type": "text", "text": line(page, block)}, "")
        case _:
            return {"type": "text", "text": f"[{block.kind} omitted]"}, ""


def _in_order(page: ExchangeWriter, turns: list[MessageDraft]) -> list[MessageDraft]:
    """The messages that came back, with a filler or merged where the endpoint wants it."""
    found: list[MessageDraft] = []
    for turn in turns:
        before = found[-1] if found else None
        if before and before.own["role"] == "tool" != turn.own["role"] and not page.quirks.tool_then_user:
            found.append(MessageDraft({"role": "assistant"}, [({"type": "text", "text": FILLER}, "")]))
            why = "nobody may speak right after a tool here; a filler of the assistant stands between"
            page.lose("added", "message", why, name="assistant")
            before = None
        if before and page.quirks.merge_turns and before.own == turn.own == {"role": "user"}:
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
    """What does not depend on the messages. `opening` is the body up to them, `system` the messages of the system prompt:
    both with `marks`, which are those before the messages. `json_mode`: somebody must speak of JSON."""

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
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    fixed = _fixed.of(ask, quirks, prior)
    fold = extend_prefix(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = list_fragments(fold, quirks)
    losses = list(fixed.losses)
    marks = _marks(fixed.wanted, fragments, marked, quirks, losses)
    messages = insert_marks(fragments, marks, _mark(quirks))
    note = _json_note(ask, losses) if fixed.json_mode else ""
    opening, system = fixed.opening, fixed.system
    if note or marks.tools != fixed.marks.tools or marks.system != fixed.marks.system:
        opening, system = _opening(fixed.head, fixed.frame, marks), _system(ask, quirks, marks, losses, note)
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
    frame = frame_of(ask, quirks, prior, _tool, _part)
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    start = start_prefix((render, quirks, ask.target, ask.foreign_reasoning), rules, frame.seed)
    moved = ask.cache.mode in ("moving", "provider") and not marks_move(quirks)  # what moves is cached by itself (sheet 3)
    wanted = plan_automatic_marks(ask) if moved else plan_marks(ask, quirks, TTLS[quirks.cache_style])
    losses, system_losses = list(frame.losses), list[Loss]()
    if moved:
        report_lifetime(ask, losses)
    body = _head(ask, quirks, any(frame.tools), losses)
    head = dumps(body)[:-1]
    marks = _marks(wanted, [], (), quirks, [])
    return _Fixed(
        source,
        frame,
        start,
        partial(render, ask, quirks, _free_tools(ask, quirks)),
        wanted,
        _addressed(ask, quirks),
        marks,
        head,
        _opening(head, frame, marks),
        _system(ask, quirks, marks, system_losses),
        tuple(losses),
        tuple(system_losses),
        body.get("response_format") == {"type": "json_object"},
    )


_fixed = KeptRequests(_Fixed, _fix)


def _opening(head: bytes, frame: Frame, marks: Marks) -> bytes:
    """The body up to the messages."""
    tools = b",".join([_marked(data, marks.tools.get(number)) for number, data in enumerate(frame.tools) if data])
    return head + (b',"tools":[' + tools + b"]" if tools else b"") + b',"messages":['


def _system(ask: Ask, quirks: Quirks, marks: Marks, losses: list[Loss], note: str = "") -> tuple[bytes, ...]:
    """The messages of the system prompt. `note` is said after it."""
    mark = _mark(quirks)
    return tuple(system_messages(ask, quirks, {number: mark(ttl) for number, ttl in marks.system.items()}, losses, note))


def _mark(quirks: Quirks) -> Callable[[str], bytes]:
    return control_mark if quirks.cache_style == "control" else breakpoint_mark


def _addressed(ask: Ask, quirks: Quirks) -> Address:
    return path_of(ask, quirks, PATH), headers_of(ask, WIRE), names_of(ask.tools, quirks)


def _part(block: TextBlock) -> bytes:
    return dumps(block.text)


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """Return one tool; empty when it does not go out."""
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
    """The names of the tools that take free text."""
    if not quirks.custom_tools:
        return frozenset()
    return frozenset(tool.name for tool in ask.tools if isinstance(tool, ToolSpec) and tool.free is not None)


def _marked(data: bytes, ttl: str | None) -> bytes:
    return data if ttl is None else with_control(data, ttl)


def _head(ask: Ask, quirks: Quirks, offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Every field but tools and messages."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    if ask.stream and quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    limit = output_limit(ask, quirks, losses)
    if limit is not None and not _is_spelled(ask):
        body[quirks.output_field] = limit
    body |= write_settings(list_settings(quirks), ask.settings, losses, refused_settings(ask, quirks))
    body |= reasoning(ask, quirks, offered=offered, losses=losses)
    body |= choice(ask, quirks, offered=offered, losses=losses)
    body |= output_format(ask, quirks, losses)
    body |= _kept(ask, quirks, losses)
    return with_extra(body, ask, WIRE, NESTED, losses)


def _is_spelled(ask: Ask) -> bool:
    """True if the caller's own fields hold the output limit, under whatever name it has."""
    own = [extra for extra in ask.extra if extra.is_for(WIRE, ask.target.provider)]
    return any(name in fields(extra.body) for extra in own for name in ("max_completion_tokens", "max_tokens"))


def _json_note(ask: Ask, losses: list[Loss]) -> str:
    """JSON mode is refused unless somebody speaks of JSON (sheet 5); what is said later must not change the prompt."""
    first = ask.transcript.first
    opening = (ask.transcript.system or "") + (first.text if first else "")
    if "json" in opening.lower():
        return ""
    losses.append(loss_of("added", "system", "JSON mode is refused where no message speaks of JSON; a sentence was added"))
    return JSON_NOTE


def _kept(ask: Ask, quirks: Quirks, losses: list[Loss]) -> dict[str, object]:
    """What the provider is asked to keep: the answer, or the prompt in a cache."""
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
    return body


def _marks(wanted: Wanted, fragments: list[Fragment], marked: tuple[int, ...], quirks: Quirks, losses: list[Loss]) -> Marks:
    """The cache marks. In the style of breakpoints only content takes them (sheet 3)."""
    marks = choose_marks(wanted, fragments, marked, losses)
    if marks.tools and quirks.cache_style != "control":
        losses.append(loss_of("dropped", "cache.mark", "tools take none; they are cached by themselves"))
        return msgspec.structs.replace(marks, tools={})
    return marks
