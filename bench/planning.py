"""What keeping a conversation within its window costs, in instructions counted by valgrind.

Planning an eviction in a thread of 10,000 messages, against encoding that thread once, on each wire; and what a turn of a loop
costs with counting and without. Counts are the same on a busy machine as on a quiet one.
"""

import cProfile
import shutil
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from bench.agent_speech import WIRES
from bench.instruction_driver import mark
from bench.instructions import compare_turns, count_between
from evener.context.accounting import Account, rates_of
from evener.context.eviction import plan_eviction
from evener.context.gate import ContextRules
from evener.transcript import Message, Origin, Transcript
from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.blocks import ReasoningBlock, TextBlock, ToolCall, ToolResult
from evener.wire import CODECS, Quirks

__all__ = ["count_calls", "long_thread", "main"]

MESSAGES = 10_000
MOST_SHARE = 0.05
TOOLS = (ToolSpec("fetch", "Fetch something."),)
HOW = ("without", "with")


def long_thread(messages: int) -> tuple[Message, ...]:
    """Return a thread of so many messages: calls, results of several sizes, reasoning, a prompt now and then."""
    found = [Message("user", (TextBlock("Find it all. " * 20),), id="p")]
    for number in range((messages - 1) // 2):
        said = (ReasoningBlock("I think so. " * 10), TextBlock(f"Step {number}."), ToolCall(f"c{number}", "fetch", '{"n":1}'))
        text = "found " * (4000 if number % 10 == 0 else 100)
        found.append(Message("assistant", said, id=f"a{number}"))
        found.append(Message("user", (ToolResult(f"c{number}", (TextBlock(text),)),), id=f"r{number}"))
    return tuple(found)


def plan(wire: str, talk: Transcript) -> None:
    """Count the thread and plan an eviction of half of it."""
    rates, target = rates_of(wire), Origin(wire, "x", model="m")
    total = Account(rates).after(talk, target).total
    found = plan_eviction(talk.messages, total / 2, rates=rates, rules=ContextRules())
    assert found.saved


def encode(wire: str, talk: Transcript) -> None:
    """Write the request once."""
    assert CODECS[wire].encode(Ask(talk, Origin(wire, "x", model="m"), TOOLS), Quirks(), None).body


WORK: dict[str, Callable[[str, Transcript], None]] = {"plan": plan, "encode": encode}


def count_calls(what: str, wire: str, messages: int) -> int:
    """Return how many functions are called for one of these: a cheap stand-in for instructions."""
    talk = Transcript(long_thread(messages))
    WORK[what](wire, talk)  # what is loaded and cached once is not counted
    profile = cProfile.Profile()
    profile.runcall(WORK[what], wire, talk)
    return sum(entry.callcount for entry in profile.getstats())


def main(wires: tuple[str, ...] = WIRES) -> int:
    """Print both tables; 1 when a limit is not met."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("bench: instructions are counted by valgrind, and there is none. Install the package valgrind.", file=sys.stderr)
        return 1
    missed = 0
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(count_between, valgrind, "bench.planning", str(MESSAGES), *wires)
        turns = pool.submit(compare_turns, valgrind, _cases(wires))
        print(f"{'thousands, each turn':24}{'without':>10}{'with':>10}{'more':>8}", flush=True)
        for wire in wires:
            bare, kept = (turns.result()[f"{wire} {name}"] for name in HOW)
            missed += kept / bare - 1 > MOST_SHARE
            print(f"{wire:24}{bare:10,.0f}{kept:10,.0f}{kept / bare - 1:>8.1%}", flush=True)
        print(f"{'millions of instructions':24}{'plan':>10}{'encode':>10}{'share':>8}   ({MESSAGES:,} messages)", flush=True)
        counts = iter(long.result())
        for wire in wires:
            _, planned, encoded = (next(counts) / 1e6 for _ in range(3))
            missed += planned >= encoded
            print(f"{wire:24}{planned:10,.0f}{encoded:10,.0f}{planned / encoded:>8.0%}", flush=True)
    print("a limit is missed" if missed else f"planning costs less than encoding once; counting adds at most {MOST_SHARE:.0%}")
    return 1 if missed else 0


def _cases(wires: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """Return the runs to compare. Without traces: they have a thread of their own, and a command of their own."""
    off = {"EVENER_TRACES": "off"}
    return {f"{wire} {name}": {"wire": wire, "env": off, "context": name == "with"} for wire in wires for name in HOW}


def work(messages: int, wires: Iterable[str]) -> None:
    """Plan an eviction and encode, on each wire, with a mark before and after each."""
    for wire in wires:
        for one in WORK.values():
            one(wire, Transcript(long_thread(100)))  # what is loaded and cached once is not counted
        talk = Transcript(long_thread(messages))
        mark()
        for one in WORK.values():
            one(wire, talk)
            mark()


if __name__ == "__main__":
    work(int(sys.argv[1]), sys.argv[2:])
