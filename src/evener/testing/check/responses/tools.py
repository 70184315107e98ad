"""Tools, tool choice and text format of one Responses request. Sheet sections 4 and 5. Never looks at calls in the input,
except to learn which tools were added there."""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.json_schema import CLONE_FORM, OPENAI, OPENAI_FORM, check_arguments, check_subset
from evener.testing.check.models import ServerRow
from evener.testing.check.responses import computer
from evener.testing.check.responses.items import item_type
from evener.testing.check.responses.parts import loosened
from evener.testing.check.shape import (
    BOOL,
    LIST,
    OBJECT,
    STR,
    ObjectShape,
    check_shape,
    fields,
    items,
    join,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

_FUNCTION = ObjectShape(
    {"type": STR, "name": STR},
    {
        "description": STR,
        "parameters": OBJECT,
        "strict": BOOL,
        "defer_loading": BOOL,
        "async": BOOL,
        "output_schema": OBJECT,
        "allowed_callers": LIST,
    },
)
_OPEN = ObjectShape({"type": STR}, open=True)
TOOLS: Mapping[str, ObjectShape] = {
    "function": _FUNCTION,
    "custom": ObjectShape({"type": STR, "name": STR}, {"description": STR, "format": OBJECT}, open=True),
    "namespace": ObjectShape({"type": STR, "name": STR, "tools": LIST}, {"description": STR}, open=True),
    "file_search": ObjectShape({"type": STR, "vector_store_ids": LIST}, open=True),
    "mcp": ObjectShape({"type": STR, "server_label": STR}, open=True),
    "computer": computer.TOOL,
    "computer_use_preview": computer.PREVIEW,
    **dict.fromkeys(
        (
            *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
            *("code_interpreter", "image_generation", "local_shell", "shell"),
            *("apply_patch", "tool_search", "programmatic_tool_calling"),
        ),
        _OPEN,
    ),
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_FORMAT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_tools(body: Mapping[str, object], row: ServerRow) -> Iterator[Violation]:
    """Report what is wrong with the tool list, and with tools that an item adds."""
    yield from _check_list("tools", body.get("tools"), row)
    for index, item in enumerate(map(fields, items(body.get("input")))):
        if item_type(item) == "additional_tools":
            yield from _check_list(f"input[{index}].tools", item.get("tools"), row)
    kinds = {text(fields(tool).get("type")) for tool in items(body.get("tools"))}
    deferred = any(_is_deferred(fields(tool)) for tool in items(body.get("tools")))
    if deferred and "tool_search" not in kinds and body.get("prompt") is None:
        yield Violation("tools", "tool.deferred", "Deferred tools require tools.tool_search.")


def _is_deferred(tool: Mapping[str, object]) -> bool:
    return any(fields(one).get("defer_loading") is True for one in [tool, *items(tool.get("tools"))])


def _check_list(path: str, tools: object, row: ServerRow) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, value in enumerate(items(tools)):
        at, tool = f"{path}[{index}]", fields(value)
        kind = text(tool.get("type"))
        shape = TOOLS.get(kind)
        if not isinstance(value, dict):
            yield Violation(at, "type", "Input should be an object (a tool).")
        elif shape is None:
            yield Violation(join(at, "type"), "tool.type", f"Invalid value: {shown(kind)} is no tool type.")
        else:
            yield from _check_tool(at, tool, shape, row)
        name = text(tool.get("name"))
        if name and name in seen:
            yield Violation(join(at, "name"), "tool.duplicate", f"Duplicate tool name {shown(name)}.")
        seen.add(name)
        if kind == "namespace":
            yield from _check_members(join(at, "tools"), tool.get("tools"), row)


def _check_members(path: str, tools: object, row: ServerRow) -> Iterator[Violation]:
    for index, value in enumerate(items(tools)):
        tool = fields(value)
        if tool.get("type") == "function":
            yield from _check_tool(f"{path}[{index}]", tool, _FUNCTION, row)


def _check_tool(path: str, tool: Mapping[str, object], shape: ObjectShape, row: ServerRow) -> Iterator[Violation]:
    yield from check_shape(path, tool, shape if row.known_fields_only else loosened(shape))
    name, parameters = tool.get("name"), tool.get("parameters")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        message = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 128 characters."
        yield Violation(join(path, "name"), "tool.name", message)
    if tool.get("type") != "function" or not isinstance(parameters, dict):
        return
    at, form = join(path, "parameters"), OPENAI_FORM if row.known_fields_only else CLONE_FORM
    yield from check_arguments(at, fields(parameters), form)
    if tool.get("strict") is True:
        yield from check_subset(at, parameters, OPENAI)


_CHOICES: Mapping[str, ObjectShape] = {
    "function": ObjectShape({"type": STR, "name": STR}),
    "custom": ObjectShape({"type": STR, "name": STR}),
    "mcp": ObjectShape({"type": STR, "server_label": STR}, {"name": STR}),
    "allowed_tools": ObjectShape({"type": STR, "mode": one_of("auto", "required"), "tools": LIST}),
    **dict.fromkeys(
        (
            *("file_search", "web_search", "web_search_2025_08_26", "web_search_preview"),
            *("web_search_preview_2025_03_11", "computer", "computer_use", "computer_use_preview"),
            *("image_generation", "code_interpreter", "shell", "apply_patch", "programmatic_tool_calling"),
        ),
        ObjectShape({"type": STR}),
    ),
}
_NAMED = frozenset(("function", "custom"))


def check_choice(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report a tool choice of the wrong form, or one that names a tool the request does not have."""
    choice = body.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            message = f"Invalid value: {shown(choice)}. Supported values are: 'none', 'auto', and 'required'."
            yield Violation("tool_choice", "tool_choice.type", message)
        elif choice == "required" and not _has_tools(body):
            message = "Tool choice 'required' must be specified with 'tools' parameter."
            yield Violation("tool_choice", "tool_choice.no_tools", message)
        return
    chosen = fields(choice)
    shape = _CHOICES.get(text(chosen.get("type")))
    if shape is None:
        message = "tool_choice should be a mode or an object with a known type"
        yield Violation("tool_choice", "tool_choice.type", message)
        return
    yield from check_shape("tool_choice", chosen, shape)
    yield from _check_names(body, chosen)


def _check_names(body: Mapping[str, object], chosen: Mapping[str, object]) -> Iterator[Violation]:
    known = _known(body)
    listed = items(chosen.get("tools")) if chosen.get("type") == "allowed_tools" else [chosen]
    for wanted in map(fields, listed):
        kind, name = text(wanted.get("type")), text(wanted.get("name"))
        if kind in _NAMED and name and (kind, name) not in known and body.get("prompt") is None:
            message = f"Tool choice {shown(name)} not found in 'tools' parameter."
            yield Violation("tool_choice", "tool_choice.unknown", message)


def _known(body: Mapping[str, object]) -> set[tuple[str, str]]:
    """Return the named tools of the request: in `tools`, in a namespace, added by an item or found by a search."""
    found: set[tuple[str, str]] = set()
    for tool in map(fields, _all_tools(body)):
        for one in [tool, *map(fields, items(tool.get("tools")))]:
            found.add((text(one.get("type")), text(one.get("name"))))
    return found


def _all_tools(body: Mapping[str, object]) -> Iterator[object]:
    yield from items(body.get("tools"))
    for item in map(fields, items(body.get("input"))):
        if item_type(item) in ("additional_tools", "tool_search_output"):
            yield from items(item.get("tools"))


def _has_tools(body: Mapping[str, object]) -> bool:
    return body.get("prompt") is not None or any(True for _tool in _all_tools(body))


_FORMATS: Mapping[str, ObjectShape] = {
    "text": ObjectShape({"type": STR}),
    "json_object": ObjectShape({"type": STR}),
    "json_schema": ObjectShape({"type": STR, "name": STR, "schema": OBJECT}, {"strict": BOOL, "description": STR}),
}


def check_format(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report a text format of the wrong form, a schema outside the strict subset, and JSON mode without its word."""
    form = fields(body.get("text")).get("format")
    if form is None:
        return
    held, path = fields(form), "text.format"
    kind = text(held.get("type"))
    shape = _FORMATS.get(kind)
    if shape is None:
        message = f"Invalid value: {shown(kind)}. Supported values are: 'json_object', 'json_schema', and 'text'."
        yield Violation(f"{path}.type", "format.type", message)
        return
    yield from check_shape(path, held, shape)
    name = held.get("name")
    if kind == "json_schema" and isinstance(name, str) and not _FORMAT_NAME.fullmatch(name):
        message = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 64 characters."
        yield Violation(f"{path}.name", "format.name", message)
    if held.get("strict") is True and isinstance(held.get("schema"), dict):
        yield from check_subset(f"{path}.schema", held["schema"], OPENAI)
    if kind == "json_object" and not _says_json(body):
        message = "Response input messages must contain the word 'json' in some form to use 'json_object'."
        yield Violation("input", "format.json_word", message)


def _says_json(body: Mapping[str, object]) -> bool:
    """True if the input says "json" in any letter case; history on the server may say it too, so it counts as said."""
    given = body.get("input")
    if any(body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt")):
        return True
    if isinstance(given, str):
        return "json" in given.lower()
    return any("json" in said.lower() for item in map(fields, items(given)) for said in _said(item))


def _said(item: Mapping[str, object]) -> Iterator[str]:
    for place in (item.get("content"), item.get("output")):
        if isinstance(place, str):
            yield place
        for part in map(fields, items(place)):
            yield text(part.get("text"))
