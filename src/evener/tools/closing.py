"""Closes a JSON Schema that leaves open whether unknown fields are welcome. Pure.

By JSON Schema's own rules they would be; for the arguments of a tool they are a mistake of the model. Where several schemas
speak of one object together (`allOf`, `if`, a reference beside properties), none of them knows all fields: those stay open.
"""

from collections.abc import Iterator

__all__ = ["closed"]

Schema = dict[str, object]
SHARED = ("allOf", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords by which several schemas speak of one object."""


def closed(schema: Schema) -> Schema:
    """The schema with `additionalProperties: false` wherever that is left open and safe to say."""
    return schema if _mixes(schema) else _closed(schema)


def _mixes(schema: object) -> bool:
    """Whether anywhere in it several schemas speak of the fields of one object."""
    return any(
        any(keyword in node for keyword in SHARED)
        or (
            "properties" in node
            and ("$ref" in node or any(_names_fields(node.get(keyword)) for keyword in ("anyOf", "oneOf", "not")))
        )
        for node in _nodes(schema)
    )


def _names_fields(schema: object) -> bool:
    return any("properties" in node or "$ref" in node for node in _nodes(schema))


def _nodes(schema: object) -> Iterator[Schema]:
    left = [schema]
    while left:
        match left.pop():
            case dict() as node:
                yield node
                left += node.values()
            case list() as items:
                left += items


def _closed(node: Schema) -> Schema:
    whole = dict(node)
    for keyword in ("properties", "$defs", "definitions", "patternProperties"):
        parts = whole.get(keyword)
        if isinstance(parts, dict):
            whole[keyword] = {name: _part(part) for name, part in parts.items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in whole:
            whole[keyword] = _part(whole[keyword])
    for keyword in ("prefixItems", "anyOf", "oneOf"):
        parts = whole.get(keyword)
        if isinstance(parts, list):
            whole[keyword] = [_part(part) for part in parts]
    if "properties" in whole and not whole.keys() & {"additionalProperties", "patternProperties"}:
        whole["additionalProperties"] = False
    return whole


def _part(part: object) -> object:
    return _closed(part) if isinstance(part, dict) else part
