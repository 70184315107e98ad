"""Structured answers: asked for by the provider's own means, as the arguments of a tool, or in words; and read back. Pure."""

from msgspec.structs import replace

from evener.encodings.envelope import unwrapped
from evener.encodings.fences import bare
from evener.encodings.prepared import Prepared
from evener.encodings.schemas import is_object, wrapped_schema
from evener.errors import BadValue
from evener.transcript.ask import Choice, OutputSchema, ToolSpec
from evener.transcript.reply import Reply

__all__ = ["FINAL_RESULT", "final_choice", "final_tool", "output_text"]

FINAL_RESULT = "final_result"
ANY_OBJECT = '{"type":"object"}'
THOUGHT_END = "</think>"


def final_tool(output: OutputSchema, names: list[str]) -> ToolSpec:
    """The tool whose arguments are the answer."""
    if FINAL_RESULT in names:
        raise BadValue(
            f"A tool is called {FINAL_RESULT!r}, which is the name of the tool that takes the structured answer. "
            "Rename the tool, or ask for the answer in another form."
        )
    schema = output.schema or ANY_OBJECT
    about = output.description or "Give the final answer. Call it alone, once nothing else is to be done."
    return ToolSpec(FINAL_RESULT, about, schema if is_object(schema) else wrapped_schema(schema), output.strict)


def final_choice(choice: Choice) -> Choice:
    """The choice with the answer as one more tool: where the model may answer, it must call something."""
    if choice.mode == "none":
        return Choice("required", (FINAL_RESULT,), choice.parallel)
    if choice.mode == "auto":
        return replace(choice, mode="required", names=(*choice.names, FINAL_RESULT) if choice.names else ())
    return choice


def output_text(reply: Reply, prepared: Prepared) -> str:
    """The JSON text of a structured answer, whichever form it came in; the text as it is when there is none."""
    plan = prepared.plan
    text = reply.text
    if prepared.form == "tool":
        found = next((call for call in reversed(reply.calls) if call.name == FINAL_RESULT), None)
        text = found.raw if found else bare(text)
    elif prepared.form == "prompted":
        text = bare(text.rpartition(THOUGHT_END)[2])
    return unwrapped(text) if plan is not None and plan.wrapped else text
