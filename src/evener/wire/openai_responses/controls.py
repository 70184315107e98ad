"""Reasoning, tool choice, output format and state: the neutral words in those of Responses. Pure tables and small functions."""

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.loss import Loss, loss_of
from evener.wire.efforts import effort_for, nearest_effort
from evener.wire.names import wire_name
from evener.wire.openai_words import answer_shape, heat, legal_key, meant_tools, side_by_side
from evener.wire.quirks import Quirks
from evener.wire.request import report_choice

__all__ = ["cache_key", "choice", "output_format", "reasoning", "sampling", "state"]

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
    if wanted.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    if wanted.mode == "on" and effort is None and wanted.budget is None and not _thinks_unasked(quirks):
        losses.append(loss_of("degraded", "reasoning.mode", "this wire cannot switch it on; the model's own default is used"))
    if found := _effort(effort, wanted.budget, quirks, losses):
        body["effort"] = "none" if found == "off" else found
    if wanted.show in SHOWN:
        if quirks.show:
            body["summary"] = SHOWN[wanted.show]
        else:
            losses.append(loss_of("dropped", "reasoning.show", "this endpoint shows none"))
    return {"reasoning": body} if body else {}


def _effort(effort: str | None, budget: int | None, quirks: Quirks, losses: list[Loss]) -> str:
    """The level to send; empty for none."""
    if effort is None and budget is None:
        return ""
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort" if effort else "reasoning.budget", "this model takes none"))
        return ""
    if budget is not None and effort != "off":
        effort = effort or effort_for(budget)
        losses.append(loss_of("degraded", "reasoning.budget", f"this wire has efforts only; sent as {effort!r}"))
    return nearest_effort(effort or "off", quirks.efforts or EFFORTS, losses)


def _thinks_unasked(quirks: Quirks) -> bool:
    return bool(quirks.thinks_unasked) or quirks.default_effort not in ("", "off")


def choice(ask: Ask, quirks: Quirks, *, offered: bool, losses: list[Loss]) -> Body:
    """The fields `tool_choice` and `parallel_tool_calls`."""
    wanted = ask.choice
    if not offered:
        report_choice(ask, losses)
        return {"tool_choice": wanted.mode} if wanted.stated and wanted.mode in ("auto", "none") else {}
    body = side_by_side(ask, quirks, losses)
    value = _choice(ask, quirks, losses)
    if value != "auto" or wanted.stated:
        body["tool_choice"] = value
    return body


def _choice(ask: Ask, quirks: Quirks, losses: list[Loss]) -> object:
    wanted = ask.choice
    if wanted.mode in ("required", "named") and not quirks.forced_choice:
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        return "auto"
    names = meant_tools(ask, quirks, losses)
    if wanted.mode == "named":
        return _called(ask, names[0], quirks) if len(names) == 1 else "auto"
    if names and wanted.mode != "none":
        tools = [_called(ask, name, quirks) for name in names]
        return {"type": "allowed_tools", "mode": wanted.mode, "tools": tools}
    return wanted.mode


def _called(ask: Ask, name: str, quirks: Quirks) -> Body:
    """A tool that the client runs, as a choice names it."""
    for tool in ask.tools if quirks.custom_tools else ():
        if isinstance(tool, ToolSpec) and wire_name(tool.name, quirks.name_length) == name:
            bare = wire_name(tool.bare_name, quirks.name_length)
            return {"type": "custom" if tool.free else "function", "name": bare}
    return {"type": "function", "name": name}


def sampling(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """Temperature and its kin."""
    settings = ask.settings
    body = heat(ask, quirks, losses)
    for name, given in (("top_k", settings.top_k), ("seed", settings.seed), ("stop", settings.stop or None)):
        if given is not None:
            losses.append(loss_of("dropped", f"setting.{name}", "this wire has none"))
    return body


def output_format(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `text.format`, or what stands for it."""
    shape = answer_shape(ask, quirks, losses)
    if not shape:
        return {}
    if quirks.schema_field == "text":
        return {"text": {"format": shape}}
    inner = {name: value for name, value in shape.items() if name != "type"}
    return {"response_format": {"type": shape["type"], **({"json_schema": inner} if inner else {})}}


def state(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The fields `store`, `include` and those that name state on the server."""
    wanted = ask.state
    body: Body = {}
    if wanted.store is not None and quirks.store:
        body["store"] = wanted.store
    elif wanted.store:
        losses.append(loss_of("dropped", "state.store", "this endpoint keeps no answers"))
    if wanted.id and wanted.mode == "chain":
        body["previous_response_id"] = wanted.id
    elif wanted.id and wanted.mode == "conversation":
        body["conversation"] = wanted.id
    if wanted.sealed is not False and quirks.sealed:
        body["include"] = [ENCRYPTED]
    elif wanted.sealed:
        losses.append(loss_of("dropped", "state.sealed", "this endpoint hands out no encrypted reasoning"))
    if (wanted.mode != "replay" and not quirks.store) or (wanted.mode == "conversation" and not quirks.conversation):
        losses.append(
            loss_of(
                "degraded", "state.mode", "this endpoint keeps no state; what the provider holds is not sent", name=wanted.mode
            )
        )
        body.pop("previous_response_id", None)
        body.pop("conversation", None)
    return body


def cache_key(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    """The field `prompt_cache_key`."""
    if ask.cache.key and not quirks.cache_key:
        losses.append(loss_of("dropped", "cache.key", "this endpoint takes none"))
        return {}
    return {"prompt_cache_key": legal_key(ask, losses)} if ask.cache.key else {}
