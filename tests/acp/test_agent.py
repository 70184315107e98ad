"""A harness in an editor, over ACP: each frame of ours is accepted by the typed models of the protocol's own package."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evener import Harness, tool
from evener.acp.calls import Frame
from evener.errors import TruncatedStream
from evener.harness import Decision
from evener.testing import ScriptedModel
from evener.testing.scripted_model import Line, calls
from evener.testing.servers import Call, FakeServer, turn
from evener.tools import ToolContext
from evener.toolset.sets import tools_named
from evener.transcript import ToolCall
from tests.acp.editor import Editor, choose
from tests.patience import PATIENCE, until


@tool(approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@tool
async def wait(context: ToolContext[object]) -> str:
    """Wait."""
    await context.cancelled.until_set()
    return "stopped"


TEXT = [{"type": "text", "text": "Erase it."}]


def stop_of(done: Frame) -> str:
    result = done["result"]
    assert isinstance(result, dict)
    return str(result["stopReason"])


@pytest.mark.parametrize(
    ("option", "shown"), [("allow", ("tool_call_update", "completed")), ("reject", ("tool_call_update", "failed"))]
)
def test_a_prompt_runs_with_a_permission_that_is_given_or_refused(option: str, shown: tuple[str, str]) -> None:
    async def go() -> None:
        model = ScriptedModel([calls(ToolCall("c1", "erase", '{"path":"/x"}'), text="I will."), "Done."])
        editor = Editor(Harness(model, tools=[erase], store="memory"), option)
        session = await editor.session()
        done = await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert stop_of(done) == "end_turn"
        texts = "".join(text for kind, text in editor.shown if kind == "agent_message_chunk")
        assert texts == "I will.Done."
        assert shown in editor.shown
        await editor.agent.aclose()

    asyncio.run(go())


def has(editor: Editor, method: str, status: str) -> Callable[[], bool]:
    return lambda: any(status in json.dumps(one) for one in editor.asked(method))


def test_a_cancel_stops_the_run_and_the_request_for_permission() -> None:
    async def go() -> None:
        for call in (ToolCall("c1", "wait", "{}"), ToolCall("c1", "erase", '{"path":"/x"}')):
            editor = Editor(Harness(ScriptedModel([calls(call), "Done."]), tools=[erase, wait], store="memory"), "")
            session = await editor.session()
            asked = editor.send("session/prompt", sessionId=session, prompt=TEXT)
            begun = {"wait": "session/update", "erase": "session/request_permission"}[call.name]
            status = {"wait": "in_progress", "erase": "pending"}[call.name]
            await until(has(editor, begun, status))
            editor.agent.receive({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
            assert stop_of(await editor.answer(asked)) == "cancelled"
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
        assert stop_of(done) == "end_turn"
        gone = await editor.ask("session/load", sessionId="nowhere", cwd="/", mcpServers=[])
        assert gone["error"] == {"code": -32602, "message": "There is no session 'nowhere' in the store. Begin a new one."}
        await editor.agent.aclose()
        await harness.aclose()

    asyncio.run(go())


def test_always_is_asked_once_a_session_and_tool() -> None:
    async def go() -> None:
        for option, status in (("allow_always", "completed"), ("reject_always", "failed")):
            made = [calls(ToolCall(f"c{n}", "erase", f'{{"path":"/{n}"}}')) for n in range(3)]
            editor = Editor(Harness(ScriptedModel([*made, "Done."]), tools=[erase], store="memory"), option)
            session = await editor.session()
            assert stop_of(await editor.ask("session/prompt", sessionId=session, prompt=TEXT)) == "end_turn"
            assert len(editor.asked("session/request_permission")) == 1
            ends = [one["toolCallId"] for one in editor.updates if one.get("status") == status]
            assert ends == ["c0", "c1", "c2"]
            await editor.agent.aclose()

    asyncio.run(go())


def test_a_cancel_in_one_session_leaves_the_question_of_another_open() -> None:
    async def go() -> None:
        def script(_: object) -> object:
            return calls(ToolCall("c1", "erase", '{"path":"/x"}'))

        editor = Editor(Harness(ScriptedModel(script), tools=[erase], store="memory"), "")  # type: ignore[arg-type]
        first, second = await editor.session(), await editor.session()
        asked = [editor.send("session/prompt", sessionId=one, prompt=TEXT) for one in (first, second)]
        await until(lambda: len(editor.asked("session/request_permission")) == 2)
        editor.agent.receive({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": first}})
        assert stop_of(await editor.answer(asked[0])) == "cancelled"
        assert not any(frame.get("id") == asked[1] for frame in editor.frames)
        await editor.agent.aclose()

    asyncio.run(go())


@pytest.mark.parametrize("method", ["session/close", "session/load"])
@pytest.mark.parametrize(("name", "begun"), [("wait", "in_progress"), ("erase", "pending")])
def test_a_session_that_is_closed_or_loaded_anew_answers_the_prompt_under_way(
    method: str, name: str, begun: str, tmp_path: Path
) -> None:
    """Its run stops, and the answer to a question of it counts no more."""

    async def go() -> None:
        call = ToolCall("c1", name, '{"path":"/x"}' if name == "erase" else "{}")
        harness = Harness(ScriptedModel([calls(call), "Again."]), tools=[erase, wait], store=tmp_path / "runs.db")
        editor = Editor(harness, "")
        session = await editor.session()
        asked = editor.send("session/prompt", sessionId=session, prompt=TEXT)
        await until(has(editor, "session/request_permission" if name == "erase" else "session/update", begun))
        await editor.ask(method, sessionId=session, cwd="/", mcpServers=[])
        assert stop_of(await editor.answer(asked)) == "cancelled"
        await editor.ask("session/load", sessionId=session, cwd="/", mcpServers=[])
        for frame in [one for one in editor.frames if one.get("method") == "session/request_permission"]:
            editor.agent.receive({"jsonrpc": "2.0", "id": frame["id"], "result": choose("allow")})
        assert stop_of(await editor.ask("session/prompt", sessionId=session, prompt=TEXT)) == "end_turn"
        assert editor.shown[-1] == ("agent_message_chunk", "Again.")
        assert ("tool_call_update", "completed") not in editor.shown
        await editor.agent.aclose()
        await harness.aclose()

    asyncio.run(go())


@pytest.mark.parametrize("later", ["asks again", "ended"])
def test_an_answer_about_what_was_decided_elsewhere_is_told_and_the_run_goes_on_as_the_log_says(
    later: str, tmp_path: Path
) -> None:
    async def go() -> None:
        def harness(*script: Any) -> Harness:
            return Harness(ScriptedModel(list(script)), tools=[erase], store=tmp_path / "runs.db")

        editor = Editor(harness(calls(ToolCall("c1", "erase", '{"path":"/x"}')), "Done."), "")
        session = await editor.session()
        asked = editor.send("session/prompt", sessionId=session, prompt=TEXT)
        await until(lambda: editor.asked("session/request_permission"))
        second = calls(ToolCall("c2", "erase", '{"path":"/y"}')) if later == "asks again" else "Over."
        other = harness(second).thread(session)
        await other.decide({"c1": Decision("reject", "Not that one.")})
        await other.resume()
        editor.option = "allow"  # the second question
        number = next(one["id"] for one in editor.frames if one.get("method") == "session/request_permission")
        editor.agent.receive({"jsonrpc": "2.0", "id": number, "result": choose("allow")})
        assert stop_of(await editor.answer(asked)) == "end_turn"
        said = "".join(text for kind, text in editor.shown if kind == "agent_message_chunk")
        assert "already decided" in said
        assert [one["toolCallId"] for one in editor.updates if one.get("status") == "completed"] == (
            ["c2"] if later == "asks again" else []
        )
        assert said.endswith("Done.") == (later == "asks again")
        await editor.agent.aclose()

    asyncio.run(go())


def test_file_tools_show_their_diff_before_and_after_in_the_folder_of_the_session(tmp_path: Path) -> None:
    async def go() -> None:
        (tmp_path / "a.txt").write_text("one\ntwo\n")
        edits = {"path": "a.txt", "edits": [{"old": "two", "new": "three"}]}
        script: list[Line] = [
            calls(ToolCall("c0", "read", '{"path":"a.txt"}')),
            calls(ToolCall("c1", "edit", json.dumps(edits))),
            calls(ToolCall("c2", "write", json.dumps({"path": "b.txt", "content": "new"}))),
            "Done.",
        ]

        def at(cwd: str) -> Harness:
            return Harness(ScriptedModel(script), tools=tools_named(["files"], root=cwd), store="memory")

        editor = Editor(at)
        session = await editor.session(str(tmp_path))
        await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        path = str(tmp_path / "a.txt")
        diff = {"type": "diff", "path": path, "oldText": "two", "newText": "three"}
        first = editor.asked("session/request_permission")[0]["toolCall"]
        assert (first["content"], first["kind"], first["locations"]) == ([diff], "edit", [{"path": path}])
        ends = {one["toolCallId"]: one["content"] for one in editor.updates if one.get("status") == "completed"}
        assert ends["c1"] == [diff]
        assert ends["c2"] == [{"type": "diff", "path": str(tmp_path / "b.txt"), "oldText": None, "newText": "new"}]
        assert (tmp_path / "a.txt").read_text() == "one\nthree\n"
        await editor.agent.aclose()

    asyncio.run(go())


def test_the_to_do_list_is_the_plan_and_is_there_after_a_load() -> None:
    async def go() -> None:
        items = {"items": [{"text": "look", "status": "done"}, {"text": "act", "status": "doing"}, {"text": "rest"}]}
        script: list[Line] = [calls(ToolCall("c1", "todo", json.dumps(items))), "Done."]
        editor = Editor(Harness(ScriptedModel(script), tools=tools_named(["todo"]), store="memory"))
        session = await editor.session()
        await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        await editor.ask("session/load", sessionId=session, cwd="/", mcpServers=[])
        plans = [
            [(entry["content"], entry["status"]) for entry in one["entries"]] for one in editor.updates if "entries" in one
        ]
        assert plans == [[("look", "completed"), ("act", "in_progress"), ("rest", "pending")]] * 2
        await editor.agent.aclose()

    asyncio.run(go())


def test_sessions_are_listed_forked_resumed_and_closed(tmp_path: Path) -> None:
    async def go() -> None:
        harness = Harness(ScriptedModel(["One.", "Two.", "Three."]), store=tmp_path / "runs.db", name="shop")
        editor = Editor(harness)
        session = await editor.session("/project")
        await editor.session("/other")  # it was never used, so it is not listed
        await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        forked: Any = await editor.ask("session/fork", sessionId=session, cwd="/project", mcpServers=[])
        other = forked["result"]["sessionId"]
        await editor.ask("session/prompt", sessionId=other, prompt=TEXT)
        listed: Any = await editor.ask("session/list", cwd="/project")
        assert {one["sessionId"] for one in listed["result"]["sessions"]} == {session, other}
        assert {one["title"] for one in listed["result"]["sessions"]} == {"Erase it."}
        assert (await editor.ask("session/list", cwd="/elsewhere"))["result"] == {"sessions": []}
        assert (await editor.ask("session/close", sessionId=session))["result"] == {}
        gone = await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert "error" in gone
        before = len(editor.updates)
        assert (await editor.ask("session/resume", sessionId=session, cwd="/project"))["result"] == {}
        assert len(editor.updates) == before  # nothing is shown again
        assert stop_of(await editor.ask("session/prompt", sessionId=session, prompt=TEXT)) == "end_turn"
        texts = [message.text for message in (await harness.thread(session).state()).transcript.messages]
        assert texts == ["Erase it.", "One.", "Erase it.", "Three."]
        await editor.agent.aclose()
        await harness.aclose()

    asyncio.run(go())


def test_the_files_and_terminals_of_the_editor_are_tools() -> None:
    async def go() -> None:
        files = {"/p/a.txt": "not saved yet"}

        def answer(method: str, params: Any) -> Frame | None:
            match method:
                case "fs/read_text_file":
                    found = files.get(params["path"])
                    return {"error": {"code": -32002, "message": "no such file"}} if found is None else {"content": found}
                case "fs/write_text_file":
                    files[params["path"]] = params["content"]
                    return {}
                case "terminal/create":
                    return {"terminalId": "t1"}
                case "terminal/output":
                    return {"output": "3 passed", "truncated": False, "exitStatus": {"exitCode": 0, "signal": None}}
                case _:
                    return {}

        script: list[Line] = [
            calls(ToolCall("c1", "editor_read_file", '{"path":"a.txt"}')),
            calls(ToolCall("c2", "editor_read_file", '{"path":"../secret"}')),
            calls(ToolCall("c3", "editor_write_file", '{"path":"a.txt","content":"new"}')),
            calls(ToolCall("c4", "editor_run_command", '{"command":"pytest","args":["-q"]}')),
            "Done.",
        ]
        model = ScriptedModel(script)
        editor = Editor(Harness(model, store="memory"), answer=answer)
        session = await editor.session("/p", fs={"readTextFile": True, "writeTextFile": True}, terminal=True)
        assert stop_of(await editor.ask("session/prompt", sessionId=session, prompt=TEXT)) == "end_turn"
        ends = {one["toolCallId"]: one for one in editor.updates if one.get("status") in ("completed", "failed")}
        assert ends["c1"]["content"][0]["content"]["text"] == "not saved yet"
        assert "outside of the project" in ends["c2"]["content"][0]["content"]["text"]
        assert ends["c3"]["content"] == [{"type": "diff", "path": "/p/a.txt", "oldText": "not saved yet", "newText": "new"}]
        assert files["/p/a.txt"] == "new"
        assert "3 passed" in ends["c4"]["content"][0]["content"]["text"]
        assert {"type": "terminal", "terminalId": "t1"} in [one for shown in editor.updates for one in shown.get("content", [])]
        assert [one["toolCall"]["toolCallId"] for one in editor.asked("session/request_permission")] == ["c3", "c4"]
        assert len(editor.asked("terminal/release")) == 1
        await editor.agent.aclose()

    asyncio.run(go())


def test_a_link_in_the_folder_leads_no_tool_of_the_editor_out_of_it(tmp_path: Path) -> None:
    async def go() -> None:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "notes").symlink_to(tmp_path)
        model = ScriptedModel([calls(ToolCall("c1", "editor_read_file", '{"path":"notes/secret"}')), "Done."])
        editor = Editor(Harness(model, store="memory"), answer=lambda _method, _params: {"content": "secret"})
        session = await editor.session(str(folder), fs={"readTextFile": True})
        await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert not editor.asked("fs/read_text_file")
        await editor.agent.aclose()

    asyncio.run(go())


def test_files_of_the_editor_are_no_tools_beside_one_that_could_send_them_out() -> None:
    async def go() -> None:
        model = ScriptedModel(["Done."])
        editor = Editor(Harness(model, tools=tools_named(["web"]), store="memory"))
        session = await editor.session("/p", fs={"readTextFile": True})
        await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert "editor_read_file" not in [spec.name for spec in model.asks[0].tools]
        assert "could send them out" in editor.shown[0][1]
        await editor.agent.aclose()

    asyncio.run(go())


def test_a_broken_stream_is_said_and_a_failed_run_is_an_error() -> None:
    async def go() -> None:
        editor = Editor(Harness(ScriptedModel([TruncatedStream("it broke")] * 9), store="memory"))
        session = await editor.session()
        done: Any = await editor.ask("session/prompt", sessionId=session, prompt=TEXT)
        assert (done["error"]["code"], done["error"]["data"]["kind"]) == (-32603, "TruncatedStream")
        wrong: Any = await editor.ask("session/prompt", sessionId=session, prompt=[])
        assert wrong["error"]["code"] == -32602
        assert (await editor.ask("session/dance"))["error"] == {
            "code": -32601,
            "message": "There is no method 'session/dance'.",
        }
        assert "error" in await editor.ask("session/new", cwd="relative", mcpServers=[])
        await editor.agent.aclose()

    asyncio.run(go())


def test_the_command_speaks_over_its_pipes_and_what_tools_print_is_not_in_between(tmp_path: Path) -> None:
    lines = [
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}',
        "no json",
        '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}',
    ]
    text = """
