"""A chain of models: another one is asked only before anything was shown, and only where it may do better."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from evener.errors import EvenerError, InvalidRequest, Overloaded, RateLimited, TimedOut, UsageError, WireError
from evener.model import Chain, open_model
from evener.testing import FakeServer, Html, Status, Text, Thinking, faults, turn
from evener.transcript.delta import TextDelta
from evener.transport.exchange import Deadlines, Retries
from tests.model.stage import MODELS, NOWHERE, WIRES, asking, fresh_key, run, told_by, watched
from tests.patience import PATIENCE, at_some_pace

T = TypeVar("T")


def chained(scripts: list[list[Any]], use: Callable[[Chain], Awaitable[T]], *, idle: float = PATIENCE) -> tuple[T, list[int]]:
    """What this use of a chain over servers of all wires gives, and how often each was asked."""
    deadlines = Deadlines(connect=PATIENCE, idle=idle, total=PATIENCE)

    async def play(urls: list[str]) -> T:
        async with watched() as watch:
            models = [
                open_model(
                    MODELS[wire],
                    environ=NOWHERE,
                    transport=watch,
                    key=fresh_key(),
                    base_url=url,
                    deadlines=deadlines,
                    retries=Retries(2, 0.01, 0.1),
                )
                for wire, url in zip(WIRES, urls, strict=False)
            ]
            return await use(Chain(models))

    with ExitStack() as stack:
        servers = [stack.enter_context(FakeServer(wire, script)) for wire, script in zip(WIRES, scripts, strict=False)]
        return run(play([server.url for server in servers])), [len(server.requests) for server in servers]


async def said(chain: Chain) -> tuple[str, str, list[tuple[str, str]]]:
    """The text, who said it, and who failed."""
    stream = chain.stream(asking(chain.models[0]))
    async with stream:
        told = "".join([delta.text async for delta in stream if isinstance(delta, TextDelta)])
    assert told == stream.answer.text
    return told, stream.answer.provider, [(name, type(error).__name__) for name, error in stream.failures]


ELSEWHERE: dict[str, tuple[list[Any], int, str]] = {
    "limited": ([Status(429)] * 2, 2, "RateLimited"),
    "limited for long": ([Status(429, retry_after=999)], 1, "RateLimited"),
    "overloaded": ([Status(529)] * 2, 2, "Overloaded"),
    "broken": ([Status(500)] * 2, 2, "ServerError"),
    "wrong key": ([Status(401)], 1, "AuthFailed"),
    "not allowed": ([Status(403)], 1, "PermissionDenied"),
    "spent": ([Status(402)], 1, "QuotaExceeded"),
    "no such model": ([Status(404, "model: nobody")], 1, "ModelNotFound"),
    "too long": ([Status(400, "prompt is too long: 210000 tokens > 200000 maximum")], 1, "ContextTooLong"),
    "silent": ([turn("", faults=[faults.Silent()])] * 2, 2, "TimedOut"),
    "stalled before the first event": ([faults.Stall(0)], 1, "TimedOut"),
    "cut before the first event": ([faults.Cut(0)], 1, "TruncatedStream"),
    "failed in the first event": ([faults.ErrorEvent(0)], 1, "Overloaded"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_next_model_is_asked_when_one_cannot_answer(name: str) -> None:
    script, tries, kind = ELSEWHERE[name]

    def attempt(idle: float) -> None:
        told, requests = chained([script, ["From the second."]], said, idle=idle)
        assert told == ("From the second.", "openai", [(MODELS["anthropic_messages"], kind)])
        assert requests == [tries, 1]

    if kind == "TimedOut":
        at_some_pace(attempt)  # the second model must be faster than what the first one fails of
    else:
        attempt(PATIENCE)


def test_all_models_are_asked_in_their_order() -> None:
    told, requests = chained([[Status(401)], [Status(403)], [Status(402)], ["From the last."]], said)
    kinds = ["AuthFailed", "PermissionDenied", "QuotaExceeded"]
    assert told == ("From the last.", "google", list(zip([MODELS[wire] for wire in WIRES], kinds, strict=False)))
    assert requests == [1, 1, 1, 1]


def test_the_first_model_is_enough() -> None:
    assert chained([[turn(Thinking("Hm."), "Here.")], ["Never."]], said) == (("Here.", "anthropic", []), [1, 0])


def test_the_last_error_is_raised_when_none_can_answer() -> None:
    async def use(chain: Chain) -> EvenerError:
        with pytest.raises(RateLimited) as caught:
            await chain.complete(asking(chain.models[0]))
        assert "SENTINEL" not in told_by(caught.value)
        return caught.value

    error, requests = chained([[Status(529)] * 2, [Status(429)] * 2], use)
    assert isinstance(error, RateLimited)
    assert requests == [2, 2]


STAYS: dict[str, tuple[list[Any], type[EvenerError]]] = {
    "a bad request": ([Status(400)], InvalidRequest),
    "a web page": ([Html()], WireError),
    "an error after the first delta": ([faults.ErrorEvent(4)], Overloaded),
    "a stall after the first delta": ([faults.Stall(4)], TimedOut),
}


@pytest.mark.parametrize("name", STAYS)
def test_no_other_model_is_asked_for_what_is_wrong_in_itself_or_was_shown_in_part(name: str) -> None:
    script, kind = STAYS[name]

    async def use(chain: Chain) -> list[Any]:
        stream = chain.stream(asking(chain.models[0]))
        async with stream:
            with pytest.raises(kind):
                [delta async for delta in stream]
        return stream.failures

    def attempt(idle: float) -> None:
        assert chained([script, ["Never."]], use, idle=idle) == ([], [1, 0])

    if kind is TimedOut:
        at_some_pace(attempt)
    else:
        attempt(PATIENCE)


def test_a_chain_has_models_and_a_name() -> None:
    with pytest.raises(UsageError, match="at least one model"):
        Chain([])
    models = [open_model(MODELS[wire], environ=NOWHERE, key=fresh_key()) for wire in WIRES[:2]]
    chain = Chain(models)
    assert chain.models == tuple(models)
    assert chain.name == f"{MODELS[WIRES[0]]} > {MODELS[WIRES[1]]}"
    with pytest.raises(UsageError, match="No model was asked yet"):
        assert chain.stream(asking(models[0])).answer


def test_a_chain_that_is_left_early_leaves_nothing_open() -> None:
    async def use(chain: Chain) -> int:
        async with chain.stream(asking(chain.models[0]), keep_raw=True) as stream:
            return len(await stream.read())

    slow = turn(Text("a b c d", pieces=4), faults=[faults.Slow(between=0.05)])
    assert chained([[slow]], use)[0] > 0
