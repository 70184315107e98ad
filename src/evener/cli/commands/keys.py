"""`evener keys`: stores, lists and removes keys. Only the fingerprint of a key is ever printed."""

import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import msgspec

from evener.cli.terminal import print_json, print_table, say
from evener.errors import UsageError
from evener.providers.config import load_config
from evener.providers.keys import check_secret, find_value, key_file, read_keys, remove_keys, store_key
from evener.providers.rows import Rows

MOST = 64 * 1024


class StoredKey(msgspec.Struct, frozen=True):
    """A key that was found, by its fingerprint."""

    variable: str
    source: str
    fingerprint: str
    providers: tuple[str, ...]


def store(name: str) -> int:
    """Read a key and store it."""
    rows = load_config(environ=os.environ).rows
    variable = _variables(name, rows)[0]
    file = _file()
    store_key(file, variable, _read_key(variable))
    found = find_value([variable], environ={}, file=file)
    shown = _fingerprint(found.secret) if found else ""
    say(f"Stored {variable} ({shown}) in {file}. Used by: {', '.join(_all_variables(rows)[variable])}.")
    if os.environ.get(variable, "").strip():
        say(f"The environment variable {variable} is set, too, and takes precedence.")
    return 0


def show(*, as_json: bool) -> int:
    """Print which keys there are."""
    rows = load_config(environ=os.environ).rows
    found = list(_find_keys(rows, key_file(os.environ)))
    if as_json:
        print_json(found)
    elif found:
        lines = [(one.variable, one.fingerprint, one.source, ", ".join(one.providers)) for one in found]
        print_table(["VARIABLE", "FINGERPRINT", "SOURCE", "USED BY"], lines)
    else:
        say("There are no keys. Store one with: evener keys set NAME. `evener models --providers` lists their names.")
    return 0


def remove(name: str) -> int:
    """Remove the stored key of this name."""
    file = _file()
    rows = load_config(environ=os.environ).rows
    variables = (name,) if name in read_keys(file) else _variables(name, rows)
    gone = remove_keys(file, variables)
    if not gone:
        say(f"Nothing to remove: {file} has no {' or '.join(variables)}.")
        return 1
    say(f"Removed {', '.join(gone)} from {file}.")
    for variable in variables:
        if os.environ.get(variable, "").strip():
            say(f"The environment variable {variable} is still set.")
    return 0


def path() -> int:
    """Print the path of the key file, even if it does not exist yet."""
    print(_file())
    return 0


def _file() -> Path:
    file = key_file(os.environ)
    if file is None:
        raise UsageError("There is no home folder to keep keys in. Set HOME or XDG_CONFIG_HOME.")
    return file


def _variables(name: str, rows: Rows) -> tuple[str, ...]:
    """Return the variables that a name stands for. The error does not repeat an unknown name: it may be the key itself."""
    for row in rows.providers:
        if row.name == name.lower():
            if row.key_env:
                return row.key_env
            raise UsageError(f"Provider {row.name!r} needs no key, so there is nothing to store.")
    known = _all_variables(rows)
    if name in known:
        return (name,)
    near = get_close_matches(name, [*(row.name for row in rows.providers), *known], n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"There is no provider or variable with that name (not shown, because it might be a key). {hint}Give the name of a "
        "provider, as in: evener keys set anthropic. You are asked for the key itself, or it is read from standard input."
    )


def _all_variables(rows: Rows) -> dict[str, list[str]]:
    """Return every variable that a provider row names, with the providers that use it."""
    found: dict[str, list[str]] = {}
    for row in rows.providers:
        parts = [name for part in (*row.url_env, *row.header_env) for name in part.env]
        for variable in dict.fromkeys((*row.key_env, *parts)):
            found.setdefault(variable, []).append(row.name)
    return found


def _find_keys(rows: Rows, file: Path | None) -> Iterator[StoredKey]:
    known = _all_variables(rows)
    left = {variable: list[str]() for variable in (read_keys(file) if file else ()) if variable not in known}
    for variable, providers in {**known, **left}.items():
        key = find_value([variable], environ=os.environ, file=file)
        if key is not None:
            yield StoredKey(variable, key.source, _fingerprint(key.secret), tuple(providers))


def _fingerprint(secret: str) -> str:
    from evener.transport.secrets import fingerprint

    return fingerprint(secret)


def _read_key(variable: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        try:
            typed = getpass(f"{variable} (not shown): ", stream=sys.stderr)
        except EOFError:
            typed = ""
        return check_secret(typed, "terminal")
    data = sys.stdin.buffer.read(MOST + 1)
    try:
        return check_secret(data.decode(), "standard input")
    except UnicodeDecodeError:
        raise UsageError("Standard input is not UTF-8 text. Pipe the key itself, and nothing else.") from None
