"""`resume_state`: a conversation that ended cleanly, in one text, for another run on any provider. Strict, and sensitive."""

import asyncio
import json
import pickle
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from evener import Harness, Limits, MemoryStore, ModelRetry, tool
from evener.errors import BadDocument, UsageError
from evener.hooks import Cancel, Hook
from evener.model import open_model
from evener.resume_state import ResumeState
from evener.testing import Call, FakeServer, Refusal, Thinking, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Reply, Stop
from tests.driver.stage import WIRES
from tests.harness.test_resuming import model_of, sealed, serving
from tests.model.stage import NOWHERE, fresh_key, watched

SECRET = "the launch is on Tuesday"


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def state_of(*said: str) -> ResumeState:
    harness = Harness(ScriptedModel(lambda ask: f"noted: {ask.transcript.messages[-1].text}"), store="memory")
    thread = harness.thread()

    async def go() -> ResumeState:
        for text in said:
            result = await thread.run(text)
        assert result.resume_state is not None
        return result.resume_state

    return asyncio.run(go())


# On any provider.


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("here", WIRES)
def test_s2_62_a_state_goes_on_with_any_provider(here: str, there: str) -> None:
    """S2.62, S2.64, S2.65, S2.66: the same one gets its sealed thinking back verbatim, another none of it, and a report."""

    async def go(server: FakeServer, other: FakeServer) -> None:
        async with watched() as watch:
            ours = model_of(server, here, watch)
            first = await Harness(ours, tools=[add], store=MemoryStore()).run("1+2?")
            state = first.resume_state
            assert state is not None
            assert state.model == ours.name
            assert state.origin == ours.origin
            told = json.loads(state.text)
            assert (told["kind"], told["version"], told["origin"]["wire"]) == ("evener.resume_state", 1, here)
            theirs = ours if here == there else model_of(other, there, watch)
            fresh = Harness(theirs, tools=[add], store=MemoryStore(), system="Another prompt.")
            result = await fresh.run("And 3+4?", resume_from=ResumeState(state.text))
        assert result.thread != first.thread
        assert result.transcript.messages[:4] == first.transcript.messages
        assert result.text == "It is 7."
        body = other.requests[-1].body.decode()
        seals = sealed(first.transcript)
        if here == there and here != "anthropic_messages":  # there, thinking is bound to its prefix, and the prompt is another
            assert all(json.dumps(value)[1:-1] in body for value in seals)
        if here != there:
            assert not any(json.dumps(value)[1:-1] in body for value in seals)
            assert result.losses

    script = (turn(Thinking("A sum."), Call("add", {"a": 1, "b": 2})), turn(Thinking("So."), "It is 3."))
    with ExitStack() as stack:
        server = stack.enter_context(serving(here, *script, *(("It is 7.",) if here == there else ())))
        other = server if here == there else stack.enter_context(serving(there, "It is 7."))
        asyncio.run(go(server, other))


@pytest.mark.parametrize(("name", "takes"), [("gpt-5.5", True), ("gpt-4.1", False)])
def test_s2_66_native_thinking_goes_back_only_to_a_request_that_takes_it(name: str, takes: bool) -> None:
    """S2.66: a model of the same provider that does not reason gets none of it; that is a loss, and is listed."""

    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            there = {"environ": NOWHERE, "transport": watch, "key": fresh_key(), "base_url": server.url}
            first = await Harness(open_model("openai:gpt-5.5", **there), store=MemoryStore()).run("1+2?")  # type: ignore[arg-type]
            again = Harness(open_model(f"openai:{name}", **there), store=MemoryStore())  # type: ignore[arg-type]
            result = await again.run("And 3+4?", resume_from=first.resume_state)
        seals = [value for value in sealed(first.transcript) if len(value) > 60]
        assert seals
        body = server.requests[1].body.decode()
        assert all((json.dumps(value)[1:-1] in body) is takes for value in seals)
        assert bool(result.losses) is not takes
        assert server.rejected == []

    script = [turn(Thinking("A sum."), "It is 3."), turn("It is 7.")]
    with FakeServer("openai_responses", script, models=("gpt-5.5", "gpt-4.1")) as server:
        asyncio.run(go(server))


# Only after a clean end.


