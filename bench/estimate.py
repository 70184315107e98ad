"""How far the estimate of a prompt's tokens is from what providers reported, wire by wire.

Needs the recorded traffic (EVENER_CORPUS). The constants of `evener.context.accounting` are fitted on the recordings whose
names hash to an even number and judged here on the others. `--fit` prints constants that are fitted anew on the first half.
Judged are requests that hold all that the provider counted: no media (recordings hold stand-ins for them), no tools that the
provider runs, no conversation that it holds.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from math import inf
from operator import mul

import msgspec
from msgspec.structs import asdict, replace

from evener.context.accounting import RATES, USUAL, Account, TokenRates, count_frame, rates_of
from evener.errors import EvenerError
from evener.providers import Rows, load_rows
from evener.transcript import Message, Origin, Transcript
from evener.transcript.ask import Ask, ToolSpec
from evener.transcript.blocks import Block, DocumentBlock, HostedBlock, ImageBlock, TextBlock, ToolResult
from evener.transcript.reply import Reply, Usage
from evener.wire import CODECS, Quirks
from evener.wire.stream import assemble
from tests.corpus import CORPUS, Exchange, exchanges

__all__ = ["BARS", "Judged", "describe", "fit", "judge", "main", "samples"]

BARS = {"anthropic_messages": 0.10, "openai_responses": 0.10, "openai_chat": 0.10, "gemini": 0.15}
"""The most that the median error may be, for requests that follow an answered one."""
ROWS = {"google_vertex": "google-vertex"}
"""The rows of recorded providers, where they are not named the same."""
FITTED = ("text", "json", "result", "schema", "message", "call", "tool", "tools", "base")


class Sample(msgspec.Struct, frozen=True):
    """One answered request: what it held, what was reported, and the answered one before it in the same conversation."""

    file: str
    ask: Ask
    usage: Usage
    before: Usage | None = None
    answer: int = 0  # where the answer to the one before stands
    counts_reasoning: bool | None = None

    @property
    def is_fitted(self) -> bool:
        """True if it belongs to the half on which the constants are fitted."""
        return sha256(self.file.encode()).digest()[0] % 2 == 0


class Judged(msgspec.Struct, frozen=True):
    """The errors of one wire, as shares of what was reported."""

    wire: str
    first: tuple[float, ...]
    following: tuple[float, ...]


def main(*, fitting: bool = False) -> int:
    """Print the errors; 1 when one is above its bar."""
    if CORPUS is None:
        print("no recorded traffic: set EVENER_CORPUS to its folder")
        return 2
    missed: list[str] = []
    print(f"{'wire':20}{'first requests':>28}{'after an answer':>28}{'bar':>8}")
    for wire, bar in BARS.items():
        known = samples(wire)
        if fitting:
            fitted = fit(known, rates_of(wire))
            print(f'    "{wire}": {fitted},')
            RATES[wire] = fitted
        found = judge(wire, known)
        shown = [describe(one) for one in (found.first, found.following)]
        print(f"{wire:20}{shown[0]:>28}{shown[1]:>28}{bar:>8.0%}")
        if _at(found.following, 0.5) > bar:
            missed.append(wire)
    print(f"missed: {', '.join(missed)}" if missed else "all bars are met")
    return 1 if missed else 0


def judge(wire: str, known: Sequence[Sample]) -> Judged:
    """Return the errors on the half that the constants were not fitted on."""
    rates = rates_of(wire)
    judged = [one for one in known if not one.is_fitted]
    return Judged(
        wire,
        tuple(_error(_estimate(one, rates, anchored=False), one) for one in judged if one.before is None),
        tuple(_error(_estimate(one, rates, anchored=True), one) for one in judged if one.before is not None),
    )


def describe(errors: Sequence[float]) -> str:
    """Return the median and the 90th percentile of errors, and how many they are."""
    return f"{_at(errors, 0.5):.1%} (p90 {_at(errors, 0.9):.0%}, n {len(errors)})"


def _at(errors: Sequence[float], share: float) -> float:
    return sorted(errors)[min(int(len(errors) * share), len(errors) - 1)] if errors else 0.0


def _error(estimated: float, sample: Sample) -> float:
    return abs(estimated - sample.usage.input_total) / sample.usage.input_total


def _estimate(sample: Sample, rates: TokenRates, *, anchored: bool) -> float:
    ask = sample.ask
    if sample.counts_reasoning is not None:
        rates = replace(rates, hidden=float(sample.counts_reasoning))
    transcript = ask.transcript
    if anchored and sample.before is not None:
        messages = list(transcript.messages)
        answer = messages[sample.answer]
        messages[sample.answer] = replace(answer, usage=sample.before, origin=ask.target)
        transcript = Transcript(messages, ask.transcript.system_blocks)
    frame = count_frame(transcript, ask.tools, ask.output, rates).total
    return Account(rates, frame).after(transcript, ask.target).total


# The recordings.


def samples(wire: str) -> list[Sample]:
    """Return every answered request of a wire that holds all that was counted."""
    found: list[Sample] = []
    last: Sample | None = None
    for one in exchanges(wire):
        made = _sample(one)
        if made is None:
            last = None if last and last.file != one.file else last
            continue
        if last is not None and last.file == made.file and (place := _follows(made.ask, last.ask)):
            made = replace(made, before=last.usage, answer=place)
        last = made
        found.append(made)
    return found


def _sample(one: Exchange) -> Sample | None:
    if one.status != 200 or one.request is None or "truncated" in one.tags or "count" in one.path:
        return None
    model = one.request.get("model") or one.path.rpartition("/")[2].partition(":")[0]
    target = Origin(one.wire, one.provider, model=str(model))
    try:
        ask = CODECS[one.wire].read_request(json.dumps(one.request).encode(), Quirks(unique_ids=False), target)
        reply = _reply(one)
    except EvenerError:
        return None
    whole = all(type(tool) is ToolSpec for tool in ask.tools) and ask.state.mode == "replay" and not ask.state.id
    if reply is None or not reply.usage.input_total or not whole or any(map(_is_other, _blocks(ask))):
        return None
    if any(isinstance(block, HostedBlock) for block in reply.blocks):
        return None  # a tool of the provider ran: its prompts were counted, too
    row = ROWS.get(one.provider, one.provider)
    known = rows().quirks(row, target.model) if any(row == one.name for one in rows().providers) else Quirks()
    return Sample(one.file, ask, reply.usage, counts_reasoning=known.counts_reasoning)


@cache
def rows() -> Rows:
    """Return the rows of providers and models."""
    return load_rows()


def _reply(one: Exchange) -> Reply | None:
    codec = CODECS[one.wire]
    if one.sse is None:
        return codec.decode(json.dumps(one.response).encode(), Quirks()) if one.response else None
    decoder = codec.decoder(Quirks())
    return assemble((*decoder.feed(one.sse), *decoder.close()))


def _blocks(ask: Ask) -> Iterator[Block]:
    for message in ask.transcript:
        for block in message.blocks:
            yield from block.content if isinstance(block, ToolResult) else (block,)


def _is_other(block: Block) -> bool:
    return isinstance(block, ImageBlock | DocumentBlock | HostedBlock)


def _follows(ask: Ask, before: Ask) -> int:
    """Return where the answer to the request before stands in this one; 0 if it does not go on from there."""
    ours, theirs = ask.transcript.messages, before.transcript.messages
    place = len(theirs)
    if len(ours) <= place or ask.target.model != before.target.model or ours[place].role != "assistant":
        return 0
    return place if all(_said(a) == _said(b) for a, b in zip(theirs, ours, strict=False)) else 0


def _said(message: Message) -> tuple[str, ...]:
    return (message.role, *(block.text for block in message.blocks if isinstance(block, TextBlock | ToolResult)))


# Fitting.

PRIOR = 0.02
"""How much weight a constant's usual value has against the recordings: few of them say much about, say, results."""
FAR = 4.0
"""No constant is further from its usual value than this factor, but for those that a wire may not have at all."""


