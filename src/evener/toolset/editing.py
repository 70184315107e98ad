"""Exact replacements in a text, all or none, and the message for the model if one cannot be made. Pure.

Every `old` must occur exactly once in the current text, unless all occurrences are to be replaced. Similar text is never
changed: if `old` is not found, the message gives the reason, as far as it can be determined, and shows the closest lines. A
file whose lines all end with CR LF is edited as if they ended with LF, and written back with CR LF.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec.structs import replace

BOM = "\ufeff"
MOST_EDITS = 100
MOST_SHOWN = 24
MOST_LINES = 20_000
MOST_DIFF = 200
MOST_PAIRS = 100_000
"""Pairs of equal lines that difflib would look at, perhaps once for each change."""
CONTEXT = 2
MOST_PLACES = 10_000
LONGEST_LINE = 2_000
NUMBERED = re.compile(r"^\s*\d+(?:\t|: ?|\| ?|→)", re.MULTILINE)
ELISION = re.compile(r"^\s*(?:(?://|#|--|/\*|<!--)\s*)?(?:\.\.\.|…)", re.MULTILINE)


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement: `old` is exactly what stands in the file, `new` what stands there afterwards.

    The rest is for the forms that models were trained on, and not shown to others. `lines`: both are whole lines. `after`: a
    line that stands before the place; then the first `old` after it is meant, and an empty `old` inserts there. `line`: insert
    `new` after the line of this number.
    """

    old: str
    new: str
    replace_all: bool = False
    lines: bool = False
    after: str = ""
    line: Annotated[int, msgspec.Meta(ge=0)] | None = None


class EditRefused(Exception):
    """Why nothing was changed, and what to do, for the model."""


class EditSpan(msgspec.Struct, frozen=True, order=True):
    """A place in the text and what comes there; `number` is that of the edit, from 1."""

    start: int
    end: int
    new: str
    number: int


def split_text(body: bytes) -> tuple[str, str, bool]:
    """Return the byte order mark (or nothing), the text with LF line ends, and whether all lines of the file end with CR LF."""
    text = body.decode()
    mark = BOM if text.startswith(BOM) else ""
    text = text[len(mark) :]
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n") == text.count("\r")
    return mark, text.replace("\r\n", "\n") if crlf else text, crlf


def apply_edits(text: str, edits: Sequence[Edit], *, crlf: bool = False) -> str:
    """Return the text after all edits. Each `old` is searched in the present text. Raises EditRefused."""
    if not edits:
        raise EditRefused("There are no edits. Give at least one {old, new}.")
    if len(edits) > MOST_EDITS:
        raise EditRefused(f"{len(edits)} edits are too many for one call; at most {MOST_EDITS}. Use several calls, or write.")
    if crlf:
        edits = [replace(one, old=one.old.replace("\r\n", "\n"), new=one.new.replace("\r\n", "\n")) for one in edits]
    if text and not text.endswith("\n") and any(one.lines or one.line is not None or one.after for one in edits):
        return apply_edits(f"{text}\n", edits).removesuffix("\n")  # for them the last line ends, too
    spans = sorted(span for number, edit in enumerate(edits, 1) for span in _find(text, edit, number, edits))
    for one, other in pairwise(spans):
        if other.start < one.end:
            raise EditRefused(_overlap(text, one, other))
    pieces, at = [], 0
    for span in spans:
        pieces += [text[at : span.start], span.new]
        at = span.end
    changed = "".join((*pieces, text[at:]))
    if changed == text:
        raise EditRefused("The edits change nothing: the file would be as it is. Check `new`.")
    return changed


def _find(text: str, edit: Edit, number: int, edits: Sequence[Edit]) -> list[EditSpan]:
    which = f"Edit {number}: " if len(edits) > 1 else ""
    if not edit.old and (edit.line is not None or edit.after):
        return [_insertion(text, edit, number, which)]
    if not edit.old:
        raise EditRefused(
            f"{which}`old` is empty. To insert text, give a line that is there as `old` and the same line with the text as "
            "`new`. To fill an empty or new file, use write."
        )
    if edit.old == edit.new:
        raise EditRefused(f"{which}`old` and `new` are the same, so nothing would change. Check `new`.")
    places = _narrow(text, edit, _places(text, edit), which)
    if not places:
        raise EditRefused(which + explain_missing(text, edit, [one for one in edits if one is not edit]))
    if len(places) > 1 and not edit.replace_all:
        raise EditRefused(which + _ambiguous(text, places))
    return [EditSpan(start, start + len(edit.old), edit.new, number) for start in places]


