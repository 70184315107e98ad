"""What this wire refuses at the root of a tool's schema, said in words instead: names of other characters. Pure.

Only the root is looked at, as the provider does. Nothing becomes wrong by it: arguments are held against the whole schema
again before a tool runs.
"""

import re

import msgspec

from evener.transcript.loss import Loss, Owner, escape_step, loss_of
from evener.wire.text import dict_of, dumps

__all__ = ["fit_names"]

NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

Node = dict[str, object]


def fit_names(schema: str, owner: Owner, losses: list[Loss]) -> str:
    """The schema itself if the wire takes it; else one that is wider, and that describes what it leaves out."""
    try:
        root = msgspec.json.decode(schema, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return schema
    properties = dict_of(root.get("properties"))
    foreign = [name for name in properties if not NAME.fullmatch(name)]
    if not foreign:
        return schema
    losses += (
        loss_of(
            "degraded",
            f"{owner.topic}.schema",
            f"{name}: this wire takes no such names; described",
            name=owner.name,
            at=f"properties/{escape_step(name)}",
        )
        for name in foreign
    )
    required = [name for name in _names(root.get("required")) if name in foreign]
    said: Node = {"properties": {name: properties[name] for name in foreign}, **({"required": required} if required else {})}
    return dumps(_widened(root, foreign) | {"description": _described(root, said)}).decode()


def _widened(root: Node, foreign: list[str]) -> Node:
    """The root without these properties, but so that they may be written."""
    kept = {name: value for name, value in dict_of(root.get("properties")).items() if name not in foreign}
    required = [name for name in _names(root.get("required")) if name not in foreign]
    return {**root, "properties": kept, "required": required, "additionalProperties": True}


def _described(root: Node, said: Node) -> str:
    before = root.get("description")
    text = f"The object must also fit this JSON Schema, names included: {dumps(said).decode()}"
    return f"{before}\n{text}" if isinstance(before, str) and before else text


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
