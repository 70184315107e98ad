"""An Ask as a Chat Completions request. Pure: the same ask gives the same bytes, with or without `prior`."""

from functools import partial

import msgspec

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded
from evener.wire.dialects import OPENAI_STRICT
from evener.wire.enforced import enforced
from evener.wire.fold import Fragment, Key, chained, extended, opened
from evener.wire.marks import Marks, breakpoint_mark, choose_marks, control_mark, control_value, drawn
from evener.wire.openai_chat import controls
from evener.wire.openai_chat.blocks import WIRE, render
from evener.wire.openai_chat.system import marks_move, system_messages
from evener.wire.quirks import Quirks
from evener.wire.request import (
    bounded,
    declared_name,
    frame_of,
    headers_of,
    hosted_tool,
    latest,
    marked_in,
    names_of,
    output_limit,
    path_of,
    with_extra,
)
from evener.wire.text import dumps, fields, with_tool_extra

__all__ = ["encode"]

PATH = "/chat/completions"
TTLS = {"breakpoint": ("30m",), "control": ("5m", "1h")}
JSON_NOTE = "Answer with one JSON object and nothing else."
NESTED = ("reasoning", "thinking", "stream_options", "chat_template_kwargs")


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    frame = frame_of(ask, quirks, prior, _tool, _part)
    seed = chained(chained(b"evener", b",".join(frame.tools)), b",".join(frame.system))
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    key = Key((quirks, ask.target, ask.foreign_reasoning), rules, seed)
    draw = partial(render, ask=ask, quirks=quirks)
    fold = extended(prior.fold if prior else None, key, ask.transcript, draw)
    last = opened(fold)
    losses = list(frame.losses)
    head = _head(ask, quirks, any(frame.tools), losses)
    fragments = latest([*fold.fragments, *((last,) if last else ())], quirks)
    marks = _marks(ask, fragments, marked_in(fold, last), quirks, losses)
    mark = control_mark if quirks.cache_style == "control" else breakpoint_mark
    messages = drawn(fragments, marks, mark)
    note = _json_note(ask, head, losses)
    system = system_messages(ask, quirks, {number: mark(ttl) for number, ttl in marks.system.items()}, losses, note)
    if messages or not system or quirks.first_user:
        bounded(messages, fragments, quirks, losses, prefill=quirks.prefill)
    losses += (loss for fragment in fragments if fragment.losses for loss in fragment.losses)
    tools = [_marked(data, marks.tools.get(number)) for number, data in enumerate(frame.tools) if data]
    opening = dumps(head)[:-1] + (b',"tools":[' + b",".join(tools) + b"]" if tools else b"")
    return Encoded(
        path=path_of(ask, quirks, PATH),
        headers=headers_of(ask, WIRE),
        body=b"".join((opening, b',"messages":[', b",".join((*system, *messages)), b"]}")),
        losses=tuple(losses),
        binding=chained(fold.chain, last.data if last else b"").hex(),
        names=names_of(ask.tools, quirks),
        frame=frame,
        fold=fold,
    )


def _part(block: TextBlock) -> bytes:
    return dumps(block.text)


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """One tool; empty when it does not go out."""
    if isinstance(tool, HostedTool):
        return hosted_tool(tool, WIRE, quirks, losses)
    own: dict[str, object] = {"name": declared_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    own["parameters"], strict = enforced(tool.schema, tool.strict, OPENAI_STRICT, quirks, f"tool {tool.name}", losses)
    if strict is not None:
        own["strict"] = strict
    extra = with_tool_extra({}, tool, WIRE, losses)
    inner = extra.pop("function", None)
    return dumps(
        {"type": "function", "function": {**own, **(fields(inner) if isinstance(inner, msgspec.Raw) else {})}, **extra}
    )


def _marked(data: bytes, ttl: str | None) -> bytes:
    return data if ttl is None else data[:-1] + control_mark(ttl) + b"}"


def _head(ask: Ask, quirks: Quirks, offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Every field but tools and messages."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    if ask.stream and quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        body[quirks.output_field] = limit
    body |= controls.sampling(ask, quirks, losses)
    body |= controls.reasoning(ask, quirks, offered=offered, losses=losses)
    body |= controls.choice(ask, quirks, offered=offered, losses=losses)
    body |= controls.output_format(ask, quirks, losses)
    body |= _kept(ask, quirks, losses)
    return with_extra(body, ask, WIRE, NESTED, losses)


def _json_note(ask: Ask, head: dict[str, object], losses: list[Loss]) -> str:
    """JSON mode is refused unless somebody speaks of JSON (sheet 5); what is said later must not change the prompt."""
    if head.get("response_format") != {"type": "json_object"}:
        return ""
    first = ask.transcript.first
    opening = (ask.transcript.system or "") + (first.text if first else "")
    if "json" in opening.lower():
        return ""
    losses.append(Loss("added", "system prompt", "JSON mode is refused where nobody speaks of JSON; a sentence does"))
    return JSON_NOTE


def _kept(ask: Ask, quirks: Quirks, losses: list[Loss]) -> dict[str, object]:
    """What the provider is asked to keep: the answer, or the prompt in a cache."""
    body: dict[str, object] = {}
    if ask.state.mode != "replay":
        losses.append(Loss("degraded", f"state mode {ask.state.mode}", "this wire keeps no state; what is given is sent"))
    if ask.state.store:
        if quirks.store:
            body["store"] = True
        else:
            losses.append(Loss("dropped", "setting store", "this endpoint keeps nothing"))
    if ask.cache.key:
        if quirks.cache_key:
            body["prompt_cache_key"] = ask.cache.key
        else:
            losses.append(Loss("dropped", "cache key", "this endpoint has none"))
    if ask.cache.mode == "provider" and quirks.cache_provider and marks_move(quirks):
        body["cache_control"] = control_value(ask.cache.ttl)
    return body


def _marks(ask: Ask, fragments: list[Fragment], marked: tuple[int, ...], quirks: Quirks, losses: list[Loss]) -> Marks:
    """The cache marks. In the style of breakpoints only content takes them, and what moves is cached by itself (sheet 3)."""
    control = quirks.cache_style == "control"
    if ask.cache.mode in ("moving", "provider") and not marks_move(quirks):
        return Marks()
    marks = choose_marks(ask, fragments, marked, quirks, losses, TTLS[quirks.cache_style])
    if marks.tools and not control:
        losses.append(Loss("dropped", "cache marks", "tools take none; they are cached by themselves"))
        return msgspec.structs.replace(marks, tools={})
    return marks
