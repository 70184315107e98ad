"""The schema of a tool as it goes out: a plain object at its root, in the wire's dialect, enforced if possible. Pure."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from evener.errors import BadValue
from evener.transcript.ask import OutputSchema, ToolSpec
from evener.transcript.loss import Loss, Owner, loss_of
from evener.transcript.scan import list_references
from evener.wire.prefix import dict_of, dumps
from evener.wire.quirks import Quirks
from evener.wire.schema import DEFINITIONS, NOTES, Dialect, Node, Unfit, as_list, resolve_reference, transform

UNIONS = ("anyOf", "oneOf")
DESCRIBED = ("not", "enum", "const")
REWRITTEN = frozenset(("$ref", "allOf", *UNIONS, *DESCRIBED))
"""Keywords that no provider takes at the root."""
OWN = frozenset((*REWRITTEN, *DEFINITIONS, "type", "properties", "required", "additionalProperties"))
"""Keywords that are put together from all parts of the root."""
MOST_DEEP = 50
LONGEST = 4_000
ONLY_SAID = "it stands at the root, where no provider takes it; only said in the description"
HOME = "arguments"
"""The definition that keeps the original root, if something within it refers to it."""
CHOSEN = frozenset(("const", "enum", "type", *NOTES))


class _NoObject(Exception):
    """A schema takes no object."""


class _Plain(msgspec.Struct):
    """The parts of an object. With `closed` None it is open whether there are more properties."""

    properties: Node = {}
    required: list[str] = []
    closed: object = None
    more: Node = {}


def make_canonical(schema: str, owner: Owner, losses: list[Loss]) -> tuple[str, bool]:
    """Return the schema with a plain object at its root, the same text if it has one, and whether it takes exactly the same.

    What it takes beyond the schema is a Loss. A schema that takes no object is a BadValue.
    """
    try:
        root = msgspec.json.decode(schema, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):  # too deep to look into: the provider decides
        return schema, True
    if root.get("type") == "object" and REWRITTEN.isdisjoint(root):
        return schema, True
    maker = _Maker(root)
    try:
        made = maker.make()
    except _NoObject:
        raise BadValue(
            f"The schema of {owner} takes no object, and arguments always are one. Put the value under a property of an object."
        ) from None
    except Unfit as error:
        raise BadValue(f"The schema of {owner} cannot be sent: {error}. Describe its arguments in the schema itself.") from None
    if maker.said:
        topic = f"{owner.topic}.schema"
        losses += (loss_of("degraded", topic, f"{name}: {ONLY_SAID}", name=owner.name, at=name) for name in maker.said)
    return dumps(made).decode(), not maker.said


class _Maker:
    """One schema on its way to the form. `said` is what goes into the description only."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.said: Node = {}

    def make(self) -> Node:
        plain = self._flatten(self.root, (), 0)
        definitions = {name: self.root[name] for name in DEFINITIONS if name in self.root}
        made: Node = {**plain.more, "type": "object", "properties": plain.properties}
        if plain.required:
            made["required"] = plain.required
        if plain.closed is not None:
            made["additionalProperties"] = plain.closed
        if self.said:
            made["description"] = _describe(plain.more.get("description"), self.said)
        return _house_root({**made, **definitions}, self.root)

    def _flatten(self, node: object, within: Sequence[str], depth: int) -> _Plain:
        """Return what a schema says of an object. Everything in it must hold."""
        if depth > MOST_DEEP:
            raise Unfit("it is too deep")
        if node is False:
            raise _NoObject
        node = dict_of(node)
        kinds = as_list(node.get("type")) or [node.get("type") or "object"]
        if "object" not in (kind.lower() if isinstance(kind, str) else kind for kind in kinds):
            raise _NoObject
        parts = [self._take(node)]
        if "$ref" in node:
            ref = str(node["$ref"])
            if ref in within:
                raise Unfit(f"{ref[:80]} refers to itself")
            parts.append(self._flatten(resolve_reference(ref, self.root), (*within, ref), depth + 1))
        parts += [self._flatten(part, within, depth + 1) for part in as_list(node.get("allOf"))]
        for name in UNIONS:
            if isinstance(node.get(name), list):
                parts.append(self._choose(node, name, within, depth))
        self.said |= {name: node[name] for name in DESCRIBED if name in node}
        return self._combine(parts)

    def _take(self, node: Node) -> _Plain:
        """Return what a schema says itself."""
        properties = {name: child for name, child in dict_of(node.get("properties")).items() if child is not False}
        required = [name for name in as_list(node.get("required")) if isinstance(name, str)]
        more = {name: value for name, value in node.items() if name not in OWN}
        return _Plain(properties, required, node.get("additionalProperties"), more)

    def _combine(self, parts: Sequence[_Plain]) -> _Plain:
        """Combine several that must all hold. Contradictions are left to the description."""
        properties: Node = {}
        for name in dict.fromkeys(name for part in parts for name in part.properties):
            described = _distinct(part.properties[name] for part in parts if name in part.properties)
            properties[name] = described[0] if len(described) == 1 else {"allOf": described}
        more: Node = {}
        for part in parts:
            for name, value in part.more.items():
                if more.setdefault(name, value) != value and name not in NOTES:
                    self.said[name] = value
        required = dict.fromkeys(name for part in parts for name in part.required)
        return _Plain(properties, list(required), self._close(parts, properties), more)

    def _close(self, parts: Sequence[_Plain], properties: Node) -> object:
        """Return the rule for further properties of the one part that knows all properties; open where none does."""
        stated = [part for part in parts if part.closed not in (None, True)]
        knowing = [part.closed for part in stated if part.properties.keys() == properties.keys()]
        if len(knowing) == len(stated) and len(_distinct(knowing)) < 2:
            return knowing[0] if knowing else next((part.closed for part in parts if part.closed is not None), None)
        self.said["additionalProperties"] = stated[0].closed
        return None

    def _choose(self, node: Node, name: str, within: Sequence[str], depth: int) -> _Plain:
        """Return what a choice says: its only object, else what all of its objects have together."""
        found: list[_Plain] = []
        for choice in as_list(node[name]):
            try:
                found.append(self._flatten(choice, within, depth + 1))
            except _NoObject:
                continue
        if len(found) == 1:
            return found[0]
        if not found and node[name]:
            raise _NoObject
        self.said[name] = node[name]
        properties: Node = {}
        for key in dict.fromkeys(key for choice in found for key in choice.properties):
            properties[key] = _widen(_distinct(choice.properties[key] for choice in found if key in choice.properties))
        required = [key for key in (found[0].required if found else ()) if all(key in choice.required for choice in found)]
        closed = False if found and all(choice.closed is False for choice in found) else None
        return _Plain(properties, required, closed)


