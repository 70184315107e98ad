"""What the HTTP transport does when all goes well: bytes there, bytes back, connections kept, nothing left behind."""

import asyncio
import gc
import gzip
import threading
import zlib

import pytest

from evener.errors import BadValue, UsageError, WireError
from evener.transport.exchange import Request, Response
from evener.transport.http import HttpTransport, read_all, shared_transport
from tests.patience import lull
from tests.transport.servers import CHUNKED, Received, chunk, post, raw, serving, whole


async def read(response: Response) -> bytes:
    try:
        return await read_all(response, 1 << 20)
    finally:
        await response.aclose()


def test_a_request_arrives_as_it_was_given() -> None:
    async def main() -> list[Received]:
        async with (
            serving(raw(whole(b'{"ok":1}', 200, "X-Request-Id: r1", "x-twice: a", "X-Twice: b"))) as served,
            HttpTransport() as http,
        ):
            url = f"{served.url}/v1/models/a%2Fb:stream?alt=sse&x=%7E"
            response = await http.send(Request(url, (("x-api-key", "k"), ("content-type", "application/json")), b'{"a":1}'))
            assert (response.status, await read(response)) == (200, b'{"ok":1}')
            assert (response.headers["x-request-id"], response.headers["x-twice"]) == ("r1", "a, b")
            await read(
                await http.send(Request(url, (("User-Agent", "mine"), ("accept-encoding", "identity")), b"", method="GET"))
            )
        return served.requests

    sent, got = asyncio.run(main())
    assert sent.line == "POST /v1/models/a%2Fb:stream?alt=sse&x=%7E HTTP/1.1"
    assert sent.body == b'{"a":1}'
    assert sent.headers.keys() == {"host", "x-api-key", "content-type", "content-length", "user-agent", "accept-encoding"}
    assert (sent.headers["user-agent"].partition("/")[0], sent.headers["accept-encoding"]) == ("evener", "gzip, deflate")
    assert (got.line.split()[0], got.headers["user-agent"], got.headers["accept-encoding"]) == ("GET", "mine", "identity")


def test_pieces_come_as_they_arrive() -> None:
    async def main() -> list[bytes]:
        gate = asyncio.Event()

        async def script(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + chunk(b"one"))
            await gate.wait()
            writer.write(chunk(b"two") + b"0\r\n\r\n")

        async with serving(script) as served, HttpTransport() as http:
            response = await http.send(post(served.url))
            pieces = [await response.read()]
            gate.set()
            pieces += [await response.read(), await response.read(), await response.read()]
            await response.aclose()
        return pieces

    assert asyncio.run(main()) == [b"one", b"two", b"", b""]


@pytest.mark.parametrize("bits", [31, 15, -15], ids=["gzip", "deflate", "bare deflate"])
def test_compression_is_taken_off(bits: int) -> None:
    packer = zlib.compressobj(wbits=bits)
    packed = packer.compress(b"hello " * 50_000) + packer.flush()
    name = "gzip" if bits == 31 else "deflate"
    halves = chunk(packed[:50]) + chunk(packed[50:]) + b"0\r\n\r\n"
    head = CHUNKED.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {name}\r\n\r\n".encode())

    async def main() -> bytes:
        async with serving(raw(head, halves)) as served, HttpTransport() as http:
            return await read(await http.send(post(served.url)))

    assert asyncio.run(main()) == b"hello " * 50_000


def test_a_connection_is_used_again_after_its_answer_was_read_and_only_then() -> None:
    async def main() -> tuple[int, int, int]:
        big = raw(whole(b"x" * (4 << 20)))
        async with serving(raw(whole())) as served, serving(big) as large, HttpTransport() as http:
            for _ in range(5):
                await read(await http.send(post(served.url)))
            again = served.connections
            for _ in range(3):
                response = await http.send(post(large.url))
                assert await response.read()
                await response.aclose()
            await lull()
            return again, large.connections, large.open

    assert asyncio.run(main()) == (1, 3, 0)


def test_a_closed_answer_gives_no_more() -> None:
    async def main() -> None:
        async with serving(raw(CHUNKED, chunk(b"x"), end="hang")) as served, HttpTransport() as http:
            response = await http.send(post(served.url))
            await response.aclose()
            await response.aclose()
            with pytest.raises(UsageError, match="closed before its end"):
                await response.read()

    asyncio.run(main())


@pytest.mark.parametrize("status", [301, 302, 307, 308, 204, 304, 404, 500])
def test_every_status_is_just_returned_and_no_redirect_is_followed(status: int) -> None:
    async def main() -> tuple[int, int]:
        async with (
            serving(raw(whole(b"", status, "location: /elsewhere", "set-cookie: a=b"))) as served,
            HttpTransport() as http,
        ):
            for _ in range(2):
                response = await http.send(post(served.url))
                await read(response)
            assert all("cookie" not in received.headers for received in served.requests)
            return response.status, len(served.requests)

    assert asyncio.run(main()) == (status, 2)


