"""The JSON form: what is written is read for ever, and what is wrong is refused at once, whole, and with its place."""

import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

from evener.errors import BadDocument, BadValue
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
    Transcript,
    Uploaded,
    Usage,
    dump_message,
    dump_transcript,
    load_message,
    load_transcript,
)
from tests.patience import ends

VERSIONS = sorted(Path(__file__).with_name("versions").glob("*.json"))
V1 = Path(__file__).with_name("versions") / "v1.json"
EMPTY = b'{"evener":"transcript","version":1,"system":[],"messages":[]}'
ONE = b'{"evener":"transcript","version":1,"system":[],"messages":[{"id":"m0","role":"user","created_at":null,"blocks":[%s]}]}'
TEXT = b'{"kind":"text","text":"hi"}'
MIB = 1 << 20
"""Of CPU time, generously: on an idle machine each takes a small part of one."""


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_every_version_ever_written_is_readable(path: Path) -> None:
    data = path.read_bytes()
    if path.stem.startswith("message"):
        assert load_message(data) == load_message(dump_message(load_message(data)))
    else:
        assert load_transcript(data) == load_transcript(dump_transcript(load_transcript(data)))


def test_version_one_is_written_again_as_it_was() -> None:
    for name, again in (("v1", dump_transcript(load_transcript(V1.read_bytes()))),
                        ("message-v1", dump_message(load_message(V1.with_stem("message-v1").read_bytes())))):  # fmt: skip
        assert json.loads(again) == json.loads(V1.with_stem(name).read_bytes())


def test_the_file_of_version_one_has_every_field_of_every_value() -> None:
    values = (Message, TextBlock, ImageBlock, DocumentBlock, ReasoningBlock, ToolCall, ToolResult, HostedBlock)
    parts = (Citation, Inline, Remote, Stored, Uploaded, Seal, Origin, Usage)
    wanted = {
        (value.__struct_config__.tag, field.encode_name)
        for value in (*values, *parts)
        for field in msgspec.structs.fields(value)
    }
    found: set[tuple[object, str]] = set()

    def look(value: object) -> None:
        if isinstance(value, dict):
            found.update((value.get("kind") or value.get("at"), key) for key in value)
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(json.loads(V1.read_bytes()))
    assert wanted <= found


def test_nothing_is_lost_between_writing_and_reading() -> None:  # S0.1, S0.12
    transcript = load_transcript(V1.read_bytes())
    first, said, *_ = transcript.messages
    assert transcript.system == "Be brief.\nBe kind."
    assert (first.id, first.parent_id, said.parent_id) == ("m1", "m0", "m1")
    assert first.created_at == datetime.fromisoformat("2026-01-02T03:04:05.678901Z")
    assert said.usage == Usage(100, 70, 20, 10, 50, 30)
    assert said.origin == Origin("anthropic_messages", "acme", "https://api.example.org", "model-1", "acct_f00d")
    assert said.blocks[0] == ReasoningBlock(
        "Look it up, then add.", Seal('{"signature": "c2lnbmVk"}', said.origin, "9f86d081", "sig_1"), 30
    )
    assert said.calls[1].raw == '{"a":'


def test_the_smallest_documents_are_these() -> None:
    assert dump_transcript(Transcript()) == EMPTY
    assert load_transcript(EMPTY) == load_transcript(EMPTY.decode()) == Transcript()
    assert dump_message(Message("user", (), id="a", created_at=None)) == (
        b'{"evener":"message","version":1,"message":{"id":"a","role":"user","created_at":null,"blocks":[]}}'
    )


def test_a_block_in_the_wrong_role_is_read() -> None:
    """To mend it is repair's business: reading changes nothing."""
    history = Transcript([Message("user", (ToolCall("1", "f"), ReasoningBlock("x"))), Message("assistant", (ToolResult("1"),))])
    assert load_transcript(dump_transcript(history)) == history


def one(block: bytes) -> bytes:
    return ONE % block


def two(second: bytes) -> bytes:
    return ONE.replace(b"}]}", b'},{"id":"m1","role":"user","created_at":null,"blocks":[]%s}]}' % second) % b""


def changed(old: bytes, new: bytes) -> bytes:
    data = ONE % TEXT
    assert old in data
    return data.replace(old, new, 1)


