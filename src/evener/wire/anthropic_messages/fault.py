"""Anthropic's errors, over HTTP and inside a stream. Pure."""

from collections.abc import Mapping

import msgspec

from evener.errors import ProviderError
from evener.wire.faults import Complaint, typed, unreadable

__all__ = ["complaint_of", "fault"]


class _Details(msgspec.Struct):
    error_code: str | None = None


class _Error(msgspec.Struct):
    message: str = ""
    type: str | None = None
    code: str | int | None = None
    details: _Details | None = None


class _Body(msgspec.Struct):
    error: _Error | str | None = None
    message: str | None = None
    request_id: str | None = None


_decoder = msgspec.json.Decoder(_Body)


def complaint_of(body: bytes, status: int = 0) -> Complaint | None:
    """What the body complains about; None when it is not an error of this wire."""
    try:
        read = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    request = read.request_id or ""
    match read.error:
        case _Error(message, type, code, details):
            codes = ((details.error_code or "") if details else "", type or "", "" if code is None else str(code))
            return Complaint(message, codes, status, request)
        case str(message):
            return Complaint(message, (), status, request)
        case None:
            return Complaint(read.message, (), status, request) if read.message else None


def fault(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The typed error for an HTTP answer that is not a 200."""
    complaint = complaint_of(body, status)
    return typed(complaint, headers) if complaint else unreadable(status, headers, body)
