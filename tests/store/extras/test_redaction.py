"""Nothing that is stored holds a secret; what holds none is stored as it is; whatever is taken out, an event stays an event."""

import json
import re
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from evener.errors import BadValue
from evener.events import Cancelled, Event, Replied, decode_event, encode_event
from evener.store import MemoryStore
from evener.store.redaction import PROSE, Funnel, fields_of, fixed_fields
from evener.transcript import ReasoningBlock, TextBlock, ToolCall
from evener.transport.secrets import REDACTED, known_secrets, note_secret
from tests.patience import steps
from tests.store.extras.samples import EVENTS, FORMS, planted
from tests.store.stores import opened, run, said

SECRET = "sk-ant-api03-0123456789abcdefABCDEF_-0123456789abcdefXYZ"
KEYS = st.text(string.ascii_letters + string.digits + '-_/+="\\é ', min_size=8, max_size=60).map(lambda text: f"sK7{text}Z9q")


def clean(event: Event, *secrets: str, patterns: tuple[str, ...] = ()) -> Event:
    return decode_event(Funnel(secrets=lambda: secrets, patterns=patterns).clean(encode_event(event)))


@given(
    event=st.sampled_from(EVENTS),
    place=st.integers(0, 60),
    form=st.sampled_from(sorted(FORMS)),
    others=st.lists(KEYS, max_size=3),
    secret=KEYS,
)
def test_a_secret_in_any_text_of_any_event_is_taken_out(
    event: Event, place: int, form: str, others: list[str], secret: str
) -> None:
    holding = planted(event, place, FORMS[form](secret))
    payload = encode_event(holding)
    cleaned = Funnel(secrets=lambda: (*others, secret)).clean(payload)
    assert decode_event(cleaned).at == event.at
    assert (holding == event) == (cleaned == payload)
    assert secret not in cleaned.decode()
    assert FORMS[form](secret) not in json.dumps(msgspec.json.decode(cleaned), ensure_ascii=False)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_holds_no_secret_is_the_same_object(event: Event) -> None:
    payload = encode_event(event)
    assert Funnel(secrets=lambda: (SECRET,)).clean(payload) is payload
    assert Funnel(secrets=lambda: (SECRET,), patterns=["no such text"]).clean(payload) is payload
    assert Funnel().clean(payload) is payload


WORDS_OF_OUR_OWN = ["opened", "replied", "tool_call", "thread", "message", "assistant", "inline", "allow", "dropped"]


@pytest.mark.parametrize("secret", [*WORDS_OF_OUR_OWN, "0.125", "2026-01", "c2lnbmF0", "1234567"])
def test_a_secret_that_is_one_of_our_own_words_leaves_an_event_readable(secret: str) -> None:
    for event in EVENTS:
        assert clean(event, secret).at == event.at


@pytest.mark.parametrize("pattern", [r"\d+", r"[a-z]+", r".", r'"', r"[{}]", r"\\+"])
def test_a_pattern_that_matches_nearly_everything_leaves_an_event_readable(pattern: str) -> None:
    for event in EVENTS:
        assert clean(event, patterns=(pattern,)).at == event.at


def test_numbers_in_the_arguments_of_a_call_become_texts() -> None:
    event = EVENTS[2]
    cleaned = json.dumps(msgspec.to_builtins(clean(event, patterns=(r"\b12\b",))))
    assert '\\"n\\":\\"[secret]\\"' in cleaned
    assert '{"type":"web_search","n":12}' in cleaned.replace("\\", "")


def test_a_match_that_begins_within_an_escape_does_not_break_the_json() -> None:
    event = Cancelled(at=1.0, why="line\nabcdef123 and \u0007abcdef123")
    assert clean(event, "nabcdef123", "0007abcdef123", "7abcdef123") == event


def test_patterns_are_for_words_and_not_for_what_is_sealed() -> None:
    replied = next(event for event in EVENTS if isinstance(event, Replied))
    cleaned = clean(replied, patterns=("c2lnbmF0dXJl", "f00d", "rs_1", "somebody", "web_search", "resp_1"))
    assert cleaned == replied
    assert clean(replied, patterns=("thinking",)) != replied


def test_a_secret_is_taken_out_of_sealed_content_and_the_seal_goes() -> None:
    replied = next(event for event in EVENTS if isinstance(event, Replied))
    cleaned = clean(replied, "c2lnbmF0dXJl")
    assert isinstance(cleaned, Replied)
    assert [block.seal for block in cleaned.message.blocks if isinstance(block, TextBlock | ReasoningBlock | ToolCall)] == [
        None
    ] * 3


def test_a_block_that_was_changed_loses_its_seal_and_others_keep_theirs() -> None:
    replied = next(event for event in EVENTS if isinstance(event, Replied))
    cleaned = clean(replied, "thinking about")
    assert isinstance(cleaned, Replied)
    text, reasoning, call, *_ = cleaned.message.blocks
    assert reasoning == ReasoningBlock("[secret] it")
    assert (text, call) == (replied.message.blocks[0], replied.message.blocks[2])


