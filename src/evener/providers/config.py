"""The user's config files: finds them, checks them and merges their settings. Reads files, changes none.

The environment and the working folder are arguments. A config file never holds a secret: keys have a file of their own.

A file named by EVENER_CONFIG is the only one that counts. Without it, two count, the later over the earlier: the user's
own `evener/config.toml` in the config folder, and the nearest `evener.toml` in the working folder or above it. The latter
may have come with a cloned project. Unless the user's own file trusts its folder, it can only forbid: `TRUST` says what
happens to each of its keys.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from os.path import isfile, realpath
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

from evener.errors import BadRow, UsageError
from evener.policy.config import read_policy
from evener.policy.rules import OPEN, Defaults, Policy
from evener.providers.rows import (
    ALIASES,
    FieldPlace,
    RowFile,
    Rows,
    Table,
    load_built_in,
    merge_rows,
    parse_model,
    parse_rows,
    read_toml,
    resolve_alias,
)
from evener.transport.secrets import Environment

FILE = "evener.toml"

Untrusted = Literal["refused", "when used", "tightens", "unread"]
TRUST: Mapping[str, Untrusted] = MappingProxyType(
    {
        "aliases": "refused",  # a known name could lead to another provider, which then gets the conversation
        "providers": "refused",  # addresses, keys, headers, paths, and what else is read from the environment
        "models": "refused",  # quirks say under which path, and in which form, requests are sent
        "model": "refused",  # decides which provider gets the conversation, or which weights are loaded here
        "trusted": "refused",  # a project cannot vouch for itself
        "harness": "when used",  # names code, which is imported only when the user asks for the harness of that name
        "mcp": "when used",  # names programs to start, which the user asks for by name
        "policy": "tightens",  # applies beside the user's own, and the strictest verdict counts
        "policy_default": "tightens",
        "agents": "unread",
    }
)
"""Every key that a config file may have, and what happens to it in a project's file that the user does not trust."""

ALIAS = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class NamedHarness(msgspec.Struct, frozen=True):
    """The location of a harness in a file: `module:attribute`, imported from the folder of that file. It is code, so it
    needs trust.
    """

    reference: str
    file: str
    trusted: bool = True

    @property
    def folder(self) -> str:
        """Return the folder of the file."""
        return str(Path(self.file).parent)


class NamedServer(msgspec.Struct, frozen=True):
    """The settings of an MCP server in a file, not parsed yet. It may be a program to start, so it needs trust."""

    table: Mapping[str, object]
    file: str
    trusted: bool = True


class Config(msgspec.Struct, frozen=True):
    """All settings together. `aliases` includes the built-in ones; `files` are those that were read, the last one wins.

    `model` is the default model, empty if none is configured. `policy` says which calls are allowed, denied or need
    approval; None if no file has rules. `project` is the folder of the project's file if the user trusts it, else empty.
    `trusted` are the folders that the user's own file names, resolved.
    """

    rows: Rows
    aliases: Mapping[str, str] = ALIASES
    model: str = ""
    files: tuple[str, ...] = ()
    policy: Policy | None = None
    harnesses: Mapping[str, NamedHarness] = MappingProxyType({})
    project: str = ""
    mcp: Mapping[str, NamedServer] = MappingProxyType({})
    trusted: tuple[str, ...] = ()


class _Settings(msgspec.Struct, frozen=True):
    """The settings of a file that are neither rows nor rules."""

    aliases: dict[str, str] = {}
    model: str = ""
    trusted: tuple[Annotated[str, msgspec.Meta(pattern=r"\A[^\0]*\Z")], ...] = ()
    harness: dict[str, str] = {}
    mcp: dict[str, dict[str, object]] = {}


EXPECTED = {
    "aliases": ("a table of texts", 'Write [aliases], and below it lines such as fast = "provider:model"'),
    "model": ("a text", 'Write model = "provider:model", or an alias'),
    "trusted": ("a list of texts", 'Write trusted = ["/path/to/a/folder"]'),
    "harness": ("a table of texts", 'Write [harness], and below it name = "module:attribute"'),
    "mcp": ("a table of tables", 'Write [mcp.NAME], and below it command = "..." or url = "..."'),
}


class Sheet(msgspec.Struct, frozen=True):
    """One config file, checked. `stated` are the policy defaults that it sets itself; `foreign`: it is not trusted."""

    page: RowFile
    settings: _Settings
    policy: Policy | None
    stated: dict[str, str]
    keys: tuple[str, ...]
    foreign: bool = False


