"""An agent fixes code, on four wires: it runs the failing test, edits the file, runs the tests. Edits and commands need approval.

The providers are fakes on loopback that answer, and refuse, as the real ones do. The files, the edits and the sandbox are real.
Models that were trained on tools in their maker's form (an editor, patches, a shell) get these. The calls in the log are the same.

Prints:
    anthropic, plain: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      offered as functions; 3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    openai, plain: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      offered as functions; 3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    groq, plain: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      offered as functions; 3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    google, plain: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      offered as functions; 3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    anthropic, native: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      offered as text_editor_20250728, bash_20250124; 3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    openai, native: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      offered as apply_patch, shell; 3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
"""  # noqa: E501

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from evener import Harness, RunResult, open_model
from evener.harness.approvals import Decision
from evener.testing import Call, FakeServer, Native, Text, Turn, turn
from evener.toolset.sets import FILE_AGENT, tools_named

CLAUDE, GPT = "anthropic:claude-opus-4-5", "openai:gpt-5.1"
MODELS = (CLAUDE, GPT, "groq:openai/gpt-oss-120b", "google:gemini-3-pro-preview")
CODE = "def add(a, b):\n    return a - b\n"
TEST = (
    "import unittest\nfrom calc import add\n\n\nclass Adds(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
)
TESTS = "python3 -B -m unittest 2>&1"
EDITOR = "str_replace_based_edit_tool"
PATCH = "@@ def add(a, b):\n-    return a - b\n+    return a + b\n"
SEARCH = turn(Call("search", {"pattern": "return", "glob": "calc.py"}))
END = turn(Text("`add` subtracted. It adds now, and the tests pass."))
PLAIN = (
    turn(Call("shell", {"command": TESTS})),
    SEARCH,
    turn(Call("read", {"path": "calc.py"})),
    turn(Call("edit", {"path": "calc.py", "edits": [{"old": "a - b", "new": "a + b"}]})),
    turn(Call("shell", {"command": TESTS})),
    END,
)


def run_item(id: str) -> Turn:
    """An answer with a call of the shell, as an item of its own."""
    action = {"commands": [TESTS], "timeout_ms": 60_000, "max_output_length": 4_096}
    return turn(Native({"type": "shell_call", "id": f"sh_{id}", "call_id": id, "status": "completed", "action": action}))


def patch_item(id: str) -> Turn:
    """An answer with a patch."""
    operation = {"type": "update_file", "path": "calc.py", "diff": PATCH}
    item = {"type": "apply_patch_call", "id": f"apc_{id}", "call_id": id, "status": "completed", "operation": operation}
    return turn(Native(item))


NATIVE = {
    CLAUDE: (
        turn(Call("bash", {"command": TESTS})),
        SEARCH,
        turn(Call(EDITOR, {"command": "view", "path": "calc.py"})),
        turn(Call(EDITOR, {"command": "str_replace", "path": "calc.py", "old_str": "a - b", "new_str": "a + b"})),
        turn(Call("bash", {"command": TESTS})),
        END,
    ),
    GPT: (run_item("call_1"), SEARCH, turn(Call("read", {"path": "calc.py"})), patch_item("call_2"), run_item("call_3"), END),
}


async def work(name: str, folder: Path, script: tuple[Turn, ...], *, native: bool) -> tuple[RunResult, int, str]:
    """Let the agent fix the project, and allow what it asks for; return how it ended, how often it asked, and its tools."""
    (folder / "calc.py").write_text(CODE)
    (folder / "test_calc.py").write_text(TEST)
    asked = 0
    async with FakeServer(open_model(name, key="test").origin.wire, list(script), key="test") as server:
        model = open_model(name, key="test", base_url=server.url)
        tools = tools_named(["files", "search", "shell"], root=folder, native=native)
        thread = Harness(model, tools=tools, system=FILE_AGENT, store="memory").thread()
        result = await thread.run("Find the failing test, fix it, and run the tests.")
        while result.stop == "approval":
            asked += len(result.approvals)
            await thread.decide({one.key: Decision("allow", digest=one.digest) for one in result.approvals})
            result = await thread.resume()
        offered = [tool.get("type") for tool in json.loads(server.requests[-1].body)["tools"]]
    return result, asked, ", ".join(type for type in offered if type not in (None, "function")) or "functions"


def tell(result: RunResult) -> str:
    """Each call with the end of what it gave."""
    steps = []
    for record in result.records:
        shown = record.result.content[0].text.strip().split("\n") if record.result else [""]
        end = {
            "shell": [line for line in shown if line.startswith(("OK", "FAILED"))],
            "search": [shown[0].partition(":    ")[0]],
        }
        steps.append(" ".join([record.call.name, *end.get(record.call.name, [])]))
    return ", ".join(steps)


async def main() -> None:
    for name, script, form in (*((name, PLAIN, "plain") for name in MODELS), *((one, NATIVE[one], "native") for one in NATIVE)):
        with TemporaryDirectory() as folder:
            result, asked, offered = await work(name, Path(folder), script, native=form == "native")
            fixed = "calc.py is fixed" if "a + b" in (Path(folder) / "calc.py").read_text() else "calc.py is as it was"
        print(f"{name.partition(':')[0]}, {form}: {tell(result)}")
        print(f"  offered as {offered}; {asked} calls were approved; {fixed}. {result.text}")


if __name__ == "__main__":
    asyncio.run(main())
