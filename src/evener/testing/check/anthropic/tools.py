"""Tools, tool choice and MCP servers of one Anthropic request. Sheet section 5.

Never looks at the messages, except through the names that tool references use.
"""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.json_schema import ANTHROPIC, ANTHROPIC_FORM, check_arguments, check_subset
from evener.testing.check.models import ClaudeRow
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

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_TOOLSET_BETAS = frozenset(("mcp-client-2025-11-20", "mcp-client-2026-09-15"))

_CUSTOM = shape(
    "name: NAME, input_schema: object",
    "type description: str, cache_control: object, input_examples allowed_callers: list, "
    "strict defer_loading eager_input_streaming: bool",
    NAME=text_like(r"[a-zA-Z0-9_-]{1,128}", Violation("", "tool.name", "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")),
)
_NAMED = shape("type name: str", open=True)
_UNNAMED = shape("type: str", open=True)
_TOOLSET = shape("type mcp_server_name: str", open=True)

# Tools of the provider: the name that each version requires. Empty: the entry must not have a name.
PROVIDER_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("bash_20241022", "bash_20250124"), "bash"),
    **dict.fromkeys(("text_editor_20241022", "text_editor_20250124"), "str_replace_editor"),
    **dict.fromkeys(("text_editor_20250429", "text_editor_20250728"), "str_replace_based_edit_tool"),
    **dict.fromkeys(("computer_20241022", "computer_20250124", "computer_20251124"), "computer"),
    **dict.fromkeys(("computer_toolset_20260801", "browser_toolset_20260801", "mcp_toolset"), ""),
    "memory_20250818": "memory",
    **dict.fromkeys(("web_search_20250305", "web_search_20260209", "web_search_20260318"), "web_search"),
    **{f"web_fetch_{day}": "web_fetch" for day in (20250910, 20260209, 20260309, 20260318)},
    **{f"code_execution_{day}": "code_execution" for day in (20250522, 20250825, 20260120, 20260521)},
    **dict.fromkeys(("tool_search_tool_regex", "tool_search_tool_regex_20251119"), "tool_search_tool_regex"),
    **dict.fromkeys(("tool_search_tool_bm25", "tool_search_tool_bm25_20251119"), "tool_search_tool_bm25"),
    "advisor_20260301": "advisor",
}


