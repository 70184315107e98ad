"""The file format of a cassette: one indented JSON document for each exchange, in the order of sending. Pure; trusts no file.

    {"evener_cassette": 1,
     "request": {"method": ..., "url": ..., "headers": {...}, "json": ... | "text": ... | "base64": ...},
     "response": {"status": ..., "headers": {...}, "pieces": ["text", {"base64": "..."}, ...], "closed": false},
     "error": {"kind": "TimedOut", "message": ...}}

`pieces` are the bytes of the answer, split as they were read. `closed` says that its reader closed it before the end.
An `error` without `response` was raised instead of an answer; with a `response`, after its last piece.
"""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from evener.errors import BadDocument, ConnectFailed, TimedOut, TransportError, TruncatedStream, WireError
from evener.transcript.scan import checked_bytes, short
from evener.transport.cassette.match import as_json, refuse_constant, unique

VERSION: Literal[1] = 1
Breach = TransportError | WireError
"""Errors of a transport: bytes did not come, or came garbled."""

ERRORS: dict[str, type[Breach]] = {
    kind.__name__: kind for kind in (ConnectFailed, TimedOut, TransportError, TruncatedStream, WireError)
}
UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
GAP = re.compile(r"[ \t\r\n]*")


class RecordedAnswer(msgspec.Struct, frozen=True):
    """A recorded answer. Header names in lower case."""

    status: int
    headers: dict[str, str]
    pieces: tuple[bytes, ...]
    closed: bool = False


class Broken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error that a transport raised, by name."""

    kind: Literal["ConnectFailed", "TimedOut", "TransportError", "TruncatedStream", "WireError"]
    message: str

    @staticmethod
    def of(error: Breach, message: str) -> "Broken":
        """Return the error in a form that can be stored: its nearest storable class and this message, which has no secrets."""
        name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)
        return msgspec.convert({"kind": name, "message": message}, Broken)

    def error(self) -> Breach:
        """Return a new error of this class and message."""
        return ERRORS[self.kind](self.message)


class RecordedExchange(msgspec.Struct, frozen=True):
    """A recorded exchange, free of secrets. Has an answer, an error, or both."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    answer: RecordedAnswer | None
    broken: Broken | None


class _Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base64: bytes


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    method: str
    url: str
    headers: dict[str, str]
    json: Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET


class _Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    status: Annotated[int, msgspec.Meta(ge=100, le=999)]
    headers: dict[str, str]
    pieces: tuple[str | _Base64, ...]
    closed: bool = False


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    evener_cassette: int
    request: _Request
    response: _Response | None = None
    error: Broken | None = None


class _Header(msgspec.Struct, frozen=True):
    """The version, read first: a newer cassette is recognised before its new keys are refused."""

    evener_cassette: int


_headers = msgspec.json.Decoder(_Header)
_documents = msgspec.json.Decoder(_Document)
_encoder = msgspec.json.Encoder()


def dump_exchanges(exchanges: Iterable[RecordedExchange]) -> bytes:
    """Return the content of the file. Equal exchanges give equal bytes."""
    return b"".join(msgspec.json.format(_encoder.encode(_document(exchange)), indent=2) + b"\n" for exchange in exchanges)


def load_exchanges(content: bytes, name: str) -> list[RecordedExchange]:
    """Return the exchanges of a file; `name` is its name in errors. Raises BadDocument."""
    try:
        text = checked_bytes(content, len(content)).decode()
    except BadDocument as error:
        raise BadDocument(f"Cannot read the cassette {name}. {error}", path=error.path) from None
    found: list[RecordedExchange] = []
    end, line = 0, 1
    while (start := _after_gap(text, end)) < len(text):
        line += text.count("\n", end, start)
        where = f"{name}: exchange {len(found) + 1} (line {line})"
        end = _end(text, start, where)
        found.append(_exchange(text[start:end].encode(), where, f"[{len(found)}]"))
        line += text.count("\n", start, end)
    return found


