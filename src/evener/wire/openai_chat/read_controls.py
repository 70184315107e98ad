"""Takes tool choice, sampling, reasoning and output format out of a request: `controls.py`, the other way round. Pure.

Only the row's own spelling is understood; what is spelled otherwise stays in the body, and goes out again as it came.
"""

import msgspec

from evener.transcript.ask import Choice, OutputSchema, Reasoning, Settings
from evener.wire.efforts import SCALE
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, read_fields

__all__ = ["read_choice", "read_output", "read_reasoning", "read_settings"]

CALLED = ("function", "custom")
MODES = {"auto": "auto", "required": "required", "any": "required", "none": "none"}


def read_choice(body: Fields, quirks: Quirks) -> Choice:
    """Which tools may or must be called."""
    parallel = body.flag("parallel_tool_calls")
    word = body.peek("tool_choice")
    if word in MODES and (MODES[word] != "required" or word == quirks.required_word):
        body.take("tool_choice")
        return msgspec.convert({"mode": MODES[word], "parallel": parallel, "stated": True}, Choice)
    own = body.peek_fields("tool_choice")
    kind = own.peek("type")
    found: dict[str, object] | None = None
    if kind in ("", *CALLED) and own.is_object(kind or "function"):
        found = _named(own, kind or "function")
    elif kind == "allowed_tools":
        found = _subset(own)
    if found is None:
        return Choice(parallel=parallel)  # a choice that only this wire knows stays in `extra`
    body.put_rest("tool_choice", own)
    return msgspec.convert({**found, "parallel": parallel, "stated": True}, Choice)


def _named(own: Fields, kind: str) -> dict[str, object] | None:
    """The one tool that must be called, taken out of the choice."""
    inner = own.peek_fields(kind)
    name = inner.text("name")
    if not name:
        return None
    own.put_rest(kind, inner)
    if own.is_text("type"):
        own.take("type")
    return {"mode": "named", "names": [name]}


def _subset(own: Fields) -> dict[str, object] | None:
    """The tools that may be called. The choice stays where it is, too, unless it names functions and nothing else."""
    inner = own.peek_fields("allowed_tools")
    tools = [read_fields(raw) for raw in inner.peek_items("tools") if bytes(raw)[:1] == b"{"]
    names = [name for tool in tools for kind in CALLED if (name := tool.peek_fields(kind).peek("name"))]
    mode = MODES.get(inner.peek("mode"))
    if not names:
        return None
    if mode and len(names) == len(inner.peek_items("tools")) and len(inner.rest()) == 2 and len(own.rest()) == 2:
        own.take("type")
        own.take("allowed_tools")
    return {"mode": mode or "auto", "names": names}


def read_settings(body: Fields, quirks: Quirks) -> Settings:
    """Sampling and limits."""
    limit = _limit(body, quirks)
    seed = body.whole(quirks.seed_field) if quirks.seed_field else None
    stop = (body.text("stop"),) if body.is_text("stop") else tuple(body.texts("stop"))
    return Settings(
        max_output_tokens=limit,
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        top_k=body.whole("top_k") if quirks.top_k else None,
        stop=stop,
        seed=seed,
    )


def _limit(body: Fields, quirks: Quirks) -> int | None:
    """The output limit, under its new or its old name. Under the one that the row does not write it stays, too, as it was."""
    for name in ("max_completion_tokens", "max_tokens"):
        raw = body.peek_raw(name)
        limit = body.limit(name)
        if limit is not None:
            if name != quirks.output_field:
                body.put(name, bytes(raw).decode())
            return limit
    return None


def read_output(body: Fields) -> OutputSchema | None:
    """The shape of the answer."""
    own = body.peek_fields("response_format")
    inner = own.peek_fields("json_schema")
    if own.peek("type") == "json_object":
        found = OutputSchema()
    elif own.peek("type") == "json_schema" and inner.is_object("schema"):
        schema = inner.take_object("schema", "{}")
        found = OutputSchema(schema, inner.text("name"), inner.text("description"), inner.flag("strict"))
        own.put_rest("json_schema", inner)
    else:
        return None
    own.take("type")
    body.put_rest("response_format", own)
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
    if not body.is_object("reasoning"):
        return
    own = body.peek_fields("reasoning")
    _effort(own, "effort", found)
    if "effort" not in found:
        found["budget"] = own.whole("max_tokens", 0)
    on = own.flag("enabled")
    if on is not None:
        found["mode"] = "on" if on else "off"
    if quirks.reasoning_display == "exclude" and bytes(own.peek_raw("exclude")) == b"true":
        own.take("exclude")
        found["show"] = "omitted"
    body.put_rest("reasoning", own)


def _switch(body: Fields, found: dict[str, object]) -> None:
    if not body.is_object("thinking"):
        return
    own = body.peek_fields("thinking")
    kind = own.peek("type")
    if kind in ("enabled", "disabled"):
        own.take("type")
        found["mode"] = "on" if kind == "enabled" else "off"
    body.put_rest("thinking", own)
