"""The prefix of a conversation stays cached on a real server: reported tokens prove it, with tools and after an eviction."""

import asyncio
from itertools import pairwise

from evener import Harness, Tool, tool
from evener.context import ContextRules
from evener.events import Event, Evicted, Limits, Replied
from evener.local import LocalTransport
from evener.loop.state import fold
from evener.model import open_model
from evener.transcript.ask import ModelSettings
from evener.transcript.blocks import ToolResult
from evener.transcript.reply import Usage

CALLING = ModelSettings(tool_choice="required", max_output_tokens=48, temperature=0.0)


@tool(effect="read")
def look(what: str) -> str:
    """Look at something."""
    return f"{what[:20]} is on the shelf."


@tool(effect="read")
def read(what: str) -> str:
    """Read something."""
    return f"{what[:20]}: " + "It was on the second shelf, behind the red box. " * 12


async def run(local: LocalTransport, work: Tool, rules: ContextRules, text: str, requests: int) -> list[Event]:
    """Return the events of a run of so many requests in which the model must call a tool each time."""
    async with local:
        limits = Limits(requests=requests, tool_calls=None, repeats=1000, repeats_stop=1000)
        model = open_model("local:smollm2", transport=local, environ={})
        harness = Harness(
            model, tools=[work], store="memory", settings=CALLING, limits=limits, context=rules, page_output=False
        )
        thread = harness.thread()
        result = await thread.run(text)
        assert (result.stop, len(result.requests)) == ("limit", requests)
        return list(await harness.store.read(thread.log))


def usages(events: list[Event]) -> list[Usage]:
    return [event.message.usage for event in events if isinstance(event, Replied) and event.message.usage]


def test_over_twenty_turns_with_tools_each_prompt_begins_with_the_cached_one_before(local: LocalTransport) -> None:
    """S1.10, S1.27: the whole of a prompt is read from the cache of the next one, and what was called is nearly all of it."""
    usage = usages(asyncio.run(run(local, look, ContextRules(), "Look at the shelf, the box and the lamp.", 20)))
    assert len(usage) == 20
    for before, now in pairwise(usage):
        assert now.cache_read >= before.input_total, "the prompt before is a prefix of this one"
    assert usage[-1].hit_rate > 0.9


def test_after_an_eviction_the_prefix_up_to_it_is_read_from_the_cache(local: LocalTransport) -> None:
    rules = ContextRules(window=2048, reserve=64, verbose=200, tail=1, compact=False, idle=0)
    events = asyncio.run(run(local, read, rules, "Read the list.", 10))
    cut = next(event for event in events if isinstance(event, Evicted))
    replied = [event.message for event in events if isinstance(event, Replied)]
    place = sum(isinstance(event, Replied) for event in events[: events.index(cut)])  # the answer to the shorter request
    first = first_cut(events, cut, [call.id for message in replied for call in message.calls])
    known, before, now = (replied[number].usage for number in (first, place - 1, place))
    assert known is not None
    assert before is not None
    assert now is not None
    # The prompt that the first result was asked for in stands before the cut, and is read; what came after it is not.
    assert known.input_total <= now.cache_read < before.input_total


def first_cut(events: list[Event], cut: Evicted, calls: list[str]) -> int:
    """Return the number of the answer whose result was cut first."""
    message = next(one for one in fold(events).transcript if one.id == cut.cuts[0].message)
    result = message.blocks[cut.cuts[0].block]
    assert isinstance(result, ToolResult)
    return calls.index(result.call_id)