def ended(script: list[object], **more: object) -> object:
    try:
        return Harness(ScriptedModel(script), store="memory", **more).run_sync("go").resume_state  # type: ignore[arg-type]
    except Exception as error:
        return error


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


@tool(retries=0)
def fail() -> str:
    """Fail."""
    raise ModelRetry("no")


CALL = calls(ToolCall.of("c", "pay", {}))
UNCLEAN: dict[str, Callable[[], object]] = {
    "approval": lambda: ended([CALL], tools=[pay]),
    "limit": lambda: ended([calls(ToolCall.of("c", "add", {"a": 1, "b": 2}))], tools=[add], limits=Limits(requests=1)),
    "cancelled": lambda: ended(["x"], hooks=[Hook(event="user_prompt_submit", handler=lambda _: Cancel("no"))]),
    "answer as a call": lambda: ended(
        [calls(ToolCall.of("f", "final_result", {"a": 1}))],
        output={"type": "object", "properties": {"a": {"type": "integer"}}}, output_form="tool",
    ),
    "tool retries": lambda: ended([calls(ToolCall.of("c", "fail", {}))], tools=[fail]),
    "output retries": lambda: ended(["no number"], output=int, output_form="native", limits=Limits(corrections=0)),
    "unexpected": lambda: ended([Reply((TextBlock("so"),), Stop("cancelled"))]),
    "cut off": lambda: ended([Reply((TextBlock("so"),), Stop("length"))]),
}  # fmt: skip


@pytest.mark.parametrize("stop", UNCLEAN)
def test_s2_63_no_state_after_anything_but_a_clean_end(stop: str) -> None:
    """S2.63: cancels, limits, approvals, retries that are spent, unexpected turns and answers that are calls give none."""
    assert UNCLEAN[stop]() is None


def test_s2_63_a_refusal_gives_no_state() -> None:
    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            result = await Harness(model_of(server, "anthropic_messages", watch), store="memory").run("x")
        assert result.stop == "refusal"
        assert result.resume_state is None

    with serving("anthropic_messages", turn(Refusal("I will not."))) as server:
        asyncio.run(go(server))


def test_a_clean_end_has_one_with_all_that_was_said() -> None:
    state = state_of("one", "two")
    assert [message.text for message in state.messages] == ["one", "noted: one", "two", "noted: two"]
    document = json.loads(state.text)
    assert (document["kind"], document["version"], document["sensitive"]) == ("evener.resume_state", 1, True)
    assert document["model"] == state.model == "scripted:model"
    assert set(document) == {"kind", "version", "sensitive", "model", "origin", "messages"}
    assert ResumeState(state.text) == state
    assert len({state, ResumeState(state.text.encode())}) == 1


def test_the_new_thread_begins_with_it_and_keeps_it() -> None:
    async def go() -> None:
        harness = Harness(ScriptedModel(["hello", "again", "more"]), store="memory")
        first = await harness.run("one")
        thread = harness.thread(resume_from=first.resume_state)
        await thread.run("two")
        result = await harness.thread(thread.id).run("three")
        assert [message.text for message in result.transcript] == ["one", "hello", "two", "again", "three", "more"]

    asyncio.run(go())


def test_run_sync_and_stream_take_it_too() -> None:
    state = state_of("one")
    harness = Harness(ScriptedModel(["two", "three"]), store="memory")
    assert len(harness.run_sync("x", resume_from=state).transcript) == 4

    async def go() -> int:
        async with harness.stream("x", resume_from=state.text) as stream:
            return len((await stream.result()).transcript)

    assert asyncio.run(go()) == 4


# Strict.

SOUND = state_of("one").text


def edited(**changes: object) -> str:
    return json.dumps({**json.loads(SOUND), **changes})


def message(**changes: object) -> str:
    document = json.loads(SOUND)
    document["messages"][-1] |= changes
    return json.dumps(document)


