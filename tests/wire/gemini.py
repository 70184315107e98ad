"""Recorded Gemini traffic, read from the raw JSON: what an answer says, and when two requests mean the same.

Knows nothing of our codec: that is what it is worth. `normal` picks one of two spellings of one thing; it deletes no key:

    fields            in camel case, as in answers; requests may also spell them with underscores
    tools             a list, one tool an entry: the API also takes one object, and takes functions together or apart
    inlineData.data   in the standard alphabet of base64; the API also takes the one for URLs

Nothing else: order, ids, empty objects, unknown fields and the boundaries of contents all count. What is data is left
alone: arguments, responses, schemas, labels.
"""

import re
from collections.abc import Iterator
from typing import Any

from evener.transcript import DocumentBlock, ImageBlock, Inline, Reply, ToolCall
from tests.corpus import Exchange
from tests.wire.expect import Answer, Counts, Json, Piece, events, without
from tests.wire.view import piece, seen

ROWS = {"google": "google", "google_vertex": "google-vertex", "gateway": "google-vertex"}
"""The row that stands for each provider of the recordings; the gateway hands everything on to the cloud."""

STOPS = {"MAX_TOKENS": "length", "SAFETY": "refusal", "MODEL_ARMOR": "refusal"}
DATA = (
    *("args", "response", "labels"),
    *("parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"),
)
STAND_INS = ("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", "skip_thought_signature_validator")


def model_of(exchange: Exchange) -> str:
    """The model stands in the path."""
    found = re.search(r"/models/([^:/]+):", exchange.path)
    assert found, exchange.path
    return found[1]


# Answers.


def whole(response: Json) -> Answer:
    """An answer as its JSON states it."""
    return _answer([response])


def streamed(stream: bytes) -> Answer:
    """An answer put together from its chunks: parts one after the other, the last counts, the last finish reason."""
    return _answer(events(stream))


def _answer(chunks: list[Json]) -> Answer:
    candidates = [chunk["candidates"][0] for chunk in chunks if chunk.get("candidates")]
    parts = [part for one in candidates for part in (one.get("content") or {}).get("parts") or ()]
    pieces = list(_pieces(parts))
    for one in candidates:
        _cite(pieces, one.get("groundingMetadata") or {})
    usage = [chunk["usageMetadata"] for chunk in chunks if chunk.get("usageMetadata")][-1]
    return Answer(
        chunks[0].get("responseId") or "",
        chunks[0].get("modelVersion") or "",
        tuple(pieces),
        _stop(chunks, candidates, pieces),
        _counts(usage),
    )


def _counts(usage: Json) -> Counts:
    total = usage.get("promptTokenCount", 0) + usage.get("toolUsePromptTokenCount", 0)
    read, thought = usage.get("cachedContentTokenCount", 0), usage.get("thoughtsTokenCount", 0)
    return total, total - read, read, 0, usage.get("candidatesTokenCount", 0) + thought, thought


def _stop(chunks: list[Json], candidates: list[Json], pieces: list[Piece]) -> tuple[str, str]:
    reasons = [one["finishReason"] for one in candidates if one.get("finishReason")]
    if not reasons:
        return "refusal", chunks[0]["promptFeedback"]["blockReason"]
    if reasons[-1] in ("STOP", "UNEXPECTED_TOOL_CALL"):
        return ("tools" if any(piece.kind == "call" for piece in pieces) else "done"), reasons[-1]
    return STOPS[reasons[-1]], reasons[-1]


def _pieces(parts: list[Json]) -> Iterator[Piece]:
    """One piece a part; unsigned texts that follow one another are one text, and an empty one is nothing."""
    before: Piece | None = None
    for part in parts:
        here = _piece(part)
        if here.kind in ("text", "reasoning") and "thoughtSignature" not in here.sealed:
            if not here.text:
                continue
            if before and before.kind == here.kind and "thoughtSignature" not in before.sealed:
                before = Piece(here.kind, before.text + here.text, sealed=here.sealed)
                continue
        if before:
            yield before
        before = here
    if before:
        yield before


