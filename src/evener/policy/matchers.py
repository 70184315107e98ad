"""Matchers: what a rule may say about an argument, and whether a value fits. Pure; every pattern takes linear time.

Exactly    this text, number or truth value
Glob       a text: * and ? and [...], the whole of it, and no line breaks
Regex      a text: a regular expression for the whole of it, in linear time
Between    a number
Within     a path, step by step: * within a step, ** for any number of steps
Given      whether the argument is there at all; null is not
OneOf      any of these

An answer is `unsure` where the value is of another type than the matcher expects (a number as a text, a list), is too long
to be checked, or fits only after folding (case, white space, look-alikes), which is done to the rule's text and to the value
alike. Rules that allow need a `yes`, so folding never widens them: they keep to the case that they are written in. Rules that
deny or ask apply on `unsure` as well.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from math import isfinite
from typing import Final, Literal, assert_never, get_args
from unicodedata import category, normalize

import msgspec

from evener.errors import BadValue, UsageError
from evener.transcript.blocks import as_tuple, check_number, check_text, check_type

BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
BLANK = "\u2800"
"""Braille's empty cell: looks blank, and is no white space to Unicode."""

IGNORABLE = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt, 4,174 code points): shown as nothing."""


def make_visible(text: str, *, instead: str = "") -> str:
    """Return the text in its compatibility form, with single spaces, and with `instead` for invisible characters.

    Case stays.
    """
    if not (text.isascii() and text.isprintable()):
        text = text.translate({ord(char): _compatible(char, instead) for char in set(text)})
    return " ".join(text.split())


def fold_text(text: str) -> str:
    """Return the text in its compatibility form, with single spaces, without invisible characters, and without case."""
    return _fold_case(make_visible(text))


def readings(text: str) -> frozenset[str]:
    """Return the folded text twice: with invisible characters removed, and with spaces in their place."""
    return frozenset((fold_text(text), _fold_case(make_visible(text, instead=" "))))


def has_breaks(text: str) -> bool:
    """True if the text has a line break of any kind."""
    return not BREAKS.isdisjoint(text)


@cache
def is_invisible(char: str) -> bool:
    """True if a character is shown as nothing: a control, format or default-ignorable one that is no white space."""
    if char.isspace():
        return False
    code = ord(char)
    return category(char) in ("Cc", "Cf") or any(first <= code <= last for first, last in IGNORABLE)


def _fold_case(text: str) -> str:
    """Fold case, then decompose: folded characters may have a compatibility form, and the reverse."""
    folded = text.casefold()
    return folded if folded.isascii() else folded.translate({ord(char): normalize("NFKD", char) for char in set(folded)})


def _compatible(char: str, instead: str) -> str:
    # Character by character: NFKD sorts a long run of accents in quadratic time.
    if is_invisible(char):
        return instead
    return " " if char == BLANK else normalize("NFKD", char)


SYNTAX = frozenset(r"^$\.*+?()[]{}|/-")

CODE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|.)", re.DOTALL)
"""An escape. Of a character's number there are the two halves, or the whole."""
HALF = "it has one half of a character (a lone surrogate), which no text has"
LACKING = ("invalid perl operator", "invalid escape sequence")
MOST_MEMORY = 8 << 20


class Unsupported(Exception):
    """A pattern that RE2 does not support, and the reason."""


class Pattern(msgspec.Struct, frozen=True):
    """A compiled pattern. `search` is RE2's."""

    text: str
    search: Callable[[bytes], object]

    def occurs_in(self, text: str) -> bool:
        """True if it matches anywhere in a text."""
        return self.search(text.encode(errors="replace")) is not None


