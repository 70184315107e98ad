"""What a rule may say about an argument: a closed union, and whether a value fits. Pure; no pattern takes long on any text.

Exactly    this text, number or truth value
Glob       a text: * and ? and [...], the whole of it, and no line breaks
Regex      a text: a regular expression for the whole of it, in linear time
Between    a number
Within     a path: see `paths`
Given      whether the argument is there at all; null is not
OneOf      any of these

An answer is `unsure` where the value is of another kind than the matcher speaks of (a number as a text, a list), is too long
to be looked at, or fits only after folding (case, white space, look-alikes), which is done to the rule's text and to the value
alike. Rules that allow want a `yes`, so folding never widens them: they keep to the case that they are written in. Rules that
deny or ask are content with `unsure`.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from math import isfinite
from typing import assert_never, get_args

import msgspec

from evener.errors import BadValue, UsageError
from evener.policy.folding import folded, has_breaks, readings, visible
from evener.policy.paths import Answer, check_pattern, fits
from evener.policy.patterns import Pattern, Unsupported, compile_pattern, folded_pattern
from evener.transcript.checks import as_tuple, check_number, check_text, check_type

__all__ = [
    "MISSING", "OPAQUE", "Answer", "Between", "Condition", "Exactly", "Given", "Glob", "Matcher", "Missing", "OneOf", "Regex",
    "Scalar", "Within", "best", "judge", "matcher_of",
]  # fmt: skip

Scalar = str | int | float | bool

MOST_PATTERN = 1_000
MOST_TEXT = 100_000


class Missing(msgspec.Struct, frozen=True):
    """In place of a value that is not there, or null."""


class Opaque(msgspec.Struct, frozen=True):
    """In place of a value that cannot be got at: a list or a text stands where the rule expects an object."""


MISSING = Missing()
OPAQUE = Opaque()


class Exactly(msgspec.Struct, frozen=True):
    """This value. A truth value is no number."""

    value: Scalar

    def __post_init__(self) -> None:
        check_type(self.value, (str, int, float, bool), "Exactly.value")
        if isinstance(self.value, str):
            _check_length(self.value, "Exactly.value")
        elif not isfinite(self.value):
            raise BadValue("Exactly.value must be a finite number: JSON has no other. Leave the condition away.")


class Glob(msgspec.Struct, frozen=True):
    """A text that fits a pattern as a whole. A line break in it is never met by a wildcard."""

    pattern: str

    def __post_init__(self) -> None:
        _check_length(self.pattern, "Glob.pattern")


class Regex(msgspec.Struct, frozen=True):
    """A text that fits a regular expression as a whole. Without lookarounds and back references."""

    pattern: str

    def __post_init__(self) -> None:
        _check_length(self.pattern, "Regex.pattern")
        _compiled(self.pattern)


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """A number within bounds: `least` and `most` belong to it, `above` and `below` do not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        bounds = {"least": self.least, "most": self.most, "above": self.above, "below": self.below}
        for name, bound in bounds.items():
            check_number(bound, f"Between.{name}")
        if all(bound is None for bound in bounds.values()):
            raise BadValue("Between needs a bound: give least, most, above or below.")

    def holds(self, number: float) -> bool:
        """Whether a number lies within."""
        return not (
            (self.least is not None and number < self.least)
            or (self.most is not None and number > self.most)
            or (self.above is not None and number <= self.above)
            or (self.below is not None and number >= self.below)
        )


class Within(msgspec.Struct, frozen=True):
    """A path that fits one of these patterns. `root` is the folder where relative paths and patterns start."""

    patterns: tuple[str, ...]
    root: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "patterns", as_tuple(self.patterns, "Within.patterns"))
        if not self.patterns:
            raise BadValue("Within needs a pattern, as in Within(('src/**',)).")
        for pattern in self.patterns:
            _check_length(pattern, "Each of Within.patterns")
            check_pattern(pattern)
        check_text(self.root, "Within.root")
        if self.root and (not self.root.startswith("/") or ".." in self.root.split("/")):
            raise BadValue("Within.root must be an absolute path without '..'. Resolve it first.")


class Given(msgspec.Struct, frozen=True):
    """That the argument is there, with any value but null; or that it is not."""

    wanted: bool = True

    def __post_init__(self) -> None:
        check_type(self.wanted, (bool,), "Given.wanted")


class OneOf(msgspec.Struct, frozen=True):
    """Any of these."""

    matchers: "tuple[Matcher, ...]"

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "matchers", as_tuple(self.matchers, "OneOf.matchers"))
        if not self.matchers:
            raise BadValue("OneOf needs at least one matcher.")
        for matcher in self.matchers:
            check_type(matcher, SINGLE, "Each of OneOf.matchers")


Single = Exactly | Glob | Regex | Between | Within | Given
SINGLE: tuple[type, ...] = get_args(Single)
Matcher = Single | OneOf
Condition = Matcher | Scalar | tuple[Scalar, ...]
"""A matcher, or short for one: a text is a glob, a number or truth value is exactly that, several are any of them."""


