"""`make demo` as a real process: three wires, a tool, a schema, and the loss report."""

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE


def test_the_demo_shows_a_real_conversation_and_its_losses(weights: Path) -> None:
    assert weights.is_file()
    done = subprocess.run(
        [sys.executable, "-m", "evener.demo"], capture_output=True, timeout=10 * PATIENCE, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    for wire in ("openai_chat", "openai_responses", "anthropic_messages"):
        assert f"the {wire} wire" in done.stdout
    assert 'calculator({"expression":"17 * 23"}) -> 391' in done.stdout
    assert "degraded output schema" in done.stdout
    assert '"city":"Lisbon"' in done.stdout
