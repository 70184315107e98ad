"""Search in files of JSON lines: by field paths, with conditions that all must hold; shows rows, some fields, or snippets.

Only lines that can match are parsed: those with a text that the conditions require. In a large file, ripgrep finds them in
the sandbox; otherwise they are found here, by the same expression. Lines that are not JSON are counted, not shown. Text is
matched in linear time (RE2). Rows beyond the limit are counted; a result that is too long is spilled like any other.
"""

import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Annotated, BinaryIO, Literal

import msgspec

from evener.policy.matchers import Pattern, Unsupported, compile_pattern
from evener.tools.result import ModelRetry
from evener.tools.tool import Tool, tool
from evener.toolset.fence import Fence
from evener.toolset.folder import RootFolder
from evener.toolset.labels import label
from evener.toolset.searching import run_ripgrep

MOST_ROWS = 1_000
MOST_CONDITIONS = 20
MOST_LINE = 4 << 20
MOST_NEEDLE = 1_000
MOST_PLACES = 200_000
LARGE = 1 << 20
SNIPPET = 80
MISSING = object()

Operator = Literal["equals", "not_equals", "contains", "matches", "least", "most", "after", "before", "exists", "missing"]
Scalar = str | int | float | bool | None


class RowCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One condition. `field` is a path such as user.name, items.0.price, or items.*.price for any of them."""

    field: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    operator: Operator = "equals"
    value: Scalar = None


class JsonlTools:
    """The tool `search_jsonl` for files below one root. Ripgrep is used for files of `ripgrep_from` bytes; None: for none."""

    def __init__(
        self, root: str | os.PathLike[str] = ".", *, fence: Fence | None = None, ripgrep_from: int | None = LARGE
    ) -> None:
        self.folder = RootFolder(root, fence)
        self._ripgrep_from = ripgrep_from

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tool."""
        return (label(tool(self.search_jsonl, effect="read"), source="jsonl"),)

    def search_jsonl(
        self,
        path: Annotated[str, "the file, one JSON value on each line"],
        conditions: Annotated[
            list[RowCondition] | None,
            "all must hold; least and most compare numbers, after and before compare dates, matches is a regular expression",
        ] = None,
        fields: Annotated[list[str] | None, "show only these fields"] = None,
        snippet: Annotated[str, "a regular expression: show only the text around it, with the field it is in"] = "",
        limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS, description="the most rows to show")] = 20,
    ) -> str:
        """Search a file of JSON lines: rows whose fields fulfil conditions, shown with their line numbers."""
        wanted = _check_count(conditions or [])
        tests = [_test(one) for one in wanted]
        around = _compile(snippet) if snippet else None
        shown: list[str] = []
        hits = bad = 0
        for number, row in self._rows(path, needle_of(wanted)):
            if row is MISSING:
                bad += 1
            elif all(test(row) for test in tests):
                text = _show(row, fields, around)
                hits += text is not None
                if text is not None and len(shown) < limit:
                    shown.append(f"{number}: {text}")
        remarks = [f"{hits - len(shown):,} more rows fit"] if hits > len(shown) else []
        remarks += [f"{bad:,} lines that may fit are no JSON"] if bad else []
        end = f"[{'; '.join(remarks)}]" if remarks else ""
        return "\n".join([*(shown or ["No row fits."]), *([end] if end else [])])

    def _rows(self, path: str, needle: str) -> Iterator[tuple[int, object]]:
        decoder = msgspec.json.Decoder()
        try:
            with self.folder.opened(path) as (fd, real), os.fdopen(os.dup(fd), "rb") as file:
                places = self._places(real, needle) if needle and self._is_large(fd) else None
                for number, line in _lines(file, needle) if places is None else _lines_at(file, places):
                    try:
                        yield number, decoder.decode(line.removeprefix(BOM_UTF8) if number == 1 else line)
                    except (msgspec.DecodeError, RecursionError):
                        yield number, MISSING
        except FileNotFoundError:
            raise ModelRetry(f"There is no {path}.") from None

    def _is_large(self, fd: int) -> bool:
        return self._ripgrep_from is not None and os.fstat(fd).st_size >= self._ripgrep_from

    def _places(self, real: str, needle: str) -> "list[tuple[int, int]] | None":
        """Return number and offset of each line that may match, found by ripgrep; None if it cannot run or finds too many."""
        found = _Places()
        end = run_ripgrep(self.folder, [*OPTIONS, f"(?-u){needle}", "--", f"./{real}"], found.add)
        return None if end is None or end.exit not in (0, 1) or end.why else found.places


OPTIONS = (
    "--no-heading", "--no-filename", "--color=never", "--line-number", "--byte-offset", "--max-columns=1", "--text",
    "--encoding=none", "--no-messages", "--no-ignore", "--regexp",
)  # fmt: skip


