"""Messages of the Chat wire: role, content and tool calls, one message at a time. Sheet section 3.

Never looks at neighbours (see turns).
"""

import json
import re
from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import ChatDialect
from evener.testing.check.chat.parts import check_audio, check_parts
from evener.testing.check.models import ChatRow
from evener.testing.check.responses.parts import loosened
from evener.testing.check.shape import (
    INT,
    LIST,
    OBJECT,
    STR,
    STR_OR_LIST,
    STR_OR_OBJECT,
    ObjectShape,
    check_shape,
    fields,
    items,
    join,
    shown,
    text,
)
from evener.testing.check.violation import Violation

_SPOKEN = ObjectShape({"role": STR, "content": STR_OR_LIST}, {"name": STR})
# OpenAI's own answers carry `annotations`, and its examples send whole answers back; `name` is old but documented.
MESSAGES: Mapping[str, ObjectShape] = {
    "system": _SPOKEN,
    "developer": _SPOKEN,
    "user": _SPOKEN,
    "assistant": ObjectShape(
        {"role": STR},
        {
            "content": STR_OR_LIST,
            "name": STR,
            "refusal": STR,
            "audio": OBJECT,
            "tool_calls": LIST,
            "function_call": OBJECT,
            "annotations": LIST,
        },
    ),
    "tool": ObjectShape({"role": STR, "content": STR_OR_LIST, "tool_call_id": STR}, {"name": STR}),
    "function": ObjectShape({"role": STR, "name": STR}, {"content": STR_OR_LIST}),
}
# Clients that gather a stream send its `index` back.
_CALL = {"id": STR}
_CALLS: Mapping[str, ObjectShape] = {
    "function": ObjectShape({**_CALL, "function": OBJECT}, {"type": STR, "index": INT}),
    "custom": ObjectShape({**_CALL, "custom": OBJECT}, {"type": STR, "index": INT}),
}
_FUNCTION = ObjectShape({"name": STR, "arguments": STR})
_FUNCTION_OR_OBJECT = ObjectShape({"name": STR, "arguments": STR_OR_OBJECT})
_CUSTOM = ObjectShape({"name": STR, "input": STR})
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_messages(messages: object, dialect: ChatDialect, row: ChatRow) -> Iterator[Violation]:
    """Report everything wrong with each message, taken on its own."""
    if messages == []:
        yield Violation("messages", "messages.empty", "Invalid 'messages': empty array.")
    for index, value in enumerate(items(messages)):
        path, message = f"messages[{index}]", fields(value)
        role = text(message.get("role"))
        shape = MESSAGES.get(role)
        if not isinstance(value, dict):
            yield Violation(path, "type", "Input should be an object (a message).")
        elif shape is None:
            listed = ", ".join(f"'{name}'" for name in MESSAGES)
            reason = f"Invalid value: {shown(role)}. Supported values are: {listed}."
            yield Violation(join(path, "role"), "message.role", reason)
        else:
            yield from check_shape(path, message, shape if dialect.known_only else loosened(shape))
            yield from _check_content(path, message, role, dialect)
            yield from check_audio(path, message.get("content"), row)
            yield from _check_role(path, role, row)
            if role == "assistant":
                yield from _check_assistant(path, message, dialect)


def _check_content(path: str, message: Mapping[str, object], role: str, dialect: ChatDialect) -> Iterator[Violation]:
    content = message.get("content")
    tolerated = bool(items(message.get("tool_calls"))) and not dialect.filled_content
    if content == [] and not tolerated:
        yield Violation(join(path, "content"), "content.empty", "Invalid content: empty array. Expected at least one part.")
    yield from check_parts(join(path, "content"), content, role, dialect)


def _check_role(path: str, role: str, row: ChatRow) -> Iterator[Violation]:
    """Section 2: the first small reasoning models have no instructions [recorded]."""
    if not row.instructions and role in ("system", "developer"):
        reason = f"Unsupported value: '{path}.role' does not support '{role}' with this model."
        yield Violation(join(path, "role"), "role.model", reason)


def _check_assistant(path: str, message: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Section 3: content is required unless the message calls tools. A refusal or a reference to audio is content too."""
    calls, content = message.get("tool_calls"), message.get("content")
    says = any(message.get(name) is not None for name in ("refusal", "audio", "function_call"))
    empty = content is None or (dialect.filled_answers and content in ("", []))
    if empty and not items(calls) and not says:
        yield Violation(path, "assistant.empty", "An assistant message must have content or tool_calls.")
    if calls == [] and dialect.filled_content:
        yield Violation(join(path, "tool_calls"), "tool_calls.empty", "Invalid 'tool_calls': empty array.")
    for index, value in enumerate(items(calls)):
        at = f"{path}.tool_calls[{index}]"
        if isinstance(value, dict):
            yield from _check_call(at, fields(value), dialect)
        else:
            yield Violation(at, "type", "Input should be an object (a tool call).")


def _check_call(path: str, call: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    kind = call.get("type")
    if kind is None and dialect.typed:
        yield Violation(join(path, "type"), "missing", "Missing required parameter: the call's type.")
    named = text(kind) if kind is not None else "function"
    shape = _CALLS.get(named)
    if shape is None:
        reason = f"Invalid value: {shown(named)}. Supported values are: 'function' and 'custom'."
        yield Violation(join(path, "type"), "tool_call.type", reason)
        return
    yield from check_shape(path, call, shape if dialect.known_only else loosened(shape))
    yield from _check_call_id(path, call.get("id"), dialect)
    if not isinstance(call.get(named), dict):
        return
    inner = _CUSTOM if named == "custom" else _FUNCTION_OR_OBJECT if dialect.object_arguments else _FUNCTION
    yield from check_shape(join(path, named), call[named], inner if dialect.known_only else loosened(inner))
    yield from _check_function(join(path, named), fields(call[named]))


def _check_call_id(path: str, name: object, dialect: ChatDialect) -> Iterator[Violation]:
    if not isinstance(name, str):
        return
    at = join(path, "id")
    if dialect.max_call_id is not None and len(name) > dialect.max_call_id:
        message = f"Invalid id: string too long. Expected a string with maximum length {dialect.max_call_id}."
        yield Violation(at, "tool_call.id_length", message)
    if dialect.call_id and not re.fullmatch(dialect.call_id, name):
        message = f"Tool call id was {shown(name)} but must be a-z, A-Z, 0-9, with a length of 9."
        yield Violation(at, "tool_call.id_format", message)


def _check_function(path: str, called: Mapping[str, object]) -> Iterator[Violation]:
    name, arguments = called.get("name"), called.get("arguments")
    if isinstance(name, str) and not NAME.fullmatch(name):
        message = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 64 characters."
        yield Violation(join(path, "name"), "tool_call.name", message)
    if isinstance(arguments, str) and not _is_json(arguments):
        yield Violation(join(path, "arguments"), "tool_call.arguments", "arguments must be a string of JSON.")


def _is_json(raw: str) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True
