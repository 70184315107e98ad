"""The form of a tool call in an editor: title, kind, files, diffs, and the plan of a to-do list. Pure."""

import os
from base64 import b64decode
from collections.abc import Iterator, Mapping

import msgspec

from evener.events import CallFinished
from evener.tools.tool import Tool, Toolbox
from evener.toolset.changes import read_change
from evener.toolset.labels import label_of
from evener.transcript.blocks import ImageBlock, Inline, ResultContent, TextBlock, ToolCall

Frame = dict[str, object]
SOURCES = {"search": "search", "shell": "execute", "web": "fetch", "todo": "think", "jsonl": "search", "ask_user": "other"}
EFFECTS = {"read": "read", "idempotent": "edit", "write": "other"}
NAMED = ("path", "command", "pattern", "query", "url", "prompt")
"""Arguments that say what a call is about, the first that is there."""
STATUSES = {"open": "pending", "doing": "in_progress", "done": "completed"}
MOST_TITLE = 120


def describe_call(call: ToolCall, tools: Toolbox, cwd: str) -> Frame:
    """Describe a call for the editor: title, kind, the files that it touches, and the diff that it would make."""
    tool = tools.get(call.name)
    given = _arguments(call)
    about = next((str(given[name]) for name in NAMED if isinstance(given.get(name), str)), "")
    shown: Frame = {
        "toolCallId": call.id,
        "title": f"{call.name} {about}".strip()[:MOST_TITLE],
        "kind": _kind(call.name, tool),
        "rawInput": given if given or call.raw in ("", "{}") else call.raw,
    }
    if path := _path(given, cwd):
        shown["locations"] = [{"path": path}]
        if diffs := list(_diffs(given, path)):
            shown["content"] = diffs
    return shown


def _arguments(call: ToolCall) -> Mapping[str, object]:
    try:
        found = msgspec.json.decode(call.raw or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _kind(name: str, tool: Tool | None) -> str:
    if tool is None:
        return "other"
    known = label_of(tool)
    if known is not None and known.source in SOURCES:
        return SOURCES[known.source]
    if known is not None and known.source in ("files", "editor") and tool.effect != "read":
        return "execute" if "command" in name else "edit"
    return EFFECTS[tool.effect]


def _path(given: Mapping[str, object], cwd: str) -> str:
    path = given.get("path")
    return os.path.normpath(os.path.join(cwd, path)) if isinstance(path, str) and path and cwd else ""


def _diffs(given: Mapping[str, object], path: str, before: str | None = None) -> Iterator[Frame]:
    """Yield the changes that the arguments would make to a file: single parts, or its whole content."""
    match given:
        case {"edits": list(edits)}:
            for edit in edits:
                match edit:
                    case {"old": str(old), "new": str(new)}:
                        yield {"type": "diff", "path": path, "oldText": old, "newText": new}
        case {"content": str(content)}:
            yield {"type": "diff", "path": path, "oldText": before, "newText": content}


def show_result(call: ToolCall, result: CallFinished, cwd: str) -> list[Frame]:
    """Return the result of a call for the editor: the diff if it changed a file, else its content."""
    change = read_change(result.metadata) if result.ok else None
    if change is None:
        return [show_content(one) for one in result.content]
    given = _arguments(call)
    before = None if change.before is None else b64decode(change.before).decode(errors="replace")
    return list(_diffs(given, _path(given, cwd), before)) or [show_content(one) for one in result.content]


def show_content(block: ResultContent) -> Frame:
    """Return one part of a result for the editor."""
    match block:
        case TextBlock(text=text):
            shown: Frame = {"type": "text", "text": text}
        case ImageBlock(source=Inline(data=data), media_type=kind) if kind:
            shown = {"type": "image", "data": data, "mimeType": kind}
        case _:
            shown = {"type": "text", "text": f"[{block.kind}]"}
    return {"type": "content", "content": shown}


def plan_of(call: ToolCall, tools: Toolbox) -> Frame | None:
    """Return the plan that a call of the tool `todo` contains; None for any other call."""
    tool = tools.get(call.name)
    known = label_of(tool) if tool else None
    items = _arguments(call).get("items")
    if known is None or known.source != "todo" or not isinstance(items, list):
        return None
    entries = [
        {"content": text, "priority": "medium", "status": STATUSES.get(str(item.get("status", "open")), "pending")}
        for item in items
        if isinstance(item, dict) and isinstance(text := item.get("text"), str)
    ]
    return {"sessionUpdate": "plan", "entries": entries}
