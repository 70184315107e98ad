"""Edits of a recording, as somebody could plant them: each gives another recording that could not have happened."""

from collections.abc import Callable, Iterator
from random import Random

from msgspec.structs import replace

from evener import events as ev
from evener.replay.moments import begins
from evener.transcript.blocks import Block, TextBlock, ToolCall
from evener.transcript.reply import Stop

__all__ = ["EDITS", "Events", "garbled", "planted"]

Events = tuple[ev.Event, ...]
Edit = Callable[[ev.Event], ev.Event | None]


def planted(events: Events, edit: str, random: Random) -> Events | None:
    """The recording with one edit of this kind at some place; None when there is no such place."""
    found = list(EDITS[edit](events))
    return random.choice(found) if found else None


def _each(change: Edit) -> Callable[[Events], Iterator[Events]]:
    """The recording with one event changed: for every event that can be."""

    def changed(events: Events) -> Iterator[Events]:
        for place, event in enumerate(events):
            made = change(event)
            if made is not None and not begins(_after(events, place)):
                yield (*events[:place], made, *events[place + 1 :])

    return changed


def _after(events: Events, place: int) -> ev.Event | None:
    return events[place + 1] if place + 1 < len(events) else None


def _blocks(event: ev.Event, change: Callable[[ToolCall], Block]) -> ev.Event | None:
    if not isinstance(event, ev.Replied) or not event.message.calls or event.output or event.problems:
        return None
    call = event.message.calls[-1]
    blocks = tuple(change(block) if block is call else block for block in event.message.blocks)
    return replace(event, message=replace(event.message, blocks=blocks))


def _other_arguments(event: ev.Event) -> ev.Event | None:
    return _blocks(event, lambda call: replace(call, raw='{"x":"other"}'))


def _other_tool(event: ev.Event) -> ev.Event | None:
    return _blocks(event, lambda call: replace(call, name="sell"))


def _words_for_a_call(event: ev.Event) -> ev.Event | None:
    return _blocks(event, lambda call: TextBlock(f"I would call {call.name}."))


def _other_stop(event: ev.Event) -> ev.Event | None:
    ends = isinstance(event, ev.Replied) and event.stop.reason == "done" and not event.message.calls and not event.problems
    return replace(event, stop=Stop("refusal")) if ends and isinstance(event, ev.Replied) else None


def _other_model(event: ev.Event) -> ev.Event | None:
    return replace(event, model="nobody:asked") if isinstance(event, ev.Configured) else None


def _other_key(event: ev.Event) -> ev.Event | None:
    return replace(event, key="0" * 32) if isinstance(event, ev.CallStarted) else None


def _other_digest(event: ev.Event) -> ev.Event | None:
    return replace(event, digest="0" * 64) if isinstance(event, ev.CallStarted) else None


def _dropped(events: Events) -> Iterator[Events]:
    for place, event in enumerate(events):
        wanted = ev.ModelCalled | ev.Replied | ev.CallStarted | ev.CallFinished | ev.ApprovalAsked | ev.ModelFailed
        if isinstance(event, wanted) and not begins(_after(events, place)):
            yield (*events[:place], *events[place + 1 :])


def _doubled(events: Events) -> Iterator[Events]:
    for place, event in enumerate(events):
        if isinstance(event, ev.ModelCalled | ev.Replied | ev.CallFinished | ev.Finished):
            yield (*events[: place + 1], *events[place:])


def _swapped(events: Events) -> Iterator[Events]:
    ours = ev.ModelCalled | ev.Replied | ev.CallStarted | ev.CallFinished | ev.Finished
    for place in range(len(events) - 1):
        one, other = events[place], events[place + 1]
        if isinstance(one, ours) and isinstance(other, ours) and type(one) is not type(other):
            yield (*events[:place], other, one, *events[place + 2 :])


def garbled(events: Events, others: Events, random: Random) -> Events:
    """The recording with a few events lost, moved, repeated, or from elsewhere: nothing that could have been written."""
    found = list(events)
    for _ in range(random.randint(1, 6)):
        place, other = random.randrange(len(found)), random.randrange(len(found))
        match random.randrange(5):
            case 0 if len(found) > 1:
                found.pop(place)
            case 1:
                found[place], found[other] = found[other], found[place]
            case 2:
                found.insert(place, random.choice(others))
            case 3:
                found[place] = random.choice(others)
            case _:
                found[place:place] = found[place : place + 5]
    return tuple(found)


EDITS: dict[str, Callable[[Events], Iterator[Events]]] = {
    "other arguments": _each(_other_arguments),
    "another tool": _each(_other_tool),
    "words for a call": _each(_words_for_a_call),
    "another stop": _each(_other_stop),
    "another model": _each(_other_model),
    "another key": _each(_other_key),
    "another digest": _each(_other_digest),
    "an event dropped": _dropped,
    "an event doubled": _doubled,
    "two events swapped": _swapped,
}
