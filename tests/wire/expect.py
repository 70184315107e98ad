"""What an answer says, read from its raw JSON or event stream. Knows nothing of our codecs: that is what it is worth.

One reader a wire. Each gives the same simple form, an Answer of Pieces, which `tests/wire/view.py` also makes of a Reply.
The same piece readers take the assistant's turn out of a recorded request.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Counts = tuple[int, int, int, int, int, int]
"""Input in all, uncached, read from the cache, written to it; output in all, reasoning."""


@dataclass(frozen=True)
class Piece:
    """One block of an answer. `sealed` is every field the provider put on it that has no neutral word.

    `arguments` is the JSON text of a call's arguments where the wire has a text, else their value. A piece that only its
    provider understands is `hosted`, all of it in `sealed`.
    """

    kind: str
    text: str = ""
    id: str = ""
    name: str = ""
    arguments: Any = None
    sealed: Json = field(default_factory=dict)
    cited: tuple[tuple[str, str, str, int, int], ...] = ()


@dataclass(frozen=True)
class Answer:
    """One answer. `stop` is our word and the provider's; `shown` is what the deltas of each piece add up to, streams only."""

    id: str
    model: str
    pieces: tuple[Piece, ...]
    stop: tuple[str, str]
    usage: Counts
    shown: tuple[str, ...] = ()


def events(stream: bytes) -> list[Json]:
    """The events of a recorded stream. Plain: recorded streams have no comments and one data line each."""
    blocks = stream.decode().replace("\r\n", "\n").split("\n\n")
    data = [line[5:].strip() for block in blocks for line in block.split("\n") if line.startswith("data:")]
    return [json.loads(text) for text in data if text != "[DONE]"]


def without(own: Json, *names: str) -> Json:
    """The fields that are neither named nor null."""
    return {name: value for name, value in own.items() if name not in names and value is not None}


# Anthropic Messages.

ANTHROPIC_STOPS = {
    "end_turn": "done",
    "tool_use": "tools",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "pause_turn": "paused",
    "refusal": "refusal",
}


def anthropic_whole(message: Json) -> Answer:
    """A message as its JSON states it."""
    usage = message["usage"]
    parts = (usage["input_tokens"], usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0)
    thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    return Answer(
        message["id"],
        message["model"],
        tuple(anthropic_piece(block) for block in message["content"]),
        (ANTHROPIC_STOPS[message["stop_reason"]], message["stop_reason"]),
        (sum(parts), *parts, usage["output_tokens"], thought),
    )


def anthropic_piece(block: Json) -> Piece:
    """One content block."""
    match block["type"]:
        case "text":
            cited = block.get("citations") or []
            sealed = without({**block, "citations": cited or None}, "type", "text")
            return Piece("text", block["text"], sealed=sealed, cited=tuple(_anthropic_citation(one) for one in cited))
        case "thinking":
            return Piece("reasoning", block["thinking"], sealed=without(block, "type", "thinking"))
        case "redacted_thinking":
            return Piece("reasoning", sealed=without(block, "type"))
        case "tool_use":
            sealed = without(block, "type", "id", "name", "input")
            return Piece("call", id=block["id"], name=block["name"], arguments=block["input"], sealed=sealed)
        case _:
            return Piece("hosted", sealed=block)


def _anthropic_citation(one: Json) -> tuple[str, str, str, int, int]:
    title = one.get("title") or one.get("document_title") or ""
    return one.get("url") or "", title, one["cited_text"], one.get("start_char_index", -1), one.get("end_char_index", -1)


def anthropic_turns(body: Json) -> list[list[Piece]]:
    """What the assistant says in a request, turn by turn: consecutive messages are one turn. Cache marks aside."""
    turns: list[list[Piece]] = []
    before = ""
    for message in body["messages"]:
        if message["role"] == "assistant":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            turns += [[]] if before != "assistant" else []
            turns[-1] += (anthropic_piece(without(block, "cache_control")) for block in blocks)
        before = message["role"]
    return turns


def anthropic_streamed(stream: bytes) -> Answer:
    """A message put together from its events by the sheet's rules: append texts, assign signatures, overwrite counts."""
    message: Json = {}
    texts: dict[int, str] = {}
    for event in events(stream):
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
                texts[event["index"]] = ""
            case "content_block_delta":
                texts[event["index"]] += _anthropic_delta(message["content"][event["index"]], event["delta"])
            case "content_block_stop":
                block = message["content"][event["index"]]
                if "input" in block and texts[event["index"]]:
                    block["input"] = json.loads(texts[event["index"]])
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case kind:
                assert kind in ("ping", "message_stop"), kind
    whole = anthropic_whole(message)
    shown = [text for number, text in texts.items() if whole.pieces[number].kind != "hosted"]
    return Answer(whole.id, whole.model, whole.pieces, whole.stop, whole.usage, tuple(shown))


def _anthropic_delta(block: Json, delta: Json) -> str:
    """Add a delta to its block; what of it a reader would be shown."""
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
            return str(delta["text"])
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
            return str(delta["thinking"])
        case "input_json_delta":
            return str(delta["partial_json"])
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "signature_delta" | "compaction_delta":
            block |= without(delta, "type")
        case kind:
            raise AssertionError(kind)
    return ""


