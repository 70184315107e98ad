"""Recorded requests: read and written again they are the same request, or a Loss says what is not.

"The same" is after `normal.py`, which only writes out what the API takes as said. Real rows are in force.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from evener.transcript.loss import CODES
from evener.wire import Encoded, Quirks
from tests.corpus import Exchange, needs_corpus
from tests.wire import normal, strict
from tests.wire.normal import text_of
from tests.wire.wires import WIRES, Wire

SHARE = 0.99
"""Of the requests of a wire, at least this many come back the same when no row interferes."""


def again(wire: Wire, exchange: Exchange, quirks: Quirks) -> tuple[bool, Encoded]:
    """The request, read and written, and whether it is the same."""
    body = json.dumps(exchange.request).encode()
    encoded = wire.codec.encode(wire.codec.read_request(body, quirks, wire.target(exchange)), quirks, None)
    same = text_of(wire.normal(json.loads(encoded.body))) == text_of(wire.normal(exchange.request or {}))
    return same, encoded


@needs_corpus
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_requests_come_back_the_same_or_a_loss_says_why_not(wire: Wire) -> None:
    found = {one.id: again(wire, one, wire.plain(one)) for one in wire.requests()}
    differ = {name: encoded.losses for name, (same, encoded) in found.items() if not same}
    print(f"\n{wire.name}: {len(found) - len(differ)} of {len(found)} requests are the same")
    for name, losses in differ.items():
        print(f"  {name}: {'; '.join(map(str, losses))}")
    assert [name for name, losses in differ.items() if not losses] == []
    assert len(differ) <= len(found) * (1 - SHARE)


@needs_corpus
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_with_rows_in_force_what_was_answered_is_sent_as_it_was(wire: Wire) -> None:
    for exchange in wire.requests():
        same, encoded = again(wire, exchange, wire.quirks(exchange))
        assert same or encoded.losses, exchange.id
        if exchange.status == 200:
            assert same, (exchange.id, [*map(str, encoded.losses)])
            assert {loss.kind for loss in encoded.losses} <= {"repaired"}, exchange.id


@needs_corpus
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_read_and_written_again_nothing_more_changes(wire: Wire) -> None:
    for exchange in wire.requests():
        quirks, target = wire.quirks(exchange), wire.target(exchange)
        once = wire.codec.encode(wire.ask(exchange), quirks, None)
        twice = wire.codec.encode(wire.codec.read_request(once.body, quirks, target), quirks, None)
        assert text_of(wire.normal(json.loads(twice.body))) == text_of(wire.normal(json.loads(once.body))), exchange.id
        assert twice.losses == (), exchange.id


# The normal form itself: it must not hide anything.

BODIES: dict[str, dict[str, Any]] = {
    "anthropic_messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "strict": True}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi."}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x", "is_error": True}]},
        ],
    },
    "openai_responses": {
        "model": "m",
        "store": False,
        "tools": [{"type": "function", "name": "look", "description": "Looks.", "parameters": {}, "strict": None}],
        "input": [
            {"role": "user", "content": "Hi."},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "E"},
            {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "Ho."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
        ],
    },
}


def with_one_change(value: Any) -> Iterator[Any]:
    """The value with one key removed, or one leaf changed, in every way."""
    if isinstance(value, dict):
        for key in value:
            yield {name: one for name, one in value.items() if name != key}
            yield from ({**value, key: one} for one in with_one_change(value[key]))
    elif isinstance(value, list):
        if value:
            yield value[:-1]
        for place, item in enumerate(value):
            yield from ([*value[:place], one, *value[place + 1 :]] for one in with_one_change(item))
    else:
        yield f"{value} and more"


@pytest.mark.parametrize("name", WIRES)
def test_the_normal_form_hides_no_change(name: str) -> None:
    wire, body = WIRES[name], BODIES[name]
    before = text_of(wire.normal(copy.deepcopy(body)))
    for changed in with_one_change(body):
        try:
            after = text_of(wire.normal(changed))
        except (KeyError, TypeError):
            continue  # not even a request any more
        assert after != before, changed


@pytest.mark.parametrize("name", WIRES)
def test_the_normal_form_is_its_own_and_leaves_the_body_alone(name: str) -> None:
    wire, body = WIRES[name], copy.deepcopy(BODIES[name])
    once = wire.normal(body)
    assert body == BODIES[name]
    assert text_of(wire.normal(copy.deepcopy(once))) == text_of(once)


def test_numbers_and_nulls_count() -> None:
    assert text_of({"a": 1}) != text_of({"a": 1.0})
    assert text_of(normal.responses({"input": [], "top_p": None})) != text_of(normal.responses({"input": []}))


# All wires, all rows.


@needs_corpus
def test_of_all_recorded_requests_nearly_all_come_back_and_of_the_rest_a_loss_with_its_code_tells() -> None:
    trips = [trip for wire in strict.NORMAL for trip in strict.trips(wire)]
    differ = [trip for trip in trips if not trip.same]
    assert len(differ) <= len(trips) * (1 - strict.BAR)
    assert [str(trip) for trip in differ if not any(loss.code in CODES for loss in trip.encoded.losses)] == []
