"""Cancellation is seen everywhere, and a tool that hangs never keeps the program from ending."""

import asyncio
import subprocess
import sys
import threading

from evener.tools import Cancellation
from tests.patience import PATIENCE, at_some_pace
from tests.tools.calls import run


def test_a_coroutine_is_woken_from_another_thread() -> None:
    async def work() -> bool:
        cancelled = Cancellation()
        waiting = [asyncio.ensure_future(cancelled.until_set()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        thread = threading.Thread(target=cancelled.set)
        thread.start()
        await asyncio.gather(*waiting)
        thread.join()
        await cancelled.until_set()
        cancelled.set()
        return cancelled.is_set() and cancelled.wait(0)

    assert run(work())


def test_a_loop_that_is_gone_is_no_problem() -> None:
    cancelled = Cancellation()

    async def work() -> None:
        task = asyncio.ensure_future(cancelled.until_set())
        await asyncio.sleep(0)
        task.cancel()

    run(work())
    cancelled.set()
    assert cancelled.is_set()


HANGING = """
import asyncio, sys, time
from evener.tools import Threads, ToolContext, run_call, tool
from evener.transcript import ToolCall

@tool(timeout=float(sys.argv[1]))
def hang() -> None:
    time.sleep(600)

async def main():
    context = ToolContext(call_id="c", deps=None)
    print((await run_call(hang, ToolCall("c", "hang"), context=context, threads=Threads())).outcome)

asyncio.run(main())
"""


def test_a_hanging_tool_does_not_keep_the_program_from_ending() -> None:
    def attempt(pace: float) -> None:
        command = [sys.executable, "-W", "error", "-c", HANGING, str(0.05 * pace)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout, done.stderr) == (0, "unknown\n", "")

    at_some_pace(attempt)  # a thread that begins after the deadline has done nothing, and that is known


def test_pydantic_is_loaded_only_by_those_who_use_it() -> None:
    code = (
        "import sys\n"
        "from evener.tools import tool, envelope_of\n"
        "@tool\n"
        "def add(a: int, b: list[str] | None = None) -> None: ...\n"
        "add.read('{\"a\":1}'); envelope_of({'a': 1})\n"
        "print([name for name in ('pydantic', 'annotated_types', 'sqlite3', 'ssl') if name in sys.modules and name != 'ssl'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
