"""One Chat Completions request as a whole: its fields, its settings, and which rules apply to it. Pure; never raises.

Sheet sections 0, 2 and 9.
"""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import ChatDialect, dialect_of, is_thinking
from evener.testing.check.chat.messages import check_messages
from evener.testing.check.chat.tools import check_choice, check_format, check_tools
from evener.testing.check.chat.turns import check_turns
from evener.testing.check.models import OPENAI_EFFORTS, ChatRow, ReasoningRow, chat, reasoning
from evener.testing.check.openai import check_cache_key, check_metadata, check_ranges
from evener.testing.check.scope import Scope
from evener.testing.check.shape import Violation, check_shape, fields, items, shape, shown, text

# Section 2. The effort is judged by model and server; the service tier is not judged, because clones have tiers of their own.
_BODY = shape(
    "messages: list",
    "model prompt_cache_key prompt_cache_retention reasoning_effort safety_identifier service_tier user: str, "
    "audio logit_bias metadata moderation prediction prompt_cache_options response_format stream_options: object, "
    "web_search_options: object, functions modalities tools: list, function_call tool_choice: str|object, stop: str|list, "
    "logprobs parallel_tool_calls store stream: bool, max_completion_tokens max_tokens n seed top_logprobs: int, "
    "frequency_penalty presence_penalty temperature top_p: number, verbosity: 'low'|'medium'|'high'",
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_logprobs": (0, 20),
    "max_tokens": (1, float("inf")),
    "max_completion_tokens": (1, float("inf")),
}
# The default of each sampling parameter. In a live test, the Responses wire accepted a default value on a reasoning model, so
# defaults pass here, too.
_DEFAULTS: Mapping[str, object] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "logit_bias": {},
}
_STREAM_OPTIONS = shape("", "include_usage include_obfuscation: bool")
_ROUTED_EFFORTS = frozenset(("max", "xhigh", "high", "medium", "low", "minimal", "none"))


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body."""
    model = text(body.get("model")) or scope.model
    dialect, row, levels = dialect_of(scope.dialect, model), chat(model), reasoning(model)
    yield from check_shape("", body, _BODY, loose=not dialect.known_only)
    if body.get("model") is None and not scope.model:
        yield Violation("model", "missing", "Missing required parameter: 'model'.")
    yield from check_messages(body.get("messages"), dialect, row)
    yield from check_turns(body, dialect)
    yield from check_tools(body, dialect, row)
    yield from check_choice(body, dialect)
    yield from check_format(body, dialect)
    yield from check_ranges(body, {**_RANGES, "n": (1, dialect.max_n)})
    yield from _check_fields(body, dialect, row)
    yield from _check_stream(body, dialect)
    yield from _check_stop(body, dialect, row)
    yield from _check_effort(body, dialect, row, levels)
    yield from _check_thinking(body, dialect)
    if dialect.known_only:
        yield from check_metadata(body.get("metadata"))
        yield from check_cache_key(body)


def _check_fields(body: Mapping[str, object], dialect: ChatDialect, row: ChatRow) -> Iterator[Violation]:
    """Report fields that this server or model refuses, or that exclude or require another field."""
    for name in sorted(dialect.refused & body.keys()):
        if body[name] is not None:
            yield Violation(name, "field.refused", f"'{name}' is not supported by this provider.")
    for one, other in (("max_tokens", "max_completion_tokens"), *dialect.exclusive):
        if body.get(one) is not None and body.get(other) is not None:
            yield Violation(one, "field.exclusive", f"Setting '{one}' and '{other}' at the same time is not supported.")
    if body.get("max_tokens") is not None and not row.max_tokens:
        message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        yield Violation("max_tokens", "max_tokens.model", message)
    if body.get("web_search_options") is not None and not row.search:
        yield Violation("web_search_options", "web_search.model", "Web search options not supported with this model.")
    if body.get("top_logprobs") is not None and body.get("logprobs") is not True:
        yield Violation("top_logprobs", "logprobs", "'top_logprobs' is only allowed when 'logprobs' is true.")


def _check_stream(body: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report stream options of the wrong form, or without a stream."""
    options = body.get("stream_options")
    if options is None:
        return
    yield from check_shape("stream_options", options, _STREAM_OPTIONS, loose=not dialect.known_only)
    if body.get("stream") is not True:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield Violation("stream_options", "stream_options", message)


