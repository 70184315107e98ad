"""Finds what the references of a JSON Schema refer to: pointers, `$anchor`, `$id` with nested bases, `$dynamicRef`. Pure.

It fetches nothing: what is not inside of the schema is not found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin

from evener.errors import UsageError
from evener.transcript.scan import NAMED, find_cycle, resolve_pointer

if TYPE_CHECKING:
    import jsonschema_rs

Schema = Mapping[str, object]
Step = str | int | tuple[str, str]

ONE = frozenset(
    "additionalProperties propertyNames items additionalItems contains not if then else unevaluatedItems unevaluatedProperties "
    "contentSchema".split()
)
SEVERAL = frozenset("prefixItems allOf anyOf oneOf".split())
IN_PLACE = ("anyOf", "oneOf", "allOf")
"""Keywords whose schemas look at the same value."""
NAMES_ONLY = ("$defs", "definitions", "contentSchema")
"""Keywords whose schemas are not applied."""
USUAL = 9
"""How often an ordinary schema may apply a subschema to the same part of a value."""


class References:
    """The subschemas of one schema by their places (`#/$defs/a`), and by the names that references may use."""

    def __init__(self, schema: Schema) -> None:
        self.places: dict[str, Schema] = {}
        self._root = schema
        self._bases: dict[int, str] = {}
        self._resources: dict[str, Schema] = {"": schema}
        self._anchors: dict[tuple[str, str], Schema] = {}
        self._dynamic: dict[str, list[Schema]] = {}
        self._applied: dict[int, tuple[Schema, ...]] = {}
        self._index(schema)

    def find(self, uri: str, base: str = "") -> object:
        """Return what a URI with a fragment refers to, as seen from a base; None if it is not inside of the schema."""
        found, _, fragment = (base + uri if uri.startswith("#") else urljoin(base, uri)).partition("#")
        resource = self._resources.get(found)
        if resource is None or (fragment and not fragment.startswith("/")):
            return self._anchors.get((found, unquote(fragment)))
        return resolve_pointer(resource, f"#{fragment}")

    def targets(self, node: Schema) -> Iterator[object]:
        """Yield the schemas that the references of a schema refer to. A dynamic one may have several."""
        base = self._bases.get(id(node), self._bases[id(self._root)])
        if isinstance(ref := node.get("$ref"), str):
            yield self.find(ref, base)
        if isinstance(dynamic := node.get("$dynamicRef"), str):
            found = self.find(dynamic, base)
            name = unquote(dynamic.partition("#")[2])
            if not isinstance(found, Mapping) or found.get("$dynamicAnchor") != name:
                yield found
            elif self._root.get("$dynamicAnchor") == name:
                yield self._root  # the outermost schema of this name applies
            else:
                yield from self._dynamic[name]

    def applied(self, node: Schema) -> tuple[Schema, ...]:
        """Return the schemas that a schema applies to the very value that it is applied to, and whose problems are its own."""
        known = self._applied.get(id(node))
        if known is None:
            found = [*self.targets(node)]
            for keyword in IN_PLACE:
                parts = node.get(keyword)
                found += parts if isinstance(parts, list) else []
            found += [node.get(keyword) for keyword in ("then", "else") if "if" in node]
            dependent = node.get("dependentSchemas")
            found += dependent.values() if isinstance(dependent, Mapping) else []
            known = self._applied[id(node)] = tuple(one for one in found if isinstance(one, Mapping))
        return known

    def in_place(self, node: Schema, tried: Iterable[str] = ("not", "if")) -> list[Schema]:
        """Return the schemas of `applied`, and those that are only tried: no problem of theirs is one of the value."""
        found = (node.get(keyword) for keyword in tried)
        return [*self.applied(node), *(one for one in found if isinstance(one, Mapping))]

    def refuse_loops(self, where: str) -> None:
        """Refuse a schema that refers to itself without going deeper into the value: such a check would never end."""
        places = {id(node): place for place, node in self.places.items()}

        def onward(place: str) -> list[str]:
            return [places[id(one)] for one in self.in_place(self.places[place]) if id(one) in places]

        loop = find_cycle(self.places, onward)
        if loop is not None:
            raise UsageError(f"{where}: {loop[:80]} refers to itself without end. Correct the schema.")

    def count_ways(self, *, most: int) -> int:
        """Return how often subschemas may meet the parts on one path into a value. Stop above `most`.

        References back to a schema that is being counted are left out: `jsonschema-rs` remembers the verdicts of those.
        """
        ways: dict[int, int] = {}
        stack: list[Schema] = [self._root]
        while stack:
            node = stack[-1]
            several, one = self._onward(node)
            if id(node) in ways:
                stack.pop()
                alone = sum(max((ways[id(part)] for part in parts), default=0) for parts in one)
                ways[id(node)] = min(most + 1, 1 + alone + sum(ways[id(part)] for part in several))
            else:
                ways[id(node)] = 0
                stack += [part for part in (*several, *one[0], *one[1]) if id(part) not in ways]
        return ways[id(self._root)]

    def _onward(self, node: Schema) -> tuple[list[Schema], tuple[list[Schema], list[Schema]]]:
        """Return the schemas that may all meet one path into a value, and those of which one does."""
        several = [part for part in self.targets(node) if isinstance(part, Mapping)]
        one: dict[str, list[Schema]] = {"properties": [], "prefixItems": []}
        for step, part in list_subschemas(node):
            keyword = step.partition("/")[0]
            if keyword not in NAMES_ONLY:
                one.get(keyword, several).append(part)
        return several, (one["properties"], one["prefixItems"])

    def meets_often(self, value: object, *, most: int, tried: Sequence[str] = ()) -> bool:
        """True if subschemas meet the same parts of a value again and again, as by alternatives inside of alternatives.

        `tried` names keywords that count, too, although they explain nothing: `not`, `if`, `contains`.
        """
        met = different = 0
        left: list[tuple[object, list[Schema]]] = [(value, [self._root])]
        while left:
            part, nodes = left.pop()
            seen: set[int] = set()
            below: dict[Step, tuple[object, list[Schema]]] = {}
            while nodes:
                node = nodes.pop()
                met += 1
                different += id(node) not in seen
                seen.add(id(node))
                if met > most + USUAL * different:
                    return True
                nodes += self.in_place(node, [keyword for keyword in tried if keyword != "contains"])
                for step, inner, applied in _list_meetings(node, part, tried):
                    below.setdefault(step, (inner, []))[1].append(applied)
            left += below.values()
        return False

    def _index(self, schema: Schema) -> None:
        left: list[tuple[Schema, str, str]] = [(schema, "", "#")]
        while left:
            node, base, place = left.pop()
            if isinstance(name := node.get("$id"), str):
                base = urljoin(base, name).partition("#")[0]
                self._resources.setdefault(base, node)
            self.places[place] = node
            self._bases[id(node)] = base
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := node.get(keyword), str):
                    self._anchors[base, anchor] = node
            if isinstance(dynamic := node.get("$dynamicAnchor"), str):
                self._dynamic.setdefault(dynamic, []).append(node)
            left += [(part, base, f"{place}/{step}") for step, part in list_subschemas(node)]


def list_subschemas(node: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas that stand in a schema itself, each with its place in it."""
    for keyword, said in node.items():
        if keyword in ONE and isinstance(said, Mapping):
            yield keyword, said
        elif keyword in SEVERAL and isinstance(said, list):
            yield from ((f"{keyword}/{number}", part) for number, part in enumerate(said) if isinstance(part, Mapping))
        elif keyword in NAMED and isinstance(said, Mapping):
            for name, part in said.items():
                if isinstance(part, Mapping):
                    yield f"{keyword}/{name.replace('~', '~0').replace('/', '~1')}", part


