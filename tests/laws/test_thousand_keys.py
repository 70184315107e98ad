"""A thousand keys in one process, through every sink that Evener writes to or shows: none of them is in the clear.

`SINKS` is the list. A sink gives what it wrote or showed as text.
"""

import asyncio
import json
import os
import random
import re
import string
import sys
import traceback
from base64 import b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from urllib.parse import quote

import pytest

from evener import Harness, tool
from evener.errors import EvenerError
from evener.events import CallFinished, Opened, Prompted
from evener.local import download, keeper
from evener.local.keeper import Keeper, LocalSettings
from evener.local.weights import locate_weights
from evener.model import open_model
from evener.providers.keys import find_key, read_keys, store_key
from evener.providers.rows import load_rows
from evener.store import Note, SqliteStore
from evener.store.redaction import Funnel
from evener.store.transfer.jsonl import export_lines
from evener.testing import ScriptedModel, calls
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport import exchange
from evener.transport.cassette.recorder import Recorder
from evener.transport.exchange import Deadlines, Request, Retries
from evener.transport.http import HttpTransport, read_all
from evener.transport.secrets import forms_of, note_secret
from tests.patience import PATIENCE, without_collector
from tests.store.extras.stores import leftovers
from tests.transport.servers import listening, raw, serving, whole

_random = random.Random(14)
KEYS = [
    "sk-" + "".join(_random.choices(string.ascii_letters + string.digits, k=_random.randint(20, 90))) + "-K9"
    for _ in range(1_000)
]
CLEAR = re.compile(r"sk-[A-Za-z0-9]{20,90}-K9")
MODEL = "anthropic:claude-opus-4-5"
ONCE = Retries(attempts=1)


@pytest.fixture(autouse=True)
def used() -> None:
    """The process has used all of them, one after the other."""
    for key in KEYS:
        note_secret(key)


def in_clear(text: str) -> list[str]:
    found = set(CLEAR.findall(text)) & set(KEYS)
    sample = KEYS[::50]
    return sorted(found | {key for key in sample for form in forms_of(key) if form in text})


def forms(keys: list[str]) -> str:
    """The keys as they travel: plain, in base64, in an address, in JSON in JSON."""
    shown = [*keys, *(b64encode(f"user:{key}".encode()).decode() for key in keys), *(quote(key, safe="") for key in keys)]
    return " ".join((*shown, json.dumps(json.dumps(keys))))


# The store.


def store_files(folder: Path) -> str:
    async def main() -> str:
        store = SqliteStore(folder / "evener.db")
        log = await store.create("a", Opened(at=1.0, thread="a", harness="h"), holder="me")
        for start in range(0, len(KEYS), 100):
            shown = forms(KEYS[start : start + 100])
            meta = json.dumps({"note": shown})
            result = CallFinished(at=1.0, call="c", ok=True, content=(TextBlock(shown),), metadata=meta)
            await log.append(Prompted(at=1.0, run="r", message=Message.user_text(shown)), result)
            await store.post("a", Note(f"k{start}", "steer", json.dumps({"text": shown})))
            await store.put_blob(shown.encode())
        await store.describe("a", title=KEYS[1], tags=KEYS[2:5])
        await store.backup(folder / "copy.db")
        with (folder / "export.jsonl").open("wb") as file:
            async for line in export_lines(store, "a"):
                file.write(line)
        seen = leftovers(folder)
        await store.aclose()
        return (seen + leftovers(folder)).decode(errors="replace")

    return asyncio.run(main())


def spilled_output(folder: Path) -> str:
    """The output is cut inside a key, at each of several places; not even a half of one is left."""

    @tool(effect="read", output_limit=400)
    def talk(number: int) -> str:
        """Talk."""
        return "x" * (300 - 10 - number) + KEYS[number] + "y" * 1000 + KEYS[number] + "z" * (100 - 10 - number)

    made = calls(*(ToolCall.of(f"c{number}", "talk", {"number": number}) for number in range(20)))
    Harness(ScriptedModel([made, "Done."]), tools=[talk], store=str(folder / "runs.db")).run_sync("Talk")
    text = leftovers(folder).decode(errors="replace")
    assert "read_output" in text
    halves = [key for key in KEYS[:20] if any(key[at : at + 10] in text for at in range(len(key) - 9))]
    return " ".join((text, *halves))


