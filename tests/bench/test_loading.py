"""What the first lines of a program cost, beside another revision of the tree."""

import pytest

from bench import __main__ as command
from bench import loading


def test_the_table_has_both_trees(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(loading, "LINES", {"import evener": "import evener"})
    monkeypatch.setattr("bench.loading.main.__defaults__", (1,))
    assert command.main(["loading", "--before", "HEAD"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["HEAD", "now", "ratio", "modules", "now", "ratio"]
    assert row.startswith("import evener")
