"""`make demo`: one conversation moves from wire to wire, offline, and tells what each hop costs."""

import msgspec

from evener.providers.rows import Rows, load_rows
from evener.transcript.ask import Ask, Cache, Reasoning, Settings, ToolSpec
from evener.transcript.blocks import ReasoningBlock, TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.origin import Origin, Seal
from evener.transcript.transcript import Transcript
from evener.translate import origin, retarget
from evener.wire import CODECS

__all__ = ["main"]

WIDTH = 160
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
    ask = Ask(
        conversation(first),
        first,
        (WEATHER,),
        settings=Settings(max_output_tokens=4096),
        reasoning=Reasoning("low"),
        cache=Cache("moving"),
    )
    for wire in (*wires, wires[0]):
        ask = retarget(ask, _target(wire, rows))
        provider = next(row for row in rows.providers if row.wire == wire)
        encoded = CODECS[wire].encode(ask, rows.quirks(provider.name, ask.target.model), None)
        print(f"\n=== {wire}, {ask.target.model}: POST {encoded.path}, {len(encoded.body)} bytes")
        _show(encoded.body)
        for loss in encoded.losses:
            print(f"  loss: {loss}")
        if not encoded.losses:
            print("  nothing was lost")
    print("\nBack on the first wire the signed thinking goes out again, byte for byte: nothing before it has changed.")
    return 0


def _show(body: bytes) -> None:
    """A request, one line for each field and each item of a list."""
    for name, value in msgspec.json.decode(body, type=dict[str, object]).items():
        if isinstance(value, list):
            print(f"  {name}:")
            for item in value:
                print(f"    {_line(item)}")
        else:
            print(f"  {name}: {_line(value)}")


def _line(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= WIDTH else text[:WIDTH] + " ..."


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
