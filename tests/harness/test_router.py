"""A router chooses the model of each request: a fact in the log, bounded, counted, and legal on any switch (S0.52)."""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener import events as ev
from evener.errors import AuthFailed, UsageError
from evener.model import Model
from evener.replay import replay
from evener.router import NextRequest
from evener.store.protocol import Store
from evener.testing import Call, FakeServer, Thinking, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolCall, ToolResult
from tests.driver.stage import model_at, served
from tests.model.stage import MODELS, watched

CHEAP, STRONG = "scripted:cheap", "scripted:strong"
LOOK = calls(ToolCall.of("c1", "look", {"item": "tea"}))
WIRES = ("openai_responses", "anthropic_messages")


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    if item == "salt":
        raise ValueError("no salt")
    return f"{item}: 3"


@dataclass
class Count:
    left: int


def pair(cheap: object, strong: object, router: object, *, store: Store | None = None, **more: object) -> Harness:
    """An agent with a cheap model and a strong one."""
    models = [ScriptedModel(cheap, name=CHEAP), ScriptedModel(strong, name=STRONG)]  # type: ignore[arg-type]
    return Harness(models, tools=[look], store=store or MemoryStore(), router=router, **more)  # type: ignore[arg-type]


def strong_after_failures(request: NextRequest) -> str | None:
    return request.models[1] if request.failed_calls or request.corrections else request.models[0]


def asked(one: Harness, thread: str) -> list[str]:
    return asked_in(asyncio.run(one.store.read(thread)))


def asked_in(events: Iterable[ev.Event]) -> list[str]:
    """The models of the requests, as the log has them."""
    return [event.model for event in events if isinstance(event, ev.ModelCalled)]


@pytest.mark.parametrize("wires", [WIRES, WIRES[::-1]], ids=["to Anthropic", "to OpenAI"])
def test_s0_52_a_router_chooses_the_model_of_each_request(wires: tuple[str, str]) -> None:
    """S0.52, S1.2, S2.65: on strict servers, with sealed reasoning on both sides; each switch reports what it loses."""
    first, second = wires
    scripts = (
        [turn(Thinking("Salt first."), Call("look", {"item": "salt"})), turn("Three.")],
        [turn(Thinking("No salt. Tea."), Call("look", {"item": "tea"}))],
    )

    async def go() -> tuple[Harness, object, list[ev.Event]]:
        with served(first, scripts[0]) as here, served(second, scripts[1]) as there:
            async with watched() as http:
                models = [model_at(here, first, http), model_at(there, second, http)]
                one = Harness(models, tools=[look], store="memory", router=strong_after_failures)
                result = await one.run("How much is left?")
            assert [*here.rejected, *there.rejected] == []
            assert (here.left, there.left, len(here.requests), len(there.requests)) == (0, 0, 2, 1)
            assert [loss.code for loss in result.losses].count("reasoning.dropped") == 2
            assert result.text == "Three."
            return one, [request.model for request in result.requests], await one.store.read(result.thread)

    one, models, events = asyncio.run(go())
    chosen = [MODELS[first], MODELS[second], MODELS[first]]
    assert models == chosen
    assert asked_in(events) == chosen
    replayed = asyncio.run(replay(events))
    assert replayed.differences == ()
    assert asyncio.run(replay(events, harness=one)).differences == ()


def test_what_a_router_is_told() -> None:
    """S0.52."""
    seen: list[NextRequest] = []

    def router(request: NextRequest) -> None:
        seen.append(request)

    one = pair([calls(ToolCall.of("c1", "look", {"item": "salt"})), "three", '{"left":3}'], [], router, output=Count)
    result = one.run_sync([TextBlock("How many?"), ImageBlock(Inline("aW1hZ2U="), "image/png")])
    assert result.output == Count(3)
    assert [(one.turn, one.failed_calls, one.corrections, one.spent.tool_calls) for one in seen] == [
        (0, 0, 0, 0),
        (1, 1, 0, 1),
        (2, 0, 1, 1),
    ]
    assert {(one.run, one.thread, one.models, one.model) for one in seen} == {
        (result.run, result.thread, (CHEAP, STRONG), CHEAP)
    }
    first, second, _ = (one.transcript for one in seen)
    assert any(isinstance(block, ImageBlock) for message in first for block in message.blocks)
    assert second.last is not None
    assert isinstance(second.last.blocks[0], ToolResult)


def test_the_model_asked_last_stays_unless_another_is_named() -> None:
    """S0.52."""
    names = iter([STRONG, None, "", CHEAP])
    one = pair(["done"], [LOOK, LOOK, LOOK], lambda _: next(names))
    assert asked(one, one.run_sync("go").thread) == [STRONG, STRONG, STRONG, CHEAP]


class Silent(ScriptedModel):
    """Never answers."""

    def __init__(self, script: list[Any], *, name: str) -> None:
        super().__init__(script, name=name)
        self.reached = asyncio.Event()

    def stream(self, ask: Ask, *, after: object = None) -> Any:
        made: Any = super().stream(ask, after=after)
        made.read = asyncio.Event().wait
        self.reached.set()
        return made


