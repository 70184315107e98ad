"""The arguments of a call as its tool gets them: with the defaults of what was left out, at every depth. For rules about calls.

A rule about an argument must not be passed by leaving that argument out. Nothing is run here, and what the model wrote stays.
"""

import inspect
from collections.abc import Mapping

import msgspec

from evener.tools.arguments import Accepted
from evener.tools.tool import Tool
from evener.transcript.checks import json_object, json_text

__all__ = ["with_defaults"]

MOST_DEEP = 100


def with_defaults(tool: Tool, raw: str) -> str | None:
    """The JSON text of the arguments with all defaults in it; None when they do not fit, so that the tool will not run."""
    read = tool.read(raw)
    if not isinstance(read, Accepted):
        return None
    given = json_object(raw, "The arguments")
    known = _plain(read.whole[0]) if read.whole else {**_of_signature(tool), **{k: _plain(v) for k, v in read.named.items()}}
    schema = json_object(tool.schema, "The schema")
    full = _of_schema(_filled(given, known), schema, schema, 0)
    return raw if full == given or not isinstance(full, dict) else json_text(full, "The arguments")


def _of_signature(tool: Tool) -> dict[str, object]:
    found = inspect.signature(tool.function).parameters.values()
    context = tool.callee.context if tool.callee else ""
    return {one.name: _plain(one.default) for one in found if one.default is not one.empty and one.name != context}


def _plain(value: object) -> object:
    """The value as JSON has it."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_dumped)


def _dumped(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True) if callable(dump) else str(value)


def _filled(given: object, known: object) -> object:
    """What was given, and what is only known."""
    match given, known:
        case dict(), dict():
            return {**{name: _filled(value, known.get(name)) for name, value in given.items()}, **_only(known, given)}
        case list(), list() if len(given) == len(known):
            return [_filled(*pair) for pair in zip(given, known, strict=True)]
        case _:
            return given


def _only(known: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in known.items() if name not in given}


def _of_schema(value: object, node: object, root: Mapping[str, object], depth: int) -> object:
    """With the defaults that the schema names, for tools that are made from one."""
    node = _followed(node, root)
    if not isinstance(node, dict) or depth > MOST_DEEP:
        return value
    match value:
        case dict():
            properties = node.get("properties")
            shapes = properties if isinstance(properties, dict) else {}
            inner = {name: _of_schema(item, shapes.get(name), root, depth + 1) for name, item in value.items()}
            said = {name: shape["default"] for name, shape in shapes.items() if isinstance(shape, dict) and "default" in shape}
            return {**inner, **_only(said, inner)}
        case list():
            return [_of_schema(item, node.get("items"), root, depth + 1) for item in value]
        case _:
            return value


def _followed(node: object, root: Mapping[str, object]) -> object:
    """What a reference inside the schema stands for."""
    for _ in range(MOST_DEEP):
        target = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(target, str) or not target.startswith("#"):
            return node
        node = root
        for step in target.lstrip("#/").split("/") if target != "#" else ():
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return None
