"""Rows of providers and models: loads them from TOML files, merges those that apply to a model, and parses model strings.

Anything unknown is a UsageError that says what to write instead; nothing is guessed. Reads no environment.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin

import msgspec

from evener.errors import BadRow, UsageError
from evener.transcript.blocks import CacheTtl
from evener.wire import CODECS
from evener.wire.quirks import Quirks
from evener.wire.request import SCALE

Table = dict[str, object]

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PART = re.compile(r"[a-z_]+")
HEADER = re.compile(r"[a-z0-9-]+")
SECRET = re.compile(
    r"(?:^|.*[_-])(?:api|access|auth|private)[_-]?(?:key|token)s?|(?:key|token|credential|authorization|bearer)s?|.*(?:secret|passw).*"
)
FOUND = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
EXPECTED: dict[object, str] = {
    bool: "true or false",
    int: "a whole number, 0 or more",
    str: "a text in quotes",
    tuple: "a list of texts",
    dict: "a table",
}


class FieldPlace(msgspec.Struct, frozen=True):
    """The place of a value: file and field, for errors."""

    file: str
    row: str
    field: str = ""

    def at(self, field: str) -> "FieldPlace":
        """Return the place of a field within this place."""
        return FieldPlace(self.file, self.row, f"{self.field}.{field}" if self.field else field)

    def bad(self, what: str, do: str) -> BadRow:
        """Return the error to raise: what is wrong at this place, and what to do."""
        where = ", ".join(part for part in (self.file, self.row, self.field and f"field {self.field!r}") if part)
        return BadRow(f"{where}: {what}. {do}.")


# What a row may state: the types of its fields.


class _ProviderTable(msgspec.Struct, forbid_unknown_fields=True):
    wire: str = ""
    like: str = ""
    base_url: str = ""
    url_env: dict[str, tuple[str, ...]] = {}
    key_env: tuple[str, ...] = ()
    keyless: bool = False
    auth_header: str = ""
    auth_prefix: str = ""
    header_env: dict[str, tuple[str, ...]] = {}
    vendor: str = ""
    quirks: dict[str, object] = {}


class _ModelTable(msgspec.Struct, forbid_unknown_fields=True):
    match: tuple[str, ...]
    providers: tuple[str, ...] = ()
    wires: tuple[str, ...] = ()
    fresh: bool = False
    window: Annotated[int, msgspec.Meta(ge=0)] | None = None
    quirks: dict[str, object] = {}


@cache
def _quirk_table() -> type[msgspec.Struct]:
    """Return the type of a table of quirks: `Quirks` without negative numbers."""
    fields = msgspec.structs.fields(Quirks)
    kinds = [(field.name, Annotated[int, msgspec.Meta(ge=0)] if field.type is int else field.type) for field in fields]
    return msgspec.defstruct("QuirkTable", [(name, kind, None) for name, kind in kinds], forbid_unknown_fields=True)


# What the texts of a field must look like.


class _TextRule(msgspec.Struct, frozen=True):
    """A pattern for each text of a field, and the message for one that does not match: `{wrong}` stands for it."""

    pattern: re.Pattern[str]
    problem: str
    do: str

    def check(self, place: FieldPlace, value: object) -> None:
        """Raise BadRow unless each text matches."""
        texts = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
        if wrong := [text for text in texts if not self.pattern.fullmatch(text)]:
            raise place.bad(self.problem.format(wrong=_list(wrong)), self.do)


def _list(names: Iterable[object]) -> str:
    return ", ".join(repr(name) for name in names)


def _list_known(names: Iterable[str]) -> _TextRule:
    """Return a rule that accepts only these texts."""
    names = tuple(names)
    return _TextRule(re.compile("|".join(map(re.escape, names))), "{wrong} is not known", f"Known are {_list(names)}")


def _shape(pattern: str, what: str, do: str) -> _TextRule:
    """Return a rule that accepts only texts that match the pattern.

    Errors do not contain the text: it may be a misplaced secret.
    """
    return _TextRule(re.compile(pattern, re.ASCII), f"it is not {what} (not shown here: it might be a secret)", do)


VARIABLES = _shape(
    "[A-Z_][A-Z0-9_]*",
    "the name of an environment variable",
    'Name the variable that holds the value, in capitals: ["NAME"]',
)
ROW_NAME = _shape(NAME.pattern, "a row's name", "Write lower case letters, digits and single dashes")
URL_PATH = _shape(
    r"(?:/(?:[\w.:~-]|\{model\})+)*",
    "a path",
    "Begin it with a slash, without a query; {model} is the only part that is filled in",
)
PROVIDER_RULES = {
    "wire": _list_known(CODECS),
    "like": ROW_NAME,
    "base_url": _shape(
        r"https?://(?:[\w.{}-]+|\[[0-9a-f:]+\])(?::\d+)?(?:/[\w.{}~-]+)*",
        "a plain http(s) address",
        "Write it without user, query and closing slash; what differs per account is a {name} with its variables in url_env",
    ),
    "key_env": VARIABLES,
    "auth_header": _shape(HEADER.pattern, "a header's name", "Write it in lower case, as in 'x-api-key'"),
    "auth_prefix": _shape("(?:[A-Za-z-]+ )?", "a prefix", "Write one word and a space, as in 'Bearer ', or an empty text"),
    "vendor": ROW_NAME,
}
MODEL_RULES = {
    "match": _TextRule(
        re.compile(r"(?:[a-z0-9_.:/@+*?-]|\[!?[a-z0-9_.:+-]+\])+"),
        "{wrong} is no pattern",
        "Write lower case letters with *, ? or closed [sets], as in 'name-4[.-]5*'",
    ),
    "wires": _list_known(CODECS),
}
QUIRK_RULES = {
    "path": URL_PATH,
    "stream_path": URL_PATH,
    "api_version": _shape(r"[\w.-]*", "a version", "Write the value of the version header, as in a date"),
    "thinking_modes": _list_known(("adaptive", "enabled", "disabled", "between_tools")),
    "efforts": _list_known(SCALE),
    "default_effort": _list_known(("", *SCALE)),
    "disabled_effort": _list_known(("", *SCALE)),
    "cache_ttls": _list_known(text for text in get_args(CacheTtl) if text),
}

Parsed = TypeVar("Parsed", bound=msgspec.Struct)


def _parse(place: FieldPlace, table: object, kind: type[Parsed], rules: Mapping[str, _TextRule]) -> Parsed:
    """Return a table as a value of its type. Raises BadRow for the first field that does not fit."""
    try:
        found = msgspec.convert(table, kind)
    except msgspec.ValidationError:
        raise _misfit(place, table, kind) from None
    for name in rules:
        if name in table:  # type: ignore[operator]  # it is a dict: it was converted
            rules[name].check(place.at(name), getattr(found, name))
    return found


def _misfit(place: FieldPlace, table: object, kind: type[msgspec.Struct]) -> BadRow:
    """Return the error for the first field that is unknown, of another type or missing."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(kind)}
    if not isinstance(table, dict):
        found = FOUND.get(type(table), "a value")
        return place.bad(f"expected a table, found {found}", f"Write fields: {', '.join(kinds)}")
    for name, value in table.items():
        if name not in kinds:
            return _unknown(place.at(name), name, kinds)
        try:
            msgspec.convert(value, kinds[name])
        except msgspec.ValidationError:
            found = FOUND.get(type(value), "a value")
            return place.at(name).bad(f"{found} does not fit", f"Write {_describe_expected(kinds[name])}")
    return place.at("match").bad("it is missing", 'Say which models the row is about: match = ["name-*"]')


