"""Tools that a provider runs: declared once, mapped to each wire, refused where a row has none, and in the log."""

import asyncio
import json
from pathlib import Path

import pytest

from evener import Harness, MemoryStore, open_model
from evener.errors import UsageError
from evener.events import Configured, Replied
from evener.policy import Policy
from evener.testing import FakeServer, Native, ScriptedModel, Text, Turn, turn
from evener.toolset import hosted
from evener.toolset.sets import tools_named
from evener.transcript import HostedBlock, HostedTool
from tests.oracle import oracle_errors

SERVER = hosted.remote_mcp("https://mcp.example.com/mcp", name="docs", tools=["look_up"])
TOOLS = {
    "web_search": hosted.web_search(),
    "file_search": hosted.file_search("vs_1"),
    "code_execution": hosted.code_execution(),
    "image_generation": hosted.image_generation(),
    "remote_mcp": SERVER,
}
CLAUDE, GPT, GROQ, GEMINI = (
    "anthropic:claude-opus-4-5",
    "openai:gpt-5.1",
    "groq:openai/gpt-oss-120b",
    "google:gemini-3-pro-preview",
)
DECLARED = {
    (CLAUDE, "web_search"): '"type":"web_search_20250305"',
    (CLAUDE, "code_execution"): '"type":"code_execution_20250825"',
    (CLAUDE, "remote_mcp"): '"mcp_servers":[{"type":"url","url":"https://mcp.example.com/mcp","name":"docs"}]',
    (GPT, "web_search"): '{"type":"web_search"}',
    (GPT, "file_search"): '"vector_store_ids":["vs_1"]',
    (GPT, "code_execution"): '"type":"code_interpreter"',
    (GPT, "image_generation"): '{"type":"image_generation"}',
    (GPT, "remote_mcp"): '"server_url":"https://mcp.example.com/mcp"',
    (GEMINI, "web_search"): '{"googleSearch":{}}',
    (GEMINI, "file_search"): '"fileSearchStoreNames":["vs_1"]',
    (GEMINI, "code_execution"): '{"codeExecution":{}}',
}


@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize("name", [CLAUDE, GPT, GROQ, GEMINI])
def test_a_hosted_tool_is_declared_as_its_wire_has_it_or_refused(name: str, kind: str) -> None:
    """S1.7, S1.16: one neutral declaration; where a row has no such tool, nothing is sent."""
    wire = open_model(name, key="k").origin.wire
    with FakeServer(wire, ["Found."], key="k") as server:
        model = open_model(name, key="k", base_url=server.url)
        if (name, kind) not in DECLARED:
            with pytest.raises(UsageError, match=f"has no hosted tool '{kind}': nothing was sent"):
                Harness(model, tools=[TOOLS[kind]], store="memory")
            assert server.requests == []
            return
        assert Harness(model, tools=[TOOLS[kind]], store="memory").run_sync("Find it.").text == "Found."
        [request] = server.requests
        assert server.rejected == []
    body = request.body.decode()
    assert DECLARED[name, kind] in body
    assert oracle_errors(wire, json.loads(body)) == []
    assert "authorization" not in body.lower()


SEARCHED = {
    CLAUDE: (
        Native({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "evener"}}),
        Native({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
    ),
    GPT: (
        Native(
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "evener"}}
        ),
    ),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_the_log_has_what_was_offered_and_what_was_done(name: str) -> None:
    """S1.8: durable state and audit stay here, with hosted tools too; the next request is legal."""
    script: list[Turn | str] = [turn(*SEARCHED[name], Text("Found.")), "Again."]
    store = MemoryStore()

    async def main() -> tuple[list[HostedTool], list[str]]:
        async with FakeServer(open_model(name, key="k").origin.wire, script, key="k") as server:
            harness = Harness(open_model(name, key="k", base_url=server.url), tools=[hosted.web_search()], store=store)
            first = await harness.run("Search.")
            await harness.run("Again.", thread=first.thread)
            assert server.rejected == []
            events = await store.read(first.thread)
        offered = [tool for event in events if isinstance(event, Configured) for tool in event.hosted]
        replies = [event.message for event in events if isinstance(event, Replied)]
        return offered, [block.raw for message in replies for block in message.blocks if isinstance(block, HostedBlock)]

    offered, done = asyncio.run(main())
    assert offered == [hosted.web_search()]
    assert any('"query": "evener"' in raw or '"query":"evener"' in raw for raw in done)


@pytest.mark.parametrize(
    "url",
    ["http://mcp.example.com", "https://me:secret@mcp.example.com", "https://mcp.example.com/?token=secret", "mcp.example.com"],
)
def test_no_authorisation_can_be_given(url: str) -> None:
    """S1.18, S1.28, S1.29."""
    with pytest.raises(UsageError) as told:
        hosted.remote_mcp(url, name="docs", tools=["look_up"])
    assert "secret" not in str(told.value)
    with pytest.raises(UsageError, match="could contain credentials"):
        Harness(ScriptedModel([]), tools=[HostedTool("openai_responses", '{"type":"mcp","authorization":"x"}')], store="memory")
    with pytest.raises(UsageError, match="options of the hosted tool"):
        Harness(ScriptedModel([]), tools=[HostedTool("", '{"authorization":"x"}', "remote_mcp")], store="memory")
    with pytest.raises(UsageError, match="names of the tools"):
        hosted.remote_mcp("https://mcp.example.com", name="docs", tools=[])


def test_your_data_and_a_hosted_search_do_not_meet_unless_allowed(tmp_path: Path) -> None:
    files = tools_named(["files"], root=tmp_path)
    with pytest.raises(UsageError, match="could send your data away"):
        Harness(ScriptedModel([]), tools=[*files, hosted.web_search()], store="memory")
    with pytest.raises(UsageError, match="could send your data away"):
        Harness(ScriptedModel([]), tools=files, store="memory").with_tools(hosted.web_search())
    Harness(ScriptedModel([]), tools=[*files, hosted.web_search()], store="memory", policy=Policy(mixing="allow"))
    Harness(ScriptedModel([]), tools=[*files, hosted.code_execution()], store="memory")


def test_a_chain_is_checked_whole_and_sites_only_where_they_can_be_named() -> None:
    chain = [open_model(GPT, key="k"), open_model(GROQ, key="k")]
    with pytest.raises(UsageError, match="groq:openai/gpt-oss-120b has no hosted tool"):
        Harness(chain, tools=[hosted.web_search()], store="memory")
    with pytest.raises(UsageError, match="cannot limit"):
        Harness(open_model(GEMINI, key="k"), tools=[hosted.web_search(["example.com"])], store="memory")
    with pytest.raises(UsageError, match="groq"):
        Harness(open_model(GPT, key="k"), tools=[hosted.web_search()], store="memory").with_model(open_model(GROQ, key="k"))
