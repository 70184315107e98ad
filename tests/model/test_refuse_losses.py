"""What a caller refuses to lose is not lost: nothing is sent instead, whichever way a model is asked."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evener.errors import UsageError
from evener.harness import Harness
from evener.model import Chain, Model, open_model
from evener.testing import FakeServer, turn
from evener.transcript import Loss, Message, ReasoningBlock, Seal, Settings, TextBlock, Transcript
from evener.transcript.loss import CODES, LossRefused, refuse, refused_codes
from evener.translate import translate
from tests.cli.test_translate import evener
from tests.model.stage import MODELS, NOWHERE, fresh_key

GPT = MODELS["openai_responses"]
THOUGHT = Transcript(
    [
        Message("user", (TextBlock("Hi."),), id="m1"),
        Message("assistant", (ReasoningBlock("Hm.", Seal('{"signature":"c2ln"}')), TextBlock("Hello.")), id="m2"),
        Message("user", (TextBlock("And?"),), id="m3"),
    ]
)


def opened(server: FakeServer, name: str, **more: Any) -> Model:
    return open_model(name, environ=NOWHERE, base_url=server.url, key=fresh_key(), **more)


@pytest.mark.parametrize("names", [{"reasoning.dropped"}, {"reasoning"}, {"dropped"}, ["setting.seed", "reasoning.dropped"]])
def test_a_model_that_refuses_a_loss_sends_nothing(names: set[str]) -> None:
    with FakeServer("openai_responses", [turn("Hi.")]) as server:
        model = opened(server, GPT, refuse_losses=names)
        with pytest.raises(LossRefused, match="reasoning in message m2") as caught:
            asyncio.run(model.complete(model.ask(THOUGHT)))
        assert [(loss.code, loss.path) for loss in caught.value.losses] == [("reasoning.dropped", "messages/m2/blocks/0")]
        assert isinstance(caught.value, UsageError)
        assert server.requests == []


def test_what_is_not_refused_is_sent_as_ever() -> None:
    with FakeServer("openai_responses", [turn("Hi.")]) as server:
        model = opened(server, GPT, refuse_losses={"setting", "reasoning.degraded"})
        answer = asyncio.run(model.complete(model.ask(THOUGHT)))
    assert (answer.text, [loss.code for loss in answer.losses]) == ("Hi.", ["reasoning.dropped"])


def test_one_ask_can_refuse_what_its_model_does_not() -> None:
    with FakeServer("openai_responses", [turn("Hi.")]) as server:
        model = opened(server, GPT)
        ask = replace(model.ask(THOUGHT, settings=Settings(seed=4)), refuse_losses=frozenset({"setting.seed.dropped"}))
        with pytest.raises(LossRefused) as caught:
            asyncio.run(model.complete(ask))
    assert [(loss.code, loss.path) for loss in caught.value.losses] == [("setting.seed.dropped", "settings/seed")]


def test_a_chain_asks_the_model_that_loses_nothing() -> None:
    with FakeServer("openai_responses", []) as first, FakeServer("anthropic_messages", [turn("Whole.")]) as second:
        chain = Chain([opened(first, GPT, refuse_losses={"setting.top_k"}), opened(second, "anthropic:claude-sonnet-4-5")])
        ask = chain.models[0].ask(Transcript([Message("user", (TextBlock("Hi."),))]), settings=Settings(top_k=3))
        assert asyncio.run(chain.complete(ask)).text == "Whole."
        assert first.requests == []


def test_a_run_that_would_lose_what_is_refused_fails_cleanly_and_can_be_resumed_without_the_refusal(tmp_path: Path) -> None:
    async def play() -> None:
        with FakeServer("openai_responses", [turn("Done.")]) as server:
            model = opened(server, GPT)
            asked: list[Any] = [model]
            strict = Harness(asked, store=tmp_path / "log.db", name="h", refuse_losses={"reasoning"})
            with pytest.raises(LossRefused) as caught:
                await strict.thread(history=list(THOUGHT)[:2]).run("And?")
            assert [loss.code for loss in caught.value.losses] == ["reasoning.dropped"]
            assert caught.value.thread
            assert server.requests == []
            await strict.aclose()
            lenient = Harness(asked, store=tmp_path / "log.db", name="h")
            result = await lenient.resume(caught.value.thread)
            assert (result.ok, result.text) == (True, "Done.")
            assert [loss.code for loss in result.losses] == ["reasoning.dropped"]
            await lenient.aclose()

    asyncio.run(play())


def test_what_a_run_would_refuse_is_told_by_its_compiled_request() -> None:
    async def play() -> tuple[str, ...]:
        harness = Harness("openai:gpt-5.5", store="memory", temperature=0.5, refuse_losses={"setting.temperature"})
        return (await harness.thread().compile(prompt="Hi.")).notes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-not-real")
        assert "[setting.temperature.dropped]" in asyncio.run(play())[-1]


def test_a_translation_refuses_too() -> None:
    body = json.dumps({"model": "claude-opus-4-5", "max_tokens": 9, "top_k": 3, "messages": [{"role": "user", "content": "x"}]})
    some = translate(body.encode(), source="anthropic", target="openai", model="gpt-5.2", refuse_losses={"tool", "text"})
    assert "setting.top_k.dropped" in [loss.code for loss in some.losses]
    with pytest.raises(LossRefused) as caught:
        translate(body.encode(), source="anthropic", target="openai", model="gpt-5.2", refuse_losses={"setting.top_k"})
    assert caught.value.losses[0].path == "settings/top_k"
    with pytest.raises(LossRefused):
        translate(body.encode(), source="anthropic", target="openai", refuse_losses={"model"})


def test_the_command_line_refuses_too(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text('{"model":"m","max_tokens":9,"top_k":3,"messages":[{"role":"user","content":"x"}]}')
    words = ["translate", "--from", "anthropic", "--to", "openai", "--model", "gpt-5.2", str(request)]
    assert evener(*words).returncode == 0
    refused = evener(*words, "--refuse-losses", "text, setting.top_k.dropped")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"[setting.top_k.dropped]" in refused.stderr
    assert b"no loss 'settings'" in evener(*words, "--refuse-losses", "settings").stderr


# The names.


@pytest.mark.parametrize("name", ["no.such", "reasoning.", "reason", "reasoning.dropped.x", "", "reasoning.renamed", 3, None])
def test_a_name_that_no_loss_has_is_refused_when_it_is_given(name: Any) -> None:
    for give in (
        lambda: refused_codes([name]),
        lambda: Harness("local:smollm2", refuse_losses=[name]),
        lambda: open_model("local:smollm2", environ=NOWHERE, refuse_losses=[name]),
        lambda: translate(b"{}", source="openai", target="google", refuse_losses=[name]),
    ):
        with pytest.raises(UsageError, match="There is no loss"):
            give()


def test_one_text_is_no_set_of_names() -> None:
    with pytest.raises(UsageError, match="several codes"):
        refused_codes("reasoning")


def test_every_code_is_refused_by_itself_its_beginnings_and_its_kind() -> None:
    for code in CODES:
        kind = code.rpartition(".")[2]
        loss = Loss(kind, "x", "y", code=code)  # type: ignore[arg-type]
        steps = code.split(".")
        for name in (kind, *(".".join(steps[:end]) for end in range(1, len(steps) + 1))):
            with pytest.raises(LossRefused):
                refuse([loss], refused_codes([name]))
        refuse([loss], refused_codes(CODES - {code, *(one for one in CODES if one.startswith(f"{code}."))}))


def test_losses_of_older_logs_are_still_read() -> None:
    old = b'{"kind":"dropped","what":"reasoning","why":"w","message":"m1"}'
    loss = msgspec.json.decode(old, type=Loss)
    assert (loss.code, loss.path, str(loss)) == ("", "", "dropped reasoning in message m1: w")
    assert msgspec.json.encode(loss) == old
