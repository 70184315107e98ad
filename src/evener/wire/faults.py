"""Typed errors from a status, codes and a message. Tables shared by all wires; no vendor is named here. Pure."""

import re
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from evener import errors as e
from evener.transcript.delta import Failed

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
    498: e.Overloaded,
    499: e.Overloaded,
    500: e.ServerError,
    502: e.ServerError,
    503: e.Overloaded,
    504: e.ServerError,
    529: e.Overloaded,
}

BY_CODE: dict[str, type[e.ProviderError]] = {
    "API_KEY_INVALID": e.AuthFailed,
    "CANCELLED": e.InvalidRequest,
    "DEADLINE_EXCEEDED": e.ServerError,
    "FAILED_PRECONDITION": e.InvalidRequest,
    "INTERNAL": e.ServerError,
    "INVALID_ARGUMENT": e.InvalidRequest,
    "NOT_FOUND": e.ModelNotFound,
    "PERMISSION_DENIED": e.PermissionDenied,
    "RESOURCE_EXHAUSTED": e.RateLimited,
    "UNAUTHENTICATED": e.AuthFailed,
    "UNAVAILABLE": e.Overloaded,
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
"""Codes and error types that are more specific than the status."""

REFINED: dict[type[e.ProviderError], frozenset[type[e.ProviderError]]] = {
    e.InvalidRequest: frozenset(
        {e.AuthFailed, e.ContextTooLong, e.ModelNotFound, e.PermissionDenied, e.QuotaExceeded, e.StateExpired}
    ),
    e.AuthFailed: frozenset({e.PermissionDenied, e.QuotaExceeded}),
    e.QuotaExceeded: frozenset(),
    e.PermissionDenied: frozenset({e.AuthFailed, e.ModelNotFound, e.QuotaExceeded}),
    e.ModelNotFound: frozenset({e.AuthFailed, e.InvalidRequest, e.PermissionDenied, e.StateExpired}),
    e.RateLimited: frozenset({e.ContextTooLong, e.Overloaded, e.QuotaExceeded}),
    e.ServerError: frozenset({e.ContextTooLong, e.Overloaded, e.QuotaExceeded, e.RateLimited, e.StateExpired}),
    e.Overloaded: frozenset({e.ContextTooLong, e.QuotaExceeded, e.RateLimited, e.ServerError}),
}
"""The status decides the class of an error. The body may refine it to one of these classes and no other: a 401 is never
a server error, whatever its code is."""

ALSO: dict[int, frozenset[type[e.ProviderError]]] = {
    409: frozenset({e.InvalidRequest}),
    413: frozenset({e.RateLimited}),
    499: frozenset({e.InvalidRequest}),
}
"""Further classes for a status of several meanings: a conflict that a retry does not resolve, a request that is too large for
the quota of a minute, a request that the client abandoned."""

TOO_LONG = (
    re.compile(r"prompt is too long: (\d+) tokens > (\d+)"),
    re.compile(r"exceed context limit: (\d+) \+ \d+ > (\d+)"),
    re.compile(r"[Ii]nput is too long"),
    re.compile(r"exceeds the context window"),
    re.compile(r"maximum context length is (?P<limit>\d+) tokens"),
    re.compile(r"input token count \((\d+)\) exceeds the maximum number of tokens allowed \((\d+)\)"),
    re.compile(r"Prompt contains (\d+) tokens.*too large for model with (\d+) maximum context length"),
    re.compile(r"maximum prompt length is (?P<limit>\d+) but the request contains (?P<used>\d+) tokens"),
    re.compile(r"exceeded model token limit: (?P<limit>\d+) \(requested: (?P<used>\d+)\)"),
    re.compile(r"prompt token count of (\d+) exceeds the limit of (\d+)"),
    re.compile(r"[Pp]lease reduce the length of the messages or completion"),
    re.compile(r"context window exceeds limit"),
    re.compile(r"\((\d+) tokens\) exceeds the available context size \((\d+) tokens"),
    re.compile(r"exceeds the available context size"),
    re.compile(r"greater than the context length"),
)
LOST_STATE = re.compile(
    r"(Previous response|[Cc]onversation|Item) with id .* not found|Zero Data Retention|[Ss]tore must be set to false"
)
NO_MODEL = re.compile(r"^model: |[Mm]odel .*(does not exist|not found)")
MOST_DIGITS = 15
SPENT = re.compile(r"spend limit|credit balance is too low")


class Complaint(msgspec.Struct, frozen=True):
    """A provider's report of an error: its message and its codes, the most specific first. `wait` is in seconds."""

    message: str
    codes: tuple[str, ...] = ()
    status: int = 0
    request_id: str = ""
    wait: float | None = None


class _Details(msgspec.Struct):
    error_code: str | None = None


class _Quota(msgspec.Struct):
    quotaId: str | None = None  # noqa: N815 - the wire's own spelling


class _Detail(msgspec.Struct):
    """One of several details: a reason, a time to wait, or the quotas that are used up."""

    reason: str | None = None
    retryDelay: str | None = None  # noqa: N815
    violations: list[_Quota] | None = None

    def codes(self) -> list[str]:
        """Return the codes of the detail. A quota for a day is not a rate limit: it does not recover within minutes."""
        daily = [quota.quotaId for quota in self.violations or () if quota.quotaId and "PerDay" in quota.quotaId]
        return [*([self.reason] if self.reason else ()), *daily, *(["insufficient_quota"] if daily else ())]


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    status: str | int | None = None
    details: _Details | list[msgspec.Raw] | str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"null")

    def codes(self) -> tuple[str, ...]:
        """Return all codes that name the error, the most specific first."""
        told = [self.details.error_code] if isinstance(self.details, _Details) else []
        told += (code for detail in self.several() for code in detail.codes())
        told += [self.status, _word(self.code)] if isinstance(self.status, str) else [_word(self.code)]
        return tuple(word for word in (*told, self.type, _word(self.status)) if word)

    def several(self) -> list[_Detail]:
        """Return the details of a list that are of a known shape."""
        found = []
        for raw in self.details if isinstance(self.details, list) else ():
            with suppress(msgspec.ValidationError):
                found.append(_details.decode(raw))
        return found

    def words(self) -> str:
        """Return the message, followed by that of the upstream provider if this one is a relay."""
        said = self.message or self.type or ""
        with suppress(msgspec.ValidationError):
            passed = _relayed.decode(self.metadata)
            inner = complaint_of(passed.raw.encode()) if passed else None
            told = inner.message if inner else passed.raw if passed else ""
            return f"{said}: {told}" if told else said
        return said

    def wait(self) -> float | None:
        """Return the seconds to wait, if a detail states them: `17s`."""
        stated = [detail.retryDelay.removesuffix("s") for detail in self.several() if detail.retryDelay]
        return _read_number(stated[0], 1) if stated else None


