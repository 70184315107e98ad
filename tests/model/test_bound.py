"""What a request can be at most: everything that is sent counts, and the past is not measured again."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from evener.model import Model, open_model
from evener.model.bound import EACH, IMAGE, OVERHEAD, most_prompt, writes_for_an_hour
from evener.transcript.ask import Ask, Cache, OutputSchema, Settings, ToolSpec
from evener.transcript.blocks import DocumentBlock, ImageBlock, Inline, Origin, Remote, Stored, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript
from tests.model.stage import NOWHERE

HERE = Origin(provider="p", model="m")


def ask(*messages: Message, system: str = "", **more: object) -> Ask:
    return Ask(Transcript(messages, system), HERE, **more)  # type: ignore[arg-type]


def user(*blocks: object) -> Message:
    return Message("user", blocks)  # type: ignore[arg-type]


LONG = "x" * 700
CASES = {
    "text": ask(user(TextBlock(LONG))),
    "characters of three bytes": ask(user(TextBlock("中" * 234))),
    "system": ask(system=LONG),
    "description": ask(tools=(ToolSpec("t", LONG),)),
    "schema of a tool": ask(tools=(ToolSpec("t", schema=f'{{"type":"object","description":"{LONG}"}}'),)),
    "schema of the answer": ask(output=OutputSchema(f'{{"type":"object","description":"{LONG}"}}')),
    "result": ask(user(ToolResult("c", (TextBlock(LONG),)))),
    "arguments": ask(Message("assistant", (ToolCall.of("c", "t", {"a": LONG}),))),
}


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_sent_is_counted_in_bytes(case: str) -> None:
    assert 700 <= most_prompt(CASES[case]) - most_prompt(ask()) < 900


@pytest.mark.parametrize(
    ("block", "most"),
    [
        (ImageBlock(Inline("aGk="), "image/png"), IMAGE),
        (DocumentBlock(Inline("A" * 40_000), "application/pdf"), 30_000),
        (DocumentBlock(Stored("0" * 64, 70_000), "application/pdf"), 70_000),
        (DocumentBlock(Remote("https://example.org/a.pdf"), "application/pdf"), 100_000),
    ],
    ids=["an image", "a document", "a stored one", "one of unknown size"],
)
def test_media_count_too(block: object, most: int) -> None:
    assert most_prompt(ask(user(block))) == OVERHEAD + EACH + most
    assert most_prompt(ask(user(ToolResult("c", (block,))))) == OVERHEAD + 2 * EACH + most  # type: ignore[arg-type]


COUNTED = Usage(5_000, 5_000, 0, 0, 300)


def answered(origin: Origin | None = HERE, usage: Usage | None = COUNTED) -> Message:
    return Message("assistant", (TextBlock("so"),), origin=origin, usage=usage)


def test_what_the_provider_has_counted_is_not_measured_again() -> None:
    def bound(past: int) -> int:
        messages = [user(TextBlock(LONG)) for _ in range(past)]
        return most_prompt(ask(*messages, answered(), user(TextBlock("and?"))))

    assert bound(1) == bound(1_000)
    assert 5_300 < bound(1) - OVERHEAD < 5_500


@pytest.mark.parametrize(
    "last", [answered(None), answered(replace(HERE, model="other")), answered(usage=None), answered(usage=Usage())]
)
def test_what_somebody_else_has_counted_is(last: Message) -> None:
    assert most_prompt(ask(user(TextBlock(LONG)), last)) > most_prompt(ask(last)) + 700


def test_nothing_is_larger_than_the_window() -> None:
    assert most_prompt(ask(user(TextBlock(LONG * 100))), 8_000) == 8_000


@pytest.mark.parametrize(
    ("asked", "hour"),
    [
        (ask(cache=Cache("moving")), False),
        (ask(cache=Cache("moving", ttl="1h")), True),
        (ask(tools=(ToolSpec("t", cache="1h"),)), True),
        (ask(user(TextBlock("x", cache="1h"))), True),
        (replace(ask(), transcript=Transcript((), (TextBlock("x", cache="1h"),))), True),
    ],
)
def test_marks_for_an_hour_are_seen(asked: Ask, *, hour: bool) -> None:
    assert writes_for_an_hour(asked) is hour


# Prices.


def model(name: str = "anthropic:claude-opus-4-5") -> Model:
    return open_model(name, environ=NOWHERE, key="k")


def test_input_counts_at_the_dearest_rate() -> None:
    """Writing to the cache costs more than not to use it, and for an hour still more."""
    one = model()
    plain = one.ask(Transcript([Message.user_text(LONG * 100)]), settings=Settings(max_output_tokens=1))
    hour = replace(plain, cache=Cache("moving", ttl="1h"))
    tokens = Decimal(most_prompt(plain))
    assert one.most_cost(plain) / tokens > Decimal("6.2") / 1_000_000
    assert one.most_cost(hour) / tokens > Decimal("9.9") / 1_000_000


def test_a_shortened_answer_fits_also_where_long_prompts_cost_more() -> None:
    one = model("google:gemini-2.5-pro")
    long = one.ask(Transcript([Message.user_text(LONG * 500)]))
    money = one.most_cost(replace(long, settings=Settings(max_output_tokens=5_000)))
    short = one.capped(long, money)
    assert short is not None
    assert short.settings.max_output_tokens == 5_000
    assert one.most_cost(short) <= money


def test_a_model_of_which_nothing_is_known_does_not_answer_for_nothing() -> None:
    one = model("xai:grok-4")
    assert one.most_cost(one.ask(Transcript([Message.user_text("x")]))) > Decimal("0.2")
