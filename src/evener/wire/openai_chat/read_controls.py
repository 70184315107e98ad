"""Takes tool choice, sampling, reasoning and output format out of a request: `controls.py`, the other way round. Pure.

Only the row's own spelling is understood; what is spelled otherwise stays in the body, and goes out again as it came.
"""

import msgspec

from evener.transcript.ask import Choice, OutputSchema, Reasoning, Settings
from evener.wire.efforts import SCALE
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, raw_text, read_fields

__all__ = ["read_choice", "read_output", "read_reasoning", "read_settings"]

MODES = {"auto": "auto", "required": "required", "any": "required", "none": "none"}


def read_choice(body: Fields, quirks: Quirks) -> Choice:
    """Which tools may or must be called."""
    parallel = body.flag("parallel_tool_calls")
    word = body.peek("tool_choice")
    if word in MODES and (MODES[word] != "required" or word == quirks.required_word):
        body.take("tool_choice")
        return msgspec.convert({"mode": MODES[word], "parallel": parallel, "stated": True}, Choice)
    if bytes(body.peek_raw("tool_choice"))[:1] != b"{":
        return Choice(parallel=parallel)
    own = read_fields(body.peek_raw("tool_choice"))
    found: dict[str, object] | None = None
    if own.peek("type") in ("", "function") and own.has("function"):
        name = read_fields(own.peek_raw("function")).peek("name")
        found = {"mode": "named", "names": [name]}
    elif own.peek("type") == "allowed_tools" and own.has("allowed_tools"):
        found = _subset(read_fields(own.peek_raw("allowed_tools")))
    if found is None:
        return Choice(parallel=parallel)  # a choice that only this wire knows stays in `extra`
    body.take("tool_choice")
    return msgspec.convert({**found, "parallel": parallel, "stated": True}, Choice)


def _subset(own: Fields) -> dict[str, object] | None:
    tools = [read_fields(raw) for raw in own.items("tools")]
    names = [read_fields(tool.peek_raw("function")).peek("name") for tool in tools if tool.has("function")]
    mode = MODES.get(own.peek("mode"))
    return {"mode": mode, "names": names} if mode and names and len(names) == len(tools) else None


def read_settings(body: Fields, quirks: Quirks) -> Settings:
    """Sampling and limits."""
    limit = body.limit("max_completion_tokens")
    older = body.limit("max_tokens") if limit is None else None
    seed = body.whole(quirks.seed_field) if quirks.seed_field else None
    stop = (body.text("stop"),) if body.is_text("stop") else tuple(body.texts("stop"))
    return Settings(
        max_output_tokens=older if limit is None else limit,
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        top_k=body.whole("top_k") if quirks.top_k else None,
        stop=stop,
        seed=seed,
    )


def read_output(body: Fields) -> OutputSchema | None:
    """The shape of the answer."""
    if not body.has("response_format"):
        return None
    own = read_fields(body.peek_raw("response_format"))
    found = None
    if own.peek("type") == "json_object" and len(own.rest()) == 1:
        found = OutputSchema()
    elif own.peek("type") == "json_schema" and own.rest().keys() == {"type", "json_schema"}:
        inner = read_fields(own.peek_raw("json_schema"))
        schema = raw_text(inner.take("schema"), "")
        name, description, strict = inner.text("name"), inner.text("description"), inner.flag("strict")
        found = OutputSchema(schema, name, description, strict) if schema and not inner.rest() else None
    if found:
        body.take("response_format")
    return found


def read_reasoning(body: Fields, quirks: Quirks) -> Reasoning:
    """How the model should think."""
    found: dict[str, object] = {"mode": "default"}
    match quirks.reasoning_request:
        case "effort":
            _effort(body, "reasoning_effort", found)
        case "object":
            _object(body, quirks, found)
        case "thinking":
            _effort(body, "reasoning_effort", found)
            _switch(body, found)
        case "enable_thinking":
            on = body.flag("enable_thinking")
            found |= {} if on is None else {"mode": "on" if on else "off"}
        case "template":
            pass  # of a template's settings, all stay where they are
    if quirks.reasoning_display == "format" and body.peek("reasoning_format") in ("parsed", "hidden"):
        found["show"] = "summary" if body.text("reasoning_format") == "parsed" else "omitted"
    return msgspec.convert(found, Reasoning)


def _effort(own: Fields, field: str, found: dict[str, object]) -> None:
    word = own.peek(field)
    level = "off" if word == "none" else word
    if level in SCALE and word != "off":
        own.take(field)
        found["effort"] = level


def _object(body: Fields, quirks: Quirks, found: dict[str, object]) -> None:
    if not body.has("reasoning"):
        return
    own = read_fields(body.take("reasoning"))
    _effort(own, "effort", found)
    if "effort" not in found:
        found["budget"] = own.whole("max_tokens")
    on = own.flag("enabled")
    if on is not None:
        found["mode"] = "on" if on else "off"
    if quirks.reasoning_display == "exclude" and bytes(own.peek_raw("exclude")) == b"true":
        own.take("exclude")
        found["show"] = "omitted"
    if own.rest():
        body.put("reasoning", own.rest_text())


def _switch(body: Fields, found: dict[str, object]) -> None:
    if not body.has("thinking"):
        return
    own = read_fields(body.take("thinking"))
    kind = own.peek("type")
    if kind in ("enabled", "disabled"):
        own.take("type")
        found["mode"] = "on" if kind == "enabled" else "off"
    if own.rest():
        body.put("thinking", own.rest_text())
