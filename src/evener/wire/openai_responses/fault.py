"""OpenAI's errors, over HTTP and inside a stream. Pure."""

from collections.abc import Mapping

import msgspec

from evener.errors import ProviderError
from evener.wire.faults import Complaint, typed, unreadable

__all__ = ["complaint_of", "fault"]


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class _Body(msgspec.Struct):
    """An HTTP error, an `error` event, or a failed response: the error is an object, or its fields stand at the top."""

    error: _Error | str | None = None
    message: str | None = None
    code: str | int | None = None
    detail: str | None = None


_decoder = msgspec.json.Decoder(_Body)


def complaint_of(body: bytes, status: int = 0) -> Complaint | None:
    """What the body complains about; None when it is not an error of this wire."""
    try:
        read = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    match read.error:
        case _Error(message, type, code):
            return Complaint(message or type or "", (_word(code), type or ""), status)
        case str(message):
            return Complaint(message, (_word(read.code),), status)
        case None:
            message = read.message or read.detail
            return Complaint(message, (_word(read.code),), status) if message else None


def _word(code: str | int | None) -> str:
    return "" if code is None else str(code)


def fault(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The typed error for an HTTP answer that is not a 200."""
    complaint = complaint_of(body, status)
    return typed(complaint, headers) if complaint else unreadable(status, headers, body)
