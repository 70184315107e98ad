"""The client that the official MCP conformance suite drives: our connections, told by the suite what to call.

    conformance client --command "python -m bench.mcp_client" --scenario tools_call

The suite starts a server for each scenario, appends its address to the command, and judges what it is sent.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import urljoin

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull

from evener.mcp import Elicitation, McpServer, McpServers
from evener.mcp.oauth import REDIRECT, KeyFileTokens, log_in
from evener.tools import Tool, ToolContext, run_call
from evener.tools.call import Threads
from evener.transcript import ToolCall

__all__ = ["main"]

METADATA_URL = "https://conformance-test.local/client-metadata.json"
SAMPLES: dict[str, object] = {"string": "test", "integer": 5, "number": 5, "boolean": True, "array": [], "object": {}}


async def visit(url: str) -> str:
    """Go where a browser would be sent, without one."""
    async with httpx2.AsyncClient(follow_redirects=False, timeout=20) as client:
        answer = await client.get(url)
    return urljoin(url, answer.headers.get("location", ""))


async def accept(asked: Elicitation) -> dict[str, object]:
    """Answer a question with its defaults, or samples."""
    found = asked.schema.get("properties", {})
    fields = found if isinstance(found, dict) else {}
    return {name: field.get("default", sample(field)) for name, field in fields.items()}


def sample(schema: dict[str, object]) -> object:
    """Return a value that fits a simple schema."""
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"type": str(kind)}:
            return SAMPLES.get(kind)
    return "test"


def arguments_of(tool: Tool, context: dict[str, object]) -> list[dict[str, object]]:
    """Return what to call a tool with: what the suite says, or samples of what the tool needs."""
    name = tool.metadata["mcp_tool"]
    planned = context.get("toolCalls")
    if isinstance(planned, list):
        return [_present(one.get("arguments") or {}) for one in planned if one["name"] == name]
    schema = tool.spec.input_schema
    fields = schema.get("properties", {})
    assert isinstance(fields, dict)
    return [{field: sample(shape) for field, shape in fields.items()}]


def _present(given: dict[str, object]) -> dict[str, object]:
    """Return the arguments without those that are null: the schema of the suite's own tool does not allow null."""
    return {name: value for name, value in given.items() if value is not None}


async def run(url: str, context: dict[str, object], folder: Path) -> None:
    """Connect, list, and call each tool."""
    server = McpServer(name="suite", url=url, oauth=True, timeout=20, connect_timeout=40)
    file = folder / "evener" / "keys.toml"
    if "client_id" in context:
        known = {"client_id": context["client_id"], "client_secret": context.get("client_secret"), "redirect_uris": [REDIRECT]}
        known["token_endpoint_auth_method"] = "client_secret_basic"
        await KeyFileTokens(server, file).set_client_info(OAuthClientInformationFull.model_validate(known))

    def login(one: McpServer) -> OAuthClientProvider:
        return log_in(one, file=file, visit=visit, client_metadata_url=METADATA_URL)

    async with McpServers([server], answer=accept, login=login) as servers:
        for tool in await servers.load():
            for number, given in enumerate(arguments_of(tool, context)):
                call = ToolCall(f"call-{number}", tool.name, json.dumps(given))
                done = await run_call(tool, call, context=ToolContext(call_id=call.id, deps=None), threads=Threads())
                print(tool.name, done.ok, done.text[:200])
        print(*servers.problems, sep="\n")


def main() -> int:
    """Do what the scenario wants, at the address that is the last argument."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(sys.argv[-1], context, Path(folder)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
