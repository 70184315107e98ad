"""An Ask as a Gemini request. Pure: the same ask gives the same bytes, with or without `prior`."""

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.transcript.origin import Origin, Seal
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded, Frame
from evener.wire.fold import Fold, Fragment, Render, extended, joined, started
from evener.wire.gemini import controls
from evener.wire.gemini.blocks import WIRE, render
from evener.wire.gemini.names import function_name
from evener.wire.gemini.parts import UNCITED, named_fields, own_fields
from evener.wire.gemini.tools import offers, tool_part
from evener.wire.quirks import Quirks
from evener.wire.request import (
    Address,
    Fixed,
    Kept,
    Source,
    add_losses,
    drafted,
    frame_of,
    headers_of,
    names_of,
    path_of,
    with_extra,
    without_messages,
)
from evener.wire.text import dumps, fields

__all__ = ["encode"]

PATH = "/v1beta/models/{model}:generateContent"
STREAM_PATH = "/v1beta/models/{model}:streamGenerateContent"
EVENTS = "?alt=sse"
NOTHING_SAID = b'{"role":"user","parts":[{"text":""}]}'
CONTINUE = b'{"role":"user","parts":[{"text":"Continue."}]}'
NESTED = (
    *("generationConfig", "generationConfig.thinkingConfig"),
    *("toolConfig", "toolConfig.functionCallingConfig"),
    "systemInstruction",
)
"""Objects that we write and the caller may add to."""


class _Fixed(Fixed, frozen=True, eq=False):
    """What does not depend on the messages. `heads` are the body up to them, and its losses; the second is for requests in
    which the provider's own calls go back to it. `uncached` is what this wire cannot keep, without and with marks inside."""

    frame: Frame
    start: Fold
    draw: Render
    address: Address
    heads: tuple[bytes, bytes]
    losses: tuple[tuple[Loss, ...], tuple[Loss, ...]]
    uncached: tuple[tuple[Loss, ...], tuple[Loss, ...]]


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    fixed = _fixed.of(ask, quirks, prior)
    fold = extended(prior.fold if prior else None, fixed.start, ask.transcript, fixed.draw)
    fragments, marked = drafted(fold, quirks)
    circulated = "circulated" in fold.traits or (fold.open is not None and "circulated" in fragments[-1].traits)
    losses = [*fixed.losses[circulated], *fixed.uncached[bool(marked)]]
    add_losses(fold, fragments, losses)
    path, headers, names = fixed.address
    body = joined(fixed.heads[circulated], _contents(fragments, quirks, losses), b"]}")
    return Encoded(path, headers, body, tuple(losses), names, fixed.frame, fold, "", fixed)


def _fix(ask: Ask, quirks: Quirks, prior: Encoded | None, source: Source) -> _Fixed:
    ask = without_messages(ask)
    frame = frame_of(ask, quirks, prior, tool_part, partial(_part, target=ask.target))
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    start = started((render, quirks, ask.target, ask.foreign_reasoning), rules, frame.seed)
    lost: tuple[list[Loss], list[Loss]] = (list(frame.losses), list(frame.losses))
    heads = _head(ask, quirks, frame, False, lost[0]), _head(ask, quirks, frame, True, lost[1])
    losses = tuple(lost[0]), tuple(lost[1])
    uncached = tuple(_uncached(ask, marked=False)), tuple(_uncached(ask, marked=True))
    draw = partial(render, ask, quirks)
    return _Fixed(source, frame, start, draw, _addressed(ask, quirks), heads, losses, uncached)


_fixed = Kept(_Fixed, _fix)


def _addressed(ask: Ask, quirks: Quirks) -> Address:
    path = path_of(ask, quirks, STREAM_PATH if ask.stream else PATH)
    events = EVENTS if ask.stream and "?" not in path else ""
    return path + events, headers_of(ask, WIRE), names_of(ask.tools, quirks, function_name)


