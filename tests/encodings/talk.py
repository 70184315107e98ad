"""What the tests of the encodings share: an ask with tools, how a model writes in each encoding, and ways to cut a text."""

import json
from collections.abc import Iterable, Sequence
from random import Random

from evener.encodings import EncodingName, Prepared, prepare, reader
from evener.transcript import Ask, Choice, Message, Origin, OutputSchema, Reply, StopReason, ToolSpec, Transcript
from evener.transcript.delta import Delta, Stopped, TextDelta
from evener.wire import CODECS, Quirks, assemble

TEXTUAL: tuple[EncodingName, ...] = ("json_schema", "xml", "react")
WIRES = tuple(CODECS)
SUM = '{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}'
LOOK = '{"type":"object","properties":{"at":{"type":"string"},"deep":{"type":"boolean"}},"required":["at"]}'
TOOLS = (ToolSpec("add", "Add two numbers.", SUM), ToolSpec("look", "Look at a place.", LOOK), ToolSpec("ping"))
FLAT = Quirks(any_output=True)
ASKED = Message("user", Message.user_text("What is 17 + 23?").blocks, id="m1")

Part = str | tuple[str, str]
"""A text, or a call: its name and the JSON text of its arguments."""


def asked(
    wire: str = "openai_chat",
    *,
    choice: Choice | None = None,
    output: OutputSchema | None = None,
    tools: tuple[ToolSpec, ...] = TOOLS,
    history: Sequence[Message] = (ASKED,),
) -> Ask:
    return Ask(Transcript(history, system="Be brief."), Origin(wire, "p", model="m"), tools, choice or Choice(), output=output)


def ready(
    encoding: EncodingName, *, choice: Choice | None = None, quirks: Quirks = FLAT, output: OutputSchema | None = None
) -> Prepared:
    return prepare(asked(choice=choice, output=output), quirks, encoding=encoding)


def call(encoding: EncodingName, name: str, raw: str) -> str:
    match encoding:
        case "xml":
            return f'<tool_call name="{name}">{raw}</tool_call>'
        case "react":
            return f"Action: {name}\nAction Input: {raw}"
        case _:
            return f'{{"tool": {json.dumps(name)}, "arguments": {raw}}}'


def written(encoding: EncodingName, parts: Iterable[Part]) -> str:
    """What a model writes to say this."""
    told = list(parts)
    if encoding == "json_schema" and all(isinstance(part, str) for part in told):
        return json.dumps({"answer": "".join(str(part) for part in told)})
    if encoding == "json_schema" and len(told) > 1 and not any(isinstance(part, str) for part in told):
        return '{"calls": [' + ", ".join(call(encoding, *part) for part in told if not isinstance(part, str)) + "]}"
    return "\n".join(part if isinstance(part, str) else call(encoding, *part) for part in told)


def whole(text: str) -> list[str]:
    return [text]


def single(text: str) -> list[str]:
    return list(text)


def ragged(text: str) -> list[str]:
    rest, found, random = text, [], Random(len(text))
    while rest:
        size = random.choice((1, 2, 3, 5, 8, 13))
        found.append(rest[:size])
        rest = rest[size:]
    return found


CUTS = (whole, single, ragged)


def streamed(prepared: Prepared, pieces: Iterable[str], *, stop: StopReason = "done") -> list[Delta]:
    """The deltas that the reader makes of an answer that comes in these pieces."""
    reading = reader(prepared)
    assert reading is not None
    found: list[Delta] = []
    for piece in pieces:
        found += reading.feed([TextDelta(0, piece)])
    return found + reading.feed([Stopped(stop)])


def read(prepared: Prepared, text: str, *, stop: StopReason = "done") -> Reply:
    """The reply, the same however the text is cut."""
    replies = [assemble(streamed(prepared, cut(text), stop=stop)) for cut in CUTS]
    assert replies[0] == replies[1] == replies[2]
    return replies[0]


def said(reply: Reply) -> list[Part]:
    """Texts and calls in order."""
    found: list[Part] = []
    for block in reply.blocks:
        if block.kind == "text":
            found.append(block.text)
        elif block.kind == "tool_call":
            found.append((block.name, block.raw))
    return found


def noticed(reply: Reply) -> list[str]:
    return [name for name, _ in reply.notices]