def _describe_expected(kind: object) -> str:
    """Return what to write for a value of this type."""
    origin = get_origin(kind)
    if origin in (Annotated, Union, UnionType):
        return _describe_expected(get_args(kind)[0])
    return EXPECTED.get(origin or kind) or "one of " + _list(get_args(kind))


def _unknown(place: FieldPlace, key: str, known: Iterable[str]) -> BadRow:
    if SECRET.fullmatch(key.lower()):
        return place.bad("a row never holds a secret", 'Put it into an environment variable and name that: key_env = ["NAME"]')
    near = get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return place.bad("there is no such field", f"{hint}Known are {', '.join(known)}")


MOST_BYTES = 1024 * 1024
BUILT_IN = ("providers.toml", "models.toml")
FILLING = re.compile(r"[A-Za-z0-9._-]+")

# What a row inherits from the one it is `like`: how to talk to it, never its address or its key.
MANNER = ("wire", "auth_header", "auth_prefix", "quirks")

LEAD = re.compile(r"^.*/|^(?:[a-z][a-z-]*\.)+")
TAIL = re.compile(r"@[^:]*|-v\d+:\d+$|-(?:20\d{6}|20\d\d-\d\d-\d\d|latest)(?=[:@]|-v\d+:|$)")


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that differs per account: its name, and the environment variables that may hold it; the first set one wins."""

    name: str
    env: tuple[str, ...]


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One endpoint: its address, how it gets the key, and how it deviates from its wire.

    `key_env` are names of variables, the first set one wins; with `keyless` it also works without any. The key is sent in
    the header `auth_header`: `auth_prefix` and then the key. `vendor` is the company that runs the models: the same for all
    its endpoints.
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
        """Return the base URL with the account's own parts filled in, as named in `url_env`."""
        return PLACEHOLDER.sub(lambda hit: self._fill_variable(hit[1], values), self.base_url)

    def _fill_variable(self, name: str, values: Mapping[str, str]) -> str:
        value = values.get(name, "")
        if FILLING.fullmatch(value):
            return value
        env = next((" or ".join(variable.env) for variable in self.url_env if variable.name == name), "")
        what = "holds characters that an address may not have here" if value else "is not set"
        raise UsageError(
            f"The {name!r} in the address of provider {self.name!r} {what}. Set {env}, or give the row a base_url."
        )


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Facts about the models that match one of the patterns, at all or only at some providers or wires.

    With `fresh`, earlier rows do not apply to them: for hosts that use a known name for another model. `window` is in
    tokens, input and output together; None leaves it open. `quirks` has only what the row states.
    """

    match: tuple[str, ...]
    providers: tuple[str, ...] = ()
    wires: tuple[str, ...] = ()
    fresh: bool = False
    window: int | None = None
    quirks: tuple[tuple[str, object], ...] = ()

    def covers(self, provider: Provider, model: str) -> bool:
        """True if this row is about this model at this provider."""
        if (self.providers and provider.name not in self.providers) or (self.wires and provider.wire not in self.wires):
            return False
        return any(fnmatchcase(name, pattern) for name in _names(model) for pattern in self.match)


class Facts(msgspec.Struct, frozen=True):
    """Everything that the rows say about one model at one provider. `window` is in tokens; 0 is unknown."""

    provider: Provider
    model: str
    window: int
    quirks: Quirks


class Rows(msgspec.Struct, frozen=True):
    """Every provider and model row, in the order of precedence."""

    providers: tuple[Provider, ...]
    models: tuple[ModelRow, ...]

    def provider(self, name: str) -> Provider:
        """Return the row of this name. Raises UsageError."""
        for provider in self.providers:
            if provider.name == name:
                return provider
        names = [provider.name for provider in self.providers]
        near = get_close_matches(name, names, n=3, cutoff=0.5)
        known = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(names)}."
        raise UsageError(f"There is no provider {name!r}. {known} A row in a file of your own adds one.")

    def facts(self, provider: str, model: str) -> Facts:
        """Return the provider's row, window and quirks for this model."""
        row = self.provider(provider)
        covering = tuple(one for one in self.models if one.covers(row, model))
        covering = covering[max((number for number, one in enumerate(covering) if one.fresh), default=0) :]
        windows = [one.window for one in covering if one.window is not None]
        return Facts(row, model, windows[-1] if windows else 0, _resolve(row, covering))

    def quirks(self, provider: str, model: str) -> Quirks:
        """Return the quirks of this model at this provider.

        Equal arguments get the same object, so that encoders can reuse work.
        """
        return self.facts(provider, model).quirks


