"""The sent requests. For each `ModelCalled`, the request is rebuilt from the log and its digest compared with the recorded one.

The log has the settings of a run, but not those of a harness (effort, output limit, schema of the answer). Without the
harness, each effort is tried. A request whose digest differs is shown as a reconstruction, never as what was sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any, get_args

import msgspec

from evener import events as ev
from evener.context.accounting import KINDS, KindCount, count_frame, rates_of
from evener.errors import UsageError
from evener.harness.preview import open_offline
from evener.loop.state import RunState, apply, fold
from evener.model import Model, open_model
from evener.model.media import Media
from evener.model.stream import prepare_request
from evener.store.protocol import Store
from evener.toolset.editing import count_same
from evener.transcript.ask import Effort, State
from evener.transcript.blocks import Origin
from evener.transcript.loss import Loss
from evener.transcript.reply import Usage

EFFORTS: tuple[Effort | None, ...] = (None, *get_args(Effort))
SHOWN_LINES = 4_000
AROUND = 3


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One request of a log: the model, its usage, and the composition of the context.

    `kinds` are tokens by kind of block: estimates, scaled so that their sum is the reported count. `shortened` says how the
    context was shortened since the previous request.
    """

    n: int
    at: float
    model: str
    window: int = 0
    usage: Usage | None = None
    kinds: dict[str, int] = {}
    cost: float = 0.0
    seconds: float = 0.0
    first: float = 0.0
    stop: str = ""
    error: str = ""
    losses: int = 0
    shortened: str = ""


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is sent. `exact`: it has the recorded digest. `recorded` is empty in older logs."""

    n: int
    model: str
    url: str
    body: str
    exact: bool
    digest: str
    recorded: str
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


def list_requests(events: Iterable[ev.Event], windows: Mapping[str, int]) -> list[RequestLine]:
    """Return the requests of a log in order. `windows` has the window of each model, in tokens."""
    fold = _RequestFold(windows)
    for n, event in enumerate(events, 1):
        fold.take(n, event)
    return fold.found if fold.called is None else [*fold.found, fold.line(stop="under way")]


class _RequestFold:
    """Computes the requests of a log. `called` is the request in progress, `view` the part of the conversation that it
    contains.
    """

    def __init__(self, windows: Mapping[str, int]) -> None:
        self.found: list[RequestLine] = []
        self.called: tuple[int, ev.ModelCalled] | None = None
        self._windows = windows
        self._state = RunState()
        self._counted = KindCount()
        self._shortened = ""

    def take(self, n: int, event: ev.Event) -> None:
        match event:
            case ev.Replied() if self.called:
                usage, kinds = event.message.usage or Usage(), self._count(event)
                self._end(
                    usage=usage, kinds=kinds, cost=float(event.cost), seconds=event.seconds, first=event.first,
                    stop=event.stop.reason, losses=len(event.losses),
                )  # fmt: skip
            case ev.ModelFailed() if self.called:
                self._end(error=event.error)
            case ev.Compacted() | ev.Evicted():
                self._shortened = "compacted" if isinstance(event, ev.Compacted) else "evicted"
        self._state = apply(self._state, event)
        if isinstance(event, ev.ModelCalled):
            self.called = (n, event)

    def line(self, **more: Any) -> RequestLine:
        """Return the request that has no answer yet."""
        assert self.called is not None
        n, event = self.called
        window = self._windows.get(event.model, 0)
        return RequestLine(n=n, at=event.at, model=event.model, window=window, shortened=self._shortened, **more)

    def _end(self, **more: Any) -> None:
        self.found.append(self.line(**more))
        self.called, self._shortened = None, ""

    def _count(self, event: ev.Replied) -> dict[str, int]:
        """Return the tokens of the request by kind, in O(new content)."""
        origin = event.message.origin or Origin()
        rates, view = rates_of(origin.wire), self._state.view
        known = self._counted if self._counted.rates == rates else KindCount(rates)
        tools = self._state.config.tools if self._state.config else ()
        self._counted = known.after(view)
        tally = count_frame(view, tools, None, rates) + self._counted.messages
        told = event.message.usage.input_total if event.message.usage else 0
        share = told / tally.total if told and tally.total else 1.0
        return {kind: tokens for kind in KINDS if (tokens := round(tally.of(kind) * share))}


async def rebuild(
    store: Store, events: Sequence[ev.Event], n: int, *, models: Sequence[Model] = (), as_model: str = ""
) -> SentRequest:
    """Rebuild the request of event `n`. `models` are the harness's, if there is one. With `as_model`, for another model."""
    called = events[n - 1] if 0 < n <= len(events) else None
    if not isinstance(called, ev.ModelCalled):
        raise UsageError(f"Event {n} is not a request to a model. Give a number from the list of requests.")
    state = fold(events[:n])
    resting = _find_rest(events, n) if called.rests is not None and not as_model else None
    recorded = "" if as_model else _find_digest(events[n:])
    name = as_model or called.model
    own = [model for model in models if model.name == name]
    tried = iter(own) if own else _open_tries(name, "" if as_model else _endpoint(events[n:]), wanted=bool(recorded))
    media = Media(store.put_blob, store.get_blob)
    best: SentRequest | None = None
    for model in tried:
        transcript = await media.inline(state.view, dict(state.media), remote=model.fetches)
        ask = model.ask(transcript, state.config.tools if state.config else (), state=resting)
        ask = ask if state.settings is None else state.settings.apply_to(ask, turn=state.turns)
        sent = prepare_request(ask, model.endpoint)
        body = sent.encoded.body
        digest = sha256(body).hexdigest()
        made = SentRequest(
            n=n, model=name, url=model.endpoint.url.partition("?")[0] + sent.encoded.path, body=body.decode(),
            exact=digest == recorded, digest=digest, recorded=recorded, losses=sent.losses,
            notes=_notes(recorded, exact=digest == recorded, other=bool(as_model)),
        )  # fmt: skip
        if made.exact:
            return made
        best = best or made
    if best is None:
        raise UsageError(
            f"The request cannot be rebuilt: no model here has the name {name!r}. Give the name of a configured model."
        )
    return best


