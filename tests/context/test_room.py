"""Conversations that are too long: shortened before they are sent, or refused with one clear error.

(S0.16, S0.54, S1.9, S3.2, S3.4, S3.7, S3.8, S3.22)
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Literal, TypeVar

import pytest

from bench.windows import LARGE, PIXEL, WINDOW, run_long, run_too_small
from evener import Harness, tool
from evener.context.accounting import count_frame, rates_of, size_messages
from evener.context.gate import ContextRules
from evener.context.view import REMOVED_SCREENSHOT, SUMMARY
from evener.errors import BadValue, ContextTooLong, EvenerError, Overloaded, UsageError
from evener.events import Compacted, CompactionFailed, Event, Evicted, Limits, ModelCalled, ModelFailed
from evener.harness import Thread
from evener.replay import replay
from evener.store import Store
from evener.testing import ScriptedModel, calls, says
from evener.transcript import Ask
from evener.transcript.blocks import DocumentBlock, ImageBlock, Inline, TextBlock, ToolCall, ToolResult
from evener.transcript.reply import Reply, Stop, Usage

T = TypeVar("T")
RULES = ContextRules(window=16_000)
ENDLESS = Limits(requests=None, tool_calls=None, repeats=1000, repeats_stop=1000)
GOOD = "<summary>The user looked for the load, and it was on the third shelf.</summary>"


def run(work: Coroutine[object, object, T]) -> T:
    return asyncio.run(work)


@tool(effect="read", output_limit=200_000)
def fetch(n: int) -> str:
    """Fetch something."""
    return f"{n}: " + "words and words " * 500


@tool(effect="read", output_limit=200_000)
def flood(n: int) -> str:
    """Fetch far too much."""
    return f"{n}: {LARGE}"


@tool(effect="read")
def look(n: int) -> list[TextBlock | ImageBlock]:
    """Take a picture."""
    return [TextBlock(f"screen {n}"), ImageBlock(Inline(PIXEL), "image/png")]


def tokens_of(ask: Ask) -> int:
    rates = rates_of(ask.target.wire)
    return round(count_frame(ask.transcript, ask.tools, None, rates).total + size_messages(ask.transcript, rates))


class Worker:
    """A model that calls a tool so many times a run, and reports what a provider would. `summary` is how it compacts."""

    def __init__(self, turns: int, name: str = "fetch", summary: str | Reply | EvenerError = GOOD) -> None:
        self.turns, self.name, self.summary = turns, name, summary
        self.said = self.summaries = 0
        self.window = 0

    def __call__(self, ask: Ask) -> Reply | EvenerError | str:
        used = tokens_of(ask)
        usage = Usage(used, used, 0, 0, 30, 0)
        if not ask.tools:
            self.summaries += 1
            return says(self.summary, usage=usage) if isinstance(self.summary, str) else self.summary
        if self.window and used > self.window:
            return ContextTooLong("too long", status=400, used=used, limit=self.window)
        self.said += 1
        if self.said % self.turns == 0:
            return says("Done.", usage=usage)
        return calls(ToolCall(f"c{self.said}", self.name, f'{{"n":{self.said}}}'), usage=usage)


def harness_of(worker: Callable[[Ask], Reply | EvenerError | str], rules: ContextRules | bool = RULES) -> Harness:
    model = ScriptedModel(worker)
    return Harness(model, tools=[fetch, flood, look], store="memory", context=rules, limits=ENDLESS)


async def events_of(harness: Harness, thread: Thread, kind: type[Event]) -> list[Event]:
    return [event for event in await harness.store.read(thread.log) if isinstance(event, kind)]


def asks_of(harness: Harness) -> list[Ask]:
    model = harness.models[0]
    assert isinstance(model, ScriptedModel)
    return model.asks


def test_two_hundred_turns_in_a_small_window_are_legal_on_all_wires() -> None:
    """The short form of `python -m bench windows`: every prompt verbatim, no violation, nothing beyond the window."""
    found = run_long(200, 4, every=10)
    assert (found.violations, found.missing) == ([], 0)
    assert found.largest < WINDOW
    assert found.compactions
    assert found.evictions


def test_a_window_below_the_floor_is_one_clear_error_and_no_loop() -> None:
    """kimi-code PR 2498: fixed overhead above the threshold of a 32k window compacted for ever."""
    asked, error = run_too_small()
    assert asked == 0
    assert "Nothing was sent or stored" in error


def test_only_the_three_newest_screenshots_stay() -> None:
    """S3.22, with its exact placeholder."""
    harness = harness_of(Worker(30, "look"))
    run(harness.run("Look around."))
    last = asks_of(harness)[-1].transcript
    parts = [part for message in last for block in message.blocks if isinstance(block, ToolResult) for part in block.content]
    shown = [
        isinstance(part, ImageBlock) for part in parts if isinstance(part, ImageBlock) or part == TextBlock(REMOVED_SCREENSHOT)
    ]
    assert True in shown
    assert False in shown
    first_kept = shown.index(True)
    assert all(shown[first_kept:])
    assert not any(shown[:first_kept])


def test_results_that_are_taken_out_can_be_read_again_and_the_transcript_is_whole() -> None:
    """S0.16, S0.54, S3.4: nothing is deleted; the model is told how to page through what is gone."""

    async def go() -> None:
        harness = harness_of(Worker(12))
        thread = harness.thread()
        result = await thread.run("Fetch it all.")
        cuts = [cut for event in await events_of(harness, thread, Evicted) if isinstance(event, Evicted) for cut in event.cuts]
        assert cuts
        assert all(cut.kind == "result" for cut in cuts)
        text = (await harness.store.get_blob(cuts[0].blob)).decode()
        assert text.startswith("1: words")
        assert cuts[0].blob in str(asks_of(harness)[-1].transcript.messages)
        kept = {message.id: message for message in result.transcript}
        assert text in str(kept[cuts[0].message])  # the message of that id is there as it was

    run(go())


def test_the_gate_and_not_every_turn_decides() -> None:
    """S3.7; agentcore-public-stack PR 697: a sliding window rewrites the cache with every turn."""

    async def go() -> None:
        harness = harness_of(Worker(40), ContextRules(window=64_000))
        thread = harness.thread()
        await thread.run("Fetch it all.")
        evicted = [event.tokens for event in await events_of(harness, thread, Evicted) if isinstance(event, Evicted)]
        assert 2 <= len(evicted) <= 4
        gate = 0.8 * 64_000
        assert min(evicted) > gate
        assert 0.7 * 64_000 < max(map(tokens_of, asks_of(harness))) < gate
        assert not await events_of(harness, thread, Compacted)

    run(go())


def test_s3_8_in_a_run_screenshots_go_before_results_and_no_prompt_goes() -> None:
    class Mixed(Worker):
        def __call__(self, ask: Ask) -> Reply | EvenerError | str:
            self.name = "fetch" if self.said % 2 else "look"
            return super().__call__(ask)

    async def go() -> None:
        prompt = "Find it. " * 300
        harness = harness_of(Mixed(40), ContextRules(window=24_000))
        thread = harness.thread()
        await thread.run(prompt)
        asks = iter([ask for ask in asks_of(harness) if ask.tools])
        pictures, kinds = 0, []
        for event in await harness.store.read(thread.log):
            if isinstance(event, ModelCalled):
                ask = next(asks)
                assert ask.transcript.messages[0].text == prompt
                parts = [part for one in ask.transcript for block in one.blocks for part in getattr(block, "content", ())]
                pictures = sum(isinstance(part, ImageBlock) for part in parts)
            if isinstance(event, Evicted):  # what the request before it was sent without
                kinds.append({cut.kind for cut in event.cuts})
                assert "result" not in kinds[-1] or pictures == 3
        assert kinds
        assert kinds[0] == {"screenshot", "result"}

    run(go())


def test_what_is_reserved_for_the_answer_counts() -> None:
    """pi #8061: a 400 at 78 % of the window, because max_tokens was not reserved."""
    small = ContextRules(window=16_000, reserve=8_000)
    harness = harness_of(Worker(20), small)
    run(harness.run("Fetch it all."))
    assert max(tokens_of(ask) for ask in asks_of(harness)) <= 8_000


