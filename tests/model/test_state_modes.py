"""A model that leaves the past to its provider: what goes out, what lies there, and what happens when it is gone."""

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from evener.errors import EvenerError, StateExpired
from evener.model import Answer, Chain, Model, open_model
from evener.testing import Call, FakeServer, Status, Text, Thinking, Turn, faults, turn
from evener.transcript.ask import Ask, State, StateMode, ToolSpec
from evener.transcript.blocks import Origin, ReasoningBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import loss_of
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Request, Response, Transport
from evener.wire import CODECS, Encoded
from evener.wire.quirks import Quirks
from tests.model.held_items import essence, inputs, resting
from tests.model.stage import MODES, NOWHERE, fresh_key, nothing_left, run, watched
from tests.testing.raw import ask as raw_ask
from tests.testing.raw import body_of, message_of

HELD: tuple[StateMode, ...] = ("chain", "conversation")
TOOL = ToolSpec("add", "Add two numbers.", '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}')
OPENAI = CODECS["openai_responses"]
HERE = Origin(wire="openai_responses", provider="openai", model="m")


def opened(server: FakeServer, transport: Transport, name: str = "openai:gpt-5.5") -> Model:
    return open_model(name, environ=NOWHERE, transport=transport, key=fresh_key(), base_url=server.url)


async def converse(model: Model, prompts: Sequence[str], *, mode: StateMode, streamed: bool) -> tuple[Transcript, list[Answer]]:
    """Say each, answer what is called, and let each ask rest on what the provider holds after the last answer."""
    transcript, answers = Transcript(system="Be brief."), list[Answer]()
    state = State(mode, store=mode != "replay")
    for prompt in prompts:
        transcript = transcript.append(Message.user_text(prompt))
        while True:
            ask = replace(model.ask(transcript, (TOOL,), state=state), stream=streamed)
            answer = await model.complete(ask, after=answers[-1] if answers else None)
            answers.append(answer)
            transcript = transcript.append(answer.message)
            state = answer.kept if answer.kept.mode != "replay" else state
            if answer.reply.is_final:
                break
            results = tuple(ToolResult(call.id, (TextBlock(f"result {call.id}"),)) for call in answer.reply.calls)
            transcript = transcript.append(Message("user", results))
    return transcript, answers


def script() -> list[Turn]:
    return [
        turn(Thinking("Two sums."), "I look.", Call("add", {"a": 1}, id="c1"), Call("add", {"a": 2}, id="c2")),
        turn(Thinking("One more."), Call("add", {"a": 3}, id="c3")),
        turn("Done."),
        turn(Thinking("Easy."), "Yes."),
    ]


NEW = [
    [("user", "One?")],
    [("output", "c1", "result c1"), ("output", "c2", "result c2")],
    [("output", "c3", "result c3")],
    [("user", "Two?")],
]
"""What each request says anew."""


@pytest.mark.parametrize("streamed", MODES.values(), ids=MODES)
@pytest.mark.parametrize("mode", HELD)
def test_only_what_is_new_is_sent_and_the_provider_holds_all_of_it(mode: StateMode, streamed: bool) -> None:
    """S1.7, S1.22, S1.23: chaining, and conversation objects, with parallel calls and sealed reasoning."""

    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            transcript, answers = await converse(opened(server, transport), ("One?", "Two?"), mode=mode, streamed=streamed)
            server.add("Again.")
            model = opened(server, transport)
            await model.complete(model.ask(transcript, (TOOL,)))
        assert [answer.losses for answer in answers] == [()] * 4
        assert inputs(server)[:4] == NEW
        ids = resting(server)
        names = [answer.reply.id for answer in answers]
        assert ids[:4] == (["", *names[:3]] if mode == "chain" else [ids[0]] * 4)
        held = server.held(answers[-1].kept.id)
        assert held is not None
        assert essence(held) == inputs(server)[4]  # what a request that sends everything would say

    with nothing_left(), FakeServer("openai_responses", script()) as server:
        run(scene(server))
        assert server.rejected == []
        bodies = [received.json for received in server.requests if received.route == "/v1/responses"][:4]
        for body in bodies:
            assert (body["store"], body["include"]) == (True, ["reasoning.encrypted_content"])
            assert (body["instructions"], body["tools"][0]["name"]) == ("Be brief.", "add")


