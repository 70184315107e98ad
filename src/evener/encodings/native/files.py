"""Files and a shell in the forms that models know: an editor and a shell on Messages, patches and a shell on Responses.
Pure.
"""

import re
from collections.abc import Mapping

from evener.encodings.native.form import Arguments, NativeCall, NativeForm, StandardCall
from evener.encodings.patches import read_patch, write_patch
from evener.transcript.blocks import Origin, ToolResult

__all__ = ["FILE_FORMS"]

# Messages: an editor of text files, and a shell.


def _read_editor(given: Arguments, *_: object) -> StandardCall | None:
    path = given.get("path")
    match given.get("command"), given:
        case "view", {"view_range": [int(first), int(last)]}:
            limit = {"limit": last - first + 1} if last >= first else {}
            return "read", {"path": path, "offset": max(1, first), **limit}
        case "view", _:
            return "read", {"path": path}
        case "create", {"file_text": text}:
            return "write", {"path": path, "content": text}
        case "str_replace", {"old_str": old}:
            return "edit", {"path": path, "edits": [{"old": old, "new": given.get("new_str", "")}]}
        case "insert", {"insert_line": line}:
            text = given.get("insert_text", given.get("new_str", ""))
            return "edit", {"path": path, "edits": [{"old": "", "new": text, "line": line}]}
    return None


def _write_editor(tool: str, given: Arguments) -> Mapping[str, object] | None:
    path = given.get("path", ".")
    match tool, given:
        case "read", {"offset": int(first)}:
            limit = given.get("limit")
            last = first + limit - 1 if isinstance(limit, int) else -1
            return {"command": "view", "path": path, "view_range": [first, last]}
        case (("read" | "list"), _):
            return {"command": "view", "path": path}
        case "write", {"content": text}:
            return {"command": "create", "path": path, "file_text": text}
        case "edit", {"edits": [{"old": "", "new": text, "line": line, **more}]} if not more:
            return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}
        case "edit", {"edits": [{"old": old, "new": new, **more}]} if not more:
            return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
    return None


def _read_bash(given: Arguments, *_: object) -> StandardCall | None:
    match given:
        case {"command": command}:
            return "shell", {"command": command}
        case {"restart": True}:
            return "shell", {"command": "true"}  # every command has a shell of its own: there is none to start again
    return None


def _write_bash(tool: str, given: Arguments) -> Mapping[str, object] | None:
    return {"command": given["command"]} if tool == "shell" and "command" in given and not given.get("background") else None


# Responses: patches, and a shell.


def _read_patch_item(item: Arguments, *_: object) -> StandardCall | None:
    match item.get("operation"):
        case {"type": "delete_file", "path": path}:
            return "delete", {"path": path}
        case {"type": "create_file", "path": path, "diff": str(diff)}:
            lines = [line.removeprefix("+") for line in diff.split("\n")]
            return "write", {"path": path, "content": "\n".join(lines).removesuffix("\n") + "\n" if diff else ""}
        case {"type": "update_file", "path": path, "diff": str(diff)}:
            return "edit", {"path": path, "edits": read_patch(diff)}
    return None


def _write_patch_item(tool: str, given: Arguments) -> Mapping[str, object] | None:
    operation: dict[str, object] | None = None
    match tool, given:
        case "delete", {"path": path}:
            operation = {"type": "delete_file", "path": path}
        case "write", {"path": path, "content": str(text)}:
            diff = "\n".join(f"+{line}" for line in text.removesuffix("\n").split("\n")) if text else ""
            operation = {"type": "create_file", "path": path, "diff": diff}
        case "edit", {"path": path, "edits": list(edits)} if (patch := write_patch(edits)) is not None:
            operation = {"type": "update_file", "path": path, "diff": patch}
    return None if operation is None else {"type": "apply_patch_call", "status": "completed", "operation": operation}


def _read_shell_item(item: Arguments, *_: object) -> StandardCall | None:
    match item.get("action"):
        case {"commands": [*commands], **more} if all(isinstance(one, str) for one in commands):
            limit = more.get("timeout_ms")
            seconds = {"seconds": min(limit / 1000, 600)} if isinstance(limit, int) and limit > 0 else {}
            return "shell", {"command": "\n".join(map(str, commands)), **seconds}
    return None


def _write_shell_item(tool: str, given: Arguments) -> Mapping[str, object] | None:
    if tool != "shell" or not isinstance(given.get("command"), str) or given.get("background"):
        return None
    seconds = given.get("seconds")
    limit = {"timeout_ms": int(seconds * 1000)} if isinstance(seconds, int | float) else {}
    return {"type": "shell_call", "status": "completed", "action": {"commands": [given["command"]], **limit}}


ENDED = re.compile(r"\[(?:exit code (\d+)|ended after)[^\n]*\]\Z")
"""How the shell tool says that a command did not end well."""


def _answer_patch(result: ToolResult, _call: NativeCall, _target: Origin) -> dict[str, object]:
    return {"type": "apply_patch_call_output", "status": "failed" if result.is_error else "completed", "output": result.text}


def _answer_shell(result: ToolResult, _call: NativeCall, _target: Origin) -> dict[str, object]:
    outcome: dict[str, object] = {"type": "exit", "exit_code": 1 if result.is_error else 0}
    if end := ENDED.search(result.text):
        outcome = {"type": "exit", "exit_code": int(end[1])} if end[1] else {"type": "timeout"}
    return {"type": "shell_call_output", "output": [{"stdout": result.text, "stderr": "", "outcome": outcome}]}


FILE_FORMS: Mapping[str, NativeForm] = {
    "text_editor_20250728": NativeForm(
        wire="anthropic_messages",
        stands_for=("read", "list", "write", "edit"),
        needs=("read", "write", "edit"),
        declare=lambda _: {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        call="str_replace_based_edit_tool",
        read=_read_editor,
        write=_write_editor,
    ),
    "bash_20250124": NativeForm(
        wire="anthropic_messages",
        stands_for=("shell",),
        needs=("shell",),
        declare=lambda _: {"type": "bash_20250124", "name": "bash"},
        call="bash",
        read=_read_bash,
        write=_write_bash,
    ),
    "apply_patch": NativeForm(
        wire="openai_responses",
        stands_for=("write", "edit", "delete"),
        needs=("write", "edit", "delete"),
        declare=lambda _: {"type": "apply_patch"},
        call="apply_patch_call",
        read=_read_patch_item,
        write=_write_patch_item,
        answer=_answer_patch,
        is_item=True,
    ),
    "shell": NativeForm(
        wire="openai_responses",
        stands_for=("shell",),
        needs=("shell",),
        declare=lambda _: {"type": "shell", "environment": {"type": "local"}},
        call="shell_call",
        read=_read_shell_item,
        write=_write_shell_item,
        answer=_answer_shell,
        is_item=True,
    ),
}
"""By the type that a row names."""
