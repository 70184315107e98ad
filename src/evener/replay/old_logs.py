"""Facts that the logs of earlier versions do not contain, derived from their sentences, questions and order. Pure.

Since `Configured.setup` exists, a log contains the setup of its runs, and numbers beside its sentences. In an older log,
every decision that depends on the setup shows it: in the sentence of a stop or a notice, in a question, in the order of
starts. What left no trace decided nothing, and is left open. No other module of `replay` parses our own sentences.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.driver.record import CANCELLED
from evener.events import LimitHit, Limits, ToolFacts
from evener.loop.plan import LONGEST_WAIT, LOST
from evener.loop.state import RunState
from evener.replay.moments import ENDLESS, Inbox, RecordedMoment, hit_of
from evener.result import ONCE_BY_HOOK
from evener.transcript.blocks import TextBlock

WARN_AT = Limits().warn_at
NAMES: dict[str, ev.LimitName] = {
    "model requests": "requests",
    "tool calls": "tool_calls",
    "input tokens": "input_tokens",
    "output tokens": "output_tokens",
    "US dollars": "cost",
    "seconds": "seconds",
}
COUNTED = re.compile(
    r"^The (run|tree of runs) has used ([\d.]+) of ([\d.]+) ([A-Za-z ]+?)(?:\.$|, and (\d+) more were asked for\.$)"
)
CALLS = re.compile(r"^The model asked for (\d+) more tool calls?, and only (\d+) are allowed; none of these was run")
TIMED = re.compile(r"^The run has used its ([\d.e+-]+) seconds, and the model had not answered")
MONEY = re.compile(r"^The next request may cost \$([\d.]+), and \$([\d.]+) of \$([\d.]+) are left for the (run|tree of runs)")
NEAR = re.compile(r"^Only [\d.]+ of ([\d.]+) ([A-Za-z ]+?) are left\b")
REPEATED = re.compile(r"the same call (\d+) times in a row")
STATUS = re.compile(r"\(HTTP (\d{3})\b")
AROUND = "tree of runs"
DENIED = "Denied"
OLD_LOST = "it was started and then interrupted: nobody knows whether it took effect"
"""The older wording of `LOST`."""


# The facts of single events.


def add_facts(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Yield the events.

    Those of an earlier version get the fields that they had only as sentences; later ones are unchanged.
    """
    has_facts = False
    for event in events:
        if isinstance(event, ev.Configured):
            has_facts = event.setup is not None
        yield event if has_facts else _with_facts(event)


def _with_facts(event: ev.Event) -> ev.Event:
    match event:
        case ev.Finished(cause="limit", limit=None):
            return replace(event, limit=_hit(event.detail))
        case ev.ApprovalAsked(interrupt="limit"):
            return replace(event, questions=tuple(replace(one, limit=_hit(one.why)) for one in event.questions))
        case ev.ModelFailed(status=0) if found := STATUS.search(event.message):
            return replace(event, status=int(found[1]))
        case ev.CallFinished():
            return _with_reason(event)
        case _:
            return event


def _hit(text: str) -> LimitHit | None:
    """Return the limit that a sentence of `NoRoom` names."""
    if found := COUNTED.search(text):
        name = NAMES.get(found[4])
        around = found[1] == AROUND
        return LimitHit(name, _number(found[3]), _number(found[2]), int(found[5] or 0), around) if name else None
    if found := CALLS.search(text):
        return LimitHit("tool_calls", int(found[2]), int(found[2]) + int(found[1]))
    if found := TIMED.search(text):
        return LimitHit("seconds", float(found[1]), float(found[1]))
    if found := MONEY.search(text):
        wanted, left, limit = (Decimal(found[place]) for place in (1, 2, 3))
        return LimitHit("cost", limit, limit - left, wanted, found[4] == AROUND)
    return None


def _number(text: str) -> int | Decimal:
    return Decimal(text) if "." in text else int(text)


def _with_reason(event: ev.CallFinished) -> ev.CallFinished:
    """Return the event with the reason for a refused call. In the oldest logs rule and hook are in the metadata."""
    text = next((block.text for block in event.content if isinstance(block, TextBlock)), "")
    if event.by_hook or event.metadata == ONCE_BY_HOOK:
        said = text.removeprefix(CANCELLED)
        return replace(event, by_hook=True, why=said.removeprefix(": ") if said not in (".", text) else "")
    rule = event.rule
    if not rule and '"rule"' in event.metadata:
        found = msgspec.json.decode(event.metadata, type=dict[str, object]).get("rule")
        refused = not event.ok and text.startswith((f"{DENIED} by the rule {found!r}", "ApprovalRejected", "ApprovalStale"))
        rule = found if refused and isinstance(found, str) else ""
    if text.startswith(DENIED):
        by = f" by the rule {rule!r}" if rule else ""
        return replace(event, rule=rule, denied=True, why=text.removeprefix(f"{DENIED}{by}: ").removesuffix("."))
    return replace(event, rule=rule) if rule else event


def write_as_old(event: ev.Event, recorded: ev.Event) -> ev.Event:
    """Return the event without the fields that the version which wrote `recorded` did not write."""
    match event, recorded:
        case ev.Configured(), _:
            return replace(event, setup=None)
        case ev.Finished(), _:
            return replace(event, limit=None)
        case ev.ApprovalAsked(), _:
            lost = OLD_LOST if isinstance(recorded, ev.ApprovalAsked) and _says_old_lost(recorded) else LOST
            asked = (replace(one, limit=None, why=lost if one.why == LOST else one.why) for one in event.questions)
            return replace(event, questions=tuple(asked))
        case ev.ModelFailed(), _:
            return replace(event, status=0, request="")
        case ev.Replied(), _:
            return replace(event, request="")
        case ev.CallFinished(), ev.CallFinished(metadata=metadata) if metadata in _older(event):
            return replace(event, metadata=metadata, rule="", by_hook=False, denied=False, why="")
        case ev.CallFinished(), _:
            return replace(event, denied=False, why="")
        case _:
            return event


