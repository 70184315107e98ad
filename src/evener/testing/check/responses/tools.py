"""Tools, tool choice and text format of one Responses request. Sheet sections 4 and 5. Reads the input
only for tools that were added there."""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.json_schema import CLONE_FORM, OPENAI, OPENAI_FORM, check_arguments, check_subset
from evener.testing.check.models import ServerRow
from evener.testing.check.openai import LONG_NAME, NAME, WRONG_LONG_NAME, WRONG_NAME, says_json
from evener.testing.check.responses import computer
from evener.testing.check.responses.items import item_type
from evener.testing.check.shape import (
    ObjectShape,
    Violation,
    check_shape,
    fields,
    items,
    join,
    shape,
    shown,
    text,
    text_like,
)

_FUNCTION = shape(
    "type name: str",
    "description: str, parameters output_schema: object, strict defer_loading async: bool, allowed_callers: list",
)
TOOLS: Mapping[str, ObjectShape] = {
    "function": _FUNCTION,
    "custom": shape("type name: str", "description: str, format: object", open=True),
    "namespace": shape("type name: str, tools: list", "description: str", open=True),
    "file_search": shape("type: str, vector_store_ids: list", open=True),
    "mcp": shape("type server_label: str", open=True),
    "computer": computer.TOOL,
    "computer_use_preview": computer.PREVIEW,
    **dict.fromkeys(
        (
            *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
            *("code_interpreter", "image_generation", "local_shell", "shell"),
            *("apply_patch", "tool_search", "programmatic_tool_calling"),
        ),
        shape("type: str", open=True),
    ),
}


def check_tools(body: Mapping[str, object], row: ServerRow) -> Iterator[Violation]:
    """Report errors in the tool list, and in tools that an item adds."""
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
        if not isinstance(value, dict):
            yield Violation(at, "type", "Input should be an object (a tool).")
        elif kind not in TOOLS:
            yield Violation(join(at, "type"), "tool.type", f"Invalid value: {shown(kind)} is not a tool type.")
        else:
            yield from _check_tool(at, tool, row)
        name = text(tool.get("name"))
        if name and name in seen:
            yield Violation(join(at, "name"), "tool.duplicate", f"Duplicate tool name {shown(name)}.")
        seen.add(name)
        for number, member in enumerate(map(fields, items(tool.get("tools")) if kind == "namespace" else ())):
            if member.get("type") == "function":
                yield from _check_tool(f"{at}.tools[{number}]", member, row)


def _check_tool(path: str, tool: Mapping[str, object], row: ServerRow) -> Iterator[Violation]:
    yield from check_shape(path, tool, TOOLS[text(tool.get("type"))], loose=not row.known_fields_only)
    name, parameters = tool.get("name"), tool.get("parameters")
    if isinstance(name, str) and not re.fullmatch(LONG_NAME, name):
        yield Violation(join(path, "name"), "tool.name", WRONG_LONG_NAME)
    if tool.get("type") != "function" or not isinstance(parameters, dict):
        return
    at, form = join(path, "parameters"), OPENAI_FORM if row.known_fields_only else CLONE_FORM
    yield from check_arguments(at, fields(parameters), form)
    if tool.get("strict") is True:
        yield from check_subset(at, parameters, OPENAI)


_CHOICES: Mapping[str, ObjectShape] = {
    "function": shape("type name: str"),
    "custom": shape("type name: str"),
    "mcp": shape("type server_label: str", "name: str"),
    "allowed_tools": shape("type: str, mode: 'auto'|'required', tools: list"),
    **dict.fromkeys(
        (
            *("file_search", "web_search", "web_search_2025_08_26", "web_search_preview"),
            *("web_search_preview_2025_03_11", "computer", "computer_use", "computer_use_preview"),
            *("image_generation", "code_interpreter", "shell", "apply_patch", "programmatic_tool_calling"),
        ),
        shape("type: str"),
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
        elif choice == "required" and body.get("prompt") is None and not any(True for _tool in _all_tools(body)):
            message = "Tool choice 'required' must be specified with 'tools' parameter."
            yield Violation("tool_choice", "tool_choice.no_tools", message)
        return
    chosen = fields(choice)
    known = _CHOICES.get(text(chosen.get("type")))
    if known is None:
        message = "tool_choice should be a mode or an object with a known type"
        yield Violation("tool_choice", "tool_choice.type", message)
        return
    yield from check_shape("tool_choice", chosen, known)
    yield from _check_names(body, chosen)


def _check_names(body: Mapping[str, object], chosen: Mapping[str, object]) -> Iterator[Violation]:
    known = _list_known(body)
    listed = items(chosen.get("tools")) if chosen.get("type") == "allowed_tools" else [chosen]
    for wanted in map(fields, listed):
        kind, name = text(wanted.get("type")), text(wanted.get("name"))
        if kind in _NAMED and name and (kind, name) not in known and body.get("prompt") is None:
            message = f"Tool choice {shown(name)} not found in 'tools' parameter."
            yield Violation("tool_choice", "tool_choice.unknown", message)


def _list_known(body: Mapping[str, object]) -> set[tuple[str, str]]:
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


_FORMATS: Mapping[str, ObjectShape] = {
    "text": shape("type: str"),
    "json_object": shape("type: str"),
    "json_schema": shape(
        "type: str, name: NAME, schema: object",
        "strict: bool, description: str",
        NAME=text_like(NAME, Violation("", "format.name", WRONG_NAME)),
    ),
}


def check_format(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report a text format of the wrong form, a schema outside of the strict subset, and JSON mode without the word "JSON"."""
    form = fields(body.get("text")).get("format")
    if form is None:
        return
    held, path = fields(form), "text.format"
    kind = text(held.get("type"))
    known = _FORMATS.get(kind)
    if known is None:
        message = f"Invalid value: {shown(kind)}. Supported values are: 'json_object', 'json_schema', and 'text'."
        yield Violation(f"{path}.type", "format.type", message)
        return
    yield from check_shape(path, held, known)
    if held.get("strict") is True and isinstance(held.get("schema"), dict):
        yield from check_subset(f"{path}.schema", held["schema"], OPENAI)
    if kind == "json_object" and not _says_json(body):
        message = "Response input messages must contain the word 'json' in some form to use 'json_object'."
        yield Violation("input", "format.json_word", message)


def _says_json(body: Mapping[str, object]) -> bool:
    """True if the input says "json" in any letter case; history on the server may say it, too, so it counts."""
    given = body.get("input")
    elsewhere = any(body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt"))
    return elsewhere or says_json([{"content": given}] if isinstance(given, str) else given)
