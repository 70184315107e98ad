"""What lies with a provider, and what went there, in words that can be compared: for the tests of the state modes."""

import json
from collections.abc import Iterable
from typing import Any

from evener.testing import FakeServer, Received

__all__ = ["asked", "essence", "inputs", "resting"]

Essence = tuple[str, ...]


def essence(items: Iterable[Any]) -> list[Essence]:
    """Each item by what it says: who speaks, which call, what comes of it. Ids of items and marks of their state aside."""
    return [_of(item) for item in items]


def _of(item: Any) -> Essence:
    match item.get("type", "message"):
        case "message":
            return (item["role"], _text(item["content"]))
        case "function_call":
            return ("call", item["call_id"], item["name"], item["arguments"])
        case "function_call_output":
            return ("output", item["call_id"], _text(item["output"]))
        case kind:
            return (kind, item.get("encrypted_content") or json.dumps(item))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text", part)) for part in content)


def asked(server: FakeServer) -> list[Received]:
    """The requests for an answer, those that were refused included."""
    return [received for received in server.requests if received.route == "/v1/responses"]


def inputs(server: FakeServer) -> list[list[Essence]]:
    """What each request for an answer said anew."""
    return [essence(received.json["input"]) for received in asked(server)]


def resting(server: FakeServer) -> list[str]:
    """What each request for an answer rested on; empty for nothing."""
    return [str(body.get("previous_response_id") or body.get("conversation") or "") for body in (r.json for r in asked(server))]
