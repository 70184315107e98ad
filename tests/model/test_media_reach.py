"""Media behind a URL come from the public internet unless the user says otherwise, and are what the block asks for."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from evener import Harness
from evener.errors import EvenerError, UsageError, WireError
from evener.result import RunResult
from evener.testing import ScriptedModel
from evener.transcript.blocks import DocumentBlock, ImageBlock, Remote, TextBlock
from evener.transcript.message import Message
from evener.transport.http import HttpTransport
from tests.model.test_media import PDF, PNG
from tests.transport.servers import Script, Served, raw, serving

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"


class Fetching(ScriptedModel):
    """A model that must be given bytes."""

    fetches = True


def answer(content: bytes, kind: str) -> Script:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(content)}\r\n{f'content-type: {kind}' if kind else 'x-nothing: 1'}\r\n\r\n"
    return raw(head.encode() + content)


def looked_at(url: str, *, kind: str = "image", media_type: str = "", **more: str) -> RunResult:
    block = ImageBlock(Remote(url), media_type) if kind == "image" else DocumentBlock(Remote(url), media_type)
    harness = Harness(Fetching(["A dot."]), store="memory", **more)  # type: ignore[arg-type]  # what the table says
    return harness.run_sync(Message("user", (TextBlock("Look:"), block)))


async def in_thread(url: str, **more: str) -> RunResult:
    return await asyncio.get_running_loop().run_in_executor(None, lambda: looked_at(url, **more))


SPELLINGS = (
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001",
    "127.8.9.10", "0.0.0.0", "0", "localhost", "LocalHost", "localhost.", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1", "169.254.169.254", "192.168.0.1",
    "172.16.0.1", "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1",
    "[fe80::1]", "[fd00::1]", "[ff02::1]", "[fec0::1]",
    "[2001:db8::1]", "[2001::1]", "[64:ff9b:1::1]", "[100::1]", "[64:ff9b::a9fe:a9fe]",
    "127.0.0.1.", "169.254.169.254.", "2130706433.", "0x7f.1.",
)  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_a_private_address_is_reached(host: str) -> None:
    async def main() -> Served:
        async with serving(answer(PNG, "image/png")) as served:
            with pytest.raises(EvenerError, match="not in the public internet"):
                await in_thread(f"http://{host}:{served.port}/dot.png")
            return served

    assert asyncio.run(main()).connections == 0


def resolve(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Names stand for these addresses, one answer a lookup, the last one from then on; gives what was looked up."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def found(host: str, port: int, *given: object, **named: object) -> object:
        if host != "pictures.example" or named.get("flags"):
            return real(host, port, *given, **named)  # type: ignore[arg-type]  # as it came
        asked.append(host)
        here = answers[min(len(asked), len(answers)) - 1]
        return [
            (
                socket.AF_INET6 if ":" in one else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (one, port, 0, 0) if ":" in one else (one, port),
            )
            for one in here
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1%lo"])
def test_a_name_that_stands_for_a_private_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Served:
        resolve(monkeypatch, [address])
        async with serving(answer(PNG, "image/png")) as served:
            with pytest.raises(UsageError, match="not in the public internet"):
                await in_thread(f"http://pictures.example:{served.port}/dot.png")
            return served

    assert asyncio.run(main()).connections == 0


def test_a_name_is_looked_up_once_and_its_private_addresses_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked is what is connected to: a second answer, which leads here, is never asked for."""

    async def main() -> tuple[Served, list[str]]:
        asked = resolve(monkeypatch, ["198.51.101.1", "127.0.0.1"], ["127.0.0.1"])
        reached: list[object] = []

        async def connect(_: asyncio.AbstractEventLoop, __: socket.socket, place: object) -> None:
            reached.append(place)
            raise ConnectionRefusedError

        monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
        async with serving(answer(PNG, "image/png")) as served:
            with pytest.raises(EvenerError):
                await in_thread(f"http://pictures.example:{served.port}/dot.png")
            assert reached == [("198.51.101.1", served.port)]
            return served, asked

    served, asked = asyncio.run(main())
    assert (served.connections, asked) == (0, ["pictures.example"])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1.", "2130706433", "0x7f.1", "0x7f.1.", "localhost", "x.localhost", "[::1]", "10.0.0.1"]
)
def test_a_proxy_is_not_asked_for_a_private_address(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Served:
        async with serving(answer(PNG, "image/png")) as proxy, HttpTransport() as transport:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.setattr("evener.transport.http.shared_transport", lambda: transport)
            with pytest.raises(UsageError, match="not in the public internet"):
                await in_thread(f"http://{host}:9/dot.png")
            return proxy

    assert asyncio.run(main()).connections == 0


def test_the_user_may_allow_it() -> None:
    async def main() -> tuple[RunResult, Served]:
        async with serving(answer(PNG, "image/png")) as served:
            return await in_thread(f"{served.url}/dot.png", media_from="anywhere"), served

    result, served = asyncio.run(main())
    assert (result.text, served.connections) == ("A dot.", 1)
    with pytest.raises(UsageError, match="`media_from` must be"):
        Harness(ScriptedModel(["Hi"]), store="memory", media_from="nowhere")  # type: ignore[arg-type]


def test_a_redirect_is_not_followed() -> None:
    async def main() -> Served:
        async with serving(answer(PNG, "image/png")) as inner:
            moved = raw(f"HTTP/1.1 302 Found\r\nlocation: {inner.url}\r\ncontent-length: 0\r\n\r\n".encode())
            async with serving(moved) as outer:
                with pytest.raises(WireError, match="302"):
                    await in_thread(f"{outer.url}/dot.png", media_from="anywhere")
            return inner

    assert asyncio.run(main()).connections == 0


WRONG = {
    "JSON as an image": ("image", "", b'{"key": "value"}', "application/json"),
    "JSON that says it is an image": ("image", "", b'{"key": "value"}', "image/png"),
    "HTML that says it is an image": ("image", "", b"<!doctype html><html></html>", "image/png"),
    "an image that says it is JSON": ("image", "", PNG, "application/json"),
    "an image that says it is a text": ("image", "", PNG, "text/plain"),
    "another image than it says": ("image", "", JPEG, "image/png"),
    "a PDF as an image": ("image", "", PDF, "application/pdf"),
    "nothing": ("image", "", b"", "image/png"),
    "JSON of no type": ("image", "", b"{}", ""),
    "JSON as a PDF": ("document", "application/pdf", b"{}", "application/json"),
    "JSON that says it is a PDF": ("document", "application/pdf", b"{}", "application/pdf"),
    "an image as a PDF": ("document", "application/pdf", PNG, "image/png"),
    "JSON as audio": ("document", "audio/mpeg", b"{}", "application/json"),
    "a PDF as a text": ("document", "text/plain", PDF, "text/plain"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_what_the_block_asks_for_is_refused(case: str) -> None:
    kind, media_type, content, said = WRONG[case]

    async def main() -> None:
        async with serving(answer(content, said)) as served:
            with pytest.raises(WireError, match="It was not sent"):
                await in_thread(f"{served.url}/x?token=1", kind=kind, media_type=media_type, media_from="anywhere")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "media_type", "content", "said"),
    [
        ("image", "image/png", PNG, "image/png"),
        ("image", "", PNG, "image/png; charset=binary"),
        ("image", "", JPEG, "image/jpg"),
        ("image", "", JPEG, "IMAGE/JPEG"),
        ("image", "", PNG, "application/octet-stream"),
        ("image", "", PNG, ""),
        ("image", "", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("image", "", b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"),
        ("document", "application/pdf", PDF, "application/pdf"),
        ("document", "", PDF, "application/pdf"),
        ("document", "text/plain", b"Hello", "text/plain; charset=utf-8"),
        ("document", "audio/mpeg", b"ID3", "audio/mpeg"),
    ],
)
def test_what_the_block_asks_for_is_taken(kind: str, media_type: str, content: bytes, said: str) -> None:
    async def main() -> RunResult:
        async with serving(answer(content, said)) as served:
            return await in_thread(f"{served.url}/x", kind=kind, media_type=media_type, media_from="anywhere")

    assert asyncio.run(main()).ok
