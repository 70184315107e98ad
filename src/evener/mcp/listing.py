"""Lists of a connected server that are read page by page, and its questions to the user. Loaded with the SDK."""

from typing import TYPE_CHECKING

from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.session import ElicitationFnT
from mcp_types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Prompt,
    Resource,
)

if TYPE_CHECKING:
    from evener.mcp.servers import Answer

__all__ = ["elicitation_callback", "list_prompts", "list_resources"]

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


def elicitation_callback(server: str, answer: "Answer") -> ElicitationFnT:
    """Return what puts a server's question to the user. An answer is sent only if the user gave one."""
    from evener.mcp.servers import Elicitation

    async def ask(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        del context
        if isinstance(params, ElicitRequestFormParams):
            asked = Elicitation(server, params.message, dict(params.requested_schema))
        else:
            asked = Elicitation(server, params.message, url=params.url)
        given = await answer(asked)
        if given is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=dict(given) if asked.schema else None)  # type: ignore[arg-type]

    return ask
