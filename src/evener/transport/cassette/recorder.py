"""Records exchanges with a provider once and replays them: the same bytes in the same pieces.

Both are transports. A recorder sends through another one and stores the exchanges, without credentials; a player answers from
the file and uses neither network nor clock. The file is written once, whole, when a recorder is closed.
"""

import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Self, assert_never

import msgspec

from evener.errors import TransportError, UsageError, WireError
from evener.private_file import write_private
from evener.transport.cassette.file import Breach, Broken, RecordedAnswer, RecordedExchange, dump_exchanges, load_exchanges
from evener.transport.cassette.match import Compared, difference_lines, find_nearest, normalize
from evener.transport.cassette.scrub import (
    credentials,
    find_secrets,
    keep_request_headers,
    keep_response_headers,
    scrub_pieces,
    scrub_text,
    scrub_url,
    secret_pattern,
)
from evener.transport.exchange import Request, Response, Transport
from evener.transport.http import shared_transport

StrPath = str | os.PathLike[str]


class CassetteMiss(UsageError):
    """A cassette has no answer to this request. The message says how the nearest recorded request differs."""


def open_cassette(
    path: StrPath,
    *,
    mode: Literal["replay", "record", "auto"] = "auto",
    inner: Transport | None = None,
    secrets: Iterable[str] = (),
) -> "Recorder | Player":
    """Return a player of the file, or a recorder of `inner`. `auto` plays a file that exists, and records one that does not.

    Without `inner`, the transport that all models share is recorded. The caller closes the cassette. `secrets` are texts that
    must not be stored; credentials of requests are never stored.
    """
    if isinstance(secrets, str):
        raise UsageError("`secrets` must be a list of texts, but it is a single text. Write secrets=[...].")
    match mode:
        case "replay":
            return Player(path, secrets=secrets)
        case "auto" if Path(path).exists():
            return Player(path, secrets=secrets)
        case "record" | "auto":
            return Recorder(inner or shared_transport(), path, secrets=secrets)
        case _:
            assert_never(mode)


class Recorder:
    """Sends by another transport, and writes the exchanges to a file when it is closed. It does not close the other transport.

    Leaving a `with` block by an exception stores nothing: an older file stays.
    """

    def __init__(self, inner: Transport, path: StrPath, *, secrets: Iterable[str] = ()) -> None:
        self._inner = inner
        self._path = Path(path)
        self._secrets = frozenset(secrets)
        self._takes: list[_Take] = []
        self._closed = False
        if not self._path.parent.is_dir():
            raise UsageError(f"There is no folder {self._path.parent} for the cassette {self._path.name}. Create it first.")

    async def send(self, request: Request) -> Response:
        """Return the inner transport's response, and raise its errors; TransportError and WireError are recorded, too."""
        if self._closed:
            raise UsageError(f"The cassette {self._path} was closed. Send before closing it.")
        take = _Take(request)
        self._takes.append(take)
        try:
            response = await self._inner.send(request)
        except (TransportError, WireError) as error:
            take.error = error
            raise
        except BaseException:
            self._takes.remove(take)
            raise
        take.head = response.status, response.headers
        return _Recording(response, take)

    def close(self, *, strict: bool = False) -> None:
        """Write the file, if anything was sent.

        An open response is stored as far as it was read; if `strict`, it is an error.
        """
        if self._closed:
            return
        if strict and any(take.is_open for take in self._takes):
            raise UsageError(f"An answer is still open while {self._path} is closed. Close every response first.")
        self._closed = True
        exchanges = self._exchanges()  # a call of its own: secrets must not be among the locals of this frame
        if exchanges:
            _write(self._path, dump_exchanges(exchanges))

    def _exchanges(self) -> list[RecordedExchange]:
        """Return the exchanges without secrets."""
        learned = frozenset[str]().union(*(take.secrets for take in self._takes))
        pattern = secret_pattern(self._secrets | learned)
        return [take.exchange(pattern) for take in self._takes if take.head or take.error]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        self._closed = True