def test_an_overflow_is_answered_by_making_room() -> None:
    """zot PR 117, command-code #891: the typed error makes room; no error text gets into the conversation."""

    async def go() -> None:
        worker = Worker(12)
        worker.window = 9_000
        harness = harness_of(worker, ContextRules())  # the window is not known before the provider says it
        thread = harness.thread()
        result = await thread.run("Fetch it all.")
        assert result.stop == "done"
        failed = await events_of(harness, thread, ModelFailed)
        assert 1 <= len(failed) <= 2  # what the provider takes is learnt from its first refusal
        assert "too long" not in str((await thread.state()).transcript.messages)

    run(go())


def test_an_overflow_that_nothing_helps_against_ends_the_run() -> None:
    """opencode PR 48828, openclaw #119824: over and over, until the rate limit."""
    worker = Worker(5)
    worker.window = 10
    harness = harness_of(worker, ContextRules())
    with pytest.raises(ContextTooLong):
        run(harness.run("Hello."))
    assert len(asks_of(harness)) <= 4


def test_a_result_larger_than_the_window_is_shortened_and_kept() -> None:
    harness = harness_of(Worker(4, "flood"), ContextRules(window=8_000, compact=False))
    result = run(harness.run("Fetch it all."))
    assert result.stop == "done"
    assert max(tokens_of(ask) for ask in asks_of(harness)) < 8_000


