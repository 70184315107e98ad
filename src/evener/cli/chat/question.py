"""One question in the chat on a terminal: answered by a key, by a line, or from a list. Draws nothing."""

import asyncio
from collections.abc import Mapping, Sequence

PAUSE = 0.5
"""Seconds without a key press before a key answers: keys typed ahead or pressed twice must not decide what was not read."""


class UserQuestion:
    """A question to the user. With `choices` (name: how it is shown) one key answers it, else a line does.

    The choices are shown as soon as a key counts. `otherwise` is the choice of a user who gives up.
    """

    def __init__(self, text: str, choices: Mapping[str, str] | None = None, *, otherwise: str = "") -> None:
        self._text = text
        self._choices = choices or {}
        self._loop = asyncio.get_running_loop()
        self._quiet = self._loop.time() + PAUSE
        self.letters = {name[0]: name for name in self._choices}
        self.otherwise = otherwise
        self.answer: asyncio.Future[str] = self._loop.create_future()

    @property
    def is_ready(self) -> bool:
        """True if keys are accepted as an answer now."""
        return not self.letters or self._loop.time() >= self._quiet

    def choose(self, typed: str) -> bool:
        """Handle letters that were typed together: one letter answers, unless it came too early.

        False if they begin a message.
        """
        if not self.letters.keys() >= set(typed.lower()):
            return False
        if len(typed) == 1 and self.is_ready:
            self.give(self.letters[typed.lower()])
        else:
            self.wait()
        return True

    def shown(self, *, writing: bool) -> str:
        """Return the text before the input line. `writing`: the line has text, and only an empty line takes a key as answer."""
        if not self._choices:
            return self._text
        how = "(Ctrl-U, then answer)" if writing else "  ".join(self._choices.values()) if self.is_ready else "..."
        return f"{self._text} {how} "

    def wait(self) -> None:
        """Begin the pause again: a key came too early."""
        self._quiet = self._loop.time() + PAUSE

    def give(self, answer: str, *, empty: bool = False) -> None:
        """Answer it, once."""
        if not self.answer.done() and (answer or empty):
            self.answer.set_result(answer)


ROWS = 8
"""Rows of a list that are shown at once."""


class Picker(UserQuestion):
    """A list to choose from: arrow keys move, typed text filters, Enter selects. The answer is the number of the item."""

    def __init__(self, text: str, items: Sequence[str]) -> None:
        super().__init__(text)
        self._items = tuple(items)
        self._found = list(range(len(items)))
        self._at = 0

    def filter(self, typed: str) -> None:
        """Keep the items that contain all the words."""
        words = typed.lower().split()
        found = [number for number, item in enumerate(self._items) if all(word in item.lower() for word in words)]
        if found != self._found:
            self._found, self._at = found, 0

    def move(self, by: int) -> None:
        """Move to another item; from the last one to the first."""
        self._at = (self._at + by) % len(self._found) if self._found else 0

    def take(self) -> None:
        """Answer with the item that is marked, if there is one."""
        if self._found:
            self.give(str(self._found[self._at]))

    @property
    def rows(self) -> list[str]:
        """The items around the marked one, one row each."""
        begin = max(0, min(self._at - ROWS // 2, len(self._found) - ROWS))
        shown = [
            f"{'>' if place == self._at else ' '} {self._items[number]}"
            for place, number in list(enumerate(self._found))[begin : begin + ROWS]
        ]
        left = len(self._found) - len(shown)
        return [*shown, *([f"  {left} more"] if left else [])] or ["  nothing matches"]
