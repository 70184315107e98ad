"""Writes one exchange as Responses input items: bytes without cache marks, and the places where marks may go. Pure.

A message of ours may become several items. Seals hold what this API put on its own items: `{"item": {...}, "part": {...}}` on
text, the item's own fields on calls, results and reasoning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import assert_never

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, HostedTool, Namespace, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.origin import Origin, Seal
from evener.transcript.repair import Exchange
from evener.wire.fold import Fragment
from evener.wire.media import IMAGES, is_base64, is_image_taken, legal_detail, settled
from evener.wire.names import short_id, wire_name
from evener.wire.page import Page
from evener.wire.quirks import Quirks
from evener.wire.seals import telling
from evener.wire.text import ERROR, dumps, fields, free_text, is_plain, must_fetch, placeholder, text_in, word

__all__ = [
    "ADDS_TOOLS",
    "FREE_ANSWER",
    "FREE_CALL",
    "PART",
    "WIRE",
    "TextSeal",
    "continued",
    "forms_of",
    "qualified",
    "render",
    "system_items",
]

WIRE = "openai_responses"
SPEAKERS = {"": "assistant", "user": "user", "system": "system", "developer": "system"}
"""Whose a text seal is, by the role that it names: none on what the assistant said."""
WHOLE = ("tool_search_call", "tool_search_output", "compaction")
"""Items that are known by what they hold, and need no id."""
FREE_CALL, FREE_ANSWER = "custom_tool_call", "custom_tool_call_output"
MORE = "@more"
"""Marks the seal of a text in the system prompt that is a further part of the item before it."""
PART = "@part"
"""Marks what is kept verbatim of a message: a part of its content, not an item of its own."""
ADDS_TOOLS = b'"additional_tools"'
REFUSED_MEDIA = ("audio/", "video/")  # sheet 3, recorded


class TextSeal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What this API says of a text: fields of the message item, and fields of the content part."""

    item: dict[str, msgspec.Raw] = {}
    part: dict[str, msgspec.Raw] = {}


UNSEALED = TextSeal()
_text_seals = msgspec.json.Decoder(TextSeal)


def _text_seal(seal: Seal | None) -> TextSeal:
    """The seal of a text, read; empty when it is not of this wire."""
    return _text_seals.decode(seal.data) if seal and seal.origin.wire == WIRE else TextSeal()


def _text_fields(page: Page, block: TextBlock, role: str) -> TextSeal:
    """What this API said of a text, as far as it may go back; a seal made for another role than this stays behind."""
    if (block.seal is None and not block.citations) or not page.unsealed(block):
        return UNSEALED
    seal = _text_seal(block.seal)
    if SPEAKERS.get(word(seal.item.get("role"))) == role:
        return seal
    why = f"it was not made for a text of the {role}"
    page.uncited(block, why)
    page.leave(block, telling(dumps(seal).decode()), why)
    return TextSeal()


class Form(msgspec.Struct, frozen=True):
    """How a call is written: with a text instead of arguments, and in which namespace. `name` is the tool's name in it."""

    name: str
    free: bool = False
    namespace: str = ""


Forms = Mapping[str, Form]


def qualified(namespace: str, name: str) -> str:
    """The name of a tool, with that of its namespace. A tool that a search has found is its own: recorded."""
    return Namespace(namespace).prefix + name if namespace and namespace != name else name


def forms_of(tools: Iterable[ToolSpec | HostedTool], quirks: Quirks) -> Forms:
    """The forms of calls that are not plain ones, by the names of their tools."""
    if not quirks.custom_tools:
        return {}
    odd = [tool for tool in tools if isinstance(tool, ToolSpec) and (tool.free is not None or tool.namespace is not None)]
    return {
        tool.name: Form(tool.bare_name, tool.free is not None, tool.namespace.name if tool.namespace else "") for tool in odd
    }


def render(ask: Ask, quirks: Quirks, forms: Forms, exchange: Exchange, chain: bytes) -> Fragment:
    """One exchange: what the assistant said, then what came back."""
    page = Page(ask, quirks, chain)
    if exchange.assistant is not None:
        _assistant(page, exchange.assistant, forms)
    for message in exchange.back:
        page.message = message
        _back(page, message)
    return page.fragment(exchange, None)