@tool(effect="read")
def note(n: int) -> str:
    """Return a few lines."""
    return f"{n}: " + "a row of a table " * 50


@tool(effect="read")
def report(n: int) -> list[DocumentBlock]:
    """Return a document."""
    return [DocumentBlock(Inline(b64encode(f"{n}: {LARGE}".encode()).decode()), "text/plain", name=f"{n}.txt")]


@pytest.mark.parametrize(("name", "at_once"), [("note", 60), ("report", 4)])
def test_results_that_are_too_much_together_do_not_wedge_the_thread(name: str, at_once: int) -> None:
    """Each of them is small, or is no text: what cannot be shortened to its beginning is taken out as a whole."""

    async def go() -> None:
        def answer(ask: Ask) -> Reply:
            usage = Usage(tokens_of(ask), 0, 0, 0, 30, 0)
            if not ask.tools:
                return says(GOOD, usage=usage)
            if ask.transcript.messages[-1].text:
                made = [ToolCall(f"c{len(model.asks)}-{n}", name, f'{{"n":{n}}}') for n in range(at_once)]
                return calls(*made, usage=usage)
            return says("Done.", usage=usage)

        model = ScriptedModel(answer)
        harness = Harness(model, tools=[note, report], store="memory", context=ContextRules(window=8_000), limits=ENDLESS)
        thread = harness.thread()
        for number in range(3):
            assert (await thread.run(f"Prompt {number}.")).stop == "done"
        assert max(map(tokens_of, model.asks)) < 8_000
        assert "result removed to save context" in str(model.asks[1].transcript.messages)
        assert all(f"Prompt {number}." in str(model.asks[-1].transcript.messages) for number in range(3))

    run(go())


def test_what_stands_for_a_result_is_not_taken_out_itself() -> None:
    """It names what holds the whole result, and would be lost."""

    async def go() -> None:
        harness = harness_of(Worker(40), ContextRules(window=16_000, verbose=0))
        thread = harness.thread()
        await thread.run("Fetch it all.")
        cuts = [cut for event in await events_of(harness, thread, Evicted) if isinstance(event, Evicted) for cut in event.cuts]
        places = [(cut.message, cut.block, cut.part) for cut in cuts]
        assert len(places) == len(set(places)) > 20

    run(go())


def test_a_message_that_can_never_be_sent_does_not_wedge_the_thread() -> None:
    """zerostack PR 132: an oversized prompt stayed in history, and every later message failed, too."""

    async def go() -> None:
        harness = harness_of(Worker(1))
        thread = harness.thread()
        await thread.run("Hello.")
        with pytest.raises(UsageError, match="Nothing was sent or stored"):
            await thread.run("x" * 200_000)
        assert (await thread.run("Still there?")).stop == "done"
        assert len((await thread.state()).transcript) == 4

    run(go())


def test_a_message_to_a_busy_run_that_can_never_be_sent_is_refused() -> None:
    async def go() -> None:
        begun, heard = asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def wait(n: int) -> str:
            """Wait."""
            begun.set()
            await heard.wait()
            return f"{n}"

        model = ScriptedModel([calls(ToolCall("c", "wait", '{"n":1}')), says("Done."), says("Yes.")])
        thread = Harness(model, tools=[wait], store="memory", context=RULES).thread()
        async with thread.stream("Go.") as stream:
            await begun.wait()
            with pytest.raises(UsageError, match="Nothing was sent or stored"):
                await stream.steer("x" * 200_000)
            heard.set()
            assert (await stream.result()).stop == "done"
        assert (await thread.run("Still there?")).stop == "done"

    run(go())