def _narrow(text: str, edit: Edit, places: list[int], which: str) -> list[int]:
    """Return the places that are whole lines, if the edit requires that; and only the first after a given line."""
    whole = [start for start in places if not edit.lines or start == 0 or text[start - 1] == "\n"]
    if places and not whole:
        first = _line_of(text, places[0]) - 1
        raise EditRefused(
            f"{which}The lines are not found exactly. The indentation differs.{_region(text, first, _height(edit.old))}"
        )
    if not edit.after or not whole:
        return whole
    start = _after(text, edit.after, which)
    if whole[-1] < start:
        line = _line_of(text, whole[-1])
        raise EditRefused(
            f"{which}`old` stands at line {line}, which is before {edit.after!r}. Name a line that stands before it."
        )
    return [place for place in whole if place >= start][:1]


def _insertion(text: str, edit: Edit, number: int, which: str) -> EditSpan:
    """Return the span of text that is inserted between lines."""
    new = edit.new if edit.new.endswith("\n") else f"{edit.new}\n"
    if edit.line is None:
        start = _after(text, edit.after, which)
    else:
        if edit.line > (height := text.count("\n")):
            raise EditRefused(f"{which}There is no line {edit.line}: the file has {height}. Read it again, then repeat this.")
        start = _line_start(text, edit.line)
    return EditSpan(start, start, new, number)


def _line_start(text: str, line: int) -> int:
    """Return the offset of the line after this one."""
    start = 0
    for _ in range(line):
        start = text.index("\n", start) + 1
    return start


def _after(text: str, line: str, which: str) -> int:
    """Return the offset after a line. The line must occur exactly once."""
    found = [number for number, one in enumerate(text.split("\n"), 1) if one.strip() == line.strip()]
    if len(found) == 1:
        return _line_start(text, found[0])
    if not found:
        raise EditRefused(f"{which}The line {line!r}, which stands before the place, is not there." + _closest(text, line))
    shown = ", ".join(map(str, found[:10]))
    raise EditRefused(f"{which}The line {line!r} stands {len(found)} times, in the lines {shown}. Name one that is unique.")


def _places(text: str, edit: Edit) -> list[int]:
    """Return the offsets of `old`. If it must be unique, overlapping places count as well, and counting stops at a bound."""
    apart = edit.replace_all or bool(edit.after)
    step = len(edit.old) if apart else 1
    found: list[int] = []
    start = text.find(edit.old)
    while start >= 0 and (apart or len(found) < MOST_PLACES):
        found.append(start)
        start = text.find(edit.old, start + step)
    return found


