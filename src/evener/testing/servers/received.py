"""What a fake server was sent, and what it made of it. Values; their repr shows no header and no body, since keys are there."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from evener.testing.check import Violation

__all__ = ["Received", "Rejected", "Route"]


class Received(msgspec.Struct, frozen=True):
    """One request as it came. `path` is the whole target, query included; names of headers are in lower case."""

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
        """Without header values, query and body: a key may be in each."""
        return f"Received({self.method} {self.route}, {len(self.body)} bytes)"


class Route(msgspec.Struct, frozen=True):
    """Where a request for an answer leads: which model is asked, and whether the answer is streamed."""

    model: str
    streamed: bool


class Rejected(msgspec.Struct, frozen=True):
    """A request that the provider would refuse, and why."""

    request: Received
    violations: tuple[Violation, ...]
