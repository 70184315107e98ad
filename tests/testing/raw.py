"""A client with no opinions: sends a request to a fake server and tells what came back, down to how the connection ended."""

import json
import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evener.testing import FakeServer
from tests.patience import moment

Json = dict[str, Any]
SECONDS = 120.0

MODELS = {
    "anthropic_messages": "claude-opus-5-5",
    "openai_responses": "gpt-5.5",
    "openai_chat": "gpt-4.1",
    "gemini": "gemini-3-flash-preview",
}
# Below the base URL, as the rows of our providers have it.
PATHS = {
    "anthropic_messages": "/v1/messages",
    "openai_responses": "/responses",
    "openai_chat": "/chat/completions",
    "gemini": "/v1beta/models/gemini-3-flash-preview:generateContent",
}
STREAM = "/v1beta/models/gemini-3-flash-preview:streamGenerateContent?alt=sse"


@dataclass(frozen=True)
class Heard:
    """An answer. `end`: the body was complete ("whole"), stopped early ("short"), broke off ("reset") or had no end
    while the patience lasted ("silent").
    """

    status: int
    headers: dict[str, str]
    body: bytes
    end: str

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value

    @property
    def events(self) -> list[Json]:
        """The JSON objects of a stream, in their order."""
        lines = self.body.decode().replace("\r\n", "\n").split("\n")
        found = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(text) for text in found if text != "[DONE]"]


def body_of(wire: str, text: str = "Hi", *, streamed: bool = False) -> Json:
    """A short question that the provider takes."""
    messages = [{"role": "user", "content": text}]
    stream = {"stream": True} if streamed else {}
    match wire:
        case "anthropic_messages":
            return {"model": MODELS[wire], "max_tokens": 100, "messages": messages, **stream}
        case "openai_responses":
            return {"model": MODELS[wire], "input": messages, **stream}
        case "openai_chat":
            return {"model": MODELS[wire], "messages": messages, **stream}
    return {"contents": [{"role": "user", "parts": [{"text": text}]}]}


def ask(
    server: FakeServer,
    wire: str,
    body: Json | None = None,
    *,
    streamed: bool = False,
    path: str = "",
    headers: dict[str, str] | None = None,
    patience: float = SECONDS,
    settle: float = SECONDS,
    enough: Callable[[bytes], bool] = lambda _body: False,
) -> Heard:
    """One question on a connection of its own, read to its end or for as long as the patience lasts.

    `settle` is the patience once the head has come. With `enough`, reading also stops when that much of the body is there.
    """
    sent = body_of(wire, streamed=streamed) if body is None else body
    usual = STREAM if wire == "gemini" and streamed else PATHS[wire]
    with connect(server, patience) as link:
        link.sendall(request(server, "POST", path or usual, json.dumps(sent).encode(), headers))
        return hear(link, settle, enough)


def connect(server: FakeServer, patience: float = SECONDS) -> socket.socket:
    host, port = server.url.removeprefix("http://").partition("/")[0].split(":")
    return socket.create_connection((host, int(port)), timeout=patience)


def request(server: FakeServer, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    base = server.url.removeprefix("http://").partition("/")[2]
    prefix = f"/{base}" if base else ""
    told = {"host": "localhost", "content-length": str(len(body)), "anthropic-version": "2023-06-01", **(headers or {})}
    lines = [f"{method} {prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def hear(link: socket.socket, settle: float = SECONDS, enough: Callable[[bytes], bool] = lambda _body: False) -> Heard:
    """Read one answer."""
    held, end, begun = b"", "", False
    until = moment(link.gettimeout() or SECONDS)
    while not end:
        status, headers, body, end = _parse(held)
        if end:
            break
        if status and not begun:
            begun, until = True, min(until, moment(settle))
        left = until - moment()
        if left <= 0 or enough(body):
            end = "silent"
            break
        try:
            link.settimeout(left)
            more = link.recv(65536)
        except TimeoutError:
            continue
        except ConnectionResetError:
            end = "reset"
            break
        if not more:
            end = "short"
        held += more
    if headers.get("content-encoding") == "gzip":
        body = zlib.decompressobj(wbits=31).decompress(body)
    return Heard(status, headers, body, end)


def _parse(held: bytes) -> tuple[int, dict[str, str], bytes, str]:
    head, split, rest = held.partition(b"\r\n\r\n")
    if not split:
        return 0, {}, b"", ""
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") != "chunked":
        length = int(headers["content-length"])
        return int(first.split()[1]), headers, rest[:length], "whole" if len(rest) >= length else ""
    body, end = _unchunk(rest)
    return int(first.split()[1]), headers, body, end


def _unchunk(rest: bytes) -> tuple[bytes, str]:
    body = b""
    while True:
        line, split, after = rest.partition(b"\r\n")
        if not split:
            return body, ""
        size = int(line, 16)
        if size == 0:
            return body, "whole"
        body, rest = body + after[:size], after[size + 2 :]
        if len(after) < size + 2:
            return body, ""


def message_of(wire: str, held: Json) -> str:
    """Where each provider has the text of an error, everything else being in its place."""
    error = held["error"]
    if wire == "anthropic_messages":
        assert (held["type"], set(error)) == ("error", {"type", "message"})
        assert held["request_id"].startswith("req_")
    elif wire == "gemini":
        assert {"code", "message", "status"} <= set(error)
    else:
        assert set(error) == {"message", "type", "param", "code"}
    return str(error["message"])
