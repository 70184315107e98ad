"""Keys: looks them up in the environment and in Evener's key file, and changes that file. Reads and writes no other.

The file is a second environment: names of variables and their values, so one key serves every row that names its variable.
The real environment comes first. A secret is never in a message, a repr or another file, and a file that other users could
read or swap is refused.
"""

import os
import re
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from evener.errors import UsageError
from evener.providers.config import config_folder
from evener.providers.rows import Provider, Variable
from evener.transport.secrets import Environment, Secret, note_secret

PLAIN = re.compile(r"[\x21-\x7e]+")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
MOST_SECRET = 16 * 1024
MOST_FILE = 1024 * 1024
LOCK_SECONDS = 5.0
HEAD = "# Keys of Evener. Only you may read this file; `evener keys` writes it.\n"


class MissingKey(UsageError):
    """A key, or another value of the account, was not found. `variables` are the names it could have."""

    def __init__(self, message: str, *, provider: str, variables: tuple[str, ...]) -> None:
        super().__init__(message)
        self.provider = provider
        self.variables = variables


class Key:
    """A secret and where it was found, as in `environment variable NAME`. Never shown, pickled or compared."""

    __slots__ = ("_secret", "source", "variable")

    def __init__(self, secret: str, *, source: str, variable: str) -> None:
        self._secret = secret
        self.source = source
        self.variable = variable

    @property
    def secret(self) -> str:
        """Return the key itself."""
        return self._secret

    def __repr__(self) -> str:
        return f"Key(..., source={self.source!r})"

    def __reduce__(self) -> str:
        raise TypeError("A key cannot be pickled or copied. Look it up where it is needed.")


def key_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the key file, beside the user's config; None where there is no home."""
    folder = config_folder(environ)
    return folder / "keys.toml" if folder else None


# Looking up.


def find_key(provider: Provider, *, environ: Mapping[str, str], file: Path | None) -> Key | None:
    """Return the key of a provider: from the first of its variables that the environment has, else that the file has."""
    found = find_value(provider.key_env, environ=environ, file=file)
    note_secret(*([found.secret] if found else ()))
    return found


def find_value(variables: Sequence[str], *, environ: Mapping[str, str], file: Path | None) -> Key | None:
    """Return the value of the first variable that is set; the environment comes before the file.

    A blank value counts as not set.
    """
    environ = Environment(environ)
    for name in variables:
        if environ.get(name, "").strip():
            source = f"environment variable {name}"
            return Key(check_secret(environ[name], source), source=source, variable=name)
    stored = read_keys(file) if file and variables else {}
    for name in variables:
        if name in stored:
            return Key(stored[name], source="key file", variable=name)
    return None


def require_key(provider: Provider, *, environ: Mapping[str, str], file: Path | None) -> Key | None:
    """Return the key; None only where none is needed. Raises MissingKey, which says what to do."""
    found = find_key(provider, environ=environ, file=file)
    if found is not None or provider.keyless:
        return found
    raise MissingKey(
        f"There is no key for {provider.name!r}. Set the environment variable {' or '.join(provider.key_env)}, or store the "
        f"key with `evener keys set {provider.name}`. Without any key you can ask local:smollm2, or a server on this machine "
        "such as ollama:NAME.",
        provider=provider.name,
        variables=provider.key_env,
    )


def account_values(provider: Provider, *, environ: Mapping[str, str], file: Path | None) -> dict[str, str]:
    """Return the account's parts of the provider's address, to be passed to `Provider.url`."""
    return {one.name: _require(provider, one, environ=environ, file=file) for one in provider.url_env}