@lru_cache(maxsize=1024)
def _resolve(provider: Provider, covering: tuple[ModelRow, ...]) -> Quirks:
    stated = {name: value for row in covering for name, value in row.quirks}
    return msgspec.structs.replace(provider.quirks, **stated)


def plain_name(model: str) -> str:
    """Return a model's name as patterns see it: lower case, without path, region, vendor, date and version of the host.

    `us.anthropic.name-4-5-20250929-v1:0`, `vendor/name-4-5` and `name-4-5@20250929` are all `name-4-5`. A tag stays
    (`vendor/name:free` is `name:free`), and patterns are tried with and without it.
    """
    return TAIL.sub("", LEAD.sub("", LEAD.sub("", model.lower())))


@lru_cache(maxsize=1024)
def _names(model: str) -> frozenset[str]:
    plain = plain_name(model)
    return frozenset((plain, plain.partition(":")[0]))


# The loader.


class RowFile(msgspec.Struct, frozen=True):
    """One file, checked: its statements about each provider, and its model rows."""

    file: str
    providers: dict[str, Table]
    models: tuple[ModelRow, ...]


def load_rows(*paths: str | PathLike[str]) -> Rows:
    """Return the built-in rows with those of these TOML files: same format, `[providers.NAME]` and `[[models]]`.

    A row for a provider that exists replaces it field by field. Raises BadRow for anything that is not understood.
    """
    return merge_rows([*load_built_in(), *(_read_rows(str(path), Path(path)) for path in paths)])


