"""One Chat Completions request as a whole: its fields, and which rules apply to it. Pure and total."""

from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import dialect_of
from evener.testing.check.chat.messages import check_messages
from evener.testing.check.chat.settings import (
    check_cache_key,
    check_effort,
    check_fields,
    check_metadata,
    check_ranges,
    check_stop,
    check_stream,
    check_thinking,
)
from evener.testing.check.chat.tools import check_choice, check_format, check_tools
from evener.testing.check.chat.turns import check_turns
from evener.testing.check.models import chat, reasoning
from evener.testing.check.responses.parts import loosened
from evener.testing.check.scope import Scope
from evener.testing.check.shape import (
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
    one_of,
    text,
)
from evener.testing.check.violation import Violation

# Section 2. An effort's value is judged by model and server, a service tier not at all: clones have their own.
_BODY = ObjectShape(
    {"messages": LIST},
    {
        "model": STR,
        "audio": OBJECT,
        "frequency_penalty": NUMBER,
        "function_call": STR_OR_OBJECT,
        "functions": LIST,
        "logit_bias": OBJECT,
        "logprobs": BOOL,
        "max_completion_tokens": INT,
        "max_tokens": INT,
        "metadata": OBJECT,
        "modalities": LIST,
        "moderation": OBJECT,
        "n": INT,
        "parallel_tool_calls": BOOL,
        "prediction": OBJECT,
        "presence_penalty": NUMBER,
        "prompt_cache_key": STR,
        "prompt_cache_options": OBJECT,
        "prompt_cache_retention": STR,
        "reasoning_effort": STR,
        "response_format": OBJECT,
        "safety_identifier": STR,
        "seed": INT,
        "service_tier": STR,
        "stop": STR_OR_LIST,
        "store": BOOL,
        "stream": BOOL,
        "stream_options": OBJECT,
        "temperature": NUMBER,
        "tool_choice": STR_OR_OBJECT,
        "tools": LIST,
        "top_logprobs": INT,
        "top_p": NUMBER,
        "user": STR,
        "verbosity": one_of("low", "medium", "high"),
        "web_search_options": OBJECT,
    },
)


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body."""
    model = text(body.get("model")) or scope.model
    dialect, row, levels = dialect_of(scope.dialect, model), chat(model), reasoning(model)
    yield from check_shape("", body, _BODY if dialect.known_only else loosened(_BODY))
    if body.get("model") is None and not scope.model:
        yield Violation("model", "missing", "Missing required parameter: 'model'.")
    yield from check_messages(body.get("messages"), dialect, row)
    yield from check_turns(body, dialect)
    yield from check_tools(body, dialect, row)
    yield from check_choice(body, dialect)
    yield from check_format(body, dialect)
    yield from check_ranges(body, dialect)
    yield from check_fields(body, dialect, row)
    yield from check_stream(body, dialect)
    yield from check_stop(body, dialect, row)
    yield from check_effort(body, dialect, row, levels)
    yield from check_thinking(body, dialect)
    if dialect.known_only:
        yield from check_metadata(body.get("metadata"))
        yield from check_cache_key(body)
