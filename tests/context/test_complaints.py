"""What users of other harnesses suffered from, each as a test that names it; `COMPLAINTS` lists all, and where they are.

Some stand beside the behaviour that they are about, in the other files of this folder.
"""

import asyncio
import re
from pathlib import Path
from random import Random

import pytest

from bench.caching import PrefixCache
from evener import Harness, tool
from evener.context import ContextRules
from evener.context.accounting import rates_of
from evener.context.compaction import plan_compaction
from evener.context.eviction import plan_eviction
from evener.context.view import apply_edit
from evener.events import Compacted, Evicted, ModelFailed
from evener.harness import Decision
from evener.testing import Call, Received, ScriptedModel, Status, Turn, check_request, turn
from evener.transcript import Message, Origin, Transcript
from evener.transcript.ask import Ask, Cache, ModelSettings, ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall, ToolResult
from evener.wire import CODECS, Quirks
from tests.context.servers import ENDLESS, MODELS, events_of, fetch, harness_on, serving
from tests.context.test_room import GOOD, Worker, asks_of, harness_of, tokens_of

COMPLAINTS = (
    # Loops.
    *("kimi-code PR 2498", "opencode PR 48828", "oh-my-pi PR 3412", "infinity PR 74", "openclaw #119824"),
    *("openclaw #126804", "micode #14"),
    # Pairs split.
    *("opencode #25774", "kimi-code PR 1054", "graph-agent #85", "atomic #1300", "Codewhale #6119"),
    "oh-my-openagent PR 7200",
    # Overflow recovery.
    *("pi #8061", "command-code #891", "oh-my-openagent #8411", "zerostack PR 132", "zot PR 117"),
    # Summariser.
    *("senpi #1067", "inspect PR 4493"),
    # Cache money.
    *("claude-code #63930", "agentcore-public-stack PR 697", "home-generative-agent #617", "MeshWeaver PR 2108"),
    *("hermes #27339", "vscode #316182", "claude-agent-sdk-typescript #197"),
)


@pytest.mark.parametrize("name", COMPLAINTS)
def test_every_complaint_is_named_by_a_test(name: str) -> None:
    told = [found for path in Path(__file__).parent.glob("test_*.py") for found in named(path.read_text("utf-8"))]
    assert any(name in one for one in told), name


def named(source: str) -> list[str]:
    """Return the names and docstrings of the tests in a file, and the names of their cases."""
    return re.findall(r'def (test_\w+\([^)]*\)[^:]*:\s+""".*?""")', source, re.DOTALL) + re.findall(
        r'"([^"]*\(.*?\))":', source
    )


# Loops.


@pytest.mark.parametrize("compact", [True, False])
def test_a_floor_above_the_gate_is_told_at_once_and_not_compacted_over_and_over(compact: bool) -> None:
    """kimi-code PR 2498: 29k tokens of system prompt and tools, and a threshold of 27k: it compacted for ever."""

    async def go() -> None:
        worker = Worker(12)
        harness = Harness(
            ScriptedModel(worker), tools=[fetch], system="Rule. " * 5_000, store="memory", limits=ENDLESS,
            context=ContextRules(window=10_000, reserve=500, verbose=10**6, compact=compact),
        )  # fmt: skip
        thread = harness.thread()
        worker.turns = 2
        result = await thread.run("Hello.")
        [warning] = result.warnings
        assert "Content that is never taken out" in warning
        assert worker.summaries == 0

    asyncio.run(go())


def test_a_compaction_that_makes_no_room_is_not_tried_again_with_every_turn() -> None:
    """oh-my-pi PR 3412, micode #14: a summary that put the conversation back at the threshold was made again at once."""

    @tool(effect="read")
    def step(n: int) -> str:
        """Do one step."""
        return f"{n}: " + "word " * 200

    async def go() -> None:
        worker = Worker(60, "step", summary=f"<summary>{'found ' * 4_000}</summary>")
        model = ScriptedModel(worker)
        rules = ContextRules(window=12_000, reserve=1_000)
        harness = Harness(model, tools=[step], store="memory", limits=ENDLESS, context=rules)
        thread = harness.thread()
        assert (await thread.run("Do it all.")).stop == "done"
        assert 0 < worker.summaries <= 9, "not before a tenth of the room is new"

    asyncio.run(go())