def check_tools(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Report errors in the tool list and the MCP servers."""
    seen: set[str] = set()
    for index, value in enumerate(items(body.get("tools"))):
        path, tool = f"tools.{index}", fields(value)
        kind = tool.get("type")
        if kind is None or kind == "custom":
            yield from _check_custom(path, value)
        elif text(kind) not in PROVIDER_TOOLS:
            message = f"Input tag {shown(text(kind))} found using 'type' does not match any of the expected tags"
            yield Violation(path, "tool.type", message)
        else:
            yield from _check_provided(path, tool)
        name = text(tool.get("name"))
        if name and name in seen:
            yield Violation(path, "tool.duplicate", "tools: Tool names must be unique.")
        seen.add(name)
    yield from _check_servers(body, scope)


def _check_custom(path: str, value: object) -> Iterator[Violation]:
    yield from check_shape(path, value, _CUSTOM)
    tool = fields(value)
    schema = tool.get("input_schema")
    if isinstance(schema, dict):
        yield from _check_input_schema(join(path, "input_schema"), fields(schema))
        if tool.get("strict") is True:
            yield from check_subset(join(path, "input_schema"), schema, ANTHROPIC)


def _check_input_schema(path: str, schema: Mapping[str, object]) -> Iterator[Violation]:
    """Report errors in any input schema, strict or not. The message about keys is the API's own."""
    yield from check_arguments(path, schema, ANTHROPIC_FORM)
    for key in fields(schema.get("properties")):
        if not _KEY.fullmatch(str(key)):
            message = "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
            yield Violation(join(path, "properties"), "tool.schema_key", message)


def _check_provided(path: str, tool: Mapping[str, object]) -> Iterator[Violation]:
    kind = text(tool.get("type"))
    name = PROVIDER_TOOLS[kind]
    yield from check_shape(path, tool, _TOOLSET if kind == "mcp_toolset" else _NAMED if name else _UNNAMED)
    if name and isinstance(tool.get("name"), str) and tool["name"] != name:
        yield Violation(join(path, "name"), "tool.fixed_name", f"Input should be '{name}'")
    if tool.get("allowed_domains") is not None and tool.get("blocked_domains") is not None:
        message = "Only one of allowed_domains and blocked_domains may be set."
        yield Violation(path, "tool.domains", message)


def _check_servers(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Report an MCP server without its toolset, and a toolset without its server (section 5).

    Recordings of the older MCP beta send servers without any toolset and are accepted. So the first rule applies only to
    requests of the newer form: with some toolset, or with a newer beta.
    """
    tools = [fields(tool) for tool in items(body.get("tools"))]
    used = {text(tool.get("mcp_server_name")) for tool in tools if tool.get("type") == "mcp_toolset"}
    servers = [text(fields(server).get("name")) for server in items(body.get("mcp_servers"))]
    betas = [*items(body.get("anthropic_beta")), *(scope.betas or ())]
    newer = bool(used) or any(text(beta) in _TOOLSET_BETAS for beta in betas)
    for index, name in enumerate(servers):
        if newer and name not in used:
            message = f"MCP server {shown(name)} needs a tools entry of type mcp_toolset"
            yield Violation(f"mcp_servers.{index}", "mcp.no_toolset", message)
    for name in sorted(used.difference(servers)):
        yield Violation("tools", "mcp.no_server", f"mcp_toolset names the unknown server {shown(name)}")


def check_choice(body: Mapping[str, object], row: ClaudeRow, thinking: str) -> Iterator[Violation]:
    """Report a tool choice that is malformed, names an unknown tool, or is not allowed in this request."""
    if body.get("tool_choice") is None:
        return
    choice = fields(body["tool_choice"])
    kind = text(choice.get("type"))
    shape = _CHOICES.get(kind)
    if shape is None:
        message = "Input should be an object with type 'auto', 'any', 'tool' or 'none'"
        yield Violation("tool_choice", "tool_choice.type", message)
        return
    yield from check_shape("tool_choice", choice, shape)
    if not items(body.get("tools")) and not items(body.get("mcp_servers")):
        message = "tool_choice may only be specified while providing tools"
        yield Violation("tool_choice", "tool_choice.no_tools", message)
    if kind in ("any", "tool"):
        yield from _check_forced(body, row, thinking)


_PARALLEL = "disable_parallel_tool_use: bool"
_CHOICES: Mapping[str, ObjectShape] = {
    "auto": shape("type: str", _PARALLEL),
    "any": shape("type: str", _PARALLEL),
    "none": shape("type: str"),
    "tool": shape("type name: str", _PARALLEL),
}


def _check_forced(body: Mapping[str, object], row: ClaudeRow, thinking: str) -> Iterator[Violation]:
    if not row.forced_choice:
        yield Violation("tool_choice", "tool_choice.forced_model", "This model does not support forced tool use.")
    if thinking == "enabled":
        message = "Thinking may not be enabled when tool_choice forces tool use."
        yield Violation("tool_choice", "tool_choice.forced_thinking", message)
    name = fields(body["tool_choice"]).get("name")
    if isinstance(name, str) and name not in _names(body) and not _has_toolset(body):
        yield Violation("tool_choice.name", "tool_choice.unknown", f"Tool {shown(name)} not found in provided tools")


def check_references(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report a tool reference in a tool result that names no tool of this request."""
    if _has_toolset(body):
        return
    known = _names(body)
    for index, message in enumerate(items(body.get("messages"))):
        for place, block in enumerate(items(fields(message).get("content"))):
            for value in items(fields(block).get("content")):
                part = fields(value)
                if part.get("type") == "tool_reference" and text(part.get("tool_name")) not in known:
                    path, name = f"messages.{index}.content.{place}", shown(text(part.get("tool_name")))
                    yield Violation(path, "tool_reference.unknown", f"Tool reference {name} not found in available tools")


def _names(body: Mapping[str, object]) -> set[str]:
    return {text(fields(tool).get("name")) for tool in items(body.get("tools"))}


def _has_toolset(body: Mapping[str, object]) -> bool:
    """True if some tools are named outside of the body: then a name that is not in the list may still be valid."""
    kinds = (text(fields(tool).get("type")) for tool in items(body.get("tools")))
    return bool(items(body.get("mcp_servers"))) or any("toolset" in kind for kind in kinds)
