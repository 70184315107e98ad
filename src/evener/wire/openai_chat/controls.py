"""Reasoning, tool choice, sampling and output format: the neutral words in those of this wire. Pure, small functions."""

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.loss import Loss, loss_of
from evener.wire.efforts import SCALE, effort_for, nearest_effort, report_length
from evener.wire.names import wire_name
from evener.wire.openai_words import answer_shape, heat, meant_tools, side_by_side
from evener.wire.quirks import Quirks
from evener.wire.request import report_choice

__all__ = ["choice", "output_format", "reasoning", "sampling", "thinks"]

Body = dict[str, object]


def thinks(ask: Ask) -> bool | None:
    """Whether thinking is to be on; None when that is left to the model."""
    wanted = ask.reasoning
    if wanted.mode == "off" or wanted.effort == "off":
        return False
    asked = wanted.effort is not None or wanted.budget is not None
    return True if wanted.mode == "on" or (wanted.mode in ("auto", "between_tools") and asked) else None


def reasoning(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """How hard to think, and what to show of it, in the row's spelling."""
    if ask.reasoning.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    level = _level(ask, quirks, offered=offered, losses=losses)
    on = thinks(ask)
    match quirks.reasoning_request:
        case "effort":
            body = _effort(level, quirks, losses)
            _unsaid(level, quirks, losses, on=on)
        case "object":
            body = _object(ask, quirks, level, losses)
        case "thinking":
            body = _thinking(quirks, level, on, losses)
        case "enable_thinking" | "template":
            if level not in (None, "off", quirks.default_effort):
                losses.append(loss_of("degraded", "reasoning.effort", "this endpoint can only switch thinking on and off"))
            switch: Body = {} if on is None else {"enable_thinking": on}
            nested = quirks.reasoning_request == "template" and switch
            body = {"chat_template_kwargs": switch} if nested else switch
    return _shown(ask, quirks, body, losses)


def _level(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> str | None:
    """The effort on our scale; None when nothing was said."""
    wanted = ask.reasoning
    level: str | None = "off" if wanted.mode == "off" else wanted.effort
    if level is None and wanted.budget is not None and quirks.reasoning_request != "object":
        level = effort_for(wanted.budget)
        losses.append(loss_of("degraded", "reasoning.budget", f"this endpoint has efforts only; sent as {level!r}"))
    silent = level == "off" or (level is None and quirks.default_effort in ("", "off"))
    if offered and not quirks.effort_with_tools and not silent:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes tools only while it does not reason"))
        return "off"
    return level


def _effort(level: str | None, quirks: Quirks, losses: list[Loss]) -> Body:
    if level is None:
        return {}
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return {}
    if quirks.efforts == ("off",) and level != "off":
        losses.append(loss_of("dropped", "reasoning.effort", "this model can only be told not to reason"))
        return {}
    return {"reasoning_effort": _word(level, quirks, losses)}


def _unsaid(level: str | None, quirks: Quirks, losses: list[Loss], *, on: bool | None) -> None:
    """Report that thinking was to be on and nothing says so, where the model would not think by itself."""
    if on and level is None and not quirks.thinks_unasked and quirks.default_effort in ("", "off"):
        losses.append(loss_of("dropped", "reasoning.mode", "this endpoint has no switch for it; name an effort", name="on"))


def _word(level: str, quirks: Quirks, losses: list[Loss]) -> str:
    found = nearest_effort(level, quirks.efforts or SCALE, losses)
    return "none" if found == "off" else found


def _object(ask: Ask, quirks: Quirks, level: str | None, losses: list[Loss]) -> Body:
    wanted = ask.reasoning
    body: Body = {}
    if wanted.mode in ("on", "off"):
        body["enabled"] = wanted.mode == "on"
    if wanted.budget is not None:
        body["max_tokens"] = wanted.budget
        if wanted.effort is not None:
            losses.append(loss_of("dropped", "reasoning.effort", "this endpoint takes it or a budget, not both"))
    elif level is not None and wanted.mode != "off":
        body["effort"] = _word(level, quirks, losses)
    return {"reasoning": body} if body else {}


def _thinking(quirks: Quirks, level: str | None, on: bool | None, losses: list[Loss]) -> Body:
    body: Body = {}
    kind = "enabled" if on else "disabled"
    if on is not None and kind in quirks.thinking_modes:
        body["thinking"] = {"type": kind}
    elif on is False:
        losses.append(
            loss_of("degraded", "reasoning.mode", "this model always thinks; the least effort is asked for", name="off")
        )
    else:
        _unsaid(level, quirks, losses, on=on)
    if level is None or (level == "off" and "thinking" in body):
        return body
    return body | _effort(level, quirks, losses)


def _shown(ask: Ask, quirks: Quirks, body: Body, losses: list[Loss]) -> Body:
    show = ask.reasoning.show
    if not show:
        return body
    if quirks.reasoning_display:
        report_length(ask, losses)
    match quirks.reasoning_display:
        case "format":
            return {**body, "reasoning_format": "hidden" if show == "omitted" else "parsed"}
        case "exclude":
            ours = body.get("reasoning")
            known = ours if isinstance(ours, dict) else {}
            return {**body, "reasoning": {**known, "exclude": True}} if show == "omitted" else body
        case _:
            losses.append(loss_of("dropped", "reasoning.show", "this endpoint decides itself what it shows"))
            return body


def choice(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """The fields `tool_choice` and `parallel_tool_calls`, neither of which may be sent without tools."""
    wanted = ask.choice
    if not offered:
        if wanted.stated and wanted.mode in ("auto", "none"):
            losses.append(loss_of("dropped", "tool_choice", "there are no tools to choose from"))
        report_choice(ask, losses)
        return {}
    body = side_by_side(ask, quirks, losses)
    value = _choice(ask, quirks, losses)
    return {**body, "tool_choice": value} if value != "auto" or wanted.stated else body


def _choice(ask: Ask, quirks: Quirks, losses: list[Loss]) -> object:
    wanted = ask.choice
    names = meant_tools(ask, quirks, losses)
    forced = wanted.mode == "required" or (wanted.mode == "named" and len(names) == 1)
    busy = thinks(ask) or (quirks.thinks_unasked and thinks(ask) is None)
    if forced and not (quirks.forced_choice and (quirks.forced_choice_thinking or not busy)):
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    if wanted.mode == "named":
        return _named(ask, names, quirks, losses)
    mode = quirks.required_word if wanted.mode == "required" else wanted.mode
    if not names or mode == "none":
        return mode
    if not quirks.tool_subsets:
        losses.append(loss_of("degraded", "tool_choice", "this endpoint has no subsets; every tool is offered"))
        return mode
    tools = [_called(ask, quirks, name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _called(ask: Ask, quirks: Quirks, name: str) -> Body:
    """A tool as a choice names it."""
    free = [tool.name for tool in ask.tools if isinstance(tool, ToolSpec) and tool.free is not None and quirks.custom_tools]
    kind = "custom" if any(wire_name(one, quirks.name_length) == name for one in free) else "function"
    return {"type": kind, kind: {"name": name}}


def _named(ask: Ask, names: list[str], quirks: Quirks, losses: list[Loss]) -> object:
    if len(names) != 1:
        return "auto"
    if not quirks.named_choice:
        losses.append(loss_of("degraded", "tool_choice", "this endpoint cannot force one tool; it must call some tool"))
        return quirks.required_word
    return _called(ask, quirks, names[0])


def sampling(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Temperature and its kin, stop sequences and the seed."""
    settings = ask.settings
    body = heat(ask, quirks, losses)
    if settings.top_k is not None:
        _send(body, "top_k" if quirks.top_k else "", "top_k", settings.top_k, losses)
    if settings.seed is not None:
        _send(body, quirks.seed_field, "seed", settings.seed, losses)
    legal = [text for text in settings.stop if text and len(text.encode()) <= (quirks.stop_bytes or len(text.encode()))]
    if len(legal) < len(settings.stop):
        losses.append(loss_of("dropped", "setting.stop", "an empty stop sequence, or one that is too long, is rejected"))
    stops = legal[: quirks.stops]
    if len(stops) < len(legal):
        losses.append(loss_of("dropped", "setting.stop", f"{len(settings.stop)} sequences, the endpoint takes {quirks.stops}"))
    return {**body, **({"stop": stops} if stops else {})}


def _send(body: Body, field: str, name: str, value: int, losses: list[Loss]) -> None:
    if field:
        body[field] = value
    else:
        losses.append(loss_of("dropped", f"setting.{name}", "this endpoint has none"))


def output_format(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `response_format`."""
    shape = answer_shape(ask, quirks, losses)
    if "schema" not in shape:
        return {"response_format": shape} if shape else {}
    return {"response_format": {"type": shape.pop("type"), "json_schema": shape}}
