"""How an answer ends, and when: with its connection or without, before its request does, with TLS that is cut."""

import asyncio
import ssl
from contextlib import suppress

import pytest

from evener.errors import EvenerError, ProviderError, ServerError, TruncatedStream, UsageError, WireError
from evener.transport.exchange import Deadlines, Request, Retries, send_retrying
from evener.transport.http import HttpTransport, read_all
from tests.patience import at_some_pace, lull, until
from tests.transport.conftest import Certificates
from tests.transport.servers import CHUNKED, Received, chunk, finish, listening, post, raw, receive, serving, whole

CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("size", [5, 1 << 20])
@pytest.mark.parametrize("said", [True, False], ids=["said", "cut"])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_an_end_that_tls_does_not_confirm_is_no_end(
    certificates: Certificates, version: ssl.TLSVersion, said: bool, size: int
) -> None:
    """Whoever stands between can close a connection; without `close_notify` a body that only this ends may be cut."""

    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
        assert secured.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
        writer.write(CLOSED + b"x" * size)
        while writer.transport.get_write_buffer_size():
            await asyncio.sleep(0.01)
        await lull()
        if said:
            writer.close()
        else:
            writer.transport.abort()
        raise ConnectionResetError

    async def main() -> int:
        async with serving(script, secure=certificates.server) as served, HttpTransport(ca_file=certificates.ca_file) as http:
            response = await http.send(post(served.url))
            total = len(await response.read())
            await lull()  # a slow reader must not miss the end either
            while piece := await response.read():
                total += len(piece)
            return total

    certificates.server.maximum_version = version
    try:
        if said:
            assert asyncio.run(main()) == size
        else:
            with pytest.raises(TruncatedStream, match="in the middle"):
                asyncio.run(main())
    finally:
        certificates.server.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED


def test_a_framed_answer_is_whole_however_tls_ends(certificates: Certificates) -> None:
    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(b"all of it"))
        await lull()
        writer.transport.abort()
        raise ConnectionResetError

    async def main() -> bytes:
        async with serving(script, secure=certificates.server) as served, HttpTransport(ca_file=certificates.ca_file) as http:
            return await read_all(await http.send(post(served.url)), 99)

    assert asyncio.run(main()) == b"all of it"


def test_an_answer_to_head_has_no_body() -> None:
    async def main() -> tuple[int, list[str]]:
        async with serving(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")) as served, HttpTransport() as http:
            for _ in range(2):
                response = await http.send(Request(served.url, (), b"", method="HEAD"))
                assert (response.headers["content-length"], await response.read()) == ("99", b"")
            return served.connections, [*served.requests[0].headers]

    assert asyncio.run(main()) == (1, ["host", "user-agent", "accept-encoding"])


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_who_refuses_a_body_while_it_is_sent_is_sent_no_more_of_it(certificates: Certificates, secure: bool) -> None:
    taken = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(b"too large", 413))
        while piece := await reader.read(65536):
            taken += len(piece)
            await asyncio.sleep(0.001)

    async def main() -> None:
        context = certificates.server if secure else None
        async with listening(refuse, secure=context) as served, HttpTransport(ca_file=certificates.ca_file) as http:
            response = await http.send(post(served.url, body=b"x" * (64 << 20)))
            assert (response.status, await read_all(response, 99)) == (413, b"too large")
            assert not http._pools[asyncio.get_running_loop()]._idle

    asyncio.run(main())
    assert taken < 32 << 20


def test_who_answers_while_a_body_is_sent_gets_all_of_it() -> None:
    async def eager(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + chunk(b"first"))
        await reader.readexactly(8 << 20)
        writer.write(chunk(b"last") + b"0\r\n\r\n")
        await reader.read()

    async def main() -> bytes:
        async with listening(eager) as served, HttpTransport() as http:
            return await read_all(await http.send(post(served.url, body=b"x" * (8 << 20))), 99)

    assert asyncio.run(main()) == b"firstlast"


def test_a_server_that_leaves_an_unused_connection_costs_nothing() -> None:
    """Its end has been seen before the next request: that goes over a new one, with no failure at all."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader)
        writer.write(whole())
        await lull()

    async def main() -> int:
        async with listening(once) as served, HttpTransport() as http:
            for _ in range(3):
                assert await read_all(await http.send(post(served.url)), 99) == b"{}"
                await until(lambda: served.open == 0)
                await lull()
            return served.connections

    assert asyncio.run(main()) == 3


def test_a_connection_that_the_server_left_has_no_timer() -> None:
    """One that is kept has the timer of its last exchange, for the next one."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader)
        writer.write(whole())
        await leave.wait()

    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()

        def timers() -> int:
            waiting = getattr(loop, "_scheduled", ())
            return sum("Connection._check_deadlines" in repr(timer) and not timer.cancelled() for timer in waiting)

        async with listening(once) as served, HttpTransport() as http:
            await read_all(await http.send(post(served.url)), 99)
            kept = timers()
            leave.set()
            while timers():
                await asyncio.sleep(0.01)
            return kept, timers()

    leave = asyncio.Event()
    assert asyncio.run(asyncio.wait_for(main(), 120)) == (1, 0)


