"""What is taken out of requests, as each wire's server receives it. (S0.54, S1.9, S1.11, S3.8, S3.22)"""

import asyncio

import pytest

from evener.context import ContextRules
from evener.context.view import REMOVED_SCREENSHOT
from evener.errors import ContextTooLong, UsageError
from evener.events import Evicted
from evener.testing import Call, FakeServer, Received, Thinking, Tokens, Turn, turn
from evener.tools import tool
from evener.transport.http import HttpTransport
from tests.context.servers import MODELS, PIXEL, events_of, harness_on, opened, serving


class Working:
    """A model that calls one tool over and over, and at last says so."""

    def __init__(self, name: str, turns: int) -> None:
        self.name, self.turns, self.said = name, turns, 0

    def __call__(self, received: Received) -> Turn:
        self.said += 1
        body = received.body.decode()
        used = Tokens(input=len(body) // 4 + 1100 * body.count(PIXEL), output=20)
        return turn(Call(self.name, {"n": self.said}), usage=used) if self.said < self.turns else turn("Done.", usage=used)


@pytest.mark.parametrize("wire", MODELS)
def test_old_screenshots_are_the_exact_placeholder_and_the_three_newest_stay(wire: str) -> None:
    """S3.22: at the gate, in one step; a server sees the words of the requirement, and no more pictures than three."""
    assert REMOVED_SCREENSHOT == "[screenshot removed to save context]"

    async def go() -> None:
        async with serving(wire, Working("look", 14)) as (server, model):
            result = await harness_on(model, ContextRules(window=12_000, reserve=1_000)).run("Look around.")
            assert result.stop == "done"
        counts = [
            (body.count(PIXEL), body.count(REMOVED_SCREENSHOT)) for body in (one.body.decode() for one in server.requests)
        ]
        removed = [number for number, (_, gone) in enumerate(counts) if gone]
        assert removed, counts
        assert counts[removed[0]][0] == 3
        assert all(shown + gone == number for number, (shown, gone) in enumerate(counts)), counts
        steps = sum(one != other for (_, one), (_, other) in zip(counts[1:], counts, strict=False))
        assert steps <= 4, "in steps, not with every turn"

    asyncio.run(go())


@pytest.mark.parametrize("wire", MODELS)
def test_a_large_result_is_taken_out_and_the_model_can_page_through_it(wire: str) -> None:
    """S0.54, S1.9, S3.2: it is taken out before the request is sent; the placeholder names what holds it, and `read_output`
    reads it piece by piece.
    """

    class Paging(Working):
        def __call__(self, received: Received) -> Turn:
            text = received.body.decode()
            if "Read it with read_output, id " in text and "read_output_done" not in text and self.said == 12:
                self.said += 1
                id = text.partition("Read it with read_output, id ")[2].partition(".")[0]
                return turn(Call("read_output", {"id": id, "offset": 100, "limit": 60}))
            return super().__call__(received)

    async def go() -> None:
        async with serving(wire, Paging("fetch", 14)) as (server, model):
            result = await harness_on(model, ContextRules(window=24_000, reserve=1_000)).run("Fetch it all.")
            assert result.stop == "done"
            assert any(
                record.call.name == "read_output" and "words and words" in str(record.result) for record in result.records
            )
            assert "result removed to save context" in server.requests[-1].body.decode()

    asyncio.run(go())


def test_what_was_made_with_reasoning_that_is_taken_out_is_still_taken_back() -> None:
    """OpenAI refuses an item under its id without its reasoning: the whole thread would be lost. The id goes with it."""

    class Thoughtful(Working):
        def __call__(self, received: Received) -> Turn:
            made = super().__call__(received)
            return turn(Thinking("I think of the shelf. " * 60), "So:", *made.parts, usage=made.usage)

    async def go() -> None:
        async with serving("openai_responses", Thoughtful("look", 24)) as (server, model):
            harness = harness_on(model, ContextRules(window=8_000, reserve=1_000, compact=False))
            thread = harness.thread()
            for number in range(2):
                assert (await thread.run(f"Prompt {number}.")).stop == "done"
            cuts = [cut for event in await events_of(harness, thread, Evicted) for cut in event.cuts]
            thoughts = [(cut.message, cut.block) for cut in cuts if cut.kind == "reasoning"]
            assert thoughts
            assert len(thoughts) == len(set(thoughts)), "what is gone is not taken out again"
            assert all(f"Prompt {number}." in server.requests[-1].body.decode() for number in range(2))

    asyncio.run(go())


def test_a_server_that_cuts_prompts_without_a_word_is_found_out() -> None:
    """It counts 4,096 tokens of whatever it is sent, as a local server does with its usual window."""

    async def go() -> None:
        def answer(received: Received) -> Turn:
            return turn("Yes.", usage=Tokens(input=min(len(received.body) // 4, 4_096), output=5))

        with FakeServer("openai_chat", answer, dialect="ollama", models=("small",)) as server:
            async with HttpTransport() as transport:
                model = opened(server, "ollama:small", transport)
                thread = harness_on(model, ContextRules(), tools=[]).thread()
                told = [(await thread.run(f"{n} " + "some words here " * 700)).warnings for n in range(4)]
                assert told[:3] == [(), (), ()]
                assert "counted 4,096 tokens of about" in told[3][0]
                with pytest.raises(UsageError, match="room for 3,686"):
                    await thread.run("some words here " * 700)

    asyncio.run(go())


def test_a_provider_that_counts_more_than_bytes_is_believed() -> None:
    """A prompt whose bytes fit is not counted, but a provider may add to it: what it reports decides."""

    def tell(n: int) -> str:
        """Tell something short."""
        return f"{n} " + "a few words " * 30

    class Adding(Working):
        def __call__(self, received: Received) -> Turn:
            made = super().__call__(received)
            assert len(received.body) < 11_500, "the bytes alone are below the target"
            return turn(*made.parts, usage=Tokens(input=24_000, output=20))

    async def go() -> None:
        async with serving("anthropic_messages", Adding("tell", 8)) as (_, model):
            rules = ContextRules(window=24_000, reserve=1_000, compact=False)
            with pytest.raises(ContextTooLong, match="with room for 23,000"):
                await harness_on(model, rules, tools=[tool(effect="read")(tell)]).run("Go on.")

    asyncio.run(go())
