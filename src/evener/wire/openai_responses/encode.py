"""An Ask as an OpenAI Responses request. Pure: the same ask gives the same bytes, with or without `prior`."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, HostedTool, Namespace, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded, Frame
from evener.wire.dialects import OPENAI_PLAIN, OPENAI_STRICT
from evener.wire.enforced import declared_schema
from evener.wire.fold import Fold, Render, extended, joined, started
from evener.wire.marks import Wanted, automatic_marks, breakpoint_mark, choose_marks, drawn, report_lifetime, wanted_marks
from evener.wire.openai_responses import controls
from evener.wire.openai_responses.blocks import WIRE, forms_of, render, system_items
from evener.wire.openai_responses.held import outgoing
from evener.wire.quirks import Quirks
from evener.wire.request import (
    Address,
    Fixed,
    Kept,
    Source,
    add_losses,
    as_function,
    declared_name,
    drafted,
    frame_of,
    headers_of,
    hosted_tool,
    is_declared_inline,
    names_of,
    output_limit,
    path_of,
    with_extra,
    without_messages,
)
from evener.wire.text import dict_of, dumps, fields, with_tool_extra

__all__ = ["encode"]

PATH = "/responses"
DIALECTS = (OPENAI_PLAIN, OPENAI_STRICT)
TTLS = ("30m", "12h")
NESTED = ("reasoning", "text", "text.format", "tool_choice")
"""Objects that we write and the caller may add to."""
JSON_NOTE = b'{"role":"developer","content":"Answer with one JSON object and nothing else."}'
NOTHING_SAID = b'{"role":"user","content":""}'


class _Fixed(Fixed, frozen=True, eq=False):
    """What does not depend on the messages. `opening` is the body up to the input, `spoken` the parts of the system prompt that
    are items of it. `json_mode`: somebody must speak of JSON, and none of those items does."""

    frame: Frame
    start: Fold
    draw: Render
    wanted: Wanted
    address: Address
    opening: bytes
    spoken: tuple[bytes, ...]
    losses: tuple[Loss, ...]
    json_mode: bool


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    out = outgoing(ask, quirks)
    ask = out.ask
    fixed = _fixed.of(ask, quirks, prior)
    fold = extended(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = drafted(fold, quirks)
    losses = [*out.losses, *fixed.losses]
    marks = choose_marks(fixed.wanted, fragments, marked, losses)
    if marks.tools or marks.system:
        losses.append(loss_of("dropped", "cache.mark", "tools and instructions take none; they are cached by themselves"))
    items = drawn(fragments, marks, breakpoint_mark)
    if fixed.spoken and not out.resumed:
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
    body = joined(fixed.opening, items, b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, out.keeps, fixed, out.resumed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: Source) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _tool, _part)
    rules = RepairRules(past_elsewhere=bool(ask.state.id), unique_ids=quirks.unique_ids, merge=False)
    start = started((render, quirks, ask.target, ask.state.store, ask.foreign_reasoning), rules, frame.seed)
    losses = list(frame.losses)
    texts, spoken = system_items(ask, quirks, losses)
    inline = any(is_declared_inline(tool, ask.target, quirks) for tool in ask.tools)
    head = _head(ask, quirks, texts, inline or any(frame.tools), losses)
    tools = b",".join(_offered(ask.tools, frame.tools, quirks))
    opening = dumps(head)[:-1] + (b',"tools":[' + tools + b"]" if tools else b"") + b',"input":['
    automatic = ask.cache.mode in ("moving", "provider")  # only marks on input content are ours to place (sheet 11)
    if automatic:
        report_lifetime(ask, losses)
    return _Fixed(
        source,
        frame,
        start,
        partial(render, ask, quirks, forms_of(ask.tools, quirks)),
        automatic_marks(ask) if automatic else wanted_marks(ask, quirks, TTLS),
        _addressed(ask, quirks),
        opening,
        tuple(dumps(item) for item in spoken),
        tuple(losses),
        bool(ask.output) and _is_json_mode(head) and not any("json" in str(item.get("content")).lower() for item in spoken),
    )


_fixed = Kept(_Fixed, _fix)


def _addressed(ask: Ask, quirks: Quirks) -> Address:
    return path_of(ask, quirks, PATH), headers_of(ask, WIRE), names_of(ask.tools, quirks)


def _is_json_mode(head: dict[str, object]) -> bool:
    return dict_of(dict_of(head.get("text")).get("format")).get("type") == "json_object"


def _speaks_of_json(first: Message | None) -> bool:
    """Whether JSON mode will be taken: the input must name it (sheet 3). Only what never changes counts: how it begins."""
    return first is not None and "json" in first.text.lower()


def _part(block: TextBlock) -> bytes:
    return dumps(block.text)


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """One tool; empty when it does not go out."""
    if isinstance(tool, HostedTool):
        return hosted_tool(tool, WIRE, quirks, losses)
    if not quirks.custom_tools:
        tool = as_function(tool, losses)
    elif tool.namespace is not None:
        tool = replace(tool, name=tool.bare_name)
    own: dict[str, object] = {"type": "function", "name": declared_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    if tool.free is not None and quirks.custom_tools:
        grammar = {"format": {"type": "grammar", "syntax": tool.free.syntax, "definition": tool.free.grammar}}
        own |= {"type": "custom", **(grammar if tool.free.grammar else {})}
        return dumps(with_tool_extra(own, tool, WIRE, losses))
    own["parameters"], strict = declared_schema(tool, DIALECTS, quirks, losses)
    if strict is not None or tool.wire != WIRE:  # left out, the API tries strict and may change the schema (sheet 4)
        own["strict"] = bool(strict)
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _offered(tools: Sequence[ToolSpec | HostedTool], parts: Sequence[bytes], quirks: Quirks) -> list[bytes]:
    """The tools, those of one namespace in one object, as they stand beside each other."""
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


def _head(ask: Ask, quirks: Quirks, instructions: list[str], offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Every field but tools and input."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    if instructions:
        body["instructions"] = "\n".join(instructions)
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        if limit < controls.LEAST_OUTPUT:
            losses.append(loss_of("degraded", "setting.max_output_tokens", f"at least {controls.LEAST_OUTPUT} are needed"))
        body["max_output_tokens"] = max(limit, controls.LEAST_OUTPUT)
    body |= controls.sampling(ask, quirks, losses)
    body |= controls.reasoning(ask, quirks, losses)
    body |= controls.choice(ask, quirks, offered=offered, losses=losses)
    body |= controls.output_format(ask, quirks, losses)
    body |= controls.state(ask, quirks, losses)
    body |= controls.cache_key(ask, quirks, losses)
    included = body.get("include")
    body = with_extra(body, ask, WIRE, NESTED, losses)
    asked = fields(dumps(body))["include"] if body.get("include") is not included else None
    if isinstance(included, list) and asked is not None:
        body["include"] = [*included, *msgspec.json.decode(asked, type=list[str])]
    return body
