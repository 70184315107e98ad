"""Runs whose events the tests encode: of a harness with a scripted model, in this process, without a socket."""

from collections.abc import Sequence
from pathlib import Path

from evener import Harness, tool
from evener import streaming as st
from evener.errors import EvenerError
from evener.harness import Thread
from evener.harness.stream import RunStream
from evener.testing import ScriptedModel
from evener.testing.scripted_model import Script, calls
from evener.tools import ToolContext
from evener.transcript import ToolCall
from evener.web.app import PageEncoder
from evener.web.messages import Frame

ERASE = calls(ToolCall("c1", "erase", '{"path":"/x"}'), text="I will.")
LOOK = calls(ToolCall("c1", "look", '{"city":"Oslo"}'), text="I look.")


@tool(approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@tool(effect="read")
def look(city: str) -> str:
    """Look."""
    return f"snow in {city}"


@tool
async def wait(context: ToolContext[object]) -> str:
    """Wait."""
    await context.cancelled.until_set()
    return "stopped"


def harness_of(script: Script, *, store: str | Path = "memory") -> Harness:
    return Harness(ScriptedModel(script), tools=[erase, look, wait], store=store)


async def encode_run(run: RunStream, encoder: PageEncoder) -> list[Frame]:
    """Return all frames of a run."""
    found: list[Frame] = []
    async with run:
        async for event in run:
            found += encoder.encode(event)
    return found


async def ask(thread: Thread, encoder: PageEncoder, prompt: str = "Go.") -> list[Frame]:
    return await encode_run(thread.stream(prompt), encoder)


PLACE = st.Place(run="r1", thread="t1")


def encode_all(encoder: PageEncoder, *events: st.StreamEvent) -> list[Frame]:
    """Return the frames of events that no run gives at will, such as a retraction at some place."""
    return [frame for event in events for frame in encoder.encode(event)]


def begin(number: int = 1) -> Sequence[st.StreamEvent]:
    return (
        st.RunStarted(place=PLACE, sequence=1, model="m"),
        st.RequestStarted(place=PLACE, sequence=2, model="m", number=number),
    )


def request(number: int = 2) -> st.StreamEvent:
    return st.RequestStarted(place=PLACE, sequence=9, model="m", number=number)


def text(words: str) -> st.StreamEvent:
    return st.TextStreamed(place=PLACE, sequence=3, text=words)


def thought(words: str) -> st.StreamEvent:
    return st.ReasoningStreamed(place=PLACE, sequence=3, text=words)


def arguments(call: str, words: str = "", tool: str = "look") -> st.StreamEvent:
    return st.ArgumentsStreamed(place=PLACE, sequence=3, call=call, tool=tool, text=words)


def retracted() -> st.StreamEvent:
    return st.Retracted(place=PLACE, sequence=4, why="it broke")


def omitted() -> st.StreamEvent:
    return st.Omitted(place=PLACE, sequence=4, pieces=2, characters=9)


def failed(error: EvenerError) -> st.StreamEvent:
    return st.RunFailed(place=PLACE, sequence=5, error=error)
