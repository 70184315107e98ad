"""Moves recorded conversations between wires, whole or damaged, and walks one conversation over many hops.

Every request is judged by `check_request` and by the vendors' types, and everything that did not survive must be a Loss.
"""

import json
import random
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec.structs import replace

from evener.providers.rows import Rows, load_rows
from evener.testing import check_request
from evener.transcript import (
    Ask,
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    ReasoningBlock,
    Remote,
    Reply,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Transcript,
    Uploaded,
)
from evener.translate import origin, retarget
from evener.wire import CODECS, Encoded, Quirks, assemble
from tests.corpus import Exchange, exchanges
from tests.oracle import oracle_errors

# Who stands for a wire, and models of different habits: forced choice refused, prefix-bound, no sampling, no thinking ...
PROVIDERS = {
    "anthropic_messages": "anthropic",
    "openai_responses": "openai",
    "openai_chat": "openai-chat",
    "gemini": "google",
}
IN_PATH = re.compile(r"models/([^:/]+):")
UNUSABLE = {"not_a_completion", "error_in_stream", "compact"}
VENDORS = {"anthropic_messages": "anthropic", "openai_responses": "openai", "openai_chat": "openai", "gemini": "google"}
MODELS = {
    "anthropic_messages": (
        "claude-sonnet-4-5",
        "claude-opus-4-6",
        "claude-opus-4-8",
        "claude-sonnet-5",
        "claude-opus-5-5",
        "claude-fable-5-2",
    ),
    "openai_responses": ("gpt-4o", "gpt-5", "gpt-5.4", "gpt-6.1-sol", "o3"),
    "openai_chat": ("gpt-4o", "gpt-4.1"),
    "gemini": ("gemini-2.5-flash", "gemini-3-flash"),
}


@cache
def rows() -> Rows:
    return load_rows()


def wires() -> list[str]:
    return [wire for wire in PROVIDERS if wire in CODECS]


def quirks_of(wire: str, model: str) -> Quirks:
    return rows().quirks(PROVIDERS[wire], model)


def aimed(ask: Ask, wire: str, model: str) -> Ask:
    """The ask for another provider. Fields that only its old wire knows stay with it: they are not the conversation."""
    return retarget(ask, origin(rows().provider(PROVIDERS[wire]), model))


@dataclass(frozen=True)
class Recorded:
    """A conversation that a provider accepted: the wire's own maker, or an imitator whose words the maker's SDK lacks."""

    id: str
    ask: Ask
    makers: bool


@cache
def recorded(wire: str) -> tuple[Recorded, ...]:
    """The conversations of every request that was answered with a completion."""
    found = []
    for exchange in exchanges(wire):
        if exchange.request is not None and exchange.status == 200 and "not_a_completion" not in exchange.tags:
            found.append(Recorded(exchange.id, _read(wire, exchange), exchange.provider == VENDORS[wire]))
    return tuple(found)


def _read(wire: str, exchange: Exchange) -> Ask:
    pathed = IN_PATH.search(exchange.path)
    model = str((exchange.request or {}).get("model") or (pathed[1] if pathed else MODELS[wire][0]))
    maker = origin(rows().provider(PROVIDERS[wire]), model)
    return CODECS[wire].read_request(json.dumps(exchange.request).encode(), quirks_of(wire, model), maker)


@cache
def replies(wire: str) -> tuple[Reply, ...]:
    """Recorded answers of a wire."""
    codec = CODECS[wire]
    found = []
    for exchange in exchanges(wire):
        if exchange.provider != VENDORS[wire] or exchange.status != 200 or exchange.tags & UNUSABLE:
            continue
        if exchange.sse is not None:
            decoder = codec.decoder(Quirks())
            found.append(assemble([*decoder.feed(exchange.sse), *decoder.close()]))
        elif exchange.response is not None:
            found.append(codec.decode(json.dumps(exchange.response).encode(), Quirks()))
    return tuple(reply for reply in found if reply.stop.reason in ("done", "tools"))


# Judging.


def complaints(
    wire: str, encoded: Encoded, model: str, issued: dict[str, str] | None = None, *, typed: bool = True
) -> list[str]:
    """What the wire's API would refuse, and, with `typed`, the types of its maker's SDK."""
    body = json.loads(encoded.body)
    found = [f"{one.path}: {one.rule}: {one.message}" for one in check_request(wire, body, issued=issued, model=model)]
    return found + ([f"types: {error}" for error in oracle_errors(wire, body)] if typed else [])


def strings(value: object) -> Iterator[str]:
    """Every string in a body, those inside JSON texts and base64 excluded."""
    match value:
        case str():
            yield value
        case dict():
            for key, one in value.items():
                yield str(key)
                yield from strings(one)
        case list():
            for one in value:
                yield from strings(one)


