"""What this wire refuses at the root of a tool's schema, said in words instead: unions, and names of other characters. Pure.

Only the root is looked at, as the provider does. Nothing becomes wrong by it: arguments are held against the whole schema
again before a tool runs, and a structured answer before it is accepted.
"""

import re

import msgspec

from evener.transcript.loss import Loss, Owner, escape_step, loss_of
from evener.wire.text import dict_of, dumps

__all__ = ["fit_root"]

NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
UNIONS = ("oneOf", "anyOf", "allOf")

Node = dict[str, object]


def fit_root(schema: str, owner: Owner, losses: list[Loss]) -> str:
    """The schema itself if the wire takes it; else one that is wider, and that describes what it leaves out."""
    try:
        root = msgspec.json.decode(schema, type=dict[str, object])
    except msgspec.MsgspecError:
        return schema
    properties = dict_of(root.get("properties"))
    foreign = [name for name in properties if not NAME.fullmatch(name)]
    unions = [name for name in UNIONS if name in root]
    if not foreign and not unions:
        return schema
    said = {name: root[name] for name in unions}
    if foreign:
        said |= _left_out(root, properties, foreign)
        losses += (
            _described_only(owner, f"{name}: this wire takes no such names; described", f"properties/{escape_step(name)}")
            for name in foreign
        )
    if unions:
        losses += (_described_only(owner, f"{name} at the top: only said in the description", name) for name in unions)
    wider = {name: value for name, value in root.items() if name not in unions}
    return dumps(_widened(wider, foreign) | {"description": _described(root, said)}).decode()


def _described_only(owner: Owner, why: str, at: str) -> Loss:
    return loss_of("degraded", f"{owner.topic}.schema", why, name=owner.name, at=at)


def _left_out(root: Node, properties: Node, foreign: list[str]) -> Node:
    """The properties that the wire has no names for, and which of them are required."""
    required = [name for name in _names(root.get("required")) if name in foreign]
    return {"properties": {name: properties[name] for name in foreign}, **({"required": required} if required else {})}


def _widened(root: Node, foreign: list[str]) -> Node:
    """The root without these properties, but so that they may be written."""
    if not foreign:
        return root
    kept = {name: value for name, value in dict_of(root.get("properties")).items() if name not in foreign}
    required = [name for name in _names(root.get("required")) if name not in foreign]
    return {**root, "properties": kept, "required": required, "additionalProperties": True}


def _described(root: Node, said: Node) -> str:
    before = root.get("description")
    text = f"The object must also fit this JSON Schema, names included: {dumps(said).decode()}"
    return f"{before}\n{text}" if isinstance(before, str) and before else text


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
