"""A support agent whose refunds need approval, in three processes: one asks, one decides, one resumes the run.

Prints:
    waits: refund({"order":"A-17","amount":40}) of order A-17
    decided by another process
    refunded 40 for A-17
    Your 40 are on their way. (ticket 7)
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from evener import Harness, Limits, ModelSettings, ToolContext, tool
from evener.harness import Decision
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript import Ask, ToolCall


@dataclass
class Shop:
    """What the tools need: the orders, and what they cost."""

    orders: dict[str, int] = field(default_factory=lambda: {"A-17": 40})


@tool(effect="read")
def look_up(context: ToolContext[Shop], order: str) -> int:
    """Return what an order cost."""
    return context.deps.orders[order]


@tool(effect="write", approval=True)
def refund(context: ToolContext[Shop], order: str, amount: int) -> str:
    """Pay money back."""
    print(f"refunded {min(amount, context.deps.orders[order])} for {order}", flush=True)
    return "done"


def answer(ask: Ask) -> Line:
    """Play the model: look up, refund, then say so."""
    told = len(ask.transcript)
    if told == 1:
        return calls(ToolCall.of("call-1", "look_up", {"order": "A-17"}))
    if told == 3:
        return calls(ToolCall.of("call-2", "refund", {"order": "A-17", "amount": 40}))
    return "Your 40 are on their way."


def support(store: Path) -> Harness[Shop]:
    return Harness(
        ScriptedModel(answer),
        tools=[look_up, refund],
        deps=Shop(),
        store=store,
        limits=Limits(requests=10, cost="0.50"),
        settings=ModelSettings(temperature=0.0, parallel=False),
    )


def ask(store: Path) -> None:
    result = support(store).run_sync("Order A-17 arrived broken.", metadata={"ticket": 7})
    for one in result.approvals:
        if one.call is not None:
            print(f"waits: {one.call.name}({one.call.raw}) of order {one.call.args['order']}", flush=True)
    (store.parent / "thread").write_text(result.thread)


def decide(store: Path, thread: str, key: str) -> None:
    support(store).decide_sync(thread, {key: Decision("allow", by="the owner")})
    print("decided by another process", flush=True)


def go_on(store: Path, thread: str) -> None:
    result = support(store).resume_sync(thread)
    print(f"{result.text} (ticket {result.metadata['ticket']})", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "support.db"
        this = [sys.executable, __file__]
        subprocess.run([*this, "ask", str(store)], check=True)
        thread = (store.parent / "thread").read_text()
        subprocess.run([*this, "decide", str(store), thread, "call-2"], check=True)
        subprocess.run([*this, "go", str(store), thread], check=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ask", path]:
            ask(Path(path))
        case ["decide", path, log, waiting]:
            decide(Path(path), log, waiting)
        case ["go", path, log]:
            go_on(Path(path), log)
        case _:
            main()
