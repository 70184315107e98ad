"""TLS is verified, always; proxies are used where they should be, and only there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from evener.errors import BadValue, ConnectFailed
from evener.transport.dial import Proxy, proxy_for, proxy_from
from evener.transport.http import HttpTransport, read_all
from tests.patience import lull
from tests.transport.conftest import Certificates
from tests.transport.servers import SECRET, Received, Served, post, raw, receive, serving, whole

PASSWORD = "hunter2-password"


async def fetched(http: HttpTransport, url: str) -> bytes:
    response = await http.send(post(url))
    return await read_all(response, 1000)


async def refused(http: HttpTransport, url: str) -> str:
    with pytest.raises(ConnectFailed) as failed:
        await fetched(http, url)
    assert not {SECRET, PASSWORD} & set(repr(failed.value).split())
    return str(failed.value)


def test_a_named_authority_is_trusted_and_its_connections_are_kept(certificates: Certificates) -> None:
    async def main() -> tuple[bytes, int]:
        http = HttpTransport(ca_file=certificates.ca_file)
        async with serving(raw(whole(b"safe")), secure=certificates.server) as served, http:
            await fetched(http, served.url)
            return await fetched(http, served.url), served.connections

    assert asyncio.run(main()) == (b"safe", 1)


@pytest.mark.parametrize("trusted", ["system", "another"])
def test_an_unknown_authority_is_refused_and_the_error_names_ca_file(certificates: Certificates, trusted: str) -> None:
    async def main() -> str:
        ca_file = certificates.other_ca_file if trusted == "another" else None
        async with serving(raw(whole()), secure=certificates.server) as served, HttpTransport(ca_file=ca_file) as http:
            said = await refused(http, served.url)
            assert served.requests == []
            return said

    said = asyncio.run(main())
    assert "is not trusted" in said
    assert "`ca_file`" in said


def test_a_certificate_for_another_name_is_refused(certificates: Certificates) -> None:
    async def main() -> str:
        http = HttpTransport(ca_file=certificates.ca_file)
        async with serving(raw(whole()), secure=certificates.elsewhere) as served, http:
            return await refused(http, served.url)

    assert "is not trusted" in asyncio.run(main())


@pytest.mark.parametrize("wait", [0.0, 0.2])
@pytest.mark.parametrize("head", [b"", b"content-length: 700000\r\n"], ids=["until it ends", "counted"])
def test_an_answer_that_ends_with_its_connection_comes_whole(certificates: Certificates, head: bytes, wait: float) -> None:
    answer = raw(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", b"x" * 700_000, end="close")

    async def main() -> int:
        http = HttpTransport(ca_file=certificates.ca_file)
        async with serving(answer, secure=certificates.server) as served, http:
            response = await http.send(post(served.url))
            await asyncio.sleep(wait)  # so that it is read by halves, or all of it lies there
            return len(await read_all(response, 1 << 20))

    assert asyncio.run(main()) == 700_000


def test_a_server_without_tls_says_so(certificates: Certificates) -> None:
    async def main() -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)  # to close before that would reset the connection
            writer.write(b"HTTP/1.1 400 X\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with HttpTransport(ca_file=certificates.ca_file) as http:
            said = await refused(http, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        server.close()
        return said

    assert "expects https:// on this port" in asyncio.run(main())


def test_a_file_without_certificates_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("ca") / "empty.pem"
    file.write_text("nothing")

    async def main() -> None:
        async with HttpTransport(ca_file=str(file)) as http:
            with pytest.raises(BadValue, match="No certificate could be read"):
                await http.send(post("https://127.0.0.1:9"))

    asyncio.run(main())


@asynccontextmanager
async def proxying(*, status: int = 200) -> AsyncIterator[Served]:
    """A proxy: forwards a plain request, opens a tunnel for CONNECT. Keeps the requests it saw."""
    seen = Served("", 0)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while content := await reader.read(65536):
                writer.write(content)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await receive(reader)
        seen.requests.append(received)
        method, target, _ = received.line.split()
        if status != 200:
            writer.write(whole(b"", status))
            writer.close()
            return
        authority = target if method == "CONNECT" else target.split("/")[2]
        host, _, port = authority.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            far_writer.write(forwarded(received))
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    seen.port = server.sockets[0].getsockname()[1]
    seen.url = f"http://user:{PASSWORD}@127.0.0.1:{seen.port}"
    try:
        yield seen
    finally:
        server.close()
        await lull()


def forwarded(received: Received) -> bytes:
    method, target, version = received.line.split()
    path = "/" + target.split("/", 3)[3]
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in received.headers.items())]
    return "\r\n".join((*lines, "", "")).encode() + received.body


@pytest.mark.parametrize("how", ["explicit", "environment"])
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_proxy_is_used(certificates: Certificates, monkeypatch: pytest.MonkeyPatch, secure: bool, how: str) -> None:
    async def main() -> None:
        context = certificates.server if secure else None
        async with serving(raw(whole(b"far")), secure=context) as served, proxying() as proxy:
            if how == "environment":
                monkeypatch.setenv("HTTPS_PROXY" if secure else "http_proxy", proxy.url)
            named = proxy.url if how == "explicit" else None
            async with HttpTransport(proxy=named, ca_file=certificates.ca_file) as http:
                assert [await fetched(http, served.url) for _ in range(2)] == [b"far", b"far"]
            seen = proxy.requests[0]
            assert seen.line.startswith(f"CONNECT 127.0.0.1:{served.port}" if secure else f"POST {served.url}/v1/messages")
            assert seen.headers["proxy-authorization"].startswith("Basic ")
            assert secure is ("authorization" not in seen.headers)  # a tunnel does not see what goes through it
            assert all("proxy-authorization" not in received.headers for received in served.requests) or not secure

    asyncio.run(main())


@pytest.mark.parametrize("trust_env", [True, False])
def test_the_environment_can_be_left_out_by_host_or_altogether(monkeypatch: pytest.MonkeyPatch, trust_env: bool) -> None:
    async def main() -> None:
        async with serving(raw(whole(b"near"))) as served, proxying() as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "example.com, 127.0.0.1" if trust_env else "")
            async with HttpTransport(trust_env=trust_env) as http:
                assert await fetched(http, served.url) == b"near"
            assert proxy.requests == []

    asyncio.run(main())


@pytest.mark.parametrize(("status", "said"), [(407, "requires credentials"), (403, "NO_PROXY")])
def test_a_proxy_that_refuses_is_named(certificates: Certificates, status: int, said: str) -> None:
    async def main() -> str:
        async with proxying(status=status) as proxy, HttpTransport(proxy=proxy.url, ca_file=certificates.ca_file) as http:
            return await refused(http, "https://127.0.0.1:9")

    told = asyncio.run(main())
    assert f"HTTP {status}" in told
    assert said in told
    assert PASSWORD not in told


def test_a_proxy_that_is_not_there_is_named() -> None:
    async def main() -> str:
        async with HttpTransport(proxy=f"http://user:{PASSWORD}@127.0.0.1:9") as http:
            return await refused(http, "http://127.0.0.1:10")

    told = asyncio.run(main())
    assert "The proxy on the way to 127.0.0.1:10 could not be reached" in told
    assert PASSWORD not in told


@pytest.mark.parametrize(
    ("text", "url", "authorized"),
    [
        ("http://127.0.0.1:3128", "http://127.0.0.1:3128", False),
        ("proxy.example:3128", "http://proxy.example:3128", False),
        ("https://proxy.example", "https://proxy.example:443", False),
        ("http://u:p%40@[::1]:8080/", "http://[::1]:8080", True),
    ],
)
def test_a_proxy_is_read(text: str, url: str, authorized: bool) -> None:
    proxy = proxy_from(text)
    assert (proxy.url, bool(proxy.authorization)) == (url, authorized)
    assert not proxy.authorization or proxy.authorization not in repr(proxy)


@pytest.mark.parametrize("text", ["", "socks5://127.0.0.1:1", "http://", "http://u:secret@host:port", "ftp://x"])
def test_what_is_no_proxy_is_refused_without_its_credentials(text: str) -> None:
    with pytest.raises(BadValue, match="A proxy's address") as failed:
        proxy_from(text)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("url", "no_proxy", "used"),
    [
        ("http://api.example.com", "", True),
        ("http://api.example.com", "*", False),
        ("http://api.example.com", "example.com", False),
        ("http://api.example.com", ".example.com", False),
        ("http://api.example.com", "*.example.com", False),
        ("http://notexample.com", "example.com", True),
        ("http://api.example.com:8080", "api.example.com:8080", False),
        ("http://api.example.com:8080", "api.example.com:9090", True),
        ("http://10.1.2.3", "10.0.0.0/8", False),
        ("http://11.1.2.3", "10.0.0.0/8,127.0.0.1", True),
    ],
)
def test_no_proxy_is_understood(url: str, no_proxy: str, used: bool) -> None:
    environment = {"HTTP_PROXY": "http://proxy:1", "NO_PROXY": no_proxy}
    assert proxy_for(url, environment) == (Proxy("http://proxy:1") if used else None)


def test_the_variables_have_an_order() -> None:
    assert proxy_for("https://a", {"HTTP_PROXY": "http://p:1"}) is None
    assert proxy_for("https://a", {"ALL_PROXY": "http://p:1"}) == Proxy("http://p:1")
    assert proxy_for("http://a", {"HTTP_PROXY": "http://p:1", "http_proxy": "http://q:1"}) == Proxy("http://q:1")
    assert proxy_for("http://a", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}) is None


def test_there_is_no_way_to_switch_verification_off() -> None:
    names = HttpTransport.__init__.__kwdefaults__
    assert names == {"proxy": None, "ca_file": None, "trust_env": True, "connections": 100}
