"""One canonical JSON Schema in the dialect that a wire takes. Pure; linear, bounded, and it never raises on odd schemas.

A schema that already fits passes through byte for byte. Whatever a rewriting weakens or changes is a Loss; a schema that
cannot be brought into the dialect is refused, with the reason. The rewritings, in the order they are made:

    $ref                       inlined where the dialect allows none, or none beside other keywords
    allOf                      merged into its schema where nothing contradicts
    oneOf                      becomes anyOf
    const                      becomes an enum of one
    exclusive bounds           become inclusive ones, on integers
    null among types           becomes the flag `nullable`, where null is no type
    open objects               are closed; one that is meant to take any property is refused, and so is a value of any type
    optional properties        become required, and null stands for absent
    keywords nobody enforces   move into the description, where the model can still read them
"""

from collections.abc import Callable, Mapping

import msgspec

from evener.transcript.loss import Loss
from evener.wire.dialects import Dialect
from evener.wire.text import dict_of, dumps

__all__ = ["transform"]

MOST_DEPTH = 100
MOST_NODES = 20_000
"""Inlining repeats what it inlines; beyond these a schema is refused, and no provider would take it either."""

Node = dict[str, object]
VALUES: dict[str, tuple[type, ...]] = {
    "primitive": (str, int, float, bool, type(None)),
    "plain": (str, int, float),
    "text": (str,),
}
NOISE = ("$schema", "$comment", "discriminator")
"""Says nothing about which values are right."""
NOTES = ("description", "title", "default", "examples", "deprecated")
"""Says nothing that a reference would contradict."""
DEFINITIONS = ("$defs", "definitions")


class _Unfit(Exception):
    """Why a schema cannot be had in a dialect."""


