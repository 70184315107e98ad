"""Tools, tool choice and response format of one Chat request. Sheet sections 4 and 5. Never reads calls in messages."""

from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import ChatDialect, is_thinking
from evener.testing.check.json_schema import CLONE_FORM, OPENAI, OPENAI_FORM, check_arguments, check_subset
from evener.testing.check.models import ChatRow
from evener.testing.check.openai import NAME, WRONG_NAME, says_json
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

_TOOLS: Mapping[str, ObjectShape] = {
    "function": shape("function: object", "type: str"),
    "custom": shape("custom: object", "type: str"),
}
_NAME = text_like(NAME, Violation("", "tool.name", WRONG_NAME))
_INNER: Mapping[str, ObjectShape] = {
    "function": shape("name: NAME", "description: str, parameters: object, strict: bool", NAME=_NAME),
    "custom": shape("name: NAME", "description: str, format: object", NAME=_NAME),
}


def _kind(value: Mapping[str, object]) -> str:
    """Return the type of a tool or choice; without one, a function [recorded on Mistral and Hugging Face]."""
    kind = value.get("type")
    return "function" if kind is None else text(kind)


def check_tools(body: Mapping[str, object], dialect: ChatDialect, row: ChatRow) -> Iterator[Violation]:
    """Report errors in the tool list, and fields that require one."""
    tools = body.get("tools")
    if tools == [] and dialect.filled_tools:
        yield Violation("tools", "tools.empty", "[] is too short - 'tools'")
    if dialect.max_tools is not None and len(items(tools)) > dialect.max_tools:
        message = f"Invalid 'tools': array too long. Expected at most {dialect.max_tools}."
        yield Violation("tools", "tools.count", message)
    if items(tools) and not row.tools:
        yield Violation("tools", "tools.model", "Function tools are not supported for this model in /v1/chat/completions.")
    if not items(tools) and body.get("parallel_tool_calls") is not None:
        message = "'parallel_tool_calls' is only allowed when 'tools' are specified."
        yield Violation("parallel_tool_calls", "tools.parallel", message)
    seen: set[str] = set()
    for index, value in enumerate(items(tools)):
        path, tool = f"tools[{index}]", fields(value)
        if not isinstance(value, dict):
            yield Violation(path, "type", "Input should be an object (a tool).")
            continue
        yield from _check_tool(path, tool, dialect)
        name = text(fields(tool.get(_kind(tool))).get("name"))
        if name and name in seen:
            yield Violation(path, "tool.duplicate", f"Duplicate tool name {shown(name)}.")
        seen.add(name)