def test_more_exchanges_than_connections_wait_their_turn() -> None:
    most = 0

    async def main() -> None:
        async def script(_: Received, writer: asyncio.StreamWriter) -> None:
            nonlocal most
            most = max(most, served.open)
            await asyncio.sleep(0.01)
            writer.write(whole())

        async with serving(script) as served, HttpTransport(connections=3) as http:

            async def one() -> None:
                await read(await http.send(post(served.url)))

            async with asyncio.TaskGroup() as group:
                for _ in range(12):
                    group.create_task(one())
            assert len(served.requests) == 12

    asyncio.run(main())
    assert most == 3


@pytest.mark.parametrize("closed", [True, False])
def test_one_transport_serves_loops_in_turn_and_threads_at_once(closed: bool) -> None:
    http = HttpTransport()

    async def main() -> bytes:
        async with serving(raw(whole(b"ok"))) as served:
            answer = await read(await http.send(post(served.url)))
            if closed:
                await http.aclose()
            return answer

    answers = [asyncio.run(main()) for _ in range(3)]
    threads = [threading.Thread(target=lambda: answers.append(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    gc.collect()  # an unclosed session or socket would warn now, and warnings are errors
    assert answers == [b"ok"] * 7


def test_a_loop_that_ends_in_the_middle_of_an_answer_leaves_nothing_open() -> None:
    http = HttpTransport()

    async def main() -> None:
        async with serving(raw(CHUNKED, chunk(b"x"), end="hang")) as served:
            response = await http.send(post(served.url))
            assert await response.read() == b"x"

    asyncio.run(main())
    gc.collect()


def test_the_shared_transport_is_one() -> None:
    assert shared_transport() is shared_transport()


def test_a_whole_answer_has_a_cap() -> None:
    async def main() -> None:
        async with serving(raw(whole(b"x" * 1000))) as served, HttpTransport() as http:
            assert len(await read_all(await http.send(post(served.url)), 1000)) == 1000
            with pytest.raises(
                WireError, match=r"larger than 999 bytes: .* after 1000 bytes.* raise the cap with Caps\(body=...\)"
            ):
                await read_all(await http.send(post(served.url)), 999)

    asyncio.run(main())


@pytest.mark.parametrize(
    "request_",
    [
        Request("ftp://127.0.0.1/x", (), b""),
        Request("/v1", (), b""),
        Request("http://127.0.0.1:9/a b", (), b""),
        Request("http://127.0.0.1:9/a\r\nx: y", (), b""),
        Request("http://", (), b""),
        Request("http://127.0.0.1:9/", (("x", "a\r\nb: c"),), b""),
    ],
    ids=["scheme", "relative", "space", "newline", "no host", "header"],
)
def test_a_request_that_cannot_be_is_refused_before_anything_is_sent(request_: Request) -> None:
    async def main() -> None:
        async with serving(raw(whole())) as served, HttpTransport() as http:
            url = request_.url.replace(":9/", f":{served.port}/")
            with pytest.raises(BadValue, match="cannot be sent"):
                await http.send(Request(url, request_.headers, b""))
            assert served.requests == []

    asyncio.run(main())


def test_a_transport_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadValue, match="ca_file"):
        HttpTransport(ca_file="/nowhere/at/all.pem")
    with pytest.raises(BadValue, match="connections"):
        HttpTransport(connections=0)
    with pytest.raises(BadValue, match="socks5"):
        HttpTransport(proxy="socks5://127.0.0.1:1080")


@pytest.mark.parametrize("framed", ["length", "chunks", "nothing"])
def test_a_slow_reader_gets_all_of_an_answer_whose_server_has_left(framed: str) -> None:
    body = bytes(range(256)) * 8192
    sent = {
        "length": whole(body, 200, "connection: close"),
        "chunks": CHUNKED + b"".join(chunk(body[at : at + 1000]) for at in range(0, len(body), 1000)) + b"0\r\n\r\n",
        "nothing": b"HTTP/1.1 200 OK\r\n\r\n" + body,
    }[framed]

    async def main() -> bytes:
        async with serving(raw(sent, end="close")) as served, HttpTransport() as http:
            response = await http.send(post(served.url))
            pieces = [await response.read()]
            await lull()
            while piece := await response.read():
                pieces.append(piece)
                await asyncio.sleep(0)
            return b"".join(pieces)

    assert asyncio.run(main()) == body


def test_what_is_compressed_may_have_members_and_padding() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0" * 8

    async def main() -> bytes:
        async with serving(raw(whole(packed, 200, "content-encoding: GZIP"))) as served, HttpTransport() as http:
            return await read(await http.send(post(served.url)))

    assert asyncio.run(main()) == b"one two"