def transform(schema: str, dialect: Dialect, where: str = "schema") -> tuple[str | None, tuple[Loss, ...]]:
    """The schema in the dialect, and what that cost; None when it cannot be had, with one Loss that says why."""
    try:
        root = msgspec.json.decode(schema)
        if not isinstance(root, dict):
            raise _Unfit("it is not an object")
        fitter = _Fitter(dialect, root)
        fitted = fitter.root()
    except (_Unfit, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if dialect.strict:
            return None, (Loss("dropped", f"strict on {where}", f"the schema cannot be enforced: {error}"),)
        return None, (Loss("degraded", f"schema of {where}", f"it is not in this wire's dialect and sent as it is: {error}"),)
    if not fitter.changed:
        return schema, ()
    return dumps(fitted).decode(), fitter.losses(where)


class _Fitter:
    """One schema on its way into a dialect."""

    def __init__(self, dialect: Dialect, whole: Node) -> None:
        self.dialect = dialect
        self.whole = whole
        self.changed = False
        self.moved: dict[str, None] = {}
        self.nulled: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.nodes = 0
        self.within: list[str] = []  # the references that are being inlined

    def losses(self, where: str) -> tuple[Loss, ...]:
        """What the rewriting cost, one Loss a kind."""
        found = list(self.notes)
        if self.moved:
            found.append(f"{', '.join(self.moved)}: only said in the description")
        if self.nulled:
            found.append(f"optional {', '.join(self.nulled)}: null stands for absent")
        return tuple(Loss("degraded", f"schema of {where}", why) for why in found)

    def root(self) -> Node:
        root = self.whole
        if not self.dialect.cycles:
            _refuse_cycles(root)
        if "$ref" in root and (self.dialect.object_root or self.dialect.refs == "none"):
            root = self._inlined(root)
        if self.dialect.object_root and (root.get("type") != "object" or "anyOf" in root or "oneOf" in root):
            raise _Unfit("its root must be one object")
        return self._node(root, 0)

    def _node(self, node: Node, depth: int) -> Node:
        self.nodes += 1
        if depth > MOST_DEPTH or self.nodes > MOST_NODES:
            raise _Unfit("it is too deep or too large")
        if "$ref" in node:
            self._target(node)
            if self.dialect.refs != "any" and not self._may_stay(node):
                return self._bare(node) if node["$ref"] in self.within else self._through(node, depth)
        for rewrite in self.REWRITES:
            node = rewrite(self, node)
        node = self._children(node, depth)
        return self._closed(node) if self.dialect.strict else node

    def _may_stay(self, node: Node) -> bool:
        """Whether a reference has nothing beside it that the dialect would mind."""
        beside = [name for name in node if not name.startswith("$") and name != "definitions"]
        return self.dialect.refs == "bare" and not beside

    def _through(self, node: Node, depth: int) -> Node:
        """A schema with its reference inlined."""
        inlined = self._inlined(node)
        self.within.append(str(node["$ref"]))
        fitted = self._node(inlined, depth + 1)
        self.within.pop()
        return fitted

    def _bare(self, node: Node) -> Node:
        """A reference within itself: it can only stay if nothing but notes stands beside it."""
        if self.dialect.refs == "none" or not set(node) <= {"$ref", *NOTES}:
            raise _Unfit(f"{node['$ref']} refers to itself")
        self.changed = True
        self.notes["notes beside a recursive reference were dropped"] = None
        return {"$ref": node["$ref"]}

    def _inlined(self, node: Node) -> Node:
        self.changed = True
        beside = {name: value for name, value in node.items() if name != "$ref"}
        return _united(self._target(node), beside)

    def _target(self, node: Node) -> Node:
        """What a reference refers to."""
        ref = node["$ref"]
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise _Unfit(f"the reference {str(ref)[:80]!r} leads outside")
        found: object = self.whole
        for step in ref[1:].split("/")[1:]:
            found = dict_of(found).get(step.replace("~1", "/").replace("~0", "~"))
        if not isinstance(found, dict):
            raise _Unfit(f"the reference {ref[:80]!r} leads nowhere")
        if found is self.whole:
            return {name: value for name, value in found.items() if name not in DEFINITIONS}
        return found

    # The rewritings of one schema.

    def _without_noise(self, node: Node) -> Node:
        noise = [name for name in (*NOISE, *DEFINITIONS) if name in node and not self.dialect.takes(name)]
        more = node.get("additionalProperties")
        if isinstance(more, bool) and not self.dialect.takes("additionalProperties"):
            noise.append("additionalProperties")
            self.notes |= {} if more else {"that objects are closed is not said": None}
        return self._cut(node, *noise) if noise else node

    def _without_patterns(self, node: Node) -> Node:
        if self.dialect.strict and node.get("patternProperties"):
            raise _Unfit("an object that takes any property cannot be closed")
        return node

    def _without_all_of(self, node: Node) -> Node:
        if "allOf" not in node or self.dialect.takes("allOf"):
            return node
        self.changed = True
        whole = {name: value for name, value in node.items() if name != "allOf"}
        for part in _list(node["allOf"]):
            part = self._inlined(part) if isinstance(part, dict) and "$ref" in part else part
            whole = _united(whole, dict_of(part))
        return whole

    def _without_one_of(self, node: Node) -> Node:
        if "oneOf" not in node or self.dialect.takes("oneOf") or "anyOf" in node:
            return node
        self.notes["oneOf is sent as anyOf"] = None
        return {**self._cut(node, "oneOf"), "anyOf": node["oneOf"]}

    def _without_const(self, node: Node) -> Node:
        if "const" not in node or self.dialect.takes("const") or "enum" in node:
            return node
        return {**self._cut(node, "const"), "enum": [node["const"]]}

    def _with_plain_bounds(self, node: Node) -> Node:
        """Integers above 3 are integers from 4 on."""
        for name, other, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            bound = node.get(name)
            if type(bound) is int and node.get("type") == "integer" and other not in node and self.dialect.known:
                node = {**self._cut(node, name), other: bound + step}
        return node

    def _with_flagged_null(self, node: Node) -> Node:
        """Null as a flag, and one type a schema."""
        if not self.dialect.nullable:
            return node
        flagged = False
        for name in ("type", "anyOf", "enum"):
            values = _list(node.get(name))
            rest = [value for value in values if value not in ("null", None) and not _is_null(value)]
            if values and (name == "type" or len(rest) < len(values)):
                flagged = flagged or len(rest) < len(values)
                node = _chosen(self._cut(node, name), name, rest)
        return {**node, "nullable": True} if flagged else node

    def _with_known_words(self, node: Node) -> Node:
        """What the dialect does not know goes into the description: keywords, values to choose from, formats."""
        moved = [name for name in node if not self.dialect.takes(name) or self._refuses(name, node[name])]
        return self._told(node, moved) if moved else node

    def _refuses(self, name: str, value: object) -> bool:
        """Whether a keyword may stay, but not with this value."""
        dialect = self.dialect
        match name:
            case "enum" | "const" if dialect.enums in VALUES:
                values = value if isinstance(value, list) else [value]
                return not all(type(one) in VALUES[dialect.enums] for one in values)
            case "format" if dialect.formats:
                return not isinstance(value, str) or value not in dialect.formats
            case "minItems" if dialect.most_min_items is not None:
                return not (type(value) is int and 0 <= value <= dialect.most_min_items)
            case _:
                return False

    REWRITES: tuple[Callable[["_Fitter", Node], Node], ...] = (
        _without_noise,
        _without_patterns,
        _without_all_of,
        _without_one_of,
        _without_const,
        _with_plain_bounds,
        _with_flagged_null,
        _with_known_words,
    )

    def _cut(self, node: Node, *names: str) -> Node:
        self.changed = True
        return {name: value for name, value in node.items() if name not in names}

    def _told(self, node: Node, names: list[str]) -> Node:
        """Keywords as words of the description."""
        self.moved |= dict.fromkeys(names)
        said = ", ".join(f"{name}: {dumps(node[name]).decode()}" for name in names)
        before = node.get("description")
        text = f"{before}\n({said})" if isinstance(before, str) and before else f"({said})"
        return {**self._cut(node, "description", *names), "description": text}

    # What stands within a schema.

    def _children(self, node: Node, depth: int) -> Node:
        fitted = dict(node)
        for name in ("properties", *DEFINITIONS):
            if isinstance(node.get(name), dict):
                fitted[name] = {key: self._child(child, depth) for key, child in dict_of(node[name]).items()}
        for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if isinstance(node.get(name), list):
                fitted[name] = [self._child(child, depth) for child in _list(node[name])]
        for name in ("items", "additionalProperties"):
            if isinstance(node.get(name), dict):
                fitted[name] = self._node(dict_of(node[name]), depth + 1)
        return fitted

    def _child(self, child: object, depth: int) -> object:
        if isinstance(child, dict):
            return self._node(child, depth + 1)
        if self.dialect.strict:
            raise _Unfit("a value of any type cannot be enforced")
        return child

    def _closed(self, node: Node) -> Node:
        kinds = _list(node.get("type")) or [node.get("type")]
        if "array" in kinds and not isinstance(node.get("items"), dict) and "prefixItems" not in node:
            raise _Unfit("a list of anything cannot be enforced")
        if "object" in kinds or "properties" in node:
            return self._closed_object(node)
        if not node.keys() & {"type", "enum", "const", "anyOf", "allOf", "$ref"}:
            raise _Unfit("a value of any type cannot be enforced")
        return node

    def _closed_object(self, node: Node) -> Node:
        more = node.get("additionalProperties")
        if not isinstance(node.get("properties"), dict if more is None else (dict, type(None))) or more not in (None, False):
            raise _Unfit("an object that takes any property cannot be closed")
        if more is not False:
            self.changed = True
            self.notes["objects are closed"] = None
            node = {**node, "additionalProperties": False}
        return self._required(node) if self.dialect.all_required else node

    def _required(self, node: Node) -> Node:
        properties = dict_of(node.get("properties"))
        given = [name for name in _list(node.get("required")) if isinstance(name, str)]
        absent = [name for name in properties if name not in given]
        if not absent:
            return node
        self.changed = True
        self.nulled |= dict.fromkeys(absent)
        nulled = {name: _or_null(dict_of(child)) if name in absent else child for name, child in properties.items()}
        return {**node, "properties": nulled, "required": [*given, *absent]}


def _refuse_cycles(root: Node) -> None:
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
                raise _Unfit(f"{ref[:80]} refers to itself")
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


def _united(base: Mapping[str, object], more: Mapping[str, object]) -> Node:
    """Two schemas that must both hold, as one. What contradicts is refused; of notes the later one counts."""
    whole = dict(base)
    for name, value in more.items():
        before = whole.get(name)
        if name not in whole or name in NOTES or before == value:
            whole[name] = value
        elif name == "required":
            whole[name] = [*_list(before), *(one for one in _list(value) if one not in _list(before))]
        elif name in ("properties", *DEFINITIONS):
            whole[name] = _side_by_side(dict_of(before), dict_of(value))
        else:
            raise _Unfit(f"{name!r} is said twice")
    return whole


def _side_by_side(base: Node, more: Node) -> Node:
    for name in base.keys() & more.keys():
        if base[name] != more[name]:
            raise _Unfit(f"{name[:80]!r} is described twice")
    return {**base, **more}


def _or_null(node: Node) -> Node:
    """A schema that also takes null."""
    kind = node.get("type")
    if "anyOf" in node and "type" not in node:
        choices = _list(node["anyOf"])
        return node if any(_is_null(choice) for choice in choices) else {**node, "anyOf": [*choices, {"type": "null"}]}
    if isinstance(kind, list) and "enum" not in node and "const" not in node:
        return node if "null" in kind else {**node, "type": [*kind, "null"]}
    if isinstance(kind, str) and not node.keys() & {"enum", "const", "anyOf", "$ref"}:
        return node if kind == "null" else {**node, "type": [kind, "null"]}
    return {"anyOf": [node, {"type": "null"}]}


def _chosen(node: Node, name: str, rest: list[object]) -> Node:
    """A schema with what is left to choose from; one choice that nothing contradicts is no choice."""
    only = rest[0] if len(rest) == 1 else None
    if name == "type":
        return {**node, "type": only} if only else {**node, "anyOf": [{"type": kind} for kind in rest]} if rest else node
    if name == "anyOf" and isinstance(only, dict) and "$ref" not in only and not only.keys() & node.keys() - set(NOTES):
        return {**only, **node}
    return {**node, name: rest} if rest else node


def _is_null(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
