"""Agents as tools of another agent: each call is a run of its own, in a thread of its own, that starts afresh.

The thread is named after the call, so a call that is repeated after a crash goes on with the run that it had begun. A run
that waits for a decision makes the call wait, and with it the run that called.

A fork has agents of its own: a call that was only asked for before the fork is another call there. One that had been started
goes on in a fork of the agent's thread, as far as that had come: what its tools did is not done again, and the other branch's
agent is neither disturbed nor decided about.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec

from evener.call_context import InnerLog, current_site, waiting
from evener.errors import EvenerError
from evener.harness.thread import Thread
from evener.hooks import Cancel, HookAnswer, HookEvent
from evener.result import RunResult
from evener.store.protocol import NoLog
from evener.tools.context import ToolContext
from evener.tools.result import Envelope, report_failure
from evener.tools.tool import Tool, tool

GONE = (
    "The agent {!r} had begun, and its thread is not in this store: it is not known what it has done. It was not begun again. "
    "Find out before you repeat it."
)

Open = Callable[[str, str], Thread]
"""The thread of this id, or a new one: a fork of the other, if that is named and there."""
Tell = Callable[[HookEvent, str, RunResult | None], tuple[HookAnswer, ...]]


def subagent_tool(name: str, description: str, *, open_thread: Open, tell: Tell) -> Tool:
    """Return the tool that gives a task to an agent and returns its final answer."""

    async def ask_agent(
        task: Annotated[str, "all that the agent needs to know: it sees nothing else"], context: ToolContext[object]
    ) -> Envelope:
        """Give a task to another agent."""
        stop = next((answer for answer in tell("before_subagent_run", name, None) if isinstance(answer, Cancel)), None)
        if stop is not None:
            return report_failure(f"The agent {name!r} was not run: a hook cancelled it. {stop.why}")
        site = current_site.get()
        inner = site.inner() if site and site.inner else InnerLog(context.key)
        thread = open_thread(inner.child, inner.source)
        try:
            result = await thread.settle(task, begun=inner.begun)
        except NoLog:
            return report_failure(GONE.format(name), outcome="unknown")
        except EvenerError as error:
            return report_failure(f"The agent {name!r} could not answer: {error}")
        if result.stop == "approval":
            return waiting(result.thread, result.approvals)
        tell("after_subagent_run", name, result)
        meta = msgspec.json.encode({"thread": result.thread, "stop": result.stop}).decode()
        said = result.output_text or result.text
        text = said if result.ok else f"The agent stopped ({result.stop}). {result.detail} Its last answer: {said}"
        return Envelope(result.ok, text, meta, outcome="done" if result.ok else "failed")  # type: ignore[arg-type] # takes a str

    return tool(ask_agent, name=name, description=description, effect="idempotent", timeout=None)
