"""The harness that `bench.editors` serves to an ACP client: a model that does what the first word of a prompt says."""

import json
import os

from evener import Harness, tool
from evener.testing import ScriptedModel
from evener.testing.scripted_model import calls, says
from evener.tools import ToolContext
from evener.transcript import ToolCall
from evener.transcript.ask import Ask
from evener.transcript.reply import Reply

__all__ = ["shop"]


@tool(effect="read")
def look(city: str) -> str:
    """Look."""
    return f"snow in {city}"


@tool(approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@tool
async def wait(context: ToolContext[object]) -> str:
    """Wait until the run is cancelled."""
    await context.cancelled.until_set()
    return "stopped"


ACTS: dict[str, tuple[str, dict[str, object]]] = {
    "look": ("look", {"city": "Oslo"}),
    "erase": ("erase", {"path": "/x"}),
    "wait": ("wait", {}),
    "write": ("editor_write_file", {"path": "made.txt", "content": "by the editor"}),
    "read": ("editor_read_file", {"path": "made.txt"}),
    "run": ("editor_run_command", {"command": "echo", "args": ["from a terminal"]}),
}


def answer(ask: Ask) -> Reply:
    """Call a tool, or say what was heard so far."""
    messages = ask.transcript.messages
    said = [message.text for message in messages if message.role == "user" and message.text]
    act = ACTS.get(said[-1].split()[0]) if messages[-1].text else None
    if act is None:
        return says(f"Heard {len(said)}: {'; '.join(said)}")
    return calls(ToolCall(f"call_{len(messages)}", act[0], json.dumps(act[1])), text="I try.")


shop = Harness(
    ScriptedModel(answer), tools=[look, erase, wait], store=os.environ.get("EVENER_EDITOR_STORE", "memory"), name="shop"
)
