"""Files that are torn, flipped or mixed up: a change is noticed, and what is read is what was written.

`python -m bench damage` does it with 1,000 files.
"""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.store_damage import DAMAGES, campaign, judged
from bench.store_life import FILE, HEADS, Life, lived
from evener.errors import StoreError
from evener.store import SqliteStore

FILES = 220


@pytest.fixture(scope="module")
def life(memory: Path) -> Life:
    return lived(memory)


def put(life: Life, moment: int, folder: Path, *without: str) -> Path:
    for name, content in life.moments[moment].files.items():
        if name not in without:
            (folder / name).write_bytes(content)
    return folder / FILE


def test_no_damage_is_taken_for_what_was_written(memory: Path) -> None:
    tally = campaign(FILES, 1, memory / "campaign")
    assert tally.wrong == []
    assert tally.noticed > FILES / 4
    assert tally.harmless > FILES / 20
    assert {kind.split(":")[0] for kind in tally.kinds} == set(DAMAGES)


def test_no_moment_of_a_sound_store_looks_damaged(life: Life, tmp_path: Path) -> None:
    for number, moment in enumerate(life.moments):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcome = judged(put(life, number, folder), life, moment)
        assert (outcome.noticed, outcome.shorter, outcome.wrong) == (False, False, ())


def test_the_loss_of_a_tail_shows_in_the_heads_and_in_an_exported_link(life: Life, tmp_path: Path) -> None:
    """DESIGN: loss of the tail is detected against the checkpoint sidecar or the last exported head."""
    early, late = next(number for number, moment in enumerate(life.moments) if "b" in moment.vouched), len(life.moments) - 1
    path = put(life, early, tmp_path)
    path.with_name(HEADS).write_bytes(life.moments[late].files[HEADS])

    async def look() -> tuple[set[str], str]:
        store = SqliteStore(path)
        findings = {finding.log for finding in await store.verify() if finding.damage}
        with pytest.raises(StoreError) as refused:
            await store.link("a", life.moments[late].lengths["a"])
        await store.aclose()
        return findings, str(refused.value)

    findings, said = asyncio.run(look())
    assert {"a", "b"} <= findings
    assert "event" in said


def test_without_heads_there_is_nothing_to_compare_with_and_that_is_said(life: Life, tmp_path: Path) -> None:
    path = put(life, len(life.moments) - 1, tmp_path, HEADS)

    async def look() -> list[tuple[str, bool]]:
        store = SqliteStore(path)
        found = await store.verify()
        await store.aclose()
        return [(finding.what, finding.damage) for finding in found]

    found = asyncio.run(look())
    assert [damage for _, damage in found] == [False]
    assert "sidecar file is missing" in found[0][0]


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("not what was written", lambda life: replace(life, events={**life.events, "b": life.events["a"]})),
        ("by half", lambda life: replace(life, ends={**life.ends, "a": frozenset({0})})),
    ],
)
def test_the_judge_sees_what_should_not_pass(life: Life, tmp_path: Path, said: str, change: object) -> None:
    assert callable(change)
    moment = len(life.moments) - 1
    outcome = judged(put(life, moment, tmp_path), change(life), life.moments[moment])
    assert any(said in text for text in outcome.wrong)


def test_the_judge_sees_a_tail_that_is_lost_in_silence(life: Life, tmp_path: Path) -> None:
    outcome = judged(put(life, 1, tmp_path, HEADS), life, life.moments[-1])
    assert any("nothing was said" in text for text in outcome.wrong)
