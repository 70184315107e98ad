"""Encodes an Ask as an Anthropic Messages request. Pure: the same ask gives the same bytes, with or without `prior`."""

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import assert_never

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, ChoiceMode, HostedTool, OutputSchema, Reasoning, ReasoningShow, ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
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
from evener.transcript.loss import OUTPUT, Loss, Owner, escape_step, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import Exchange, RepairRules
from evener.wire.media import IMAGES, is_image_taken, is_textual, is_web, normalize_media, plain_text
from evener.wire.prefix import (
    ERROR,
    OPERATOR,
    ExchangeWriter,
    Fragment,
    LazyChain,
    Prefix,
    Render,
    dict_of,
    dumps,
    extend_prefix,
    fields,
    is_plain,
    join_body,
    must_fetch,
    placeholder,
    start_prefix,
    with_tool_extra,
)
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields
from evener.wire.request import (
    BUDGETS,
    SCALE,
    TYPED,
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
    choose_marks,
    choose_stops,
    control_mark,
    control_value,
    declare_name,
    frame_of,
    headers_of,
    hold_number,
    insert_marks,
    list_fragments,
    names_of,
    nearest_effort,
    output_limit,
    pass_number,
    path_of,
    plan_marks,
    report_choice,
    report_length,
    report_stateless,
    report_unforced,
    wire_name,
    with_control,
    with_extra,
    without_messages,
    write_hosted_tool,
    write_settings,
)
from evener.wire.schema import ANTHROPIC_PLAIN, ANTHROPIC_STRICT, as_list, transform
from evener.wire.tool_schema import declare_schema, report_description

NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

Body = dict[str, object]


def fit_names(schema: str, owner: Owner, losses: list[Loss]) -> str:
    """Return the schema if the wire accepts its names; else a wider one whose description has what it leaves out."""
    try:
        root = msgspec.json.decode(schema, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return schema
    properties, required, before = dict_of(root.get("properties")), as_list(root.get("required")), root.get("description")
    foreign = [name for name in properties if not NAME.fullmatch(name)]
    if not foreign:
        return schema
    for name in foreign:
        why, at = f"{name}: this wire takes no such names; described", f"properties/{escape_step(name)}"
        losses.append(loss_of("degraded", f"{owner.topic}.schema", why, name=owner.name, at=at))
    said: Body = {"properties": {name: properties[name] for name in foreign}}
    if demanded := [name for name in required if name in foreign]:
        said["required"] = demanded
    text = f"The object must also fit this JSON Schema, names included: {dumps(said).decode()}"
    wider = {
        "properties": {name: value for name, value in properties.items() if name not in foreign},
        "required": [name for name in required if isinstance(name, str) and name not in foreign],
        "additionalProperties": True,
        "description": f"{before}\n{text}" if isinstance(before, str) and before else text,
    }
    return dumps({**root, **wider}).decode()


SHOWN: dict[ReasoningShow, str] = {
    "summary": "summarized",
    "concise": "summarized",
    "detailed": "summarized",
    "omitted": "omitted",
}
LEAST_BUDGET = 1024  # sheet 7
LEAST_ANSWER = 256
"""Tokens that thinking leaves for the answer. The API would accept one token, but that is useless."""
CHOICES: dict[ChoiceMode, str] = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}
SAMPLERS = ("temperature", "top_p", "top_k")
SETTINGS = (
    Setting("max_output_tokens", "max_tokens", read=Fields.limit),  # written by `output_tokens`
    Setting("temperature", "temperature", 1, hold_number),
    Setting("top_p", "top_p", 1, hold_number),
    Setting("top_k", "top_k", math.inf, hold_number, Fields.whole),
    Setting("seed", write=pass_number),
    Setting(
        *("stop", "stop_sequences", math.inf, choose_stops, Fields.texts),
        is_legal=str.strip,
        illegal="a stop sequence of white space only is rejected",
    ),
)


