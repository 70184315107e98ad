"""Tools and tool config of one generateContent request. Sheet sections 2 and 4. Never reads contents."""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.gemini.fields import (
    CALLING_CONFIG,
    COMPUTER,
    DECLARATION,
    GENERATION,
    TOOL,
    TOOL_CONFIG,
    check_message,
    listed,
    missing,
    read,
)
from evener.testing.check.gemini.schema import check_json_schema, check_schema, is_object
from evener.testing.check.json_schema import GEMINI_FORM, check_arguments
from evener.testing.check.models import GeminiRow
from evener.testing.check.shape import Violation, fields, join, shown, text

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


def check_tools(body: Mapping[str, object], row: GeminiRow, platform: str) -> Iterator[Violation]:
    """Report errors in each tool, and tools that exclude each other."""
    hosted: list[str] = []
    names: list[str] = []
    for index, value in enumerate(listed(body.get("tools"))):
        path, tool = f"tools[{index}]", read(value, TOOL)
        yield from check_message(path, value, TOOL, platform)
        declarations = listed(tool.get("functionDeclarations"))
        others = [name for name in tool if name != "functionDeclarations"]
        if isinstance(value, dict) and not declarations and not others:
            yield Violation(path, "tool.empty", "tool_type: required one_of 'tool_type' must have one initialized field")
        for number, declaration in enumerate(declarations):
            at = f"{path}.functionDeclarations[{number}]"
            yield from _check_declaration(at, declaration)
            name = text(read(declaration, DECLARATION).get("name"))
            if name and name in names:
                yield Violation(join(at, "name"), "tool.duplicate", f"Duplicate function declaration found: {shown(name)}.")
            names.append(name)
        if isinstance(tool.get("computerUse"), dict):
            yield from check_message(join(path, "computerUse"), tool["computerUse"], COMPUTER)
        hosted.extend(others)
    yield from _check_mixing(body, row, platform, hosted=bool(hosted), functions=bool(names))
    yield from _check_config(body, names, platform)


def _check_declaration(path: str, value: object) -> Iterator[Violation]:
    yield from check_message(path, value, DECLARATION)
    if not isinstance(value, dict):
        return
    held = read(value, DECLARATION)
    yield from missing(path, held, "name")
    name = text(held.get("name"))
    if name and not _NAME.fullmatch(name):
        message = "Invalid function name. Must start with a letter or an underscore, then a-z, A-Z, 0-9, _ . : -, up to 128."
        yield Violation(join(path, "name"), "tool.name", message)
    for own, json in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
        if own in held and json in held:
            yield Violation(join(path, own), "tool.schema_exclusive", f"'{own}' and '{json}' are mutually exclusive.")
        if isinstance(held.get(own), dict):
            yield from check_schema(join(path, own), held[own])
        if isinstance(held.get(json), dict):
            yield from check_json_schema(join(path, json), held[json])
    if isinstance(held.get("parametersJsonSchema"), dict):
        yield from check_arguments(join(path, "parametersJsonSchema"), fields(held["parametersJsonSchema"]), GEMINI_FORM)
    if isinstance(held.get("parameters"), dict) and not is_object(fields(held["parameters"])):
        message = "functionDeclaration parameters schema should be of type OBJECT."
        yield Violation(join(path, "parameters"), "tool.schema_type", message)


def _check_mixing(
    body: Mapping[str, object], row: GeminiRow, platform: str, *, hosted: bool, functions: bool
) -> Iterator[Violation]:
    """Report function tools beside hosted tools: not allowed before Gemini 3, later only with a flag (section 2).

    Reports add that JSON output excludes hosted tools on those models, too, and that the MIME type decides this.
    """
    config = read(body.get("toolConfig"), TOOL_CONFIG)
    asks_json = read(body.get("generationConfig"), GENERATION).get("responseMimeType") == "application/json"
    if not row.mixing and hosted and functions:
        yield Violation("tools", "tools.mixed", "Tool use with function calling is unsupported")
    if not row.mixing and asks_json and (hosted or functions):
        message = "Function calling with a response mime type: 'application/json' is unsupported"
        yield Violation("generationConfig.responseMimeType", "tools.json", message)
    if row.signed and hosted and functions and platform == "developer" and not config.get("includeServerSideToolInvocations"):
        message = "Please enable tool_config.include_server_side_tool_invocations to combine hosted tools with functions."
        yield Violation("toolConfig", "tools.circulation", message)


def _check_config(body: Mapping[str, object], names: list[str], platform: str) -> Iterator[Violation]:
    """Report a calling config that names functions which are not declared (sections 2 and 4).

    The sheet refuses any calling config without declarations; recordings accept it (modes ANY and AUTO, no names).
    """
    if not isinstance(body.get("toolConfig"), dict):
        return
    yield from check_message("toolConfig", body["toolConfig"], TOOL_CONFIG, platform)
    held = read(body["toolConfig"], TOOL_CONFIG).get("functionCallingConfig")
    if not isinstance(held, dict):
        return
    path = "toolConfig.functionCallingConfig"
    yield from check_message(path, held, CALLING_CONFIG, platform)
    config = read(held, CALLING_CONFIG)
    allowed = listed(config.get("allowedFunctionNames"))
    mode = config.get("mode")
    if allowed and not isinstance(mode, int) and text(mode).upper() not in ("ANY", "VALIDATED"):
        message = "allowed_function_names should only be set when mode is ANY or VALIDATED."
        yield Violation(join(path, "allowedFunctionNames"), "tool_config.mode", message)
    for name in allowed:
        if not isinstance(name, str):
            yield Violation(join(path, "allowedFunctionNames"), "type", "Should be an array of strings.")
        elif name not in names and body.get("cachedContent") is None:
            message = f"allowed_function_names contains {shown(name)}, which is not in function_declarations."
            yield Violation(join(path, "allowedFunctionNames"), "tool_config.unknown", message)
