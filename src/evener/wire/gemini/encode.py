"""An Ask as a Gemini request. Pure: the same ask gives the same bytes, with or without `prior`."""

from collections.abc import Sequence
from functools import partial

import msgspec

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded, Frame
from evener.wire.fold import Fragment, Key, chained, extended, joined, opened
from evener.wire.gemini import controls
from evener.wire.gemini.blocks import WIRE, render
from evener.wire.gemini.names import function_name
from evener.wire.gemini.parts import UNCITED, named_fields
from evener.wire.gemini.tools import offers, tool_part
from evener.wire.quirks import Quirks
from evener.wire.request import frame_of, headers_of, marked_in, names_of, path_of, with_extra
from evener.wire.text import dumps, fields

__all__ = ["encode"]

PATH = "/v1beta/models/{model}:generateContent"
STREAM_PATH = "/v1beta/models/{model}:streamGenerateContent"
EVENTS = "?alt=sse"
NOTHING_SAID = b'{"role":"user","parts":[{"text":""}]}'
NESTED = (
    *("generationConfig", "generationConfig.thinkingConfig"),
    *("toolConfig", "toolConfig.functionCallingConfig"),
    "systemInstruction",
)
"""Objects that we write and the caller may add to."""


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    frame = frame_of(ask, quirks, prior, tool_part, _part)
    seed = chained(chained(b"evener", b",".join(frame.tools)), b",".join(frame.system))
    rules = RepairRules(unique_ids=quirks.unique_ids, merge=quirks.merge_turns)
    key = Key((quirks, ask.target, ask.foreign_reasoning), rules, seed)
    draw = partial(render, ask=ask, quirks=quirks)
    fold = extended(prior.fold if prior else None, key, ask.transcript, draw)
    last = opened(fold)
    losses = list(frame.losses)
    fragments = [*fold.fragments, *((last,) if last else ())]
    head = _head(ask, quirks, frame, fragments, losses)
    _uncached(ask, marked_in(fold, last), losses)
    losses += (loss for fragment in fragments if fragment.losses for loss in fragment.losses)
    path = path_of(ask, quirks, STREAM_PATH if ask.stream else PATH)
    return Encoded(
        path=path + EVENTS if ask.stream and "?" not in path else path,
        headers=headers_of(ask, WIRE),
        body=joined(head + b'"contents":[', _contents(fragments, losses), b"]}"),
        losses=tuple(losses),
        binding=chained(fold.chain, last.data if last else b"").hex(),
        names=names_of(ask.tools, quirks, function_name),
        frame=frame,
        fold=fold,
    )


def _part(block: TextBlock) -> bytes:
    return dumps({"text": block.text}) if block.text else b""


def _head(ask: Ask, quirks: Quirks, frame: Frame, fragments: Sequence[Fragment], losses: list[Loss]) -> bytes:
    """The body up to the contents."""
    body: dict[str, object] = {}
    parts = [msgspec.Raw(part) for part in frame.system if part]
    if parts:
        body["systemInstruction"] = {"parts": parts}
    _report_system(ask, losses)
    tools, functions, hosted = offers(ask.tools, frame.tools, quirks, losses)
    if tools:
        body["tools"] = tools
    config = controls.choice(ask, quirks, functions=functions, losses=losses)
    if (functions and hosted and quirks.hosted_beside == "flag") or any("circulated" in one.traits for one in fragments):
        config["includeServerSideToolInvocations"] = True
    if config:
        body["toolConfig"] = config
    generation = controls.generation(ask, quirks, losses, functions=functions)
    if generation:
        body["generationConfig"] = generation
    body = with_extra(body, ask, WIRE, NESTED, losses)
    return dumps(body)[:-1] + (b"," if body else b"")


def _report_system(ask: Ask, losses: list[Loss]) -> None:
    """Say what of the system prompt does not go out: only words do."""
    for block in ask.transcript.system_blocks:
        if not block.text:
            losses.append(Loss("dropped", "system part", "it was empty"))
        if block.citations:
            losses.append(Loss("dropped", "citations", UNCITED))
        names = named_fields(fields(block.seal.data)) if block.seal else []
        if names:
            losses.append(Loss("dropped", "fields of the system prompt", f"{', '.join(names)}: this wire takes only words"))


def _uncached(ask: Ask, marked: Sequence[int], losses: list[Loss]) -> None:
    """What was asked for that this wire does not have: marks and keys for the cache, and state."""
    asked = [part.cache for part in ask.transcript.system_blocks]
    asked += (tool.cache for tool in ask.tools if isinstance(tool, ToolSpec))
    if ask.cache.mode != "off" and (marked or any(asked)):
        losses.append(Loss("dropped", "cache marks", "this wire takes none; caching is automatic"))
    if ask.cache.key:
        losses.append(Loss("dropped", "cache key", "this wire has none"))
    if ask.state.mode != "replay":
        losses.append(Loss("degraded", f"state mode {ask.state.mode}", "this wire keeps no state; what is given is sent"))
    if ask.state.store:
        losses.append(Loss("dropped", "setting store", "this wire keeps nothing"))


def _contents(fragments: Sequence[Fragment], losses: list[Loss]) -> list[bytes]:
    """The contents: there is at least one, and the first is the user's (sheet 2)."""
    contents = [fragment.data for fragment in fragments if fragment.data]
    first = next((fragment for fragment in fragments if fragment.data), None)
    if first is None or "assistant_first" in first.traits:
        losses.append(Loss("added", "user message", "a conversation must begin with the user; an empty text stands for it"))
        contents.insert(0, NOTHING_SAID)
    return contents
