"""From a model string to a model: keys, addresses, credentials made afresh for each try, and a rate that is shared."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from evener.errors import AuthFailed, TimedOut, UsageError
from evener.model import Model, open_model
from evener.providers.keys import MissingKey, store_key
from evener.testing import FakeServer, Received, Status, Text, Tokens, faults, turn
from evener.transport.exchange import Auth, Deadlines, Request, Response, Retries, Transport, bearer
from evener.transport.limiter import Rate
from tests.model.stage import MODELS, NOWHERE, WIRES, asking, fresh_key, run, told_by, watched
from tests.patience import lull, until

FIRST = "anthropic_messages"
QUICK = Retries(3, 0.01, 0.5)


@pytest.mark.parametrize("name", MODELS.values())
def test_a_missing_key_is_an_early_error_that_says_what_to_do(name: str) -> None:
    """S0.50."""
    provider = name.partition(":")[0]
    with pytest.raises(MissingKey) as caught:
        open_model(name, environ=NOWHERE)
    told = str(caught.value)
    assert caught.value.variables[0] in told
    assert f"evener keys set {provider}" in told
    assert "local:smollm2" in told


def test_no_model_at_all_is_an_error_that_names_one() -> None:
    with pytest.raises(UsageError, match="local:smollm2, which needs no key"):
        open_model(environ=NOWHERE)


def test_a_key_comes_from_the_environment_or_the_key_file(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    (tmp_path / "evener").mkdir(mode=0o700)
    stored, given = fresh_key(), fresh_key()
    store_key(tmp_path / "evener" / "keys.toml", "ANTHROPIC_API_KEY", stored)

    async def play(url: str) -> None:
        async with watched() as watch:
            for kept in (environ, {**environ, "ANTHROPIC_API_KEY": given}):
                model = open_model(MODELS[FIRST], environ=kept, transport=watch, base_url=url)
                assert (await model.complete(asking(model))).text == "Hi."

    with FakeServer(FIRST, ["Hi.", "Hi."]) as server:
        run(play(server.url))
        assert [received.headers["x-api-key"] for received in server.requests] == [stored, given]


def test_another_address_needs_no_key_and_may_end_in_a_slash() -> None:
    """S0.45, S1.15."""

    async def play(url: str) -> None:
        async with watched() as watch:
            model = open_model("openai-chat:own-model", environ=NOWHERE, transport=watch, base_url=url + "/")
            assert (await model.complete(asking(model))).text == "Hi."
            assert model.endpoint.url == model.origin.endpoint == url

    with FakeServer("openai_chat", ["Hi."]) as server:
        run(play(server.url))
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("wire", WIRES)
def test_no_key_is_shown_by_anything_that_has_it(wire: str) -> None:
    key = fresh_key()
    model = open_model(MODELS[wire], environ=NOWHERE, key=key)
    stream = model.stream(asking(model))
    shown = [repr(model), repr(model.endpoint), repr(model.origin), repr(stream), str(model.completer)]
    assert not [text for text in shown if key in text]
    assert MODELS[wire] in shown[0]


# Credentials that are made afresh.


def tokens(*, later: bool) -> tuple[list[str], Auth]:
    """An auth callable that makes a new token for each try, and the tokens that it made."""
    made: list[str] = []

    def sign(request: Request) -> Request:
        made.append(f"token-SENTINEL-{len(made)}-do-not-show")
        return bearer(made[-1])(request)  # type: ignore[return-value]

    async def sign_later(request: Request) -> Request:
        await asyncio.sleep(0)
        return sign(request)

    return made, sign_later if later else sign


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_each_try_has_a_fresh_token(later: bool) -> None:
    made, auth = tokens(later=later)

    async def play(url: str) -> int:
        async with watched() as watch:
            model = open_model(MODELS[FIRST], environ=NOWHERE, transport=watch, auth=auth, base_url=url, retries=QUICK)
            return (await model.complete(asking(model))).tries

    with FakeServer(FIRST, [Status(503), Status(529), "Hi."]) as server:
        assert run(play(server.url)) == 3
        sent = [received.headers["authorization"] for received in server.requests]
    assert sent == [f"Bearer {token}" for token in made]
    assert len(set(sent)) == 3


def test_a_call_does_not_wait_for_a_token_beyond_its_total_deadline() -> None:
    async def sign(request: Request) -> Request:
        await asyncio.Event().wait()
        return request

    async def play(url: str) -> None:
        async with watched() as watch:
            most = Deadlines(connect=120, idle=120, total=0.5)
            model = open_model(MODELS[FIRST], environ=NOWHERE, transport=watch, auth=sign, base_url=url, deadlines=most)
            with pytest.raises(TimedOut, match="The total deadline passed"):
                await model.complete(asking(model))

    with FakeServer(FIRST, ["Hi."]) as server:
        run(play(server.url))
        assert len(server.requests) == 0


def test_a_late_token_leaves_less_of_the_total_deadline() -> None:
    async def sign(request: Request) -> Request:
        await asyncio.sleep(0.2)
        return bearer("token-SENTINEL-do-not-show")(request)  # type: ignore[return-value]

    left: list[float] = []

    class Noting:
        """A transport that notes how long each exchange may take."""

        def __init__(self, inner: Transport) -> None:
            self._inner = inner

        async def send(self, request: Request) -> Response:
            left.append(request.deadlines.total)
            return await self._inner.send(request)

    async def play(url: str) -> None:
        async with watched() as watch:
            model = open_model(
                MODELS[FIRST], environ=NOWHERE, transport=Noting(watch), auth=sign, base_url=url, deadlines=Deadlines(total=100)
            )
            await model.complete(asking(model))

    with FakeServer(FIRST, ["Hi."]) as server:
        run(play(server.url))
    assert len(left) == 1
    assert left[0] <= 99.8


def test_a_signature_may_cover_the_body_and_stands_in_no_error() -> None:
    def sign(request: Request) -> Request:
        return replace(request, url=f"{request.url}?signature=SENTINEL-{len(request.body)}-do-not-show")

    async def play(url: str) -> str:
        async with watched() as watch:
            model = open_model(MODELS["openai_chat"], environ=NOWHERE, transport=watch, auth=sign, base_url=url)
            with pytest.raises(AuthFailed) as caught:
                await model.complete(asking(model))
            return told_by(caught.value)

    def repeat(received: Received) -> Status:
        return Status(401, f"Bad signature in {received.path}.", headers={"x-request-id": received.path})

    with FakeServer("openai_chat", repeat) as server:
        told = run(play(server.url))
        assert f"SENTINEL-{len(server.requests[0].body)}" in server.requests[0].path
    assert "SENTINEL" not in told
    assert "[secret]" in told


# A rate that is shared.


async def together(*models: Model) -> list[str]:
    """All asked at once."""
    return [answer.text for answer in await asyncio.gather(*(model.complete(asking(model)) for model in models))]


def test_two_models_with_one_key_share_a_rate_and_others_do_not() -> None:
    one, other = fresh_key(), fresh_key()
    rate = Rate(concurrent=1)
    model = open_model(MODELS[FIRST], environ=NOWHERE, key=one, rate=rate)
    assert open_model("anthropic:claude-haiku-5-5", environ=NOWHERE, key=one).endpoint.limiter is model.endpoint.limiter
    assert open_model(MODELS[FIRST], environ=NOWHERE, key=other).endpoint.limiter is not model.endpoint.limiter
    assert model.endpoint.limiter.rate == rate


@pytest.mark.parametrize("concurrent", [1, 4])
def test_no_more_calls_are_under_way_than_the_rate_allows(concurrent: int) -> None:
    key, under_way, most = fresh_key(), 0, 0

    class Meeting:
        """A transport that holds each request until as many as are allowed are under way."""

        def __init__(self, inner: Transport) -> None:
            self._inner = inner
            self._met = asyncio.Barrier(concurrent)

        async def send(self, request: Request) -> Response:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await self._met.wait()
            await lull()
            under_way -= 1
            return await self._inner.send(request)

    async def play(url: str) -> None:
        async with watched() as watch:
            meeting = Meeting(watch)
            names = (MODELS[FIRST], "anthropic:claude-haiku-5-5") * 2
            rate = Rate(concurrent=concurrent)
            models = [open_model(name, environ=NOWHERE, transport=meeting, key=key, base_url=url, rate=rate) for name in names]
            assert await together(*models) == ["Hi."] * 4

    with FakeServer(FIRST, ["Hi."] * 4) as server:
        run(play(server.url))
    assert most == concurrent


def test_a_429_holds_back_the_other_calls_of_its_key() -> None:
    key = fresh_key()

    async def play(url: str) -> None:
        async with watched() as watch:
            patient = Retries(attempts=3, base=0.01, most=100)
            model, hasty = (
                open_model(
                    MODELS[FIRST], environ=NOWHERE, transport=watch, key=key, base_url=url, retries=patient, deadlines=limit
                )
                for limit in (Deadlines(), Deadlines(total=0.3))
            )
            limited = asyncio.create_task(model.complete(asking(model)))
            await until(lambda: watch.closed)  # the 429 has been read
            with pytest.raises(TimedOut, match="left no room"):
                await hasty.complete(asking(hasty))
            limited.cancel()
            await asyncio.wait((limited,))

    with FakeServer(FIRST, [Status(429, retry_after=90), "Hi."]) as server:
        run(play(server.url))
        assert len(server.requests) == 1


def test_a_call_waits_for_its_turn_no_longer_than_its_deadline() -> None:
    key = fresh_key()

    async def play(url: str) -> None:
        async with watched() as watch:
            deadlines = Deadlines(total=0.3)
            model, hasty = (
                open_model(
                    MODELS[FIRST],
                    environ=NOWHERE,
                    transport=watch,
                    key=key,
                    base_url=url,
                    rate=Rate(concurrent=1),
                    deadlines=limit,
                )
                for limit in (Deadlines(), deadlines)
            )
            stream = model.stream(asking(model))
            assert await stream.read()
            with pytest.raises(TimedOut, match="left no room"):
                await hasty.complete(asking(hasty))
            await stream.aclose()
            assert (await model.complete(asking(model))).text == "Hi."

    with FakeServer(FIRST, [turn(Text("a b c", pieces=3), faults=[faults.Stall(4)]), "Hi."]) as server:
        run(play(server.url))


@pytest.mark.parametrize("told", [0, 400], ids=["guessed", "told"])
def test_the_tokens_that_a_call_took_count_against_the_rate(told: int) -> None:
    """A minute's tokens are spent by what the provider counted: the next call has to wait, and may not."""
    key = fresh_key()
    usage = Tokens(input=told, output=told) if told else None

    async def play(url: str) -> None:
        async with watched() as watch:
            rate = Rate(tokens_per_minute=500)
            model = open_model(
                MODELS[FIRST],
                environ=NOWHERE,
                transport=watch,
                key=key,
                base_url=url,
                rate=rate,
            )
            await model.complete(asking(model))
            if told:
                hasty = Model(replace(model.endpoint, deadlines=Deadlines(total=0.3)))
                with pytest.raises(TimedOut, match="left no room"):
                    await hasty.complete(asking(hasty))
            else:
                await model.complete(asking(model))

    with FakeServer(FIRST, [turn("Hi.", usage=usage), "Hi."]) as server:
        run(play(server.url))
