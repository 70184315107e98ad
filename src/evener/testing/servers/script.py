"""Which answer comes next: entries in their order, rules, or a function of the request. Holds the place; sends nothing."""

from collections.abc import Callable, Sequence

from evener.errors import UsageError
from evener.testing.servers import faults, status
from evener.testing.servers.received import Received
from evener.testing.servers.turn import Call, Native, Part, Refusal, Text, Thinking, Turn

__all__ = ["Entry", "Rule", "Script", "Scripted"]

Entry = Turn | Part | str | faults.Fault | status.Instead
"""A turn; a part or text that is all of one; a fault that strikes a short one; or what is answered instead of one."""

Rule = tuple[Callable[[Received], bool], Entry]
"""A question about a request, and the answer for all of which it is true."""

Script = Sequence[Entry | Rule] | Callable[[Received], Entry | None]

_FILLER = Text("This is an answer of the fake server, made to show a fault.", pieces=6)


class Scripted:
    """A script and how far it has been played."""

    def __init__(self, script: Script) -> None:
        if isinstance(script, str | bytes):
            raise UsageError("A script is a list of entries, rules, or a function. Put the text into a list.")
        self._chooser: Callable[[Received], Entry | None] = script if callable(script) else self._next
        self._entries: list[Entry | Rule] = [] if callable(script) else list(script)
        self._played = 0
        for entry in self._entries:
            _read(entry[-1] if isinstance(entry, tuple) and entry else entry)
        if any(isinstance(entry, tuple) for entry in self._entries):
            self._chooser = self._match
            if not all(isinstance(entry, tuple) for entry in self._entries):
                raise UsageError("A script holds entries or rules, not both. Make a rule of each entry, or of none.")

    @property
    def left(self) -> int:
        """How many entries have not been played; of rules and functions, none ever are."""
        return len(self._entries) - self._played

    def add(self, *entries: Entry) -> None:
        """More entries at the end."""
        for entry in entries:
            _read(entry)
        self._entries += entries

    def choose(self, received: Received) -> Turn | status.Instead | None:
        """The answer to this request; None when the script has none."""
        entry = self._chooser(received)
        return None if entry is None else _read(entry)

    def _next(self, _received: Received) -> Entry | None:
        if self._played >= len(self._entries):
            return None
        entry = self._entries[self._played]
        self._played += 1
        return None if isinstance(entry, tuple) else entry

    def _match(self, received: Received) -> Entry | None:
        rules = (entry for entry in self._entries if isinstance(entry, tuple))
        return next((entry for matches, entry in rules if matches(received)), None)


def _read(entry: object) -> Turn | status.Instead:
    match entry:
        case Turn() | status.Status() | status.Html() | status.Empty() | status.Redirect() | status.Raw():
            return entry
        case str():
            return Turn(parts=(Text(entry),))
        case Text() | Thinking() | Call() | Refusal() | Native():
            return Turn(parts=(entry,))
        case _ if isinstance(entry, faults.Fault):
            return Turn(parts=(_FILLER,), faults=(entry,))
        case _:
            raise UsageError(
                f"{entry!r:.80} is no entry of a script. Write a text, a turn or a part of one, a fault, or a Status."
            )
