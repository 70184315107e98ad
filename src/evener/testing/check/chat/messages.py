"""Messages of the Chat wire, one at a time: role, content and its parts, tool calls. Sheet section 3.

Never reads neighbours (see turns), never downloads or decodes anything: media is judged by the form of its URL. The list of
part types applies only to OpenAI's own server; others accept more (`document_url`, `video_url`, `thinking` are recorded).
"""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import ChatDialect
from evener.testing.check.models import ChatRow
from evener.testing.check.openai import IMAGE_URL, NAME, WRONG_IMAGE, WRONG_NAME, json_text
from evener.testing.check.shape import (
    KINDS,
    Kind,
    ObjectShape,
    Violation,
    check_shape,
    fields,
    items,
    join,
    limited,
    shape,
    shown,
    text,
    text_like,
)

_SPOKEN = shape("role: str, content: str|list", "name: str")
# OpenAI's own answers carry `annotations`, and its examples send whole answers back; `name` is old but documented.
MESSAGES: Mapping[str, ObjectShape] = {
    "system": _SPOKEN,
    "developer": _SPOKEN,
    "user": _SPOKEN,
    "assistant": shape(
        "role: str",
        "content: str|list, name refusal: str, audio function_call: object, tool_calls annotations: list",
    ),
    "tool": shape("role tool_call_id: str, content: str|list", "name: str"),
    "function": shape("role name: str", "content: str|list"),
}
# Clients that collect a stream send its `index` back.
_CALLS: Mapping[str, ObjectShape] = {
    "function": shape("id: str, function: object", "type: str, index: int"),
    "custom": shape("id: str, custom: object", "type: str, index: int"),
}
_NAME = text_like(NAME, Violation("", "tool_call.name", WRONG_NAME))
_NOT_JSON = Violation("", "tool_call.arguments", "arguments must be a string of JSON.")
_FUNCTION = shape("name: NAME, arguments: JSON", NAME=_NAME, JSON=json_text(_NOT_JSON))
_FUNCTION_OR_OBJECT = shape("name: NAME, arguments: JSON", NAME=_NAME, JSON=json_text(_NOT_JSON, "str|object"))
_CUSTOM = shape("name: NAME, input: str", NAME=_NAME)

_BREAKPOINT = "prompt_cache_breakpoint: object"
# The Mistral SDK's types allow a bare string for an image or an audio clip, so only OpenAI's server must get an object.
_STRICT: Mapping[str, ObjectShape] = {
    "text": shape("type text: str", _BREAKPOINT),
    "image_url": shape("type: str, image_url: object", _BREAKPOINT),
    "input_audio": shape("type: str, input_audio: object", _BREAKPOINT),
    "file": shape("type: str, file: object", _BREAKPOINT),
    "refusal": shape("type refusal: str"),
}
_UNKNOWN = shape("type: str")
_LOOSE: Mapping[str, ObjectShape] = {
    **_STRICT,
    "image_url": shape("type: str, image_url: str|object"),
    "input_audio": shape("type: str, input_audio: str|object"),
}
SPEAKERS: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "image_url", "input_audio", "file"),
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
    "function": ("text",),
    "assistant": ("text", "refusal"),
}


def _media(url: Kind, clip: Kind, data: Kind) -> Mapping[str, ObjectShape]:
    """Return the fields of media, by the type of the part. The kinds are those of an address, a sound and a file."""
    return {
        "image_url": shape("url: URL", "detail: 'auto'|'low'|'high'|'original'", URL=url),
        "input_audio": shape("data: str, format: CLIP", CLIP=clip),
        "file": shape("", "file_data: DATA, file_id filename: str", DATA=data),
    }


# OpenAI's limits on each kind of media. The recorded refusal of an uploaded image names PDF as the only type; so does the
# refusal of plain URLs in reports.
_STRICT_MEDIA = _media(
    text_like(IMAGE_URL, Violation("", "image.url", WRONG_IMAGE)),
    text_like("wav|mp3", Violation("", "audio.format", "Invalid value: {value}. Supported values are: 'wav' and 'mp3'.")),
    limited(
        "str",
        lambda value: text(value).lower().startswith("data:application/pdf;base64,"),
        Violation("", "file.data_url", "Expected a base64-encoded data URL with an application/pdf MIME type."),
    ),
)
_LOOSE_MEDIA = _media(KINDS["str"], KINDS["str"], KINDS["str"])


