"""Which logs belong to another's calls: an agent inside a call keeps a log of its own, named after the call. Pure.

A call has the same key on every branch. On the branch that started it first, its log has that key for a name; on a fork that
goes on with it, a name made of key and branch. So the starts in a log tell the names of all logs that may lie inside it.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

Started = Callable[[str], Sequence[tuple[str, str]]]
"""The starts of calls in a thread: the log and the key of each, in the order of the logs, parents before their forks."""
ThreadOf = Callable[[str], str]
"""The thread that the log of this name belongs to; empty when there is no such log."""


def child_name(key: str, log: str) -> str:
    """Return what belongs to the call of that key on a log that did not start it first."""
    return sha256(f"{key}\0{log}".encode()).hexdigest()[:32]


def threads_inside(thread: str, started: Started, thread_of: ThreadOf) -> list[str]:
    """Return the threads of agents inside the calls of this one, and inside theirs."""
    found = [thread]
    for one in found:
        names = (name for several in _names(started(one)).values() for name in several)
        found += [inside for inside in dict.fromkeys(map(thread_of, names)) if inside and inside not in found]
    return found[1:]


def logs_inside(log: str, started: Started, thread_of: ThreadOf) -> list[str]:
    """Return the logs that the calls of one branch began, and theirs."""
    found = [log]
    for one in found:
        names = _names(started(thread_of(one))).get(one, ())
        found += [name for name in dict.fromkeys(names) if name not in found and thread_of(name)]
    return found[1:]


def _names(started: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the logs that may lie inside each log."""
    first: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for log, key in started:
        names = found.setdefault(log, [])
        names.append(child_name(key, log))
        if first.setdefault(key, log) == log:
            names.append(key)
    return found
