"""The messages of a generateContent request as field tables, and the way in which the API reads their JSON.

The names are those of the sheet's sections 2 to 4 and of the vendor's SDK. Google reads JSON into protocol buffers, so
`null` is absent, a field may be named in camelCase or snake_case, one object may replace a list of one [recorded for `tools`;
the provider's examples do it for `contents` and `parts`], a number may be a string, and an enum may be in any letter case
or be its number. An unknown name is an error. Never recurses.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from evener.testing.check.shape import Kind, Violation, check_kind, is_int, is_number, is_text, join, read_kinds, shown, text

_NUMERAL = re.compile(r"-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]*={0,2}", re.ASCII)


def number(value: object) -> float | None:
    """Return the number that a JSON value represents; None if it represents none, or one that is too large."""
    if isinstance(value, str) and _NUMERAL.fullmatch(value):
        return float(value)
    if isinstance(value, int | float) and is_number(value):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return None


def _is_integer(value: object) -> bool:
    read = number(value)
    return read is not None and abs(read) < 2**53 and read == int(read)


_OWN: Mapping[str, Kind] = {
    "number": Kind("a number", lambda value: number(value) is not None),
    "int": Kind("an integer", _is_integer),
    "messages": Kind("an array of objects", lambda value: isinstance(value, list | dict)),
    "texts": Kind("an array of strings", lambda value: isinstance(value, list | str)),
    "struct": Kind("an object (Struct)", lambda value: isinstance(value, dict)),
    # Standard and URL-safe letters are both recorded; a data URL is neither.
    "base64": Kind(
        "base64",
        is_text,
        lambda value: _BASE64.fullmatch(text(value).strip()) is not None,
        Violation("", "base64", "Invalid value: should be base64."),
    ),
}


def enum(*names: str) -> Kind:
    """Return the kind of these names, in any letter case. Numbers are accepted without a check."""
    expected = f"one of {', '.join(names)}"
    broken = Violation("", "enum", f"Invalid value {{value}}: should be {expected}.")
    return Kind(
        expected,
        lambda value: is_int(value) or is_text(value),
        lambda value: is_int(value) or text(value).upper() in names,
        broken,
    )


class MessageType(msgspec.Struct, frozen=True):
    """One message type: its fields by camelCase name, and both spellings of each name."""

    kinds: Mapping[str, Kind]
    names: Mapping[str, str]


def message(line: str, **own: Kind) -> MessageType:
    """Return a message type from a line of snake_case names, written as in `shape`."""
    kinds = read_kinds(line, {**_OWN, **own})
    names = {spelling: _camel(name) for name in kinds for spelling in (name, _camel(name))}
    return MessageType({_camel(name): kind for name, kind in kinds.items()}, names)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


BODY = message(
    "model cached_content continuation_token: str, contents tools safety_settings: messages, store: bool, service_tier: any, "
    "system_instruction tool_config generation_config labels model_armor_config output_config: object"
)
CONTENT = message("role: str, parts: messages")
PART = message(
    "text: str, inline_data file_data function_call function_response executable_code code_execution_result: object, "
    "tool_call tool_response video_metadata audio_transcription speech_metadata: object, part_metadata: struct, "
    "thought: bool, thought_signature: base64, media_resolution media_processing: any"
)
BLOB = message("mime_type display_name: str, data: base64")
FILE = message("file_uri mime_type display_name: str")
CALL = message("id name: str, args: struct, partial_args: messages, will_continue: bool")
RESPONSE = message("id name: str, response: struct, parts: messages, scheduling: any, will_continue: bool")
RESPONSE_PART = message("inline_data file_data: object, media_processing: any")
CODE = message("id code: str, language: any")
CODE_RESULT = message("id output: str, outcome: any")
HOSTED_CALL = message("id: str, tool_type: any, args: struct")
HOSTED_RESPONSE = message("id: str, tool_type: any, response: struct")
TOOL = message(
    "function_declarations mcp_servers: messages, google_search google_search_retrieval google_maps url_context: object, "
    "code_execution file_search computer_use retrieval enterprise_web_search parallel_ai_search exa_ai_search: object"
)
COMPUTER = message(
    "environment: ENVIRONMENT, excluded_predefined_functions disabled_safety_policies: texts, "
    "enable_prompt_injection_detection: bool",
    ENVIRONMENT=enum("ENVIRONMENT_UNSPECIFIED", "ENVIRONMENT_BROWSER", "ENVIRONMENT_MOBILE", "ENVIRONMENT_DESKTOP"),
)
DECLARATION = message(
    "name description: str, parameters parameters_json_schema response response_json_schema: object, behavior: any"
)
TOOL_CONFIG = message("function_calling_config retrieval_config: object, include_server_side_tool_invocations: bool")
CALLING_CONFIG = message(
    "mode: MODE, allowed_function_names: texts, stream_function_call_arguments: bool",
    MODE=enum("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"),
)
GENERATION = message(
    "temperature top_p top_k presence_penalty frequency_penalty: number, response_mime_type: str, response_format: messages, "
    "candidate_count max_output_tokens seed logprobs: int, stop_sequences response_modalities: texts, "
    "response_logprobs audio_timestamp enable_affective_dialog enable_enhanced_civic_answers: bool, "
    "response_schema thinking_config speech_config image_config routing_config model_config translation_config: object, "
    "audio_transcription_config: object, response_json_schema media_resolution: any"
)
THINKING = message(
    "include_thoughts: bool, thinking_budget: int, thinking_level: LEVEL",
    LEVEL=enum("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH"),
)
SAFETY = message("category threshold method: any")

# The fields that one of the two platforms does not have: sections 2 to 4, and the fields that the SDK refuses to send there.
PLATFORMS: Mapping[str, frozenset[str]] = {
    "developer": frozenset(
        (
            *("modelArmorConfig", "outputConfig", "audioTimestamp", "routingConfig", "modelConfig"),
            *("retrieval", "enterpriseWebSearch", "parallelAiSearch", "exaAiSearch", "streamFunctionCallArguments"),
        )
    ),
    "vertex": frozenset(
        ("store", "includeServerSideToolInvocations", "fileSearch", "toolCall", "toolResponse", "partMetadata"),
    ),
}


def read(value: object, kind: MessageType) -> dict[str, object]:
    """Return the known fields of an object by camelCase name, without nulls; empty if it is not an object."""
    if not isinstance(value, dict):
        return {}
    held = cast("dict[str, object]", value)
    return {kind.names[name]: one for name, one in held.items() if name in kind.names and one is not None}


def listed(value: object) -> list[object]:
    """Return a repeated field: its elements, or the single object that replaces a list of one."""
    if isinstance(value, list):
        return cast("list[object]", value)
    return [value] if isinstance(value, dict | str) else []


def check_message(path: str, value: object, kind: MessageType, platform: str = "") -> Iterator[Violation]:
    """Report unknown names and mistyped fields of one message; inner messages have checks of their own."""
    if not isinstance(value, dict):
        yield Violation(path, "type", "Invalid value: should be an object.")
        return
    absent = PLATFORMS.get(platform, frozenset())
    for name, one in cast("dict[object, object]", value).items():
        known = kind.names.get(name) if isinstance(name, str) else None
        if known is None:
            found = f"Invalid JSON payload received. Unknown name {shown(str(name))} at '{path}': Cannot find field."
            yield Violation(join(path, str(name)[:80]), "extra_field", found)
        elif one is not None and known in absent:
            yield Violation(join(path, known), "field.platform", f"'{known}' does not exist on this platform.")
        elif one is not None:
            yield from check_kind(join(path, known), one, kind.kinds[known])


def missing(path: str, held: Mapping[str, object], *names: str) -> Iterator[Violation]:
    """Report each named field that is absent or an empty string, which protocol buffers do not distinguish."""
    for name in names:
        if held.get(name) in (None, ""):
            yield Violation(join(path, name), "missing", f"{join(path, name)}: required field is not set.")