def account_headers(provider: Provider, *, environ: Mapping[str, str], file: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the further headers that the account needs, as name and value."""
    return tuple((one.name, _require(provider, one, environ=environ, file=file)) for one in provider.header_env)


def _require(provider: Provider, part: Variable, *, environ: Mapping[str, str], file: Path | None) -> str:
    found = find_value(part.env, environ=environ, file=file)
    if found is not None:
        return found.secret
    raise MissingKey(
        f"Provider {provider.name!r} needs its {part.name!r}, and it is not set. Set the environment variable "
        f"{' or '.join(part.env)}, or store it with `evener keys set {part.env[0]}`.",
        provider=provider.name,
        variables=part.env,
    )


def check_secret(text: str, source: str) -> str:
    """Return a key in the form in which it is sent: stripped, one word of plain characters. Errors do not contain it."""
    bare = text.strip()
    if not PLAIN.fullmatch(bare) or len(bare) > MOST_SECRET:
        del text, bare  # a traceback may be printed with its locals
        raise UsageError(
            f"The value from the {source} cannot be a key: a key is one word of 1 to {MOST_SECRET} plain ASCII characters, "
            "without spaces, line breaks and control characters. Copy it again."
        )
    return bare


# The file.


def read_keys(file: Path) -> dict[str, str]:
    """Return the values of the key file by variable; none if there is no file. Refused if others could read or change it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        if os.path.islink(file):
            raise _symbolic_link(file) from None
        raise UsageError(
            f"The key file {file} cannot be read: {error.strerror}. Make it readable, or set environment variables instead."
        ) from None
    try:
        _check_file(file, os.fstat(descriptor))
        _check_folder(file.parent)
        content = Secret(os.read(descriptor, MOST_FILE + 1))
    finally:
        os.close(descriptor)
    return _parse(file, content)


def store_key(file: Path, variable: str, secret: str) -> None:
    """Store a value under the name of its variable, in place of an older one. The file is replaced atomically."""
    given = Secret(secret)
    del secret
    if not VARIABLE.fullmatch(variable):
        raise UsageError(f"{variable!r} is no name of a variable. Write capitals, digits and underscores.")
    value = Secret(check_secret(given.reveal(), "input"))
    with _locked(file):
        _write(file, {**read_keys(file), variable: value.reveal()})


def remove_keys(file: Path, variables: Sequence[str]) -> tuple[str, ...]:
    """Remove these variables from the file. Return those that existed."""
    if not os.path.isdir(file.parent):
        return ()
    with _locked(file):
        stored = read_keys(file)
        gone = tuple(name for name in variables if name in stored)
        if gone:
            _write(file, {name: value for name, value in stored.items() if name not in gone})
    return gone


def _parse(file: Path, content: Secret[bytes]) -> dict[str, str]:
    """Parse the file. The parser's own message is not shown, because it could contain a part of a key."""
    try:
        stored = tomllib.loads(content.reveal().decode()) if len(content.reveal()) <= MOST_FILE else None
    except (ValueError, RecursionError):
        stored = None
    if stored is None or not all(_is_usable(name, value) for name, value in stored.items()):
        del stored
        raise UsageError(
            f'The key file {file} is not understood: expected lines such as NAME = "value", in TOML. '
            "Correct it, or delete it and store the keys again with `evener keys set`."
        )
    return stored


def _is_usable(name: str, value: object) -> bool:
    return isinstance(value, str) and PLAIN.fullmatch(value) is not None and VARIABLE.fullmatch(name) is not None


def _check_file(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"The key file {file} is not a plain file. Move it away and store the keys again.")
    _check_owner("key file", file, found)
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"The key file {file} can be read by other users (mode {stat.S_IMODE(found.st_mode):04o}), so it is not used. "
            f"Run: chmod 600 {quote(str(file))} (and consider replacing the keys)."
        )


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which other users could replace the file. They may see that the file exists."""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise _symbolic_link(folder)
    _check_owner("folder of the key file", folder, found)
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise UsageError(
            f"Other users may write to the folder of the key file, {folder} (mode {stat.S_IMODE(found.st_mode):04o}), so it is "
            f"not used. Run: chmod 700 {quote(str(folder))}."
        )


def _check_owner(what: str, path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise UsageError(
            f"The {what}, {path}, belongs to another user (id {found.st_uid}), so it is not used. "
            f"Run as that user, or: chown {os.geteuid()} {quote(str(path))}."
        )


def _symbolic_link(path: Path) -> UsageError:
    return UsageError(f"{path} is a symbolic link, but keys must be in a regular file. Replace it by the file it points to.")


def _not_writable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"Nothing can be written into the folder of the key file, {folder}: {error.strerror}. Make it writable for you, as "
        f"with chmod 700 {quote(str(folder))}, or set XDG_CONFIG_HOME."
    )


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Allow one writer at a time, by a lock on the folder, which is created with mode 700 where there is none."""
    folder = file.parent
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}. Make it, or set XDG_CONFIG_HOME.") from None
    _check_folder(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _not_writable(folder, error) from None
    try:
        _lock(descriptor, folder)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    from fcntl import LOCK_EX, LOCK_NB, flock  # on systems without it, keys can still come from the environment

    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return flock(descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise UsageError(f"Another program holds {folder} locked. Wait until it is done, and try again.") from None
            time.sleep(0.02)


def _write(file: Path, values: Mapping[str, str]) -> None:
    from evener.private_file import write_private  # keys are read far more often

    lines = (f"{name} = {_quote(value)}\n" for name, value in sorted(values.items()))
    content = (HEAD + "".join(lines)).encode("ascii")
    try:
        write_private(file, content)
    except OSError as error:
        raise _not_writable(file.parent, error) from None


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
