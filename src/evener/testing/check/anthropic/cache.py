"""Cache marks of one Anthropic request: number, place, lifetime and order. Sheet section 12.

Reads only the places that may have a mark. An explicit `null` is not a mark.
"""

from collections.abc import Iterator, Mapping

import msgspec

from evener.testing.check.shape import Violation, check_shape, fields, items, join, shape

MAX_MARKS = 4
_SHAPE = shape("type: 'ephemeral'", "ttl: '5m'|'1h'")
_UNMARKABLE = frozenset(("thinking", "redacted_thinking"))


class CacheMark(msgspec.Struct, frozen=True):
    """One place that has a cache mark."""

    path: str
    owner: Mapping[str, object]

    @property
    def ttl(self) -> object:
        """The lifetime of the mark; five minutes if it states none."""
        return fields(self.owner.get("cache_control")).get("ttl") or "5m"


def check_cache(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report misplaced, malformed, misordered and too many cache marks."""
    marks = list(_marks(body))
    yield from _check_order(marks)
    if body.get("cache_control") is not None:
        marks.append(CacheMark("", body))
    for mark in marks:
        yield from check_shape(join(mark.path, "cache_control"), mark.owner.get("cache_control"), _SHAPE)
        yield from _check_owner(mark)
    if len(marks) > MAX_MARKS:
        message = f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
        yield Violation("", "cache_control.too_many", message)


def _marks(body: Mapping[str, object]) -> Iterator[CacheMark]:
    """Yield the marked places in the order in which the server renders them: tools, system, messages."""
    yield from _find_marks("tools", body.get("tools"))
    yield from _find_marks("system", body.get("system"))
    for index, message in enumerate(items(body.get("messages"))):
        path = f"messages.{index}.content"
        for place, block in enumerate(items(fields(message).get("content"))):
            yield from _find_marks(f"{path}.{place}.content", fields(block).get("content"))
            if fields(block).get("cache_control") is not None:
                yield CacheMark(f"{path}.{place}", fields(block))


def _find_marks(path: str, values: object) -> Iterator[CacheMark]:
    for index, value in enumerate(items(values)):
        if fields(value).get("cache_control") is not None:
            yield CacheMark(f"{path}.{index}", fields(value))


def _check_order(marks: list[CacheMark]) -> Iterator[Violation]:
    """Report a mark with a longer lifetime after one with a shorter lifetime.

    Not in the sheet: a user's report of August 2026.
    """
    short = False
    for mark in marks:
        if mark.ttl == "1h" and short:
            message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            yield Violation(join(mark.path, "cache_control.ttl"), "cache_control.ttl_order", message)
        short = short or mark.ttl == "5m"


def _check_owner(mark: CacheMark) -> Iterator[Violation]:
    path, kind = join(mark.path, "cache_control"), mark.owner.get("type")
    if isinstance(kind, str) and kind in _UNMARKABLE:
        yield Violation(path, "cache_control.thinking", "cache_control cannot be set for thinking blocks")
    if kind == "text" and mark.owner.get("text") == "":
        yield Violation(path, "cache_control.empty_text", "cache_control cannot be set for empty text blocks")
    if mark.owner.get("defer_loading") is True:
        yield Violation(path, "cache_control.deferred", "Tools with defer_loading cannot use prompt caching")
