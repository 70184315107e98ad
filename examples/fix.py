"""An agent at work, on four wires: it finds the failing test, fixes the code, runs the tests; edits and commands are approved.

The providers are fakes on loopback that answer, and refuse, as the real ones do. The files, the edits and the sandbox are real.

Prints:
    anthropic: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    openai: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    groq: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
    google: shell FAILED (failures=1), search calc.py:2, read, edit, shell OK
      3 calls were approved; calc.py is fixed. `add` subtracted. It adds now, and the tests pass.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from evener import Harness, RunResult, open_model
from evener.harness.approvals import Decision
from evener.testing import Call, FakeServer, Text, turn
from evener.toolset.sets import FILE_AGENT, tools_named

MODELS = ("anthropic:claude-opus-4-5", "openai:gpt-5.1", "groq:openai/gpt-oss-120b", "google:gemini-3-pro-preview")
CODE = "def add(a, b):\n    return a - b\n"
TEST = (
    "import unittest\nfrom calc import add\n\n\nclass Adds(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
)
RUN_TESTS = {"command": "python3 -B -m unittest 2>&1"}
SCRIPT = (
    turn(Call("shell", RUN_TESTS)),
    turn(Call("search", {"pattern": "return", "glob": "calc.py"})),
    turn(Call("read", {"path": "calc.py"})),
    turn(Call("edit", {"path": "calc.py", "edits": [{"old": "a - b", "new": "a + b"}]})),
    turn(Call("shell", RUN_TESTS)),
    turn(Text("`add` subtracted. It adds now, and the tests pass.")),
)


async def work(name: str, folder: Path) -> tuple[RunResult, int]:
    """Let the agent fix the project, and allow what it asks for; return the result and how often it asked."""
    (folder / "calc.py").write_text(CODE)
    (folder / "test_calc.py").write_text(TEST)
    asked = 0
    async with FakeServer(open_model(name, key="test").origin.wire, list(SCRIPT), key="test") as server:
        model = open_model(name, key="test", base_url=server.url)
        harness = Harness(
            model, tools=tools_named(["files", "search", "shell"], root=folder), system=FILE_AGENT, store="memory"
        )
        thread = harness.thread()
        result = await thread.run("Find the failing test, fix it, and run the tests.")
        while result.stop == "approval":
            asked += len(result.approvals)
            await thread.decide({one.key: Decision("allow", digest=one.digest) for one in result.approvals})
            result = await thread.resume()
    return result, asked


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
    for name in MODELS:
        with TemporaryDirectory() as folder:
            result, asked = await work(name, Path(folder))
            fixed = "a + b" in (Path(folder) / "calc.py").read_text()
        print(f"{name.partition(':')[0]}: {tell(result)}")
        print(f"  {asked} calls were approved; {'calc.py is fixed' if fixed else 'calc.py is as it was'}. {result.text}")


if __name__ == "__main__":
    asyncio.run(main())
