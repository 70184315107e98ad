"""From a status, a code and a message to a typed error. Tables shared by all wires; nothing here knows a vendor. Pure."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from evener import errors as e

__all__ = ["Complaint", "complaint_of", "fault", "typed"]

BY_STATUS: dict[int, type[e.ProviderError]] = {
    400: e.InvalidRequest,
    401: e.AuthFailed,
    402: e.QuotaExceeded,
    403: e.PermissionDenied,
    404: e.ModelNotFound,
    408: e.ServerError,
    409: e.ServerError,
    413: e.InvalidRequest,
    422: e.InvalidRequest,
    429: e.RateLimited,
    500: e.ServerError,
    502: e.ServerError,
    503: e.Overloaded,
    504: e.ServerError,
    529: e.Overloaded,
}

BY_CODE: dict[str, type[e.ProviderError]] = {
    "api_error": e.ServerError,
    "authentication_error": e.AuthFailed,
    "billing_error": e.QuotaExceeded,
    "billing_hard_limit_reached": e.QuotaExceeded,
    "context_length_exceeded": e.ContextTooLong,
    "enforced_spend_limit_reached": e.QuotaExceeded,
    "insufficient_quota": e.QuotaExceeded,
    "invalid_api_key": e.AuthFailed,
    "model_not_found": e.ModelNotFound,
    "overloaded_error": e.Overloaded,
    "permission_error": e.PermissionDenied,
    "previous_response_not_found": e.StateExpired,
    "rate_limit_error": e.RateLimited,
    "rate_limit_exceeded": e.RateLimited,
    "server_error": e.ServerError,
    "timeout_error": e.ServerError,
}
"""Codes and error types that say more than the status does."""

TOO_LONG = (
    re.compile(r"prompt is too long: (\d+) tokens > (\d+)"),
    re.compile(r"exceed context limit: (\d+) \+ \d+ > (\d+)"),
    re.compile(r"[Ii]nput is too long"),
    re.compile(r"exceeds the context window"),
    re.compile(r"maximum context length is (?P<limit>\d+) tokens"),
)
LOST_STATE = re.compile(r"(Previous response|[Cc]onversation) with id .* not found")
NO_MODEL = re.compile(r"^model: |[Mm]odel .*(does not exist|not found)")
SPENT = re.compile(r"spend limit|credit balance is too low")


class Complaint(msgspec.Struct, frozen=True):
    """What a provider said went wrong: its words and its codes, the most telling first."""

    message: str
    codes: tuple[str, ...] = ()
    status: int = 0
    request_id: str = ""


class _Details(msgspec.Struct):
    error_code: str | None = None


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    status: str | int | None = None
    details: _Details | list[msgspec.Raw] | str | None = None

    def codes(self) -> tuple[str, ...]:
        """All that names the error, the most telling first."""
        detail = self.details.error_code if isinstance(self.details, _Details) else None
        return tuple(word for word in (detail, _word(self.code), self.type, _word(self.status)) if word)


class _Body(msgspec.Struct):
    """An HTTP error, an `error` event or a failed answer: the error is an object, a text, or stands at the top."""

    error: _Error | str | None = None
    message: str | None = None
    detail: str | None = None
    code: str | int | None = None
    request_id: str | None = None


_bodies = msgspec.json.Decoder(_Body | list[_Body])


def typed(complaint: Complaint, headers: Mapping[str, str]) -> e.ProviderError:
    """The error for a complaint."""
    lower = {name.lower(): value for name, value in headers.items()}
    code = next((code for code in complaint.codes if code), "")
    request = complaint.request_id or lower.get("request-id") or lower.get("x-request-id") or ""
    wait = _retry_after(lower)
    kind = _kind(complaint)
    if kind is e.ContextTooLong:
        used, limit = _sizes(complaint.message)
        error: e.ProviderError = e.ContextTooLong(
            complaint.message, status=complaint.status, code=code, request_id=request, used=used, limit=limit
        )
    else:
        error = kind(complaint.message, status=complaint.status, code=code, request_id=request, retry_after=wait)
    if lower.get("x-should-retry") in ("true", "false"):
        error.retryable = lower["x-should-retry"] == "true"
    return error


def complaint_of(body: bytes, status: int = 0) -> Complaint | None:
    """What a body complains about, in any of the shapes that are in use; None when it is no error."""
    try:
        read = _bodies.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(read, list):
        read = read[0] if read else _Body()
    request = read.request_id or ""
    if isinstance(read.error, _Error):
        return Complaint(read.error.message or read.error.type or "", read.error.codes(), status, request)
    message = read.error or read.message or read.detail
    return Complaint(message, (_word(read.code),), status, request) if message else None


def fault(status: int, headers: Mapping[str, str], body: bytes) -> e.ProviderError:
    """The typed error for an HTTP answer that is not a 200; a proxy's page, or nothing, is quoted as it is."""
    complaint = complaint_of(body, status)
    if complaint is None:
        text = body[:500].decode(errors="replace").strip()
        complaint = Complaint(text or "The provider gave no explanation.", status=status)
    return typed(complaint, headers)


def _word(code: str | int | None) -> str:
    return "" if code is None else str(code)


def _kind(complaint: Complaint) -> type[e.ProviderError]:
    message = complaint.message
    if any(pattern.search(message) for pattern in TOO_LONG):
        return e.ContextTooLong
    if LOST_STATE.search(message):
        return e.StateExpired
    if SPENT.search(message):
        return e.QuotaExceeded
    found = next((BY_CODE[code] for code in complaint.codes if code in BY_CODE), None)
    found = found or BY_STATUS.get(complaint.status)
    if found is e.ModelNotFound and complaint.status == 404 and not NO_MODEL.search(message):
        return e.ModelNotFound if "model" in message.lower() else e.InvalidRequest
    if found:
        return found
    return e.ServerError if complaint.status >= 500 or not complaint.status else e.InvalidRequest


def _sizes(message: str) -> tuple[int, int]:
    for pattern in TOO_LONG:
        match = pattern.search(message)
        if match:
            named = match.groupdict().get("limit")
            if named:
                return 0, int(named)
            return (int(match[1]), int(match[2])) if pattern.groups == 2 else (0, 0)
    return 0, 0


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait. A date is read against the answer's own `date` header: no clock here."""
    if "retry-after-ms" in headers:
        return _number(headers["retry-after-ms"], 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value, 1)
    if seconds is not None:
        return seconds
    try:
        passed = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, passed.total_seconds())


def _number(text: str, divisor: int) -> float | None:
    try:
        return max(0.0, float(text) / divisor)
    except ValueError:
        return None
