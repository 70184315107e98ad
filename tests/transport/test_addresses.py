"""Where a request goes: names, addresses, ports; several addresses, of which some are dead."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from evener.errors import BadValue, ConnectFailed, EvenerError
from evener.transport.dial import Address, connect, route_of
from evener.transport.exchange import Deadlines, Request, place_of
from evener.transport.http import HttpTransport, read_all
from tests.transport.servers import SECRET, listening, post, raw, receive, serving, whole
from tests.transport.test_faults import blackhole, closed_port

HALF = "sk-half-of-a-password"

REFUSED = [
    "http://[::1",
    "http://[::1]x/",
    "http://[not-one]/",
    "http://::1/",
    "http://a..b/",
    "http://.a/",
    "http://" + "a" * 64 + "/",
    "http://a%20b/",
    "http://a\\b/",
    "http://host:0/",
    "http://host:99999/",
    "http://host:x/",
    "http://user@host/",
    f"http://user:{HALF}@host/",
    f"http://user:{HALF}/rest@host/",
    f"http://user:{HALF}?rest@host/",
    f"http://user:{HALF}[@host/",
    f"http://user:{HALF}\u2100@host/",
    "http://b\u00fccher.example/",
    "http://host/\u00fc",
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_leads_nowhere_is_refused_without_its_secrets(url: str) -> None:
    async def main() -> None:
        async with HttpTransport() as http:
            with pytest.raises(BadValue, match="cannot be sent") as failed:
                await http.send(Request(url, (), b""))
            assert HALF not in repr(failed.value)
            assert failed.value.__cause__ is None

    asyncio.run(main())


def test_a_host_that_is_not_ascii_is_told_how_to_write_itself() -> None:
    with pytest.raises(BadValue, match=r"xn--bcher-kva\.example"):
        asyncio.run(HttpTransport().send(Request("https://b\u00fccher.example/", (), b"")))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.example.com:8443/v1?key=x", "api.example.com:8443"),
        ("http://[::1]:80/", "[::1]:80"),
        ("http://user:pass@host/", "host"),
        ("http://user:pa/ss@host/", "an address with an odd host"),
        ("http://[::1", "an address without a host"),
        ("sk-secret", "an address without a host"),
    ],
)
def test_only_host_and_port_of_an_address_are_shown(url: str, shown: str) -> None:
    assert place_of(url) == shown


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://HOST", "host", 80),
        ("https://host:", "host", 443),
        ("https://xn--bcher-kva.example.", "xn--bcher-kva.example.", 443),
        ("http://a_b.example:1", "a_b.example", 1),
        ("http://[2001:DB8::1]:65535", "2001:db8::1", 65535),
        ("http://127.0.0.1", "127.0.0.1", 80),
    ],
)
def test_an_address_is_read(url: str, host: str, port: int) -> None:
    route = route_of(url, None)
    assert (route.host, route.port) == (host, port)


def has_ipv6() -> bool:
    """Whether this machine has a loopback of IPv6: not every container does."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif("not has_ipv6()", reason="there is no loopback of IPv6")
def test_an_address_of_ipv6_is_reached_and_named() -> None:
    named: list[str] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        named.append((await receive(reader)).headers["host"])
        writer.write(whole())

    async def main() -> int:
        async with listening(speak, host="::1") as served, HttpTransport() as http:
            await read_all(await http.send(post(served.url)), 99)
            return served.port

    assert [f"[::1]:{asyncio.run(main())}"] == named


