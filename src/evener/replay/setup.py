"""What a run was set up with, as far as its recording shows: limits, tool facts, the chain of models, questions. Pure.

A log does not hold the setup of its runs, but every decision that rests on it says so: in the sentence of a stop or a notice,
in a question, in the order of starts. What left no trace decided nothing, and is left open.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.budget import Budget
from evener.loop.plan import LONGEST_WAIT, ToolFacts
from evener.loop.state import Limits, RunState, Spent, apply
from evener.replay.tape import Inbox, begins
from evener.result import ONCE_BY_HOOK
from evener.transcript.reply import Usage

__all__ = [
    "RecordedMoment",
    "budget_of",
    "chain_of",
    "facts_of",
    "fetches_of",
    "limits_of",
    "moments",
]


ENDLESS = 10**9
WARN_AT = Limits().warn_at
NAMES = {
    "model requests": "requests",
    "tool calls": "tool_calls",
    "input tokens": "input_tokens",
    "output tokens": "output_tokens",
    "US dollars": "cost",
    "seconds": "seconds",
}
USED = re.compile(r"^(?:The run has used|Only) [\d.]+ of ([\d.]+) ([A-Za-z ]+?)(?:\.| are left\b)")
CALLS = re.compile(r"and only (\d+) are allowed; none of these was run")
TIMED = re.compile(r"^The run has used its ([\d.e+-]+) seconds, and the model had not answered")
REPEATED = re.compile(r"the same call (\d+) times in a row")
AROUND = "tree of runs"
COUNTED = re.compile(
    r"^The (run|tree of runs) has used (\d+) of (\d+) (model requests|tool calls|input tokens|output tokens)"
    r"(?:, and (\d+) more)?"
)
MONEY = re.compile(r"^The next request may cost \$[\d.]+, and \$([\d.]+) of \$([\d.]+) are left for the (run|tree of runs)")


class RecordedMoment(msgspec.Struct, frozen=True):
    """An event, and the state before it."""

    state: RunState
    event: ev.Event


def moments(events: Sequence[ev.Event], state: RunState) -> list[RecordedMoment]:
    """The events that one driver wrote, from the first on: up to where another one began."""
    found: list[RecordedMoment] = []
    for event in events:
        extends = isinstance(event, ev.Continued) and state.finished is None
        if begins(event) and not extends:
            break
        found.append(RecordedMoment(state, event))
        state = apply(state, event)
    return found


# The chain of models.


def chain_of(found: Iterable[RecordedMoment], state: RunState, past: Sequence[ev.Event]) -> tuple[str, ...]:
    """The models in the order in which they were asked, the configured one first. `past` are the events before."""
    first = (state.config.model,) if state.config else ()
    asked = (moment.event.model for moment in found if isinstance(moment.event, ev.ModelCalled))
    return tuple(dict.fromkeys((*first, *_of_chain(past, state), *asked))) or ("",)


def _of_chain(past: Sequence[ev.Event], state: RunState) -> tuple[str, ...]:
    """The model that was asked last, if that was since the runs were set up as they are."""
    for event in reversed(past):
        if isinstance(event, ev.Configured):
            break
        if isinstance(event, ev.ModelCalled):
            return (state.model,) if state.model else ()
    return ()


def fetches_of(found: Iterable[RecordedMoment], chain: Iterable[str]) -> tuple[bool, ...]:
    """Whether each model was given media behind URLs as bytes: not those that were asked while some were missing."""
    without = {
        moment.event.model
        for moment in found
        if isinstance(moment.event, ev.ModelCalled) and set(moment.state.wanted) - set(dict(moment.state.media))
    }
    return tuple(name not in without for name in chain)


# Limits.


def limits_of(found: Sequence[RecordedMoment]) -> Limits:
    """Limits that lead to the stops and notices of these events, and to no others."""
    named = dict(_named(found))
    repeats, stop = _repeats(found)
    limits = Limits(
        requests=_whole(named, "requests"),
        tool_calls=_whole(named, "tool_calls"),
        input_tokens=_whole(named, "input_tokens"),
        output_tokens=_whole(named, "output_tokens"),
        cost=Decimal(named["cost"]) if "cost" in named else None,
        seconds=float(named["seconds"]) if "seconds" in named else None,
        retries=_retries(found),
        corrections=min(_counts(found, "output_retries"), default=ENDLESS),
        repeats=repeats,
        repeats_stop=stop,
    )
    return replace(limits, warn_at=_warn_at(found, limits))


def _whole(named: Mapping[str, str], name: str) -> int | None:
    return int(named[name]) if name in named else None


def _sentences(found: Iterable[RecordedMoment]) -> Iterator[str]:
    """What was said about limits, as far as they are the run's own."""
    for moment in found:
        match moment.event:
            case ev.Finished(cause="limit", detail=detail):
                yield detail
            case ev.ModelCalled(notices=notices):
                yield from (text for key, text in notices if key.startswith("near:"))
            case ev.ApprovalAsked(interrupt="limit", questions=questions):
                yield from (question.why for question in questions)


