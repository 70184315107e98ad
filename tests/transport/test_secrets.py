"""Secrets are found in every form they travel in, and nothing else is touched."""

import base64
import json
from inspect import isawaitable
from urllib.parse import quote, quote_plus

import pytest

from evener.transport.exchange import Auth, Request, bearer, header, query
from evener.transport.secrets import REDACTED, fingerprint, scrub

KEYS = ["sk-ant-abc123/DEF+456==", 'quo"te\\d/key', "clé-sécrète-ünïcode", "plain0123456789"]


@pytest.mark.parametrize("secret", KEYS)
@pytest.mark.parametrize(
    "form",
    [
        str,
        lambda secret: quote(secret, safe=""),
        quote,
        quote_plus,
        lambda secret: quote(secret, safe="").lower() if secret.islower() else quote(secret, safe=""),
        lambda secret: json.dumps(secret),
        lambda secret: json.dumps(secret, ensure_ascii=False),
        lambda secret: json.dumps(secret).replace("/", "\\/"),
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
        lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
        lambda secret: base64.b64encode(f"x:{secret}:more".encode()).decode(),
        lambda secret: base64.b64encode(f"ab{secret}".encode()).decode(),
    ],
    ids="plain quoted path plus lower json json-utf8 slashed base64 urlsafe basic middle offset".split(),
)
def test_every_form_is_found(secret: str, form: object) -> None:
    assert callable(form)
    shown = form(secret)
    text = scrub(f"HTTP 401: key {shown} is wrong; {shown}", [secret])
    assert text.startswith("HTTP 401: key ")
    assert text.count(REDACTED) == 2
    assert shown not in text
    assert secret not in text


LONG = "sk-ant-api03-Abc123DEF456ghi789JKL012mno345PQR678"


@pytest.mark.parametrize("shown", [LONG[:-1], LONG[:16], LONG.lower(), LONG.upper()[:20], f"{LONG[:18]}***{LONG[-4:]}"])
def test_a_secret_that_was_cut_short_is_found(shown: str) -> None:
    """A page of an error is quoted up to some length, and the key may stand there."""
    text = scrub(f"It begins with '{{{shown}', and {shown}", [LONG, f"Bearer {LONG}"])
    rest = shown.partition("*")
    assert text == f"It begins with '{{{REDACTED}{''.join(rest[1:])}', and {REDACTED}{''.join(rest[1:])}"


def test_what_the_keys_of_a_provider_have_in_common_stays() -> None:
    said = "A key begins with sk-ant-api03-, and this one with sk-ant-api03-Xy."
    assert scrub(said, [LONG]) == said


def test_the_longer_secret_goes_first_and_the_rest_stays() -> None:
    assert scrub("a secret-key and a secret-key-2", ["secret-key", "secret-key-2"]) == f"a {REDACTED} and a {REDACTED}"


@pytest.mark.parametrize("secrets", [[], [""], ["abcde"]])
def test_short_secrets_are_left_alone(secrets: list[str]) -> None:
    assert scrub("abcde is not hidden", secrets) == "abcde is not hidden"


def test_a_fingerprint_names_a_secret_without_giving_it_away() -> None:
    assert fingerprint("sk-1") == fingerprint("sk-1") != fingerprint("sk-2")
    assert len(fingerprint("")) == 16
    assert "sk-" not in fingerprint("sk-1")


@pytest.mark.parametrize(
    ("auth", "headers", "url"),
    [
        (bearer("k"), (("x", "1"), ("authorization", "Bearer k")), "https://a/b?c=d"),
        (header("X-API-Key", "k"), (("x", "1"), ("X-API-Key", "k")), "https://a/b?c=d"),
        (header("X", "2"), (("X", "2"),), "https://a/b?c=d"),
        (query("key", "a&b"), (("x", "1"),), "https://a/b?c=d&key=a%26b"),
    ],
)
def test_credentials_get_onto_a_request(auth: Auth, headers: tuple[tuple[str, str], ...], url: str) -> None:
    signed = auth(Request("https://a/b?c=d", (("x", "1"),), b"{}"))
    assert not isawaitable(signed)
    assert (signed.headers, signed.url, signed.body) == (headers, url, b"{}")
    assert "k" not in repr(signed).replace("key", "")


def test_headers_that_come_as_a_list_are_signed_as_well() -> None:
    listed: list[tuple[str, str]] = [("x", "1")]
    signed = bearer("k")(Request("https://a/b", listed, b"{}"))  # type: ignore[arg-type]  # as somebody's own code may do
    assert not isawaitable(signed)
    assert signed.headers == (("x", "1"), ("authorization", "Bearer k"))
