"""Encodes an Ask as a Gemini request. Pure: the same ask gives the same bytes, with or without `prior`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import assert_never

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, ToolSpec
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
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import OUTPUT, Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import Exchange, RepairRules
from evener.wire.gemini.parts import (
    CIRCULATED,
    SIGNATURE,
    UNCITED,
    WIRE,
    Raws,
    camel,
    camel_fields,
    function_name,
    is_bare,
    named_fields,
    ours,
    own_fields,
    part_of,
    shape_of,
)
from evener.wire.gemini.tools import fit_schema, group_tools, tool_part
from evener.wire.media import is_base64, is_image_taken, is_textual, normalize_media
from evener.wire.prefix import (
    OPERATOR,
    ExchangeWriter,
    Fragment,
    LazyChain,
    Prefix,
    Render,
    as_object,
    data_of,
    dict_of,
    dumps,
    extend_prefix,
    fields,
    join_body,
    must_fetch,
    placeholder,
    start_prefix,
    why_shut,
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
    add_losses,
    choose_stops,
    effort_for,
    find_chosen_tools,
    frame_of,
    headers_of,
    hold_number,
    list_fragments,
    names_of,
    nearest_effort,
    output_limit,
    pass_number,
    path_of,
    report_choice,
    report_length,
    report_stateless,
    report_unforced,
    short_id,
    with_extra,
    without_messages,
    write_settings,
)
from evener.wire.tool_schema import report_description

JSON, PDF = "application/json", "application/pdf"
LEVELS = ("minimal", "low", "medium", "high")
BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": 24_576}  # higher efforts get the model's maximum
MODES = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}
AUTO_BUDGET = -1

Body = dict[str, object]
SAMPLERS = ("temperature", "top_p", "top_k")


def read_whole(own: Fields, name: str, least: int | None = None) -> int | None:
    """Take a whole number of at least `least`, also if it is written with a decimal point. Leave any other value."""
    try:
        value = msgspec.json.decode(own.peek_raw(name), type=int | float | None)
    except msgspec.ValidationError:
        return None
    if value is None or (isinstance(value, float) and not value.is_integer()) or (least is not None and value < least):
        return None
    if isinstance(value, int):  # else it is sent back as it was written
        own.take(name)
    return int(value)


SETTINGS = (
    Setting("max_output_tokens", "maxOutputTokens", read=partial(read_whole, least=1)),  # written by `output_limit`
    Setting("temperature", "temperature", 2, hold_number),
    Setting("top_p", "topP", 1, hold_number),
    Setting("top_k", "topK", math.inf, hold_number, read_whole),
    Setting("seed", "seed", math.inf, pass_number, read_whole),
    Setting("stop", "stopSequences", 5, choose_stops, Fields.texts),  # sheet 2
)


def generation_config(ask: Ask, quirks: Quirks, losses: list[Loss], *, functions: bool) -> Body:
    """Return the field `generationConfig`."""
    limit = output_limit(ask, quirks, losses)
    thinking = _thinking(ask, quirks, losses)
    refused = dict.fromkeys(SAMPLERS, "this model ignores it") if quirks.sampling == "none" else {}
    return {
        **({"maxOutputTokens": limit} if limit is not None else {}),
        **write_settings(SETTINGS, ask.settings, losses, refused),
        **_output(ask, quirks, losses, functions=functions),
        **({"thinkingConfig": thinking} if thinking else {}),
    }


def _output(ask: Ask, quirks: Quirks, losses: list[Loss], *, functions: bool) -> Body:
    output = ask.output
    if output is None:
        return {}
    report_description(output, losses)
    if functions and not quirks.output_beside:
        losses.append(loss_of("degraded", "output.schema", "this model takes none beside functions; ask for it in the prompt"))
        return {}
    if _gives_schema(ask):
        return {"responseMimeType": JSON}
    if output.schema and quirks.output_schema:
        schema, told = fit_schema(output.schema, quirks, OUTPUT)
        losses += told
        return {"responseMimeType": JSON, "responseJsonSchema" if quirks.json_schemas else "responseSchema": schema}
    if not quirks.json_mode:
        losses.append(loss_of("degraded", "output.schema", "this model has no such mode; ask for the shape in the prompt"))
        return {}
    if output.schema:
        losses.append(loss_of("degraded", "output.schema", "this model takes none; any JSON is asked for"))
    return {"responseMimeType": JSON}


def _gives_schema(ask: Ask) -> bool:
    """True if the caller's own fields contain a schema. Only one may be sent, under either name."""
    configs = [fields(extra.body).get("generationConfig") for extra in ask.extra if extra.is_for(WIRE, ask.target.provider)]
    given = {name for config in configs if config and bytes(config)[:1] == b"{" for name in camel_fields(config)}
    return bool(given & {"responseSchema", "responseJsonSchema"})


