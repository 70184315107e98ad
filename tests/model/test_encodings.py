"""Tools and structured answers end to end: each encoding holds a tool loop, each form gives the same JSON, on each wire."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from evener.encodings import EncodingName
from evener.errors import ServerError
from evener.model import Answer, open_model
from evener.testing import Call, FakeServer, faults, turn
from evener.transcript.ask import OutputSchema, ToolSpec
from evener.transcript.delta import CallBegun
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from tests.encodings.talk import written
from tests.model.stage import MODELS, MODES, NOWHERE, WIRES, fresh_key, run, watched
from tests.testing.conversations import ADA, PERSON

ENCODINGS: tuple[EncodingName, ...] = ("native", "json_schema", "xml", "react")
ADD = ToolSpec(
    "add", "Adds.", '{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}'
)
FORMS = ("native", "tool", "prompted")


def script(encoding: EncodingName, *, bytewise: bool) -> list[Any]:
    """A call, and then an answer, as a model writes them in this encoding."""
    spoilt = [faults.Bytewise(5)] if bytewise else []
    if encoding == "native":
        return [turn(Call("add", {"a": 17, "b": 23}), faults=spoilt), turn("It is 40.", faults=spoilt)]
    call, answer = written(encoding, [("add", '{"a": 17, "b": 23}')]), written(encoding, ["It is 40."])
    return [turn(call, faults=spoilt), turn(answer, faults=spoilt)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_tool_loop_in_each_encoding(wire: str, encoding: EncodingName, mode: str) -> None:
    """S4.8-S4.11, S4.27."""

    async def play(url: str) -> tuple[list[str], Answer, Answer]:
        async with watched() as watch:
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url, encoding=encoding)
            transcript = Transcript([Message.user_text("What is 17 + 23?")], "Be brief.")
            ask = replace(model.ask(transcript, [ADD]), stream=MODES[mode])
            stream = model.stream(ask)
            started = [delta.name async for delta in stream if isinstance(delta, CallBegun)]
            first = stream.answer
            grown = transcript.append(first.message).append(Message.tool_result(first.reply.calls[0].id, "40"))
            return started, first, await model.complete(replace(ask, transcript=grown), after=first)

    with FakeServer(wire, script(encoding, bytewise=True)) as server:
        started, first, second = run(play(server.url))
        assert server.rejected == []
    assert started == ["add"]
    assert [(call.name, call.args) for call in first.reply.calls] == [("add", {"a": 17, "b": 23})]
    assert (first.reply.stop.reason, second.text, second.reply.stop.reason) == ("tools", "It is 40.", "done")
    assert second.reply.is_final
    assert ("tools" in server.requests[0].json) is (encoding == "native")
    assert first.sent.prepared.encoding == encoding


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_structured_answer_in_each_form(wire: str, form: str, mode: str) -> None:
    said = turn(Call("final_result", ADA)) if form == "tool" else turn(json.dumps(ADA))

    async def play(url: str) -> Answer:
        async with watched() as watch:
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url)
            output = OutputSchema(PERSON, form=form)  # type: ignore[arg-type] # it takes a mapping, and a str is checked
            transcript = Transcript([Message.user_text("Ada is 36 and lives in London.")])
            return await model.complete(replace(model.ask(transcript, output=output), stream=MODES[mode]))

    with FakeServer(wire, [said]) as server:
        answer = run(play(server.url))
        assert server.rejected == []
    assert json.loads(answer.output) == ADA
    assert answer.sent.prepared.form == form
    request = server.requests[0].json
    assert ("tools" in request) is (form == "tool")


@pytest.mark.parametrize("encoding", ["json_schema", "xml", "react"])
def test_an_error_in_mid_stream_passes_through_an_encoding(encoding: EncodingName) -> None:
    async def play(url: str) -> None:
        async with watched() as watch:
            name = MODELS["openai_chat"]
            model = open_model(name, environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url, encoding=encoding)
            with pytest.raises(ServerError, match="It broke"):
                await model.complete(model.ask(Transcript([Message.user_text("Hi")]), [ADD]))

    broken = faults.ErrorEvent(4, 500, "It broke")
    with FakeServer("openai_chat", [turn(written(encoding, ["It is 40."]), faults=[broken])]) as server:
        run(play(server.url))
