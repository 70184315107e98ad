"""Recorded answers with a field of another type, and recorded streams that are cut before they say why they stopped.

CARRYING lists the fields that carry an answer: its text, the id, name and arguments of its calls, why it stopped, and what
routes them (types, numbers, ids of items, and what holds one of these). Every other field may have any JSON type, or be absent:
the text, the calls and the reason to stop are the same. A path has no numbers; one that begins with `*` fits wherever it ends.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from evener.errors import EvenerError
from evener.transcript import Reply
from evener.transcript.delta import Delta, Failed
from evener.wire import CODECS, Quirks, assemble
from tests.corpus import Exchange, exchanges
from tests.wire import chat, gemini
from tests.wire.wires import WIRES, rows

Path = tuple[str | int, ...]

CARRYING: dict[str, frozenset[str]] = {
    "anthropic_messages": frozenset(
        {
            *("*type", "*index", "*stop_reason"),
            *("content", "content.text", "content.id", "content.name", "content.input"),
            *("content_block", "content_block.text", "content_block.id", "content_block.name", "content_block.input"),
            *("delta", "delta.text", "delta.partial_json", "message", "message.content"),
        }
    ),
    "openai_chat": frozenset(
        {
            *("choices", "choices.index", "choices.finish_reason", "*type"),
            *("choices.message", "choices.message.content", "choices.message.content.text"),
            *("choices.delta", "choices.delta.content", "choices.delta.content.text"),
            *("*tool_calls", "*tool_calls.index", "*tool_calls.id", "*tool_calls.function"),
            *("*function.name", "*function.arguments", "*function_call", "*function_call.name", "*function_call.arguments"),
        }
    ),
    "openai_responses": frozenset(
        {
            *("*type", "status", "response.status", "*output_index", "*content_index", "*summary_index", "*item_id"),
            *("output", "response.output", "item"),
            *(f"{item}.{name}" for item in ("output", "response.output", "item") for name in ("content", "content.text")),
            *(f"{item}.{name}" for item in ("output", "response.output", "item") for name in ("call_id", "name", "arguments")),
            *("delta", "incomplete_details", "incomplete_details.reason"),
            *("response.incomplete_details", "response.incomplete_details.reason"),
        }
    ),
    "gemini": frozenset(
        {
            *("candidates", "candidates.index", "candidates.content", "candidates.content.parts", "candidates.finishReason"),
            *("*parts.text", "*parts.thought", "*parts.functionCall", "*functionCall.id", "*functionCall.name"),
            *("*functionCall.args", "promptFeedback", "promptFeedback.blockReason"),
        }
    ),
}
HOLDS = {"response": ("response.completed", "response.incomplete", "response.failed")}
"""A field that carries an answer in events of these types only."""
OURS = ("message", "function_call", "tool_use", "function", "output_text", "text", "refusal", "text_delta")
HOSTED = ("id", "name", "input", "call_id", "arguments", "content", "text")
"""These carry an answer in items and blocks of such types only: what the provider's own tools did may have any form."""
DEEP = ("content.input", "content_block.input", "functionCall.args")
"""What is a call's arguments as JSON: all that is in it carries, too."""

ABSENT = object()
OTHERS: tuple[object, ...] = (None, True, 7, -1.5, "swapped", ["swapped"], [], {"swapped": 1}, {}, ABSENT)
DONE = {
    "anthropic_messages": 'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "openai_chat": "data: [DONE]\n\n",
    "openai_responses": "data: [DONE]\n\n",
    "gemini": "",
}
"""The end mark of each wire, which says nothing of why an answer stopped."""


@dataclass(frozen=True)
class Recording:
    """A recorded answer: a JSON document, or the events of a stream (an event that is no JSON is a text)."""

    wire: str
    id: str
    quirks: Quirks
    events: tuple[Any, ...]
    streamed: bool

    def written(self, events: Iterable[Any]) -> bytes:
        """These events as they would have been sent."""
        if not self.streamed:
            return "".join(json.dumps(event) for event in events).encode()
        lines = (event if isinstance(event, str) else json.dumps(event) for event in events)
        return "".join(f"data: {line}\n\n" for line in lines).encode()

    def read(self, data: bytes) -> list[Delta] | Reply:
        """What our codec makes of the bytes."""
        codec = CODECS[self.wire]
        if not self.streamed:
            return codec.decode(data, self.quirks)
        decoder = codec.decoder(self.quirks)
        return decoder.feed(data) + decoder.close()


def _quirks(exchange: Exchange) -> Quirks:
    if exchange.wire == "openai_chat":
        return rows().quirks(chat.ROWS[exchange.provider], (exchange.request or {}).get("model", ""))
    if exchange.wire == "gemini":
        return rows().quirks(gemini.ROWS[exchange.provider], gemini.model_of(exchange))
    return WIRES[exchange.wire].quirks(exchange)


def _events(stream: bytes) -> Iterator[Any]:
    for line in stream.decode().split("\n"):
        if line.startswith("data:"):
            data = line[5:].strip()
            yield json.loads(data) if data.startswith("{") else data