@pytest.mark.parametrize("streamed", MODES.values(), ids=MODES)
@pytest.mark.parametrize("mode", HELD)
def test_what_is_gone_is_sent_again_once(mode: StateMode, streamed: bool) -> None:
    """C1: a lost state falls back to replay by itself, and says so."""
    turns = [replace(turn, forgets=number == 1) for number, turn in enumerate(script())]

    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            _, answers = await converse(opened(server, transport), ("One?", "Two?"), mode=mode, streamed=streamed)
        (loss,) = answers[2].losses
        assert (loss.kind, loss.what) == ("degraded", f"state mode {mode}")
        assert "not found" in loss.why
        assert [answer.losses for answer in answers[:2] + answers[3:]] == [()] * 3
        said = inputs(server)
        assert said[2] == NEW[2]  # in vain
        assert essence(server.held(answers[1].kept.id) or []) == []
        calls = [one for one in said[3] if one[0] == "call"]
        assert [one[1] for one in calls] == ["c1", "c2", "c3"]
        assert said[4] == NEW[3]  # a new chain
        held = essence(server.held(answers[-1].kept.id) or [])
        assert len(held) == len(set(held)), "something lies there twice"

    with FakeServer("openai_responses", turns) as server:
        run(scene(server))
        assert [one.violations[0].rule for one in server.rejected] == ["state.missing"]


def test_a_stream_says_that_the_state_is_gone_and_sends_nothing_by_itself() -> None:
    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            model = opened(server, transport)
            first = await model.complete(model.ask(Transcript([Message.user_text("Hi")]), state=State("chain", store=True)))
            server.forget()
            transcript = Transcript([Message.user_text("Hi"), first.message, Message.user_text("And?")])
            with pytest.raises(StateExpired, match="send the whole conversation"):
                async with model.stream(model.ask(transcript, state=first.kept)) as stream:
                    await stream.read()
            assert len(server.requests) == 2
            server.add("Lost again?")
            chain = Chain([model])
            with pytest.raises(StateExpired):
                await chain.complete(model.ask(transcript, state=first.kept))

    with FakeServer("openai_responses", ["Hello."]) as server:
        run(scene(server))


def test_an_account_without_retention_gets_everything_each_time() -> None:
    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            model = opened(server, transport)
            _, answers = await converse(model, ("One?", "Two?"), mode="chain", streamed=True)
        assert all("Zero Data Retention" in loss.why for answer in answers[1:] for loss in answer.losses)
        assert len([one for one in resting(server) if not one]) == 4

    with FakeServer("openai_responses", script(), retention=False) as server:
        run(scene(server))


@pytest.mark.parametrize(
    "name", ["anthropic:claude-opus-5-5", "openai-chat:gpt-4.1", "google:gemini-3-flash-preview", "ollama-responses:qwen"]
)
@pytest.mark.parametrize("mode", HELD)
def test_where_nothing_is_held_everything_is_sent_and_a_loss_says_so(mode: StateMode, name: str) -> None:
    async def scene() -> None:
        async with watched() as transport:
            wire = open_model(name, environ=NOWHERE, key="x", transport=transport).origin.wire
            with FakeServer(wire, ["One.", "Two."]) as server:
                model = opened(server, transport, name)
                transcript = Transcript([Message.user_text("Hi")])
                first = await model.complete(model.ask(transcript, state=State(mode, store=None)))
                assert first.kept == State()
                transcript = transcript.extend((first.message, Message.user_text("And?")))
                second = await model.complete(model.ask(transcript, state=State(mode, store=None)))
                told = [loss for loss in second.losses if loss.what == f"state mode {mode}"]
                assert [loss.kind for loss in told] == ["degraded"]
                assert server.rejected == []
                assert b"Hi" in server.requests[-1].body
                assert [received.route for received in server.requests].count("/v1/conversations") == 0

    run(scene())


