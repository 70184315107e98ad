"""The editor's file system and terminals as tools, if it offers them; they include unsaved buffers.

Paths stay inside the session's folder, with links resolved. Tools that change something need approval.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec

from evener.acp.calls import Frame
from evener.acp.connection import RequestRefused
from evener.tools.context import ToolContext
from evener.tools.result import ModelRetry, ToolOutput
from evener.tools.tool import Tool, Toolbox, tool
from evener.toolset.changes import note_change
from evener.toolset.labels import guard_mixing, label, label_of

SECONDS = 60.0
COMMAND_SECONDS = 600
MOST_OUTPUT = 200_000
PathArgument = Annotated[str, "a path below the project's folder"]
Ask = Callable[[str, Frame, float], Awaitable[Frame]]
Show = Callable[[Frame], Awaitable[None]]


class EditorTools:
    """Makes the tools of one session. `ask` sends a request about it to the editor, `show` an update."""

    def __init__(self, ask: Ask, show: Show, *, cwd: str) -> None:
        self._ask = ask
        self._show = show
        self._cwd = cwd

    def offered(self, capabilities: Mapping[str, object]) -> list[Tool]:
        """Return the tools that the editor's capabilities allow."""
        found = capabilities.get("fs")
        files = found if isinstance(found, dict) else {}
        made: list[Tool] = []
        if files.get("readTextFile") is True:
            made.append(tool(self.read, name="editor_read_file", effect="read", timeout=SECONDS))
        if files.get("writeTextFile") is True:
            made.append(tool(self.write, name="editor_write_file", effect="idempotent", approval=True, timeout=SECONDS))
        if capabilities.get("terminal") is True:
            made.append(tool(self.run, name="editor_run_command", approval=True, timeout=COMMAND_SECONDS + SECONDS))
        return [label(one, "private", source="editor") for one in made]

    def _inside(self, path: str) -> str:
        real = os.path.normpath(os.path.join(self._cwd, path))
        folder, target = os.path.realpath(self._cwd), os.path.realpath(real)
        if os.path.commonpath((real, self._cwd)) != self._cwd or os.path.commonpath((target, folder)) != folder:
            raise ModelRetry(f"{path} is outside of the project's folder {self._cwd}. Use a path below it.")
        return real

    async def _request(self, method: str, params: Frame) -> Frame:
        try:
            return await self._ask(method, params, SECONDS)
        except RequestRefused as error:
            raise ModelRetry(str(error)) from None

    async def read(
        self,
        path: PathArgument,
        line: Annotated[int, msgspec.Meta(ge=1, description="the first line, from 1")] = 1,
        limit: Annotated[int, msgspec.Meta(ge=1, le=5_000, description="how many lines")] = 2_000,
    ) -> str:
        """Read a text file as the editor has it, with changes that are not saved yet."""
        given: Frame = {"path": self._inside(path), "line": line, "limit": limit}
        return str((await self._request("fs/read_text_file", given)).get("content", ""))

    async def write(self, path: PathArgument, content: Annotated[str, "the whole content"]) -> ToolOutput:
        """Create or replace a text file in the editor."""
        real = self._inside(path)
        before: bytes | None = None
        with suppress(RequestRefused):  # there is no such file
            before = str((await self._ask("fs/read_text_file", {"path": real}, SECONDS)).get("content", "")).encode()
        await self._request("fs/write_text_file", {"path": real, "content": content})
        return ToolOutput(f"Wrote {path}.", note_change(real, before, content.encode()))

    async def run(
        self,
        command: Annotated[str, "the program"],
        context: ToolContext[object],
        args: Annotated[list[str], "its arguments"] = [],  # noqa: B006
        seconds: Annotated[int, msgspec.Meta(ge=1, le=COMMAND_SECONDS, description="after which it is ended")] = 60,
    ) -> str:
        """Run a program in a terminal of the editor, in the project's folder, and return its output."""
        given: Frame = {"command": command, "args": args, "cwd": self._cwd, "outputByteLimit": MOST_OUTPUT}
        made = {"terminalId": str((await self._request("terminal/create", given)).get("terminalId", ""))}
        shown: Frame = {"type": "terminal", **made}
        try:
            await self._show({"sessionUpdate": "tool_call_update", "toolCallId": context.call_id, "content": [shown]})
            try:
                await self._ask("terminal/wait_for_exit", {**made}, float(seconds))
                late = ""
            except RequestRefused:
                await self._request("terminal/kill", {**made})
                late = f"\n[It was ended after {seconds} seconds.]"
            return _report(await self._request("terminal/output", {**made})) + late
        finally:
            await self._request("terminal/release", {**made})


def could_leak(tools: Toolbox, own: Sequence[Tool]) -> bool:
    """True if a harness tool could send out what the editor's tools show, and would not ask first."""
    known = [one for one in tools.values() if label_of(one) is not None]
    return any(one.approval != before.approval for before, one in zip(known, guard_mixing([*known, *own]), strict=False))


def _report(told: Frame) -> str:
    status = told.get("exitStatus")
    ended = status if isinstance(status, dict) else {}
    code = ended.get("exitCode")
    how = f"exit code {code}" if code is not None else f"signal {ended.get('signal', 'unknown')}"
    cut = "[The beginning was left out.]\n" if told.get("truncated") is True else ""
    return f"{cut}{told.get('output', '')}\n[{how}]"
