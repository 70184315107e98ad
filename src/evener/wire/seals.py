"""Decides whether a seal may be replayed to whom we ask. Pure; one rule for all wires, the deviations are quirks."""

from evener.transcript.origin import Origin, Seal
from evener.wire.quirks import Quirks

__all__ = ["why_shut"]

SCOPES: dict[str, tuple[str, ...]] = {
    "wire": ("wire",),
    "provider": ("wire", "provider", "endpoint"),
    "account": ("wire", "provider", "endpoint", "account"),
    "model": ("wire", "provider", "endpoint", "account", "model"),
}


def why_shut(seal: Seal, target: Origin, quirks: Quirks, chain: bytes) -> str:
    """Why this seal must stay behind, in words; empty when it may go."""
    made = _facts(seal.origin)
    asked = _facts(target)
    for fact in SCOPES[quirks.seal_scope]:
        if made[fact] != asked[fact]:
            return f"it was made by another {fact} ({made[fact] or 'unknown'}, not {asked[fact] or 'unknown'})"
    if quirks.prefix_bound and seal.binding and seal.binding != chain.hex():
        return "something before it has changed since it was made"
    return ""


def _facts(origin: Origin) -> dict[str, str]:
    return {
        "wire": origin.wire,
        "provider": origin.provider,
        "endpoint": origin.endpoint,
        "account": origin.account,
        "model": origin.model,
    }
