"""What `evener doctor` looks at: each check gives findings, and each problem its fix. Changes nothing, and sends no key."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from typing import Literal

import msgspec

from evener import __version__
from evener.errors import UsageError
from evener.providers.config import Config, load_config
from evener.providers.keys import Key, account_headers, account_values, check_secret, find_key, key_file, read_keys, require_key
from evener.providers.names import LOCAL, parse_model
from evener.providers.rows import Provider

__all__ = ["Finding", "State", "config_findings", "key_findings", "keyed", "local_findings", "version_findings"]

State = Literal["ok", "note", "problem"]

# What is installed, and what for. The first ones must be there; the others come with an extra.
NEEDED = ("msgspec",)
EXTRAS = (
    ("genai-prices", "prices", "estimated costs"),
    ("xllamacpp", "local", "models on this machine, such as local:smollm2"),
)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at. `fix` says what to do; only a problem makes the command fail."""

    about: str
    state: State
    text: str
    fix: str = ""


def version_findings() -> Iterator[Finding]:
    """Python, Evener, and the packages that it uses."""
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    yield Finding("evener", "ok", __version__)
    for package in NEEDED:
        found = _version(package)
        if found:
            yield Finding(package, "ok", found)
        else:
            yield Finding(package, "problem", "not installed", "pip install --upgrade evener")
    for package, extra, what in EXTRAS:
        found = _version(package)
        if found:
            yield Finding(package, "ok", found)
        else:
            yield Finding(package, "note", f"not installed; it is for {what}", f"pip install 'evener[{extra}]'")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def config_findings(environ: Mapping[str, str]) -> tuple[list[Finding], Config]:
    """The files that were read, and what they say; the built-in rows alone when a file is broken."""
    try:
        config = load_config(environ=environ)
    except UsageError as error:
        return [Finding("config", "problem", str(error), "Mend the file, then run: evener doctor")], _built_in()
    found = [Finding("config", "ok", file) for file in config.files]
    return found or [Finding("config", "ok", "no file; the built-in rows are used")], config


def _built_in() -> Config:
    return load_config(Path("/"), environ={"EVENER_CONFIG": os.devnull})


def key_findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """The key file, the keys that are there, and the key of the configured model."""
    file = key_file(environ)
    yield from _file_findings(file)
    yield from _variable_findings(config, environ)
    for row, key in keyed(config, environ):
        missing = _missing(row, environ, file)
        if missing:
            yield Finding(f"key of {row.name}", "note", f"{key.source}, but more is needed", missing)
        else:
            yield Finding(f"key of {row.name}", "ok", key.source)
    yield from _model_findings(config, environ, file)


