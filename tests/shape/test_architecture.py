"""The picture of the layers in docs/architecture.md shows the parts that exist, in the order the import test enforces."""

import re

from tests.shape.test_imports import LAYERS
from tests.shape.tree import ROOT

UNSEEN = {"__init__", "__main__"}
PICTURE = re.compile(r"<!-- layers -->\n```\n(.*?)```", re.DOTALL)


def pictured(text: str) -> list[list[str]]:
    found = PICTURE.search(text)
    assert found, "docs/architecture.md has no picture after <!-- layers -->"
    return [sorted(line.split()) for line in found[1].splitlines()]


def existing() -> list[list[str]]:
    source = ROOT / "src" / "evener"
    present = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    layers = [sorted((set(layer) & present) - UNSEEN) for layer in reversed(LAYERS)]
    return [layer for layer in layers if layer]


def test_the_picture_shows_the_layers_that_exist() -> None:
    assert pictured((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")) == existing()


def test_a_picture_that_lags_behind_is_caught() -> None:
    assert pictured("<!-- layers -->\n```\ncli\nwire\n```") != existing()