class Elsewhere:
    """A transport to a place that has no conversations."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request) -> Response:
        return await self._transport.send(replace(request, url=request.url.replace("/conversations", "/nothing")))


def test_a_conversation_that_cannot_be_made_is_done_without() -> None:
    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            model = opened(server, Elsewhere(transport))
            answer = await model.complete(model.ask(Transcript([Message.user_text("Hi")]), state=State("conversation")))
        assert answer.text == "Hello."
        assert [(loss.kind, loss.what) for loss in answer.losses] == [("degraded", "state mode conversation")]
        assert "none could be made" in answer.losses[0].why
        assert answer.kept == State()

    with FakeServer("openai_responses", ["Hello."]) as server:
        run(scene(server))


def test_nothing_is_said_to_a_conversation_twice() -> None:
    """A connection that is closed without an answer may have been heard: only the caller can decide what to do then."""

    async def scene(server: FakeServer) -> None:
        async with watched() as transport:
            model = opened(server, transport)
            first = await model.complete(model.ask(Transcript([Message.user_text("Hi")]), state=State("conversation")))
            transcript = Transcript([Message.user_text("Hi"), first.message, Message.user_text("And?")])
            with pytest.raises(EvenerError) as caught:
                await model.complete(model.ask(transcript, state=first.kept))
            assert caught.value.retryable
        assert inputs(server) == [[("user", "Hi")], [("user", "And?")]]

    with FakeServer("openai_responses", ["Hello.", turn("And what?", faults=[faults.Reset(0)])]) as server:
        run(scene(server))
    with FakeServer("openai_responses", ["Hello.", Status(503)]) as server:
        run(scene(server))


# What the codec makes of an ask.


def encoded(ask: Ask, **quirks: object) -> tuple[Encoded, list[tuple[str, ...]], str]:
    """The request, what it says anew, and what it rests on."""
    made = OPENAI.encode(ask, Quirks(**quirks), None)  # type: ignore[arg-type]
    body = json.loads(made.body)
    return made, essence(body["input"]), body.get("previous_response_id", body.get("conversation", ""))


def said(text: str, origin: Origin = HERE, *calls: ToolCall) -> Message:
    return Message("assistant", (TextBlock(text), *calls), origin=origin)


ASKED = Message.user_text("Hi")
ANSWER = said("Hello.")
CALLING = said("Look.", HERE, ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "add", '{"a":2}'))
OTHER = Origin(wire="gemini", provider="google", model="g")
AND = Message.user_text("And?")

CASES: dict[str, tuple[list[Message], str, list[tuple[str, ...]], bool]] = {
    "one more message": ([ASKED, ANSWER, AND], ANSWER.id, [("user", "And?")], True),
    "nothing new": ([ASKED, ANSWER], ANSWER.id, [], True),
    "calls that nobody answered": (
        [ASKED, CALLING, AND],
        CALLING.id,
        [("output", "c1", "*"), ("output", "c2", "*"), ("user", "And?")],
        True,
    ),
    "results in the wrong order": (
        [
            ASKED,
            CALLING,
            Message("user", (ToolResult("c2", (TextBlock("2"),)), ToolResult("c1", (TextBlock("1"),)), TextBlock("And?"))),
        ],
        CALLING.id,
        [("output", "c1", "1"), ("output", "c2", "2"), ("user", "And?")],
        True,
    ),
    "another model between": (
        [ASKED, ANSWER, AND, said("I am another.", OTHER), Message.user_text("Back?")],
        ANSWER.id,
        [("user", "And?"), ("assistant", "I am another."), ("user", "Back?")],
        True,
    ),
    "another model's calls under the same names": (
        [
            ASKED,
            CALLING,
            Message("user", (ToolResult("c1", (TextBlock("1"),)), ToolResult("c2", (TextBlock("2"),)))),
            said("Me too.", OTHER, ToolCall("c1", "add", '{"a":9}')),
            Message.tool_result("c1", "9"),
        ],
        CALLING.id,
        [
            *(("output", "c1", "1"), ("output", "c2", "2"), ("assistant", "Me too.")),
            *(("call", "c1_2", "add", '{"a":9}'), ("output", "c1_2", "9")),
        ],
        True,
    ),
    "an answer of another model": (
        [ASKED, said("Hello.", OTHER), AND],
        "",
        [("user", "Hi"), ("assistant", "Hello."), ("user", "And?")],
        False,
    ),
    "an answer that is not there": (
        [ASKED, ANSWER, AND],
        "nobody",
        [("user", "Hi"), ("assistant", "Hello."), ("user", "And?")],
        False,
    ),
    "an answer that went on": (
        [ASKED, ANSWER, said("And more."), AND],
        ANSWER.id,
        [("user", "Hi"), ("assistant", "Hello."), ("assistant", "And more."), ("user", "And?")],
        False,
    ),
    "an empty answer": (
        [ASKED, Message("assistant", (TextBlock(""),), id="empty", origin=HERE), AND],
        "empty",
        [("user", "Hi"), ("user", "And?")],
        False,
    ),
    "thoughts alone": (
        [ASKED, Message("assistant", (ReasoningBlock("Hm."),), id="hm", origin=HERE), AND],
        "hm",
        [("user", "Hi"), ("user", "And?")],
        False,
    ),
}


@pytest.mark.parametrize("mode", HELD)
@pytest.mark.parametrize("case", CASES)
def test_what_is_new_after_an_answer(case: str, mode: StateMode) -> None:
    messages, after, expected, rests = CASES[case]
    state = State(mode, "id_1", store=True, after=after or messages[1].id)
    made, found, id = encoded(Ask(Transcript(messages, "Be brief."), HERE, (TOOL,), state=state))
    assert id == ("id_1" if rests else "")
    assert [one[:-1] if want[-1] == "*" else one for one, want in zip(found, expected, strict=True)] == [
        want[:-1] if want[-1] == "*" else want for want in expected
    ]
    told = [loss for loss in made.losses if loss.what == f"state mode {mode}"]
    assert bool(told) != rests
    assert made.keeps == (mode if rests else "chain" if mode == "chain" else "")
    assert (made.binding == "") == rests


NO_STATE: list[tuple[dict[str, object], StateMode]] = [
    ({"store": False}, "chain"),
    ({"store": False}, "conversation"),
    ({"conversation": False}, "conversation"),
]


@pytest.mark.parametrize(("quirks", "mode"), NO_STATE)
def test_an_endpoint_without_state_gets_everything(quirks: dict[str, object], mode: StateMode) -> None:
    state = State(mode, "id_1", store=True, after=ANSWER.id)
    made, found, id = encoded(Ask(Transcript([ASKED, ANSWER, AND]), HERE, state=state), **quirks)
    assert (id, len(found), made.keeps) == ("", 3, "")
    why = "this endpoint keeps no state; the whole conversation is sent"
    assert made.losses == (loss_of("degraded", "state.mode", why, name=mode),)


def test_an_ask_that_names_only_what_is_new_goes_out_as_it_is() -> None:
    ask = Ask(Transcript([Message.tool_result("c9", "9")]), HERE, state=State("chain", "resp_9", store=True))
    made, found, id = encoded(ask)
    assert (found, id, made.losses) == ([("output", "c9", "9")], "resp_9", ())


def test_an_empty_conversation_that_begins_a_chain_says_something() -> None:
    made, found, id = encoded(Ask(Transcript(), HERE, state=State("chain", store=True)))
    assert (found, id) == ([("user", "")], "")
    assert [loss.kind for loss in made.losses] == ["added"]


# The fake that judges all this.


def test_the_fake_refuses_what_lies_there_already() -> None:
    """The twin of the tests above: a duplicate would be found."""
    with FakeServer("openai_responses", [turn(Call("f", id="call_1")), "Done.", "Never."]) as server:
        first = raw_ask(server, "openai_responses").json
        result = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
        body = {"model": "gpt-5.5", "previous_response_id": first["id"]}
        second = raw_ask(server, "openai_responses", {**body, "input": [result]}).json
        wrong = {
            "a result again": [result],
            "a result of no call": [{**result, "call_id": "call_2"}],
            "an item again": first["output"],
        }
        for name, items in wrong.items():
            heard = raw_ask(server, "openai_responses", {**body, "previous_response_id": second["id"], "input": items})
            assert heard.status == 400, name
        said = [("user", "Hi"), ("call", "call_1", "f", "{}"), ("output", "call_1", "1"), ("assistant", "Done.")]
        assert essence(server.held(second["id"]) or []) == said


def test_the_fake_forgets_when_it_is_told_to() -> None:
    with FakeServer("openai_responses", ["One.", turn("Two.", forgets=True), "Three."]) as server:
        names = [raw_ask(server, "openai_responses").json["id"] for _ in range(2)]
        conversation = raw_ask(server, "openai_responses", {}, path="/conversations").json["id"]
        assert [server.held(name) for name in names] == [None, None]
        assert server.held(conversation) == []
        server.forget()
        for field, name in (("previous_response_id", names[0]), ("conversation", conversation)):
            heard = raw_ask(server, "openai_responses", {"model": "gpt-5.5", "input": "Hm?", field: name})
            assert "not found" in message_of("openai_responses", heard.json)


def test_the_fake_keeps_nothing_for_an_account_that_forbids_it() -> None:
    with FakeServer("openai_responses", [turn(Text("One."))], retention=False) as server:
        first = raw_ask(server, "openai_responses", {**body_of("openai_responses"), "store": True}).json
        assert first["store"] is False
        heard = raw_ask(server, "openai_responses", {"model": "gpt-5.5", "input": "?", "previous_response_id": first["id"]})
        assert (heard.status, heard.json["error"]["code"]) == (400, "unsupported_parameter")
        assert "Zero Data Retention" in heard.json["error"]["message"]
