"""No wait is longer than its deadline, in whatever part of an exchange it is."""

import asyncio
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from evener.errors import BadValue, EvenerError, TimedOut
from evener.transport.exchange import Deadlines, Response
from evener.transport.http import BURST, HttpTransport, read_all
from tests.patience import PATIENCE, at_some_pace, lull, until
from tests.transport.servers import SECRET, Received, Spoken, listening, post, raw, receive, serving, whole

CONNECT = Deadlines(connect=0.3, idle=120, total=120)
IDLE = Deadlines(connect=120, idle=0.3, total=120)
TOTAL = Deadlines(connect=120, idle=120, total=0.3)
LARGE = b"x" * (24 << 20)


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Takes connections and bytes, and says nothing."""
    await reader.read()


async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes connections, and reads nothing."""
    while not writer.is_closing():
        await asyncio.sleep(0.05)


async def gate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that opens a tunnel, at whose end nobody speaks."""
    await receive(reader)
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
    await reader.read()


CASES: dict[str, tuple[Spoken, str, Deadlines, bytes, str]] = {
    "a body that nobody takes": (deaf, "http", IDLE, LARGE, "idle"),
    "a body that nobody takes, in all": (deaf, "http", TOTAL, LARGE, "total"),
    "a head that does not come": (silent, "http", IDLE, LARGE, "idle"),
    "TLS that is not answered": (silent, "https", CONNECT, b"", "connect"),
    "TLS that is not answered, in all": (silent, "https", TOTAL, b"", "total"),
    "a silent proxy": (silent, "http proxy", IDLE, b"", "idle"),
    "a silent proxy before a tunnel": (silent, "https proxy", CONNECT, b"", "connect"),
    "a silent proxy before a tunnel, in all": (silent, "https proxy", TOTAL, b"", "total"),
    "a silent server behind a tunnel": (gate, "https proxy", CONNECT, b"", "connect"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_deadline_holds(name: str) -> None:
    speak, way, deadlines, body, which = CASES[name]

    async def main() -> EvenerError:
        async with listening(speak) as served:
            scheme, _, proxied = way.partition(" ")
            async with HttpTransport(proxy=served.url if proxied else None) as http:
                with pytest.raises(EvenerError) as failed:
                    await http.send(post(f"{scheme}://127.0.0.1:{served.port}", deadlines, body=body))
                await until(lambda: served.open == 0 or speak is deaf)
                return failed.value

    error = asyncio.run(main())
    assert type(error) is TimedOut, repr(error)
    assert str(error).startswith(f"The {which} deadline passed")
    assert SECRET not in str(error)


def test_a_body_that_moves_slowly_is_not_idle() -> None:
    def attempt(pace: float) -> None:
        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            left = len(LARGE)
            while left:
                step = min(left, 3 << 20)
                await reader.readexactly(step)
                left -= step
                await asyncio.sleep(0.25 * pace)
            writer.write(whole(b"taken"))

        async def main() -> bytes:
            deadlines = Deadlines(connect=120, idle=1.5 * pace, total=600)
            async with listening(slow) as served, HttpTransport() as http:
                return await read_all(await http.send(post(served.url, deadlines, body=LARGE)), 99)

        assert asyncio.run(main()) == b"taken"

    at_some_pace(attempt)


class Names:
    """Name servers that answer for `slow.example` only when they are let."""

    def __init__(self) -> None:
        self.let = Event()
        self.real = socket.getaddrinfo

    def look(self, host: str, port: int, *, type: int = 0, flags: int = 0) -> list[object]:
        if host == "slow.example" and not flags:
            self.let.wait(120)
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [*self.real("127.0.0.1" if host == "quick.example" else host, port, type=type, flags=flags)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr("socket.getaddrinfo", found.look)
    return found


def test_a_name_server_that_does_not_answer_holds_up_nobody(names: Names) -> None:
    """Neither other names, nor the end of the loop: both would wait for the loop's own threads."""

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, names.let.wait, PATIENCE)
        async with serving(raw(whole(b"quick"))) as served, HttpTransport() as http:
            slow = [http.send(post("http://slow.example", CONNECT)) for _ in range(20)]
            failed = await asyncio.gather(*slow, return_exceptions=True)
            assert {type(error) for error in failed} == {TimedOut}
            answer = await read_all(await http.send(post(f"http://quick.example:{served.port}")), 99)
        unfinished = asyncio.create_task(http.send(post("http://slow.example")))
        await lull()
        unfinished.cancel()
        busy.cancel()
        loop.call_later(0.1, names.let.set)
        return answer

    assert asyncio.run(main()) == b"quick"
    names.let.set()


def test_an_exchange_whose_time_is_over_is_not_begun() -> None:
    async def main() -> int:
        async with serving(raw(whole())) as served, HttpTransport() as http:
            await read_all(await http.send(post(served.url)), 99)
            with pytest.raises(TimedOut, match="total deadline"):
                await http.send(post(served.url, Deadlines(total=0)))
            await read_all(await http.send(post(served.url)), 99)
            return len(served.requests)

    assert asyncio.run(main()) == 2


def test_a_kept_connection_keeps_to_the_deadlines_of_each_exchange() -> None:
    """Neither to those of an earlier one that were longer, nor to those that were shorter."""

    async def late(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(float(received.body))
        writer.write(whole(b"late"))

    def attempt(pace: float) -> None:
        patient, hasty = Deadlines(idle=120, total=120), Deadlines(idle=pace, total=120)

        async def main() -> int:
            async def asked(seconds: float, deadlines: Deadlines) -> bytes:
                return await read_all(await http.send(post(served.url, deadlines, body=b"%f" % seconds)), 99)

            async with serving(late) as served, HttpTransport() as http:
                assert await asked(0, hasty) == b"late"
                assert await asked(1.5 * pace, patient) == b"late"
                with pytest.raises(TimedOut, match="idle deadline"):
                    await asked(120, hasty)
                return served.connections

        assert asyncio.run(main()) == 1

    at_some_pace(attempt)


@pytest.mark.parametrize("name", ["connect", "idle", "total"])
def test_a_deadline_that_would_never_pass_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match="must be a number of seconds"):
        Deadlines(**{name: float("nan")})


def test_a_body_that_grows_without_bound_holds_up_neither_its_deadline_nor_others() -> None:
    """64 KiB on the wire become 64 MiB: reading them takes a while, and nothing in it is waited for."""
    packer = zlib.compressobj(wbits=31)
    start, more = packer.compress(b"\n") + packer.flush(zlib.Z_FULL_FLUSH), packer.compress(bytes(32 << 20))
    more += packer.flush(zlib.Z_FULL_FLUSH)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader)
        writer.write(head + start)
        while True:
            writer.write(more)
            await writer.drain()

    async def main(deadlines: Deadlines) -> int:
        since = most = 0

        async def others() -> None:
            nonlocal since
            while True:
                await asyncio.sleep(0)
                since = 0

        async def read(response: Response) -> None:
            nonlocal since, most
            while piece := await response.read():
                since += len(piece)
                most = max(most, since)

        async with listening(speak) as served, HttpTransport() as http:
            waiting = asyncio.create_task(others())
            response = await http.send(post(served.url, deadlines))
            for _ in range(2):  # and when it is asked again
                with pytest.raises(TimedOut, match="total"):
                    await read(response)
            waiting.cancel()
            return most

    def attempt(pace: float) -> None:
        assert asyncio.run(main(Deadlines(connect=120, idle=120, total=0.3 * pace))) <= 2 * BURST

    at_some_pace(attempt)  # its head must come before the deadline that its body does not end before
