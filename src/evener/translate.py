"""Moves one request from a provider's wire to another's, offline, and says what was lost on the way. No I/O."""

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec.structs import replace

from evener.errors import BadDocument, UsageError
from evener.providers.rows import Provider, Rows, load_rows
from evener.transcript.ask import Ask
from evener.transcript.blocks import Origin
from evener.transcript.loss import Loss, loss_of, refuse, refused_codes
from evener.transcript.scan import repeated_key
from evener.wire import CODECS, Codec, Encoded

__all__ = ["origin", "retarget", "translate"]


def translate(
    body: bytes, *, source: str, target: str, model: str = "", rows: Rows | None = None, refuse_losses: Iterable[str] = ()
) -> Encoded:
    """Return the request in the form of another wire. `source` and `target` are names of wires or of provider rows.

    Without `model` the request keeps its model name; a loss reports that another provider may not know it. `refuse_losses` has
    codes of losses, prefixes or kinds: LossRefused is raised if the request has such a loss.
    """
    refused = refused_codes(refuse_losses)
    rows = rows or load_rows()
    _refuse_repeated(body)
    old, new = _provider(source, rows), _provider(target, rows)
    ask = read(body, old, rows)
    named = model or ask.target.model
    if not named:
        raise UsageError("The request names no model, and none was given. Name the model to ask with --model.")
    if not ask.target.model and old.wire == new.wire:
        ask = read(body, old, rows, named)  # where the model stands in the path, the seals are of the one that is asked
    encoded = _codec(new).encode(retarget(ask, origin(new, named)), rows.quirks(new.name, named), None)
    if not model and old.wire != new.wire:
        encoded = replace(encoded, losses=(_unknown_model(named, old, new), *encoded.losses))
    refuse(encoded.losses, refused)
    return encoded


def _unknown_model(named: str, old: Provider, new: Provider) -> Loss:
    why = f"{named!r} was kept, but it is a model of {old.name}; name one of {new.name}"
    return loss_of("degraded", "model", why)


def read(body: bytes, provider: Provider, rows: Rows, model: str = "") -> Ask:
    """Return the ask of a request to this provider. `model` is for wires whose requests do not contain the model."""
    ask = _codec(provider).read_request(body, provider.quirks, origin(provider, model))
    quirks = rows.quirks(provider.name, ask.target.model)
    return ask if quirks == provider.quirks else _codec(provider).read_request(body, quirks, origin(provider, model))


def origin(provider: Provider, model: str) -> Origin:
    """Return this provider and model as the origin of messages or the target of asks."""
    return Origin(wire=provider.wire, provider=provider.vendor or provider.name, model=model)


def retarget(ask: Ask, target: Origin) -> Ask:
    """Return the same ask for another endpoint. Seals stay on their blocks, and are sent where they are valid.

    If an effort was set for a model that thinks by default, thinking is switched on for the new target.
    """
    wish = ask.reasoning
    if ask.target.wire != target.wire and wish.mode == "default" and wish.effort is not None:
        wish = replace(wish, mode="auto")
    return replace(ask, target=target, reasoning=wish)


def _refuse_repeated(body: bytes) -> None:
    """Refuse a request with a repeated key: its meaning is ambiguous, and the decoders would silently use the last value."""
    try:
        twice = repeated_key(body.decode())
    except (ValueError, RecursionError):
        return  # not JSON: the reader says so better
    if twice is not None:
        raise BadDocument(f"The request has the key {twice!r} twice. Remove one of them.")


def _provider(name: str, rows: Rows) -> Provider:
    """Return the row of this name. For the name of a wire, return the first row of that wire."""
    if name in CODECS:
        return next(provider for provider in rows.providers if provider.wire == name)
    is_row = any(provider.name == name for provider in rows.providers)
    if not is_row and (near := get_close_matches(name, CODECS, n=1, cutoff=0.75)):
        raise UsageError(f"There is no wire {name!r}. Did you mean {near[0]}? `evener models --providers` lists the providers.")
    return rows.provider(name)


def _codec(provider: Provider) -> Codec:
    codec = CODECS.get(provider.wire)
    if codec is None:
        raise UsageError(f"Provider {provider.name!r} speaks {provider.wire!r}, which is unknown. Known: {', '.join(CODECS)}.")
    return codec
