"""Settings of one Anthropic request: thinking, effort, sampling, output format, token limit. Sheet sections 0, 2, 6, 7.

Never looks at the content of messages, except for the two features that an output format excludes.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.anthropic.blocks import STRICT_VERSION
from evener.testing.check.json_schema import ANTHROPIC, check_subset
from evener.testing.check.models import ANTHROPIC_EFFORTS, ClaudeRow
from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    INT,
    OBJECT,
    STR,
    ObjectShape,
    check_shape,
    fields,
    is_int,
    is_number,
    items,
    join,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

_DISPLAY = {"display": one_of("summarized", "omitted", "updates"), "block_binding": OBJECT}
_THINKING: Mapping[str, ObjectShape] = {
    "adaptive": ObjectShape({"type": STR}, _DISPLAY),
    "enabled": ObjectShape({"type": STR, "budget_tokens": INT}, _DISPLAY),
    "disabled": ObjectShape({"type": STR}, open=True),
    "between_tools": ObjectShape({"type": STR}, open=True),
}
_OUTPUT_CONFIG = ObjectShape({}, {"effort": STR, "format": OBJECT, "task_budget": OBJECT})
_FORMAT = ObjectShape({"type": one_of("json_schema"), "schema": OBJECT})
_SAMPLING = ("temperature", "top_p", "top_k")
_INTERLEAVED = "interleaved-thinking"
_MIN_BUDGET = 1024


def check_settings(body: Mapping[str, object], row: ClaudeRow, scope: Scope, *, prefilled: bool) -> Iterator[Violation]:
    """Report settings that are malformed, out of range, or refused by this model or API version."""
    yield from _check_thinking(body, row, scope)
    yield from _check_effort(body, row)
    yield from _check_sampling(body, row, scope)
    yield from _check_formats(body, prefilled=prefilled)
    yield from _check_max_tokens(body)


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
    """Section 0: gone for every model in the newer version; on 4.7 and later only default values pass the older one."""
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
    """Section 7: temperature stays 1, top_k is not allowed, top_p stays within 0.95 and 1."""
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
    """Section 6. The legacy top-level field is recorded as still accepted, so both places are checked alike."""
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
    """Section 2: zero only warms the cache, so everything that needs an answer excludes it."""
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