def test_a_count_from_before_a_compaction_does_not_fire_again() -> None:
    """infinity PR 74: the last answer's usage was of the long prompt, and the next turn compacted once more."""

    async def go() -> None:
        worker = Worker(7)
        harness = harness_of(worker, ContextRules(window=16_000, reserve=1_000, verbose=10**6))
        thread = harness.thread()
        await thread.run("Fetch it all.")
        worker.turns, worker.said = 1, 0
        before = worker.summaries
        for number in range(5):
            await thread.run(f"And {number}?")
        assert worker.summaries - before <= 1

    asyncio.run(go())


# Pairs split.


def batches(random: Random) -> list[Message]:
    """A history whose turns call several tools at once, some with words of the user beside the results."""
    found = [Message.user_text("Do it all.")]
    for turn_number in range(random.randint(3, 12)):
        calls = [ToolCall(f"c{turn_number}x{n}", "fetch", "{}") for n in range(random.randint(1, 7))]
        results = [ToolResult(call.id, (TextBlock("found " * random.choice((1, 300, 3000))),)) for call in calls]
        spoken = [TextBlock(f"No, the other one ({turn_number}).")] if random.random() < 0.3 else []
        found += [Message("assistant", tuple(calls)), Message("user", (*results, *spoken))]
    return found


@pytest.mark.parametrize("wire", MODELS)
def test_no_budget_splits_a_batch_of_calls_from_its_results(wire: str) -> None:
    """opencode #25774, graph-agent #85, atomic #1300, oh-my-openagent PR 7200: the cut went through a batch.

    Codewhale #6119: a user message with text and results. The words stay, and so do the pairs.
    """
    rates, target = rates_of(wire), Origin(wire, "x", model="m")
    for seed in range(40):
        random = Random(seed)
        talk = Transcript(batches(random), "s")
        spoken = [block.text for message in talk for block in message.blocks if isinstance(block, TextBlock)]
        plan = plan_eviction(talk.messages, random.choice((500.0, 1e9)), rates=rates, rules=ContextRules(tail=1), excerpt=500)
        talk = apply_edit(talk, Evicted(at=0.0, id="e", cuts=plan.cuts, cause="gate"))
        wanted = plan_compaction(talk.messages, random.choice((100.0, 4_000.0, 20_000.0)), rates=rates, forced=True)
        if wanted is not None:
            summary = Message.user_text("In short: much was done.")
            made = Compacted(at=0.0, id="c", summary=summary, until=wanted.until, kept=wanted.kept)
            talk = apply_edit(talk, made)
        called = [call.id for message in talk for call in message.calls]
        answered = [block.call_id for message in talk for block in message.blocks if isinstance(block, ToolResult)]
        assert called == answered
        said = [block.text for message in talk for block in message.blocks if isinstance(block, TextBlock)]
        assert all(text in said for text in spoken)
        encoded = CODECS[wire].encode(Ask(talk, target, (ToolSpec("fetch", "Fetch."),)), Quirks(), None)
        assert check_request(wire, encoded.body, model=MODELS[wire].partition(":")[2]) == []


def test_what_is_under_way_is_not_touched_by_a_compaction() -> None:
    """kimi-code PR 1054: the index was computed while a batch was in flight. Approvals wait as they did."""

    @tool(effect="write", approval=True)
    def send(n: int) -> str:
        """Send something."""
        return f"sent {n}"

    class Sender(Worker):
        def __call__(self, ask: Ask) -> object:  # type: ignore[override]
            self.name = "send" if self.said == 5 else "fetch"
            return super().__call__(ask)

    async def go() -> None:
        worker = Sender(9)
        harness = Harness(
            ScriptedModel(worker), tools=[fetch, send], store="memory", limits=ENDLESS,  # type: ignore[arg-type]
            context=ContextRules(window=64_000),
        )  # fmt: skip
        thread = harness.thread()
        waiting = await thread.run("Fetch, then send.")
        assert waiting.stop == "approval"
        [approval] = waiting.approvals
        assert isinstance(await thread.compact(), Compacted)
        state = await thread.state()
        assert [one.call.name for one in state.calls] == ["send"]
        await thread.decide({approval.key: Decision("allow")})
        done = await thread.resume()
        assert done.stop == "done"
        assert any("sent 6" in str(record.result) for record in done.records)
        for ask in asks_of(harness)[-2:]:
            called = [call.id for message in ask.transcript for call in message.calls]
            answered = [
                block.call_id for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)
            ]
            assert called == answered

    asyncio.run(go())


