"""An Ask as an Anthropic Messages request. Pure: the same ask gives the same bytes, with or without `prior`."""

from functools import partial

import msgspec

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss
from evener.transcript.repair import RepairRules
from evener.wire.anthropic_messages import controls
from evener.wire.anthropic_messages.blocks import WIRE, render
from evener.wire.codec import Encoded, Frame
from evener.wire.fold import Fragment, Key, chained, extended, joined, opened, with_marks
from evener.wire.marks import Marks, choose_marks
from evener.wire.names import wire_name
from evener.wire.quirks import Quirks
from evener.wire.request import frame_of, headers_of, marked_in, names_of, output_limit, path_of, with_extra
from evener.wire.text import dict_of, dumps, with_tool_extra

__all__ = ["encode"]

PATH = "/v1/messages"
VERSION = "2023-06-01"
TTLS = ("5m", "1h")
BETAS = "anthropic-beta"
NOTHING_SAID = b'{"role":"user","content":"(nothing was said)"}'
CONTINUE = b'{"role":"user","content":"Continue."}'
BEGIN = b'{"role":"user","content":"(The conversation begins with the assistant.)"}'


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    frame = frame_of(ask, quirks, prior, _tool, _part)
    seed = chained(chained(b"evener", b",".join(frame.tools)), b",".join(frame.system))
    mute = controls.why_mute(ask, quirks)
    key = Key(
        (quirks, ask.target, mute, ask.foreign_reasoning), RepairRules(unique_ids=quirks.unique_ids, in_flight=True), seed
    )
    draw = partial(render, ask=ask, quirks=quirks, mute=mute)
    fold = extended(prior.fold if prior else None, key, ask.transcript, draw)
    last = opened(fold, draw)
    losses = list(frame.losses)
    head = _head(ask, quirks, last, any(frame.tools), losses)
    fragments = _latest([*fold.fragments, *((last,) if last else ())], quirks)
    marks = choose_marks(ask, fragments, marked_in(fold, last), quirks, losses, TTLS)
    messages = _messages(fragments, marks)
    _bounded(messages, fragments, quirks, losses, prefill=quirks.prefill and ask.output is None)
    losses += (loss for fragment in fragments if fragment.losses for loss in fragment.losses)
    version = () if quirks.version_in_body else (("anthropic-version", quirks.api_version or VERSION),)
    return Encoded(
        path=path_of(ask, quirks, PATH),
        headers=tuple(h for h in headers_of(ask, WIRE, *version) if h[0].lower() != BETAS or not quirks.betas_in_body),
        body=joined(_opening(head, frame, marks), messages, b"]}"),
        losses=tuple(losses),
        binding=chained(fold.chain, last.data if last else b"").hex(),
        names=names_of(ask.tools, quirks),
        frame=frame,
        fold=fold,
    )


def _part(block: TextBlock) -> bytes:
    return dumps({"type": "text", "text": block.text})


