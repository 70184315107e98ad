"""`evener keys`: store, list and remove keys. A key is typed unseen or read from stdin; only its fingerprint is ever shown."""

import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import msgspec

from evener.cli.terminal import escape_json, print_table, say
from evener.errors import UsageError
from evener.providers.config import load_config
from evener.providers.keys import check_secret, find_value, key_file, read_keys, remove_keys, store_key
from evener.providers.rows import Rows

__all__ = [
    "path",
    "remove",
    "show",
    "store",
]


MOST = 64 * 1024


class StoredKey(msgspec.Struct, frozen=True):
    """One value that was found, without the value."""

    variable: str
    source: str
    fingerprint: str
    providers: tuple[str, ...]


def store(name: str) -> int:
    """Read a key and keep it."""
    rows = load_config(environ=os.environ).rows
    variable = _variables(name, rows)[0]
    file = _file()
    store_key(file, variable, _typed(variable))
    found = find_value([variable], environ={}, file=file)
    shown = _fingerprint(found.secret) if found else ""
    say(f"Stored {variable} ({shown}) in {file}. It serves {', '.join(_users(variable, rows))}.")
    if os.environ.get(variable, "").strip():
        say(f"The environment variable {variable} is set, too, and comes first.")
    return 0


def show(*, as_json: bool) -> int:
    """Print which values there are."""
    rows = load_config(environ=os.environ).rows
    found = list(_found(rows, key_file(os.environ)))
    if as_json:
        sys.stdout.buffer.write(escape_json(msgspec.json.format(msgspec.json.encode(found), indent=2)) + b"\n")
    elif found:
        lines = [(one.variable, one.fingerprint, one.source, ", ".join(one.providers)) for one in found]
        print_table(["VARIABLE", "FINGERPRINT", "SOURCE", "SERVES"], lines, environ=os.environ)
    else:
        say("There are no keys. Store one with: evener keys set NAME. `evener models` lists the names.")
    return 0


def remove(name: str) -> int:
    """Forget what is stored under this name."""
    file = _file()
    rows = load_config(environ=os.environ).rows
    variables = (name,) if name in read_keys(file) else _variables(name, rows)
    gone = remove_keys(file, variables)
    if not gone:
        say(f"There is nothing to remove: {file} has no {' or '.join(variables)}.")
        return 1
    say(f"Removed {', '.join(gone)} from {file}.")
    for variable in variables:
        if os.environ.get(variable, "").strip():
            say(f"The environment variable {variable} is still set.")
    return 0


def path() -> int:
    """Print where the key file is, or would be."""
    print(_file())
    return 0


def _file() -> Path:
    file = key_file(os.environ)
    if file is None:
        raise UsageError("There is no home folder to keep keys in. Set HOME or XDG_CONFIG_HOME.")
    return file


def _variables(name: str, rows: Rows) -> tuple[str, ...]:
    """The variables that a name stands for. An unknown name is not repeated: somebody may have given the key itself."""
    for row in rows.providers:
        if row.name == name.lower():
            if row.key_env:
                return row.key_env
            raise UsageError(f"Provider {row.name!r} takes no key. There is nothing to store for it.")
    known = _all_variables(rows)
    if name in known:
        return (name,)
    near = get_close_matches(name, [*(row.name for row in rows.providers), *known], n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"There is no provider or variable of that name (not repeated here, it might be a key). {hint}Write the name of a "
        "provider, as in: evener keys set anthropic. The key itself is asked for, or read from standard input."
    )


def _all_variables(rows: Rows) -> dict[str, list[str]]:
    """Every variable that a row names, with the rows that do."""
    found: dict[str, list[str]] = {}
    for row in rows.providers:
        parts = [name for part in (*row.url_env, *row.header_env) for name in part.env]
        for variable in dict.fromkeys((*row.key_env, *parts)):
            found.setdefault(variable, []).append(row.name)
    return found


def _users(variable: str, rows: Rows) -> list[str]:
    return _all_variables(rows)[variable]


def _found(rows: Rows, file: Path | None) -> Iterator[StoredKey]:
    known = _all_variables(rows)
    left = {variable: list[str]() for variable in (read_keys(file) if file else ()) if variable not in known}
    for variable, providers in {**known, **left}.items():
        key = find_value([variable], environ=os.environ, file=file)
        if key is not None:
            yield StoredKey(variable, key.source, _fingerprint(key.secret), tuple(providers))


def _fingerprint(secret: str) -> str:
    from evener.transport.secrets import fingerprint

    return fingerprint(secret)


def _typed(variable: str) -> str:
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
        raise UsageError("What came on standard input is not a text. Pipe the key itself, and nothing else.") from None