def compile_pattern(text: str, *, ignore_case: bool = False) -> Pattern:
    """Compile a pattern. Raises Unsupported."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_MEMORY
    options.case_sensitive = not ignore_case
    try:
        return Pattern(text, re2.compile(CODE.sub(_translate_code, text).encode(), options).search)
    except UnicodeEncodeError:
        raise Unsupported(HALF) from None
    except re2.error as error:
        raise Unsupported(_words(error)) from None


def _translate_code(escape: re.Match[str]) -> str:
    """Write a character's number as RE2 does: ECMA 262 and Python write \\uFFFF, RE2 \\x{FFFF}."""
    high, low, code = escape.groups()
    if high:  # JSON and ECMA 262 write a character beyond FFFF as two
        return rf"\x{{{0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00:x}}}"
    if code and 0xD800 <= int(code, 16) < 0xE000:
        raise Unsupported(HALF)
    return rf"\x{{{code}}}" if code else escape[0]


def fold_pattern(text: str) -> str:
    """Return the pattern with its literal characters folded like a text in `readings`. ASCII letters keep their case."""
    pieces = re.findall(r"\\.|.", re.sub(r"\s+", " ", text), re.DOTALL)
    return "".join(piece if piece.isascii() else _fold_literal(piece[-1]) for piece in pieces)


def _fold_literal(char: str) -> str:
    return "".join(f"\\{one}" if one in SYNTAX else one for one in fold_text(char))


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return f"{text} (the syntax is RE2's, without look-around and back-references)" if text.startswith(LACKING) else text


Certainty = Literal["yes", "no", "unsure"]
"""Whether a value fits. `unsure`: that is not known, or it fits only after folding."""

MOST_PATH = 4_096
MOST_STEPS = 256
TRICKS = re.compile(r"[\\:$*?\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}|%\w+%|^~|(?:^|/) | (?:/|$)|[^/.]\.+(?:/|$)|\.{3}")
WILD = re.compile(r"[*?[]")
LIKE_SLASH = frozenset("\u2044\u2215\u2216\u2571\u29f5\u29f8\u2afd")
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")


def _check_path_pattern(pattern: str) -> None:
    """Refuse a pattern for paths that can never match, or that means something else than it seems to."""
    steps = pattern.split("/")
    if not pattern or ".." in steps or "\\" in pattern or any("**" in step and step != "**" for step in steps):
        raise UsageError(
            f"{pattern!r} is no pattern for paths: write steps between slashes, with *, ? or [...] within a step, "
            "and ** alone for any number of steps, as in 'src/**/*.py'."
        )


def fits(path: str, pattern: str, *, root: str = "") -> Certainty:
    """Return whether a path matches a pattern. Relative paths begin at `root`; without a root, a possible match is `unsure`."""
    if len(path) > MOST_PATH or _is_doubtful(path):
        return "unsure"
    base = _steps(root, [])
    steps = _steps(path, base)
    if steps is None or len(steps) > MOST_STEPS:
        return "unsure"
    wanted = _steps(pattern, [WILD.sub(r"[\g<0>]", step) for step in base or ()]) or []  # a folder's name is no pattern
    if _is_absolute(steps) == _is_absolute(wanted):
        if _match(steps, wanted):
            return "yes"
        return "unsure" if _match(_fold_steps(steps), _fold_steps(wanted)) else "no"
    return "unsure" if _may_fit(_fold_steps(steps), _fold_steps(wanted)) else "no"


def _steps(path: str, base: Sequence[str] | None) -> list[str] | None:
    """Return the steps of a path, the first one empty if it is absolute; None if the path leaves its starting folder.

    A relative path starts after the steps of `base`.
    """
    steps = [""] if path.startswith("/") else list(base or ())
    floor = 1 if _is_absolute(steps) else 0
    for step in path.split("/"):
        if step == "..":
            if len(steps) <= floor:
                return None
            steps.pop()
        elif step not in ("", "."):
            steps.append(step)
    return steps


def _is_absolute(steps: Sequence[str]) -> bool:
    return len(steps) > 0 and steps[0] == ""


def _is_doubtful(path: str) -> bool:
    """True if some program may interpret this path as another one."""
    if TRICKS.search(path):
        return True
    return not path.isascii() and any(_is_odd(char) for char in set(path) if char > "\x7f")


