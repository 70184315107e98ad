"""S1.28: a secret that this process uses reaches no file of a store, whatever way it takes, and is noted where it is used."""

import asyncio
import json
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evener.events import Event
from evener.providers.keys import find_key
from evener.providers.rows import load_rows
from evener.store import Note, SqliteStore
from evener.store.redaction import Funnel
from evener.store.transfer.jsonl import export_lines
from evener.transport import secrets
from evener.transport.exchange import Request, Response, Signed, bearer, header, query
from evener.transport.secrets import credential, forms_of, known_secrets, note_secret
from tests.store.extras.samples import EVENTS, FORMS, planted
from tests.store.extras.stores import leftovers
from tests.store.stores import run

KEYS = st.text(string.ascii_letters + string.digits + '-_/+="\\', min_size=12, max_size=60).map(lambda text: f"sK7{text}Z9q")


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry, empty, and afterwards as it was."""
    monkeypatch.setattr(secrets, "_known", ())
    monkeypatch.setattr(secrets, "_noted", set(), raising=False)


@settings(max_examples=8)
@given(secret=KEYS, places=st.lists(st.integers(0, 60), min_size=len(EVENTS), max_size=len(EVENTS)))
def test_no_file_of_a_store_holds_a_secret(tmp_path_factory: pytest.TempPathFactory, secret: str, places: list[int]) -> None:
    """Events of every kind, a note, a title, a tag and a blob; then the file, its log, the sidecar, an export and a backup."""
    folder = tmp_path_factory.mktemp("secret")
    shown = " ".join(form(secret) for form in FORMS.values())
    events: list[Event] = [planted(event, place, shown) for event, place in zip(EVENTS, places, strict=True)]

    async def scenario() -> None:
        store = SqliteStore(folder / "evener.db", funnel=Funnel(secrets=lambda: [secret]))
        log = await store.create("a", events[0], holder="me")
        await log.append(*events[1:])
        await store.post("a", Note("k", "steer", json.dumps({"text": shown})))
        await store.post("a", Note("l", "steer", f"no JSON at all: {shown}"))
        await store.describe("t", title=secret, tags=[secret])
        await store.put_blob(f"text with {shown}".encode())
        await store.backup(folder / "copy.db")
        with (folder / "export.jsonl").open("wb") as file:
            async for line in export_lines(store, "t"):
                file.write(line)
        seen = leftovers(folder)
        assert await store.read("a")
        await store.aclose()
        for content in (seen, leftovers(folder)):
            assert b"[secret]" in content
            for form in forms_of(secret):
                assert form.encode() not in content

    run(scenario())


@pytest.mark.usefixtures("forgetful")
def test_a_key_is_noted_where_it_is_found(tmp_path: Path) -> None:
    row = next(row for row in load_rows().providers if row.key_env)
    assert find_key(row, environ={row.key_env[0]: "sk-Found-123456"}, file=tmp_path / "none.toml") is not None
    assert known_secrets() == ("sk-Found-123456",)


@pytest.mark.usefixtures("forgetful")
def test_credentials_are_noted_where_they_are_put_on_a_request() -> None:
    bearer("sk-Bearer-123456")
    header("x-api-key", "sk-Header-123456")
    query("key", "sk-Query-123456")
    assert known_secrets() == ("sk-Bearer-123456", "sk-Header-123456", "sk-Query-123456")


@pytest.mark.usefixtures("forgetful")
def test_a_token_that_was_made_for_a_request_is_noted_when_it_is_sent() -> None:
    class Nowhere:
        async def send(self, request: Request) -> Response:
            raise ConnectionError(request.url)

        async def aclose(self) -> None: ...

    def auth(request: Request) -> Request:
        signed = (("Authorization", "Bearer tok-Fresh-123456"), ("x-amz-date", "20260102T030405Z"))
        return replace(request, headers=(*request.headers, *signed))

    with pytest.raises(ConnectionError):
        asyncio.run(Signed(Nowhere(), auth).send(Request("https://example.org/", (), b"")))
    assert known_secrets() == ("tok-Fresh-123456",)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("Authorization", "Bearer abc123def", "abc123def"),
        ("authorization", "abc123def", "abc123def"),
        ("X-Goog-Api-Key", "abc123def", "abc123def"),
        ("x-amz-security-token", "abc123def", "abc123def"),
        ("authorization", "AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=z, Signature=0123456789abcdef", ""),
        ("x-amz-date", "20260102T030405Z", ""),
        ("anthropic-version", "2023-06-01", ""),
    ],
)
def test_what_of_a_header_is_a_secret(name: str, value: str, found: str) -> None:
    assert credential(name, value) == found


@pytest.mark.parametrize("word", ["", "short", "ollama", "not-needed", "lm-studio", "no_key_needed"])
@pytest.mark.usefixtures("forgetful")
def test_a_word_that_stands_in_for_a_key_is_not_noted(word: str) -> None:
    note_secret(word)
    assert known_secrets() == ()


@pytest.mark.usefixtures("forgetful")
def test_every_secret_stays_known_however_many_follow() -> None:
    for number in range(300):
        note_secret("sk-In-Use-123456", f"sk-Rotating-{number:06}")
    assert known_secrets() == ("sk-In-Use-123456", *(f"sk-Rotating-{number:06}" for number in range(300)))
