"""Strict fake providers on loopback, one per wire: they answer from a script, refuse what the real ones refuse, and fail on
request.

`FakeServer` loads asyncio, so it is loaded when it is used.
"""

from typing import TYPE_CHECKING

from evener.testing.servers import faults
from evener.testing.servers.status import Empty, Html, Raw, Redirect, Status
from evener.testing.servers.turn import Call, Native, Refusal, Text, Thinking, Tokens, Turn, turn
from evener.testing.servers.wire import Received, Rejected

if TYPE_CHECKING:
    from evener.testing.servers.server import FakeServer

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
    "Status",
    "Text",
    "Thinking",
    "Tokens",
    "Turn",
    "faults",
    "turn",
]


def __getattr__(name: str) -> object:
    if name != "FakeServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from evener.testing.servers.server import FakeServer

    return FakeServer