# Overflow recovery.


def test_an_output_limit_in_the_settings_is_reserved() -> None:
    """pi #8061: a 400 at 78 % of the window, because max_tokens was not taken off. Settings of agent and run count."""
    most = ModelSettings(max_output_tokens=8_000)
    for agent, run in ((most, None), (None, most)):
        model = ScriptedModel(Worker(20))
        harness = Harness(
            model, tools=[fetch], store="memory", limits=ENDLESS, context=ContextRules(window=16_000), settings=agent
        )
        asyncio.run(harness.run("Fetch it all.", settings=run))
        assert max(tokens_of(ask) for ask in model.asks) <= 8_000


WORDINGS = {
    "anthropic_messages": ("prompt is too long: 31000 tokens > 9000 maximum",),
    "openai_responses": ("Your input exceeds the context window of this model. Please adjust your input and try again.",),
    "openai_chat": (
        "This model's maximum context length is 9000 tokens. However, your messages resulted in 31000 tokens.",
        "the request (31000 tokens) exceeds the available context size (9000 tokens), try increasing it",
        "Please reduce the length of the messages or completion.",
    ),
    "gemini": ("The input token count (31000) exceeds the maximum number of tokens allowed (9000).",),
}


@pytest.mark.parametrize(("wire", "said"), [(wire, said) for wire, texts in WORDINGS.items() for said in texts])
def test_every_providers_wording_of_an_overflow_makes_room(wire: str, said: str) -> None:
    """zot PR 117: each provider words it in its own way. command-code #891: the error never becomes a message."""
    number = 0

    def script(received: Received) -> Turn | Status:
        nonlocal number
        if len(received.body) > 36_000:
            return Status(400, said)
        if b"<conversation>" in received.body:
            return turn(GOOD)
        number += 1
        return turn(Call("fetch", {"n": number})) if number < 9 else turn("Done.")

    async def go() -> None:
        async with serving(wire, script) as (server, model):  # type: ignore[arg-type]
            harness = harness_on(model, ContextRules())
            thread = harness.thread()
            result = await thread.run("Fetch it all.")
            assert result.stop == "done"
            failed = await events_of(harness, thread, ModelFailed)
            assert 1 <= len(failed) <= 3
            assert said not in server.requests[-1].body.decode()

    asyncio.run(go())


# Cache money.


def test_more_results_than_the_look_back_reaches_do_not_lose_the_cached_prefix() -> None:
    """claude-code #63930: more than 20 parallel results pass the provider's look-back, and the prefix is written again."""
    wire, target = "anthropic_messages", Origin("anthropic_messages", "anthropic", model="claude")
    calls = [ToolCall(f"c{n}", "fetch", "{}") for n in range(30)]
    results = [ToolResult(call.id, (TextBlock("found " * 50),)) for call in calls]
    talk = Transcript([Message.user_text("Go. " * 2_000)], "Rules. " * 500)
    cache, encoded = PrefixCache(), None
    billed = []
    for more in ((), (Message("assistant", tuple(calls)), Message("user", tuple(results))), (Message.user_text("On."),)):
        talk = talk.extend((Message("assistant", (TextBlock("Yes."),)), *more) if more and len(more) == 1 else more)
        cache.now += 5
        ask = Ask(talk, target, (ToolSpec("fetch", "Fetch."),), cache=Cache("moving"))
        encoded = CODECS[wire].encode(ask, Quirks(), encoded)
        billed.append(cache.ask(encoded.body))
        whole = len(encoded.body) * 0.29
    assert billed[2] < whole * 0.2, "nearly all of the last request is read from the cache"