def _widen(choices: list[object]) -> object:
    """Return a schema that takes what any of these takes; values to choose from become one list."""
    if len(choices) == 1:
        return choices[0]
    nodes = [dict_of(choice) for choice in choices]
    kinds = _distinct(node.get("type") for node in nodes)
    if len(kinds) == 1 and all(node.keys() <= CHOSEN and ("const" in node) != ("enum" in node) for node in nodes):
        values = _distinct(value for node in nodes for value in ([node["const"]] if "const" in node else as_list(node["enum"])))
        return {**({"type": kinds[0]} if kinds[0] is not None else {}), "enum": values}
    return {"anyOf": choices}


def _distinct(values: Iterable[object]) -> list[object]:
    """Return each value once. True is not 1."""
    return list({dumps(value): value for value in values}.values())


def _describe(before: object, said: Node) -> str:
    told = dumps(said).decode()
    rule = f"The object must also fit this JSON Schema: {told}"
    if len(rule) > LONGEST:
        rule = f"The object must also fit rules of its schema that are too long to be told here: {', '.join(said)}"
    return f"{before}\n{rule}" if isinstance(before, str) and before else rule


# References to the root, or into it, must still find the original.


def _house_root(made: Node, root: Node) -> Node:
    """Keep the original root among the definitions, if something refers to it."""
    if not any(_is_inward(ref) for ref in list_references(root)):
        return made
    name = HOME
    while name in dict_of(made.get("$defs")):
        name += "_"
    whole = {key: value for key, value in root.items() if key not in DEFINITIONS}
    made = {**made, "$defs": {**dict_of(made.get("$defs")), name: whole}}
    return dict_of(_redirect(made, f"#/$defs/{name}"))


def _is_inward(ref: str) -> bool:
    return ref == "#" or (ref.startswith("#/") and ref.split("/")[1] not in DEFINITIONS)


def _redirect(value: object, home: str) -> object:
    """Point references to the root to its new place. As deep as a JSON text that was parsed."""
    if isinstance(value, list):
        return [_redirect(one, home) for one in value]
    if not isinstance(value, dict):
        return value
    moved = {name: _redirect(one, home) for name, one in value.items()}
    ref = moved.get("$ref")
    if isinstance(ref, str) and _is_inward(ref):
        moved["$ref"] = home + ref[1:]
    return moved


Narrow = Callable[[str, Owner, list[Loss]], str]


def report_description(output: OutputSchema, losses: list[Loss]) -> None:
    """Report that the description of an output schema has no field here."""
    if output.description:
        losses.append(loss_of("dropped", "output.description", "there is no field for it here"))


def enforce_schema(
    schema: str, strict: bool | None, dialect: Dialect, quirks: Quirks, owner: Owner, losses: list[Loss]
) -> tuple[msgspec.Raw, bool | None]:
    """Return the schema to send, and the switch beside it: strict only where endpoint and schema allow it."""
    if not strict:
        return msgspec.Raw(schema.encode()), strict if quirks.strict else None
    if not quirks.strict:
        losses.append(loss_of("dropped", f"{owner.topic}.strict", "this endpoint does not enforce schemas", name=owner.name))
        return msgspec.Raw(schema.encode()), None
    fitted, lost = transform(schema, dialect, owner)
    losses += lost
    return msgspec.Raw((fitted or schema).encode()), fitted is not None


def declare_schema(
    tool: ToolSpec, dialects: tuple[Dialect, Dialect], quirks: Quirks, losses: list[Loss], narrow: Narrow | None = None
) -> tuple[msgspec.Raw, bool | None]:
    """Return the schema of a tool in its canonical form and a wire's dialect, and the switch beside it.

    `dialects` are those for schemas that are not enforced, and for those that the provider enforces. `narrow` is what a wire
    changes about the form; where it changes something, the schema is not enforced.
    """
    plain, strict_dialect = dialects
    owner = Owner("tool", tool.name)
    form, exact = make_canonical(tool.schema, owner, losses)
    named = narrow(form, owner, losses) if narrow else form
    exact, form, strict = exact and named is form, named, tool.strict
    if strict and not exact:
        losses.append(loss_of("dropped", "tool.strict", "the root of its schema is wider than it was", name=tool.name))
        strict = None
    sent, switch = enforce_schema(form, strict, strict_dialect, quirks, owner, losses)
    if switch:
        return sent, switch
    fitted, lost = transform(form, plain, owner)
    losses += lost
    return msgspec.Raw((fitted or form).encode()), switch
