"""The seam between the HTTP part and the four wires: what a fake provider has to be able to do. A protocol and its values."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from evener.testing.check import Violation
from evener.testing.servers.answer import Answer, Voice
from evener.testing.servers.received import Received, Route
from evener.testing.servers.turn import Turn

__all__ = ["Refused", "Settings", "Wire"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a fake provider is set up.

    `models`: those it has (none: any). `issued`: seals it takes besides its own, with their text. `seed`: of ids and seals.
    Without `retention` nothing is kept for this account, and nothing that was kept can be referred to.
    """

    models: tuple[str, ...] = ()
    dialect: str = ""
    prefix_bound: bool = True
    issued: Mapping[str, str] = {}
    key: str = ""
    seed: str = ""
    retention: bool = True


class Refused(msgspec.Struct, frozen=True):
    """A refusal, and why; without violations it is no fault of the request's shape (a wrong key, an unknown model)."""

    answer: Answer
    violations: tuple[Violation, ...] = ()


class Wire(Protocol):
    """One fake provider: keeps what it issued and stored. Never touches a socket."""

    @property
    def base(self) -> str:
        """What belongs to the base URL besides the host."""
        ...

    @property
    def stamp(self) -> str:
        """The header with the id of the request that every answer has; empty where there is none."""
        ...

    def voice(self, *, streamed: bool) -> Voice: ...

    def unlock(self, received: Received) -> Refused | None:
        """The refusal of a request whose key is wrong."""
        ...

    def serve(self, received: Received) -> Answer | None:
        """The answer to what needs no script: lists of models, stored things."""
        ...

    def route(self, received: Received) -> Route | None:
        """Where a request for an answer leads; None for an unknown address."""
        ...

    def judge(self, received: Received, route: Route) -> Refused | None:
        """The refusal of a request that the provider would not take."""
        ...

    def say(self, received: Received, route: Route, turn: Turn) -> Answer:
        """The turn in this wire's shape; what it issues is remembered."""
        ...


def bearer(received: Received) -> str:
    """The token of an Authorization header."""
    scheme, _, token = received.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def listed(models: Sequence[str]) -> tuple[str, ...]:
    """The models to list when asked: those it has, or one with a telling name."""
    return tuple(models) or ("fake-model",)
