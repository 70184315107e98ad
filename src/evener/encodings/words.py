"""What a model is told in its system prompt: which tools there are, how to call them, and what the answer must be. Pure.

Short, and the same for the same tools: what depends on one call's choice is said last, so that the rest stays cached.
"""

from collections.abc import Sequence

import msgspec

from evener.encodings.envelope import ANSWER, ARGUMENTS, CALLS, TOOL, VALUE
from evener.encodings.prepared import EncodingName, Final
from evener.transcript.ask import Choice, OutputSchema, ToolSpec
from evener.wire.text import dumps

__all__ = ["choice_words", "format_words", "json_words", "output_words", "tool_words"]

PLAIN = {"type", "properties", "required", "additionalProperties", "$schema", "title"}
XML = (
    'To call a tool, write exactly this, with the arguments as one JSON object:\n'
    '<tool_call name="NAME">{"argument": "value"}</tool_call>\n'
    "Then stop: the result comes back in <tool_result> tags. Without a call, what you write is the answer."
)  # fmt: skip
REACT = (
    "To call a tool, write exactly this:\n"
    "Thought: what you think\n"
    "Action: the name of the tool\n"
    "Action Input: the arguments as one JSON object\n"
    "Then stop: the result comes back as an Observation. When you know the answer, write:\n"
    "Thought: what you think\n"
    "Final Answer: the answer"
)


def tool_words(tools: Sequence[ToolSpec]) -> str:
    """The tools, one a line."""
    return "\n".join(["You can call these tools:", *(_line(tool) for tool in tools)])


def _line(tool: ToolSpec) -> str:
    about = f": {tool.description}" if tool.description else ""
    return f"- {tool.name}{about}\n  {ARGUMENTS}: {_arguments(tool.schema)}"


def _arguments(schema: str) -> str:
    """The properties alone where that says it all; else the whole schema."""
    root = msgspec.json.decode(schema, type=dict[str, object])
    properties = root.get("properties", {})
    free = root.get("additionalProperties", False) is not False
    if not isinstance(properties, dict) or root.get("type") != "object" or root.keys() - PLAIN or free:
        return dumps(root).decode()
    required = root.get("required")
    optional = [name for name in properties if not isinstance(required, list) or name not in required]
    return dumps(properties).decode() + (f" (optional: {', '.join(optional)})" if optional else "")


def format_words(encoding: EncodingName, choice: Choice) -> str:
    """How to call them, in the encodings that are text; then what the choice demands."""
    return "\n".join([XML if encoding == "xml" else REACT, *choice_words(choice, alone=encoding == "react")])


def choice_words(choice: Choice, *, alone: bool = False) -> list[str]:
    """What a choice demands, in sentences. `alone`: one call at a time, unless it says otherwise."""
    said: list[str] = []
    match choice.mode:
        case "required":
            said.append("Do not answer yet: you must call a tool now.")
        case "named":
            said.append(f"Do not answer yet: you must call the tool {' or '.join(choice.names)} now.")
        case "none":
            said.append("Do not call a tool now: answer.")
    if choice.names and choice.mode in ("auto", "required"):
        said.append(f"Call no other tools than {', '.join(choice.names)}.")
    if choice.parallel:
        said.append("You may call several tools at once, one after the other.")
    elif choice.parallel is False or alone:
        said.append("Call at most one tool at a time.")
    return said


def json_words(choice: Choice, output: OutputSchema | None, *, final: Final, wrapped: bool, constrained: bool) -> str:
    """How to answer in an envelope, as far as the choice allows."""
    call = f'{{"{TOOL}": "NAME", "{ARGUMENTS}": {{...}}}}'
    call = f'{{"{CALLS}": [{call}, ...]}}' if choice.parallel else call
    ways = [f"{call} to call a tool"] if choice.mode != "none" else []
    if choice.mode in ("auto", "none"):
        answer = {"text": f'{{"{ANSWER}": "TEXT"}}', "value": f'{{"{ANSWER}": ...}}', "object": "an object of the shape below"}
        ways.append(f"{answer[final]} to answer")
    said = [f"Write one JSON object and nothing else: {', or '.join(ways)}."]
    if wrapped:
        said.append(f'Put it into an object: {{"{VALUE}": ...}}.')
    if not constrained:
        said += choice_words(choice, alone=not choice.parallel)
    elif choice.mode == "named":
        said.append(f"Call the tool {choice.names[0]}.")
    if output is not None and choice.mode in ("auto", "none"):
        said.append(_shape(output))
    return "\n".join(said)


def _shape(output: OutputSchema) -> str:
    about = f" {output.description}" if output.description else ""
    return f"The answer must fit this JSON Schema:{about}\n{output.schema or '{}'}"


def output_words(output: OutputSchema) -> str:
    """The shape of an answer that nothing enforces."""
    about = f" {output.description}" if output.description else ""
    if not output.schema:
        return f"Give the final answer as one JSON object and nothing else.{about}"
    return f"Give the final answer as JSON that fits this JSON Schema, and nothing else:{about}\n{output.schema}"
