"""What must be true of a log that was interrupted and went on to its end. Pure: events and effects in, violations out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.kill_world import TOOLS, Mark, World
from evener import events as ev
from evener.driver.record import UNKNOWN
from evener.loop.state import RunState, fold
from evener.transcript.blocks import TextBlock, ToolResult

__all__ = ["CHECKED", "DOUBLE", "interrupted", "violations"]

CHECKED = "Interrupted, and checked afterwards: this call took effect. What it returned is not known."
DOUBLE = "a write tool was started twice"


def violations(path: Sequence[ev.Event], effects: Sequence[Mark], world: World, *, shared: int = 0) -> list[str]:
    """Everything that is wrong, as sentences. The first `shared` events of the path lie in the log that a fork began in."""
    own = path[shared:]
    told = len(fold(path[:shared]).transcript)
    ours = {call for turn in world.turns for _, call in turn}
    acted = [mark for mark in effects if mark.call in ours]
    return [
        *_ending(fold(path), own, world, told=told),
        *_results(own, world),
        *_starts(own, acted),
        *_effects(own, acted),
        *_turns_of_sequential_tools(own, world),
    ]


def interrupted(events: Sequence[ev.Event], *, rivalled: bool = False) -> list[str]:
    """The calls that were under way when another holder took over, each as often as that happened.

    `rivalled`: only where the holder before may have been alive.
    """
    found: list[str] = []
    running: set[str] = set()
    for event in events:
        match event:
            case ev.CallStarted(call=call):
                running.add(call)
            case ev.CallFinished(call=call):
                running.discard(call)
            case ev.Resumed(rival=rival):
                found += sorted(running) if rival or not rivalled else []
                running.clear()
            case _:
                pass
    return found


def _ending(state: RunState, events: Sequence[ev.Event], world: World, *, told: int) -> Iterator[str]:
    """It ends the same, but for what an interruption leaves open. So many messages were told before."""
    if state.finished is None or state.finished.cause != "done":
        yield f"the run ended as {state.finished}"
        return
    outcome = {event.call: event for event in events if isinstance(event, ev.CallFinished)}
    said = [(message.role, tuple(_shown(block) for block in message.blocks)) for message in state.transcript.messages[told:]]
    expected: list[tuple[str, tuple[str, ...]]] = [("user", (world.prompt,))]
    for number, turn in enumerate(world.turns):
        expected.append(("assistant", (f"turn {number}", *(f"{name}({call})" for name, call in turn))))
        expected.append(("user", tuple(f"{call}: {_expected(name, call, outcome.get(call))}" for name, call in turn)))
    expected.append(("assistant", (world.ending,)))
    if said != expected:
        yield f"the conversation is {said}, not {expected}"


def _shown(block: object) -> str:
    match block:
        case ToolResult():
            return f"{block.call_id}: {block.text}"
        case TextBlock(text=text):
            return text
        case _:
            return f"{block.name}({block.id})"  # type: ignore[attr-defined] # there are calls only


def _expected(name: str, call: str, finished: ev.CallFinished | None) -> str:
    if finished is not None and finished.outcome == "unknown":
        return UNKNOWN
    text = finished.content[0] if finished is not None and finished.content else None
    if TOOLS[name].verifies and isinstance(text, TextBlock) and text.text == CHECKED:
        return CHECKED
    return f"{name} {call}"


def _results(events: Sequence[ev.Event], world: World) -> Iterator[str]:
    """Each call has one result; exactly the writes that were in flight have an unknown one."""
    finished = Counter(event.call for event in events if isinstance(event, ev.CallFinished))
    for turn in world.turns:
        for _, call in turn:
            if finished[call] != 1:
                yield f"the call {call} has {finished[call]} results"
    names = {call: name for turn in world.turns for name, call in turn}
    lost = {call for call in interrupted(events) if TOOLS[names[call]].once}
    maybe = {call for call in interrupted(events, rivalled=True) if TOOLS[names[call]].effect == "write"}
    unknown = {event.call for event in events if isinstance(event, ev.CallFinished) and event.outcome == "unknown"}
    if not lost <= unknown <= lost | maybe:
        yield f"in flight were {sorted(lost)}, perhaps {sorted(maybe)}, and unknown are {sorted(unknown)}"


def _starts(events: Sequence[ev.Event], effects: Sequence[Mark]) -> Iterator[str]:
    starts = Counter(event.call for event in events if isinstance(event, ev.CallStarted) and not event.verifying)
    names = {event.call: event.tool for event in events if isinstance(event, ev.CallStarted)}
    took = Counter(mark.call for mark in effects)
    for call, count in starts.items():
        if TOOLS[names[call]].once and (count > 1 or took[call] > 1):
            yield f"{DOUBLE}: {names[call]} {call} has {count} starts and {took[call]} effects"
    keys = {(event.call, event.key) for event in events if isinstance(event, ev.CallStarted)}
    if len(keys) != len(names):
        yield f"a call had two keys: {sorted(keys)}"
    lasting = [mark for mark in effects if TOOLS[mark.tool].effect != "read"]  # a brief read runs before its start is on disk
    if {(mark.call, mark.key) for mark in lasting} - keys:
        yield "an effect has a key that no start has"


def _effects(events: Sequence[ev.Event], effects: Sequence[Mark]) -> Iterator[str]:
    """What has a result took effect: once if it must, and never more often than it was started.

    A brief read runs before its start is on disk, so each life may have run it once more.
    """
    lives = sum(isinstance(event, ev.Resumed) for event in events)
    took = Counter(mark.call for mark in effects)
    starts = Counter(event.call for event in events if isinstance(event, ev.CallStarted) and not event.verifying)
    names = {event.call: event.tool for event in events if isinstance(event, ev.CallStarted)}
    for event in events:
        if not isinstance(event, ev.CallFinished):
            continue
        kind, count = TOOLS[names[event.call]], took[event.call]
        least = 0 if event.outcome == "unknown" else 1
        most = 1 if kind.effect == "write" else starts[event.call] + (lives if kind.effect == "read" else 0)
        if not least <= count <= most:
            yield f"{names[event.call]} {event.call} took effect {count} times, not {least} to {most}"


def _turns_of_sequential_tools(events: Sequence[ev.Event], world: World) -> Iterator[str]:
    serial = {call for turn in world.turns if any(TOOLS[name].sequential for name, _ in turn) for _, call in turn}
    running: set[str] = set()
    for event in events:
        match event:
            case ev.CallStarted(call=call) if call in serial:
                if running - {call}:
                    yield f"{call} was started while {sorted(running)} went on"
                running.add(call)
            case ev.CallFinished(call=call):
                running.discard(call)
            case ev.Resumed():
                running.clear()
            case _:
                pass
