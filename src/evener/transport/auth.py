"""How credentials get onto a request. Applied to each try, so that a fresh token or signature is made for a retry."""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from msgspec.structs import replace

from evener.transport.exchange import Request
from evener.transport.secrets import note_secret

__all__ = ["Auth", "bearer", "header", "query"]

Headers = tuple[tuple[str, str], ...]
Auth = Callable[[Request], Request | Awaitable[Request]]
"""Gives the request with credentials. May look at all of it: a signature covers method, address, headers and body."""


def bearer(key: str) -> Auth:
    """`Authorization: Bearer <key>`."""
    return header("authorization", f"Bearer {key}")


def header(name: str, value: str) -> Auth:
    """A header with this value, in place of any that has its name."""
    lower = name.lower()
    note_secret(value.rpartition(" ")[2])

    last: tuple[Headers, Headers] = ((), ((name, value),))

    def sign(request: Request) -> Request:
        nonlocal last
        before, after = last
        if request.headers != before:  # one endpoint's requests have the same ones
            after = (*(pair for pair in request.headers if pair[0].lower() != lower), (name, value))
            last = (tuple(request.headers), after)  # they may come as a list
        return Request(request.url, after, request.body, request.method, request.deadlines, request.reach)

    return sign


def query(name: str, value: str) -> Auth:
    """A parameter of the address."""
    note_secret(value)

    def sign(request: Request) -> Request:
        mark = "&" if "?" in request.url else "?"
        return replace(request, url=f"{request.url}{mark}{quote(name, safe='')}={quote(value, safe='')}")

    return sign