@cache
def load_built_in() -> tuple[RowFile, ...]:
    """Return the files that come with Evener, read once."""
    folder = resources.files("evener.providers")
    return tuple(_read_rows(name, folder / name) for name in BUILT_IN)


def _read_rows(file: str, path: Traversable) -> RowFile:
    place = FieldPlace(file, "")
    document = read_toml(place, path, do="Give the path of a TOML file")
    for key in document:
        if key not in ("providers", "models"):
            raise place.at(key).bad("there is no such table", "Write [providers.NAME] and [[models]]")
    return parse_rows(file, document)


def read_toml(place: FieldPlace, path: Traversable, *, do: str) -> Table:
    """Return the content of a TOML file. Raises BadRow; `do` is the advice for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise place.bad(f"it has more than {MOST_BYTES} bytes", "Name a config file, which is a short text")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise place.bad(f"it cannot be read: {error.strerror}", do) from None
    except UnicodeDecodeError:
        raise place.bad("it is not UTF-8", "Save it as a UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise place.bad(f"it is not TOML: {error}", "Correct that line; a file may contain each table only once") from None
    except RecursionError:
        raise place.bad("it is nested too deeply", "Write plain tables; the only table inside a row is `quirks`") from None


def parse_rows(file: str, document: Table) -> RowFile:
    """Return the rows of a document, checked. Raises BadRow."""
    return RowFile(file, _parse_providers(file, document.get("providers", {})), _parse_models(file, document.get("models", [])))


def _parse_providers(file: str, tables: object) -> dict[str, Table]:
    if not isinstance(tables, dict):
        raise FieldPlace(file, "providers").bad("expected tables", "Write [providers.NAME] above the fields of a row")
    for name, table in tables.items():
        place = _provider_place(file, name)
        if not NAME.fullmatch(name):
            raise place.bad("the name is not usable", "Write lower case letters, digits and single dashes")
        row = _parse(place, table, _ProviderTable, PROVIDER_RULES)
        for field, names, variables in (("url_env", PART, row.url_env), ("header_env", HEADER, row.header_env)):
            for part, env in variables.items():
                if not names.fullmatch(part) or not env:
                    do = 'Write lower case letters, and at least one variable: name = ["NAME"]'
                    raise place.at(field).at(part).bad("it is not usable", do)
                VARIABLES.check(place.at(field).at(part), env)
        if row.quirks:
            _parse(place.at("quirks"), row.quirks, _quirk_table(), QUIRK_RULES)
    return tables


def _parse_models(file: str, tables: object) -> tuple[ModelRow, ...]:
    if not isinstance(tables, list):
        raise FieldPlace(file, "models").bad("expected a list of tables", "Write [[models]] above the fields of a row")
    return tuple(_model(_model_place(file, number), table) for number, table in enumerate(tables, 1))


def _model(place: FieldPlace, table: object) -> ModelRow:
    row = _parse(place, table, _ModelTable, MODEL_RULES)
    if not row.match:
        raise place.at("match").bad("it is empty", 'Name at least one pattern: match = ["name-*"]')
    quirks = _parse(place.at("quirks"), row.quirks, _quirk_table(), QUIRK_RULES) if row.quirks else None
    stated = tuple((name, getattr(quirks, name)) for name in row.quirks)
    return ModelRow(row.match, row.providers, row.wires, row.fresh, row.window, stated)


def _provider_place(file: str, name: str) -> FieldPlace:
    return FieldPlace(file, f"provider {name!r}")


def _model_place(file: str, number: int) -> FieldPlace:
    return FieldPlace(file, f"model row {number}")


def merge_rows(pages: Sequence[RowFile]) -> Rows:
    """Return all rows together. A provider's row in a later file replaces an earlier one field by field. Raises BadRow."""
    stated: dict[str, Table] = {}
    for page in pages:
        stated |= {name: _overlay(stated.get(name, {}), fields) for name, fields in page.providers.items()}
        # A row is like another as that stands here: a later file that changes the one leaves the other alone.
        stated |= {name: _inherit(_provider_place(page.file, name), name, stated) for name in page.providers}
    files = {name: page.file for page in pages for name in page.providers}
    providers = tuple(_provider(_provider_place(files[name], name), name, fields) for name, fields in stated.items())
    for page in pages:
        for number, row in enumerate(page.models, 1):
            for name in row.providers:
                if name not in stated:
                    place = _model_place(page.file, number).at("providers")
                    raise place.bad(f"there is no provider {name!r}", "Name rows that exist, or add that one")
    return Rows(providers, tuple(row for page in pages for row in page.models))


