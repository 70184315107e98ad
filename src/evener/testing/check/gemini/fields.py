"""The messages of a generateContent request as field tables, and the view that the API takes of their JSON.

The names are those of the sheet's sections 2 to 4 and of the vendor's SDK. Google reads JSON into protocol buffers, so
`null` is absent, camelCase and snake_case both name a field, a lone object does for a list of one [recorded for `tools`;
the provider's examples do it for `contents` and `parts`], a number may be a string, and an enum may be in any letter case
or be its number. An unknown name is an error. Never recurses.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from evener.testing.check.shape import ANY, BOOL, OBJECT, STR, Kind, is_int, is_number, join, shown
from evener.testing.check.violation import Violation

_NUMERAL = re.compile(r"-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]*={0,2}", re.ASCII)


def number(value: object) -> float | None:
    """Return the number that a JSON value stands for; None when it stands for none, or is too large to be one."""
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


NUMBER = Kind("a number", lambda value: number(value) is not None)
INTEGER = Kind("an integer", _is_integer)
REPEATED = Kind("an array of objects", lambda value: isinstance(value, list | dict))
STRINGS = Kind("an array of strings", lambda value: isinstance(value, list | str))
STRUCT = Kind("an object (Struct)", lambda value: isinstance(value, dict))
# Standard and URL-safe letters are both recorded; a data URL is neither.
BASE64 = Kind("base64", lambda value: isinstance(value, str) and _BASE64.fullmatch(value.strip()) is not None)


def enum(*names: str) -> Kind:
    """Return a closed set of names, in any letter case; its numbers are not judged."""
    known = frozenset(names)

    def accepts(value: object) -> bool:
        return is_int(value) or (isinstance(value, str) and value.upper() in known)

    return Kind(f"one of {', '.join(names)}", accepts, closed=True)


class MessageType(msgspec.Struct, frozen=True):
    """One message type: its fields by camelCase name, and both spellings of each name."""

    kinds: Mapping[str, Kind]
    names: Mapping[str, str]


def message(**kinds: Kind) -> MessageType:
    """Return a message type from snake_case names."""
    names = {spelling: _camel(name) for name in kinds for spelling in (name, _camel(name))}
    return MessageType({_camel(name): kind for name, kind in kinds.items()}, names)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


BODY = message(
    model=STR,
    contents=REPEATED,
    system_instruction=OBJECT,
    tools=REPEATED,
    tool_config=OBJECT,
    generation_config=OBJECT,
    safety_settings=REPEATED,
    cached_content=STR,
    labels=OBJECT,
    service_tier=ANY,
    store=BOOL,
    continuation_token=STR,
    model_armor_config=OBJECT,
    output_config=OBJECT,
)
CONTENT = message(role=STR, parts=REPEATED)
PART = message(
    text=STR,
    inline_data=OBJECT,
    file_data=OBJECT,
    function_call=OBJECT,
    function_response=OBJECT,
    executable_code=OBJECT,
    code_execution_result=OBJECT,
    tool_call=OBJECT,
    tool_response=OBJECT,
    thought=BOOL,
    thought_signature=BASE64,
    video_metadata=OBJECT,
    media_resolution=ANY,
    media_processing=ANY,
    part_metadata=STRUCT,
    audio_transcription=OBJECT,
    speech_metadata=OBJECT,
)
BLOB = message(mime_type=STR, data=BASE64, display_name=STR)
FILE = message(file_uri=STR, mime_type=STR, display_name=STR)
CALL = message(id=STR, name=STR, args=STRUCT, partial_args=REPEATED, will_continue=BOOL)
RESPONSE = message(id=STR, name=STR, response=STRUCT, parts=REPEATED, scheduling=ANY, will_continue=BOOL)
RESPONSE_PART = message(inline_data=OBJECT, file_data=OBJECT, media_processing=ANY)
CODE = message(id=STR, language=ANY, code=STR)
CODE_RESULT = message(id=STR, outcome=ANY, output=STR)
HOSTED_CALL = message(id=STR, tool_type=ANY, args=STRUCT)
HOSTED_RESPONSE = message(id=STR, tool_type=ANY, response=STRUCT)
TOOL = message(
    function_declarations=REPEATED,
    google_search=OBJECT,
    google_search_retrieval=OBJECT,
    google_maps=OBJECT,
    url_context=OBJECT,
    code_execution=OBJECT,
    file_search=OBJECT,
    computer_use=OBJECT,
    mcp_servers=REPEATED,
    retrieval=OBJECT,
    enterprise_web_search=OBJECT,
    parallel_ai_search=OBJECT,
    exa_ai_search=OBJECT,
)
COMPUTER = message(
    environment=enum(
        *("ENVIRONMENT_UNSPECIFIED", "ENVIRONMENT_BROWSER", "ENVIRONMENT_MOBILE", "ENVIRONMENT_DESKTOP"),
    ),
    excluded_predefined_functions=STRINGS,
    enable_prompt_injection_detection=BOOL,
    disabled_safety_policies=STRINGS,
)
DECLARATION = message(
    name=STR,
    description=STR,
    parameters=OBJECT,
    parameters_json_schema=OBJECT,
    response=OBJECT,
    response_json_schema=OBJECT,
    behavior=ANY,
)
TOOL_CONFIG = message(function_calling_config=OBJECT, retrieval_config=OBJECT, include_server_side_tool_invocations=BOOL)
CALLING_CONFIG = message(
    mode=enum("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"),
    allowed_function_names=STRINGS,
    stream_function_call_arguments=BOOL,
)
GENERATION = message(
    temperature=NUMBER,
    top_p=NUMBER,
    top_k=NUMBER,
    candidate_count=INTEGER,
    max_output_tokens=INTEGER,
    stop_sequences=STRINGS,
    seed=INTEGER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    response_logprobs=BOOL,
    logprobs=INTEGER,
    response_mime_type=STR,
    response_schema=OBJECT,
    response_json_schema=ANY,
    response_format=REPEATED,
    response_modalities=STRINGS,
    thinking_config=OBJECT,
    media_resolution=ANY,
    speech_config=OBJECT,
    image_config=OBJECT,
    audio_timestamp=BOOL,
    enable_affective_dialog=BOOL,
    enable_enhanced_civic_answers=BOOL,
    routing_config=OBJECT,
    model_config=OBJECT,
    translation_config=OBJECT,
    audio_transcription_config=OBJECT,
)
THINKING = message(
    include_thoughts=BOOL,
    thinking_budget=INTEGER,
    thinking_level=enum("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH"),
)
SAFETY = message(category=ANY, threshold=ANY, method=ANY)

# The names that one of the two platforms does not have: sections 2 to 4, and what the SDK refuses to send there.
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
    """Return the known fields of an object by camelCase name, without nulls; empty when it is no object."""
    if not isinstance(value, dict):
        return {}
    held = cast("dict[str, object]", value)
    return {kind.names[name]: one for name, one in held.items() if name in kind.names and one is not None}


def listed(value: object) -> list[object]:
    """Return a repeated field: its elements, or the lone object that stands for a list of one."""
    if isinstance(value, list):
        return cast("list[object]", value)
    return [value] if isinstance(value, dict | str) else []


def check_message(path: str, value: object, kind: MessageType, platform: str = "") -> Iterator[Violation]:
    """Report unknown names and mistyped fields of one message; what lies deeper is left to its own check."""
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
            yield from _check_kind(join(path, known), one, kind.kinds[known])


def _check_kind(path: str, value: object, kind: Kind) -> Iterator[Violation]:
    if kind.accepts(value):
        return
    reason = f"Invalid value at '{path}': should be {kind.expected}."
    if isinstance(value, str) and kind.closed:
        yield Violation(path, "enum", reason)
    elif isinstance(value, str) and kind is BASE64:
        yield Violation(path, "base64", reason)
    else:
        yield Violation(path, "type", reason)


def missing(path: str, held: Mapping[str, object], *names: str) -> Iterator[Violation]:
    """Report each named field that is absent or an empty string, which protocol buffers do not tell apart."""
    for name in names:
        if held.get(name) in (None, ""):
            yield Violation(join(path, name), "missing", f"{join(path, name)}: required field is not set.")