def unaccounted(ask: Ask, encoded: Encoded) -> list[str]:
    """Blocks, and citations on them, that are neither in the request nor covered by a loss of their own."""
    said = "\0".join(strings(json.loads(encoded.body)))
    lost = Counter(loss.message.removesuffix("/results") for loss in encoded.losses)
    missing = []
    for message in ask.transcript:
        gone = [block for block in message.blocks if not _is_there(block, said)]
        if len(gone) > lost[message.id]:
            missing.append(f"{message.id}: {gone!r}"[:300])
        cited = [block for block in message.blocks if isinstance(block, TextBlock) and not _is_cited(block, said)]
        told = any(loss.message == message.id and loss.what in ("citations", "message") for loss in encoded.losses)
        if cited and not told and not gone:
            missing.append(f"{message.id}: citations of {cited!r}"[:300])
    return missing


def _is_there(block: Block, said: str) -> bool:
    match block:
        case TextBlock(text):
            return text.strip() in said or json.dumps(text.strip(), ensure_ascii=False)[1:-1] in said or _parsed(text) in said
        case ReasoningBlock(seal=seal):
            return seal is not None and all(one in said for one in strings(json.loads(seal.data)))
        case ToolCall(name=name):
            return name in said
        case ToolResult(content=content):
            return all(_is_there(one, said) for one in content)
        case HostedBlock(raw=raw):
            return all(one in said for one in strings(json.loads(raw)))
        case ImageBlock(source=source) | DocumentBlock(source=source):
            return _media_is_there(source, said)


def _media_is_there(source: Source, said: str) -> bool:
    match source:
        case Inline(data):
            return data[:60] in said or _plain(data)[:60] in said
        case Remote(url):
            return url in said
        case Uploaded(file_id):
            return file_id in said
        case Stored():
            return False


def _plain(data: str) -> str:
    """Base64 as text: a wire may want a text file that way."""
    return b64decode(data, validate=False).decode(errors="replace")


def _is_cited(block: TextBlock, said: str) -> bool:
    return all(any(fact in said for fact in (one.url, one.title, one.quote) if fact) for one in block.citations)


def _parsed(text: str) -> str:
    """The strings of a text that is JSON itself: a wire may want it as an object."""
    try:
        return "\0".join(strings(json.loads(text)))
    except ValueError:
        return text


# Damage.


def damaged(messages: Sequence[Message], rng: random.Random) -> list[Message]:
    """A history with one to four things broken."""
    broken = [replace(message, parent_id="") for message in messages]
    for _ in range(rng.randint(1, 4)):
        if broken:
            DAMAGES[rng.randrange(len(DAMAGES))](broken, rng)
    return broken


def _drop(messages: list[Message], rng: random.Random) -> None:
    messages.pop(rng.randrange(len(messages)))


def _duplicate(messages: list[Message], rng: random.Random) -> None:
    twin = rng.choice(messages)
    fresh = twin if rng.random() < 0.5 else replace(twin, id=f"{twin.id}-again")
    messages.insert(rng.randrange(len(messages) + 1), fresh)


def _swap(messages: list[Message], rng: random.Random) -> None:
    one, other = rng.randrange(len(messages)), rng.randrange(len(messages))
    messages[one], messages[other] = messages[other], messages[one]


def _blocks(messages: list[Message], rng: random.Random) -> tuple[int, list[Block]]:
    place = rng.randrange(len(messages))
    return place, list(messages[place].blocks)


def _drop_block(messages: list[Message], rng: random.Random) -> None:
    place, blocks = _blocks(messages, rng)
    if blocks:
        blocks.pop(rng.randrange(len(blocks)))
        messages[place] = replace(messages[place], blocks=tuple(blocks))


def _shuffle(messages: list[Message], rng: random.Random) -> None:
    place, blocks = _blocks(messages, rng)
    rng.shuffle(blocks)
    messages[place] = replace(messages[place], blocks=tuple(blocks))


def _empty_text(messages: list[Message], rng: random.Random) -> None:
    place, blocks = _blocks(messages, rng)
    blocks.insert(rng.randrange(len(blocks) + 1), TextBlock(rng.choice(("", " ", "\n\n"))))
    messages[place] = replace(messages[place], blocks=tuple(blocks))


def _foreign_ids(messages: list[Message], rng: random.Random) -> None:
    place, blocks = _blocks(messages, rng)
    strange = rng.choice(("", "call|1:x", "id with spaces", "ä" * 9, "x" * 200, "call.dot"))
    changed = [replace(block, id=strange) if isinstance(block, ToolCall) else block for block in blocks]
    messages[place] = replace(messages[place], blocks=tuple(changed))