BLOCK, WORDS = "messages[0].blocks[0]", "messages[0].blocks[0].text"
CASES: list[tuple[str, bytes | str, str, str]] = [
    # name, document, path, what the message says
    ("empty", b"", "", "empty"),
    ("blank", b" \n ", "", "empty"),
    ("byte order mark", b"\xef\xbb\xbf" + EMPTY, "", "byte order mark"),
    ("byte order mark in a str", "\ufeff" + EMPTY.decode(), "", "byte order mark"),
    ("utf-16", EMPTY.decode().encode("utf-16"), "", "not UTF-8: byte 0 is 0xff"),
    ("latin-1", one('{"kind":"text","text":"ü"}'.encode("latin-1")), WORDS, "not UTF-8: byte 135 is 0xfc"),
    ("raw surrogate", one(b'{"kind":"text","text":"\xed\xa0\x80"}'), WORDS, "not UTF-8: byte 135 is 0xed"),
    ("overlong", one(b'{"kind":"text","text":"\xc0\xaf"}'), WORDS, "not UTF-8"),
    ("surrogate in a str", EMPTY.decode() + "\ud800", "", "lone surrogate"),
    ("high surrogate", one(b'{"kind":"text","text":"\\ud800"}'), WORDS, "byte 135.* holds a lone surrogate"),
    ("high before text", one(b'{"kind":"text","text":"\\uD800x"}'), WORDS, "lone surrogate"),
    ("high before another escape", one(b'{"kind":"text","text":"\\ud83d\\n"}'), WORDS, "lone surrogate"),
    ("low surrogate", one(b'{"kind":"text","text":"a\\udc00"}'), WORDS, "lone surrogate"),
    ("swapped pair", one(b'{"kind":"text","text":"\\ude00\\ud83d"}'), WORDS, "lone surrogate"),
    ("surrogate after a backslash", one(b'{"kind":"text","text":"\\\\\\ud800"}'), WORDS, "lone surrogate"),
    ("surrogate before the kind", one(b'{"text":"\\ud800","kind":"text"}'), WORDS, "lone surrogate"),
    ("surrogate in a key", one(b'{"kind":"text","\\udc00":1}'), BLOCK + ".kind", "lone surrogate"),
    ("a list", b"[]", "", "not an Evener document: Expected `object`, got `array`"),
    ("null", b"null", "", "not an Evener document"),
    ("a string", b'"transcript"', "", "not an Evener document"),
    ("a number", b"1", "", "not an Evener document"),
    ("any object", b'{"messages":[]}', "", "missing required field `evener`"),
    ("another kind", dump_message(Message.user_text("x")), "", "'message' document, not a transcript"),
    ("no version", changed(b'"version":1,', b""), "", "missing required field `version`"),
    ("version as text", changed(b'"version":1', b'"version":"1"'), "", "Expected `int`, got `str`"),
    ("version as float", changed(b'"version":1', b'"version":1.0'), "", "Expected `int`, got `float`"),
    ("version true", changed(b'"version":1', b'"version":true'), "", "Expected `int`, got `bool`"),
    ("newer version", changed(b'"version":1', b'"version":2,"new":{}'), "version", "written by a newer Evener"),
    ("version zero", changed(b'"version":1', b'"version":0'), "version", "no version 0"),
    ("negative version", changed(b'"version":1', b'"version":-1'), "version", "no version -1"),
    ("no messages", b'{"evener":"transcript","version":1,"system":[]}', "", "missing required field `messages`"),
    ("no system", changed(b'"system":[],', b""), "", "missing required field `system`"),
    ("system as text", changed(b'"system":[]', b'"system":"x"'), "system", "Expected `array`, got `str`"),
    ("system of images", changed(b'"system":[]', b'"system":[{"kind":"image"}]'), "system[0].kind", "expected one of 'text'"),
    ("unknown key", changed(b'"system"', b'"x":1,"system"'), "", "unknown field `x`"),
    ("unknown key of a message", changed(b'"role"', b'"x":1,"role"'), "messages[0]", "unknown field `x`"),
    ("unknown key of a block", one(b'{"kind":"text","text":"","x":1}'), BLOCK, "unknown field `x`"),
    ("unknown key of a seal", one(b'{"kind":"text","text":"","seal":{"data":"{}","x":1}}'), BLOCK + ".seal", "field `x`"),
    ("key with a long name", one(b'{"kind":"text","text":"","%s":1}' % (b"k" * MIB)), BLOCK, "unknown field `kkk"),
    ("no id", changed(b'"id":"m0",', b""), "messages[0]", "missing required field `id`"),
    ("empty id", changed(b'"id":"m0"', b'"id":""'), "messages[0].id", "length >= 1"),
    ("no time", changed(b'"created_at":null,', b""), "messages[0]", "missing required field `created_at`"),
    ("time without zone", changed(b"null", b'"2026-01-01T00:00:00"'), "messages[0].created_at", "timezone"),
    ("time out of range", changed(b"null", b'"9999-12-31T23:59:59-01:00"'), "messages[0]", "years 1 to 9999"),
    ("time as number", changed(b"null", b"1"), "messages[0].created_at", "Expected `datetime"),
    ("unknown role", changed(b'"user"', b'"tool"'), "messages[0].role", "expected one of 'user', 'assistant', 'system'"),
    ("unknown kind", one(b'{"kind":"video"}'), BLOCK + ".kind", "'video'; expected one of 'text', 'image'"),
    ("unknown place", one(b'{"kind":"image","source":{"at":"moon"}}'), BLOCK + ".source.at", "expected one of 'inline'"),
    ("unknown lifetime", one(b'{"kind":"text","text":"","cache":"2h"}'), BLOCK + ".cache", "'2h'; expected one of '', '5m'"),
    ("call within a result", one(b'{"kind":"tool_result","call_id":"1","content":[{"kind":"tool_call","id":"2","name":"f"}]}'),
     BLOCK + ".content[0].kind", "'tool_call'; expected one of 'text', 'image', 'document', 'hosted'"),
    ("no kind", one(b'{"text":""}'), BLOCK, "missing required field `kind`"),
    ("no text", one(b'{"kind":"text"}'), BLOCK, "missing required field `text`"),
    ("number for text", one(b'{"kind":"text","text":5}'), WORDS, "Expected `str`, got `int`"),
    ("null for text", one(b'{"kind":"text","text":null}'), WORDS, "Expected `str`, got `null`"),
    ("text for bool", one(b'{"kind":"tool_result","call_id":"1","is_error":"no"}'), BLOCK + ".is_error", "Expected `bool`"),
    ("float for int", one(b'{"kind":"text","text":"","citations":[{"start":1.0}]}'), BLOCK + ".citations[0].start", "`float`"),
    ("endless int", one(b'{"kind":"text","text":"","citations":[{"end":%s}]}' % (b"9" * 5000)),
     BLOCK + ".citations[0].end", "range"),
    ("NaN", one(b'{"kind":"text","text":NaN}'), WORDS, "NaN and Infinity are not JSON"),
    ("Infinity", one(b'{"kind":"text","text":Infinity}'), WORDS, "NaN and Infinity are not JSON"),
    ("minus Infinity", one(b'{"kind":"text","text":-Infinity}'), WORDS, "NaN and Infinity are not JSON"),
    ("twice the same key", one(b'{"kind":"text","text":"a","text":"a"}'), WORDS, "stands twice"),
    ("twice, once escaped", one(b'{"kind":"text","text":"a","\\u0074ext":"a"}'), WORDS, "stands twice"),
    ("twice the kind", one(b'{"kind":"text","kind":"text","text":"a"}'), BLOCK + ".kind", "stands twice"),
    ("twice the version", changed(b'"version":1', b'"version":1,"version":1'), "version", "stands twice"),
    ("twice the messages", EMPTY.replace(b'"messages":[]', b'"messages":[],"messages":[]'), "messages", "stands twice"),
    ("trailing data", EMPTY + b"x", "", "trailing characters"),
    ("two documents", EMPTY + b"\n" + EMPTY, "", "trailing characters"),
    ("cut off", one(TEXT)[:-9], BLOCK + ".text", "truncated"),
    ("trailing comma", one(TEXT + b","), "messages[0].blocks[1]", "trailing comma"),
    ("single quotes", EMPTY.replace(b'"', b"'"), "", "malformed"),
    ("control character", one(b'{"kind":"text","text":"\x01"}'), WORDS, "invalid character"),
    ("seal that is no JSON", one(b'{"kind":"text","text":"","seal":{"data":"nope"}}'), BLOCK + ".seal", "Seal.data must be"),
    ("seal that is a list", one(b'{"kind":"text","text":"","seal":{"data":"[]"}}'), BLOCK + ".seal", "Seal.data must be"),
    ("hosted that is no JSON", one(b'{"kind":"hosted","raw":"{","wire":"w"}'), BLOCK, "HostedBlock.raw must be"),
    ("deep seal", one(b'{"kind":"text","text":"","seal":{"data":"%s"}}' % (b"[" * 10_000)), BLOCK + ".seal", "Seal.data"),
    ("another parent", two(b',"parent_id":"m7"'), "messages[1].parent_id", "'m7', but the message before it is 'm0'"),
    ("no parent", two(b""), "messages[1].parent_id", "'', but the message before it is 'm0'"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "path", "says"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_document_is_refused_with_its_place(data: bytes | str, path: str, says: str) -> None:
    with pytest.raises(BadDocument, match=says) as caught:
        load_transcript(data)
    assert caught.value.path == path
    assert len(str(caught.value)) < 700
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("data", [None, 5, bytearray(EMPTY), memoryview(EMPTY), ["x"]], ids=lambda data: type(data).__name__)
def test_only_bytes_and_str_are_read(data: object) -> None:
    with pytest.raises(BadDocument, match="bytes or str"):
        load_transcript(data)  # type: ignore[arg-type]


def test_a_message_is_refused_in_the_same_way() -> None:
    good = dump_message(Message("user", (TextBlock("x"),)))
    for bad, path in (
        (good.replace(b'"text":"x"', b'"text":5'), "message.blocks[0].text"),
        (good.replace(b'"version":1', b'"version":9'), "version"),
        (good.replace(b'"text":"x"', b'"text":"\\ud800"'), "message.blocks[0].text"),
        (good.replace(b'"text":"x"', b'"text":"x","text":"x"'), "message.blocks[0].text"),
        (EMPTY, ""),
    ):
        with pytest.raises(BadDocument) as caught:
            load_message(bad)
        assert caught.value.path == path


def test_a_pair_of_surrogates_and_what_only_looks_like_one_are_read() -> None:
    data = one(b'{"kind":"text","text":"\\ud83d\\ude00 \\\\ud800 \\\\\\\\udc00"}')
    assert load_transcript(data).messages[0].text == "\U0001f600 \\ud800 \\\\udc00"


def test_the_size_is_looked_at_first() -> None:
    assert load_transcript(EMPTY, max_bytes=len(EMPTY)) == Transcript()
    for data in (EMPTY, EMPTY.decode()):
        with pytest.raises(BadDocument, match=r"61 .*at most 60 bytes.*larger max_bytes"):
            load_transcript(data, max_bytes=60)
    umlauts = one('{"kind":"text","text":"üüü"}'.encode())
    with pytest.raises(BadDocument, match="at most"):
        load_transcript(umlauts.decode(), max_bytes=len(umlauts.decode()))  # it counts bytes, not characters


def deep(count: int, place: bytes = b'{"kind":"text","text":%s}') -> bytes:
    return one(place % (b"[" * count + b"]" * count))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "10,000 deep": partial(deep, 10_000),
    "1,000,000 deep": partial(deep, 1_000_000),
    "1,000,000 deep before the kind": partial(deep, 1_000_000, b'{"text":%s,"kind":"text"}'),
    "1,000,000 deep under an unknown key": partial(deep, 1_000_000, b'{"kind":"text","text":"","x":%s}'),
    "1,000,000 brackets": lambda: b"[" * 1_000_000,
    "1,000,000 braces": lambda: b'{"a":' * 1_000_000,
    "a string of 100 MB": lambda: one(b'{"kind":"text","text":"%s"}' % (b"x" * 100_000_000)),
    "millions of empty lists": lambda: one(b"[]," * 10 * MIB),
    "millions of keys": lambda: one(b'{"kind":"text"%s}' % (b',"text":""' * (MIB // 4))),
    "millions of escaped quotes, never closed": lambda: one(b'{"kind":"text","text":"' + b'\\"' * 10 * MIB),
    "millions of backslashes before a surrogate": lambda: one(b'{"kind":"text","text":"%s\\ud800"}' % (b"\\\\" * 5 * MIB)),
    "a surrogate far away": lambda: one(b",".join([TEXT] * MIB) + b',{"kind":"text","text":"\\ud800"}'),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_document_is_refused(make: Callable[[], bytes]) -> None:
    data = make()
    with ends(), pytest.raises(BadDocument):
        load_transcript(data)


def test_a_large_document_is_read_when_its_size_is_allowed() -> None:
    big = Transcript([Message("user", (TextBlock("ä" * 10 * MIB),))])
    assert load_transcript(dump_transcript(big)) == big


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (lambda: dump_transcript(Message.user_text("x")), "dump takes a Transcript"),  # type: ignore[arg-type]
        (lambda: dump_message(Transcript()), "dump_message takes a Message"),  # type: ignore[arg-type]
        (lambda: dump_message(Message("user", (), usage=Usage(10**5000))), "cannot be written as JSON"),
        (
            lambda: dump_transcript(Transcript([Message("user", (TextBlock("", (Citation(start=10**5000),)),))])),
            "cannot be written",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(write: Callable[[], bytes], match: str) -> None:
    with pytest.raises(BadValue, match=match):
        write()
