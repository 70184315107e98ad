"""Input items of the OpenAI Responses wire and the parts of their content: types, fields and ids. Sheet section 3.

Reads one at a time, without neighbours (see order). Servers other than OpenAI's own accept more, by the sheet or a recording:
unknown fields and foreign ids. Never downloads or decodes anything: a file is judged
by its data URL's MIME type or its URL's suffix.
"""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from evener.testing.check.models import ServerRow
from evener.testing.check.openai import IMAGE_URL, LONG_NAME, WRONG_IMAGE, WRONG_LONG_NAME, json_text
from evener.testing.check.responses import computer
from evener.testing.check.scope import Scope
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

_STATUS = "status: 'in_progress'|'completed'|'incomplete'"
_CALL = "id: str, caller: object"
_MESSAGE = shape(
    "role: 'user'|'assistant'|'system'|'developer', content: str|list",
    f"type id: str, phase: 'commentary'|'final_answer', {_STATUS}",
)

# A reasoning item takes no `status`: the sheet lists the field, which is in answers, but OpenAI refuses it in requests
# ("Unknown parameter: 'input[1].status'", many reports into August 2026) and no recording sends it.
ITEMS: Mapping[str, ObjectShape] = {
    "function_call": shape(
        "type call_id: str, name: NAME, arguments: ARGUMENTS",
        f"{_CALL}, {_STATUS}, namespace: str, async: bool",
        NAME=text_like(LONG_NAME, Violation("", "function_call.name", WRONG_LONG_NAME)),
        ARGUMENTS=json_text(Violation("", "function_call.arguments", "arguments must be a string of JSON.")),
    ),
    "function_call_output": shape("type call_id: str, output: str|list", f"{_CALL}, {_STATUS}, name namespace: str"),
    "custom_tool_call": shape("type call_id name input: str", f"{_CALL}, {_STATUS}, namespace: str, async: bool"),
    "custom_tool_call_output": shape("type call_id: str, output: str|list", f"{_CALL}, {_STATUS}"),
    # Shell and patches that the client runs, as in the vendor's SDK.
    "shell_call": shape("type call_id: str, action: object", f"{_CALL}, {_STATUS}", open=True),
    "shell_call_output": shape("type call_id: str, output: list", f"{_CALL}, {_STATUS}", open=True),
    "apply_patch_call": shape("type call_id: str, operation: object, status: 'in_progress'|'completed'", _CALL, open=True),
    "apply_patch_call_output": shape("type call_id: str, status: 'completed'|'failed'", f"{_CALL}, output: str", open=True),
    "computer_call": computer.CALL,
    "computer_call_output": computer.OUTPUT,
    "reasoning": shape("type: str, summary: list", "id encrypted_content: str, content: list"),
    "compaction": shape("type encrypted_content: str", "id: str", open=True),
    "item_reference": shape("type id: str"),
    "additional_tools": shape("type: str, role: 'developer', tools: list", "id: str"),
    **dict.fromkeys(
        (
            *("compaction_trigger", "configuration_update", "tool_search_call", "tool_search_output"),
            *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
            *("local_shell_call", "local_shell_call_output"),
            *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
            *("program", "program_output"),
        ),
        shape("type: str", "id: str", open=True),
    ),
}

# Only the prefixes that the sheet gives; the error text asks for the letters without the underscore.
PREFIXES: Mapping[str, str] = {
    "reasoning": "rs",
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
}
MAX_ID = 64
_ID = re.compile(r"[a-zA-Z0-9_-]+")