def _named(found: Iterable[RecordedMoment]) -> Iterator[tuple[str, str]]:
    for text in _sentences(found):
        used, calls, timed, money = USED.search(text), CALLS.search(text), TIMED.search(text), MONEY.search(text)
        if used and used[2] in NAMES:
            yield NAMES[used[2]], used[1]
        elif calls:
            yield "tool_calls", calls[1]
        elif timed:
            yield "seconds", timed[1]
        elif money and money[3] != AROUND:
            yield "cost", money[2]


def _counts(found: Iterable[RecordedMoment], cause: ev.StopCause) -> Iterator[int]:
    """How many corrections there were where a run ended for this cause."""
    return (one.state.corrections for one in found if isinstance(one.event, ev.Finished) and one.event.cause == cause)


def _retries(found: Sequence[RecordedMoment]) -> int:
    """The tries that were made after failures that could be tried again, and no more where there were no more."""
    least, most = 0, ENDLESS
    for place, moment in enumerate(found):
        event = moment.event
        if not isinstance(event, ev.ModelFailed) or not event.retryable or event.retry_after > LONGEST_WAIT:
            continue
        failures = moment.state.failures + 1
        later = next((one.event for one in found[place + 1 :] if not isinstance(one.event, Inbox)), None)
        match later:
            case ev.ModelCalled(model=model) if model == moment.state.model:
                least = max(least, failures)
            case ev.Finished(cause="limit") | ev.ApprovalAsked(interrupt="limit" | "step"):
                least = max(least, failures)  # it would have been tried again
            case ev.ModelCalled() | ev.Finished(cause="provider_error"):
                most = min(most, failures - 1)
    return max(least, 0) if most == ENDLESS else most


def _repeats(found: Iterable[RecordedMoment]) -> tuple[int, int]:
    """How often the same call came before the model was told, and before the end."""
    told, stopped = [ENDLESS], [ENDLESS]
    for moment in found:
        match moment.event:
            case ev.Finished(cause="repeated", detail=detail) if times := REPEATED.search(detail):
                stopped.append(int(times[1]))
            case ev.ModelCalled(notices=notices):
                hits = (REPEATED.search(text) for key, text in notices if key.startswith("repeat:"))
                told += [int(times[1]) for times in hits if times]
    return min(*told, *stopped) if len(told) + len(stopped) > 2 else ENDLESS, min(stopped)


def _warn_at(found: Iterable[RecordedMoment], limits: Limits) -> float:
    """The usual part of a limit, unless the model was told earlier or later."""
    told, untold = [1.0], [0.0]
    for moment in found:
        if not isinstance(moment.event, ev.ModelCalled):
            continue
        keys = {key for key, _ in moment.event.notices}
        for name, part in _parts(limits, moment.state):
            key = f"near:{name}"
            if key in keys:
                told.append(part)
            elif key not in moment.state.told:
                untold.append(part)
    return WARN_AT if max(untold) < WARN_AT <= min(told) else max(min(told), 1e-9)


def _parts(limits: Limits, state: RunState) -> Iterator[tuple[str, float]]:
    used = state.used
    for name, limit, spent in (
        ("requests", limits.requests, used.requests),
        ("tool_calls", limits.tool_calls, used.tool_calls),
        ("input_tokens", limits.input_tokens, used.usage.input_total),
        ("output_tokens", limits.output_tokens, used.usage.output_total),
        ("cost", limits.cost, used.cost),
        ("seconds", limits.seconds, used.seconds),
    ):
        if limit is not None:
            yield name, float(spent) / float(limit)


def budget_of(found: Sequence[RecordedMoment]) -> Budget:
    """Room for what was done, and none where the recording says that there was none: in the run's own budget, or around it."""
    counted = Decimal(ENDLESS) if any(_is_priced(one.event) for one in found) else None
    free = Limits(requests=None, tool_calls=None, cost=counted)
    for moment in found:
        for text in _refusals(moment.event):
            full = _full(text, found[0].state, moment.state)
            if full is not None:
                limits, used, around = full
                short = replace(free, **limits)
                return Budget(free, outer=Budget(short, used)) if around else Budget(short, used)
    return Budget(free)