def _thinking(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    wanted = ask.reasoning
    body: Body = {}
    if wanted.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    effort = "off" if wanted.mode == "off" else wanted.effort
    if quirks.thinking_control == "level":
        body = _level(effort, wanted.budget, quirks, losses)
        unsaid = not body and not quirks.thinks_unasked and quirks.default_effort in ("", "off")
        if wanted.mode == "on" and effort is None and unsaid:
            losses.append(
                loss_of("dropped", "reasoning.mode", "this model has levels and no switch; name an effort", name="on")
            )
    elif quirks.thinking_control == "budget":
        body = _budget(effort, wanted.budget, quirks, losses, on=wanted.mode == "on")
    elif effort not in (None, "off") or wanted.budget is not None or wanted.mode == "on":
        losses.append(loss_of("dropped", "reasoning.mode", "this model does not think"))
    if wanted.show and quirks.show and quirks.thinking_control != "none":
        body["includeThoughts"] = wanted.show != "omitted"
        report_length(ask, losses)
    elif wanted.show not in ("", "omitted"):
        losses.append(loss_of("dropped", "reasoning.show", "this model shows none"))
    return body


def _level(effort: str | None, budget: int | None, quirks: Quirks, losses: list[Loss]) -> Body:
    if effort is None and budget is not None:
        effort = effort_for(budget) if budget else "off"
        losses.append(loss_of("degraded", "reasoning.budget", f"this model has levels only; {budget} tokens are {effort!r}"))
    if effort is None:
        return {}
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return {}
    return {"thinkingLevel": nearest_effort(effort, quirks.efforts or LEVELS, losses).upper()}


def _budget(effort: str | None, budget: int | None, quirks: Quirks, losses: list[Loss], *, on: bool) -> Body:
    if effort == "off":
        wanted = 0
    elif budget is not None:
        wanted = budget
    elif effort is not None:
        wanted = min(BUDGETS.get(effort, quirks.most_budget), quirks.most_budget)
    else:
        return {"thinkingBudget": AUTO_BUDGET} if on else {}
    held = max(quirks.least_budget, min(wanted, quirks.most_budget))
    if held != wanted:
        losses.append(
            loss_of("degraded", "reasoning.budget", f"this model takes {quirks.least_budget} to {quirks.most_budget}")
        )
    return {"thinkingBudget": held}


def choice(ask: Ask, quirks: Quirks, *, functions: bool, losses: list[Loss]) -> Body:
    """Return the field `functionCallingConfig` of `toolConfig`."""
    wanted = ask.choice
    if not functions:
        report_choice(ask, losses)
        return {}
    if wanted.parallel is False:
        losses.append(loss_of("dropped", "tool_choice.parallel", "this wire has none"))
    mode, names = _mode(ask, quirks, losses)
    if mode == "AUTO" and not wanted.stated:
        return {}
    return {"functionCallingConfig": {"mode": mode, **({"allowedFunctionNames": names} if names else {})}}


def _mode(ask: Ask, quirks: Quirks, losses: list[Loss]) -> tuple[str, list[str]]:
    wanted = ask.choice
    names = find_chosen_tools(ask, quirks, losses, function_name)
    mode = MODES[wanted.mode]
    if mode == "ANY" and not quirks.forced_choice:
        report_unforced(losses)
        mode = "AUTO"
    if not names and (wanted.names or wanted.mode == "named"):
        mode = "AUTO"
    if mode == "AUTO":
        mode = _check_strict(ask, quirks, losses, narrowed=bool(names))
    return mode, names if mode in ("ANY", "VALIDATED") else []


def _check_strict(ask: Ask, quirks: Quirks, losses: list[Loss], *, narrowed: bool) -> str:
    """Return the mode for strict tools, or for a choice among some tools. It applies to all functions or to none."""
    strict = {tool.name: tool.strict for tool in ask.tools if isinstance(tool, ToolSpec)}
    if not any(strict.values()) and not narrowed:
        return "AUTO"
    if not quirks.strict:
        losses += (
            loss_of("dropped", "tool.strict", "this model enforces no schemas", name=name) for name, on in strict.items() if on
        )
        if narrowed:
            losses.append(loss_of("degraded", "tool_choice", "this model has no subsets; every tool is offered"))
        return "AUTO"
    why = "this wire enforces the schemas of all functions or of none; here, of all"
    losses += (loss_of("degraded", "tool.strict", why, name=name) for name, on in strict.items() if not on)
    return "VALIDATED"


IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
MODEL, USER = b'{"role":"model","parts":[', b'{"role":"user","parts":['
"""The beginning of a content."""
CIRCULATES = frozenset(("circulated",))
"""A trait of a fragment."""

Value = dict[str, object]
Part = tuple[Value, str]
"""A part, and the lifetime of the cache mark that the ask has on it."""

NOTHING_LEFT: tuple[Part] = (({"text": "[nothing that this provider can read]"}, ""),)


def render(ask: Ask, quirks: Quirks, exchange: Exchange, chain: LazyChain) -> Fragment:
    """Write one exchange: what the model said, then what came back."""
    out = ExchangeWriter(ask, quirks, chain)
    calls: Mapping[str, ToolCall] = {}
    if exchange.assistant is not None:
        calls = {call.id: call for call in exchange.assistant.calls}
        _content(out, MODEL, _write_turn(out, exchange.assistant))
    parts: list[Part] = []
    before = None
    for message in exchange.back:
        # The two halves of one message share a content; if turns must alternate, all messages do.
        if before is not None and not quirks.merge_turns and before.id != f"{message.id}/results":
            _content(out, USER, parts)
            parts = []
        _back(out, message, calls, parts)
        before = message
    if before is not None:
        _content(out, USER, parts)
    return out.fragment(exchange, None)


def _content(out: ExchangeWriter, opening: bytes, parts: Sequence[Part]) -> None:
    lead = b"," + opening if out.pieces else opening
    for value, cache in parts or NOTHING_LEFT:
        out.block(value, cache, lead)
        lead = b","
    out.close()


def _open_seal(out: ExchangeWriter, block: TextBlock | ImageBlock | DocumentBlock | ToolCall | ToolResult) -> Raws:
    """Return the fields of a seal that may be sent; to another model of its provider, all but the signature."""
    seal = block.seal
    if seal is None:
        return {}
    own, why = own_fields(seal), out.why_shut(seal)
    if not why:
        return out.hold_message_fields(own)
    if own.pop(SIGNATURE, None):
        out.drop("reasoning.signature", why, block)
    why = why_shut(seal, out.ask.target, replace(out.quirks, seal_scope="provider"), out.chain)
    if not why:
        return out.hold_message_fields(own)
    out.report_fields(block, named_fields(own if seal.origin.wire == WIRE else fields(seal.data)), why)
    return ours(own)


# The model's turn.


def _write_turn(out: ExchangeWriter, message: Message) -> list[Part]:
    out.message = message
    parts: list[Part] = []
    signs = bool(out.quirks.call_signature)
    for block in message.blocks:
        if type(block) is ToolCall:
            parts.append((_call(out, block, signs=signs), block.cache))
            signs = False
        elif type(block) is TextBlock:
            parts += _text(out, block, message)
        elif type(block) is ReasoningBlock:
            parts += _reasoning(out, block)
        elif type(block) is HostedBlock:
            parts.append((_write_hosted(out, block, message), block.cache))
        elif type(block) is ToolResult:
            out.drop("tool_result", "a model's turn cannot hold it", block)
        else:
            parts.append((_media(out, block) or _line(out, block), block.cache))
    return parts


def _text(out: ExchangeWriter, block: TextBlock, message: Message) -> Iterator[Part]:
    own = _open_seal(out, block)
    if message.origin is None or message.origin.wire != WIRE:
        out.report_citations(block, UNCITED)
    if block.text.strip() or SIGNATURE in own:
        yield {"text": block.text, **own}, block.cache
    else:
        out.drop("text", "it was empty and its seal cannot be sent", block)


def _reasoning(out: ExchangeWriter, block: ReasoningBlock) -> Iterator[Part]:
    why = "it carries nothing that this provider could verify"
    if out.quirks.thinking_replay == "none":
        why = "this endpoint takes back no reasoning"
    elif block.seal:
        why = out.why_shut(block.seal)
    if not why:
        out.thought = True
        yield {"text": block.text, "thought": True, **own_fields(block.seal)}, ""
    elif out.speaks_reasoning(block, why):
        yield {"text": block.text}, ""


def _call(out: ExchangeWriter, call: ToolCall, *, signs: bool) -> Value:
    own = _open_seal(out, call)
    name, id = function_name(call.name, out.quirks.name_length), short_id(call.id, out.quirks.id_length)
    if name != call.name:
        out.rename("tool_call.name", call, call.name, name)
    value: Value = {"name": name, "args": msgspec.Raw(out.arguments(call).encode())}
    if not is_bare(own):
        value = {"id": id, **value}
        if id != call.id:
            out.rename("tool_call.id", call, call.id, id)
    part = part_of("functionCall", value, own)
    if signs and SIGNATURE not in part:
        why = "the first call of a turn needs one and has none that this model could verify; a stand-in is sent"
        out.lose("added", "reasoning.signature", why, call)
        part[SIGNATURE] = out.quirks.call_signature
    return part


def _write_hosted(out: ExchangeWriter, block: HostedBlock, message: Message) -> Value:
    own = _list_hosted_fields(out, block) or {}
    circulated = any(camel(name) in CIRCULATED for name in own)
    if not own or (circulated and out.quirks.hosted_beside != "flag"):
        return _line(out, block)
    if circulated:
        out.traits |= CIRCULATES
    signed = [name for name in own if camel(name) == SIGNATURE]
    why = out.why_shut(Seal(block.raw, message.origin or Origin())) if signed and message.role == "assistant" else ""
    if why:
        out.drop("reasoning.signature", why, block)
    return {name: value for name, value in own.items() if not why or name not in signed}


def _line(out: ExchangeWriter, block: ImageBlock | DocumentBlock | HostedBlock) -> Value:
    out.degrade(block.kind, "this wire cannot take it here; sent as a line", block)
    return {"text": placeholder(block)}


# The user's turn: results and messages.


def _back(out: ExchangeWriter, message: Message, calls: Mapping[str, ToolCall], parts: list[Part]) -> None:
    """Add the parts of a message: its results, the media that results cannot contain, and the rest."""
    out.message = message
    lead = ""
    if message.role == "system":
        lead = OPERATOR
        out.degrade("message.role", "this wire takes none here; sent as marked user text")
    after: list[Part] = []
    for block in message.blocks:
        if type(block) is ToolResult:
            parts.append((_result(out, block, calls, after), block.cache))
    if after:
        parts += after
    for block in message.blocks:
        if type(block) is not ToolResult:
            _add_block(out, block, message, lead, parts)


def _add_block(out: ExchangeWriter, block: Block, message: Message, lead: str, parts: list[Part]) -> None:
    match block:
        case TextBlock():
            if block.citations:
                out.report_citations(block, UNCITED)
            value: Value = {"text": lead + block.text}
            if block.seal is not None:
                value |= _open_seal(out, block)
            parts.append((value, block.cache))
        case ImageBlock() | DocumentBlock():
            parts.append((_media(out, block) or _line(out, block), block.cache))
        case HostedBlock():
            parts.append((_write_hosted(out, block, message), block.cache))
        case ReasoningBlock() | ToolCall() | ToolResult():
            out.drop(block.kind, "a user's turn cannot hold it", block)
        case _:
            assert_never(block)


def _result(out: ExchangeWriter, result: ToolResult, calls: Mapping[str, ToolCall], after: list[Part]) -> Value:
    """Return a function's response. Add what it cannot contain to `after`, which follows all responses."""
    call = calls.get(result.call_id)
    own = _open_seal(out, result)
    texts: list[str] = []
    media: list[Value] = []
    for block in result.content:
        if block.cache:
            out.drop("cache.mark", NO_MARKS, block, at="cache")
        if type(block) is TextBlock:
            texts.append(block.text)
            out.report_citations(block, UNCITED)
            _open_seal(out, block)  # only reports the loss: a response is plain text, which carries no seal
            continue
        value = _list_hosted_fields(out, block) if type(block) is HostedBlock else _media(out, block)
        if value is None:
            texts.append(str(_line(out, block)["text"]))
        elif type(block) is HostedBlock or _type_of(value) in out.quirks.result_parts:
            media.append(value)
        else:
            out.degrade("tool_result.media", "a function's response cannot hold it here; it stands after the results", block)
            label = f"[{block.kind} from {call.name if call else result.call_id}]"
            after += (({"text": label}, ""), (value, block.cache))
    value = {
        "name": function_name(call.name, out.quirks.name_length) if call else "",
        "response": _response(result, own, texts),
    }
    if call is None or not is_bare(own_fields(call.seal)):
        value = {"id": short_id(result.call_id, out.quirks.id_length), **value}
    return _response_part({**value, "parts": media} if media else value, own)


def _type_of(part: Value) -> object:
    return dict_of(part.get("inlineData", part.get("fileData"))).get("mimeType", "")


def _response_part(value: Value, own: Raws) -> Value:
    if "functionResponse" not in own:
        return {"functionResponse": value, **own}
    inner = {name: field for name, field in fields(own["functionResponse"]).items() if name != "response"}
    beside = {name: field for name, field in own.items() if name != "functionResponse"}
    return part_of("functionResponse", {**value, **inner}, beside)


def _response(result: ToolResult, own: Raws, texts: Sequence[str]) -> object:
    """Return a result as an object: in the form in which it was read, else with the key `output` or `error`."""
    text, shape = "\n".join(texts), shape_of(own)
    if shape and (shape.under == "error") == result.is_error:
        value = _json(text) if shape.json else None
        if shape.under:
            return {shape.under: text if value is None else value}
        return as_object(text) or {"output": text}
    if result.is_error:
        return {"error": text}
    return {"output": text} if texts else {}


def _json(text: str) -> msgspec.Raw | None:
    try:
        return msgspec.json.decode(text, type=msgspec.Raw).copy()
    except (msgspec.MsgspecError, RecursionError):
        return None


def _list_hosted_fields(out: ExchangeWriter, block: HostedBlock) -> Value | None:
    """Return a part of the provider's own unchanged; None if it is for another provider, or has media that the row
    refuses."""
    own = fields(block.raw)
    media = any(camel(name) in ("inlineData", "fileData") for name in own)
    taken = out.quirks.hosted and (not media or (out.quirks.images and out.quirks.documents))
    return dict(own) if taken and block.is_for(out.ask.target) else None


# Media, on both sides.


def _media(out: ExchangeWriter, block: ImageBlock | DocumentBlock) -> Value | None:
    """Return an image or a file as a part; None when this endpoint cannot take it."""
    if isinstance(block, ImageBlock):
        block, image = normalize_media(out, block), True
        taken = out.quirks.images and is_image_taken(block, out.quirks.image_types or IMAGES)
    else:
        block, image = normalize_media(out, block), False
        if isinstance(block.source, Inline) and is_textual(block.media_type) and not block.media_type.startswith("text/"):
            block = replace(block, media_type="text/plain")
        known = block.media_type in ("", PDF) or block.media_type.startswith(("text/", "audio/", "video/"))
        taken = out.quirks.documents and (known or not isinstance(block.source, Inline))
    if not taken:
        return None
    kind = {"mimeType": block.media_type} if block.media_type else {}
    match block.source:
        case Inline(data):
            if not is_base64(data):
                return None
            name, value = "inlineData", {"mimeType": "image/png" if image else PDF, **kind, "data": data}
        case Remote(url):
            name, value = "fileData", {**kind, "fileUri": url}
        case Uploaded(file_id):
            if not block.source.is_for(out.ask.target):
                return None
            name, value = "fileData", {**kind, "fileUri": file_id}
        case Stored():
            raise must_fetch("media")
        case _:
            assert_never(block.source)
    own = _open_seal(out, block)
    sealed = fields(own[name]) if name in own else {}
    return part_of(name, {**value, **_labels(out, block, sealed)}, own)


def _labels(out: ExchangeWriter, block: ImageBlock | DocumentBlock, sealed: Raws) -> Value:
    if isinstance(block, ImageBlock):
        if block.detail not in ("", "auto"):
            out.drop("image.detail", "this wire has none for one image", block, at="detail")
        return {}
    if not block.name or "displayName" in sealed:
        return {}
    if not out.quirks.media_names:
        out.drop("document.name", "this endpoint takes none", block, at="name")
        return {}
    return {"displayName": block.name}


PATH = "/v1beta/models/{model}:generateContent"
STREAM_PATH = "/v1beta/models/{model}:streamGenerateContent"
EVENTS = "?alt=sse"
NOTHING_SAID = b'{"role":"user","parts":[{"text":""}]}'
CONTINUE = b'{"role":"user","parts":[{"text":"Continue."}]}'
NO_MARKS = "this wire takes none; caching is automatic"
NESTED = (
    *("generationConfig", "generationConfig.thinkingConfig"),
    *("toolConfig", "toolConfig.functionCallingConfig"),
    "systemInstruction",
)
"""Objects that we write and the caller may add to."""


class _Fixed(Fixed, frozen=True, eq=False):
    """The parts that do not depend on the messages. `heads` are bodies up to the messages and their losses; the second is for
    requests that send the provider's own calls back. `silent`: cache marks on messages need no (further) report."""

    frame: Frame
    start: Prefix
    draw: Render
    address: Address
    heads: tuple[bytes, bytes]
    losses: tuple[tuple[Loss, ...], tuple[Loss, ...]]
    silent: bool


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """Return the request for this ask. `prior` is the last one of this conversation: it saves work, and does not change
    the result."""
    fixed = _fixed.of(ask, quirks, prior)
    fold = extend_prefix(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = list_fragments(fold, quirks)
    circulated = "circulated" in fold.traits or (fold.open is not None and "circulated" in fragments[-1].traits)
    losses = list(fixed.losses[circulated])
    if marked and not fixed.silent:
        losses.append(loss_of("dropped", "cache.mark", NO_MARKS))
    add_losses(fold, fragments, losses)
    path, headers, names = fixed.address
    body = join_body(fixed.heads[circulated], _contents(fragments, quirks, losses), b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, "", fixed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: RequestSource) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, tool_part, partial(_part, target=ask.target))
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    start = start_prefix((render, quirks, ask.target, ask.foreign_reasoning), rules, frame.seed)
    marked = any(part.cache for part in ask.transcript.system_blocks)
    marked = marked or any(isinstance(tool, ToolSpec) and tool.cache for tool in ask.tools)
    lost: tuple[list[Loss], list[Loss]] = (list(frame.losses), list(frame.losses))
    heads = _head(ask, quirks, frame, False, lost[0]), _head(ask, quirks, frame, True, lost[1])
    for losses in lost:
        if ask.cache.mode != "off" and marked:
            losses.append(loss_of("dropped", "cache.mark", NO_MARKS))
        if ask.cache.mode != "off" and ask.cache.ttl:
            losses.append(loss_of("dropped", "cache.mark", "caching is automatic", at="ttl"))
        report_stateless(ask, losses)
    silent, draw = marked or ask.cache.mode == "off", partial(render, ask, quirks)
    return _Fixed(source, frame, start, draw, _address(ask, quirks), heads, (tuple(lost[0]), tuple(lost[1])), silent)


_fixed = KeptRequests(_Fixed, _fix)


def _address(ask: Ask, quirks: Quirks) -> Address:
    path = path_of(ask, quirks, STREAM_PATH if ask.stream else PATH)
    events = EVENTS if ask.stream and "?" not in path else ""
    return path + events, headers_of(ask, WIRE), names_of(ask.tools, quirks, function_name)


def _part(block: TextBlock, target: Origin) -> bytes:
    """Return a part of the system prompt, with the fields that this provider had added; empty if it has no text."""
    own = own_fields(block.seal) if _is_of(block.seal, target) else {}
    return dumps({"text": block.text, **own}) if block.text else b""


def _is_of(seal: Seal | None, target: Origin) -> bool:
    return seal is not None and target.owns(seal.origin.wire, seal.origin.provider)


def _head(ask: Ask, quirks: Quirks, frame: Frame, circulated: bool, losses: list[Loss]) -> bytes:
    """Return the body up to the contents. `circulated`: the request sends the provider's own calls back."""
    body: dict[str, object] = {}
    parts = [msgspec.Raw(part) for part in frame.system if part]
    if parts:
        body["systemInstruction"] = {"parts": parts}
    _report_system(ask, losses)
    tools, functions, hosted = group_tools(ask.tools, frame.tools, quirks, losses) if ask.tools else ([], False, False)
    if tools:
        body["tools"] = tools
    config = choice(ask, quirks, functions=functions, losses=losses)
    if (functions and hosted and quirks.hosted_beside == "flag") or circulated:
        config["includeServerSideToolInvocations"] = True
    if config:
        body["toolConfig"] = config
    generation = generation_config(ask, quirks, losses, functions=functions)
    if generation:
        body["generationConfig"] = generation
    body = with_extra(body, ask, WIRE, NESTED, losses)
    return dumps(body)[:-1] + (b',"contents":[' if body else b'"contents":[')


def _report_system(ask: Ask, losses: list[Loss]) -> None:
    """Report the losses of the system prompt: only text is sent."""
    for number, block in enumerate(ask.transcript.system_blocks):
        if not block.text:
            losses.append(loss_of("dropped", "system.part", "it was empty", at=f"{number}"))
        if block.citations:
            losses.append(loss_of("dropped", "system.citations", UNCITED, at=f"{number}/citations"))
        names = named_fields(fields(block.seal.data)) if block.seal else []
        if names and not _is_of(block.seal, ask.target):
            why = f"{', '.join(names)}: this wire takes only words"
            losses.append(loss_of("dropped", "system.fields", why, at=f"{number}/seal"))


def _contents(fragments: Sequence[Fragment], quirks: Quirks, losses: list[Loss]) -> list[bytes]:
    """Return the contents: there is at least one, and the first is the user's (sheet 2)."""
    written = [*filter(data_of, fragments)]
    contents: list[bytes] = [*map(data_of, written)]
    if not written or "assistant_first" in written[0].traits:
        losses.append(
            loss_of("added", "message", "a conversation must begin with the user; an empty text stands for it", name="user")
        )
        contents.insert(0, NOTHING_SAID)
    if not quirks.prefill and written and "assistant_last" in written[-1].traits:
        losses.append(loss_of("added", "message", "the history may not end with the model", name="user"))
        contents.append(CONTINUE)
    return contents
