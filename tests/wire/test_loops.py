"""Tool loops: the turn we decode from one answer and send back is the one that the recorded client sent back.

Where the client sent less than it was given (it drops ids, reasoning, citations), what it sent must stand in ours, in that
order, to the byte. Three habits are the client's or the recorder's and count for nothing: an empty text that nobody said,
a null for a field that is not there, and quotes and dashes that the recorder rewrote in requests but not in streams.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest
from msgspec.structs import replace

from evener.transcript import Ask, Block, HostedBlock, Message, Reply, ToolResult
from evener.wire import assemble
from tests.corpus import Exchange, exchanges, needs_corpus, usual_recordings
from tests.wire.expect import Piece
from tests.wire.view import piece
from tests.wire.wires import WIRES, Wire

# The client itself altered what it was given: how, and in which files.
ALTERED = {
    "it puts the answer's id before call ids that come again": ("test_bedrock_mantle__test_reused_tool_call_ids",),
    "an older client answered by the item's id instead of the call's": ("test_openai_responses__test_openai_responses_stream",),
    "it rewrites what a tool search was asked for, or the namespace of what was found": (
        "test_tool_search__test_openai_hosted_tool_search_stateless_continuation",
        "test_tool_search__test_openai_native_tool_search",
    ),
    "it forgets what a hosted tool gave back": ("test_openai_responses__test_openai_responses_model_mcp_server_tool",),
    "it loads a tool by a call of its own in the same turn": (
        "test_tool_search__test_cross_provider_capability_replay-anthropic-claude-sonnet-4-5-openai-responses-gpt-5.4",
    ),
    "the test that was recorded rewrites history": (
        "test_openai_responses__test_openai_responses_thinking_with_modified_history",
    ),
}

# How many turns there are at least, so that nothing slips away unseen.
LEAST = {"anthropic_messages": 80, "openai_responses": 80}

QUOTES = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--"}


def plain(text: str) -> str:
    """A text as the recorder writes it into a request."""
    for sign, written in QUOTES.items():
        text = text.replace(sign, written)
    return unicodedata.normalize("NFKC", text)


def loops(wire: Wire) -> Iterator[tuple[Exchange, list[Exchange]]]:
    """Each answer, with the later requests of its file."""
    for _, group in groupby(exchanges(wire.name), key=lambda one: one.file):
        asked = [one for one in group if one.request is not None]
        yield from ((one, asked[place + 1 :]) for place, one in enumerate(asked) if one.status == 200)


def reply_to(wire: Wire, exchange: Exchange) -> Reply:
    if exchange.sse is None:
        return wire.codec.decode(json.dumps(exchange.response).encode(), wire.quirks(exchange))
    decoder = wire.codec.decoder(wire.quirks(exchange))
    return assemble([*decoder.feed(exchange.sse), *decoder.close()])


def answers(ask: Ask, reply: Reply) -> Iterator[Block]:
    """What the client sent back for the calls of a reply."""
    waiting = {call.id for call in reply.calls} | {block.opens for block in reply.blocks if isinstance(block, HostedBlock)}
    for block in (block for message in ask.transcript if message.role == "user" for block in message.blocks):
        match block:
            case ToolResult(call_id=id) | HostedBlock(closes=id) if id in waiting - {""}:
                waiting.remove(id)
                yield block
            case _:
                pass


def sent_back(wire: Wire, exchange: Exchange, reply: Reply, after: Sequence[Block]) -> list[list[Piece]]:
    """The assistant's turns when the answer, and what the client said to it, are added to the request."""
    ask, quirks = wire.ask(exchange), wire.quirks(exchange)
    asked = wire.codec.encode(ask, quirks, None)
    said = Message.from_assistant_response(reply, origin=ask.target, binding=asked.binding)
    longer = ask.transcript.extend([said, Message("user", tuple(after))] if after else [said])
    return wire.turns(json.loads(wire.codec.encode(replace(ask, transcript=longer), quirks, asked).body))


def signs(one: Piece) -> set[str]:
    """What a piece is recognised by."""
    sealed = (one.sealed.get(name) for name in ("id", "signature", "data", "encrypted_content", "tool_use_id"))
    return {plain(str(sign)) for sign in (one.id, one.text, *sealed) if sign}


