"""A conversation object that cannot be had: the call goes on without it, whatever the provider says instead."""

import asyncio

import pytest
from msgspec.structs import replace

from evener.model import Answer, open_model
from evener.transcript.ask import State
from tests.model.stage import MODELS, NOWHERE, asking, fresh_key, run, watched
from tests.transport.servers import Received, serving, whole

SAID = b"""{"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [{"type": "message",
"id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Hi."}]}]}"""
ODD = {
    "no JSON": b"<html>",
    "no text": b'{"id": "conv_\xff"}',
    "no end": b'{"id": "c", "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "no id": b"{}",
}


def answered(refusal: bytes, key: str) -> Answer:
    async def script(received: Received, writer: asyncio.StreamWriter) -> None:
        made = "/conversations" in received.line
        writer.write(refusal if made else whole(SAID, 200, "content-type: application/json"))

    async def main() -> Answer:
        async with serving(script) as served, watched() as watch:
            model = open_model(MODELS["openai_responses"], environ=NOWHERE, transport=watch, key=key, base_url=served.url)
            return await model.complete(replace(asking(model), state=State("conversation")))

    return run(main())


@pytest.mark.parametrize("name", ODD)
def test_an_answer_that_is_no_conversation_is_a_loss(name: str) -> None:
    answer = answered(whole(ODD[name]), fresh_key())
    assert answer.text == "Hi."
    assert [loss.what for loss in answer.losses if "conversation" in loss.what] == ["state mode conversation"]


def test_a_key_that_the_refusal_repeats_is_not_in_the_loss() -> None:
    key = fresh_key()
    answer = answered(whole(b'{"error": {"message": "The key %s may not."}}' % key.encode(), 403), key)
    told = str(answer.losses)
    assert "The key [secret] may not." in told
    assert key not in told
