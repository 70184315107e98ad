"""The forms of JSON Schema that tools and output formats take. Walks with a stack, never by recursion.

Each provider's strict subset is a `StrictMode`, and its rules for every tool a `ToolSchemaRule`; another wire adds a record.
Values under `enum`, `const` and `default` are data, not schemas, and are never walked. Unknown
keywords pass: only what a sheet names is reported.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from evener.testing.check.shape import Violation, fields, is_number, is_text, items, join, shown, text
from evener.transcript.scan import find_cycle, resolve_pointer


class StrictMode(msgspec.Struct, frozen=True, kw_only=True):
    """The schemas that one provider's strict mode refuses."""

    banned: frozenset[str]
    object_root: bool = False
    all_required: bool = False
    bare_refs: bool = False
    recursion: bool = True
    primitive_enums: bool = False
    max_min_items: int | None = None
    formats: frozenset[str] | None = None


# Sheet anthropic-messages section 6: closed objects, no ranges or lengths, no oneOf, no recursion, listed formats only.
ANTHROPIC = StrictMode(
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
OPENAI = StrictMode(
    banned=frozenset(("allOf", "oneOf", "patternProperties")),
    object_root=True,
    all_required=True,
    bare_refs=True,
)

_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def check_subset(path: str, schema: object, dialect: StrictMode) -> Iterator[Violation]:
    """Report everything in one schema that the dialect refuses."""
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
        for child_path, child in _list_children(node_path, node):
            if isinstance(child, dict):
                stack.append((child_path, fields(child)))


def _list_children(path: str, node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for keyword in _MAPS:
        for name, child in fields(node.get(keyword)).items():
            yield f"{path}.{keyword}.{name}", child
    for keyword in _LISTS:
        for index, child in enumerate(items(node.get(keyword))):
            yield f"{path}.{keyword}.{index}", child
    for keyword in _SINGLES:
        yield f"{path}.{keyword}", node.get(keyword)


def _check_node(path: str, node: Mapping[str, object], dialect: StrictMode) -> Iterator[Violation]:
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


def _check_closed(path: str, node: Mapping[str, object], dialect: StrictMode) -> Iterator[Violation]:
    if node.get("additionalProperties") is not False:
        message = "For 'object' type, 'additionalProperties' must be explicitly set to false."
        yield Violation(path, "schema.open_object", message)
    if dialect.all_required:
        required = {name for name in items(node.get("required")) if isinstance(name, str)}
        absent = [name for name in fields(node.get("properties")) if name not in required]
        if absent:
            message = f"'required' must include every key in properties. Missing {shown(str(absent[0]))}."
            yield Violation(join(path, "required"), "schema.not_required", message)


def _check_values(path: str, node: Mapping[str, object], dialect: StrictMode) -> Iterator[Violation]:
    values = [*items(node.get("enum")), node.get("const")]
    if dialect.primitive_enums and any(isinstance(value, dict | list) for value in values):
        yield Violation(path, "schema.enum", "enum and const may only have strings, numbers, booleans or null.")
    form = text(node.get("format"))
    if dialect.formats is not None and form and form not in dialect.formats:
        yield Violation(join(path, "format"), "schema.format", f"String format {shown(form)} is not supported.")
    least = node.get("minItems")
    if dialect.max_min_items is not None and is_number(least) and least not in range(dialect.max_min_items + 1):
        yield Violation(join(path, "minItems"), "schema.min_items", "minItems may only be 0 or 1.")


def _check_recursion(path: str, root: Mapping[str, object]) -> Iterator[Violation]:
    """Report a definition that reaches itself through local references."""
    edges = {"#": _refs({key: value for key, value in root.items() if key not in ("$defs", "definitions")})}
    for keyword in ("$defs", "definitions"):
        for name, definition in fields(root.get(keyword)).items():
            edges[f"#/{keyword}/{name}"] = _refs(fields(definition))
    if find_cycle(edges, lambda name: (ref for ref in edges[name] if ref in edges)) is not None:
        yield Violation(path, "schema.recursive", "Recursive schemas are not supported.")


def _refs(node: Mapping[str, object]) -> list[str]:
    return [ref for _path, child in _walk("", node) if (ref := text(child.get("$ref")))]


class ToolSchemaRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one provider for the schema of every tool, strict or not.

    `root` are the keywords that are not allowed at its root. `properties`: the root must have some. `items`: each array must
    have `items`.
    """

    root: frozenset[str] = frozenset(("oneOf", "anyOf", "allOf"))
    properties: bool = False
    items: bool = False


# The provider's words from the field: "input_schema does not support oneOf, allOf, or anyOf at the top level", "JSON schema is
# invalid. It must match JSON Schema draft 2020-12". A root without properties is recorded as accepted.
ANTHROPIC_FORM = ToolSchemaRule()

# The provider's words from the field: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the
# top level", "object schema missing properties", "array schema missing items".
OPENAI_FORM = ToolSchemaRule(root=frozenset(("oneOf", "anyOf", "allOf", "enum", "not")), properties=True, items=True)

# Other servers give the schema to a grammar or to another vendor's model: an object with named arguments works on all of them.
CLONE_FORM = ToolSchemaRule(root=OPENAI_FORM.root)

# Google reads JSON Schema into its own Schema message.
GEMINI_FORM = ToolSchemaRule()

_TYPES = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and is_number(value) and value >= 0 and value == int(value)


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value) and len(set(value)) == len(value)


def _are_schemas(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _is_type(value: object) -> bool:
    return (isinstance(value, str) and value.lower() in _TYPES) or (_are_names(value) and _TYPES.issuperset(items(value)))


# The type that draft 2020-12 requires of each keyword. Unknown keywords may have any value.
_WELL_FORMED: Mapping[str, Callable[[object], bool]] = {
    "type": _is_type,
    "required": _are_names,
    "enum": lambda value: isinstance(value, list),
    "multipleOf": lambda value: isinstance(value, int | float) and is_number(value) and value > 0,
    "uniqueItems": lambda value: isinstance(value, bool),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("$ref", "$id", "$schema", "pattern", "format", "title", "description"), is_text),
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"), _is_table),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _are_schemas),
    **dict.fromkeys((*_SINGLES, "unevaluatedProperties"), _is_schema),
}


def check_arguments(path: str, schema: Mapping[str, object], form: ToolSchemaRule) -> Iterator[Violation]:
    """Report errors in the schema of a tool's arguments, whether it is strict or not."""
    if text(schema.get("type")).lower() != "object":
        message = "Invalid schema for a tool: schema must be a JSON Schema of 'type: \"object\"'."
        yield Violation(join(path, "type"), "tool.schema_type", message)
    for keyword in sorted(form.root & schema.keys()):
        yield Violation(join(path, keyword), "tool.schema_union", f"A tool's schema may not have '{keyword}' at the top level.")
    if form.properties and not isinstance(schema.get("properties"), dict):
        yield Violation(path, "schema.properties", "In context=(), object schema missing properties.")
    for node_path, node in _walk(path, schema):
        for keyword in sorted(_WELL_FORMED.keys() & node.keys()):
            if not _WELL_FORMED[keyword](node[keyword]):
                message = "JSON schema is invalid. It must match JSON Schema draft 2020-12."
                yield Violation(join(node_path, keyword), "schema.malformed", message)
        if form.items and "array" in (node.get("type"), *items(node.get("type"))) and "items" not in node:
            yield Violation(node_path, "schema.no_items", "array schema missing items.")
    yield from _check_targets(path, schema)


def _check_targets(path: str, schema: Mapping[str, object]) -> Iterator[Violation]:
    """Report references without a target in the schema."""
    for node_path, node in _walk(path, schema):
        ref = text(node.get("$ref"))
        if ref and not _is_schema(resolve_pointer(schema, ref)):
            yield Violation(join(node_path, "$ref"), "schema.target", f"The reference {shown(ref)} cannot be resolved.")
