"""The vendors' SDK types as a second opinion on request bodies, next to `evener.testing.check_request`.

The SDKs type their requests as TypedDicts (Gemini: as models). Pydantic checks a body against them, with two changes
that make the check worth having: Iterable fields, which pydantic validates lazily and so hardly at all, become
lists, and keys that the type does not know are errors. The SDKs are imported by name on first use: they take seconds to
load, and the type checker need not read them.

The types know shapes, not rules: order, pairing, lengths and model support are not seen here.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import ErrorDetails, SchemaValidator, ValidationError

Json = dict[str, Any]
Path = tuple[str | int, ...]

# A body is right when one of its wire's types takes it. Each type comes in a streaming and a whole form.
REQUEST_TYPES = {
    "anthropic_messages": (
        ("anthropic.types.message_create_params", "MessageCreateParams"),
        ("anthropic.types.beta.message_create_params", "MessageCreateParams"),
    ),
    "openai_responses": (("openai.types.responses.response_create_params", "ResponseCreateParams"),),
    "openai_chat": (("openai.types.chat.completion_create_params", "CompletionCreateParams"),),
}

# The Gemini SDK types its own call rather than the body, so a body is checked field by field.
GEMINI_FIELDS = {
    "cachedContent": "str",
    "contents": "list[Content]",
    "generationConfig": "GenerationConfig",
    "labels": "dict[str, str]",
    "safetySettings": "list[SafetySetting]",
    "systemInstruction": "Content",
    "toolConfig": "ToolConfig",
    "tools": "list[Tool]",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint. `holder` is the object that has, or lacks, the key at the end of `path`."""

    path: Path
    text: str
    holder: Json = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.text}"


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """What the SDK's type rejects although recorded requests with it were answered with 200.

    `path` and `text` are patterns of the whole path and text; `beside` are pairs that the holding object must have
    (a value of None: any).
    """

    wire: str
    path: str
    text: str
    why: str
    beside: Mapping[str, str | None] = field(default_factory=dict)

    def covers(self, problem: Problem) -> bool:
        return (
            re.fullmatch(self.path, ".".join(map(str, problem.path))) is not None
            and re.fullmatch(self.text, problem.text) is not None
            and all(key in problem.holder and value in (None, problem.holder[key]) for key, value in self.beside.items())
        )


FALSE_ALARMS = (
    FalseAlarm(
        "anthropic_messages",
        r"temperature|top_k|top_p",
        "unknown key",
        "sampling fields: the older models take them, the SDK has stopped typing them",
    ),
    FalseAlarm(
        "anthropic_messages",
        r"output_format",
        "unknown key",
        "the beta's first spelling of output_config.format",
    ),
    FalseAlarm(
        "anthropic_messages",
        r"anthropic_version",
        "unknown key",
        "cloud endpoints take the version in the body instead of a header",
    ),
    FalseAlarm(
        "anthropic_messages",
        r"model",
        "missing",
        "the same endpoints take the model in the path",
        beside={"anthropic_version": None},
    ),
    FalseAlarm(
        "openai_responses",
        r"input\.\d+\.status",
        r".*, got null",
        "a replayed call may carry a null status",
        beside={"type": "function_call"},
    ),
    FalseAlarm(
        "openai_responses",
        r"input\.\d+\.(result|status)",
        "missing",
        "a replayed image is named by its id alone",
        beside={"type": "image_generation_call"},
    ),
    FalseAlarm(
        "gemini",
        r"tools",
        r".* valid array, got \{.*",
        "the API takes one object where a repeated field is expected",
    ),
    FalseAlarm(
        "gemini",
        r"modelArmorConfig",
        "unknown key",
        "a field of the cloud endpoint, which the SDK puts into another place",
    ),
    FalseAlarm(
        "gemini",
        r"generationConfig\.imageConfig",
        "unknown key",
        "the SDK types it in its own call's config only",
    ),
)


def oracle_errors(wire: str, body: Json) -> list[str]:
    """What the vendor's types say against `body`, as `path: complaint`; empty when they take it."""
    alarms = [alarm for alarm in FALSE_ALARMS if alarm.wire == wire]
    fewest: list[Problem] | None = None
    for verdict in _verdicts(wire, body):
        left = [problem for problem in verdict if not any(alarm.covers(problem) for alarm in alarms)]
        if fewest is None or len(left) < len(fewest):
            fewest = left
        if not fewest:
            break
    return [str(problem) for problem in fewest or ()]


