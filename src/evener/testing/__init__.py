"""Tools for tests with Evener and providers. Light to import; nothing here opens a connection.

The fake servers do so once they are started. They are loaded when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evener.testing.check import Violation, check_request
from evener.testing.scripted import ScriptedCompleter

if TYPE_CHECKING:
    from evener.testing.computer import FakeComputer
    from evener.testing.scripted_model import ScriptedModel, calls, says
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
    from evener.testing.transports import FakeAnswer, FakeTransport, Gate
    from evener.transport.cassette.recorder import CassetteMiss, open_cassette

__all__ = [
    "Call",
    "CassetteMiss",
    "Empty",
    "FakeAnswer",
    "FakeComputer",
    "FakeServer",
    "FakeTransport",
    "Gate",
    "Html",
    "Native",
    "Raw",
    "Received",
    "Redirect",
    "Refusal",
    "Rejected",
    "ScriptedCompleter",
    "ScriptedModel",
    "Status",
    "Text",
    "Thinking",
    "Tokens",
    "Turn",
    "Violation",
    "calls",
    "check_request",
    "faults",
    "open_cassette",
    "says",
    "turn",
]


_HOMES = {
    "evener.testing.servers": (
        "Call Empty FakeServer Html Native Raw Received Redirect Refusal Rejected Status Text Thinking Tokens Turn faults turn"
    ),
    "evener.testing.computer": "FakeComputer",
    "evener.testing.scripted_model": "ScriptedModel calls says",
    "evener.testing.transports": "FakeAnswer FakeTransport Gate",
    "evener.transport.cassette.recorder": "CassetteMiss open_cassette",
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names.split():
            found: object = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
