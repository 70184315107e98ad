"""The picture of the state machine in docs/architecture.md shows what a run really does."""

import re
import sys
from collections.abc import Iterator

import pytest

from evener.loop.state import Phase
from tests.shape.tree import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from states import PHASES, transitions  # a script, not a package

PICTURE = re.compile(r"<!-- states -->\n```\n(.*?)```", re.DOTALL)
ARROW = re.compile(r"(\w+) +--([\w ]+?)-+> +(\w+)")


def arrows(text: str) -> list[tuple[str, str, str]]:
    found = PICTURE.search(text)
    assert found, "docs/architecture.md has no picture after <!-- states -->"
    lines = [ARROW.fullmatch(line.strip()) for line in found[1].splitlines()]
    return [(line[1], line[2], line[3]) if line else ("", "", "") for line in lines]


def untrue(shown: list[tuple[str, str, str]]) -> Iterator[str]:
    for start, event, end in shown:
        if event not in transitions().get((start, end), ()):
            yield f"{start} --{event}--> {end}"


def test_every_arrow_is_a_way_that_a_run_can_take() -> None:
    shown = arrows((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert list(untrue(shown)) == []
    assert {phase for start, _, end in shown for phase in (start, end)} == set(PHASES)


def test_the_walk_reaches_every_phase() -> None:
    assert set(PHASES) == set(Phase.__args__)  # type: ignore[attr-defined]  # the members of a Literal
    assert {end for _, end in transitions()} == set(PHASES)


@pytest.mark.parametrize(
    "line",
    ["awaiting_input --Replied--> processing", "respond --Replied--> processing", "processing --Replied-> nowhere", "prose"],
)
def test_a_false_arrow_is_caught(line: str) -> None:
    assert len(list(untrue(arrows(f"<!-- states -->\n```\n{line}\n```")))) == 1
