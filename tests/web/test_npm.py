"""The npm packages that pages use read what the app serves, over HTTP, from a fake provider that breaks off, too.

Skips where there is no Node 20 with npm, or no registry. `python -m bench fronts` plays all scenes.
"""

import pytest

from bench.fronts import SCENES, play
from bench.npm_packages import NoNode

SOME = (
    "reasoning",
    "approval, allowed",
    "approval, rejected",
    "error of the provider",
    "broken in a call",
    "broken after 8 events",
)


def test_npm_ai_and_ag_ui_show_what_they_should() -> None:
    try:
        found = play([scene for scene in SCENES if scene.name in SOME], ("ui", "ag-ui"), own=False)
    except NoNode as why:
        pytest.skip(f"the npm packages cannot be had: {why}")
    assert len(found) == 2 * len(SOME)
    assert [one for one in found if one[3]] == []
