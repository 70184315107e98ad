"""Lists of a connected server that are read page by page. Loaded with the SDK."""

from mcp import Client
from mcp_types import Prompt, Resource

MOST_PAGES = 100


async def list_resources(client: Client) -> list[Resource]:
    """Return all resources; none if the server has no such thing."""
    if client.server_capabilities is None or client.server_capabilities.resources is None:
        return []
    found: list[Resource] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_resources(cursor=cursor)
        found += page.resources
        cursor = page.next_cursor
        if not cursor:
            break
    return found


async def list_prompts(client: Client) -> list[Prompt]:
    """Return all prompts; none if the server has no such thing."""
    if client.server_capabilities is None or client.server_capabilities.prompts is None:
        return []
    found: list[Prompt] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_prompts(cursor=cursor)
        found += page.prompts
        cursor = page.next_cursor
        if not cursor:
            break
    return found