def _is_priced(event: ev.Event) -> bool:
    match event:
        case ev.ModelCalled(most=cost) | ev.ModelFailed(cost=cost):
            return bool(cost)
        case _:
            return any(MONEY.search(text) for text in _refusals(event))


def _refusals(event: ev.Event) -> tuple[str, ...]:
    match event:
        case ev.Finished(cause="limit", detail=detail):
            return (detail,)
        case ev.ApprovalAsked(interrupt="limit", questions=questions):
            return tuple(question.why for question in questions)
        case _:
            return ()


def _full(text: str, first: RunState, now: RunState) -> tuple[dict[str, int | Decimal], Spent, bool] | None:
    """The limit that a refusal speaks of, what was used of it when these events began, and whether it is that of runs around.

    None where the plan itself found out.
    """
    since = now.spent.since(first.spent)
    money, counted = MONEY.search(text), COUNTED.search(text)
    if money:
        left, limit = Decimal(money[1]), Decimal(money[2])
        return {"cost": limit}, Spent(cost=limit - left - since.cost), money[3] == AROUND
    if counted is None or not (counted[1] == AROUND or counted[5]):
        return None
    used, name = int(counted[2]), NAMES[counted[4]]
    before = {
        "requests": Spent(requests=used - since.requests),
        "tool_calls": Spent(tool_calls=used + int(counted[5] or 0) - since.tool_calls),
        "input_tokens": Spent(usage=Usage(used - since.usage.input_total)),
        "output_tokens": Spent(usage=Usage(output_total=used - since.usage.output_total)),
    }
    return {name: int(counted[3])}, before[name], counted[1] == AROUND


# Tools.


def facts_of(found: Sequence[RecordedMoment]) -> dict[str, ToolFacts]:
    """What each tool must have been, for these starts and results."""
    facts: dict[str, ToolFacts] = {}
    for moment in found:
        for one in moment.state.calls:
            facts.setdefault(one.call.name, ToolFacts(effect="write", retries=ENDLESS))
        match moment.event:
            case ev.CallStarted(call=id, tool=tool) if _status(moment, id) == "interrupted":
                verifies = moment.event.verifying
                again = facts.get(tool, ToolFacts())
                if verifies or not _is_decided(moment, id):
                    facts[tool] = replace(again, effect="write" if verifies else "idempotent", verifies=verifies)
            case ev.CallFinished(call=id) if _by_hook(moment.event) and _status(moment, id) == "interrupted":
                tool = next(one.call.name for one in moment.state.calls if one.call.id == id)
                effect: ev.Effect = "read" if moment.event.outcome == "failed" else "idempotent"
                facts[tool] = replace(facts.get(tool, ToolFacts()), effect=effect)
            case ev.Finished(cause="tool_retries", detail=detail):
                for name, used in moment.state.retries:
                    if repr(name) in detail:
                        facts[name] = replace(facts.get(name, ToolFacts()), retries=used - 1)
    single = _sequential(found)
    return {name: replace(one, sequential=name in single) for name, one in facts.items()}


def _by_hook(event: ev.CallFinished) -> bool:
    """True if a hook cancelled a call that was not under way, so that its metadata is not a tool's."""
    return event.by_hook or event.metadata == ONCE_BY_HOOK


def _status(moment: RecordedMoment, call: str) -> str:
    return next((one.status for one in moment.state.calls if one.call.id == call), "")


def _is_decided(moment: RecordedMoment, call: str) -> bool:
    """Whether somebody said that an interrupted call shall run again."""
    return any(one.interrupt == "outcome" and one.question.key.endswith(f":{call}") for one in moment.state.questions)


def _sequential(found: Sequence[RecordedMoment]) -> set[str]:
    """The tools of batches that went one by one, without those that were seen to go at once with others."""
    single: set[str] = set()
    together: set[str] = set()
    ran: set[str] = set()
    for moment in found:
        event, calls = moment.event, moment.state.calls
        names = {one.call.name for one in calls}
        begun = {one.call.id for one in calls if one.status == "started"}
        match event:
            case ev.Replied() | ev.ModelCalled() | ev.Continued():
                ran = set()
            case ev.CallStarted(call=id) if begun - {id}:
                together |= names
            case ev.CallStarted(call=id) if ran - {id}:
                single |= names
            case ev.CallFinished(call=id) if id in begun:
                ran.add(id)
            case ev.CallFinished() if ran:
                single |= names
            case _:
                pass
    return single - together
