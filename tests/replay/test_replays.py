"""Recorded runs, replayed offline: the same events, byte for byte; and an edit of the recording is found (S1.24)."""

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from evener import Harness, Limits, tool
from evener import events as ev
from evener.events import encode_events
from evener.loop.plan import LOST
from evener.policy.rules import Defaults, Policy, Rule
from evener.replay import Replayed, replay
from evener.replay.difference import compare_events
from evener.replay.old_logs import OLD_LOST, write_as_old
from evener.testing.scripted_model import ScriptedModel
from tests.driver.stage import quick_folder
from tests.patience import PATIENCE
from tests.replay.edits import EDITS, garbled, planted
from tests.replay.recordings import Recording, recorded
from tests.replay.recordings import _store as open_folder
from tests.replay.wired import KINDS

SEEDS = 2
GARBLES = 150
GARBLED = ("working", "approved", "failing", "steered_at_once", "cancelled", "forked", "with_waiting_agents", "final_result")
EDITED = (
    "working",
    "several_runs",
    "failing",
    "at_a_limit",
    "approved",
    "ruled",
    "given_up",
    "on_anthropic",
    "forked",
    "hopping",
)
"""Kinds with something of everything that is edited."""


def record(name: str, seed: int, tmp_path: Path) -> Recording:
    with quick_folder(tmp_path) as folder:
        return asyncio.run(recorded(name, seed, folder))


def replayed(made: Recording, **settings: object) -> Replayed:
    return asyncio.run(replay(made.events, log=made.log, **settings))  # type: ignore[arg-type]


def test_there_are_more_than_fifty() -> None:
    assert len(KINDS) * SEEDS > 50


@pytest.mark.parametrize("name", KINDS)
def test_a_recorded_run_replays_to_the_same_events(name: str, tmp_path: Path) -> None:
    """S1.24: also with the harness that made it, whose setup is then not inferred."""
    for seed in range(SEEDS):
        made = record(name, seed, tmp_path)
        for found in (replayed(made), replayed(made, harness=made.harness)):
            assert [str(one) for one in found.differences] == []
            assert encode_events(found.events) == encode_events(made.events)
        for log, events in made.others:
            assert [str(one) for one in asyncio.run(replay(events, log=log)).differences] == []


@pytest.mark.parametrize("name", [name for name in KINDS if name != "routed"])  # earlier versions had no routers
def test_the_log_of_an_earlier_version_replays_from_its_sentences(name: str, tmp_path: Path) -> None:
    """Without the setup, the numbers and the digests, which earlier versions did not write."""
    for seed in range(SEEDS):
        made = record(name, seed, tmp_path)
        old = replace(made, events=tuple(write_as_old(event, event) for event in made.events))
        for found in (replayed(old), replayed(old, harness=made.harness)):
            assert [str(one) for one in found.differences] == []
            assert encode_events(found.events) == encode_events(old.events)


def _as_first_written(event: ev.Event) -> ev.Event:
    """As the versions before 19 November 2026 wrote it."""
    if isinstance(event, ev.ApprovalAsked):
        return replace(event, questions=tuple(replace(one, why=one.why.replace(LOST, OLD_LOST)) for one in event.questions))
    return event


def test_older_words_in_the_log_of_an_earlier_version_replay(tmp_path: Path) -> None:
    made = record("lost_in_the_middle", 3, tmp_path)
    events = tuple(_as_first_written(write_as_old(event, event)) for event in made.events)
    assert events != tuple(write_as_old(event, event) for event in made.events)
    assert [str(one) for one in replayed(replace(made, events=events)).differences] == []


def test_a_log_that_a_later_version_went_on_with_replays(tmp_path: Path) -> None:
    """A run in the thread of an earlier version writes its setup anew, and facts from there on."""
    made = record("several_runs", 0, tmp_path)
    prompts = [place for place, event in enumerate(made.events) if isinstance(event, ev.Prompted)]
    config = next(event for event in made.events if isinstance(event, ev.Configured))
    old = tuple(write_as_old(event, event) for event in made.events[: prompts[1]])
    found = replayed(replace(made, events=(*old, config, *made.events[prompts[1] :])))
    assert [str(one) for one in found.differences] == []


@pytest.mark.parametrize("name", EDITED)
def test_a_planted_edit_is_found(name: str, tmp_path: Path) -> None:
    made = record(name, 0, tmp_path)
    assert replayed(made).ok
    random, tried = Random(name), 0
    for edit in EDITS:
        events = planted(made.events, edit, random)
        if events is not None:
            tried += 1
            assert not replayed(replace(made, events=events)).ok, edit
    assert tried >= len(EDITS) - 3