@pytest.mark.parametrize("more", [b"more", whole(b"forged")])
@pytest.mark.parametrize("late", [False, True], ids=["with it", "later"])
def test_what_comes_behind_an_answer_is_never_the_next_answer(more: bytes, late: bool) -> None:
    async def main() -> tuple[list[bytes], int]:
        async with serving(raw(whole(b"own"), *([0.02] if late else []), more)) as served, HttpTransport() as http:
            answers = []
            for _ in range(3):
                answers.append(await read_all(await http.send(post(served.url)), 99))
                await lull()
            return answers, served.connections

    assert asyncio.run(main()) == ([b"own"] * 3, 3)


def test_one_byte_at_a_time_is_an_answer_too() -> None:
    sent = CHUNKED + chunk(b"slow") + b"0\r\nx-trailer: 1\r\n\r\n"
    bytewise = [part for byte in sent for part in (bytes([byte]), 0.001)]

    async def main() -> tuple[bytes, int]:
        async with serving(raw(*bytewise)) as served, HttpTransport() as http:
            for _ in range(2):
                answer = await read_all(await http.send(post(served.url)), 99)
            return answer, served.connections

    assert asyncio.run(main()) == (b"slow", 1)


def test_an_answer_that_was_dropped_at_its_deadline_never_looks_whole() -> None:
    async def main(pace: float) -> EvenerError:
        async with serving(raw(whole(b"x" * 1000))) as served, HttpTransport() as http:
            response = await http.send(post(served.url, Deadlines(connect=120, idle=120, total=pace)))
            await asyncio.sleep(1.5 * pace)  # the deadline's timer is the earlier one
            assert not response.ended  # type: ignore[attr-defined]
            with pytest.raises(EvenerError) as failed:
                await response.read()
            return failed.value

    def attempt(pace: float) -> None:
        assert "total deadline" in str(asyncio.run(main(pace)))

    at_some_pace(attempt)


def test_a_closed_answer_knows_nothing_of_the_next_on_its_connection() -> None:
    async def main() -> None:
        async with serving(raw(whole(b"abc"))) as served, HttpTransport() as http:
            first = await http.send(post(served.url))
            await first.aclose()
            await read_all(await http.send(post(served.url)), 99)
            assert served.connections == 1
            assert not first.ended  # type: ignore[attr-defined]
            with pytest.raises(UsageError, match="closed before its end"):
                await first.read()

    asyncio.run(main())


def test_two_who_read_one_answer_are_told_and_the_first_goes_on() -> None:
    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        await told.wait()
        writer.write(chunk(b"x") + b"0\r\n\r\n")

    async def main() -> bytes:
        async with serving(script) as served, HttpTransport() as http:
            response = await http.send(post(served.url))
            first = asyncio.create_task(response.read())
            await lull()
            with pytest.raises(UsageError, match="Two tasks read the same answer"):
                await response.read()
            told.set()
            return await first

    told = asyncio.Event()
    assert asyncio.run(main()) == b"x"


ANSWERS = {
    "length": whole(b"hello world"),
    "chunks": CHUNKED + chunk(b"hello ") + chunk(b"world") + b"0\r\n\r\n",
    "close": CLOSED + b"hello world",
}


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("framed", ANSWERS)
def test_cut_at_any_byte_an_answer_is_whole_or_an_error(framed: str, end: str) -> None:
    """What only its connection ends is whole wherever that ends; a reset may come before what was sent, but ends nothing."""
    sent = ANSWERS[framed]

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = int((await receive(reader)).body)
        writer.write(sent[:at])
        await finish(writer, end)

    async def outcome(http: HttpTransport, url: str, at: int) -> bytes | type[EvenerError]:
        try:
            return await read_all(await http.send(post(url, body=b"%d" % at)), 99)
        except EvenerError as error:
            return type(error)

    async def main() -> list[bytes | type[EvenerError]]:
        async with listening(cut) as served, HttpTransport() as http:
            return [await outcome(http, served.url, at) for at in range(len(sent) + 1)]

    got = asyncio.run(main())
    head = sent.index(b"\r\n\r\n") + 4
    assert got[0] is TruncatedStream
    assert set(got[1:head]) <= ({WireError} if end == "close" else {WireError, TruncatedStream})
    if framed == "close" and end == "close":
        assert got[head:] == [sent[head:at] for at in range(head, len(sent) + 1)]
    else:
        assert set(got[head:-1]) == {TruncatedStream}
    if end == "close":
        assert got[-1] == b"hello world"


@pytest.mark.parametrize(("came", "times"), [(b"", 2), (b"HTTP/1.1 2", 1)], ids=["nothing came", "an answer began"])
def test_a_kept_connection_that_breaks_is_tried_again_only_when_nothing_came(came: bytes, times: int) -> None:
    """One silent retry; never a second delivery of what was answered."""
    seen: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await receive(reader)).body)
        writer.write(whole())
        seen.append((await receive(reader)).body)
        writer.write(came)
        await lull()
        await finish(writer, "reset")

    def fault(status: int, _: object, __: bytes) -> ProviderError:
        return ServerError("", status=status)

    async def main() -> None:
        async with listening(speak) as served, HttpTransport() as http:
            for body in (b"first", b"second"):
                request = post(served.url, body=body)
                await read_all(await send_retrying(http, request, retries=Retries(), fault=fault), 99)

    with suppress(WireError):
        asyncio.run(main())
    assert seen == [b"first", *[b"second"] * times]
