"""Servers over HTTP on loopback, and in this process: a 503, a lost session and a dead server cost no catalogue (S2.77)."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mcp.server.mcpserver import MCPServer

from evener import Harness
from evener.mcp import McpServer, McpServers
from evener.testing import ScriptedModel
from evener.testing.scripted_model import calls
from evener.transcript import ToolCall
from tests.mcp.test_faults import use
from tests.patience import PATIENCE

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


class Shaky(BaseHTTPRequestHandler):
    """Answers the calls of tools with the statuses of `plan`, in order, before it answers any rightly."""

    plan: list[int]
    sessions: list[str]
    refusal: dict[str, object] | None = None

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message["method"], message.get("id")
        if number is None:
            return self._send(202, None)
        if method == "tools/call" and self.plan:
            return self._send(self.plan.pop(0), self.refusal and {"jsonrpc": "2.0", "id": number, "error": self.refusal})
        if method == "initialize":
            self.sessions.append(f"session-{len(self.sessions)}")
            info = {"name": "shaky", "version": "1"}
            result: object = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            hints = {"readOnlyHint": True}
            result = {"tools": [{"name": "echo", "inputSchema": SCHEMA, "annotations": hints}, {"name": "bad"}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        else:
            return self._send(200, {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}})
        return self._send(200, {"jsonrpc": "2.0", "id": number, "result": result})

    def do_GET(self) -> None:
        self._send(405, None)

    def do_DELETE(self) -> None:
        self._send(200, None)

    def _send(self, status: int, body: object) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if self.sessions:
            self.send_header("mcp-session-id", self.sessions[-1])
        self.send_header("content-type", "application/json" if content else "text/plain")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def shaky(*plan: int, trusted: bool = True, kind: type[Shaky] = Shaky) -> Iterator[tuple[McpServer, type[Shaky]]]:
    kind = type("ShakyOnce", (kind,), {"plan": list(plan), "sessions": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        yield McpServer(name="shaky", url=url, timeout=PATIENCE, connect_timeout=PATIENCE, trusted=trusted), kind
        server.shutdown()


def test_a_503_in_mid_session_is_tried_again_for_a_read_and_told_for_a_write() -> None:
    for trusted in (True, False):
        with shaky(503, trusted=trusted) as (server, _), McpServers([server]) as servers:
            (echo,) = servers.load_sync()
            assert servers.problems == ("MCP server 'shaky': the tool 'bad' was left out: it has no schema of its arguments.",)
            first = use(echo)
            assert (first.ok, first.text) == (
                trusted,
                "hello" if trusted else "The MCP server 'shaky' answered with an HTTP error.",
            )
            assert use(echo).ok


@pytest.mark.parametrize("code", [None, -32600, -32001])
def test_a_session_that_the_server_has_forgotten_is_opened_anew(code: int | None) -> None:
    """The official servers send an error with the 404, in Python with another code than in TypeScript."""
    told = {"refusal": code and {"code": code, "message": "Session not found"}}
    forgetful = type("Forgetful", (Shaky,), told)
    with shaky(404, trusted=False, kind=forgetful) as (server, kind), McpServers([server]) as servers:
        (echo,) = servers.load_sync()
        assert use(echo).text == "hello"
        assert len(kind.sessions) == 2


def in_process() -> MCPServer:
    made = MCPServer("inside")

    @made.tool(annotations={"readOnlyHint": True})  # type: ignore[arg-type]
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return made


def test_a_server_in_this_process_is_used_by_the_loop_and_its_structured_content_is_kept() -> None:
    """S2.77: discovery into tools of a harness."""
    server = McpServer(name="inside", inside=in_process(), trusted=True, timeout=PATIENCE)
    with McpServers([server]) as servers:
        call = ToolCall("c1", "mcp__inside__add", '{"a":2,"b":3}')
        harness = Harness(ScriptedModel([calls(call), "five"]), tools=servers.load_sync(), store="memory")
        result = harness.run_sync("Add.")
        (record,) = result.records
        assert (result.text, record.ok) == ("five", True)
        assert record.result is not None
        assert json.loads(record.result.metadata) == {"structured": {"result": 5}}
        again = asyncio.run(harness.with_model(ScriptedModel([calls(call), "still five"])).run("Again."))
        assert again.records[0].ok


OK = {"type": "object", "properties": {}}
SLOPPY: dict[str, list[object]] = {
    "tools": [
        {"name": "good", "inputSchema": OK},
        {"name": "hints", "inputSchema": OK, "annotations": {"readOnlyHint": "maybe"}},
        {"name": "icons", "inputSchema": OK, "icons": "x"},
        {"name": "fields", "inputSchema": {"type": "object", "properties": []}},
        {"name": "output", "inputSchema": OK, "outputSchema": {"type": "array"}},
        {"name": "pointer", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/nope"}}}},
        {"name": "nulls", "inputSchema": OK, "title": None, "description": None, "annotations": None, "_meta": None},
        {"name": "", "inputSchema": OK},
        {"name": "good", "inputSchema": OK},
        {"name": 5, "inputSchema": OK},
        None,
    ],
    "resources": [{"uri": "a://b", "name": "good"}, {"uri": "a://c"}, {"name": "address"}, 5],
    "prompts": [{"name": "good"}, {"description": "x"}, {"name": "words", "arguments": "no"}],
}


def test_entries_that_cannot_be_read_lose_no_list() -> None:
    class Sloppy(Shaky, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "id" not in message:
                return self._send(202, None)
            answer: dict[str, object] = {"error": {"code": -32601, "message": "no"}}
            if message["method"] == "initialize":
                info = {"name": "sloppy", "version": "1"}
                able: dict[str, object] = {"tools": {}, "resources": {}, "prompts": {}}
                answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": able, "serverInfo": info}}
            elif (kind := message["method"].removesuffix("/list")) in SLOPPY:
                answer = {"result": {kind: SLOPPY[kind]}}
            return self._send(200, {"jsonrpc": "2.0", "id": message["id"], **answer})

    async def go(server: McpServer) -> None:
        async with McpServers([server]) as servers:
            assert [tool.name for tool in await servers.load()] == ["mcp__shaky__good", "mcp__shaky__nulls"]
            assert [one.name for one in await servers.resources()] == ["good"]
            assert [one.name for one in await servers.prompts()] == ["good"]
            said = "\n".join(servers.problems)
            for name in ("hints", "icons", "fields", "output", "pointer", "address", "words"):
                assert f"{name!r} was left out" in said
            assert "annotations.readOnlyHint" in said

    with shaky(kind=Sloppy) as (server, _):
        asyncio.run(go(server))
