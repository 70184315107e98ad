"""How the input items of one Responses request fit together: calls and outputs, reasoning and what follows it, ids.

Sheet sections 3 and 7. With server-side history (`previous_response_id`, `conversation`) or an `item_reference`, the
server may have one half of a pair, so pairs are judged only without them.
"""

from collections.abc import Iterator, Mapping, Sequence

from evener.testing.check.models import ServerRow
from evener.testing.check.responses.items import item_type
from evener.testing.check.scope import Scope
from evener.testing.check.shape import Violation, fields, items, join, shown, text

_ANSWERS: Mapping[str, str] = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
}
_CALLS = frozenset(_ANSWERS.values())
# Items that a model produces, which may therefore follow its reasoning: calls and hosted items, messages, more reasoning.
_PRODUCED = _CALLS | {
    *("message", "reasoning", "compaction", "tool_search_call", "tool_search_output", "web_search_call"),
    *("file_search_call", "code_interpreter_call", "image_generation_call", "local_shell_call"),
    *("mcp_list_tools", "mcp_approval_request", "mcp_call"),
    *("program", "program_output", "item_reference"),
}

Item = Mapping[str, object]


def check_order(body: Mapping[str, object], row: ServerRow, scope: Scope) -> Iterator[Violation]:
    """Report items that lack their partner, are misplaced, or are duplicates."""
    listed = [fields(value) for value in items(body.get("input"))]
    yield from _check_duplicates(listed)
    if not _has_remote_history(body, listed):
        yield from _check_pairs(listed)
        yield from _check_bound(listed, scope.bound or {})
    if row.reasoning_followed:
        stored = body.get("store") is not False
        yield from _check_reasoning(listed, needs_id=row.item_ids and stored)
    if row.adjacent_calls:
        yield from _check_adjacent(listed)
    yield from _check_trigger(listed)


def _has_remote_history(body: Mapping[str, object], listed: Sequence[Item]) -> bool:
    held = any(body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt"))
    return held or any(item_type(item) == "item_reference" for item in listed)


def _check_duplicates(listed: Sequence[Item]) -> Iterator[Violation]:
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(listed):
        kind, call, name = item_type(item), item.get("call_id"), item.get("id")
        if isinstance(call, str) and (kind in _CALLS or kind in _ANSWERS):
            if (kind, call) in seen:
                message = f"Duplicate {kind} for call_id {shown(call)}."
                yield Violation(f"input[{index}].call_id", "call_id.duplicate", message)
            seen.add((kind, call))
        if isinstance(name, str) and name:
            if ("", name) in seen:
                message = f"Duplicate item found with id {shown(name)}. Remove duplicate items from your input."
                yield Violation(f"input[{index}].id", "id.duplicate", message)
            seen.add(("", name))


def _check_pairs(listed: Sequence[Item]) -> Iterator[Violation]:
    """Report calls and outputs without their partner (section 3).

    Recorded: a function_call_output answers a client tool search.
    """
    asked = {(item_type(item), text(item.get("call_id"))) for item in listed}
    answered = {text(item.get("call_id")) for item in listed if item_type(item).endswith("_output")}
    for index, item in enumerate(listed):
        kind, call = item_type(item), text(item.get("call_id"))
        if kind in _CALLS and call not in answered:
            message = f"No tool output found for function call {shown(call)}."
            yield Violation(f"input[{index}]", "call.unanswered", message)
        asker = _ANSWERS.get(kind)
        if asker is not None and (asker, call) not in asked and ("tool_search_call", call) not in asked:
            message = f"No tool call found for function call output with call_id {shown(call)}."
            yield Violation(f"input[{index}]", "output.orphan", message)


def _check_reasoning(listed: Sequence[Item], *, needs_id: bool) -> Iterator[Violation]:
    """Report a reasoning item that is not directly followed by the item it produced (section 7).

    Recorded: with stored history, a message without id does not count as that item. There is no recording of calls without
    id, so they pass.
    """
    for index, item in enumerate(listed):
        if item_type(item) != "reasoning":
            continue
        after = listed[index + 1] if index + 1 < len(listed) else {}
        rewritten = item_type(after) == "message" and not after.get("id")
        if not _follows(after) or (needs_id and text(item.get("id")) and rewritten):
            name = shown(text(item.get("id")))
            message = f"Item {name} of type 'reasoning' was provided without its required following item."
            yield Violation(f"input[{index}]", "reasoning.following", message)


def _check_bound(listed: Sequence[Item], bound: Mapping[str, str]) -> Iterator[Violation]:
    """Report an item that is sent back under its id without the reasoning that it was made with (section 7)."""
    held = {text(item.get("id")) for item in listed}
    for index, item in enumerate(listed):
        name = text(item.get("id"))
        needed = bound.get(name, "")
        if needed and needed not in held:
            said = f"Item {shown(name)} of type '{item_type(item)}' was provided without its required 'reasoning' item: "
            yield Violation(f"input[{index}]", "reasoning.required", f"{said}{shown(needed)}.")


def _follows(after: Item) -> bool:
    kind = item_type(after)
    return kind in _PRODUCED and (kind != "message" or after.get("role") == "assistant")


def _check_adjacent(listed: Sequence[Item]) -> Iterator[Violation]:
    """Report an assistant message between calls and their outputs: only one clone refuses it (section 14) [recorded]."""
    waiting: dict[str, None] = {}
    for index, item in enumerate(listed):
        kind, call = item_type(item), text(item.get("call_id"))
        if kind in _CALLS:
            waiting[call] = None
        elif kind in _ANSWERS:
            waiting.pop(call, None)
        elif kind == "message" and item.get("role") == "assistant" and waiting:
            message = f"No tool output found for tool call {shown(next(iter(waiting)))}."
            yield Violation(f"input[{index}]", "call.interleaved", message)


def _check_trigger(listed: Sequence[Item]) -> Iterator[Violation]:
    for index, item in enumerate(listed[:-1]):
        if item.get("type") == "compaction_trigger":
            yield Violation(join(f"input[{index}]", "type"), "item.trigger", "compaction_trigger must be the last item.")