# OpenAI Responses.


def responses_whole(response: Json) -> Answer:
    """A response as its JSON states it. A compaction has neither model nor status."""
    usage = response.get("usage") or {"input_tokens": 0, "output_tokens": 0}
    total, output = usage["input_tokens"], usage["output_tokens"]
    details = usage.get("input_tokens_details") or {}
    read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    return Answer(
        response["id"],
        response.get("model") or "",
        tuple(piece for item in response["output"] for piece in responses_pieces(item)),
        _responses_stop(response),
        (total, total - read - written, read, written, output, thought),
    )


def _responses_stop(response: Json) -> tuple[str, str]:
    if response["object"] == "response.compaction":
        return "compacted", response["object"]
    status = response.get("status") or "completed"
    if status == "completed":
        return ("tools" if any(item["type"] == "function_call" for item in response["output"]) else "done"), status
    return {"queued": "pending", "in_progress": "pending"}[status], status


def responses_pieces(item: Json) -> Iterator[Piece]:
    """The pieces of one item: an assistant's message has one for each part."""
    match item.get("type", "message"):
        case "message" if item["role"] == "assistant":
            own = without(item, "type", "role", "content")
            content = item["content"]
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
            yield from (_responses_text(part, own) for part in parts)
        case "reasoning":
            texts = [part["text"] for part in (*item["summary"], *(item.get("content") or ()))]
            sealed = without(item, "type", *(("summary",) if _is_closed(item) else ()))
            yield Piece("reasoning", "\n\n".join(texts), sealed=sealed)
        case "function_call":
            sealed = without(item, "type", "call_id", "name", "arguments")
            yield Piece("call", id=item["call_id"], name=item["name"], arguments=item["arguments"], sealed=sealed)
        case _:
            yield Piece("hosted", sealed=item)


def _is_closed(item: Json) -> bool:
    return bool(item.get("encrypted_content") and not item.get("content"))


def _responses_text(part: Json, own: Json) -> Piece:
    if part["type"] == "refusal":
        return Piece("text", part["refusal"], sealed=own | without(part, "refusal"))
    cited = part.get("annotations") or []
    sealed = own | without({**part, "annotations": cited or None}, "type", "text", "logprobs")
    return Piece("text", part["text"], sealed=sealed, cited=tuple(_responses_citation(one) for one in cited))


def _responses_citation(one: Json) -> tuple[str, str, str, int, int]:
    title = one.get("title") or one.get("filename") or ""
    return one.get("url") or "", title, "", one.get("start_index", -1), one.get("end_index", -1)


def responses_turns(body: Json) -> list[list[Piece]]:
    """What the assistant says in a request, turn by turn: the items between two of the client's.

    Some clients send back the summary of encrypted reasoning, and we do not (S0.26): it counts for nothing.
    """
    turns: list[list[Piece]] = []
    before = False
    for item in body["input"] if isinstance(body["input"], list) else ():
        kind, role = item.get("type", "message"), item.get("role", "assistant")
        said = role == "assistant" and (not kind.endswith("_output") or item.get("execution") == "server")
        if said:
            turns += [[]] if not before else []
            turns[-1] += responses_pieces({**item, "summary": []} if kind == "reasoning" and _is_closed(item) else item)
        before = said
    return turns


RESPONSES_TEXTS = (
    "response.output_text.delta",
    "response.function_call_arguments.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
)


def responses_streamed(stream: bytes) -> Answer:
    """The finished items in their order, and the rest from the last event; beside it, what the deltas add up to.

    The last event repeats the items, but with new ciphers and, on one clone, new ids: those of `output_item.done` count.
    """
    seen = events(stream)
    last = seen[-1]
    assert last["type"] == "response.completed", last["type"]
    done = {event["output_index"]: event["item"] for event in seen if event["type"] == "response.output_item.done"}
    items = [done[number] for number in sorted(done)]
    assert [_plain(item) for item in items] == [_plain(item) for item in last["response"]["output"]]
    whole = responses_whole({**last["response"], "output": items})
    return Answer(whole.id, whole.model, whole.pieces, whole.stop, whole.usage, tuple(_responses_shown(seen, items)))


def _plain(item: Json) -> Json:
    return without(item, "encrypted_content", "id")


def _responses_shown(seen: Iterable[Json], items: list[Json]) -> Iterator[str]:
    """The joined deltas of each piece but the hosted ones. Parts of a summary are apart by a blank line."""
    texts: dict[tuple[int, int], list[str]] = {}
    for event in seen:
        if event["type"] not in RESPONSES_TEXTS:
            continue
        part, place = event["summary_index"] if "summary_index" in event else event.get("content_index") or 0, 0
        if "reasoning" not in event["type"]:
            part, place = 0, part
        parts = texts.setdefault((event["output_index"], place), [])
        parts += [""] * (part + 1 - len(parts))
        parts[part] += event["delta"]
    for number, item in enumerate(items):
        for place, piece in enumerate(responses_pieces(item)):
            if piece.kind != "hosted":
                yield "\n\n".join(texts.get((number, place), [""]))
