"""An editor for tests: holds each frame of the agent against its typed model, and answers what it is asked."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from acp import schema
from pydantic import BaseModel

from evener import Harness
from evener.acp import AcpAgent
from evener.acp.calls import Frame
from tests.patience import until

RESULTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/close": schema.CloseSessionResponse,
    "session/prompt": schema.PromptResponse,
}
REQUESTS: dict[str, type[BaseModel]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": schema.CreateFormSessionElicitationRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "terminal/create": schema.CreateTerminalRequest,
    "terminal/wait_for_exit": schema.WaitForTerminalExitRequest,
    "terminal/output": schema.TerminalOutputRequest,
    "terminal/kill": schema.KillTerminalRequest,
    "terminal/release": schema.ReleaseTerminalRequest,
}
Answer = Callable[[str, Any], Frame | None]


def choose(option: str) -> Frame:
    """Return the answer to a request for permission."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


class Editor:
    """`option` answers requests for permission, unless it is empty; `answer` answers everything else, or nothing."""

    def __init__(
        self,
        harness: Harness | Callable[[str], Harness],
        option: str = "allow",
        *,
        answer: Answer = lambda _method, _params: None,
    ) -> None:
        self.frames: list[Frame] = []
        self.agent = AcpAgent(harness, self._take)
        self.option = option
        self._answer = answer
        self._methods: dict[object, str] = {}

    async def _take(self, frame: Frame) -> None:
        frame = json.loads(json.dumps(frame))
        self.frames.append(frame)
        method = frame.get("method")
        if isinstance(method, str):
            REQUESTS[method].model_validate(frame["params"])
            if "id" in frame:
                self._reply(frame, method)
        elif "result" in frame:
            RESULTS[self._methods[frame["id"]]].model_validate(frame["result"])

    def _reply(self, frame: Frame, method: str) -> None:
        asks = method == "session/request_permission"
        answer = (choose(self.option) if self.option else None) if asks else self._answer(method, frame["params"])
        if answer is not None:
            told = answer if "error" in answer else {"result": answer}
            self.agent.receive({"jsonrpc": "2.0", "id": frame["id"], **told})

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

    async def session(self, cwd: str = "/", servers: Sequence[Frame] = (), **capabilities: object) -> str:
        await self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)
        made = (await self.ask("session/new", cwd=cwd, mcpServers=list(servers)))["result"]
        assert isinstance(made, dict)
        return str(made["sessionId"])

    def asked(self, method: str) -> list[Any]:
        """The parameters of each frame of this method."""
        return [frame["params"] for frame in self.frames if frame.get("method") == method]

    @property
    def updates(self) -> list[Any]:
        return [params["update"] for params in self.asked("session/update")]

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Kind and text or status of each update."""
        return [
            (one["sessionUpdate"], one.get("status") or one["content"]["text"]) for one in self.updates if "entries" not in one
        ]
