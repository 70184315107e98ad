"""The line that is being written: characters, pastes and a cursor; keys change it. Pure: it neither reads nor draws.

A long paste is one piece in it, shown by its size and sent whole.
"""

from collections.abc import Callable
from typing import Literal

from evener.cli.chat.draft import Block, Draft, Item
from evener.cli.chat.history import History
from evener.cli.chat.keys import Key, Paste, Press, Typed
from evener.cli.chat.layout import DIM
from evener.cli.chat.lineview import View, view_of
from evener.cli.chat.width import clusters, columns
from evener.cli.terminal import clean

__all__ = ["Action", "Editor"]

Action = Literal["", "send", "interrupt", "end", "escape", "complete", "suspend", "redraw"]
"""What a press asks of whoever owns the line, beyond changing it."""

SHORT_LINES, SHORT = 4, 600
"""Lines and characters up to which a paste is shown as it is."""


class Editor:
    """One line of input, which may have several rows."""

    def __init__(self, history: History | None = None) -> None:
        self._items: list[Item] = []
        self._at = 0
        self._history = history or History()
        self._cut: list[Item] = []
        self._search: tuple[str, int] | None = None
        self._before: list[Item] = []

    # What it holds.

    @property
    def draft(self) -> Draft:
        parts: list[Item] = []
        for item in self._items:
            if isinstance(item, str) and parts and isinstance(parts[-1], str):
                parts[-1] += item
            else:
                parts.append(item)
        return Draft(tuple(parts))

    @property
    def empty(self) -> bool:
        return not self._items

    @property
    def before(self) -> str:
        """The text from the last paste, or the beginning, to the cursor: what can be completed."""
        start = self._at
        while start and isinstance(self._items[start - 1], str):
            start -= 1
        return "".join(str(item) for item in self._items[start : self._at])

    def take(self) -> Draft:
        """What was written; the line is empty then, and remembers it."""
        draft = self.draft
        self._history.add(draft.text)
        self.clear()
        return draft

    def clear(self) -> None:
        self._items, self._at, self._search = [], 0, None

    def fill(self, text: str) -> None:
        """This text, with the cursor at its end."""
        self.clear()
        self.insert(text)

    def insert(self, text: str) -> None:
        """Text at the cursor, without what steers a terminal."""
        joined = clean(text.replace("\r\n", "\n").replace("\r", "\n"))
        if self._at and isinstance(last := self._items[self._at - 1], str) and last != "\n":
            self._at -= 1
            del self._items[self._at]
            joined = last + joined
        found = list(clusters(joined))
        self._items[self._at : self._at] = found
        self._at += len(found)

    def paste(self, text: str) -> None:
        """A paste: as it is when it is short, else as one piece."""
        cleaned = clean(text)
        if cleaned.count("\n") < SHORT_LINES and len(cleaned) <= SHORT:
            self.insert(cleaned)
            return
        self._items.insert(self._at, Block(cleaned))
        self._at += 1

    def drop(self, count: int) -> None:
        """Take away so many characters before the cursor."""
        start = max(0, self._at - len(list(clusters(self.before[len(self.before) - count :])))) if count else self._at
        del self._items[start : self._at]
        self._at = start

    # Keys.

    def press(self, press: Press) -> Action:
        """Change the line; what else is asked."""
        if self._search is not None:
            return self._searching(press)
        match press:
            case Typed(text):
                self.insert(text)
            case Paste(text):
                self.paste(text)
            case Key(name):
                if name in ACTIONS:
                    return ACTIONS[name]
                if name in MOVES:
                    MOVES[name](self)
                elif name in ("enter", "ctrl-d"):
                    return self._enter() if name == "enter" else self._end_or_delete()
        return ""

    def _enter(self) -> Action:
        """Send, unless a backslash says that the line goes on."""
        if self._at and self._items[self._at - 1] == "\\":
            self._items[self._at - 1] = "\n"
            return ""
        return "send"

    def _end_or_delete(self) -> Action:
        if not self._items:
            return "end"
        self._delete()
        return ""

    def _newline(self) -> None:
        self._items.insert(self._at, "\n")
        self._at += 1

    def _backspace(self) -> None:
        if self._at:
            self._at -= 1
            del self._items[self._at]

    def _delete(self) -> None:
        if self._at < len(self._items):
            del self._items[self._at]

    def _left(self) -> None:
        self._at = max(0, self._at - 1)

    def _right(self) -> None:
        self._at = min(len(self._items), self._at + 1)

    def _line_start(self) -> int:
        at = self._at
        while at and self._items[at - 1] != "\n":
            at -= 1
        return at

    def _line_end(self) -> int:
        at = self._at
        while at < len(self._items) and self._items[at] != "\n":
            at += 1
        return at

    def _home(self) -> None:
        self._at = self._line_start()

    def _end(self) -> None:
        self._at = self._line_end()

    def _word_left(self) -> int:
        at = self._at
        while at and not _is_word(self._items[at - 1]):
            at -= 1
        while at and _is_word(self._items[at - 1]):
            at -= 1
        return at

    def _word_right(self) -> int:
        at = self._at
        while at < len(self._items) and not _is_word(self._items[at]):
            at += 1
        while at < len(self._items) and _is_word(self._items[at]):
            at += 1
        return at

    def _to_word_left(self) -> None:
        self._at = self._word_left()

    def _to_word_right(self) -> None:
        self._at = self._word_right()

    def _take_out(self, start: int, end: int) -> None:
        """Cut, so that it can be put back."""
        if start < end:
            self._cut = self._items[start:end]
            del self._items[start:end]
            self._at = start

    def _cut_word_left(self) -> None:
        self._take_out(self._word_left(), self._at)

    def _cut_blank_left(self) -> None:
        at = self._at
        while at and _is_blank(self._items[at - 1]):
            at -= 1
        while at and not _is_blank(self._items[at - 1]):
            at -= 1
        self._take_out(at, self._at)

    def _cut_word_right(self) -> None:
        self._take_out(self._at, self._word_right())

    def _cut_to_start(self) -> None:
        self._take_out(self._line_start(), self._at)

    def _cut_to_end(self) -> None:
        self._take_out(self._at, self._line_end())

    def _put_back(self) -> None:
        self._items[self._at : self._at] = self._cut
        self._at += len(self._cut)

    def _up(self) -> None:
        """A line up; on the first one, back in history."""
        start = self._line_start()
        if start:
            offset = self._at - start
            self._at = start - 1
            self._at = min(self._line_start() + offset, start - 1)
        else:
            self._older()

    def _down(self) -> None:
        end = self._line_end()
        if end < len(self._items):
            offset = self._at - self._line_start()
            self._at = end + 1
            self._at = min(self._at + offset, self._line_end())
        else:
            self._newer()

    def _older(self) -> None:
        found = self._history.older(self.draft.text)
        if found is not None:
            self._show(found)

    def _newer(self) -> None:
        found = self._history.newer()
        if found is not None:
            self._show(found)

    def _show(self, text: str) -> None:
        """An entry of the history: a long one as one piece."""
        self.clear()
        self.paste(text)

    # Searching the history.

    def _begin_search(self) -> None:
        self._search, self._before = ("", 0), self._items

    def _searching(self, press: Press) -> Action:
        words, skip = self._search or ("", 0)
        match press:
            case Typed(text):
                self._search = (words + text, 0)
            case Key("backspace"):
                self._search = (words[:-1], 0)
            case Key("ctrl-r"):
                older = self._history.search(words, skip=skip + 1)
                self._search = (words, skip + 1 if older is not None else skip)
            case Key("escape" | "ctrl-g" | "ctrl-c"):
                self._items, self._at, self._search = self._before, len(self._before), None
                return ""
            case _:
                return self._found(press)
        return ""

    def _found(self, press: Press) -> Action:
        """Take what was found into the line. Enter only takes it; any other key is then pressed on it."""
        words, skip = self._search or ("", 0)
        self._search = None
        found = self._history.search(words, skip=skip) if words else None
        if found is None:
            self._items, self._at = self._before, len(self._before)
        else:
            self._show(found)
        return "" if press == Key("enter") else self.press(press)

    # How it looks.

    def view(self, width: int, *, prompt: str = "> ") -> View:
        """The rows, none wider than `width`."""
        lead = " " * columns(prompt)
        if self._search is not None:
            words, skip = self._search
            found = self._history.search(words, skip=skip) if words else ""
            head = f"search {words!r}: "
            none = " (nothing found)" if found is None else ""
            return view_of(list((found or "") + none), 0, width, prompt=head, lead="  ", style=DIM)
        return view_of(self._items, self._at, width, prompt=prompt, lead=lead)


