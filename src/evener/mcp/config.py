"""The settings of an MCP server, known before it is contacted, and the usual `mcpServers` JSON. Starts nothing; reads only
the given file.

A variable (`${NAME}`, `${NAME:-default}`) is replaced only from the environment that the caller passes: a file that came
with a project must be trusted first, or it could read the user's keys into a command of its own.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from evener.errors import UsageError
from evener.providers.config import Config, find_project
from evener.transport.exchange import place_of
from evener.transport.secrets import Environment, note_secret

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
SENSITIVE = re.compile(r"key|token|secret|passw|authorization|cookie|credential", re.IGNORECASE)
MOST_FILE = 1 << 20
STDIO, HTTP = ("", "stdio"), ("http", "streamable-http", "streamable_http", "streamableHttp")
Texts = Mapping[str, str]
NONE: Texts = MappingProxyType({})


class McpServer(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    eq=False,
    rename={"connect_timeout": "connectTimeout", "question_timeout": "questionTimeout"},
):
    """The address of a server and how far it is trusted. It has a `command`, a `url`, or is an object `inside` this process.

    `trusted`: the server's statements about its tools (that one only reads) decide their effect; without it each tool is a
    `write`. `tools` are patterns of the names to offer (empty: all), `without` of those to leave out. With `approval`, each
    call needs approval. `timeout` is for one request and `connect_timeout` for the start, both in seconds. `oauth`: log in
    when the server requires it. `protocol` pins a version; "auto" negotiates, "legacy" uses the handshake. `elicitation`:
    the server may ask the user during a call; `sampling`: it may ask the model, if the user allows each such request. Both
    wait `question_timeout` seconds for the user.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Texts = NONE
    cwd: str = ""
    url: str = ""
    headers: Texts = NONE
    inside: object = None
    trusted: bool = False
    tools: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    approval: bool = False
    timeout: float = 60.0
    connect_timeout: float = 30.0
    oauth: bool = False
    protocol: str = "auto"
    elicitation: bool = False
    sampling: bool = False
    question_timeout: float = 3_600.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(f"{self.name!r} cannot name an MCP server. Write letters, digits, dots, dashes and underscores.")
        if sum((bool(self.command), bool(self.url), self.inside is not None)) != 1:
            raise UsageError(f"The MCP server {self.name!r} needs a command, or a url, or an object; exactly one of them.")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise UsageError(f"The url of the MCP server {self.name!r} must begin with http:// or https://.")
        if not all(0 < one < 1e6 for one in (self.timeout, self.connect_timeout, self.question_timeout)):
            raise UsageError(f"The timeouts of the MCP server {self.name!r} must be seconds, above 0 and below a million.")
        note_secret(*_sensitive(self.env), *_sensitive(self.headers))

    def __repr__(self) -> str:
        where = (self.url and place_of(self.url)) or self.command or type(self.inside).__name__
        return f"McpServer({self.name!r}, {where!r})"  # arguments, variables and headers may hold secrets


def _sensitive(values: Texts) -> list[str]:
    """Return the secrets among these values.

    Of `Bearer SECRET` also the part after the word, which a server may repeat alone.
    """
    found = (part for name, value in values.items() if SENSITIVE.search(name) for part in (value, value.rpartition(" ")[2]))
    return [one for one in found if len(one) > 7]


class _Kind(msgspec.Struct, frozen=True):
    """The keys of an entry of `mcpServers` beside the fields of a server. Keys of other programs are ignored."""

    type: str = ""
    disabled: bool = False


def find_servers(names: Iterable[str], config: Config, *, environ: Texts) -> tuple[McpServer, ...]:
    """Return the servers with these names: `[mcp.NAME]` of a config file, or a JSON file with `mcpServers`.

    A server of a project's file is refused unless the user trusts its folder, because it may start a program that came with a
    clone.
    """
    environ = Environment(environ)  # a traceback may be printed with its locals
    return tuple(one for name in names for one in _find(name, config, environ))