def _verdicts(wire: str, body: Json) -> Iterator[list[Problem]]:
    if wire == "gemini":
        yield _gemini_problems(body)
        return
    form = "Streaming" if body.get("stream") is True else "NonStreaming"
    for module, name in REQUEST_TYPES[wire]:
        validator = _request_validator(module, name + form)
        yield _problems(body, partial(validator.validate_python, body, strict=True))


@cache
def _request_validator(module: str, name: str) -> SchemaValidator:
    return SchemaValidator(_eager(TypeAdapter(vars(import_module(module))[name]).core_schema))


def _eager(schema: Any) -> Any:
    """The same core schema with lists for generators, and typed dicts closed unless the type says what extras are.

    The SDK's response models, which its unions also allow, take instances only: read from JSON they are loose.
    """
    if isinstance(schema, Mapping) and schema.get("type") == "model":
        kept = {key: schema[key] for key in ("cls", "ref") if key in schema}
        return {"type": "is-instance", **kept}
    if isinstance(schema, Mapping):
        eager = {key: _eager(value) for key, value in schema.items()}
        if eager.get("type") == "generator":
            eager["type"] = "list"
        if eager.get("type") == "typed-dict" and "extras_schema" not in eager:
            eager["extra_behavior"] = "forbid"
        return eager
    if isinstance(schema, list | tuple):
        return type(schema)(_eager(item) for item in schema)
    return schema


def _gemini_problems(body: Json) -> list[Problem]:
    validators = _gemini_validators()
    problems = []
    for key, value in body.items():
        if key not in validators:
            problems.append(Problem((key,), "unknown key", body))
            continue
        # JSON mode, because strict Python mode wants instances of the models and enums.
        found = _problems(value, partial(validators[key].validate_json, json.dumps(value), strict=True))
        problems += [Problem((key, *problem.path), problem.text, problem.holder) for problem in found]
    return problems


@cache
def _gemini_validators() -> dict[str, TypeAdapter[Any]]:
    types = vars(import_module("google.genai.types"))
    adapters = {key: TypeAdapter(eval(source, dict(types))) for key, source in GEMINI_FIELDS.items()}
    snake = {re.sub("[A-Z]", lambda upper: "_" + upper[0].lower(), key): value for key, value in adapters.items()}
    return snake | adapters


def _problems(body: Any, validate: Callable[[], object]) -> list[Problem]:
    with warnings.catch_warnings(record=True) as heard:  # The Gemini SDK only warns of an unknown enum value.
        warnings.simplefilter("always")
        try:
            validate()
        except ValidationError as error:
            return _readable(body, error.errors(include_url=False))
    return [Problem((), str(warning.message)) for warning in heard]


def _readable(body: Any, errors: Sequence[ErrorDetails]) -> list[Problem]:
    """One problem for each place: of a union's many complaints only those of the branch that was meant.

    A branch whose `type` or `role` does not fit was not meant; if none fits, that is the complaint. And where something
    deep inside a value is wrong, the other branches' complaint about the value itself says nothing.
    """
    misfits = [error for error in errors if error["type"] == "literal_error" and error["loc"][-1] in ("type", "role")]
    dead = {error["loc"][:-1] for error in misfits}
    found: dict[Path, Problem] = {}
    for error in errors:
        if error["type"] != "is_instance_of" and not _inside(error["loc"], dead):
            problem = _problem(body, error)
            found.setdefault(problem.path, problem)
    unmet = [_problem(body, error) for error in misfits if not _inside(error["loc"][:-1], dead)]
    for problem in unmet:
        holder = problem.path[:-1]
        if not any(_inside(path, {holder}) for path in found):
            found[problem.path] = problem
    return [problem for path, problem in found.items() if not any(_inside(other, {path}) for other in found)]


def _inside(path: Path, places: set[Path]) -> bool:
    return any(path[:length] in places for length in range(len(path)))


def _problem(body: Any, error: ErrorDetails) -> Problem:
    """Leaves the names of types and branches out of the location, so that it is a path in the body."""
    path: list[str | int] = []
    holder: Json = {}
    value = body
    for step in error["loc"]:
        if isinstance(value, dict) and isinstance(step, str) and step in value:
            holder, value = value, value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            continue
        path.append(step)
    match error["type"]:
        case "missing":
            return Problem((*path, error["loc"][-1]), "missing", value if isinstance(value, dict) else {})
        case "extra_forbidden":
            return Problem(tuple(path), "unknown key", holder)
        case _:
            return Problem(tuple(path), f"{error['msg']}, got {_brief(value)}", holder)


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
