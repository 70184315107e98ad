"""Every loss that the code can make has a code of the one table, and the docs list that table."""

import ast
from collections.abc import Iterator

import pytest

from evener.transcript.loss import CODES, TOPICS
from tests.shape.tree import ROOT

KINDS = {"dropped", "degraded", "renamed", "repaired", "added"}
SHORT = {"drop": "dropped", "degrade": "degraded", "rename": "renamed"}
"""Methods of a page, and the kinds of losses that they report."""


def sites(source: str) -> Iterator[tuple[str, str]]:
    """Kind and topic of each loss that a source makes; a part of a topic that is not known before is a star."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("loss_of", "loss_in", "lose") and len(node.args) >= 3:
            yield from ((str(getattr(node.args[0], "value", "*")), topic) for topic in topics(node.args[1]))
        elif name in SHORT and isinstance(node.func, ast.Attribute) and len(node.args) >= 2:
            yield from ((SHORT[name], topic) for topic in topics(node.args[0]))
        elif name == "Loss":
            yield "*", "a Loss without a code"


def topics(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)]
        case ast.IfExp(body=one, orelse=other):
            return [*topics(one), *topics(other)]
        case _:
            return ["*"]


def is_known(kind: str, topic: str) -> bool:
    codes = [code.rsplit(".", 1) for code in CODES]
    start, star, end = topic.partition("*")
    fits = [name == topic or (bool(star) and name.startswith(start) and name.endswith(end)) for name, _ in codes]
    return any(fit and kind in ("*", found) for fit, (_, found) in zip(fits, codes, strict=True))


def test_every_loss_is_made_with_a_code_of_the_table() -> None:
    found = {
        (path.name, kind, topic)
        for path in sorted((ROOT / "src" / "evener").rglob("*.py"))
        if path.name != "loss.py"
        for kind, topic in sites(path.read_text())
    }
    assert len(found) > 100
    assert [site for site in sorted(found) if not is_known(*site[1:])] == []


@pytest.mark.parametrize(
    "source",
    [
        'loss_of("dropped", "no.such", why)',
        'loss_of("renamed", "setting.seed", why)',
        'page.drop("no.such", why)',
        'Loss("dropped", "x", "y")',
        'page.lose("added", f"no.{name}", why)',
    ],
)
def test_a_loss_without_a_code_is_found(source: str) -> None:
    assert [site for site in sites(source) if not is_known(*site)]


def test_each_topic_says_what_it_is_about() -> None:
    for name, topic in TOPICS.items():
        assert set() < set(topic.kinds) <= KINDS, name
        assert "" not in (topic.about, topic.what), name
        assert name.rpartition(".")[2] not in KINDS, f"{name}.x would read as a code"


def table() -> str:
    lines = ["| topic | kinds | path | about |", "|---|---|---|---|"]
    for name, topic in TOPICS.items():
        path = topic.path.replace("{}", "<name>") or "messages/<id>/..."
        lines.append(f"| `{name}` | {', '.join(topic.kinds)} | `{path}` | {topic.about} |")
    return "\n".join(lines) + "\n"


def test_the_docs_list_every_code() -> None:
    page = (ROOT / "docs" / "losses.md").read_text()
    assert page.partition("<!-- codes -->\n")[2] == table(), (
        "put tests.shape.test_loss_codes.table() at the end of docs/losses.md"
    )
