"""Tools of MCP servers for a harness, and a harness as an MCP server. The SDK (extra `mcp`) is loaded to connect."""

from evener.mcp.config import McpServer, find_servers, load_servers, read_servers
from evener.mcp.pins import FilePins, MemoryPins, Pins
from evener.mcp.servers import Elicitation, McpServers, PromptListing, ResourceListing

__all__ = [
    "Elicitation",
    "FilePins",
    "McpServer",
    "McpServers",
    "MemoryPins",
    "Pins",
    "PromptListing",
    "ResourceListing",
    "find_servers",
    "load_servers",
    "read_servers",
]
