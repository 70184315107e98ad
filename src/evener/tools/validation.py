"""Checks JSON values against a JSON Schema, and says everything that is wrong in words for a model. Pure; bounded in time.

A schema is compiled once, when a tool is made. What it says that makes no sense is a UsageError then; what it says that is
not enforced here stands in `Validator.unenforced`. A check visits at most as many places as the text of the value allows,
so that schemas which branch at each level cannot hold it up.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from evener.errors import UsageError
from evener.policy.patterns import Pattern
from evener.tools.keywords import PLAIN, Test, Unenforced, expected, kind_of, pattern_of, types_of
from evener.tools.problems import Problem, dotted
from evener.tools.references import refuse_loops, target

__all__ = ["Validator"]

SILENT = frozenset(
    "$schema $id $anchor $comment $defs definitions title description default examples example deprecated readOnly "
    "writeOnly contentEncoding contentMediaType discriminator propertyOrdering nullable additionalItems then else".split()
)
"""Keywords that ask for nothing, or that are read along with another one."""
LEAST_VISITS = 100_000
VISITS_PER_BYTE = 50
MOST_DEEP = 200
MOST_PROBLEMS = 100

Path = tuple["Path", str | int] | None
Check = Callable[[object, Path, "_Found"], None]
Finding = tuple[Path, str]


class _TooMuch(Exception):
    """The value takes too long to check."""


class _Found:
    """What one check has found, and how far it may still go."""

    def __init__(self, left: int) -> None:
        self.problems: list[Finding] = []
        self.left = left

    def add(self, path: Path, message: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append((path, message))

    def branch(self) -> "_Found":
        return _Found(self.left)


class _Node:
    """A compiled schema: the types it takes (None for any) and its checks."""

    __slots__ = ("checks", "types")

    def __init__(self) -> None:
        self.types: frozenset[str] | None = None
        self.checks: list[Check] = []

    def check(self, value: object, path: Path, found: _Found) -> None:
        found.left -= 1
        if found.left < 0:
            raise _TooMuch
        types = self.types
        if types is not None and kind_of(value) not in types:
            found.add(path, expected(types, value))
            return
        for check in self.checks:
            check(value, path, found)


class Validator:
    """A compiled schema. `unenforced` names the keywords that are not checked here, each with its place."""

    def __init__(self, schema: Mapping[str, object], *, where: str = "The schema") -> None:
        compiler = _Compiler(schema, where)
        self._root = compiler.root()
        self.unenforced: tuple[str, ...] = tuple(compiler.unenforced)

    def problems(self, value: object, *, size: int = 0) -> tuple[Problem, ...]:
        """Everything that is wrong with a value; `size` is the length of its JSON text."""
        found = _Found(LEAST_VISITS + VISITS_PER_BYTE * size)
        try:
            self._root.check(value, None, found)
        except (_TooMuch, RecursionError):
            return (Problem("", "too large or too deep to be checked"),)
        if not found.problems:
            return ()
        return tuple(Problem(_text(path), message) for path, message in found.problems)


class _Compiler:
    """One schema on its way to nodes. Places that are referred to are compiled once, so recursion is no problem."""

    def __init__(self, schema: Mapping[str, object], where: str) -> None:
        self.schema = schema
        self.where = where
        self.unenforced: dict[str, None] = {}
        self.places: dict[str, _Node] = {}
        self.depth = 0

    def root(self) -> _Node:
        refuse_loops(self.schema, self.where)
        return self.node(self.schema, "")

    def node(self, schema: object, place: str) -> _Node:
        node = _Node()
        self._fill(node, schema, place)
        return node

    def _fill(self, node: _Node, schema: object, place: str) -> None:
        if schema is False:
            node.checks.append(lambda _value, path, found: found.add(path, "must not be given"))
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            raise UsageError(f"{self.at(place)} is not a schema but {repr(schema)[:80]}. A schema is an object, true or false.")
        self.depth += 1
        if self.depth > MOST_DEEP:
            raise UsageError(f"{self.where} is nested too deep. Simplify it.")
        if "type" in schema:
            node.types = types_of(schema["type"], self.at(place)) | (
                {"null"} if schema.get("nullable") is True else frozenset()
            )
        for keyword in schema:
            if keyword != "type" and keyword not in SILENT:
                self._keyword(node, schema, keyword, place)
        self.depth -= 1

    def _keyword(self, node: _Node, schema: Mapping[str, object], keyword: str, place: str) -> None:
        try:
            if keyword in PLAIN:
                node.checks.append(_plain(PLAIN[keyword](schema[keyword], self.at(place))))
            elif keyword in APPLIED:
                check = APPLIED[keyword](self, schema, f"{place}.{keyword}")
                node.checks.extend([check] if check else [])
            else:
                raise Unenforced("the keyword is not known")
        except Unenforced as error:
            self.unenforced[f"{f'{place}.{keyword}'.removeprefix('.')}: {error}"] = None

    def at(self, place: str) -> str:
        return f"{self.where} at {place.removeprefix('.')}" if place else self.where

    def nodes(self, schema: Mapping[str, object], keyword: str, place: str) -> dict[str, _Node]:
        said = schema[keyword]
        if not isinstance(said, dict):
            raise self.nonsense(place, "an object of schemas", said)
        return {name: self.node(part, f"{place}.{name}") for name, part in said.items()}

    def row(self, schema: Mapping[str, object], keyword: str, place: str) -> list[_Node]:
        said = schema[keyword]
        if not isinstance(said, list):
            raise self.nonsense(place, "a list of schemas", said)
        return [self.node(part, f"{place}[{number}]") for number, part in enumerate(said)]

    def nonsense(self, place: str, right: str, said: object) -> UsageError:
        return UsageError(f"{self.at(place)} must be {right}, not {repr(said)[:80]}. Correct the schema.")

    # The keywords that hold schemas.

    def ref(self, schema: Mapping[str, object], _place: str) -> Check:
        name = str(schema["$ref"])
        if name not in self.places:
            self.places[name] = node = _Node()
            self._fill(node, target(self.schema, name, self.where), name)
        return self.places[name].check

    def properties(self, schema: Mapping[str, object], place: str) -> Check:
        nodes = self.nodes(schema, "properties", place)

        def check(value: object, path: Path, found: _Found) -> None:
            if isinstance(value, dict):
                for name, item in value.items():
                    node = nodes.get(name)
                    if node is not None:
                        node.check(item, (path, name), found)

        return check

    def required(self, schema: Mapping[str, object], place: str) -> Check:
        names = schema["required"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.nonsense(place, "a list of names", names)
        needed = frozenset(names)

        def check(value: object, path: Path, found: _Found) -> None:
            if isinstance(value, dict) and not value.keys() >= needed:
                for name in names:
                    if name not in value:
                        found.add((path, name), "required, but missing")

        return check

    def more_properties(self, schema: Mapping[str, object], place: str) -> Check:
        known = schema.get("properties")
        names = list(known) if isinstance(known, dict) else []
        named = frozenset(names)
        patterns = self.patterns(schema)
        said = schema["additionalProperties"]
        node = self.node(said, place)

        def check(value: object, path: Path, found: _Found) -> None:
            if not isinstance(value, dict) or value.keys() <= named:
                return
            for name, item in value.items():
                if name in named or any(pattern.occurs_in(name) for pattern in patterns):
                    continue
                if said is False:
                    found.add((path, name), _unknown(name, names))
                else:
                    node.check(item, (path, name), found)

        return check

    def patterns(self, schema: Mapping[str, object]) -> list[Pattern]:
        said = schema.get("patternProperties")
        return [pattern_of(name, self.where) for name in said] if isinstance(said, dict) else []

    def pattern_properties(self, schema: Mapping[str, object], place: str) -> Check:
        patterns = self.patterns(schema)
        nodes = list(self.nodes(schema, "patternProperties", place).values())

        def check(value: object, path: Path, found: _Found) -> None:
            if isinstance(value, dict):
                for name, item in value.items():
                    for pattern, node in zip(patterns, nodes, strict=True):
                        if pattern.occurs_in(name):
                            node.check(item, (path, name), found)

        return check

    def property_names(self, schema: Mapping[str, object], place: str) -> Check:
        node = self.node(schema["propertyNames"], place)

        def check(value: object, path: Path, found: _Found) -> None:
            if isinstance(value, dict):
                for name in value:
                    inner = found.branch()
                    node.check(name, None, inner)
                    found.left = inner.left
                    for _, message in inner.problems:
                        found.add((path, name), f"as a name, it {message}")

        return check

    def items(self, schema: Mapping[str, object], place: str) -> Check | None:
        """The items after those that `prefixItems` (or, of old, a list here) speaks of."""
        said = schema["items"]
        if isinstance(said, list):
            return self._row_then(self.row(schema, "items", place), self.node(schema.get("additionalItems", True), place))
        first = schema.get("prefixItems")
        return self._row_then([_Node()] * (len(first) if isinstance(first, list) else 0), self.node(said, place))

    def prefix_items(self, schema: Mapping[str, object], place: str) -> Check:
        return self._row_then(self.row(schema, "prefixItems", place), _Node())

    def _row_then(self, row: list[_Node], rest: _Node) -> Check:
        def check(value: object, path: Path, found: _Found) -> None:
            if isinstance(value, list):
                for number, item in enumerate(value):
                    (row[number] if number < len(row) else rest).check(item, (path, number), found)

        return check

    def all_of(self, schema: Mapping[str, object], place: str) -> Check:
        nodes = self.row(schema, "allOf", place)

        def check(value: object, path: Path, found: _Found) -> None:
            for node in nodes:
                node.check(value, path, found)

        return check

    def any_of(self, schema: Mapping[str, object], place: str) -> Check:
        nodes = self.row(schema, "anyOf", place)

        def check(value: object, path: Path, found: _Found) -> None:
            _nearest(nodes, value, path, found)

        return check

    def one_of(self, schema: Mapping[str, object], place: str) -> Check:
        nodes = self.row(schema, "oneOf", place)

        def check(value: object, path: Path, found: _Found) -> None:
            fitting = _nearest(nodes, value, path, found, all_of_them=True)
            if fitting > 1:
                found.add(path, f"must fit exactly one of {len(nodes)} forms, but fits {fitting}")

        return check

    def not_(self, schema: Mapping[str, object], place: str) -> Check:
        node = self.node(schema["not"], place)

        def check(value: object, path: Path, found: _Found) -> None:
            if _fits(node, value, path, found):
                found.add(path, "has a form that is not allowed")

        return check

    def if_(self, schema: Mapping[str, object], place: str) -> Check:
        condition = self.node(schema["if"], place)
        then, otherwise = self.node(schema.get("then", True), place), self.node(schema.get("else", True), place)

        def check(value: object, path: Path, found: _Found) -> None:
            (then if _fits(condition, value, path, found) else otherwise).check(value, path, found)

        return check


APPLIED: dict[str, Callable[[_Compiler, Mapping[str, object], str], Check | None]] = {
    "$ref": _Compiler.ref,
    "properties": _Compiler.properties,
    "required": _Compiler.required,
    "additionalProperties": _Compiler.more_properties,
    "patternProperties": _Compiler.pattern_properties,
    "propertyNames": _Compiler.property_names,
    "items": _Compiler.items,
    "prefixItems": _Compiler.prefix_items,
    "allOf": _Compiler.all_of,
    "anyOf": _Compiler.any_of,
    "oneOf": _Compiler.one_of,
    "not": _Compiler.not_,
    "if": _Compiler.if_,
}


def _plain(test: Test) -> Check:
    def check(value: object, path: Path, found: _Found) -> None:
        wrong = test(value)
        if wrong is not None:
            found.add(path, wrong)

    return check


def _fits(node: _Node, value: object, path: Path, found: _Found) -> bool:
    inner = found.branch()
    node.check(value, path, inner)
    found.left = inner.left
    return not inner.problems


def _nearest(nodes: list[_Node], value: object, path: Path, found: _Found, *, all_of_them: bool = False) -> int:
    """How many of the forms a value fits. If it fits none, what keeps it from the one that it comes nearest to."""
    fitting = 0
    tries: list[list[Finding]] = []
    for node in nodes:
        inner = found.branch()
        node.check(value, path, inner)
        found.left = inner.left
        fitting += not inner.problems
        if fitting and not all_of_them:
            return fitting
        tries.append(inner.problems)
    if fitting == 0:
        found.problems += _best(nodes, tries, value, path)
    return fitting


def _best(nodes: list[_Node], tries: list[list[Finding]], value: object, path: Path) -> list[Finding]:
    kind = kind_of(value)
    typed = [node.types for node in nodes if node.types is not None]
    if len(typed) == len(nodes) and not any(kind in types for types in typed):
        return [(path, expected(frozenset().union(*typed), value))]
    near = [found for node, found in zip(nodes, tries, strict=True) if node.types is None or kind in node.types]
    return min(near or tries, key=len, default=[(path, "fits none of the allowed forms")])


def _unknown(name: str, names: list[str]) -> str:
    near = get_close_matches(name[:100], names, n=1)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; the fields are {', '.join(names[:50])}" if names else "unknown field; there are no fields"


def _text(path: Path) -> str:
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return dotted(steps[::-1])
