"""A Gemini request as an Ask: the other direction, for translation, tests and the gateway. Pure.

Fields may be spelled in camel case or with underscores; they are read alike, and go out again in camel case. What has no
neutral word is kept, not refused: unknown fields of the body are `extra`. Model and streaming stand in the path, not here.
"""

import msgspec

from evener.errors import WireError
from evener.transcript.ask import Ask, Choice, Extra, HostedTool, OutputSchema, Reasoning, Settings, State, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.origin import Origin, Seal
from evener.transcript.transcript import Transcript
from evener.wire.dialects import GEMINI_JSON
from evener.wire.gemini.controls import JSON, LEVELS
from evener.wire.gemini.parts import WIRE, as_list, camel_fields, camel_object
from evener.wire.gemini.tools import older_schema, read_tools
from evener.wire.gemini.turns import Turns
from evener.wire.quirks import Quirks
from evener.wire.reading import Fields, raw_text, reading
from evener.wire.schemas import transform

__all__ = ["read_request"]

SYSTEM, CONFIG, CHOICE, CALLING = "systemInstruction", "generationConfig", "toolConfig", "functionCallingConfig"


def read_request(body: bytes, quirks: Quirks, target: Origin | None = None) -> Ask:
    """The ask behind a request. `target` says whom it was for, the model included; its seals then count as that provider's."""
    with reading("a Gemini request"):
        return _Reader(Fields(camel_fields(body)), quirks, target or Origin()).ask()


class _Reader:
    def __init__(self, body: Fields, quirks: Quirks, target: Origin) -> None:
        self.body = body
        self.quirks = quirks
        self.target = Origin(WIRE, target.provider, target.endpoint, target.model, target.account)

    def ask(self) -> Ask:
        body = self.body
        if not body.has("contents"):
            raise WireError("Expected a Gemini request, but there are no contents. Check which wire the body is for.")
        turns = Turns(self.target)
        messages = [turns.message(number, raw) for number, raw in enumerate(as_list(body.take("contents")))]
        choice = camel_object(body, CHOICE)
        config = camel_object(body, CONFIG)
        calling = camel_object(choice, CALLING)
        tools = self._tools(strict=True if calling.peek("mode") == "VALIDATED" else None)
        ask = Ask(
            transcript=Transcript(messages, self._system()),
            target=self.target,
            tools=tools,
            choice=_choice(calling, tools),
            settings=_settings(config),
            reasoning=self._reasoning(config),
            output=self._output(config),
            state=State(),
            stream=False,
        )
        _put(choice, CALLING, calling)
        _put(body, CHOICE, choice)
        _put(body, CONFIG, config)
        rest = body.rest_text()
        return msgspec.structs.replace(ask, extra=(Extra(WIRE, rest, provider=self.target.provider),)) if rest else ask

    def _system(self) -> list[TextBlock]:
        """The system prompt; what is not plain text stays in `extra`."""
        if self.body.is_text(SYSTEM):
            return [TextBlock(self.body.text(SYSTEM))]
        own = camel_object(self.body, SYSTEM)
        raws = as_list(own.take("parts")) if own.has("parts") else []
        parts = [Fields(camel_fields(raw)) for raw in raws if bytes(raw)[:1] == b"{"]
        if not parts or len(parts) < len(raws) or not all(part.is_text("text") for part in parts):
            return []
        self.body.put_rest(SYSTEM, own)
        return [self._system_part(part) for part in parts]

    def _system_part(self, own: Fields) -> TextBlock:
        text = own.text("text")
        return TextBlock(text, seal=Seal(own.rest_text(), self.target) if own.rest() else None)

    def _tools(self, *, strict: bool | None) -> tuple[ToolSpec | HostedTool, ...]:
        if not self.body.has("tools"):
            return ()
        entries = as_list(self.body.take("tools"))
        return tuple(tool for entry in entries for tool in read_tools(entry, self.quirks, self.target.provider, strict=strict))

    def _reasoning(self, config: Fields) -> Reasoning:
        found: dict[str, object] = {"mode": "default"}
        own = camel_object(config, "thinkingConfig")
        level = own.peek("thinkingLevel")
        if level.lower() in LEVELS:
            found["effort"] = own.text("thinkingLevel").lower()
        budget = _whole(own, "thinkingBudget")
        if budget is not None:
            found |= {"mode": "off"} if budget == 0 else {"mode": "on"} if budget < 0 else {"mode": "on", "budget": budget}
        shown = own.flag("includeThoughts")
        if shown is not None:
            found["show"] = "summary" if shown else "omitted"
        _put(config, "thinkingConfig", own)
        return msgspec.convert(found, Reasoning)

    def _output(self, config: Fields) -> OutputSchema | None:
        """The shape of the answer. A schema that would go out differently stays in `extra`, too."""
        if config.peek("responseMimeType") != JSON:
            return None
        if config.is_object("responseSchema"):
            return OutputSchema(older_schema(raw_text(config.peek_raw("responseSchema"), "{}")))
        config.take("responseMimeType")
        if not config.is_object("responseJsonSchema"):
            return OutputSchema()
        schema = raw_text(config.peek_raw("responseJsonSchema"), "{}")
        if self.quirks.json_schemas and transform(schema, GEMINI_JSON)[0] == schema:
            config.take("responseJsonSchema")
        return OutputSchema(schema)


def _put(holder: Fields, name: str, own: Fields) -> None:
    """Put what is left of an object in its place; one that was empty or no object stays as it is."""
    if holder.is_object(name) and bytes(holder.peek_raw(name)) != b"{}":
        holder.put_rest(name, own)


def _whole(own: Fields, name: str, least: int | None = None) -> int | None:
    """A whole number, not below `least`; also one that is written with a point. Anything else stays where it is."""
    try:
        value = msgspec.json.decode(own.peek_raw(name), type=int | float | None)
    except msgspec.ValidationError:
        return None
    if value is None or (isinstance(value, float) and not value.is_integer()) or (least is not None and value < least):
        return None
    if isinstance(value, int):  # else it goes back as it was written
        own.take(name)
    return int(value)


def _settings(config: Fields) -> Settings:
    return Settings(
        max_output_tokens=_whole(config, "maxOutputTokens", 1),
        temperature=config.number("temperature"),
        top_p=config.number("topP"),
        top_k=_whole(config, "topK"),
        stop=tuple(config.texts("stopSequences")),
        seed=_whole(config, "seed"),
    )


def _choice(own: Fields, tools: tuple[ToolSpec | HostedTool, ...]) -> Choice:
    """Which functions may or must be called; what has no neutral word stays in `extra`."""
    if not any(isinstance(tool, ToolSpec) for tool in tools):
        return Choice()
    mode = own.peek("mode")
    if mode not in ("AUTO", "VALIDATED", "ANY", "NONE"):
        return Choice()
    own.take("mode")
    names = own.texts("allowedFunctionNames") if mode in ("VALIDATED", "ANY") else []
    match mode:
        case "ANY":
            return Choice("named" if len(names) == 1 else "required", tuple(names), stated=True)
        case "NONE":
            return Choice("none", stated=True)
        case _:
            return Choice("auto", tuple(names), stated=True)