def fit(known: Sequence[Sample], start: TokenRates) -> TokenRates:
    """Return constants for the first half: least sum of relative errors, by least squares that are weighted anew each time."""
    used = [one for one in known if one.is_fitted]
    following = [one for one in used if one.before is not None]
    tried = [_fit(used, replace(start, hidden=hidden)) for hidden in (0.0, 1.0)]
    return min(tried, key=lambda rates: sum(_error(_estimate(one, rates, anchored=True), one) for one in following))


def _fit(used: Sequence[Sample], start: TokenRates) -> TokenRates:
    none = replace(start, **dict.fromkeys(FITTED, 0.0), image=0, page=0.0)
    known = [_estimate(one, none, anchored=True) for one in used]  # what was reported before
    said = [one.usage.input_total for one in used]
    goals = [1 - fixed / total for fixed, total in zip(known, said, strict=True)]
    rows = [
        [(_estimate(one, replace(none, **{name: 1.0}), anchored=True) - fixed) / total for name in FITTED]
        for one, fixed, total in zip(used, known, said, strict=True)
    ]
    usual = [float(asdict(USUAL)[name]) for name in FITTED]
    values = list(usual)
    for _ in range(20):
        weights = [1 / max(abs(sum(map(mul, row, values)) - goal), 0.03) for row, goal in zip(rows, goals, strict=True)]
        values = _solve(rows, goals, weights, usual)
    return replace(start, **{name: round(value, 3) for name, value in zip(FITTED, values, strict=True)})


def _solve(rows: list[list[float]], goals: list[float], weights: list[float], usual: list[float]) -> list[float]:
    """Solve the normal equations by going round: each constant in turn, within its bounds."""
    values = list(usual)
    for _ in range(50):
        for place, expected in enumerate(usual):
            scale = expected or 100.0
            above, below = PRIOR * expected / scale**2, PRIOR / scale**2
            for row, goal, weight in zip(rows, goals, weights, strict=True):
                rest = goal - sum(map(mul, row, values)) + row[place] * values[place]
                above += weight * row[place] * rest
                below += weight * row[place] ** 2
            least, most = (usual[place] / FAR, usual[place] * FAR) if usual[place] else (0.0, inf)
            values[place] = min(max(above / below, least), most)
    return values
