"""A provider's own data: whether it may be replayed to whom we ask, whether it is missed elsewhere, what of it can be read.

Pure; one rule for all wires, the deviations are quirks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from evener.transcript.origin import Origin, Seal
from evener.wire.quirks import Quirks
from evener.wire.text import dumps, fields, word

__all__ = ["MESSAGE", "line_of", "telling", "why_not_own", "why_shut"]

MESSAGE = "@message"
"""Where the seal of a block holds fields of its message, which has no seal of its own."""

# Fields that a provider keeps for its own books: nothing is lost where they cannot go.
BOOKKEEPING = ("@field", "@more", "id", "index", "object", "role", "status", "type")
EMPTY = (b"null", b"[]", b"{}", b'""')
HOLDERS = (MESSAGE, "item", "part", "message", "own")
"""Names under which a seal sorts its fields; the names below them are meant."""

LONGEST = 300
ASKED = ("action", "arguments", "code", "input", "queries", "query")  # what was asked for: of any shape
GIVEN = (  # what came of it: only these names are followed
    *("content", "output", "outputs", "results", "tools", "document"),
    *("name", "url", "title", "filename", "text", "logs", "stdout", "stderr", "error", "error_code", "message", "return_code"),
)
SECRET = re.compile(r"encrypted|signature|^data$|b64|base64")
OPAQUE = re.compile(r"data:.*|[A-Za-z0-9+/_=-]{64,}", re.DOTALL)

SCOPES: dict[str, tuple[str, ...]] = {
    "wire": ("wire",),
    "provider": ("wire", "provider", "endpoint"),
    "account": ("wire", "provider", "endpoint", "account"),
    "model": ("wire", "provider", "endpoint", "account", "model"),
}


def why_shut(seal: Seal, target: Origin, quirks: Quirks, chain: bytes) -> str:
    """Why this seal must stay behind, in words; empty when it may go."""
    why = why_not_own(seal.origin, target, quirks)
    if why:
        return why
    if quirks.prefix_bound and seal.binding and seal.binding != chain.hex():
        return "something before it has changed since it was made"
    return ""


def why_not_own(origin: Origin, target: Origin, quirks: Quirks) -> str:
    """Why what one has made is not for another, in words; empty when it is."""
    if origin == target:
        return ""
    made, asked = _facts(origin), _facts(target)
    for fact in SCOPES[quirks.seal_scope]:
        if made[fact] != asked[fact]:
            return f"it was made by another {fact} ({made[fact] or 'unknown'}, not {asked[fact] or 'unknown'})"
    return ""


def telling(data: str | msgspec.Raw) -> Iterator[str]:
    """The names of a seal's fields that say something, so that it is a loss when they stay behind."""
    for name, value in fields(data).items():
        if name in HOLDERS and bytes(value)[:1] == b"{":
            yield from telling(value)
        elif name not in BOOKKEEPING and bytes(value) not in EMPTY:
            yield name


def _facts(origin: Origin) -> dict[str, str]:
    return {
        "wire": origin.wire,
        "provider": origin.provider,
        "endpoint": origin.endpoint,
        "account": origin.account,
        "model": origin.model,
    }


def line_of(own: Mapping[str, msgspec.Raw], named: Iterable[str]) -> str:
    """The fields in `named` as words, then what was asked and what came of it."""
    named = tuple(named)
    head = " ".join(found for name in named if (found := word(own.get(name))))
    said = {name: msgspec.json.decode(value) for name, value in own.items() if name not in named}
    words = "; ".join(_words(said))
    line = f"{head}: {words}" if words else head
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def _words(value: object) -> Iterator[str]:
    match value:
        case str():
            if value.strip() and not OPAQUE.fullmatch(value):
                yield value
        case list():
            for one in value:
                yield from _words(one)
        case dict():
            for name, one in value.items():
                if name in ASKED:
                    yield from _words(_asked(one))
                elif name in GIVEN:
                    yield from _words(one)
        case int() | float():
            yield dumps(value).decode()
        case _:
            return


def _asked(value: object) -> str:
    clean = _clean(value)
    return clean if isinstance(clean, str) else dumps(clean).decode() if clean else ""


def _clean(value: object) -> object:
    """The value without anything that nobody can read."""
    match value:
        case dict():
            return {name: _clean(one) for name, one in value.items() if not SECRET.search(str(name))}
        case list():
            return [_clean(one) for one in value]
        case str():
            return "..." if OPAQUE.fullmatch(value) else value
        case _:
            return value
