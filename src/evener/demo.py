"""`make demo`: one conversation moves from wire to wire, offline, and tells what each hop costs."""

import msgspec

from evener.providers.rows import Rows, load_rows
from evener.transcript.ask import Ask, Cache, Settings, ToolSpec
from evener.transcript.blocks import ReasoningBlock, TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.origin import Origin, Seal
from evener.transcript.transcript import Transcript
from evener.translate import origin, retarget
from evener.wire import CODECS

__all__ = ["main"]

MODELS = {
    "anthropic_messages": "claude-opus-4-5",
    "openai_responses": "gpt-5.1",
    "openai_chat": "gpt-4.1",
    "gemini": "gemini-3-flash",
}
WEATHER = ToolSpec(
    "get_weather",
    "The weather in a city.",
    '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}',
)


def main() -> int:
    """Hop over every wire there is, and back to the first."""
    rows = load_rows()
    wires = [wire for wire in MODELS if wire in CODECS]
    first = _target(wires[0], rows)
    ask = Ask(conversation(first), first, (WEATHER,), settings=Settings(max_output_tokens=1024), cache=Cache("moving"))
    for wire in (*wires, wires[0]):
        ask = retarget(ask, _target(wire, rows))
        provider = next(row for row in rows.providers if row.wire == wire)
        encoded = CODECS[wire].encode(ask, rows.quirks(provider.name, ask.target.model), None)
        print(f"\n=== {wire}, {ask.target.model}: POST {encoded.path}, {len(encoded.body)} bytes")
        print(msgspec.json.format(encoded.body, indent=1).decode())
        for loss in encoded.losses:
            print(f"  loss: {loss}")
        if not encoded.losses:
            print("  nothing was lost")
    print("\nBack on the first wire the signed thinking goes out again, byte for byte: nothing before it has changed.")
    return 0


def _target(wire: str, rows: Rows) -> Origin:
    return origin(next(row for row in rows.providers if row.wire == wire), MODELS[wire])


def conversation(maker: Origin) -> Transcript:
    """A turn with signed thinking, two calls at once and their results, one of them an error."""
    thought = ReasoningBlock("Both cities are asked for: two calls.", Seal('{"signature":"c2lnbmVk"}', maker))
    asked = Message(
        "assistant",
        (
            thought,
            TextBlock("I will look both up."),
            ToolCall.of("toolu_01", "get_weather", {"city": "Oslo"}),
            ToolCall.of("toolu_02", "get_weather", {"city": "Atlantis"}),
        ),
        origin=maker,
    )
    return Transcript(
        [
            Message.user_text("How is the weather in Oslo and in Atlantis?"),
            asked,
            Message.tool_result("toolu_01", "4 degrees, rain"),
            Message.tool_result("toolu_02", "no such city", is_error=True),
        ],
        system="You are brief.",
    )


if __name__ == "__main__":
    raise SystemExit(main())
