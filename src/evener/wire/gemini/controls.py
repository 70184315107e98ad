"""Thinking, tool choice, sampling and output: the neutral words in those of Gemini. Pure tables and small functions."""

from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.loss import OUTPUT, Loss, loss_of
from evener.wire.efforts import effort_for, nearest_effort, report_length
from evener.wire.enforced import report_description
from evener.wire.gemini.names import function_name
from evener.wire.gemini.parts import WIRE, camel_fields
from evener.wire.gemini.tools import fitted
from evener.wire.quirks import Quirks
from evener.wire.request import output_limit, report_choice, within
from evener.wire.text import fields

__all__ = ["JSON", "LEVELS", "choice", "generation"]

JSON = "application/json"
LEVELS = ("minimal", "low", "medium", "high")
BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": 24_576}  # above that, the most there is
MOST_STOPS = 5  # sheet 2
MODES = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}
AUTO_BUDGET = -1

Body = dict[str, object]
NEUTRAL = {"temperature": "temperature", "topP": "top_p", "topK": "top_k"}


def generation(ask: Ask, quirks: Quirks, losses: list[Loss], *, functions: bool) -> Body:
    """The field `generationConfig`."""
    limit = output_limit(ask, quirks, losses)
    body = {"maxOutputTokens": limit} if limit is not None else {}
    thinking = _thinking(ask, quirks, losses)
    return {
        **body,
        **_sampling(ask, quirks, losses),
        **_output(ask, quirks, losses, functions=functions),
        **({"thinkingConfig": thinking} if thinking else {}),
    }


