"""The scratchpad of a conversation: a fold of its log, where each change stands in the result of the call that made it.

Nothing else is kept, so the pad is the same after a crash, in another process, and in a fork. Never shown to the model but as
the result of the tool: in the system prompt it would throw away what a provider has cached.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar

from evener import events as ev
from evener.context.scratchpad import Change, Scratchpad
from evener.tools.context import ToolContext
from evener.tools.notes import pad_of

__all__ = ["NAME", "LogNotebook", "Pad", "current_pad"]

NAME = "scratchpad"


class Pad:
    """The pad after the events that were given so far, from what a conversation begins with."""

    def __init__(self, first: Scratchpad) -> None:
        self._first = first
        self._open: set[str] = set()
        self.now = first

    def add(self, events: Iterable[ev.Event]) -> None:
        """Fold further events. What other tools write into their metadata is their own."""
        for event in events:
            match event:
                case ev.CallStarted(call=call, tool=tool) if tool == NAME:
                    self._open.add(call)
                case ev.CallFinished(call=call) if call in self._open:
                    self._open.remove(call)
                    self.now = pad_of((event.metadata,), self.now)
                case _:
                    pass

    def clear(self) -> None:
        """Nothing was given yet."""
        self._open.clear()
        self.now = self._first


current_pad: ContextVar[Callable[[], Scratchpad]] = ContextVar("evener_pad")
"""Looks up the pad of the run that the present code belongs to."""


class LogNotebook:
    """The notebook of all runs of a harness. A call that is repeated finds the pad as it was: its result is not in the log."""

    def read(self, context: ToolContext[object]) -> Scratchpad:
        """The pad before this call."""
        del context
        return current_pad.get()()

    def write(self, change: Change, context: ToolContext[object]) -> None:
        """Nothing is to be done: the change is in the result, and the result gets into the log."""
        del change, context
