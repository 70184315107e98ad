"""Threads whose past the provider holds: over restarts, hops, forks, crashes and losses. The log always has the whole truth.

The server is strict: an item that lies there already, or a result of a call that does not, is refused.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener import tool
from evener.errors import EvenerError, UsageError
from evener.harness import Harness
from evener.loop.state import Limits
from evener.model import Model, open_model
from evener.model.server_state import Bearings, open_conversation
from evener.replay import replay
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.store.protocol import Store
from evener.store.sqlite.store import SqliteStore
from evener.testing import Call, FakeServer, ScriptedModel, Status, Thinking, Turn, faults, turn
from evener.transcript.ask import State, StateMode
from evener.transcript.blocks import TextBlock
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Transport
from tests.driver.stage import model_at, quick_folder, served
from tests.model.held_items import Essence, asked, essence, inputs, resting
from tests.model.stage import NOWHERE, fresh_key, run, watched

HELD: tuple[StateMode, ...] = ("chain", "conversation")
ALL: tuple[StateMode, ...] = ("replay", *HELD)
PROMPTS = ("One?", "Two?", "Three?")
RESPONSES = "openai_responses"


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script() -> list[Turn]:
    """Three runs of two turns each: calls side by side, sealed thoughts, a word before a call."""
    return [
        turn(Thinking("Sums."), Call("add", {"a": 1, "b": 1}, id="c1"), Call("add", {"a": 2, "b": 2}, id="c2")),
        turn("Two and four."),
        turn(Thinking("More."), "I look.", Call("add", {"a": 3, "b": 3}, id="c3")),
        turn(Thinking("So."), "Six."),
        turn(Call("add", {"a": 4, "b": 4}, id="c4"), Call("add", {"a": 5, "b": 5}, id="c5")),
        turn("Eight and ten."),
    ]


NEW: list[list[Essence]] = [
    [("user", "One?")],
    [("output", "c1", "2"), ("output", "c2", "4")],
    [("user", "Two?")],
    [("output", "c3", "6")],
    [("user", "Three?")],
    [("output", "c4", "8"), ("output", "c5", "10")],
]
"""What each request of the script says anew."""


def forgetting(*numbers: int) -> list[Turn]:
    """The script, and after these turns the server has lost everything."""
    return [replace(one, forgets=number in numbers) for number, one in enumerate(script())]


def harness_of(model: Model | ScriptedModel, store: Store, state: StateMode | State) -> Harness:
    return Harness(model, tools=[add], system="Be brief.", store=store, state=state, page_output=False)


@asynccontextmanager
async def agent(server: FakeServer, state: StateMode | State, store: Store | None = None) -> AsyncIterator[Harness]:
    """A harness on that server; a model of its own each time, as another process would have."""
    async with watched() as transport:
        yield harness_of(model_at(server, RESPONSES, transport), store or MemoryStore(), state)


def lost(result: RunResult) -> list[str]:
    """Why the past was sent after all."""
    found = [loss for loss in result.losses if loss.what.startswith("state mode")]
    assert all(loss.kind == "degraded" for loss in found)
    return [loss.why for loss in found]


async def whole(harness: Harness, thread: str) -> list[Essence]:
    """The conversation as a request that sends everything would say it."""
    model = harness.models[0]
    assert isinstance(model, Model)
    ask = model.ask((await harness.thread(thread).state()).transcript)
    body = model.endpoint.codec.encode(ask, model.endpoint.facts.quirks, None).body
    return essence(json.loads(body)["input"])


async def held_by(harness: Harness, server: FakeServer, thread: str) -> list[Essence]:
    """What lies with the provider, by what the log says that it holds."""
    (standing,) = (await harness.thread(thread).state()).held
    assert standing.health == "good"
    return essence(server.held(standing.held.id) or [])


def expired(server: FakeServer) -> list[str]:
    """The rules that were broken: only one may be, and only where something had been lost."""
    return [one.violations[0].rule for one in server.rejected]


# How it goes.


@pytest.mark.parametrize("watching", [False, True], ids=["run", "stream"])
@pytest.mark.parametrize("mode", ALL)
def test_three_runs_in_every_mode(mode: StateMode, watching: bool) -> None:
    """S0.27, S1.21, S1.22, S1.23, S3.3: the same answers and the same transcript, whoever holds the past."""

    async def scene(server: FakeServer) -> None:
        async with agent(server, mode) as harness:
            thread = harness.thread()
            results = []
            for prompt in PROMPTS:
                results.append(await thread.stream(prompt).result() if watching else await thread.run(prompt))
            assert [result.text for result in results] == ["Two and four.", "Six.", "Eight and ten."]
            assert [result.losses for result in results] == [(), (), ()]
            events = await harness.store.read(thread.id)
            held = [event.held for event in events if isinstance(event, ev.Replied)]
            rests = [event.rests.id if event.rests else "" for event in events if isinstance(event, ev.ModelCalled)]
            if mode == "replay":
                assert held == [None] * 6
                assert [len(said) for said in inputs(server)] == [1, 6, 8, 12, 15, 19]
                assert all(received.json["store"] is False for received in asked(server))
                return
            assert inputs(server) == NEW
            assert all(received.json["instructions"] == "Be brief." for received in asked(server))
            names = [one.id for one in held if one]
            conversation = names[0]
            assert rests == ["", *(names[:5] if mode == "chain" else [conversation] * 5)]
            assert resting(server) == (rests if mode == "chain" else [conversation] * 6)
            assert await held_by(harness, server, thread.id) == await whole(harness, thread.id)

    with served(RESPONSES, script()) as server:
        run(scene(server))
        assert server.rejected == []


@pytest.mark.parametrize("mode", HELD)
def test_another_process_goes_on_from_the_log(mode: StateMode, tmp_path: Path) -> None:
    """S2.37: native state, and beside it the neutral transcript that outlives the process."""

    async def scene(server: FakeServer, path: Path) -> None:
        thread = ""
        for prompt in PROMPTS:
            store = SqliteStore(path)
            async with agent(server, mode, store) as harness:
                result = await harness.run(prompt, thread=thread)
                assert result.losses == ()
                thread = result.thread
                if prompt == PROMPTS[-1]:
                    assert await held_by(harness, server, thread) == await whole(harness, thread)
            await store.aclose()
        assert inputs(server)[:6] == NEW

    with quick_folder(tmp_path) as folder, served(RESPONSES, script()) as server:
        run(scene(server, folder / "store.db"))
        assert server.rejected == []


# What is lost.


@pytest.mark.parametrize("mode", HELD)
@pytest.mark.parametrize("after", [(0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3, 4)], ids=str)
def test_what_is_lost_at_any_turn_is_sent_again_once(after: tuple[int, ...], mode: StateMode) -> None:
    """C1: an expired id falls back to replay by itself, within the turn, without an item twice, and is reported."""

    async def scene(server: FakeServer) -> None:
        async with agent(server, mode) as harness:
            thread = harness.thread()
            results = [await thread.run(prompt) for prompt in PROMPTS]
            assert [result.text for result in results] == ["Two and four.", "Six.", "Eight and ten."]
            reports = [why for result in results for why in lost(result)]
            requests = sum(len(result.requests) for result in results)
            assert requests == 6 + len(after)  # each fallback is one more request
            missed = [sum((one + 1) // 2 == number for one in after) for number in range(3)]
            assert [len(lost(result)) for result in results] == missed
            assert {why.split("'")[0] for why in reports} == {f"{NAMES[mode]} with id "}
            assert all("the whole conversation is sent" in why for why in reports)
            held, all_of_it = await held_by(harness, server, thread.id), await whole(harness, thread.id)
            assert held == all_of_it
            assert len(held) == len(set(held))

    with served(RESPONSES, forgetting(*after)) as server:
        run(scene(server))
        assert expired(server) == ["state.missing"] * len(after)


NAMES = {"chain": "Previous response", "conversation": "Conversation"}


@pytest.mark.parametrize("mode", HELD)
def test_a_fallback_is_seen_while_it_happens(mode: StateMode) -> None:
    async def scene(server: FakeServer) -> None:
        async with agent(server, mode) as harness:
            stream = harness.stream("One?")
            seen = [event async for event in stream]
            result = await stream.result()
        retries = [event for event in seen if isinstance(event, st.RetryScheduled)]
        assert [(event.wait, "not found" in event.error) for event in retries] == [(0.0, True)]
        assert not [event for event in seen if isinstance(event, st.Retracted)]
        assert [event.number for event in seen if isinstance(event, st.RequestStarted)] == [1, 2, 3]
        assert len(lost(result)) == 1

    with served(RESPONSES, forgetting(0)) as server:
        run(scene(server))


def test_a_fallback_counts_as_a_request_and_can_wait_for_a_fresh_allowance() -> None:
    async def scene(server: FakeServer) -> None:
        async with agent(server, "chain") as harness:
            result = await harness.run("One?", limits=Limits(requests=2))
            assert (result.stop, len(result.requests)) == ("limit", 2)
            result = await harness.resume(result.thread)
            assert result.text == "Two and four."
            assert len(lost(result)) == 1

    with served(RESPONSES, forgetting(0)) as server:
        run(scene(server))


@pytest.mark.parametrize("mode", HELD)
def test_a_provider_that_keeps_nothing_is_asked_once_to(mode: StateMode) -> None:
    """An organisation with zero data retention: the past is sent from then on, and each result says why."""

    async def scene(server: FakeServer) -> None:
        async with agent(server, mode) as harness:
            thread = harness.thread()
            results = [await thread.run(prompt) for prompt in PROMPTS]
        assert [result.text for result in results] == ["Two and four.", "Six.", "Eight and ten."]
        assert all("Zero Data Retention" in why for result in results for why in lost(result))
        assert [bool(lost(result)) for result in results] == [True] * 3
        assert [bool(id) for id in resting(server)].count(True) == 1
        assert [received.json["store"] for received in asked(server)][-4:] == [False] * 4

    with served(RESPONSES, script(), retention=False) as server:
        run(scene(server))
        assert expired(server) == ["state.missing"]


def test_a_provider_that_says_so_for_ever_ends_the_run() -> None:
    """There is no endless loop: everything was sent, nothing is asked to be kept, and it still says that something is gone."""

    async def scene(server: FakeServer) -> None:
        async with agent(server, "chain") as harness:
            thread = harness.thread()
            await thread.run("One?")
            with pytest.raises(EvenerError, match="not found"):
                await thread.run("Two?")
        assert len(server.requests) == 5

    gone = Status(400, "Previous response with id 'resp_x' not found.")
    with served(RESPONSES, [*script()[:2], gone, gone, gone, gone]) as server:
        run(scene(server))


# Who else speaks.


@pytest.mark.parametrize("mode", HELD)
def test_away_to_another_provider_and_back(mode: StateMode) -> None:
    """S3.26: what came from elsewhere meanwhile is new to the provider, and is all that it gets."""

    async def scene(server: FakeServer, other: FakeServer) -> None:
        async with agent(server, mode) as harness, watched() as transport:
            away = harness.with_model(model_at(other, "gemini", transport))
            thread = (await harness.run("One?")).thread
            result = await away.run("Two?", thread=thread)
            assert [(loss.kind, loss.what) for loss in result.losses if "state" in loss.what] == [
                ("degraded", f"state mode {mode}")
            ]
            result = await harness.run("Three?", thread=thread)
            assert lost(result) == []
            said = inputs(server)
            assert said[:2] == NEW[:2]
            assert [one[0] for one in said[2]] == ["user", "call", "output", "assistant", "user"]
            assert said[3] == [("output", "c4", "8"), ("output", "c5", "10")]
            held = await harness.thread(thread).state()
            assert len(held.held) == 1
            assert await held_by(harness, server, thread) == await whole(harness, thread)

    there = [turn(Thinking("Hm."), Call("add", {"a": 3, "b": 3}, id="c1")), turn("Six, I say.")]
    with served(RESPONSES, [*script()[:2], *script()[4:]]) as server, served("gemini", there) as other:
        run(scene(server, other))
        assert (server.rejected, other.rejected) == ([], [])


def test_a_chain_of_models_where_one_holds_nothing() -> None:
    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            scripted = ScriptedModel(["Hello.", "And?"])
            harness = Harness([scripted, model_at(server, RESPONSES, transport)], store="memory", state="chain")
            thread = harness.thread()
            assert [(await thread.run(prompt)).text for prompt in ("Hi", "So?")] == ["Hello.", "And?"]
            assert [ask.state.mode for ask in scripted.asks] == ["chain", "chain"]
            assert [len(ask.transcript) for ask in scripted.asks] == [1, 3]
            assert (await thread.state()).held == ()

    with served(RESPONSES, []) as server:
        run(scene(server))


@pytest.mark.parametrize("mode", HELD)
def test_forks_and_rollbacks(mode: StateMode) -> None:
    """A chain goes on from where a fork began. A conversation belongs to one branch: the others begin their own, and say so."""

    async def scene(server: FakeServer) -> None:
        async with agent(server, mode) as harness:
            thread = harness.thread()
            await thread.run("One?")
            names = [one.held.id for one in (await thread.state()).held]
            fork = await thread.fork()
            (await thread.run("Two?"))
            result = await fork.run("Another two?")
            said = inputs(server)
            if mode == "chain":
                assert resting(server)[2] == resting(server)[4] == names[0]
                assert (said[4], lost(result)) == ([("user", "Another two?")], [])
            else:
                assert resting(server)[4] not in ("", names[0])
                assert [why.partition(";")[0] for why in lost(result)] == ["another branch of this thread uses it"]
                assert len(said[4]) == 8
            assert (await thread.run("Three?")).losses == ()  # the branch that was there first is not disturbed
            await thread.rollback(turns=2)
            result = await thread.run("Two, please?")
            assert len(lost(result)) == (mode == "conversation")
            if mode == "chain":
                assert resting(server)[-1] == names[0]
            for one in (thread, fork):
                state = await one.state()
                held = [standing for standing in state.held if standing.model]
                lies = essence(server.held(held[0].held.id) or [])
                assert [one for one in lies if one[0] == "user"] == [
                    ("user", message.text) for message in state.transcript if message.role == "user" and message.text
                ]

    turns = [*script()[:4], turn("Another."), turn("The third."), turn("Rolled back.")]
    with served(RESPONSES, turns) as server:
        run(scene(server))
        assert server.rejected == []


def test_a_conversation_that_the_user_named() -> None:
    """What lies there already is not sent; a fork of the thread leaves it alone."""

    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            named = await made_conversation(server, transport)
            harness = harness_of(model_at(server, RESPONSES, transport), MemoryStore(), State("conversation", named))
            thread = harness.thread()
            assert [(await thread.run(prompt)).losses for prompt in PROMPTS[:2]] == [(), ()]
            assert resting(server) == [named] * 4
            assert inputs(server) == NEW[:4]
            (first, *_) = [event for event in await harness.store.read(thread.id) if isinstance(event, ev.Prompted)]
            fork = await thread.fork(first.message.id)
            assert lost(await fork.run("Elsewhere?")) == []  # nothing of it was ever held
            assert resting(server)[4] not in ("", named)

    with served(RESPONSES, [*script()[:4], turn("There.")]) as server:
        run(scene(server))
        assert server.rejected == []


async def made_conversation(server: FakeServer, transport: Transport) -> str:
    model = model_at(server, RESPONSES, transport)
    ask, _ = await open_conversation(model.ask(Transcript(), state=State("conversation")), model.endpoint, transport)
    return ask.state.id


def test_a_state_that_makes_no_sense_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="takes no `after`"):
        Harness(ScriptedModel([]), store="memory", state=State("chain", "resp_1", after="m1"))


# What is cut off.


@pytest.mark.parametrize("mode", HELD)
def test_a_process_that_dies_while_the_model_answers(mode: StateMode, tmp_path: Path) -> None:
    """The provider has stored an answer that we never saw: a chain goes on from the last one in the log."""

    async def scene(server: FakeServer, path: Path) -> None:
        store = SqliteStore(path)
        async with agent(server, mode, store) as harness:
            thread = (await harness.run("One?")).thread
            known = (await harness.thread(thread).state()).held[0].held.id
            dying = asyncio.ensure_future(harness.run("Two?", thread=thread))
            while len(asked(server)) < 3:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            dying.cancel()
            await asyncio.wait((dying,))
        await store.aclose()
        store = SqliteStore(path)
        async with agent(server, mode, store) as harness:
            result = await harness.resume(thread)
            assert result.text == "Six."
            if mode == "chain":
                assert (resting(server)[3], lost(result)) == (known, [])
                assert inputs(server)[3] == NEW[2]
            else:
                assert resting(server)[3] not in ("", known)
                assert [why.partition(",")[0] for why in lost(result)] == ["a request to it got no answer"]
            assert await held_by(harness, server, thread) == await whole(harness, thread)
        await store.aclose()

    stalled = replace(script()[2], faults=(faults.Stall(4),))
    with quick_folder(tmp_path) as folder, served(RESPONSES, [*script()[:2], stalled, *script()[2:]]) as server:
        run(scene(server, folder / "store.db"))
        assert server.rejected == []


BROKEN: dict[str, tuple[object, bool]] = {
    "a stream that ends too soon": (turn("Six.", faults=[faults.Cut(3)]), True),
    "a reset": (turn("Six.", faults=[faults.Reset(1)]), True),
    "a server error": (Status(500), True),
    "too many requests": (Status(429), False),
    "a conflict": (Status(409), False),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_conversation_is_given_up_when_nobody_knows_what_it_heard(case: str) -> None:
    """After a request that was surely refused it is gone on with; after one that may have been heard it is not."""
    broken, given_up = BROKEN[case]

    async def scene(server: FakeServer) -> None:
        async with agent(server, "conversation") as harness:
            thread = harness.thread()
            await thread.run("One?")
            result = await thread.run("Two?")
            assert result.text == "Six."
            assert bool(lost(result)) == given_up
            assert (resting(server)[2] == resting(server)[3]) != given_up
            assert await held_by(harness, server, thread.id) == await whole(harness, thread.id)

    with served(RESPONSES, [*script()[:2], broken, *script()[2:]]) as server:
        run(scene(server))
        assert server.rejected == []


# Whether it is the same conversation.


def test_what_was_changed_in_the_log_is_not_what_the_provider_holds() -> None:
    """An id is used only if exactly this conversation lies behind it; here one word of it was changed."""

    async def scene(server: FakeServer) -> None:
        async with agent(server, "chain") as harness:
            thread = harness.thread()
            await thread.run("One?")
            state = await thread.state()
            target = state.transcript.messages[1].origin
            assert target is not None
            (standing,) = state.held
            bearings = Bearings(State("chain", store=None))
            same = bearings.before(state, standing.model, target)
            assert (same.state.id, same.losses) == (standing.held.id, ())
            messages = list(state.transcript.messages)
            for number in range(len(messages)):
                changed = [*messages[:number], _reworded(messages[number]), *messages[number + 1 :]]
                edited = replace(state, transcript=Transcript(changed, state.transcript.system_blocks))
                rest = bearings.before(edited, standing.model, target)
                assert rest.state.id == ""
                assert "not the beginning of this conversation" in rest.losses[0].why
            elsewhere = bearings.before(state, standing.model, replace(target, endpoint="http://elsewhere"))
            assert (elsewhere.state.id, len(elsewhere.losses)) == ("", 1)
            other = replace(state, transcript=state.transcript.with_system("Be long."))
            assert bearings.before(other, standing.model, target).state.id == standing.held.id  # it goes out each time

    def _reworded(message: Message) -> Message:
        return replace(message, blocks=(*message.blocks, TextBlock("not")))

    with served(RESPONSES, script()[:2]) as server:
        run(scene(server))


def test_another_mode_begins_anew_and_replay_needs_nothing() -> None:
    async def scene(server: FakeServer) -> None:
        async with agent(server, "chain") as chained:
            thread = (await chained.run("One?")).thread
            model, store = chained.models[0], chained.store
            for mode in ("replay", "conversation", "chain"):
                result = await harness_of(model, store, mode).run("And?", thread=thread)  # type: ignore[arg-type]
                assert result.losses == ()
        assert [len(said) for said in inputs(server)] == [1, 2, 8, 10, 12]
        assert [bool(id) for id in resting(server)] == [False, True, False, True, False]

    with served(RESPONSES, [*script()[:2], "A.", "B.", "C."]) as server:
        run(scene(server))
        assert server.rejected == []


def test_an_old_log_is_read_and_an_event_without_state_has_no_word_of_it() -> None:
    old = b'{"kind":"model_called","model":"m","id":"i","at":1.0}'
    event = ev.decode_event(old)
    assert isinstance(event, ev.ModelCalled)
    assert (event.rests, ev.encode_event(event)) == (None, old)


@pytest.mark.parametrize("mode", HELD)
def test_a_recording_happens_again_offline(mode: StateMode) -> None:
    async def scene(server: FakeServer) -> None:
        async with agent(server, mode) as harness:
            thread = harness.thread()
            for prompt in PROMPTS:
                await thread.run(prompt)
            events = await harness.store.read(thread.id)
            assert any(isinstance(event, ev.ModelFailed) and event.stale for event in events)
            for played in (await replay(events, log=thread.id), await replay(events, log=thread.id, harness=harness)):
                assert (played.differences, list(played.events)) == ((), list(events))

    with served(RESPONSES, forgetting(0, 3)) as server:
        run(scene(server))


# What else changes a request.


@pytest.mark.parametrize("mode", HELD)
def test_tools_in_the_text(mode: StateMode) -> None:
    """Calls that the provider holds as text get their results as text."""

    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            model = open_model(
                "openai:gpt-5.5", environ=NOWHERE, transport=transport, key=fresh_key(), base_url=server.url, encoding="xml"
            )
            harness = harness_of(model, MemoryStore(), mode)
            result = await harness.run("One?")
            assert (result.text, lost(result)) == ("It is 2.", [])
            second = await harness.run("Two?", thread=result.thread)
            assert (second.text, lost(second)) == ("Gladly.", [])
        said = inputs(server)
        assert [len(one) for one in said] == [1, 1, 1]
        assert "2" in said[1][0][1]
        assert said[2] == [("user", "Two?")]

    call = '<tool_call name="add">{"a": 1, "b": 1}</tool_call>'
    with served(RESPONSES, [call, "It is 2.", "Gladly."]) as server:
        run(scene(server))
        assert server.rejected == []


@pytest.mark.parametrize("mode", HELD)
def test_an_answer_that_was_a_call_has_a_result_in_the_next_run(mode: StateMode) -> None:
    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            harness = Harness(
                model_at(server, RESPONSES, transport), store="memory", state=mode, output=int, output_form="tool"
            )
            thread = harness.thread()
            results = [await thread.run(prompt) for prompt in ("One?", "Two?")]
            assert [result.output for result in results] == [1, 2]
            assert [lost(result) for result in results] == [[], []]
        assert [[one[0] for one in said] for said in inputs(server)] == [["user"], ["output", "user"]]

    turns = [turn(Call("final_result", {"value": number}, id=f"f{number}")) for number in (1, 2)]
    with served(RESPONSES, turns) as server:
        run(scene(server))
        assert server.rejected == []
