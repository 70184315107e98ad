"""Reads the fields of one row strictly: a wrong key, type or value is a BadRow that says where, what and what to do.

Takes tables that are already parsed; does no I/O. Values that might be secrets are never repeated in a message.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from types import GenericAlias, UnionType
from typing import get_args, get_origin

import msgspec

from evener.errors import BadRow
from evener.transcript.blocks import CacheTtl
from evener.wire import CODECS
from evener.wire.efforts import SCALE
from evener.wire.quirks import Quirks

__all__ = ["NAME", "PLACEHOLDER", "Place", "Table", "model_fields", "provider_fields"]

Table = dict[str, object]
Kind = type | GenericAlias | UnionType

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
SECRET = re.compile(
    r"(?:^|.*[_-])(?:api|access|auth|private)[_-]?(?:key|token)s?|(?:key|token|credential|authorization|bearer)s?|.*(?:secret|passw).*"
)
URL = re.compile(r"https?://(?:[\w.{}-]+|\[[0-9a-f:]+\])(?::\d+)?(?:/[\w.{}~-]+)*", re.ASCII)
PATH = re.compile(r"(?:/(?:[\w.:~-]|\{model\})+)*", re.ASCII)
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
HEADER = re.compile(r"[a-z0-9-]+")
PREFIX = re.compile(r"(?:[A-Za-z-]+ )?")
PATTERN = re.compile(r"(?:[\w.:/@+*?-]|\[!?[\w.:+-]+\])+", re.ASCII)
WORDS: dict[object, str] = {
    bool: "true or false",
    int: "a whole number, 0 or more",
    str: "a text in quotes",
    tuple: "a list of texts",
    dict: "a table",
}


class Place(msgspec.Struct, frozen=True):
    """Where in which file a value stands; all that an error needs to say."""

    file: str
    row: str
    field: str = ""

    def at(self, field: str) -> "Place":
        """A field of this place."""
        return Place(self.file, self.row, f"{self.field}.{field}" if self.field else field)

    def bad(self, what: str, do: str) -> BadRow:
        """The error, to be raised."""
        where = ", ".join(part for part in (self.file, self.row, self.field and f"field {self.field!r}") if part)
        return BadRow(f"{where}: {what}. {do}.")


Check = Callable[[Place, object], None]


def provider_fields(place: Place, value: object) -> Table:
    """The stated fields of a provider's row, checked one by one; `quirks` is a table of checked deviations."""
    return _read(place, value, PROVIDER, PROVIDER_CHECKS)


def model_fields(place: Place, value: object) -> Table:
    """The stated fields of a model row, checked one by one; `quirks` is a table of checked deviations."""
    found = _read(place, value, MODEL, MODEL_CHECKS)
    if "match" not in found:
        raise place.at("match").bad("it is missing", 'Say which models the row is about: match = ["name-*"]')
    return found


def _read(place: Place, value: object, kinds: Mapping[str, Kind], checks: Mapping[str, Check]) -> Table:
    if not isinstance(value, dict):
        raise place.bad(f"expected a table, found {_word(value)}", f"Write fields: {', '.join(kinds)}")
    found: Table = {}
    for key, raw in value.items():
        if key not in kinds:
            raise _unknown(place.at(key), key, kinds)
        found[key] = _converted(place.at(key), raw, kinds[key])
        if key in checks:
            checks[key](place.at(key), found[key])
    if "quirks" in found:
        found["quirks"] = _read(place.at("quirks"), found["quirks"], _quirk_kinds(), QUIRK_CHECKS)
    return found


@cache
def _quirk_kinds() -> dict[str, Kind]:
    return {field.name: field.type for field in msgspec.structs.fields(Quirks)}


def _converted(place: Place, value: object, kind: Kind) -> object:
    try:
        found: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise place.bad(f"{_word(value)} does not fit", f"Write {_expected(kind)}") from None
    if isinstance(found, int) and found < 0:
        raise place.bad("it is negative", f"Write {WORDS[int]}")
    return found


def _expected(kind: Kind) -> str:
    origin = get_origin(kind) or kind
    return WORDS[origin] if origin in WORDS else "one of " + _list(get_args(kind))