def _is_odd(char: str) -> bool:
    return char in LIKE_SLASH or is_invisible(char) or category(char) in UNSEEN or normalize("NFKC", char)[:1] <= "\x7f"


def _fold_steps(steps: Sequence[str]) -> list[str]:
    return [fold_text(step) for step in steps]


def _may_fit(steps: Sequence[str], wanted: Sequence[str]) -> bool:
    """True if one path is relative and the other absolute, and they could be the same in some folder."""
    if _is_absolute(steps):
        return _match(steps[1:], ["**", *wanted])
    return any(_match(steps, wanted[start:]) for start in range(1, len(wanted) + 1))


def _match(steps: Sequence[str], wanted: Sequence[str]) -> bool:
    """True if the pattern matches, step by step, for all alternatives at once. `at` has the numbers of the steps to match
    next.
    """
    at = _onward({0}, wanted)
    for step in steps:
        met = {place for place in at if place < len(wanted) and wanted[place] == "**"}
        met |= {place + 1 for place in at if place < len(wanted) and _meets(step, wanted[place])}
        at = _onward(met, wanted)
    return len(wanted) in at


def _onward(at: set[int], wanted: Sequence[str]) -> set[int]:
    """Add the places that are reached if a `**` matches no step."""
    for place, want in enumerate(wanted):
        if place in at and want == "**":
            at.add(place + 1)
    return at


def _meets(step: str, want: str) -> bool:
    return step == want if want in ("", "**") else fnmatchcase(step, want)


Scalar = str | int | float | bool

MOST_PATTERN = 1_000
MOST_TEXT = 100_000


class Absent(Enum):
    """Stands for a value that a rule does not find in the arguments of a call."""

    MISSING = "it is not there, or null"
    OPAQUE = "it cannot be reached: there is a list or a text where the rule expects an object"


MISSING: Final = Absent.MISSING
OPAQUE: Final = Absent.OPAQUE


class Exactly(msgspec.Struct, frozen=True):
    """This value. True and False are not numbers."""

    value: Scalar

    def __post_init__(self) -> None:
        check_type(self.value, (str, int, float, bool), "Exactly.value")
        if isinstance(self.value, str):
            _check_length(self.value, "Exactly.value")
        elif not isfinite(self.value):
            raise BadValue("Exactly.value must be a finite number: JSON has no other. Remove the condition.")


class Glob(msgspec.Struct, frozen=True):
    """A text that matches a pattern as a whole. A wildcard never matches a line break."""

    pattern: str

    def __post_init__(self) -> None:
        _check_length(self.pattern, "Glob.pattern")


class Regex(msgspec.Struct, frozen=True):
    """A text that matches a regular expression as a whole. Lookarounds and back references are not supported."""

    pattern: str

    def __post_init__(self) -> None:
        _check_length(self.pattern, "Regex.pattern")
        _compile(self.pattern)


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """A number within bounds: `least` and `most` are inclusive, `above` and `below` exclusive."""

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
        """True if the number lies within the bounds."""
        return not (
            (self.least is not None and number < self.least)
            or (self.most is not None and number > self.most)
            or (self.above is not None and number <= self.above)
            or (self.below is not None and number >= self.below)
        )


class Within(msgspec.Struct, frozen=True):
    """A path that matches one of these patterns. `root` is the folder where relative paths and patterns start."""

    patterns: tuple[str, ...]
    root: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "patterns", as_tuple(self.patterns, "Within.patterns"))
        if not self.patterns:
            raise BadValue("Within needs a pattern, as in Within(('src/**',)).")
        for pattern in self.patterns:
            _check_length(pattern, "Each of Within.patterns")
            _check_path_pattern(pattern)
        check_text(self.root, "Within.root")
        if self.root and (not self.root.startswith("/") or ".." in self.root.split("/")):
            raise BadValue("Within.root must be an absolute path without '..'. Resolve it first.")


class Given(msgspec.Struct, frozen=True):
    """The argument is present with any value except null; or it is not."""

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
"""A matcher, or a short form: a text is a glob, a number or truth value is exactly that, several are any of them."""


