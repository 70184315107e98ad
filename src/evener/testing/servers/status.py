"""Answers other than a turn: HTTP errors, pages, nothing. Values; the wire adds its form of an error."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from evener.testing.servers.answer import HttpAnswer, Voice, json_bytes

_PAGE = "<html>\r\n<head><title>{0}</title></head>\r\n<body><center><h1>{0}</h1></center></body>\r\n</html>\r\n"
_HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"
_REASONS: Mapping[int, str] = {
    400: "The request is not valid.",
    401: "The API key is not valid.",
    402: "The credit balance is too low.",
    403: "This key may not do that.",
    404: "There is nothing here.",
    408: "The request took too long.",
    409: "The request conflicts with another one.",
    413: "Request exceeds the maximum size",
    422: "The request cannot be read.",
    429: "Rate limit reached. Slow down.",
    500: "Internal server error",
    503: "The service is not available at the moment.",
    504: "The deadline has passed.",
    529: "Overloaded",
}


class Status(msgspec.Struct, frozen=True):
    """An HTTP error in the provider's form; a 502 is the page of a proxy.

    `retry_after` is in seconds, or a time (sent as an HTTP date).
    """

    code: int
    message: str = ""
    retry_after: float | datetime | None = None
    headers: Mapping[str, str] = {}

    def answer(self, voice: Voice) -> HttpAnswer:
        """Return the answer as this wire gives it; so for all of these."""
        headers = (*self.headers.items(), *self._wait())
        if self.code == 502:
            return _page(self.code, "502 Bad Gateway", headers)
        wait = self.retry_after if isinstance(self.retry_after, int | float) else None
        body = voice.error(self.code, self.message or _REASONS.get(self.code, "Something went wrong."), wait=wait)
        kind = ("content-type", "application/json")
        named = (("request-id", str(body["request_id"])),) if "request_id" in body else ()
        return HttpAnswer(status=self.code, headers=(kind, *named, *headers), frames=(json_bytes(body),))

    def _wait(self) -> tuple[tuple[str, str], ...]:
        match self.retry_after:
            case None:
                return ()
            case datetime() as when:
                return (("retry-after", when.astimezone(UTC).strftime(_HTTP_DATE)),)
            case seconds:
                return (("retry-after", f"{seconds:g}"),)


class Html(msgspec.Struct, frozen=True):
    """A web page where JSON or events were expected."""

    code: int = 200
    title: str = "Sign in to the network"

    def answer(self, _voice: Voice) -> HttpAnswer:
        return _page(self.code, self.title, ())


class Empty(msgspec.Struct, frozen=True):
    """A head of the right type and no body at all."""

    code: int = 200

    def answer(self, voice: Voice) -> HttpAnswer:
        kind = "text/event-stream" if voice.streamed else "application/json"
        return HttpAnswer(status=self.code, headers=(("content-type", kind),), frames=())


class Redirect(msgspec.Struct, frozen=True):
    """A redirect to another address."""

    location: str = "/elsewhere"
    code: int = 307

    def answer(self, _voice: Voice) -> HttpAnswer:
        return HttpAnswer(status=self.code, headers=(("location", self.location),), frames=())


class Raw(msgspec.Struct, frozen=True):
    """These bytes as the body."""

    body: bytes
    code: int = 200
    content_type: str = "application/json"

    def answer(self, _voice: Voice) -> HttpAnswer:
        return HttpAnswer(status=self.code, headers=(("content-type", self.content_type),), frames=(self.body,))


def _page(code: int, title: str, headers: tuple[tuple[str, str], ...]) -> HttpAnswer:
    kind = ("content-type", "text/html; charset=utf-8")
    return HttpAnswer(status=code, headers=(kind, *headers), frames=(_PAGE.format(title).encode(),))


Instead = Status | Html | Empty | Redirect | Raw
