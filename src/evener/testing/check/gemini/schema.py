"""The two schema forms of a generateContent request. Sheet section 4, "Schema subset". Walks with a stack.

`parameters` and `responseSchema` contain Google's own Schema message, where an unknown keyword is an unknown name;
`parametersJsonSchema` and `responseJsonSchema` contain JSON Schema, of which unsupported keywords are ignored. Values under
`enum`, `default` and `example` are data and are never walked.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.gemini.fields import check_message, listed, message, read
from evener.testing.check.shape import Violation, fields, items, join, shown, text

# The API no longer refuses `additionalProperties`, so it passes here, although the sheet advises to drop it.
SCHEMA = message(
    "format title description pattern ref: str, nullable: bool, items properties defs: object, minimum maximum: number, "
    "min_items max_items min_properties max_properties min_length max_length: int, required property_ordering: texts, "
    "type enum any_of default example additional_properties: any"
)
_TYPES = frozenset(("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"))
# Keywords that only describe. A recorded schema has `title` beside its root `$ref`, against the documented rule.
_DESCRIBING = frozenset(("title", "description", "default", "examples"))


def check_schema(path: str, schema: object) -> Iterator[Violation]:
    """Report errors in one Schema message."""
    stack: list[tuple[str, object]] = [(path, schema)]
    while stack:
        at, value = stack.pop()
        yield from _check_names(at, value)
        node = read(value, SCHEMA)
        yield from _check_type(at, node)
        yield from _check_node(at, node)
        stack.extend(_list_children(at, node))


def _check_names(path: str, value: object) -> Iterator[Violation]:
    for found in check_message(path, value, SCHEMA):
        if found.rule == "extra_field":
            yield Violation(found.path, "schema.keyword", found.message)
        else:
            yield found


def _check_type(path: str, node: Mapping[str, object]) -> Iterator[Violation]:
    kind = node.get("type")
    if isinstance(kind, list):
        message_ = "Proto field is not repeating, cannot start list: a type is one name."
        yield Violation(join(path, "type"), "schema.type", message_)
    elif kind is not None and not isinstance(kind, int) and text(kind).upper() not in _TYPES:
        yield Violation(join(path, "type"), "schema.type", f"Invalid value: {shown(text(kind))} is not a type.")


def _check_node(path: str, node: Mapping[str, object]) -> Iterator[Violation]:
    """Report values in a node that the API refuses according to public reports. The messages are the API's."""
    kind = text(node.get("type")).upper()
    values = items(node.get("enum"))
    if any(not isinstance(value, str) for value in values) or (values and kind not in ("", "STRING")):
        yield Violation(join(path, "enum"), "schema.enum", "enum: only allowed for STRING type, and only strings.")
    if kind == "ARRAY" and "items" not in node:
        yield Violation(join(path, "items"), "schema.items", "items: missing field.")
    known = fields(node.get("properties"))
    for index, name in enumerate(listed(node.get("required"))):
        if isinstance(name, str) and name not in known and "ref" not in node:
            yield Violation(f"{path}.required[{index}]", "schema.required", f"property {shown(name)} is not defined")


def _list_children(path: str, node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for keyword in ("properties", "defs"):
        for name, child in fields(node.get(keyword)).items():
            yield f"{path}.{keyword}[{name}]", child
    for index, child in enumerate(listed(node.get("anyOf"))):
        yield f"{path}.anyOf[{index}]", child
    if "items" in node:
        yield join(path, "items"), node["items"]
    if isinstance(node.get("additionalProperties"), dict):
        yield join(path, "additionalProperties"), node["additionalProperties"]


def check_json_schema(path: str, schema: object) -> Iterator[Violation]:
    """Report references with other keywords beside them, and schemas that are not objects, anywhere in one JSON Schema."""
    stack: list[tuple[str, object]] = [(path, schema)]
    while stack:
        at, value = stack.pop()
        node = fields(value)
        if isinstance(value, bool) and not at.endswith("additionalProperties"):
            yield Violation(at, "schema.boolean", "A schema should be an object here, not true or false.")
        if "$ref" in node and any(not key.startswith("$") and key not in _DESCRIBING for key in map(str, node)):
            yield Violation(at, "schema.ref_siblings", "A sub-schema with $ref may not have other keywords beside it.")
        for keyword in ("properties", "$defs"):
            stack.extend((f"{at}.{keyword}[{name}]", child) for name, child in fields(node.get(keyword)).items())
        for keyword in ("anyOf", "oneOf", "prefixItems"):
            stack.extend((f"{at}.{keyword}[{index}]", child) for index, child in enumerate(items(node.get(keyword))))
        stack.extend((join(at, keyword), node[keyword]) for keyword in ("items", "additionalProperties") if keyword in node)


def is_object(schema: Mapping[str, object]) -> bool:
    """True if a schema can describe a function's arguments: its type is object. A type given as a number is not judged."""
    kind = schema.get("type")
    return isinstance(kind, int) or text(kind).upper() == "OBJECT"