class _Relayed(msgspec.Struct):
    """The error of an upstream provider, passed on by a relaying provider: a text, often JSON."""

    raw: str = ""


class _Flaw(msgspec.Struct):
    """A validator's report about one field."""

    msg: str = ""
    loc: list[str | int] = []


class _Body(msgspec.Struct):
    """An HTTP error, an `error` event or a failed answer: the error is an object, a text, or the body itself."""

    error: _Error | str | None = None
    message: str | None = None
    detail: str | list[_Flaw] | None = None
    code: str | int | None = None
    request_id: str | None = None


_bodies = msgspec.json.Decoder(_Body | list[_Body])
_details = msgspec.json.Decoder(_Detail)
_relayed = msgspec.json.Decoder(_Relayed | None)


def make_error(complaint: Complaint, headers: Mapping[str, str]) -> e.ProviderError:
    """Return the typed error for a complaint."""
    lower = {name.lower(): value for name, value in headers.items()}
    code = next((code for code in complaint.codes if code), "")
    request = complaint.request_id or lower.get("request-id") or lower.get("x-request-id") or ""
    wait = complaint.wait if complaint.wait is not None else _read_wait(lower)
    kind = _choose_class(complaint)
    if kind is e.ContextTooLong:
        used, limit = _read_sizes(complaint.message)
        error: e.ProviderError = e.ContextTooLong(
            complaint.message, status=complaint.status, code=code, request_id=request, used=used, limit=limit
        )
    else:
        error = kind(complaint.message, status=complaint.status, code=code, request_id=request, retry_after=wait)
    if lower.get("x-should-retry") in ("true", "false"):
        error.retryable = lower["x-should-retry"] == "true"
    return error


