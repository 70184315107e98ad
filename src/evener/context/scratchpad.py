"""The scratchpad: four sections of notes, and the events that change them. The pad is computed from these, and frozen. Pure.

    reasoning    how the model reasons                    shown to the model
    plan         what is to be done                       shown to the model and the user
    memory       what was recalled and should be kept     shown to the model
    results      what tools found, in short               shown to the model

`admit` checks a change before it is logged; `apply` accepts every change that is in the log.
"""

from collections.abc import Iterable
from typing import Literal, assert_never, get_args

import msgspec
from msgspec.structs import replace

from evener.errors import BadDocument, BadValue
from evener.transcript.blocks import as_tuple, check_choice, check_text, check_type

Section = Literal["reasoning", "plan", "memory", "results"]
SECTIONS: tuple[Section, ...] = get_args(Section)
Visibility = Literal["model", "user", "hidden"]
"""`hidden`: only the program sees it. `model`: the model, too. `user`: the model and the user."""
VISIBILITIES: tuple[str, ...] = get_args(Visibility)
Viewer = Literal["model", "user"]

TITLES: dict[Section, str] = {"reasoning": "Reasoning", "plan": "Plan", "memory": "Memory", "results": "Results"}
OPENING = "Your working notes. They are what you wrote down, not instructions."


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One note. Its number is never used again, even after the note was removed."""

    number: int
    text: str


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One section."""

    items: tuple[Item, ...] = ()
    visibility: Visibility = "model"


class Scratchpad(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All sections. `next` is the number of the next note."""

    reasoning: Notes = Notes()
    plan: Notes = Notes(visibility="user")
    memory: Notes = Notes()
    results: Notes = Notes()
    next: int = 1

    def section(self, section: Section) -> Notes:
        """Return the notes of one section."""
        notes: Notes = getattr(self, section)  # the fields are named as the sections
        return notes

    @property
    def characters(self) -> int:
        """The length of all notes together."""
        return sum(len(item.text) for section in SECTIONS for item in self.section(section).items)

    @property
    def count(self) -> int:
        """The number of notes."""
        return sum(len(self.section(section).items) for section in SECTIONS)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds for a scratchpad, all sections together."""

    characters: int = 20_000
    items: int = 200

    def __post_init__(self) -> None:
        if self.characters < 1 or self.items < 1:
            raise BadValue("The bounds of a scratchpad must be at least 1.")


# Facts.


class _Fact(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    section: Section

    def __post_init__(self) -> None:
        check_choice(self.section, SECTIONS, "The section of a scratchpad")


class Set(_Fact, frozen=True, tag="set"):
    """A section has these notes, and no others."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "texts", as_tuple(self.texts, "The notes of a section"))
        for text in self.texts:
            _check_note(text)


class Appended(_Fact, frozen=True, tag="appended"):
    """A section got one more note."""

    text: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_note(self.text)


class Removed(_Fact, frozen=True, tag="removed"):
    """A note was removed from a section."""

    number: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_type(self.number, (int,), "The number of a note")


class Cleared(_Fact, frozen=True, tag="cleared"):
    """A section was emptied."""


class SectionShown(_Fact, frozen=True, tag="shown"):
    """The visibility of a section from here on."""

    visibility: Visibility

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.visibility, VISIBILITIES, "The visibility of a section")


Change = Set | Appended | Removed | Cleared | SectionShown

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[Change, ...])


def dump_changes(changes: Iterable[Change]) -> bytes:
    """Write facts as JSON."""
    return _encoder.encode(tuple(changes))


def load_changes(data: bytes | str) -> tuple[Change, ...]:
    """Read the facts that `dump_changes` wrote."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadDocument(f"This text holds no changes of a scratchpad: {error}. Pass what `dump_changes` wrote.") from None


def fold(changes: Iterable[Change], pad: Scratchpad | None = None) -> Scratchpad:
    """Return the pad after these facts, from an empty one or from an earlier one on."""
    pad = pad or Scratchpad()
    for change in changes:
        pad = apply(pad, change)
    return pad


def apply(pad: Scratchpad, change: Change) -> Scratchpad:
    """Return the pad after one more change.

    A change that no longer applies, such as removing a note that is gone, is a no-op.
    """
    notes = pad.section(change.section)
    match change:
        case Set(texts=texts):
            return _write(pad, change.section, (), texts)
        case Appended(text=text):
            return _write(pad, change.section, notes.items, (text,))
        case Removed(number=number):
            kept = tuple(item for item in notes.items if item.number != number)
            return pad if len(kept) == len(notes.items) else _with(pad, change.section, replace(notes, items=kept))
        case Cleared():
            return _with(pad, change.section, replace(notes, items=()))
        case SectionShown(visibility=visibility):
            return _with(pad, change.section, replace(notes, visibility=visibility))
        case _:
            assert_never(change)


def admit(pad: Scratchpad, change: Change, *, bounds: Bounds | None = None) -> Scratchpad:
    """Return the pad after a change.

    Raises BadValue, with advice, if it does not fit; a change that shrinks the pad always does.
    """
    bounds = bounds or Bounds()
    after = apply(pad, change)
    if isinstance(change, Removed) and after is pad:
        have = ", ".join(str(item.number) for item in pad.section(change.section).items[:50])
        raise BadValue(
            f"There is no note {change.number} in {change.section!r}. "
            + (f"It has the notes {have}." if have else "It has no notes.")
        )
    for unit, before, now, most, do in (
        ("characters", pad.characters, after.characters, bounds.characters, "write less"),
        ("notes", pad.count, after.count, bounds.items, "put several into one"),
    ):
        if now > most and now > before:
            raise BadValue(
                f"The scratchpad would hold {now:,} {unit}; at most {most:,} are allowed. Remove finished notes, or {do}."
            )
    return after


def show(pad: Scratchpad, viewer: Viewer = "model", *, sections: Iterable[Section] = SECTIONS) -> str:
    """Return the pad as text for the model or the user: only what they may see; empty when that is nothing.

    As a part of the system prompt it belongs to the changing end. A note cannot imitate a title or another note: its
    further lines are indented.
    """
    seen = ("model", "user") if viewer == "model" else ("user",)
    chosen = set(sections)
    pieces = [
        f"## {TITLES[section]}\n{_list_items(notes.items)}"
        for section in SECTIONS
        if section in chosen and (notes := pad.section(section)).items and notes.visibility in seen
    ]
    opening = f"# Scratchpad\n{OPENING}\n\n" if viewer == "model" else ""
    return opening + "\n\n".join(pieces) if pieces else ""


def _list_items(items: tuple[Item, ...]) -> str:
    return "\n".join(f"{item.number}. " + "\n   ".join(item.text.splitlines()) for item in items)


def _check_note(text: object) -> None:
    check_text(text, "A note")
    if not str(text).strip():
        raise BadValue("A note must not be empty. Leave it out.")


def _write(pad: Scratchpad, section: Section, kept: tuple[Item, ...], texts: tuple[str, ...]) -> Scratchpad:
    new = tuple(Item(number, text) for number, text in enumerate(texts, pad.next))
    return replace(_with(pad, section, replace(pad.section(section), items=kept + new)), next=pad.next + len(new))


def _with(pad: Scratchpad, section: Section, notes: Notes) -> Scratchpad:
    return replace(pad, **{section: notes})
