"""Every golden case, in every direction: encode, decode whole and streamed, any chunking, and the way back."""

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from evener.errors import EvenerError
from evener.testing import check_request
from evener.transcript import Message, Reply
from evener.transcript.delta import Delta, Failed
from evener.wire import assemble
from tests.each import each
from tests.golden.cases import FOLDER, Case, Json, cases, complaint, faults, told

FILES = {"ask.json", "request.json", "response.sse", "response.json", "reply.json", "error.json", "next.json"}

UNKNOWN = {"block.type", "item.type"}
"""What came from the provider goes back to it, also when nobody here has heard of it, our checks included."""


def deltas_of(case: Case, pieces: Iterable[bytes]) -> list[Delta]:
    decoder = case.codec.decoder(case.quirks)
    return [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.close()


def plain(deltas: Iterable[Delta]) -> list[object]:
    """Deltas that can be compared: of an error, what it says."""
    return [complaint(delta.error) if isinstance(delta, Failed) else delta for delta in deltas]


def understood(case: Case, *, streamed: bool) -> Reply:
    if streamed:
        return assemble(deltas_of(case, [case.bytes("response.sse")]))
    return case.codec.decode(case.bytes("response.json"), case.quirks)


def list_of(wire: str, body: Json) -> list[Any]:
    found: list[Any] = body[{"openai_responses": "input", "gemini": "contents"}.get(wire, "messages")]
    return found


@each("case", cases(*FILES))
def test_a_case_has_only_files_that_are_looked_at(case: Case) -> None:
    names = {path.name for path in case.folder.iterdir()}
    assert names <= FILES
    assert case.has("request.json") or case.has("reply.json") or case.has("error.json")


def test_every_folder_is_a_case_of_a_wire() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/*") if path.is_dir() and path.parent.name != "__pycache__"}
    assert {case.wire for case in cases(*FILES)} <= folders


@each("case", cases("ask.json"))
def test_an_ask_becomes_its_request_and_reports_its_losses(case: Case) -> None:
    """S1.4, S1.5, S3.27, S4.7."""
    encoded = case.codec.encode(case.ask, case.quirks, None)
    assert json.loads(encoded.body) == case.json("request.json")
    assert [f"{loss.kind} {loss.what}" for loss in encoded.losses] == case.json("ask.json").get("losses", [])
    assert case.codec.encode(case.ask, case.quirks, encoded).body == encoded.body


@each("case", cases("request.json"))
def test_a_request_is_read_back_to_itself_and_is_legal(case: Case) -> None:
    """S0.3."""
    request = case.json("request.json")
    assert check_request(case.wire, request, dialect=case.dialect) == []
    read = case.codec.read_request(case.bytes("request.json"), case.quirks, case.target)
    encoded = case.codec.encode(read, case.quirks, None)
    assert json.loads(encoded.body) == request
    assert encoded.losses == ()


ANSWERS = [*((case, True) for case in cases("response.sse")), *((case, False) for case in cases("response.json"))]


@pytest.mark.parametrize(
    ("case", "streamed"), ANSWERS, ids=[f"{case}-{'sse' if streamed else 'json'}" for case, streamed in ANSWERS]
)
def test_an_answer_is_understood(case: Case, streamed: bool) -> None:
    """S1.4, S1.5, S3.27, S4.7, S4.14."""
    if not case.has("error.json"):
        assert told(case.wire, understood(case, streamed=streamed)) == case.json("reply.json")
        return
    with pytest.raises(EvenerError) as caught:
        understood(case, streamed=streamed)
    assert complaint(caught.value) == case.json("error.json")


@each("case", cases("response.sse"))
def test_any_chunking_gives_the_same_deltas(case: Case) -> None:
    """S4.13."""
    stream = case.bytes("response.sse")
    whole = plain(deltas_of(case, [stream]))
    assert plain(deltas_of(case, (bytes((byte,)) for byte in stream))) == whole
    chance = random.Random(case.name)
    for count in (1, 2, 3, 10, 100):
        cuts = [0, *sorted(chance.sample(range(1, len(stream)), min(count, len(stream) - 1))), len(stream)]
        assert plain(deltas_of(case, (stream[start:end] for start, end in pairwise(cuts)))) == whole


@each("case", cases("next.json"))
def test_the_turn_goes_back_as_it_should(case: Case) -> None:
    """S1.4, S4.27."""
    asked = case.codec.encode(case.ask, case.quirks, None)
    reply = understood(case, streamed=case.has("response.sse"))
    message = Message.from_assistant_response(reply, origin=case.target, binding=asked.binding)
    longer = replace(case.ask, transcript=case.ask.transcript.append(message))
    encoded = case.codec.encode(longer, case.quirks, asked)
    assert [one for one in check_request(case.wire, encoded.body, dialect=case.dialect) if one.rule not in UNKNOWN] == []
    before = list_of(case.wire, json.loads(asked.body))
    after = list_of(case.wire, json.loads(encoded.body))
    assert after[: len(before)] == before
    assert after[len(before) :] == case.json("next.json")


@each(("wire", "fault"), [pytest.param(*one, id=f"{one[0]}-{one[1]['name']}") for one in faults()])
def test_a_fault_has_its_type(wire: str, fault: Json) -> None:
    body = fault["body"].encode() if isinstance(fault["body"], str) else json.dumps(fault["body"]).encode()
    error = Case(wire, "").codec.fault(fault["status"], fault.get("headers", {}), body)
    assert complaint(error) == {"status": fault["status"], **fault["becomes"]}
    assert str(error)
