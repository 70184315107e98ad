"""Rewrites a canonical JSON Schema into the dialect that a wire takes. Pure; linear, bounded, and never raises on odd schemas.

A schema that already fits passes through byte for byte. Each rewriting that weakens or changes a schema is a Loss. A strict
dialect refuses a schema that it cannot express, with the reason; elsewhere the rest goes into the description. The
rewritings, in the order they are made:

    words of older drafts      become those of the newest
    $ref                       inlined where the dialect allows none, or none beside other keywords
    allOf                      merged into its schema where nothing contradicts
    oneOf                      becomes anyOf
    const                      becomes an enum of one
    exclusive bounds           become inclusive ones, on integers
    places of a list           become one schema for all of them, where a list has no places
    true and false             become objects, where a schema must be one
    null among types           becomes the flag `nullable`, where null is no type
    open objects               are closed; one that is meant to take any property is refused, and so is a value of any type
    optional properties        become required, and null stands for absent
    unenforced keywords        move into the description, where the model can still read them
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from evener.transcript.loss import OUTPUT, Loss, Owner, escape_step, loss_of
from evener.transcript.scan import find_cycle, list_references, resolve_pointer
from evener.wire.prefix import dict_of, dumps

Node = dict[str, object]
DEFINITIONS = ("$defs", "definitions")
NOTES = ("description", "title", "default", "examples", "deprecated")
"""Keywords that no reference can contradict."""


class Unfit(Exception):
    """The reason why a dialect cannot express a schema."""


def resolve_reference(ref: str, whole: Node) -> Node:
    """Return the schema that a reference refers to. Refuse one that leads nowhere, or outside."""
    if not ref.startswith("#"):
        raise Unfit(f"the reference {ref[:80]!r} leads outside")
    found = resolve_pointer(whole, ref)
    if found is True:
        return {}
    if not isinstance(found, dict):
        raise Unfit(f"the reference {ref[:80]!r} leads nowhere")
    return found


def refuse_cycles(root: Node) -> None:
    """Refuse a schema that contains itself: depth first over its definitions. Other places count as the root."""
    places = {f"#/{keyword}/{name}": part for keyword in DEFINITIONS for name, part in dict_of(root.get(keyword)).items()}
    edges = {name: list_references(part) for name, part in places.items()}
    edges["#"] = list_references({name: part for name, part in root.items() if name not in DEFINITIONS})
    loop = find_cycle(edges, lambda name: (ref if ref in edges else "#" for ref in edges[name]))
    if loop is not None:
        raise Unfit(f"{loop[:80]} refers to itself")


def unite(base: Mapping[str, object], more: Mapping[str, object]) -> Node:
    """Merge two schemas that must both hold. Contradictions are refused; of notes the later one counts."""
    whole = dict(base)
    for name, value in more.items():
        before = whole.get(name)
        if name not in whole or name in NOTES or before == value:
            whole[name] = value
        elif name == "required":
            whole[name] = [*as_list(before), *(one for one in as_list(value) if one not in as_list(before))]
        elif name in ("properties", *DEFINITIONS):
            whole[name] = _merge_properties(dict_of(before), dict_of(value))
        else:
            raise Unfit(f"{name!r} occurs twice")
    return whole


def _merge_properties(base: Node, more: Node) -> Node:
    for name in base.keys() & more.keys():
        if base[name] != more[name]:
            raise Unfit(f"{name[:80]!r} is described twice")
    return {**base, **more}


def allow_null(node: Node) -> Node:
    """Return a schema that also takes null."""
    kind = node.get("type")
    if "anyOf" in node and "type" not in node:
        choices = as_list(node["anyOf"])
        return node if any(is_null(choice) for choice in choices) else {**node, "anyOf": [*choices, {"type": "null"}]}
    if isinstance(kind, list) and "enum" not in node and "const" not in node:
        return node if "null" in kind else {**node, "type": [*kind, "null"]}
    if isinstance(kind, str) and not node.keys() & {"enum", "const", "anyOf", "$ref"}:
        return node if kind == "null" else {**node, "type": [kind, "null"]}
    return {"anyOf": [node, {"type": "null"}]}


def narrow_choice(node: Node, name: str, rest: list[object]) -> Node:
    """Return a schema with the remaining choices; a single one is merged into it unless something contradicts."""
    only = rest[0] if len(rest) == 1 else None
    if name == "type":
        return {**node, "type": only} if only else {**node, "anyOf": [{"type": kind} for kind in rest]} if rest else node
    if name == "anyOf" and isinstance(only, dict) and "$ref" not in only and not only.keys() & node.keys() - set(NOTES):
        return {**only, **node}
    return {**node, name: rest} if rest else node


def is_null(schema: object) -> bool:
    """True if a schema takes null and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "null"


