"""What is written is read again, and whatever else is read is refused with our error and no other. (S0.1, S0.2)"""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import BadDocument, BadValue
from evener.transcript import (
    Message,
    ToolCall,
    Transcript,
    dump_message,
    dump_transcript,
    load_message,
    load_transcript,
)
from tests.laws.strategies import messages, transcripts

law = settings(max_examples=50, deadline=None)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@law
@given(transcripts())
def test_a_transcript_is_read_as_it_was_written(transcript: Transcript) -> None:
    written = dump_transcript(transcript)
    read = load_transcript(written)
    assert read == transcript
    assert dump_transcript(read) == written
    assert load_transcript(json.dumps(json.loads(written), indent=2)) == transcript


@law
@given(messages())
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    written = dump_message(message)
    assert load_message(written) == message
    assert dump_message(load_message(written)) == written


@law
@given(transcripts().map(dump_transcript), st.data())
def test_a_damaged_document_is_read_or_refused(written: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(written)))
    end = data.draw(st.integers(start, min(len(written), start + 8)))
    patch = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b"{", b"]", b",", b"\\ud800", b"NaN", b"null", b"0"]))
    refused_or_stable(written[:start] + patch + written[end:])


@law
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_arbitrary_input_is_refused(data: bytes | str) -> None:
    refused_or_stable(data)


@law
@given(st.sampled_from(["system", "messages", "version", "evener", "extra"]), anything)
def test_any_value_in_any_place_is_read_or_refused(key: str, value: object) -> None:
    document = {"evener": "transcript", "version": 1, "system": [], "messages": [], key: value}
    refused_or_stable(json.dumps(document))


@law
@given(st.dictionaries(st.text(), anything, max_size=3))
def test_arguments_are_kept_exactly_or_refused(args: dict[str, object]) -> None:
    try:
        call = ToolCall.of("a", "f", args)
    except BadValue:
        return
    assert json.loads(call.raw) == call.args == args


def refused_or_stable(data: bytes | str) -> None:
    try:
        read = load_transcript(data)
    except BadDocument:
        return
    assert load_transcript(dump_transcript(read)) == read
