"""What is secret does not stay in an exchange, however it is written and wherever it is cut."""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.transport.cassette.scrub import (
    credentials,
    keep_request_headers,
    keep_response_headers,
    scrub_pieces,
    scrub_text,
    scrub_url,
    secret_pattern,
)
from evener.transport.exchange import Request
from evener.transport.secrets import REDACTED

SECRET = 'k/+"\\é\U0001f40e-9 z'
SPELLINGS = {
    "plain": SECRET,
    "JSON": json.dumps(SECRET)[1:-1],
    "JSON in characters": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "JSON in JSON": json.dumps(json.dumps(SECRET))[3:-3],
    "JSON with escaped slashes": json.dumps(SECRET)[1:-1].replace("/", "\\/"),
    "JSON with capitals": json.dumps(SECRET)[1:-1].replace("+", "\\u002B"),
    "a URL": quote(SECRET, safe=""),
    "a form": quote_plus(SECRET),
    "a URL in lower case": quote(SECRET, safe="").lower(),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_secret_is_found_however_it_is_written(case: str) -> None:
    assert scrub_text(f'"a{SPELLINGS[case]}b"', secret_pattern([SECRET])) == f'"a{REDACTED}b"'


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@given(secret=st.text(min_size=9, max_size=20), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_secret_is_found_inside_base64(encode: Callable[[bytes], bytes], secret: str, before: bytes, after: bytes) -> None:
    hidden = encode(before + secret.encode() + after)
    assert REDACTED.encode() in b"".join(scrub_pieces((hidden,), secret_pattern([secret])))


@given(
    st.lists(st.sampled_from(["abc-def", "abc", "-", "x"]), max_size=9).map("".join), st.lists(st.integers(0, 40), max_size=6)
)
def test_a_secret_is_found_wherever_it_is_cut(text: str, places: list[int]) -> None:
    cuts = [0, *sorted(place for place in places if place < len(text)), len(text)]
    pieces = [text[start:end].encode() for start, end in pairwise(cuts) if end > start]
    clean = scrub_pieces(pieces, secret_pattern(["abc-def"]))
    assert b"".join(clean).decode() == text.replace("abc-def", REDACTED)
    assert b"" not in clean
    assert len(clean) <= len(pieces)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("one|two", "one|two"),
        ("one|abc-def|two", "one|[secret]|two"),
        ("one|a|bc|-d|ef|two", "one|[secret]|two"),
        ("one-a|bc-deftwo|three", "one-[secret]|two|three"),
        ("abc-defabc|-def|x", "[secret][secret]|x"),
        ("|".join("abc-defx"), "[secret]|x"),
    ],
)
def test_a_cut_inside_a_secret_moves_and_no_other_does(pieces: str, expected: str) -> None:
    clean = scrub_pieces([piece.encode() for piece in pieces.split("|")], secret_pattern(["abc-def"]))
    assert [piece.decode() for piece in clean] == expected.split("|")


def test_the_longest_secret_goes_first_and_an_empty_one_is_none() -> None:
    assert scrub_text("abcd abc", secret_pattern(["abc", "abcd", ""])) == f"{REDACTED} {REDACTED}"
    assert secret_pattern([""]) is None


def test_a_long_run_of_backslashes_takes_no_long_time() -> None:
    text = "\\" * 300_000 + '"a/' * 100_000
    assert scrub_text(text, secret_pattern(['/secret"', '"a/+', "\\x"])) == text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h:1/p/q?alt=sse&a=b", "https://h:1/p/q?alt=sse&a=b"),
        ("https://user:pass@h/p", "https://h/p"),
        ("https://h/p?key=abc&alt=sse#part", "https://h/p?key=[secret]&alt=sse"),
        ("https://h/p?API%5fKey=abc&x-amz-signature=1&access_token=", "https://h/p?API%5fKey=[secret]&x-amz-signature=[secret]&access_token=[secret]"),
        ("https://h/a%2fsecret/p", "https://h/[secret]/p"),
        ("/p?flag&a", "/p?flag&a"),
        ("", ""),
        ("http://[broken", "http://[broken"),
    ],
)  # fmt: skip
def test_a_url_is_kept_without_what_is_secret(url: str, expected: str) -> None:
    assert scrub_url(url, secret_pattern(["a/secret"])) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Authorization", "Bearer abcdefgh", {"Bearer abcdefgh", "abcdefgh"}),
        ("x-api-key", "abcdefgh", {"abcdefgh"}),
        ("X-Goog-Api-Key", "abcdefgh ", {"abcdefgh"}),
        ("cookie", "session=1234", {"session=1234"}),
        ("x-api-key", "none", set()),
        ("user-agent", "evener/1.0.0", set()),
        ("anthropic-beta", "token-counting", set()),
    ],
)
def test_a_request_shows_its_credentials(name: str, value: str, expected: set[str]) -> None:
    assert credentials(Request("http://h/", ((name, value),), b"")) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"mcp_servers": [{"authorization_token": "abc\\u002fdefg"}]}', {"abc/defg"}),
        (
            b'{"headers": {"Authorization" : "Bearer abcdefgh", "X-API-Key":"ijklmnop"}}',
            {"Bearer abcdefgh", "abcdefgh", "ijklmnop"},
        ),
        (b'{"api_key": "abc\\ud800defg"}', {"abc\\ud800defg"}),
        (b'{"client_secret": "short", "max_tokens": "abcdefgh", "api_key": 12345678}', set()),
        (b'{"authorization": "never ends', set()),
    ],
)
def test_a_body_shows_the_credentials_that_it_hands_on(body: bytes, expected: set[str]) -> None:
    assert credentials(Request("http://h/", (), body)) == expected


def test_a_url_shows_its_credentials() -> None:
    request = Request("http://someone:password1@h/p?key=abc%2fdefg&model=a-long-name", (), b"")
    assert credentials(request) == {"someone:password1", "password1", "abc/defg"}


def test_only_headers_known_to_be_harmless_are_kept() -> None:
    sent = [
        ("Accept", "a"),
        ("X-Api-Key", "k"),
        ("Anthropic-Beta", "b"),
        ("anthropic-beta", "c"),
        ("x-new", "v"),
        ("Cookie", "c"),
    ]
    assert keep_request_headers(sent) == {"accept": "a", "anthropic-beta": "b, c"}
    came = dict.fromkeys(
        "X-Request-Id set-cookie anthropic-organization-id openai-organization x-ratelimit-reset-tokens content-encoding "
        "content-length anthropic-ratelimit-requests-limit retry-after x-ratelimit-Ünknown location".split(),
        "v",
    )
    kept = ["anthropic-ratelimit-requests-limit", "retry-after", "x-ratelimit-reset-tokens", "x-request-id"]
    assert list(keep_response_headers(came)) == kept
