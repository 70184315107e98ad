"""Reasoning, tool choice, output format and state: the neutral words in those of Responses. Pure tables and small functions."""

import msgspec

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.loss import Loss
from evener.wire.efforts import effort_for, nearest_effort
from evener.wire.names import wire_name
from evener.wire.quirks import Quirks
from evener.wire.request import within

__all__ = ["choice", "output_format", "reasoning", "sampling", "state"]

EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
SHOWN = {"summary": "auto", "concise": "concise", "detailed": "detailed"}
LEAST_OUTPUT = 16  # sheet 2
ENCRYPTED = "reasoning.encrypted_content"

Body = dict[str, object]


def reasoning(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `reasoning`."""
    wanted = ask.reasoning
    body: Body = {}
    effort = "off" if wanted.mode == "off" else wanted.effort
    if effort is None and wanted.budget is not None:
        effort = effort_for(wanted.budget)
        losses.append(Loss("degraded", "reasoning budget", f"this wire has efforts only; sent as {effort!r}"))
    if wanted.mode == "between_tools":
        losses.append(Loss("dropped", "reasoning between_tools", "this wire has no such mode"))
    if effort is not None:
        if not quirks.effort:
            losses.append(Loss("dropped", "reasoning effort", "this model takes none"))
        else:
            found = nearest_effort(effort, quirks.efforts or EFFORTS, losses)
            body["effort"] = "none" if found == "off" else found
    if wanted.show in SHOWN:
        if quirks.show:
            body["summary"] = SHOWN[wanted.show]
        else:
            losses.append(Loss("dropped", "reasoning display", "this endpoint shows none"))
    return {"reasoning": body} if body else {}


def choice(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """The fields `tool_choice` and `parallel_tool_calls`."""
    wanted = ask.choice
    if not offered:
        if wanted.mode in ("required", "named"):
            losses.append(Loss("dropped", "tool choice", "there are no tools to choose from"))
            return {}
        return {"tool_choice": wanted.mode} if wanted.stated else {}
    body: Body = {}
    if wanted.parallel is not None:
        if quirks.parallel_switch:
            body["parallel_tool_calls"] = wanted.parallel
        else:
            losses.append(Loss("dropped", "parallel switch", "this endpoint has none"))
    value = _choice(ask, quirks, losses)
    if value != "auto" or wanted.stated:
        body["tool_choice"] = value
    return body


def _choice(ask: Ask, quirks: Quirks, losses: list[Loss]) -> object:
    wanted = ask.choice
    if wanted.mode in ("required", "named") and not quirks.forced_choice:
        losses.append(Loss("degraded", "tool choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    known = {tool.name for tool in ask.tools if isinstance(tool, ToolSpec)}
    names = [wire_name(name, quirks.name_length) for name in wanted.names if name in known]
    if len(names) < len(wanted.names):
        losses.append(Loss("degraded", "tool choice", "a named tool is not offered"))
    if wanted.mode == "named":
        return {"type": "function", "name": names[0]} if len(names) == 1 else "auto"
    if names and wanted.mode != "none":
        tools = [{"type": "function", "name": name} for name in names]
        return {"type": "allowed_tools", "mode": wanted.mode, "tools": tools}
    return wanted.mode


def sampling(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Temperature and its kin."""
    settings = ask.settings
    thinks = ask.reasoning.mode != "off" and (ask.reasoning.effort or quirks.default_effort) != "off"
    refused = quirks.sampling == "none" or (quirks.sampling == "thinking_off" and thinks)
    body: Body = {}
    for name, value in (("temperature", settings.temperature), ("top_p", settings.top_p)):
        if value is not None and refused:
            losses.append(Loss("dropped", f"setting {name}", "this model rejects it"))
        elif value is not None:
            body[name] = within(name, value, 2 if name == "temperature" else 1, losses) if value > 0 else value
    for name, given in (("top_k", settings.top_k), ("seed", settings.seed), ("stop", settings.stop or None)):
        if given is not None:
            losses.append(Loss("dropped", f"setting {name}", "this wire has none"))
    return body


def output_format(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `text.format`."""
    output = ask.output
    if output is None:
        return {}
    if output.schema and quirks.output_schema:
        shape: Body = {"type": "json_schema", "name": wire_name(output.name, quirks.name_length)}
        if output.description:
            shape["description"] = output.description
        shape["schema"] = msgspec.Raw(output.schema.encode())
        if output.strict is not None:
            shape["strict"] = output.strict
        return {"text": {"format": shape}}
    if not quirks.json_mode:
        losses.append(Loss("degraded", "output schema", "this endpoint has no such mode; ask for the shape in the prompt"))
        return {}
    if output.schema:
        losses.append(Loss("degraded", "output schema", "this endpoint takes none; any JSON object is asked for"))
    return {"text": {"format": {"type": "json_object"}}}


def state(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The fields `store`, `include` and those that name state on the server."""
    wanted = ask.state
    body: Body = {}
    if wanted.store is not None and quirks.store:
        body["store"] = wanted.store
    if wanted.mode == "chain":
        body["previous_response_id"] = wanted.id
    elif wanted.mode == "conversation":
        body["conversation"] = wanted.id
    if wanted.sealed and quirks.sealed:
        body["include"] = [ENCRYPTED]
    if (wanted.mode != "replay" and not quirks.store) or (wanted.mode == "conversation" and not quirks.conversation):
        losses.append(Loss("degraded", f"state mode {wanted.mode}", "this endpoint keeps no state"))
        body.pop("previous_response_id", None)
        body.pop("conversation", None)
    return body
