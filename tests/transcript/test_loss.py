"""Losses: one sentence each."""

import pytest

from evener.transcript import Loss


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (Loss("dropped", "setting seed", "this wire has none"), "dropped setting seed: this wire has none"),
        (Loss("repaired", "text", "it was empty", "m1"), "repaired text in message m1: it was empty"),
    ],
)
def test_a_loss_is_a_sentence(loss: Loss, text: str) -> None:
    assert str(loss) == text
