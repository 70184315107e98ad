"""An Ask as an Anthropic Messages request. Pure: the same ask gives the same bytes, with or without `prior`."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import assert_never

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, HostedTool, OutputSchema, Reasoning, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    ResultContent,
    Seal,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import OUTPUT, Loss, Owner, escape_step, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import Exchange, RepairRules
from evener.wire.codec import Encoded, Frame
from evener.wire.media import IMAGES, is_image_taken, is_textual, plain_text, settled
from evener.wire.prefix import (
    ERROR,
    OPERATOR,
    UNREADABLE,
    ExchangeWriter,
    Fragment,
    Prefix,
    Render,
    as_object,
    dict_of,
    dumps,
    extended,
    fields,
    is_plain,
    joined,
    must_fetch,
    placeholder,
    started,
    with_tool_extra,
)
from evener.wire.quirks import Quirks
from evener.wire.request import (
    BUDGETS,
    SCALE,
    TYPED,
    Address,
    Fixed,
    KeptRequests,
    Marks,
    RequestSource,
    Wanted,
    add_losses,
    as_function,
    bounded,
    choose_marks,
    control_mark,
    control_value,
    declared_name,
    drafted,
    drawn,
    frame_of,
    headers_of,
    hosted_tool,
    names_of,
    nearest_effort,
    output_limit,
    path_of,
    report_choice,
    report_length,
    wanted_marks,
    wire_name,
    with_control,
    with_extra,
    within,
    without_messages,
)
from evener.wire.schema import ANTHROPIC_PLAIN, ANTHROPIC_STRICT, transform
from evener.wire.tool_schema import declared_schema, report_description

__all__ = [
    "WIRE",
    "choice",
    "encode",
    "fit_names",
    "must_lead",
    "output_format",
    "output_tokens",
    "render",
    "sampling",
    "thinking",
    "why_mute",
]


NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

Node = dict[str, object]


def fit_names(schema: str, owner: Owner, losses: list[Loss]) -> str:
    """The schema itself if the wire takes it; else one that is wider, and that describes what it leaves out."""
    try:
        root = msgspec.json.decode(schema, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return schema
    properties = dict_of(root.get("properties"))
    foreign = [name for name in properties if not NAME.fullmatch(name)]
    if not foreign:
        return schema
    losses += (
        loss_of(
            "degraded",
            f"{owner.topic}.schema",
            f"{name}: this wire takes no such names; described",
            name=owner.name,
            at=f"properties/{escape_step(name)}",
        )
        for name in foreign
    )
    required = [name for name in _names(root.get("required")) if name in foreign]
    said: Node = {"properties": {name: properties[name] for name in foreign}, **({"required": required} if required else {})}
    return dumps(_widened(root, foreign) | {"description": _described(root, said)}).decode()


def _widened(root: Node, foreign: list[str]) -> Node:
    """The root without these properties, but so that they may be written."""
    kept = {name: value for name, value in dict_of(root.get("properties")).items() if name not in foreign}
    required = [name for name in _names(root.get("required")) if name not in foreign]
    return {**root, "properties": kept, "required": required, "additionalProperties": True}


def _described(root: Node, said: Node) -> str:
    before = root.get("description")
    text = f"The object must also fit this JSON Schema, names included: {dumps(said).decode()}"
    return f"{before}\n{text}" if isinstance(before, str) and before else text


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


SHOWN = {"summary": "summarized", "concise": "summarized", "detailed": "summarized", "omitted": "omitted"}
LEAST_BUDGET = 1024  # sheet 7
LEAST_ANSWER = 256
"""Tokens that thinking leaves for the answer: one would be legal, and of no use."""
CHOICES = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}

Body = dict[str, object]


def output_tokens(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int:
    """The output limit, which this wire demands. Thinking counts as output: where there is room, it comes on top."""
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        return limit
    if quirks.max_output and _way_to_think(ask, quirks) == "enabled":
        return min(quirks.default_output + _wanted_budget(ask), quirks.max_output)
    return quirks.default_output


def thinking(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The fields `thinking` and `output_config.effort`."""
    body: Body = {}
    switch = _switch(ask, quirks, losses)
    if switch == "enabled":
        body["thinking"] = {"type": "enabled", "budget_tokens": _budget(ask, quirks, losses)}
    elif switch:
        body["thinking"] = {"type": switch}
    if ask.reasoning.show and not quirks.show:
        losses.append(loss_of("dropped", "reasoning.show", "this endpoint has no such switch"))
    elif switch in ("enabled", "adaptive") and ask.reasoning.show:
        body["thinking"] = {**dict_of(body["thinking"]), "display": SHOWN[ask.reasoning.show]}
        report_length(ask, losses)
    elif ask.reasoning.show not in ("", "omitted"):
        losses.append(loss_of("dropped", "reasoning.show", "thinking is not switched on, and only with it can it be shown"))
    effort = _effort(ask, quirks, switch, losses)
    return {**body, **({"output_config": {"effort": effort}} if effort else {})}