def system_items(ask: Ask, quirks: Quirks, losses: list[Loss]) -> tuple[list[str], list[dict[str, object]]]:
    """The system prompt: its texts, and those parts that were items of their own."""
    page = Page(ask, quirks, b"")
    texts: list[str] = []
    items: list[dict[str, object]] = []
    for block in ask.transcript.system_blocks:
        if added := _added_tools(block):
            items += _added(page, block, added)
            continue
        seal = _text_fields(page, block, "system")
        part = {"type": "input_text", "text": block.text, **seal.part}
        if MORE in seal.item and items:
            before = items[-1]["content"]
            items[-1]["content"] = [*(before if isinstance(before, list) else [_plain_part(before)]), part]
        elif seal.item:
            items.append({"role": "developer", **seal.item, "content": [part] if seal.part else block.text})
        else:
            texts.append(block.text)
    losses += page.losses
    return texts, items


def _plain_part(text: object) -> dict[str, object]:
    return {"type": "input_text", "text": text}


def continued(seal: Seal) -> Seal:
    """The seal of a text that belongs to the same item as the text before it, where nothing else tells."""
    own = _text_seals.decode(seal.data)
    item = {"role": own.item.get("role", msgspec.Raw(b'"developer"')), MORE: msgspec.Raw(b"true")}
    return replace(seal, data=dumps(TextSeal(item, own.part)).decode(), id="")


def _added_tools(block: TextBlock) -> dict[str, msgspec.Raw]:
    """The item that adds tools, which an empty text at the beginning may stand for; empty for any other text."""
    item = _text_seal(block.seal).item if block.seal is not None and not block.text else {}
    return item if bytes(item.get("type", b"")) == ADDS_TOOLS else {}


def _added(page: Page, block: TextBlock, item: dict[str, msgspec.Raw]) -> list[dict[str, object]]:
    """The item, where its tools are not offered otherwise: see `is_declared_inline`."""
    origin = block.seal.origin if block.seal else Origin()
    if page.quirks.hosted and page.ask.target.owns(origin.wire, origin.provider):
        return [dict(item)]
    why = "this endpoint takes no item that adds tools; they are offered from the beginning"
    page.losses.append(loss_of("degraded", "tool.inline", why))
    return []


def _item(page: Page, value: dict[str, object] | bytes) -> None:
    if page.quirks.item_types and isinstance(value, dict) and value.get("role") == "assistant":
        value = {"type": "message", **value}
    page.write((b"," if page.pieces else b"") + (value if isinstance(value, bytes) else dumps(value)))


# What the assistant said.


def _assistant(page: Page, message: Message, forms: Forms) -> None:
    page.message = message
    blocks: Sequence[Block] = message.blocks
    if page.quirks.calls_last and message.calls:
        blocks = [block for block in blocks if not isinstance(block, ToolCall)] + list(message.calls)
        if list(message.blocks) != blocks:
            page.degrade("message.order", "this endpoint wants all calls at the end of it")
    _report_marks(page, blocks)
    for thoughts, made in _bonds(blocks):
        why = _why_broken(page, thoughts, made)
        page.shut = bool(why)
        for thought in thoughts:
            _reasoning(page, thought, why)
        _items(page, made, forms)


def _bonds(blocks: Sequence[Block]) -> Iterator[tuple[list[ReasoningBlock], list[Block]]]:
    """Reasoning, and the items that were made with it: one goes back only with the other (sheet 7)."""
    thoughts: list[ReasoningBlock] = []
    made: list[Block] = []
    for block in blocks:
        if type(block) is not ReasoningBlock:
            made.append(block)
            continue
        if made:
            yield thoughts, made
            thoughts, made = [], []
        thoughts.append(block)
    yield thoughts, made


def _why_broken(page: Page, thoughts: Sequence[ReasoningBlock], made: Sequence[Block]) -> str:
    """Why reasoning and what was made with it cannot go back as they are; empty when they can, or there was no reasoning."""
    for thought in thoughts:
        if why := _why_not(page, thought):
            return why
    first = next((block for block in made if type(block) is not TextBlock or block.text.strip() or block.seal), None)
    if not thoughts or not page.quirks.reasoning_leads:
        return ""
    if first is None:
        return "nothing follows that was made with it"
    return "what was made with it cannot go" if type(first) is HostedBlock and not _is_own(page, first, "assistant") else ""


