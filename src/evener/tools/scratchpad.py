"""The scratchpad as a tool: the model writes working notes, and each change is recorded in the metadata of the result.

The log contains these changes with the result of the call, so the pad of a conversation is `pad_of` the results in its log.
The tool has no state; a notebook has, and it applies the changes of one call once, however often the call is repeated.
"""

import threading
from collections.abc import Iterable
from typing import Annotated, Literal, Protocol

import msgspec

from evener.context.scratchpad import (
    SECTIONS,
    Appended,
    Bounds,
    Change,
    Cleared,
    Removed,
    Scratchpad,
    Section,
    Set,
    admit,
    apply,
    fold,
    load_changes,
    show,
)
from evener.errors import BadValue
from evener.tools.context import ToolContext
from evener.tools.result import ModelRetry, ToolOutput
from evener.tools.tool import Tool, tool
from evener.transcript.blocks import json_object

FACTS = "scratchpad"
"""The key of the facts in the metadata of a result."""
MOST_KEYS = 100
NEEDS = {"append": "text", "set": "texts", "remove": "number"}

Action = Literal["show", "append", "set", "remove", "clear"]


class Notebook(Protocol):
    """Stores the pads. Called from threads."""

    def read(self, context: ToolContext[object]) -> Scratchpad:
        """Return the pad as it was before this call, also when the call is repeated with the same `context.key`."""
        ...

    def write(self, change: Change, context: ToolContext[object]) -> None:
        """Apply the change that a call made; the same `context.key` a second time changes nothing."""
        ...


class MemoryNotebook:
    """One pad in memory, for tests and for runs that are not stored. Remembers the last calls by their keys."""

    def __init__(self, pad: Scratchpad | None = None) -> None:
        self._pad = pad or Scratchpad()
        self._before: dict[str, Scratchpad] = {}
        self._lock = threading.Lock()

    @property
    def pad(self) -> Scratchpad:
        """The pad as it is."""
        return self._pad

    def read(self, context: ToolContext[object]) -> Scratchpad:
        """Return the pad before this call."""
        with self._lock:
            return self._before.get(context.key, self._pad)

    def write(self, change: Change, context: ToolContext[object]) -> None:
        """Apply a change, once for each key."""
        with self._lock:
            if context.key in self._before:
                return
            if context.key:
                self._before[context.key] = self._pad
            while len(self._before) > MOST_KEYS:
                del self._before[next(iter(self._before))]
            self._pad = apply(self._pad, change)


def changes_in(metadata: str) -> tuple[Change, ...]:
    """Return the changes in the metadata of a result; none if it is not from the scratchpad tool."""
    found = json_object(metadata, "The metadata of a result").get(FACTS) if f'"{FACTS}"' in metadata else None
    return () if found is None else load_changes(msgspec.json.encode(found))


def pad_of(metadata: Iterable[str], pad: Scratchpad | None = None) -> Scratchpad:
    """Return the pad after these results, in their order."""
    return fold((change for text in metadata for change in changes_in(text)), pad)


def scratchpad_tool(notebook: Notebook, *, name: str = "scratchpad", bounds: Bounds | None = None) -> Tool:
    """Return the tool. Batches with it run one call at a time, so that each call sees what the one before it wrote."""

    def scratchpad(
        action: Annotated[Action, "what to do: append a note, set all notes of a section, remove one, clear, or just show"],
        context: ToolContext[object],
        section: Annotated[Section | None, "which section; needed but for show"] = None,
        text: Annotated[str, "the note to append"] = "",
        texts: Annotated[list[str] | None, "for set: all notes of the section"] = None,
        number: Annotated[int, msgspec.Meta(ge=0, description="for remove: the number of the note")] = 0,
    ) -> ToolOutput:
        """Keep working notes: your plan, your reasoning, what to remember, what tools found. They stay in view."""
        pad = notebook.read(context)
        _check_view(pad, section)
        if action == "show":
            return ToolOutput(_page(pad, section, "The scratchpad."))
        if section is None:
            raise ModelRetry(f"Say which section to {action}: {', '.join(SECTIONS)}.")
        _check_given(action, {"text": bool(text), "texts": texts is not None, "number": number > 0})
        try:
            change = _change(action, section, text=text, texts=texts or [], number=number)
            after = admit(pad, change, bounds=bounds)
        except BadValue as error:
            raise ModelRetry(str(error)) from None
        notebook.write(change, context)
        done = {
            "append": f"Noted as {after.next - 1}.",
            "set": f"{len(texts or [])} notes set.",
            "remove": f"Note {number} removed.",
            "clear": "Cleared.",
        }
        return ToolOutput(_page(after, section, done[action]), {FACTS: [change]})

    return tool(scratchpad, name=name, effect="idempotent", sequential=True)


def _change(action: Action, section: Section, *, text: str, texts: list[str], number: int) -> Change:
    match action:
        case "append":
            return Appended(section, text)
        case "set":
            return Set(section, tuple(texts))
        case "remove":
            return Removed(section, number)
        case "clear" | "show":
            return Cleared(section)


def _check_view(pad: Scratchpad, section: Section | None) -> None:
    if section is not None and pad.section(section).visibility == "hidden":
        open_ones = [one for one in SECTIONS if pad.section(one).visibility != "hidden"]
        raise ModelRetry(f"The section {section!r} is not yours. Use {' or '.join(open_ones) or 'no section at all'}.")


def _check_given(action: Action, given: dict[str, bool]) -> None:
    """Refuse a missing argument, and one that the action would ignore: the model meant something by it."""
    needed = NEEDS.get(action)
    if needed is not None and not given[needed]:
        raise ModelRetry(f"To {action}, give {needed!r}.")
    extra = [name for name, is_given in given.items() if is_given and name != needed]
    if extra:
        takes = f"only {needed!r}" if needed else "none of these"
        raise ModelRetry(
            f"To {action}, {takes} is used, not {', '.join(map(repr, extra))}. Leave that out, or choose another action."
        )


def _page(pad: Scratchpad, section: Section | None, opening: str) -> str:
    text = show(pad, sections=SECTIONS if section is None else (section,)).partition("\n\n")[2]
    where = "It" if section is None else f"The section {section!r}"
    return f"{opening}\n\n{text}" if text else f"{opening} {where} is empty."