def _budget(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int:
    limit = output_tokens(ask, quirks, [])
    budget, most = _wanted_budget(ask), limit - LEAST_ANSWER
    if _lacks_budget(ask):
        losses.append(loss_of("degraded", "reasoning.budget", f"the request has none, and this model needs one: {budget}"))
    if LEAST_BUDGET <= budget <= most:
        return budget
    if ask.reasoning.budget:
        why = f"it must lie from {LEAST_BUDGET} to {most}, so that {LEAST_ANSWER} tokens of {limit} are left for the answer"
        losses.append(loss_of("degraded", "reasoning.budget", why))
    elif ask.reasoning.effort:
        losses.append(loss_of("degraded", "reasoning.effort", f"an output limit of {limit} leaves less room for thinking"))
    return max(LEAST_BUDGET, min(budget, limit - max(LEAST_ANSWER, limit // 4)))


def _lacks_budget(ask: Ask) -> bool:
    """True if the request of a client, as it was read, switched thinking on without a budget."""
    read = [fields(extra.body) for extra in ask.extra if extra.is_for(WIRE, ask.target.provider)]
    own = [fields(body["thinking"]) for body in read if bytes(body.get("thinking", b""))[:1] == b"{"]
    return any("type" in given and "budget_tokens" not in given for given in own) and not ask.reasoning.budget


def _wanted_budget(ask: Ask) -> int:
    return ask.reasoning.budget or BUDGETS[ask.reasoning.effort or "medium"]


def why_mute(ask: Ask, quirks: Quirks) -> str:
    """Why the thinking of the past stays out of this request: thinking is off in it. Empty when it is on or not known."""
    switch = _switch(ask, quirks, [])
    off = switch == "disabled" or (not switch and quirks.thinks_unasked is False)
    return "thinking is off for this request" if off else ""


def must_lead(ask: Ask, quirks: Quirks) -> bool:
    """Whether a turn that has thinking must begin with it: so while it has a budget (sheet 3)."""
    return _switch(ask, quirks, []) == "enabled"


def _switch(ask: Ask, quirks: Quirks, losses: list[Loss]) -> str:
    """The thinking type to send; empty for none."""
    wanted = ask.reasoning
    modes = quirks.thinking_modes
    if wanted.mode == "off" or wanted.effort == "off":
        return _taken("disabled", modes, losses)
    if wanted.mode == "between_tools":
        return _taken("between_tools", modes, losses)
    if not _is_asked(wanted):
        return ""
    mode = _way_to_think(ask, quirks)
    limit = output_tokens(ask, quirks, [])
    if mode == "enabled" and limit < LEAST_BUDGET + LEAST_ANSWER:
        losses.append(loss_of("dropped", "reasoning.mode", f"an output limit of {limit} leaves no room for thinking"))
        return ""
    if mode == "adaptive" and wanted.budget:
        losses.append(loss_of("degraded", "reasoning.budget", "this model sets its own; thinking is adaptive"))
    if mode:
        return mode
    losses.append(loss_of("dropped", "reasoning.mode", "this model has no thinking that can be switched on"))
    return ""


def _is_asked(wanted: Reasoning) -> bool:
    """Whether thinking is to be switched on."""
    return wanted.mode == "on" or (wanted.mode == "auto" and (wanted.effort is not None or wanted.budget is not None))


def _way_to_think(ask: Ask, quirks: Quirks) -> str:
    """The way that this model has to think when it is asked to; empty for none."""
    wanted = ask.reasoning
    if wanted.effort == "off" or not _is_asked(wanted):
        return ""
    order = ("enabled", "adaptive") if wanted.budget else ("adaptive", "enabled")
    return next((mode for mode in order if mode in quirks.thinking_modes), "")


def _taken(mode: str, modes: tuple[str, ...], losses: list[Loss]) -> str:
    if mode in modes:
        return mode
    losses.append(loss_of("degraded", "reasoning.mode", "this model cannot; its default stays", name=mode))
    return ""


def _effort(ask: Ask, quirks: Quirks, switch: str, losses: list[Loss]) -> str:
    wanted = ask.reasoning.effort
    if wanted is None or (wanted == "off" and (switch == "disabled" or not quirks.effort)):
        return ""
    if not quirks.effort:
        if switch != "enabled":
            losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return ""
    known = quirks.efforts or ("low", "medium", "high", "xhigh", "max")
    if switch == "disabled" and quirks.disabled_effort:
        known = tuple(level for level in known if SCALE.index(level) <= SCALE.index(quirks.disabled_effort))
    return nearest_effort(wanted, known, losses)


def choice(ask: Ask, quirks: Quirks, *, offered: bool, thinks: bool, losses: list[Loss]) -> Body:
    """The field `tool_choice`."""
    wanted = ask.choice
    if not offered:
        report_choice(ask, losses)
        return {}
    mode = CHOICES[wanted.mode]
    if mode in ("any", "tool"):
        mode = _forced(ask, quirks, mode, thinks=thinks, losses=losses)
    if wanted.names and mode != "tool":
        losses.append(loss_of("degraded", "tool_choice", "this wire has no subsets; every tool is offered"))
    body: Body = {"type": mode}
    if mode == "tool":
        body["name"] = wire_name(wanted.names[0], quirks.name_length)
    if wanted.parallel is not None and not quirks.parallel_switch:
        losses.append(loss_of("dropped", "tool_choice.parallel", "this endpoint has none"))
    elif wanted.parallel is not None and mode != "none":
        body["disable_parallel_tool_use"] = not wanted.parallel
    if mode == "auto" and len(body) == 1 and not wanted.stated:
        return {}
    return {"tool_choice": body}


def _forced(ask: Ask, quirks: Quirks, mode: str, *, thinks: bool, losses: list[Loss]) -> str:
    if not quirks.forced_choice or thinks:  # never beside a thinking budget (sheet 5)
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    known = {tool.name for tool in ask.tools if not isinstance(tool, HostedTool) or tool.name}
    if mode == "tool" and (len(ask.choice.names) != 1 or ask.choice.names[0] not in known):
        losses.append(loss_of("degraded", "tool_choice", "the named tool is not offered; the model may choose"))
        return "auto"
    return mode


def sampling(ask: Ask, quirks: Quirks, *, thinks: bool, losses: list[Loss]) -> Body:
    """Temperature and its kin, and stop sequences."""
    settings = ask.settings
    body: Body = {}
    for name, value in (("temperature", settings.temperature), ("top_p", settings.top_p), ("top_k", settings.top_k)):
        if value is None:
            continue
        if quirks.sampling == "none":
            losses.append(loss_of("dropped", f"setting.{name}", "this model rejects it"))
        elif thinks and not _beside_thinking(name, value):
            losses.append(loss_of("dropped", f"setting.{name}", "it may not be changed while thinking is on"))
        else:
            body[name] = within(name, value, float("inf") if name == "top_k" else 1, losses)
    if not quirks.both_samplers and body.keys() >= {"temperature", "top_p"}:
        del body["top_p"]
        losses.append(loss_of("dropped", "setting.top_p", "this model takes it or a temperature, not both"))
    if settings.seed is not None:
        losses.append(loss_of("dropped", "setting.seed", "this wire has none"))
    stops = [text for text in settings.stop if text.strip()]
    if len(stops) < len(settings.stop):
        losses.append(loss_of("dropped", "setting.stop", "a stop sequence of white space only is rejected"))
    return {**body, **({"stop_sequences": stops} if stops else {})}


def _beside_thinking(name: str, value: float) -> bool:
    """Whether a setting may stand beside thinking with a budget (sheet 7)."""
    return value == 1 if name == "temperature" else name == "top_p" and 0.95 <= value <= 1


def output_format(output: OutputSchema | None, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `output_config.format`."""
    if output is None:
        return {}
    report_description(output, losses)
    if not output.schema or not quirks.output_schema:
        losses.append(loss_of("degraded", "output.schema", "this wire has no such mode; ask for the shape in the prompt"))
        return {}
    fitted, lost = transform(output.schema, ANTHROPIC_STRICT, OUTPUT)
    if fitted is None:
        losses += (loss_of("dropped", "output.schema", f"{one.why}; nothing is asked for") for one in lost)
        return {}
    losses += lost
    return {"format": {"type": "json_schema", "schema": msgspec.Raw(fitted.encode())}}


WIRE = "anthropic_messages"
PDF = "application/pdf"
FILES = frozenset(("files",))
"""A trait of a fragment: it names files in the provider's store."""
STARTS = {role: b'{"role":"%s","content":[' % role.encode() for role in ("user", "assistant", "system")}
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def render(ask: Ask, quirks: Quirks, mute: str, leads: bool, exchange: Exchange, chain: bytes) -> Fragment:
    """One exchange: what the assistant said, then what came back. `mute` says why no thinking may go, if so.

    `leads`: a turn that has thinking must begin with it.
    """
    if quirks.thinking_replay == "none":
        mute = "this endpoint takes back no thinking"
    lean = None
    if quirks.thinking_replay == "latest" and not mute:
        lean = _fragment(exchange, ExchangeWriter(ask, quirks, chain, "this endpoint takes back only the latest", leads), None)
    return _fragment(exchange, ExchangeWriter(ask, quirks, chain, mute, leads), lean)


def _fragment(exchange: Exchange, page: ExchangeWriter, lean: Fragment | None) -> Fragment:
    said, back = exchange.assistant, exchange.back
    if said is not None:
        _message(page, "assistant", (said if back or not page.quirks.prefill else _cleanly_ended(page, said),))
    if (
        len(back) > 1
        and page.quirks.mid_system
        and [message.role for message in back] == ["user", *["system"] * (len(back) - 1)]
    ):
        for message in back:
            _message(page, message.role, (message,))
    elif back:
        _message(page, "user", back)
    return page.fragment(exchange, lean)


def _cleanly_ended(page: ExchangeWriter, said: Message) -> Message:
    """What the assistant began and is to go on with: it may not end in white space (sheet 3)."""
    blocks = list(said.blocks)
    while len(blocks) > 1 and type(last := blocks[-1]) is TextBlock and not last.text.strip():
        blocks.pop()
    last = blocks[-1]
    if type(last) is not TextBlock or not last.text[-1:].isspace():
        return said
    page.message = said
    page.lose("repaired", "text", "what is to be gone on with may not end in white space", last, at="text")
    return replace(said, blocks=(*blocks[:-1], replace(last, text=last.text.rstrip())))


def _message(page: ExchangeWriter, role: str, messages: Sequence[Message]) -> None:
    opening = b"," + STARTS[role] if page.pieces else STARTS[role]
    page.pieces.append(opening)
    page.size = page.start = start = page.size + len(opening)
    for message in messages:
        page.message = message
        lead = ""
        if message.role == "system" and role == "user":
            lead = OPERATOR
            page.degrade("message.role", "this endpoint takes none here; sent as marked user text")
        for block in message.blocks:
            page.comma = b"," if page.size > start else b""
            _block(page, block, role, message, lead)
    if page.size == start:
        page.block({"type": "text", "text": "[nothing that this provider can read]"})
    page.close()


def _block(page: ExchangeWriter, block: Block, role: str, message: Message, lead: str) -> None:
    """Write one block, or what goes out of it."""
    match block:
        case TextBlock():
            _text(page, block, lead)
        case ToolCall():
            _call(page, block)
        case ToolResult():
            _result(page, block)
        case ReasoningBlock():
            _reasoning(page, block, message)
        case ImageBlock() | DocumentBlock() | HostedBlock():
            page.block(_plain(page, block, role), block.cache, page.comma)
        case _:
            assert_never(block)


def _text(page: ExchangeWriter, block: TextBlock, lead: str) -> None:
    if not block.text.strip():
        page.drop("text", "it was empty and only its seal counted, which is not of this wire", block)
        return
    own: dict[str, object] = {"type": "text", "text": lead + block.text}
    if block.seal is not None or block.citations:
        own = {**page.unsealed(block), **own}
    page.block(own, block.cache, page.comma)


def _reasoning(page: ExchangeWriter, block: ReasoningBlock, message: Message) -> None:
    why, value = _replayable(page, block, message)
    if value is not None:
        page.thought = True
        page.write(page.comma + dumps(value))  # never a mark here: thinking takes none (sheet 12)
        return
    page.shut = True
    if block.text.strip() and page.ask.foreign_reasoning == "text":
        page.degrade("reasoning", f"sent as plain text: {why}", block)
        page.block({"type": "text", "text": block.text}, "", page.comma)
    else:
        page.drop("reasoning", why, block)


def _replayable(page: ExchangeWriter, block: ReasoningBlock, message: Message) -> tuple[str, dict[str, object] | None]:
    """The thinking block to send back, or why it cannot go."""
    quirks = page.quirks
    if page.mute:
        return page.mute, None
    if page.leads and page.size > page.start and not page.thought:
        return "its turn did not begin with it, as it must while thinking has a budget", None
    if block.seal is None:
        own = message.origin is not None and message.origin.provider == page.ask.target.provider
        if quirks.thinking_kept == "sealed" or not own:
            return "it carries no signature of this provider", None
        return "", {"type": "thinking", "thinking": block.text}
    if quirks.thinking_kept == "unsealed":
        return "this endpoint takes back unsigned thinking only", None
    if page.shut and quirks.prefix_bound:
        return "an earlier thinking block of its turn was dropped", None
    return _sealed(page, block, block.seal)


def _sealed(page: ExchangeWriter, block: ReasoningBlock, seal: Seal) -> tuple[str, dict[str, object] | None]:
    why = page.shut_why(seal)
    if why:
        return why, None
    own = fields(seal.data)
    if "data" in own:
        return "", {"type": "redacted_thinking", **own}
    signature = own.get("signature")
    if page.quirks.thinking_kept == "sealed" and (signature is None or bytes(signature) in (b'""', b"null")):
        return "its signature is missing, as after an aborted stream", None
    return "", {"type": "thinking", "thinking": block.text, **own}


def _call(page: ExchangeWriter, call: ToolCall) -> None:
    arguments: object = as_object(call.raw)
    if arguments is None:
        page.degrade("tool_call.arguments", f"they were not a JSON object; sent under {UNREADABLE!r}", call, at="raw")
        arguments = {UNREADABLE: call.raw}
    id, name = wire_name(call.id, page.quirks.id_length), wire_name(call.name, page.quirks.name_length)
    if id != call.id:
        page.rename("tool_call.id", call, call.id, id)
    if name != call.name:
        page.rename("tool_call.name", call, call.name, name)
    own: dict[str, object] = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    page.block({**page.unsealed(call), **own} if call.seal else own, call.cache, page.comma)


def _result(page: ExchangeWriter, result: ToolResult) -> None:
    own: dict[str, object] = {"type": "tool_result", "tool_use_id": wire_name(result.call_id, page.quirks.id_length)}
    if result.seal:
        own = {**page.unsealed(result), **own}
    content = [block for block in result.content if type(block) is not TextBlock or block.text.strip()]
    if result.is_error:
        own["is_error"] = True
        if not content:
            page.lose("added", "tool_result.text", "an error without a word is refused", result)
            content = [TextBlock("error")]
        elif any(type(block) is not TextBlock for block in content):
            _mixed_error(page, result, content, own)
            return
    if len(content) == 1 and type(only := content[0]) is TextBlock and is_plain(only):
        own["content"] = only.text
        page.block(own, result.cache, page.comma)
    elif not content:
        page.block(own, result.cache, page.comma)  # no content at all is legal, an empty list is not (sheet 3)
    else:
        page.write(page.comma + dumps(own)[:-1] + b',"content":[')
        for number, block in enumerate(content):
            page.block(_plain(page, block, "result"), block.cache, b"," if number else b"")
        page.write(b"]}")
        if "cache_control" not in own:
            page.mark(result.cache)


def _mixed_error(page: ExchangeWriter, result: ToolResult, content: Sequence[ResultContent], own: dict[str, object]) -> None:
    """Write an error that is not only words. With the flag, only words are taken; so its text says that it is one."""
    parts = [(_plain(page, block, "result"), block.cache) for block in content]
    if any(value["type"] != "text" for value, _ in parts):
        page.degrade("tool_result.error", f"an error may hold only text; the text begins with {ERROR!r}", result, at="is_error")
        del own["is_error"]
        parts.insert(0, ({"type": "text", "text": ERROR.strip()}, ""))
    page.write(page.comma + dumps(own)[:-1] + b',"content":[')
    for number, (value, cache) in enumerate(parts):
        page.block(value, cache, b"," if number else b"")
    page.write(b"]}")
    if "cache_control" not in own:
        page.mark(result.cache)


def _plain(page: ExchangeWriter, block: TextBlock | ImageBlock | DocumentBlock | HostedBlock, role: str) -> dict[str, object]:
    match block:
        case TextBlock(text):
            return {**page.unsealed(block), "type": "text", "text": text}
        case HostedBlock(raw, role=whose) if block.is_for(page.ask.target) and page.quirks.hosted and whose in ("", role):
            return dict(fields(raw))
        case HostedBlock(text=text):
            page.degrade("hosted", f"only its own provider can read it; sent as a line ({text or 'no text'})", block)
            return {"type": "text", "text": placeholder(block)}
        case ImageBlock():
            value = _image(page, block) if role != "assistant" else None
        case DocumentBlock():
            value = _document(page, block) if role != "assistant" else None
    if value is None:
        page.degrade(block.kind, "this endpoint cannot take it here; sent as a line", block)
        return {"type": "text", "text": placeholder(block)}
    own = page.unsealed(block)
    if "source" in own:  # fields of it that we have no word for
        value["source"] = {**dict_of(value["source"]), **fields(own["source"])}
    return {**own, **value}


def _image(page: ExchangeWriter, block: ImageBlock) -> dict[str, object] | None:
    block = settled(page, block)
    if not page.quirks.images or not is_image_taken(block, page.quirks.image_types or IMAGES):  # sheet 3
        return None
    source = _source(page, block.source, block.media_type)
    if source is None:
        return None
    if block.detail:
        page.drop("image.detail", "this wire has none", block, at="detail")
    return {"type": "image", "source": source}


def _document(page: ExchangeWriter, block: DocumentBlock) -> dict[str, object] | None:
    block = settled(page, block)
    if not page.quirks.documents or not _is_taken(block.source, block.media_type):
        return None
    if isinstance(block.source, Inline) and is_textual(block.media_type):
        source = _text_source(block.source.data)
    else:
        source = _source(page, block.source, block.media_type)
    if source is None:
        return None
    return {"type": "document", "source": source, **({"title": block.name} if block.name else {})}


def _is_taken(source: Source, media_type: str) -> bool:
    """Whether a document of this type can go: PDF and text, unless it was uploaded; an address may leave it open."""
    known = media_type == PDF or is_textual(media_type)
    return known or isinstance(source, Uploaded) or (not media_type and isinstance(source, Remote))


def _text_source(data: str) -> dict[str, object] | None:
    text = plain_text(data)
    return None if text is None else {"type": "text", "media_type": "text/plain", "data": text}


def _source(page: ExchangeWriter, source: Source, media_type: str) -> dict[str, object] | None:
    match source:
        case Inline(data):
            whole = media_type and len(data) % 4 == 0 and BASE64.fullmatch(data)
            return {"type": "base64", "media_type": media_type, "data": data} if whole else None
        case Remote(url):
            return {"type": "url", "url": url}
        case Uploaded(file_id):
            if not page.quirks.uploads or not source.is_for(page.ask.target):
                return None
            page.traits |= FILES
            return {"type": "file", "file_id": file_id}
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(source)


PATH = "/v1/messages"
VERSION = "2023-06-01"
TTLS = ("5m", "1h")
NESTED = ("output_config", "output_config.format", "thinking", "tool_choice")
"""Objects that we write and the caller may add to."""
BETAS = "anthropic-beta"
DIALECTS = (ANTHROPIC_PLAIN, ANTHROPIC_STRICT)


class _Fixed(Fixed, frozen=True, eq=False):
    """What does not depend on the messages. `openings` are the body up to them and its losses; the second is for open calls
    that were made without thinking."""

    frame: Frame
    start: Prefix
    draw: Render
    wanted: Wanted
    address: Address
    marks: Marks
    heads: tuple[bytes, bytes]
    openings: tuple[bytes, bytes]
    losses: tuple[tuple[Loss, ...], tuple[Loss, ...]]


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    fixed = _fixed.of(ask, quirks, prior)
    fold = extended(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = drafted(fold, quirks)
    bare = fold.open is not None and "bare_calls" in fragments[-1].traits
    losses = list(fixed.losses[bare])
    marks = choose_marks(fixed.wanted, fragments, marked, losses)
    messages = drawn(fragments, marks, control_mark)
    bounded(messages, fragments, quirks, losses, prefill=quirks.prefill and ask.output is None)
    add_losses(fold, fragments, losses)
    opening = fixed.openings[bare]
    if marks.tools != fixed.marks.tools or marks.system != fixed.marks.system:  # there was no room for all
        opening = _opening(fixed.heads[bare], fixed.frame, marks)
    path, headers, names = fixed.address
    if "files" in fold.traits or (fold.open is not None and "files" in fragments[-1].traits):
        headers = _with_beta(headers, quirks.upload_beta)
    body = joined(opening, messages, b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, "", fixed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: RequestSource) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _tool, partial(_part, ask=ask, quirks=quirks))
    losses = [*frame.losses, *_unsealed(ask, quirks)]
    mute, leads = why_mute(ask, quirks), must_lead(ask, quirks)
    rules = RepairRules(unique_ids=quirks.unique_ids, in_flight=True)
    start = started((render, quirks, ask.target, mute, leads, ask.foreign_reasoning), rules, frame.seed)
    draw = partial(render, ask, quirks, mute, leads)
    wanted = wanted_marks(ask, quirks, TTLS)
    marks = choose_marks(wanted, (), (), [])
    lost: tuple[list[Loss], list[Loss]] = ([], [])
    heads = _head(ask, quirks, frame, False, lost[0]), _head(ask, quirks, frame, True, lost[1])
    openings = _opening(heads[0], frame, marks), _opening(heads[1], frame, marks)
    all_lost = (*losses, *lost[0]), (*losses, *lost[1])
    return _Fixed(source, frame, start, draw, wanted, _addressed(ask, quirks), marks, heads, openings, all_lost)


_fixed = KeptRequests(_Fixed, _fix)


def _addressed(ask: Ask, quirks: Quirks) -> Address:
    version = () if quirks.version_in_body else (("anthropic-version", quirks.api_version or VERSION),)
    headers = headers_of(ask, WIRE, *version)
    if quirks.betas_in_body:
        headers = tuple(pair for pair in headers if pair[0].lower() != BETAS)
    return path_of(ask, quirks, PATH), headers, names_of(ask.tools, quirks)


def _with_beta(headers: tuple[tuple[str, str], ...], beta: str) -> tuple[tuple[str, str], ...]:
    """The headers, with a beta feature among those that are named."""
    given = [value for name, value in headers if name.lower() == BETAS]
    if not beta or any(beta in value for value in given):
        return headers
    others = tuple(pair for pair in headers if pair[0].lower() != BETAS)
    return (*others, (BETAS, ",".join((*given, beta))))


def _part(block: TextBlock, ask: Ask, quirks: Quirks) -> bytes:
    """A part of the system prompt; empty when it says nothing, which is refused."""
    own = ExchangeWriter(ask, quirks, b"").unsealed(block)
    return dumps({**own, "type": "text", "text": block.text}) if block.text.strip() else b""


def _unsealed(ask: Ask, quirks: Quirks) -> list[Loss]:
    """What stays behind of the fields on the system prompt."""
    page = ExchangeWriter(ask, quirks, b"")
    for block in ask.transcript.system_blocks:
        page.unsealed(block)
    return page.losses


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """One tool; empty when it does not go out."""
    if isinstance(tool, HostedTool):
        return hosted_tool(tool, WIRE, quirks, losses)
    tool = as_function(tool, losses)
    own: dict[str, object] = {"name": declared_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    own["input_schema"], strict = declared_schema(tool, DIALECTS, quirks, losses, fit_names)
    if strict is not None:
        own["strict"] = strict
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _head(ask: Ask, quirks: Quirks, frame: Frame, bare: bool, losses: list[Loss]) -> bytes:
    """Every field but tools, system and messages. `bare`: the open calls were made without thinking."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    if quirks.version_in_body:
        body["anthropic_version"] = quirks.api_version
    body["max_tokens"] = output_tokens(ask, quirks, losses)
    if quirks.model_in_body:
        body["stream"] = ask.stream  # where the model is in the path, so is streaming (sheet 16)
    thought = thinking(ask, quirks, losses)
    thinks = "budget_tokens" in dict_of(thought.get("thinking"))
    if thinks and bare:
        losses.append(
            loss_of("dropped", "reasoning.mode", "the open tool calls were made without thinking; off for this request")
        )
        del thought["thinking"]
        thinks = False
    body |= sampling(ask, quirks, thinks=thinks, losses=losses)
    body |= thought
    body |= choice(ask, quirks, offered=any(frame.tools), thinks=thinks, losses=losses)
    config = {**dict_of(body.pop("output_config", None)), **output_format(ask.output, quirks, losses)}
    if config:
        body["output_config"] = config
    if ask.cache.mode == "provider" and quirks.cache_provider:
        body["cache_control"] = control_value(ask.cache.ttl)
    losses += _unkept(ask)
    betas = [value for name, value in headers_of(ask, WIRE) if name.lower() == BETAS]
    if quirks.betas_in_body and betas:
        body["anthropic_beta"] = [beta.strip() for value in betas for beta in value.split(",")]
    return dumps(with_extra(body, ask, WIRE, NESTED, losses, (*TYPED, "thinking")))[:-1]


def _unkept(ask: Ask) -> Iterator[Loss]:
    """What this wire has no word for, as it keeps nothing."""
    if ask.cache.key:
        yield loss_of("dropped", "cache.key", "this wire has none")
    if ask.state.store:
        yield loss_of("dropped", "state.store", "this wire keeps no answers")
    if ask.state.mode != "replay":
        elsewhere = ask.state.id and not ask.state.after
        sent = "what the provider holds is not sent" if elsewhere else "the whole conversation is sent"
        yield loss_of("degraded", "state.mode", f"this wire keeps no state; {sent}", name=ask.state.mode)


def _opening(head: bytes, frame: Frame, marks: Marks) -> bytes:
    """The body up to the messages."""
    pieces = [head]
    tools = [_marked(data, marks.tools.get(number)) for number, data in enumerate(frame.tools) if data]
    if tools:
        pieces.append(b',"tools":[' + b",".join(tools) + b"]")
    system = [_marked(data, marks.system.get(number)) for number, data in enumerate(frame.system) if data]
    if len(system) == 1 and fields(system[0]).keys() == {"type", "text"}:
        pieces.append(b',"system":' + system[0][len(b'{"type":"text","text":') : -1])
    elif system:
        pieces.append(b',"system":[' + b",".join(system) + b"]")
    return b"".join((*pieces, b',"messages":['))


def _marked(data: bytes, ttl: str | None) -> bytes:
    return data if ttl is None else with_control(data, ttl)
