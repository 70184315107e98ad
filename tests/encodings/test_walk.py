"""JSON in pieces: where a value ends, and what a string says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.encodings.buffer import Span, unescape

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(value=values, ascii=st.booleans(), rest=st.sampled_from([",", "}", "]", "\n", ' "x"']))
def test_a_value_ends_where_it_ends_however_it_is_cut(value: object, ascii: bool, rest: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    assert Span().feed(text + rest) == len(text)
    span = Span()
    ends = [number for number, sign in enumerate(text + rest) if span.feed(sign) is not None]
    bare = text[0] not in '"[{'
    assert ends[0] == (len(text) if bare else len(text) - 1)


@given(text=st.text(max_size=20), ascii=st.booleans(), cut=st.integers(0, 60))
def test_a_string_says_the_same_however_it_is_cut(text: str, ascii: bool, cut: int) -> None:
    inside = json.dumps(text, ensure_ascii=ascii)[1:]
    first, size, shut = unescape(inside[:cut], final=False)
    rest, more, closed = unescape(inside[size:], final=True)
    assert (first + rest, size + more, shut or closed) == (text, len(inside), True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\\ud83d\\ude00"', "\U0001f600"),
        ('\\ud83d"', "\ufffd"),
        ('\\ude00"', "\ufffd"),
        ('\\ud83d\\u0041"', "\ufffdA"),
        ('\\x\\/"', "\\x/"),
        ('\\uZZ"', "\\uZZ"),
        ("\\", "\\"),
        ("\\u12", "\\u12"),
        ("raw\nline", "raw\nline"),
    ],
)
def test_odd_escapes_are_kept_or_marked(text: str, says: str) -> None:
    assert unescape(text, final=True)[0] == says
