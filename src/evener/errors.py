"""The one error tree. Every message says what happened, what was expected, and what to do next.

    EvenerError
      UsageError              the caller used the library wrongly; nothing happened
        BadValue              a value that cannot exist: wrong type, lone surrogate, unknown role
        BadDocument           a stored document that cannot be read: unknown version or key, duplicate keys, too deep
        BadRow                a provider or model row that cannot be read
      ProviderError           the provider answered with an error
        AuthFailed, PermissionDenied, RateLimited, QuotaExceeded, Overloaded, InvalidRequest,
        ContextTooLong, ModelNotFound, StateExpired, ServerError
      TransportError          the answer did not arrive
        ConnectFailed, TimedOut, TruncatedStream
      WireError               bytes that do not follow the protocol
      LimitReached            a limit of the run
      ApprovalStale           a decision about something that has changed
      StoreError              the log could not be read or written

A failed tool is a result and an approval pause is a state: neither is an exception.
A message never contains a secret.
"""

__all__ = [
    "ApprovalStale",
    "AuthFailed",
    "BadDocument",
    "BadRow",
    "BadValue",
    "ConnectFailed",
    "ContextTooLong",
    "EvenerError",
    "InvalidRequest",
    "LimitReached",
    "ModelNotFound",
    "Overloaded",
    "PermissionDenied",
    "ProviderError",
    "QuotaExceeded",
    "RateLimited",
    "ServerError",
    "StateExpired",
    "StoreError",
    "TimedOut",
    "TransportError",
    "TruncatedStream",
    "UsageError",
    "WireError",
]


class EvenerError(Exception):
    """The root. `retryable`: the same call may succeed later, unchanged.

    `thread` names the conversation of the run that this error ended, if it ended one: it can be resumed.
    """

    retryable: bool = False
    thread: str = ""


class UsageError(EvenerError):
    """The caller used the library wrongly. Nothing was sent, stored or changed."""


class BadValue(UsageError, ValueError):
    """A value that cannot exist. Also a ValueError, so that the code that builds the value can add its position."""


class BadDocument(UsageError):
    """A document that cannot be read in the stated format. Nothing of it was loaded.

    `path` is the position in it, as in `messages[3].blocks[0].text`; empty for the document itself.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class BadRow(UsageError):
    """A provider or model row that cannot be read."""


class ProviderError(EvenerError):
    """The provider answered with an error.

    `message` is the provider's own text; `status` is 0 when the error came inside a stream.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        where = f"HTTP {self.status}" if self.status else "in the stream"
        code = f", {self.code}" if self.code else ""
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} ({where}{code}{request}). {self.advice}"

    advice: str = "See the provider's documentation for this message."


class AuthFailed(ProviderError):
    advice = "Check the API key and that it belongs to this endpoint."


class PermissionDenied(ProviderError):
    advice = "The key is valid but may not do this; check the account's access to the model and feature."


class RateLimited(ProviderError):
    retryable = True
    advice = "Wait as long as `retry_after` says and try again."


class QuotaExceeded(ProviderError):
    advice = "The account's quota or budget is used up; waiting will not help, raising it will."


class Overloaded(ProviderError):
    retryable = True
    advice = "The provider is overloaded; try again later or use another model."


class InvalidRequest(ProviderError):
    advice = "The request itself is wrong; sending it again unchanged will fail again."


class ContextTooLong(ProviderError):
    """The prompt does not fit the model's window. `used` and `limit` are tokens, 0 when not stated."""

    advice = "Shorten or compact the conversation, or use a model with a larger window."

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        request_id: str = "",
        retry_after: float | None = None,
        used: int = 0,
        limit: int = 0,
    ) -> None:
        super().__init__(message, status=status, code=code, request_id=request_id, retry_after=retry_after)
        self.used = used
        self.limit = limit


class ModelNotFound(ProviderError):
    advice = "Check the model's name and that the account may use it."


class StateExpired(ProviderError):
    advice = "The provider no longer holds this state; send the whole conversation instead."


class ServerError(ProviderError):
    retryable = True
    advice = "The provider failed; try again later."


class TransportError(EvenerError):
    """The answer did not arrive. `begun`: a part of it did, so the request is not retried automatically."""

    retryable = True
    begun = False


class ConnectFailed(TransportError):
    """No connection could be made."""


class TimedOut(TransportError):
    """A deadline passed."""


class TruncatedStream(TransportError):
    """The stream ended before the provider's end marker: the turn does not count."""


class WireError(EvenerError):
    """Bytes that do not follow the protocol."""


class LimitReached(EvenerError):
    """A limit of the run was reached; the run can be resumed."""


class NoOutput(EvenerError):
    """The caller required an answer, and the run ended without one."""


class ApprovalStale(EvenerError):
    """A decision about a call that has changed since it was asked."""


class StoreError(EvenerError):
    """The log could not be read or written."""