class Player:
    """Answers from a file: the n-th of equal requests gets the n-th recorded answer, and none is given twice."""

    def __init__(self, path: StrPath, *, secrets: Iterable[str] = ()) -> None:
        self._path = Path(path)
        self._secrets = frozenset(secrets)
        self._exchanges = load_exchanges(_read(self._path), str(self._path))
        self._recorded = [normalize(exchange.method, exchange.url, body=exchange.body) for exchange in self._exchanges]
        self._left: defaultdict[tuple[str, str, bytes], deque[int]] = defaultdict(deque)
        for number, recorded in enumerate(self._recorded):
            self._left[recorded.key].append(number)
        self._given: set[int] = set()
        self._closed = False

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the exchanges that were not requested yet, as in `exchange 2: POST /v1/messages`."""
        left = (number for number in range(len(self._recorded)) if number not in self._given)
        return tuple(f"exchange {number + 1}: {self._recorded[number]}" for number in left)

    async def send(self, request: Request) -> Response:
        """Return the recorded answer, at once. Raises the recorded error, or CassetteMiss when there is no such request."""
        if self._closed:
            raise UsageError(f"The cassette {self._path} was closed. Send before closing it.")
        sent, plain = self._normalize(request)
        left = self._left.get(sent.key) or self._left.get(plain.key)
        if not left:
            raise CassetteMiss(self._miss(sent, plain))
        number = left.popleft()
        self._given.add(number)
        exchange = self._exchanges[number]
        if exchange.answer is not None:
            return _Replay(exchange.answer, exchange.broken, f"exchange {number + 1} of {self._path}")
        assert exchange.broken is not None, "a loaded exchange has an answer or an error"
        raise exchange.broken.error()

    def _normalize(self, request: Request) -> tuple[Compared, Compared]:
        """Return the request twice: without secrets, and unchanged. Secrets stay in this frame.

        The key may also be a word of the prompt. A recording made with another key contains that word, so both are compared.
        """
        pattern = secret_pattern(self._secrets | credentials(request) | find_secrets(request.body))
        body = b"".join(scrub_pieces((request.body,), pattern))
        url = scrub_url(request.url, pattern)
        sent = normalize(request.method, url, body=body)
        untouched = (url, body) == (request.url, request.body)
        return sent, sent if untouched else normalize(request.method, request.url, body=request.body)

    def close(self, *, strict: bool = False) -> None:
        """Stop answering. If `strict`, raise an error for exchanges that were never requested."""
        self._closed = True
        if strict and self.unused:
            raise UsageError(
                f"Of the {len(self._exchanges)} exchanges of {self._path}, {len(self.unused)} were never requested "
                f"({'; '.join(self.unused[:3])}{'; ...' if len(self.unused) > 3 else ''}). "
                "Find out why, or record the cassette again."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _miss(self, sent: Compared, plain: Compared) -> str:
        opening = f"The cassette {self._path} has no answer left for {sent}."
        equals = sum(recorded.key in (sent.key, plain.key) for recorded in self._recorded)
        if equals:
            times = "once" if equals == 1 else f"{equals} times"
            return f"{opening} It was recorded {times} and requested once more. Send it less often, or record again."
        number = find_nearest(self._recorded, self._given, sent)
        nearby = self._recorded[number]
        given = ", already given" if number in self._given else ""
        lines = "\n".join(f"  {line}" for line in difference_lines(nearby, sent))
        where = f"exchange {number + 1} ({nearby}{given})"
        return f"{opening} The nearest is {where}:\n{lines}\nSend what was recorded, or record again."


class _Take:
    """One exchange while it is recorded."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.head: tuple[int, Mapping[str, str]] | None = None
        self.pieces: list[bytes] = []
        self.error: Breach | None = None
        self.is_open = True
        self.is_whole = False

    @property
    def secrets(self) -> set[str]:
        """Return the credentials of the request, and other secrets of this process that are in the exchange."""
        said = str(self.error).encode("utf-8", "surrogatepass") if self.error else b""
        headers = msgspec.json.encode(dict(self.head[1]) if self.head else {})
        url = self.request.url.encode("utf-8", "surrogatepass")
        return credentials(self.request) | find_secrets(self.request.body, b"".join(self.pieces), said, headers, url)

    def exchange(self, pattern: re.Pattern[bytes] | None) -> RecordedExchange:
        """Return the exchange without secrets."""
        request = self.request
        return RecordedExchange(
            method=request.method,
            url=scrub_url(request.url, pattern),
            headers=_clean(keep_request_headers(request.headers), pattern),
            body=b"".join(scrub_pieces((request.body,), pattern)),
            answer=self._answer(pattern),
            broken=None if self.error is None else Broken.of(self.error, scrub_text(str(self.error), pattern)),
        )

    def _answer(self, pattern: re.Pattern[bytes] | None) -> RecordedAnswer | None:
        if self.head is None:
            return None
        status, headers = self.head
        kept = _clean(keep_response_headers(headers), pattern)
        return RecordedAnswer(status, kept, scrub_pieces(self.pieces, pattern), closed=not self.is_whole and self.error is None)


class _Recording:
    """A response that is recorded as it is read."""

    def __init__(self, response: Response, take: _Take) -> None:
        self._response = response
        self._take = take

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        try:
            piece = await self._response.read()
        except (TransportError, WireError) as error:
            self._take.error = error
            raise
        if piece:
            self._take.pieces.append(piece)
        else:
            self._take.is_whole = True
        return piece

    async def aclose(self) -> None:
        self._take.is_open = False
        await self._response.aclose()


class _Replay:
    """A response that is replayed."""

    def __init__(self, answer: RecordedAnswer, broken: Broken | None, where: str) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._pieces = deque(answer.pieces)
        self._left_early = answer.closed
        self._broken = broken
        self._where = where
        self._closed = False

    async def read(self) -> bytes:
        if self._closed:
            raise UsageError(f"The answer of {self._where} was closed. Read it before you close it.")
        if self._pieces:
            return self._pieces.popleft()
        if self._broken is not None:
            raise self._broken.error()
        if self._left_early:
            raise CassetteMiss(
                f"The answer of {self._where} was closed before its end when it was recorded, and is now read further. "
                "Read as much as then, or record again."
            )
        return b""

    async def aclose(self) -> None:
        self._closed = True


def _clean(headers: Mapping[str, str], pattern: re.Pattern[bytes] | None) -> dict[str, str]:
    return {name: scrub_text(value, pattern) for name, value in headers.items()}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f'There is no cassette {path}. Record it with mode="record", or correct the path.') from None
    except OSError as error:
        raise UsageError(f"The cassette {path} cannot be read: {error.strerror}. Check the file and its mode.") from None


def _write(path: Path, content: bytes) -> None:
    try:
        write_private(path, content)
    except OSError as error:
        raise UsageError(
            f"The cassette {path} cannot be written: {error.strerror}. Check the folder and the free space."
        ) from None
