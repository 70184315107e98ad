"""What the two wires of OpenAI write and read alike: sampling, the shape of the answer, tools, grouped messages. Pure."""

from collections.abc import Iterable

import msgspec

from evener.transcript.ask import Ask, FreeText, OutputSchema, ToolSpec
from evener.transcript.blocks import Block, CacheTtl, Origin
from evener.transcript.loss import OUTPUT, Loss, loss_of
from evener.transcript.message import Message, Role
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, message_id
from evener.wire.request import Setting, hold_number, short_id, wire_name
from evener.wire.schema import OPENAI_STRICT
from evener.wire.tool_schema import enforce_schema, report_description

Body = dict[str, object]
LONGEST_KEY = 64  # sheet 11 of Responses


TEMPERATURE = Setting("temperature", "temperature", 2, hold_number)
TOP_P = Setting("top_p", "top_p", 1, hold_number)


def refused_settings(ask: Ask, quirks: Quirks) -> dict[str, str]:
    """Return the settings that the model rejects, and why."""
    refused = quirks.sampling == "none" or (quirks.sampling == "thinking_off" and _thinks(ask, quirks))
    return dict.fromkeys(("temperature", "top_p"), "this model rejects it") if refused else {}


def _thinks(ask: Ask, quirks: Quirks) -> bool:
    """True if the model will reason: it is not off, or cannot be. A budget is sent as an effort, never as off."""
    wanted = ask.reasoning
    if wanted.mode != "off" and wanted.effort is None and wanted.budget is not None:
        return True
    off = wanted.mode == "off" or (wanted.effort or quirks.default_effort) == "off"
    return not off or bool(quirks.efforts and "off" not in quirks.efforts)


def write_output_shape(output: OutputSchema, quirks: Quirks, losses: list[Loss]) -> Body:
    """Return the format that the answer must have; empty when none can be asked for."""
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
    """Return the field `parallel_tool_calls`."""
    if ask.choice.parallel is None:
        return {}
    if not quirks.parallel_switch:
        losses.append(loss_of("dropped", "tool_choice.parallel", "this endpoint has none"))
        return {}
    return {"parallel_tool_calls": ask.choice.parallel}


# The other direction. One wire puts the facts of a tool or a shape into an object of their own, the other beside its type: then
# `inner` is `own`.


def read_output_shape(own: Fields, inner: Fields) -> OutputSchema | None:
    """Take the shape of the answer; None, and nothing taken, when it is of no known form. `inner` holds its schema."""
    match own.peek("type"):
        case "json_object":
            own.take("type")
            return OutputSchema()
        case "json_schema" if inner.is_object("schema"):
            own.take("type")
            schema = inner.take_object("schema", "{}")
            return OutputSchema(schema, inner.text("name"), inner.text("description"), inner.flag("strict"))
        case _:
            return None


def read_function(own: Fields, inner: Fields, maker: Origin, cache: CacheTtl = "") -> ToolSpec:
    """Return the tool of a declaration; fields that are not known stay with it."""
    schema = inner.take_object("parameters", '{"type":"object","properties":{}}')
    name, description, strict = inner.carried_text("name"), inner.said("description"), inner.flag("strict")
    if inner is not own and inner.rest():
        own.put("function", inner.rest_text())
    return ToolSpec(name, description, schema, strict, own.rest_text(), maker.wire, cache, maker.provider)


def read_custom(own: Fields, inner: Fields, maker: Origin) -> ToolSpec:
    """Return a tool that takes free text. A format that is no grammar stays among its fields."""
    shape = inner.peek_fields("format")
    nested = inner is not own
    grammar = shape.peek_fields("grammar") if nested else shape
    free = FreeText()
    if shape.peek("type") == "grammar" and grammar.is_text("definition"):
        free = FreeText(grammar.peek("syntax"), grammar.peek("definition"))
        if grammar.is_text("syntax") and (len(shape.rest()), len(grammar.rest())) == ((2, 2) if nested else (3, 3)):
            inner.take("format")
    name, description = inner.carried_text("name"), inner.said("description")
    if nested:
        own.put_rest("custom", inner)
    return ToolSpec(name, description, extra=own.rest_text(), wire=maker.wire, provider=maker.provider, free=free)


def group_messages(items: Iterable[tuple[Role, str, tuple[Block, ...], msgspec.Raw]], maker: Origin) -> list[Message]:
    """Return the messages of items, each with its role, group and blocks. Consecutive items of one group are one message."""
    messages: list[Message] = []
    before = ""
    for number, (role, group, blocks, raw) in enumerate(items):
        if group and group == before:
            messages[-1] = msgspec.structs.replace(messages[-1], blocks=(*messages[-1].blocks, *blocks))
        else:
            origin = maker if role == "assistant" else None
            messages.append(Message(role, blocks, id=message_id(number, raw), created_at=None, origin=origin))
        before = group
    return messages
