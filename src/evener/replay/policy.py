"""The policy of a run, as far as its recording shows: what was asked about, denied or allowed, call by call."""

from collections.abc import Iterable, Iterator

import msgspec

from evener import events as ev
from evener.loop.plan import ApprovalGate, Judgement
from evener.loop.state import RunState
from evener.replay.tape import Tape
from evener.tools.call import digest_of
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import TextBlock, ToolCall

__all__ = [
    "gate_of",
    "run_around",
]


DENIED = "Denied"


def run_around(tape: Tape) -> list[ev.Event]:
    """The events of the run that is under way, those before and those to come."""
    first = last = tape.at
    while first > 0 and not isinstance(tape.recorded[first - 1], ev.Prompted):
        first -= 1
    while last < len(tape.recorded) and not isinstance(tape.recorded[last], ev.Prompted):
        last += 1
    return list(tape.recorded[first:last])


def gate_of(tape: Tape, state: RunState, specs: Iterable[ToolSpec], run: Iterable[ev.Event]) -> ApprovalGate:
    """Asks what was asked, denies what was denied. Digests are made anew, so that a changed call or tool is found."""
    run = list(run)
    schemas = {spec.name: spec.schema for spec in specs}
    interrupts = {event.interrupt for event in run if isinstance(event, ev.ApprovalAsked)}
    interrupts |= {one.interrupt for one in state.questions}

    def judge(call: ToolCall) -> Judgement:
        return _judged(tape, call, digest_of(call, schemas.get(call.name, "")))

    return ApprovalGate(judge if any(map(_is_ruled, run)) else None, frozenset(interrupts - {"tool"}))


def _is_ruled(event: ev.Event) -> bool:
    """Whether somebody judged calls when this happened."""
    match event:
        case ev.ApprovalAsked(interrupt="tool"):
            return True
        case ev.ApprovalAsked(interrupt="outcome", questions=questions):
            return any(question.digest for question in questions)
        case ev.CallStarted(rule=rule):
            return bool(rule)
        case ev.CallFinished():
            return bool(_rule(event)) or _text(event).startswith(DENIED)
        case _:
            return False


def _judged(tape: Tape, call: ToolCall, digest: str) -> Judgement:
    for event in _of_batch(tape.ahead()):
        match event:
            case ev.ApprovalAsked(interrupt="tool", questions=questions):
                found = next((question for question in questions if question.key == call.id), None)
                if found is not None:
                    return Judgement("ask", found.rule, found.why, digest)
            case ev.CallStarted(call=id, rule=rule) if id == call.id:
                return Judgement(_asked(tape, call), rule, "", digest)
            case ev.CallFinished(call=id) if id == call.id:
                return _finished(tape, call, event, digest)
            case _:
                pass
    return Judgement(_asked(tape, call), "", "", digest)


def _of_batch(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Until the model is asked again."""
    for event in events:
        if isinstance(event, ev.ModelCalled | ev.Prompted):
            return
        yield event


def _asked(tape: Tape, call: ToolCall) -> str:
    """Whether it was asked about before: then it waits, or was decided."""
    for place in range(tape.at - 1, -1, -1):
        match tape.recorded[place]:
            case ev.ApprovalAsked(interrupt="tool", questions=questions):
                if any(question.key == call.id for question in questions):
                    return "ask"
            case ev.Replied() | ev.Prompted():
                break
            case _:
                pass
    return "allow"


def _finished(tape: Tape, call: ToolCall, event: ev.CallFinished, digest: str) -> Judgement:
    text, rule = _text(event), _rule(event)
    if text.startswith(DENIED):
        by = f" by the rule {rule!r}" if rule else ""
        return Judgement("deny", rule, text.removeprefix(f"{DENIED}{by}: ").removesuffix("."), digest)
    return Judgement(_asked(tape, call), rule, "", digest)


def _text(event: ev.CallFinished) -> str:
    return next((block.text for block in event.content if isinstance(block, TextBlock)), "")


def _rule(event: ev.CallFinished) -> str:
    """The rule that refused a call. In older logs it stands in the metadata, which is a tool's own where a tool has run."""
    if event.rule or '"rule"' not in event.metadata:
        return event.rule
    rule, text = msgspec.json.decode(event.metadata, type=dict[str, object]).get("rule"), _text(event)
    refused = not event.ok and text.startswith((f"{DENIED} by the rule {rule!r}", "ApprovalRejected", "ApprovalStale"))
    return rule if refused and isinstance(rule, str) else ""
