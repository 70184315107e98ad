"""A real model on three wires: text everywhere, constrained answers where the server has them, a prefix that stays cached."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from evener.errors import ContextTooLong, InvalidRequest
from evener.local import LocalTransport
from evener.model import Answer, open_model
from evener.transcript import Ask, Choice, Extra, Loss, Message, OutputSchema, Reply, Settings, TextBlock, Transcript
from tests.local.few_shot import CALCULATOR, PERSON, people, sums
from tests.local.stack import WIRES, answer, asked, encoded, send

HELLO = [Message.user_text("Say hello.")]
ENOUGH = Settings(temperature=0.0, max_output_tokens=60)


def reply_to(local: LocalTransport, row: str, messages: list[Message], **more: Any) -> tuple[Reply, tuple[Loss, ...]]:
    async def ask() -> tuple[Reply, tuple[Loss, ...]]:
        async with local:
            return await answer(local, row, asked(row, messages, **more))

    return asyncio.run(ask())


@pytest.mark.parametrize("row", WIRES)
def test_text_comes_on_every_wire_streamed_and_whole(row: str, local: LocalTransport) -> None:
    exactly = Settings(temperature=0.0, max_output_tokens=16)
    for stream in (True, False):
        reply, losses = reply_to(local, row, HELLO, stream=stream, settings=exactly)
        assert reply.text.startswith("Hello")
        assert [type(block) for block in reply.blocks] == [TextBlock]
        assert (reply.usage.input_total, reply.usage.output_total) == (33, 16)
        assert reply.id
        assert losses == ()


@pytest.mark.parametrize("row", WIRES)
def test_a_cut_answer_is_told(row: str, local: LocalTransport) -> None:
    """On Responses the server writes `completed` whatever the reason; its token count tells. See docs/local.md."""

    async def ask() -> Answer:
        async with local:
            model = open_model(f"{row}:smollm2", transport=local, environ={}, temperature=0.0, max_output_tokens=16)
            return await model.complete(model.ask(Transcript(HELLO)))

    reply = asyncio.run(ask()).reply
    assert (reply.stop.reason, reply.usage.output_total) == ("length", 16)


@pytest.mark.parametrize("row", WIRES)
def test_a_finished_answer_says_so(row: str, local: LocalTransport) -> None:
    reply, _ = reply_to(local, row, [Message.user_text("Reply with the one word: yes")], settings=ENOUGH)
    assert reply.stop.reason == "done"


@pytest.mark.parametrize("row", WIRES)
def test_what_does_not_fit_the_window_is_told(row: str, local: LocalTransport) -> None:
    with pytest.raises(ContextTooLong, match=r"30\d\d tokens\) exceeds the available context size \(2048 tokens"):
        reply_to(local, row, [Message.user_text("word " * 3000)])


def test_a_bad_request_is_told(local: LocalTransport) -> None:
    wrong = Extra("openai_chat", '{"top_k":"many"}', provider="local")
    with pytest.raises(InvalidRequest, match="top_k"):
        reply_to(local, "local", HELLO, extra=(wrong,))


# Constrained answers.


def test_with_two_examples_it_calls_a_calculator_and_reads_the_result(local: LocalTransport) -> None:
    messages = sums("What is 17 * 23?")
    reply, losses = reply_to(local, "local", messages, tools=(CALCULATOR,), settings=ENOUGH)
    assert (reply.text, reply.stop.reason) == ("", "tools")
    assert [loss.code for loss in losses] == ["tool_choice.degraded"], "a tool must be called first"
    [call] = reply.calls
    assert (call.name, json.loads(call.raw)) == ("calculator", {"expression": "17 * 23"})
    messages += [Message.from_assistant_response(reply), Message.tool_result(call.id, str(17 * 23))]
    final, _ = reply_to(local, "local", messages, tools=(CALCULATOR,), settings=ENOUGH)
    assert "391" in final.text
    assert (final.calls, final.stop.reason) == ((), "done")


def test_with_two_examples_it_fills_a_schema_from_a_sentence(local: LocalTransport) -> None:
    told = people("Maria is 34 years old and lives in Lisbon.")
    reply, losses = reply_to(local, "local", told, output=OutputSchema(PERSON), settings=ENOUGH)
    assert json.loads(reply.text) == {"name": "Maria", "age": 34, "city": "Lisbon"}
    assert losses == ()


def test_a_choice_is_enforced(local: LocalTransport) -> None:
    reply, _ = reply_to(local, "local", HELLO, tools=(CALCULATOR,), choice=Choice("required"), settings=ENOUGH)
    assert [call.name for call in reply.calls] == ["calculator"]
    reply, _ = reply_to(local, "local", sums("What is 17 * 23?"), tools=(CALCULATOR,), choice=Choice("none"), settings=ENOUGH)
    assert reply.text
    assert not reply.calls


def test_on_responses_the_field_that_the_row_names_constrains(local: LocalTransport) -> None:
    question = [Message.user_text("Calculate 17 * 23 with the calculator.")]
    reply, losses = reply_to(local, "local-responses", question, tools=(CALCULATOR,), settings=ENOUGH)
    [call] = reply.calls
    assert [loss.code for loss in losses] == ["message.added", "tool_choice.degraded"]
    assert (call.name, json.loads(call.raw)) == ("calculator", {"expression": "17 * 23"})
    sentence = [Message.user_text("Maria is 34 years old and lives in Lisbon.")]
    reply, _ = reply_to(local, "local-responses", sentence, output=OutputSchema(PERSON), settings=ENOUGH)
    assert json.loads(reply.text) == {"name": "Maria", "age": 34, "city": "Lisbon"}


@pytest.mark.parametrize("row", ["local-anthropic"])
@pytest.mark.parametrize("more", [{"output": OutputSchema(PERSON)}, {"tools": (CALCULATOR,)}], ids=["schema", "tools"])
def test_where_nothing_constrains_an_answer_that_is_reported(row: str, more: dict[str, Any], local: LocalTransport) -> None:
    _, losses = reply_to(local, row, HELLO, settings=Settings(temperature=0.0, max_output_tokens=16), **more)
    examples = [("added", "example message")] if "tools" in more else []
    assert [(loss.kind, loss.what) for loss in losses] == [("degraded", "output schema"), *examples]


# The cache.


@pytest.mark.parametrize("row", WIRES)
def test_over_ten_turns_each_prompt_begins_with_the_cached_one_before(row: str, local: LocalTransport) -> None:
    async def talk() -> list[Reply]:
        messages: list[Message] = []
        replies: list[Reply] = []
        prior = None
        async with local:
            for number in range(10 if row == "local" else 4):  # what differs is how a row writes a turn
                messages.append(Message.user_text(f"Tell me about the number {number}."))
                ask: Ask = asked(row, messages, system=f"You teach sums on {row}.")
                prior = encoded(row, ask, prior)
                replies.append(await send(local, row, prior, stream=True))
                messages.append(Message.from_assistant_response(replies[-1], origin=ask.target, binding=prior.binding))
        return replies

    usage = [reply.usage for reply in asyncio.run(talk())]
    for before, now in pairwise(usage):
        assert now.cache_read == before.total - 1, "the prompt before and its answer, but for the last token"
    assert all(each.input_total == each.cache_read + each.uncached for each in usage)
