"""The fence: which paths below one root may be read and written. Pure; file tools, search and shell all use it.

A pattern is matched step by step: `*` within a step, `**` for any number of steps, `{a,b}` for either. A pattern without a
slash, or with one at its end only, matches that name anywhere; `./` at its beginning means the root. Everything below a
folder that matches, matches, too. A path that matches a denied pattern in another case, or with look-alikes, is also denied.
Paths are those that the kernel found, so their characters have no special meaning.
"""

import posixpath
import re
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from evener.errors import BadValue
from evener.policy.matchers import fold_text
from evener.transcript.blocks import as_tuple, check_text

Access = Literal["read", "write"]

PRIVATE = (".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc", ".ssh", ".aws", ".gnupg")
"""Names that usually hold secrets: denied unless the program says otherwise."""
MOST_EXPANDED = 256


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The paths below the root that may be used.

    `deny` are patterns that can be neither read, written nor listed; `read_only` ones can be read. With `allow`, only paths
    that match one of its patterns exist for the tools. `writable` False makes everything read-only.
    """

    deny: tuple[str, ...] = PRIVATE
    read_only: tuple[str, ...] = (".git",)
    allow: tuple[str, ...] = ()
    writable: bool = True

    def __post_init__(self) -> None:
        for name in ("deny", "read_only", "allow"):
            patterns = as_tuple(getattr(self, name), f"Fence.{name}")
            for pattern in patterns:
                check_text(pattern, f"Each of Fence.{name}")
                if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
                    raise BadValue(f"Fence.{name}: {pattern!r} is no pattern below the root. Write it relative, without '..'.")
                if not (expanded := expand_braces(pattern)) or not all(one.strip("./") for one in expanded):
                    raise BadValue(
                        f"Fence.{name}: {pattern[:80]!r} names nothing below the root, or has too many alternatives in braces. "
                        "Write several patterns."
                    )
            force_setattr(self, name, patterns)

    def refuse(self, path: str, access: Access) -> str:
        """Return why a path relative to the root may not be accessed in this way; empty if it may. The root itself is `.`."""
        if path in ("", "."):
            return "" if access == "read" or self.writable else "Nothing may be written here."
        denied = match_any(path, self.deny)
        if denied:
            return f"{path} is denied by the pattern {denied!r}."
        if self.allow and not match_any(path, self.allow, sure=True):
            return f"{path} is not among what is allowed here: {', '.join(self.allow)}."
        if access == "read":
            return ""
        if not self.writable:
            return "Nothing may be written here: the tools are read-only."
        kept = match_any(path, self.read_only)
        return f"{path} is read-only by the pattern {kept!r}." if kept else ""

    def may_hold(self, path: str) -> bool:
        """True if a folder may be searched: it is not denied, and something allowed may be below it."""
        return path in ("", ".") or not match_any(path, self.deny)


def match_any(path: str, patterns: tuple[str, ...], *, sure: bool = False) -> str:
    """Return the first pattern that matches the path or a folder above it; empty if none.

    `sure`: similar-looking names do not match.
    """
    if not patterns:
        return ""
    plain = posixpath.normpath(path)
    hit = compile_patterns(patterns, sure).match(plain)
    if hit is None and not sure and not plain.isascii():
        hit = compile_patterns(patterns, sure).match("/".join(map(fold_text, plain.split("/"))))
    return "" if hit is None else patterns[int((hit.lastgroup or "p0")[1:])]


@lru_cache(256)
def compile_patterns(patterns: tuple[str, ...], sure: bool = False, below: bool = True) -> "re.Pattern[str]":
    """Return one expression for all patterns, with a named group for each.

    `below`: also match everything below a matching folder.
    """
    whole = "|".join(f"(?P<p{number}>{_translate(pattern, below)})" for number, pattern in enumerate(patterns))
    return re.compile(rf"(?:{whole}){'(?:/.*)?' if below else ''}\Z", re.DOTALL | (0 if sure else re.IGNORECASE))


BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Return the alternatives of a pattern with `{a,b}`, as in a shell; nothing if there are too many."""
    made: list[str] = []
    left = [pattern]
    while left and len(made) + len(left) <= MOST_EXPANDED:
        one = left.pop()
        if (found := BRACES.search(one)) is None:
            made.append(one)
        else:
            left += [f"{one[: found.start()]}{choice}{one[found.end() :]}" for choice in found[1].split(",")]
    return () if left else tuple(dict.fromkeys(made))


def _translate(pattern: str, below: bool) -> str:
    return "|".join(_translate_steps(one, below) for one in expand_braces(pattern))


def _translate_steps(pattern: str, below: bool) -> str:
    given = pattern.rstrip("/").split("/")
    steps = given if len(given) > 1 else ["**", *given]
    steps = [step for step, after in pairwise((*steps, "")) if step not in ("", ".") and (step, after) != ("**", "**")]
    while below and len(steps) > 1 and steps[-1] == "**":
        steps.pop()
    return "".join(_step(step, last=number == len(steps) - 1) for number, step in enumerate(steps))


ANY = re.compile(r"\\.|\[\^?[^\]]*\]|\.", re.DOTALL)


def _within_step(found: "re.Match[str]") -> str:
    """Return the expression of one character, so that it cannot match a slash."""
    text = found[0]
    return "[^/]" if text == "." else f"{text[:-1]}/]" if text.startswith("[^") else text


def _step(step: str, *, last: bool) -> str:
    if step == "**":
        return ".*" if last else "(?:[^/]+/)*"
    inner = ANY.sub(_within_step, translate(step)[4:-3])  # without `(?s:` and `)\Z`, which newer Pythons write as `)\z`
    return inner if last else f"{inner}/"
