"""Key bindings and completion of the chat, in addition to the emacs and vi keys of prompt_toolkit."""

import os
import re
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, emacs_mode, is_searching, vi_navigation_mode
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import SearchDirection, accept_search, start_search, stop_search
from wcwidth import iter_graphemes, iter_graphemes_reverse

COMMAND = re.compile(r"\s*(/[a-z]*(?::[\w-]*)?)$")
MODEL = re.compile(r"\s*/model\s+(\S*)$")
FILE = re.compile(r'(?:^|\s)(@(?:"([^"]*)|([^\s"]*)))$')
MOST = 200


class Offers(Completer):
    """Completes commands, models and files. `models` is called only after `/model`."""

    def __init__(self, *, commands: Sequence[str], models: Callable[[], Sequence[str]], folder: Path) -> None:
        self._commands = commands
        self._models = models
        self._folder = folder

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """Yield the completions of the word before the cursor."""
        typed, choices = self._choices(document.text_before_cursor)
        for choice in choices:
            yield Completion(choice, -len(typed), display=choice.strip())

    def _choices(self, before: str) -> tuple[str, list[str]]:
        if hit := COMMAND.match(before):
            return hit[1], [f"{name} " for name in self._commands if name.startswith(hit[1])]
        if hit := MODEL.match(before):
            return hit[1], [name for name in self._models() if name.startswith(hit[1])]
        if hit := FILE.search(before):
            return hit[1], [_format_path(name) for name in _find_files(hit[2] if hit[2] is not None else hit[3], self._folder)]
        return "", []


def _find_files(typed: str, folder: Path) -> list[str]:
    """Return the paths that start like this; folders end in a slash. Hidden ones only if a dot is typed."""
    head, _, start = typed.rpartition("/")
    where = Path(os.path.expanduser(head or "/")) if "/" in typed else folder
    try:
        with os.scandir(folder / where) as found:
            names = [entry.name + ("/" if entry.is_dir() else "") for entry in found if entry.name.startswith(start)]
    except OSError:
        return []
    shown = sorted(name for name in names if start or not name.startswith("."))[:MOST]
    return [f"{head}/{name}" if "/" in typed else name for name in shown]


def _format_path(path: str) -> str:
    """Return the path as in a message: quoted if it has spaces; a space follows a complete file."""
    quoted = f'@"{path}' if re.search(r"\s", path) else f"@{path}"
    if path.endswith("/"):
        return quoted
    return quoted + ('" ' if quoted[1] == '"' else " ")


# What terminals send for Enter with Alt, Shift or Ctrl.
NEWLINES = ("\x1b\r", "\x1b\n", "\x1b[13;2u", "\x1b[13;3u", "\x1b[13;5u", "\x1b[27;2;13~", "\x1b[27;5;13~")
ANSI_SEQUENCES.update(dict.fromkeys(NEWLINES, Keys.ControlJ))

LEAVING_SEARCH = ("left", "right", "home", "end", "up", "down", "tab", "delete", "c-a", "c-e", "c-j")
"""Keys that accept what the search found, and then act on it."""


class KeyTarget(Protocol):
    """The chat that the keys are pressed in."""

    @property
    def asking(self) -> bool:
        """True if the line is empty and a key answers a question."""
        ...

    def send(self) -> None: ...
    def stop(self) -> None: ...
    def clear(self) -> None: ...
    def leave(self) -> None: ...
    def suspend(self) -> None: ...
    def redraw(self) -> None: ...
    def paste(self, text: str) -> None: ...
    def fold(self) -> None: ...
    def expand(self) -> None: ...
    def move(self, by: int) -> bool: ...
    def answer(self, letters: str) -> bool: ...


def bind_keys(front: KeyTarget) -> KeyBindings:
    """Return the key bindings of the chat."""
    keys = KeyBindings()
    _bind_letters(keys, front)
    _bind_writing(keys, front)
    _bind_moving(keys)
    _bind_history(keys, front)
    acts = {"c-c": front.clear, "<sigint>": front.clear, "c-z": front.suspend, "c-l": front.redraw, "c-o": front.expand}
    for name, act in acts.items():
        keys.add(name, filter=~is_searching)(lambda _event, act=act: act())
    return keys


def _bind_letters(keys: KeyBindings, front: KeyTarget) -> None:
    """Let a letter answer a question. Letters that were typed together with it are counted: several are no answer."""

    def pick(event: KeyPressEvent) -> None:
        ahead = (press.data for press in event.key_processor.input_queue)
        if not front.answer(event.data + "".join(data for data in ahead if len(data) == 1 and data.isprintable())):
            event.current_buffer.insert_text(event.data)

    for letter in string.ascii_letters:
        keys.add(letter, filter=Condition(lambda: front.asking), eager=True)(pick)

    @keys.add("escape", filter=(emacs_mode | vi_navigation_mode) & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.complete_state:
            event.current_buffer.cancel_completion()
        else:
            front.stop()

    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            front.leave()


def _bind_moving(keys: KeyBindings) -> None:
    """Move by grapheme: what is drawn as one character counts as one."""

    def before(buffer: Buffer) -> int:
        return len(next(iter_graphemes_reverse(buffer.document.text_before_cursor), ""))

    def after(buffer: Buffer) -> int:
        return len(next(iter_graphemes(buffer.document.text_after_cursor), ""))

    writing = ~vi_navigation_mode & ~is_searching

    @keys.add("left", filter=writing)
    @keys.add("c-b", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position -= before(event.current_buffer)

    @keys.add("right", filter=writing)
    @keys.add("c-f", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position += after(event.current_buffer)

    @keys.add("backspace", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor(before(event.current_buffer))

    @keys.add("delete", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.delete(after(event.current_buffer))


def _bind_writing(keys: KeyBindings, front: KeyTarget) -> None:
    @keys.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            front.send()

    @keys.add("c-j", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        front.paste(event.data)


def _bind_history(keys: KeyBindings, front: KeyTarget) -> None:
    @keys.add("up", filter=~is_searching)
    @keys.add("c-p", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if not front.move(-1):
            event.current_buffer.auto_up()
            front.fold()

    @keys.add("down", filter=~is_searching)
    @keys.add("c-n", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if not front.move(1):
            event.current_buffer.auto_down()
            front.fold()

    left: list[int] = []

    @keys.add("c-r", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        left[:] = [event.current_buffer.working_index]
        start_search(direction=SearchDirection.BACKWARD)

    @keys.add("escape", filter=is_searching, eager=True)
    @keys.add("c-c", filter=is_searching)
    @keys.add("c-g", filter=is_searching)
    def _(event: KeyPressEvent) -> None:
        stop_search()
        buffer = event.app.current_buffer
        buffer.working_index = left[0]
        buffer.cursor_position = len(buffer.text)

    def accept(event: KeyPressEvent) -> None:
        accept_search()
        front.fold()
        event.app.current_buffer.cursor_position = len(event.app.current_buffer.text)

    def go_on(event: KeyPressEvent) -> None:
        accept(event)
        event.key_processor.feed(event.key_sequence[0], first=True)

    keys.add("enter", filter=is_searching)(accept)
    for name in LEAVING_SEARCH:
        keys.add(name, filter=is_searching)(go_on)
