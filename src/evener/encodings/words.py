"""What no field of the request can express is written into the prompt, and reported. Pure.

Covers the changes to an ask before a codec gets it: tools, forced, named and narrowed choice, one call at a time, and the
form of a structured answer. What a codec leaves out (images, sampling, efforts, cache marks ...), it reports itself.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from evener.encodings.json import ANSWER, ARGUMENTS, CALLS, TOOL, VALUE
from evener.encodings.prepared import EncodingName, Final
from evener.transcript.ask import Ask, Choice, OutputForm, OutputSchema, Reasoning, ToolSpec
from evener.transcript.loss import Loss, loss_of
from evener.wire.prefix import dumps
from evener.wire.quirks import Quirks
from evener.wire.schema import ANTHROPIC_STRICT, Dialect, transform

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
    """Describe the tools, one a line."""
    return "\n".join(["You can call these tools:", *(_line(tool) for tool in tools)])


def _line(tool: ToolSpec) -> str:
    about = f": {tool.description}" if tool.description else ""
    return f"- {tool.name}{about}\n  {ARGUMENTS}: {_arguments(tool.schema)}"


def _arguments(schema: str) -> str:
    """Return the schema's properties if they say everything, else the whole schema."""
    root = msgspec.json.decode(schema, type=dict[str, object])
    properties = root.get("properties", {})
    free = root.get("additionalProperties", False) is not False
    if not isinstance(properties, dict) or root.get("type") != "object" or root.keys() - PLAIN or free:
        return dumps(root).decode()
    required = root.get("required")
    optional = [name for name in properties if not isinstance(required, list) or name not in required]
    return dumps(properties).decode() + (f" (optional: {', '.join(optional)})" if optional else "")


def format_words(encoding: EncodingName, choice: Choice) -> str:
    """Return the instructions for calls in the text encodings, and the rules of the tool choice."""
    return "\n".join([XML if encoding == "xml" else REACT, *choice_words(choice, alone=encoding == "react")])


def choice_words(choice: Choice, *, alone: bool = False) -> list[str]:
    """Return the rules of a tool choice as sentences. `alone`: allow one call at a time, unless the choice says otherwise."""
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
    """Return the instructions for answers in an envelope, as far as the tool choice allows them."""
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
    """Describe the shape of an answer that nothing enforces."""
    about = f" {output.description}" if output.description else ""
    if not output.schema:
        return f"Give the final answer as one JSON object and nothing else.{about}"
    return f"Give the final answer as JSON that fits this JSON Schema, and nothing else:{about}\n{output.schema}"


LACKS: Mapping[str, frozenset[str]] = {
    "anthropic_messages": frozenset({"json_mode", "subsets"}),
    "gemini": frozenset({"parallel"}),
    "openai_responses": frozenset({"stop"}),
}
"""What a whole wire has no field for, at any provider."""
FITTING: Mapping[str, Dialect] = {"anthropic_messages": ANTHROPIC_STRICT}
"""Wires that take no output schema but one that they can enforce."""


def has(ask: Ask, what: str) -> bool:
    """True if the wire has a field for this."""
    return what not in LACKS.get(ask.target.wire, ())


def choose_encoding(wanted: EncodingName, ask: Ask, quirks: Quirks, losses: list[Loss]) -> EncodingName:
    """Return the requested encoding, or a text encoding if the endpoint has no tools."""
    if wanted != "native" or quirks.tools:
        return wanted
    found: EncodingName = "json_schema" if quirks.output_schema else "xml"
    if any(isinstance(tool, ToolSpec) for tool in ask.tools):
        losses.append(loss_of("degraded", "tool", f"this endpoint takes none; they are described in the prompt ({found})"))
    return found


def choose_form(
    output: OutputSchema, ask: Ask, quirks: Quirks, encoding: EncodingName, *, functions: bool, losses: list[Loss]
) -> OutputForm:
    """Return the form for a structured answer: the requested one, or the best one that the row supports."""
    wanted = output.form or quirks.output_form
    if wanted in ("tool", "prompted"):
        return wanted
    if _is_native(output, ask, quirks, encoding, functions=functions):
        return "native"
    found: OutputForm = "tool" if quirks.tools and encoding == "native" and output.schema else "prompted"
    how = "as the arguments of a tool" if found == "tool" else "in the prompt"
    losses.append(loss_of("degraded", "output.schema", f"it cannot be enforced here; it is asked for {how}"))
    return found


def _is_native(output: OutputSchema, ask: Ask, quirks: Quirks, encoding: EncodingName, *, functions: bool) -> bool:
    if functions and encoding in ("xml", "react"):
        return False
    if functions and encoding == "native" and not quirks.output_beside:
        return False
    if not output.schema and not (functions and encoding == "json_schema"):
        return quirks.json_mode and has(ask, "json_mode")
    return quirks.output_schema and (encoding != "native" or _is_fitting(output, ask))


def _is_fitting(output: OutputSchema, ask: Ask) -> bool:
    dialect = FITTING.get(ask.target.wire)
    return dialect is None or transform(output.schema, dialect)[0] is not None


def tell_choice(choice: Choice, ask: Ask, quirks: Quirks, losses: list[Loss]) -> tuple[Choice, list[str]]:
    """Return the part of the tool choice that the endpoint has fields for, and sentences for the rest."""
    said = Choice(parallel=None)
    if choice.mode in ("required", "named") and not _can_force(ask, quirks):
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it is told so in the prompt"))
        said = replace(said, mode=choice.mode, names=choice.names)
        choice = Choice(parallel=choice.parallel)
    elif choice.mode == "named" and len(choice.names) == 1 and not quirks.named_choice:
        losses.append(loss_of("degraded", "tool_choice", "one tool cannot be forced here; the prompt says which to call"))
        said = replace(said, mode="named", names=choice.names)
        choice = Choice("required", parallel=choice.parallel)
    elif choice.names and choice.mode in ("auto", "required") and not (quirks.tool_subsets and has(ask, "subsets")):
        losses.append(loss_of("degraded", "tool_choice", "it cannot be narrowed here; the prompt says which tools to call"))
        said = replace(said, names=choice.names)
        choice = replace(choice, names=())
    if choice.parallel is not None and not (quirks.parallel_switch and (choice.parallel or has(ask, "parallel"))):
        losses.append(loss_of("degraded", "tool_choice.parallel", "there is none here; the prompt says it"))
        said = replace(said, parallel=choice.parallel)
        choice = replace(choice, parallel=None)
    return choice, choice_words(said)


def _can_force(ask: Ask, quirks: Quirks) -> bool:
    return quirks.forced_choice and (quirks.forced_choice_thinking or not _thinks(ask.reasoning, quirks))


def _thinks(wanted: Reasoning, quirks: Quirks) -> bool:
    """True if the model will think."""
    if wanted.mode == "off" or wanted.effort == "off":
        return False
    asked = wanted.effort is not None or wanted.budget is not None
    return wanted.mode == "on" or (asked and wanted.mode != "default") or bool(quirks.thinks_unasked)
