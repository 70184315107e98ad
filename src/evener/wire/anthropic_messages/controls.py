"""Thinking, tool choice, sampling and output format: the neutral words in Anthropic's. Pure tables and small functions."""

import msgspec

from evener.transcript.ask import Ask, HostedTool, OutputSchema, Reasoning
from evener.transcript.loss import OUTPUT, Loss, loss_of
from evener.wire.dialects import ANTHROPIC_STRICT
from evener.wire.efforts import BUDGETS, SCALE, nearest_effort
from evener.wire.names import wire_name
from evener.wire.quirks import Quirks
from evener.wire.request import output_limit, within
from evener.wire.schemas import transform
from evener.wire.text import dict_of

__all__ = ["choice", "must_lead", "output_format", "output_tokens", "sampling", "thinking", "why_mute"]

SHOWN = {"summary": "summarized", "concise": "summarized", "detailed": "summarized", "omitted": "omitted"}
LEAST_BUDGET = 1024  # sheet 7
CHOICES = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}

Body = dict[str, object]


def output_tokens(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int:
    """The output limit, which this wire demands. Thinking counts as output: where there is room, it comes on top."""
    limit = output_limit(ask, quirks, losses)
    if limit is not None:
        return limit
    if quirks.max_output and _way_to_think(ask, quirks) == "enabled":
        return min(quirks.default_output + _wanted_budget(ask), quirks.max_output)
    return quirks.default_output


def thinking(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The fields `thinking` and `output_config.effort`."""
    body: Body = {}
    switch = _switch(ask, quirks, losses)
    if switch == "enabled":
        body["thinking"] = {"type": "enabled", "budget_tokens": _budget(ask, quirks, losses)}
    elif switch:
        body["thinking"] = {"type": switch}
    if ask.reasoning.show and not quirks.show:
        losses.append(loss_of("dropped", "reasoning.show", "this endpoint has no such switch"))
    elif switch in ("enabled", "adaptive") and ask.reasoning.show:
        body["thinking"] = {**dict_of(body["thinking"]), "display": SHOWN[ask.reasoning.show]}
    effort = _effort(ask, quirks, switch, losses)
    return {**body, **({"output_config": {"effort": effort}} if effort else {})}


def _budget(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int:
    limit = output_tokens(ask, quirks, [])
    budget = _wanted_budget(ask)
    if LEAST_BUDGET <= budget < limit:
        return budget
    if ask.reasoning.budget:
        losses.append(loss_of("degraded", "reasoning.budget", f"it must lie from {LEAST_BUDGET} to below {limit}"))
    elif ask.reasoning.effort:
        losses.append(loss_of("degraded", "reasoning.effort", f"an output limit of {limit} leaves less room for thinking"))
    return max(LEAST_BUDGET, min(budget, limit - 1))


def _wanted_budget(ask: Ask) -> int:
    return ask.reasoning.budget or BUDGETS[ask.reasoning.effort or "medium"]


def why_mute(ask: Ask, quirks: Quirks) -> str:
    """Why the thinking of the past stays out of this request: thinking is off in it. Empty when it is on or not known."""
    switch = _switch(ask, quirks, [])
    off = switch == "disabled" or (not switch and quirks.thinks_unasked is False)
    return "thinking is off for this request" if off else ""


def must_lead(ask: Ask, quirks: Quirks) -> bool:
    """Whether a turn that has thinking must begin with it: so while it has a budget (sheet 3)."""
    return _switch(ask, quirks, []) == "enabled"


def _switch(ask: Ask, quirks: Quirks, losses: list[Loss]) -> str:
    """The thinking type to send; empty for none."""
    wanted = ask.reasoning
    modes = quirks.thinking_modes
    if wanted.mode == "off" or wanted.effort == "off":
        return _taken("disabled", modes, losses)
    if wanted.mode == "between_tools":
        return _taken("between_tools", modes, losses)
    if not _is_asked(wanted):
        return ""
    mode = _way_to_think(ask, quirks)
    limit = output_tokens(ask, quirks, [])
    if mode == "enabled" and limit <= LEAST_BUDGET:
        losses.append(loss_of("dropped", "reasoning.mode", f"an output limit of {limit} leaves no room for thinking"))
        return ""
    if mode == "adaptive" and wanted.budget:
        losses.append(loss_of("degraded", "reasoning.budget", "this model sets its own; thinking is adaptive"))
    if mode:
        return mode
    losses.append(loss_of("dropped", "reasoning.mode", "this model has no thinking that can be switched on"))
    return ""


def _is_asked(wanted: Reasoning) -> bool:
    """Whether thinking is to be switched on."""
    return wanted.mode == "on" or (wanted.mode == "auto" and (wanted.effort is not None or wanted.budget is not None))


def _way_to_think(ask: Ask, quirks: Quirks) -> str:
    """The way that this model has to think when it is asked to; empty for none."""
    wanted = ask.reasoning
    if wanted.effort == "off" or not _is_asked(wanted):
        return ""
    order = ("enabled", "adaptive") if wanted.budget else ("adaptive", "enabled")
    return next((mode for mode in order if mode in quirks.thinking_modes), "")


def _taken(mode: str, modes: tuple[str, ...], losses: list[Loss]) -> str:
    if mode in modes:
        return mode
    losses.append(loss_of("degraded", "reasoning.mode", "this model cannot; its default stays", name=mode))
    return ""


def _effort(ask: Ask, quirks: Quirks, switch: str, losses: list[Loss]) -> str:
    wanted = ask.reasoning.effort
    if wanted is None or (wanted == "off" and (switch == "disabled" or not quirks.effort)):
        return ""
    if not quirks.effort:
        if switch != "enabled":
            losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return ""
    known = quirks.efforts or ("low", "medium", "high", "xhigh", "max")
    if switch == "disabled" and quirks.disabled_effort:
        known = tuple(level for level in known if SCALE.index(level) <= SCALE.index(quirks.disabled_effort))
    return nearest_effort(wanted, known, losses)


def choice(ask: Ask, quirks: Quirks, *, offered: bool, thinks: bool, losses: list[Loss]) -> Body:
    """The field `tool_choice`."""
    wanted = ask.choice
    if not offered:
        if wanted.mode in ("required", "named"):
            losses.append(loss_of("dropped", "tool_choice", "there are no tools to choose from"))
        return {}
    mode = CHOICES[wanted.mode]
    if mode in ("any", "tool"):
        mode = _forced(ask, quirks, mode, thinks=thinks, losses=losses)
    if wanted.names and mode != "tool":
        losses.append(loss_of("degraded", "tool_choice", "this wire has no subsets; every tool is offered"))
    body: Body = {"type": mode}
    if mode == "tool":
        body["name"] = wire_name(wanted.names[0], quirks.name_length)
    if wanted.parallel is not None and not quirks.parallel_switch:
        losses.append(loss_of("dropped", "tool_choice.parallel", "this endpoint has none"))
    elif wanted.parallel is not None and mode != "none":
        body["disable_parallel_tool_use"] = not wanted.parallel
    if mode == "auto" and len(body) == 1 and not wanted.stated:
        return {}
    return {"tool_choice": body}


def _forced(ask: Ask, quirks: Quirks, mode: str, *, thinks: bool, losses: list[Loss]) -> str:
    if not quirks.forced_choice or thinks:  # never beside a thinking budget (sheet 5)
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    known = {tool.name for tool in ask.tools if not isinstance(tool, HostedTool) or tool.name}
    if mode == "tool" and (len(ask.choice.names) != 1 or ask.choice.names[0] not in known):
        losses.append(loss_of("degraded", "tool_choice", "the named tool is not offered; the model may choose"))
        return "auto"
    return mode


def sampling(ask: Ask, quirks: Quirks, *, thinks: bool, losses: list[Loss]) -> Body:
    """Temperature and its kin, and stop sequences."""
    settings = ask.settings
    body: Body = {}
    for name, value in (("temperature", settings.temperature), ("top_p", settings.top_p), ("top_k", settings.top_k)):
        if value is None:
            continue
        if quirks.sampling == "none":
            losses.append(loss_of("dropped", f"setting.{name}", "this model rejects it"))
        elif thinks and not _beside_thinking(name, value):
            losses.append(loss_of("dropped", f"setting.{name}", "it may not be changed while thinking is on"))
        else:
            body[name] = value if name == "top_k" else within(name, value, 1, losses)
    if settings.seed is not None:
        losses.append(loss_of("dropped", "setting.seed", "this wire has none"))
    stops = [text for text in settings.stop if text.strip()]
    if len(stops) < len(settings.stop):
        losses.append(loss_of("dropped", "setting.stop", "a stop sequence of white space only is rejected"))
    return {**body, **({"stop_sequences": stops} if stops else {})}


def _beside_thinking(name: str, value: float) -> bool:
    """Whether a setting may stand beside thinking with a budget (sheet 7)."""
    return value == 1 if name == "temperature" else name == "top_p" and 0.95 <= value <= 1


def output_format(output: OutputSchema | None, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `output_config.format`."""
    if output is None:
        return {}
    if not output.schema or not quirks.output_schema:
        losses.append(loss_of("degraded", "output.schema", "this wire has no such mode; ask for the shape in the prompt"))
        return {}
    fitted, lost = transform(output.schema, ANTHROPIC_STRICT, OUTPUT)
    losses += lost
    return {"format": {"type": "json_schema", "schema": msgspec.Raw(fitted.encode())}} if fitted else {}