def _open_tries(name: str, endpoint: str, *, wanted: bool) -> Iterator[Model]:
    """Yield the model with each effort. Sealed content is rebuilt only for the address that it came from."""
    for effort in EFFORTS if wanted else (None,):
        if endpoint:
            yield open_model(name, auth=lambda request: request, base_url=endpoint, effort=effort)
        else:
            yield open_offline(name, effort=effort)


def _find_rest(events: Sequence[ev.Event], n: int) -> State:
    """Return the provider-side state that the request used: the last earlier message that the provider stores."""
    called = events[n - 1]
    assert isinstance(called, ev.ModelCalled)
    assert called.rests is not None
    held = [
        event.message.id
        for event in events[: n - 1]
        if isinstance(event, ev.Replied) and event.held is not None and event.held.mode == called.rests.mode
    ]
    return State(called.rests.mode, called.rests.id, store=True, after=held[-1] if held else "")


def _endpoint(after: Iterable[ev.Event]) -> str:
    """Return the address that answered; empty if it is unknown."""
    for event in after:
        if isinstance(event, ev.Replied):
            return event.message.origin.endpoint if event.message.origin else ""
    return ""


def _find_digest(after: Iterable[ev.Event]) -> str:
    """Return the digest of the request, from the event of its answer or failure."""
    for event in after:
        if isinstance(event, ev.Replied | ev.ModelFailed):
            return event.request
        if isinstance(event, ev.ModelCalled):
            return ""
    return ""


def _notes(recorded: str, *, exact: bool, other: bool) -> tuple[str, ...]:
    if exact or other:
        return ()
    if not recorded:
        return ("The log has no digest of this request, so it is not known whether these are the bytes that were sent.",)
    text = (
        "These are not the bytes that were sent: their digest differs. The log does not have the settings of the harness. A "
        "viewer that has the harness of that time (`evener view --harness`) can show the request as it was sent."
    )
    return (text,)


# Differences.

