"""The ACP client `acpx` drives `evener acp`: one scene of `python -m bench editors`, which plays all of them.

Skips where there is no Node 22 with npm, or no registry.
"""

import pytest

from bench.editors import SCENES, play_scenes
from bench.npm_packages import NoNode


def test_acpx_is_asked_for_a_permission_and_every_frame_is_accepted() -> None:
    try:
        found = play_scenes([scene for scene in SCENES if scene.name == "permission, approved"], own=False)
    except NoNode as why:
        pytest.skip(f"acpx cannot be had: {why}")
    assert [wrong for _, _, wrong in found] == [""]