def matcher_of(condition: Condition) -> Matcher:
    """Return the matcher that a condition is a short form of."""
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


def judge(matcher: Matcher, value: object) -> Certainty:
    """Return whether a value of a call's arguments matches."""
    match matcher, value:
        case OneOf(), _:
            return best(judge(one, value) for one in matcher.matchers)
        case _, Absent.OPAQUE:
            return "unsure"
        case Given(), _:
            return "yes" if matcher.wanted == (value is not MISSING) else "no"
        case _, Absent.MISSING:
            return "no"
    match matcher:
        case Exactly():
            return _exactly(matcher.value, value)
        case Between():
            return _between(matcher, value)
        case Glob() | Regex() | Within():
            return _text(matcher, value) if isinstance(value, str) else "unsure"
        case OneOf() | Given():
            return "no"  # answered above
        case _:
            assert_never(matcher)


def best(answers: Iterable[Certainty]) -> Certainty:
    """Return the most certain of these answers."""
    found = set(answers)
    return "yes" if "yes" in found else "unsure" if "unsure" in found else "no"


def _check_length(text: object, where: str) -> None:
    check_text(text, where)
    if len(str(text)) > MOST_PATTERN:
        raise BadValue(f"{where} has {len(str(text)):,} characters; at most {MOST_PATTERN:,} are allowed. Write several rules.")


def _text(matcher: Glob | Regex | Within, value: str) -> Certainty:
    if len(value) > MOST_TEXT:
        return "unsure"
    match matcher:
        case Glob(pattern):
            if fnmatchcase(value, pattern):
                return "yes" if has_breaks(pattern) or not has_breaks(value) else "unsure"
            wanted = fold_text(pattern)
            return "unsure" if any(fnmatchcase(one, wanted) for one in readings(value)) else "no"
        case Regex(pattern):
            if _compile(pattern).occurs_in(value):
                return "yes"
            forms = {value, make_visible(value), *readings(value)}
            return "unsure" if any(one.occurs_in(form) for one in _caseless_patterns(pattern) for form in forms) else "no"
        case Within(patterns, root):
            return best(fits(value, pattern, root=root) for pattern in patterns)


@lru_cache(1_024)
def _caseless_patterns(text: str) -> tuple[Pattern, ...]:
    """Return the pattern for folded text, and a second one if it has characters whose compatibility form differs."""
    found: list[Pattern] = []
    for one in sorted({text, fold_pattern(text)}):
        with suppress(UsageError):  # a folded form may be no pattern; what was written still counts
            found.append(_compile(one, ignore_case=True))
    return tuple(found)


@lru_cache(1_024)
def _compile(pattern: str, *, ignore_case: bool = False) -> Pattern:
    try:
        compile_pattern(pattern)  # by itself, so that it cannot close the group that it is put into
        return compile_pattern(f"^(?:{pattern})$", ignore_case=ignore_case)
    except Unsupported as error:
        raise UsageError(
            f"The regular expression {pattern!r:.80} cannot be used in a rule: {error}. Write it simpler."
        ) from None


def _exactly(wanted: Scalar, value: object) -> Certainty:
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
            return "unsure" if len(value) > MOST_TEXT or fold_text(wanted) in readings(value) else "no"
        case str() if not isinstance(wanted, bool):
            number = _read_number(value)
            return "unsure" if number is None or number == wanted else "no"
    return "unsure"


def _between(matcher: Between, value: object) -> Certainty:
    match value:
        case bool():
            return "unsure"
        case int() | float():
            return "yes" if matcher.holds(value) else "no"
        case str():
            number = _read_number(value)
            return "unsure" if number is None or matcher.holds(number) else "no"
    return "unsure"


def _read_number(text: str) -> float | None:
    """Return the number that a text represents; None if it represents no finite number."""
    if len(text) > 100:
        return None
    try:
        number = float(make_visible(text))
    except ValueError:
        return None
    return number if isfinite(number) else None
