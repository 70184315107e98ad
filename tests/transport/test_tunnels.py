"""Tunnels through proxies: TLS in TLS, proxies that close, lie, or speak too much; the proxy is named, not the server."""

import asyncio

import pytest

from evener.errors import ConnectFailed, EvenerError, TruncatedStream, WireError
from evener.transport.exchange import Deadlines
from evener.transport.http import HttpTransport, read_all
from tests.patience import lull
from tests.transport.conftest import Certificates
from tests.transport.servers import Spoken, listening, post, raw, receive, serving, whole

ON_THE_WAY = "the proxy on the way to 127.0.0.1:9"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(65536):
        writer.write(content)
        await writer.drain()
    writer.close()


async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that connects through."""
    host, _, port = (await receive(reader)).line.split()[1].rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
    try:
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
    finally:
        far_writer.close()


@pytest.mark.parametrize("size", [2, 4 << 20])
def test_a_proxy_may_speak_tls_itself(certificates: Certificates, size: int) -> None:
    async def main() -> tuple[list[int], int]:
        async with (
            serving(raw(whole(b"x" * size)), secure=certificates.server) as served,
            listening(connect, secure=certificates.server) as proxy,
            HttpTransport(proxy=proxy.url, ca_file=certificates.ca_file) as http,
        ):
            sizes = [len(await read_all(await http.send(post(served.url, body=b"y" * size)), 8 << 20)) for _ in range(2)]
            return sizes, len(served.requests[0].body)

    assert asyncio.run(main()) == ([size, size], size)


def speaking(said: bytes) -> Spoken:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader)
        writer.write(said)
        if said.startswith(b"HTTP/1.1 200"):
            await reader.read()

    return speak


FAULTS: dict[str, tuple[bytes, type[EvenerError], str]] = {
    "it closes": (b"", TruncatedStream, f"{ON_THE_WAY} closed the connection"),
    "it speaks something else": (b"SSH-2.0-x\r\n\r\n", WireError, f"The answer of {ON_THE_WAY} is not HTTP"),
    "it says more than it should": (b"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01", WireError, f"{ON_THE_WAY} is not HTTP"),
    "it closes the tunnel": (b"HTTP/1.0 200 OK\r\n\r\n", ConnectFailed, "it closed the connection at once"),
    "it redirects": (b"HTTP/1.1 302 Found\r\nlocation: http://evil\r\n\r\n", ConnectFailed, "answered HTTP 302"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_proxy_that_opens_no_tunnel_is_named(certificates: Certificates, name: str) -> None:
    said, kind, told = FAULTS[name]

    async def main() -> EvenerError:
        async with listening(speaking(said)) as proxy, HttpTransport(proxy=proxy.url, ca_file=certificates.ca_file) as http:
            with pytest.raises(EvenerError) as failed:
                await http.send(post("https://127.0.0.1:9", Deadlines(connect=120, idle=120, total=120)))
            await lull()
            assert proxy.open == 0
            return failed.value

    error = asyncio.run(main())
    assert type(error) is kind, repr(error)
    assert told in str(error)


def test_a_proxy_that_is_not_trusted_is_named(certificates: Certificates) -> None:
    async def main() -> str:
        async with listening(connect, secure=certificates.server) as proxy, HttpTransport(proxy=proxy.url) as http:
            with pytest.raises(ConnectFailed) as failed:
                await http.send(post("https://127.0.0.1:9"))
            return str(failed.value)

    assert f"The certificate of {ON_THE_WAY} is not trusted" in asyncio.run(main())


def test_an_address_of_ipv6_is_asked_for_in_brackets(certificates: Certificates) -> None:
    asked: list[str] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await receive(reader)
        asked.extend((received.line, received.headers["host"]))
        writer.write(whole(b"", 403))

    async def main() -> None:
        async with listening(speak) as proxy, HttpTransport(proxy=proxy.url, ca_file=certificates.ca_file) as http:
            with pytest.raises(ConnectFailed):
                await http.send(post("https://[::1]:8443"))

    asyncio.run(main())
    assert asked == ["CONNECT [::1]:8443 HTTP/1.1", "[::1]:8443"]