def matcher_of(condition: Condition) -> Matcher:
    """The matcher that a condition is short for."""
    match condition:
        case str():
            return Glob(condition)
        case bool() | int() | float():
            return Exactly(condition)
        case tuple() | list():
            return OneOf(tuple(Glob(one) if isinstance(one, str) else Exactly(one) for one in condition))
        case Exactly() | Glob() | Regex() | Between() | Within() | Given() | OneOf():
            return condition
    raise BadValue(f"A condition must be a matcher, a text, a number or a truth value, not {type(condition).__name__}.")


def judge(matcher: Matcher, value: object) -> Answer:
    """Whether a value from a call's arguments fits."""
    match matcher, value:
        case OneOf(), _:
            return best(judge(one, value) for one in matcher.matchers)
        case Given(), Missing():
            return "no" if matcher.wanted else "yes"
        case _, Missing():
            return "no"
        case _, Opaque():
            return "unsure"
    match matcher:
        case Given():
            return "yes" if matcher.wanted else "no"
        case Exactly():
            return _exactly(matcher.value, value)
        case Between():
            return _between(matcher, value)
        case Glob() | Regex() | Within():
            return _text(matcher, value) if isinstance(value, str) else "unsure"
        case OneOf():
            return "no"  # answered above
        case _:
            assert_never(matcher)


def best(answers: Iterable[Answer]) -> Answer:
    """The surest of these answers."""
    found = set(answers)
    return "yes" if "yes" in found else "unsure" if "unsure" in found else "no"


def _check_length(text: object, where: str) -> None:
    check_text(text, where)
    if len(str(text)) > MOST_PATTERN:
        raise BadValue(f"{where} has {len(str(text)):,} characters, of at most {MOST_PATTERN:,}. Write several rules instead.")


def _text(matcher: Glob | Regex | Within, value: str) -> Answer:
    if len(value) > MOST_TEXT:
        return "unsure"
    match matcher:
        case Glob(pattern):
            if fnmatchcase(value, pattern):
                return "yes" if has_breaks(pattern) or not has_breaks(value) else "unsure"
            wanted = folded(pattern)
            return "unsure" if any(fnmatchcase(one, wanted) for one in readings(value)) else "no"
        case Regex(pattern):
            return _regex(pattern, value)
        case Within(patterns, root):
            return best(fits(value, pattern, root=root) for pattern in patterns)


def _regex(text: str, value: str) -> Answer:
    if _compiled(text).occurs_in(value):
        return "yes"
    forms = {value, visible(value), *readings(value)}
    return "unsure" if any(one.occurs_in(form) for one in _caseless(text) for form in forms) else "no"


@lru_cache(1_024)
def _caseless(text: str) -> tuple[Pattern, ...]:
    """The pattern for text in any case; where it has characters with another form, the pattern in that form, too."""
    found = (_understood(one) for one in sorted({text, folded_pattern(text)}))
    return tuple(pattern for pattern in found if pattern is not None)


def _understood(text: str) -> Pattern | None:
    try:
        return _compiled(text, ignore_case=True)
    except UsageError:
        return None  # a form that is no pattern any more: what was written counts all the same


@lru_cache(1_024)
def _compiled(pattern: str, *, ignore_case: bool = False) -> Pattern:
    try:
        compile_pattern(pattern)  # by itself, so that it cannot close the group that it is put into
        return compile_pattern(f"^(?:{pattern})$", ignore_case=ignore_case)
    except Unsupported as error:
        raise UsageError(
            f"The regular expression {pattern!r:.80} cannot be used in a rule: {error}. Write it simpler."
        ) from None


def _exactly(wanted: Scalar, value: object) -> Answer:
    match value:
        case bool():
            return "yes" if value is wanted else "no" if isinstance(wanted, bool) else "unsure"
        case int() | float():
            if isinstance(wanted, int | float) and not isinstance(wanted, bool):
                return "yes" if value == wanted else "no"
            return "unsure"
        case str() if isinstance(wanted, str):
            if value == wanted:
                return "yes"
            return "unsure" if len(value) > MOST_TEXT or folded(wanted) in readings(value) else "no"
        case str() if not isinstance(wanted, bool):
            number = _number(value)
            return "unsure" if number is None or number == wanted else "no"
    return "unsure"


def _between(matcher: Between, value: object) -> Answer:
    match value:
        case bool():
            return "unsure"
        case int() | float():
            return "yes" if matcher.holds(value) else "no"
        case str():
            number = _number(value)
            return "unsure" if number is None or matcher.holds(number) else "no"
    return "unsure"


def _number(text: str) -> float | None:
    """The number that a text may be read as; None when it is none, or none that can be compared."""
    if len(text) > 100:
        return None
    try:
        number = float(visible(text))
    except ValueError:
        return None
    return number if isfinite(number) else None
