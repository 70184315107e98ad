"""Whether a tool has the argument that a rule speaks of, by the tool's JSON Schema. Pure.

A rule about an argument under a name that the tool does not have would never fit, without a sign of it: so it is an error as
soon as the tool is known. What a schema leaves open (`additionalProperties`, `allOf`, an object without properties) may be
there.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from evener.errors import UsageError
from evener.events import Effect
from evener.policy.rules import Policy, Rule, path_steps
from evener.transcript.checks import json_object

__all__ = ["check_arguments"]

Node = object
Schema = Mapping[str, object]
OPEN_KEYWORDS = ("allOf", "if", "not", "dependentSchemas", "unevaluatedProperties", "patternProperties", "$dynamicRef")
"""Keywords by which other schemas speak of the same object: what is not found may be there."""
MOST_DEEP = 100


def check_arguments(policy: Policy, tools: Iterable[tuple[str, Effect, str]]) -> None:
    """Refuse a rule about an argument that its tool does not have. Tools are given as name, effect and JSON text of the schema.

    A rule for one name is held against each tool of that name. A pattern such as `pay_*` is in order if one of the tools that
    it names has the argument; one for all tools, `*`, always is.
    """
    known = list(tools)
    for one in (policy, *policy.also):
        for number, rule in enumerate(one.rules):
            if rule.arguments and set(rule.tool) - {"*", "?"}:
                _check(rule, one.named(number), [tool for tool in known if _is_about(rule, tool)])
        if one is not policy and one.also:
            check_arguments(one, known)


def _is_about(rule: Rule, tool: tuple[str, Effect, str]) -> bool:
    return fnmatchcase(tool[0], rule.tool) and (not rule.effect or tool[1] in rule.effect)


def _check(rule: Rule, name: str, tools: list[tuple[str, Effect, str]]) -> None:
    several = any(char in rule.tool for char in "*?[")
    for path in rule.arguments:
        lacking = [(tool, schema) for tool, _, schema in tools if not has_argument(schema, path)]
        if lacking and (not several or len(lacking) == len(tools)):
            tool, schema = lacking[0]
            known = ", ".join(sorted(_names(json_object(schema, "The schema")))) or "none"
            raise UsageError(
                f"The rule {name!r} is about the argument {path!r}, and the tool {tool!r} has none of that name, so it would "
                f"never apply. Its arguments are: {known}. Write the name that the model is told."
            )


def has_argument(schema: str, path: str) -> bool:
    """True if arguments that fit this schema may have something at a dotted path."""
    root = json_object(schema, "The schema")
    found: list[Node] = [root]
    for step in path_steps(path):
        found = [below for node in found for below in _below(node, step, root, 0)]
    return bool(found)


def _names(node: Node) -> Mapping[str, object]:
    properties = node.get("properties") if isinstance(node, dict) else None
    return properties if isinstance(properties, dict) else {}


def _below(node: Node, step: str, root: Schema, depth: int) -> list[Node]:
    """The schemas for what may stand under a name, or under each name for `*`; True for anything at all."""
    if depth > MOST_DEEP or not isinstance(node, dict):
        return [] if node is False else [True]
    target = node.get("$ref")
    if isinstance(target, str):
        return _below(_resolved(target, root), step, root, depth + 1)
    branches = [branch for keyword in ("anyOf", "oneOf") for branch in _list(node.get(keyword))]
    found = [below for branch in branches for below in _below(branch, step, root, depth + 1)]
    if any(keyword in node for keyword in OPEN_KEYWORDS):
        return [*found, True]
    return [*found, *_inside(node, step, has_branches=bool(branches))]


def _inside(node: Schema, step: str, *, has_branches: bool) -> list[Node]:
    types = set(_list(node.get("type")) or [node.get("type")])
    found: list[Node] = []
    if types & {None, "object"}:
        named, more = _names(node), node.get("additionalProperties")
        found += list(named.values()) if step == "*" else [named[step]] if step in named else []
        if more not in (None, False) or ("properties" not in node and more is None and not has_branches):
            found.append(True if more is None else more)
    if step == "*" and types & {None, "array"}:
        found += [node.get("items", True), *_list(node.get("prefixItems"))]
    return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _resolved(target: str, root: Schema) -> Node:
    """What a reference inside the schema stands for; anything for one that leads elsewhere."""
    if not target.startswith("#"):
        return True
    node: object = root
    for step in target[1:].split("/")[1:]:
        node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return True if node is None else node