def as_list(value: object) -> list[object]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


# The form of each keyword in JSON Schema of the newest draft; older drafts differ.

TYPES = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and value >= 0 and value == int(value)


def _is_type(value: object) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return (
        bool(kinds) and all(isinstance(kind, str) and kind.lower() in TYPES for kind in kinds) and len(set(kinds)) == len(kinds)
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


FORMS: dict[str, Callable[[object], bool]] = {
    "type": _is_type,
    "required": _are_names,
    "uniqueItems": lambda value: isinstance(value, bool),
    "multipleOf": lambda value: isinstance(value, int | float) and _is_number(value) and value > 0,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys("$ref $id $schema pattern format title description".split(), lambda value: isinstance(value, str)),
    **dict.fromkeys(
        ("properties", *DEFINITIONS, "patternProperties", "dependentSchemas"), lambda value: isinstance(value, dict)
    ),
    **dict.fromkeys("enum anyOf oneOf allOf prefixItems".split(), lambda value: isinstance(value, list) and bool(value)),
    **dict.fromkeys(
        "items additionalProperties unevaluatedProperties propertyNames not if then else contains".split(),
        lambda value: isinstance(value, dict | bool),
    ),
}


def is_misformed(keyword: str, value: object) -> bool:
    """True if the value of a keyword is of a wrong form. An unknown keyword may hold anything."""
    form = FORMS.get(keyword)
    return form is not None and not form(value)


def modernize(node: Node, *, capitals: bool) -> Node:
    """Return the schema with words of older drafts in those of the newest; the same one if it has none.

    Bounds were flagged as exclusive, a list of schemas stood for the places of a list, types were written in capitals:
    with `capitals` those stay.
    """
    made = dict(node)
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(flag), bool) and (not made.pop(flag) or _is_number(made.get(bound))):
            made |= {flag: made.pop(bound)} if node[flag] else {}
    if isinstance(made.get("items"), list):
        places = made.pop("items")
        made |= {"prefixItems": places} if places else {}
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    made["type"] = made.get("type") if capitals else _lower(made.get("type"))
    if isinstance(made.get("required"), list):
        made["required"] = list(dict.fromkeys(name for name in as_list(made["required"]) if isinstance(name, str)))
    if made["type"] is None:
        del made["type"]
    return node if made == node else made


