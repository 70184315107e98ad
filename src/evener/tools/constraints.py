"""What stands beside a type in `Annotated`, as keywords of a JSON Schema. Pure.

Understood are `msgspec.Meta`, the constraints of `annotated_types`, a text as a description, and `Doc`. Anything else is
meant for others and left alone, but a constraint that cannot be written down is refused: it would not be enforced.
"""

import sys

import msgspec

from evener.errors import UsageError

__all__ = ["annotated"]

Schema = dict[str, object]

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf"}
SIZES = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def annotated(schema: Schema, notes: tuple[object, ...], where: str) -> Schema:
    """A type's schema with its constraints and its description."""
    for note in notes:
        schema = {**schema, **_keywords(note, schema, where)}
    return schema


def _keywords(note: object, schema: Schema, where: str) -> Schema:
    if isinstance(note, str):
        return {"description": note}
    if isinstance(note, msgspec.Meta):
        return _meta(note, schema, where)
    if type(note).__name__ == "Doc":
        return {"description": str(getattr(note, "documentation", ""))}
    if type(note).__module__.partition(".")[0] == "annotated_types":
        return _constraint(note, schema, where)
    return {}


def _meta(meta: msgspec.Meta, schema: Schema, where: str) -> Schema:
    found: Schema = {BOUNDS[name]: limit for name in BOUNDS if (limit := getattr(meta, name)) is not None}
    found |= _sizes(meta.min_length, meta.max_length, schema, where)
    if meta.pattern is not None:
        found["pattern"] = meta.pattern
    for name in ("title", "description", "examples"):
        if getattr(meta, name) is not None:
            found[name] = getattr(meta, name)
    return {**found, **(meta.extra_json_schema or {})}


def _constraint(note: object, schema: Schema, where: str) -> Schema:
    kinds = sys.modules["annotated_types"]
    if isinstance(note, kinds.GroupedMetadata):
        return annotated(schema, tuple(note), where)
    if isinstance(note, kinds.MinLen):
        return _sizes(note.min_length, None, schema, where)
    if isinstance(note, kinds.MaxLen):
        return _sizes(None, note.max_length, schema, where)
    for name, keyword in BOUNDS.items():
        limit = getattr(note, name, None)
        if limit is not None:
            return {keyword: _json_number(limit, where)}
    raise UsageError(
        f"{where}: {type(note).__name__} cannot be written as a JSON Schema, so it would not be enforced. "
        "Check it inside the function and raise ModelRetry."
    )


def _sizes(least: int | None, most: int | None, schema: Schema, where: str) -> Schema:
    if least is None and most is None:
        return {}
    types = schema.get("type")
    sized = [kind for kind in (types if isinstance(types, list) else [types]) if kind in SIZES]
    if not sized:
        raise UsageError(f"{where}: a length is asked of something that has none. Put it beside a text, a list or a dict.")
    found: Schema = {}
    for kind in sized:
        for keyword, limit in zip(SIZES[str(kind)], (least, most), strict=True):
            if limit:
                found[keyword] = limit
    return found


def _json_number(limit: object, where: str) -> object:
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise UsageError(f"{where}: a bound must be a number, not {limit!r:.80}. Compare it inside the function instead.")
    return limit