LASTS = 300.0
"""Seconds for which providers usually keep a prompt in their cache."""


def explain_changes(events: Sequence[ev.Event], before: int, n: int, bodies: tuple[str, str]) -> tuple[str, ...]:
    """Return sentences about the changes between two requests, and their effect on the provider's prompt cache."""
    earlier, later = events[before - 1], events[n - 1]
    assert isinstance(earlier, ev.ModelCalled)
    assert isinstance(later, ev.ModelCalled)
    found = [f"The model changed from {earlier.model} to {later.model}."] * (earlier.model != later.model)
    for seq, event in enumerate(events[before : n - 1], before + 1):
        if why := _explain(event):
            found.append(f"Event {seq}: {why}")
    place = _first_difference(bodies)
    if place:
        found.append(
            f"The requests first differ at {place}. The provider can read the part before it from its cache, but not the rest."
        )
    else:
        found.append(
            "The earlier request is sent again, unchanged, and continued. The provider can read all of it from its cache."
        )
    if later.at - earlier.at > LASTS:
        found.append(f"{(later.at - earlier.at) / 60:.0f} minutes passed between the requests. Most caches last 5 minutes.")
    return tuple(found)


def _explain(event: ev.Event) -> str:
    match event:
        case ev.Compacted():
            return "the conversation was compacted, so a summary replaces its beginning."
        case ev.Evicted(cuts=cuts):
            return f"{len(cuts)} blocks were left out to make room."
        case ev.ContextRestored():
            return "blocks that had been left out are sent again."
        case ev.Configured():
            return "the system prompt or the tools were set again."
        case _:
            return ""


def _first_difference(bodies: tuple[str, str]) -> str:
    """Return the path of the first value of the old request that the new one lacks; empty if it has all of them."""
    try:
        old, new = (msgspec.json.decode(body) for body in bodies)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return _differ(old, new, "")


def _differ(old: object, new: object, path: str) -> str:
    match old, new:
        case dict(), dict():
            for key, value in old.items():
                if key not in new:
                    return f"{path}.{key}".lstrip(".")
                if value != new[key] and (found := _differ(value, new[key], f"{path}.{key}")):
                    return found
            return ""
        case list(), list():
            for place, (one, other) in enumerate(zip(old, new, strict=False)):
                if one != other and (found := _differ(one, other, f"{path}[{place}]")):
                    return found
            return f"{path}[{len(new)}]" if len(new) < len(old) else ""
        case _:
            return "" if old == new else path.lstrip(".")


def compare_bodies(before: str, after: str) -> dict[str, object]:
    """Return the differences of two requests as lines of JSON, each with `=`, `-` or `+`, and the length of their common
    beginning.
    """
    ours, theirs = _lines(before), _lines(after)
    head = count_same(ours, theirs)
    tail = count_same(ours[head:][::-1], theirs[head:][::-1])
    old, new = ours[head : len(ours) - tail], theirs[head : len(theirs) - tail]
    lines = [("=", line) for line in ours[max(0, head - AROUND) : head]]
    if len(old) + len(new) > SHOWN_LINES:
        lines += [("-", line) for line in old[: SHOWN_LINES // 2]] + [("+", line) for line in new[: SHOWN_LINES // 2]]
    else:
        lines += _compare(old, new)
    lines += [("=", line) for line in ours[len(ours) - tail : len(ours) - tail + AROUND]]
    prefix = count_same(before, after)
    return {
        "lines": lines, "same_lines": head, "lines_before": len(ours), "lines_after": len(theirs), "same_bytes": prefix,
        "bytes_before": len(before), "cut": len(old) + len(new) > SHOWN_LINES,
    }  # fmt: skip


def _compare(old: list[str], new: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=True).get_opcodes():
        if kind == "equal":
            found += [("=", line) for line in old[i1:i2]]
        else:
            found += [("-", line) for line in old[i1:i2]] + [("+", line) for line in new[j1:j2]]
    return found


def _lines(body: str) -> list[str]:
    try:
        return msgspec.json.format(body, indent=1).split("\n")
    except msgspec.DecodeError:
        return body.split("\n")
