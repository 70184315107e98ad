"""A run whose events are not read: it goes on, its events stay within bounds, and its reader is told what was left out."""

import asyncio
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from evener import Harness, Limits, tool
from evener import streaming as st
from evener.errors import UsageError
from evener.harness.stream import RunStream
from evener.result import RunResult
from evener.testing.scripted_model import ScriptedModel, calls, says
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.delta import Delta, TextDelta

BOUND = 8 << 20
PLACE = st.Place("r", "t")


class Chatty(ScriptedModel):
    """Says one text in so many pieces, a thousand at a time, as a provider that is quick."""

    def __init__(self, pieces: int, piece: str) -> None:
        super().__init__(lambda _: says(piece * pieces))
        self.pieces, self.piece = pieces, piece
        self.most = 1000

    def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
        made = super().stream(ask, after=after)
        whole, left = made.read, self.pieces

        async def read() -> list[Delta]:
            nonlocal left
            await asyncio.sleep(0)
            if left:
                many = min(left, self.most)
                left -= many
                return [TextDelta(0, self.piece)] * many
            found = await whole()
            return await whole() if found and isinstance(found[0], TextDelta) else found

        made.read = read  # type: ignore[method-assign]
        return made


async def unread(model: ScriptedModel) -> tuple[RunResult, list[st.StreamEvent]]:
    """The result of a run that was not watched, and the events that were there to be read when it had ended."""
    stream = Harness(model, store="memory").stream("Go.")
    result = await stream.result()
    return result, [event async for event in stream]


def text_of(events: list[st.StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, st.TextStreamed))


def test_pieces_that_are_not_read_are_joined_and_none_of_their_text_is_lost() -> None:
    result, events = asyncio.run(unread(Chatty(20_000, "abc ")))
    assert result.text == text_of(events) == "abc " * 20_000
    assert len(events) < 3_000
    numbers = [event.sequence for event in events]
    assert numbers == sorted(set(numbers))
    assert isinstance(events[-1], st.RunFinished)


def test_a_reader_that_keeps_up_sees_each_piece() -> None:
    async def go() -> list[st.StreamEvent]:
        async with Harness(Chatty(10_000, "abc "), store="memory").stream("Go.") as stream:
            return [event async for event in stream]

    assert [event.text for event in asyncio.run(go()) if isinstance(event, st.TextStreamed)] == ["abc "] * 10_000


def test_what_exceeds_the_bound_is_left_out_and_counted_and_the_message_is_whole() -> None:
    result, events = asyncio.run(unread(Chatty(30_000, "x" * 300)))
    [gap] = [event for event in events if isinstance(event, st.Omitted)]
    assert gap.pieces > 0
    assert len(text_of(events)) + gap.characters == 9_000_000
    [turn] = [event for event in events if isinstance(event, st.TurnFinished)]
    assert turn.message.text == result.text == "x" * 9_000_000
    assert [type(event) for event in events[-3:]] == [st.Omitted, st.TurnFinished, st.RunFinished]


def test_a_piece_larger_than_the_bound_is_shown_to_a_reader_that_keeps_up() -> None:
    async def go() -> list[st.StreamEvent]:
        async with Harness(Chatty(1, "x" * 9_000_000), store="memory").stream("Go.") as stream:
            return [event async for event in stream]

    assert len(text_of(asyncio.run(go()))) == 9_000_000