def _overlay(base: Table, fields: Table) -> Table:
    """Return the fields of one row overridden by those of another, also within nested tables."""
    nested = {
        name: {**_table(base[name]), **_table(fields[name])}
        for name in base.keys() & fields.keys()
        if isinstance(base[name], dict)
    }
    return {**base, **fields, **nested}


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _inherit(place: FieldPlace, name: str, stated: Mapping[str, Table], seen: tuple[str, ...] = ()) -> Table:
    """Return a row's fields, with those that it inherits by `like`."""
    fields = dict(stated[name])
    other = fields.pop("like", None)
    if other is None:
        return fields
    if not isinstance(other, str) or other not in stated:
        raise place.at("like").bad(f"there is no provider {other!r}", "Name a row of this file or of an earlier one")
    if other in (*seen, name):
        raise place.at("like").bad("it leads back to itself", "State the fields in one of the rows")
    base = _inherit(place, other, stated, (*seen, name))
    return _overlay({key: base[key] for key in MANNER if key in base}, fields)


def _provider(place: FieldPlace, name: str, fields: Table) -> Provider:
    for needed in ("wire", "base_url"):
        if needed not in fields:
            raise place.at(needed).bad("it is missing", "State it; `like` does not inherit the address")
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


LOCAL = "local"
"""The provider of models that run inside Evener: `local:smollm2`, or `local:` and the path of a GGUF file."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "claude": "anthropic:claude-opus-5-5",
        "sonnet": "anthropic:claude-sonnet-5-5",
        "haiku": "anthropic:claude-haiku-5-5",
        "gpt": "openai:gpt-6.1-sol",
        "gemini": "google:gemini-3.8-flash",
        "smollm2": "local:smollm2",
    }
)
"""The built-in short names. A config file adds its own, and may give these another meaning."""

# Makers of models, for the advice about a name without a provider. Never used to choose a provider.
MAKERS = (
    ("claude-*", "anthropic"),
    ("gpt-*", "openai"),
    ("o[134]*", "openai"),
    ("gemini-*", "google"),
    ("grok-*", "xai"),
    ("deepseek-*", "deepseek"),
    ("kimi-*", "kimi"),
    ("glm-*", "zai"),
    ("magistral*", "mistral"),
)

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MOST = 1000
EXAMPLE = "Write provider:model, for example anthropic:claude-opus-5-5 or local:smollm2. See `evener models --providers`."


class ModelName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider and a model. `provider` is the name of a row, or `local`; `model` is what that provider calls it."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model(text: str, *, rows: Rows, aliases: Mapping[str, str] = ALIASES) -> ModelName:
    """Return the provider and the model of a text. Raises UsageError.

    The first `:` or `/` ends the provider's name; the model's name may contain more of them. An alias stands for the whole
    text.
    """
    name = resolve_alias(_check_name(text), aliases)
    cut = re.search("[:/]", name)
    if cut is None:
        raise _refuse_provider(name, rows, aliases)
    provider, mark, model = name[: cut.start()].lower(), cut[0], name[cut.end() :]
    if not _is_provider(provider, rows):
        raise _unknown_provider(name, provider, rows) if mark == ":" else _refuse_provider(name, rows, aliases)
    if not model:
        raise UsageError(f"{name!r} names a provider, but no model. {EXAMPLE}")
    return ModelName(provider, model)


def resolve_alias(text: str, aliases: Mapping[str, str]) -> str:
    """Return the text for which an alias stands; a text that is no alias unchanged. An alias may refer to one other alias."""
    first = aliases.get(text)
    if first is None:
        return text
    second = aliases.get(first)
    if second is None:
        return first
    if second in aliases:
        chain = " -> ".join((text, first, second))
        loop = " and leads back to itself" if second in (text, first) else ""
        raise UsageError(
            f"The alias {text!r} refers to more than one other alias ({chain}){loop}. Set {text!r} to provider:model."
        )
    return second


def _check_name(text: str) -> str:
    name = text.strip()
    if not name:
        raise UsageError(f"The name of the model is empty. {EXAMPLE}")
    if UNPRINTABLE.search(name) or len(name) > MOST:
        raise UsageError(f"The name of the model is not a plain text of at most {MOST} characters. {EXAMPLE}")
    return name


def _is_provider(provider: str, rows: Rows) -> bool:
    return provider == LOCAL or any(row.name == provider for row in rows.providers)


def _unknown_provider(name: str, provider: str, rows: Rows) -> UsageError:
    names = [LOCAL, *(row.name for row in rows.providers)]
    near = get_close_matches(provider, names, n=2, cutoff=0.75)
    if near:
        model = name[len(provider) + 1 :]
        advice = f"Did you mean {' or '.join(f'{one}:{model}' for one in near)}?"
    else:  # a name with a tag, as servers of open models have them
        whose = " or ".join(f"{one}:{name}" for one in (*_suggestions(name, rows), "ollama"))
        advice = f"If {name!r} is a model's whole name, name its provider: {whose}."
    return UsageError(
        f"There is no provider {provider!r}. {advice} `evener models --providers` lists the providers; "
        "a row in a config file adds one."
    )


def _refuse_provider(name: str, rows: Rows, aliases: Mapping[str, str]) -> UsageError:
    if _is_provider(name.lower(), rows):
        return UsageError(f"{name!r} is a provider; the model is missing. {EXAMPLE}")
    if name.lower().endswith(".gguf"):
        return UsageError(f"{name!r} names no provider. Write {LOCAL}:{name} to run this file.")
    whose = _suggestions(name, rows)
    if whose:
        return UsageError(f"{name!r} names no provider. Write {' or '.join(f'{one}:{name}' for one in whose)}.")
    near = get_close_matches(name, aliases, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UsageError(f"{name!r} names no provider, and no row knows a model of this name. {hint}{EXAMPLE}")


def _suggestions(name: str, rows: Rows) -> list[str]:
    """Return providers that have such a model: its maker first, then those that model rows name."""
    plain = plain_name(name)
    makers = [provider for pattern, provider in MAKERS if fnmatchcase(plain, pattern) and _is_provider(provider, rows)]
    stated = [provider.name for provider in rows.providers if _states(rows, provider, name)]
    return list(dict.fromkeys([*makers, *stated]))[:3]


def _states(rows: Rows, provider: Provider, name: str) -> bool:
    """True if a row names this provider with such a model, and no row says that the name is another model there."""
    covering = [row for row in rows.models if row.match != ("*",) and row.covers(provider, name)]
    return any(provider.name in row.providers for row in covering) and not any(row.fresh for row in covering)
