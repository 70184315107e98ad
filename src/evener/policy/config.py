"""Reads rules from the tables of a parsed TOML file: strictly, with errors that name file, rule and field. Pure.

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

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar, get_args

import msgspec

from evener.errors import BadRow, UsageError
from evener.events import Effect
from evener.policy.matchers import Between, Exactly, Given, Glob, Matcher, Regex, Within, matcher_of
from evener.policy.rules import Defaults, Policy, Rule, Verdict

Value = TypeVar("Value")
Word = TypeVar("Word", bound=str)

FIELDS = ("name", "tool", "effect", "arguments", "verdict", "reason")
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
EFFECTS: tuple[Effect, ...] = get_args(Effect)
BOUNDS = ("least", "most", "above", "below")
KINDS = ("value", "glob", "regex", "path", "given")
WORDS = (*KINDS, "root", *BOUNDS)
SCALAR = "Write a text, a number, true or false"
NAMES = {bool: "a truth value", int: "a number", float: "a number", str: "this text", list: "a list", dict: "a table"}


class _Spot(msgspec.Struct, frozen=True):
    """The place of a value in the file, for errors."""

    file: str
    row: str = ""
    field: str = ""

    def at(self, field: str) -> "_Spot":
        return _Spot(self.file, self.row, f"{self.field}.{field}" if self.field else field)

    def bad(self, what: str, do: str) -> BadRow:
        where = ", ".join(part for part in (self.file, self.row, self.field and f"field {self.field!r}") if part)
        return BadRow(f"{where}: {what}. {do}.")

    def unfit(self, value: object, do: str) -> BadRow:
        return self.bad(f"{_name(value)} does not fit", do)

    @contextmanager
    def blame(self, do: str = "Correct that field") -> Iterator[None]:
        """Add this place in the file to a UsageError that is raised inside."""
        try:
            yield
        except BadRow:
            raise
        except UsageError as error:
            text = str(error).rstrip(".")
            raise self.bad(text if text[:2].isupper() else text[:1].lower() + text[1:], do) from None


def read_policy(rows: object, *, file: str, default: object = None, root: str = "") -> Policy:
    """Return the policy that the tables `[[policy]]` and `[policy_default]` of a file describe.

    `root` is the folder in which the tools work. Relative paths of rules without a root of their own begin there.
    """
    spot = _Spot(file, "policy")
    if not isinstance(rows, list):
        raise spot.bad("expected a list of tables", "Write each rule below a line [[policy]]")
    rules = tuple(_read_rule(_Spot(file, f"policy rule {number}"), row, root) for number, row in enumerate(rows, 1))
    spot_default = _Spot(file, "policy_default")
    table = _read_table(spot_default, {} if default is None else default, EFFECTS)
    stated = {effect: _read_choice(spot_default.at(effect), verdict, VERDICTS) for effect, verdict in table.items()}
    with spot.blame("Change that rule"):
        return Policy(rules, msgspec.convert(stated, Defaults))


def _read_rule(spot: _Spot, value: object, root: str) -> Rule:
    table = _read_table(spot, value, FIELDS)
    name = _read_text(spot.at("name"), table.get("name", ""))
    if name:
        spot = _Spot(spot.file, f"{spot.row} ({name})")
    for field, do in (("tool", 'Say which tools it is about: tool = "*" for all'), ("verdict", f"Write {_or(VERDICTS)}")):
        if field not in table:
            raise spot.at(field).bad("it is missing", do)
    conditions = _read_table(spot.at("arguments"), table.get("arguments", {}), None)
    effects = table.get("effect", [])
    effects = effects if isinstance(effects, list) else [effects]
    with spot.blame():
        return Rule(
            tool=_read_text(spot.at("tool"), table["tool"]),
            verdict=_read_choice(spot.at("verdict"), table["verdict"], VERDICTS),
            arguments={path: _read_matcher(spot.at("arguments").at(path), one, root) for path, one in conditions.items()},
            effect=tuple(_read_choice(spot.at("effect"), one, EFFECTS) for one in effects),
            reason=_read_text(spot.at("reason"), table.get("reason", "")),
            name=name,
        )


def _read_matcher(spot: _Spot, value: object, root: str) -> Matcher:
    """Return the matcher for a table, or for a value as its short form."""
    if isinstance(value, dict):
        return _read_table_matcher(spot, value, root)
    for one in value if isinstance(value, list) else [value]:
        _check_kind(spot, one, (str, int, float), f"{SCALAR}, a list of these, or a table")
    with spot.blame():
        return matcher_of(value)  # type: ignore[arg-type]  # a scalar or a list of them, see above


def _read_table_matcher(spot: _Spot, table: dict[str, object], root: str) -> Matcher:
    for key in table:
        if key not in WORDS:
            raise _refuse_unknown(spot.at(key), key, WORDS, 'Write a path to an argument in quotes: "options.force" = true')
    kinds = [key for key in KINDS if key in table] + ["bounds"] * any(key in table for key in BOUNDS)
    if len(kinds) != 1 or ("root" in table and kinds != ["path"]):
        raise spot.bad(
            "it must have exactly one kind of condition",
            f"Write one of {_or(KINDS)} (with root only beside path), or bounds: {_or(BOUNDS)}",
        )
    kind = kinds[0]
    if kind == "bounds":
        with spot.blame():
            return Between(**{key: _read_number(spot.at(key), bound) for key, bound in table.items()})
    inner, given = spot.at(kind), table[kind]
    with inner.blame():
        match kind:
            case "value":
                _check_kind(inner, given, (str, int, float), SCALAR)
                return Exactly(given)  # type: ignore[arg-type]  # see above
            case "glob":
                return Glob(_read_text(inner, given))
            case "regex":
                return Regex(_read_text(inner, given))
            case "path":
                patterns = given if isinstance(given, list) else [given]
                base = _read_text(spot.at("root"), table.get("root", root))
                return Within(tuple(_read_text(inner, one) for one in patterns), base)
            case _:
                return Given(_check_kind(inner, given, (bool,), "Write true or false"))


# Single values.


def _read_table(spot: _Spot, value: object, known: tuple[str, ...] | None) -> dict[str, object]:
    if not isinstance(value, dict):
        raise spot.bad(f"expected a table, found {_name(value)}", f"Write fields{': ' + ', '.join(known) if known else ''}")
    for key in value:
        if known is not None and key not in known:
            raise _refuse_unknown(spot.at(key), key, known, "")
    return value


def _refuse_unknown(spot: _Spot, key: str, known: Iterable[str], more: str) -> BadRow:
    near = get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return spot.bad("there is no such field", f"{hint}Known are {', '.join(known)}{'. ' + more if more else ''}")


def _check_kind(spot: _Spot, value: object, kinds: tuple[type[Value], ...], do: str) -> Value:
    if not isinstance(value, kinds):
        raise spot.unfit(value, do)
    return value


def _read_text(spot: _Spot, value: object) -> str:
    return _check_kind(spot, value, (str,), "Write a text in quotes")


def _read_number(spot: _Spot, value: object) -> float:
    if isinstance(value, bool):
        raise spot.unfit(value, "Write a number")
    return _check_kind(spot, value, (int, float), "Write a number")


def _read_choice(spot: _Spot, value: object, allowed: tuple[Word, ...]) -> Word:
    for word in allowed:
        if word == value:
            return word
    raise spot.unfit(value, f"Write {_or(allowed)}")


def _or(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _name(value: object) -> str:
    """Return the kind of a value, for an error message that must not show the value."""
    return NAMES.get(type(value), "a value of this kind")