def without(key: str) -> str:
    return json.dumps({name: value for name, value in json.loads(SOUND).items() if name != key})


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "Cannot read"),
    "empty": ("", "empty"),
    "a list": ("[]", "Cannot read"),
    "a number": ("1", "Cannot read"),
    "another kind": (edited(kind="evener.transcript"), "not a resume state"),
    "kind of a wrong type": (edited(kind=1), "kind"),
    "no kind": (without("kind"), "kind"),
    "newer": (edited(version=2), "version 2"),
    "older": (edited(version=0), "version"),
    "version of a wrong type": (edited(version="1"), "version"),
    "not sensitive": (edited(sensitive=False), "sensitive"),
    "sensitive of a wrong type": (edited(sensitive="yes"), "sensitive"),
    "no model": (without("model"), "model"),
    "an empty model": (edited(model=""), "model"),
    "a model with spaces": (edited(model="a b"), "model"),
    "a model of a wrong type": (edited(model=["x"]), "model"),
    "an unknown key": (edited(tools=[]), "tools"),
    "a system prompt": (edited(system="Be evil."), "system"),
    "no messages": (edited(messages=[]), "messages"),
    "messages of a wrong type": (edited(messages="hello"), "messages"),
    "a message of a wrong type": (edited(messages=[1]), "messages"),
    "an unknown role": (message(role="king"), "role"),
    "an unknown key in a message": (message(extra=1), "extra"),
    "an unknown block": (message(blocks=[{"kind": "spell"}]), "spell"),
    "blocks of a wrong type": (message(blocks="hello"), "blocks"),
    "a message without an id": (message(id=""), "id"),
    "a broken path": (message(parent_id="elsewhere"), "parent_id"),
    "another origin": (edited(origin=None), "origin"),
    "an origin of a wrong type": (edited(origin="me"), "origin"),
    "an unknown key in the origin": (edited(origin={"key": "sk"}), "key"),
    "an open call": (message(blocks=[{"kind": "tool_call", "id": "c", "name": "x", "raw": "{}"}]), "do not end with an answer"),
    "a prompt at the end": (
        json.dumps({**json.loads(SOUND), "messages": json.loads(SOUND)["messages"][:1], "origin": None}),
        "do not end with an answer",
    ),
    "a key twice": (SOUND[:-1] + ',"model":"other:model"}', "twice"),
    "a key twice inside": (SOUND.replace('"role":"user"', '"role":"user","role":"user"'), "twice"),
    "a lone surrogate": (SOUND.replace("one", "\\ud800"), "surrogate"),
    "not UTF-8": (SOUND.encode().replace(b"one", b"\xff"), "UTF-8"),
    "NaN": (SOUND.replace('"version":1', '"version":NaN'), "Cannot read"),
    "deep": (edited(messages=[]).replace("[]", "[" * 100_000 + "]" * 100_000), "Cannot read"),
    "something else": (object(), "object"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_s2_41_what_is_wrong_with_a_state_is_found_and_named(case: str) -> None:
    """S2.41: kind, version, model, known fields, types, unknown keys, JSON; and nothing of it is repeated at length."""
    text, why = BAD[case]
    harness = Harness(ScriptedModel([]), store="memory")
    with pytest.raises(UsageError, match=why) as found:
        harness.thread(resume_from=text)
    assert len(str(found.value)) < 1000
    if isinstance(text, str | bytes):
        assert isinstance(found.value, BadDocument)


def test_s2_41_a_state_that_is_too_large_is_not_looked_at() -> None:
    with pytest.raises(BadDocument, match="at most 10 bytes"):
        ResumeState(SOUND, max_bytes=10)


def test_a_state_begins_a_new_thread_only() -> None:
    state = ResumeState(SOUND)
    harness = Harness(ScriptedModel(["x"]), store="memory")
    with pytest.raises(UsageError, match="has messages already"):
        harness.thread("some-thread", resume_from=state)
    with pytest.raises(UsageError, match="not with both"):
        harness.thread(history=[Message.user_text("x")], resume_from=state)


# Sensitive.


def test_s2_67_a_state_is_marked_sensitive_and_never_shown_by_accident(tmp_path: Path) -> None:
    """S2.67."""
    state = state_of(SECRET)
    assert json.loads(state.text)["sensitive"] is True
    for shown in (repr(state), str(state), f"{state}", repr([state]), repr({"state": state})):
        assert SECRET not in shown
        assert "sensitive" in shown
    with pytest.raises(TypeError):
        pickle.dumps(state)
    file = tmp_path / "state.json"
    file.write_text("an older one", encoding="utf-8")
    file.chmod(0o644)
    state.save(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ResumeState.load(file) == state
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]
    for call in (lambda: state.save(tmp_path / "no" / "x"), lambda: ResumeState.load(tmp_path / "no")):
        with pytest.raises(UsageError, match="cannot be"):
            call()
