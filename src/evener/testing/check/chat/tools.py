"""Tools, tool choice and response format of one Chat request. Sheet sections 4 and 5. Never looks at calls in messages."""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import ChatDialect, is_thinking
from evener.testing.check.chat.messages import NAME
from evener.testing.check.json_schema import CLONE_FORM, OPENAI, OPENAI_FORM, check_arguments, check_subset
from evener.testing.check.models import ChatRow
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

_TOOLS: Mapping[str, ObjectShape] = {
    "function": ObjectShape({"function": OBJECT}, {"type": STR}),
    "custom": ObjectShape({"custom": OBJECT}, {"type": STR}),
}
_INNER: Mapping[str, ObjectShape] = {
    "function": ObjectShape({"name": STR}, {"description": STR, "parameters": OBJECT, "strict": BOOL}),
    "custom": ObjectShape({"name": STR}, {"description": STR, "format": OBJECT}),
}


def _kind(value: Mapping[str, object]) -> str:
    """Return the type of a tool or choice; without one, a function [recorded on Mistral and Hugging Face]."""
    kind = value.get("type")
    return "function" if kind is None else text(kind)


def check_tools(body: Mapping[str, object], dialect: ChatDialect, row: ChatRow) -> Iterator[Violation]:
    """Report what is wrong with the tool list, and with what needs one."""
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
    shape = _TOOLS.get(kind)
    if tool.get("type") is None and dialect.typed:
        yield Violation(join(path, "type"), "missing", "Missing required parameter: the tool's type.")
    if shape is None:
        # Clones have hosted tools of their own (recorded on OpenRouter), so only OpenAI is held to the list.
        if dialect.known_only or not kind:
            message = f"Invalid value: {shown(kind)}. Supported values are: 'function' and 'custom'."
            yield Violation(join(path, "type"), "tool.type", message)
        return
    yield from check_shape(path, tool, shape if dialect.known_only else loosened(shape))
    if isinstance(tool.get(kind), dict):
        inner = _INNER[kind]
        yield from check_shape(join(path, kind), tool[kind], inner if dialect.known_only else loosened(inner))
        yield from _check_function(join(path, kind), fields(tool[kind]), dialect)


def _check_function(path: str, function: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    name, parameters = function.get("name"), function.get("parameters")
    if isinstance(name, str) and not NAME.fullmatch(name):
        message = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 64 characters."
        yield Violation(join(path, "name"), "tool.name", message)
    if not isinstance(parameters, dict):
        return
    form = OPENAI_FORM if dialect.strict_schemas else CLONE_FORM
    yield from check_arguments(join(path, "parameters"), fields(parameters), form)
    if function.get("strict") is True and dialect.strict_schemas:
        yield from check_subset(join(path, "parameters"), parameters, OPENAI)


_NAMED = ObjectShape({"name": STR})
_ALLOWED = ObjectShape({"mode": one_of("auto", "required"), "tools": LIST})
_CHOICES: Mapping[str, tuple[ObjectShape, ObjectShape]] = {
    "function": (ObjectShape({"function": OBJECT}, {"type": STR}), _NAMED),
    "custom": (ObjectShape({"custom": OBJECT}, {"type": STR}), _NAMED),
    "allowed_tools": (ObjectShape({"type": STR, "allowed_tools": OBJECT}), _ALLOWED),
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
    yield from check_shape("tool_choice", chosen, outer if dialect.known_only else loosened(outer))
    if isinstance(chosen.get(kind), dict):
        yield from check_shape(path, chosen[kind], inner if dialect.known_only else loosened(inner))
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
    "text": ObjectShape({"type": STR}),
    "json_object": ObjectShape({"type": STR}),
    "json_schema": ObjectShape({"type": STR, "json_schema": OBJECT}),
}
_SCHEMA = ObjectShape({"name": STR}, {"schema": OBJECT, "strict": BOOL, "description": STR})
_JSON = re.compile("json", re.IGNORECASE)


def check_format(body: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report a response format of the wrong form, a schema outside the strict subset, JSON mode without its word."""
    form = body.get("response_format")
    if form is None:
        return
    held = fields(form)
    kind = text(held.get("type"))
    shape = _FORMATS.get(kind)
    if shape is None:
        message = f"Invalid value: {shown(kind)}. Supported values are: 'json_object', 'json_schema', and 'text'."
        yield Violation("response_format.type", "format.type", message)
        return
    yield from check_shape("response_format", held, shape if dialect.known_only else loosened(shape))
    if kind == "json_object" and not _says_json(body):
        message = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        yield Violation("messages", "format.json_word", message)
    if kind == "json_schema" and isinstance(held.get("json_schema"), dict):
        yield from _check_schema("response_format.json_schema", fields(held["json_schema"]), dialect)


def _check_schema(path: str, held: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    yield from check_shape(path, held, _SCHEMA if dialect.known_only else loosened(_SCHEMA))
    name = held.get("name")
    if isinstance(name, str) and not NAME.fullmatch(name):
        message = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 64 characters."
        yield Violation(join(path, "name"), "format.name", message)
    if held.get("strict") is True and dialect.strict_schemas and isinstance(held.get("schema"), dict):
        yield from check_subset(join(path, "schema"), held["schema"], OPENAI)


def _says_json(body: Mapping[str, object]) -> bool:
    for message in map(fields, items(body.get("messages"))):
        content = message.get("content")
        said = [content, *(fields(part).get("text") for part in items(content))]
        if any(_JSON.search(text(one)) for one in said):
            return True
    return False