def _document(exchange: RecordedExchange) -> _Document:
    answer = exchange.answer
    response = None
    if answer is not None:
        response = _Response(answer.status, answer.headers, tuple(map(_piece, answer.pieces)), answer.closed)
    return _Document(VERSION, _request(exchange), response, exchange.broken)


def _request(exchange: RecordedExchange) -> _Request:
    head = (exchange.method, exchange.url, exchange.headers)
    if as_json(exchange.body) is not None:
        return _Request(*head, json=Raw(exchange.body))
    piece = _piece(exchange.body)
    return _Request(*head, text=piece) if isinstance(piece, str) else _Request(*head, base64=piece.base64)


def _piece(content: bytes) -> str | _Base64:
    """Return text where it is printable, else base64."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return _Base64(content)
    return _Base64(content) if UNREADABLE.search(text) else text


def _bytes(piece: str | _Base64) -> bytes:
    return piece.encode() if isinstance(piece, str) else piece.base64


def _after_gap(text: str, start: int) -> int:
    gap = GAP.match(text, start)
    return gap.end() if gap else start


_parser = json.JSONDecoder(object_pairs_hook=unique, parse_int=str, parse_constant=refuse_constant)


def _end(text: str, start: int, where: str) -> int:
    """Return where the document that begins here ends. Python's own parser is used, because it also finds duplicate keys."""
    try:
        return _parser.raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        raise _bad(where, f"this is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        raise _bad(where, str(error)) from None
    except RecursionError:
        raise _bad(where, "it is nested deeper than any exchange") from None


def _exchange(document: bytes, where: str, path: str) -> RecordedExchange:
    _check_version(document, where, path)
    try:
        stored = _documents.decode(document)
    except msgspec.ValidationError as error:
        why, _, place = str(error).partition(" - at `$")
        inside = place.strip("`")
        raise _bad(f"{where}{', ' if inside else ''}{inside.strip('.')}", short(why), path + inside) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad(where, f"this is not JSON: {short(str(error))}", path) from None
    request, response = stored.request, stored.response
    if response is None and stored.error is None:
        raise _bad(where, "it has neither a response nor an error", path)
    if response is not None and response.closed and stored.error is not None:
        raise _bad(where, "its response was both closed and broken", f"{path}.response.closed")
    answer = None
    if response is not None:
        pieces = tuple(map(_bytes, response.pieces))
        if b"" in pieces:
            raise _bad(
                where, "a piece is empty; each must have at least one byte", f"{path}.response.pieces[{pieces.index(b'')}]"
            )
        answer = RecordedAnswer(response.status, response.headers, pieces, response.closed)
    return RecordedExchange(request.method, request.url, request.headers, _body(request, where, path), answer, stored.error)


def _check_version(document: bytes, where: str, path: str) -> None:
    try:
        version = _headers.decode(document).evener_cassette
    except (msgspec.DecodeError, RecursionError) as error:
        why = f'it does not begin with {{"evener_cassette": {VERSION}: {short(str(error))}'
        raise BadDocument(f"{where} is not a recorded exchange: {why}. Check that it is the right file.", path=path) from None
    if version != VERSION:
        advice = "Update Evener to read it" if version > VERSION else f"The first version is {VERSION}; correct it"
        raise BadDocument(
            f"{where} has version {version}, and this Evener reads version {VERSION}. {advice}, or record it again.",
            path=f"{path}.evener_cassette",
        )


def _body(request: _Request, where: str, path: str) -> bytes:
    match request:
        case _Request(json=Raw() as value, text=UnsetType(), base64=UnsetType()):
            return bytes(value)
        case _Request(json=UnsetType(), text=str(text), base64=UnsetType()):
            return text.encode()
        case _Request(json=UnsetType(), text=UnsetType(), base64=bytes(content)):
            return content
    raise _bad(where, "its request must have exactly one of json, text and base64", f"{path}.request")


def _bad(where: str, why: str, path: str = "") -> BadDocument:
    return BadDocument(f"Cannot read {where}: {why.rstrip('.')}. Correct it there, or record it again.", path=path)