@pytest.mark.parametrize("name", ["working", "approved", "failing", "forked", "steered_at_once"])
def test_cut_anywhere_it_is_what_a_killed_run_leaves(name: str, tmp_path: Path) -> None:
    made = record(name, 0, tmp_path)
    for length in range(len(made.events)):
        part = replace(made, events=made.events[:length])
        found = replayed(part)
        assert found.differences == ()
        assert found.events == part.events


def test_a_garbled_recording_comes_to_an_end(tmp_path: Path) -> None:
    """Whatever is in it, the replay goes through all of it, and only says where it differs."""
    recordings = [record(name, 1, tmp_path) for name in GARBLED]
    others = tuple(event for made in recordings for event in made.events)
    random = Random(5)
    for number in range(GARBLES):
        made = random.choice(recordings)
        part = replace(made, events=garbled(made.events, others, random))
        found = replayed(part, harness=random.choice((None, made.harness)))
        assert len(found.events) == len(part.events), number


def test_a_run_without_a_time_limit_after_one_that_ran_out_of_time_replays(tmp_path: Path) -> None:
    async def record_both() -> tuple[str, tuple[ev.Event, ...]]:
        made = await recorded("out_of_time", 0, tmp_path)
        async with open_folder(tmp_path / "out_of_time-0.db") as store:
            await Harness(ScriptedModel(["More."]), store=store).thread(made.log).run("And then?")
            return made.log, tuple(await store.read(made.log))

    log, events = asyncio.run(record_both())
    found = asyncio.run(asyncio.wait_for(replay(events, log=log), PATIENCE))
    assert [str(one) for one in found.differences] == []


def test_a_field_that_is_written_with_its_default_is_no_difference() -> None:
    """The oldest logs have results with `"metadata":"{}"`."""
    usual = ev.CallFinished(call="a", ok=True, at=1.0)
    written = msgspec.json.decode(b'{"kind":"call_finished","call":"a","ok":true,"at":1.0,"metadata":"{}"}', type=ev.Event)
    assert compare_events(written, usual, number=1) == ()
    assert len(compare_events(replace(usual, metadata='{"a":1}'), usual, number=1)) == 1


def test_a_difference_says_where_and_what(tmp_path: Path) -> None:
    made = record("plain", 0, tmp_path)
    place = next(place for place, event in enumerate(made.events) if isinstance(event, ev.Finished))
    forged = replace(made.events[place], cause="refusal", detail="It would not.")
    found = replayed(replace(made, events=(*made.events[:place], forged, *made.events[place + 1 :])))
    assert [str(one) for one in found.differences] == [
        f'event {place + 1}, cause: recorded "refusal", replayed "done"',
        f'event {place + 1}, detail: recorded "It would not.", replayed (not there)',
    ]


def test_after_a_difference_it_goes_on_with_what_was_recorded(tmp_path: Path) -> None:
    """Two edits far apart are two findings, and one is one."""
    made = record("several_runs", 0, tmp_path)
    starts = [place for place, event in enumerate(made.events) if isinstance(event, ev.CallStarted)]
    events = list(made.events)
    for place in (starts[0], starts[-1]):
        events[place] = replace(events[place], digest="0" * 64)
    found = replayed(replace(made, events=tuple(events)))
    assert [(one.number, one.field) for one in found.differences] == [(starts[0] + 1, "digest"), (starts[-1] + 1, "digest")]


def test_a_fork_whose_log_nobody_names_replays_with_the_recorded_keys(tmp_path: Path) -> None:
    made = record("forked", 0, tmp_path)
    assert asyncio.run(replay(made.events)).ok


def test_an_empty_recording_is_nothing_that_happens() -> None:
    assert asyncio.run(replay([])) == Replayed(())


# A harness that would do something else.


def test_another_policy_another_schema_and_other_limits_are_told(tmp_path: Path) -> None:
    @tool(effect="read")
    def look(x: str, y: int = 0) -> str:
        """Look further."""
        return f"{x}{y}"

    made = record("working", 0, tmp_path)
    tools = list(made.harness.tools.values())
    others = [look, *(one for one in tools if one.name not in ("look", "read_output"))]
    strict = Policy((Rule(tool="*", verdict="deny", name="nothing"),), Defaults.all("deny"))
    model = ScriptedModel([], name="scripted:model")
    for harness, field in (
        (Harness(model, tools=others, store="memory"), "digest"),
        (Harness(model, tools=tools, page_output=False, store="memory", policy=strict), "kind"),
        (Harness(model, tools=tools, page_output=False, store="memory", limits=Limits(requests=1)), "kind"),
    ):
        found = replayed(made, harness=harness)
        assert field in {one.field for one in found.differences}