def output_tokens(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int:
    """Return the output limit, which this wire requires. Thinking counts as output: its budget is added if there is room."""
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        return limit
    if quirks.max_output and _way_to_think(ask, quirks) == "enabled":
        return min(quirks.default_output + _find_budget(ask), quirks.max_output)
    return quirks.default_output


def thinking(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the fields `thinking` and `output_config.effort`."""
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
    budget, most = _find_budget(ask), limit - LEAST_ANSWER
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


def _find_budget(ask: Ask) -> int:
    return ask.reasoning.budget or BUDGETS[ask.reasoning.effort or "medium"]


def why_mute(ask: Ask, quirks: Quirks) -> str:
    """Return why earlier thinking is not sent in this request: thinking is off. Empty if thinking is on or not set."""
    switch = _switch(ask, quirks, [])
    off = switch == "disabled" or (not switch and quirks.thinks_unasked is False)
    return "thinking is off for this request" if off else ""


def must_lead(ask: Ask, quirks: Quirks) -> bool:
    """True if a turn that has thinking must begin with it: the API requires it while thinking has a budget (sheet 3)."""
    return _switch(ask, quirks, []) == "enabled"


def _switch(ask: Ask, quirks: Quirks, losses: list[Loss]) -> str:
    """Return the thinking type to send; empty for none."""
    wanted = ask.reasoning
    modes = quirks.thinking_modes
    if wanted.mode == "off" or wanted.effort == "off":
        return _check_mode("disabled", modes, losses)
    if wanted.mode == "between_tools":
        return _check_mode("between_tools", modes, losses)
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
    """True if the ask wants thinking on."""
    return wanted.mode == "on" or (wanted.mode == "auto" and (wanted.effort is not None or wanted.budget is not None))


def _way_to_think(ask: Ask, quirks: Quirks) -> str:
    """Return the thinking type that switches this model's thinking on, if that is asked for; empty for none."""
    wanted = ask.reasoning
    if wanted.effort == "off" or not _is_asked(wanted):
        return ""
    order = ("enabled", "adaptive") if wanted.budget else ("adaptive", "enabled")
    return next((mode for mode in order if mode in quirks.thinking_modes), "")


def _check_mode(mode: str, modes: tuple[str, ...], losses: list[Loss]) -> str:
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
    """Return the field `tool_choice`."""
    wanted = ask.choice
    if not offered:
        report_choice(ask, losses)
        return {}
    mode = CHOICES[wanted.mode]
    if mode in ("any", "tool"):
        mode = _check_forced(ask, quirks, mode, thinks=thinks, losses=losses)
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


def _check_forced(ask: Ask, quirks: Quirks, mode: str, *, thinks: bool, losses: list[Loss]) -> str:
    if not quirks.forced_choice or thinks:  # never with a thinking budget (sheet 5)
        report_unforced(losses)
        return "auto"
    known = {tool.name for tool in ask.tools if not isinstance(tool, HostedTool) or tool.name}
    if mode == "tool" and (len(ask.choice.names) != 1 or ask.choice.names[0] not in known):
        losses.append(loss_of("degraded", "tool_choice", "the named tool is not offered; the model may choose"))
        return "auto"
    return mode


def sampling(ask: Ask, quirks: Quirks, *, thinks: bool, losses: list[Loss]) -> Body:
    """Return the temperature, the other settings of sampling, and the stop sequences."""
    settings = ask.settings
    refused = dict.fromkeys(SAMPLERS, "this model rejects it") if quirks.sampling == "none" else {}
    if thinks and not refused:  # sheet 7: with a thinking budget, only these values are accepted
        taken = {"temperature": settings.temperature == 1, "top_p": 0.95 <= (settings.top_p or 0) <= 1}
        refused = {name: "it may not be changed while thinking is on" for name in SAMPLERS if not taken.get(name)}
    if not quirks.both_samplers and settings.temperature is not None and "temperature" not in refused:
        refused.setdefault("top_p", "this model takes it or a temperature, not both")
    return write_settings(SETTINGS, settings, losses, refused)


def output_format(output: OutputSchema | None, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the field `output_config.format`."""
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
STARTS = {
    "user": b'{"role":"user","content":[',
    "assistant": b'{"role":"assistant","content":[',
    "system": b'{"role":"system","content":[',
}
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def render(ask: Ask, quirks: Quirks, mute: str, leads: bool, exchange: Exchange, chain: LazyChain) -> Fragment:
    """Write one exchange: what the assistant said, then what came back. `mute` is the reason if no thinking may be sent.

    `leads`: a turn that has thinking must begin with it.
    """
    if quirks.thinking_replay == "none":
        mute = "this endpoint takes back no thinking"
    lean = None
    if quirks.thinking_replay == "latest" and not mute:
        lean = _fragment(exchange, ExchangeWriter(ask, quirks, chain, "this endpoint takes back only the latest", leads), None)
    return _fragment(exchange, ExchangeWriter(ask, quirks, chain, mute, leads), lean)


def _fragment(exchange: Exchange, out: ExchangeWriter, lean: Fragment | None) -> Fragment:
    said, back = exchange.assistant, exchange.back
    if said is not None:
        _message(out, "assistant", (said if back or not out.quirks.prefill else _trim_end(out, said),))
    if (
        len(back) > 1
        and out.quirks.mid_system
        and [message.role for message in back] == ["user", *["system"] * (len(back) - 1)]
    ):
        for message in back:
            _message(out, message.role, (message,))
    elif back:
        _message(out, "user", back)
    return out.fragment(exchange, lean)


def _trim_end(out: ExchangeWriter, said: Message) -> Message:
    """Return the message that the model continues without white space at its end, which the API rejects (sheet 3)."""
    blocks = list(said.blocks)
    while len(blocks) > 1 and type(last := blocks[-1]) is TextBlock and not last.text.strip():
        blocks.pop()
    last = blocks[-1]
    if type(last) is not TextBlock or not last.text[-1:].isspace():
        return said
    out.message = said
    out.lose("repaired", "text", "the text that the model continues may not end in white space", last, at="text")
    return replace(said, blocks=(*blocks[:-1], replace(last, text=last.text.rstrip())))


def _message(out: ExchangeWriter, role: str, messages: Sequence[Message]) -> None:
    opening = b"," + STARTS[role] if out.pieces else STARTS[role]
    out.pieces.append(opening)
    out.size = out.start = start = out.size + len(opening)
    for message in messages:
        out.message = message
        lead = ""
        if message.role == "system" and role == "user":
            lead = OPERATOR
            out.degrade("message.role", "this endpoint takes none here; sent as marked user text")
        for block in message.blocks:
            out.comma = b"," if out.size > start else b""
            _block(out, block, role, message, lead)
    if out.size == start:
        out.block({"type": "text", "text": "[nothing that this provider can read]"})
    out.close()


def _block(out: ExchangeWriter, block: Block, role: str, message: Message, lead: str) -> None:
    """Write one block, or the part of it that may be sent."""
    if type(block) is ToolCall:
        _call(out, block)
    elif type(block) is ToolResult:
        _result(out, block)
    elif type(block) is TextBlock:
        _text(out, block, lead)
    elif type(block) is ReasoningBlock:
        _reasoning(out, block, message)
    else:
        out.block(_write_plain(out, block, role), block.cache, out.comma)


def _text(out: ExchangeWriter, block: TextBlock, lead: str) -> None:
    if not block.text.strip():
        out.drop("text", "it was empty, and its seal belongs to another wire", block)
        return
    own: Body = {"type": "text", "text": lead + block.text}
    if block.seal is not None or block.citations:
        own = {**out.open_seal(block), **own}
    out.block(own, block.cache, out.comma)


def _reasoning(out: ExchangeWriter, block: ReasoningBlock, message: Message) -> None:
    why, value = _replay(out, block, message)
    if value is not None:
        out.thought = True
        out.write(out.comma + dumps(value))  # no cache mark: thinking accepts none (sheet 12)
        return
    out.shut = True
    if out.speaks_reasoning(block, why):
        out.block({"type": "text", "text": block.text}, "", out.comma)


def _replay(out: ExchangeWriter, block: ReasoningBlock, message: Message) -> tuple[str, Body | None]:
    """Return why a thinking block cannot be sent back (empty if it can), and the block to send."""
    quirks = out.quirks
    if out.mute:
        return out.mute, None
    if out.leads and out.size > out.start and not out.thought:
        return "its turn did not begin with it, as it must while thinking has a budget", None
    if block.seal is None:
        own = message.origin is not None and message.origin.provider == out.ask.target.provider
        if quirks.thinking_kept == "sealed" or not own:
            return "it carries no signature of this provider", None
        return "", {"type": "thinking", "thinking": block.text}
    if quirks.thinking_kept == "unsealed":
        return "this endpoint takes back unsigned thinking only", None
    if out.shut and quirks.prefix_bound:
        return "an earlier thinking block of its turn was dropped", None
    return _replay_sealed(out, block, block.seal)


def _replay_sealed(out: ExchangeWriter, block: ReasoningBlock, seal: Seal) -> tuple[str, Body | None]:
    why = out.why_shut(seal)
    if why:
        return why, None
    own = fields(seal.data)
    if "data" in own:
        return "", {"type": "redacted_thinking", **own}
    signature = own.get("signature")
    if out.quirks.thinking_kept == "sealed" and (signature is None or bytes(signature) in (b'""', b"null")):
        return "its signature is missing, as after an aborted stream", None
    return "", {"type": "thinking", "thinking": block.text, **own}


def _call(out: ExchangeWriter, call: ToolCall) -> None:
    arguments = msgspec.Raw(out.arguments(call).encode())
    id, name = wire_name(call.id, out.quirks.id_length), wire_name(call.name, out.quirks.name_length)
    if id != call.id:
        out.rename("tool_call.id", call, call.id, id)
    if name != call.name:
        out.rename("tool_call.name", call, call.name, name)
    own: Body = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    out.block({**out.open_seal(call), **own} if call.seal else own, call.cache, out.comma)


def _result(out: ExchangeWriter, result: ToolResult) -> None:
    own: Body = {"type": "tool_result", "tool_use_id": wire_name(result.call_id, out.quirks.id_length)}
    if result.seal:
        own = {**out.open_seal(result), **own}
    content = [block for block in result.content if type(block) is not TextBlock or block.text.strip()]
    if result.is_error:
        own["is_error"] = True
        if not content:
            out.lose("added", "tool_result.text", "this wire refuses an error without text", result)
            content = [TextBlock("error")]
    if not content:
        out.block(own, result.cache, out.comma)  # no content at all is legal, an empty list is not (sheet 3)
        return
    if len(content) == 1 and type(only := content[0]) is TextBlock and is_plain(only):
        own["content"] = only.text
        out.block(own, result.cache, out.comma)
        return
    parts = [(_write_plain(out, block, "result"), block.cache) for block in content]
    if result.is_error and any(value["type"] != "text" for value, _ in parts):  # with `is_error`, the API accepts only text
        out.degrade("tool_result.error", f"an error may hold only text; the text begins with {ERROR!r}", result, at="is_error")
        del own["is_error"]
        parts.insert(0, ({"type": "text", "text": ERROR.strip()}, ""))
    out.write(out.comma + dumps(own)[:-1] + b',"content":[')
    for number, (value, cache) in enumerate(parts):
        out.block(value, cache, b"," if number else b"")
    out.write(b"]}")
    if "cache_control" not in own:
        out.mark(result.cache)


def _write_plain(out: ExchangeWriter, block: TextBlock | ImageBlock | DocumentBlock | HostedBlock, role: str) -> Body:
    match block:
        case TextBlock(text):
            return {**out.open_seal(block), "type": "text", "text": text}
        case HostedBlock(raw, role=whose) if block.is_for(out.ask.target) and out.quirks.hosted and whose in ("", role):
            return dict(fields(raw))
        case HostedBlock(text=text):
            out.degrade("hosted", f"only its own provider can read it; sent as a line ({text or 'no text'})", block)
            return {"type": "text", "text": placeholder(block)}
        case ImageBlock():
            value = _image(out, block) if role != "assistant" else None
        case DocumentBlock():
            value = _document(out, block) if role != "assistant" else None
    if value is None:
        out.degrade(block.kind, "this endpoint cannot take it here; sent as a line", block)
        return {"type": "text", "text": placeholder(block)}
    own = out.open_seal(block)
    if "source" in own:  # its fields without a neutral form
        value["source"] = {**dict_of(value["source"]), **fields(own["source"])}
    return {**own, **value}


def _image(out: ExchangeWriter, block: ImageBlock) -> Body | None:
    block = normalize_media(out, block)
    if not out.quirks.images or not is_image_taken(block, out.quirks.image_types or IMAGES):  # sheet 3
        return None
    source = _source(out, block.source, block.media_type)
    if source is None:
        return None
    if block.detail:
        out.drop("image.detail", "this wire has none", block, at="detail")
    return {"type": "image", "source": source}


def _document(out: ExchangeWriter, block: DocumentBlock) -> Body | None:
    block = normalize_media(out, block)
    if not out.quirks.documents or not _is_taken(block.source, block.media_type):
        return None
    if isinstance(block.source, Inline) and is_textual(block.media_type):
        text = plain_text(block.source.data)
        source: Body | None = None if text is None else {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = _source(out, block.source, block.media_type)
    if source is None:
        return None
    return {"type": "document", "source": source, **({"title": block.name} if block.name else {})}


def _is_taken(source: Source, media_type: str) -> bool:
    """True if a document of this type can be sent: PDF and text; any type if it was uploaded; an address may have none."""
    known = media_type == PDF or is_textual(media_type)
    return known or isinstance(source, Uploaded) or (not media_type and isinstance(source, Remote))


def _source(out: ExchangeWriter, source: Source, media_type: str) -> Body | None:
    match source:
        case Inline(data):
            whole = media_type and len(data) % 4 == 0 and BASE64.fullmatch(data)
            return {"type": "base64", "media_type": media_type, "data": data} if whole else None
        case Remote(url):
            return {"type": "url", "url": url} if is_web(url) else None
        case Uploaded(file_id):
            if not out.quirks.uploads or not source.is_for(out.ask.target):
                return None
            out.traits |= FILES
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
    """The parts that do not depend on the messages. `openings` are bodies up to the messages: the second is for open calls that
    were made without thinking. `losses` are theirs."""

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
    """Return the request for this ask. `prior` is the last one of this conversation: it saves work, and does not change
    the result."""
    fixed = _fixed.of(ask, quirks, prior)
    fold = extend_prefix(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = list_fragments(fold, quirks)
    bare = fold.open is not None and "bare_calls" in fragments[-1].traits
    losses = list(fixed.losses[bare])
    marks = choose_marks(fixed.wanted, fragments, marked, losses)
    messages = insert_marks(fragments, marks, control_mark)
    bound_history(messages, fragments, quirks, losses, prefill=quirks.prefill and ask.output is None)
    add_losses(fold, fragments, losses)
    opening = fixed.openings[bare]
    if marks.tools != fixed.marks.tools or marks.system != fixed.marks.system:  # not all marks fit
        opening = _opening(fixed.heads[bare], fixed.frame, marks)
    path, headers, names = fixed.address
    if "files" in fold.traits or (fold.open is not None and "files" in fragments[-1].traits):
        headers = _with_beta(headers, quirks.upload_beta)
    body = join_body(opening, messages, b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, "", fixed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: RequestSource) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _tool, partial(_part, ask=ask, quirks=quirks))
    losses = [*frame.losses, *_report_system(ask, quirks)]
    mute, leads = why_mute(ask, quirks), must_lead(ask, quirks)
    rules = RepairRules(unique_ids=quirks.unique_ids, in_flight=True)
    start = start_prefix((render, quirks, ask.target, mute, leads, ask.foreign_reasoning), rules, frame.seed)
    draw = partial(render, ask, quirks, mute, leads)
    wanted = plan_marks(ask, quirks, TTLS)
    marks = choose_marks(wanted, (), (), [])
    lost: tuple[list[Loss], list[Loss]] = ([], [])
    heads = _head(ask, quirks, frame, False, lost[0]), _head(ask, quirks, frame, True, lost[1])
    openings = _opening(heads[0], frame, marks), _opening(heads[1], frame, marks)
    all_lost = (*losses, *lost[0]), (*losses, *lost[1])
    return _Fixed(source, frame, start, draw, wanted, _address(ask, quirks), marks, heads, openings, all_lost)


_fixed = KeptRequests(_Fixed, _fix)


def _address(ask: Ask, quirks: Quirks) -> Address:
    version = () if quirks.version_in_body else (("anthropic-version", quirks.api_version or VERSION),)
    headers = headers_of(ask, WIRE, *version)
    if quirks.betas_in_body:
        headers = tuple(pair for pair in headers if pair[0].lower() != BETAS)
    return path_of(ask, quirks, PATH), headers, names_of(ask.tools, quirks)


def _with_beta(headers: tuple[tuple[str, str], ...], beta: str) -> tuple[tuple[str, str], ...]:
    """Return the headers with a beta feature added to those that the header lists."""
    given = [value for name, value in headers if name.lower() == BETAS]
    if not beta or any(beta in value for value in given):
        return headers
    others = tuple(pair for pair in headers if pair[0].lower() != BETAS)
    return (*others, (BETAS, ",".join((*given, beta))))


def _part(block: TextBlock, ask: Ask, quirks: Quirks) -> bytes:
    """Return a part of the system prompt; empty if it has no text, because the API rejects that."""
    own = ExchangeWriter(ask, quirks).open_seal(block)
    return dumps({**own, "type": "text", "text": block.text}) if block.text.strip() else b""


def _report_system(ask: Ask, quirks: Quirks) -> list[Loss]:
    """Return the losses of the fields on the system prompt."""
    out = ExchangeWriter(ask, quirks)
    for block in ask.transcript.system_blocks:
        out.open_seal(block)
    return out.losses


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """Return the declaration of one tool; empty if it is not sent."""
    if isinstance(tool, HostedTool):
        return write_hosted_tool(tool, WIRE, quirks, losses)
    tool = as_function(tool, losses)
    own: Body = {"name": declare_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    own["input_schema"], strict = declare_schema(tool, DIALECTS, quirks, losses, fit_names)
    if strict is not None:
        own["strict"] = strict
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _head(ask: Ask, quirks: Quirks, frame: Frame, bare: bool, losses: list[Loss]) -> bytes:
    """Return every field but tools, system and messages. `bare`: the open calls were made without thinking."""
    body: Body = {"model": ask.target.model} if quirks.model_in_body else {}
    if quirks.version_in_body:
        body["anthropic_version"] = quirks.api_version
    body["max_tokens"] = output_tokens(ask, quirks, losses)
    if quirks.model_in_body:
        body["stream"] = ask.stream  # if the path has the model, it also says whether to stream (sheet 16)
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
    report_stateless(ask, losses)
    betas = [value for name, value in headers_of(ask, WIRE) if name.lower() == BETAS]
    if quirks.betas_in_body and betas:
        body["anthropic_beta"] = [beta.strip() for value in betas for beta in value.split(",")]
    return dumps(with_extra(body, ask, WIRE, NESTED, losses, (*TYPED, "thinking")))[:-1]


def _opening(head: bytes, frame: Frame, marks: Marks) -> bytes:
    """Return the body up to the messages."""
    pieces = [head]
    tools = [_mark(data, marks.tools.get(number)) for number, data in enumerate(frame.tools) if data]
    if tools:
        pieces.append(b',"tools":[' + b",".join(tools) + b"]")
    system = [_mark(data, marks.system.get(number)) for number, data in enumerate(frame.system) if data]
    if len(system) == 1 and fields(system[0]).keys() == {"type", "text"}:
        pieces.append(b',"system":' + system[0][len(b'{"type":"text","text":') : -1])
    elif system:
        pieces.append(b',"system":[' + b",".join(system) + b"]")
    return b"".join((*pieces, b',"messages":['))


def _mark(data: bytes, ttl: str | None) -> bytes:
    return data if ttl is None else with_control(data, ttl)
