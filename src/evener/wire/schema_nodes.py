"""Small operations on JSON Schemas that are already parsed. Pure; they read and make, and never change what they are given."""

from collections.abc import Mapping

from evener.wire.text import dict_of

__all__ = [
    "DEFINITIONS",
    "NOTES",
    "Node",
    "Unfit",
    "as_list",
    "chosen",
    "is_null",
    "or_null",
    "refuse_cycles",
    "united",
]

Node = dict[str, object]
DEFINITIONS = ("$defs", "definitions")
NOTES = ("description", "title", "default", "examples", "deprecated")
"""Says nothing that a reference would contradict."""


class Unfit(Exception):
    """Why a schema cannot be had in a dialect."""


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
