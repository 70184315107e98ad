"""The rows as values, and the loader: built-in files first, then the user's. Reads files, never the environment.

What holds for one model of one provider is built up in this order, a later statement winning field by field:
the defaults of Quirks, the provider's row, and every model row that covers the model, from the first to the last
(or from the last one that says `fresh`).
The built-in files come first, the user's in the order given; so the last word is the user's last matching row.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from os import PathLike
from pathlib import Path

import msgspec

from evener.errors import UsageError
from evener.providers.fields import NAME, PLACEHOLDER, Place, Table, model_fields, provider_fields
from evener.wire.quirks import Quirks

__all__ = ["Facts", "ModelRow", "Provider", "Rows", "Variable", "load_rows", "plain_name"]

BUILT_IN = ("providers.toml", "models.toml")
FILLING = re.compile(r"[A-Za-z0-9._-]+")

# What a row takes over from the one it is `like`: how to talk, never whom to talk to or with which key.
MANNER = ("wire", "auth_header", "auth_prefix", "quirks")

LEAD = re.compile(r"^.*/|^(?:[a-z][a-z-]*\.)+")
TAIL = re.compile(r"@[^:]*|-v\d+:\d+$|-(?:20\d{6}|20\d\d-\d\d-\d\d|latest)(?=[:@]|-v\d+:|$)")


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that differs per account: its name, and the environment variables that may hold it, the first set one wins."""

    name: str
    env: tuple[str, ...]


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One endpoint: where it is, how the key is sent, and how it deviates from its wire.

    `key_env` are names of variables, the first set one wins; with `keyless` it also works without any. The key goes out as
    the header `auth_header`: `auth_prefix` and then the key. `vendor` runs the models: the same for all its endpoints.
    """

    name: str
    wire: str
    base_url: str
    key_env: tuple[str, ...] = ()
    keyless: bool = False
    auth_header: str = "authorization"
    auth_prefix: str = ""
    url_env: tuple[Variable, ...] = ()
    header_env: tuple[Variable, ...] = ()
    vendor: str = ""
    quirks: Quirks = Quirks()

    def url(self, values: Mapping[str, str]) -> str:
        """The base URL with the account's own parts filled in, as named in `url_env`."""
        return PLACEHOLDER.sub(lambda hit: self._filling(hit[1], values), self.base_url)

    def _filling(self, name: str, values: Mapping[str, str]) -> str:
        value = values.get(name, "")
        if FILLING.fullmatch(value):
            return value
        env = next((" or ".join(variable.env) for variable in self.url_env if variable.name == name), "")
        what = "holds characters that an address may not have here" if value else "is not set"
        raise UsageError(
            f"The {name!r} in the address of provider {self.name!r} {what}. Set {env}, or give the row a base_url."
        )


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of the models that one of the patterns names, anywhere or only at some providers or on some wires.

    With `fresh`, the rows before it do not apply to them: for hosts that use a known name for something else.
    `window` is in tokens, input and output together; None says nothing. `quirks` holds only what the row states.
    """

    match: tuple[str, ...]
    providers: tuple[str, ...] = ()
    wires: tuple[str, ...] = ()
    fresh: bool = False
    window: int | None = None
    quirks: tuple[tuple[str, object], ...] = ()

    def covers(self, provider: Provider, model: str) -> bool:
        """Whether this row speaks of this model at this provider."""
        if (self.providers and provider.name not in self.providers) or (self.wires and provider.wire not in self.wires):
            return False
        return any(fnmatchcase(name, pattern) for name in _names(model) for pattern in self.match)


class Facts(msgspec.Struct, frozen=True):
    """All that the rows say about one model at one provider. `window` is in tokens; 0 is unknown."""

    provider: Provider
    model: str
    window: int
    quirks: Quirks


class Rows(msgspec.Struct, frozen=True):
    """Every provider and model row, in the order of precedence."""

    providers: tuple[Provider, ...]
    models: tuple[ModelRow, ...]

    def provider(self, name: str) -> Provider:
        """The row of this name."""
        for provider in self.providers:
            if provider.name == name:
                return provider
        names = [provider.name for provider in self.providers]
        near = get_close_matches(name, names, n=3, cutoff=0.5)
        known = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(names)}."
        raise UsageError(f"There is no provider {name!r}. {known} A row in a file of your own adds one.")

    def facts(self, provider: str, model: str) -> Facts:
        """What holds for this model at this provider."""
        row = self.provider(provider)
        covering = tuple(one for one in self.models if one.covers(row, model))
        covering = covering[max((number for number, one in enumerate(covering) if one.fresh), default=0) :]
        windows = [one.window for one in covering if one.window is not None]
        return Facts(row, model, windows[-1] if windows else 0, _resolved(row, covering))

    def quirks(self, provider: str, model: str) -> Quirks:
        """How this model at this provider deviates; the same object for the same question, so that encoders can reuse work."""
        return self.facts(provider, model).quirks


@lru_cache(maxsize=1024)
def _resolved(provider: Provider, covering: tuple[ModelRow, ...]) -> Quirks:
    stated = {name: value for row in covering for name, value in row.quirks}
    return msgspec.structs.replace(provider.quirks, **stated)


def plain_name(model: str) -> str:
    """A model's name as patterns see it: lower case, without path, region, vendor, date and version of the host.

    `us.anthropic.name-4-5-20250929-v1:0`, `vendor/name-4-5` and `name-4-5@20250929` are all `name-4-5`. A tag stays
    (`vendor/name:free` is `name:free`), and patterns are tried with and without it.
    """
    return TAIL.sub("", LEAD.sub("", LEAD.sub("", model.lower())))


@lru_cache(maxsize=1024)
def _names(model: str) -> frozenset[str]:
    plain = plain_name(model)
    return frozenset((plain, plain.partition(":")[0]))


# The loader.


class Page(msgspec.Struct, frozen=True):
    """One file, checked: what it states of each provider, and its model rows."""

    file: str
    providers: dict[str, Table]
    models: tuple[ModelRow, ...]


def load_rows(*paths: str | PathLike[str]) -> Rows:
    """The built-in rows, then those of these TOML files: same format, `[providers.NAME]` and `[[models]]`.

    A row for a provider that exists replaces it field by field. Anything that is not understood is a BadRow.
    """
    return _merged([*_built_in(), *(_page(str(path), _content(path)) for path in paths)])


@cache
def _built_in() -> tuple[Page, ...]:
    folder = resources.files("evener.providers")
    return tuple(_page(name, (folder / name).read_bytes()) for name in BUILT_IN)


def _content(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Place(str(path), "").bad(f"it cannot be read: {error.strerror}", "Give the path of a TOML file") from None


def _page(file: str, content: bytes) -> Page:
    place = Place(file, "")
    try:
        document = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise place.bad("it is not UTF-8", "Save it as a UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise place.bad(f"it is not TOML: {error}", "Mend that line; a provider has one table in a file") from None
    except RecursionError:
        raise place.bad("it is nested too deeply", "A row is a flat table with a table of quirks") from None
    for key in document:
        if key not in ("providers", "models"):
            raise place.at(key).bad("there is no such table", "Write [providers.NAME] and [[models]]")
    return Page(file, _providers(file, document.get("providers", {})), _models(file, document.get("models", [])))


def _providers(file: str, tables: object) -> dict[str, Table]:
    if not isinstance(tables, dict):
        raise Place(file, "providers").bad("expected tables", "Write [providers.NAME] above the fields of a row")
    for name in tables:
        if not NAME.fullmatch(name):
            raise _provider_place(file, name).bad(
                "the name is not usable", "Write lower case letters, digits and single dashes"
            )
    return {name: provider_fields(_provider_place(file, name), table) for name, table in tables.items()}


def _models(file: str, tables: object) -> tuple[ModelRow, ...]:
    if not isinstance(tables, list):
        raise Place(file, "models").bad("expected a list of tables", "Write [[models]] above the fields of a row")
    return tuple(_model(_model_place(file, number), table) for number, table in enumerate(tables, 1))


def _model(place: Place, table: object) -> ModelRow:
    stated = model_fields(place, table)
    quirks = _table(stated.pop("quirks", {}))
    row = msgspec.convert(stated, ModelRow)
    return msgspec.structs.replace(row, quirks=tuple(quirks.items()))


def _provider_place(file: str, name: str) -> Place:
    return Place(file, f"provider {name!r}")


def _model_place(file: str, number: int) -> Place:
    return Place(file, f"model row {number}")


def _merged(pages: Iterable[Page]) -> Rows:
    pages = list(pages)
    stated: dict[str, Table] = {}
    for page in pages:
        stated |= {name: _over(stated.get(name, {}), fields) for name, fields in page.providers.items()}
        # A row is like another as that stands here: a later file that changes the one leaves the other alone.
        stated |= {name: _likened(_provider_place(page.file, name), name, stated) for name in page.providers}
    files = {name: page.file for page in pages for name in page.providers}
    providers = tuple(_provider(_provider_place(files[name], name), name, fields) for name, fields in stated.items())
    for page in pages:
        for number, row in enumerate(page.models, 1):
            for name in row.providers:
                if name not in stated:
                    place = _model_place(page.file, number).at("providers")
                    raise place.bad(f"there is no provider {name!r}", "Name rows that exist, or add that one")
    return Rows(providers, tuple(row for page in pages for row in page.models))


def _over(base: Table, fields: Table) -> Table:
    """One row's fields with another's laid over them; tables within are laid over each other, too."""
    nested = {
        name: {**_table(base[name]), **_table(fields[name])}
        for name in base.keys() & fields.keys()
        if isinstance(base[name], dict)
    }
    return {**base, **fields, **nested}


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _likened(place: Place, name: str, stated: Mapping[str, Table], seen: tuple[str, ...] = ()) -> Table:
    """A row's fields over those that it takes from the one it is like."""
    fields = dict(stated[name])
    other = fields.pop("like", None)
    if other is None:
        return fields
    if not isinstance(other, str) or other not in stated:
        raise place.at("like").bad(f"there is no provider {other!r}", "Name a row of this file or of an earlier one")
    if other in (*seen, name):
        raise place.at("like").bad("it leads back to itself", "State the fields in one of the rows")
    base = _likened(place, other, stated, (*seen, name))
    return _over({key: base[key] for key in MANNER if key in base}, fields)


def _provider(place: Place, name: str, fields: Table) -> Provider:
    for needed in ("wire", "base_url"):
        if needed not in fields:
            raise place.at(needed).bad("it is missing", "State it; `like` takes over how to talk, not whom to talk to")
    prefix = "Bearer " if fields.get("auth_header", "authorization") == "authorization" else ""
    parts = {
        key: [{"name": part, "env": env} for part, env in _table(fields.get(key)).items()] for key in ("url_env", "header_env")
    }
    provider = msgspec.convert({"auth_prefix": prefix, "vendor": name, **fields, **parts, "name": name}, Provider)
    known = {variable.name for variable in provider.url_env}
    for part in PLACEHOLDER.findall(provider.base_url):
        if part not in known:
            raise place.at("base_url").bad(f"nothing fills {{{part}}}", f'Name its variables: url_env.{part} = ["NAME"]')
    if not provider.key_env and not provider.keyless:
        raise place.at("key_env").bad("no key is named", 'Write key_env = ["NAME"], or keyless = true if it needs none')
    return provider
