"""One word, one meaning: no two public classes of the package have the same name."""

import ast
from collections.abc import Iterable

from tests.shape.tree import Source, sources


def namesakes(files: Iterable[Source]) -> list[str]:
    """Names of public classes that are defined more than once, with the places."""
    places: dict[str, list[str]] = {}
    for source in files:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{source.where}:{node.lineno}")
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def test_no_two_public_classes_have_one_name() -> None:
    assert namesakes(sources()) == []


def test_a_name_that_is_used_twice_is_caught() -> None:
    files = [Source("evener/loop/state.py", "class State: ..."), Source("evener/cli/x.py", "x = 1\n\n\nclass State: ...")]
    assert namesakes(files) == ["State: evener/loop/state.py:1, evener/cli/x.py:4"]


def test_private_classes_and_classes_within_others_may_share_a_name() -> None:
    text = "class _State: ...\n\n\nclass {}:\n    class State: ..."
    assert namesakes([Source("evener/a.py", text.format("A")), Source("evener/b.py", text.format("B"))]) == []
