"""A harness for worker processes: it writes a line per effect, and waits where the test says. Imported by its name."""

import os
import time
from pathlib import Path

from evener import Harness, Tool, tool
from evener.store.postgres import PostgresStore
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply

FOLDER = Path(os.environ.get("EVENER_TEST_SITE", "."))


def note(line: str) -> None:
    """Add a line to the file of effects, in one write."""
    with open(FOLDER / "effects", "ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


@tool(effect="write")
def pay(name: str) -> str:
    """Pay; the effect comes first, then a pause in which the worker may die."""
    note(f"pay {name}")
    if (FOLDER / "slow").exists():
        time.sleep(0.2)
    return "paid"


def sign(_: dict[str, object]) -> str:
    """Sign."""
    note("signed")
    return "signed"


def approve() -> Tool:
    """A tool that needs a decision."""
    schema = {"type": "object", "properties": {}}
    return Tool.of("sign", schema, function=sign, description="Sign.", approval=True)


def answer(ask: Ask) -> Reply | str:
    """Pay once for the name in the prompt, then say so; sign first if the prompt says so."""
    said = ask.transcript.messages
    prompt = next(message.text for message in said if message.role == "user" and message.text)
    made = sum(len(message.calls) for message in said)
    if prompt.startswith("sign") and not made:
        return calls(ToolCall.of("s1", "sign", {}))
    if not prompt.startswith("sign") and not made:
        return calls(ToolCall.of("c1", "pay", {"name": prompt}))
    return f"done {prompt}"


def make(address: str, schema: str, *, lease: float = 60.0, decide_within: float = 0.0) -> Harness:
    """Return the harness on a store. Its lease is short only where a worker dies: one that is slow must not lose it."""
    store = PostgresStore(address, schema=schema, lease=lease)
    return Harness(ScriptedModel(answer), tools=[pay, approve()], store=store, name="site", decide_within=decide_within)


if "EVENER_TEST_ADDRESS" in os.environ:
    harness = make(os.environ["EVENER_TEST_ADDRESS"], os.environ["EVENER_TEST_SCHEMA"], lease=2.0)