def both(wire: Wire, exchange: Exchange, later: Sequence[Exchange]) -> tuple[list[Piece], list[Piece]] | None:
    """Their turn in the first later request that holds it, and ours; None when the client never sent it."""
    reply = reply_to(wire, exchange)
    known = {sign for block in reply.blocks for sign in signs(piece(wire.name, block))}
    place = len(sent_back(wire, exchange, reply, ())) - 1
    for one in later:
        turns = wire.turns(one.request or {})
        if 0 <= place < len(turns) and any(signs(theirs) & known for theirs in turns[place]):
            return turns[place], sent_back(wire, exchange, reply, tuple(answers(wire.ask(one), reply)))[place]
    return None


def within(theirs: Any, ours: Any) -> bool:
    """Whether all that they say we say, too: an object may lack fields, nothing may differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(name in ours and within(value, ours[name]) for name, value in theirs.items() if value is not None)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(within, theirs, ours))
    if isinstance(theirs, str) and isinstance(ours, str):
        return plain(theirs) == plain(ours)
    return type(theirs) is type(ours) and bool(theirs == ours)


def verdict(theirs: Sequence[Piece], ours: Sequence[Piece]) -> str:
    """exact, subset (less of ours, in the same order) or mismatch."""
    if list(theirs) == list(ours):
        return "exact"
    left = iter(ours)
    said = [one for one in theirs if one != Piece("text")]
    return "subset" if all(any(agrees(one, other) for other in left) for one in said) else "mismatch"


def agrees(theirs: Piece, ours: Piece) -> bool:
    """Whether their piece is ours, or less of it. Citations stand in the seal, too."""
    return all(within(getattr(theirs, name), getattr(ours, name)) for name in vars(theirs) if name != "cited")


def verdicts(wire: Wire) -> dict[str, str]:
    found = {exchange.id: both(wire, exchange, later) for exchange, later in loops(wire)}
    return {name: verdict(*turns) for name, turns in found.items() if turns}


@needs_corpus
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_turn_goes_back_as_the_recorded_client_sent_it(wire: Wire) -> None:
    found = verdicts(wire)
    print(f"\n{wire.name}: {len(found)} turns, {dict(Counter(found.values()))}")
    altered = tuple(name for names in ALTERED.values() for name in names)
    assert [name for name, said in found.items() if said == "mismatch" and not name.startswith(altered)] == []
    assert found


@usual_recordings
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_there_are_many_turns_to_compare(wire: Wire) -> None:
    assert len(verdicts(wire)) >= LEAST[wire.name]


@usual_recordings
def test_nothing_is_excused_that_agrees() -> None:
    mismatched = [name for wire in WIRES.values() for name, said in verdicts(wire).items() if said == "mismatch"]
    excused = [name for names in ALTERED.values() for name in names]
    assert [name for name in excused if not any(one.startswith(name) for one in mismatched)] == []


CALL = Piece("call", id="c1", name="look", arguments={"at": 1}, sealed={"id": "fc_1", "status": "completed"})
THOUGHT = Piece("reasoning", "Hm.", sealed={"signature": "S", "more": [{"x": None}]})
OURS = (THOUGHT, Piece("text", "I look."), CALL)


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (OURS, "exact"),
        ((), "subset"),
        ((Piece("text"), *OURS), "subset"),
        (OURS[1:], "subset"),
        ((THOUGHT, Piece("call", id="c1", name="look", arguments={"at": 1})), "subset"),
        ((Piece("reasoning", "Hm.", sealed={"signature": "S", "else": None}),), "subset"),
        ((CALL, THOUGHT), "mismatch"),
        ((*OURS, CALL), "mismatch"),
        ((Piece("text", "I looked."),), "mismatch"),
        ((Piece("call", id="c2", name="look", arguments={"at": 1}),), "mismatch"),
        ((Piece("call", id="c1", name="look", arguments={"at": 1.0}),), "mismatch"),
        ((Piece("reasoning", "Hm.", sealed={"signature": "T"}),), "mismatch"),
        ((Piece("reasoning", "Hm.", sealed={"signature": "S", "new": 1}),), "mismatch"),
    ],
)
def test_a_turn_that_was_altered_is_told_from_one_that_was_shortened(theirs: tuple[Piece, ...], said: str) -> None:
    assert verdict(theirs, OURS) == said