BAD_REQUESTS = {
    "a method of two lines": Request("http://127.0.0.1:9/", (), b"", method="GET / HTTP/1.1\r\nx: y\r\n\r\nGET"),
    "a method of two words": Request("http://127.0.0.1:9/", (), b"", method="GET /x"),
    "no method": Request("http://127.0.0.1:9/", (), b"", method=""),
    "a method that is not ASCII": Request("http://127.0.0.1:9/", (), b"", method="G\u00cbT"),
    "a name with a value": Request("http://127.0.0.1:9/", (("x: y", SECRET),), b""),
    "a name with a return": Request("http://127.0.0.1:9/", (("x\ry", SECRET),), b""),
    "a value with a return": Request("http://127.0.0.1:9/", (("x", f"{SECRET}\rz"),), b""),
    "a value with a null": Request("http://127.0.0.1:9/", (("x", f"{SECRET}\0"),), b""),
    "a value beyond Latin": Request("http://127.0.0.1:9/", (("x", f"{SECRET}\u20ac"),), b""),
    "another length": Request("http://127.0.0.1:9/", (("Content-Length", "1"),), b"12"),
    "a length twice": Request("http://127.0.0.1:9/", (("content-length", "2"), ("content-length", "3")), b"12"),
    "chunks": Request("http://127.0.0.1:9/", (("transfer-encoding", "chunked"),), b"0\r\n\r\n"),
    "a host with a line": Request("http://127.0.0.1:9\r\nx: y/", (), b""),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_request_that_would_be_read_as_another_is_never_sent(name: str) -> None:
    async def main() -> None:
        async with serving(raw(whole())) as served, HttpTransport() as http:
            request = BAD_REQUESTS[name]
            url = request.url.replace(":9", f":{served.port}")
            with pytest.raises(BadValue, match="cannot be sent") as failed:
                await http.send(Request(url, request.headers, request.body, request.method))
            assert SECRET not in str(failed.value)
            assert served.connections == 0

    asyncio.run(main())


def test_a_length_that_is_right_is_sent_once() -> None:
    async def main() -> list[str]:
        async with serving(raw(whole())) as served, HttpTransport() as http:
            await read_all(await http.send(Request(served.url, (("Content-Length", "2"),), b"{}")), 99)
            return [*served.requests[0].headers]

    assert asyncio.run(main()).count("content-length") == 1


def tcp(place: tuple[str, int]) -> Address:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", place)


UNROUTED: Address = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("ff02::1", 9, 0, 0))


def stand(monkeypatch: pytest.MonkeyPatch, *addresses: Address) -> None:
    async def found(_: str, __: int) -> Sequence[Address]:
        return addresses

    monkeypatch.setattr("evener.transport.dial._addresses", found)


@pytest.mark.parametrize("dead", ["refusing", "unrouted", "silent", "all of them"])
def test_one_address_that_lives_is_enough(monkeypatch: pytest.MonkeyPatch, dead: str) -> None:
    async def main(silent: int, closed: int) -> bytes:
        refusing = tcp(("127.0.0.1", closed))
        first = {"refusing": [refusing], "unrouted": [UNROUTED], "silent": [tcp(("127.0.0.1", silent))]}
        async with serving(raw(whole(b"here"))) as served, HttpTransport() as http:
            before = first.get(dead, [refusing, UNROUTED, tcp(("127.0.0.1", silent))])
            stand(monkeypatch, *before, tcp(("127.0.0.1", served.port)), *before)
            return await read_all(await http.send(post("http://some.example")), 99)

    with blackhole() as silent, closed_port() as closed:
        assert asyncio.run(main(silent, closed)) == b"here"


def test_of_several_failures_the_telling_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(closed: int) -> None:
        stand(monkeypatch, UNROUTED, tcp(("127.0.0.1", closed)), UNROUTED)
        with pytest.raises(ConnectionRefusedError):
            await connect("some.example", 80)
        async with HttpTransport() as http:
            with pytest.raises(ConnectFailed, match="nothing listens there"):
                await http.send(post("http://some.example"))

    with closed_port() as closed:
        asyncio.run(main(closed))


def test_when_no_address_answers_the_deadline_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(silent: int) -> EvenerError:
        stand(monkeypatch, tcp(("127.0.0.1", silent)), tcp(("127.0.0.1", silent)))
        async with HttpTransport() as http:
            with pytest.raises(EvenerError) as failed:
                await http.send(post("http://some.example", Deadlines(connect=0.6, idle=120, total=120)))
        return failed.value

    with blackhole() as silent:
        assert "connect deadline" in str(asyncio.run(main(silent)))
