"""The interface between the HTTP part and the four wires: what a fake provider must implement. A protocol and its values."""

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from evener.testing.check import Violation
from evener.testing.servers.answer import HttpAnswer, Voice
from evener.testing.servers.turn import Turn


class Mint:
    """Counts up from a secret seed; the same seed gives the same names in the same order."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed or secrets.token_hex(16)
        self._count = 0

    def id(self, prefix: str, length: int = 24) -> str:
        """Return a fresh name of `length` letters and digits after the prefix."""
        return prefix + self._next().hex()[:length]

    def seal(self) -> str:
        """Return a fresh opaque value as a provider would make it: long, and base64."""
        return base64.b64encode(self._next() + self._next()).decode()

    def _next(self) -> bytes:
        self._count += 1
        return hashlib.sha512(f"{self._seed}:{self._count}".encode()).digest()


class Received(msgspec.Struct, frozen=True):
    """One request as it arrived. `path` is the whole target, including the query; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def route(self) -> str:
        """The path without the query, and without a slash at its end."""
        return urlsplit(self.path).path.rstrip("/")

    @property
    def query(self) -> dict[str, str]:
        """The query, one value a name."""
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object; empty when it is something else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def __repr__(self) -> str:
        """Leave out header values, query and body: each may contain a key."""
        return f"Received({self.method} {self.route}, {len(self.body)} bytes)"


class RequestRoute(msgspec.Struct, frozen=True):
    """The target of a request for an answer: the model, and whether the answer is streamed."""

    model: str
    streamed: bool


class Rejected(msgspec.Struct, frozen=True):
    """A request that the provider would refuse, and why."""

    request: Received
    violations: tuple[Violation, ...]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a fake provider.

    `models`: its models (none: any). `issued`: seals that it accepts besides its own, with their texts. `seed`: of ids and
    seals. Without `retention` nothing is stored for this account, and nothing stored can be referred to.
    """

    models: tuple[str, ...] = ()
    dialect: str = ""
    prefix_bound: bool = True
    issued: Mapping[str, str] = {}
    key: str = ""
    seed: str = ""
    retention: bool = True


class Refused(msgspec.Struct, frozen=True):
    """A refusal, and the reason; without violations, the form of the request is not the cause (a wrong key, an unknown
    model).
    """

    answer: HttpAnswer
    violations: tuple[Violation, ...] = ()


class Wire(Protocol):
    """One fake provider: remembers what it issued and stored. Never uses a socket."""

    @property
    def base(self) -> str:
        """The path of the base URL, after the host."""
        ...

    @property
    def stamp(self) -> str:
        """The header with the id of the request that every answer has; empty where there is none."""
        ...

    def voice(self, *, streamed: bool) -> Voice: ...

    def unlock(self, received: Received) -> Refused | None:
        """Return the refusal of a request whose key is wrong."""
        ...

    def serve(self, received: Received) -> HttpAnswer | None:
        """Return the answer to a request that needs no script, such as a list of models or stored items; None for others."""
        ...

    def route(self, received: Received) -> RequestRoute | None:
        """Return where a request for an answer leads; None for an unknown address."""
        ...

    def judge(self, received: Received, route: RequestRoute) -> Refused | None:
        """Return the refusal of a request that the provider would not take."""
        ...

    def say(self, received: Received, route: RequestRoute, turn: Turn) -> HttpAnswer:
        """Return the turn in this wire's format. Ids and seals that it issues are remembered."""
        ...


def body_route(received: Received, *paths: str) -> RequestRoute | None:
    """Return where a request leads whose body names the model; None when it is posted to none of the paths."""
    if received.method != "POST" or received.route not in paths:
        return None
    model = received.json.get("model")
    return RequestRoute(model if isinstance(model, str) else "", received.json.get("stream") is True)


def bearer(received: Received) -> str:
    """Return the token of an Authorization header."""
    scheme, _, token = received.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def listed(models: Sequence[str]) -> tuple[str, ...]:
    """Return the models to list when asked: those it has, or one with a telling name."""
    return tuple(models) or ("fake-model",)
