"""The scratchpad of a conversation: computed from its log, where the result of each scratchpad call contains its change.

There is no other copy, so the pad is the same after a crash, in another process, and in a fork. The model sees it only as the
result of the tool: in the system prompt, each change would invalidate the provider's prompt cache.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock

from evener import events as ev
from evener.context.scratchpad import Change, Scratchpad
from evener.errors import BadDocument
from evener.tools.context import ToolContext
from evener.tools.scratchpad import pad_of

NAME = "scratchpad"


class Pad:
    """The pad of one log. `first` has the initial notes."""

    def __init__(self, first: Scratchpad) -> None:
        self._first = first
        self._lock = Lock()  # tools ask from their threads
        self._now = first
        self._open: set[str] = set()
        self._seen = 0  # how many events of the run under way are folded

    def copy(self) -> "Pad":
        """Return a pad with the same notes, for a fork."""
        with self._lock:
            made = Pad(self._first)
            made._now, made._open, made._seen = self._now, set(self._open), 0
            return made

    def opened(self, events: Sequence[ev.Event]) -> None:
        """Add the events that were written since the last run."""
        with self._lock:
            self._fold(events)
            self._seen = 0

    def after(self, events: Sequence[ev.Event]) -> Scratchpad:
        """Return the pad after `events`, which are all events of the present run so far."""
        with self._lock:
            new = events[self._seen :]
            self._seen += len(new)
            self._fold(new)
            return self._now

    def forget(self) -> None:
        """Discard the notes, because the log will be read again."""
        with self._lock:
            self._now, self._seen = self._first, 0
            self._open.clear()

    def _fold(self, events: Iterable[ev.Event]) -> None:
        """Apply the changes in the results of the scratchpad tool. Metadata of other tools is ignored."""
        for event in events:
            match event:
                case ev.CallStarted(call=call, tool=tool):
                    (self._open.add if tool == NAME else self._open.discard)(call)
                case ev.CallFinished(call=call) if call in self._open:
                    self._open.remove(call)
                    with suppress(BadDocument):  # a tool of the user's that once had this name
                        self._now = pad_of((event.metadata,), self._now)


current_pad: ContextVar[Callable[[], Scratchpad]] = ContextVar("evener_pad")
"""Looks up the pad of the run that the present code belongs to."""


class LogNotebook:
    """The notebook of all runs of a harness. A repeated call finds the pad unchanged: its result is not in the log yet."""

    def read(self, context: ToolContext[object]) -> Scratchpad:
        """Return the pad before this call."""
        del context
        return current_pad.get()()

    def write(self, change: Change, context: ToolContext[object]) -> None:
        """Do nothing: the change is in the result of the call, and so in the log."""
        del change, context
