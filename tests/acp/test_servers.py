"""What reaches an editor's session from elsewhere: MCP servers that it names, and questions that it puts to the user."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from evener import Harness
from evener.acp.calls import Frame
from evener.mcp import McpServer, McpServers
from evener.testing import ScriptedModel
from evener.testing.scripted_model import calls
from evener.toolset.question import question_tool
from evener.transcript import ToolCall
from tests.acp.editor import Editor
from tests.mcp.test_http import shaky
from tests.patience import PATIENCE

SERVER = Path(__file__).parent.parent / "mcp" / "asking_server.py"
LIGHT = SERVER.with_name("bad_server.py")
"""Starts at once, without the SDK: the time that a server which an editor names may take is not the test's to choose."""
PROMPT = [{"type": "text", "text": "Go."}]


def statuses(editor: Editor) -> dict[str, str]:
    """The last status of each call, by its title or id."""
    return {one["toolCallId"]: one["status"] for one in editor.updates if "toolCallId" in one and one.get("status")}


@pytest.mark.parametrize("option", ["allow", "reject"])
def test_the_servers_that_an_editor_names_are_tools_that_ask_and_one_that_fails_is_said(option: str, tmp_path: Path) -> None:
    async def go(url: str) -> None:
        keep = ToolCall("c1", "mcp__shop__keep", '{"text":"shoe"}')
        echo = ToolCall("c2", "mcp__web__echo", '{"text":"hello"}')
        model = ScriptedModel([calls(keep, echo), "Done."])
        editor = Editor(Harness(model, store="memory"), option)
        seen = [{"name": "SEEN", "value": "yes"}]
        servers: list[Frame] = [
            {"name": "shop", "command": sys.executable, "args": [str(LIGHT), "none", str(tmp_path)], "env": seen},
            {"name": "web", "type": "http", "url": url, "headers": [{"name": "x-key", "value": "k"}]},
            {"name": "gone", "command": str(tmp_path / "no-such-program"), "args": [], "env": []},
            {"name": "old", "type": "sse", "url": url, "headers": []},
            {"name": "My web (2)", "type": "http", "url": url, "headers": []},
            {"name": "web", "type": "http", "url": url, "headers": []},
            {"name": "!", "type": "http", "url": url, "headers": []},
        ]
        session = await editor.session(str(tmp_path), servers)
        said = "".join(text for kind, text in editor.shown if kind == "agent_message_chunk")
        assert "'gone' could not be reached" in said
        assert "'old'" in said
        assert "Two MCP servers of the editor are named 'web'" in said
        assert "cannot name an MCP server" in said
        done: Any = await editor.ask("session/prompt", sessionId=session, prompt=PROMPT)
        assert done["result"]["stopReason"] == "end_turn"
        assert len(editor.asked("session/request_permission")) == 2  # whatever the server says of its tools
        assert statuses(editor)["c2"] == ("completed" if option == "allow" else "failed")
        names = [one.name for one in model.asks[0].tools]
        assert {"mcp__shop__keep", "mcp__web__echo", "mcp__My-web-2__echo"} <= set(names)
        await editor.agent.aclose()

    with shaky() as (server, _):
        asyncio.run(go(server.url))


FORM: Any = {"elicitation": {"form": {}}}
ACCEPT: Frame = {"action": "accept", "content": {"answer": "blue"}}


@pytest.mark.parametrize(
    ("offers", "choices", "given", "answer"),
    [
        (FORM, None, ACCEPT, "blue"),
        (FORM, ["red", "blue"], ACCEPT, "blue"),
        (FORM, None, {"action": "decline"}, "gave no answer"),
        ({}, ["red", "blue"], None, "blue"),
        ({}, None, None, "no way to ask"),
    ],
)
def test_a_question_is_a_form_or_options_or_is_declined(offers: Any, choices: object, given: Frame | None, answer: str) -> None:
    async def go() -> None:
        asked = {"question": "Which colour?", **({"choices": choices} if choices else {})}
        model = ScriptedModel([calls(ToolCall("c1", "ask_user", json.dumps(asked))), "Done."])
        editor = Editor(Harness(model, tools=[question_tool()], store="memory"), "blue", answer=lambda *_: given)
        session = await editor.session(**offers)
        await editor.ask("session/prompt", sessionId=session, prompt=PROMPT)
        assert answer in str(model.asks[1].transcript.messages[-1].blocks)
        forms = editor.asked("elicitation/create")
        assert [one["message"] for one in forms] == (["Which colour?"] if offers else [])
        await editor.agent.aclose()

    asyncio.run(go())


def test_a_question_of_a_server_reaches_the_editor(tmp_path: Path) -> None:
    answers = {"size": "42", "colour": "red", "gift": "no"}

    def answer(method: str, params: Any) -> Frame:
        assert method == "elicitation/create"
        field = next(name for name in answers if f"\n{name}" in params["message"])
        return {"action": "accept", "content": {"answer": answers[field]}}

    async def go() -> None:
        server = McpServer(
            name="shop", command=sys.executable, args=(str(SERVER), str(tmp_path / "orders")), elicitation=True,
            timeout=PATIENCE, connect_timeout=PATIENCE,
        )  # fmt: skip
        async with McpServers([server]) as servers:
            model = ScriptedModel([calls(ToolCall("c1", "mcp__shop__order", '{"item":"shoe"}')), "Done."])
            editor = Editor(Harness(model, tools=await servers.load(), store="memory"), answer=answer)
            session = await editor.session(**FORM)
            await editor.ask("session/prompt", sessionId=session, prompt=PROMPT)
            assert "ordered 42 red False" in str(model.asks[1].transcript.messages[-1].blocks)
            await editor.agent.aclose()

    asyncio.run(go())
