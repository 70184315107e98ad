"""Tools on this wire: functions and their schemas, written and read, and the provider's own. Pure."""

from collections.abc import Sequence

import msgspec

from evener.transcript.ask import HostedTool, ToolSpec
from evener.transcript.loss import Loss, Owner, loss_of
from evener.wire.gemini.parts import WIRE, as_list, camel_fields, function_name
from evener.wire.prefix import dumps, with_tool_extra
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, raw_text
from evener.wire.request import as_function, declare_name, write_hosted_tool
from evener.wire.schema import GEMINI_JSON, GEMINI_SUBSET, transform
from evener.wire.tool_schema import make_canonical

NO_ARGUMENTS = '{"type":"object","properties":{}}'
FIELDS = ("parametersJsonSchema", "parameters")
MOST_DEPTH = 100
NESTED = ("properties", "$defs", "defs")
LISTED = ("anyOf", "prefixItems")
SINGLE = ("items", "additionalProperties")


def fit_schema(schema: str, quirks: Quirks, owner: Owner) -> tuple[msgspec.Raw, tuple[Loss, ...]]:
    """Return a schema in the dialect of this endpoint; one that the dialect cannot express is sent unchanged."""
    found, losses = transform(schema, GEMINI_JSON if quirks.json_schemas else GEMINI_SUBSET, owner)
    return msgspec.Raw((found or schema).encode()), losses


def tool_part(tool: ToolSpec | HostedTool, quirks: Quirks, losses: list[Loss]) -> bytes:
    """Return one function's declaration, or one hosted tool; empty if it is not sent."""
    if isinstance(tool, HostedTool):
        return write_hosted_tool(tool, WIRE, quirks, losses)
    tool = as_function(tool, losses)
    own: dict[str, object] = {"name": declare_name(tool, quirks, losses, function_name), "description": tool.description}
    whole = with_tool_extra(own, tool, WIRE, losses)
    owner = Owner("tool", tool.name)
    if not whole.keys() & {*FIELDS}:
        form, _ = make_canonical(tool.schema, owner, losses)
        if form != NO_ARGUMENTS:  # a function without arguments needs none (sheet 4)
            schema, told = fit_schema(form, quirks, owner)
            losses += told
            whole[FIELDS[0] if quirks.json_schemas else FIELDS[1]] = schema
    return dumps(whole)


def group_tools(
    tools: Sequence[ToolSpec | HostedTool], parts: Sequence[bytes], quirks: Quirks, losses: list[Loss]
) -> tuple[list[object], bool, bool]:
    """Return the field `tools`, with all functions in one entry at the place of the first, and two booleans: whether it has
    functions, and whether it has hosted tools."""
    pairs = [(isinstance(tool, ToolSpec), part) for tool, part in zip(tools, parts, strict=False) if part]
    functions = [msgspec.Raw(part) for is_function, part in pairs if is_function]
    if functions and len(functions) < len(pairs) and quirks.hosted_beside == "no":
        hosted = [tool.name for tool in tools if isinstance(tool, HostedTool)]
        losses += (loss_of("dropped", "tool.hosted", "this model takes none beside functions", name=name) for name in hosted)
        pairs = [pair for pair in pairs if pair[0]]
    found: list[object] = []
    for is_function, part in pairs:
        if not is_function:
            found.append(msgspec.Raw(part))
        elif functions:
            found.append({"functionDeclarations": functions})
            functions = []
    return found, any(pair[0] for pair in pairs), not all(pair[0] for pair in pairs)


# Reading.


def read_tools(entry: msgspec.Raw, quirks: Quirks, provider: str, *, strict: bool | None) -> list[ToolSpec | HostedTool]:
    """Return the tools of one entry: its functions, and each of its other fields as a hosted tool."""
    found: list[ToolSpec | HostedTool] = []
    for name, value in camel_fields(entry).items():
        if name == "functionDeclarations":
            found += (_function(raw, quirks, provider, strict) for raw in as_list(value))
        else:
            found.append(HostedTool(WIRE, dumps({name: value}).decode(), name, provider))
    return found


def _function(raw: msgspec.Raw, quirks: Quirks, provider: str, strict: bool | None) -> ToolSpec:
    own = Fields(camel_fields(raw))
    name, description = own.carried_text("name"), own.text("description")
    schema = NO_ARGUMENTS
    if own.is_object("parameters"):
        schema = older_schema(raw_text(own.peek_raw("parameters"), NO_ARGUMENTS))
    elif own.is_object("parametersJsonSchema"):
        schema = raw_text(own.peek_raw("parametersJsonSchema"), NO_ARGUMENTS)
        if quirks.json_schemas and schema != NO_ARGUMENTS and transform(schema, GEMINI_JSON)[0] == schema:
            own.take("parametersJsonSchema")
    return ToolSpec(name, description, schema, strict, own.rest_text(), WIRE, provider=provider)


def older_schema(schema: str) -> str:
    """Return the canonical form of a schema in the older subset, where types may be in capitals and null is a flag."""
    old = msgspec.json.decode(schema)
    new = _canonical(old, 0)
    return schema if new == old else dumps(new).decode()


def _canonical(node: object, depth: int) -> object:
    if not isinstance(node, dict) or depth > MOST_DEPTH:
        return node
    made: dict[str, object] = dict(node)
    for name, child in node.items():
        if name in NESTED and isinstance(child, dict):
            made[name] = {key: _canonical(one, depth + 1) for key, one in child.items()}
        elif name in LISTED and isinstance(child, list):
            made[name] = [_canonical(one, depth + 1) for one in child]
        elif name in SINGLE:
            made[name] = _canonical(child, depth + 1)
    kind = node.get("type")
    if isinstance(kind, str):
        made["type"] = [kind.lower(), "null"] if made.pop("nullable", False) is True else kind.lower()
    return made
