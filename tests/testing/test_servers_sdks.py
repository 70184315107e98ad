"""The official SDKs, pointed at the fake servers, hold the scripted conversations and raise their own errors."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from evener.testing import Call, Empty, FakeServer, Html, Status, Text, Thinking, faults, turn
from tests.patience import takes_at_least
from tests.testing.conversations import CONVERSATIONS, WIRES, Conversation, target
from tests.testing.sdks import CLIENTS, PLAYERS, openai

STREAMED = {"whole": False, "streamed": True}


def named(conversation: Conversation) -> str:
    return conversation.name


@pytest.mark.parametrize("mode", STREAMED)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=named)
def test_the_official_sdk_completes_the_conversation(conversation: Conversation, wire: str, mode: str) -> None:
    model, dialect = target(wire, conversation)
    with FakeServer(wire, conversation.script, dialect=dialect, key="test-key", models=(model,)) as server:
        with CLIENTS[wire](server.url) as client:
            outcome = PLAYERS[wire](client, model, conversation, streamed=STREAMED[mode])
        assert server.rejected == []
        assert server.left == 0
    assert outcome.texts == list(conversation.texts)
    assert outcome.calls == list(conversation.calls)
    if conversation.thinking:
        thoughts = [part.text for said in conversation.script for part in said.parts if isinstance(part, Thinking)]
        assert outcome.thoughts == thoughts
    wanted = [(one.usage.input, one.usage.output) for one in conversation.script if one.usage]
    assert outcome.usage[: len(wanted)] == wanted


def ask_anthropic(client: Any, *, streamed: bool) -> None:
    options = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    if not streamed:
        client.messages.create(**options)
        return
    with client.messages.stream(**options) as stream:
        stream.get_final_message()


def ask_responses(client: Any, *, streamed: bool) -> None:
    for _ in _all(client.responses.create(model="gpt-5.5", input="Hi", stream=streamed), streamed):
        pass


def ask_chat(client: Any, *, streamed: bool) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for _ in _all(client.chat.completions.create(model="gpt-4.1", messages=messages, stream=streamed), streamed):
        pass


def ask_gemini(client: Any, *, streamed: bool) -> None:
    options = {"model": "gemini-3-flash-preview", "contents": "Hi"}
    if not streamed:
        client.models.generate_content(**options)
        return
    for _ in client.models.generate_content_stream(**options):
        pass


def _all(answer: Any, streamed: bool) -> Iterator[Any]:
    yield from answer if streamed else ()


def ask(wire: str, server: FakeServer, *, key: str = "test-key", streamed: bool = False, times: int = 1) -> None:
    """One client, and some short questions."""
    with CLIENTS[wire](server.url, key) as client:
        for _ in range(times):
            ASK[wire](client, streamed=streamed)


def failure(question: Callable[[], object]) -> Exception:
    """What the SDK raised."""
    try:
        question()
    except Exception as error:
        return error
    return pytest.fail("the SDK raised nothing")


ASK: dict[str, Callable[..., None]] = {
    "anthropic_messages": ask_anthropic,
    "openai_responses": ask_responses,
    "openai_chat": ask_chat,
    "gemini": ask_gemini,
}
OPENAI = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
}
ERRORS = {
    "anthropic_messages": {
        **OPENAI,
        413: "ContentTooLargeError",
        502: "InternalServerError",
        503: "ServiceUnavailableError",
        504: "GatewayTimeoutError",
        529: "OverloadedError",
    },
    "openai_responses": OPENAI,
    "openai_chat": OPENAI,
    "gemini": {**dict.fromkeys((400, 401, 403, 404, 409, 429), "ClientError"), **dict.fromkeys((500, 503, 504), "ServerError")},
}
CASES = [(wire, code, name) for wire, names in ERRORS.items() for code, name in names.items()]


@pytest.mark.parametrize("mode", STREAMED)
@pytest.mark.parametrize(("wire", "code", "name"), CASES)
def test_an_error_becomes_the_exception_that_the_sdk_has_for_it(wire: str, code: int, name: str, mode: str) -> None:
    with FakeServer(wire, [Status(code, "What a pity.")]) as server:
        error = failure(lambda: ask(wire, server, streamed=STREAMED[mode]))
        assert len(server.requests) == 1
    assert type(error).__name__ == name
    assert "What a pity." in str(error) or code == 502


@pytest.mark.parametrize("script", [[Status(429)], [Status(500)], []], ids=["429", "500", "none"])
@pytest.mark.parametrize("key", ["right", "wrong"])
@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat"])
def test_every_refusal_has_the_id_of_its_request(wire: str, key: str, script: list[Status]) -> None:
    with FakeServer(wire, script, key="right") as server:
        error: Any = failure(lambda: ask(wire, server, key=key))
    assert error.request_id.startswith("req_")
    if wire == "anthropic_messages":
        assert error.body["request_id"] == error.request_id


def test_a_stop_at_a_sequence_says_at_which() -> None:
    options = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    with (
        FakeServer("anthropic_messages", [turn("One, two", stop="stop_sequence")]) as server,
        CLIENTS["anthropic_messages"](server.url) as client,
        client.messages.stream(**options, stop_sequences=["three"]) as stream,
    ):
        early = [event.message.stop_sequence for event in stream if event.type == "message_start"]
        answer = stream.get_final_message()
    assert early == [None]
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "three")


@pytest.mark.parametrize("wire", WIRES)
def test_a_wrong_key_is_the_sdks_authentication_error(wire: str) -> None:
    with FakeServer(wire, ["Hello."], key="right") as server:
        error = failure(lambda: ask(wire, server, key="wrong"))
        ask(wire, server, key="right")
    assert type(error).__name__ == ("ClientError" if wire == "gemini" else "AuthenticationError")
    assert "wrong" not in str(error)


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat"])
def test_the_sdk_waits_as_long_as_it_is_told_and_tries_again(wire: str) -> None:
    with FakeServer(wire, [Status(429, retry_after=0.2), "Hello."]) as server, CLIENTS[wire](server.url) as client:
        with takes_at_least(0.2):
            ASK[wire](client.with_options(max_retries=1), streamed=False)
        assert len(server.requests) == 2


HARMLESS = (
    faults.UnknownEvent(),
    faults.Bytewise(),
    faults.Gzip(),
    faults.Slow(head=0.01, between=0.001),
    faults.HangUp("said"),
)


@pytest.mark.parametrize("fault", HARMLESS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("mode", STREAMED)
@pytest.mark.parametrize("wire", WIRES)
def test_the_sdks_shrug_off_what_is_harmless(wire: str, mode: str, fault: faults.Fault) -> None:
    with FakeServer(wire, [turn(Text("Hello.", pieces=3), faults=(fault,))] * 2) as server:
        ask(wire, server, streamed=STREAMED[mode], times=2)
        assert server.left == 0


@pytest.mark.parametrize("fault", [faults.Torn(), faults.Reset()], ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("wire", WIRES)
def test_a_broken_connection_is_an_error_in_every_sdk(wire: str, fault: faults.Fault) -> None:
    with FakeServer(wire, [fault]) as server:
        failure(lambda: ask(wire, server, streamed=True))


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_chat"])
def test_an_error_in_mid_stream_is_the_sdks_error(wire: str) -> None:
    module = import_module("anthropic" if wire == "anthropic_messages" else "openai")
    with FakeServer(wire, [faults.ErrorEvent()]) as server, pytest.raises(module.APIError, match="Overloaded"):
        ask(wire, server, streamed=True)


def test_openais_sdk_hands_out_the_error_event_of_a_responses_stream() -> None:
    with FakeServer("openai_responses", [faults.ErrorEvent()]) as server, openai(server.url) as client:
        events = list(client.responses.create(model="gpt-5.5", input="Hi", stream=True))
    assert [events[-1].type, events[-1].code, events[-1].message] == ["error", "server_error", "Overloaded"]


def test_the_server_keeps_answers_and_the_sdk_goes_on_from_one() -> None:
    with FakeServer("openai_responses", ["One.", "Two."]) as server, openai(server.url) as client:
        first = client.responses.create(model="gpt-5.5", input="First?")
        assert client.responses.retrieve(first.id).output_text == "One."
        second = client.responses.create(model="gpt-5.5", input="And then?", previous_response_id=first.id)
        assert second.output_text == "Two."
        with pytest.raises(import_module("openai").BadRequestError, match="not found") as caught:
            client.responses.create(model="gpt-5.5", input="Hm?", previous_response_id="resp_nobody")
        assert caught.value.code == "previous_response_not_found"


@pytest.mark.parametrize("wire", WIRES)
def test_the_sdk_lists_the_models(wire: str) -> None:
    with FakeServer(wire, models=("model-a", "model-b")) as server, CLIENTS[wire](server.url) as client:
        found = [model.model_dump() for model in client.models.list()]
    assert [model.get("id") or model["name"].removeprefix("models/") for model in found] == ["model-a", "model-b"]


@pytest.mark.parametrize("instead", [Empty(), Html()], ids=lambda instead: type(instead).__name__)
def test_a_200_that_is_no_answer_is_no_answer(instead: Empty | Html) -> None:
    with FakeServer("anthropic_messages", [instead]) as server:
        failure(lambda: ask("anthropic_messages", server, streamed=True))


@pytest.mark.parametrize("last", [Text("And so"), Call("f", {"x": 1})], ids=["text", "call"])
@pytest.mark.parametrize("stop", ["", "length", "filter"])
def test_what_an_incomplete_response_ends_with_is_incomplete(last: Text | Call, stop: str) -> None:
    script = [turn(Text("Once."), last, stop=stop)]
    with FakeServer("openai_responses", script) as server, CLIENTS["openai_responses"](server.url) as client:
        answer = client.responses.create(model="gpt-5.5", input="Hi")
    ended = "incomplete" if stop else "completed"
    assert [answer.status, *(item.status for item in answer.output)] == [ended, "completed", ended]