def _items(page: Page, blocks: Sequence[Block], forms: Forms) -> None:
    for _, group in groupby(enumerate(blocks), key=lambda pair: _item_key(*pair)):
        block = (members := [block for _, block in group])[0]
        match block:
            case TextBlock():
                _said(page, [member for member in members if isinstance(member, TextBlock)])
            case ReasoningBlock():
                pass  # it went before what was made with it
            case ToolCall():
                _item(page, _call(page, block, forms))
            case HostedBlock():
                _hosted(page, block, "assistant")
            case ImageBlock() | DocumentBlock():
                page.degrade(block.kind, "an assistant item cannot hold it; sent as a line", block)
                _item(page, {"role": "assistant", "content": placeholder(block)})
            case ToolResult():
                page.drop("tool_result", "an assistant turn cannot hold it", block)
            case _:
                assert_never(block)


def _report_marks(page: Page, blocks: Sequence[Block]) -> None:
    for block in blocks:
        if not isinstance(block, ReasoningBlock) and block.cache:
            page.drop(
                "cache.mark", "only texts, images and documents that are given to the model take one here", block, at="cache"
            )


def _item_key(number: int, block: Block) -> object:
    """Texts of one item belong together; everything else stands alone."""
    own = _text_seal(block.seal).item.get("id") if isinstance(block, TextBlock) else None
    return bytes(own) if own is not None else number


def _said(page: Page, blocks: Sequence[TextBlock]) -> None:
    seals = [_text_fields(page, block, "assistant") for block in blocks]
    item = {name: value for name, value in seals[0].item.items() if _goes(page, name)}
    if "id" in item:
        parts = [_part(block, seal) for block, seal in zip(blocks, seals, strict=True)]
        _item(page, {"type": "message", "role": "assistant", **item, "content": parts})
        return
    item.pop("status", None)
    for block, seal in zip(blocks, seals, strict=True):
        if not block.text.strip() and "content" not in item:
            page.drop("text", "it was empty and its seal cannot go", block)
            continue
        content: object = [_part(block, seal)] if seal.part else block.text
        _item(page, {"role": "assistant", **item, "content": content})


def _part(block: TextBlock, seal: TextSeal) -> dict[str, object]:
    if bytes(seal.part.get("type", b"")) == b'"refusal"':
        return {**seal.part, "refusal": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], **seal.part}


def _goes(page: Page, name: str) -> bool:
    """Whether a field that the provider put on its item may go back. An id goes only beside its reasoning (sheet 7)."""
    match name:
        case "id":
            return page.quirks.item_ids and not page.shut
        case "phase":
            return page.quirks.phase
        case _:
            return True


def _why_not(page: Page, block: ReasoningBlock) -> str:
    """Why a reasoning block cannot be replayed; empty when it can."""
    if page.quirks.thinking_replay == "none":
        return "this endpoint takes back no reasoning"
    if block.seal is None:
        return "it carries nothing that this provider could verify"
    why = page.shut_why(block.seal)
    if why:
        return why
    own = fields(block.seal.data)
    kept = page.ask.state.store is not False or "encrypted_content" in own or "content" in own
    return "" if kept else "the provider did not keep it and gave no encrypted copy"


def _reasoning(page: Page, block: ReasoningBlock, why: str) -> None:
    if not why and block.seal:
        page.thought = True
        own = fields(block.seal.data)
        own.pop("status", None)  # handed out, but refused when sent back
        _item(page, {"type": "reasoning", "summary": [], **own})
    elif block.text.strip() and page.ask.foreign_reasoning == "text":
        page.degrade("reasoning", f"sent as plain text: {why}", block)
        _item(page, {"role": "assistant", "content": block.text})
    else:
        page.drop("reasoning", why, block)


