"""Writes one exchange as chat messages: bytes without cache marks, and the places where marks may go. Pure.

The assistant's turn is one message: its text is the content, its calls stand apart. Each result is a message of its own, right
after the calls and in their order; what a result cannot hold (media) follows all of them in the user's name.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from evener.transcript.ask import Ask
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
from evener.transcript.message import Message
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment
from evener.wire.names import nine_id, short_id, wire_name
from evener.wire.openai_chat.parts import Part, is_text, line, media_part, report_rest, text_part
from evener.wire.openai_chat.seals import FIELD, REFUSAL, UNCITED, WIRE, opened, why_foreign
from evener.wire.openai_chat.system import marks_move
from evener.wire.openai_chat.thoughts import Thoughts
from evener.wire.page import Page
from evener.wire.quirks import Quirks
from evener.wire.text import ERROR, OPERATOR, dumps, fields, free_text

__all__ = ["WIRE", "render"]

FILLER = "OK."
NO_WORDS = {"type": "text", "text": ""}
NOTHING_LEFT = "[nothing that this provider can read]"
Sealable = TextBlock | ImageBlock | DocumentBlock | ReasoningBlock | ToolCall | ToolResult
LISTED = ("user", "tool")
"""Where a mark may come to stand one day: there the content is a list from the beginning, and never changes."""


class Draft(msgspec.Struct, eq=False, gc=False):
    """One message on its way out: its fields but the content, and the parts of that."""

    own: dict[str, object]
    parts: list[Part] = []
    verbatim: bytes = b""


def render(ask: Ask, quirks: Quirks, free: frozenset[str], exchange: Exchange, chain: bytes) -> Fragment:
    """One exchange: what the assistant said, then what came back. `free` are the names of tools that take free text."""
    mute = "" if quirks.reasoning_field and quirks.thinking_replay != "none" else "this endpoint takes back no reasoning"
    lean = None
    if quirks.thinking_replay == "latest" and not mute:
        leaner = Page(ask, quirks, chain, "this endpoint takes back only the latest", free_tools=free)
        lean = _page(exchange, leaner).fragment(exchange, None)
    return _page(exchange, Page(ask, quirks, chain, mute, free_tools=free)).fragment(exchange, lean)


def _page(exchange: Exchange, page: Page) -> Page:
    if exchange.assistant is not None:
        page.message = exchange.assistant
        _write(page, _assistant(page, exchange.assistant))
    turns: list[Draft] = []
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


def _write(page: Page, turn: Draft) -> None:
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


def _joined(page: Page, parts: list[Part]) -> list[Part]:
    """Texts as one text, where the endpoint wants no lists of them."""
    if len(parts) < 2 or page.quirks.text_parts or not all(is_text(part) for part in parts):
        return parts
    page.degrade("text", "this endpoint takes one; they were joined by newlines")
    return [({"type": "text", "text": "\n".join(str(value["text"]) for value, _ in parts)}, "")]


# What the assistant said.


class Saying:
    """An assistant's message while its blocks are gone through."""

    def __init__(self, page: Page, message: Message) -> None:
        self.page = page
        self.message = message
        self.thoughts = Thoughts(page, message)
        self.parts: list[Part] = []
        self.calls: list[dict[str, object]] = []
        self.fields: dict[str, object] = {}  # of the message, beside content and calls

    def say(self, text: str) -> None:
        """Add words of ours."""
        self.parts.append(({"type": "text", "text": text}, ""))


def _assistant(page: Page, message: Message) -> Draft:
    whole = message.blocks[0]
    if len(message.blocks) == 1 and isinstance(whole, HostedBlock) and _is_whole(page, whole, message):
        return Draft({"role": "assistant"}, verbatim=whole.raw.encode())
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
    return Draft({**own, **({"tool_calls": saying.calls} if saying.calls else {})}, _joined(page, saying.parts))


def _is_whole(page: Page, block: HostedBlock, message: Message) -> bool:
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
        page.uncited(block, UNCITED)
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


def _call(page: Page, call: ToolCall) -> dict[str, object]:
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


def _results(page: Page, results: Sequence[ToolResult], assistant: Message | None) -> list[Draft]:
    """The results of a message, then what they could not hold."""
    names = {call.id: call.name for call in assistant.calls} if assistant and page.quirks.result_name else {}
    media: list[Part] = []
    turns = [_result(page, result, names.get(result.call_id, ""), media) for result in results]
    if media:
        page.degrade("tool_result.media", "it holds only text here; they follow in a user message")
        turns.append(Draft({"role": "user"}, media))
    return turns


def _result(page: Page, result: ToolResult, name: str, media: list[Part]) -> Draft:
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
            page.uncited(block, UNCITED)
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
    return Draft(own, _joined(page, parts) or [(dict(NO_WORDS), "")])


def _spoken(page: Page, message: Message, blocks: Sequence[Block]) -> Draft:
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
        return Draft(own, verbatim=whole.raw.encode())
    parts: list[Part] = []
    for block in blocks:
        if type(block) is TextBlock and not block.text and len(blocks) > 1:
            page.drop("text", "it was empty", block)
            continue
        parts.append(_spoken_part(page, block, lead))
        lead = ""
    parts = parts or [(dict(NO_WORDS), "")]
    return Draft(own, parts if page.quirks.text_parts else _joined(page, parts))


def _sealed_fields(page: Page, block: Sealable, lead: str) -> dict[str, object]:
    """The fields of the message that a block's seal holds; whose it is, ours says where it is led."""
    if not isinstance(block, ReasoningBlock):
        report_rest(page, block)
    sealed = opened(block.seal, page.ask, page.quirks).message
    return {name: value for name, value in sealed.items() if not lead or name != "role"}


def _is_message(page: Page, block: HostedBlock) -> bool:
    return block.is_for(page.ask.target) and page.quirks.hosted and "role" in fields(block.raw)


def _spoken_part(page: Page, block: Block, lead: str) -> Part:
    match block:
        case TextBlock():
            if block.citations:
                page.uncited(block, UNCITED)
            return text_part(page, block, lead)
        case ImageBlock() | DocumentBlock() | HostedBlock():
            value = media_part(page, block)
            return (value, block.cache) if value else ({"type": "text", "text": line(page, block)}, "")
        case _:
            return {"type": "text", "text": f"[{block.kind} omitted]"}, ""


def _in_order(page: Page, turns: list[Draft]) -> list[Draft]:
    """The messages that came back, with a filler or merged where the endpoint wants it."""
    found: list[Draft] = []
    for turn in turns:
        before = found[-1] if found else None
        if before and before.own["role"] == "tool" != turn.own["role"] and not page.quirks.tool_then_user:
            found.append(Draft({"role": "assistant"}, [({"type": "text", "text": FILLER}, "")]))
            why = "nobody may speak right after a tool here; a filler of the assistant stands between"
            page.lose("added", "message", why, name="assistant")
            before = None
        if before and page.quirks.merge_turns and before.own == turn.own == {"role": "user"}:
            before.parts += turn.parts
        else:
            found.append(turn)
    return found
