"""Our client completes the same scripted conversations as the vendors' SDKs do, on each wire, whole and streamed.

Issue 4, "What it must show", line 3; `tests/testing/test_servers_sdks.py` has the SDKs' side.
"""

import pytest
from msgspec.structs import replace

from evener.model import Answer, Model, open_model
from evener.testing import FakeServer, Thinking
from evener.transcript.ask import Ask, OutputSchema, Reasoning, ToolSpec
from evener.transcript.blocks import ToolResult
from evener.transcript.delta import TextDelta
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from tests.model.stage import MODES, NOWHERE, fresh_key, nothing_left, run, watched
from tests.testing.conversations import CONVERSATIONS, WIRES, Conversation, Outcome, target

PROVIDERS = {
    "anthropic_messages": "anthropic",
    "openai_responses": "openai",
    "openai_chat": "openai-chat",
    "gemini": "google",
}


def named(wire: str, conversation: Conversation) -> tuple[str, str]:
    """The model's full name, and the dialect to serve."""
    model, dialect = target(wire, conversation)
    return f"{'deepseek' if dialect == 'deepseek' else PROVIDERS[wire]}:{model}", dialect


async def converse(model: Model, conversation: Conversation, *, streamed: bool) -> Outcome:
    """Play the client: ask, run what is called, ask again, until each input has its answer."""
    outcome = Outcome()
    tools = [ToolSpec(tool.name, tool.description, tool.parameters, strict=True) for tool in conversation.tools]  # type: ignore[arg-type]
    output = OutputSchema(conversation.schema, strict=True) if conversation.schema else None  # type: ignore[arg-type]
    reasoning = Reasoning("low", show="summary") if conversation.thinking else None
    transcript, answer = Transcript(system=conversation.system), None
    for said in conversation.inputs:
        transcript = transcript.append(Message.user_text(said))
        while True:
            ask = model.ask(transcript, tools, output=output, reasoning=reasoning)
            answer = await asked(model, ask if streamed else replace(ask, stream=False), answer)
            note(outcome, answer)
            transcript = transcript.append(answer.message)
            if answer.reply.is_final:
                outcome.texts.append(answer.output if output else answer.text)
                break
            transcript = transcript.append(results(conversation, outcome, answer))
    return outcome


async def asked(model: Model, ask: Ask, after: Answer | None) -> Answer:
    """The answer; its text deltas are its text."""
    stream = model.stream(ask, after=after)
    told = "".join([delta.text async for delta in stream if isinstance(delta, TextDelta)])
    assert told == stream.answer.text
    return stream.answer


def note(outcome: Outcome, answer: Answer) -> None:
    outcome.usage.append((answer.usage.input_total, answer.usage.output_total))
    if answer.reply.reasoning_text:
        outcome.thoughts.append(answer.reply.reasoning_text)
    assert answer.reply.stop.reason == ("tools" if answer.reply.calls else "done")


def results(conversation: Conversation, outcome: Outcome, answer: Answer) -> Message:
    made = []
    for call in answer.reply.calls:
        outcome.calls.append((call.name, call.args))
        tool = next(tool for tool in conversation.tools if tool.name == call.name)
        made.append(ToolResult(call.id, tool.run(call.args)))  # type: ignore[arg-type] # it takes a str, too
    return Message("user", tuple(made))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)
def test_our_client_completes_the_conversation(conversation: Conversation, wire: str, mode: str) -> None:
    """S1.1, S4.23, S4.27."""
    name, dialect = named(wire, conversation)
    key = fresh_key()

    async def play(url: str) -> Outcome:
        async with watched() as watch:
            model = open_model(name, environ=NOWHERE, transport=watch, key=key, base_url=url)
            return await converse(model, conversation, streamed=MODES[mode])

    models = (name.partition(":")[2],)
    with nothing_left(), FakeServer(wire, conversation.script, dialect=dialect, key=key, models=models) as server:
        outcome = run(play(server.url))
        assert server.rejected == []
        assert server.left == 0
    assert outcome.texts == list(conversation.texts)
    assert outcome.calls == list(conversation.calls)
    if conversation.thinking:
        thoughts = [part.text for said in conversation.script for part in said.parts if isinstance(part, Thinking)]
        assert outcome.thoughts == thoughts
    wanted = [(one.usage.input, one.usage.output) for one in conversation.script if one.usage]
    assert outcome.usage[: len(wanted)] == wanted
