"""Tools that models were trained on: the form on the wire is the maker's, the calls in the log are the standard ones."""

import asyncio
import json
from pathlib import Path

import pytest

from evener import Harness, MemoryStore, open_model
from evener.encodings.own_tools import FORMS
from evener.encodings.patches import read_patch, write_patch
from evener.policy import Defaults, Policy, Rule
from evener.result import RunResult
from evener.testing import Call, FakeServer, Native, Turn, turn
from evener.tools import tool
from evener.toolset.sets import tools_named
from evener.transcript import Choice
from tests.oracle import oracle_errors
from tests.toolset.calls import Caller

CLAUDE, GPT, GEMINI = "anthropic:claude-opus-4-5", "openai:gpt-5.1", "google:gemini-3-pro-preview"
EDITOR = "str_replace_based_edit_tool"
FILE = "one = 1\ntwo = 2\nthree = 3\n"


def patch(id: str, diff: str, kind: str = "update_file", path: str = "a.py") -> Turn:
    operation = {"type": kind, "path": path, **({"diff": diff} if kind != "delete_file" else {})}
    item = {"type": "apply_patch_call", "id": f"apc_{id}", "call_id": id, "status": "completed", "operation": operation}
    return turn(Native(item))


def shell(id: str, *commands: str) -> Turn:
    action = {"commands": list(commands), "timeout_ms": None, "max_output_length": None}
    return turn(Native({"type": "shell_call", "id": f"sh_{id}", "call_id": id, "status": "completed", "action": action}))


def run(name: str, script: list[Turn | str], folder: Path, **more: object) -> tuple[RunResult, list[dict[str, object]]]:
    """Run a script on the fake of a model's wire; return the result and the bodies of the requests, which are all legal."""
    tools = tools_named(["files", "shell"], root=folder, approval=False)

    async def main() -> tuple[RunResult, list[dict[str, object]]]:
        wire = open_model(name, key="k").origin.wire
        async with FakeServer(wire, script, key="k") as server:
            model = open_model(name, key="k", base_url=server.url)
            result = await Harness(model, tools=tools, store="memory", **more).run("Go.")  # type: ignore[arg-type]
            bodies = [json.loads(one.body) for one in server.requests]
            assert server.rejected == []
            assert [oracle_errors(wire, body) for body in bodies] == [[] for _ in bodies]
            return result, bodies

    return asyncio.run(main())


def types(body: dict[str, object]) -> list[object]:
    return [one.get("type", "function") for one in body["tools"]]  # type: ignore[attr-defined]


def test_the_editor_and_the_shell_of_messages(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FILE)
    given: list[dict[str, object]] = [
        {"command": "view", "path": "."},
        {"command": "view", "path": "a.py", "view_range": [2, 3]},
        {"command": "str_replace", "path": "a.py", "old_str": "one = 1", "new_str": "one = 10"},
        {"command": "insert", "path": "a.py", "insert_line": 1, "insert_text": "half = 0.5"},
        {"command": "create", "path": "b.py", "file_text": "new\n"},
        {"command": "str_replace", "path": "a.py", "old_str": "one =  10", "new_str": ""},
    ]
    script: list[Turn | str] = [
        *(turn(Call(EDITOR, one)) for one in given),
        turn(Call("bash", {"command": "cat b.py"})),
        "Done.",
    ]
    result, bodies = run(CLAUDE, script, tmp_path)
    assert types(bodies[0])[:2] == ["text_editor_20250728", "function"]
    assert "bash_20250124" in types(bodies[0])
    assert [one.call.name for one in result.records] == ["read", "read", "edit", "edit", "write", "edit", "shell"]
    texts = [one.result.content[0].text for one in result.records if one.result]  # type: ignore[union-attr]
    assert texts[0] == "a.py 26"
    assert texts[1].startswith("     2\ttwo = 2")
    assert "The white space inside of lines differs" in texts[5]
    assert texts[6] == "new\n"
    assert (tmp_path / "a.py").read_text() == "one = 10\nhalf = 0.5\ntwo = 2\nthree = 3\n"
    sent = [part["input"] for message in bodies[-1]["messages"] for part in message["content"] if part["type"] == "tool_use"]  # type: ignore[attr-defined]
    assert sent == [*given, {"command": "cat b.py"}]  # as the model said it


