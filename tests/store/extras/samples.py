"""One event of each kind with every field filled, and secrets planted in any text of them."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import get_args
from urllib.parse import quote

import msgspec

from evener.events import (
    ApprovalAsked,
    ApprovalDecided,
    CallFinished,
    CallPaused,
    CallStarted,
    Cancelled,
    Compacted,
    CompactionFailed,
    Configured,
    ContextCut,
    ContextRestored,
    Continued,
    Event,
    Evicted,
    Finished,
    Imported,
    InnerQuestion,
    MediaFetched,
    ModelCalled,
    ModelFailed,
    Nested,
    Opened,
    Pinned,
    Prompted,
    Question,
    Replied,
    Resumed,
    Steered,
    encode_event,
)
from evener.store.redaction import fixed_fields
from evener.transcript import (
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Remote,
    Seal,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.ask import ToolSpec
from evener.transcript.loss import Loss
from evener.transcript.reply import Stop

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORIGIN = Origin("anthropic_messages", "somebody", "https://example.org", "some-model", "account")
SEAL = Seal('{"signature":"c2lnbmF0dXJl"}', ORIGIN, "f00d", "rs_1")
TEXT = TextBlock("words", (Citation("https://example.org", "a title", "a quote", 0, 5),), SEAL, "5m")
HOSTED = HostedBlock('{"type":"web_search","n":12}', "anthropic_messages", "searched", "assistant", "o1", "", "h1", "somebody")
ASKED = Question("c1", "d1", "because", "ask about all")

SAID = Message(
    "assistant",
    (
        TEXT,
        ReasoningBlock("thinking about it", SEAL),
        ToolCall("c1", "look", '{"path":"/a/b","n":12}', SEAL),
        HOSTED,
        ImageBlock(Inline("aGVsbG8="), "image/png", "low", SEAL),
        DocumentBlock(Remote("https://example.org/x"), "text/plain", "a name"),
        DocumentBlock(Uploaded("file_1", "gemini", "somebody")),
    ),
    "m1",
    "m0",
    WHEN,
    ORIGIN,
)
HEARD = Message("user", (TextBlock("a prompt"), ToolResult("c1", (TextBlock("a result"),), seal=SEAL)), "m2", "m1", WHEN)

EVENTS: tuple[Event, ...] = (
    Opened(at=1.0, thread="t", harness="h"),
    Configured(
        at=1.5,
        model="p:m",
        system=(TextBlock("be kind"),),
        tools=(ToolSpec("look", "looks", '{"type":"object","properties":{}}', extra='{"a":"b"}', wire="gemini"),),
    ),
    Imported(at=2.0, messages=(HEARD, SAID)),
    Prompted(at=3.0, run="r1", message=HEARD),
    Continued(at=4.0, run="r1"),
    Resumed(at=5.0, epoch=2),
    Steered(at=6.0, message=HEARD),
    ModelCalled(at=7.0, model="p:m", id="m3", notices=(("a key", "a notice"),)),
    Replied(
        at=8.0,
        message=SAID,
        stop=Stop("done", "end_turn", "a detail"),
        cost=Decimal("0.125"),
        losses=(Loss("dropped", "a thing", "for a reason", "m1"),),
        reply="resp_1",
        problems=("a problem",),
        output='{"answer":42}',
    ),
    ModelFailed(at=9.0, error="Overloaded", message="too much"),
    ApprovalAsked(at=10.0, id="a1", interrupt="tool", questions=(ASKED,)),
    ApprovalDecided(at=11.0, id="a1", key="c1", verdict="allow", why="fine", arguments='{"path":"/c"}', digest="d2", by="me"),
    CallStarted(at=12.0, call="c1", tool="look", key="k1", digest="d1", rule="allow look"),
    CallFinished(
        at=13.0,
        call="c1",
        ok=True,
        content=(TEXT, HOSTED, DocumentBlock(Stored("0" * 64, 5))),
        metadata='{"exit_code":0}',
        nested=Nested(requests=1, cost=Decimal("1.5")),
    ),
    CallPaused(at=14.0, call="c1", thread="t2", inner=(InnerQuestion("t2", "a2", "tool", ASKED, "look", '{"path":"/d"}'),)),
    MediaFetched(at=15.0, source="https://example.org/x", digest="1" * 64, media_type="image/png", size=3),
    Cancelled(at=16.0, why="enough"),
    Finished(at=17.0, run="r1", cause="done", detail="all done"),
    Evicted(at=18.0, id="e1", cuts=(ContextCut("m2", 1, "result", 0, "2" * 64, 9),), cause="gate", saved=5, head="m2"),
    Compacted(at=19.0, id="e2", summary=HEARD, until="m1", kept=("m0",), model="p:m", focus="the plan", head="m2"),
    CompactionFailed(at=20.0, detail="it said nothing", model="p:m", head="m2"),
    ContextRestored(at=21.0, id="e2"),
    Pinned(at=22.0, message="m1"),
)
assert {type(event) for event in EVENTS} == set(get_args(Event))

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "in an address": lambda secret: "https://x.example/?key=" + quote(secret, safe=""),
    "in JSON": lambda secret: json.dumps({"key": secret}),
    "in JSON in JSON": lambda secret: json.dumps({"said": json.dumps({"key": secret})}),
    "in base64": lambda secret: b64encode(f"user:{secret}".encode()).decode(),
    "in words": lambda secret: f"export KEY={secret}\nls -l",
}

Path = tuple[str | int, ...]


def texts_of(value: object, path: Path = ()) -> Iterator[Path]:
    """The places of all texts of an event that may be any text."""
    match value:
        case str() if not (path and any(step in fixed_fields() for step in path[-1:])):
            yield path
        case list():
            for number, item in enumerate(value):
                yield from texts_of(item, (*path, number))
        case dict():
            for key, item in value.items():
                yield from texts_of(item, (*path, key))


def planted(event: Event, place: int, shown: str) -> Event:
    """The event with a text in one of its places, however many it has: before what is there, or inside where that is JSON."""
    value = msgspec.json.decode(encode_event(event))
    places = [path for path in texts_of(value) if path not in (("thread",), ("parent",), ("parent_hash",))]
    if not places:
        return event
    *way, last = places[place % len(places)]
    holder = value
    for step in way:
        holder = holder[step]
    there = holder[last]
    holder[last] = json.dumps({**json.loads(there), "k": shown}) if there.startswith("{") else shown + there
    made: Event = msgspec.convert(value, Event)
    return made
