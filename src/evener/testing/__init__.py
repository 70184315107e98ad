"""Tools for testing against Evener and the providers it speaks to. Light to import; nothing here opens a connection.

The fake servers do, once they are started. They load what they need, and are themselves loaded, when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evener.testing.check import Violation, check_request
from evener.testing.scripted import ScriptedCompleter

if TYPE_CHECKING:
    from evener.testing.servers import (
        Call,
        Empty,
        FakeServer,
        Html,
        Native,
        Raw,
        Received,
        Redirect,
        Refusal,
        Rejected,
        Status,
        Text,
        Thinking,
        Tokens,
        Turn,
        faults,
        turn,
    )

__all__ = [
    "Call",
    "Empty",
    "FakeServer",
    "Html",
    "Native",
    "Raw",
    "Received",
    "Redirect",
    "Refusal",
    "Rejected",
    "ScriptedCompleter",
    "Status",
    "Text",
    "Thinking",
    "Tokens",
    "Turn",
    "Violation",
    "check_request",
    "faults",
    "turn",
]


def __getattr__(name: str) -> object:
    servers = import_module("evener.testing.servers")
    if name in servers.__all__:
        found: object = getattr(servers, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