def _variable_findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that are set to something that cannot be sent."""
    for name in dict.fromkeys(name for row in config.rows.providers for name in row.key_env if environ.get(name, "").strip()):
        try:
            check_secret(environ[name], f"environment variable {name}")
        except UsageError as error:
            yield Finding(name, "problem", str(error), f"Set {name} anew, or take it away: unset {name}")


def _file_findings(file: Path | None) -> Iterator[Finding]:
    if file is None:
        yield Finding("key file", "note", "there is no home folder to keep one in", "Set HOME or XDG_CONFIG_HOME")
        return
    try:
        count = len(read_keys(file))
    except UsageError as error:
        yield Finding("key file", "problem", str(error), _mending(file))
        return
    if not os.path.lexists(file):
        yield Finding("key file", "ok", f"none yet; it would be {file}")
    else:
        yield Finding("key file", "ok", f"{file}, mode {stat.S_IMODE(file.stat().st_mode):04o}, {count} values")
        mode = stat.S_IMODE(file.parent.stat().st_mode)
        if mode & 0o077:
            yield Finding(
                "key folder",
                "note",
                f"others may look into {file.parent} (mode {mode:04o})",
                f"chmod 700 {quote(str(file.parent))}",
            )


def _mending(file: Path) -> str:
    for path in (file, file.parent):
        if os.path.islink(path):
            return f"Replace the link {path} by what it points to"
    names = quote(str(file.parent)), quote(str(file))
    try:
        folder, found = file.parent.stat(), file.stat()
    except OSError:
        return f"chmod 700 {names[0]}"
    if not stat.S_ISREG(found.st_mode):
        return f"mv {names[1]} {names[1]}.old, and store the keys again with: evener keys set NAME"
    if (folder.st_uid, found.st_uid) != (os.geteuid(), os.geteuid()):
        return f"chown {os.geteuid()} {names[0]} {names[1]}"
    if stat.S_IMODE(folder.st_mode) & 0o722 != 0o700 or stat.S_IMODE(found.st_mode) & 0o477 != 0o400:
        return f"chmod 700 {names[0]}; chmod 600 {names[1]}"
    return f"Mend it in an editor, or: rm {names[1]}, and store the keys again with: evener keys set NAME"


def keyed(config: Config, environ: Mapping[str, str]) -> list[tuple[Provider, Key]]:
    """The rows whose key is there, with it. A key that cannot be used, or a file that is refused, counts as none here."""
    found = []
    for row in config.rows.providers:
        try:
            key = find_key(row, environ=environ, file=key_file(environ))
        except UsageError:
            key = None
        if key is not None:
            found.append((row, key))
    return found


def _missing(row: Provider, environ: Mapping[str, str], file: Path | None) -> str:
    """What else the row needs, in words; empty if nothing."""
    try:
        row.url(account_values(row, environ=environ, file=file))
        account_headers(row, environ=environ, file=file)
    except UsageError as error:
        return str(error)
    return ""


def _model_findings(config: Config, environ: Mapping[str, str], file: Path | None) -> Iterator[Finding]:
    """Whether the model that is asked by default can be asked."""
    if not config.model:
        return
    name = parse_model(config.model, rows=config.rows, aliases=config.aliases)
    row = config.rows.provider(name.provider)
    try:
        require_key(row, environ=environ, file=file)
        problem = _missing(row, environ, file)
    except UsageError as error:
        problem = str(error)
    if problem:
        yield Finding("model", "problem", f"{name} is configured but cannot be asked", problem)
    else:
        yield Finding("model", "ok", str(name))


def _unloadable(config: Config) -> str:
    """Why the configured model cannot run inside Evener; empty if it can, or runs elsewhere."""
    from evener.local import locate_weights

    name = parse_model(config.model, rows=config.rows, aliases=config.aliases) if config.model else None
    if name is None or config.rows.provider(name.provider).vendor != LOCAL:
        return ""
    try:
        weights = locate_weights(name.model)
    except UsageError as error:
        return str(error)
    return "" if weights.bundle or os.path.isfile(weights.path) else f"there is no file {weights.path}"


def local_findings(config: Config) -> Iterator[Finding]:
    """Whether the model inside Evener can run, and whether its weights are here."""
    if not _version("xllamacpp"):
        return  # said among the versions
    from evener.local import BUNDLES, locate_weights
    from evener.local.weights import weights_folder

    for bundle in BUNDLES.values():
        weights = locate_weights(bundle.name)
        if os.path.isfile(weights.path):
            yield Finding(f"local:{bundle.name}", "ok", f"weights in {weights.path}")
        else:
            size = f"{bundle.size / 1e6:.0f} MB"
            fix = f"They are fetched when it is first asked: evener complete local:{bundle.name} Hello"
            yield Finding(f"local:{bundle.name}", "note", f"weights not fetched yet ({size})", fix)
    if problem := _unloadable(config):
        yield Finding(config.model, "problem", problem, "Mend `model` in the config file")
    folder = weights_folder()
    free = next(shutil.disk_usage(place).free for place in (folder, *folder.absolute().parents) if os.path.isdir(place))
    if free < 500e6:
        yield Finding("disk", "note", f"{free / 1e6:.0f} MB are free", "Free some space before weights are fetched")
