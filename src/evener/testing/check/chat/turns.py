"""How the messages of one Chat request fit together: calls and their answers, order, replayed reasoning. Section 3 and 9.

Reads only the role of a message, its calls and the id that it answers. Only `tool_calls` have results: the deprecated
`function_call` has no id.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from evener.testing.check.chat.dialects import ChatDialect, is_thinking
from evener.testing.check.shape import Violation, fields, items, shown, text

Message = Mapping[str, object]


def check_turns(body: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report errors between messages."""
    listed = [fields(value) for value in items(body.get("messages"))]
    yield from _check_calls(listed)
    yield from _check_answers(listed)
    yield from _check_order(listed, dialect)
    if dialect.replays_reasoning and is_thinking(body, dialect):
        yield from _check_reasoning(listed)


def _calls_of(message: Message) -> list[str]:
    if message.get("role") != "assistant":
        return []
    return [text(fields(call).get("id")) for call in items(message.get("tool_calls"))]


def _answers_after(listed: Sequence[Message], index: int) -> list[str]:
    """Return the ids answered by the tool messages that directly follow."""
    found = []
    for message in listed[index + 1 :]:
        if message.get("role") != "tool":
            break
        found.append(text(message.get("tool_call_id")))
    return found


def _check_calls(listed: Sequence[Message]) -> Iterator[Violation]:
    for index, message in enumerate(listed):
        calls = _calls_of(message)
        if not calls:
            continue
        answered = set(_answers_after(listed, index))
        for call in dict.fromkeys(call for call in calls if call not in answered):
            reason = f"tool_calls must be followed by tool messages responding to each id: {shown(call)} has none."
            yield Violation(f"messages[{index}].tool_calls", "tool_call.unanswered", reason)


def _check_answers(listed: Sequence[Message]) -> Iterator[Violation]:
    """Report a tool message that does not answer, once, a call of the assistant message before its run of tool messages."""
    asked: Counter[str] = Counter()
    known: set[str] = set()
    for index, message in enumerate(listed):
        if message.get("role") != "tool":
            asked = Counter(_calls_of(message))
            known = set(asked)
            continue
        name = text(message.get("tool_call_id"))
        if name not in known:
            reason = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            yield Violation(f"messages[{index}]", "tool.orphan", reason)
        elif not asked[name]:
            reason = f"Duplicate tool message for tool_call_id {shown(name)}."
            yield Violation(f"messages[{index}]", "tool.duplicate", reason)
        asked[name] -= 1 if asked[name] else 0


def _check_order(listed: Sequence[Message], dialect: ChatDialect) -> Iterator[Violation]:
    """Report a message that may not follow a tool message, or may not be the last (section 9, Mistral)."""
    if dialect.after_tool is not None:
        for index, message in enumerate(listed[1:], 1):
            role = text(message.get("role"))
            if listed[index - 1].get("role") == "tool" and role not in dialect.after_tool:
                reason = f"Unexpected role {shown(role)} after role 'tool'"
                yield Violation(f"messages[{index}]", "order.after_tool", reason)
    if dialect.last is not None and listed:
        role = text(listed[-1].get("role"))
        if role not in dialect.last and listed[-1].get("prefix") is not True:
            reason = f"Expected last role User or Tool (or Assistant with prefix True) but got {shown(role)}"
            yield Violation(f"messages[{len(listed) - 1}]", "order.last", reason)


def _check_reasoning(listed: Sequence[Message]) -> Iterator[Violation]:
    """Report a tool turn without its reasoning, which may be an empty string (section 9, DeepSeek and Moonshot)."""
    for index, message in enumerate(listed):
        if _calls_of(message) and not isinstance(message.get("reasoning_content"), str):
            reason = f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
            yield Violation(f"messages[{index}]", "reasoning.missing", reason)
