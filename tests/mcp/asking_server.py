"""An MCP server whose tools ask back: the user with a form, the user to visit a page, and the model. It has a prompt, too."""

import sys
from typing import Annotated, Literal

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

server = MCPServer("shop")


class Shoe(BaseModel):
    """What the user is asked for."""

    size: int = Field(ge=20, le=50, description="European size")
    colour: Literal["red", "blue"]
    gift: bool = False


def ask_for_shoe(item: str) -> Elicit[Shoe]:
    return Elicit(f"Which {item}?", Shoe)


@server.tool()
async def order(item: str, shoe: Annotated[ElicitationResult[Shoe], Resolve(ask_for_shoe)]) -> str:
    """Order something."""
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(f"{item}\n")
    if isinstance(shoe, AcceptedElicitation):
        return f"ordered {shoe.data.size} {shoe.data.colour} {shoe.data.gift}"
    return f"not ordered: {shoe.action}"


def ask_model(word: str) -> Sample:
    said = SamplingMessage(role="user", content=TextContent(text=f"A rhyme for {word}?"))
    return Sample([said], max_tokens=50, system_prompt="You are a poet.")


@server.tool()
async def rhyme(word: str, found: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Find a rhyme."""
    assert isinstance(found.content, TextContent)
    return f"{word}, {found.content.text}"


@server.tool()
async def pay(context: Context) -> str:
    """Pay on a page of the bank. Only of servers with a back channel (protocol 2025-11-25)."""
    found = await context.elicit_url("Pay at the bank", "https://bank.example/pay/7", "pay-7")
    return f"paid: {found.action}"


@server.prompt()
def haiku(subject: str, mood: str = "calm") -> str:
    """Write a haiku."""
    return f"Write a {mood} haiku about {subject}."


@server.resource("memo://tide", name="tide table")
def tide() -> str:
    """When the tide is high."""
    return "High tide at 6:40."


if __name__ == "__main__":
    server.run()
