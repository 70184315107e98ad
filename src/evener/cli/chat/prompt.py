"""The rows below the conversation: the growing part of the answer, the progress, the input line, the status.

Lays them out for prompt_toolkit, which draws them. Their content comes from `PromptRows`.
"""

import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from select import select
from typing import Protocol

from prompt_toolkit import layout as ui
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_to_text
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AfterInput, Processor, TabsProcessor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.utils import get_cwidth

from evener.cli.chat.draft import Pastes
from evener.cli.chat.screen import Screen

PROMPT = "> "
SEARCH = "search '"
MENU = 9
"""Rows of the input line while the completion menu is open below it."""
FRAME = 1 / 60
ESCAPE_WAIT = 0.05
"""Seconds after which an Escape counts as the key, and not as the start of an escape sequence."""


class PromptRows(Protocol):
    """The content of the rows, read for every redraw."""

    def settle(self) -> None:
        """Print what will not change any more, before a redraw."""
        ...

    def tail(self) -> StyleAndTextTuples:
        """Return the part of the answer that may still change, with its colours."""
        ...

    def beside(self) -> StyleAndTextTuples:
        """Return the progress and the queued messages, one row each."""
        ...

    def prompt(self) -> str:
        """Return the text before the input line."""
        ...

    def status(self) -> str: ...


class ShowPastes(Processor):
    """Shows a paste by its size; the cursor moves over it in one step."""

    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        shown: StyleAndTextTuples = []
        places = [0]
        for style, char, *_ in explode_text_fragments(transformation_input.fragments):
            label = self._pastes.label(char)
            shown.append((style if label == char else f"{style} fg:ansicyan", label))
            places.append(places[-1] + len(label))
        last = len(places) - 1
        return Transformation(
            shown,
            source_to_display=lambda at: places[min(at, last)],
            display_to_source=lambda at: max(0, bisect_right(places, at) - 1),
        )


class LineWindow(ui.Window):
    """The input line. In a low terminal all its rows are shown before any of the others."""

    def preferred_height(self, width: int, max_available_height: int) -> ui.Dimension:
        """Return the rows of the line, all of which it needs as far as there are so many."""
        rows = super().preferred_height(width, max_available_height)
        needed = max(rows.min, min(rows.preferred, max_available_height))
        return ui.Dimension(min=needed, max=max(rows.max, needed), preferred=max(rows.preferred, needed))


class PromptView:
    """The input line, and the application that draws it."""

    def __init__(
        self, rows: PromptRows, screen: Screen, *, history: History, completer: Completer, keys: KeyBindings, vi: bool
    ) -> None:
        self._rows = rows
        self._screen = screen
        self.pastes = Pastes()
        self.buffer = Buffer(history=history, completer=completer)
        self._search = ui.SearchBufferControl(ignore_case=True, input_processors=[AfterInput("': ")])
        self.app: Application[int] = Application(
            ui.Layout(self._container(), self.buffer),
            key_bindings=keys,
            editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
            input=Vt100Input(sys.stdin),
            output=screen.output,
            erase_when_done=True,
            before_render=self._begin,
            after_render=screen.end,
            min_redraw_interval=FRAME,
            terminal_size_polling_interval=None,
            include_default_pygments_style=False,
        )
        self.app.ttimeoutlen = ESCAPE_WAIT
        if not vi:  # in emacs mode Escape starts the Alt keys; in vi mode other keys start sequences, which need time
            self.app.timeoutlen = ESCAPE_WAIT

    def _begin(self, app: Application[int]) -> None:
        self._rows.settle()
        self._screen.begin(app)

    def take_typeahead(self) -> None:
        """Keep the keys that were pressed before the program controlled the terminal, which has turned Enter into a newline."""
        descriptor, typed = self.app.input.fileno(), b""
        while select([descriptor], [], [], 0)[0] and (read := os.read(descriptor, 4096)):
            typed += read
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(typed.replace(b"\n", b"\r").decode(errors="replace"))
        parser.flush()
        store_typeahead(self.app.input, keys)

    def fill(self, text: str) -> None:
        """Set the text of the line, with the cursor at its end."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def _container(self) -> ui.FloatContainer:
        line = LineWindow(
            ui.BufferControl(
                self.buffer,
                input_processors=[ShowPastes(self.pastes), TabsProcessor(char1=" ", char2=" ")],
                search_buffer_control=self._search,
                preview_search=True,
            ),
            height=self._line_height,
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=self._before,
        )
        search = ui.Window(self._search, height=1, width=self._search_width, get_line_prefix=lambda *_: SEARCH)
        rows = ui.HSplit(
            [
                _format_shown(self._rows.tail, wrap=True),
                _format_shown(self._rows.beside),
                _format_shown(lambda: [("fg:ansicyan", self._rows.prompt())] if not self._fits() else [], wrap=True),
                ui.VSplit([ui.ConditionalContainer(search, is_searching), line]),
                ui.Window(ui.FormattedTextControl(lambda: [("dim", self._rows.status())]), height=ui.Dimension(min=0, max=1)),
            ]
        )
        return ui.FloatContainer(rows, [ui.Float(CompletionsMenu(MENU - 1, 1), xcursor=True, ycursor=True)])

    def _line_height(self) -> ui.Dimension:
        return ui.Dimension(min=max(1, min(MENU, self._screen.height - 1)) if self.buffer.complete_state else 1)

    def _search_width(self) -> ui.Dimension:
        return ui.Dimension.exact(len(SEARCH) + get_cwidth(self._search.buffer.text) + 3)

    def _fits(self) -> bool:
        return get_cwidth(self._rows.prompt()) <= self._screen.width * 2 // 3

    def _before(self, line: int, wrapped: int) -> StyleAndTextTuples:
        if is_searching():
            return []
        shown = self._rows.prompt() if self._fits() else PROMPT
        return [("fg:ansicyan", " " * get_cwidth(shown) if line or wrapped else shown)]


def _format_shown(text: Callable[[], StyleAndTextTuples], *, wrap: bool = False) -> ui.ConditionalContainer:
    """Return rows that are hidden while empty; if there are too many, the last ones are shown."""

    def last() -> Point:
        return Point(0, fragment_list_to_text(text()).count("\n"))

    window = ui.Window(
        ui.FormattedTextControl(text, get_cursor_position=last, show_cursor=False),
        height=ui.Dimension(min=0),
        wrap_lines=wrap,
        dont_extend_height=True,
    )
    return ui.ConditionalContainer(window, Condition(lambda: bool(fragment_list_to_text(text()))))
