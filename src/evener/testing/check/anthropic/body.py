"""What the Anthropic Messages API refuses with a 400: the body as a whole, and each message. Pure and total.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. Where a recording
contradicts the sheet the recording wins, and the comment at the rule says so.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.anthropic.blocks import TOP_LEVEL, check_blocks
from evener.testing.check.anthropic.cache import check_cache
from evener.testing.check.anthropic.computer import check_computers
from evener.testing.check.anthropic.settings import check_settings
from evener.testing.check.anthropic.tools import check_choice, check_references, check_tools
from evener.testing.check.anthropic.turns import check_turns, is_prefill, merge_turns
from evener.testing.check.models import claude
from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    ANY,
    BOOL,
    INT,
    LIST,
    OBJECT,
    STR,
    STR_OR_LIST,
    STR_OR_OBJECT,
    ObjectShape,
    check_shape,
    fields,
    items,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

_MAX_MESSAGES = 100_000

# Section 2, its beta fields, the legacy output_format (recorded with a 200), and what Bedrock and Vertex move into the
# body (section 16). Sampling is judged in anthropic_settings, where the version decides.
_BODY = ObjectShape(
    {"max_tokens": INT, "messages": LIST},
    {
        "model": STR,
        "system": STR_OR_LIST,
        "tools": LIST,
        "tool_choice": OBJECT,
        "thinking": OBJECT,
        "output_config": OBJECT,
        "output_format": OBJECT,
        "cache_control": OBJECT,
        "stop_sequences": LIST,
        "stream": BOOL,
        "metadata": OBJECT,
        "service_tier": one_of("auto", "standard_only"),
        "speed": one_of("standard", "fast"),
        "container": STR_OR_OBJECT,
        "inference_geo": STR,
        "diagnostics": OBJECT,
        "mcp_servers": LIST,
        "context_management": OBJECT,
        "compaction": OBJECT,
        "thread": OBJECT,
        "fallbacks": ANY,
        "fallback_credit_token": ANY,
        "temperature": ANY,
        "top_p": ANY,
        "top_k": ANY,
        "anthropic_version": STR,
        "anthropic_beta": LIST,
    },
)
_MESSAGES: Mapping[str, ObjectShape] = {
    "user": ObjectShape({"role": STR, "content": STR_OR_LIST}),
    "assistant": ObjectShape({"role": STR, "content": STR_OR_LIST}),
    "system": ObjectShape(
        {"role": STR},
        {"content": STR_OR_LIST, "clear_at": one_of("next_user_message", "never"), "output_config": OBJECT},
    ),
}


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body."""
    yield from check_shape("", body, _BODY)
    if "model" not in body and "anthropic_version" not in body:
        yield Violation("model", "missing", "Field required: a string.")
    row = claude(text(body.get("model")))
    thinking = text(fields(body.get("thinking")).get("type"))
    yield from check_blocks("system", body.get("system"), TOP_LEVEL, scope)
    yield from _check_messages(body.get("messages"), scope)
    turns = merge_turns(body.get("messages"))
    yield from check_turns(turns, row, thinking)
    yield from check_tools(body, scope)
    yield from check_computers(body, turns, scope)
    yield from check_choice(body, row, thinking)
    yield from check_references(body)
    yield from check_settings(body, row, scope, prefilled=is_prefill(turns))
    yield from check_cache(body)
    yield from _check_stops(body.get("stop_sequences"))


def _check_messages(messages: object, scope: Scope) -> Iterator[Violation]:
    listed = items(messages)
    if isinstance(messages, list) and not 0 < len(listed) <= _MAX_MESSAGES:
        message = f"messages: at least one and at most {_MAX_MESSAGES} messages are required"
        yield Violation("messages", "messages.count", message)
    for index, value in enumerate(listed):
        path, role = f"messages.{index}", text(fields(value).get("role"))
        shape = _MESSAGES.get(role)
        if shape is None:
            message = f"Unexpected role {shown(role)}. Allowed roles are user, assistant and system."
            yield Violation(f"{path}.role", "role", message)
            continue
        yield from check_shape(path, value, shape)
        content = fields(value).get("content")
        yield from _check_empty(path, content, final=role == "assistant" and index == len(listed) - 1)
        yield from check_blocks(f"{path}.content", content, role, scope)


def _check_empty(path: str, content: object, *, final: bool) -> Iterator[Violation]:
    """Section 3: only a final assistant message may be empty."""
    if content in ("", []) and not final:
        message = "all messages must have non-empty content except for the optional final assistant message"
        yield Violation(f"{path}.content", "content.empty", message)


def _check_stops(stops: object) -> Iterator[Violation]:
    for index, value in enumerate(items(stops)):
        path = f"stop_sequences.{index}"
        if not isinstance(value, str):
            yield Violation(path, "type", "Input should be a string.")
        elif not value.strip():
            yield Violation(path, "stop_sequence", "each stop sequence must contain non-whitespace")
