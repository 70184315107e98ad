"""What the fakes of Responses and Chat share: errors in OpenAI's shape, keys, models. Sections 12 and 8 of their sheets."""

from collections.abc import Mapping, Sequence

from evener.testing.check import Violation
from evener.testing.servers.answer import HttpAnswer, whole
from evener.testing.servers.wire import Mint, Received, Refused, ServerSettings, bearer, listed

Json = dict[str, object]

_TYPES: Mapping[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("request_forbidden", "unsupported_country_region_territory"),
    429: ("requests", "rate_limit_exceeded"),
}
# What the check calls a rule, and the code the API gives for it.
_CODES: Mapping[str, str] = {
    "missing": "missing_required_parameter",
    "extra_field": "unknown_parameter",
    "enum": "invalid_value",
    "type": "invalid_type",
    "effort": "unsupported_value",
    "sampling.reasoning": "unsupported_parameter",
    "reasoning.altered": "invalid_encrypted_content",
}
_NO_KEY = "You didn't provide an API key. Provide it in an Authorization header (Authorization: Bearer YOUR_KEY)."


def error_body(status: int, said: str, *, param: str | None = None, code: str | None = None) -> Json:
    """Return the body of an HTTP error."""
    kind, usual = _TYPES.get(status, ("invalid_request_error" if status < 500 else "server_error", None))
    return {"error": {"message": said, "type": kind, "param": param, "code": code or usual}}


def refused(violations: Sequence[Violation]) -> Refused:
    """Return a 400 for the first of these."""
    first = violations[0]
    body = error_body(400, first.message, param=first.path or None, code=_CODES.get(first.rule))
    return Refused(whole(400, body), tuple(violations))


class OpenAIWire:
    """What the fakes of both wires answer alike: wrong keys, and questions about models."""

    base = "/v1"
    stamp = "x-request-id"

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._mint = Mint(settings.seed)

    def unlock(self, received: Received) -> Refused | None:
        """Return the refusal of a wrong key. Azure's own header counts, too."""
        offered = bearer(received) or received.headers.get("api-key", "")
        if not self._settings.key or offered == self._settings.key:
            return None
        shown = f"Incorrect API key provided: {offered[:2]}***." if offered else _NO_KEY
        return Refused(whole(401, error_body(401, shown)))

    def serve(self, received: Received) -> HttpAnswer | None:
        """Return the list of models, and each of them."""
        if received.method != "GET":
            return None
        entries: list[Json] = [
            {"id": name, "object": "model", "created": 1767225600, "owned_by": "evener"}
            for name in listed(self._settings.models)
        ]
        if received.route == "/v1/models":
            return whole(200, {"object": "list", "data": entries})
        name = received.route.removeprefix("/v1/models/")
        return next((whole(200, entry) for entry in entries if entry["id"] == name), None)
