"""`evener show`: one thread as a readable transcript, or as JSON. Only looks; nothing is paged."""

from collections.abc import Sequence

import msgspec

from evener import events as ev
from evener.cli.condition import WORDS, condition_of
from evener.cli.ids import chosen
from evener.cli.lines import Used, log_lines, money, used_by
from evener.cli.places import number_of
from evener.cli.stores import inside
from evener.cli.terminal import clean, print_json
from evener.loop.state import fold
from evener.store.log import Store, Summary

__all__ = ["Wish", "branch_of", "run"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    id: str
    store: str = ""
    at: str = ""
    branch: str = ""
    json: bool = False


def run(wish: Wish) -> int:
    """Print the thread."""
    return inside(wish.store, lambda store: _shown(store, wish))


async def _shown(store: Store, wish: Wish) -> int:
    log = await branch_of(store, wish.id, wish.branch)
    events = await store.read(log.log)
    if wish.at:
        events = events[: number_of(wish.at, events, log.log)]
    if wish.json:
        print_json(_document(log, events))
        return 0
    for line in _head(log, events):
        print(line)
    print()
    for line in log_lines(events):
        print(line)
    for line in _foot(used_by(events)):
        print(line)
    return 0


async def branch_of(store: Store, id: str, branch: str = "") -> Summary:
    """The log that is meant: the head of a thread, a branch by its own id, or the branch that is named beside the thread."""
    logs = await store.logs()
    log = chosen(id, logs)
    if branch:
        thread = next(one.thread for one in logs if one.log == log)
        log = chosen(branch, [one for one in logs if one.thread == thread])
    else:
        log = await store.head(log)
    return next(one for one in logs if one.log == log)


def _head(log: Summary, events: Sequence[ev.Event]) -> list[str]:
    state = fold(events)
    branch = f" (branch {log.log}, after event {log.parent_seq} of {log.parent})" if log.parent else ""
    lines = [
        ("thread", f"{log.thread}{branch}"),
        ("title", log.title),
        ("tags", " ".join(log.tags)),
        ("harness", log.harness),
        ("state", WORDS[condition_of(state, held=log.held)]),
        ("events", str(len(events)) if len(events) == log.events else f"{len(events)} of {log.events}"),
    ]
    return [f"{name.ljust(8)} {' '.join(clean(text).split())}" for name, text in lines if text]


def _foot(used: Used) -> list[str]:
    spent, usage = used.spent, used.spent.usage
    lines = [
        f"requests {spent.requests:,}, tool calls {spent.tool_calls:,}",
        f"tokens   {usage.input_total:,} in ({usage.cache_read:,} cached), {usage.output_total:,} out",
        f"cost     {money(spent.cost, exact=spent.exact)}",
    ]
    return [*lines, *(f"loss     {' '.join(clean(str(loss)).split())}" for loss in used.losses)]


def _document(log: Summary, events: Sequence[ev.Event]) -> dict[str, object]:
    used = used_by(events)
    spent = used.spent
    state = fold(events)
    return {
        **msgspec.to_builtins(log),
        "state": condition_of(state, held=log.held),
        "model": state.model,
        "used": {
            "requests": spent.requests,
            "tool_calls": spent.tool_calls,
            "usage": msgspec.structs.asdict(spent.usage),
            "cost": {"amount": str(spent.cost), "exact": spent.exact},
            "seconds": spent.seconds,
        },
        "losses": [msgspec.structs.asdict(loss) for loss in used.losses],
        "log_events": [{"number": number, **msgspec.to_builtins(event)} for number, event in enumerate(events, 1)],
    }