def config_folder(environ: Mapping[str, str]) -> Path | None:
    """Return Evener's own folder for config and keys; None where there is no home."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):  # a relative one is to be ignored, its specification says
        return Path(base) / "evener"
    home = _home(environ)
    return home / ".config" / "evener" if home else None


def load_config(start: Path | None = None, *, environ: Mapping[str, str]) -> Config:
    """Return the built-in rows with the settings of the user's files. `start` is the folder to look in; None means cwd.

    Raises BadRow, with file and place, for anything that is not understood; a missing file is an error only if EVENER_CONFIG
    names it.
    """
    environ = Environment(environ)
    named = environ.get("EVENER_CONFIG", "")
    root = _folder(start)
    if named:
        sheets = [_read_sheet(_expand(named, _home(environ)), root)]
        return _merge(sheets, trusted=_list_trusted(sheets, _home(environ)))
    sheets = []
    folder = config_folder(environ)
    own = folder / "config.toml" if folder else None
    if own and isfile(own):
        sheets.append(_read_sheet(own, root))
    found = _nearest(root, _home(environ))
    if not found or found == own:
        return _merge(sheets, trusted=_list_trusted(sheets, _home(environ))) if sheets else _merge_none()
    trusted = _list_trusted(sheets, _home(environ))
    if str(found.parent.resolve()) in trusted:
        return _merge([*sheets, _read_sheet(found, root)], project=str(found.parent), trusted=trusted)
    return _merge([*sheets, _restrict(_read_sheet(found, root))], trusted=trusted)


def find_project(config: Config, start: Path, *, environ: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the folder of the project that contains `start`, and whether the user trusts it.

    It is the nearest folder with a project file or a repository, or one that the user trusts; else `start` itself. The home
    folder and our config folder belong to the user. A clone inside a trusted folder is a different project.
    """
    home, own = _home(environ), config_folder(environ)
    here = Path(realpath(start))  # what is named by way of a trusted folder, as in trusted/../clone, is not inside it
    if own and here == own.resolve():
        return here, True
    for folder in (here, *here.parents):
        if home and folder == home.resolve():
            return (folder, True) if folder == here else (here, False)
        if str(folder) in config.trusted:
            return folder, True
        if isfile(folder / FILE) or (folder / ".git").exists():
            return folder, False
    return here, False


def _home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "") or environ.get("USERPROFILE", "")
    return Path(home) if home else None


def _folder(start: Path | None) -> Path | None:
    """Return the folder to start from; None if the working folder was deleted."""
    try:
        return (start or Path.cwd()).absolute()
    except FileNotFoundError:
        return None


def _nearest(below: Path | None, home: Path | None) -> Path | None:
    """Return the first project file in this folder or above, up to the home folder or the root."""
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


def _read_sheet(path: Path, root: Path | None) -> Sheet:
    """Return one file, checked. Raises BadRow."""
    file = str(path)
    place = FieldPlace(file, "")
    document = read_toml(place, path, do="Correct the file, or unset EVENER_CONFIG")
    for key in document:
        if key not in TRUST:
            raise place.at(key).bad("there is no such setting", f"Known are {', '.join(TRUST)}")
    page, settings = parse_rows(file, document), _parse_settings(place, document)
    policy, stated = _parse_policy(file, document, root)
    return Sheet(page, settings, policy, stated, tuple(document))


def _parse_settings(place: FieldPlace, document: Table) -> _Settings:
    try:
        found = msgspec.convert(document, _Settings)
    except msgspec.ValidationError:
        raise _misfit(place, document) from None
    for name in found.aliases:
        if not ALIAS.fullmatch(name):
            do = "Write letters, digits, dots, dashes and underscores"
            raise place.at("aliases").at(name).bad("the name is not usable", do)
    return found


def _misfit(place: FieldPlace, document: Table) -> BadRow:
    """Return the error for the first setting of a wrong type."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(_Settings)}
    for name in kinds.keys() & document.keys():
        value, where = document[name], place.at(name)
        try:
            msgspec.convert(value, kinds[name])
        except msgspec.ValidationError:
            break
    wrong = [key for key, one in value.items() if not isinstance(one, str)] if isinstance(value, dict) else []
    what, do = EXPECTED[name]
    return (where.at(wrong[0]) if wrong else where).bad(f"expected {what}", do)


def _parse_policy(file: str, document: Table, root: Path | None) -> tuple[Policy | None, dict[str, str]]:
    """Return the rules of the file, each with a name that shows its place, and the defaults that the file sets."""
    stated = document.get("policy_default")
    if "policy" not in document and stated is None:
        return None, {}
    base = str(root.resolve()) if root else ""
    found = read_policy(document.get("policy", []), file=file, default=stated, root=base)
    rules = tuple(
        rule if rule.name else msgspec.structs.replace(rule, name=f"rule {number} of {Path(file).name}")
        for number, rule in enumerate(found.rules, 1)
    )
    return Policy(rules, found.default), msgspec.convert(stated or {}, dict[str, str])


# What a project's file may not set.


def _list_trusted(sheets: Iterable[Sheet], home: Path | None) -> tuple[str, ...]:
    """Return the folders that the user's own file trusts. No other file counts: a project cannot declare itself trusted."""
    return tuple(str(_expand(one, home).resolve()) for sheet in sheets for one in sheet.settings.trusted)