def test_a_request_that_was_announced_keeps_its_model() -> None:
    """S0.52: its process went away in mid-request. The next one asks its router about the requests after it only."""

    async def go() -> tuple[list[str], list[NextRequest]]:
        store, silent = MemoryStore(), Silent([LOOK], name=STRONG)
        seen: list[NextRequest] = []

        def cheap(request: NextRequest) -> str:
            seen.append(request)
            return CHEAP

        before = pair([LOOK], [], lambda request: (CHEAP, STRONG)[request.turn], store=store)
        stream = before.with_model(before.models[0], silent).stream("go")
        await silent.reached.wait()
        await stream.aclose()
        [log] = await store.logs()
        after = pair(["done"], [LOOK], cheap, store=store)
        result = await after.resume(log.log)
        assert result.text == "done"
        events = await store.read(log.log)
        assert (await replay(events)).differences == ()
        return asked_in(events), seen

    models, seen = asyncio.run(go())
    assert models == [CHEAP, STRONG, STRONG, CHEAP]
    assert [request.turn for request in seen] == [2]


def test_what_the_user_says_meanwhile_makes_another_request() -> None:
    """S0.52: the router is asked again where the announced request is not what is sent."""

    async def go() -> list[str]:
        silent, names = Silent([LOOK], name=CHEAP), iter([CHEAP, STRONG])
        one = pair([], ["done"], lambda _: next(names))
        stream = one.with_model(silent, one.models[1]).stream("go")
        await silent.reached.wait()
        await stream.steer("No, this.", now=True)
        result = await stream.result()
        assert result.text == "done"
        return asked_in(await one.store.read(result.thread))

    assert asyncio.run(go()) == [CHEAP, STRONG]


def test_after_a_failure_the_chain_decides() -> None:
    """S0.52: the router is asked once for the request, however often it is tried."""
    seen: list[str] = []

    def router(request: NextRequest) -> str:
        seen.append(request.model)
        return STRONG

    one = pair(["never asked"], [AuthFailed("no key")], router)
    spare = ScriptedModel(["done"], name="scripted:spare")
    one = one.with_model(*one.models, spare)
    result = one.run_sync("go")
    assert (result.text, [request.model for request in result.requests]) == ("done", [STRONG, "scripted:spare"])
    assert seen == [CHEAP]


def test_a_budget_counts_the_model_that_was_chosen() -> None:
    """S0.52."""
    models = [
        ScriptedModel([LOOK, "three"], name=CHEAP, price=Decimal("0.01")),
        ScriptedModel(["three"], name=STRONG, price=Decimal("0.50")),
    ]

    def run(router: Callable[[NextRequest], str]) -> tuple[str, Decimal, list[str]]:
        one = Harness(models, tools=[look], store="memory", router=router, limits=Limits(cost=Decimal("0.40")))
        result = one.run_sync("go")
        return result.stop, result.cost, [request.model for request in result.requests]

    assert run(lambda request: (CHEAP, STRONG)[request.turn]) == ("limit", Decimal("0.01"), [CHEAP])
    models[0] = ScriptedModel([LOOK, "three"], name=CHEAP, price=Decimal("0.01"))
    assert run(lambda _: CHEAP) == ("done", Decimal("0.02"), [CHEAP, CHEAP])


async def _async_router(request: NextRequest) -> str:
    return request.model


NO_MODELS: dict[str, str] = {}
WRONG: dict[str, tuple[Callable[[NextRequest], object], str]] = {
    "a model that is not there": (lambda _: "scripted:huge", f"chose 'scripted:huge', and .* are {CHEAP}, {STRONG}"),
    "no name": (lambda _: 7, "chose a value of type int"),
    "an error": (lambda request: NO_MODELS[request.run], "The router failed with KeyError"),
    "a coroutine": (_async_router, "The router is async"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_router_that_is_wrong_is_told_and_the_run_can_be_resumed(case: str) -> None:
    """S0.52: nothing was sent."""
    router, told = WRONG[case]
    store = MemoryStore()
    one = pair(["done"], [], router, store=store)
    with pytest.raises(UsageError, match=told) as failed:
        one.run_sync("go")
    assert asked(one, failed.value.thread) == []
    mended = pair(["done"], [], None, store=store)
    assert mended.resume_sync(failed.value.thread).text == "done"


def test_models_that_a_router_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="Two models are named"):
        Harness([ScriptedModel([]), ScriptedModel([])], store="memory", router=lambda _: None)
    with pytest.raises(UsageError, match="`router` takes a function"):
        Harness(ScriptedModel([]), store="memory", router="cheap")  # type: ignore[arg-type]


def test_a_model_may_be_named_as_the_harness_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """S0.52: also by an alias, or with a slash; the request has the model's own name."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    given = "anthropic/claude-opus-5-5"
    one = Harness([ScriptedModel(["done"], name=CHEAP), given], store="memory", router=lambda _: given)
    assert asyncio.run(one.thread().compile(prompt="Hello?")).model == "anthropic:claude-opus-5-5"


def test_a_preview_shows_the_model_that_the_router_would_choose() -> None:
    """S0.52."""
    with FakeServer("openai_responses", []) as here, FakeServer("anthropic_messages", []) as there:

        async def go() -> tuple[str, str]:
            async with watched() as http:
                models: list[Model] = [model_at(here, WIRES[0], http), model_at(there, WIRES[1], http)]
                one = Harness(models, store="memory", router=lambda request: request.models[1])
                chosen = await one.thread().compile(prompt="Hello?")
                named = await one.thread().compile(models[0], prompt="Hello?")
                assert json.loads(chosen.body)["messages"]
                return chosen.model, named.model

        assert asyncio.run(go()) == (MODELS[WIRES[1]], MODELS[WIRES[0]])