def _check_tool(path: str, tool: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    kind = _kind(tool)
    if tool.get("type") is None and dialect.typed:
        yield Violation(join(path, "type"), "missing", "Missing required parameter: the tool's type.")
    if kind not in _TOOLS:
        # Clones have hosted tools of their own (recorded on OpenRouter), so the list applies only to OpenAI.
        if dialect.known_only or not kind:
            message = f"Invalid value: {shown(kind)}. Supported values are: 'function' and 'custom'."
            yield Violation(join(path, "type"), "tool.type", message)
        return
    yield from check_shape(path, tool, _TOOLS[kind], loose=not dialect.known_only)
    if isinstance(tool.get(kind), dict):
        yield from check_shape(join(path, kind), tool[kind], _INNER[kind], loose=not dialect.known_only)
        yield from _check_function(join(path, kind), fields(tool[kind]), dialect)


def _check_function(path: str, function: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    parameters = function.get("parameters")
    if not isinstance(parameters, dict):
        return
    form = OPENAI_FORM if dialect.strict_schemas else CLONE_FORM
    yield from check_arguments(join(path, "parameters"), fields(parameters), form)
    if function.get("strict") is True and dialect.strict_schemas:
        yield from check_subset(join(path, "parameters"), parameters, OPENAI)


_NAMED = shape("name: str")
_CHOICES: Mapping[str, tuple[ObjectShape, ObjectShape]] = {
    "function": (shape("function: object", "type: str"), _NAMED),
    "custom": (shape("custom: object", "type: str"), _NAMED),
    "allowed_tools": (shape("type: str, allowed_tools: object"), shape("mode: 'auto'|'required', tools: list")),
}


def check_choice(body: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report a tool choice of the wrong form, without tools, for an unknown tool, or forced on a thinking model."""
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not items(body.get("tools")):
        message = "'tool_choice' is only allowed when 'tools' are specified."
        yield Violation("tool_choice", "tool_choice.no_tools", message)
    forced = isinstance(choice, dict) or choice in ("required", "any")
    if forced and not dialect.forced_choice and is_thinking(body, dialect):
        yield Violation("tool_choice", "tool_choice.thinking", "Thinking mode does not support this tool_choice")
    if isinstance(choice, str):
        if choice not in dialect.choices:
            listed = ", ".join(f"'{name}'" for name in sorted(dialect.choices))
            message = f"Invalid value: {shown(choice)}. Supported values are: {listed}."
            yield Violation("tool_choice", "tool_choice.type", message)
        return
    yield from _check_chosen(body, fields(choice), dialect)


def _check_chosen(body: Mapping[str, object], chosen: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    kind = _kind(chosen)
    shapes = _CHOICES.get(kind)
    if shapes is None or (chosen.get("type") is None and dialect.typed):
        yield Violation("tool_choice", "tool_choice.type", "tool_choice should be a mode or an object with a known type")
        return
    outer, inner = shapes
    path = join("tool_choice", kind)
    yield from check_shape("tool_choice", chosen, outer, loose=not dialect.known_only)
    if isinstance(chosen.get(kind), dict):
        yield from check_shape(path, chosen[kind], inner, loose=not dialect.known_only)
    known = {(_kind(tool), _name_in(tool)) for tool in map(fields, items(body.get("tools")))}
    wanted = items(fields(chosen.get(kind)).get("tools")) if kind == "allowed_tools" else [chosen]
    for one in map(fields, wanted):
        name = _name_in(one)
        if name and items(body.get("tools")) and (_kind(one), name) not in known:
            message = f"Tool choice {shown(name)} not found in 'tools' parameter."
            yield Violation("tool_choice", "tool_choice.unknown", message)


def _name_in(value: Mapping[str, object]) -> str:
    return text(fields(value.get(_kind(value))).get("name"))


_FORMATS: Mapping[str, ObjectShape] = {
    "text": shape("type: str"),
    "json_object": shape("type: str"),
    "json_schema": shape("type: str, json_schema: object"),
}
_SCHEMA = shape(
    "name: NAME",
    "schema: object, strict: bool, description: str",
    NAME=text_like(NAME, Violation("", "format.name", WRONG_NAME)),
)


def check_format(body: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report a response format of a wrong form, a schema outside the strict subset, JSON mode without the word "JSON"."""
    form = body.get("response_format")
    if form is None:
        return
    held = fields(form)
    kind = text(held.get("type"))
    if kind not in _FORMATS:
        message = f"Invalid value: {shown(kind)}. Supported values are: 'json_object', 'json_schema', and 'text'."
        yield Violation("response_format.type", "format.type", message)
        return
    yield from check_shape("response_format", held, _FORMATS[kind], loose=not dialect.known_only)
    if kind == "json_object" and not says_json(body.get("messages")):
        message = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        yield Violation("messages", "format.json_word", message)
    if kind == "json_schema" and isinstance(held.get("json_schema"), dict):
        yield from _check_schema("response_format.json_schema", fields(held["json_schema"]), dialect)


def _check_schema(path: str, held: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    yield from check_shape(path, held, _SCHEMA, loose=not dialect.known_only)
    if held.get("strict") is True and dialect.strict_schemas and isinstance(held.get("schema"), dict):
        yield from check_subset(join(path, "schema"), held["schema"], OPENAI)
