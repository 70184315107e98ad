"""Cancelled at any step, an exchange leaves nothing: no socket, no task, no timer, no slot."""

import asyncio
import gzip
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evener.errors import EvenerError
from evener.transport.exchange import Deadlines, Request
from evener.transport.http import HttpTransport, Pool
from tests.transport.conftest import Certificates
from tests.transport.servers import CHUNKED, chunk, listening, post, raw, serving
from tests.transport.test_tunnels import connect

STEPS = 80
"""More than any exchange here has."""
PACKED = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + chunk(gzip.compress(b"x" * 999)) + b"0\r\n\r\n"


class Cut:
    """Runs a coroutine, and cancels its task when it waits for the n-th time: at once, or when the wait is over."""

    def __init__(self, running: Awaitable[None], number: int, *, late: bool) -> None:
        self._inner = running.__await__()
        self._left = number
        self._late = late
        self.reached = False

    def __await__(self) -> Generator[Any, Any, None]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._inner.send(None) if error is None else self._inner.throw(error)
            except StopIteration:
                return
            self._left -= 1
            if not self._left:
                self._cancel(waited)
            try:
                error = None
                yield waited
            except BaseException as thrown:
                error = thrown

    def _cancel(self, waited: object) -> None:
        self.reached = True
        task = asyncio.current_task()
        assert task is not None
        if self._late and isinstance(waited, asyncio.Future):
            waited.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


async def exchanged(http: HttpTransport, request: Request) -> None:
    response = await http.send(request)
    try:
        while await response.read():
            pass
    finally:
        await response.aclose()


def left_over(http: HttpTransport) -> list[str]:
    """What an exchange may have left behind, beside connections that are kept."""
    loop = asyncio.get_running_loop()
    pool: Pool = http._pools[loop]
    kept = {connection for idle in pool._idle.values() for connection in idle}
    found = [f"task {task}" for task in asyncio.all_tasks() - {asyncio.current_task()} if "exchanged" in repr(task)]
    free, waiting = pool.slots._value, len(pool.slots._waiters or ())
    found += [f"slots {free}"] if (free, waiting) != (1, 0) else []
    found += [f"connection {connection}" for connection in pool._open - kept]
    timers = [timer for timer in getattr(loop, "_scheduled", ()) if not timer.cancelled()]
    due = [timer for timer in timers if "_check_deadlines" in repr(timer) or "timeout" in repr(timer).lower()]
    return found + [f"timer {timer}" for timer in due]


@asynccontextmanager
async def staged(way: str, certificates: Certificates) -> AsyncIterator[tuple[HttpTransport, Request]]:
    """A server, and a transport with one slot whose pool is open."""
    secure = certificates.server if way in ("tls", "tunnel") else None
    answer = raw(PACKED) if way == "gzip" else raw(CHUNKED, chunk(b"one"), 0.001, chunk(b"two"), b"0\r\n\r\n")
    async with serving(answer, secure=secure) as served, listening(connect) as proxy:
        through = proxy.url if way == "tunnel" else None
        async with HttpTransport(connections=1, ca_file=certificates.ca_file, proxy=through) as http:
            url = served.url.replace("127.0.0.1", "localhost") if way == "names" else served.url
            request = post(url, Deadlines(connect=120, idle=120, total=120), body=b"x" * (3 << 20 if way == "large" else 9))
            await exchanged(http, request)
            yield http, request


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "when it may go on"])
@pytest.mark.parametrize("way", ["plain", "kept", "tls", "tunnel", "names", "large", "gzip", "slot"])
def test_cancelled_at_any_step_nothing_is_left(
    way: str, late: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "names":
        dead = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))
        monkeypatch.setattr("evener.transport.dial._addresses", addresses(dead))

    async def main() -> int:
        async with staged(way, certificates) as (http, request):
            files = await settled(http, 0)
            for number in range(1, STEPS):
                if way == "kept":
                    await exchanged(http, request)
                reached = await cut(http, request, number, late=late, busy=way == "slot")
                assert await settled(http, files) <= files, f"cut at step {number}"
                if not reached:
                    return number
        return STEPS

    steps = asyncio.run(main())
    assert 1 < steps < STEPS, "every step has been cut at, and it ended after them"


def addresses(*first: object) -> Callable[[str, int], Awaitable[list[object]]]:
    async def found(_: str, port: int) -> list[object]:
        await asyncio.sleep(0)
        return [*first, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))] * 2

    return found


async def cut(http: HttpTransport, request: Request, number: int, *, late: bool, busy: bool) -> bool:
    """One exchange that is cut at a step. Whether it came to that step."""
    holder = asyncio.create_task(exchanged(http, request)) if busy else None
    await asyncio.sleep(0)
    running = Cut(exchanged(http, request), number, late=late)

    async def run() -> None:
        await running

    task = asyncio.create_task(run())
    done, _ = await asyncio.wait([task], timeout=120)
    assert done, f"cut at step {number} it never ended"
    if not task.cancelled() and task.exception() is not None:
        assert isinstance(task.exception(), EvenerError), task.exception()
    if holder is not None:
        await holder
    await exchanged(http, request)  # it works as before
    return running.reached


async def settled(http: HttpTransport, files: int) -> int:
    """How many files are open when no connection is kept, once all that closes has closed."""
    pool = http._pools[asyncio.get_running_loop()]
    for connection in [connection for idle in pool._idle.values() for connection in idle]:
        connection.abort()
    opened = 0
    for _ in range(20 if not files else 20_000):
        opened = len(os.listdir("/dev/fd"))
        if not left_over(http) and files and opened <= files:
            break
        await asyncio.sleep(0.005)
    assert left_over(http) == []
    return opened
