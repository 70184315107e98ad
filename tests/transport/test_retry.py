"""Retries: only before a 2xx head, only what may succeed later, never past the total deadline."""

import asyncio
import traceback
from collections.abc import Mapping

import pytest

from evener.errors import (
    ConnectFailed,
    EvenerError,
    InvalidRequest,
    ProviderError,
    RateLimited,
    ServerError,
    TimedOut,
    TruncatedStream,
    WireError,
)
from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.exchange import Caps, Deadlines, Request, Response, Retried, Retries, send_retrying
from evener.transport.http import HttpTransport, read_all
from tests.transport.servers import SECRET, Received, post, raw, serving, whole

REQUEST = Request("http://127.0.0.1:9/v1?key=none", (), b"{}", deadlines=Deadlines(total=100))
OK = FakeAnswer((b"fine",))
USUAL = Retries()


def fault(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    after = headers.get("retry-after")
    kind = {400: InvalidRequest, 429: RateLimited}.get(status, ServerError)
    return kind(body.decode(), status=status, retry_after=None if after is None else float(after))


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Tried:
    """One call: what it gave, how long it waited, what it told."""

    def __init__(self, *script: FakeAnswer | EvenerError, retries: Retries = USUAL, jitter: float = 1.0) -> None:
        self.clock = Clock()
        self.told: list[Retried] = []
        self.transport = FakeTransport(script)  # type: ignore[arg-type]
        self.error: EvenerError | None = None
        self.response: Response | None = None
        asyncio.run(self._run(retries, jitter))

    async def _run(self, retries: Retries, jitter: float) -> None:
        try:
            self.response = await send_retrying(
                self.transport,
                REQUEST,
                retries=retries,
                fault=fault,
                caps=Caps(error=10),
                on_retry=self.told.append,
                sleep=self.clock.sleep,
                random=lambda: jitter,
                clock=lambda: self.clock.now,
            )
        except EvenerError as error:
            self.error = error
        else:
            await self.response.aclose()
        self.transport.check()


def refused(status: int, after: str | None = None) -> FakeAnswer:
    return FakeAnswer((b"0123456", b"789-and-more"), status, {} if after is None else {"retry-after": after})


def test_what_succeeds_is_given_at_once() -> None:
    tried = Tried(OK)
    assert tried.response is not None
    assert (tried.clock.slept, tried.told) == ([], [])


@pytest.mark.parametrize("first", [refused(500), refused(429), ConnectFailed("no"), TimedOut("idle")], ids=repr)
def test_what_may_succeed_later_is_tried_again(first: FakeAnswer | EvenerError) -> None:
    tried = Tried(first, OK)
    assert tried.response is not None
    assert tried.clock.slept == [0.5]
    assert [(retried.attempt, retried.delay) for retried in tried.told] == [(1, 0.5)]


@pytest.mark.parametrize("first", [refused(400), WireError("not HTTP")], ids=repr)
def test_what_will_fail_again_is_not_tried_again(first: FakeAnswer | EvenerError) -> None:
    tried = Tried(first)
    assert tried.error is not None
    assert not tried.error.retryable
    assert tried.told == []


def test_the_tries_are_bounded_and_the_last_error_is_raised() -> None:
    tried = Tried(refused(500), refused(502), refused(503))
    assert isinstance(tried.error, ServerError)
    assert tried.error.status == 503
    assert tried.clock.slept == [0.5, 1.0]
    assert tried.error.message == "0123456789"  # capped
    assert tried.error.__context__ is None


def test_a_connection_that_closes_before_it_answers_is_tried_at_once_and_once_for_free() -> None:
    gone = TruncatedStream("closed")
    tried = Tried(gone, gone, gone, OK)
    assert tried.response is not None
    assert tried.clock.slept == [0.5, 1.0]
    assert [(retried.attempt, retried.delay) for retried in tried.told] == [(1, 0.0), (1, 0.5), (2, 1.0)]
    assert isinstance(Tried(gone, gone, gone, gone).error, TruncatedStream)


@pytest.mark.parametrize(
    ("attempt", "after", "jitter", "delay"),
    [
        (1, None, 0.0, 0.0),
        (1, None, 1.0, 0.5),
        (2, None, 1.0, 1.0),
        (4, None, 0.5, 2.0),
        (9, None, 1.0, 30.0),
        (10, None, 1.0, None),
        (5000, None, 1.0, None),
        (1, 3.0, 0.0, 3.0),
        (1, 3.0, 1.0, 3.5),
        (1, 30.0, 1.0, 30.0),
        (1, 30.1, 0.0, None),
        (1, -5.0, 0.0, 0.0),
    ],
)
def test_the_delay_is_a_table(attempt: int, after: float | None, jitter: float, delay: float | None) -> None:
    assert Retries(attempts=10).delay(attempt, after, jitter) == delay


def test_what_the_provider_asks_for_is_waited_and_too_much_is_not() -> None:
    assert Tried(refused(429, "7"), OK, jitter=0.0).clock.slept == [7.0]
    impatient = Tried(refused(429, "31"), jitter=0.0)
    assert isinstance(impatient.error, RateLimited)
    assert impatient.error.retry_after == 31.0
    assert impatient.clock.slept == []


def test_no_wait_goes_past_the_total_deadline_and_each_try_has_what_is_left() -> None:
    tried = Tried(refused(500), refused(500), retries=Retries(attempts=9, base=40, most=60))
    assert isinstance(tried.error, ServerError)
    assert tried.clock.slept == [40.0]  # 60 more would be past 100
    assert [request.deadlines.total for request in tried.transport.requests] == [100.0, 60.0]


def test_the_total_deadline_is_not_retried_and_names_the_whole_of_it() -> None:
    async def main() -> tuple[str, int]:
        async with serving(raw(end="hang")) as served, HttpTransport() as http:
            request = post(served.url, Deadlines(connect=120, idle=0.2, total=1.5))
            with pytest.raises(TimedOut) as failed:
                await send_retrying(http, request, retries=Retries(attempts=9, base=0.01), fault=fault)
            return str(failed.value), len(served.requests)

    said, requests = asyncio.run(main())
    assert "The total deadline passed" in said
    assert "1.5 seconds" in said
    assert requests >= 1


def test_a_head_that_stalls_half_way_is_not_sent_again() -> None:
    async def main() -> int:
        async with serving(raw(b"HTTP/1.1 200 O", end="hang")) as served, HttpTransport() as http:
            request = post(served.url, Deadlines(connect=120, idle=0.5, total=120))
            with pytest.raises(TimedOut, match="idle"):
                await send_retrying(http, request, retries=Retries(attempts=9, base=0.01), fault=fault)
            return len(served.requests)

    assert asyncio.run(main()) == 1


def test_over_a_real_connection_a_stale_one_costs_nothing() -> None:
    async def main() -> list[int]:
        seen: list[int] = []

        async def script(_: Received, writer: asyncio.StreamWriter) -> None:
            seen.append(len(seen))
            if len(seen) == 2:  # the second request meets a server that is about to close
                writer.close()
                raise ConnectionResetError
            writer.write(whole())

        async with serving(script) as served, HttpTransport() as http:
            for _ in range(2):
                response = await send_retrying(http, post(served.url), retries=Retries(attempts=1), fault=fault)
                assert await read_all(response, 10) == b"{}"
        return seen

    assert asyncio.run(main()) == [0, 1, 2]


def test_an_error_body_that_stops_does_not_hide_the_status() -> None:
    async def main() -> ProviderError:
        stuck = b"HTTP/1.1 400 X\r\ncontent-length: 99\r\n\r\nbad model"
        async with serving(raw(stuck, end="hang")) as served, HttpTransport() as http:
            request = post(served.url, Deadlines(connect=120, idle=0.5, total=120))
            with pytest.raises(InvalidRequest) as failed:
                await send_retrying(http, request, retries=Retries(), fault=fault)
            return failed.value

    error = asyncio.run(main())
    assert error.message == "bad model"
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("packing", ["br", "zstd", "gzip, gzip"])
def test_an_error_body_that_cannot_be_unpacked_does_not_hide_the_status(packing: str) -> None:
    async def main() -> tuple[bytes, int]:
        statuses = iter((503, 429, 200))

        async def script(_: Received, writer: asyncio.StreamWriter) -> None:
            status = next(statuses)
            writer.write(whole(b"{}", status, *([] if status == 200 else [f"content-encoding: {packing}"])))

        async with serving(script) as served, HttpTransport() as http:
            response = await send_retrying(http, post(served.url), retries=Retries(base=0.01), fault=fault)
            return await read_all(response, 10), len(served.requests)

    assert asyncio.run(main()) == (b"{}", 3)