def test_notes_titles_and_blobs_pass_too() -> None:
    funnel = Funnel(secrets=lambda: [SECRET], patterns=[r"\d{3}-\d{2}-\d{4}"])
    assert funnel.clean(json.dumps({"text": f"use {SECRET}"}).encode()) == b'{"text":"use [secret]"}'
    assert funnel.clean(f"no JSON, {SECRET}".encode()) == b"no JSON, [secret]"
    assert funnel.text(f"a title with {SECRET}, 123-45-6789") == "a title with [secret], [secret]"
    assert funnel.blob(f"one\n{SECRET}\n".encode()) == b"one\n[secret]\n"
    assert json.loads(funnel.blob(json.dumps({"a": 1, "b": [SECRET]}).encode())) == {"a": 1, "b": [REDACTED]}
    binary = b"\xff\xfe" + SECRET.encode()
    assert funnel.blob(binary) is binary
    assert funnel.blob(b"nothing") == b"nothing"


def test_a_secret_is_seen_from_the_moment_it_is_noted() -> None:
    funnel = Funnel()
    payload = encode_event(Cancelled(at=1.0, why="the key is sk-noted-Later-123456"))
    assert funnel.clean(payload) is payload
    note_secret("sk-noted-Later-123456")
    assert b"Later" not in funnel.clean(payload)
    assert "sk-noted-Later-123456" in known_secrets()
    assert known_secrets() is known_secrets()


@pytest.mark.parametrize("length", [6, 8, 38, 39, 40, 47, 100])
@pytest.mark.parametrize("many", [1, 40])
def test_a_secret_is_found_wherever_it_stands(length: int, many: int) -> None:
    secret = ("qZ7" + "x9Yk2Lm4" * 20)[:length]
    secrets = (secret, *(f"{number:03}" + "Jp5vN8wR" * 6 for number in range(many - 1)))
    funnel = Funnel(secrets=lambda: secrets)
    for before in range(70):
        for after in (0, 1, 7):
            assert secret not in funnel.text("a" * before + secret + "b" * after)
            assert secret.encode() not in funnel.blob(b"a" * before + secret.encode() + b"b" * after)


def test_secrets_with_odd_characters_do_no_harm() -> None:
    funnel = Funnel(secrets=lambda: ["\udcff\udcfe-undecodable", "", "short", 'quo"te\\d\n-key'])
    assert funnel.text("plain") == "plain"
    payload = encode_event(Cancelled(at=1.0, why='a quo"te\\d\n-key'))
    assert decode_event(funnel.clean(payload)) == Cancelled(at=1.0, why="a [secret]")


@pytest.mark.parametrize("pattern", ["(", "", "a*", b"bytes"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(BadValue, match="funnel"):
        Funnel(patterns=[pattern])


def test_a_compiled_pattern_is_taken_and_nothing_is_shown() -> None:
    funnel = Funnel(secrets=lambda: [SECRET], patterns=[re.compile("WORD", re.IGNORECASE)])
    assert funnel.text("a word") == "a [secret]"
    assert SECRET not in repr(funnel)


def test_no_field_is_any_text_in_one_place_and_one_of_a_few_words_in_another() -> None:
    texts = {name for name, is_text in fields_of(inspect.type_info(Event)) if is_text}
    assert not texts & fixed_fields()
    assert fixed_fields() >= {"at", "cache", "cause", "cost", "created_at", "kind", "role", "verdict"}
    assert texts > PROSE


@pytest.mark.parametrize("many", [1, 30])
def test_looking_costs_little_when_there_is_nothing(many: int) -> None:
    """However many secrets there are, and however long the payload: the work is done by one pattern."""
    secrets = tuple(f"sk-{number:03}-" + "x9Yk2Lm4qW" * 6 for number in range(many))
    funnel = Funnel(secrets=lambda: secrets)
    payload = encode_event(Cancelled(at=1.0, why="some words of a plain answer " * 34))
    assert 950 < len(payload) < 1100
    funnel.clean(payload)
    assert steps(lambda: funnel.clean(payload)) < 30


def test_another_store_costs_nothing_for_the_keys_of_the_process() -> None:
    note_secret(*(f"sk-many-{number:06}-stores" for number in range(500)))

    async def open_and_write() -> None:
        store = MemoryStore()
        log = await store.create("t", opened(), holder="me")
        await log.append(said("the key is sk-many-000499-stores"))
        assert b"000499" not in encode_event((await store.read("t"))[-1])
        await store.aclose()

    run(open_and_write())  # the first one prepares the search for these keys
    assert steps(lambda: run(open_and_write())) < 10_000  # 500 keys have some 20,000 forms
