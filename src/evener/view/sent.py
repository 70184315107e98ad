"""What was sent: the request of each `ModelCalled`, rebuilt from the log and held against the digest that was recorded.

Settings of a harness (effort, output limit, schema of the answer) are not in the log. With the harness at hand they are known;
else each effort is tried. What still has another digest is shown as such, never as the bytes that were sent.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import get_args

import msgspec

from evener import events as ev
from evener.errors import UsageError
from evener.harness.preview import open_offline
from evener.loop.state import fold
from evener.model import Model, open_model
from evener.model.endpoint import prepare_request
from evener.model.media import Media
from evener.store.protocol import Store
from evener.transcript.ask import Effort
from evener.transcript.loss import Loss
from evener.transcript.reply import Usage
from evener.transport.exchange import Request

__all__ = ["RequestLine", "SentRequest", "compare_bodies", "list_requests", "rebuild"]

EFFORTS: tuple[Effort | None, ...] = (None, *get_args(Effort))
SHOWN_LINES = 4_000
AROUND = 3


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One request of a log: who was asked, what it used, and what the context was made of (`kinds`: tokens by kind)."""

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


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it goes over the wire. `exact`: it has the digest that was recorded. `recorded` is empty in older logs."""

    n: int
    model: str
    url: str
    body: str
    exact: bool
    digest: str
    recorded: str
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


def kinds_of(usage: Usage) -> dict[str, int]:
    """Return what the context of a request was made of, as far as its usage says. The seam for accounts that know more."""
    rest = max(usage.input_total - usage.cache_read - usage.cache_write, 0)
    return {"cache read": usage.cache_read, "cache write": usage.cache_write, "uncached": rest, "output": usage.output_total}


def list_requests(events: Iterable[ev.Event], windows: "dict[str, int]") -> list[RequestLine]:
    """Return the requests of a log in their order. `windows` are tokens, by model."""
    found: list[RequestLine] = []
    called: tuple[int, ev.ModelCalled] | None = None
    for n, event in enumerate(events, 1):
        match event:
            case ev.ModelCalled():
                called = (n, event)
            case ev.Replied() if called:
                usage = event.message.usage or Usage()
                at, model = called[1].at, called[1].model
                found.append(
                    RequestLine(
                        n=called[0], at=at, model=model, window=windows.get(model, 0), usage=usage, kinds=kinds_of(usage),
                        cost=float(event.cost), seconds=event.seconds, first=event.first, stop=event.stop.reason,
                        losses=len(event.losses),
                    )
                )  # fmt: skip
                called = None
            case ev.ModelFailed() if called:
                found.append(RequestLine(n=called[0], at=called[1].at, model=called[1].model, error=event.error))
                called = None
    if called:
        found.append(RequestLine(n=called[0], at=called[1].at, model=called[1].model, stop="under way"))
    return found


async def rebuild(
    store: Store, events: Sequence[ev.Event], n: int, *, models: Sequence[Model] = (), as_model: str = ""
) -> SentRequest:
    """Rebuild the request of event `n`. `models` are those of the harness, if it is at hand. `as_model`: for another model."""
    called = events[n - 1] if 0 < n <= len(events) else None
    if not isinstance(called, ev.ModelCalled):
        raise UsageError(f"Event {n} is no request to a model. Give the number of one: the list of requests has them.")
    state = fold(events[:n])
    recorded = "" if as_model else _recorded(events[n:])
    name = as_model or called.model
    own = [model for model in models if model.name == name]
    tried = iter(own) if own else _open_tries(name, "" if as_model else _endpoint(events[n:]), wanted=bool(recorded))
    media = Media(store.put_blob, store.get_blob)
    best: SentRequest | None = None
    for model in tried:
        transcript = await media.inline(state.transcript, dict(state.media), remote=model.fetches)
        sent = prepare_request(model.ask(transcript, state.config.tools if state.config else ()), model.endpoint)
        body = sent.encoded.body
        digest = sha256(body).hexdigest()
        made = SentRequest(
            n=n, model=name, url=model.endpoint.url.partition("?")[0] + sent.encoded.path, body=body.decode(),
            exact=digest == recorded, digest=digest, recorded=recorded, losses=sent.losses,
            notes=_notes(called, recorded, exact=digest == recorded, other=bool(as_model)),
        )  # fmt: skip
        if made.exact:
            return made
        best = best or made
    if best is None:
        raise UsageError(f"There is no model {name!r} here, so its request cannot be rebuilt.")
    return best


def _open_tries(name: str, endpoint: str, *, wanted: bool) -> Iterator[Model]:
    """Yield the model with each effort. What a provider sealed is only sent to the address that it came from."""
    for effort in EFFORTS if wanted else (None,):
        if endpoint:
            yield open_model(name, auth=_unsigned, base_url=endpoint, effort=effort)
        else:
            yield open_offline(name, effort=effort, max_output_tokens=None, temperature=None)


def _unsigned(request: Request) -> Request:
    return request


def _endpoint(after: Iterable[ev.Event]) -> str:
    """Return the address that answered; empty where it is not known."""
    for event in after:
        if isinstance(event, ev.Replied):
            return event.message.origin.endpoint if event.message.origin else ""
    return ""


def _recorded(after: Iterable[ev.Event]) -> str:
    """Return the digest of the request: its answer or its failure has it."""
    for event in after:
        if isinstance(event, ev.Replied | ev.ModelFailed):
            return event.request
        if isinstance(event, ev.ModelCalled):
            return ""
    return ""


def _notes(called: ev.ModelCalled, recorded: str, *, exact: bool, other: bool) -> tuple[str, ...]:
    if exact or other:
        return ()
    if not recorded:
        return ("The log has no digest of this request, so it is not known whether these are the bytes that were sent.",)
    why = ["These are not the bytes that were sent: their digest differs. The log does not hold the settings of the harness."]
    if called.rests is not None:
        why.append("The provider held a part of the conversation, and only the rest was sent.")
    return tuple(why)


# Differences.


def compare_bodies(before: str, after: str) -> dict[str, object]:
    """Return what moved between two requests: lines of pretty JSON, each with `=`, `-` or `+`; and how much stayed in front."""
    ours, theirs = _lines(before), _lines(after)
    head = _count_same(ours, theirs)
    tail = _count_same(ours[head:][::-1], theirs[head:][::-1])
    old, new = ours[head : len(ours) - tail], theirs[head : len(theirs) - tail]
    lines = [("=", line) for line in ours[max(0, head - AROUND) : head]]
    if len(old) + len(new) > SHOWN_LINES:
        lines += [("-", line) for line in old[: SHOWN_LINES // 2]] + [("+", line) for line in new[: SHOWN_LINES // 2]]
    else:
        lines += _compare(old, new)
    lines += [("=", line) for line in ours[len(ours) - tail : len(ours) - tail + AROUND]]
    prefix = _count_same(before, after)
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


def _count_same(one: Sequence[str], other: Sequence[str]) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