def _call(page: Page, call: ToolCall, forms: Forms) -> dict[str, object]:
    form = forms.get(call.name)
    if call.seal is not None and (form or '"namespace"' in call.seal.data or '"custom_tool_call"' in call.seal.data):
        call, form = _formed(page, call, form)
    if form is not None:
        return _odd_call(page, call, form)
    raw = page.arguments(call)
    own: dict[str, object] = {}
    if call.seal:
        own |= {name: value for name, value in page.unsealed(call).items() if _goes(page, name)}
        if not page.quirks.call_status:
            own.pop("status", None)
    name, call_id = wire_name(call.name, page.quirks.name_length), short_id(call.id, page.quirks.id_length)
    if name != call.name:
        page.rename("tool_call.name", call, call.name, name)
    if call_id != call.id:
        page.rename("tool_call.id", call, call.id, call_id)
    return {**own, "type": "function_call", "call_id": call_id, "name": name, "arguments": raw}


def _is_own(page: Page, block: HostedBlock, role: str) -> bool:
    return block.is_for(page.ask.target) and page.quirks.hosted and block.role in ("", role)


def _formed(page: Page, call: ToolCall, form: Form | None) -> tuple[ToolCall, Form | None]:
    """The call without what its seal says of its form, and the form: as it was made on this wire, else as it is declared."""
    seal = call.seal
    if seal is None or seal.origin.wire != WIRE:
        return call, form
    own = fields(seal.data)
    kind, namespace = text_in(own.pop("type", None)), text_in(own.get("namespace"))
    if namespace:
        del own["namespace"]
    rest = replace(seal, data=dumps(own).decode()) if own else None
    call = replace(call, seal=rest)
    if not page.quirks.custom_tools or not (kind or namespace):
        return call, form
    name = call.name.removeprefix(Namespace(namespace).prefix) if namespace else call.name
    return call, Form(name, kind == FREE_CALL, namespace)


def _odd_call(page: Page, call: ToolCall, form: Form) -> dict[str, object]:
    """A call with a text instead of arguments, or of a tool in a namespace."""
    written = _call(page, replace(call, name=form.name), {})
    if form.namespace:
        written["namespace"] = form.namespace
    if not form.free:
        return written
    del written["arguments"]
    page.free.append(call.id)
    return {**written, "type": FREE_CALL, "input": free_text(call)}


def _hosted(page: Page, block: HostedBlock, role: str) -> None:
    own = _is_own(page, block, role) and not _is_part(block)
    if own and not (page.shut and role == "assistant"):
        _item(page, block.raw.encode())
        return
    why = "only its own provider can read it"
    if own:
        item: dict[str, object] = {**fields(block.raw)}
        if item.pop("id", None) is None or block.opens or word(fields(block.raw).get("type")) in WHOLE:
            _item(page, item)  # known by its call, or by what it holds
            return
        why = "the reasoning that it was made with cannot go"
    page.degrade("hosted", f"{why}; sent as a line ({block.text or 'no text'})", block)
    _item(page, {"role": role, "content": placeholder(block)})


# What came back.


def _back(page: Page, message: Message) -> None:
    """Results and hosted blocks are items of their own; what stands between them is one message."""
    spoken: list[Block] = []
    for block in message.blocks:
        if type(block) is not ToolResult and (type(block) is not HostedBlock or _is_part(block)):
            spoken.append(block)
            continue
        if spoken:
            _spoken(page, message, spoken)
            spoken = []
        if type(block) is ToolResult:
            _result(page, block)
        elif type(block) is HostedBlock:
            _report_marks(page, (block,))
            _hosted(page, block, message.role)
    if spoken:
        _spoken(page, message, spoken)


def _spoken(page: Page, message: Message, blocks: Sequence[Block]) -> None:
    seals: list[TextSeal] = []
    for block in blocks:
        if type(block) is TextBlock and (block.seal is not None or block.citations):
            seals.append(_text_fields(page, block, message.role))
        else:
            seals.append(UNSEALED)
    own: dict[str, object] = {"role": message.role}
    only, first = blocks[0], seals[0]
    own |= next((seal.item for seal in seals if seal.item), {})
    if len(blocks) == 1 and type(only) is TextBlock and not only.cache and not first.part:
        own["content"] = only.text
        _item(page, own)
        return
    _item(page, dumps(own)[:-1] + b',"content":[')
    _inputs(page, blocks, seals)
    page.close()


