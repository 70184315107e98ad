"""What the fake servers answer has the fields that recorded answers have, and no others."""

from collections.abc import Iterator

import pytest

from evener.testing import Call, FakeServer, Thinking, turn
from tests.corpus import exchanges, needs_corpus
from tests.testing.conversations import WIRES
from tests.testing.raw import Heard, ask

STREAMED = [False, True]
RECORDED = {"anthropic_messages": "anthropic", "openai_responses": "openai", "openai_chat": "openai", "gemini": "google"}
# The sheets say that newer models have these in streams, too; the recorded streams are of older ones.
NEWER = {"gemini": (".candidates[].content.parts[].functionCall.id", ".candidates[].finishMessage")}


def paths(value: object, path: str = "") -> Iterator[str]:
    """The path of every field within a JSON value, arguments of calls apart."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}"
            if name not in ("args", "input"):
                yield from paths(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{path}[]")


def shapes(wire: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """By type of event ("" for a whole answer): the fields that were ever recorded, and those that always were."""
    ever: dict[str, set[str]] = {}
    always: dict[str, set[str]] = {}
    for exchange in exchanges(wire):
        if exchange.provider != RECORDED[wire] or exchange.status != 200 or exchange.method != "POST":
            continue
        answers = Heard(200, {}, exchange.sse, "whole").events if exchange.sse else [exchange.response or {}]
        for answer in answers:
            kind = str(answer.get("type", "chunk")) if exchange.sse else ""
            found = set(paths(answer))
            ever[kind] = ever.get(kind, set()) | found
            always[kind] = always.get(kind, found) & found
    return ever, always


@needs_corpus
@pytest.mark.parametrize("streamed", STREAMED)
@pytest.mark.parametrize("wire", WIRES)
def test_answers_have_the_fields_of_recorded_ones_and_no_others(wire: str, streamed: bool) -> None:
    ever, always = shapes(wire)
    script = [turn(Thinking("Hm."), "Hello.", Call("f", {"x": 1}), Call("g")), turn("Hello.")]
    dialect = "openai" if wire == "openai_chat" else ""
    with FakeServer(wire, script, dialect=dialect) as server:
        heard = [ask(server, wire, streamed=streamed) for _ in script]
    for answer in (one for hearing in heard for one in (hearing.events if streamed else [hearing.json])):
        kind = str(answer.get("type", "chunk")) if streamed else ""
        assert sorted(set(paths(answer)) - ever[kind] - set(NEWER.get(wire, ()))) == []
        assert sorted(always[kind] - set(paths(answer))) == []
