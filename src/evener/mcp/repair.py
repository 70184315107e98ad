"""Makes answers of sloppy servers readable: one bad tool must not lose a list, nor a null message an answer. Pure.

The SDK checks an answer as a whole. So what it would refuse is taken out, or filled in, before it looks.
"""

from collections.abc import Callable, Mapping

__all__ = ["mend_error", "mend_result"]

Report = Callable[[str], None]
NEEDED = {"text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType"), "resource_link": ("uri", "name")}


def mend_error(message: dict[str, object]) -> dict[str, object]:
    """Return a JSON-RPC message whose error, if it is one, has a code and a text."""
    error = message.get("error")
    if "error" not in message or "method" in message:
        return message
    found: Mapping[str, object] = error if isinstance(error, dict) else {"message": error}
    code, text = found.get("code"), found.get("message")
    return {
        **{key: value for key, value in message.items() if key != "result"},
        "error": {
            **found,
            "code": code if isinstance(code, int) else -32603,
            "message": text if isinstance(text, str) else f"an error without a message ({text!r})",
        },
    }


def mend_result(result: dict[str, object], report: Report) -> dict[str, object]:
    """Return a result without tools that cannot be read, and with content that can."""
    tools, content = result.get("tools"), result.get("content")
    if isinstance(tools, list):
        return {**result, "tools": [tool for tool in tools if _is_sound(tool, report)]}
    if isinstance(content, list):
        # A result without a type is complete (specification of 2026-07-28); the SDK 2.3.0 refuses it.
        return {"resultType": "complete", **result, "content": [_mend_block(block) for block in content]}
    return result


def _is_sound(tool: object, report: Report) -> bool:
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(name, str) or not name:
        report("a tool without a name was left out")
        return False
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        report(f"the tool {name!r} was left out: it has no schema of its arguments")
        return False
    for key, kinds in (("description", str), ("annotations", dict), ("outputSchema", dict), ("title", str), ("_meta", dict)):
        if not isinstance(tool.get(key), kinds | None):
            report(f"the tool {name!r} was left out: its {key} is not of the right type")
            return False
    return True


def _mend_block(block: object) -> object:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        return {"type": "text", "text": str(block)}
    if kind == "resource":
        return block if isinstance(block.get("resource"), dict) else {"type": "text", "text": "[a resource without content]"}
    if kind not in NEEDED:
        return {"type": "text", "text": f"[content of the unknown type {kind!r}]"}
    missing = [key for key in NEEDED[kind] if not isinstance(block.get(key), str)]
    return {"type": "text", "text": f"[{kind} without {', '.join(missing)}]"} if missing else block