ACTIONS: dict[str, Action] = {
    "ctrl-c": "interrupt", "escape": "escape", "tab": "complete", "ctrl-z": "suspend", "ctrl-l": "redraw",
}  # fmt: skip
MOVES: dict[str, Callable[[Editor], None]] = {
    "newline": Editor._newline,
    "backspace": Editor._backspace,
    "delete": Editor._delete,
    "left": Editor._left,
    "ctrl-b": Editor._left,
    "right": Editor._right,
    "ctrl-f": Editor._right,
    "home": Editor._home,
    "ctrl-a": Editor._home,
    "end": Editor._end,
    "ctrl-e": Editor._end,
    "up": Editor._up,
    "down": Editor._down,
    "ctrl-p": Editor._older,
    "ctrl-n": Editor._newer,
    "alt-b": Editor._to_word_left,
    "alt-f": Editor._to_word_right,
    "alt-d": Editor._cut_word_right,
    "alt-backspace": Editor._cut_word_left,
    "ctrl-w": Editor._cut_blank_left,
    "ctrl-u": Editor._cut_to_start,
    "ctrl-k": Editor._cut_to_end,
    "ctrl-y": Editor._put_back,
    "ctrl-r": Editor._begin_search,
}


def _is_word(item: Item) -> bool:
    return isinstance(item, Block) or item[0].isalnum() or item[0] == "_"


def _is_blank(item: Item) -> bool:
    return isinstance(item, str) and item.isspace()