def test_prompts_that_alone_exceed_the_window_are_a_clear_error() -> None:
    async def go() -> None:
        harness = harness_of(Worker(1), ContextRules(window=6_000, reserve=1_000))
        thread = harness.thread()
        for _ in range(4):
            await thread.run("say " * 1_000)
        with pytest.raises(UsageError, match="the user's prompts"):
            await thread.run("say " * 1_000)
        assert not await events_of(harness, thread, Compacted)
        assert (await thread.run("Still there?")).stop == "done", "what was refused is not in the thread"

    run(go())


def test_another_model_of_the_chain_with_more_room_is_asked() -> None:
    """A conversation that does not fit the first model goes to the next one; and no loop where it fits none."""

    class Small(ScriptedModel):
        pass

    async def go() -> None:
        worker = Worker(1)
        worker.window = 100
        wide = ScriptedModel(lambda ask: says("Here.", usage=Usage(tokens_of(ask), 0, 0, 0, 5, 0)), name="scripted:wide")
        harness = Harness([Small(worker), wide], tools=[fetch], store="memory", limits=ENDLESS)
        result = await harness.run("say " * 200)
        assert (result.stop, result.text) == ("done", "Here.")

    run(go())


BAD_SUMMARIES: dict[str, str | Reply | EvenerError] = {
    "an error text (inspect PR 4493)": "Error: the service is not available.",
    "empty": "",
    "truncated": Reply((TextBlock("<summary>so far it"),), Stop("length"), Usage(10, 10, 0, 0, 5, 0)),
    "refused": Reply((TextBlock(GOOD),), Stop("refusal"), Usage(10, 10, 0, 0, 5, 0)),
    "a call (senpi #1067)": calls(ToolCall("x", "fetch", "{}")),
    "failed": Overloaded("too much", status=529),
    "longer than what it stands for": f"<summary>{'more and more ' * 9_000}</summary>",
}


@pytest.mark.parametrize("bad", BAD_SUMMARIES.values(), ids=BAD_SUMMARIES)
def test_a_summary_that_is_none_changes_nothing(bad: str | Reply | EvenerError) -> None:
    """And the summariser gets no tools (senpi #1067); one failure does not end the thread (oh-my-openagent #8411)."""

    async def go() -> None:
        worker = Worker(6, summary=bad)
        harness = harness_of(worker, ContextRules(window=64_000))
        thread = harness.thread()
        await thread.run("Fetch it all.")
        before = (await thread.state()).view
        made = await thread.compact()
        assert isinstance(made, CompactionFailed)
        assert (await thread.state()).view == before
        assert all(not ask.tools for ask in asks_of(harness)[-1:])
        worker.summary = GOOD
        assert isinstance(await thread.compact(), Compacted)
        assert (await thread.run("Go on.")).stop == "done"

    run(go())


def test_a_summariser_that_always_fails_is_not_asked_over_and_over() -> None:
    """openclaw #126804: three full summaries per message; infinity PR 74: a stale count fires again."""
    worker = Worker(60, "look", summary="no")
    harness = harness_of(worker, ContextRules(window=4_000, reserve=500))
    with pytest.raises(ContextTooLong, match="could not be summarised"):
        run(harness.run("Look around."))
    assert worker.summaries == 2