def _sampling(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    settings = ask.settings
    body: Body = {}
    if settings.temperature is not None:
        body["temperature"] = within("temperature", settings.temperature, 2, losses)
    if settings.top_p is not None:
        body["topP"] = within("top_p", settings.top_p, 1, losses)
    if settings.top_k is not None:
        body["topK"] = within("top_k", settings.top_k, float("inf"), losses)
    if body and quirks.sampling == "none":
        losses += (loss_of("dropped", f"setting.{NEUTRAL[name]}", "this model does not heed it") for name in body)
        body = {}
    if settings.seed is not None:
        body["seed"] = settings.seed
    stops = [text for text in settings.stop if text]
    if len(stops) < len(settings.stop):
        losses.append(loss_of("dropped", "setting.stop", "an empty stop sequence is rejected"))
    if stops:
        body["stopSequences"] = stops[:MOST_STOPS]
    if len(stops) > MOST_STOPS:
        losses.append(loss_of("dropped", "setting.stop", f"this wire takes {MOST_STOPS} sequences; the rest was left out"))
    return body


def _output(ask: Ask, quirks: Quirks, losses: list[Loss], *, functions: bool) -> Body:
    output = ask.output
    if output is None:
        return {}
    report_description(output, losses)
    if functions and not quirks.output_beside:
        losses.append(loss_of("degraded", "output.schema", "this model takes none beside functions; ask for it in the prompt"))
        return {}
    if _gives_schema(ask):
        return {"responseMimeType": JSON}
    if output.schema and quirks.output_schema:
        schema, told = fitted(output.schema, quirks, OUTPUT)
        losses += told
        return {"responseMimeType": JSON, "responseJsonSchema" if quirks.json_schemas else "responseSchema": schema}
    if not quirks.json_mode:
        losses.append(loss_of("degraded", "output.schema", "this model has no such mode; ask for the shape in the prompt"))
        return {}
    if output.schema:
        losses.append(loss_of("degraded", "output.schema", "this model takes none; any JSON is asked for"))
    return {"responseMimeType": JSON}


def _gives_schema(ask: Ask) -> bool:
    """Whether the caller's own fields hold a schema: there can be only one, under either name."""
    configs = [fields(extra.body).get("generationConfig") for extra in ask.extra if extra.is_for(WIRE, ask.target.provider)]
    given = {name for config in configs if config and bytes(config)[:1] == b"{" for name in camel_fields(config)}
    return bool(given & {"responseSchema", "responseJsonSchema"})


def _thinking(ask: Ask, quirks: Quirks, losses: list[Loss]) -> Body:
    wanted = ask.reasoning
    body: Body = {}
    if wanted.mode == "between_tools":
        losses.append(loss_of("dropped", "reasoning.mode", "this wire has no such mode", name="between_tools"))
    effort = "off" if wanted.mode == "off" else wanted.effort
    if quirks.thinking_control == "level":
        body = _level(effort, wanted.budget, quirks, losses)
        unsaid = not body and not quirks.thinks_unasked and quirks.default_effort in ("", "off")
        if wanted.mode == "on" and effort is None and unsaid:
            losses.append(
                loss_of("dropped", "reasoning.mode", "this model has levels and no switch; name an effort", name="on")
            )
    elif quirks.thinking_control == "budget":
        body = _budget(effort, wanted.budget, quirks, losses, on=wanted.mode == "on")
    elif effort not in (None, "off") or wanted.budget is not None or wanted.mode == "on":
        losses.append(loss_of("dropped", "reasoning.mode", "this model does not think"))
    if wanted.show and quirks.show and quirks.thinking_control != "none":
        body["includeThoughts"] = wanted.show != "omitted"
        report_length(ask, losses)
    elif wanted.show not in ("", "omitted"):
        losses.append(loss_of("dropped", "reasoning.show", "this model shows none"))
    return body


def _level(effort: str | None, budget: int | None, quirks: Quirks, losses: list[Loss]) -> Body:
    if effort is None and budget is not None:
        effort = effort_for(budget) if budget else "off"
        losses.append(loss_of("degraded", "reasoning.budget", f"this model has levels only; {budget} tokens are {effort!r}"))
    if effort is None:
        return {}
    if not quirks.effort:
        losses.append(loss_of("dropped", "reasoning.effort", "this model takes none"))
        return {}
    return {"thinkingLevel": nearest_effort(effort, quirks.efforts or LEVELS, losses).upper()}


def _budget(effort: str | None, budget: int | None, quirks: Quirks, losses: list[Loss], *, on: bool) -> Body:
    if effort == "off":
        wanted = 0
    elif budget is not None:
        wanted = budget
    elif effort is not None:
        wanted = min(BUDGETS.get(effort, quirks.most_budget), quirks.most_budget)
    else:
        return {"thinkingBudget": AUTO_BUDGET} if on else {}
    held = max(quirks.least_budget, min(wanted, quirks.most_budget))
    if held != wanted:
        losses.append(
            loss_of("degraded", "reasoning.budget", f"this model takes {quirks.least_budget} to {quirks.most_budget}")
        )
    return {"thinkingBudget": held}


def choice(ask: Ask, quirks: Quirks, *, functions: bool, losses: list[Loss]) -> Body:
    """The field `functionCallingConfig` of `toolConfig`."""
    wanted = ask.choice
    if not functions:
        report_choice(ask, losses)
        return {}
    if wanted.parallel is False:
        losses.append(loss_of("dropped", "tool_choice.parallel", "this wire has none"))
    mode, names = _mode(ask, quirks, losses)
    if mode == "AUTO" and not wanted.stated:
        return {}
    return {"functionCallingConfig": {"mode": mode, **({"allowedFunctionNames": names} if names else {})}}


def _mode(ask: Ask, quirks: Quirks, losses: list[Loss]) -> tuple[str, list[str]]:
    wanted = ask.choice
    known = {tool.name for tool in ask.tools if isinstance(tool, ToolSpec)}
    names = [function_name(name, quirks.name_length) for name in wanted.names if name in known]
    mode = MODES[wanted.mode]
    if mode == "ANY" and not quirks.forced_choice:
        losses.append(loss_of("degraded", "tool_choice", "this model cannot be forced to call; it may choose"))
        mode = "AUTO"
    if len(names) < len(wanted.names) or (wanted.mode == "named" and len(names) != 1):
        losses.append(loss_of("degraded", "tool_choice", "a named tool is not offered"))
        mode = "AUTO" if not names else mode
    if mode == "AUTO":
        mode = _checked(ask, quirks, losses, narrowed=bool(names))
    return mode, names if mode in ("ANY", "VALIDATED") else []


def _checked(ask: Ask, quirks: Quirks, losses: list[Loss], *, narrowed: bool) -> str:
    """Strict tools, and a choice that is narrowed to some, are a mode of their own: for all functions or for none."""
    strict = {tool.name: tool.strict for tool in ask.tools if isinstance(tool, ToolSpec)}
    if not any(strict.values()) and not narrowed:
        return "AUTO"
    if not quirks.strict:
        losses += (
            loss_of("dropped", "tool.strict", "this model enforces no schemas", name=name) for name, on in strict.items() if on
        )
        if narrowed:
            losses.append(loss_of("degraded", "tool_choice", "this model has no subsets; every tool is offered"))
        return "AUTO"
    why = "this wire enforces the schemas of all functions or of none; here, of all"
    losses += (loss_of("degraded", "tool.strict", why, name=name) for name, on in strict.items() if not on)
    return "VALIDATED"
