"""An Ask as an OpenAI Responses request. Pure: the same ask gives the same bytes, with or without `prior`."""

from functools import partial

import msgspec

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss
from evener.transcript.repair import RepairRules
from evener.wire.codec import Encoded
from evener.wire.fold import Fragment, Key, chained, extended, joined, opened, with_marks
from evener.wire.marks import Marks, choose_marks
from evener.wire.names import wire_name
from evener.wire.openai_responses import controls
from evener.wire.openai_responses.blocks import WIRE, render, system_item, text_seal
from evener.wire.quirks import Quirks
from evener.wire.request import frame_of, headers_of, marked_in, names_of, output_limit, path_of, with_extra
from evener.wire.text import dumps, fields, with_tool_extra

__all__ = ["encode"]

PATH = "/responses"
TTLS = ("30m", "12h")
NOTHING_SAID = b'{"role":"user","content":""}'


def encode(ask: Ask, quirks: Quirks, prior: Encoded | None = None) -> Encoded:
    """The request for this ask. `prior` is the last one of this conversation: it makes this one cheaper, never different."""
    frame = frame_of(ask, quirks, prior, _tool, _part)
    seed = chained(chained(b"evener", b",".join(frame.tools)), b",".join(frame.system))
    rules = RepairRules(past_elsewhere=ask.state.mode != "replay", unique_ids=quirks.unique_ids, merge=False)
    key = Key((quirks, ask.target, ask.state.store, ask.foreign_reasoning), rules, seed)
    draw = partial(render, ask=ask, quirks=quirks)
    fold = extended(prior.fold if prior else None, key, ask.transcript, draw)
    last = opened(fold, draw)
    losses = list(frame.losses)
    head = _head(ask, quirks, any(frame.tools), losses)
    fragments = [*fold.fragments, *((last,) if last else ())]
    marks = _marks(ask, fragments, marked_in(fold, last), quirks, losses)
    items = [data for data in _items(fragments, marks) if data]
    items[:0] = [dumps(system_item(block)) for block in ask.transcript.system_blocks if text_seal(block.seal).item]
    if not items and ask.state.mode == "replay":
        items.append(NOTHING_SAID)  # an empty input is rejected (sheet 2)
        losses.append(Loss("added", "user message", "an empty conversation is rejected; an empty message stands for it"))
    losses += (loss for fragment in fragments if fragment.losses for loss in fragment.losses)
    tools = b",".join(tool for tool in frame.tools if tool)
    opening = dumps(head)[:-1] + (b',"tools":[' + tools + b"]" if tools else b"")
    return Encoded(
        path=path_of(ask, quirks, PATH),
        headers=headers_of(ask, WIRE),
        body=joined(opening + b',"input":[', items, b"]}"),
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
        if tool.wire == WIRE and quirks.hosted:
            return tool.raw.encode()
        losses.append(Loss("dropped", f"hosted tool {tool.name}", "only its own provider can run it"))
        return b""
    own: dict[str, object] = {"type": "function", "name": wire_name(tool.name, quirks.name_length)}
    if own["name"] != tool.name:
        losses.append(Loss("renamed", f"tool {tool.name}", f"sent as {own['name']!r}"))
    if tool.description:
        own["description"] = tool.description
    own["parameters"] = msgspec.Raw(tool.schema.encode())
    if tool.strict and not quirks.strict:
        losses.append(Loss("dropped", f"strict on tool {tool.name}", "this endpoint does not enforce schemas"))
    # Left out, the API tries strict and may change the schema (sheet 4): say it.
    own["strict"] = bool(tool.strict) and quirks.strict
    return dumps(with_tool_extra(own, tool, WIRE, losses))


def _head(ask: Ask, quirks: Quirks, offered: bool, losses: list[Loss]) -> dict[str, object]:
    """Every field but tools and input."""
    body: dict[str, object] = {"model": ask.target.model} if quirks.model_in_body else {}
    body["stream"] = ask.stream
    instructions = [block.text for block in ask.transcript.system_blocks if not text_seal(block.seal).item]
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
    if ask.cache.key and quirks.cache_key:
        body["prompt_cache_key"] = ask.cache.key
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


def _items(fragments: list[Fragment], marks: Marks) -> list[bytes]:
    drawn = [fragment.data for fragment in fragments]
    for number, places in marks.fragments.items():
        drawn[number] = with_marks(drawn[number], [(place, _mark(ttl)) for place, ttl in places])
    return drawn


def _mark(ttl: str) -> bytes:
    value = {"mode": "explicit"} if ttl == "30m" else {"mode": "explicit", "ttl": ttl}
    return b',"prompt_cache_breakpoint":' + dumps(value)
