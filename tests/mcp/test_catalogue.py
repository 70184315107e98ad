"""A large catalogue is behind a search: the prompt has one tool, and what is found is declared from then on (S2.77)."""

import asyncio
import json

import pytest
from mcp.server.mcpserver import MCPServer

from evener import Harness, MemoryStore, open_model
from evener.harness import Subagent
from evener.mcp import McpServer, McpServers
from evener.policy.rules import Policy, Rule
from evener.replay import replay
from evener.testing import Call, FakeServer, ScriptedModel, Turn, calls, turn
from evener.tools.finding import hide_tools
from evener.transcript import ToolCall
from tests.patience import PATIENCE

MODELS = {"anthropic_messages": "anthropic:claude-opus-4-5", "openai_responses": "openai:gpt-5.1"}
SUBJECTS = ("invoice", "customer", "shipment", "refund", "warehouse", "supplier", "contract", "payment", "ticket", "holiday")
ACTIONS = ("create", "read", "update", "delete", "list", "archive")


def large() -> McpServer:
    made = MCPServer("erp")
    for subject in SUBJECTS:
        for action in ACTIONS:

            def act(id: int, action: str = action, subject: str = subject) -> str:
                return f"{action} {subject} {id}"

            long = "It says what it does at length. " * 30
            made.add_tool(act, name=f"{action}_{subject}", description=f"{action.title()} one {subject}. {long}")
    return McpServer(name="erp", inside=made, trusted=True, timeout=PATIENCE, connect_timeout=PATIENCE)


def declared(body: bytes) -> list[str]:
    return [one["name"] for one in json.loads(body)["tools"]]


@pytest.mark.parametrize("wire", MODELS)
def test_what_is_found_is_declared_from_then_on_also_after_a_resume(wire: str) -> None:
    wanted = "mcp__erp__create_refund"
    script: list[Turn | str] = [
        turn(Call("find_tools", {"query": "make a new refund"})),
        turn(Call(wanted, {"id": 7})),
        "Done.",
        "Still there.",
    ]

    async def run(url: str) -> None:
        store = MemoryStore()
        async with McpServers([large()]) as servers:
            tools = await servers.load()
            assert len(tools) == len(SUBJECTS) * len(ACTIONS) + 1
            model = open_model(MODELS[wire], base_url=url, key="k", environ={})
            harness = Harness(model, tools=tools, store=store)
            result = await harness.run("Refund order 7.")
            assert [record.ok for record in result.records] == [True, True]
            again = Harness(model, tools=tools, store=store)
            assert (await again.run("And now?", thread=result.thread)).text == "Still there."
            replayed = await replay(await store.read(result.thread))
            assert replayed.ok, replayed
        await store.aclose()

    with FakeServer(wire, script) as server:
        asyncio.run(run(server.url))
        assert server.rejected == []
        sent = [declared(request.body) for request in server.requests]
    assert sent[0] == ["find_tools", "read_output"]
    assert wanted in sent[1]
    assert len(sent[1]) <= 10
    assert sent[1] == sent[2] == sent[3]
    assert len(server.requests[0].body) < 6_000


def test_a_hidden_tool_is_judged_by_the_policy_like_any_other() -> None:
    with McpServers([large()]) as servers:
        tools = servers.load_sync()
        model = ScriptedModel([calls(ToolCall("c1", "mcp__erp__delete_payment", '{"id":1}')), "No."])
        policy = Policy((Rule(verdict="deny", tool="mcp__erp__delete_*", reason="nothing is deleted"),))
        result = Harness(model, tools=tools, store="memory", policy=policy).run_sync("Delete it.")
    assert not result.records[0].ok
    assert "nothing is deleted" in str(result.records[0].result)


def test_words_that_fit_nothing_are_told_and_few_tools_are_shown_as_they_are() -> None:
    with McpServers([large()], most_shown=10**9) as servers:
        tools = servers.load_sync()
    assert not any(one.hidden for one in tools)
    *hidden, find = hide_tools(tools)
    assert all(one.hidden for one in hidden)
    model = ScriptedModel([calls(ToolCall("c1", "find_tools", '{"query":"zzz"}')), "None."])
    result = Harness(model, tools=[find], store="memory").run_sync("Find.")
    assert "No tool matches these words" in str(result.records[0].result)
    assert hide_tools(()) == ()


def test_a_subagent_has_the_tools_of_servers_only_if_it_is_given_them() -> None:
    """S2.77: children opt in explicitly."""
    with McpServers([large()], most_shown=10**9) as servers:
        tools = servers.load_sync()
        child, heir = ScriptedModel(["Nothing to do."]), ScriptedModel(["Nothing to do."])
        agents = [
            Subagent(name="clerk", harness=Harness(child, store="memory"), description="Has no tools."),
            Subagent(
                name="heir",
                harness=Harness(heir, store="memory"),
                description="Has one.",
                inherits=("mcp__erp__read_ticket",),
            ),
        ]
        asked = calls(ToolCall("c1", "clerk", '{"task":"Go."}'), ToolCall("c2", "heir", '{"task":"Go."}'))
        parent = Harness(ScriptedModel([asked, "Done."]), tools=tools, agents=agents, store="memory")
        parent.run_sync("Delegate.")
    assert [spec.name for spec in child.asks[0].tools if spec.name.startswith("mcp__")] == []
    assert [spec.name for spec in heir.asks[0].tools if spec.name.startswith("mcp__")] == ["mcp__erp__read_ticket"]
