"""Rules of the OpenAI Responses API for the body as a whole and its settings. Pure; never raises.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. A body for the compaction
endpoint has a subset of these fields and is checked in the same way.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.models import OPENAI_EFFORTS, ReasoningRow, reasoning, server
from evener.testing.check.openai import check_cache_key, check_metadata, check_ranges
from evener.testing.check.responses.computer import check_computers
from evener.testing.check.responses.items import check_items
from evener.testing.check.responses.order import check_order
from evener.testing.check.responses.tools import check_choice, check_format, check_tools
from evener.testing.check.scope import Scope
from evener.testing.check.shape import Violation, check_shape, fields, items, one_of, shape, shown, text

# Section 2.
_BODY = shape(
    "",
    "model previous_response_id prompt_cache_key prompt_cache_retention service_tier user safety_identifier: str, "
    "input instructions: str|list, tool_choice conversation: str|object, max_output_tokens max_tool_calls top_logprobs: int, "
    "temperature top_p: number, parallel_tool_calls store background stream: bool, tools include context_management: list, "
    "reasoning text prompt_cache_options metadata prompt stream_options moderation image: object, access_programs: any, "
    "truncation: 'auto'|'disabled'",
)
_REASONING = shape(
    "",
    "effort: EFFORT, summary: 'auto'|'concise'|'detailed', mode generate_summary: str, "
    "context: 'auto'|'current_turn'|'all_turns'",
    EFFORT=one_of(*OPENAI_EFFORTS),
)
_TEXT = shape("", "format: object, verbosity: 'low'|'medium'|'high'")
_INCLUDE = frozenset(
    (
        *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
        *("message.input_image.image_url", "message.output_text.logprobs", "computer_call_output.output.image_url"),
        *("code_interpreter_call.outputs", "reasoning.encrypted_content"),
    )
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_logprobs": (0, 20),
    "max_output_tokens": (16, float("inf")),
}


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body."""
    model = text(body.get("model"))
    row = server(model)
    loose = not row.known_fields_only
    yield from check_shape("", body, _BODY, loose=loose)
    yield from _check_presence(body)
    yield from check_items(body.get("input"), row, scope)
    yield from check_order(body, row, scope)
    yield from check_computers([fields(value) for value in items(body.get("input"))])
    yield from check_tools(body, row)
    yield from check_choice(body)
    for name, known in (("text", _TEXT), ("reasoning", _REASONING)):
        if body.get(name) is not None:
            yield from check_shape(name, body[name], known, loose=loose)
    yield from check_format(body)
    yield from _check_reasoning(body, reasoning(model))
    yield from check_ranges(body, _RANGES)
    yield from _check_include(body.get("include"))
    yield from check_metadata(body.get("metadata"))
    if row.known_fields_only:
        yield from check_cache_key(body)


def _check_presence(body: Mapping[str, object]) -> Iterator[Violation]:
    held = {name for name in ("previous_response_id", "conversation", "prompt") if body.get(name) is not None}
    if body.get("model") is None and "prompt" not in held:
        yield Violation("model", "missing", "Missing required parameter: 'model'.")
    if body.get("input") in (None, []) and not held:
        message = "One of 'input', 'previous_response_id', 'prompt' or 'conversation' must be provided and not empty."
        yield Violation("input", "input.empty", message)
    if {"previous_response_id", "conversation"} <= held:
        message = "Mutually exclusive parameters: provide only one of 'previous_response_id' or 'conversation'."
        yield Violation("previous_response_id", "state.exclusive", message)


def _check_reasoning(body: Mapping[str, object], levels: ReasoningRow) -> Iterator[Violation]:
    effort = text(fields(body.get("reasoning")).get("effort"))
    if effort in levels.refused:
        allowed = ", ".join(f"'{level}'" for level in OPENAI_EFFORTS if level not in levels.refused) or "none at all"
        message = f"Unsupported value: {shown(effort)} is not supported with this model. Supported values are: {allowed}."
        yield Violation("reasoning.effort", "effort", message)
    if levels.default and (effort or levels.default) != "none":
        yield from _check_sampling(body)
    if not levels.encrypted and "reasoning.encrypted_content" in items(body.get("include")):
        yield Violation("include", "include.encrypted", "Encrypted content is not supported with this model.")


def _check_sampling(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report sampling parameters for a model that reasons (section 0).

    The sheet refuses any value; a test against the live API accepted a temperature of 1, so default values pass.
    """
    for name in ("temperature", "top_p"):
        if body.get(name) is not None and body[name] != 1:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            yield Violation(name, "sampling.reasoning", message)
    if body.get("top_logprobs") or "message.output_text.logprobs" in items(body.get("include")):
        message = "Unsupported parameter: logprobs are not supported with this model."
        yield Violation("top_logprobs", "sampling.reasoning", message)


def _check_include(include: object) -> Iterator[Violation]:
    for index, value in enumerate(items(include)):
        if text(value) not in _INCLUDE:
            yield Violation(f"include[{index}]", "include", f"Supported values are {', '.join(sorted(_INCLUDE))}.")
