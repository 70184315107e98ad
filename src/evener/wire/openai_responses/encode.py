"""An Ask as an OpenAI Responses request. Pure: the same ask gives the same bytes, with or without `prior`."""

from functools import partial

import msgspec

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded
from evener.wire.dialects import OPENAI_STRICT
from evener.wire.enforced import enforced
from evener.wire.fold import Fragment, Key, chained, extended, joined, opened
from evener.wire.marks import Marks, breakpoint_mark, choose_marks, drawn
from evener.wire.openai_responses import controls
from evener.wire.openai_responses.blocks import WIRE, render, system_items
from evener.wire.openai_responses.held import outgoing
from evener.wire.quirks import Quirks
from evener.wire.request import (
    Address,
    Kept,
    declared_name,
    frame_of,
    headers_of,
    hosted_tool,
    marked_in,
    names_of,
    output_limit,
    path_of,
    said_beside,
    with_extra,
)
from evener.wire.text import dict_of, dumps, fields, with_tool_extra

__all__ = ["encode"]

PATH = "/responses"
TTLS = ("30m", "12h")
JSON_NOTE = b'{"role":"developer","content":"Answer with one JSON object and nothing else."}'
NOTHING_SAID = b'{"role":"user","content":""}'


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    out = outgoing(ask, quirks)
    ask = out.ask
    frame = frame_of(ask, quirks, prior, _tool, _part)
    rules = RepairRules(past_elsewhere=bool(ask.state.id), unique_ids=quirks.unique_ids, merge=False)
    key = Key((quirks, ask.target, ask.state.store, ask.foreign_reasoning), rules, frame.seed)
    draw = partial(render, ask=ask, quirks=quirks)
    fold = extended(prior.fold if prior else None, key, ask.transcript, draw)
    last = opened(fold)
    losses = [*out.losses, *frame.losses]
    texts, spoken = system_items(ask, quirks, losses)
    offered = any(frame.tools)
    parts = (quirks, *said_beside(ask), texts, offered)
    head = _heads.of(parts, losses, lambda found: _head(ask, quirks, texts, offered, found))
    fragments = [*fold.fragments, *((last,) if last else ())]
    marks = _marks(ask, fragments, marked_in(fold, last), quirks, losses)
    items = drawn(fragments, marks, breakpoint_mark)
    items[:0] = [dumps(item) for item in spoken if not out.resumed]
    if ask.output and not _speaks_of_json(head, spoken, ask.transcript.first):
        items.insert(0, JSON_NOTE)
        losses.append(Loss("added", "developer message", "JSON mode is refused where nobody speaks of JSON; a sentence does"))
    if not items and not ask.state.id:
        items.append(NOTHING_SAID)  # an empty input is rejected (sheet 2)
        losses.append(Loss("added", "user message", "an empty conversation is rejected; an empty message stands for it"))
    losses += (loss for fragment in fragments if fragment.losses for loss in fragment.losses)
    tools = b",".join(tool for tool in frame.tools if tool)
    opening = dumps(head)[:-1] + (b',"tools":[' + tools + b"]" if tools else b"")
    path, headers, names = _outside.of((quirks, *said_beside(ask)), losses, lambda _: _addressed(ask, quirks))
    return Encoded(
        path=path,
        headers=headers,
        body=joined(opening + b',"input":[', items, b"]}"),
        losses=tuple(losses),
        binding="" if out.resumed else chained(fold.chain, last.data if last else b"").hex(),
        names=names,
        frame=frame,
        fold=fold,
        keeps=out.keeps,
    )


_heads: Kept[dict[str, object]] = Kept()
_outside: Kept[Address] = Kept()


def _addressed(ask: Ask, quirks: Quirks) -> Address:
    return path_of(ask, quirks, PATH), headers_of(ask, WIRE), names_of(ask.tools, quirks)


def _speaks_of_json(head: dict[str, object], spoken: list[dict[str, object]], first: Message | None) -> bool:
    """Whether JSON mode will be taken: the input must name it (sheet 3). Only what never changes counts: how it begins."""
    shape = dict_of(dict_of(head.get("text")).get("format"))
    if shape.get("type") != "json_object":
        return True
    texts = [str(item.get("content")) for item in spoken] + [first.text if first else ""]
    return any("json" in text.lower() for text in texts)


def _part(block: TextBlock) -> bytes:
    return dumps(block.text)


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """One tool; empty when it does not go out."""
    if isinstance(tool, HostedTool):
        return hosted_tool(tool, WIRE, quirks, losses)
    own: dict[str, object] = {"type": "function", "name": declared_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    own["parameters"], strict = enforced(tool.schema, tool.strict, OPENAI_STRICT, quirks, f"tool {tool.name}", losses)
    own["strict"] = bool(strict)  # left out, the API tries strict and may change the schema (sheet 4)
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _head(ask: Ask, quirks: Quirks, instructions: list[str], offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Every field but tools and input."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    if instructions:
        body["instructions"] = "\n".join(instructions)
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        if limit < controls.LEAST_OUTPUT:
            losses.append(Loss("degraded", "setting max_output_tokens", f"at least {controls.LEAST_OUTPUT} are needed"))
        body["max_output_tokens"] = max(limit, controls.LEAST_OUTPUT)
    body |= controls.sampling(ask, quirks, losses)
    body |= controls.reasoning(ask, quirks, losses)
    body |= controls.choice(ask, quirks, offered=offered, losses=losses)
    body |= controls.output_format(ask, quirks, losses)
    body |= controls.state(ask, quirks, losses)
    body |= controls.cache_key(ask, quirks, losses)
    included = body.get("include")
    body = with_extra(body, ask, WIRE, ("reasoning", "text"), losses)
    asked = fields(dumps(body))["include"] if body.get("include") is not included else None
    if isinstance(included, list) and asked is not None:
        body["include"] = [*included, *msgspec.json.decode(asked, type=list[str])]
    return body


def _marks(ask: Ask, fragments: list[Fragment], marked: tuple[int, ...], quirks: Quirks, losses: list[Loss]) -> Marks:
    """Marks on input content only; tools and instructions are cached by themselves (sheet 11)."""
    if ask.cache.mode in ("moving", "provider"):
        return Marks()  # caching is automatic here
    marks = choose_marks(ask, fragments, marked, quirks, losses, TTLS)
    if marks.tools or marks.system:
        losses.append(Loss("dropped", "cache marks", "tools and instructions take none; they are cached by themselves"))
    return marks