def check_messages(messages: object, dialect: ChatDialect, row: ChatRow) -> Iterator[Violation]:
    """Report errors in each message, without its neighbours."""
    if messages == []:
        yield Violation("messages", "messages.empty", "Invalid 'messages': empty array.")
    for index, value in enumerate(items(messages)):
        path, message = f"messages[{index}]", fields(value)
        role = text(message.get("role"))
        if not isinstance(value, dict):
            yield Violation(path, "type", "Input should be an object (a message).")
        elif role not in MESSAGES:
            listed = ", ".join(f"'{name}'" for name in MESSAGES)
            reason = f"Invalid value: {shown(role)}. Supported values are: {listed}."
            yield Violation(join(path, "role"), "message.role", reason)
        else:
            yield from check_shape(path, message, MESSAGES[role], loose=not dialect.known_only)
            yield from _check_content(path, message, role, dialect)
            yield from _check_audio(path, message.get("content"), row)
            yield from _check_role(path, role, row)
            if role == "assistant":
                yield from _check_assistant(path, message, dialect)


def _check_content(path: str, message: Mapping[str, object], role: str, dialect: ChatDialect) -> Iterator[Violation]:
    content = message.get("content")
    tolerated = bool(items(message.get("tool_calls"))) and not dialect.filled_content
    if content == [] and not tolerated:
        yield Violation(join(path, "content"), "content.empty", "Invalid content: empty array. Expected at least one part.")
    yield from _check_parts(join(path, "content"), content, role, dialect)


def _check_role(path: str, role: str, row: ChatRow) -> Iterator[Violation]:
    """Report instructions for the first small reasoning models, which do not accept any (section 2) [recorded]."""
    if not row.instructions and role in ("system", "developer"):
        reason = f"Unsupported value: '{path}.role' does not support '{role}' with this model."
        yield Violation(join(path, "role"), "role.model", reason)


def _check_assistant(path: str, message: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report an assistant message without content or calls. A refusal or a reference to audio counts as content (section 3)."""
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
    if named not in _CALLS:
        reason = f"Invalid value: {shown(named)}. Supported values are: 'function' and 'custom'."
        yield Violation(join(path, "type"), "tool_call.type", reason)
        return
    yield from check_shape(path, call, _CALLS[named], loose=not dialect.known_only)
    yield from _check_call_id(path, call.get("id"), dialect)
    if not isinstance(call.get(named), dict):
        return
    inner = _CUSTOM if named == "custom" else _FUNCTION_OR_OBJECT if dialect.object_arguments else _FUNCTION
    yield from check_shape(join(path, named), call[named], inner, loose=not dialect.known_only)


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


def _check_parts(path: str, content: object, role: str, dialect: ChatDialect) -> Iterator[Violation]:
    """Report parts that this role may not send to this server, or that are malformed."""
    for index, value in enumerate(items(content)):
        at, part = f"{path}[{index}]", fields(value)
        kind = text(part.get("type"))
        if not isinstance(value, dict):
            yield Violation(at, "type", "Input should be an object (a content part).")
        elif kind in dialect.refused_parts or (dialect.known_only and kind not in SPEAKERS[role]):
            allowed = " and ".join(f"'{name}'" for name in SPEAKERS[role] if name not in dialect.refused_parts)
            message = f"Invalid value: {shown(kind)}. Supported values are: {allowed}."
            yield Violation(join(at, "type"), "content.type", message)
        else:
            yield from _check_part(at, part, dialect)


def _check_part(path: str, part: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    kind = text(part.get("type"))
    known = (_STRICT if dialect.known_only else _LOOSE).get(kind, _UNKNOWN)
    yield from check_shape(path, part, known, loose=not dialect.known_only)
    if kind == "text" and part.get("text") == "" and dialect.filled_text:
        yield Violation(join(path, "text"), "text.empty", "text content blocks must be non-empty")
    inner = (_STRICT_MEDIA if dialect.known_only else _LOOSE_MEDIA).get(kind)
    if inner is None or not isinstance(part.get(kind), dict):
        return
    held = fields(part[kind])
    yield from check_shape(join(path, kind), held, inner, loose=not dialect.known_only)
    if kind == "file" and held.get("file_data") is None and held.get("file_id") is None:
        # No server accepts a file without a source.
        yield Violation(join(path, kind), "file.source", "Missing required parameter: one of file_data, file_id.")


def _check_audio(path: str, content: object, row: ChatRow) -> Iterator[Violation]:
    """Report audio sent to a model without audio input [recorded]. The API names the message, not the part."""
    if not row.audio and any(fields(part).get("type") == "input_audio" for part in items(content)):
        message = f"Invalid '{path}'. Content blocks are expected to be either text or image_url type."
        yield Violation(path, "audio.model", message)
