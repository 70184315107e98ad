"""The system prompt in five parts, stable first. (S1.12, S1.27, S4.17, S4.18)"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.context import PromptContext, Scratchpad, SystemPrompt, Template, check_stable, check_unchanged, render
from evener.context.scratchpad import Appended, fold, show
from evener.errors import BadValue, UsageError
from evener.transcript import Ask, Cache, Message, Origin, TextBlock, Transcript
from evener.wire import CODECS, Encoded, Quirks, moved

NOW = PromptContext(thread="thread-1", run="run-1", at=1_790_000_000.0, deps={"tenant": "Acme"}, values={"prefs": "short"})
LATER = PromptContext(thread="thread-1", run="run-2", at=1_790_000_600.0, deps={"tenant": "Acme"}, values={"prefs": "long"})


def tenant(context: PromptContext) -> str:
    assert isinstance(context.deps, dict)
    return f"You work for {context.deps['tenant']}."


PROMPT = SystemPrompt(
    role=("You are careful.", tenant),
    tools="Look before you write.",
    output="Answer in one line.",
    constraints="Never guess.",
    context=(
        Template("Today is {date}, run {run}. They like it {prefs}. {{}}"),
        lambda context: f"It is {context.time:%H:%M}.",
    ),
)


def test_s4_17_the_five_parts_come_in_order_with_a_mark_after_the_last_stable_one() -> None:
    assert render(PROMPT, NOW) == (
        TextBlock("You are careful.\n\nYou work for Acme."),
        TextBlock("Look before you write."),
        TextBlock("Answer in one line."),
        TextBlock("Never guess.", cache="5m"),
        TextBlock("Today is 2026-09-21, run run-1. They like it short. {}\n\nIt is 14:13."),
    )


@pytest.mark.parametrize(
    ("prompt", "more", "blocks"),
    [
        (SystemPrompt(), (), ()),
        (SystemPrompt(role="A"), (), (TextBlock("A", cache="5m"),)),
        (SystemPrompt(constraints="B", cache="1h"), ("C",), (TextBlock("B", cache="1h"), TextBlock("C"))),
        (SystemPrompt(context="D"), ("", "E"), (TextBlock("D\n\nE"),)),
        (SystemPrompt(role="A", output=lambda _: "", cache=""), (), (TextBlock("A"),)),
    ],
)
def test_an_empty_part_is_left_out_and_nothing_that_changes_is_marked(
    prompt: SystemPrompt, more: tuple[str, ...], blocks: tuple[TextBlock, ...]
) -> None:
    assert render(prompt, NOW, more=more) == blocks


@pytest.mark.parametrize(
    "part",
    ["It is noon.", Template("{prefs} {thread}"), lambda context: f"{context.at} {context.deps}", ("a", Template("{run}"))],
)
def test_s4_18_a_part_is_static_dynamic_or_callable(part: object) -> None:
    first, second = (render(SystemPrompt(role="R", context=part), context) for context in (NOW, LATER))  # type: ignore[arg-type]
    assert first[0] == second[0] == TextBlock("R", cache="5m")
    assert (first[1] == second[1]) == isinstance(part, str)


# On the wire.


def encoded(wire: str, system: tuple[TextBlock, ...], messages: int = 3) -> Encoded:
    told = [
        Message("assistant" if number % 2 else "user", (TextBlock(f"m{number}"),), id=f"m{number}")
        for number in range(messages)
    ]
    ask = Ask(Transcript(told, system), Origin(wire, "p", model="m"), cache=Cache("marks"))
    return CODECS[wire].encode(ask, Quirks(), None)


def test_s1_12_on_the_wire_the_mark_stands_after_the_stable_parts_and_not_on_the_last() -> None:
    """S3.5."""
    body = encoded("anthropic_messages", render(PROMPT, NOW)).body
    stable, mark, rest = body.partition(b'"cache_control":{"type":"ephemeral"}')
    assert mark
    assert stable.rstrip(b",").endswith(b'"text":"Never guess."')
    assert b"cache_control" not in rest
    assert b"Today is" in rest


def test_s1_27_a_change_in_what_changes_leaves_the_bytes_before_it_alone() -> None:
    before, after = (encoded("anthropic_messages", render(PROMPT, context)) for context in (NOW, LATER))
    mark = b'"cache_control":{"type":"ephemeral"}'
    assert before.body != after.body
    assert before.body.partition(mark)[:2] == after.body.partition(mark)[:2]
    assert before.frame.tools == after.frame.tools
    assert before.frame.system[:4] == after.frame.system[:4]
    assert before.frame.system[4] != after.frame.system[4]
    assert moved(before, after) == ("system",)


@pytest.mark.parametrize("wire", CODECS)
def test_s1_27_on_every_wire_the_stable_parts_come_first_in_the_same_bytes(wire: str) -> None:
    bodies = [encoded(wire, render(PROMPT, context)).body for context in (NOW, LATER)]
    for body in bodies:
        places = [body.index(text) for text in (b"careful", b"Look before", b"one line", b"Never guess", b"Today is")]
        assert places == sorted(places)
    shared = next(number for number, pair in enumerate(zip(*bodies, strict=False)) if pair[0] != pair[1])
    assert b"Never guess." in bodies[0][:shared]


@pytest.mark.parametrize("wire", CODECS)
def test_the_same_prompt_gives_the_same_binding(wire: str) -> None:
    assert encoded(wire, render(PROMPT, NOW)).binding == encoded(wire, render(PROMPT, NOW)).binding


def test_the_scratchpad_rides_at_the_end() -> None:
    pad = fold([Appended("plan", "look")])
    blocks = render(PROMPT, NOW, more=[show(pad)])
    assert blocks[:4] == render(PROMPT, NOW)[:4]
    assert blocks[4].text.endswith("## Plan\n1. look")
    assert render(PROMPT, NOW, more=[show(Scratchpad())]) == render(PROMPT, NOW)


# What may not stand in a stable part.


@pytest.mark.parametrize("name", ["role", "tools", "output", "constraints"])
@pytest.mark.parametrize(
    "part",
    [
        Template("Today is {date}."),
        Template("You are in {thread}."),
        Template("This is {run}."),
        lambda context: f"At {context.at}.",
        lambda context: f"In {context.time:%Y}.",
        lambda context: f"In {context.time:%B}.",
        lambda context: f"On a {context.time:%A}.",
        lambda context: f"{context.run}",
        ("Steady.", lambda context: context.thread),
    ],
)
def test_s1_27_a_stable_part_that_tells_a_time_or_an_id_is_refused(name: str, part: object) -> None:
    with pytest.raises(UsageError, match=f"stable part '{name}' .* Move it to the part `context`"):
        check_stable(SystemPrompt(**{name: part}), NOW)  # type: ignore[arg-type]


def test_s1_27_steady_parts_pass_whatever_changes_at_the_end() -> None:
    check_stable(PROMPT, NOW)
    check_stable(PROMPT, PromptContext(deps={"tenant": "x"}, values={"prefs": ""}))
    check_unchanged(render(PROMPT, NOW), render(PROMPT, LATER))


def test_s1_27_a_part_that_changes_by_itself_is_found_between_two_renderings() -> None:
    counted: list[int] = []

    def counts(_: PromptContext) -> str:
        counted.append(1)
        return f"Rendering {len(counted)}"

    prompt = SystemPrompt(role="R", constraints=counts, context="C")
    before, after = render(prompt, NOW), render(prompt, NOW)
    with pytest.raises(UsageError, match=r"'block 2' .* from character 10 on"):
        check_unchanged(before, after)
    with pytest.raises(UsageError, match="'block 2'"):
        check_unchanged(before, render(SystemPrompt(role="R"), NOW))


def test_the_refusal_does_not_repeat_the_part() -> None:
    with pytest.raises(UsageError) as caught:
        check_stable(SystemPrompt(role=lambda context: f"s3cret {context.at}"), NOW)
    assert "s3cret" not in str(caught.value)


def test_the_context_shows_no_secrets() -> None:
    assert "Acme" not in repr(NOW)
    assert "short" not in repr(NOW)


# Values that cannot be.


async def late(_context: PromptContext) -> str:
    return "too late"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SystemPrompt(role=5), "must be a text, a template, a function"),  # type: ignore[arg-type]
        (lambda: SystemPrompt(role=("a", 5)), "must be a text, a template, a function"),  # type: ignore[arg-type]
        (lambda: SystemPrompt(role="\ud800"), "lone surrogate"),
        (lambda: SystemPrompt(cache="2h"), "must be one of"),  # type: ignore[arg-type]
        (lambda: Template("{"), "stray '{' at character 0"),
        (lambda: Template("a } b"), "stray '}' at character 2"),
        (lambda: Template("{a.b}"), "stray '{'"),
        (lambda: Template("{}"), "stray '{'"),
    ],
)
def test_a_prompt_that_cannot_be_meant_is_refused(make: object, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (lambda _: 5, "returned int"),
        (lambda _: None, "returned NoneType"),
        (lambda _: "\ud800", "lone surrogate"),
        (Template("{nobody}"), "The placeholder 'nobody' .* one of these: date, prefs, run, thread"),
    ],
)
def test_a_part_that_gives_no_text_is_refused(part: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        render(SystemPrompt(context=part), NOW)  # type: ignore[arg-type]


def test_an_async_function_is_refused_without_a_warning() -> None:
    with pytest.raises(UsageError, match="cannot be async"):
        render(SystemPrompt(role=late), NOW)  # type: ignore[arg-type]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(TEXTS, TEXTS, TEXTS, st.lists(TEXTS, max_size=3))
def test_law_rendering_is_deterministic_and_the_end_never_moves_the_beginning(
    role: str, constraints: str, ending: str, more: list[str]
) -> None:
    prompt = SystemPrompt(role=role, constraints=constraints, context=ending)
    blocks = render(prompt, NOW, more=more)
    assert blocks == render(prompt, LATER, more=tuple(more))
    bare = render(SystemPrompt(role=role, constraints=constraints), NOW)
    assert blocks[: len(bare)] == bare
    assert len(blocks) - len(bare) == bool(ending or any(more))
    assert sum(bool(block.cache) for block in blocks) == bool(bare)
