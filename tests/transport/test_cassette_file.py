"""The file of a cassette is readable, strict, and gives back all it was given."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.errors import BadDocument, TimedOut, TransportError
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.cassette.file import Broken, RecordedAnswer, RecordedExchange, dump_exchanges, load_exchanges
from evener.transport.cassette.match import as_json
from evener.transport.cassette.recorder import Player, Recorder
from evener.transport.exchange import Request
from tests.transport.cassette_steps import arriving, ask, told

EXCHANGES = [
    RecordedExchange(
        "POST",
        "https://api.example.org/v1/messages?beta=true",
        {"content-type": "application/json"},
        b'{"model":"m","n":1.50,"text":"gr\xc3\xbcn"}',
        RecordedAnswer(
            200, {"content-type": "text/event-stream"}, (b"event: ping\ndata: {}\n\n", b"data: gr\xc3", b"\xbcn\n\n")
        ),
        Broken("TruncatedStream", "The stream was cut."),
    ),
    RecordedExchange("GET", "/v1/models", {}, b"", None, Broken("TimedOut", "No answer in 3 s.")),
]
TEXT = r"""{
  "evener_cassette": 1,
  "request": {
    "method": "POST",
    "url": "https://api.example.org/v1/messages?beta=true",
    "headers": {
      "content-type": "application/json"
    },
    "json": {
      "model": "m",
      "n": 1.50,
      "text": "grün"
    }
  },
  "response": {
    "status": 200,
    "headers": {
      "content-type": "text/event-stream"
    },
    "pieces": [
      "event: ping\ndata: {}\n\n",
      {
        "base64": "ZGF0YTogZ3LD"
      },
      {
        "base64": "vG4KCg=="
      }
    ]
  },
  "error": {
    "kind": "TruncatedStream",
    "message": "The stream was cut."
  }
}
{
  "evener_cassette": 1,
  "request": {
    "method": "GET",
    "url": "/v1/models",
    "headers": {},
    "text": ""
  },
  "error": {
    "kind": "TimedOut",
    "message": "No answer in 3 s."
  }
}
"""


def test_a_cassette_can_be_read_by_people() -> None:
    assert dump_exchanges(EXCHANGES).decode() == TEXT


@pytest.mark.parametrize("piece", [b"\x00", b"\x1b[0m", b"\xff", b"\xc2\x9b", b"a\x7f"])
def test_a_piece_that_nobody_could_read_is_not_text(piece: bytes) -> None:
    exchange = RecordedExchange("GET", "/", {}, b"", RecordedAnswer(200, {}, (piece, b"\tplain\r\n")), None)
    pieces = json.loads(dump_exchanges([exchange]))["response"]["pieces"]
    assert pieces == [{"base64": b64encode(piece).decode()}, "\tplain\r\n"]


@pytest.mark.parametrize(
    "relaid", [lambda text: text, lambda text: "\n \t" + text.replace("\n", "\r\n"), lambda text: compact(text)]
)
def test_a_cassette_of_version_1_is_read_however_it_is_laid_out(relaid: Callable[[str], str]) -> None:
    first, second = load_exchanges(relaid(TEXT).encode(), "x")
    assert (first.answer, first.broken, second) == (EXCHANGES[0].answer, EXCHANGES[0].broken, EXCHANGES[1])
    assert json.loads(first.body) == json.loads(EXCHANGES[0].body)


def compact(text: str) -> str:
    documents = text.replace("}\n{", "}\n\0{").split("\0")
    return "\n".join(json.dumps(json.loads(document)) for document in documents)


def edited(old: str, new: str) -> bytes:
    assert old in TEXT
    return TEXT.replace(old, new).encode()


DAMAGE = {
    "empty": (b"", "The document is empty", ""),
    "cut": (TEXT[:500].encode(), r"x: exchange 1 \(line 1\): this is not JSON: .* in line \d+", ""),
    "cut later": (TEXT[:-20].encode(), r"x: exchange 2 \(line 35\): this is not JSON", ""),
    "words": (b"cassette", "this is not JSON", ""),
    "a list": (b"[]", "is not a recorded exchange", "[0]"),
    "other JSON": (b'{"evener": "transcript", "version": 1}', 'does not begin with {"evener_cassette": 1', "[0]"),
    "not UTF-8": (TEXT.encode("latin-1"), "is not UTF-8", "request.json.text"),
    "a byte order mark": (b"\xef\xbb\xbf" + TEXT.encode(), "byte order mark", ""),
    "newer": (edited('te": 1', 'te": 2, "new": 3'), r"version 2, and this .* Update Evener", "[0].evener_cassette"),
    "older": (edited('te": 1', 'te": 0'), "The first version is 1; correct it", "[0].evener_cassette"),
    "no number": (edited('te": 1', 'te": "1"'), "is not a recorded exchange", "[0]"),
    "an unknown key": (edited('"error"', '"fault"'), "unknown field `fault`", "[0]"),
    "an unknown key within": (edited('"status"', '"code": 1, "status"'), "unknown field `code`", "[0].response"),
    "a missing key": (edited('"status": 200,', ""), "missing required field `status`", "[0].response"),
    "a key that stands twice": (edited('"status"', '"status": 1, "status"'), "'status' stands twice", ""),
    "a key of a body twice": (edited('"n"', '"n": 1, "n"'), "'n' stands twice", ""),
    "a wrong type": (edited("200", '"200"'), r"1 \(line 1\), response.status: Expected", "[0].response.status"),
    "no status": (edited("200", "20"), "Expected `int` >= 100", "[0].response.status"),
    "an unknown error": (edited("TimedOut", "Late"), "Invalid enum value 'Late'", "[1].error.kind"),
    "not base64": (edited("vG4KCg==", "v"), "base64", "[0].response.pieces[2].base64"),
    "an empty piece": (edited("vG4KCg==", ""), "a piece is empty", "[0].response.pieces[2]"),
    "two bodies": (edited('"text": ""', '"text": "", "json": []'), "must have exactly one of", "[1].request"),
    "no body": (edited('{},\n    "text": ""', "{}"), "must have exactly one of", "[1].request"),
    "no outcome": (compact(TEXT).rpartition(', "error"')[0].encode() + b"}", "neither a response nor an error", "[1]"),
    "closed and broken": (edited('"status"', '"closed": true, "status"'), "closed and broken", "[0].response.closed"),
    "NaN": (edited("1.50", "NaN"), "NaN is not a JSON number", ""),
    "too deep": (edited("1.50", "[" * 9999 + "]" * 9999), "nested deeper|not JSON|recursion", ""),
    "a lone surrogate": (edited("The stream", r"\ud800"), "lone surrogate", "error.message"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_says_where_and_what_to_do(case: str) -> None:
    content, message, path = DAMAGE[case]
    with pytest.raises(BadDocument, match=message) as bad:
        load_exchanges(content, "x")
    assert bad.value.path == path
    assert len(str(bad.value)) < 500


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: ('{"evener_cassette": 1' + text).encode()))
def test_any_bytes_are_a_cassette_or_a_bad_document(content: bytes) -> None:
    try:
        load_exchanges(content, "x")
    except BadDocument:
        return
    raise AssertionError("chance made a cassette")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3),
    max_leaves=8,
)
bodies = st.binary(max_size=40) | st.text().map(str.encode) | json_values.map(lambda value: json.dumps(value).encode())
pieces = st.lists(st.binary(min_size=1, max_size=20) | st.text(min_size=1, max_size=20).map(str.encode), max_size=5).map(tuple)
errors = st.none() | st.sampled_from([TimedOut("late"), TransportError("grün \x00")])
answers = st.builds(
    lambda parts, error, status: FakeAnswer((*parts, error) if error else parts, status, {"content-type": "x/y"}),
    pieces, errors, st.integers(100, 999),
)  # fmt: skip


@given(st.lists(st.tuples(bodies, answers), min_size=1, max_size=4))
def test_record_then_replay_is_identity(exchanges: list[tuple[bytes, FakeAnswer]]) -> None:
    requests = [Request("http://h/p", (), body) for body, _ in exchanges]
    with TemporaryDirectory() as folder:
        with Recorder(FakeTransport(answer for _, answer in exchanges), Path(folder, "c")) as recorder:
            live = asyncio.run(heard(recorder, requests))
        with Player(Path(folder, "c")) as player:
            assert asyncio.run(heard(player, requests)) == live
            player.close(strict=True)
    assert [(status, got) for status, got, _ in live] == [
        (answer.status, [piece for piece in answer.pieces if isinstance(piece, bytes)]) for _, answer in exchanges
    ]


async def heard(transport: Recorder | Player, requests: list[Request]) -> list[tuple[int, list[bytes], str]]:
    """Status, pieces, and how it ended, of each answer."""
    found = []
    for request in requests:
        response = await transport.send(request)
        got, end = list[bytes](), ""
        try:
            async for piece in arriving(response):
                got.append(piece)
        except TransportError as error:
            end = repr(error)
        await response.aclose()
        found.append((response.status, got, end))
    return found


@pytest.mark.parametrize("depth", [100, 199, 201, 5000])
def test_a_body_of_any_depth_is_kept(depth: int, tmp_path: Path) -> None:
    body = b"[" * depth + b"]" * depth
    assert (as_json(body) is None) == (depth > 200), "what is deeper is kept as text, so that every reader can read it"
    with Recorder(FakeTransport([FakeAnswer((b"a",))]), tmp_path / "c") as recorder:
        asyncio.run(told(recorder, ask(body)))
    assert asyncio.run(told(Player(tmp_path / "c"), ask(body))) == [[b"a"]]
