"""What a run of the command line takes from outside: tools of MCP servers, skills, AGENTS.md. Only what the user asks for.

What lies in a project's folder counts only if the user trusts that folder: it may have come with a clone.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from evener.cli.terminal import count, flatten, say
from evener.errors import EvenerError, UsageError
from evener.providers.config import find_project, load_config
from evener.tools.tool import Tool
from evener.transcript.blocks import Block, TextBlock

if TYPE_CHECKING:
    import httpx2

    from evener.context.prompt import SystemPrompt
    from evener.mcp import McpServer, McpServers, PromptListing
    from evener.skills import Skill
    from evener.transcript.blocks import ResultContent

WINDOW = 128_000
"""Tokens: for the list of skills, where the model's window is not known."""


class Outside(msgspec.Struct, frozen=True):
    """What was found. `skills` are for the user, too; `listing` and `project` are parts of the system prompt."""

    tools: tuple[Tool, ...] = ()
    skills: Mapping[str, "Skill"] = MappingProxyType({})
    servers: "McpServers | None" = None
    listing: str = ""
    project: str = ""

    def extend(self, system: str | None) -> "str | SystemPrompt | None":
        """Return the system prompt with the list of skills and what the project says."""
        if not (self.listing or self.project):
            return system
        from evener.context.prompt import SystemPrompt

        return SystemPrompt(role=system or "", tools=self.listing, constraints=self.project)


NOTHING = Outside()


def load_outside(mcp: Sequence[str] = (), *, skills: bool = False, agents_md: bool = False, model: str = "") -> Outside:
    """Connect to MCP servers, and load skills and AGENTS.md if requested; print what was left out."""
    if not (mcp or skills or agents_md):
        return NOTHING
    tools: tuple[Tool, ...] = ()
    servers = _connect(mcp) if mcp else None
    if servers is not None:
        tools = servers.load_sync()
        _tell(servers.problems)
    found: Mapping[str, Skill] = {}
    listing = ""
    if skills:
        from evener.skills import list_skills, skill_read_tool, skill_run_tool

        found = find_here()
        listing = list_skills(found.values(), window=_window(model))
        if listing:
            tools = (*tools, skill_read_tool(found.values()), skill_run_tool(found.values()))
    return Outside(tools, found, servers, listing, _read_project() if agents_md else "")


def _window(name: str) -> int:
    """Return the tokens that a model's window has, as its row says."""
    from evener.model import open_model

    try:
        return open_model(name).endpoint.facts.window or WINDOW
    except EvenerError:
        return WINDOW  # what is wrong with the model, the harness says


def find_here() -> "Mapping[str, Skill]":
    """Return the skills of the user, and of the project if the user trusts it; say what was left out."""
    from evener.skills import find_skills

    here, trusted = find_project(load_config(environ=os.environ), Path.cwd(), environ=os.environ)
    home = os.environ.get("HOME", "")
    found = find_skills(project=here, home=Path(home) if home else None, trusted=trusted)
    _tell(found.problems)
    return found.skills


def _read_project() -> str:
    from evener.skills import read_agents_md

    here, trusted = find_project(load_config(environ=os.environ), Path.cwd(), environ=os.environ)
    if not trusted:
        _tell((f'AGENTS.md was left out: the project is not trusted. Write trusted = ["{here}"] in your own config.toml.',))
    return read_agents_md(Path.cwd(), root=here, trusted=trusted)


def _connect(names: Sequence[str]) -> "McpServers":
    """Return the servers. The connections end with the process."""
    import atexit

    from evener.mcp import FilePins, McpServers, find_servers
    from evener.store.sqlite.file import data_folder

    found = find_servers(names, load_config(environ=os.environ), environ=os.environ)
    servers = McpServers(found, pins=FilePins(data_folder() / "mcp_pins.json"), login=_use_login)
    atexit.register(servers.close)
    return servers


def _use_login(server: "McpServer") -> "httpx2.Auth":
    """Return the stored login at a server. A run never starts a login, because it would have to wait for a browser."""
    from evener.mcp.oauth import log_in
    from evener.providers.keys import key_file

    file = key_file(os.environ)
    if file is None:
        raise UsageError("it wants a login, and there is no folder for the key file. Set HOME or XDG_CONFIG_HOME.")
    return log_in(server, file=file)


def _tell(problems: Sequence[str]) -> None:
    for problem in problems:
        say(f"evener: {problem}")


# For a chat.


async def describe_servers(servers: "McpServers | None", tools: Sequence[Tool]) -> list[str]:
    """Return what each server offers, a line each: tools, prompts as commands, resources; then what was left out."""
    if servers is None:
        return ["There are no MCP servers. Start the chat with --mcp NAME, as `evener chat --help` says."]
    prompts, resources = await servers.prompts(), await servers.resources()
    lines: list[str] = []
    for name in servers.names:
        offered = [tool for tool in tools if tool.metadata.get("mcp_server") == name]
        lines.append(f"{name}: {count(len(offered), 'tool')}")
        lines += (f"  {tool.metadata['mcp_tool']}  {flatten(tool.description, 80)}" for tool in offered)
        for one in (one for one in prompts if one.server == name):
            words = " ".join(argument.upper() for argument in one.arguments)
            lines.append(f"  {f'{prompt_command(one)} {words}'.strip()}  {flatten(one.description, 80)}")
        lines += (f"  /mcp read {name} {one.uri}  {flatten(one.name, 60)}" for one in resources if one.server == name)
    return [*lines, *servers.problems]


def prompt_command(prompt: "PromptListing") -> str:
    """Return the slash command that sends a prompt of a server."""
    from evener.mcp.naming import name_tool

    return f"/{name_tool(prompt.server, prompt.name)}"


async def fetch_prompt(servers: "McpServers", command: str, words: str) -> tuple[Block, ...]:
    """Return the message that a prompt of a server makes of these words, one for each argument; the last takes the rest."""
    found = next((one for one in await servers.prompts() if prompt_command(one).lower() == command.lower()), None)
    if found is None:
        raise UsageError(f"No MCP server has the prompt {command}. /mcp lists them.")
    most = max(len(found.arguments) - 1, 0)
    given = dict(zip(found.arguments, words.split(maxsplit=most) if words else (), strict=False))
    messages = await servers.get_prompt(found.server, found.name, given)
    return tuple(_convert_block(role, block) for role, block in messages)


def _convert_block(role: str, block: "ResultContent") -> Block:
    """Return a block of a prompt for the user's message. What the assistant is to have said is quoted."""
    if role == "assistant" and isinstance(block, TextBlock):
        return TextBlock(f"[assistant] {block.text}")
    return block


async def fetch_resource(servers: "McpServers", words: str) -> tuple[Block, ...]:
    """Return the message with a resource: `SERVER URI`, and after it what the user says of it."""
    server, _, rest = words.partition(" ")
    uri, _, said = rest.strip().partition(" ")
    if not uri:
        raise UsageError("/mcp read takes a server and the address of a resource. /mcp lists them.")
    content = await servers.read_resource(server, uri)
    return (TextBlock(f"{said.strip()}\n\nThe resource {uri} of {server}:".strip()), *content)
