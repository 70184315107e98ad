"""An Ask as an OpenAI Responses request. Pure: the same ask gives the same bytes, with or without `prior`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import assert_never

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, HostedTool, Namespace, State, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    Seal,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import Exchange, Repair, RepairRules
from evener.transcript.transcript import Node, Transcript
from evener.wire.media import IMAGES, check_detail, is_base64, is_image_taken, is_web, normalize_media
from evener.wire.openai import TEMPERATURE, TOP_P, fit_key, refused_settings, write_output_shape, write_parallel
from evener.wire.prefix import (
    ERROR,
    ExchangeWriter,
    Fragment,
    LazyChain,
    Prefix,
    Render,
    dict_of,
    dumps,
    extend_prefix,
    fields,
    free_text,
    is_plain,
    join_body,
    list_telling,
    must_fetch,
    placeholder,
    start_prefix,
    text_in,
    with_tool_extra,
    word,
)
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields
from evener.wire.request import (
    Address,
    Encoded,
    Fixed,
    Frame,
    KeptRequests,
    RequestSource,
    Setting,
    Wanted,
    add_losses,
    as_function,
    breakpoint_mark,
    cache_options,
    choose_marks,
    declare_name,
    effort_for,
    find_chosen_tools,
    frame_of,
    headers_of,
    insert_marks,
    is_declared_inline,
    list_fragments,
    names_of,
    nearest_effort,
    output_limit,
    pass_number,
    path_of,
    plan_marks,
    plan_own_marks,
    report_choice,
    short_id,
    wire_name,
    with_extra,
    without_messages,
    write_hosted_tool,
    write_settings,
)
from evener.wire.schema import OPENAI_PLAIN, OPENAI_STRICT
from evener.wire.tool_schema import declare_schema

ALL_IS_SENT = "the whole conversation is sent"


class Outgoing(msgspec.Struct, frozen=True):
    """The ask to write, its losses, and whether the provider stores the earlier messages."""

    ask: Ask
    losses: tuple[Loss, ...] = ()
    resumed: bool = False
    keeps: str = ""


def plan_outgoing(ask: Ask, quirks: Quirks) -> Outgoing:
    """Return the ask without the messages that the provider stores; if it cannot continue from them, all of it, with a loss."""
    wanted = ask.state
    if wanted.mode == "replay":
        return Outgoing(ask)
    if not quirks.store or (wanted.mode == "conversation" and not quirks.conversation):
        if wanted.id and not wanted.after:
            return Outgoing(ask)  # the ask has only the new messages: `_write_state` reports that the rest is missing
        return _send_whole(ask, "this endpoint keeps no state", State(sealed=wanted.sealed))
    keeps = wanted.mode if wanted.store is not False and (wanted.id or wanted.mode == "chain") else ""
    if not wanted.after:
        return Outgoing(ask, keeps=keeps)
    found = _find_new(ask, RepairRules(unique_ids=quirks.unique_ids, merge=False))
    if isinstance(found, str):  # a chain can begin again; a conversation that has some of the messages must not get all of them
        return _send_whole(
            ask, found, replace(wanted, id="", after="") if wanted.mode == "chain" else State(sealed=wanted.sealed)
        )
    messages, losses = found
    cut = replace(ask, transcript=Transcript(messages, ask.transcript.system_blocks))
    return Outgoing(cut, losses, resumed=True, keeps=keeps)


def _send_whole(ask: Ask, why: str, state: State) -> Outgoing:
    loss = loss_of("degraded", "state.mode", f"{why}; {ALL_IS_SENT}", name=ask.state.mode)
    keeps = state.mode if state.mode == "chain" and state.store is not False else ""
    return Outgoing(replace(ask, state=state), (loss,), keeps=keeps)


def _find_new(ask: Ask, rules: RepairRules) -> tuple[list[Message], tuple[Loss, ...]] | str:
    """Return the messages that are new to the provider, and the losses of their repair; or why they cannot be determined."""
    node = _find_node(ask.transcript, ask.state.after)
    if node is None or not ask.state.id:
        return "the answer to continue from is not in this conversation"
    if node.message.origin != ask.target:
        return "the answer to continue from is of another model, account or endpoint"
    return _split_new(ask.transcript, node, rules) or "the answer to continue from had to be repaired"


def _find_node(transcript: Transcript, message: str) -> Node | None:
    here = transcript.head
    while here is not None and here.message.id != message:
        here = here.parent
    return here


def _split_new(transcript: Transcript, node: Node, rules: RepairRules) -> tuple[list[Message], tuple[Loss, ...]] | None:
    """Return the messages after an answer, repaired: each of its calls has a result. None if they cannot be determined.

    If there are further answers after it, the whole transcript is repaired: their calls may reuse earlier ids.
    """
    tail = transcript.since(node)
    if tail and tail[0].role == "assistant":
        return None
    alone = all(message.role != "assistant" for message in tail)
    state, exchanges = Repair(rules).feed((node.message, *tail) if alone else transcript.messages)
    last = state.finish()
    told = [*exchanges, *((last,) if last else ())]
    place = _find_place(told, node.message)
    if place < 0:
        return None
    after = told[place + 1 :]
    first = [_mark_free_results(message, node.message) for message in told[place].back]
    messages = [*first, *(message for one in after for message in (one.assistant, *one.back) if message)]
    return messages, tuple(loss for one in told[place:] for loss in one.losses)


def _mark_free_results(message: Message, answer: Message) -> Message:
    """Return the message with a mark on the results of free-text calls, because these calls are not sent again."""
    free = {call.id for call in answer.calls if call.seal is not None and FREE_CALL in call.seal.data}
    if not free:
        return message
    mark = Seal(dumps({"type": FREE_ANSWER}).decode(), answer.origin or Origin())
    blocks = [
        replace(block, seal=mark) if type(block) is ToolResult and block.seal is None and block.call_id in free else block
        for block in message.blocks
    ]
    return replace(message, blocks=tuple(blocks))


def _find_place(exchanges: list[Exchange], answer: Message) -> int:
    """Return the place of the unchanged answer; -1 if repair merged it, left it out, or renamed its calls."""
    for number, exchange in enumerate(exchanges):
        said = exchange.assistant
        if said is not None and said.id == answer.id:
            return number if [call.id for call in said.calls] == [call.id for call in answer.calls] else -1
    return -1


EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
SHOWN = {"summary": "auto", "concise": "concise", "detailed": "detailed"}
LEAST_OUTPUT = 16  # sheet 2
ENCRYPTED = "reasoning.encrypted_content"
SETTINGS = (
    Setting("max_output_tokens", "max_output_tokens", read=Fields.limit),
    TEMPERATURE,
    TOP_P,
    Setting("top_k", write=pass_number),
    Setting("seed", write=pass_number),
    Setting("stop", write=pass_number),
)

Body = dict[str, object]


def _write_thinking(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the field `reasoning`."""
    wanted = ask.reasoning
    body: Body = {}
    effort = "off" if wanted.mode == "off" else wanted.effort
    if wanted.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    if wanted.mode == "on" and effort is None and wanted.budget is None and not _thinks_by_default(quirks):
        losses.append(loss_of("degraded", "reasoning.mode", "this wire cannot switch it on; the model's own default is used"))
    if found := _find_effort(effort, wanted.budget, quirks, losses):
        body["effort"] = "none" if found == "off" else found
    if wanted.show in SHOWN:
        if quirks.show:
            body["summary"] = SHOWN[wanted.show]
        else:
            losses.append(loss_of("dropped", "reasoning.show", "this endpoint shows none"))
    return {"reasoning": body} if body else {}