# Errors, and tracebacks with their locals.

Failure = Callable[[str], Coroutine[None, None, None]]


def told(error: BaseException) -> str:
    """All that a report of an error may show: the message, notes, causes, and the locals of every frame."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    parts = ["".join(shown.format(chain=True)), repr(error), repr(error.args), repr(vars(error))]
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
        parts += [repr(error), repr(vars(error))]
    return "\n".join(parts)


async def ask(url: str, key: str, idle: float = PATIENCE) -> None:
    async with HttpTransport(trust_env=False) as transport:
        model = open_model(
            MODEL,
            environ={},
            key=key,
            base_url=url,
            transport=transport,
            retries=ONCE,
            deadlines=Deadlines(connect=PATIENCE, idle=idle, total=PATIENCE),
        )
        given = model.ask(Transcript([Message.user_text("Hi")]))
        del url, key  # those are the test's own
        await model.complete(given)


def answered(*pieces: bytes | float, idle: float = PATIENCE) -> Failure:
    async def fail(key: str) -> None:
        echoed = [piece.replace(b"KEY", key.encode()) if isinstance(piece, bytes) else piece for piece in pieces]
        async with serving(raw(*echoed, end="close")) as served:
            url, echoed = served.url, []
            given, key = key, ""
            await _hidden(url, given, idle)

    return fail


async def _hidden(url: str, given: str, idle: float) -> None:
    asking = ask(url, given, idle)
    given = ""
    await asking


async def refused(key: str) -> None:
    asking = ask("http://127.0.0.1:9", key)
    key = ""
    await asking


async def unknown_host(key: str) -> None:
    asking = ask("http://no-such-host.invalid", key)
    key = ""
    await asking


async def no_tls(key: str) -> None:
    async def answer_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS here\r\n")

    async with listening(answer_at_once) as served:
        asking = ask(served.url.replace("http://", "https://"), key)
        key = ""
        await asking


async def in_the_query(key: str) -> None:
    async with HttpTransport(trust_env=False) as transport:
        sending = transport.send(exchange.query("key", key)(Request("http://127.0.0.1:9/v1", (), b"")))  # type: ignore[arg-type]
        key = ""
        await sending


async def in_a_header_that_is_none(key: str) -> None:
    async with HttpTransport(trust_env=False) as transport:
        sending = transport.send(Request("http://127.0.0.1:9/v1", (("authorization", f"Bearer {key}\nx"),), b""))
        key = ""
        await sending


async def a_wrong_address(key: str) -> None:
    given, key = {"key": key}, ""
    open_model(MODEL, environ={}, base_url="http://x?y=1", **given)  # type: ignore[arg-type]


async def a_missing_key(key: str) -> None:
    environ, key = {"OPENAI_API_KEY": key}, ""
    held = Hider(environ)
    environ = {}
    open_model(MODEL, environ=held)


async def a_key_of_two_words(key: str) -> None:
    held, key = Hider({"ANTHROPIC_API_KEY": f"{key} x"}), ""
    find_key(next(row for row in load_rows().providers if row.name == "anthropic"), environ=held, file=None)


class Hider(dict[str, str]):
    """The test's own, so that what is found is Evener's."""

    def __repr__(self) -> str:
        return "<the test's own>"


async def a_broken_key_file(key: str) -> None:
    folder = Path("keys")
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / "keys.toml"
    file.touch(0o600)
    file.write_text(f"A = '{key}'\nbroken", encoding="utf-8")
    key = ""
    read_keys(file)


async def a_name_that_is_none(key: str) -> None:
    given, key = [key], ""
    store_key(Path("keys.toml"), "not a name", given.pop())


async def a_proxy_that_refuses(key: str) -> None:
    async with serving(raw(whole(b"no", 407), end="close")) as proxy:
        at = proxy.url.replace("http://", f"http://user:{key}@")
        key = ""
        transport = HttpTransport(proxy=at)
        at = ""
        try:
            await transport.send(Request("https://127.0.0.2:9/", (), b""))
        finally:
            await transport.aclose()


SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
FAILURES: dict[str, Failure] = {
    "refused": refused,
    "unknown host": unknown_host,
    "no TLS": no_tls,
    "401 that repeats the key": answered(whole(b'{"error":{"type":"authentication_error","message":"bad key KEY"}}', 401)),
    "500 that repeats the key": answered(whole(b'{"error":{"message":"KEY"}}', 500)),
    "not HTTP": answered(b"KEY KEY KEY\r\n\r\n"),
    "not JSON": answered(whole(b"KEY")),
    "cut head": answered(b"HTTP/1.1 200"),
    "cut body": answered(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"),
    "cut stream": answered(SSE + b'event: error\ndata: {"type":"error","error":{"message":"KEY"}}\n\n'),
    "silence": answered(30.0, idle=0.3),
    "in the query": in_the_query,
    "in a header that is none": in_a_header_that_is_none,
    "a wrong address": a_wrong_address,
    "a missing key": a_missing_key,
    "a key of two words": a_key_of_two_words,
    "a broken key file": a_broken_key_file,
    "a name that is none": a_name_that_is_none,
    "a proxy that refuses": a_proxy_that_refuses,
}


def failed(failure: Failure, key: str) -> str:
    async def main() -> str:
        held = [key]
        try:
            await failure(held.pop())
        except EvenerError as error:
            return told(error)
        raise AssertionError("it did not fail")

    return asyncio.run(main())


@pytest.mark.parametrize("name", FAILURES)
def test_no_failure_shows_a_key_in_message_cause_or_locals(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_clear(_without_ours(failed(FAILURES[name], KEYS[list(FAILURES).index(name)]))) == []


def _without_ours(text: str) -> str:
    """Without the locals of this file's own frames."""
    kept, ours = [], False
    for line in text.splitlines():
        if line.lstrip().startswith('File "'):
            ours = "test_thousand_keys" in line or "/transport/servers.py" in line
        if not ours or not re.match(r"\s+\w+ = ", line):
            kept.append(line)
    return "\n".join(kept)


