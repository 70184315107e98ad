"""Conversations that a provider compacts or edits itself, against the strict fakes. (S3.4)"""

import asyncio
import json

import pytest

from evener.context import ContextRules
from evener.events import Compacted, CompactionFailed, ContextRestored, Evicted
from evener.replay import replay
from evener.testing import Call, FakeServer, Received, Turn, turn
from evener.transcript.blocks import HostedBlock
from evener.transport.http import HttpTransport
from tests.context.servers import MODELS, events_of, harness_on, opened, serving

RULES = ContextRules(window=30_000, by_provider="compact", verbose=10**6)
SUMMARY = "They fetched much, and found little of it useful."


def is_compaction(received: Received) -> bool:
    return "compaction" in received.json or received.route.endswith("/compact")


class Fetching:
    """A model that fetches five times a run. `compacts` is what it answers where a compaction is asked for."""

    def __init__(self, compacts: Turn) -> None:
        self.compacts = compacts
        self.said = 0

    def __call__(self, received: Received) -> Turn:
        if is_compaction(received):
            return self.compacts
        if "<conversation>" in received.body.decode():
            return turn("<summary>Much was fetched, and little of it was useful.</summary>")
        self.said += 1
        return turn(Call("fetch", {"n": self.said})) if self.said % 6 else turn("Done.")


def texts_of(body: dict[str, object]) -> str:
    return json.dumps(body.get("messages") or body.get("input"))


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses"])
def test_the_provider_compacts_and_its_sealed_item_goes_back_verbatim(wire: str) -> None:
    """A signed block on Anthropic, which must come first; /responses/compact on OpenAI. All prompts stay verbatim."""

    async def go() -> None:
        async with serving(wire, Fetching(turn(SUMMARY))) as (server, model):
            harness = harness_on(model, RULES)
            thread = harness.thread()
            for number in range(4):
                assert (await thread.run(f"Prompt {number}.")).stop == "done"
            made = await events_of(harness, thread, Compacted)
            asked = [one for one in server.requests if is_compaction(one)]
            assert len(made) == len(asked) >= 1
            [block] = made[-1].summary.blocks
            assert isinstance(block, HostedBlock)
            last = texts_of(server.requests[-1].json)
            assert json.loads(block.raw) in [
                one
                for item in (server.requests[-1].json.get("messages") or server.requests[-1].json["input"])
                for one in (item, *(item["content"] if isinstance(item.get("content"), list) else ()))
            ]
            assert all(f"Prompt {number}." in last for number in range(4))
            assert (await replay(await harness.store.read(thread.log), log=thread.log)).differences == ()
            assert await thread.restore_context(whole=True)
            assert (await thread.state()).view == (await thread.state()).transcript

    asyncio.run(go())


@pytest.mark.parametrize("bad", [turn("", stop="end_turn"), turn("I would rather not.", stop="filter"), turn("")])
def test_a_provider_that_comes_to_no_compaction_changes_nothing_and_a_summary_is_made(bad: Turn) -> None:
    async def go() -> None:
        async with serving("anthropic_messages", Fetching(bad)) as (_, model):
            harness = harness_on(model, RULES)
            thread = harness.thread()
            await thread.run("Prompt 0.")
            before = (await thread.state()).view
            assert isinstance(await thread.compact(), CompactionFailed)
            assert (await thread.state()).view == before
            made = await thread.compact()
            assert isinstance(made, Compacted)
            assert made.summary.role == "user"  # a model wrote it

    asyncio.run(go())


def test_a_focus_is_told_where_it_can_be() -> None:
    async def go() -> None:
        async with serving("anthropic_messages", Fetching(turn(SUMMARY))) as (server, model):
            thread = harness_on(model, RULES).thread()
            await thread.run("Prompt 0.")
            assert isinstance(await thread.compact("the shelf"), Compacted)
            assert "the shelf" in server.requests[-1].json["compaction"]["instructions"]

    asyncio.run(go())


def test_a_summary_in_words_stands_for_what_a_sealed_one_stood_for() -> None:
    """A summariser cannot read what OpenAI sealed: it gets the messages behind it, else all of them would be forgotten."""

    async def go() -> None:
        async with serving("openai_responses", Fetching(turn(SUMMARY))) as (server, model):
            harness = harness_on(model, RULES)
            thread = harness.thread()
            await thread.run("Prompt 0.")
            assert isinstance(await thread.compact(), Compacted)
            await thread.run("Prompt 1.")
            made = await thread.compact("the shelf")  # which OpenAI cannot be told, so a model writes it
            assert isinstance(made, Compacted)
            assert made.summary.role == "user"
            asked = server.requests[-1].body.decode()
            assert all(f"result: {number}: words" in asked for number in (1, 5, 7, 11))
            assert (await replay(await harness.store.read(thread.log), log=thread.log)).differences == ()

    asyncio.run(go())


def test_a_model_that_cannot_read_the_sealed_summary_gets_the_messages_again() -> None:
    """What only one provider can read must not be all that another one knows."""

    async def go() -> None:
        with FakeServer("openai_chat", ["I see it all."], dialect="openai") as other:
            async with serving("openai_responses", Fetching(turn(SUMMARY))) as (_, model), HttpTransport() as transport:
                harness = harness_on(model, RULES)
                thread = harness.thread()
                await thread.run("Prompt 0.")
                assert isinstance(await thread.compact(), Compacted)
                second = harness_on(opened(other, MODELS["openai_chat"], transport), RULES, store=harness.store)
                result = await second.thread(thread.id).run("And now?")
                assert result.text == "I see it all."
                assert any("only that provider can read it" in one for one in result.warnings)
                assert "5: words and words" in other.requests[-1].body.decode()
                events = await harness.store.read(thread.log)
                assert any(isinstance(one, ContextRestored) for one in events)
                assert (await replay(events, log=thread.log)).differences == ()

    asyncio.run(go())


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses"])
def test_the_provider_is_told_to_edit_from_the_gate_on(wire: str) -> None:
    """Context-management edits: ours comes only at the end of the room, and what the provider counts is believed."""
    rules = ContextRules(window=200_000, reserve=4_000, by_provider="edit")

    async def go() -> None:
        async with serving(wire, Fetching(turn(SUMMARY))) as (server, model):
            harness = harness_on(model, rules)
            thread = harness.thread()
            result = await thread.run("Prompt 0.")
            assert (result.stop, result.warnings) == ("done", ())
            assert not await events_of(harness, thread, Evicted)
            told = server.requests[-1].json["context_management"]
            if wire == "openai_responses":
                assert told == [{"type": "compaction", "compact_threshold": 156_800}]
            else:
                kinds = [edit["type"] for edit in told["edits"]]
                assert kinds == ["clear_tool_uses_20250919", "compact_20260112"]
                assert {edit["trigger"]["value"] for edit in told["edits"]} == {156_800}
                assert "context-management-2025-06-27" in server.requests[-1].headers["anthropic-beta"]

    asyncio.run(go())
