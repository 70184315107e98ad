"""What the two wires of one maker say alike: sampling, the shape of the answer, and which tools are meant. Pure."""

from evener.transcript.ask import Ask
from evener.transcript.loss import OUTPUT, Loss, loss_of
from evener.wire.quirks import Quirks
from evener.wire.request import Setting, hold_number, short_id, wire_name, write_settings
from evener.wire.schema import OPENAI_STRICT
from evener.wire.tool_schema import enforce_schema, report_description

__all__ = [
    "TEMPERATURE",
    "TOP_P",
    "fit_key",
    "refused_settings",
    "write_heat",
    "write_output_shape",
    "write_parallel",
]


Body = dict[str, object]
LONGEST_KEY = 64  # sheet 11 of Responses


TEMPERATURE = Setting("temperature", "temperature", 2, hold_number)
TOP_P = Setting("top_p", "top_p", 1, hold_number)


def write_heat(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the fields `temperature` and `top_p`."""
    return write_settings((TEMPERATURE, TOP_P), ask.settings, losses, refused_settings(ask, quirks))


def refused_settings(ask: Ask, quirks: Quirks) -> dict[str, str]:
    """Return the settings that the model rejects, and why."""
    refused = quirks.sampling == "none" or (quirks.sampling == "thinking_off" and _thinks(ask, quirks))
    return dict.fromkeys(("temperature", "top_p"), "this model rejects it") if refused else {}


def _thinks(ask: Ask, quirks: Quirks) -> bool:
    """Whether the model will reason: it is not off, or cannot be. A budget is sent as an effort, never as off."""
    wanted = ask.reasoning
    if wanted.mode != "off" and wanted.effort is None and wanted.budget is not None:
        return True
    off = wanted.mode == "off" or (wanted.effort or quirks.default_effort) == "off"
    return not off or bool(quirks.efforts and "off" not in quirks.efforts)


def write_output_shape(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The format that the answer must have; empty when nothing is asked for, or nothing can be."""
    output = ask.output
    if output is None:
        return {}
    if output.schema and quirks.output_schema:
        name = wire_name(output.name, quirks.name_length)
        if name != output.name:
            losses.append(loss_of("renamed", "output.name", f"{output.name!r} is not legal here; sent as {name!r}"))
        shape: Body = {"type": "json_schema", "name": name}
        if output.description:
            shape["description"] = output.description
        shape["schema"], strict = enforce_schema(output.schema, output.strict, OPENAI_STRICT, quirks, OUTPUT, losses)
        if strict is not None:
            shape["strict"] = strict
        return shape
    report_description(output, losses)
    if not quirks.json_mode:
        losses.append(loss_of("degraded", "output.schema", "this endpoint has no such mode; ask for the shape in the prompt"))
        return {}
    if output.schema:
        losses.append(loss_of("degraded", "output.schema", "this endpoint takes none; any JSON object is asked for"))
    return {"type": "json_object"}


def fit_key(ask: Ask, losses: list[Loss]) -> str:
    """Return the key for the prompt cache; one that is too long is cut, and a hash keeps it apart from others."""
    key = short_id(ask.cache.key, LONGEST_KEY)
    if key != ask.cache.key:
        losses.append(loss_of("renamed", "cache.key", f"it may have {LONGEST_KEY} characters; sent as {key!r}"))
    return key


def write_parallel(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `parallel_tool_calls`."""
    if ask.choice.parallel is None:
        return {}
    if not quirks.parallel_switch:
        losses.append(loss_of("dropped", "tool_choice.parallel", "this endpoint has none"))
        return {}
    return {"parallel_tool_calls": ask.choice.parallel}