_BREAKPOINT = "prompt_cache_breakpoint: object"
_INPUT: Mapping[str, ObjectShape] = {
    "input_text": shape("type text: str", _BREAKPOINT),
    "input_image": shape("type: str", f"image_url file_id: str, detail: 'auto'|'low'|'high'|'original', {_BREAKPOINT}"),
    "input_file": shape("type: str", f"file_data file_url file_id filename: str, detail: 'auto'|'low'|'high', {_BREAKPOINT}"),
}
_OUTPUT: Mapping[str, ObjectShape] = {
    "output_text": shape("type text: str", "annotations logprobs: list"),
    "refusal": shape("type refusal: str"),
}
_CARRIERS: Mapping[str, tuple[str, ...]] = {
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(;[^,;]*)*;base64,", re.ASCII)
# Recorded: audio is refused both as data and by URL. Video is not recorded; the provider's list of file types has neither.
_REFUSED_MEDIA = ("audio/", "video/")
_AUDIO_SUFFIXES = (".mp3", ".wav", ".ogg", ".oga", ".flac", ".aac", ".m4a", ".aiff", ".opus")


def item_type(item: Mapping[str, object]) -> str:
    """Return the item's type; the short form of a message has none."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item or "id" not in item else "item_reference"
    return text(kind)


def check_items(items_: object, row: ServerRow, scope: Scope) -> Iterator[Violation]:
    """Report errors in each input item, without its neighbours."""
    for index, value in enumerate(items(items_)):
        path = f"input[{index}]"
        if not isinstance(value, dict):
            yield Violation(path, "type", "Input should be an object (an input item).")
            continue
        item = fields(value)
        yield from _check_item(path, item, row)
        yield from _check_id(path, item, row)
        yield from _check_call(path, item)
        yield from _check_seal(path, item, scope)


def _check_item(path: str, item: Mapping[str, object], row: ServerRow) -> Iterator[Violation]:
    kind = item_type(item)
    known = _MESSAGE if kind == "message" else ITEMS.get(kind)
    if known is None:
        yield Violation(join(path, "type"), "item.type", f"Invalid value: {shown(kind)} is not an input item type.")
        return
    yield from check_shape(path, item, known, loose=not row.known_fields_only)
    if kind == "message":
        role = text(item.get("role"))
        if role in ("user", "assistant", "system", "developer"):
            yield from _check_parts(join(path, "content"), item.get("content"), role, row)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield from _check_parts(join(path, "output"), item.get("output"), "tool", row)


def _check_id(path: str, item: Mapping[str, object], row: ServerRow) -> Iterator[Violation]:
    name = item.get("id")
    if not row.item_ids or not isinstance(name, str):
        return
    at = join(path, "id")
    if len(name) > MAX_ID:
        yield Violation(at, "id.length", f"string too long. Expected a string with maximum length {MAX_ID}.")
    if not _ID.fullmatch(name):
        yield Violation(at, "id.charset", "Expected an ID that contains letters, numbers, underscores, or dashes.")
    prefix = PREFIXES.get(item_type(item), "")
    if not name.startswith(prefix):
        yield Violation(at, "id.prefix", f"Invalid id {shown(name)}. Expected an ID that begins with '{prefix}'.")


def _check_call(path: str, item: Mapping[str, object]) -> Iterator[Violation]:
    call = item.get("call_id")
    if isinstance(call, str) and not 1 <= len(call) <= MAX_ID:
        yield Violation(join(path, "call_id"), "call_id.length", f"call_id must have 1 to {MAX_ID} characters.")


def _check_seal(path: str, item: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Report altered encrypted reasoning. The server checks it as one opaque value; its summary is not bound to it."""
    sealed = item.get("encrypted_content")
    if scope.issued is None or item.get("type") != "reasoning" or not isinstance(sealed, str):
        return
    if sealed not in scope.issued:
        message = "The encrypted content could not be verified: altered or never issued."
        yield Violation(join(path, "encrypted_content"), "reasoning.altered", message)


def _check_parts(path: str, content: object, speaker: str, row: ServerRow) -> Iterator[Violation]:
    """Report parts that this speaker may not send, or that are malformed. `speaker` is a role, or "tool"."""
    allowed = _OUTPUT if speaker == "assistant" else _INPUT
    for index, value in enumerate(items(content)):
        at, part = f"{path}[{index}]", fields(value)
        kind = text(part.get("type"))
        if not isinstance(value, dict):
            yield Violation(at, "type", "Input should be an object (a content part).")
        elif kind not in allowed:
            listed = " and ".join(f"'{name}'" for name in allowed)
            message = f"Invalid value: {shown(kind)}. Supported values are: {listed}."
            yield Violation(join(at, "type"), "content.type", message)
        else:
            yield from check_shape(at, part, allowed[kind], loose=not row.known_fields_only)
            yield from _check_carrier(at, part)
            yield from _check_file(at, part)
            if row.known_fields_only:
                yield from _check_image(at, part)


def _check_carrier(path: str, part: Mapping[str, object]) -> Iterator[Violation]:
    carriers = _CARRIERS.get(text(part.get("type")), ())
    if carriers and all(part.get(name) is None for name in carriers):
        yield Violation(path, "content.source", f"Missing required parameter: one of {', '.join(carriers)}.")


def _check_image(path: str, part: Mapping[str, object]) -> Iterator[Violation]:
    """Report an image that is neither data of one of four types nor an address."""
    url = part.get("image_url") if part.get("type") == "input_image" else None
    if isinstance(url, str) and not re.fullmatch(IMAGE_URL, url):
        yield Violation(join(path, "image_url"), "image.media", WRONG_IMAGE)


def _check_file(path: str, part: Mapping[str, object]) -> Iterator[Violation]:
    if part.get("type") != "input_file":
        return
    data, url = part.get("file_data"), part.get("file_url")
    if isinstance(data, str):
        found = _DATA_URL.match(data)
        if found is None:
            message = "Expected a base64-encoded data URL with a valid file MIME type."
            yield Violation(join(path, "file_data"), "file.data_url", message)
        elif found[1].startswith(_REFUSED_MEDIA):
            message = f"Expected a supported file MIME type, but got unsupported MIME type {shown(found[1])}."
            yield Violation(join(path, "file_data"), "file.media", message)
    if isinstance(url, str) and _suffix_path(url).endswith(_AUDIO_SUFFIXES):
        message = "The file type you uploaded is not supported. Please try again with a pdf"
        yield Violation(join(path, "file_url"), "file.media", message)


def _suffix_path(url: str) -> str:
    try:
        return urlsplit(url).path.lower()
    except ValueError:
        return ""
