"""Reads rules from tables of a TOML file that is already parsed: strictly, with errors that name file, rule and field. Pure.

[[policy]]
name = "no force"
tool = "git_*"
effect = ["write"]
verdict = "deny"                      # allow, deny or ask
reason = "History is not rewritten here."
[policy.arguments]
branch = "release/*"                  # a text is a glob; a number or truth value is exactly that; a list is any of them
"options.force" = true                # a dotted path stands in quotes
amount = { above = 0, most = 100 }    # least, most, above, below
file = { path = ["src/**"] }          # with root = "/folder" if it is not the project's
message = { regex = "[A-Z][a-z ]+" }  # or { glob = "..." }, { value = "..." }, { given = false }

[policy_default]
write = "deny"                        # read, idempotent, write
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeVar, get_args

import msgspec

from evener.errors import BadRow, UsageError
from evener.events import Effect
from evener.policy.matchers import Between, Exactly, Given, Glob, Matcher, OneOf, Regex, Scalar, Within
from evener.policy.rules import Defaults, Policy, Rule, Verdict

__all__ = [
    "read_policy",
]


Made = TypeVar("Made")
Word = TypeVar("Word", bound=str)

FIELDS = ("name", "tool", "effect", "arguments", "verdict", "reason")
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
EFFECTS: tuple[Effect, ...] = get_args(Effect)
BOUNDS = ("least", "most", "above", "below")
KINDS = ("value", "glob", "regex", "path", "given")
WORDS = (*KINDS, "root", *BOUNDS)


class _Spot(msgspec.Struct, frozen=True):
    """Where a value stands; all that an error needs to say."""

    file: str
    row: str = ""
    field: str = ""

    def at(self, field: str) -> "_Spot":
        return _Spot(self.file, self.row, f"{self.field}.{field}" if self.field else field)

    def bad(self, what: str, do: str) -> BadRow:
        where = ", ".join(part for part in (self.file, self.row, self.field and f"field {self.field!r}") if part)
        return BadRow(f"{where}: {what}. {do}.")


def read_policy(rows: object, *, file: str, default: object = None, root: str = "") -> Policy:
    """The policy that the tables `[[policy]]` and `[policy_default]` of a file say.

    `root` is the folder where relative paths start for rules that name no other: the folder that the tools work in.
    """
    if not isinstance(rows, list):
        raise _Spot(file, "policy").bad("expected a list of tables", "Write each rule below a line [[policy]]")
    rules = tuple(_rule(_Spot(file, f"policy rule {number}"), row, root) for number, row in enumerate(rows, 1))
    try:
        return Policy(rules, _defaults(_Spot(file, "policy_default"), default))
    except BadRow:
        raise
    except UsageError as error:
        raise _Spot(file, "policy").bad(_words(error), "Change that rule") from None


def _defaults(spot: _Spot, value: object) -> Defaults:
    if value is None:
        return Defaults()
    table = _table(spot, value, EFFECTS)
    stated = {effect: _choice(spot.at(effect), verdict, VERDICTS) for effect, verdict in table.items()}
    return msgspec.convert(stated, Defaults)


def _rule(spot: _Spot, value: object, root: str) -> Rule:
    table = _table(spot, value, FIELDS)
    name = _text(spot.at("name"), table.get("name", ""))
    if name:
        spot = _Spot(spot.file, f"{spot.row} ({name})")
    for field, do in (("tool", 'Say which tools it is about: tool = "*" for all'), ("verdict", f"Write {_or(VERDICTS)}")):
        if field not in table:
            raise spot.at(field).bad("it is missing", do)
    conditions = _table(spot.at("arguments"), table.get("arguments", {}), None)
    arguments = {path: _matcher(spot.at("arguments").at(path), one, root) for path, one in conditions.items()}
    return _made(
        spot,
        lambda: Rule(
            tool=_text(spot.at("tool"), table["tool"]),
            verdict=_choice(spot.at("verdict"), table["verdict"], VERDICTS),
            arguments=arguments,
            effect=_effects(spot.at("effect"), table.get("effect", [])),
            reason=_text(spot.at("reason"), table.get("reason", "")),
            name=name,
        ),
    )


def _effects(spot: _Spot, value: object) -> tuple[Effect, ...]:
    listed = value if isinstance(value, list) else [value]
    return tuple(_choice(spot, one, EFFECTS) for one in listed)


def _matcher(spot: _Spot, value: object, root: str) -> Matcher:
    match value:
        case dict():
            return _stated(spot, value, root)
        case list():
            return _made(spot, lambda: OneOf(tuple(_short(spot, one) for one in value)))
    return _short(spot, value)


def _short(spot: _Spot, value: object) -> Glob | Exactly:
    match value:
        case str():
            return _made(spot, lambda: Glob(value))
        case bool() | int() | float():
            return _made(spot, lambda: Exactly(value))
    raise spot.bad(f"{_word(value)} does not fit", "Write a text, a number, true or false, a list of these, or a table")


def _stated(spot: _Spot, table: dict[str, object], root: str) -> Matcher:
    for key in table:
        if key not in WORDS:
            raise _unknown(spot.at(key), key, WORDS, 'A path to an argument stands in quotes: "options.force" = true')
    kinds = [key for key in KINDS if key in table] + ["bounds"] * any(key in table for key in BOUNDS)
    if len(kinds) != 1 or ("root" in table and kinds != ["path"]):
        raise spot.bad(
            "it must say one thing", f"Write one of {_or(KINDS)} (with root only beside path), or bounds: {_or(BOUNDS)}"
        )
    kind = kinds[0]
    if kind == "bounds":
        return _made(spot, lambda: Between(**{key: _number(spot.at(key), bound) for key, bound in table.items()}))
    inner, given = spot.at(kind), table[kind]
    match kind:
        case "value":
            return _made(inner, lambda: Exactly(_scalar(inner, given)))
        case "glob":
            return _made(inner, lambda: Glob(_text(inner, given)))
        case "regex":
            return _made(inner, lambda: Regex(_text(inner, given)))
        case "path":
            patterns = given if isinstance(given, list) else [given]
            base = _text(spot.at("root"), table.get("root", root))
            return _made(inner, lambda: Within(tuple(_text(inner, one) for one in patterns), base))
    if not isinstance(given, bool):
        raise inner.bad(f"{_word(given)} does not fit", "Write true or false")
    return Given(given)


# Single values.


def _made(spot: _Spot, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except BadRow:
        raise
    except UsageError as error:
        raise spot.bad(_words(error), "Mend that field") from None


def _table(spot: _Spot, value: object, known: tuple[str, ...] | None) -> dict[str, object]:
    if not isinstance(value, dict):
        raise spot.bad(f"expected a table, found {_word(value)}", f"Write fields{': ' + ', '.join(known) if known else ''}")
    for key in value:
        if known is not None and key not in known:
            raise _unknown(spot.at(key), key, known, "")
    return value


def _unknown(spot: _Spot, key: str, known: Iterable[str], more: str) -> BadRow:
    near = get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return spot.bad("there is no such field", f"{hint}Known are {', '.join(known)}{'. ' + more if more else ''}")


def _text(spot: _Spot, value: object) -> str:
    if not isinstance(value, str):
        raise spot.bad(f"{_word(value)} does not fit", "Write a text in quotes")
    return value


def _number(spot: _Spot, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise spot.bad(f"{_word(value)} does not fit", "Write a number")
    return value


def _scalar(spot: _Spot, value: object) -> Scalar:
    if not isinstance(value, str | int | float):
        raise spot.bad(f"{_word(value)} does not fit", "Write a text, a number, true or false")
    return value


def _choice(spot: _Spot, value: object, allowed: tuple[Word, ...]) -> Word:
    for word in allowed:
        if word == value:
            return word
    raise spot.bad(f"{_word(value)} does not fit", f"Write {_or(allowed)}")


def _or(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _words(error: UsageError) -> str:
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:] if not text[:2].isupper() else text


def _word(value: object) -> str:
    """What a value is, without saying the value."""
    names = {bool: "a truth value", int: "a number", float: "a number", str: "this text", list: "a list", dict: "a table"}
    return names.get(type(value), "a value of this kind")