def _line_of(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def _ambiguous(text: str, places: Sequence[int]) -> str:
    lines = text.split("\n")
    shown = "\n".join(number_lines([lines[number - 1]], number) for number in (_line_of(text, start) for start in places[:10]))
    more = f"\n(and {len(places) - 10:,} more)" if len(places) > 10 else ""
    often = f"{len(places)} times" if len(places) < MOST_PLACES else f"at least {MOST_PLACES:,} times"
    return (
        f"`old` occurs {often}, and it must be unique. Add lines before or after it, or set replace_all to "
        f"replace every one. It begins in these lines:\n{shown}{more}"
    )


def _overlap(text: str, one: EditSpan, other: EditSpan) -> str:
    line = _line_of(text, other.start)
    if (one.start, one.end) == (other.start, other.end):
        return f"Edits {one.number} and {other.number} replace the same text at line {line}. Give it once."
    return (
        f"Edits {min(one.number, other.number)} and {max(one.number, other.number)} overlap at line {line}. All edits are "
        "matched against the file as it is now: join them into one."
    )


# Why `old` is not there. Each row: a change to `old` (and to the text), and what to say if it is found then.

Change = Callable[[str], str]


def _same(text: str) -> str:
    return text


def _trim_ends(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _trim_starts(text: str) -> str:
    return "\n".join(line.lstrip() for line in text.split("\n"))


def _single_spaces(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


def _plain(text: str) -> str:
    """Return a text with plain forms of typographic characters, and without invisible characters."""
    table = {
        **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032"), "'"),
        **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033"), '"'),
        **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
        **dict.fromkeys(map(ord, "\u00a0\u2007\u202f\u2009"), " "),
        **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
        0x2026: "...",
    }
    return text.translate(table)


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def _escape_breaks(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _unfence(text: str) -> str:
    return re.sub(r"\A\s*```[^\n]*\n|\n```\s*\Z", "", text)


def _unnumber(text: str) -> str:
    return NUMBERED.sub("", text)


def _unmark(text: str) -> str:
    lines = text.split("\n")
    if not all(line[:1] in ("", "-", "+", " ") for line in lines) or not any(line[:1] in ("-", "+") for line in lines):
        return text
    return "\n".join(line[1:] for line in lines if not line.startswith("+"))


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _cr(text: str) -> str:
    return text.replace("\n", "\r")


MIXED = (
    "The file mixes CR LF and LF line ends, and `old` does not have them as they are. Edit within single lines, or write the "
    "whole file."
)
TABS = "Tabs and spaces differ. Use the same ones as the file, as shown below (a tab is shown as \\t)."
ESCAPED = '`old` has escape sequences such as \\n or \\" where the file has the characters themselves. Give the characters.'
UNESCAPED = 'The file has escape sequences (\\n, \\t, \\") where `old` has the characters. Give them as they stand in the file.'
ENTITIES = "The file has HTML entities such as &lt; where `old` has the characters. Give them as they stand in the file."
TYPOGRAPHY = "Quotes, dashes or spaces differ in kind (typographic or invisible characters). Copy the lines below."


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _tabs_of(width: int) -> Change:
    return lambda text: text.expandtabs(width)


REASONS: tuple[tuple[Change, Change, str], ...] = (
    (_lf, _same, "`old` has CR LF line ends, and the file has LF. Use LF."),
    (_lf, _lf, MIXED),
    (_unnumber, _same, "`old` has the line numbers that read shows. They are not in the file: leave them out."),
    (_unfence, _same, "`old` has a Markdown fence around it, which is not in the file. Leave it out."),
    (_unmark, _same, "`old` has the marks of a diff (+, -, or a space) before its lines. Give the plain lines."),
    (_trim_ends, _trim_ends, "The white space at the ends of lines differs. Copy the lines exactly as they are shown below."),
    (_tabs_of(4), _tabs_of(4), TABS),
    (_tabs_of(8), _tabs_of(8), TABS),
    (_tabs_of(2), _tabs_of(2), TABS),
    (lambda old: old.strip("\n"), _same, "`old` begins or ends with an empty line that is not there. Leave it out."),
    (str.strip, _same, "`old` begins or ends with white space that is not there. Give it without that."),
    (_plain, _plain, TYPOGRAPHY),
    (_trim_starts, _trim_starts, "The indentation differs. Copy it exactly as it is shown below."),
    (
        _single_spaces,
        _single_spaces,
        "The white space inside of lines differs. Copy the lines exactly as they are shown below.",
    ),
    (_unescape, _same, ESCAPED),
    (_escape_breaks, _same, UNESCAPED),
    (_escape, _same, UNESCAPED),
    (html.unescape, _same, "`old` has HTML entities such as &lt; where the file has the characters. Give the characters."),
    (html.escape, _same, ENTITIES),
    (_nfc, _nfc, "Accented characters are composed differently. Copy the lines below."),
    (
        _nfkc,
        _nfkc,
        "Characters differ in width, or two of them are one (compatible forms). Copy the lines below.",
    ),
    (_cr, _same, "The lines of the file end with CR alone. Edit within single lines, or write the whole file."),
    (str.casefold, str.casefold, "Upper and lower case differ. Copy the lines below."),
)


def explain_missing(text: str, edit: Edit, others: Sequence[Edit] = ()) -> str:
    """Return why `old` is not found, with the most similar lines."""
    old = edit.old
    if not text:
        return "`old` is not found: the file is empty. Use write to fill it."
    if any(old in one.new for one in others):
        return (
            "`old` is not in the file as it is now, but in the `new` of another edit. All edits are matched against the file "
            "as it is: join the two into one edit."
        )
    for change_old, change_text, why in REASONS:
        wanted = change_old(old)
        if wanted.strip() and (found := _seek(text, wanted, change_text)) is not None:
            return f"`old` is not found exactly. {why}{_region(text, found, _height(wanted))}"
    if edit.new.strip() and edit.new in text:
        line = _line_of(text, text.index(edit.new))
        return f"`old` is not found, but `new` is there, at line {line}: perhaps it was done already.{_closest(text, old)}"
    if ELISION.search(old):
        return "`old` is not found. It has `...` in place of lines: give every line in full, or make several short edits."
    if _height(old) > _height(text):
        return f"`old` is not found. It has {_height(old)} lines and the file only {_height(text)}. Read the file again."
    return "`old` is not found." + _closest(text, old)


def _seek(text: str, wanted: str, change: Change) -> int | None:
    """Return the line, from 0, at which the changed text contains what is wanted."""
    shown = change(text)
    start = shown.find(wanted)
    if start < 0:
        return None
    return min(shown.count("\n", 0, start), text.count("\n"))


def _height(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _region(text: str, first: int, height: int) -> str:
    lines = text.split("\n")[first : first + max(1, min(height, MOST_SHOWN))]
    return f" In the file it is:\n{number_lines([line.replace(chr(9), chr(92) + 't') for line in lines], first + 1)}"


def _closest(text: str, old: str) -> str:
    """Show the lines that are most like `old`."""
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if len(lines) > MOST_LINES:
        return " The file is too long to look for similar lines: search it for a part of `old`, then read around it."
    keys = [" ".join(line.split()) for line in lines]
    aims = [" ".join(line.split()) for line in wanted]
    at = _best_window(keys, aims)
    if at is None:
        return " Nothing in the file is similar. Check the path, or search for a word of it."
    window = lines[at : at + len(wanted)]
    differs = next((i for i, (one, two) in enumerate(zip(window, wanted, strict=False)) if one != two), 0)
    shown = number_lines([line.replace("\t", "\\t") for line in window[:MOST_SHOWN]], at + 1)
    return f" The closest lines are these, which first differ at line {at + differs + 1}; read them again first:\n{shown}"


def _best_window(keys: Sequence[str], aims: Sequence[str]) -> int | None:
    """Return the line at which most lines are equal, else at which the rarest line is similar; None for nowhere."""
    places: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        if key:
            places.setdefault(key, []).append(number)
    votes: dict[int, int] = {}
    for offset, aim in enumerate(aims):
        for number in places.get(aim, ())[:50]:
            votes[number - offset] = votes.get(number - offset, 0) + len(aim)
    if votes:
        return max(0, max(votes, key=lambda start: (votes[start], -start)))
    offset, aim = max(enumerate(aims), key=lambda one: len(one[1]))
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(aim[:300])
    best, found = 0.6, None
    for number, key in enumerate(keys):
        matcher.set_seq1(key[:300])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, max(0, number - offset)
    return found


def number_lines(lines: Sequence[str], first: int) -> str:
    """Return lines with their numbers, as `read` shows them."""
    return "\n".join(f"{number:>6}\t{_clip(line)}" for number, line in enumerate(lines, first))


def _clip(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... [{len(line):,} characters]"


def show_diff(path: str, before: str, after: str) -> str:
    """Return the unified diff, shortened if it is long. If computing it would take long, a remark replaces it."""
    old, new = _diff_lines(before), _diff_lines(after)
    if max(len(old), len(new)) > MOST_LINES:
        return "(The file is too long to show the difference.)"
    first = max(0, count_same(old, new) - CONTEXT)
    last = max(0, count_same(old[:first:-1], new[:first:-1]) - CONTEXT)
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    often = Counter(new)
    popular = len(new) // 100 + 1 if len(new) >= 200 else len(new)  # difflib leaves out those that are more frequent
    if sum(often[line] for line in old if often[line] <= popular) > MOST_PAIRS:
        return "(Its lines repeat too often to show the difference.)"
    made = list(unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="", n=CONTEXT))
    made = [HUNK.sub(lambda found: f"{found[1]}{int(found[2]) + first}", line) if line[:3] == "@@ " else line for line in made]
    more = [f"... ({len(made) - MOST_DIFF} more lines)"] if len(made) > MOST_DIFF else []
    return "\n".join(made[:MOST_DIFF] + more)


HUNK = re.compile(r"( [-+])(\d+)")


def count_same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines, or characters, at the beginning are equal."""
    return next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _diff_lines(text: str) -> list[str]:
    """Return the lines as `read` counts them, so that the numbers are the same."""
    *whole, rest = text.split("\n")
    return [*map(_clip, whole), *([f"{_clip(rest)}\n\\ No newline at end of file"] if rest else [])]
