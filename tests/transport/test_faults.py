"""What can go wrong on the way: a typed error that says what to do, in time, with no secret and nothing left behind."""

import asyncio
import gc
import gzip
import os
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evener.errors import ConnectFailed, EvenerError, TimedOut, TruncatedStream, WireError
from evener.transport.exchange import Deadlines
from evener.transport.http import HttpTransport, read_all
from tests.patience import at_some_pace, lull, until
from tests.transport.servers import CHUNKED, SECRET, Received, Script, chunk, post, raw, serving, whole

GZIP = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
PACKED = gzip.compress(os.urandom(3000))
NO_LINK = Deadlines(connect=0.2, idle=120, total=120)
SHORT = Deadlines(connect=120, idle=0.2, total=120)
BRIEF = Deadlines(connect=120, idle=120, total=0.3)


def endless(line: bytes) -> Script:
    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(line)
            await writer.drain()
            await asyncio.sleep(0)

    return script


async def dripping(_: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED)
    while True:
        writer.write(chunk(b"."))
        await writer.drain()
        await lull()


FAULTS: dict[str, tuple[Script, Deadlines | None, type[EvenerError], str]] = {
    "closed before the head": (raw(end="close"), None, TruncatedStream, "before it answered"),
    "reset before the head": (raw(end="reset"), None, TruncatedStream, "before it answered"),
    "cut head": (raw(b"HTTP/1.1 200 OK\r\ncontent-", end="close"), None, WireError, "first lines .* carried out"),
    "reset head": (raw(b"HTTP/1.1 200 OK\r\ncontent-", 0.05, end="reset"), None, WireError, "first lines .* carried out"),
    "closed after 1xx": (raw(b"HTTP/1.1 102 Processing\r\n\r\n", end="close"), None, WireError, "first lines"),
    "a head of bare line feeds": (raw(b"HTTP/1.1 200 OK\n\n{}", end="hang"), None, WireError, "is not HTTP"),
    "no head at all": (
        raw(end="hang"),
        SHORT,
        TimedOut,
        r"idle deadline passed: nothing came from \S+ for 0.2 seconds.*idle=...",
    ),
    "half a head": (raw(b"HTTP/1.1 200 OK\r\n", end="hang"), SHORT, TimedOut, "idle deadline"),
    "a slow head": (raw(120.0, whole()), BRIEF, TimedOut, r"total deadline passed: .* 0.3 seconds.*Deadlines\(total=...\)"),
    "garbage": (raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n", end="hang"), None, WireError, "is not HTTP"),
    "a TLS alert": (raw(b"\x15\x03\x01\x00\x02\x02\x46", end="hang"), None, WireError, "https://"),
    "endless headers": (endless(b"x-header: y\r\n"), None, WireError, "is not HTTP"),
    "an endless header": (endless(b"x" * 1000), None, WireError, "is not HTTP"),
    "an endless series of 1xx": (raw(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 50, end="hang"), SHORT, TimedOut, "idle"),
    "another protocol": (
        raw(b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", end="hang"),
        None,
        WireError,
        "other than HTTP",
    ),
    "a stalled body": (raw(CHUNKED, chunk(b"x"), end="hang"), SHORT, TimedOut, "idle deadline"),
    "a stalled chunk": (raw(CHUNKED, b"ff\r\nxx", end="hang"), SHORT, TimedOut, "idle deadline"),
    "a body without end": (dripping, BRIEF, TimedOut, "total deadline"),
    "a cut chunk": (raw(CHUNKED, b"ff\r\nxx", end="close"), None, TruncatedStream, "in the middle"),
    "a missing last chunk": (raw(CHUNKED, chunk(b"xx"), end="close"), None, TruncatedStream, "in the middle"),
    "a short body": (raw(whole(b"x" * 100)[:-1], end="close"), None, TruncatedStream, "in the middle"),
    "a reset body": (raw(CHUNKED, chunk(b"xx"), 0.1, end="reset"), None, TruncatedStream, "in the middle"),
    "a reset body of no length": (raw(b"HTTP/1.1 200 OK\r\n\r\nxx", 0.1, end="reset"), None, TruncatedStream, "in the middle"),
    "a bad chunk": (raw(CHUNKED, b"zz\r\nxx\r\n", end="hang"), None, WireError, "HTTP"),
    "a bad chunk right behind the head": (raw(CHUNKED + b"zz\r\nxx\r\n", end="hang"), None, WireError, "rules of HTTP"),
    "a bad later chunk": (raw(CHUNKED, chunk(b"xx"), 0.05, b"zz\r\nxx\r\n", end="hang"), None, WireError, "rules of HTTP"),
    "cut gzip": (raw(GZIP, chunk(PACKED[:-20]), b"0\r\n\r\n"), None, TruncatedStream, "stopped in the middle"),
    "damaged gzip": (raw(GZIP, chunk(PACKED[:500] + b"\xff" * 500 + PACKED[1000:]), b"0\r\n\r\n"), None, WireError, "damaged"),
    "gzip that is none": (raw(whole(b"{}", 200, "content-encoding: gzip")), None, WireError, "damaged"),
    "an unknown compression": (raw(whole(b"{}", 200, "content-encoding: br")), None, WireError, "compressed as 'br'"),
    "two lengths": (
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nxxx", end="hang"),
        None,
        WireError,
        "HTTP",
    ),
    "a negative length": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nxxx", end="hang"), None, WireError, "HTTP"),
}


CAME_WHOLE = {"cut gzip", "damaged gzip", "gzip that is none", "an unknown compression"}
"""The connection is as good as new after these: only what it carried was bad."""


async def failing(url: str, deadlines: Deadlines | None, http: HttpTransport) -> EvenerError:
    """The error that an exchange ends with; it must end with one, and give it again when asked again."""
    try:
        response = await http.send(post(url, deadlines))
    except EvenerError as error:
        return error
    with pytest.raises(EvenerError) as first:
        await read_all(response, 1 << 20)
    with pytest.raises(type(first.value)):
        await response.read()
    assert SECRET not in repr(response)
    return first.value


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_typed_error(name: str) -> None:
    script, deadlines, kind, said = FAULTS[name]

    async def main() -> None:
        async with serving(script) as served, HttpTransport() as http:
            error = await failing(served.url, deadlines, http)
            assert type(error) is kind, repr(error)
            check_words(error, said)
            await until(lambda: served.open == (name in CAME_WHOLE))

    asyncio.run(main())
    gc.collect()


def check_words(error: EvenerError, said: str) -> None:
    with pytest.raises(EvenerError, match=said):
        raise error
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.__context__)
    assert SECRET not in shown
    assert "/v1/messages" not in str(error)
    assert error.__context__ is None
    assert error.__cause__ is None


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nothing listens, and which no other process gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def blackhole() -> Iterator[int]:
    """A port that takes no more connections: its backlog is full, so further ones wait for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


async def only_error(url: str, deadlines: Deadlines | None = None) -> EvenerError:
    async with HttpTransport() as http:
        return await failing(url, deadlines, http)


def test_a_refused_connection_says_so() -> None:
    with closed_port() as port:
        error = asyncio.run(only_error(f"http://127.0.0.1:{port}"))
    assert type(error) is ConnectFailed
    check_words(error, "nothing listens there. Check the address, and that the server runs.")


def test_an_unknown_name_says_so() -> None:
    error = asyncio.run(only_error("http://no-such-host.invalid"))
    assert type(error) is ConnectFailed
    check_words(error, r"The name in no-such-host.invalid is not known")


def test_a_connection_that_never_stands_hits_the_connect_deadline() -> None:
    with blackhole() as port:
        error = asyncio.run(only_error(f"http://127.0.0.1:{port}", NO_LINK))
    assert type(error) is TimedOut
    check_words(error, r"connect deadline passed: no connection to \S+ was open after 0.2 seconds.*Deadlines\(connect=...\)")


def test_a_server_that_does_not_read_hits_a_deadline() -> None:
    async def main() -> EvenerError:
        stop = asyncio.Event()

        async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await stop.wait()
            writer.close()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with HttpTransport() as http:
            with pytest.raises(EvenerError) as failed:
                await http.send(post(url, BRIEF, body=b"x" * (24 << 20)))
        stop.set()
        server.close()
        return failed.value

    error = asyncio.run(main())
    assert type(error) is TimedOut
    check_words(error, "total deadline")


def test_waiting_for_a_free_connection_ends_with_the_total_deadline() -> None:
    async def main() -> EvenerError:
        async with serving(raw(CHUNKED, end="hang")) as served, HttpTransport(connections=1) as http:
            held = await http.send(post(served.url))
            error = await failing(served.url, BRIEF, http)
            await held.aclose()
            return error

    check_words(asyncio.run(main()), "total deadline")


def test_an_answer_that_nobody_reads_is_let_go_at_the_total_deadline() -> None:
    async def main(deadlines: Deadlines) -> None:
        async with serving(raw(CHUNKED, chunk(b"x"), end="hang")) as served, HttpTransport(connections=1) as http:
            forgotten = await http.send(post(served.url, deadlines))
            again = await http.send(post(served.url))  # the slot is free again
            await again.aclose()
            with pytest.raises(TimedOut, match="total deadline"):
                await forgotten.read()

    at_some_pace(lambda pace: asyncio.run(main(Deadlines(connect=120, idle=120, total=0.3 * pace))))


@pytest.mark.parametrize("when", ["connecting", "before the head", "in the body", "inflating"])
def test_cancelled_two_hundred_times_nothing_is_left(when: str) -> None:
    scripts = {"before the head": raw(end="hang"), "in the body": raw(CHUNKED, chunk(b"x"), end="hang")}
    scripts["inflating"] = raw(GZIP, chunk(PACKED[:100]), end="hang")

    async def exchange(http: HttpTransport, url: str) -> None:
        response = await http.send(post(url))
        while await response.read():
            pass

    async def cancel(http: HttpTransport, url: str, number: int) -> None:
        task = asyncio.create_task(exchange(http, url))
        await asyncio.sleep(0.0005 * (number % 7))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main(url: str) -> None:
        async with serving(scripts.get(when, raw())) as served, HttpTransport(connections=20) as http:
            url = url or served.url
            await cancel(http, url, 4)
            tasks, files = len(asyncio.all_tasks()), open_files()
            for batch in range(20):
                await asyncio.gather(*(cancel(http, url, batch + number) for number in range(10)))
            await until(lambda: (len(asyncio.all_tasks()), open_files(), served.open) <= (tasks, files, 0))

    if when == "connecting":
        with blackhole() as port:
            asyncio.run(main(f"http://127.0.0.1:{port}"))
    else:
        asyncio.run(main(""))


def open_files() -> int:
    return len(os.listdir("/dev/fd"))
