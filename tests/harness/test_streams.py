"""A stream at odd moments: spoken to before it began, made where there is no loop."""

import asyncio

import pytest

from evener import Harness
from evener.errors import UsageError
from evener.harness.opening import Prompt
from evener.result import RunResult
from evener.store.protocol import NoLog, Note
from evener.testing import ScriptedModel
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolResult
from evener.transcript.message import Message


def agent() -> Harness:
    return Harness(ScriptedModel(lambda _: "Hello."), store="memory")


def test_a_run_that_has_just_been_made_is_steered() -> None:
    async def go() -> RunResult:
        async with agent().stream("Hi.") as stream:
            await stream.steer("Be brief.")
            return await stream.result()

    assert "Be brief." in [message.text for message in asyncio.run(go()).transcript]


def test_a_run_is_steered_with_a_picture() -> None:
    said = (TextBlock("Like this:"), ImageBlock(Inline("aGk="), "image/png"))

    async def go() -> RunResult:
        async with agent().stream("Hi.") as stream:
            await stream.steer(said)
            return await stream.result()

    assert said in [message.blocks for message in asyncio.run(go()).transcript]


@pytest.mark.parametrize(
    "said",
    [Message.assistant_text("x"), (ToolResult("c1", (TextBlock("x"),)),), (), 5],
    ids=["not a user", "a result", "nothing", "no prompt"],
)
def test_only_what_a_user_says_steers(said: Prompt) -> None:
    async def go() -> None:
        async with agent().stream("Hi.") as stream:
            with pytest.raises(UsageError):
                await stream.steer(said)

    asyncio.run(go())


def test_a_run_that_has_just_been_made_is_cancelled() -> None:
    async def go() -> RunResult:
        async with agent().stream("Hi.") as stream:
            await stream.cancel("never mind")
            return await stream.result()

    result = asyncio.run(go())
    assert (result.stop, result.detail) == ("cancelled", "never mind")


def test_speaking_to_a_stream_that_was_closed_at_once_does_not_wait_for_ever() -> None:
    async def go() -> None:
        stream = agent().stream("Hi.")
        await stream.aclose()
        async with asyncio.timeout(120):
            with pytest.raises(NoLog):
                await stream.steer("Still there?")

    asyncio.run(go())


def test_a_stream_without_a_loop_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="needs a running event loop"):
        agent().stream("Hi.")


@pytest.mark.parametrize(
    "note",
    [Note("1", "steer", "no JSON"), Note("0", "steer", '{"blocks":[{"kind":"tool_result","call_id":"c"}]}'),
     Note("2", "decide", '{"decisions":[{"verdict":"maybe"}]}'), Note("3", "decide", "{}"),
     Note("4", "decide", '{"decisions":[5]}'), Note("5", "dance", "{}")],
    ids=lambda note: note.kind + note.key,
)  # fmt: skip
def test_a_note_that_nobody_understands_does_not_hold_up_the_thread(note: Note) -> None:
    async def go() -> RunResult:
        one = agent()
        first = await one.run("Hi.")
        await one.store.post(first.thread, note)
        return await one.run("Go on.", thread=first.thread)

    assert asyncio.run(go()).text == "Hello."