@pytest.mark.parametrize("said", ["words and words ", "\u6f22\u5b57\u4eee\u540d", "\N{SLIGHTLY SMILING FACE}"])
def test_a_summariser_is_given_no_more_than_its_window_takes(said: str) -> None:
    """In any script: a letter may have four bytes, and a thread may come from a model with a far larger window."""

    @tool(effect="read", output_limit=200_000)
    def recite(n: int) -> str:
        """Recite something."""
        return f"{n}: " + said * (1_800 // len(said))

    def harness_with(window: int, turns: int, store: Store | Literal["memory"]) -> Harness:
        worker = Worker(turns, "recite")

        def answer(ask: Ask) -> Reply | EvenerError | str:
            used = tokens_of(ask)
            return worker(ask) if used <= window else ContextTooLong("too long", status=400, used=used, limit=window)

        model = ScriptedModel(answer, name=f"scripted:{window}")
        return Harness(model, tools=[recite], store=store, context=ContextRules(window=window), limits=ENDLESS)

    async def go() -> None:
        wide = harness_with(128_000, 60, "memory")
        thread = wide.thread()
        await thread.run("Recite it all.")
        small = harness_with(8_000, 3, wide.store)
        assert (await small.thread(thread.id).run("And now?")).stop == "done"
        assert not await events_of(small, thread, CompactionFailed)
        assert await events_of(small, thread, Compacted)

    run(go())


@pytest.mark.parametrize("window", [8_000, 2_500])
def test_a_run_that_is_cancelled_while_a_summary_is_made_asks_no_more(window: int) -> None:
    """Also where there is no room without the summary: it was cancelled, and did not fail."""

    async def go() -> None:
        told: list[asyncio.Task[None]] = []

        class Cancelled(Worker):
            def __call__(self, ask: Ask) -> Reply | EvenerError | str:
                if not ask.tools:
                    told.append(asyncio.ensure_future(stream.cancel()))
                return super().__call__(ask)

        worker = Cancelled(40)
        harness = harness_of(worker, ContextRules(window=window, verbose=10**6))
        thread = harness.thread()
        async with thread.stream("Fetch it all.") as stream:
            result = await stream.result()
        await asyncio.gather(*told)
        assert (result.stop, len(told)) == ("cancelled", 1)
        assert not asks_of(harness)[-1].tools, "the summariser was the last that was asked"
        assert (await replay(await harness.store.read(thread.log), log=thread.log)).differences == ()

    run(go())


def test_compacting_keeps_prompts_pinned_messages_and_pairs() -> None:
    """opencode #25774, kimi-code PR 1054, Codewhale #6119: a call was split from its result."""

    async def go() -> None:
        harness = harness_of(Worker(4), ContextRules(window=64_000))
        thread = harness.thread()
        for number in range(3):
            await thread.run(f"Prompt {number}.")
        whole = (await thread.state()).transcript
        pinned = next(message for message in whole if message.calls)
        await thread.pin(pinned.id)
        made = await thread.compact("the shelf")
        assert isinstance(made, Compacted)
        assert made.focus == "the shelf"
        assert "the shelf" in asks_of(harness)[-1].transcript.messages[0].text
        view = (await thread.state()).view
        said = [message.text for message in view]
        assert all(f"Prompt {number}." in said for number in range(3))
        assert any(text.startswith(SUMMARY) for text in said)
        assert pinned.id in {message.id for message in view}
        called = {call.id for message in view for call in message.calls}
        answered = {block.call_id for message in view for block in message.blocks if isinstance(block, ToolResult)}
        assert called == answered
        assert (await thread.state()).transcript == whole
        assert await thread.restore_context()
        assert (await thread.state()).view == whole
        assert not await thread.restore_context()

    run(go())


def test_what_a_summary_cost_is_counted() -> None:
    async def go() -> None:
        model = ScriptedModel(Worker(6), price=Decimal("0.5"))
        harness = Harness(model, tools=[fetch], store="memory", context=ContextRules(window=64_000), limits=ENDLESS)
        thread = harness.thread()
        await thread.run("Fetch it all.")
        before = (await thread.state()).spent
        await thread.compact()
        after = (await thread.state()).spent
        assert (after.requests - before.requests, after.cost - before.cost) == (1, model.most_cost(model.asks[-1]))

    run(go())


@pytest.mark.parametrize("name", ["fetch", "look", "flood"])
def test_a_run_that_was_shortened_can_be_replayed(name: str) -> None:
    async def go() -> None:
        harness = harness_of(Worker(25, name))
        thread = harness.thread()
        await thread.run("Go.")
        await thread.compact()
        await thread.restore_context()
        await thread.run("Go on.")
        played = await replay(await harness.store.read(thread.log), log=thread.log)
        assert played.differences == ()

    run(go())


def test_a_fork_has_the_view_of_where_it_began() -> None:
    async def go() -> None:
        harness = harness_of(Worker(25))
        thread = harness.thread()
        await thread.run("Go.")
        fork = await thread.fork()
        assert (await fork.state()).view == (await thread.state()).view
        await fork.restore_context(whole=True)
        assert (await fork.state()).view != (await thread.state()).view

    run(go())


@pytest.mark.parametrize("wrong", [{"gate": 0.4}, {"target": 0.0}, {"tail": 0}, {"verbose": -1}])
def test_rules_that_cannot_hold_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadValue, match="ContextRules"):
        ContextRules(**wrong)  # type: ignore[arg-type]


def test_a_harness_without_rules_sends_everything() -> None:
    harness = harness_of(Worker(12), False)
    result = run(harness.run("Fetch it all."))
    assert len(asks_of(harness)[-1].transcript) == len(result.transcript) - 1
    assert asks_of(harness)[-1].transcript.messages == result.transcript.messages[:-1]