def _lower(kind: object) -> object:
    if isinstance(kind, list):
        return list(dict.fromkeys(_lower(one) for one in kind if isinstance(one, str)))
    return kind.lower() if isinstance(kind, str) else kind


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a schema of one wire may contain. `known` lists the only allowed keywords; without it, all but the `banned` ones
    are allowed.

    `strict`: objects are closed and every value has a type. `all_required`: also, every property is required. `refs`:
    anywhere, only beside keywords with a dollar, only alone, or nowhere. `enums`: what an enum may list. `nullable`: null is
    a flag and not a type. `whole_lists`: a list has a schema for its items, only described properties are required, and only
    texts have enums. `listed`: only the first of these. `booleans`: true and false are schemas. `root_properties`: the root
    lists its properties, even if it has none.
    """

    strict: bool = False
    known: frozenset[str] = frozenset()
    banned: frozenset[str] = frozenset()
    all_required: bool = False
    object_root: bool = False
    refs: Literal["any", "bare", "alone", "none"] = "any"
    cycles: bool = True
    enums: Literal["any", "primitive", "plain", "text"] = "any"
    formats: frozenset[str] = frozenset()
    most_min_items: int | None = None
    nullable: bool = False
    whole_lists: bool = False
    listed: bool = False
    booleans: bool = True
    root_properties: bool = False

    def takes(self, keyword: str) -> bool:
        """True if a keyword may stay."""
        return keyword in self.known if self.known else keyword not in self.banned


# Unverified whether strict modes take these; in the description they cannot be refused.
CONDITIONS = "not if then else dependentSchemas dependentRequired contains propertyNames unevaluatedProperties".split()
# What the schema of a tool must be where it is not enforced: JSON Schema of the newest draft, and a little more.
ANTHROPIC_PLAIN = Dialect()
OPENAI_PLAIN = Dialect(listed=True, booleans=False, root_properties=True)
RANGES = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength".split()
ANTHROPIC_STRICT = Dialect(
    strict=True,
    banned=frozenset([*RANGES, "maxItems", "oneOf", "patternProperties", "prefixItems", *CONDITIONS]),
    cycles=False,
    enums="primitive",
    formats=frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split()),
    most_min_items=1,
)
OPENAI_STRICT = Dialect(
    strict=True,
    banned=frozenset(["allOf", "oneOf", "patternProperties", "prefixItems", *CONDITIONS]),
    all_required=True,
    object_root=True,
    refs="alone",
)
# Beside what the sheet lists: `default`, `pattern` and the older name of `$defs` are taken, as recorded.
GEMINI_JSON = Dialect(
    known=frozenset(
        "$id $defs definitions $ref $anchor type format title description enum items prefixItems minItems maxItems minimum "
        "maximum anyOf oneOf properties additionalProperties required propertyOrdering default pattern".split()
    ),
    refs="bare",
    enums="plain",
    booleans=False,
)
GEMINI_SUBSET = Dialect(
    known=frozenset(
        "type format title description nullable enum items minItems maxItems properties required propertyOrdering "
        "minProperties maxProperties minimum maximum minLength maxLength pattern anyOf default example".split()
    ),
    refs="none",
    enums="text",
    nullable=True,
    whole_lists=True,
    booleans=False,
)


MOST_DEPTH = 100
MOST_NODES = 20_000
"""Inlining repeats what it inlines; a schema beyond these is refused, as providers would refuse it."""

VALUES: dict[str, tuple[type, ...]] = {
    "primitive": (str, int, float, bool, type(None)),
    "plain": (str, int, float),
    "text": (str,),
}
NOISE = ("$schema", "$comment", "discriminator")
"""Keywords that do not constrain values."""


def transform(schema: str, dialect: Dialect, owner: Owner = OUTPUT) -> tuple[str | None, tuple[Loss, ...]]:
    """Return the schema in the dialect, and what that cost; None when it cannot be had, with one Loss that says why."""
    try:
        root = msgspec.json.decode(schema)
        if not isinstance(root, dict):
            raise Unfit("it is not an object")
        fitter = _Fitter(dialect, root)
        fitted = fitter.root()
    except (Unfit, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if dialect.strict:
            return None, (
                loss_of("dropped", f"{owner.topic}.strict", f"the schema cannot be enforced: {error}", name=owner.name),
            )
        why = f"it is not in this wire's dialect and sent as it is: {error}"
        return None, (loss_of("degraded", f"{owner.topic}.schema", why, name=owner.name),)
    if not fitter.changed:
        return schema, ()
    return dumps(fitted).decode(), fitter.losses(owner)


class _Fitter:
    """One schema that is being rewritten for a dialect."""

    def __init__(self, dialect: Dialect, whole: Node) -> None:
        self.dialect = dialect
        self.whole = whole
        self.changed = False
        self.notes: dict[tuple[str, str], None] = {}  # places, and what changed there
        self.at: tuple[str, ...] = ()  # the place in the whole schema that is looked at
        self.nodes = 0
        self.within: list[str] = []  # the references that are being inlined

    def losses(self, owner: Owner = OUTPUT) -> tuple[Loss, ...]:
        """Return what the rewriting cost, a loss for each place."""
        topic = f"{owner.topic}.schema"
        return tuple(loss_of("degraded", topic, why, name=owner.name, at=at) for at, why in self.notes)

    def note(self, why: str, *steps: str) -> None:
        """Report a change at this place of the schema, or at one below it."""
        self.notes["/".join((*self.at, *map(escape_step, steps))), why] = None

    def root(self) -> Node:
        root = self.whole
        if not self.dialect.cycles:
            refuse_cycles(root)
        if "$ref" in root and (self.dialect.object_root or self.dialect.refs == "none"):
            root = self._inline(root)
        if self.dialect.object_root and (root.get("type") != "object" or "anyOf" in root or "oneOf" in root):
            raise Unfit("its root must be one object")
        fitted = self._node(root, 0)
        if self.dialect.root_properties and fitted.get("type") == "object" and "properties" not in fitted:
            self.changed = True
            fitted["properties"] = {}
        return fitted

    def _node(self, node: Node, depth: int) -> Node:
        self.nodes += 1
        if depth > MOST_DEPTH or self.nodes > MOST_NODES:
            raise Unfit("it is too deep or too large")
        node = self._with_legal_words(node)
        if "$ref" in node and self.dialect.refs != "any" and not self._may_stay(node):
            return self._keep_reference(node) if node["$ref"] in self.within else self._follow(node, depth)
        for rewrite in self.REWRITES:
            node = rewrite(self, node)
        node = self._children(node, depth)
        return self._close(node) if self.dialect.strict else node

    def _may_stay(self, node: Node) -> bool:
        """True if a reference has nothing beside it that the dialect refuses."""
        if self.dialect.refs == "alone":
            return len(node) == 1
        return self.dialect.refs == "bare" and all(name.startswith("$") or name == "definitions" for name in node)

    def _follow(self, node: Node, depth: int) -> Node:
        """Return a schema with its reference inlined."""
        inlined = self._inline(node)
        self.within.append(str(node["$ref"]))
        before, self.at = self.at, tuple(str(node["$ref"]).split("/")[1:])
        fitted = self._node(inlined, depth + 1)
        self.at = before
        self.within.pop()
        return fitted

    def _keep_reference(self, node: Node) -> Node:
        """Keep a reference within itself: it can only stay if nothing but notes stands beside it."""
        if self.dialect.strict and (self.dialect.refs == "none" or not set(node) <= {"$ref", *NOTES}):
            raise Unfit(f"{node['$ref']} refers to itself")
        self.changed = True
        if self.dialect.refs == "none":
            return self._describe({name: value for name, value in node.items() if name in ("$ref", *NOTES)}, ["$ref"])
        self.note("what stands beside a recursive reference was dropped")
        return {"$ref": node["$ref"]}

    def _inline(self, node: Node) -> Node:
        self.changed = True
        beside = {name: value for name, value in node.items() if name != "$ref"}
        return self._unite(self._target(node), beside)

    def _unite(self, base: Node, more: Node) -> Node:
        """Merge two schemas; contradictions go into the description where they are not enforced."""
        try:
            return unite(base, more)
        except Unfit:
            if self.dialect.strict:
                raise
        return self._describe({**base, **more, "allOf": [base, more]}, ["allOf"])

    def _target(self, node: Node) -> Node:
        """Return what a reference refers to."""
        found = resolve_reference(str(node["$ref"]), self.whole)
        if found is self.whole:
            return {name: value for name, value in found.items() if name not in DEFINITIONS}
        return found

    # The rewritings of one schema.

    def _with_legal_words(self, node: Node) -> Node:
        """Describe keywords of a wrong form, and references that lead nowhere."""
        made = modernize(node, capitals=self.dialect.nullable)
        self.changed = self.changed or made is not node
        wrong = [name for name, value in made.items() if is_misformed(name, value)]
        if "$ref" in made and "$ref" not in wrong:
            try:
                self._target(made)
            except Unfit:
                if self.dialect.strict:
                    raise
                wrong.append("$ref")
        return self._describe(made, wrong) if wrong else made

    def _with_plain_lists(self, node: Node) -> Node:
        """Write lists as the dialect has them: with or without places, with or without boolean schemas, with their items."""
        places, rest = as_list(node.get("prefixItems")), node.get("items")
        if places and not self.dialect.takes("prefixItems"):
            node = self._describe(node, ["prefixItems"])
            choices = [*places, *([rest] if isinstance(rest, dict) else ())]
            same = all(choice == choices[0] for choice in choices)
            node["items"] = choices[0] if same else {"anyOf": choices}
        if isinstance(rest, bool) and (places or not self.dialect.booleans):
            self.changed = True
            node = {**node, "items": node["items"] if isinstance(node["items"], dict) else {}}
            node |= {} if rest else {"maxItems": len(places)}
        if self.dialect.listed and "array" in (node.get("type"), *as_list(node.get("type"))) and "items" not in node:
            self.changed = True
            node = {**node, "items": {}}
        return node

    def _without_noise(self, node: Node) -> Node:
        noise = [name for name in (*NOISE, *DEFINITIONS) if name in node and not self.dialect.takes(name)]
        more = node.get("additionalProperties")
        if isinstance(more, bool) and not self.dialect.takes("additionalProperties"):
            noise.append("additionalProperties")
            if not more:
                self.note("additionalProperties: false is left out", "additionalProperties")
        return self._cut(node, *noise) if noise else node

    def _without_patterns(self, node: Node) -> Node:
        if self.dialect.strict and node.get("patternProperties"):
            raise Unfit("an object that takes any property cannot be closed")
        if node.get("patternProperties") and "additionalProperties" in node and not self.dialect.takes("patternProperties"):
            self.note("additionalProperties is left out", "additionalProperties")
            return self._cut(node, "additionalProperties")  # it would forbid what the patterns allow
        return node

    def _without_all_of(self, node: Node) -> Node:
        if "allOf" not in node or self.dialect.takes("allOf"):
            return node
        self.changed = True
        whole = {name: value for name, value in node.items() if name != "allOf"}
        for part in as_list(node["allOf"]):
            part = self._inline(part) if isinstance(part, dict) and "$ref" in part else part
            whole = self._unite(whole, self._with_legal_words(dict_of(part)))
        return whole

    def _without_one_of(self, node: Node) -> Node:
        if "oneOf" not in node or self.dialect.takes("oneOf") or "anyOf" in node:
            return node
        self.note("oneOf is sent as anyOf", "oneOf")
        return {**self._cut(node, "oneOf"), "anyOf": node["oneOf"]}

    def _without_const(self, node: Node) -> Node:
        if "const" not in node or self.dialect.takes("const") or "enum" in node:
            return node
        return {**self._cut(node, "const"), "enum": [node["const"]]}

    def _with_plain_bounds(self, node: Node) -> Node:
        """Make exclusive bounds inclusive: integers above 3 are integers from 4 on."""
        for name, other, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            bound = node.get(name)
            if type(bound) is int and node.get("type") == "integer" and other not in node and self.dialect.known:
                node = {**self._cut(node, name), other: bound + step}
        return node

    def _with_flagged_null(self, node: Node) -> Node:
        """Write null as a flag, and one type per schema."""
        if not self.dialect.nullable:
            return node
        flagged = False
        for name in ("type", "anyOf", "enum"):
            values = as_list(node.get(name))
            rest = [value for value in values if value not in ("null", None) and not is_null(value)]
            if values and (name == "type" or len(rest) < len(values)):
                flagged = flagged or len(rest) < len(values)
                node = narrow_choice(self._cut(node, name), name, rest)
        return {**node, "nullable": True} if flagged else node

    def _with_known_words(self, node: Node) -> Node:
        """Describe what the dialect does not know: keywords, enum values, formats."""
        kind = str(node.get("type", "")).lower()
        moved = [name for name in node if not self.dialect.takes(name) or self._refuses(name, node[name], kind)]
        return self._describe(node, moved) if moved else node

    def _with_whole_lists(self, node: Node) -> Node:
        """State the items of lists, and require only described properties, where the dialect demands it."""
        if not self.dialect.whole_lists:
            return node
        if str(node.get("type")).lower() == "array" and "items" not in node:
            self.changed = True
            node = {**node, "items": {}}
        required, known = as_list(node.get("required")), dict_of(node.get("properties"))
        kept = [name for name in required if isinstance(name, str) and name in known]
        if len(kept) < len(required):
            self.changed = True
            self.note("required names without a property are left out", "required")
            node = {**node, "required": kept}
        return node

    def _refuses(self, name: str, value: object, kind: str) -> bool:
        """True if a keyword may stay, but not with this value in a schema of this type."""
        dialect = self.dialect
        match name:
            case "enum" if dialect.whole_lists and kind not in ("", "string"):
                return True
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
        _with_plain_lists,
        _with_plain_bounds,
        _with_flagged_null,
        _with_known_words,
        _with_whole_lists,
    )

    def _cut(self, node: Node, *names: str) -> Node:
        self.changed = True
        gone = frozenset(names)
        return {name: value for name, value in node.items() if name not in gone}

    def _describe(self, node: Node, names: list[str]) -> Node:
        """Move keywords into the description."""
        for name in names:
            self.note(f"{name}: only said in the description", name)
        said = ", ".join(f"{name}: {dumps(node[name]).decode()}" for name in names)
        before = node.get("description")
        text = f"{before}\n({said})" if isinstance(before, str) and before else f"({said})"
        return {**self._cut(node, "description", *names), "description": text}

    # What stands within a schema.

    def _children(self, node: Node, depth: int) -> Node:
        fitted = dict(node)
        for name in ("properties", *DEFINITIONS):
            if isinstance(node.get(name), dict):
                fitted[name] = {key: self._child(child, depth, name, key) for key, child in dict_of(node[name]).items()}
        for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if isinstance(node.get(name), list):
                fitted[name] = [self._child(one, depth, name, str(place)) for place, one in enumerate(as_list(node[name]))]
        for name in ("items", "additionalProperties"):
            if isinstance(node.get(name), dict):
                fitted[name] = self._child(node[name], depth, name)
        return fitted

    def _child(self, child: object, depth: int, *steps: str) -> object:
        if isinstance(child, dict):
            before = self.at
            self.at = (*before, *map(escape_step, steps))
            fitted = self._node(child, depth + 1)
            self.at = before
            return fitted
        if self.dialect.strict:
            raise Unfit("a value of any type cannot be enforced")
        if isinstance(child, bool) and self.dialect.booleans:
            return child
        self.changed = True
        if child is True:
            return {}
        return self._node({"not": {}}, depth + 1) if child is False else {"description": f"({dumps(child).decode()})"}

    def _close(self, node: Node) -> Node:
        kinds = as_list(node.get("type")) or [node.get("type")]
        if "array" in kinds and not isinstance(node.get("items"), dict) and "prefixItems" not in node:
            raise Unfit("a list of anything cannot be enforced")
        if "object" in kinds or "properties" in node:
            return self._close_object(node)
        if not node.keys() & {"type", "enum", "const", "anyOf", "allOf", "$ref"}:
            raise Unfit("a value of any type cannot be enforced")
        return node

    def _close_object(self, node: Node) -> Node:
        more = node.get("additionalProperties")
        if not isinstance(node.get("properties"), dict if more is None else (dict, type(None))) or more not in (None, False):
            raise Unfit("an object that takes any property cannot be closed")
        if more is not False:
            self.changed = True
            self.note("objects are closed", "additionalProperties")
            node = {**node, "additionalProperties": False}
        return self._require_all(node) if self.dialect.all_required else node

    def _require_all(self, node: Node) -> Node:
        properties = dict_of(node.get("properties"))
        given = [name for name in as_list(node.get("required")) if isinstance(name, str)]
        absent = [name for name in properties if name not in given]
        if not absent:
            return node
        self.changed = True
        for name in absent:
            self.note(f"optional {name}: null stands for absent", "properties", name)
        nulled = {name: allow_null(dict_of(child)) if name in absent else child for name, child in properties.items()}
        return {**node, "properties": nulled, "required": [*given, *absent]}
