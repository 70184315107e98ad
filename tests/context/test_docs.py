"""docs/context.md states what commands print: the picture of a window, and the errors of estimates."""

from bench.context_page import PAGE, draw, tabulate, write_between
from evener.context import ContextRules
from tests.corpus import needs_corpus

STALE = "run `make docs`"


def test_the_picture_is_what_the_command_prints() -> None:
    page = PAGE.read_text("utf-8")
    assert write_between(page, "picture", f"```text\n{draw()}\n```") == page, STALE


@needs_corpus
def test_the_errors_of_estimates_are_what_the_command_prints() -> None:
    page = PAGE.read_text("utf-8")
    assert write_between(page, "errors", tabulate()) == page, STALE


def test_every_rule_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in ContextRules.__struct_fields__ if name not in page] == []
