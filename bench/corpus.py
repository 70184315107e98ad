"""The five bars over all recorded traffic: decode, chunking, request round trip, tool loops, errors.

Needs the recorded traffic (EVENER_CORPUS). What counts as right is what the tests say: each bar runs their checks on each
recording. A request that comes back otherwise counts as missed, and must have a Loss with a code besides.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.wire.strict import Trip

__all__ = ["main"]

SHOWN = 5
Check = Callable[[], object]
Case = tuple[str, str, Check]
"""The wire, the recording, and what raises when it is wrong."""


class Bar(msgspec.Struct, frozen=True):
    """One bar: the least share of recordings that must be right, and what is checked."""

    name: str
    least: float
    cases: Callable[[], Iterator[Case]]


def main() -> int:
    """Print the bars; 1 when one is missed, or a request differs and nothing says so."""
    from tests.corpus import CORPUS

    if CORPUS is None:
        print("no recorded traffic: set EVENER_CORPUS to its folder")
        return 2
    missed = [bar.name for bar in BARS if not _met(bar)]
    silent = list(_silent())
    for one in silent:
        print(f"  differs and no loss says so: {one}")
    if silent:
        missed.append("losses")
    print(f"missed: {', '.join(missed)}" if missed else "all bars are met")
    return 1 if missed else 0


def _met(bar: Bar) -> bool:
    tried: dict[str, list[int]] = {}
    wrong: list[str] = []
    for wire, name, check in bar.cases():
        counts = tried.setdefault(wire, [0, 0])
        counts[1] += 1
        try:
            check()
            counts[0] += 1
        except Exception as error:
            wrong.append(f"{wire}/{name}: {type(error).__name__}: {str(error)[:200]}")
    right, total = (sum(counts[place] for counts in tried.values()) for place in (0, 1))
    share = right / total if total else 0.0
    by_wire = ", ".join(f"{wire} {counts[0]}/{counts[1]}" for wire, counts in sorted(tried.items()))
    print(f"{bar.name:18} {100 * share:7.2f} %  (bar {100 * bar.least:g} %)  {right}/{total}: {by_wire}")
    for line in wrong[:SHOWN]:
        print(f"  {line.splitlines()[0]}")
    sys.stdout.flush()
    return share >= bar.least


def _decode() -> Iterator[Case]:
    from tests.wire import test_gemini_corpus as gemini
    from tests.wire import test_openai_chat_corpus as chat
    from tests.wire import test_recorded as others
    from tests.wire.wires import WIRES

    for wire in WIRES.values():
        for one in wire.answers():
            yield wire.name, one.id, partial(others.test_an_answer_decodes_to_what_it_says, wire, one)
    for one in chat.SOUND:
        yield "openai_chat", one.id, partial(chat.test_an_answer_decodes_to_what_it_says, one)
    for one in gemini.ANSWERED:
        yield "gemini", one.id, partial(gemini.test_an_answer_decodes_to_what_it_says, one)


def _chunking() -> Iterator[Case]:
    from tests.wire import test_gemini_corpus as gemini
    from tests.wire import test_openai_chat_corpus as chat
    from tests.wire import test_recorded as others
    from tests.wire.wires import WIRES

    for wire in WIRES.values():
        for one in wire.streams():
            yield wire.name, one.id, partial(others.test_a_stream_cut_anywhere_gives_the_same_deltas, wire, one)
    for one in chat.STREAMED:
        yield "openai_chat", one.id, partial(chat.test_a_stream_cut_at_every_byte_gives_the_same_deltas, one)
    for one in gemini.STREAMED:
        yield "gemini", one.id, partial(gemini.test_a_stream_cut_at_every_byte_gives_the_same_deltas, one)


def _round_trip() -> Iterator[Case]:
    from tests.wire import strict

    for wire in strict.NORMAL:
        for trip in strict.trips(wire):
            yield wire, trip.exchange.id, partial(_same, trip)


def _same(trip: "Trip") -> None:
    assert trip.same, str(trip)


def _silent() -> Iterator[str]:
    """The requests that differ although no loss with a code says so."""
    from evener.transcript.loss import CODES
    from tests.wire import strict

    for wire in strict.NORMAL:
        for trip in strict.trips(wire):
            if not trip.same and not any(loss.code in CODES for loss in trip.encoded.losses):
                yield str(trip)


def _loops() -> Iterator[Case]:
    from tests.wire import test_gemini_corpus as gemini
    from tests.wire import test_loops as others
    from tests.wire import test_openai_chat_corpus as chat
    from tests.wire.wires import WIRES

    altered = tuple(name for names in others.ALTERED.values() for name in names)
    for wire in WIRES.values():
        for name, said in others.verdicts(wire).items():
            if not name.startswith(altered):
                yield wire.name, name, partial(_agrees, said)
    for one, after in chat.LOOPS:
        yield (
            "openai_chat",
            one.id,
            partial(chat.test_a_turn_goes_back_as_the_recorded_client_sent_it, one, after),
        )
    for one, after in gemini.LOOPS:
        yield (
            "gemini",
            one.id,
            partial(gemini.test_a_turn_goes_back_as_the_recorded_client_sent_it, one, after),
        )


def _agrees(said: str) -> None:
    assert said != "mismatch"


def _errors() -> Iterator[Case]:
    from tests.wire import test_gemini_corpus as gemini
    from tests.wire import test_openai_chat_corpus as chat
    from tests.wire import test_recorded as others
    from tests.wire.wires import WIRES

    for wire in WIRES.values():
        for one in wire.errors():
            yield (
                wire.name,
                one.id,
                partial(others.test_a_refusal_has_its_type_and_the_providers_words, wire, one),
            )
    for one in chat.REFUSED:
        yield "openai_chat", one.id, partial(chat.test_a_refusal_has_its_type_and_the_providers_words, one)
    for one in chat.BROKEN:
        yield (
            "openai_chat",
            one.id,
            partial(chat.test_an_error_after_a_200_fails_the_stream_with_the_providers_words, one),
        )
    for one in gemini.ALL:
        if one.status != 200:
            yield "gemini", one.id, partial(gemini.test_a_refusal_has_its_type_and_the_providers_words, one)


BARS = (
    Bar("decode", 1.0, _decode),
    Bar("chunking", 1.0, _chunking),
    Bar("request round trip", 0.99, _round_trip),
    Bar("tool loops", 1.0, _loops),
    Bar("errors", 1.0, _errors),
)
