"""Small operations on JSON Schemas that are already parsed. Pure; they read and make, and never change what they are given."""

from collections.abc import Callable, Mapping

from evener.wire.text import dict_of

__all__ = [
    "DEFINITIONS",
    "NOTES",
    "Node",
    "Unfit",
    "as_list",
    "chosen",
    "is_misformed",
    "is_null",
    "mended",
    "or_null",
    "pointed_at",
    "refuse_cycles",
    "united",
]

Node = dict[str, object]
DEFINITIONS = ("$defs", "definitions")
NOTES = ("description", "title", "default", "examples", "deprecated")
"""Says nothing that a reference would contradict."""


class Unfit(Exception):
    """Why a schema cannot be had in a dialect."""


def pointed_at(ref: str, whole: Node) -> Node:
    """Return the schema that a reference refers to. Refuse one that leads nowhere, or outside."""
    if not ref.startswith("#"):
        raise Unfit(f"the reference {ref[:80]!r} leads outside")
    found: object = whole if ref == "#" or ref.startswith("#/") else None
    for step in ref[1:].split("/")[1:]:
        listed = as_list(found)
        name = step.replace("~1", "/").replace("~0", "~")
        found = listed[int(name)] if name.isdecimal() and int(name) < len(listed) else dict_of(found).get(name)
    if found is True:
        return {}
    if not isinstance(found, dict):
        raise Unfit(f"the reference {ref[:80]!r} leads nowhere")
    return found


def refuse_cycles(root: Node) -> None:
    """Refuse a schema that contains itself: depth first over its definitions. Other places count as the root."""
    places = {f"#/{keyword}/{name}": part for keyword in DEFINITIONS for name, part in dict_of(root.get(keyword)).items()}
    edges = {name: _references(part) for name, part in places.items()}
    edges["#"] = _references({name: part for name, part in root.items() if name not in DEFINITIONS})
    open_: dict[str, bool] = {}
    stack = list(edges)
    while stack:
        name = stack[-1]
        if name in open_:
            open_[stack.pop()] = False
            continue
        open_[name] = True
        for ref in edges[name]:
            ref = ref if ref in edges else "#"
            if open_.get(ref, False):
                raise Unfit(f"{ref[:80]} refers to itself")
            if ref not in open_:
                stack.append(ref)


def _references(value: object) -> set[str]:
    found: set[str] = set()
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            ref = here.get("$ref")
            found |= {ref} if isinstance(ref, str) else set()
            stack += here.values()
        elif isinstance(here, list):
            stack += here
    return found


def united(base: Mapping[str, object], more: Mapping[str, object]) -> Node:
    """Two schemas that must both hold, as one. What contradicts is refused; of notes the later one counts."""
    whole = dict(base)
    for name, value in more.items():
        before = whole.get(name)
        if name not in whole or name in NOTES or before == value:
            whole[name] = value
        elif name == "required":
            whole[name] = [*as_list(before), *(one for one in as_list(value) if one not in as_list(before))]
        elif name in ("properties", *DEFINITIONS):
            whole[name] = _side_by_side(dict_of(before), dict_of(value))
        else:
            raise Unfit(f"{name!r} is said twice")
    return whole


def _side_by_side(base: Node, more: Node) -> Node:
    for name in base.keys() & more.keys():
        if base[name] != more[name]:
            raise Unfit(f"{name[:80]!r} is described twice")
    return {**base, **more}


def or_null(node: Node) -> Node:
    """A schema that also takes null."""
    kind = node.get("type")
    if "anyOf" in node and "type" not in node:
        choices = as_list(node["anyOf"])
        return node if any(is_null(choice) for choice in choices) else {**node, "anyOf": [*choices, {"type": "null"}]}
    if isinstance(kind, list) and "enum" not in node and "const" not in node:
        return node if "null" in kind else {**node, "type": [*kind, "null"]}
    if isinstance(kind, str) and not node.keys() & {"enum", "const", "anyOf", "$ref"}:
        return node if kind == "null" else {**node, "type": [kind, "null"]}
    return {"anyOf": [node, {"type": "null"}]}


def chosen(node: Node, name: str, rest: list[object]) -> Node:
    """A schema with what is left to choose from; one choice that nothing contradicts is no choice."""
    only = rest[0] if len(rest) == 1 else None
    if name == "type":
        return {**node, "type": only} if only else {**node, "anyOf": [{"type": kind} for kind in rest]} if rest else node
    if name == "anyOf" and isinstance(only, dict) and "$ref" not in only and not only.keys() & node.keys() - set(NOTES):
        return {**only, **node}
    return {**node, name: rest} if rest else node


def is_null(schema: object) -> bool:
    """Whether a schema takes null and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "null"


def as_list(value: object) -> list[object]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


# What the makers of JSON Schema say of the form of a keyword, and older drafts said otherwise.

TYPES = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_type(value: object) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return (
        bool(kinds) and all(isinstance(kind, str) and kind.lower() in TYPES for kind in kinds) and len(set(kinds)) == len(kinds)
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_filled(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


FORMS: dict[str, Callable[[object], bool]] = {
    "type": _is_type,
    "required": _are_names,
    "uniqueItems": lambda value: isinstance(value, bool),
    "multipleOf": lambda value: isinstance(value, int | float) and _is_number(value) and value > 0,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("$ref", "$id", "$schema", "pattern", "format", "title", "description"), _is_text),
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"), _is_table),
    **dict.fromkeys(("enum", "anyOf", "oneOf", "allOf", "prefixItems"), _is_filled),
    **dict.fromkeys(("items", "additionalProperties", "unevaluatedProperties", "propertyNames"), _is_schema),
    **dict.fromkeys(("not", "if", "then", "else", "contains"), _is_schema),
}


def is_misformed(keyword: str, value: object) -> bool:
    """True if a keyword holds what it cannot mean anything with. A keyword that is not known may hold anything."""
    form = FORMS.get(keyword)
    return form is not None and not form(value)


def mended(node: Node, *, capitals: bool) -> Node:
    """Return the schema with words of older drafts in those of the newest; the same one if it has none.

    Bounds were flagged as exclusive, a list of schemas stood for the places of a list, types were written in capitals:
    with `capitals` those stay.
    """
    made = dict(node)
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(flag), bool) and (not made.pop(flag) or _is_number(made.get(bound))):
            made |= {flag: made.pop(bound)} if node[flag] else {}
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    made["type"] = made.get("type") if capitals else _lowered(made.get("type"))
    if isinstance(made.get("required"), list):
        made["required"] = list(dict.fromkeys(name for name in as_list(made["required"]) if isinstance(name, str)))
    if made["type"] is None:
        del made["type"]
    return node if made == node else made


def _lowered(kind: object) -> object:
    if isinstance(kind, list):
        return list(dict.fromkeys(_lowered(one) for one in kind if isinstance(one, str)))
    return kind.lower() if isinstance(kind, str) else kind
