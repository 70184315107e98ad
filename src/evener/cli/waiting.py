"""What waits to be decided, in words for whoever decides, and what of it was decided before. Decides nothing itself.

Who decides by what is shown must see all of it: what cannot be seen is written out, and what a model wrote cannot pass for a
line of ours.
"""

from collections.abc import Mapping
from getpass import getuser

import msgspec

from evener.cli.terminal import escaped
from evener.result import Approval, RunResult
from evener.store.log import Store, state_of
from evener.store.memory import MemoryStore
from evener.store.sqlite import SqliteStore
from evener.transcript.blocks import ToolCall

__all__ = ["answer_of", "answers_of", "described", "is_decided", "quoted", "who"]


def described(one: Approval, answer: str = "") -> list[str]:
    """What is asked about, in lines. `answer` is the one that wants to be accepted, unless it was shown before."""
    why = f" ({_flat(one.why)})" if one.why else ""
    match one.interrupt, one.call:
        case "outcome", ToolCall() as call:
            return [f"{_flat(call.name)} was interrupted, and nobody knows whether it took effect:", *quoted(call.raw)]
        case _, ToolCall() as call:
            return [f"{_flat(call.name)} wants to run{why}:", *quoted(call.raw)]
        case "output", _:
            asked = f"The answer wants to be accepted{why}"
            return [f"{asked}:", *quoted(answer)] if answer else [f"{asked}."]
        case _:
            return [f"The run wants to go on{why}."]


def quoted(text: str) -> list[str]:
    """Somebody else's text in lines of its own, marked; JSON with its parts apart."""
    return [f"  | {line}" for line in _pretty(text).split("\n")]


def _pretty(raw: str) -> str:
    try:
        return escaped(msgspec.json.format(raw, indent=2))
    except (msgspec.DecodeError, RecursionError):
        return escaped(raw)


def _flat(text: str) -> str:
    return " ".join(escaped(text).split())


async def answer_of(store: Store, one: Approval) -> str:
    """The answer that wants to be accepted; empty where something else is asked."""
    if one.interrupt != "output":
        return ""
    reply = (await state_of(store, one.thread)).reply
    return (reply.output or reply.message.text) if reply else ""


async def answers_of(store: Store, result: RunResult, *, spoken: bool) -> Mapping[str, str]:
    """The answers that want to be accepted, by thread. `spoken`: the words of the run itself were shown before."""
    found = {one.thread: await answer_of(store, one) for one in result.approvals}
    if spoken and found.get(result.thread, "").strip() == result.text.strip():
        found.pop(result.thread, None)
    return found


async def is_decided(store: Store, one: Approval) -> bool:
    """Whether somebody has decided this, and the run only has to go on to know of it."""
    return isinstance(store, SqliteStore | MemoryStore) and await store.has_note(one.thread, f"decide:{one.id}")


def who() -> str:
    """Who is logged in, for the record."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        return ""
