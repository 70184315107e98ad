"""What the OpenAI Responses API refuses with a 400: the body as a whole and its settings. Pure and total.

Written from the wire sheet and the recordings, never from an encoder, so that it can judge one. A body for the compaction
endpoint is a subset of these fields and is checked alike.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.models import OPENAI_EFFORTS, ReasoningRow, ServerRow, reasoning, server
from evener.testing.check.responses.computer import check_computers
from evener.testing.check.responses.items import check_items
from evener.testing.check.responses.order import check_order
from evener.testing.check.responses.parts import MAX_CACHE_KEY, loosened
from evener.testing.check.responses.tools import check_choice, check_format, check_tools
from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
    ANY,
    BOOL,
    INT,
    LIST,
    NUMBER,
    OBJECT,
    STR,
    STR_OR_LIST,
    STR_OR_OBJECT,
    ObjectShape,
    check_shape,
    fields,
    is_number,
    items,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

# Section 2.
_BODY = ObjectShape(
    {},
    {
        "model": STR,
        "input": STR_OR_LIST,
        "instructions": STR_OR_LIST,
        "max_output_tokens": INT,
        "max_tool_calls": INT,
        "tools": LIST,
        "tool_choice": STR_OR_OBJECT,
        "parallel_tool_calls": BOOL,
        "reasoning": OBJECT,
        "text": OBJECT,
        "store": BOOL,
        "previous_response_id": STR,
        "conversation": STR_OR_OBJECT,
        "include": LIST,
        "truncation": one_of("auto", "disabled"),
        "temperature": NUMBER,
        "top_p": NUMBER,
        "top_logprobs": INT,
        "prompt_cache_key": STR,
        "prompt_cache_options": OBJECT,
        "prompt_cache_retention": STR,
        "service_tier": STR,
        "user": STR,
        "safety_identifier": STR,
        "background": BOOL,
        "metadata": OBJECT,
        "prompt": OBJECT,
        "stream": BOOL,
        "context_management": LIST,
        "stream_options": OBJECT,
        "moderation": OBJECT,
        "image": OBJECT,
        "access_programs": ANY,
    },
)
_REASONING = ObjectShape(
    {},
    {
        "effort": one_of(*OPENAI_EFFORTS),
        "summary": one_of("auto", "concise", "detailed"),
        "mode": STR,
        "context": one_of("auto", "current_turn", "all_turns"),
        "generate_summary": STR,
    },
)
_TEXT = ObjectShape({}, {"format": OBJECT, "verbosity": one_of("low", "medium", "high")})
_INCLUDE = one_of(
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_logprobs": (0, 20),
    "max_output_tokens": (16, float("inf")),
}
_PRINTABLE = 1_000_000
_MAX_PAIRS, _MAX_KEY, _MAX_VALUE = 16, 64, 512


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body."""
    model = text(body.get("model"))
    row = server(model)
    yield from check_shape("", body, _BODY if row.known_fields_only else loosened(_BODY))
    yield from _check_presence(body)
    yield from check_items(body.get("input"), row, scope)
    yield from check_order(body, row, scope)
    yield from check_computers([fields(value) for value in items(body.get("input"))])
    yield from check_tools(body, row)
    yield from check_choice(body)
    yield from _check_text(body, row)
    yield from check_format(body)
    yield from _check_reasoning(body, row, reasoning(model))
    yield from _check_ranges(body)
    yield from _check_include(body.get("include"))
    yield from _check_metadata(body.get("metadata"))
    if row.known_fields_only and len(text(body.get("prompt_cache_key"))) > MAX_CACHE_KEY:
        message = f"Invalid 'prompt_cache_key': string too long. Expected at most {MAX_CACHE_KEY} characters."
        yield Violation("prompt_cache_key", "cache_key.length", message)


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


def _check_text(body: Mapping[str, object], row: ServerRow) -> Iterator[Violation]:
    if body.get("text") is not None:
        yield from check_shape("text", body["text"], _TEXT if row.known_fields_only else loosened(_TEXT))


def _check_reasoning(body: Mapping[str, object], row: ServerRow, levels: ReasoningRow) -> Iterator[Violation]:
    asked = body.get("reasoning")
    if asked is not None:
        yield from check_shape("reasoning", asked, _REASONING if row.known_fields_only else loosened(_REASONING))
    effort = text(fields(asked).get("effort"))
    if effort in levels.refused:
        allowed = ", ".join(f"'{level}'" for level in OPENAI_EFFORTS if level not in levels.refused) or "none at all"
        message = f"Unsupported value: {shown(effort)} is not supported with this model. Supported values are: {allowed}."
        yield Violation("reasoning.effort", "effort", message)
    if levels.default and (effort or levels.default) != "none":
        yield from _check_sampling(body)
    if not levels.encrypted and "reasoning.encrypted_content" in items(body.get("include")):
        yield Violation("include", "include.encrypted", "Encrypted content is not supported with this model.")


def _check_sampling(body: Mapping[str, object]) -> Iterator[Violation]:
    """Section 0: a model that reasons takes no sampling parameters.

    The sheet says so for any value; a test against the live API took a temperature of 1, so default values pass.
    """
    for name in ("temperature", "top_p"):
        if body.get(name) is not None and body[name] != 1:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            yield Violation(name, "sampling.reasoning", message)
    if body.get("top_logprobs") or "message.output_text.logprobs" in items(body.get("include")):
        message = "Unsupported parameter: logprobs are not supported with this model."
        yield Violation("top_logprobs", "sampling.reasoning", message)


def _check_ranges(body: Mapping[str, object]) -> Iterator[Violation]:
    for name, (least, most) in _RANGES.items():
        value = body.get(name)
        if not isinstance(value, int | float) or not is_number(value):
            continue
        if not least <= value <= most:
            # Python refuses to print an integer of thousands of digits, so only what is near the range is shown.
            got = str(value) if abs(value) < _PRINTABLE else "one far outside"
            yield Violation(name, "range", f"Invalid '{name}': expected a value >= {least} and <= {most}, but got {got}.")


def _check_include(include: object) -> Iterator[Violation]:
    for index, value in enumerate(items(include)):
        if not _INCLUDE.accepts(value):
            yield Violation(f"include[{index}]", "include", f"Supported values are {_INCLUDE.expected}.")


def _check_metadata(metadata: object) -> Iterator[Violation]:
    pairs = fields(metadata)
    if len(pairs) > _MAX_PAIRS:
        yield Violation("metadata", "metadata", f"Expected at most {_MAX_PAIRS} pairs.")
    for key, value in pairs.items():
        if len(str(key)) > _MAX_KEY or not isinstance(value, str) or len(value) > _MAX_VALUE:
            message = f"Expected strings of at most {_MAX_KEY} (key) and {_MAX_VALUE} (value) characters."
            yield Violation(f"metadata.{str(key)[:_MAX_KEY]}", "metadata", message)