def _word(value: object) -> str:
    """What a value is, without saying the value."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return names.get(type(value), "a value")


def _list(names: Iterable[object]) -> str:
    return ", ".join(repr(name) for name in names)


def _unknown(place: Place, key: str, known: Iterable[str]) -> BadRow:
    if SECRET.fullmatch(key.lower()):
        return place.bad("a row never holds a secret", 'Put it into an environment variable and name that: key_env = ["NAME"]')
    near = get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return place.bad("there is no such field", f"{hint}Known are {', '.join(known)}")


# What single fields must look like.


def _known(names: Iterable[str]) -> Check:
    """Each text is one of these."""
    allowed = tuple(names)

    def check(place: Place, value: object) -> None:
        wrong = [text for text in _texts(value) if text not in allowed]
        if wrong:
            raise place.bad(f"{_list(wrong)} is not known", f"Known are {_list(allowed)}")

    return check


def _shaped(shape: re.Pattern[str], what: str, do: str) -> Check:
    """Each text has this shape. The text is not repeated: it may be a secret in the wrong place."""

    def check(place: Place, value: object) -> None:
        if not all(shape.fullmatch(text) for text in _texts(value)):
            raise place.bad(f"it is not {what} (not shown here: it might be a secret)", do)

    return check


def _variables(names: re.Pattern[str]) -> Check:
    """A table of names of this shape, each with the environment variables that may hold its value."""

    def check(place: Place, value: object) -> None:
        for name, env in value.items() if isinstance(value, dict) else ():
            if not names.fullmatch(name) or not env:
                raise place.at(name).bad(
                    "it is not usable", 'Write lower case letters, and at least one variable: name = ["NAME"]'
                )
            _VARIABLES(place.at(name), env)

    return check


def _texts(value: object) -> tuple[str, ...]:
    match value:
        case str():
            return (value,)
        case tuple():
            return value
    return ()


def _pattern(place: Place, value: object) -> None:
    texts = _texts(value)
    if not texts:
        raise place.bad("it is empty", 'Name at least one pattern: match = ["name-*"]')
    for text in texts:
        if not PATTERN.fullmatch(text) or text != text.lower():
            raise place.bad(
                f"{text!r} is no pattern", "Write lower case letters with *, ? or closed [sets], as in 'name-4[.-]5*'"
            )


def _level(place: Place, value: object) -> None:
    if value:
        _known(SCALE)(place, value)


PROVIDER: dict[str, Kind] = {
    "wire": str,
    "like": str,
    "base_url": str,
    "url_env": dict[str, tuple[str, ...]],
    "key_env": tuple[str, ...],
    "keyless": bool,
    "auth_header": str,
    "auth_prefix": str,
    "header_env": dict[str, tuple[str, ...]],
    "vendor": str,
    "quirks": dict[str, object],
}
_VARIABLES = _shaped(
    VARIABLE, "the name of an environment variable", 'Name the variable that holds the value, in capitals: ["NAME"]'
)
_ROW_NAME = _shaped(NAME, "a row's name", "Write lower case letters, digits and single dashes")
PROVIDER_CHECKS: dict[str, Check] = {
    "wire": _known(CODECS),
    "like": _ROW_NAME,
    "base_url": _shaped(
        URL,
        "a plain http(s) address",
        "Write it without user, query and closing slash; what differs per account is a {name} with its variables in url_env",
    ),
    "url_env": _variables(re.compile(r"[a-z_]+")),
    "key_env": _VARIABLES,
    "auth_header": _shaped(HEADER, "a header's name", "Write it in lower case, as in 'x-api-key'"),
    "auth_prefix": _shaped(PREFIX, "a prefix", "Write one word and a space, as in 'Bearer ', or an empty text"),
    "header_env": _variables(HEADER),
    "vendor": _ROW_NAME,
}
MODEL: dict[str, Kind] = {
    "match": tuple[str, ...],
    "providers": tuple[str, ...],
    "wires": tuple[str, ...],
    "fresh": bool,
    "window": int,
    "quirks": dict[str, object],
}
MODEL_CHECKS: dict[str, Check] = {"match": _pattern, "wires": _known(CODECS)}
_URL_PATH = _shaped(PATH, "a path", "Begin it with a slash, without a query; {model} is the only part that is filled in")
QUIRK_CHECKS: dict[str, Check] = {
    "path": _URL_PATH,
    "stream_path": _URL_PATH,
    "api_version": _shaped(
        re.compile(r"[\w.-]*", re.ASCII), "a version", "Write the value of the version header, as in a date"
    ),
    "thinking_modes": _known(("adaptive", "enabled", "disabled", "between_tools")),
    "efforts": _known(SCALE),
    "default_effort": _level,
    "disabled_effort": _level,
    "cache_ttls": _known(text for text in get_args(CacheTtl) if text),
}
