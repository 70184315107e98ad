"""A harness in an editor, over ACP: each frame of ours is accepted by the typed models of the protocol's own package."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from acp import schema
from pydantic import BaseModel

from evener import Harness, tool
from evener.acp import AcpAgent
from evener.acp.updates import Frame
from evener.testing import ScriptedModel
from evener.testing.scripted_model import calls
from evener.tools import ToolContext
from evener.transcript import ToolCall
from tests.patience import PATIENCE, until

RESULTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/prompt": schema.PromptResponse,
}
REQUESTS: dict[str, type[BaseModel]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
}


@tool(approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@tool
async def wait(context: ToolContext[object]) -> str:
    """Wait."""
    await context.cancelled.until_set()
    return "stopped"


class Editor:
    """An editor that answers requests for permission with one option, and holds each frame against its model."""

    def __init__(self, harness: Harness, option: str = "allow") -> None:
        self.frames: list[Frame] = []
        self.agent = AcpAgent(harness, self._take)
        self._option = option
        self._methods: dict[object, str] = {}

    async def _take(self, frame: Frame) -> None:
        frame = json.loads(json.dumps(frame))
        self.frames.append(frame)
        method = frame.get("method")
        if isinstance(method, str):
            REQUESTS[method].model_validate(frame["params"])
            if "id" in frame and self._option:
                outcome = {"outcome": "selected", "optionId": self._option}
                self.agent.receive({"jsonrpc": "2.0", "id": frame["id"], "result": {"outcome": outcome}})
        elif "result" in frame:
            RESULTS[self._methods[frame["id"]]].model_validate(frame["result"])

    def send(self, method: str, **params: object) -> str:
        id = f"{method}-{len(self._methods)}"
        self._methods[id] = method
        self.agent.receive({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def ask(self, method: str, **params: object) -> Frame:
        return await self.answer(self.send(method, **params))

    async def answer(self, id: str) -> Frame:
        await until(lambda: any(frame.get("id") == id for frame in self.frames))
        return next(frame for frame in self.frames if frame.get("id") == id)

    async def session(self) -> str:
        await self.ask("initialize", protocolVersion=1)
        made = (await self.ask("session/new", cwd="/", mcpServers=[]))["result"]
        assert isinstance(made, dict)
        return str(made["sessionId"])

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Kind and text or status of each update."""
        updates = [frame["params"]["update"] for frame in self.frames if frame.get("method") == "session/update"]  # type: ignore[index]
        return [(one["sessionUpdate"], one.get("status") or one["content"]["text"]) for one in updates]


TEXT = [{"type": "text", "text": "Erase it."}]


@pytest.mark.parametrize(
    ("option", "shown"), [("allow", ("tool_call_update", "completed")), ("reject", ("tool_call", "failed"))]
)
def test_a_prompt_runs_with_a_permission_that_is_given_or_refused(option: str, shown: tuple[str, str]) -> None:
    async def go() -> None:
        model = ScriptedModel([calls(ToolCall("c1", "erase", '{"path":"/x"}'), text="I will."), "Done."])
        editor = Editor(Harness(model, tools=[erase], store="memory"), option)
        session = await editor.session()
        done = await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert done["result"] == {"stopReason": "end_turn"}
        texts = "".join(text for kind, text in editor.shown if kind == "agent_message_chunk")
        assert texts == "I will.Done."
        assert shown in editor.shown
        await editor.agent.aclose()

    asyncio.run(go())


def test_a_cancel_stops_the_run_and_the_request_for_permission() -> None:
    async def go() -> None:
        for call in (ToolCall("c1", "wait", "{}"), ToolCall("c1", "erase", '{"path":"/x"}')):
            editor = Editor(Harness(ScriptedModel([calls(call), "Done."]), tools=[erase, wait], store="memory"), "")
            session = await editor.session()
            asked = editor.send("session/prompt", sessionId=session, prompt=TEXT)
            begun = {"wait": "session/update", "erase": "session/request_permission"}[call.name]
            await until(lambda editor=editor, begun=begun: any(one.get("method") == begun for one in editor.frames))  # type: ignore[misc]
            editor.agent.receive({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
            assert (await editor.answer(asked))["result"] == {"stopReason": "cancelled"}
            await editor.agent.aclose()

    asyncio.run(go())


def test_a_session_is_loaded_by_another_process_and_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"

    async def go() -> None:
        harness = Harness(ScriptedModel(["First."]), store=store)
        editor = Editor(harness)
        session = await editor.session()
        await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        await editor.agent.aclose()
        await harness.aclose()
        harness = Harness(ScriptedModel(["Second."]), store=store)
        editor = Editor(harness)
        await editor.ask("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert editor.shown == [("user_message_chunk", "Erase it."), ("agent_message_chunk", "First.")]
        done = await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert done["result"] == {"stopReason": "end_turn"}
        gone = await editor.ask("session/load", sessionId="nowhere", cwd="/", mcpServers=[])
        assert gone["error"] == {"code": -32602, "message": "There is no session 'nowhere' in the store."}
        await editor.agent.aclose()
        await harness.aclose()

    asyncio.run(go())


def test_the_command_speaks_over_its_pipes(tmp_path: Path) -> None:
    text = "from evener import Harness\nfrom evener.testing import ScriptedModel\n"
    (tmp_path / "goods.py").write_text(f"{text}shop = Harness(ScriptedModel(['Hi.']), store='memory')\n", encoding="utf-8")
    lines = ['{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}', "no json"]
    done = subprocess.run(
        [sys.executable, "-m", "evener", "acp", "--harness", "goods:shop"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert frames[0]["error"]["code"] == -32700
