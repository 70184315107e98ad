"""Answers as their providers sent them: on request in the log and in the result, and wherever the log goes. S2.8, S2.69."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from evener import Harness, ModelSettings, SqliteStore, open_model, tool
from evener.errors import StoreError
from evener.harness import Decision, Subagent
from evener.model import Model
from evener.store import Funnel, Store, export_lines, import_lines
from evener.testing import Call, FakeServer, Raw, Text, turn
from tests.harness.test_settings import ROWS
from tests.store.extras.toycipher import ToyCipher

KEEP = ModelSettings(keep_raw=True)
SECRET = "sk-proj-" + "a1B2" * 8


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def model(server: FakeServer, wire: str = "openai_chat", settings: ModelSettings | None = None) -> Model:
    return open_model(ROWS[wire], base_url=server.url, key=SECRET, environ={}, settings=settings)


@pytest.mark.parametrize("wire", ROWS)
def test_s2_8_raw_answers_are_in_the_result_when_asked_for(wire: str) -> None:
    with FakeServer(wire, [turn(Text("one")), turn(Text("two", pieces=1)), turn(Text("three", pieces=1))]) as server:
        harness = Harness(model(server, wire), store="memory")
        without = harness.run_sync("go")
        kept = harness.run_sync("go", settings=KEEP)
        opened = Harness(model(server, wire, KEEP), store="memory").run_sync("go")
    assert (without.raw_responses, without.requests[0].raw) == ((), b"")
    assert len(kept.raw_responses) == len(opened.raw_responses) == 1
    assert b"two" in kept.raw_responses[0]
    assert b"three" in opened.raw_responses[0]
    with FakeServer(wire, [Raw(kept.raw_responses[0], content_type="text/event-stream")]) as server:
        assert Harness(model(server, wire), store="memory").run_sync("go").text == "two"  # it is the whole answer, to the byte


def test_s2_69_raw_answers_outlive_a_pause_and_go_where_the_log_goes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    script = [turn(Call("pay", '{"amount":3}')), turn(Text("paid"))]
    with FakeServer("openai_chat", script) as server:
        harness = Harness(model(server), tools=[pay], store=store, settings=KEEP)
        paused = harness.run_sync("pay")
        assert (paused.stop, len(paused.raw_responses)) == ("approval", 1)
        harness.decide_sync(paused.thread, {paused.approvals[0].key: Decision("allow")})
        other = Harness(model(server), tools=[pay], store=SqliteStore(tmp_path / "a.db"), settings=KEEP)
        result = other.resume_sync(paused.thread)
    assert (result.ok, len(result.raw_responses)) == (True, 2)
    assert result.raw_responses[0] == paused.raw_responses[0]
    assert b'"pay"' in result.raw_responses[0].replace(b"\\", b"")
    asyncio.run(_travels(store, result.thread, [one.raw_blob for one in result.requests], tmp_path))


async def _travels(store: SqliteStore, thread: str, names: list[str], folder: Path) -> None:
    lines = [line async for line in export_lines(store, thread)]
    elsewhere = SqliteStore(folder / "b.db")
    await import_lines(elsewhere, lines)
    for name in names:
        assert await elsewhere.get_blob(name) == await store.get_blob(name)
    assert await elsewhere.verify() == []
    _lose_blobs(folder / "b.db")
    told = [finding.what for finding in await elsewhere.verify() if finding.damage]
    assert all(any(name in what for what in told) for name in names)
    await store.erase(thread)
    assert await _held(store, names) == 0
    await store.aclose()
    await elsewhere.aclose()


def _lose_blobs(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM blobs")


async def _held(store: Store, names: list[str]) -> int:
    found = 0
    for name in names:
        try:
            await store.get_blob(name)
            found += 1
        except StoreError:
            continue
    return found


def test_s2_8_patterns_of_the_funnel_and_a_cipher_hold_for_raw_answers(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db", funnel=Funnel(patterns=["PIN [0-9]{4}"]), cipher=ToyCipher(b"key"))
    with FakeServer(
        "openai_responses",
        [turn(Text("it is PIN 4711", pieces=3)), turn(Text("Your key: " + SECRET)), turn(Text("of Mallory", pieces=1))],
    ) as server:
        harness = Harness(model(server, "openai_responses"), store=store, settings=KEEP)
        pin, key, result = (harness.run_sync("go") for _ in range(3))
    assert (pin.raw_responses, key.raw_responses) == ((), ())  # in pieces no search would find the secret
    assert "contains a secret" in pin.warnings[0]
    assert b"Mallory" in result.raw_responses[0]
    assert b"Mallory" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    asyncio.run(store.aclose())


def test_s2_8_an_agent_keeps_its_own() -> None:
    script = [turn(Call("helper", '{"task":"x"}')), turn(Text("in")), turn(Text("out"))]
    with FakeServer("openai_chat", script) as server:
        inner = Harness(model(server), store="memory")
        agent = Subagent(name="helper", harness=inner, description="Helps.", settings=KEEP)
        outer = Harness(model(server), store="memory", agents=[agent])
        result = outer.run_sync("go")

        async def inside() -> tuple[str, ...]:
            (child,) = await outer.store.inside(result.thread)
            return tuple(event.raw_blob for event in await outer.store.read(child) if hasattr(event, "raw_blob"))

        (name,) = asyncio.run(inside())
    assert result.raw_responses == ()
    assert name