def _find_effort(effort: str | None, budget: int | None, quirks: Quirks, losses: list[Loss]) -> str:
    """Return the level to send; empty for none."""
    if effort is None and budget is None:
        return ""
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort" if effort else "reasoning.budget", "this model takes none"))
        return ""
    if budget is not None and effort != "off":
        effort = effort or effort_for(budget)
        losses.append(loss_of("degraded", "reasoning.budget", f"this wire has efforts only; sent as {effort!r}"))
    return nearest_effort(effort or "off", quirks.efforts or EFFORTS, losses)


def _thinks_by_default(quirks: Quirks) -> bool:
    return bool(quirks.thinks_unasked) or quirks.default_effort not in ("", "off")


def _write_choice(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """Return the fields `tool_choice` and `parallel_tool_calls`."""
    wanted = ask.choice
    if not offered:
        report_choice(ask, losses)
        return {"tool_choice": wanted.mode} if wanted.stated and wanted.mode in ("auto", "none") else {}
    body = write_parallel(ask, quirks, losses)
    value = _write_mode(ask, quirks, losses)
    if value != "auto" or wanted.stated:
        body["tool_choice"] = value
    return body


def _write_mode(ask: Ask, quirks: Quirks, losses: list[Loss]) -> object:
    wanted = ask.choice
    if wanted.mode in ("required", "named") and not quirks.forced_choice:
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    names = find_chosen_tools(ask, quirks, losses)
    if wanted.mode == "named":
        return _name_tool(ask, names[0], quirks) if len(names) == 1 else "auto"
    if names and wanted.mode != "none":
        tools = [_name_tool(ask, name, quirks) for name in names]
        return {"type": "allowed_tools", "mode": wanted.mode, "tools": tools}
    return wanted.mode


def _name_tool(ask: Ask, name: str, quirks: Quirks) -> Body:
    """Return a tool that the client runs, as a choice names it."""
    for tool in ask.tools if quirks.custom_tools else ():
        if isinstance(tool, ToolSpec) and wire_name(tool.name, quirks.name_length) == name:
            bare = wire_name(tool.bare_name, quirks.name_length)
            return {"type": "custom" if tool.free else "function", "name": bare}
    return {"type": "function", "name": name}


def _write_output_format(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the field `text.format`, or its replacement."""
    if ask.output is None:
        return {}
    shape = write_output_shape(ask.output, quirks, losses)
    if not shape:
        return {}
    if quirks.schema_field == "text":
        return {"text": {"format": shape}}
    inner = {name: value for name, value in shape.items() if name != "type"}
    return {"response_format": {"type": shape["type"], **({"json_schema": inner} if inner else {})}}


def _write_state(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the fields `store` and `include`, and those that refer to state on the server."""
    wanted = ask.state
    body: Body = {}
    if wanted.store is not None and quirks.store:
        body["store"] = wanted.store
    elif wanted.store:
        losses.append(loss_of("dropped", "state.store", "this endpoint keeps no answers"))
    if wanted.id and wanted.mode == "chain":
        body["previous_response_id"] = wanted.id
    elif wanted.id and wanted.mode == "conversation":
        body["conversation"] = wanted.id
    if wanted.sealed is not False and quirks.sealed:
        body["include"] = [ENCRYPTED]
    elif wanted.sealed:
        losses.append(loss_of("dropped", "state.sealed", "this endpoint hands out no encrypted reasoning"))
    if (wanted.mode != "replay" and not quirks.store) or (wanted.mode == "conversation" and not quirks.conversation):
        losses.append(
            loss_of(
                "degraded", "state.mode", "this endpoint keeps no state; what the provider holds is not sent", name=wanted.mode
            )
        )
        body.pop("previous_response_id", None)
        body.pop("conversation", None)
    return body


def _write_cache_key(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the field `prompt_cache_key`."""
    if ask.cache.key and not quirks.cache_key:
        losses.append(loss_of("dropped", "cache.key", "this endpoint takes none"))
        return {}
    return {"prompt_cache_key": fit_key(ask, losses)} if ask.cache.key else {}


WIRE = "openai_responses"
SPEAKERS = {"": "assistant", "user": "user", "system": "system", "developer": "system"}
"""The speaker of a sealed text, by the role in its seal. The assistant's texts have no role there."""
WHOLE = ("tool_search_call", "tool_search_output", "compaction")
"""Items that are identified by their content, and need no id."""
FREE_CALL, FREE_ANSWER = "custom_tool_call", "custom_tool_call_output"
MORE = "@more"
"""A key in the seal of a text of the system prompt: the text is a further part of the item before it."""
PART = "@part"
"""A key in a part of a message that is kept verbatim: it is a part of the content, not an item."""
ADDS_TOOLS = b'"additional_tools"'
REFUSED_MEDIA = ("audio/", "video/")  # sheet 3, recorded


class TextSeal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields that this API adds to a text: those of the message item, and those of the content part."""

    item: dict[str, msgspec.Raw] = {}
    part: dict[str, msgspec.Raw] = {}


UNSEALED = TextSeal()
_text_seals = msgspec.json.Decoder(TextSeal)


def _text_seal(seal: Seal | None) -> TextSeal:
    """Return the parsed seal of a text; empty if it is not of this wire."""
    return _text_seals.decode(seal.data) if seal and seal.origin.wire == WIRE else TextSeal()


def _text_fields(out: ExchangeWriter, block: TextBlock, role: str) -> TextSeal:
    """Return the sealed fields of a text that may be sent back: none, if the seal was made for another role."""
    if (block.seal is None and not block.citations) or not out.open_seal(block):
        return UNSEALED
    seal = _text_seal(block.seal)
    if SPEAKERS.get(word(seal.item.get("role"))) == role:
        return seal
    why = f"it was not made for a text of the {role}"
    out.report_citations(block, why)
    out.report_fields(block, list_telling(dumps(seal).decode()), why)
    return TextSeal()


class CallForm(msgspec.Struct, frozen=True):
    """The form of a call: `free` text instead of arguments, and its namespace. `name` is the tool's name in the namespace."""

    name: str
    free: bool = False
    namespace: str = ""


Forms = Mapping[str, CallForm]


def qualify_name(namespace: str, name: str) -> str:
    """Return the name of a tool with its namespace. A tool that a search found is its own namespace (recorded)."""
    return Namespace(namespace).prefix + name if namespace and namespace != name else name


def _list_forms(tools: Iterable[ToolSpec | HostedTool], quirks: Quirks) -> Forms:
    """Return the forms of calls that are not plain function calls, by the names of their tools."""
    if not quirks.custom_tools:
        return {}
    odd = [tool for tool in tools if isinstance(tool, ToolSpec) and (tool.free is not None or tool.namespace is not None)]
    return {
        tool.name: CallForm(tool.bare_name, tool.free is not None, tool.namespace.name if tool.namespace else "")
        for tool in odd
    }


def render(ask: Ask, quirks: Quirks, forms: Forms, exchange: Exchange, chain: LazyChain) -> Fragment:
    """Return one exchange: what the assistant said, then what came back."""
    out = ExchangeWriter(ask, quirks, chain)
    if exchange.assistant is not None:
        _write_assistant(out, exchange.assistant, forms)
    for message in exchange.back:
        out.message = message
        _write_back(out, message)
    return out.fragment(exchange, None)


def _write_system(ask: Ask, quirks: Quirks, losses: list[Loss]) -> tuple[list[str], list[dict[str, object]]]:
    """Return the system prompt: its texts, and the parts that were items."""
    out = ExchangeWriter(ask, quirks)
    texts: list[str] = []
    items: list[dict[str, object]] = []
    for block in ask.transcript.system_blocks:
        if added := _find_added_tools(block):
            items += _write_added_tools(out, block, added)
            continue
        seal = _text_fields(out, block, "system")
        part = {"type": "input_text", "text": block.text, **seal.part}
        if MORE in seal.item and items:
            before = items[-1]["content"]
            items[-1]["content"] = [*(before if isinstance(before, list) else [{"type": "input_text", "text": before}]), part]
        elif seal.item:
            items.append({"role": "developer", **seal.item, "content": [part] if seal.part else block.text})
        else:
            texts.append(block.text)
    losses += out.losses
    return texts, items


def continue_item(seal: Seal) -> Seal:
    """Return the seal with a mark that its text belongs to the same item as the text before it."""
    own = _text_seals.decode(seal.data)
    item = {"role": own.item.get("role", msgspec.Raw(b'"developer"')), MORE: msgspec.Raw(b"true")}
    return replace(seal, data=dumps(TextSeal(item, own.part)).decode(), id="")


def _find_added_tools(block: TextBlock) -> dict[str, msgspec.Raw]:
    """Return the item that adds tools from the seal of an empty text at the beginning; empty for any other text."""
    item = _text_seal(block.seal).item if block.seal is not None and not block.text else {}
    return item if bytes(item.get("type", b"")) == ADDS_TOOLS else {}


def _write_added_tools(out: ExchangeWriter, block: TextBlock, item: dict[str, msgspec.Raw]) -> list[dict[str, object]]:
    """Return the item if it is sent; its tools are then not in the field `tools`: see `is_declared_inline`."""
    origin = block.seal.origin if block.seal else Origin()
    if out.quirks.hosted and out.ask.target.owns(origin.wire, origin.provider):
        return [dict(item)]
    why = "this endpoint takes no item that adds tools; they are offered from the beginning"
    out.losses.append(loss_of("degraded", "tool.inline", why))
    return []


def _write_item(out: ExchangeWriter, value: dict[str, object] | bytes) -> None:
    if out.quirks.item_types and isinstance(value, dict) and value.get("role") == "assistant":
        value = {"type": "message", **value}
    out.write((b"," if out.pieces else b"") + (value if isinstance(value, bytes) else dumps(value)))


# The assistant's message.


def _write_assistant(out: ExchangeWriter, message: Message, forms: Forms) -> None:
    out.message = message
    blocks: Sequence[Block] = message.blocks
    if out.quirks.calls_last and message.calls:
        blocks = [block for block in blocks if not isinstance(block, ToolCall)] + list(message.calls)
        if list(message.blocks) != blocks:
            out.degrade("message.order", "this endpoint wants all calls at the end of it")
    _report_marks(out, blocks)
    for thoughts, made in _split_bonds(blocks):
        why = _why_broken(out, thoughts, made)
        out.shut = bool(why)
        for thought in thoughts:
            _write_reasoning(out, thought, why)
        _write_items(out, made, forms)


def _split_bonds(blocks: Sequence[Block]) -> Iterator[tuple[list[ReasoningBlock], list[Block]]]:
    """Yield reasoning with the items that follow it: each may only be sent back with the other (sheet 7)."""
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


def _why_broken(out: ExchangeWriter, thoughts: Sequence[ReasoningBlock], made: Sequence[Block]) -> str:
    """Return why reasoning and its items cannot be sent back unchanged; empty if they can, or if there is no reasoning."""
    for thought in thoughts:
        if why := _why_not(out, thought):
            return why
    first = next((block for block in made if type(block) is not TextBlock or block.text.strip() or block.seal), None)
    if not thoughts or not out.quirks.reasoning_leads:
        return ""
    if first is None:
        return "nothing follows that was made with it"
    return "what was made with it cannot be sent" if type(first) is HostedBlock and not _is_own(out, first, "assistant") else ""


def _write_items(out: ExchangeWriter, blocks: Sequence[Block], forms: Forms) -> None:
    for _, group in groupby(enumerate(blocks), key=lambda pair: _item_key(*pair)):
        block = (members := [block for _, block in group])[0]
        if type(block) is ToolCall:
            _write_item(out, _write_call(out, block, forms))
        elif type(block) is TextBlock:
            _write_texts(out, [member for member in members if type(member) is TextBlock])
        elif type(block) is HostedBlock:
            _write_hosted(out, block, "assistant")
        elif type(block) is ToolResult:
            out.drop("tool_result", "an assistant turn cannot hold it", block)
        elif type(block) is not ReasoningBlock:  # which is written already, before its items
            out.degrade(block.kind, "an assistant item cannot hold it; sent as a line", block)
            _write_item(out, {"role": "assistant", "content": placeholder(block)})


def _report_marks(out: ExchangeWriter, blocks: Sequence[Block]) -> None:
    for block in blocks:
        if type(block) is not ReasoningBlock and block.cache:
            out.drop(
                "cache.mark", "only texts, images and documents that are given to the model take one here", block, at="cache"
            )


def _item_key(number: int, block: Block) -> object:
    """Return the key to group a block by: texts of one item are a group, any other block is alone."""
    own = _text_seal(block.seal).item.get("id") if type(block) is TextBlock else None
    return bytes(own) if own is not None else number


def _write_texts(out: ExchangeWriter, blocks: Sequence[TextBlock]) -> None:
    seals = [_text_fields(out, block, "assistant") for block in blocks]
    item = {name: value for name, value in seals[0].item.items() if _may_return(out, name)}
    if "id" in item:
        parts = [_write_text(block, seal) for block, seal in zip(blocks, seals, strict=True)]
        _write_item(out, {"type": "message", "role": "assistant", **item, "content": parts})
        return
    item.pop("status", None)
    for block, seal in zip(blocks, seals, strict=True):
        if not block.text.strip() and "content" not in item:
            out.drop("text", "it was empty and its seal cannot be sent", block)
            continue
        content: object = [_write_text(block, seal)] if seal.part else block.text
        _write_item(out, {"role": "assistant", **item, "content": content})


def _write_text(block: TextBlock, seal: TextSeal) -> dict[str, object]:
    if bytes(seal.part.get("type", b"")) == b'"refusal"':
        return {**seal.part, "refusal": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], **seal.part}


def _may_return(out: ExchangeWriter, name: str) -> bool:
    """True if a field that the provider put on its item may go back. An id may only be sent with its reasoning (sheet 7)."""
    match name:
        case "id":
            return out.quirks.item_ids and not out.shut
        case "phase":
            return out.quirks.phase
        case _:
            return True


def _why_not(out: ExchangeWriter, block: ReasoningBlock) -> str:
    """Return why a reasoning block cannot be replayed; empty when it can."""
    if out.quirks.thinking_replay == "none":
        return "this endpoint takes back no reasoning"
    if block.seal is None:
        return "it carries nothing that this provider could verify"
    why = out.why_shut(block.seal)
    if why:
        return why
    own = fields(block.seal.data)
    kept = out.ask.state.store is not False or "encrypted_content" in own or "content" in own
    return "" if kept else "the provider did not keep it and gave no encrypted copy"


def _write_reasoning(out: ExchangeWriter, block: ReasoningBlock, why: str) -> None:
    if not why and block.seal:
        out.thought = True
        own = fields(block.seal.data)
        own.pop("status", None)  # the API returns it, but rejects it in requests
        _write_item(out, {"type": "reasoning", "summary": [], **own})
    elif block.text.strip() and out.ask.foreign_reasoning == "text":
        out.degrade("reasoning", f"sent as plain text: {why}", block)
        _write_item(out, {"role": "assistant", "content": block.text})
    elif block.text or block.seal:  # an empty one has nothing to lose
        out.drop("reasoning", why, block)


def _write_call(out: ExchangeWriter, call: ToolCall, forms: Forms) -> dict[str, object]:
    form = forms.get(call.name)
    if call.seal is not None and (form or '"namespace"' in call.seal.data or '"custom_tool_call"' in call.seal.data):
        call, form = _find_form(out, call, form)
    if form is not None:
        return _write_odd_call(out, call, form)
    raw = out.arguments(call)
    own: dict[str, object] = {}
    if call.seal:
        own |= {name: value for name, value in out.open_seal(call).items() if _may_return(out, name)}
        if not out.quirks.call_status:
            own.pop("status", None)
    name, call_id = wire_name(call.name, out.quirks.name_length), short_id(call.id, out.quirks.id_length)
    if name != call.name:
        out.rename("tool_call.name", call, call.name, name)
    if call_id != call.id:
        out.rename("tool_call.id", call, call.id, call_id)
    return {**own, "type": "function_call", "call_id": call_id, "name": name, "arguments": raw}


def _is_own(out: ExchangeWriter, block: HostedBlock, role: str) -> bool:
    return block.is_for(out.ask.target) and out.quirks.hosted and block.role in ("", role)


def _find_form(out: ExchangeWriter, call: ToolCall, form: CallForm | None) -> tuple[ToolCall, CallForm | None]:
    """Return the call without the form in its seal, and the form: the sealed one on this wire, else that of the tool."""
    seal = call.seal
    if seal is None or seal.origin.wire != WIRE:
        return call, form
    own = fields(seal.data)
    kind, namespace = text_in(own.pop("type", None)), text_in(own.get("namespace"))
    if namespace:
        del own["namespace"]
    rest = replace(seal, data=dumps(own).decode()) if own else None
    call = replace(call, seal=rest)
    if not out.quirks.custom_tools or not (kind or namespace):
        return call, form
    name = call.name.removeprefix(Namespace(namespace).prefix) if namespace else call.name
    return call, CallForm(name, kind == FREE_CALL, namespace)


def _write_odd_call(out: ExchangeWriter, call: ToolCall, form: CallForm) -> dict[str, object]:
    """Return a call with a text instead of arguments, or of a tool in a namespace."""
    written = _write_call(out, replace(call, name=form.name), {})
    if form.namespace:
        written["namespace"] = form.namespace
    if not form.free:
        return written
    del written["arguments"]
    out.free.append(call.id)
    return {**written, "type": FREE_CALL, "input": free_text(call)}


def _write_hosted(out: ExchangeWriter, block: HostedBlock, role: str) -> None:
    own = _is_own(out, block, role) and not _is_part(block)
    if own and not (out.shut and role == "assistant"):
        _write_item(out, block.raw.encode())
        return
    why = "only its own provider can read it"
    if own:
        item: dict[str, object] = {**fields(block.raw)}
        if item.pop("id", None) is None or block.opens or word(fields(block.raw).get("type")) in WHOLE:
            _write_item(out, item)  # identified by its call, or by its content
            return
        why = "the reasoning that it was made with cannot be sent"
    out.degrade("hosted", f"{why}; sent as a line ({block.text or 'no text'})", block)
    _write_item(out, {"role": role, "content": placeholder(block)})


# The messages after it: results and user messages.


def _write_back(out: ExchangeWriter, message: Message) -> None:
    """Write a message. Results and hosted blocks are items; the blocks between them are one message item."""
    spoken: list[Block] = []
    for block in message.blocks:
        if type(block) is not ToolResult and (type(block) is not HostedBlock or _is_part(block)):
            spoken.append(block)
            continue
        if spoken:
            _write_spoken(out, message, spoken)
            spoken = []
        if type(block) is ToolResult:
            _write_result(out, block)
        elif type(block) is HostedBlock:
            _report_marks(out, (block,))
            _write_hosted(out, block, message.role)
    if spoken:
        _write_spoken(out, message, spoken)


def _write_spoken(out: ExchangeWriter, message: Message, blocks: Sequence[Block]) -> None:
    only = blocks[0]
    if len(blocks) == 1 and type(only) is TextBlock and is_plain(only):  # nearly always
        _write_item(out, {"role": message.role, "content": only.text})
        return
    seals: list[TextSeal] = []
    for block in blocks:
        if type(block) is TextBlock and (block.seal is not None or block.citations):
            seals.append(_text_fields(out, block, message.role))
        else:
            seals.append(UNSEALED)
    own: dict[str, object] = {"role": message.role}
    first = seals[0]
    if type(only) is HostedBlock and only.is_for(out.ask.target):
        own |= {name: value for name, value in fields(only.raw).items() if name == "role"}
    own |= next((seal.item for seal in seals if seal.item), {})
    if len(blocks) == 1 and type(only) is TextBlock and not only.cache and not first.part:
        own["content"] = only.text
        _write_item(out, own)
        return
    _write_item(out, dumps(own)[:-1] + b',"content":[')
    _write_inputs(out, blocks, seals)
    out.close()


def _write_inputs(out: ExchangeWriter, blocks: Sequence[Block], seals: Sequence[TextSeal]) -> None:
    for number, (block, seal) in enumerate(zip(blocks, seals, strict=True)):
        out.write(b"," if number else b"")
        match block:
            case TextBlock():
                out.block({"type": "input_text", "text": block.text, **seal.part}, block.cache)
            case ImageBlock() | DocumentBlock() | HostedBlock():
                out.block(_write_media(out, block), block.cache)
            case _:
                out.block({"type": "input_text", "text": f"[{block.kind} omitted]"})


def _is_part(block: HostedBlock) -> bool:
    """True if it is a part of a message; else it is an item."""
    return block.wire == WIRE and block.raw.startswith(f'{{"{PART}"')


def _write_media(out: ExchangeWriter, block: ImageBlock | DocumentBlock | HostedBlock) -> dict[str, object]:
    value: dict[str, object] | None = None
    if isinstance(block, HostedBlock) and _is_part(block) and block.is_for(out.ask.target) and out.quirks.hosted:
        return dict(fields(out.hold_message_fields(fields(block.raw))[PART]))
    if isinstance(block, ImageBlock):
        value = _write_image(out, block) if out.quirks.images else None
    elif isinstance(block, DocumentBlock):
        value = _write_document(out, block) if out.quirks.documents else None
    if value is None or isinstance(block, HostedBlock):
        out.degrade(block.kind, "this endpoint cannot take it here; sent as a line", block)
        return {"type": "input_text", "text": placeholder(block)}
    return {**value, **out.open_seal(block)}  # sealed fields are those that we do not know, so they replace none of ours


def _write_image(out: ExchangeWriter, block: ImageBlock) -> dict[str, object] | None:
    block = normalize_media(out, block)
    if not is_image_taken(block, out.quirks.image_types or IMAGES):
        return None
    where = _write_source(out, block.source, block.media_type or "image/png", url="image_url", data="image_url")
    return {"type": "input_image", "detail": check_detail(out, block) or "auto", **where} if where else None


def _write_document(out: ExchangeWriter, block: DocumentBlock) -> dict[str, object] | None:
    block = normalize_media(out, block)
    data = block.source.data if isinstance(block.source, Inline) else None
    if block.media_type.startswith(REFUSED_MEDIA) or (data is not None and not is_base64(data)):
        return None
    where = _write_source(out, block.source, block.media_type or "application/pdf", url="file_url", data="file_data")
    if not where:
        return None
    named = {"filename": block.name or "document"} if block.name or "file_data" in where else {}
    return {"type": "input_file", **named, **where}


def _write_source(out: ExchangeWriter, source: Source, media_type: str, *, url: str, data: str) -> dict[str, object] | None:
    match source:
        case Inline(text):
            return {data: f"data:{media_type};base64,{text}"}
        case Remote(address):
            return {url: address} if is_web(address) else None
        case Uploaded(file_id):
            return {"file_id": file_id} if source.is_for(out.ask.target) else None
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(source)


def _note_free_answer(out: ExchangeWriter, result: ToolResult) -> ToolResult:
    """Remove the mark of a free-text call from its result, record the call, and return the result."""
    seal = result.seal
    if seal is None or FREE_ANSWER not in seal.data or seal.origin.wire != WIRE:
        return result
    own = fields(seal.data)
    if text_in(own.pop("type", None)) == FREE_ANSWER and out.quirks.custom_tools:
        out.free.append(result.call_id)
    return replace(result, seal=replace(seal, data=dumps(own).decode()) if own else None)


def _write_result(out: ExchangeWriter, result: ToolResult) -> None:
    call_id = short_id(result.call_id, out.quirks.id_length)
    own: dict[str, object] = {"type": "function_call_output", "call_id": call_id}
    if result.seal:
        own = {**own, **out.open_seal(_note_free_answer(out, result))}
    if out.free and result.call_id in out.free:
        own["type"] = FREE_ANSWER
    content = list(result.content)
    if result.cache:
        out.drop("cache.mark", "a result takes none here, only what is in it", result, at="cache")
    if result.is_error:
        out.degrade("tool_result.error", f"this wire has none; the text begins with {ERROR!r}", result, at="is_error")
    if not content or (len(content) == 1 and is_plain(content[0])):
        own["output"] = ERROR + result.text if result.is_error else result.text
        _write_item(out, own)
        return
    if result.is_error:
        content.insert(0, TextBlock(ERROR.strip()))
    _write_item(out, dumps(own)[:-1] + b',"output":[')
    seals = [_text_fields(out, block, "user") if isinstance(block, TextBlock) else TextSeal() for block in content]
    _write_inputs(out, content, seals)
    out.write(b"]}")


PATH = "/responses"
DIALECTS = (OPENAI_PLAIN, OPENAI_STRICT)
TTLS = ("30m", "12h")
NESTED = ("reasoning", "text", "text.format", "tool_choice")
"""Objects that we write and the caller may add to."""
JSON_NOTE = b'{"role":"developer","content":"Answer with one JSON object and nothing else."}'
NOTHING_SAID = b'{"role":"user","content":""}'


class _Fixed(Fixed, frozen=True, eq=False):
    """The parts that do not depend on the messages. `opening` is the body up to the input, `spoken` the parts of the system
    prompt that are items of the input. `json_mode`: a message must mention JSON, and none of those items does."""

    frame: Frame
    start: Prefix
    draw: Render
    wanted: Wanted
    address: Address
    opening: bytes
    spoken: tuple[bytes, ...]
    losses: tuple[Loss, ...]
    json_mode: bool


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """Return the request for this ask. `prior` is the last one of this conversation: it saves work and changes nothing."""
    sent = plan_outgoing(ask, quirks)
    ask = sent.ask
    fixed = _fixed.of(ask, quirks, prior)
    fold = extend_prefix(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = list_fragments(fold, quirks)
    losses = [*sent.losses, *fixed.losses]
    marks = choose_marks(fixed.wanted, fragments, marked, losses)
    if marks.tools or marks.system:
        losses.append(loss_of("dropped", "cache.mark", "tools and instructions take none; they are cached by themselves"))
    items = insert_marks(fragments, marks, breakpoint_mark)
    if fixed.spoken and not sent.resumed:
        items[:0] = fixed.spoken
    if fixed.json_mode and not _speaks_of_json(ask.transcript.first):
        items.insert(0, JSON_NOTE)
        losses.append(
            loss_of("added", "message", "JSON mode is refused where no message speaks of JSON; one was added", name="developer")
        )
    if not items and not ask.state.id:
        items.append(NOTHING_SAID)  # an empty input is rejected (sheet 2)
        losses.append(
            loss_of("added", "message", "an empty conversation is rejected; an empty message stands for it", name="user")
        )
    add_losses(fold, fragments, losses)
    path, headers, names = fixed.address
    body = join_body(fixed.opening, items, b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, sent.keeps, fixed, sent.resumed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: RequestSource) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _write_tool, lambda block: dumps(block.text))
    rules = RepairRules(past_elsewhere=bool(ask.state.id), unique_ids=quirks.unique_ids, merge=False)
    start = start_prefix((render, quirks, ask.target, ask.state.store, ask.foreign_reasoning), rules, frame.seed)
    losses = list(frame.losses)
    texts, spoken = _write_system(ask, quirks, losses)
    inline = any(is_declared_inline(tool, ask.target, quirks) for tool in ask.tools)
    head = _write_head(ask, quirks, texts, inline or any(frame.tools), losses)
    tools = b",".join(_group_tools(ask.tools, frame.tools, quirks))
    opening = dumps(head)[:-1] + (b',"tools":[' + tools + b"]" if tools else b"") + b',"input":['
    automatic = ask.cache.mode in ("moving", "provider")  # we may place marks only on input content (sheet 11)
    wanted = plan_own_marks(ask, quirks, TTLS, losses) if automatic else plan_marks(ask, quirks, TTLS)
    return _Fixed(
        source,
        frame,
        start,
        partial(render, ask, quirks, _list_forms(ask.tools, quirks)),
        wanted,
        (path_of(ask, quirks, PATH), headers_of(ask, WIRE), names_of(ask.tools, quirks)),
        opening,
        tuple(dumps(item) for item in spoken),
        tuple(losses),
        bool(ask.output) and _is_json_mode(head) and not any("json" in str(item.get("content")).lower() for item in spoken),
    )


_fixed = KeptRequests(_Fixed, _fix)


def _is_json_mode(head: dict[str, object]) -> bool:
    return dict_of(dict_of(head.get("text")).get("format")).get("type") == "json_object"


def _speaks_of_json(first: Message | None) -> bool:
    """True if JSON mode is accepted: the input must mention it (sheet 3). Only its beginning, which never changes, is read."""
    return first is not None and "json" in first.text.lower()


def _write_tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """Return one tool; empty if it is not sent."""
    if isinstance(tool, HostedTool):
        return write_hosted_tool(tool, WIRE, quirks, losses)
    if not quirks.custom_tools:
        tool = as_function(tool, losses)
    elif tool.namespace is not None:
        tool = replace(tool, name=tool.bare_name)
    own: dict[str, object] = {"type": "function", "name": declare_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    if tool.free is not None and quirks.custom_tools:
        grammar = {"format": {"type": "grammar", "syntax": tool.free.syntax, "definition": tool.free.grammar}}
        own |= {"type": "custom", **(grammar if tool.free.grammar else {})}
        return dumps(with_tool_extra(own, tool, WIRE, losses))
    own["parameters"], strict = declare_schema(tool, DIALECTS, quirks, losses)
    if (
        strict is not None or tool.wire != WIRE
    ):  # without the field, the API tries strict mode and may change the schema (sheet 4)
        own["strict"] = bool(strict)
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _group_tools(tools: Sequence[ToolSpec | HostedTool], parts: Sequence[bytes], quirks: Quirks) -> list[bytes]:
    """Return the tools. Adjacent tools of one namespace become one object."""
    found: list[bytes] = []
    for namespace, group in groupby(zip(tools, parts, strict=False), key=lambda pair: _namespace(pair[0], quirks)):
        members = [part for _, part in group if part]
        if namespace is None:
            found += members
        elif members:
            own = {"type": "namespace", "name": namespace.name, "description": namespace.description}
            more = fields(namespace.extra) if namespace.extra else {}
            found.append(dumps({**own, **more, "tools": [msgspec.Raw(part) for part in members]}))
    return found


def _namespace(tool: ToolSpec | HostedTool, quirks: Quirks) -> Namespace | None:
    return tool.namespace if isinstance(tool, ToolSpec) and quirks.custom_tools else None


def _write_head(ask: Ask, quirks: Quirks, instructions: list[str], offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Return every field but tools and input."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    if instructions:
        body["instructions"] = "\n".join(instructions)
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        if limit < LEAST_OUTPUT:
            losses.append(loss_of("degraded", "setting.max_output_tokens", f"at least {LEAST_OUTPUT} are needed"))
        body["max_output_tokens"] = max(limit, LEAST_OUTPUT)
    body |= write_settings(SETTINGS, ask.settings, losses, refused_settings(ask, quirks) if ask.settings.samples else {})
    body |= _write_thinking(ask, quirks, losses)
    body |= _write_choice(ask, quirks, offered=offered, losses=losses)
    body |= _write_output_format(ask, quirks, losses)
    body |= _write_state(ask, quirks, losses)
    body |= _write_cache_key(ask, quirks, losses)
    body |= cache_options(ask, quirks, TTLS, losses)
    included = body.get("include")
    body = with_extra(body, ask, WIRE, NESTED, losses)
    asked = fields(dumps(body))["include"] if body.get("include") is not included else None
    if isinstance(included, list) and asked is not None:
        body["include"] = [*included, *msgspec.json.decode(asked, type=list[str])]
    return body