def _tool(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """One tool; empty when it does not go out."""
    if isinstance(tool, HostedTool):
        if tool.wire == WIRE and quirks.hosted:
            return tool.raw.encode()
        losses.append(Loss("dropped", f"hosted tool {tool.name}", "only its own provider can run it"))
        return b""
    own: dict[str, object] = {"name": wire_name(tool.name, quirks.name_length)}
    if own["name"] != tool.name:
        losses.append(Loss("renamed", f"tool {tool.name}", f"sent as {own['name']!r}"))
    if tool.description:
        own["description"] = tool.description
    own["input_schema"] = msgspec.Raw(tool.schema.encode())
    if tool.strict is not None and quirks.strict:
        own["strict"] = tool.strict
    elif tool.strict:
        losses.append(Loss("dropped", f"strict on tool {tool.name}", "this endpoint does not enforce schemas"))
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _head(ask: Ask, quirks: Quirks, last: Fragment | None, offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Every field but tools, system and messages."""
    limit = output_limit(ask, quirks, losses)
    limit = quirks.default_output if limit is None else limit
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    if quirks.version_in_body:
        body["anthropic_version"] = quirks.api_version
    body["max_tokens"] = limit
    if quirks.model_in_body:
        body["stream"] = ask.stream  # where the model is in the path, so is streaming (sheet 16)
    body |= controls.sampling(ask, quirks, losses)
    thought = controls.thinking(ask, quirks, limit, losses)
    thinks = "budget_tokens" in dict_of(thought.get("thinking"))
    if thinks and last and "bare_calls" in last.traits:
        losses.append(Loss("dropped", "reasoning", "the open tool calls were made without thinking; off for this request"))
        del thought["thinking"]
        thinks = False
    body |= thought
    body |= controls.choice(ask, quirks, offered=offered, thinks=thinks, losses=losses)
    config = {**dict_of(body.pop("output_config", None)), **controls.output_format(ask.output, quirks, losses)}
    if config:
        body["output_config"] = config
    if ask.cache.mode == "provider" and quirks.cache_provider:
        body["cache_control"] = mark_value(ask.cache.ttl)
    if ask.cache.key:
        losses.append(Loss("dropped", "cache key", "this wire has none"))
    if ask.state.mode != "replay":
        losses.append(Loss("degraded", f"state mode {ask.state.mode}", "this wire keeps no state; the conversation is sent"))
    betas = [value for extra in ask.extra if extra.wire == WIRE for name, value in extra.headers if name.lower() == BETAS]
    if quirks.betas_in_body and betas:
        body["anthropic_beta"] = [beta.strip() for value in betas for beta in value.split(",")]
    return with_extra(body, ask, WIRE, ("output_config",), losses)


def _latest(fragments: list[Fragment], quirks: Quirks) -> list[Fragment]:
    """With `latest`, thinking stays only in the turns since a person last spoke."""
    if quirks.thinking_replay != "latest":
        return fragments
    asked = [number for number, fragment in enumerate(fragments) if "asks" in fragment.traits]
    bound = asked[-1] + 1 if asked else 0
    return [(fragment.lean or fragment) if number < bound else fragment for number, fragment in enumerate(fragments)]


def _opening(head: dict[str, object], frame: Frame, marks: Marks) -> bytes:
    """The body up to the messages."""
    pieces = [dumps(head)[:-1]]
    tools = [_marked(data, marks.tools.get(number)) for number, data in enumerate(frame.tools) if data]
    if tools:
        pieces.append(b',"tools":[' + b",".join(tools) + b"]")
    system = [_marked(data, marks.system.get(number)) for number, data in enumerate(frame.system)]
    if len(system) == 1 and not marks.system:
        pieces.append(b',"system":' + system[0][len(b'{"type":"text","text":') : -1])
    elif system:
        pieces.append(b',"system":[' + b",".join(system) + b"]")
    return b"".join((*pieces, b',"messages":['))


def _messages(fragments: list[Fragment], marks: Marks) -> list[bytes]:
    drawn = [fragment.data for fragment in fragments]
    for number, places in marks.fragments.items():
        drawn[number] = with_marks(drawn[number], [(place, _mark(ttl)) for place, ttl in places])
    return drawn if all(drawn) else [data for data in drawn if data]


def _mark(ttl: str) -> bytes:
    return b',"cache_control":' + dumps(mark_value(ttl))


def mark_value(ttl: str) -> dict[str, object]:
    """A cache mark; five minutes is what the wire means when it says nothing."""
    return {"type": "ephemeral"} if ttl in ("", "5m") else {"type": "ephemeral", "ttl": ttl}


def _marked(data: bytes, ttl: str | None) -> bytes:
    return data if ttl is None else data[:-1] + _mark(ttl) + b"}"


def _bounded(messages: list[bytes], fragments: list[Fragment], quirks: Quirks, losses: list[Loss], *, prefill: bool) -> None:
    """See that the history begins and ends with whom the endpoint wants."""
    filled = [fragment for fragment in (*fragments[:1], *fragments[-1:]) if fragment.data]
    if not messages:
        messages.append(NOTHING_SAID)
        losses.append(Loss("added", "user message", "an empty conversation is rejected; a note stands for it"))
    if not filled:
        return
    if quirks.first_user and "assistant_first" in filled[0].traits:
        messages.insert(0, BEGIN)
        losses.append(Loss("added", "user message", "the history must begin with the user"))
    if not prefill and "assistant_last" in filled[-1].traits and "paused" not in filled[-1].traits:
        messages.append(CONTINUE)
        losses.append(Loss("added", "user message", "the history may not end with the assistant"))