def _says_old_lost(event: ev.ApprovalAsked) -> bool:
    return any(one.why == OLD_LOST for one in event.questions)


def _older(event: ev.CallFinished) -> tuple[str, ...]:
    """Return the metadata in which the oldest logs kept facts that have fields now."""
    ruled = (msgspec.json.encode({"rule": event.rule}).decode(),) if event.rule else ()
    return (*ruled, ONCE_BY_HOOK) if event.by_hook else ruled


# The setup of a run.


def infer_setup(
    found: Sequence[RecordedMoment], state: RunState, *, past: Sequence[ev.Event], run: Sequence[ev.Event]
) -> ev.RunSetup:
    """Return a setup from which the plan makes the same decisions as in these events.

    `found` is what one driver wrote, beginning with `state`. `past` are the events before, `run` those of the whole run.
    """
    chain = _chain_of(found, state, past)
    asked = [event for event in run if isinstance(event, ev.ApprovalAsked)]
    interrupts = {event.interrupt for event in asked} | {one.interrupt for one in state.questions}
    return ev.RunSetup(
        limits=_limits_of(found),
        tools=_facts_of(found),
        fallbacks=chain[1:] if state.config else chain,
        fetches=_fetches_of(found, chain),
        interrupts=tuple(sorted(interrupts - {"tool"})),
        decide_within=float(any(event.expires for event in asked)),
    )


# The chain of models.


def _chain_of(found: Iterable[RecordedMoment], state: RunState, past: Sequence[ev.Event]) -> tuple[str, ...]:
    """Return the models in the order in which they were asked, the configured one first. `past` are the events before."""
    first = (state.config.model,) if state.config else ()
    asked = (moment.event.model for moment in found if isinstance(moment.event, ev.ModelCalled))
    return tuple(dict.fromkeys((*first, *_of_chain(past, state), *asked))) or ("",)


def _of_chain(past: Sequence[ev.Event], state: RunState) -> tuple[str, ...]:
    """Return the model that was called last since the setup was last configured."""
    for event in reversed(past):
        if isinstance(event, ev.Configured):
            break
        if isinstance(event, ev.ModelCalled):
            return (state.model,) if state.model else ()
    return ()


def _fetches_of(found: Iterable[RecordedMoment], chain: Iterable[str]) -> tuple[bool, ...]:
    """Return for each model whether it gets media behind URLs as bytes: not if it was called while some were missing."""
    without = {
        moment.event.model
        for moment in found
        if isinstance(moment.event, ev.ModelCalled) and set(moment.state.wanted) - set(dict(moment.state.media))
    }
    return tuple(name not in without for name in chain)


# Limits.


def _limits_of(found: Sequence[RecordedMoment]) -> Limits:
    """Return limits that lead to the stops and notices of these events, and to no others."""
    named = dict(_find_named(found))
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


def _find_named(found: Iterable[RecordedMoment]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each limit of the run that a stop, a question or a notice names."""
    for moment in found:
        hit = hit_of(moment.event)
        if hit is not None and not hit.around:
            yield hit.which, str(hit.limit)
        if isinstance(moment.event, ev.ModelCalled):
            told = (NEAR.search(text) for key, text in moment.event.notices if key.startswith("near:"))
            yield from ((NAMES[one[2]], one[1]) for one in told if one and one[2] in NAMES)


def _counts(found: Iterable[RecordedMoment], cause: ev.StopCause) -> Iterator[int]:
    """Yield the number of corrections before each end of the run for this cause."""
    return (one.state.corrections for one in found if isinstance(one.event, ev.Finished) and one.event.cause == cause)


def _retries(found: Sequence[RecordedMoment]) -> int:
    """Return the number of retries after failures. It is exact if the retries were used up."""
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
    """Return how often the same call was repeated before the warning, and before the end."""
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
    """Return the default share of a limit, unless the model was warned earlier or later."""
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


# Tools.


def _facts_of(found: Sequence[RecordedMoment]) -> dict[str, ToolFacts]:
    """Return the facts about each tool that explain these starts and results."""
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
            case ev.CallFinished(call=id) if moment.event.by_hook and _status(moment, id) == "interrupted":
                tool = next(one.call.name for one in moment.state.calls if one.call.id == id)
                effect: ev.Effect = "read" if moment.event.outcome == "failed" else "idempotent"
                facts[tool] = replace(facts.get(tool, ToolFacts()), effect=effect)
            case ev.Finished(cause="tool_retries", detail=detail):
                for name, used in moment.state.retries:
                    if repr(name) in detail:
                        facts[name] = replace(facts.get(name, ToolFacts()), retries=used - 1)
    single = _sequential(found)
    return {name: replace(one, sequential=name in single) for name, one in facts.items()}


def _status(moment: RecordedMoment, call: str) -> str:
    return next((one.status for one in moment.state.calls if one.call.id == call), "")


def _is_decided(moment: RecordedMoment, call: str) -> bool:
    """True if a user decided that an interrupted call is run again."""
    return any(one.interrupt == "outcome" and one.question.key.endswith(f":{call}") for one in moment.state.questions)


def _sequential(found: Sequence[RecordedMoment]) -> set[str]:
    """Return the tools of batches that ran one by one, except those that ran in parallel with others elsewhere."""
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
    return single - together
