"""MCP servers that an editor names for a session. The SDK (extra `mcp`) is loaded only if there are any."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from evener.errors import EvenerError, UsageError
from evener.tools.tool import Tool

if TYPE_CHECKING:
    from evener.mcp import McpServer, McpServers

OTHER = re.compile(r"[^A-Za-z0-9_.-]+")


class EditorServers:
    """The servers of one session. Their statements about tools are not trusted: each tool counts as one that changes things."""

    def __init__(self, given: object, *, cwd: str) -> None:
        self._given = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        self._cwd = cwd
        self._servers: McpServers | None = None
        self.problems: list[str] = []

    async def load(self) -> tuple[Tool, ...]:
        """Connect to the servers and return their tools. Failures are in `problems`."""
        if not self._given:
            return ()
        try:
            from evener.mcp import McpServers

            self._servers = McpServers(self._read_all().values())
            tools = await self._servers.load()
        except ImportError:
            self.problems.append(
                "The editor's MCP servers are not used, because the package `mcp` is missing: pip install 'evener[mcp]'."
            )
            return ()
        except EvenerError as error:
            self.problems.append(str(error))
            return ()
        self.problems += self._servers.problems
        return tools

    def _read_all(self) -> "dict[str, McpServer]":
        """Return the servers by name. An unusable server is reported and left out."""
        found: dict[str, McpServer] = {}
        for given in self._given:
            try:
                for one in self._read(given):
                    if one.name in found:
                        raise UsageError(f"Two MCP servers of the editor are named {one.name!r}. The second is not used.")
                    found[one.name] = one
            except UsageError as error:
                self.problems.append(str(error))
        return found

    def _read(self, given: dict[str, object]) -> "Iterator[McpServer]":
        from evener.mcp import McpServer

        match given:
            case {"name": str(name), "command": str(command)}:
                args = given.get("args")
                words = tuple(str(one) for one in args) if isinstance(args, list) else ()
                yield McpServer(
                    name=_plain(name), command=command, args=words, env=_pairs(given.get("env")), cwd=self._cwd, approval=True
                )
            case {"name": str(name), "type": "http", "url": str(url)}:
                yield McpServer(name=_plain(name), url=url, headers=_pairs(given.get("headers")), approval=True)
            case _:
                name = str(given.get("name", ""))[:80]
                self.problems.append(
                    f"The editor's MCP server {name!r} is not used: it needs a name, and a command or an http url."
                )

    async def aclose(self) -> None:
        """End the connections."""
        if self._servers is not None:
            await self._servers.aclose()


def _plain(name: str) -> str:
    """Return a valid name for a server; an editor allows spaces in names."""
    return OTHER.sub("-", name).strip("-_.")[:64]


def _pairs(given: object) -> dict[str, str]:
    """Return a mapping from the editor's list of names and values."""
    listed = given if isinstance(given, list) else []
    return {str(one["name"]): str(one["value"]) for one in listed if isinstance(one, dict) and "name" in one and "value" in one}
