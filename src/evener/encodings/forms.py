"""Structured answers: requested by the provider's own feature, as the arguments of a tool, or in the prompt; and read. Pure."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from evener.encodings.buffer import strip_fence
from evener.encodings.json import ANSWER, ARGUMENTS, CALLS, TOOL, VALUE, unwrap
from evener.encodings.prepared import Final, Prepared
from evener.errors import BadValue
from evener.transcript.ask import Choice, OutputSchema, ToolSpec
from evener.transcript.reply import Reply
from evener.wire.prefix import dict_of, dumps

Node = dict[str, object]
LITERAL = ("const", "default", "enum", "example", "examples")
DEFINITIONS = ("$defs", "definitions")
NAMED = (*DEFINITIONS, "dependentSchemas", "patternProperties", "properties")
"""Hold schemas under names that are the user's own, and may be words of JSON Schema, too."""


def is_object(schema: str) -> bool:
    """True if a schema accepts only objects. An empty schema stands for any object."""
    root = _decode(schema) if schema else {"type": "object"}
    return root.get("type") == "object"


def final_of(output: OutputSchema | None) -> Final:
    """Return how an answer of this schema is written in an envelope: without a wrapper, if it cannot be mistaken for a call."""
    if output is None:
        return "text"
    names = dict_of(_decode(output.schema).get("properties")) if output.schema else {}
    reserved = not output.schema or any(name in names for name in (TOOL, ARGUMENTS, CALLS, ANSWER))
    return "object" if is_object(output.schema) and not reserved else "value"


def wrap_schema(schema: str) -> str:
    """Return the schema of an object that holds a value of this schema."""
    inner = _Embedder()
    root = _object({VALUE: inner.embed(schema, VALUE)})
    return dumps(inner.with_definitions(root)).decode()


def alternatives(tools: Sequence[ToolSpec], choice: Choice, output: OutputSchema | None, *, final: Final, wrapped: bool) -> str:
    """Return the schema of an envelope: one call, a list of calls, or the answer, as far as the choice allows each."""
    inner = _Embedder()
    named = [tool for tool in tools if not choice.names or tool.name in choice.names]
    calls: list[Node] = []
    if choice.mode != "none":
        for number, tool in enumerate(named):
            tool_name = {"type": "string", "enum": [tool.name]}
            calls.append(_object({TOOL: tool_name, ARGUMENTS: inner.embed(tool.schema, f"tool{number}")}))
    if calls and choice.parallel:
        items: Node = {"anyOf": calls} if len(calls) > 1 else calls[0]
        calls = [_object({CALLS: {"type": "array", "items": items, "minItems": 1}})]
    if choice.mode in ("auto", "none") or not calls:
        calls.append(_answer(output, inner, final))
    root: Node = {"anyOf": calls} if len(calls) > 1 else calls[0]
    return dumps(inner.with_definitions(_object({VALUE: root}) if wrapped else root)).decode()


def _answer(output: OutputSchema | None, inner: "_Embedder", final: Final) -> Node:
    if output is None:
        return _object({ANSWER: {"type": "string"}})
    shape: Node = inner.embed(output.schema, ANSWER) if output.schema else {"type": "object"}
    return shape if final == "object" else _object({ANSWER: shape})


def optional_arguments(tools: Sequence[ToolSpec]) -> Mapping[str, frozenset[str]]:
    """Return the arguments of each tool that may be omitted but not null."""
    found = {tool.name: _optional(_decode(tool.schema)) for tool in tools}
    return {name: names for name, names in found.items() if names}


def _optional(root: Node) -> frozenset[str]:
    required = root.get("required")
    given = required if isinstance(required, list) else []
    properties = dict_of(root.get("properties"))
    return frozenset(name for name, child in properties.items() if name not in given and '"null"' not in dumps(child).decode())


def _object(properties: Mapping[str, object]) -> Node:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _decode(schema: str) -> Node:
    return msgspec.json.decode(schema, type=dict[str, object])


class _Embedder:
    """Puts schemas into another. What they define moves to the root under names of its own, and references follow."""

    def __init__(self) -> None:
        self._definitions: Node = {}

    def embed(self, schema: str, prefix: str) -> Node:
        try:
            return self._embed(schema, prefix)
        except RecursionError:
            raise BadValue("A schema is nested too deeply to be put into another. Make it flatter.") from None

    def _embed(self, schema: str, prefix: str) -> Node:
        root = _decode(schema)
        root.pop("$schema", None)
        if '"$ref"' not in schema:
            return root
        for name in DEFINITIONS:
            for key, child in dict_of(root.pop(name, None)).items():
                self._definitions[f"{prefix}_{key}"] = self._move(child, prefix)
        moved = dict_of(self._move(root, prefix))
        text = dumps([moved, self._definitions]).decode()
        if f'"#/$defs/{prefix}"' in text or f'"#/$defs/{prefix}/' in text:
            self._definitions[prefix] = moved
        return moved

    def _move(self, node: object, prefix: str) -> object:
        if isinstance(node, list):
            return [self._move(child, prefix) for child in node]
        if not isinstance(node, dict):
            return node
        moved = {key: self._move_part(key, child, prefix) for key, child in node.items()}
        target = node.get("$ref")
        return {**moved, "$ref": _move_reference(target, prefix)} if isinstance(target, str) else moved

    def _move_part(self, key: str, child: object, prefix: str) -> object:
        if key in NAMED and isinstance(child, dict):
            return {name: self._move(part, prefix) for name, part in child.items()}
        return child if key in LITERAL else self._move(child, prefix)

    def with_definitions(self, root: Node) -> Node:
        return {**root, "$defs": self._definitions} if self._definitions else root


def _move_reference(target: str, prefix: str) -> str:
    for name in DEFINITIONS:
        if target.startswith(f"#/{name}/"):
            return f"#/$defs/{prefix}_{target[len(name) + 3 :]}"
    return f"#/$defs/{prefix}{target[1:]}" if target.startswith("#") else target


FINAL_RESULT = "final_result"
ANY_OBJECT = '{"type":"object"}'
THOUGHT_END = "</think>"


def final_tool(output: OutputSchema, names: list[str]) -> ToolSpec:
    """Return the tool `final_result`, whose arguments are the answer."""
    if FINAL_RESULT in names:
        raise BadValue(
            f"A tool is called {FINAL_RESULT!r}, which is the name of the tool that takes the structured answer. "
            "Rename the tool, or ask for the answer in another form."
        )
    schema = output.schema or ANY_OBJECT
    about = output.description or "Give the final answer. Call it alone, once nothing else is to be done."
    return ToolSpec(FINAL_RESULT, about, schema if is_object(schema) else wrap_schema(schema), output.strict)


def final_choice(choice: Choice) -> Choice:
    """Return the choice with `final_result` as an additional tool: the model must then call some tool, instead of answering."""
    if choice.mode == "none":
        return Choice("required", (FINAL_RESULT,), choice.parallel)
    if choice.mode == "auto":
        return replace(choice, mode="required", names=(*choice.names, FINAL_RESULT) if choice.names else ())
    return choice


def output_text(reply: Reply, prepared: Prepared) -> str:
    """Return the JSON text of a structured answer in any form; the text unchanged if there is none."""
    plan = prepared.plan
    text = reply.text
    if prepared.form == "tool":
        found = next((call for call in reversed(reply.calls) if call.name == FINAL_RESULT), None)
        text = found.raw if found else strip_fence(text)
    elif prepared.form == "prompted":
        text = strip_fence(text.rpartition(THOUGHT_END)[2])
    return unwrap(text) if plan is not None and plan.wrapped else text