def _find(name: str, config: Config, environ: Texts) -> tuple[McpServer, ...]:
    found = config.mcp.get(name)
    if found is None:
        if name.endswith(".json") or "/" in name:
            return _load_named(Path(name), config, environ)
        known = f" Known are {', '.join(sorted(config.mcp))}." if config.mcp else ""
        raise UsageError(
            f"There is no MCP server {name!r} in the config files. Name one, or a .json file with mcpServers.{known}"
        )
    if not found.trusted:
        raise UsageError(
            f"The MCP server {name!r} is named by {found.file}, which may have come with a cloned project, and using it may "
            f'start a program. If you know the file, write trusted = ["{Path(found.file).parent}"] in your own config.toml.'
        )
    return read_servers({name: dict(found.table)}, environ=environ, where=f"{found.file}: mcp")


def _load_named(file: Path, config: Config, environ: Texts) -> tuple[McpServer, ...]:
    """Return the servers of a JSON file that the user named.

    If the file may have come with a clone, no environment variables are replaced in it, and its `trusted` is ignored.
    """
    if find_project(config, file.parent, environ=environ)[1]:
        return load_servers(file, environ=environ)
    try:
        found = load_servers(file, environ={})
    except _Unset as error:
        folder = find_project(config, file.parent, environ=environ)[0]
        raise UsageError(
            f"{error} Variables are not replaced in {file}, which may have come with a cloned project. If you know it, "
            f'write trusted = ["{folder}"] in your own config.toml.'
        ) from None
    return tuple(msgspec.structs.replace(one, trusted=False, elicitation=False, sampling=False) for one in found)


def load_servers(file: Path, *, environ: Texts) -> tuple[McpServer, ...]:
    """Return the servers of a JSON file with `mcpServers`. The caller must trust the file: its commands will be run."""
    environ = Environment(environ)
    try:
        with open(file, "rb") as opened:
            content = opened.read(MOST_FILE + 1)
    except OSError as error:
        raise UsageError(
            f"The file of MCP servers, {file}, cannot be read: {error.strerror}. Give the path of a JSON file with mcpServers."
        ) from None
    try:
        document = msgspec.json.decode(content) if len(content) <= MOST_FILE else None
    except msgspec.DecodeError:
        document = None
    found = document.get("mcpServers", document.get("servers")) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise UsageError(
            f'{file} names no MCP servers. Expected JSON such as {{"mcpServers": {{"time": {{"command": ...}}}}}}.'
        )
    return read_servers(found, environ=environ, where=str(file))


def read_servers(entries: Mapping[str, object], *, environ: Texts, where: str = "mcpServers") -> tuple[McpServer, ...]:
    """Return the servers of a table from name to entry. Variables are replaced from `environ`."""
    environ = Environment(environ)
    return tuple(one for name, entry in entries.items() for one in _read(name, entry, environ, f"{where}: {name}"))


def _read(name: str, entry: object, environ: Texts, where: str) -> Iterable[McpServer]:
    try:
        found = msgspec.convert(entry, _Kind)
        if found.disabled or not isinstance(entry, dict):
            return
        if found.type not in STDIO + HTTP:
            raise UsageError(f"{where}: the transport {found.type!r} is not supported. Expected stdio or http.")
        own = {"name": name, "inside": None}  # the rest is in no variable: it may hold secrets
        yield msgspec.convert({key: _expand(one, environ, where) for key, one in entry.items()} | own, McpServer)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where} is not understood: {error}.") from None


def _expand(value: object, environ: Texts, where: str) -> object:
    match value:
        case str():
            return VARIABLE.sub(lambda hit: _variable(hit, environ, where), value)
        case dict():
            return {key: _expand(one, environ, where) for key, one in value.items()}
        case list():
            return [_expand(one, environ, where) for one in value]
    return value


class _Unset(UsageError):
    """A variable is not set, or may not be read."""


def _variable(hit: re.Match[str], environ: Texts, where: str) -> str:
    name, otherwise = hit[1], hit[2]
    if name in environ:
        note_secret(*_sensitive({name: environ[name]}))
        return environ[name]
    if otherwise is None:
        raise _Unset(f"{where} needs the environment variable {name}, and it is not set. Set it, or write ${{{name}:-...}}.")
    return otherwise