class _Places:
    """Takes the output of ripgrep: line number and offset, and instead of the line a remark that it is left out."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self._rest = b""

    def add(self, piece: bytes) -> bool:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            number, offset, _ = line.split(b":", 2)
            self.places.append((int(number), int(offset)))
        return len(self.places) > MOST_PLACES


def needle_of(conditions: Sequence[RowCondition]) -> str:
    """Return an expression that every matching line contains; empty if there is none.

    JSON can write a character as itself or as an escape. So a line also passes if it has an unnecessary escape. If case is
    ignored, a line with a character beyond ASCII passes, too, because some of them equal ASCII letters then.
    """
    found = [one for condition in conditions for one in _find_needed(condition)]
    if not found:
        return ""
    of_value, text, folds = max(found, key=lambda one: (one[0], len(one[1])))
    quoted = "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in text)
    return rf"(?i:{quoted})|[\x80-\xff]|\\[u/]" if of_value and folds else rf"(?:{quoted})|\\[u/]"


def _find_needed(condition: RowCondition) -> Iterator[tuple[bool, bytes, bool]]:
    """Yield the texts that a matching line must contain: whether each is a value, the text in JSON, and whether case is
    ignored.
    """
    if condition.operator in ("not_equals", "missing"):
        return
    value, folds = condition.value, condition.operator == "contains"
    if condition.operator in ("equals", "contains") and isinstance(value, str):
        yield from [(True, _as_json(value), folds)] if value and (value.isascii() or not folds) else []
    for step in condition.field.split("."):
        if step != "*" and not step.isdecimal():
            yield False, _as_json(step), False


def _as_json(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1][:MOST_NEEDLE]


def _lines(file: BinaryIO, needle: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that may match, with their numbers. Of a line that is too long only the beginning is yielded."""
    wanted = re.compile(needle.encode())
    for number in count(1):
        line = file.readline(MOST_LINE)
        if not line:
            return
        fits, piece = wanted.search(line), line
        while len(piece) == MOST_LINE and not piece.endswith(b"\n"):
            before, piece = piece[-2 * MOST_NEEDLE :], file.readline(MOST_LINE)
            fits = fits or wanted.search(before + piece)
        if fits and line.strip():
            yield number, line


def _lines_at(file: BinaryIO, places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    for number, offset in places:
        file.seek(offset)
        line = file.readline(MOST_LINE)
        if line.strip():
            yield number, line


class _Test:
    """A condition that is ready to be applied to rows."""

    def __init__(self, condition: RowCondition, pattern: Pattern | None, when: float | None) -> None:
        self._steps = condition.field.split(".")
        self._operator, self._value = condition.operator, condition.value
        self._pattern, self._when = pattern, when

    def __call__(self, row: object) -> bool:
        found = list(values_at(row, self._steps))
        match self._operator:
            case "exists":
                return bool(found)
            case "missing":
                return not found
            case "not_equals":
                return all(not _same(one, self._value) for one in found)
        return any(map(self._holds, found))

    def _holds(self, value: object) -> bool:
        match self._operator:
            case "equals":
                return _same(value, self._value)
            case "contains":
                return _contains(value, self._value)
            case "matches":
                return isinstance(value, str) and self._pattern is not None and self._pattern.occurs_in(value)
            case "least" | "most":
                return _compares(value, self._value, self._operator == "least")
            case "after" | "before":
                return _compares(read_date(value), self._when, self._operator == "after")
        return False


def _test(condition: RowCondition) -> _Test:
    value, pattern, when = condition.value, None, None
    match condition.operator:
        case "matches":
            pattern = _compile(value)
        case "least" | "most" if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelRetry(f"{condition.operator} on {condition.field!r} needs a number as value.")
        case "after" | "before":
            when = read_date(value)
            if when is None:
                raise ModelRetry(f"{condition.operator} on {condition.field!r} needs a date as value, as in 2026-01-31.")
    return _Test(condition, pattern, when)


def _check_count(conditions: list[RowCondition]) -> list[RowCondition]:
    if len(conditions) > MOST_CONDITIONS:
        raise ModelRetry(f"{len(conditions)} conditions are too many; at most {MOST_CONDITIONS}.")
    return conditions


def _compile(text: object) -> Pattern:
    if not isinstance(text, str):
        raise ModelRetry("A regular expression must be a text.")
    try:
        return compile_pattern(text)
    except Unsupported as error:
        raise ModelRetry(f"The regular expression cannot be used: {error}.") from None


def values_at(row: object, steps: list[str]) -> Iterator[object]:
    """Yield the values at a path: several with `*`, none if the path does not exist."""
    if not steps:
        yield row
        return
    step, rest = steps[0], steps[1:]
    match row:
        case dict():
            inner = list(row.values()) if step == "*" and step not in row else [row[step]] if step in row else []
        case list():
            number = int(step) if step.isdecimal() else -1
            inner = row if step == "*" else [row[number]] if 0 <= number < len(row) else []
        case _:
            inner = []
    for one in inner:
        yield from values_at(one, rest)


def _same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _contains(value: object, wanted: object) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted.casefold() in value.casefold()
    return isinstance(value, list) and any(_same(one, wanted) for one in value)


def _compares(value: object, bound: object, least: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(bound, int | float):
        return False
    return value >= bound if least else value <= bound


def read_date(value: object) -> float | None:
    """Return a text or number as seconds since 1970; None if it is not a time. Without a zone it is UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _show(row: object, fields: list[str] | None, around: Pattern | None) -> str | None:
    """Return the displayed part of a row; None if only a snippet is wanted and there is none."""
    if around is not None:
        found = [f"{where}: {text}" for where, text in _snippets(row, around, "")][:5]
        return " | ".join(found) or None
    if fields:
        row = {field: _one(list(values_at(row, field.split(".")))) for field in fields}
    return msgspec.json.encode(row).decode()


def _one(values: list[object]) -> object:
    return values[0] if len(values) == 1 else values or None


def _snippets(value: object, pattern: Pattern, where: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, inner in value.items():
                yield from _snippets(inner, pattern, f"{where}.{name}".lstrip("."))
        case list():
            for number, inner in enumerate(value):
                yield from _snippets(inner, pattern, f"{where}.{number}".lstrip("."))
        case str():
            hit = pattern.search(value.encode(errors="replace"))
            if hit is not None:
                start, end = hit.span()  # type: ignore[attr-defined]  # RE2 comes without types
                body = value.encode(errors="replace")
                cut = body[max(0, start - SNIPPET) : end + SNIPPET].decode(errors="ignore")
                yield where, f"{'...' if start > SNIPPET else ''}{cut}{'...' if end + SNIPPET < len(body) else ''}"
