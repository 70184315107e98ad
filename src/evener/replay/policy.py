"""The policy of a run as far as its recording shows it: what needed approval, was denied or allowed, call by call."""

from collections.abc import Iterable, Iterator

from evener import events as ev
from evener.loop.plan import ApprovalGate, Judgement
from evener.replay.tape import Tape
from evener.tools.call import digest_of
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import ToolCall


def run_around(tape: Tape) -> list[ev.Event]:
    """Return all events of the present run, before and after this point."""
    first = last = tape.at
    while first > 0 and not isinstance(tape.recorded[first - 1], ev.Prompted):
        first -= 1
    while last < len(tape.recorded) and not isinstance(tape.recorded[last], ev.Prompted):
        last += 1
    return list(tape.recorded[first:last])


def gate_of(tape: Tape, specs: Iterable[ToolSpec], interrupts: Iterable[ev.Interrupt], run: Iterable[ev.Event]) -> ApprovalGate:
    """Return a gate that asks and denies as in the recording.

    Digests are computed again, so that a changed call or tool is detected. `run` are the events of the run.
    """
    schemas = {spec.name: spec.schema for spec in specs}

    def judge(call: ToolCall) -> Judgement:
        return _judge(tape, call, digest_of(call, schemas.get(call.name, "")))

    return ApprovalGate(judge if any(map(_is_ruled, run)) else None, frozenset(interrupts))


def _is_ruled(event: ev.Event) -> bool:
    """True if the event shows that a policy or a tool judged calls."""
    match event:
        case ev.ApprovalAsked(interrupt="tool"):
            return True
        case ev.ApprovalAsked(interrupt="outcome", questions=questions):
            return any(question.digest for question in questions)
        case ev.CallStarted(rule=rule):
            return bool(rule)
        case ev.CallFinished():
            return bool(event.rule) or event.denied
        case _:
            return False


def _judge(tape: Tape, call: ToolCall, digest: str) -> Judgement:
    for event in _of_batch(tape.ahead()):
        match event:
            case ev.ApprovalAsked(interrupt="tool", questions=questions):
                found = next((question for question in questions if question.key == call.id), None)
                if found is not None:
                    return Judgement("ask", found.rule, found.why, digest)
            case ev.CallStarted(call=id, rule=rule) if id == call.id:
                return Judgement(_find_verdict(tape, call), rule, "", digest)
            case ev.CallFinished(call=id) if id == call.id:
                verdict = "deny" if event.denied else _find_verdict(tape, call)
                return Judgement(verdict, event.rule, event.why if event.denied else "", digest)
    return Judgement(_find_verdict(tape, call), "", "", digest)


def _of_batch(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Yield the events up to the next request to the model."""
    for event in events:
        if isinstance(event, ev.ModelCalled | ev.Prompted):
            return
        yield event


def _find_verdict(tape: Tape, call: ToolCall) -> str:
    """Return "ask" if the recording has a question about this call before this point, else "allow"."""
    for place in range(tape.at - 1, -1, -1):
        match tape.recorded[place]:
            case ev.ApprovalAsked(interrupt="tool", questions=questions):
                if any(question.key == call.id for question in questions):
                    return "ask"
            case ev.Replied() | ev.Prompted():
                break
    return "allow"
