"""The user's config files: which there are, what they may say, and what they say together. Reads files, changes none.

The environment and the working folder are arguments. A config file never holds a secret: keys have a file of their own.

A file named by EVENER_CONFIG is the only one that counts. Without it, two count, the later over the earlier: the user's
own `evener/config.toml` in the config folder, and the nearest `evener.toml` in the working folder or above it. The latter
may have come with a cloned project. Unless the user's own file trusts its folder, it can only forbid: `TRUST` says what
becomes of each of its keys.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from evener.errors import BadRow, UsageError
from evener.policy.config import read_policy
from evener.policy.rules import OPEN, Defaults, Policy, Rule
from evener.providers.rows import (
    ALIASES,
    FieldPlace,
    RowFile,
    Rows,
    Table,
    _built_in,
    _merged,
    parse_model,
    parse_models,
    parse_providers,
    resolve_alias,
)
from evener.transport.secrets import Environment

__all__ = ["TRUST", "Config", "NamedHarness", "config_folder", "load_config"]

FILE = "evener.toml"

Untrusted = Literal["refused", "when used", "tightens", "unread"]
TRUST: Mapping[str, Untrusted] = MappingProxyType(
    {
        "aliases": "refused",  # a known name could lead to another provider, which then gets the conversation
        "providers": "refused",  # addresses, keys, headers, paths, and what else is read from the environment
        "models": "refused",  # quirks say under which path, and in which form, requests are sent
        "model": "refused",  # decides who gets the conversation, or which weights are loaded here
        "trusted": "refused",  # a project cannot vouch for itself
        "harness": "when used",  # names code, which is imported only when the harness of that name is asked for
        "policy": "tightens",  # is asked beside the user's own, and the strictest verdict counts
        "policy_default": "tightens",
        "agents": "unread",
    }
)
"""Every key that a config file may have, and what becomes of it in a project's file that the user does not trust."""

MOST = 1024 * 1024
ALIAS = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class NamedHarness(msgspec.Struct, frozen=True):
    """Where a file says that a harness is: `module:attribute`, looked for in the folder of that file. Code: it wants trust."""

    reference: str
    file: str
    trusted: bool = True

    @property
    def folder(self) -> str:
        """The folder of the file."""
        return str(Path(self.file).parent)


class Config(msgspec.Struct, frozen=True):
    """All that was configured. `aliases` holds the built-in ones, too; `files` are those that were read, the last one wins.

    `model` is the model to ask when none is named, empty when there is no such wish. `policy` says which calls are allowed,
    denied or asked about; None when no file says anything of it. `project` is the folder of the project's file where the user
    trusts it, else empty.
    """

    rows: Rows
    aliases: Mapping[str, str] = ALIASES
    model: str = ""
    files: tuple[str, ...] = ()
    policy: Policy | None = None
    harnesses: Mapping[str, NamedHarness] = MappingProxyType({})
    project: str = ""


class Sheet(msgspec.Struct, frozen=True):
    """One config file, checked. `stated` are the defaults of its policy that it says itself."""

    page: RowFile
    aliases: dict[str, str]
    model: str
    trusted: tuple[str, ...]
    policy: Policy | None = None
    stated: dict[str, str] = {}
    harnesses: dict[str, str] = {}
    keys: tuple[str, ...] = ()
    foreign: bool = False


