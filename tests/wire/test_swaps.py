"""Recorded answers with lesser fields of another type, and recorded streams cut short.

A fixed sample of `python -m bench swaps`. The list of the fields that carry an answer is `swaps.CARRYING`.
"""

import pytest

from evener.wire import CODECS
from tests.corpus import needs_corpus
from tests.wire import swaps

pytestmark = needs_corpus

SHARE = {"anthropic_messages": 60, "openai_chat": 90, "openai_responses": 160, "gemini": 60}
"""One in so many swaps is made, each recording's from another place on."""


@pytest.mark.parametrize("wire", CODECS)
def test_text_calls_and_stop_survive_any_type_of_any_other_field(wire: str) -> None:
    made = 0
    for number, recording in enumerate(swaps.recordings(wire)[::4]):
        share = SHARE[wire] // 4
        found = list(swaps.problems(recording, lambda place, share=share, first=number: (place + 7 * first) % share == 0))  # type: ignore[misc]
        assert list(filter(None, found)) == []
        made += len(found)
    assert made > 100


@pytest.mark.parametrize("wire", CODECS)
def test_a_stream_that_its_end_mark_closes_before_it_says_why_it_stopped_does_not_count(wire: str) -> None:
    streams = [one for one in swaps.recordings(wire) if one.streamed]
    assert streams
    for recording in streams:
        cut = swaps.cuts(recording)[-1]
        assert swaps.counted(recording, cut) == ""


def test_a_field_that_carries_is_seen_to_carry() -> None:
    """The twin: where text, calls or stop are swapped, something is lost, and the check says so."""
    for wire in CODECS:
        whole = [one for one in swaps.recordings(wire) if not one.streamed]
        recording = next(one for one in whole if swaps.said(one, one.written(one.events))[0])
        event = recording.events[0]
        carrying = [path for path, _ in swaps.every_field(event) if swaps.carries(wire, path, event)]
        expected = swaps.said(recording, recording.written(recording.events))
        lost = [path for path in carrying if swaps.said(recording, swaps.swapped(recording, 7, [(0, path)])) != expected]
        assert len(lost) >= 3
