"""One generateContent request as a whole: its fields, its generation config and safety settings, and which rules apply to it.

Pure; never raises. Sheet sections 2, 5 and 6.
"""

from collections.abc import Iterator, Mapping

from evener.testing.check.gemini.contents import check_content, check_contents
from evener.testing.check.gemini.fields import BODY, GENERATION, SAFETY, THINKING, check_message, listed, number, read
from evener.testing.check.gemini.schema import check_json_schema, check_schema
from evener.testing.check.gemini.tools import check_tools
from evener.testing.check.gemini.turns import check_turns, turns_of
from evener.testing.check.models import GeminiRow, gemini
from evener.testing.check.scope import Scope
from evener.testing.check.shape import Violation, join, text

_PATH = "generationConfig"
# Section 2 requires a temperature above 0; 0 is recorded as accepted. The other limits are those that the provider documents.
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "topP": (0, 1),
    "topK": (0, float("inf")),
    "candidateCount": (1, 8),
    "maxOutputTokens": (1, float("inf")),
    "presencePenalty": (-2, 2),
    "frequencyPenalty": (-2, 2),
    "logprobs": (0, 20),
}
_MAX_STOPS = 5
_SCHEMA_TYPES = ("application/json", "text/x.enum")


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body. The address has the model, so the caller has to pass it."""
    held, platform = read(body, BODY), scope.dialect
    row = gemini(scope.model or text(held.get("model")))
    cached = "cachedContent" in held
    yield from check_message("", body, BODY, platform)
    yield from check_contents(held.get("contents"), row, platform)
    if isinstance(held.get("systemInstruction"), dict):
        yield from check_content("systemInstruction", held["systemInstruction"], row, platform)
    yield from check_turns(turns_of(held.get("contents")), row, cached=cached)
    yield from check_tools(held, row, platform)
    yield from _check_config(held, row, platform)
    for name in ("systemInstruction", "tools", "toolConfig"):
        if cached and name in held:
            message = "CachedContent can not be used with a request setting system_instruction, tools or tool_config."
            yield Violation(name, "cached_content", message)


def _check_config(body: Mapping[str, object], row: GeminiRow, platform: str) -> Iterator[Violation]:
    """Report errors in the generation config and the safety settings."""
    for index, value in enumerate(listed(body.get("safetySettings"))):
        yield from check_message(f"safetySettings[{index}]", value, SAFETY)
    if not isinstance(body.get("generationConfig"), dict):
        return
    yield from check_message(_PATH, body["generationConfig"], GENERATION, platform)
    config = read(body["generationConfig"], GENERATION)
    yield from _check_ranges(config, row)
    yield from _check_output(config)
    yield from _check_thinking(config.get("thinkingConfig"), row)


def _check_ranges(config: Mapping[str, object], row: GeminiRow) -> Iterator[Violation]:
    for name, (least, most) in _RANGES.items():
        value = number(config.get(name))
        if value is not None and not least <= value <= most:
            yield Violation(join(_PATH, name), "range", f"{name} must be in the range [{least}, {most}].")
    stops = listed(config.get("stopSequences"))
    if len(stops) > _MAX_STOPS:
        yield Violation(join(_PATH, "stopSequences"), "stop.count", f"At most {_MAX_STOPS} stop sequences are allowed.")
    for name in ("presencePenalty", "frequencyPenalty"):
        if number(config.get(name)) and not row.penalties:
            yield Violation(join(_PATH, name), "penalty.model", "Penalty is not enabled for this model.")


def _check_output(config: Mapping[str, object]) -> Iterator[Violation]:
    """Report a schema without its MIME type, and two schemas (section 5)."""
    held = [name for name in ("responseSchema", "responseJsonSchema") if name in config]
    if len(held) > 1:
        yield Violation(join(_PATH, held[0]), "format.exclusive", f"'{held[0]}' and '{held[1]}' are mutually exclusive.")
    if held and text(config.get("responseMimeType")) not in _SCHEMA_TYPES:
        message = "a response schema requires response_mime_type 'application/json' (or 'text/x.enum')."
        yield Violation(join(_PATH, held[0]), "format.mime", message)
    if isinstance(config.get("responseSchema"), dict):
        yield from check_schema(join(_PATH, "responseSchema"), config["responseSchema"])
    if isinstance(config.get("responseJsonSchema"), dict):
        yield from check_json_schema(join(_PATH, "responseJsonSchema"), config["responseJsonSchema"])


def _check_thinking(value: object, row: GeminiRow) -> Iterator[Violation]:
    """Report wrong thinking settings (section 6). A budget is accepted on models with levels: the provider maps it."""
    if not isinstance(value, dict):
        return
    path = join(_PATH, "thinkingConfig")
    yield from check_message(path, value, THINKING)
    held = read(value, THINKING)
    budget, level = number(held.get("thinkingBudget")), text(held.get("thinkingLevel")).upper()
    if held and not row.thinking:
        yield Violation(path, "thinking.model", "Thinking is not supported by this model.")
    if budget is not None and level:
        message = "You can only set one of thinking budget and thinking level."
        yield Violation(path, "thinking.exclusive", message)
    if level and row.levels is not None and level not in row.levels:
        message = f"Thinking level {level[:40]} is not supported for this model."
        yield Violation(join(path, "thinkingLevel"), "thinking.level", message)
    if budget is not None and row.budget is not None and not _fits(budget, row.budget, off=row.off):
        least, most = row.budget
        message = f"The thinking budget is invalid. Please choose a value between {least} and {most}."
        yield Violation(join(path, "thinkingBudget"), "thinking.budget", message)


def _fits(budget: float, span: tuple[int, int], *, off: bool) -> bool:
    """True if a budget is in the span, is -1 (the model decides), or is an allowed 0."""
    return span[0] <= budget <= span[1] or budget == -1 or (off and budget == 0)