def _list_meetings(node: Schema, part: object, tried: Sequence[str]) -> Iterator[tuple[Step, object, Schema]]:
    """Yield the schemas that a schema applies inside of a value: with the step to the inner value, and that value."""
    match part:
        case dict():
            pairs = _list_of_fields(node, part)
        case list():
            pairs = _list_of_items(node, part, node.get("contains") if "contains" in tried else None)
        case _:
            return
    yield from ((step, inner, schema) for step, inner, schema in pairs if isinstance(schema, Mapping))


def _list_of_fields(node: Schema, part: Mapping[str, object]) -> Iterator[tuple[Step, object, object]]:
    fields, patterns = _get_map(node, "properties"), _get_map(node, "patternProperties")
    others, names = node.get("additionalProperties"), node.get("propertyNames")
    if not (fields or patterns or others or names):
        return
    for name, inner in part.items():
        found = [fields[name]] if name in fields else []
        found += [schema for pattern, schema in patterns.items() if matches(pattern, name)]
        yield from ((name, inner, schema) for schema in found or (others,))
        yield ("name", name), name, names


def _list_of_items(node: Schema, part: list[object], contained: object) -> Iterator[tuple[Step, object, object]]:
    first = node.get("prefixItems")
    places = first if isinstance(first, list) else []
    rest = node.get("items")
    for number, inner in enumerate(part if rest or contained else part[: len(places)]):
        yield number, inner, places[number] if number < len(places) else rest
        yield number, inner, contained


def _get_map(node: Schema, keyword: str) -> Mapping[str, object]:
    found = node.get(keyword)
    return found if isinstance(found, Mapping) else {}


def matches(pattern: str, text: str) -> bool:
    """True if a text matches a pattern, as `jsonschema-rs` reads it."""
    return compile_pattern(pattern).is_valid(text)


@lru_cache(1_024)
def compile_pattern(pattern: str) -> "jsonschema_rs.Validator":
    """Return a validator of this pattern. Raises `jsonschema_rs.ValidationError` if it cannot be matched in linear time."""
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