def config_folder(environ: Mapping[str, str]) -> Path | None:
    """Evener's own folder for config and keys; None where there is no home."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):  # a relative one is to be ignored, its specification says
        return Path(base) / "evener"
    home = _home(environ)
    return home / ".config" / "evener" if home else None


def load_config(start: Path | None = None, *, environ: Mapping[str, str]) -> Config:
    """The built-in rows with what the user's files say. `start` is the folder to look in; the working folder if it is None.

    Anything that is not understood is a BadRow that names file and place; a file that is not there is none, unless
    EVENER_CONFIG names it.
    """
    environ = Environment(environ)
    named = environ.get("EVENER_CONFIG", "")
    root = _folder(start)
    if named:
        return _config([_sheet(_expanded(named, _home(environ)), root)])
    sheets = []
    folder = config_folder(environ)
    own = folder / "config.toml" if folder else None
    if own and isfile(own):
        sheets.append(_sheet(own, root))
    found = _nearest(root, _home(environ))
    if not found or found == own:
        return _config(sheets) if sheets else _plain()
    if _trusts(sheets, found.parent, _home(environ)):
        return _config([*sheets, _sheet(found, root)], project=str(found.parent))
    return _config([*sheets, _untrusted(_sheet(found, root))])


def _home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "") or environ.get("USERPROFILE", "")
    return Path(home) if home else None


def _folder(start: Path | None) -> Path | None:
    """Where we are; None when the working folder was deleted under us."""
    try:
        return (start or Path.cwd()).absolute()
    except FileNotFoundError:
        return None


def _nearest(below: Path | None, home: Path | None) -> Path | None:
    """The first one on the way up, which ends at the home folder or the root."""
    if below is None:
        return None
    ends = {home, home.resolve()} if home else set()
    for folder in (below, *below.parents):
        if isfile(folder / FILE):
            return folder / FILE
        if folder in ends:
            return None
    return None


# One file.


def _sheet(path: Path, root: Path | None) -> Sheet:
    place = FieldPlace(str(path), "")
    document = _document(place, path)
    for key in document:
        if key not in TRUST:
            raise place.at(key).bad("there is no such setting", f"Known are {', '.join(TRUST)}")
    file = str(path)
    page = RowFile(file, parse_providers(file, document.get("providers", {})), parse_models(file, document.get("models", [])))
    policy, stated = _policy(file, document, root)
    return Sheet(
        page,
        _aliases(place, document),
        _model(place, document),
        _trusted(place, document),
        policy,
        stated,
        _harnesses(place, document),
        tuple(document),
    )


def _document(place: FieldPlace, path: Path) -> Table:
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
        if len(content) > MOST:
            raise place.bad(f"it has more than {MOST} bytes", "Name a config file, which is a short text")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise place.bad(f"it cannot be read: {error.strerror}", "Mend that, or take EVENER_CONFIG away") from None
    except UnicodeDecodeError:
        raise place.bad("it is not UTF-8", "Save it as a UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise place.bad(f"it is not TOML: {error}", "Mend that line") from None
    except RecursionError:
        raise place.bad("it is nested too deeply", "Settings are plain tables") from None


def _aliases(place: FieldPlace, document: Table) -> dict[str, str]:
    place = place.at("aliases")
    table = document.get("aliases", {})
    if not isinstance(table, dict):
        raise place.bad("expected a table", 'Write [aliases], and below it lines such as fast = "provider:model"')
    for name, meaning in table.items():
        if not ALIAS.fullmatch(name):
            raise place.at(name).bad("the name is not usable", "Write letters, digits, dots, dashes and underscores")
        if not isinstance(meaning, str):
            raise place.at(name).bad("expected a text", f'Write {name} = "provider:model"')
    return table


def _model(place: FieldPlace, document: Table) -> str:
    value = document.get("model", "")
    if not isinstance(value, str):
        raise place.at("model").bad("expected a text", 'Write model = "provider:model", or an alias')
    return value


def _trusted(place: FieldPlace, document: Table) -> tuple[str, ...]:
    value = document.get("trusted", [])
    if not isinstance(value, list) or not all(isinstance(one, str) and "\0" not in one for one in value):
        raise place.at("trusted").bad("expected a list of texts", 'Write trusted = ["/path/to/a/folder"]')
    return tuple(value)


def _harnesses(place: FieldPlace, document: Table) -> dict[str, str]:
    table = document.get("harness", {})
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise place.at("harness").bad("expected a table of texts", 'Write [harness], and below it name = "module:attribute"')
    return table


def _policy(file: str, document: Table, root: Path | None) -> tuple[Policy | None, dict[str, str]]:
    """What the file says of calls, with a name for each rule that tells where it stands."""
    stated = document.get("policy_default")
    if "policy" not in document and stated is None:
        return None, {}
    base = str(root.resolve()) if root else ""
    found = read_policy(document.get("policy", []), file=file, default=stated, root=base)
    named = (_named(rule, f"rule {number} of {Path(file).name}") for number, rule in enumerate(found.rules, 1))
    return Policy(tuple(named), found.default), msgspec.convert(stated or {}, dict[str, str])


def _named(rule: Rule, name: str) -> Rule:
    return rule if rule.name else msgspec.structs.replace(rule, name=name)


# What a file that came with a project may not say.


def _trusts(sheets: Iterable[Sheet], folder: Path, home: Path | None) -> bool:
    """Whether the user's own file names this folder. Only that file is asked: a project cannot vouch for itself."""
    real = folder.resolve()
    return any(_expanded(one, home).resolve() == real for sheet in sheets for one in sheet.trusted)