import os, subprocess
from evener import Harness, tool
from evener.testing import ScriptedModel
from evener.testing.scripted_model import Line, calls
from evener.transcript import ToolCall

@tool
def chatter() -> str:
    "Print, and let a program print and read."
    print("from the tool", flush=True)
    return subprocess.run("echo from a program; cat", shell=True, stdout=None, text=True).returncode

shop = Harness(ScriptedModel([calls(ToolCall("c1", "chatter", "{}")), "Hi."]), tools=[chatter], store="memory")
"""
    (tmp_path / "goods.py").write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "evener", "acp", "--harness", "goods:shop"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        frames = [json.loads(process.stdout.readline()) for _ in range(3)]
        session = next(frame["result"]["sessionId"] for frame in frames if frame.get("id") == 2)
        asked = {"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": {"sessionId": session, "prompt": TEXT}}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        while frames[-1].get("id") != 3:
            frames.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    assert [frame["error"]["code"] for frame in frames if "error" in frame] == [-32700]
    assert frames[-1]["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize("gone", ["it ends the input and reads no more", "it closes the output"])
def test_the_command_ends_with_an_editor_that_goes_in_the_middle_of_an_answer(gone: str, tmp_path: Path) -> None:
    text = """
from evener import Harness
from evener.testing import ScriptedModel