def _expand(folder: str, home: Path | None) -> Path:
    return home / folder[2:] if home and folder.startswith("~/") else Path(folder)


def _restrict(sheet: Sheet) -> Sheet:
    """Return the sheet as one that can only forbid. Raises BadRow if it sets where data is sent, or what is read or run."""
    for key in sheet.keys:
        if TRUST[key] != "refused":
            continue
        place = FieldPlace(sheet.page.file, "").at(key)
        if key == "trusted":
            raise place.bad("a file in the working folder cannot mark folders as trusted", "Write it in your own config.toml")
        raise place.bad(
            "a file in the working folder may not say where requests and keys go, for it may have come with a cloned project",
            f'If you know the file, write trusted = ["{Path(sheet.page.file).parent}"] in your own config.toml; '
            "or move the setting there",
        )
    return msgspec.structs.replace(sheet, foreign=True)


# All files together.


@cache
def _merge_none() -> Config:
    """Return the config for the case that there is no file. It is made once."""
    return _merge([])


def _merge(sheets: list[Sheet], *, project: str = "", trusted: tuple[str, ...] = ()) -> Config:
    rows = merge_rows([*load_built_in(), *(sheet.page for sheet in sheets)])
    aliases, model = dict(ALIASES), ""
    for sheet in sheets:
        aliases |= sheet.settings.aliases
    for sheet in sheets:
        place = FieldPlace(sheet.page.file, "")
        for name in sheet.settings.aliases:
            _check(place.at("aliases").at(name), name, rows=rows, aliases=aliases)
        if sheet.settings.model:
            _check(place.at("model"), sheet.settings.model, rows=rows, aliases=aliases)
            model = resolve_alias(sheet.settings.model, aliases)
    files = tuple(sheet.page.file for sheet in sheets)
    harnesses, servers = _merge_named(sheets)
    return Config(rows, MappingProxyType(aliases), model, files, _merge_policies(sheets), harnesses, project, servers, trusted)


def _merge_named(sheets: list[Sheet]) -> tuple[Mapping[str, NamedHarness], Mapping[str, NamedServer]]:
    """Return the harnesses and the MCP servers by name. A later file overrides an earlier one, unless it is untrusted."""
    harnesses: dict[str, NamedHarness] = {}
    servers: dict[str, NamedServer] = {}
    for sheet in sorted(sheets, key=lambda sheet: not sheet.foreign):
        file, trusted = sheet.page.file, not sheet.foreign
        harnesses |= {name: NamedHarness(one, file, trusted) for name, one in sheet.settings.harness.items()}
        servers |= {name: NamedServer(one, file, trusted) for name, one in sheet.settings.mcp.items()}
    return MappingProxyType(harnesses), MappingProxyType(servers)


def _merge_policies(sheets: list[Sheet]) -> Policy | None:
    """Return one policy. Rules of later files come first, and defaults are replaced one by one; an untrusted file can only
    restrict.

    Without a policy of the user, every call runs except those of tools that need approval. A project cannot change that.
    """
    own = [sheet for sheet in sheets if sheet.policy is not None and not sheet.foreign]
    foreign = tuple(_mark_rules(sheet) for sheet in sheets if sheet.policy is not None and sheet.foreign)
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
            FieldPlace(own[-1].page.file, "")
            .at("policy")
            .bad(str(error).rstrip("."), "Another config file of yours has a rule of that name")
        ) from None


def _mark_rules(sheet: Sheet) -> Policy:
    """Return the policy of a sheet with rule names that differ from those of the user's own rules."""
    policy = sheet.policy or Policy()
    file = Path(sheet.page.file).name
    names = [rule.name if rule.name.endswith(f" of {file}") else f"{rule.name} ({file})" for rule in policy.rules]
    rules = (msgspec.structs.replace(rule, name=name) for rule, name in zip(policy.rules, names, strict=True))
    return Policy(tuple(rules), policy.default)


def _check(place: FieldPlace, name: str, *, rows: Rows, aliases: Mapping[str, str]) -> None:
    """Raise BadRow, with the place in the file, for a name that does not lead to a model."""
    try:
        parse_model(name, rows=rows, aliases=aliases)
    except UsageError as error:
        raise place.bad("it names no model", str(error).rstrip(".")) from None