def _bad_arguments(messages: list[Message], rng: random.Random) -> None:
    place, blocks = _blocks(messages, rng)
    strange = rng.choice(("", "{", "[1]", '"text"', "null", '{"a":'))
    changed = [replace(block, raw=strange) if isinstance(block, ToolCall) else block for block in blocks]
    messages[place] = replace(messages[place], blocks=tuple(changed))


def _other_role(messages: list[Message], rng: random.Random) -> None:
    place = rng.randrange(len(messages))
    role = rng.choice(("user", "assistant", "system"))
    messages[place] = Message(role, messages[place].blocks, id=messages[place].id, created_at=None)  # type: ignore[arg-type]


DAMAGES = (
    _drop,
    _duplicate,
    _swap,
    _drop_block,
    _shuffle,
    _empty_text,
    _foreign_ids,
    _bad_arguments,
    _other_role,
)


# Campaigns: each yields what went wrong.


def moves(source: str, target: str) -> Iterator[str]:
    """Every recorded conversation of one wire on another."""
    rng = random.Random(f"{source} {target}")
    for one in recorded(source):
        ask = one.ask if source == target else aimed(one.ask, target, rng.choice(MODELS[target]))
        yield from _judged(one.id, ask, target, whole=True, typed=source != target or one.makers)


def damaged_moves(source: str, target: str, count: int, seed: int) -> Iterator[str]:
    """Recorded conversations of one wire, damaged, on another."""
    rng = random.Random(seed)
    for number in range(count):
        one = rng.choice([one for one in recorded(source) if source != target or one.makers])
        history = Transcript(damaged(list(one.ask.transcript), rng), one.ask.transcript.system_blocks)
        ask = replace(one.ask, transcript=history)
        if source != target:
            ask = aimed(ask, target, rng.choice(MODELS[target]))
        yield from _judged(f"{one.id} (damage {seed}/{number})", ask, target, whole=False, typed=source != target or one.makers)


def _judged(id: str, ask: Ask, target: str, *, whole: bool, typed: bool) -> Iterator[str]:
    encoded = CODECS[target].encode(ask, quirks_of(target, ask.target.model), None)
    for complaint in complaints(target, encoded, ask.target.model, typed=typed):
        yield f"{id} on {target} {ask.target.model}: {complaint}"
    if whole:
        for missing in unaccounted(ask, encoded):
            yield f"{id} on {target} {ask.target.model}: lost in silence: {missing}"


def walk(hops: int, seed: int) -> Iterator[str]:
    """One conversation that changes wire and model at random, with recorded answers and their seals."""
    rng = random.Random(seed)
    talk = Transcript([Message.user_text("Let us begin.")], system="Be brief.")
    issued: dict[str, str] = {}
    priors: dict[str, Encoded] = {}
    for hop in range(hops):
        wire = rng.choice(wires())
        model = rng.choice(MODELS[wire])
        ask = Ask(talk, origin(rows().provider(PROVIDERS[wire]), model))
        encoded = CODECS[wire].encode(ask, quirks_of(wire, model), priors.get(wire))
        if encoded.body != CODECS[wire].encode(ask, quirks_of(wire, model), None).body:
            yield f"walk {seed}, hop {hop}: {wire} gives other bytes with prior"
        priors[wire] = encoded
        # What a provider's own tools said goes back verbatim, and the SDK's types are narrower than that.
        typed = not any(isinstance(block, HostedBlock) and block.wire == wire for message in talk for block in message.blocks)
        for complaint in complaints(wire, encoded, model, issued if wire == "anthropic_messages" else None, typed=typed):
            yield f"walk {seed}, hop {hop} on {wire} {model}: {complaint}"
        for missing in unaccounted(ask, encoded):
            yield f"walk {seed}, hop {hop} on {wire} {model}: lost in silence: {missing}"
        reply = rng.choice(replies(wire))
        said = Message.from_assistant_response(reply, origin=ask.target, binding=encoded.binding)
        issued |= _signatures(said)
        talk = talk.extend([said, *_answers(said, hop)])


def _signatures(message: Message) -> dict[str, str]:
    found = {}
    for block in message.blocks:
        if isinstance(block, ReasoningBlock) and "signature" in block.metadata:
            found[str(block.metadata["signature"])] = block.text
    return found


def _answers(said: Message, hop: int) -> Iterable[Message]:
    for call in said.calls:
        yield Message.tool_result(call.id, f"result of hop {hop}", is_error=hop % 5 == 0)
    if not said.calls or hop % 3 == 0:
        yield Message.user_text(f"Go on, {hop}.")