def _piece(part: Json) -> Piece:
    match part:
        case {"text": text}:
            return Piece("reasoning" if part.get("thought") else "text", text, sealed=without(part, "text"))
        case {"functionCall": {"name": name} as call}:
            sealed = without(part, "functionCall") | ({} if call.get("id") else {"functionCall": {"id": None}})
            return Piece("call", id=call.get("id", ""), name=name, arguments=call.get("args", {}), sealed=sealed)
        case {"inlineData": {"data": data, "mimeType": kind}}:
            return Piece("media", data, name=kind, sealed=without(part, "inlineData"))
        case _:
            return Piece("hosted", sealed=part)


def _cite(pieces: list[Piece], grounding: Json) -> None:
    """Add to texts what they rest on. Places count bytes of the whole text."""
    sources = [next(iter(one.values())) for one in grounding.get("groundingChunks") or ()]
    texts = [number for number, piece in enumerate(pieces) if piece.kind == "text"]
    said = "".join(pieces[number].text for number in texts).encode()
    for support in grounding.get("groundingSupports") or ():
        segment = support["segment"]
        first, last, quote = segment.get("startIndex", 0), segment["endIndex"], segment["text"]
        number, start, end = _at(pieces, texts, len(said[:first].decode(errors="replace")), quote)
        if said[first:last] != quote.encode():
            number, start, end = [at for at in texts if pieces[at].text][-1], -1, -1
        for source in (sources[index] for index in support["groundingChunkIndices"]):
            cited = (source.get("uri", ""), source.get("title") or source.get("fileSearchStore", ""), quote, start, end)
            old = pieces[number]
            pieces[number] = Piece(old.kind, old.text, sealed=old.sealed, cited=(*old.cited, cited))


def _at(pieces: list[Piece], texts: list[int], place: int, quote: str) -> tuple[int, int, int]:
    for number in texts:
        if place < len(pieces[number].text):
            return number, place, place + len(quote)
        place -= len(pieces[number].text)
    return texts[-1], -1, -1


def view(reply: Reply) -> Answer:
    """All that a reply says, in the same form. An id that the seal calls nobody's is ours, and left out."""
    plain = Reply(
        tuple(block for block in reply.blocks if not isinstance(block, ImageBlock | DocumentBlock)),
        *(reply.stop, reply.usage, reply.id, reply.model),
    )
    rest = iter(seen("gemini", plain).pieces)
    pieces = [_media(block) if isinstance(block, ImageBlock | DocumentBlock) else _given(next(rest)) for block in reply.blocks]
    return Answer(reply.id, reply.model, tuple(pieces), (reply.stop.reason, reply.stop.raw), seen("gemini", plain).usage)


def _media(block: ImageBlock | DocumentBlock) -> Piece:
    assert isinstance(block.source, Inline)
    sealed = piece("gemini", ToolCall("", "", seal=block.seal)).sealed
    return Piece("media", block.source.data, name=block.media_type, sealed=sealed)


def _given(one: Piece) -> Piece:
    bare = one.kind == "call" and one.sealed.get("functionCall") == {"id": None}
    return Piece(one.kind, one.text, "", one.name, one.arguments, one.sealed, one.cited) if bare else one


# Requests.


def camel(name: str) -> str:
    return re.sub("_([a-z0-9])", lambda found: found[1].upper(), name)


def normal(body: Json) -> Json:
    """A request in its normal form."""
    full: Json = _spelled(body)
    if "tools" in full:
        entries = full["tools"] if isinstance(full["tools"], list) else [full["tools"]]
        full["tools"] = [tool for entry in entries for tool in _apart(entry)]
    return full


def _apart(entry: Json) -> Iterator[Json]:
    for name, value in entry.items():
        if name == "functionDeclarations":
            yield from ({name: [one]} for one in value)
        else:
            yield {name: value}


def _spelled(value: Any, name: str = "") -> Any:
    if name in DATA:
        return value
    if isinstance(value, dict):
        spelled = {camel(key): _spelled(one, camel(key)) for key, one in value.items()}
        if name == "inlineData" and isinstance(spelled.get("data"), str):
            spelled["data"] = spelled["data"].translate(str.maketrans("-_", "+/"))
        return spelled
    return [_spelled(one, name) for one in value] if isinstance(value, list) else value


def turns(body: Json) -> list[list[Json]]:
    """The parts of each of the model's contents."""
    return [content["parts"] for content in normal(body)["contents"] if content.get("role") == "model"]
