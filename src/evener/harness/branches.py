"""The tree of a conversation: where a fork begins, which branches exist, and where two of them diverge.

A fork is a new log that names the last event it shares with another. Nothing is copied and nothing is deleted: the branch that
a rollback leaves can be opened, compared and continued like any other.
"""

from collections.abc import Iterable, Sequence
from time import time

import msgspec

from evener import events as ev
from evener.driver import finish_anyway
from evener.encodings.forms import FINAL_RESULT
from evener.errors import UsageError
from evener.loop.state import RunState, apply, fold
from evener.store.protocol import Damaged, Link, Store, Summary
from evener.store.sqlite.leases import new_claim
from evener.transcript.message import Message
from evener.transcript.mint import new_id

At = str | int | None
"""A place in a conversation: after the message of this id, after the event of this number, or (None) at its end."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """One log of a thread. `at` is the number of the last event that it shares with its `parent`; the first log has no parent.

    `events` counts from the root. `head`: this branch is the thread's head. `title` is the thread's title.
    """

    log: str
    parent: str = ""
    at: int = 0
    head: bool = False
    events: int = 0
    began: float = 0.0
    changed: float = 0.0
    title: str = ""


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """Two branches. `common` is the id of the last message that both have, `at` the number of their last common event."""

    common: str
    at: int
    only_a: tuple[Message, ...]
    only_b: tuple[Message, ...]


class Fork(msgspec.Struct, frozen=True):
    """A log that was just created, and its first event, which has the number `seq`."""

    log: str
    first: ev.Opened
    seq: int


# Forks.


def check_at(at: object) -> None:
    """Refuse a value of `at` that is neither a message id, nor an event number, nor None."""
    if at is None or (isinstance(at, str) and at) or (isinstance(at, int) and not isinstance(at, bool) and at > 0):
        return
    shown = repr(at) if isinstance(at, str | int) else type(at).__name__
    raise UsageError(f"`at` is the id of a message (a text), the number of an event (from 1), or None (the end); not {shown}.")


async def root_of(store: Store, log: str) -> str:
    """Return the id of the thread that this log belongs to."""
    first = await store.read(log, until=1)
    return first[0].thread if first and isinstance(first[0], ev.Opened) else log


async def fork_at(store: Store, log: str, at: At, *, harness: str, name: str = "", label: str = "") -> Fork:
    """Create a log that continues from `at`, and release its lease. The log is read as a whole only if `at` is a message id.

    `harness` is the harness that owns its runs; if empty, the owner of the original. `name` is the id of the new log, `label`
    its description.
    """
    check_at(at)
    if not isinstance(label, str) or "\n" in label or len(label) > LONGEST_LABEL:
        raise UsageError(f"The label of a branch is one line of at most {LONGEST_LABEL} characters. Give a shorter one.")
    end = await store.link(log)
    seq = await _seq(store, log, at, end.seq)
    link = end if seq == end.seq else await store.link(log, seq)
    root = (await store.read(log, until=1))[0]
    thread, owner = (root.thread, root.harness) if isinstance(root, ev.Opened) else (log, "")
    return await _make(store, link, thread, harness or owner, name or new_id(), label)


LONGEST_LABEL = 80


async def _make(store: Store, link: Link, thread: str, harness: str, name: str, label: str) -> Fork:
    first = ev.Opened(
        at=time(), thread=thread, harness=harness, parent=link.log, parent_seq=link.seq, parent_hash=link.hash, label=label
    )  # fmt: skip
    held = await store.create(name, first, holder=new_claim())
    await finish_anyway(held.aclose())
    return Fork(name, first, link.seq + 1)


async def _seq(store: Store, log: str, at: At, end: int) -> int:
    if at is None:
        return end
    if isinstance(at, str):
        return seq_of(await store.read(log), at, log)
    if at > end:
        raise UsageError(f"There is no event {at}: log {log} has {end} events. Give a smaller number.")
    return at


def seq_of(events: Sequence[ev.Event], message: str, log: str) -> int:
    """Return the number of the event after which the message with this id is the last of the conversation.

    Results of tools and steering become a message with the request that sends them. If a message occurs twice, its last place
    counts.
    """
    state, found = RunState(), 0
    for number, event in enumerate(events, 1):
        before = state.transcript.head
        state = apply(state, event)
        if state.transcript.head is not before and any(one.id == message for one in _new(before, state)):
            found = number
    if not found:
        raise UsageError(f"Log {log} does not contain message {message!r}. Check whether it is on another branch.")
    return _with_told(events, found)


def _new(before: object, state: RunState) -> Iterable[Message]:
    node = state.transcript.head
    while node is not None and node is not before:
        yield node.message
        node = node.parent


def _with_told(events: Sequence[ev.Event], seq: int) -> int:
    """Return the number of the last event that was written together with the answer `seq`: itself, or results of
    `final_result`.
    """
    event = events[seq - 1]
    if not isinstance(event, ev.Replied):
        return seq
    final = {call.id for call in event.message.calls if call.name == FINAL_RESULT}
    while seq < len(events):
        after = events[seq]
        if not isinstance(after, ev.CallFinished) or after.call not in final:
            break
        seq += 1
    return seq


def before_turns(events: Sequence[ev.Event], turns: int, log: str) -> int:
    """Return the number of the event before the last `turns` prompts of the user. Refused prompts are not counted."""
    spoken = [number for number, event in enumerate(events, 1) if isinstance(event, ev.Prompted) and not event.refused]
    if turns > len(spoken):
        raise UsageError(f"Cannot roll back {turns} user turns: log {log} has {len(spoken)}. Give a smaller number.")
    return spoken[-turns] - 1


# Branches.


async def branches_of(store: Store, thread: str) -> tuple[Branch, ...]:
    """Return every log of a thread: parents before their forks, older logs before younger ones."""
    left = sorted(await store.logs(thread=thread), key=lambda one: (one.began, one.parent_seq))
    placed: dict[str, Branch] = {}
    known = {one.log for one in left}
    while left:
        ready = [one for one in left if one.parent in placed or one.parent not in known]
        if not ready:
            raise Damaged(
                f"Logs of the thread {thread!r} name each other as parents ({', '.join(one.log for one in left)}), so there is "
                "no order in them. Nothing was changed. Run `evener verify`, and restore a backup if there is one."
            )
        placed |= {one.log: _branch(one) for one in ready}
        left = [one for one in left if one.log not in placed]
    return tuple(placed.values())


def _branch(one: Summary) -> Branch:
    return Branch(
        log=one.log, parent=one.parent, at=one.parent_seq, head=one.head, events=one.events, began=one.began,
        changed=one.changed, title=one.title,
    )  # fmt: skip


async def diff_of(store: Store, thread: str, a: str, b: str) -> Diff:
    """Return the last event that two branches of a thread share, and the messages that each has after it."""
    known = {one.log: one for one in await branches_of(store, thread)}
    for log in (a, b):
        if log not in known:
            raise UsageError(f"Log {log!r} is no branch of thread {thread}. Its branches: {', '.join(known)}.")
    at = _find_parting(_path(a, known), _path(b, known))
    ours, theirs = await store.read(a), await store.read(b)
    common = fold(ours[:at]).transcript
    count = len(common)
    return Diff(
        common=common.last.id if common.last else "",
        at=at,
        only_a=fold(ours).transcript.messages[count:],
        only_b=fold(theirs).transcript.messages[count:],
    )


def _path(log: str, known: dict[str, Branch]) -> list[tuple[str, int]]:
    """Return the logs from the root to this one, each with the number of its last event that belongs to the path."""
    found = [(log, known[log].events)]
    while known[found[-1][0]].parent in known:
        here = known[found[-1][0]]
        found.append((here.parent, here.at))
    return found[::-1]


def _find_parting(a: Sequence[tuple[str, int]], b: Sequence[tuple[str, int]]) -> int:
    at = 0
    for (ours, until), (theirs, upto) in zip(a, b, strict=False):
        if ours != theirs:
            break
        at = min(until, upto)
        if until != upto:
            break
    return at
