"""The subsets of JSON Schema that strict tools and output formats accept. Walks with a stack, never by recursion.

Each provider's subset is a `Dialect` record; another wire adds a record, not code. Values under `enum`, `const` and
`default` are data, not schemas, and are never walked. Unknown keywords pass: only what a sheet names is reported.
"""

from collections.abc import Iterator, Mapping

import msgspec

from evener.testing.check.shape import fields, is_number, items, join, shown, text
from evener.testing.check.violation import Violation


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one provider's strict mode refuses."""

    banned: frozenset[str]
    object_root: bool = False
    all_required: bool = False
    bare_refs: bool = False
    recursion: bool = True
    primitive_enums: bool = False
    max_min_items: int | None = None
    formats: frozenset[str] | None = None


# Sheet anthropic-messages section 6: closed objects, no ranges or lengths, no oneOf, no recursion, listed formats only.
ANTHROPIC = Dialect(
    banned=frozenset(
        (
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
            *("minLength", "maxLength", "maxItems", "patternProperties", "oneOf"),
        )
    ),
    recursion=False,
    primitive_enums=True,
    max_min_items=1,
    formats=frozenset(
        ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
    ),
)

# Sheet openai-responses section 5. `not` and `if` are unverified there, so they pass; so do the range keywords.
OPENAI = Dialect(
    banned=frozenset(("allOf", "oneOf", "patternProperties")),
    object_root=True,
    all_required=True,
    bare_refs=True,
)

_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def check_subset(path: str, schema: object, dialect: Dialect) -> Iterator[Violation]:
    """Reports everything in one schema that the dialect refuses."""
    if not isinstance(schema, dict):
        yield Violation(path, "type", "Input should be an object (a JSON Schema).")
        return
    root = fields(schema)
    if dialect.object_root and (root.get("type") != "object" or "anyOf" in root):
        yield Violation(path, "schema.root", "The schema's root must have type 'object' and no anyOf.")
    for node_path, node in _walk(path, root):
        yield from _check_node(node_path, node, dialect)
    if not dialect.recursion:
        yield from _check_recursion(path, root)


def _walk(path: str, root: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    stack: list[tuple[str, Mapping[str, object]]] = [(path, root)]
    while stack:
        node_path, node = stack.pop()
        yield node_path, node
        for child_path, child in _children(node_path, node):
            if isinstance(child, dict):
                stack.append((child_path, fields(child)))


def _children(path: str, node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for keyword in _MAPS:
        for name, child in fields(node.get(keyword)).items():
            yield f"{path}.{keyword}.{name}", child
    for keyword in _LISTS:
        for index, child in enumerate(items(node.get(keyword))):
            yield f"{path}.{keyword}.{index}", child
    for keyword in _SINGLES:
        yield f"{path}.{keyword}", node.get(keyword)


def _check_node(path: str, node: Mapping[str, object], dialect: Dialect) -> Iterator[Violation]:
    for keyword in sorted(dialect.banned & node.keys()):
        yield Violation(join(path, keyword), "schema.keyword", f"'{keyword}' is not supported in a strict schema.")
    if dialect.bare_refs and "$ref" in node and len(node) > 1:
        yield Violation(path, "schema.ref_siblings", "A $ref may not have other keywords beside it.")
    if _is_object(node):
        yield from _check_closed(path, node, dialect)
    yield from _check_values(path, node, dialect)


def _is_object(node: Mapping[str, object]) -> bool:
    kind = node.get("type")
    return kind == "object" or "object" in items(kind) or "properties" in node


def _check_closed(path: str, node: Mapping[str, object], dialect: Dialect) -> Iterator[Violation]:
    if node.get("additionalProperties") is not False:
        message = "For 'object' type, 'additionalProperties' must be explicitly set to false."
        yield Violation(path, "schema.open_object", message)
    if dialect.all_required:
        required = {name for name in items(node.get("required")) if isinstance(name, str)}
        absent = [name for name in fields(node.get("properties")) if name not in required]
        if absent:
            message = f"'required' must include every key in properties. Missing {shown(str(absent[0]))}."
            yield Violation(join(path, "required"), "schema.not_required", message)


def _check_values(path: str, node: Mapping[str, object], dialect: Dialect) -> Iterator[Violation]:
    values = [*items(node.get("enum")), node.get("const")]
    if dialect.primitive_enums and any(isinstance(value, dict | list) for value in values):
        yield Violation(path, "schema.enum", "enum and const may only hold strings, numbers, booleans or null.")
    form = text(node.get("format"))
    if dialect.formats is not None and form and form not in dialect.formats:
        yield Violation(join(path, "format"), "schema.format", f"String format {shown(form)} is not supported.")
    least = node.get("minItems")
    if dialect.max_min_items is not None and is_number(least) and least not in range(dialect.max_min_items + 1):
        yield Violation(join(path, "minItems"), "schema.min_items", "minItems may only be 0 or 1.")


def _check_recursion(path: str, root: Mapping[str, object]) -> Iterator[Violation]:
    """Reports a definition that reaches itself through local references."""
    edges = {"#": _refs({key: value for key, value in root.items() if key not in ("$defs", "definitions")})}
    for keyword in ("$defs", "definitions"):
        for name, definition in fields(root.get(keyword)).items():
            edges[f"#/{keyword}/{name}"] = _refs(fields(definition))
    if _has_cycle(edges):
        yield Violation(path, "schema.recursive", "Recursive schemas are not supported.")


def _refs(node: Mapping[str, object]) -> list[str]:
    return [ref for _path, child in _walk("", node) if (ref := text(child.get("$ref")))]


def _has_cycle(edges: Mapping[str, list[str]]) -> bool:
    """Takes away, again and again, what points nowhere further; what is left is a cycle. Linear in nodes and edges."""
    waiting = {name: {ref for ref in refs if ref in edges} for name, refs in edges.items()}
    users: dict[str, list[str]] = {name: [] for name in edges}
    for name, refs in waiting.items():
        for ref in refs:
            users[ref].append(name)
    ready = [name for name, refs in waiting.items() if not refs]
    done = 0
    while ready:
        done += 1
        name = ready.pop()
        for user in users[name]:
            waiting[user].discard(name)
            if not waiting[user]:
                ready.append(user)
    return done < len(edges)