def _expanded(folder: str, home: Path | None) -> Path:
    return home / folder[2:] if home and folder.startswith("~/") else Path(folder)


def _untrusted(sheet: Sheet) -> Sheet:
    """The sheet as one that can only forbid. It must not say who gets a conversation or a key, nor what is read or run."""
    for key in sheet.keys:
        if TRUST[key] == "refused":
            raise _unvouched(FieldPlace(sheet.page.file, "").at(key), Path(sheet.page.file).parent)
    return msgspec.structs.replace(sheet, foreign=True)


def _unvouched(place: FieldPlace, folder: Path) -> BadRow:
    if place.field == "trusted":
        return place.bad("a project cannot vouch for itself", "Write it in your own config.toml")
    return place.bad(
        "a file in the working folder may not say where requests and keys go, for it may have come with a cloned project",
        f'If you know the file, write trusted = ["{folder}"] in your own config.toml; or move the setting there',
    )


# All files together.


@cache
def _plain() -> Config:
    """Without any file."""
    return _config([])


def _config(sheets: list[Sheet], *, project: str = "") -> Config:
    rows = _merged([*_built_in(), *(sheet.page for sheet in sheets)])
    aliases = dict(ALIASES)
    for sheet in sheets:
        aliases |= sheet.aliases
    for sheet in sheets:
        for name in sheet.aliases:
            _check(FieldPlace(sheet.page.file, "").at("aliases").at(name), name, rows=rows, aliases=aliases)
    stated = [sheet for sheet in sheets if sheet.model]
    for sheet in stated:
        _check(FieldPlace(sheet.page.file, "").at("model"), sheet.model, rows=rows, aliases=aliases)
    model = resolve_alias(stated[-1].model, aliases) if stated else ""
    files = tuple(sheet.page.file for sheet in sheets)
    return Config(rows, MappingProxyType(aliases), model, files, _policies(sheets), _all_harnesses(sheets), project)


def _all_harnesses(sheets: list[Sheet]) -> Mapping[str, NamedHarness]:
    """The later file wins; one that is not trusted takes no name from another."""
    found: dict[str, NamedHarness] = {}
    for sheet in sorted(sheets, key=lambda sheet: not sheet.foreign):
        file, trusted = sheet.page.file, not sheet.foreign
        found |= {name: NamedHarness(reference, file, trusted) for name, reference in sheet.harnesses.items()}
    return MappingProxyType(found)


def _policies(sheets: list[Sheet]) -> Policy | None:
    """The rules of later files come first, and defaults are replaced one by one; a foreign file's policy only tightens.

    A user without a policy has said that everything runs but what wants approval: a project cannot take that back.
    """
    own = [sheet for sheet in sheets if sheet.policy is not None and not sheet.foreign]
    foreign = tuple(_marked(sheet) for sheet in sheets if sheet.policy is not None and sheet.foreign)
    if not own:
        return Policy(default=OPEN.default, also=foreign) if foreign else None
    stated: dict[str, str] = {}
    for sheet in own:
        stated |= sheet.stated
    rules = tuple(rule for sheet in reversed(own) if sheet.policy for rule in sheet.policy.rules)
    try:
        return Policy(rules, msgspec.convert(stated, Defaults), foreign)
    except UsageError as error:
        raise (
            FieldPlace(own[-1].page.file, "").at("policy").bad(str(error).rstrip("."), "It is in your own file, too")
        ) from None


def _marked(sheet: Sheet) -> Policy:
    """The policy with names that cannot be taken for those of the user's own rules."""
    policy = sheet.policy or Policy()
    file = Path(sheet.page.file).name
    names = [rule.name if rule.name.endswith(f" of {file}") else f"{rule.name} ({file})" for rule in policy.rules]
    rules = (msgspec.structs.replace(rule, name=name) for rule, name in zip(policy.rules, names, strict=True))
    return Policy(tuple(rules), policy.default)


def _check(place: FieldPlace, name: str, *, rows: Rows, aliases: Mapping[str, str]) -> None:
    """A name that leads nowhere is found now, where it was written, and not when it is used."""
    try:
        parse_model(name, rows=rows, aliases=aliases)
    except UsageError as error:
        raise place.bad("it names no model", str(error).rstrip(".")) from None
