"""`evener doctor`: checks the installation, the configuration, the keys and the network, and prints a fix for each problem."""

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from typing import Literal

import msgspec

from evener import __version__
from evener.cli.commands.models import is_local
from evener.cli.terminal import Style, clean, count, paint, print_json
from evener.errors import EvenerError, UsageError
from evener.providers.config import Config, load_config
from evener.providers.keys import Key, account_headers, account_values, check_secret, find_key, key_file, read_keys, require_key
from evener.providers.rows import LOCAL, Provider, parse_model
from evener.transport.exchange import Deadlines, Request, Transport

State = Literal["ok", "note", "problem"]

# NEEDED must be installed; EXTRAS come with an extra: package, extra, what it is for.
NEEDED = ("msgspec",)
EXTRAS = (
    ("genai-prices", "prices", "estimated costs"),
    ("xllamacpp", "local", "models on this machine, such as local:smollm2"),
)


class CheckFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check. `fix` says what to do; only a problem makes the command fail."""

    about: str
    state: State
    text: str
    fix: str = ""


def version_findings() -> Iterator[CheckFinding]:
    """Check Python, Evener, and the packages that it uses."""
    yield CheckFinding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    yield CheckFinding("evener", "ok", __version__)
    for package in NEEDED:
        missing = CheckFinding(package, "problem", "not installed", "pip install --upgrade evener")
        yield CheckFinding(package, "ok", found) if (found := _version(package)) else missing
    for package, extra, what in EXTRAS:
        missing = CheckFinding(package, "note", f"not installed; needed for {what}", f"pip install 'evener[{extra}]'")
        yield CheckFinding(package, "ok", found) if (found := _version(package)) else missing


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def config_findings(environ: Mapping[str, str]) -> tuple[list[CheckFinding], Config]:
    """Check the config files; return what they say, or the built-in rows alone if a file is broken."""
    try:
        config = load_config(environ=environ)
    except UsageError as error:
        return [CheckFinding("config", "problem", str(error), "Fix the file, then run: evener doctor")], load_config(
            Path("/"), environ={"EVENER_CONFIG": os.devnull}
        )
    found = [CheckFinding("config", "ok", file) for file in config.files]
    return found or [CheckFinding("config", "ok", "no file; using the built-in rows")], config


def key_findings(config: Config, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    """Check the key file, the keys, and the configured model."""
    file = key_file(environ)
    yield from _file_findings(file)
    yield from _variable_findings(config, environ)
    for row, key in find_keys(config, environ):
        missing = _describe_missing(row, environ, file)
        if missing:
            yield CheckFinding(f"key of {row.name}", "note", f"{key.source}, but this provider needs more", missing)
        else:
            yield CheckFinding(f"key of {row.name}", "ok", key.source)
    yield from _model_findings(config, environ, file)


def _variable_findings(config: Config, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    """Find variables whose value cannot be sent as a key."""
    for name in dict.fromkeys(name for row in config.rows.providers for name in row.key_env if environ.get(name, "").strip()):
        try:
            check_secret(environ[name], f"environment variable {name}")
        except UsageError as error:
            yield CheckFinding(name, "problem", str(error), f"Set {name} to a valid key, or remove it: unset {name}")


def _file_findings(file: Path | None) -> Iterator[CheckFinding]:
    if file is None:
        yield CheckFinding("key file", "note", "there is no home folder for it", "Set HOME or XDG_CONFIG_HOME")
        return
    try:
        stored = len(read_keys(file))
    except UsageError as error:
        yield CheckFinding("key file", "problem", str(error), _suggest_fix(file))
        return
    if not os.path.lexists(file):
        yield CheckFinding("key file", "ok", f"none yet; its path is {file}")
    else:
        yield CheckFinding("key file", "ok", f"{file}, mode {stat.S_IMODE(file.stat().st_mode):04o}, {count(stored, 'value')}")
        mode = stat.S_IMODE(file.parent.stat().st_mode)
        if mode & 0o077:
            yield CheckFinding(
                "key folder",
                "note",
                f"other users can read {file.parent} (mode {mode:04o})",
                f"chmod 700 {quote(str(file.parent))}",
            )


def _suggest_fix(file: Path) -> str:
    for path in (file, file.parent):
        if os.path.islink(path):
            return f"Replace the link {path} with its target"
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
    return f"Fix it in an editor, or: rm {names[1]}, and store the keys again with: evener keys set NAME"


def find_keys(config: Config, environ: Mapping[str, str]) -> list[tuple[Provider, Key]]:
    """Return the providers with a usable key, and that key."""
    found = []
    for row in config.rows.providers:
        try:
            key = find_key(row, environ=environ, file=key_file(environ))
        except UsageError:
            key = None
        if key is not None:
            found.append((row, key))
    return found


def _describe_missing(row: Provider, environ: Mapping[str, str], file: Path | None) -> str:
    """Return what else the provider needs, as a sentence; empty if nothing."""
    try:
        row.url(account_values(row, environ=environ, file=file))
        account_headers(row, environ=environ, file=file)
    except UsageError as error:
        return str(error)
    return ""


def _model_findings(config: Config, environ: Mapping[str, str], file: Path | None) -> Iterator[CheckFinding]:
    """Check whether the default model can be used."""
    if not config.model:
        return
    name = parse_model(config.model, rows=config.rows, aliases=config.aliases)
    row = config.rows.provider(name.provider)
    try:
        require_key(row, environ=environ, file=file)
        problem = _describe_missing(row, environ, file)
    except UsageError as error:
        problem = str(error)
    if problem:
        yield CheckFinding("model", "problem", f"{name} is configured but cannot be used", problem)
    else:
        yield CheckFinding("model", "ok", str(name))


def _unloadable(config: Config) -> str:
    """Return why the configured local model cannot run; empty if it can, or if it is not local."""
    from evener.local import locate_weights

    name = parse_model(config.model, rows=config.rows, aliases=config.aliases) if config.model else None
    if name is None or config.rows.provider(name.provider).vendor != LOCAL:
        return ""
    try:
        weights = locate_weights(name.model)
    except UsageError as error:
        return str(error)
    return "" if weights.bundle or os.path.isfile(weights.path) else f"there is no file {weights.path}"


def local_findings(config: Config) -> Iterator[CheckFinding]:
    """Check the local model and its weights."""
    if not _version("xllamacpp"):
        return  # reported with the versions
    from evener.local import BUNDLES, locate_weights
    from evener.local.weights import weights_folder

    try:
        folder = weights_folder()
    except UsageError as error:
        yield CheckFinding("local", "note", str(error), "Set HOME or EVENER_HOME")
        return
    for bundle in BUNDLES.values():
        weights = locate_weights(bundle.name)
        if os.path.isfile(weights.path):
            yield CheckFinding(f"local:{bundle.name}", "ok", f"weights in {weights.path}")
        else:
            size = f"{bundle.size / 1e6:.0f} MB"
            fix = f"They are downloaded at the first use: evener complete local:{bundle.name} Hello"
            yield CheckFinding(f"local:{bundle.name}", "note", f"weights not downloaded yet ({size})", fix)
    if problem := _unloadable(config):
        yield CheckFinding(config.model, "problem", problem, "Fix `model` in the config file")
    free = next(shutil.disk_usage(place).free for place in (folder, *folder.absolute().parents) if os.path.isdir(place))
    if free < 500e6:
        yield CheckFinding("disk", "note", f"{free / 1e6:.0f} MB free", "Free some space before downloading weights")


PATIENCE = Deadlines(connect=4.0, idle=4.0, total=6.0)
COLOURS: Mapping[State, Style] = {"ok": "green", "note": "yellow", "problem": "red"}


def run(*, offline: bool, as_json: bool, thread: str = "", store: str = "") -> int:
    """Run all checks and print the findings; return 1 if something that is configured is broken. Or check one thread."""
    if thread:
        from evener.cli.reports.lint import run as lint_thread

        return lint_thread(thread, store=store, as_json=as_json)
    environ = os.environ
    found, config = config_findings(environ)
    found = [*version_findings(), *found, *key_findings(config, environ), *local_findings(config)]
    if not offline:
        found += asyncio.run(_reach_all(config, environ))
    if as_json:
        print_json(found)
    else:
        _print(found)
    return int(any(finding.state == "problem" for finding in found))


async def _reach_all(config: Config, environ: Mapping[str, str]) -> list[CheckFinding]:
    """Connect to every address that has a key, and to local servers, all at once; each address once."""
    from evener.transport.http import HttpTransport

    rows = {row.name: row for row, _ in find_keys(config, environ)}
    rows |= {row.name: row for row in config.rows.providers if row.keyless and is_local(row) and row.vendor != LOCAL}
    by_address: dict[str, list[Provider]] = {}
    for row in rows.values():
        address = _address(row, environ)
        if address:
            by_address.setdefault(address, []).append(row)
    async with HttpTransport() as transport, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(reach(address, users, transport=transport)) for address, users in by_address.items()]
    return [task.result() for task in running]


def _address(row: Provider, environ: Mapping[str, str]) -> str:
    """Return scheme and host; empty if a part of the address is missing, which is reported with the keys."""
    try:
        url = row.url(account_values(row, environ=environ, file=key_file(environ)))
    except UsageError:
        return ""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/"


async def reach(address: str, users: list[Provider], *, transport: Transport) -> CheckFinding:
    """Check whether anything answers a plain GET without a key; any answer will do."""
    about = ", ".join(row.name for row in users)
    try:
        response = await transport.send(Request(address, (), b"", method="GET", deadlines=PATIENCE))
        await response.aclose()
    except EvenerError as error:
        if all(row.keyless and is_local(row) for row in users):
            return CheckFinding(about, "note", f"no server is running at {address}", "Start it if you want to use it")
        return CheckFinding(
            about, "problem", f"{address} cannot be reached: {error}", "Check the network, the proxy and the address"
        )
    return CheckFinding(about, "ok", f"{address} answers")


def _print(found: Iterable[CheckFinding]) -> None:
    for finding in found:
        mark = paint(finding.state.ljust(8), COLOURS[finding.state])
        print(f"{mark}{clean(finding.about)}: {clean(finding.text)}")
        if finding.fix:
            print(f"        fix: {clean(finding.fix)}")