def complaint_of(body: bytes, status: int = 0) -> Complaint | None:
    """Return the error in a body, in any of the known shapes; None if there is none."""
    try:
        read = _bodies.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(read, list):
        read = read[0] if read else _Body()
    request = read.request_id or ""
    if isinstance(read.error, _Error):
        said = read.error
        words, codes = said.words(), said.codes()
        return Complaint(words, codes, status, request, said.wait()) if words or codes else None
    detail = read.detail
    if isinstance(detail, list):
        detail = "; ".join(f"{'.'.join(map(str, flaw.loc))}: {flaw.msg}" for flaw in detail)
    message = read.error or read.message or detail
    return Complaint(message, (_word(read.code),), status, request) if message else None


def fault(status: int, headers: Mapping[str, str], body: bytes) -> e.ProviderError:
    """Return the typed error for an HTTP answer that is not a 200; an error page of a proxy is quoted unchanged."""
    complaint = complaint_of(body, status)
    if complaint is None:
        text = _explain_redirect(status, headers) or body[:500].decode(errors="replace").strip()
        complaint = Complaint(text or "The provider gave no explanation.", status=status)
    return make_error(complaint, headers)


def read_failure(frame: bytes) -> Failed:
    """Return the end of a stream in which the provider reports an error."""
    complaint = complaint_of(frame)
    said = e.WireError("The stream reported an error without a message. Ask again.")
    return Failed(make_error(complaint, {}) if complaint else said)


def _explain_redirect(status: int, headers: Mapping[str, str]) -> str:
    """Explain a redirect; empty for any other status. The query of its target may contain a secret and is left out."""
    if not 300 <= status < 400:
        return ""
    target = re.split(r"[?#]", headers.get("location", ""))[0][:200]
    return f"It redirects{f' to {target}' if target else ''}, and redirects are not followed. Check the address (base_url)"


def _word(code: str | int | None) -> str:
    return "" if code is None else str(code)


def _choose_class(complaint: Complaint) -> type[e.ProviderError]:
    """Return the class of an error: by its status, refined by its message and codes; without a status, by these alone."""
    said = _classify(complaint)
    status = complaint.status or _status_in(complaint.codes)
    if not status:
        return said or (e.InvalidRequest if "invalid_request_error" in complaint.codes else e.ServerError)
    base = BY_STATUS.get(status) or (e.InvalidRequest if status < 500 else e.ServerError)
    if said and (said in REFINED[base] or said in ALSO.get(status, ())):
        return said
    if base is e.ModelNotFound and complaint.status and not NO_MODEL.search(complaint.message):
        return e.ModelNotFound if "model" in complaint.message.lower() else e.InvalidRequest
    return base


def _classify(complaint: Complaint) -> type[e.ProviderError] | None:
    """Return the class by the message or the codes of an error; None if they determine none."""
    message = complaint.message
    if any(pattern.search(message) for pattern in TOO_LONG):
        return e.ContextTooLong
    if LOST_STATE.search(message):
        return e.StateExpired
    if SPENT.search(message):
        return e.QuotaExceeded
    return next((BY_CODE[code] for code in complaint.codes if code in BY_CODE), None)


def _status_in(codes: tuple[str, ...]) -> int:
    """Return the status that an error inside a stream would have had; 0 when no code is a status."""
    return next((int(code) for code in codes if len(code) == 3 and code.isdecimal()), 0)


def _read_sizes(message: str) -> tuple[int, int]:
    for pattern in TOO_LONG:
        match = pattern.search(message)
        if match:
            named = match.groupdict()
            if named:
                return _tokens(named.get("used", "")), _tokens(named["limit"])
            return (_tokens(match[1]), _tokens(match[2])) if pattern.groups == 2 else (0, 0)
    return 0, 0


def _tokens(digits: str) -> int:
    """Return a token count; 0 if there are too many digits."""
    return int(digits) if 0 < len(digits) <= MOST_DIGITS else 0


def _read_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait. A date is compared with the response's own `date` header, because this layer has no clock."""
    if "retry-after-ms" in headers:
        return _read_number(headers["retry-after-ms"], 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _read_number(value, 1)
    if seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime  # slow to load, and only needed if a server states a date

    try:
        passed = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (OverflowError, TypeError, ValueError):
        return None
    return max(0.0, passed.total_seconds())


def _read_number(text: str, divisor: int) -> float | None:
    try:
        return max(0.0, float(text) / divisor)
    except ValueError:
        return None
