"""An Ask as an Anthropic Messages request. Pure: the same ask gives the same bytes, with or without `prior`."""

from collections.abc import Iterator
from functools import partial

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.transcript.repair import RepairRules
from evener.wire.anthropic_messages import controls
from evener.wire.anthropic_messages.blocks import WIRE, render
from evener.wire.anthropic_messages.inputs import fit_names
from evener.wire.codec import Encoded, Frame
from evener.wire.dialects import ANTHROPIC_PLAIN, ANTHROPIC_STRICT
from evener.wire.enforced import declared_schema
from evener.wire.fold import Fold, Render, extended, joined, started
from evener.wire.marks import Marks, Wanted, choose_marks, control_mark, control_value, drawn, wanted_marks, with_control
from evener.wire.page import Page
from evener.wire.quirks import Quirks
from evener.wire.request import (
    TYPED,
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
    path_of,
    with_extra,
    without_messages,
)
from evener.wire.text import dict_of, dumps, fields, with_tool_extra

__all__ = ["encode"]

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
    start: Fold
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


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: Source) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, _tool, partial(_part, ask=ask, quirks=quirks))
    losses = [*frame.losses, *_unsealed(ask, quirks)]
    mute, leads = controls.why_mute(ask, quirks), controls.must_lead(ask, quirks)
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


_fixed = Kept(_Fixed, _fix)


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
    own = Page(ask, quirks, b"").unsealed(block)
    return dumps({**own, "type": "text", "text": block.text}) if block.text.strip() else b""


def _unsealed(ask: Ask, quirks: Quirks) -> list[Loss]:
    """What stays behind of the fields on the system prompt."""
    page = Page(ask, quirks, b"")
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
    body["max_tokens"] = controls.output_tokens(ask, quirks, losses)
    if quirks.model_in_body:
        body["stream"] = ask.stream  # where the model is in the path, so is streaming (sheet 16)
    thought = controls.thinking(ask, quirks, losses)
    thinks = "budget_tokens" in dict_of(thought.get("thinking"))
    if thinks and bare:
        losses.append(
            loss_of("dropped", "reasoning.mode", "the open tool calls were made without thinking; off for this request")
        )
        del thought["thinking"]
        thinks = False
    body |= controls.sampling(ask, quirks, thinks=thinks, losses=losses)
    body |= thought
    body |= controls.choice(ask, quirks, offered=any(frame.tools), thinks=thinks, losses=losses)
    config = {**dict_of(body.pop("output_config", None)), **controls.output_format(ask.output, quirks, losses)}
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
