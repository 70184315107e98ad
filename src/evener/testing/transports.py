"""The fake of the transport seam: answers from a script, at the level of bytes. Opens no connection and keeps no deadline."""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from evener.errors import TransportError, UsageError, WireError
from evener.transport.exchange import Request, Response


class Gate(Protocol):
    """Holds back what comes after it. An `asyncio.Event` is one."""

    async def wait(self) -> object: ...


class FakeAnswer(msgspec.Struct, frozen=True):
    """One scripted answer. `pieces` come in turn: bytes are read, a gate is waited for, an error is raised from then on."""

    pieces: tuple[bytes | Gate | TransportError | WireError, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


class FakeTransport:
    """Gives the answers of its script, one per request; an error or a gate in the script stands before the head.

    `requests` keeps what was sent, credentials included. `open` counts the answers that are not closed yet.
    """

    def __init__(self, script: Iterable[FakeAnswer | Gate | TransportError | WireError] = ()) -> None:
        self.requests: list[Request] = []
        self.open = 0
        self._script = deque(script)

    async def send(self, request: Request) -> Response:
        """Return the next answer of the script."""
        self.requests.append(request)
        while self._script:
            match self._script.popleft():
                case FakeAnswer() as answer:
                    self.open += 1
                    return _FakeResponse(answer, self)
                case (TransportError() | WireError()) as error:
                    raise error
                case gate:
                    await gate.wait()
        raise UsageError(
            f"The script of the fake transport is at its end, and {request.method} {request.url.partition('?')[0]} "
            f"is request {len(self.requests)}. Add an answer, or find out why it was sent."
        )

    def check(self) -> None:
        """Raise an error unless every answer of the script was requested and closed."""
        if self.open:
            raise AssertionError(f"{self.open} answers were not closed. The caller that gets a response closes it.")
        if self._script:
            raise AssertionError(f"{len(self._script)} steps of the script were never reached. Find out what was not sent.")


class _FakeResponse:
    """An answer while it is read."""

    def __init__(self, answer: FakeAnswer, transport: FakeTransport) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}
        self._pieces = deque(answer.pieces)
        self._transport = transport
        self._closed = False

    async def read(self) -> bytes:
        if self._closed:
            raise UsageError("This response was closed. Read it before you close it.")
        while self._pieces:
            match self._pieces[0]:
                case (TransportError() | WireError()) as error:
                    raise error
                case bytes() as piece:
                    self._pieces.popleft()
                    if piece:
                        return piece
                case gate:
                    await gate.wait()
                    self._pieces.popleft()
        return b""

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.open -= 1