def _inputs(page: Page, blocks: Sequence[Block], seals: Sequence[TextSeal]) -> None:
    for number, (block, seal) in enumerate(zip(blocks, seals, strict=True)):
        page.write(b"," if number else b"")
        match block:
            case TextBlock():
                page.block({"type": "input_text", "text": block.text, **seal.part}, block.cache)
            case ImageBlock() | DocumentBlock() | HostedBlock():
                page.block(_media(page, block), block.cache)
            case _:
                page.block({"type": "input_text", "text": f"[{block.kind} omitted]"})


def _is_part(block: HostedBlock) -> bool:
    """True if it is a part of a message; else it is an item."""
    return block.wire == WIRE and block.raw.startswith(f'{{"{PART}"')


def _media(page: Page, block: ImageBlock | DocumentBlock | HostedBlock) -> dict[str, object]:
    value: dict[str, object] | None = None
    if isinstance(block, HostedBlock) and _is_part(block) and block.is_for(page.ask.target) and page.quirks.hosted:
        return dict(fields(page.put_beside(fields(block.raw))[PART]))
    if isinstance(block, ImageBlock):
        value = _image(page, block) if page.quirks.images else None
    elif isinstance(block, DocumentBlock):
        value = _document(page, block) if page.quirks.documents else None
    if value is None or isinstance(block, HostedBlock):
        page.degrade(block.kind, "this endpoint cannot take it here; sent as a line", block)
        return {"type": "input_text", "text": placeholder(block)}
    return {**value, **page.unsealed(block)}  # what is sealed was not understood, so it is not what we write


def _image(page: Page, block: ImageBlock) -> dict[str, object] | None:
    block = settled(page, block)
    if not is_image_taken(block, page.quirks.image_types or IMAGES):
        return None
    where = _source(page, block.source, block.media_type or "image/png", url="image_url", data="image_url")
    return {"type": "input_image", "detail": legal_detail(page, block) or "auto", **where} if where else None


def _document(page: Page, block: DocumentBlock) -> dict[str, object] | None:
    block = settled(page, block)
    data = block.source.data if isinstance(block.source, Inline) else None
    if block.media_type.startswith(REFUSED_MEDIA) or (data is not None and not is_base64(data)):
        return None
    where = _source(page, block.source, block.media_type or "application/pdf", url="file_url", data="file_data")
    if not where:
        return None
    named = {"filename": block.name or "document"} if block.name or "file_data" in where else {}
    return {"type": "input_file", **named, **where}


def _source(page: Page, source: Source, media_type: str, *, url: str, data: str) -> dict[str, object] | None:
    match source:
        case Inline(text):
            return {data: f"data:{media_type};base64,{text}"}
        case Remote(address):
            return {url: address}
        case Uploaded(file_id):
            return {"file_id": file_id} if source.is_for(page.ask.target) else None
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(source)


def _answered(page: Page, result: ToolResult) -> ToolResult:
    """The result without the mark that it answers a call with a text, which is noted."""
    seal = result.seal
    if seal is None or FREE_ANSWER not in seal.data or seal.origin.wire != WIRE:
        return result
    own = fields(seal.data)
    if text_in(own.pop("type", None)) == FREE_ANSWER and page.quirks.custom_tools:
        page.free.append(result.call_id)
    return replace(result, seal=replace(seal, data=dumps(own).decode()) if own else None)


def _result(page: Page, result: ToolResult) -> None:
    call_id = short_id(result.call_id, page.quirks.id_length)
    own: dict[str, object] = {"type": "function_call_output", "call_id": call_id}
    if result.seal:
        own = {**own, **page.unsealed(_answered(page, result))}
    if page.free and result.call_id in page.free:
        own["type"] = FREE_ANSWER
    content = list(result.content)
    if result.cache:
        page.drop("cache.mark", "a result takes none here, only what is in it", result, at="cache")
    if result.is_error:
        page.degrade("tool_result.error", f"this wire has none; the text begins with {ERROR!r}", result, at="is_error")
    if not content or (len(content) == 1 and is_plain(content[0])):
        own["output"] = ERROR + result.text if result.is_error else result.text
        _item(page, own)
        return
    if result.is_error:
        content.insert(0, TextBlock(ERROR.strip()))
    _item(page, dumps(own)[:-1] + b',"output":[')
    seals = [_text_fields(page, block, "user") if isinstance(block, TextBlock) else TextSeal() for block in content]
    _inputs(page, content, seals)
    page.write(b"]}")