shop = Harness(ScriptedModel(["x" * 1_000_000]), store="memory")
"""
    (tmp_path / "goods.py").write_text(text, encoding="utf-8")
    with (tmp_path / "errors").open("w+b") as errors, subprocess.Popen(
        [sys.executable, "-m", "evener", "acp", "--harness", "goods:shop"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=errors, bufsize=0, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None

        def send(id: int, method: str, **params: object) -> None:
            assert process.stdin is not None
            frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            process.stdin.write(json.dumps(frame).encode() + b"\n")

        send(1, "session/new", cwd="/", mcpServers=[])
        send(2, "session/prompt", sessionId=json.loads(process.stdout.readline())["result"]["sessionId"], prompt=TEXT)
        process.stdout.read(1)  # more than a pipe holds is still to come
        (process.stdin if gone == "it ends the input and reads no more" else process.stdout).close()
        assert process.wait(PATIENCE) == 0
        errors.seek(0)
        assert errors.read() == b""


@pytest.mark.parametrize(("tool", "given"), [("write", ("--tools", "files")), ("editor_write_file", ())])
@pytest.mark.parametrize("whose", ["the user's", "the project's"])
def test_rules_about_paths_hold_in_the_folder_that_the_editor_has_open(
    tool: str, given: tuple[str, ...], whose: str, tmp_path: Path
) -> None:
    """The editor starts the agent elsewhere, and the model writes the whole path."""
    home, project = tmp_path / "home", tmp_path / "project"
    own = home / ".config" / "evener" / "config.toml"
    for folder in (own.parent, project / "keys"):
        folder.mkdir(parents=True)
    rule = f'[[policy]]\ntool = "{tool}"\nverdict = "deny"\n[policy.arguments]\npath = {{ path = ["keys/**"] }}\n'
    (own if whose == "the user's" else project / "evener.toml").write_text(rule, encoding="utf-8")
    offers = {"fs": {"readTextFile": True, "writeTextFile": True}}
    place = {"cwd": str(project), "mcpServers": []}
    with FakeServer("anthropic_messages", key="sk-none") as server:
        server.add(turn(Call(tool, {"path": str(project / "keys" / "one"), "content": "x"})), "Done.")
        rows = f'[providers.anthropic]\nbase_url = "{server.url}"\n'
        own.write_text((own.read_text(encoding="utf-8") if own.exists() else "") + rows, encoding="utf-8")
        environ = {"PYTHONPATH": os.pathsep.join(sys.path), "ANTHROPIC_API_KEY": "sk-none", "HOME": str(home)}
        with subprocess.Popen(
            [sys.executable, "-m", "evener", "acp", "--model", "claude", "--store", "memory", *given], text=True, cwd=home,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environ},
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None

            def ask(id: int, method: str, **params: object) -> Frame:
                assert process.stdin is not None
                assert process.stdout is not None
                frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
                process.stdin.write(json.dumps(frame) + "\n")
                process.stdin.flush()
                while True:
                    told: Frame = json.loads(process.stdout.readline())
                    assert told.get("method") != "session/request_permission"
                    if told.get("id") == id:
                        return told

            ask(1, "initialize", protocolVersion=1, clientCapabilities=offers)
            made = ask(2, "session/new", **place)["result"]
            assert isinstance(made, dict)
            assert stop_of(ask(3, "session/prompt", sessionId=made["sessionId"], prompt=TEXT)) == "end_turn"
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
        assert b"The call is denied" in server.requests[1].body or b"says 'deny'" in server.requests[1].body
    assert not list((project / "keys").iterdir())


@pytest.mark.parametrize("name", ["frames", os.devnull])
def test_a_file_in_place_of_the_editor_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "frames").write_text("{}\n", encoding="utf-8")
    with (tmp_path / name).open(encoding="utf-8") as file:
        command = [sys.executable, "-m", "evener", "acp", "--model", "claude", "--store", "memory"]
        environ = {**os.environ, "ANTHROPIC_API_KEY": "sk-none"}
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no editor is connected" in done.stderr