def test_patches_and_the_shell_of_responses(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    x = 1\n\nclass B:\n    x = 1\nlast")
    script: list[Turn | str] = [
        turn(Call("read", {"path": "a.py"})),
        patch("c1", "@@ class B:\n-    x = 1\n+    x = 2\n-last\n+first\n"),
        patch("c2", "@@\n-  x = 2\n+x"),
        patch("c3", "+a\n+b\n", "create_file", "b.py"),
        shell("c4", "cat b.py", "exit 3"),
        patch("c5", "", "delete_file", "b.py"),
        "Done.",
    ]
    result, bodies = run(GPT, script, tmp_path)
    assert {"apply_patch", "shell"} <= set(types(bodies[0]))
    assert [one.call.name for one in result.records] == ["read", "edit", "edit", "write", "shell", "delete"]
    assert (tmp_path / "a.py").read_text() == "class A:\n    x = 1\n\nclass B:\n    x = 2\nfirst"
    assert not (tmp_path / "b.py").exists()
    items = {one["call_id"]: one for one in bodies[-1]["input"] if str(one.get("type")).endswith("_output")}  # type: ignore[attr-defined]
    assert (items["c1"]["type"], items["c1"]["status"]) == ("apply_patch_call_output", "completed")
    assert items["c2"]["status"] == "failed"
    assert "The indentation differs" in items["c2"]["output"]
    [output] = items["c4"]["output"]
    assert output["outcome"] == {"type": "exit", "exit_code": 3}
    assert output["stdout"].startswith("a\nb\n")


def test_plain_functions_go_where_there_is_no_native_form(tmp_path: Path) -> None:
    for name in (GEMINI, "groq:openai/gpt-oss-120b", "openai:gpt-4o", "anthropic:claude-3-5-haiku-latest"):
        _, bodies = run(name, ["Done."], tmp_path)
        assert "apply_patch" not in json.dumps(bodies)
        assert EDITOR not in json.dumps(bodies)
        assert "edits" in json.dumps(bodies)


def test_what_was_turned_off_or_is_not_all_there_goes_plain(tmp_path: Path) -> None:
    plain = tools_named(["files", "shell"], root=tmp_path, native=False)
    only_reading = [one for one in tools_named(["files"], root=tmp_path) if one.effect == "read"]

    @tool(effect="read")
    def bash(command: str) -> str:
        """Run."""
        return command

    taken = [*tools_named(["shell"], root=tmp_path), bash]
    model = open_model(CLAUDE, key="k")
    from evener.encodings.own_tools import choose_own_tools
    from evener.tools import Toolbox
    from evener.transcript import Transcript

    quirks = model.endpoint.facts.quirks
    for tools in (plain, only_reading, taken):
        assert choose_own_tools(model.ask(Transcript(), Toolbox(tools).specs), quirks) == ()
    specs = Toolbox(tools_named(["files"], root=tmp_path)).specs
    assert choose_own_tools(model.ask(Transcript(), specs), quirks) != ()
    assert choose_own_tools(model.ask(Transcript(), specs, choice=Choice("named", ("edit",))), quirks) == ()


def test_a_conversation_goes_on_at_another_maker(tmp_path: Path) -> None:
    """The past of one wire is legal on the next, in its form or as plain calls."""
    (tmp_path / "a.py").write_text(FILE)
    tools = tools_named(["files", "shell"], root=tmp_path, approval=False)
    several = {"path": "a.py", "edits": [{"old": "two = 2", "new": "two = 20"}, {"old": "three = 3", "new": "three = 30"}]}
    turns: dict[str, list[Turn | str]] = {
        CLAUDE: [
            turn(Call(EDITOR, {"command": "str_replace", "path": "a.py", "old_str": "one = 1", "new_str": "one = 9"})),
            "A.",
        ],
        GPT: [patch("c1", "@@\n-one = 9\n+one = 8\n"), shell("c2", "cat a.py"), "B."],
        GEMINI: [turn(Call("edit", several)), "C."],
    }
    store = MemoryStore()

    async def main() -> str:
        thread = ""
        for name in (CLAUDE, GPT, GEMINI, CLAUDE, GPT):
            wire = open_model(name, key="k").origin.wire
            script = turns.pop(name, ["End."])
            async with FakeServer(wire, script, key="k") as server:
                harness = Harness(open_model(name, key="k", base_url=server.url), tools=tools, store=store, name="hops")
                result = await harness.run("Go on.", thread=thread)
                thread = result.thread
                assert server.rejected == []
                body = json.loads(server.requests[-1].body)
                assert oracle_errors(wire, body) == []
        return json.dumps(body)

    last = asyncio.run(main())
    assert (tmp_path / "a.py").read_text() == "one = 8\ntwo = 20\nthree = 30\n"
    assert '"apply_patch_call"' in last
    assert '"name": "edit"' in last  # two replacements of parts of lines: no patch can say that


def test_a_policy_about_edits_holds_for_patches_and_the_editor(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FILE)
    rules = Policy(
        rules=(Rule(tool="edit", verdict="deny", arguments={"path": "a.py"}, name="not a"),), default=Defaults.all("allow")
    )
    change = {"command": "str_replace", "path": "a.py", "old_str": "one", "new_str": "two"}
    scripts: dict[str, list[Turn | str]] = {
        CLAUDE: [turn(Call(EDITOR, change)), "No."],
        GPT: [patch("c", "-one = 1\n+x"), "No."],
    }
    for name, script in scripts.items():
        result, bodies = run(name, script, tmp_path, policy=rules)
        assert "not a" in json.dumps(bodies[-1])
        assert result.text == "No."
    assert (tmp_path / "a.py").read_text() == FILE


@pytest.mark.parametrize("bad", [{"command": "dance"}, {"command": "view"}, {"command": "create", "path": "x"}, {}])
def test_a_native_call_that_cannot_be_read_gets_an_answer(bad: dict[str, object], tmp_path: Path) -> None:
    result, _ = run(CLAUDE, [turn(Call(EDITOR, bad)), "Sorry."], tmp_path)
    [record] = result.records
    assert record.result is not None
    assert not record.result.ok
    assert result.text == "Sorry."


def test_patches_are_read_and_written() -> None:
    diff = "@@ class A:\n keep\n-out\n+in\n\n@@\n+new\n"
    edits = read_patch(diff)
    assert edits == [
        {"old": "keep\nout\n\n", "new": "keep\nin\n\n", "lines": True, "after": "class A:"},
        {"old": "", "new": "new\n", "lines": True},
    ]
    assert write_patch(edits) == "@@ class A:\n keep\n-out\n+in\n \n@@\n+new"
    assert read_patch(write_patch(edits) or "") == edits
    assert write_patch([{"old": "part", "new": "of a line"}]) is None
    assert read_patch("@@\n-gone\n") == [{"old": "gone\n", "new": "", "lines": True}]


@pytest.mark.parametrize("type", FORMS)
def test_forms_are_told_apart_by_their_calls(type: str) -> None:
    form = FORMS[type]
    assert {*form.needs} <= {*form.stands_for}
    assert form.read({}, form.call, (1280, 800)) is None


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ({"old": "wo = 2\n", "new": "x\n", "lines": True}, "The indentation differs"),
        ({"old": "one = 1\n", "new": "x\n", "lines": True, "after": "two = 2"}, "which is before 'two = 2'"),
        ({"old": "", "new": "x", "after": "four = 4"}, "is not there"),
        ({"old": "", "new": "x", "after": "two = 2"}, "stands 2 times, in the lines 2, 4"),
        ({"old": "", "new": "x", "line": 9}, "There is no line 9: the file has 4"),
        ({"old": "", "new": "x", "lines": True}, "`old` is empty"),
    ],
)
def test_an_edit_of_lines_that_cannot_be_made_says_why(edit: dict[str, object], told: str, tmp_path: Path) -> None:
    content = "one = 1\ntwo = 2\nthree = 3\ntwo = 2\n" if "stands 2" in told or "line 9" in told else FILE
    (tmp_path / "a.py").write_text(content)
    result = Caller(tools_named(["files"], root=tmp_path)).call("edit", {"path": "a.py", "edits": [edit]})
    assert not result.ok
    assert told in result.text
    assert (tmp_path / "a.py").read_text() == content