# Cassettes.


def cassette(folder: Path) -> str:
    """Every key whole, in base64, and spelled out over events, by chunks of all sizes, on the wires' own places."""
    path = folder / "cassette.json"
    answers = []
    for number, key in enumerate(KEYS[:60]):
        other = KEYS[500 + number]
        step = number % 7 + 1
        parts = [key[at : at + step] for at in range(0, len(key), step)]
        events = [_delta(number, part) for part in ("Your key is ", *parts, f" {other} ", b64encode(other.encode()).decode())]
        answers.append(FakeAnswer(tuple(f"data: {json.dumps(event)}\n\n".encode() for event in events)))
    array = json.dumps([_delta(2, part) for part in ("a", KEYS[90][:9], KEYS[90][9:])]).encode()
    answers.append(FakeAnswer((array,)))
    answers.append(FakeAnswer(tuple(json.dumps(_delta(0, part)).encode() + b"\n" for part in (KEYS[91][:7], KEYS[91][7:]))))

    async def main() -> None:
        recorder = Recorder(FakeTransport(answers), path)
        for number in range(len(answers)):
            request = exchange.bearer(KEYS[number])(Request(f"https://example.org/{number}", (), KEYS[700].encode()))
            response = await recorder.send(request)  # type: ignore[arg-type]
            await read_all(response, 1_000_000)
            await response.aclose()
        recorder.close()

    asyncio.run(main())
    text = path.read_text(encoding="utf-8")
    return text + spoken(text)


def _delta(number: int, part: str) -> dict[str, object]:
    places: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": {"content": part}}]},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": part}},
        {"candidates": [{"content": {"parts": [{"text": part}]}}]},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": part},
        {"choices": [{"delta": {"tool_calls": [{"index": 3, "function": {"arguments": part}}]}}]},
    ]
    return places[number % len(places)]


def spoken(text: str) -> str:
    """What a reader makes of the texts in it, joined however they lie."""
    found: list[str] = []
    for line in text.splitlines():
        found += re.findall(r'\\"(?:content|text|delta|arguments)\\": ?\\"((?:[^"\\]|\\[^"])*)\\"', line)
    return "".join(found)


