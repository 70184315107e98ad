"""Lists of a connected server that are read page by page. Loaded with the SDK."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mcp import Client
from mcp_types import PaginatedResult, Prompt, Resource

MOST_PAGES = 1_000

P = TypeVar("P", bound=PaginatedResult)


async def read_pages(read: Callable[[str | None], Awaitable[P]]) -> list[P]:
    """Return all pages of a list. `read` returns the page at a cursor. Stops at a repeated cursor."""
    found = [await read(None)]
    seen: set[str] = set()
    while (cursor := found[-1].next_cursor) and cursor not in seen and len(found) < MOST_PAGES:
        seen.add(cursor)
        found.append(await read(cursor))
    return found


async def list_resources(client: Client) -> list[Resource]:
    """Return all resources; none if the server does not support them."""
    if client.server_capabilities is None or client.server_capabilities.resources is None:
        return []
    pages = await read_pages(lambda cursor: client.list_resources(cursor=cursor))
    return [one for page in pages for one in page.resources]


async def list_prompts(client: Client) -> list[Prompt]:
    """Return all prompts; none if the server does not support them."""
    if client.server_capabilities is None or client.server_capabilities.prompts is None:
        return []
    pages = await read_pages(lambda cursor: client.list_prompts(cursor=cursor))
    return [one for page in pages for one in page.prompts]
