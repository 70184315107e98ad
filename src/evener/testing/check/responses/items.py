"""Input items of the OpenAI Responses wire: their types, fields and ids. One item at a time. Sheet section 3.

Never looks at neighbours (see openai_order). Servers other than OpenAI's own are read loosely where the sheet or a
recording says that they are: unknown fields and foreign ids pass there.
"""

import json
import re
from collections.abc import Iterator, Mapping

from evener.testing.check.models import ServerRow
from evener.testing.check.responses import computer
from evener.testing.check.responses.parts import check_parts, loosened
from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    BOOL,
    LIST,
    OBJECT,
    STR,
    STR_OR_LIST,
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

_STATUS = {"status": one_of("in_progress", "completed", "incomplete")}
_CALL = {"id": STR, "caller": OBJECT}
_OPEN = ObjectShape({"type": STR}, {"id": STR}, open=True)
_MESSAGE = ObjectShape(
    {"role": one_of("user", "assistant", "system", "developer"), "content": STR_OR_LIST},
    {"type": STR, "id": STR, "phase": one_of("commentary", "final_answer"), **_STATUS},
)

# A reasoning item takes no `status`: the sheet lists the field, which is in answers, but OpenAI refuses it in requests
# ("Unknown parameter: 'input[1].status'", many reports into August 2026) and no recording sends it.
ITEMS: Mapping[str, ObjectShape] = {
    "function_call": ObjectShape(
        {"type": STR, "call_id": STR, "name": STR, "arguments": STR},
        {**_CALL, **_STATUS, "namespace": STR, "async": BOOL},
    ),
    "function_call_output": ObjectShape(
        {"type": STR, "call_id": STR, "output": STR_OR_LIST},
        {**_CALL, **_STATUS, "name": STR, "namespace": STR},
    ),
    "custom_tool_call": ObjectShape(
        {"type": STR, "call_id": STR, "name": STR, "input": STR},
        {**_CALL, **_STATUS, "namespace": STR, "async": BOOL},
    ),
    "custom_tool_call_output": ObjectShape({"type": STR, "call_id": STR, "output": STR_OR_LIST}, {**_CALL, **_STATUS}),
    # The client's own shell and patches, as the vendor's SDK has them.
    "shell_call": ObjectShape({"type": STR, "call_id": STR, "action": OBJECT}, {**_CALL, **_STATUS}, open=True),
    "shell_call_output": ObjectShape({"type": STR, "call_id": STR, "output": LIST}, {**_CALL, **_STATUS}, open=True),
    "apply_patch_call": ObjectShape(
        {"type": STR, "call_id": STR, "operation": OBJECT, "status": one_of("in_progress", "completed")}, _CALL, open=True
    ),
    "apply_patch_call_output": ObjectShape(
        {"type": STR, "call_id": STR, "status": one_of("completed", "failed")}, {**_CALL, "output": STR}, open=True
    ),
    "computer_call": computer.CALL,
    "computer_call_output": computer.OUTPUT,
    "reasoning": ObjectShape({"type": STR, "summary": LIST}, {"id": STR, "content": LIST, "encrypted_content": STR}),
    "compaction": ObjectShape({"type": STR, "encrypted_content": STR}, {"id": STR}, open=True),
    "item_reference": ObjectShape({"type": STR, "id": STR}),
    "additional_tools": ObjectShape({"type": STR, "role": one_of("developer"), "tools": LIST}, {"id": STR}),
    **dict.fromkeys(
        (
            *("compaction_trigger", "configuration_update", "tool_search_call", "tool_search_output"),
            *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
            *("local_shell_call", "local_shell_call_output"),
            *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
            *("program", "program_output"),
        ),
        _OPEN,
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
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def item_type(item: Mapping[str, object]) -> str:
    """Return the item's type; the easy form of a message carries none."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item or "id" not in item else "item_reference"
    return text(kind)


def check_items(items_: object, row: ServerRow, scope: Scope) -> Iterator[Violation]:
    """Report everything wrong with each input item, taken on its own."""
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
    shape = _MESSAGE if kind == "message" else ITEMS.get(kind)
    if shape is None:
        yield Violation(join(path, "type"), "item.type", f"Invalid value: {shown(kind)} is no input item type.")
        return
    yield from check_shape(path, item, shape if row.known_fields_only else loosened(shape))
    if kind == "message":
        role = text(item.get("role"))
        if role in ("user", "assistant", "system", "developer"):
            yield from check_parts(join(path, "content"), item.get("content"), role, row)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield from check_parts(join(path, "output"), item.get("output"), "tool", row)


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
    kind, call, name = item_type(item), item.get("call_id"), item.get("name")
    if isinstance(call, str) and not 1 <= len(call) <= MAX_ID:
        yield Violation(join(path, "call_id"), "call_id.length", f"call_id must have 1 to {MAX_ID} characters.")
    if kind != "function_call":
        return
    if isinstance(name, str) and not _NAME.fullmatch(name):
        message = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 128 characters."
        yield Violation(join(path, "name"), "function_call.name", message)
    arguments = item.get("arguments")
    if isinstance(arguments, str) and not _is_json(arguments):
        yield Violation(join(path, "arguments"), "function_call.arguments", "arguments must be a string of JSON.")


def _is_json(raw: str) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True


def _check_seal(path: str, item: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Encrypted reasoning is checked by the server as one opaque value; its summary is not bound to it."""
    sealed = item.get("encrypted_content")
    if scope.issued is None or item.get("type") != "reasoning" or not isinstance(sealed, str):
        return
    if sealed not in scope.issued:
        message = "The encrypted content could not be verified: altered or never issued."
        yield Violation(join(path, "encrypted_content"), "reasoning.altered", message)