def _part(block: TextBlock, target: Origin) -> bytes:
    """A part of the system prompt, with what this provider put on it; empty when it says nothing."""
    own = own_fields(block.seal) if _is_of(block.seal, target) else {}
    return dumps({"text": block.text, **own}) if block.text else b""


def _is_of(seal: Seal | None, target: Origin) -> bool:
    return seal is not None and target.owns(seal.origin.wire, seal.origin.provider)


def _head(ask: Ask, quirks: Quirks, frame: Frame, circulated: bool, losses: list[Loss]) -> bytes:
    """The body up to the contents. `circulated`: the provider's own calls go back to it."""
    body: dict[str, object] = {}
    parts = [msgspec.Raw(part) for part in frame.system if part]
    if parts:
        body["systemInstruction"] = {"parts": parts}
    _report_system(ask, losses)
    tools, functions, hosted = offers(ask.tools, frame.tools, quirks, losses)
    if tools:
        body["tools"] = tools
    config = controls.choice(ask, quirks, functions=functions, losses=losses)
    if (functions and hosted and quirks.hosted_beside == "flag") or circulated:
        config["includeServerSideToolInvocations"] = True
    if config:
        body["toolConfig"] = config
    generation = controls.generation(ask, quirks, losses, functions=functions)
    if generation:
        body["generationConfig"] = generation
    body = with_extra(body, ask, WIRE, NESTED, losses)
    return dumps(body)[:-1] + (b',"contents":[' if body else b'"contents":[')


def _report_system(ask: Ask, losses: list[Loss]) -> None:
    """Say what of the system prompt does not go out: only words do."""
    for number, block in enumerate(ask.transcript.system_blocks):
        if not block.text:
            losses.append(loss_of("dropped", "system.part", "it was empty", at=f"{number}"))
        if block.citations:
            losses.append(loss_of("dropped", "system.citations", UNCITED, at=f"{number}/citations"))
        names = named_fields(fields(block.seal.data)) if block.seal else []
        if names and not _is_of(block.seal, ask.target):
            why = f"{', '.join(names)}: this wire takes only words"
            losses.append(loss_of("dropped", "system.fields", why, at=f"{number}/seal"))


def _uncached(ask: Ask, *, marked: bool) -> Iterator[Loss]:
    """What was asked for that this wire does not have: marks and keys for the cache, and state."""
    asked = [part.cache for part in ask.transcript.system_blocks]
    asked += (tool.cache for tool in ask.tools if isinstance(tool, ToolSpec))
    if ask.cache.mode != "off" and (marked or any(asked)):
        yield loss_of("dropped", "cache.mark", "this wire takes none; caching is automatic")
    if ask.cache.mode != "off" and ask.cache.ttl:
        yield loss_of("dropped", "cache.mark", "caching is automatic", at="ttl")
    if ask.cache.key:
        yield loss_of("dropped", "cache.key", "this wire has none")
    if ask.state.mode != "replay":
        yield loss_of("degraded", "state.mode", "this wire keeps no state; what is given is sent", name=ask.state.mode)
    if ask.state.store:
        yield loss_of("dropped", "state.store", "this wire keeps nothing")


def _contents(fragments: Sequence[Fragment], quirks: Quirks, losses: list[Loss]) -> list[bytes]:
    """The contents: there is at least one, and the first is the user's (sheet 2)."""
    contents = [fragment.data for fragment in fragments if fragment.data]
    if not contents or _is_begun_by_model(fragments):
        losses.append(
            loss_of("added", "message", "a conversation must begin with the user; an empty text stands for it", name="user")
        )
        contents.insert(0, NOTHING_SAID)
    last = next((fragment for fragment in reversed(fragments) if fragment.data), None)
    if not quirks.prefill and last is not None and "assistant_last" in last.traits:
        losses.append(loss_of("added", "message", "the history may not end with the model", name="user"))
        contents.append(CONTINUE)
    return contents


def _is_begun_by_model(fragments: Sequence[Fragment]) -> bool:
    for fragment in fragments:
        if fragment.data:
            return "assistant_first" in fragment.traits
    return False
