"""Rules of the Anthropic Messages API for the body as a whole, each message and the settings. Pure; never raises.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. Where a recording
contradicts the sheet the recording wins, and the comment at the rule says so.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.anthropic.blocks import STRICT_VERSION, TOP_LEVEL, check_blocks
from evener.testing.check.anthropic.cache import check_cache
from evener.testing.check.anthropic.computer import check_computers
from evener.testing.check.anthropic.tools import check_choice, check_references, check_tools
from evener.testing.check.anthropic.turns import check_turns, is_prefill, merge_turns
from evener.testing.check.json_schema import ANTHROPIC, check_subset
from evener.testing.check.models import ANTHROPIC_EFFORTS, ClaudeRow, claude
from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    ObjectShape,
    Violation,
    check_shape,
    fields,
    is_int,
    is_number,
    items,
    join,
    shape,
    shown,
    text,
)

_MAX_MESSAGES = 100_000

# Section 2, its beta fields, the legacy output_format (recorded with a 200), and what Bedrock and Vertex move into the
# body (section 16). Sampling is judged below, where the version decides.
_BODY = shape(
    "max_tokens: int, messages: list",
    "model inference_geo anthropic_version: str, system: str|list, container: str|object, stream: bool, "
    "tool_choice thinking output_config output_format cache_control metadata diagnostics context_management: object, "
    "compaction thread: object, tools stop_sequences mcp_servers anthropic_beta: list, "
    "fallbacks fallback_credit_token temperature top_p top_k: any, "
    "service_tier: 'auto'|'standard_only', speed: 'standard'|'fast'",
)
_MESSAGES: Mapping[str, ObjectShape] = {
    "user": shape("role: str, content: str|list"),
    "assistant": shape("role: str, content: str|list"),
    "system": shape("role: str", "content: str|list, clear_at: 'next_user_message'|'never', output_config: object"),
}
_DISPLAY = "display: 'summarized'|'omitted'|'updates', block_binding: object"
_THINKING: Mapping[str, ObjectShape] = {
    "adaptive": shape("type: str", _DISPLAY),
    "enabled": shape("type: str, budget_tokens: int", _DISPLAY),
    "disabled": shape("type: str", open=True),
    "between_tools": shape("type: str", open=True),
}
_OUTPUT_CONFIG = shape("", "effort: str, format task_budget: object")
_FORMAT = shape("type: 'json_schema', schema: object")
_SAMPLING = ("temperature", "top_p", "top_k")
_INTERLEAVED = "interleaved-thinking"
_MIN_BUDGET = 1024


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
    yield from _check_thinking(body, row, scope)
    yield from _check_effort(body, row)
    yield from _check_sampling(body, row, scope)
    yield from _check_formats(body, prefilled=is_prefill(turns))
    yield from _check_max_tokens(body)
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
    """Report an empty message that is not the final assistant message (section 3)."""
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


def _check_thinking(body: Mapping[str, object], row: ClaudeRow, scope: Scope) -> Iterator[Violation]:
    if body.get("thinking") is None:
        return
    thinking = fields(body["thinking"])
    kind = text(thinking.get("type"))
    shape = _THINKING.get(kind)
    if shape is None:
        message = f"Input tag {shown(kind)} found using 'type' does not match any of the expected tags"
        yield Violation("thinking", "thinking.type", message)
        return
    yield from check_shape("thinking", thinking, shape)
    if row.thinking is not None and kind not in row.thinking:
        message = f'"thinking.type.{kind}" is not supported for this model.'
        yield Violation("thinking.type", "thinking.model", message)
    effort = fields(body.get("output_config")).get("effort")
    if kind == "disabled" and row.disabled_up_to_high and effort in ("xhigh", "max"):
        message = '"thinking.type.disabled" is not supported for this model at this effort.'
        yield Violation("thinking.type", "thinking.model", message)
    if kind == "enabled":
        yield from _check_budget(thinking.get("budget_tokens"), body.get("max_tokens"), scope)


def _check_budget(budget: object, limit: object, scope: Scope) -> Iterator[Violation]:
    path = "thinking.enabled.budget_tokens"
    if not isinstance(budget, int):
        return
    if budget < _MIN_BUDGET:
        yield Violation(path, "thinking.budget_min", f"Input should be greater than or equal to {_MIN_BUDGET}")
    interleaved = any(beta.startswith(_INTERLEAVED) for beta in scope.betas or ())
    if isinstance(limit, int) and limit and budget >= limit and not interleaved:
        yield Violation(path, "thinking.budget_max", "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_effort(body: Mapping[str, object], row: ClaudeRow) -> Iterator[Violation]:
    config = body.get("output_config")
    if config is None:
        return
    yield from check_shape("output_config", config, _OUTPUT_CONFIG)
    effort = text(fields(config).get("effort"))
    allowed = frozenset(ANTHROPIC_EFFORTS) if row.efforts is None else row.efforts
    if effort and effort not in allowed:
        levels = ", ".join(sorted(allowed)) or "none"
        message = f"This model does not support effort level {shown(effort)}. Supported levels: {levels}."
        yield Violation("output_config.effort", "effort", message)


def _check_sampling(body: Mapping[str, object], row: ClaudeRow, scope: Scope) -> Iterator[Violation]:
    """Report sampling parameters: the newer version has none, and 4.7 and later accept only default values (section 0)."""
    thinking = fields(body.get("thinking")).get("type")
    for name in _SAMPLING:
        value = body.get(name)
        if value is None:
            continue
        if scope.api_version == STRICT_VERSION:
            yield Violation(name, "sampling.version", f"{name}: Extra inputs are not permitted")
        elif not row.sampling and value != 1:
            yield Violation(name, "sampling.model", f"{name} is not supported for this model")
        elif thinking == "enabled" and not _thinking_allows(name, value):
            yield Violation(name, "sampling.thinking", f"{name} may not be changed when thinking is enabled")
        yield from _check_range(name, value)
    if not row.both_samplers and body.get("temperature") is not None and body.get("top_p") is not None:
        message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        yield Violation("top_p", "sampling.pair", message)


def _thinking_allows(name: str, value: object) -> bool:
    """True if this sampling value is allowed with thinking: temperature 1, no top_k, top_p from 0.95 to 1 (section 7)."""
    if name == "top_p":
        return isinstance(value, int | float) and 0.95 <= value <= 1
    return name == "temperature" and value == 1


def _check_range(name: str, value: object) -> Iterator[Violation]:
    whole = name == "top_k"
    if not (is_int(value) if whole else is_number(value)):
        yield Violation(name, "type", f"Input should be {'an integer' if whole else 'a number'}.")
    elif isinstance(value, int | float) and (value < 0 or (not whole and value > 1)):
        yield Violation(name, "sampling.range", f"{name} is out of range")


def _check_formats(body: Mapping[str, object], *, prefilled: bool) -> Iterator[Violation]:
    """Report wrong output formats (section 6). The old top-level field is still accepted, so both places are checked."""
    places = {"output_config.format": fields(body.get("output_config")).get("format")}
    places["output_format"] = body.get("output_format")
    for path, value in places.items():
        if value is None:
            continue
        yield from check_shape(path, value, _FORMAT)
        schema = fields(value).get("schema")
        if isinstance(schema, dict):
            yield from check_subset(join(path, "schema"), schema, ANTHROPIC)
        if _cites(body):
            yield Violation(path, "format.citations", "Citations cannot be used together with an output format.")
        if prefilled:
            yield Violation(path, "format.prefill", "Prefill cannot be used together with an output format.")


def _cites(body: Mapping[str, object]) -> bool:
    return any(
        fields(fields(block).get("citations")).get("enabled") is True
        for message in items(body.get("messages"))
        for block in items(fields(message).get("content"))
    )


def _check_max_tokens(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report `max_tokens: 0`, which only warms the cache, together with settings that need an answer (section 2)."""
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit > 0:
        return
    needs_answer = (
        body.get("stream") is True,
        fields(body.get("thinking")).get("type") == "enabled",
        fields(body.get("output_config")).get("format") is not None,
        fields(body.get("tool_choice")).get("type") in ("any", "tool"),
    )
    if limit < 0 or any(needs_answer):
        message = "max_tokens: should be at least 1 (0 only without stream, thinking, format and forced tools)"
        yield Violation("max_tokens", "max_tokens", message)
