"""Scripted conversations that every client must hold alike, whatever the wire: the vendors' SDKs, and our own.

A conversation is what the fake server says, what the user says, and what must have come out in the end. Nothing in it belongs
to a wire; a driver performs it on one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evener.testing import Call, Text, Thinking, Tokens, Turn, turn

Json = dict[str, Any]
WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")


@dataclass(frozen=True)
class ToolDefinition:
    """A tool of the client's. `parameters` is a closed JSON Schema, so that every wire may take it strictly."""

    name: str
    description: str
    parameters: Json
    run: Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Conversation:
    """`texts`: the final answer to each input. `calls`: name and arguments of all calls, in their order."""

    name: str
    script: tuple[Turn, ...]
    inputs: tuple[str, ...]
    texts: tuple[str, ...]
    calls: tuple[tuple[str, Json], ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    schema: Json | None = None
    thinking: bool = False
    system: str = "Be brief."


@dataclass
class Outcome:
    """What a client got out of a conversation."""

    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, Json]] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    usage: list[tuple[int, int]] = field(default_factory=list)
    """Input and output tokens of each answer, cached and reasoning ones included."""


def closed(**properties: Json) -> Json:
    """An object schema that every provider takes strictly."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


WEATHER = ToolDefinition(
    "get_weather",
    "The weather in a city",
    closed(city={"type": "string"}),
    lambda arguments: f"{len(arguments['city'])} degrees in {arguments['city']}",
)
ADD = ToolDefinition(
    "add",
    "Adds two numbers",
    closed(a={"type": "integer"}, b={"type": "integer"}),
    lambda arguments: str(arguments["a"] + arguments["b"]),
)
PERSON = closed(name={"type": "string"}, age={"type": "integer"}, city={"type": "string"})
ADA = {"name": "Ada", "age": 36, "city": "London"}

CONVERSATIONS = (
    Conversation(
        name="text",
        script=(turn("Hello, nice to meet you."),),
        inputs=("Hi!",),
        texts=("Hello, nice to meet you.",),
    ),
    Conversation(
        name="several_turns",
        script=(turn("One."), turn("Two."), turn("Three.")),
        inputs=("First?", "Then?", "And last?"),
        texts=("One.", "Two.", "Three."),
    ),
    Conversation(
        name="letters_of_all_kinds",
        script=(turn(Text('Zoë said: "\u4f60\u597d" \\ \U0001f600\u2028\tdone\n', pieces=12)),),
        inputs=("Grüße, \u4f60\u597d \U0001f600",),
        texts=('Zoë said: "\u4f60\u597d" \\ \U0001f600\u2028\tdone\n',),
    ),
    Conversation(
        name="tool_loop",
        script=(turn(Call("add", {"a": 17, "b": 4})), turn("It is 21.")),
        inputs=("What is 17 + 4?",),
        texts=("It is 21.",),
        calls=(("add", {"a": 17, "b": 4}),),
        tools=(ADD,),
    ),
    Conversation(
        name="text_before_a_call",
        script=(turn("Let me see.", Call("get_weather", {"city": "Oslo"}, pieces=5)), turn("4 degrees.")),
        inputs=("How warm is it in Oslo?",),
        texts=("4 degrees.",),
        calls=(("get_weather", {"city": "Oslo"}),),
        tools=(WEATHER,),
    ),
    Conversation(
        name="parallel_calls",
        script=(
            turn(Call("get_weather", {"city": "Oslo"}), Call("get_weather", {"city": "Rome"}), Call("add", {"a": 1, "b": 2})),
            turn(Call("add", {"a": 4, "b": 4})),
            turn("Both have 4 degrees, 8 in all."),
        ),
        inputs=("How warm is it in Oslo and Rome, and in all?",),
        texts=("Both have 4 degrees, 8 in all.",),
        calls=(
            ("get_weather", {"city": "Oslo"}),
            ("get_weather", {"city": "Rome"}),
            ("add", {"a": 1, "b": 2}),
            ("add", {"a": 4, "b": 4}),
        ),
        tools=(WEATHER, ADD),
    ),
    Conversation(
        name="thinking_and_tools",
        script=(
            turn(Thinking("I should look it up."), Call("get_weather", {"city": "Oslo"})),
            turn(Thinking("And the other one."), Call("get_weather", {"city": "Rome"}), Call("add", {"a": 4, "b": 4})),
            turn(Thinking("Now I know."), "4 degrees in each."),
            turn(Thinking("Easy."), "Yes, the same."),
        ),
        inputs=("Compare Oslo and Rome.", "So they are the same?"),
        texts=("4 degrees in each.", "Yes, the same."),
        calls=(
            ("get_weather", {"city": "Oslo"}),
            ("get_weather", {"city": "Rome"}),
            ("add", {"a": 4, "b": 4}),
        ),
        tools=(WEATHER, ADD),
        thinking=True,
    ),
    Conversation(
        name="structured_output",
        script=(turn(json.dumps(ADA)),),
        inputs=("Ada is 36 and lives in London. Answer in JSON.",),
        texts=(json.dumps(ADA),),
        schema=PERSON,
    ),
    Conversation(
        name="usage",
        script=(turn("Cached.", usage=Tokens(input=4020, cached=4012, output=40, reasoning=30)),),
        inputs=("Again?",),
        texts=("Cached.",),
    ),
)


def target(wire: str, conversation: Conversation) -> tuple[str, str]:
    """The model to ask and the dialect to serve. OpenAI's own Chat shows no reasoning, so there another server thinks."""
    match wire:
        case "anthropic_messages":
            return "claude-opus-5-5", ""
        case "openai_responses":
            return "gpt-5.5", ""
        case "openai_chat":
            return ("deepseek-v4-pro", "deepseek") if conversation.thinking else ("gpt-4.1", "openai")
    return "gemini-3-flash-preview", ""
