"""An Ask as a Chat Completions request. Pure: the same ask gives the same bytes, with or without `prior`."""

from collections.abc import Callable
from functools import partial

import msgspec

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded, Frame
from evener.wire.dialects import OPENAI_PLAIN, OPENAI_STRICT
from evener.wire.enforced import declared_schema
from evener.wire.fold import Fold, Fragment, Render, extended, joined, started
from evener.wire.marks import (
    Marks,
    Wanted,
    automatic_marks,
    breakpoint_mark,
    choose_marks,
    control_mark,
    control_value,
    drawn,
    report_lifetime,
    wanted_marks,
    with_control,
)
from evener.wire.openai_chat import controls
from evener.wire.openai_chat.blocks import WIRE, render
from evener.wire.openai_chat.system import marks_move, system_messages
from evener.wire.openai_words import legal_key
from evener.wire.quirks import Quirks
from evener.wire.request import (
    Address,
    Fixed,
    Kept,
    Source,
    add_losses,
    as_function,
    bounded,
    declared_name,
    drafted,
    frame_of,
    headers_of,
    hosted_tool,
    names_of,
    output_limit,
    path_of,
    with_extra,
    without_messages,
)
from evener.wire.text import dumps, fields, with_tool_extra

__all__ = ["encode"]

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
    start: Fold
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
    fold = extended(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = drafted(fold, quirks)
    losses = list(fixed.losses)
    marks = _marks(fixed.wanted, fragments, marked, quirks, losses)
    messages = drawn(fragments, marks, _mark(quirks))
    note = _json_note(ask, losses) if fixed.json_mode else ""
    opening, system = fixed.opening, fixed.system
    if note or marks.tools != fixed.marks.tools or marks.system != fixed.marks.system:
        opening, system = _opening(fixed.head, fixed.frame, marks), _system(ask, quirks, marks, losses, note)
    else:
        losses += fixed.system_losses
    if messages or not system or quirks.first_user:
        bounded(messages, fragments, quirks, losses, prefill=quirks.prefill)
    add_losses(fold, fragments, losses)
    path, headers, names = fixed.address
    body = joined(opening, [*system, *messages], b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, "", fixed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: Source) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _tool, _part)
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    start = started((render, quirks, ask.target, ask.foreign_reasoning), rules, frame.seed)
    moved = ask.cache.mode in ("moving", "provider") and not marks_move(quirks)  # what moves is cached by itself (sheet 3)
    wanted = automatic_marks(ask) if moved else wanted_marks(ask, quirks, TTLS[quirks.cache_style])
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


_fixed = Kept(_Fixed, _fix)


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
    """One tool; empty when it does not go out."""
    if isinstance(tool, HostedTool):
        return hosted_tool(tool, WIRE, quirks, losses)
    if tool.free is not None and quirks.custom_tools:
        return _custom(tool, quirks, losses)
    tool = as_function(tool, losses)
    own: dict[str, object] = {"name": declared_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    own["parameters"], strict = declared_schema(tool, DIALECTS, quirks, losses)
    if strict is not None:
        own["strict"] = strict
    extra = with_tool_extra({}, tool, WIRE, losses)
    inner = extra.pop("function", None)
    return dumps(
        {"type": "function", "function": {**own, **(fields(inner) if isinstance(inner, msgspec.Raw) else {})}, **extra}
    )


def _free_tools(ask: Ask, quirks: Quirks) -> frozenset[str]:
    """The names of the tools that take free text."""
    if not quirks.custom_tools:
        return frozenset()
    return frozenset(tool.name for tool in ask.tools if isinstance(tool, ToolSpec) and tool.free is not None)


def _custom(tool: ToolSpec, quirks: Quirks, losses: list[Loss]) -> bytes:
    """A tool that takes free text."""
    free, tool = tool.free, as_function(msgspec.structs.replace(tool, free=None), losses)
    own: dict[str, object] = {"name": declared_name(tool, quirks, losses)}
    if tool.description:
        own["description"] = tool.description
    if free and free.grammar:
        grammar = {"definition": free.grammar, "syntax": free.syntax}
        own["format"] = {"type": "grammar", "grammar": grammar}
    extra = with_tool_extra({}, tool, WIRE, losses)
    inner = extra.pop("custom", None)
    return dumps({"type": "custom", "custom": {**own, **(fields(inner) if isinstance(inner, msgspec.Raw) else {})}, **extra})


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
    body |= controls.sampling(ask, quirks, losses)
    body |= controls.reasoning(ask, quirks, offered=offered, losses=losses)
    body |= controls.choice(ask, quirks, offered=offered, losses=losses)
    body |= controls.output_format(ask, quirks, losses)
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
            body["prompt_cache_key"] = legal_key(ask, losses)
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
