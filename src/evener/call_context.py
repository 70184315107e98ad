"""The call and run in which the present code executes. Set around each tool, and visible to everything that it runs.

A run that starts inside a tool belongs to the run of that tool: its events say so, it uses the same budget, and its usage is
counted there.
"""

from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256
from threading import Lock
from typing import Protocol

import msgspec

from evener.budget import Budget
from evener.events import InnerQuestion, Nested, Question
from evener.hooks import HookAnswer, HookEvent
from evener.loop.state import Pending, RunState, Spent
from evener.model.seam import Askable
from evener.policy.rules import Policy
from evener.result import Approval
from evener.store.protocol import Store
from evener.store.subagent_logs import child_name
from evener.streaming import StreamEvent
from evener.tools.result import Envelope, Waits
from evener.transcript.blocks import ToolCall

__all__ = [
    "ALONE",
    "DEEPEST",
    "Home",
    "InnerLog",
    "InnerUsage",
    "Site",
    "children_of",
    "current_policy",
    "current_site",
    "find_inner_log",
    "key_of",
    "waiting",
]


def waiting(thread: str, approvals: tuple[Approval, ...]) -> Envelope:
    """Return the result of a tool whose inner run waits for these approvals."""
    inner = tuple(
        InnerQuestion(
            one.thread, one.id, one.interrupt, Question(one.key, one.digest, one.why, one.rule),
            one.call.name if one.call else "", one.call.raw if one.call else "", one.expires,
        )
        for one in approvals
    )  # fmt: skip
    return Envelope(False, waits=Waits(thread, inner))


DEEPEST = 4
"""How deep runs may be nested."""

NOTHING = Nested()
Total = Callable[[], Nested]


class Hooked(Protocol):
    """Calls the hooks for this event; returns their answers."""

    def __call__(self, event: HookEvent, **about: object) -> tuple[HookAnswer, ...]: ...


class InnerUsage:
    """The usage of the runs inside a call, including those in progress, and whether they have changed anything.

    `outer` is that of the call around the run that this call belongs to.
    """

    __slots__ = ("_acted", "_done", "_lock", "_outer", "_running")

    def __init__(self, outer: "InnerUsage | None" = None) -> None:
        self._outer = outer
        self._lock = Lock()
        self._done = NOTHING
        self._running: list[Total] = []
        self._acted = False

    def add(self, spent: Spent) -> None:
        """Add the usage of an inner run that stopped in another process."""
        with self._lock:
            self._done = _sum(self._done, _count_nested(spent))

    def begin(self, total: Total) -> None:
        """Count a run that begins here. `total` returns its usage so far."""
        with self._lock:
            self._running.append(total)

    def end(self, total: Total) -> None:
        """Replace a running run by its final usage."""
        with self._lock:
            self._running.remove(total)
            self._done = _sum(self._done, total())

    def act(self) -> None:
        """Note, here and for all outer calls, that a run has started a call that changes something."""
        self._acted = True
        if self._outer is not None:
            self._outer.act()

    def is_used(self) -> bool:
        """True if the call had any inner runs."""
        return self._done is not NOTHING or bool(self._running)

    @property
    def total(self) -> Nested:
        """The usage of all inner runs so far."""
        with self._lock:
            found = self._done
            for total in self._running:
                found = _sum(found, total())
        return msgspec.structs.replace(found, acted=self._acted)


def _count_nested(spent: Spent) -> Nested:
    return Nested(spent.requests, spent.tool_calls, spent.usage, spent.cost, spent.exact)


def _sum(one: Nested, other: Nested) -> Nested:
    return Nested(
        one.requests + other.requests,
        one.tool_calls + other.tool_calls,
        one.usage + other.usage,
        one.cost + other.cost,
        one.exact and other.exact,
    )


class Home(msgspec.Struct, frozen=True):
    """The place of a run: its depth, its owner, the store of all logs of its tree, and the budget that it is counted in.

    `path` are the names of the harness at the root and of the agents below it, as in `shop/buyer/payer`. `force`: logs of
    the tree are taken from lease holders that may be alive.
    """

    depth: int = 0
    path: str = ""
    store: Store | None = None
    tally: InnerUsage | None = None
    force: bool = False


ALONE = Home()


class Site(msgspec.Struct, frozen=True):
    """One call of a run. `show` receives the run's events; None if no caller watches.

    `path`, `store` and `force` are those of the run's home. `hooked` calls the run's hooks for events inside the call; None
    without a run. `inner` says which run belongs to the call; only code that starts one calls it. `policy` applies to the run
    of the call, and so to every run inside it. `models` are those of the run, the preferred one first.
    """

    run: str
    thread: str
    call: str
    depth: int
    budget: Budget
    tally: InnerUsage
    show: Callable[[StreamEvent], None] | None = None
    path: str = ""
    store: Store | None = None
    hooked: Hooked | None = None
    inner: Callable[[], "InnerLog"] | None = None
    policy: Policy | None = None
    force: bool = False
    models: tuple[Askable, ...] = ()


class InnerLog(msgspec.Struct, frozen=True):
    """The run inside a call. `child` names its log on this branch, the same for each start. `source` names its log on the
    branch that started the call before this one was forked; empty if there is none. `begun`: it is known to have begun, so
    its log exists.
    """

    child: str
    source: str = ""
    begun: bool = False


current_site: ContextVar[Site | None] = ContextVar("evener_site", default=None)
current_policy: ContextVar[Policy | None] = ContextVar("evener_policy", default=None)
"""What binds the runs inside a call that belongs to no run: that of the harness whose tool another program called."""


# Names.


def key_of(state: RunState, call: ToolCall, log: str) -> str:
    """Return the call's idempotency key.

    It is the same for every start, in any process, and in forks made after the first start.
    """
    return _find_pending(state, call).key or _mint_key(state, call, log)


def children_of(state: RunState, call: ToolCall, log: str) -> tuple[str, str]:
    """Return the ids of the inner log of this call: on this log, and on the branch that started the call (empty if there is
    none).
    """
    key, source = key_of(state, call, log), _find_pending(state, call).source

    def own(log: str) -> str:
        return key if key == _mint_key(state, call, log) else child_name(key, log)

    return own(log), own(source) if source else ""


def find_inner_log(state: RunState, call: ToolCall, log: str) -> InnerLog:
    """Return the ids of the inner run of this call, and whether it is known to have begun."""
    return InnerLog(*children_of(state, call, log), _find_pending(state, call).nested is not None)


def _mint_key(state: RunState, call: ToolCall, log: str) -> str:
    """Return a new key.

    It includes the log, because a call that had not started before a fork is a different call on each branch.
    """
    made = state.transcript.last
    return sha256(f"{log}\0{made.id if made else ''}\0{call.id}".encode()).hexdigest()[:32]


def _find_pending(state: RunState, call: ToolCall) -> Pending:
    for one in state.calls:
        if one.call.id == call.id:
            return one
    return Pending(call)
