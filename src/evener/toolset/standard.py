"""Standard tools: which ones a model may know in a form of its own, and arguments that only such forms have. Pure."""

from collections.abc import Collection

from msgspec.structs import replace

from evener.tools.tool import Tool
from evener.transcript.blocks import json_text


def as_standard(tool: Tool, standard: str) -> Tool:
    """Return the tool marked as the standard tool of this name, so that models get it in the form that they know."""
    return replace(tool, spec=replace(tool.spec, standard=standard))


def hide_arguments(tool: Tool, names: Collection[str]) -> Tool:
    """Return a tool whose schema does not show these fields. They are still accepted."""
    shown = _without(tool.spec.input_schema, names)
    assert isinstance(shown, dict)
    return replace(tool, spec=replace(tool.spec, schema=json_text(shown, "The schema of a tool")))


def _without(value: object, names: Collection[str]) -> object:
    if isinstance(value, list):
        return [_without(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _without(inner, names) for name, inner in value.items()}
    if isinstance(fields := made.get("properties"), dict):
        made["properties"] = {name: inner for name, inner in fields.items() if name not in names}
    return made
