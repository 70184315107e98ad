"""Tools that a provider runs, in neutral terms: search the web or stored files, run code, make images, use a remote MCP
server.

A harness maps them to the tools of its model's wire, and refuses those that it does not have. They have no credentials: no
key, token or header can be given; what needs your permission belongs in a tool that runs here. The log records what they
did.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from urllib.parse import urlsplit

import msgspec

from evener.encodings.hosted_tools import HostedOptions
from evener.errors import UsageError
from evener.transcript.ask import HostedTool


def web_search(domains: Iterable[str] = ()) -> HostedTool:
    """Search the web; with `domains`, only these sites."""
    return _make_hosted("web_search", HostedOptions(domains=_texts(domains, "domains")))


def file_search(*stores: str) -> HostedTool:
    """Search the files in these stores of the provider, by their ids or names."""
    if not stores:
        raise UsageError("file_search needs the id of at least one store at the provider, as in file_search('vs_123').")
    return _make_hosted("file_search", HostedOptions(stores=_texts(stores, "stores")))


def code_execution() -> HostedTool:
    """Run code on a machine of the provider."""
    return _make_hosted("code_execution", HostedOptions())


def image_generation() -> HostedTool:
    """Make images."""
    return _make_hosted("image_generation", HostedOptions())


def remote_mcp(url: str, *, name: str, tools: Iterable[str]) -> HostedTool:
    """Let the provider use these tools of a public MCP server, without asking and without a credential.

    A server that needs one, or whose tools need a permission, is to be connected from here (see docs/mcp.md).
    """
    allowed = _texts(tools, "tools")
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(f"The address of a remote MCP server begins with https://; not {parts.scheme or 'nothing'}://.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "The address of a remote MCP server must hold no user, password or query: hosted tools carry no authorisation. "
            "Connect such a server from here, as docs/mcp.md shows."
        )
    if not name or not allowed:
        raise UsageError("remote_mcp needs a name for the server, and the names of the tools that may be called.")
    return _make_hosted("remote_mcp", HostedOptions(server=name, url=url, tools=allowed))


NAMED = {"web_search": web_search, "code_execution": code_execution, "image_generation": image_generation}
"""Those that need no options, by name."""


def hosted_named(names: Iterable[str]) -> list[HostedTool]:
    """Return hosted tools by their names, for those that need no options."""
    found = []
    for name in names:
        if name not in NAMED:
            near = get_close_matches(name, NAMED, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"No hosted tool without options is named {name!r}. {hint}Known are {', '.join(NAMED)}.")
        found.append(NAMED[name]())
    return found


def _make_hosted(kind: str, options: HostedOptions) -> HostedTool:
    return HostedTool("", msgspec.json.encode(options).decode(), kind)


def _texts(given: Iterable[str], what: str) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(one, str) and one for one in texts):
        raise UsageError(f"`{what}` takes texts that are not empty.")
    return texts