def _check_stop(body: Mapping[str, object], dialect: ChatDialect, row: ChatRow) -> Iterator[Violation]:
    """Report stop sequences that are too many, too long, or refused by the model."""
    stop = body.get("stop")
    if stop is None:
        return
    if not row.stop:
        yield Violation("stop", "stop.model", "Unsupported parameter: 'stop' is not supported with this model.")
    listed = [stop] if isinstance(stop, str) else items(stop)
    if dialect.max_stops is not None and len(listed) > dialect.max_stops:
        yield Violation("stop", "stop.count", f"Invalid 'stop': array too long. Expected at most {dialect.max_stops}.")
    for index, one in enumerate(listed):
        if not isinstance(one, str):
            yield Violation(f"stop[{index}]", "type", "Input should be a string.")
        elif not one:
            yield Violation(f"stop[{index}]", "stop.empty", "Invalid 'stop': expected strings of at least 1 character.")
        elif dialect.max_stop_bytes is not None and len(one.encode(errors="replace")) > dialect.max_stop_bytes:
            message = f"Invalid 'stop': expected at most {dialect.max_stop_bytes} bytes each."
            yield Violation(f"stop[{index}]", "stop.length", message)


def _check_effort(body: Mapping[str, object], dialect: ChatDialect, row: ChatRow, levels: ReasoningRow) -> Iterator[Violation]:
    """Report an effort that the model does not have, and settings that the effort excludes."""
    effort = text(body.get("reasoning_effort"))
    taken = _list_efforts(text(body.get("model")), dialect, levels)
    if effort in dialect.refused_efforts or (effort and taken is not None and effort not in taken):
        listed = ", ".join(f"'{level}'" for level in sorted(taken or ())) or "others"
        message = f"Unsupported value: {shown(effort)} is not supported with this model. Supported values are: {listed}."
        yield Violation("reasoning_effort", "effort", message)
    if effort not in ("", "none") and items(body.get("tools")) and not row.effort_with_tools:
        message = "Function tools with reasoning_effort are not supported for this model in /v1/chat/completions."
        yield Violation("reasoning_effort", "effort.tools", message)
    if levels.default and (effort or levels.default) != "none":
        yield from _check_sampling(body)


def _list_efforts(model: str, dialect: ChatDialect, levels: ReasoningRow) -> frozenset[str] | None:
    """Return the efforts that this model accepts on this server; None if they are not known."""
    for pattern, efforts in dialect.efforts:
        if re.fullmatch(pattern, model):
            return efforts
    return frozenset(OPENAI_EFFORTS) - levels.refused if dialect.known_only or levels.refused else None


def _check_sampling(body: Mapping[str, object]) -> Iterator[Violation]:
    for name, default in _DEFAULTS.items():
        if body.get(name) is not None and body[name] != default:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            yield Violation(name, "sampling.reasoning", message)


def _check_thinking(body: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """Report thinking that is switched off on a model that always thinks."""
    disabled = fields(body.get("thinking")).get("type") == "disabled"
    if disabled and is_thinking(body, dialect):
        yield Violation("thinking.type", "thinking.model", "Thinking cannot be disabled on this model.")
    if dialect.routed_reasoning:
        yield from _check_routed(body)


def _check_routed(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report reasoning that is requested in two contradicting ways (section 9, OpenRouter)."""
    asked = fields(body.get("reasoning"))
    effort, short = asked.get("effort"), body.get("reasoning_effort")
    if effort is not None and asked.get("max_tokens") is not None:
        message = "Only one of 'reasoning.effort' and 'reasoning.max_tokens' can be specified."
        yield Violation("reasoning", "reasoning.exclusive", message)
    if isinstance(effort, str) and effort not in _ROUTED_EFFORTS:
        yield Violation("reasoning.effort", "reasoning.effort", f"Invalid value: {shown(effort)} is not an effort.")
    elif isinstance(effort, str) and isinstance(short, str) and effort != short:
        message = "'reasoning_effort' and 'reasoning.effort' must agree."
        yield Violation("reasoning_effort", "reasoning.disagree", message)
