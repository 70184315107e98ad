"""What a model cannot be told by a field of the request is told in words, and reported. Pure.

Covers what changes the ask before a codec sees it: tools, forced, named and narrowed choice, one call at a time, and the
form of a structured answer. What a codec leaves out by itself (pictures, sampling, efforts, cache marks ...) it reports by
itself.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from evener.encodings.prepared import EncodingName
from evener.encodings.words import choice_words
from evener.transcript.ask import Ask, Choice, OutputForm, OutputSchema, Reasoning, ToolSpec
from evener.transcript.loss import Loss, loss_of
from evener.wire.quirks import Quirks

__all__ = ["chosen_encoding", "chosen_form", "has", "told_choice"]

LACKS: Mapping[str, frozenset[str]] = {
    "anthropic_messages": frozenset({"json_mode", "subsets"}),
    "gemini": frozenset({"parallel"}),
    "openai_responses": frozenset({"stop"}),
}
"""What a whole wire has no field for, whoever speaks it."""


def has(ask: Ask, what: str) -> bool:
    """Whether the wire has a field for this."""
    return what not in LACKS.get(ask.target.wire, ())


def chosen_encoding(wanted: EncodingName, ask: Ask, quirks: Quirks, losses: list[Loss]) -> EncodingName:
    """The encoding that was asked for, or a text encoding where the endpoint takes no tools."""
    if wanted != "native" or quirks.tools:
        return wanted
    found: EncodingName = "json_schema" if quirks.output_schema else "xml"
    if any(isinstance(tool, ToolSpec) for tool in ask.tools):
        losses.append(loss_of("degraded", "tool", f"this endpoint takes none; they are described in the prompt ({found})"))
    return found


def chosen_form(
    output: OutputSchema, ask: Ask, quirks: Quirks, encoding: EncodingName, *, functions: bool, losses: list[Loss]
) -> OutputForm:
    """How a structured answer is asked for: as wanted, or the next best way."""
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
    return quirks.output_schema


def told_choice(choice: Choice, ask: Ask, quirks: Quirks, losses: list[Loss]) -> tuple[Choice, list[str]]:
    """The choice as far as the endpoint has fields for it, and the rest of it in sentences."""
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
    """Whether thinking will be on."""
    if wanted.mode == "off" or wanted.effort == "off":
        return False
    asked = wanted.effort is not None or wanted.budget is not None
    return wanted.mode == "on" or (asked and wanted.mode != "default") or bool(quirks.thinks_unasked)
