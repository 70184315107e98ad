"""Paths by their words alone: normalised, compared with patterns, and doubted where another reader may see another file. Pure.

`.` and empty steps are dropped, `..` takes one step back; a path that steps out of where it starts is doubtful, and so is one
with anything that some tool or system reads differently: a backslash, a drive or scheme, `~`, `$`, percent escapes, wildcards,
control and invisible characters, look-alikes of the slash and the dot, blanks or dots at the end of a step. What links lead to
is not known here: a tool that follows them must look for itself.

In a pattern `*`, `?` and `[...]` stay within a step, and a step `**` stands for any number of steps, none included.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal
from unicodedata import category, normalize

from evener.errors import UsageError
from evener.policy.folding import folded, is_invisible

__all__ = ["Answer", "check_pattern", "fits"]

Answer = Literal["yes", "no", "unsure"]
"""Whether a value fits. `unsure`: it cannot be told, or it fits only for a careless reader."""

MOST_PATH = 4_096
MOST_STEPS = 256
TRICKS = re.compile(r"[\\:$*?\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}|%\w+%|^~|(?:^|/) | (?:/|$)|[^/.]\.+(?:/|$)|\.{3}")
LIKE_SLASH = frozenset("\u2044\u2215\u2216\u2571\u29f5\u29f8\u2afd")
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that could never fit, or not what it seems to say."""
    steps = pattern.split("/")
    if not pattern or ".." in steps or "\\" in pattern or any("**" in step and step != "**" for step in steps):
        raise UsageError(
            f"{pattern!r} is no pattern for paths: write steps between slashes, with *, ? or [...] within a step, "
            "and ** alone for any number of steps, as in 'src/**/*.py'."
        )


def fits(path: str, pattern: str, *, root: str = "") -> Answer:
    """Whether a path fits a pattern. Relative ones start from `root`; where that is not known, they are compared with care."""
    if len(path) > MOST_PATH or _doubtful(path):
        return "unsure"
    base = _steps(root, [])
    steps = _steps(path, base)
    if steps is None or len(steps) > MOST_STEPS:
        return "unsure"
    wanted = _steps(pattern, [_literal(step) for step in base or ()]) or []
    if _absolute(steps) == _absolute(wanted):
        if _match(steps, wanted):
            return "yes"
        return "unsure" if _match(_folded(steps), _folded(wanted)) else "no"
    return "unsure" if _may_fit(_folded(steps), _folded(wanted)) else "no"


def _steps(path: str, base: Sequence[str] | None) -> list[str] | None:
    """The steps of a path, the first one empty if it is absolute; None if it steps out of where it starts.

    A relative path starts after the steps of `base`.
    """
    steps = [""] if path.startswith("/") else list(base or ())
    floor = 1 if _absolute(steps) else 0
    for step in path.split("/"):
        if step == "..":
            if len(steps) <= floor:
                return None
            steps.pop()
        elif step not in ("", "."):
            steps.append(step)
    return steps


def _literal(step: str) -> str:
    """A step as a pattern that only it fits."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in step)


def _absolute(steps: Sequence[str]) -> bool:
    return len(steps) > 0 and steps[0] == ""


def _doubtful(path: str) -> bool:
    """Whether somebody may read this path as another one."""
    if TRICKS.search(path):
        return True
    return not path.isascii() and any(_odd(char) for char in set(path) if char > "\x7f")


def _odd(char: str) -> bool:
    return char in LIKE_SLASH or is_invisible(char) or category(char) in UNSEEN or normalize("NFKC", char)[:1] <= "\x7f"


def _folded(steps: Sequence[str]) -> list[str]:
    return [folded(step) for step in steps]


def _may_fit(steps: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether one is relative, the other absolute, and they might be the same in some folder."""
    if _absolute(steps):
        return _match(steps[1:], ["**", *wanted])
    return any(_match(steps, wanted[start:]) for start in range(1, len(wanted) + 1))


def _match(steps: Sequence[str], wanted: Sequence[str]) -> bool:
    """Step by step, all ways at once: `at` holds how many of the wanted steps may have been met."""
    at = _onward({0}, wanted)
    for step in steps:
        met = {place for place in at if place < len(wanted) and wanted[place] == "**"}
        met |= {place + 1 for place in at if place < len(wanted) and _meets(step, wanted[place])}
        at = _onward(met, wanted)
    return len(wanted) in at


def _onward(at: set[int], wanted: Sequence[str]) -> set[int]:
    """With those places that a `**` for no step at all leads to."""
    for place, want in enumerate(wanted):
        if place in at and want == "**":
            at.add(place + 1)
    return at


def _meets(step: str, want: str) -> bool:
    return step == want if want in ("", "**") else fnmatchcase(step, want)
