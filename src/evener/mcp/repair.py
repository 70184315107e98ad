"""Makes malformed answers of servers readable: one bad tool must not lose a list, and a null message must not lose an
answer. Pure.

The SDK validates an answer as a whole. So everything that it would refuse is removed or filled in first.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import ContentBlock, methods
from pydantic import TypeAdapter, ValidationError

LISTS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
WORDS = {"tools": "tool", "prompts": "prompt", "resources": "resource", "resourceTemplates": "resource template"}
Report = Callable[[str], None]
BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)
DEEPEST = 100
ANSWER = frozenset(("id", "result", "error"))
NEEDED = {"text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType"), "resource_link": ("uri", "name")}


def mend_message(message: dict[str, object]) -> dict[str, object]:
    """Return a valid JSON-RPC message: its result is an object, or its error has a code and a message."""
    number = message.get("id")
    if "method" in message or number is None or ("jsonrpc" not in message and not ANSWER.issuperset(message)):
        return message  # no answer; it may be a line of a log that has ids of its own
    envelope = {"jsonrpc": "2.0", "id": int(number) if isinstance(number, float) and number.is_integer() else number}
    error, result = message.get("error"), message.get("result")
    if error is None and isinstance(result, dict):
        return {**envelope, "result": result}
    if "error" not in message:
        error = "an answer without a result" if result is None else f"a result that is no object ({str(result)[:200]!r})"
    found: Mapping[str, object] = error if isinstance(error, dict) else {"message": error}
    code, text = found.get("code"), found.get("message")
    return {
        **envelope,
        "error": {
            **found,
            "code": code if isinstance(code, int) else -32603,
            "message": text if isinstance(text, str) else f"an error without a message ({text!r})",
        },
    }


def mend_result(result: dict[str, object], version: str, report: Report) -> dict[str, object]:
    """Return a result without list entries that the SDK would refuse, and with content that it can parse."""
    for key in LISTS:
        if isinstance(listed := result.get(key), list):
            return {**result, key: _keep_sound(key, listed, result, version, report)}
    content = _mend_content(result)
    if content is not None:
        # A result without a type is complete (specification of 2026-07-28); the SDK 2.3.0 refuses it.
        return {"resultType": "complete", **result, "content": [_mend_block(block) for block in content]}
    return result


def _mend_content(result: dict[str, object]) -> list[object] | None:
    """Return the content of a call's result as a list; None if the result is not that of a call."""
    content = result.get("content")
    if isinstance(content, list):
        return content
    if isinstance(content, str | dict):
        return [content if isinstance(content, dict) else {"type": "text", "text": content}]
    return [] if "content" in result or "structuredContent" in result else None


def _keep_sound(key: str, listed: list[object], result: dict[str, object], version: str, report: Report) -> list[object]:
    """Return the valid entries. They are checked one by one only if the whole list is refused."""

    def complain(entries: list[object]) -> str:
        try:
            methods.parse_server_result(LISTS[key], version, {**result, key: entries})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part != key and not isinstance(part, int))
            return f"{place}: {first['msg']}" if place else str(first["msg"])
        except (KeyError, ValueError):
            return ""  # not of this version: the SDK has its own words for that
        return ""

    if (not complain(listed) and not any(map(_is_deep, listed))) or complain([]):
        return listed
    kept: list[object] = []
    for one in listed:
        if why := (key == "tools" and _about_schema(one)) or (_is_deep(one) and "it is nested too deep") or complain([one]):
            name = one.get("name") if isinstance(one, dict) else None
            named = isinstance(name, str) and name
            report(f"the {WORDS[key]} {name!r} was left out: {why}" if named else f"a {WORDS[key]} without a name was left out")
        else:
            kept.append(one)
    return kept


def _is_deep(value: object) -> bool:
    """True if a value is nested deeper than the SDK can write it."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return True


def _about_schema(tool: object) -> str:
    schema = tool.get("inputSchema") if isinstance(tool, dict) else {"type": "object"}
    return "" if isinstance(schema, dict) and schema.get("type") == "object" else "it has no schema of its arguments"


def _mend_block(block: object) -> object:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        return {"type": "text", "text": str(block)}
    if kind == "resource":
        return block if _is_sound(block) else {"type": "text", "text": "[a resource without content]"}
    if kind not in NEEDED:
        return {"type": "text", "text": f"[content of the unknown type {kind!r}]"}
    missing = [key for key in NEEDED[kind] if not isinstance(block.get(key), str)]
    if missing:
        return {"type": "text", "text": f"[{kind} without {', '.join(missing)}]"}
    return block if _is_sound(block) else {key: block[key] for key in ("type", *NEEDED[kind])}


def _is_sound(block: dict[str, object]) -> bool:
    try:
        BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True