def test_a_reader_that_catches_up_sees_pieces_again_behind_the_gap() -> None:
    class Paused(Chatty):
        """Waits for the reader in the middle."""

        def __init__(self) -> None:
            super().__init__(40_000, "x" * 300)
            self.waits, self.read = asyncio.Event(), asyncio.Event()

        def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
            made = super().stream(ask, after=after)
            inner, told = made.read, 0

            async def read() -> list[Delta]:
                nonlocal told
                if told == 20:
                    self.waits.set()
                    await self.read.wait()
                told += 1
                found: list[Delta] = await inner()
                return found

            made.read = read
            return made

    async def go() -> list[str]:
        model = Paused()
        async with Harness(model, store="memory").stream("Go.") as stream:
            kinds: list[str] = []
            await model.waits.wait()
            async for event in stream:
                if isinstance(event, st.Omitted):
                    model.read.set()
                kinds.append(type(event).__name__)
            return kinds

    kinds = asyncio.run(go())
    assert kinds.index("TextStreamed") < kinds.index("Omitted")
    assert "TextStreamed" in kinds[kinds.index("Omitted") :]


@pytest.mark.parametrize("stop", ["cancelled", "limit"])
def test_a_reader_that_does_not_read_holds_up_neither_a_cancellation_nor_a_limit(stop: str) -> None:
    begun = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def go() -> RunResult:
        model = ScriptedModel([calls(ToolCall.of("c", "wait", {})), "Done."])
        limits = Limits(seconds=1.0) if stop == "limit" else Limits()
        stream = Harness(model, tools=[wait], store="memory", limits=limits).stream("Go.")
        if stop == "cancelled":
            await begun.wait()
            await stream.cancel("enough")
        return await stream.result()

    assert asyncio.run(go()).stop == stop


def text(number: int) -> st.StreamEvent:
    return st.TextStreamed(place=PLACE, sequence=number, text=f"word {number} ")


def reasoning(number: int) -> st.StreamEvent:
    kind = st.TextStreamed if number % 2 else st.ReasoningStreamed
    return kind(place=PLACE, sequence=number, text=f"word {number} ")


def arguments(number: int) -> st.StreamEvent:
    return st.ArgumentsStreamed(place=PLACE, sequence=number, call=f"c{number % 3}", tool="pay", text=f'"a": {number}, ')


def agents(number: int) -> st.StreamEvent:
    return st.TextStreamed(place=st.Place(f"r{number % 5}", "t"), sequence=number, text=f"word {number} ")


def wide(number: int) -> st.StreamEvent:
    return st.TextStreamed(place=PLACE, sequence=number, text=f"{number} \N{TEACUP WITHOUT HANDLE}\N{GRINNING FACE}")


def output(number: int) -> st.StreamEvent:
    return st.OutputStreamed(place=PLACE, sequence=number, value={"text": "x" * number})


def progress(number: int) -> st.StreamEvent:
    return st.ToolProgressed(place=PLACE, sequence=number, call="c", text=f"step {number}")


MANY: dict[str, tuple[Callable[[int], st.StreamEvent], int]] = {
    "text": (text, 100_000),
    "text and reasoning in turn": (reasoning, 100_000),
    "arguments of three calls": (arguments, 100_000),
    "texts of five agents": (agents, 100_000),
    "text that is not ASCII": (wide, 100_000),
    "structured output": (output, 10_000),
    "progress of a tool": (progress, 100_000),
}


def made(name: str) -> Iterator[st.StreamEvent]:
    kind, many = MANY[name]
    return map(kind, range(1, many + 1))


async def cost(name: str) -> tuple[int, int]:
    """The bytes that are held of so many events that were shown and not read, and how many events they are then."""

    async def start(show: Callable[[st.StreamEvent], None]) -> RunResult:
        for event in made(name):
            show(event)
        raise UsageError("It ends here.")

    async def say(_: str, __: dict[str, object]) -> None:
        return

    tracemalloc.start()
    stream = RunStream(start, say)
    await asyncio.wait((stream._task,))
    stream._task.exception()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held, len([event async for event in stream])


@pytest.mark.parametrize("name", MANY)
def test_events_that_are_not_read_hold_eight_megabytes_at_most(name: str) -> None:
    program = "import asyncio, sys\nfrom tests.harness.test_unread import cost\nprint(*asyncio.run(cost(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    held, _ = map(int, done.stdout.split())
    assert held < BOUND, f"{held / 1e6:.1f} MB"
