"""A long tool-using conversation, made the way a run makes one: each turn answers the request that was encoded before it.

So every seal carries the fingerprint of the prefix it was made under, and a wire that binds seals to prefixes takes them all.
"""

from collections.abc import Iterator
from functools import cache

import msgspec

from bench.streams import ARGUMENTS, SIGNATURE
from evener.transcript import (
    Ask,
    Cache,
    Message,
    Origin,
    Reasoning,
    ReasoningBlock,
    Reply,
    Seal,
    Stop,
    TextBlock,
    ToolCall,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Encoded, Quirks

__all__ = ["Turn", "ask_of", "quirks_of", "turns"]

SYSTEM = "You keep the notes of a small workshop. Be brief, be exact, and say when you do not know. " * 20
RESULT = "The note was found.\n" + "plough, bar, trace chain: three of each, one worn\n" * 5
PARAMETERS = {name: {"type": "string", "description": f"The {name} of the note."} for name in ("path", "text", "author", "day")}
TOOLS = tuple(
    ToolSpec(
        f"{verb}_note",
        f"Can {verb} one note of the workshop. Give its path, and all else that is known of it.",
        msgspec.json.encode({"type": "object", "properties": PARAMETERS, "required": ["path"]}).decode(),
    )
    for verb in "write read list move copy name mark find sort drop".split()
)
# What each wire seals a turn's thinking, and its first call, with.
THOUGHT_SEALS = {
    "anthropic_messages": '{"signature":"%s"}',
    "openai_responses": '{"id":"rs_0a4bc5e2","encrypted_content":"%s","summary":[]}',
}
CALL_SEALS = {"gemini": '{"thoughtSignature":"%s"}'}


class Turn(msgspec.Struct, frozen=True):
    """A request about to be made: the conversation so far, and the request before it."""

    transcript: Transcript
    prior: Encoded | None


@cache
def quirks_of(wire: str) -> Quirks:
    """The quirks to measure under: seals bound to their prefix where the wire knows such a thing."""
    return Quirks(prefix_bound=wire == "anthropic_messages")


def ask_of(wire: str, transcript: Transcript) -> Ask:
    """The next call: ten tools, a system prompt, thinking on, cache marks that move along."""
    target = Origin(wire=wire, provider="bench", model="a-model")
    return Ask(transcript, target, tools=TOOLS, cache=Cache("moving"), reasoning=Reasoning(effort="high"))


def turns(wire: str) -> Iterator[Turn]:
    """Every request of one endless conversation; two messages are added between one and the next."""
    transcript = Transcript((Message.user_text("Put the workshop's notes in order. " * 5),), SYSTEM)
    prior: Encoded | None = None
    number = 0
    while True:
        yield Turn(transcript, prior)
        ask = ask_of(wire, transcript)
        prior = CODECS[wire].encode(ask, quirks_of(wire), prior)
        call = f"call_{number:020d}"
        reply = _reply(wire, call)
        spoken = Message.from_assistant_response(reply, origin=ask.target, binding=prior.binding)
        transcript = transcript.extend((spoken, Message.tool_result(call, RESULT)))
        number += 1


def _reply(wire: str, call: str) -> Reply:
    thought = ReasoningBlock("The next note is due. " * 8, _seal(THOUGHT_SEALS.get(wire)))
    spoken = TextBlock("I shall write the next one.")
    return Reply((thought, spoken, ToolCall(call, "write_note", ARGUMENTS, _seal(CALL_SEALS.get(wire)))), Stop("tools"))


def _seal(form: str | None) -> Seal | None:
    return Seal(form % SIGNATURE) if form else None