@cache
def recordings(wire: str) -> tuple[Recording, ...]:
    """Every recorded answer of a wire that is one."""
    found = []
    for one in exchanges(wire):
        if one.status != 200 or (one.sse is None and one.response is None):
            continue
        events = tuple(_events(one.sse)) if one.sse is not None else (one.response,)
        recording = Recording(wire, one.id, _quirks(one), events, one.sse is not None)
        if isinstance(said(recording, recording.written(events)), tuple):
            found.append(recording)
    return tuple(found)


def said(recording: Recording, data: bytes) -> tuple[object, ...] | str:
    """Text, calls and reason to stop of an answer; an error as text. An id that was made up here is left out."""
    try:
        read = recording.read(data)
        reply = read if isinstance(read, Reply) else assemble(read)
    except EvenerError as error:
        return f"{type(error).__name__}: {error}"
    text = data.decode()
    calls = tuple((one.id if json.dumps(one.id) in text else "", one.name, json.loads(one.raw)) for one in reply.calls)
    return reply.text, calls, reply.stop.reason, reply.stop.raw


def carries(wire: str, path: Path, event: Any) -> bool:
    """Whether a field carries the answer."""
    names = ".".join(part for part in path if isinstance(part, str))
    holder = event
    for part in path[:-1]:
        holder = holder[part]
    if len(path) > 1 and path[-1] in HOSTED and holder.get("type", "message") not in OURS:
        return False
    if path[-1] == "role":  # whose words they are: a compaction hands back those of the user
        return bool(holder["role"] == "user")
    if names in HOLDS and isinstance(event, dict):
        return event.get("type") in HOLDS[names]
    listed = CARRYING[wire]
    inside = any(f".{deep}." in f".{names}." for deep in DEEP)
    return names in listed or inside or any(f"*{ending}" in listed for ending in _endings(names))


def _endings(names: str) -> Iterator[str]:
    parts = names.split(".")
    for place in range(len(parts)):
        yield ".".join(parts[place:])


def every_field(value: Any, here: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field in a document, and what stands there."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield (*here, name), one
            yield from every_field(one, (*here, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from every_field(one, (*here, number))


def _put(event: Any, path: Path, value: object) -> None:
    for part in path[:-1]:
        event = event[part]
    if value is ABSENT:
        del event[path[-1]]
    else:
        event[path[-1]] = deepcopy(value)


def swaps(recording: Recording) -> Iterator[tuple[str, object, list[tuple[int, Path]]]]:
    """The fields to swap: each name's first, middle and last place, and all its places at once; and each other type for it."""
    places: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    kinds: dict[tuple[str, str], set[type]] = {}
    for number, event in enumerate(recording.events):
        for path, value in every_field(event):
            if not carries(recording.wire, path, event):
                name = ".".join(part for part in path if isinstance(part, str))
                key = (str(event.get("type", "")), name)
                places.setdefault(key, []).append((number, path))
                kinds.setdefault(key, set()).add(type(value))
    for key, found in places.items():
        for other in OTHERS:
            if {type(other)} == kinds[key] and other is not ABSENT:
                continue
            sets = {(found[0],), (found[len(found) // 2],), (found[-1],), tuple(found)}
            for one in sorted(sets, key=str):
                yield " ".join(filter(None, key)), other, list(one)


def swapped(recording: Recording, value: object, places: list[tuple[int, Path]]) -> bytes:
    """The recording with this value in these places."""
    events = list(recording.events)
    for number in {number for number, _ in places}:
        events[number] = deepcopy(events[number])
    for number, path in reversed(places):
        _put(events[number], path, value)
    return recording.written(events)


def problems(recording: Recording, chosen: Callable[[int], bool] = lambda _: True) -> Iterator[str]:
    """What does not survive, of the swaps that are chosen by number. Yields an empty text for each that does."""
    expected = said(recording, recording.written(recording.events))
    for number, (name, value, places) in enumerate(swaps(recording)):
        if chosen(number):
            found = said(recording, swapped(recording, value, places))
            shown = "absent" if value is ABSENT else json.dumps(value)
            yield "" if found == expected else f"{recording.wire} {recording.id}: {name} = {shown}: {found}"[:600]


# Half answers.


def stops(wire: str, event: Any) -> bool:
    """Whether an event says why the answer stopped."""
    if not isinstance(event, dict):
        return False
    match wire:
        case "anthropic_messages":
            return bool(event["type"] == "message_delta")
        case "openai_chat":
            told = any(choice.get("finish_reason") for choice in event.get("choices") or ())
            return told or (not event.get("choices") and bool(event.get("usage")))
        case "openai_responses":
            return event["type"] in HOLDS["response"]
        case _:
            return any(one.get("finishReason") for one in event.get("candidates", ())) or "promptFeedback" in event


def cuts(recording: Recording) -> list[int]:
    """Where to cut a stream: before the event that says why it stopped, and at many places before that."""
    end = next(number for number, event in enumerate(recording.events) if stops(recording.wire, event))
    return sorted({*range(0, end, max(1, end // 20)), end})


def counted(recording: Recording, cut: int) -> str:
    """What is wrong with a stream that is cut there and closed by its end mark alone: nothing of it may count."""
    data = recording.written(recording.events[:cut]) + DONE[recording.wire].encode()
    deltas = recording.read(data)
    assert isinstance(deltas, list)
    last = deltas[-1]
    return "" if isinstance(last, Failed) else f"{recording.wire} {recording.id} cut at {cut} ended with {last}"