# Child processes.


def local_child(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the child process of a local model can read of our environment."""
    script, seen = folder / "child.py", folder / "environment"
    script.write_text(
        f"import json, os, sys\nsys.stdin.readline()\nopen({str(seen)!r}, 'w').write(json.dumps(dict(os.environ)))\n",
        encoding="utf-8",
    )
    weights = folder / "model.gguf"
    weights.write_bytes(b"GGUF")
    _plant(monkeypatch)
    monkeypatch.setattr(keeper, "CHILD", script)
    monkeypatch.setattr(keeper, "ready_weights", lambda _: weights)
    kept = Keeper(locate_weights(str(weights)), LocalSettings(start_seconds=PATIENCE))
    with pytest.raises(EvenerError):
        kept.started.result(2 * PATIENCE)
    return seen.read_text(encoding="utf-8")


def fetching_child(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for pip."""
    script, seen = folder / "python", folder / "environment"
    script.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        f"open({str(seen)!r}, 'w').write(json.dumps(dict(os.environ)))\nraise SystemExit(1)\n"
    )
    script.chmod(0o700)
    _plant(monkeypatch)
    monkeypatch.setattr(sys, "executable", str(script))
    bundle = download.Bundle(name="n", title="t", licence="l", package="p", version="1", member="m", sha256="", size=1)
    with pytest.raises(EvenerError), download.download(bundle, folder):
        pass
    return seen.read_text(encoding="utf-8")


def _plant(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ANTHROPIC_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "LLAMA_API_KEY", "PIP_NOTE", "LC_NOTE", "MY_OWN"]
    for number in range(300):
        name = names[number] if number < len(names) else f"KEY_{number}"
        monkeypatch.setenv(name, KEYS[number])
    monkeypatch.setenv("LANG", "C.UTF-8")


# What is shown.


def shown_values(_: Path) -> str:
    key = KEYS[7]
    model = open_model(MODEL, environ={"ANTHROPIC_API_KEY": KEYS[8]}, key=key)
    transport = HttpTransport(proxy=f"http://user:{KEYS[9]}@proxy.example:3128")
    request = exchange.query("key", KEYS[10])(exchange.bearer(key)(Request("https://example.org", (), key.encode())))  # type: ignore[arg-type]
    harness = Harness(model, store="memory")
    values = [model, model.endpoint, model.endpoint.auth, transport, request, harness, Funnel()]
    return "".join(f"{value!r} {value!s}" for value in values)


SINKS: dict[str, Callable[[Path, pytest.MonkeyPatch], str]] = {
    "the files of a store": lambda folder, _: store_files(folder),
    "output that is too large": lambda folder, _: spilled_output(folder),
    "a cassette": lambda folder, _: cassette(folder),
    "the child of a local model": local_child,
    "the child that fetches weights": fetching_child,
    "what values show": lambda folder, _: shown_values(folder),
}
"""Failures are a sink, too; they have a table of their own above."""


@pytest.mark.parametrize("sink", SINKS)
def test_no_sink_has_a_key_in_the_clear(sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SINKS[sink](tmp_path, monkeypatch)
    assert text
    assert in_clear(text) == []


def test_a_child_keeps_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = json.loads(local_child(tmp_path, monkeypatch))
    assert (seen["PATH"], seen["LANG"]) == (os.environ["PATH"], "C.UTF-8")
    assert not any(name.startswith("KEY_") or name == "MY_OWN" for name in seen)


def test_a_thousand_keys_cost_no_more_to_look_for_than_ten() -> None:
    """In steps of the interpreter, not in seconds."""
    event = json.dumps({"kind": "replied", "text": "some words of an answer " * 40}).encode()

    def steps(keys: list[str]) -> int:
        given = tuple(keys)
        funnel = Funnel(secrets=lambda: given)
        funnel.blob(event)
        count = 0

        def step(*_: object) -> None:
            nonlocal count
            count += 1

        with without_collector():
            sys.setprofile(step)
            try:
                funnel.blob(event)
            finally:
                sys.setprofile(None)
        return count

    assert steps(KEYS) <= steps(KEYS[:10]) + 2
