"""What a benchmark says of an older revision of the tree beside this one. The figures of these tiny runs mean nothing."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import agents, clients, instructions, revision
from bench.agents import ANTHROPIC, OURS, Order, Scale
from bench.peers import Missing
from bench.revision import Side
from bench.table import Figure, failed, printed_beside, stand_beside

SMALL = Scale(4, 2, (2, 3), (20, 200), 1, 1)
ECHO = "import json, sys\nfor line in sys.stdin:\n    print(json.dumps({'error': json.loads(line)['what']}), flush=True)\n"


@pytest.fixture
def as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not compile the trees before they are measured: that is for the sake of the figures."""
    monkeypatch.setattr(revision, "compile_tree", lambda _: None)
    monkeypatch.setattr(instructions, "compile_tree", lambda _: None)


@pytest.mark.usefixtures("as_they_are")
@pytest.mark.parametrize(
    ("bench", "rows"),
    [
        (
            "agents",
            (
                *("request, gemini", "paced delta, openai_chat", "burst delta, openai_responses", "request, aiohttp alone"),
                *("turn of a 20-call loop, gemini", "turn of a 20-call loop on SQLite", "turn after 200 messages"),
                *("growth a message", "argument fragment, openai_chat", "first answer, CPU"),
            ),
        ),
        ("clients", ("request, plain", "request, TLS", "paced delta, TLS", "burst delta, plain", "import", "peak memory")),
    ],
)
def test_the_table_has_both_trees(
    bench: str, rows: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agents, "QUICK", SMALL)
    assert command.main([bench, "--quick", "--before", "HEAD"]) == 0
    head, *lines, verdict = capsys.readouterr().out.splitlines()
    assert head.split() == ["HEAD", "now", "ratio", "bar"]
    assert [line for line in lines if "not measured" in line and "<=" in line] == []  # a bar: it could be measured before
    for row in rows:
        assert [line for line in lines if line.startswith(row)] != []
    assert verdict.endswith("bars met")


def test_what_the_older_tree_cannot_do_has_a_dash_and_no_bar() -> None:
    then = [Figure("turn", 10.0), Figure("turn on SQLite", note="not measured: KeyError: 'disk-read'"), Figure("growth", 4.0)]
    now = [Figure("turn", 10.4), Figure("turn on SQLite", 7.0), Figure("growth", 5.0, 1.5, most=1.0, note="of us alone")]
    both = stand_beside(then, now)
    assert [line.split() for line in printed_beside(both, "abc").splitlines()] == [
        ["abc", "now", "ratio", "bar"],
        ["turn", "10.00", "us", "10.40", "us", "1.04x", "<=", "1.05x", "pass"],
        ["turn", "on", "SQLite", "-", "7.00", "us", "-", "none", "not", "measured:", "KeyError:", "'disk-read'"],
        ["growth", "4.00", "us", "5.00", "us", "1.25x", "<=", "1.05x", "FAIL"],
    ]
    assert [figure.name for figure in failed(both)] == ["growth"]


def test_what_this_tree_cannot_do_misses_its_bar() -> None:
    both = stand_beside([Figure("turn", 10.0)], [Figure("turn", note="not measured: it broke")])
    assert printed_beside(both, "abc").splitlines()[1].endswith("none  not measured: it broke")
    assert failed(both) == both


@pytest.mark.parametrize(
    ("knows", "asked"),
    [
        ("", ["loop-read", "loop", "disk-read", "disk"]),
        ('"disk-write"', ["loop", "loop-write", "disk", "disk-write"]),
    ],
)
def test_a_driver_with_one_tool_is_asked_by_its_own_names(tmp_path: Path, knows: str, asked: Sequence[str]) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "agent_ours.py").write_text(f"{ECHO}# {knows}\n")
    with agents._drive_side(Side(tmp_path, {}), "http://x") as drive:
        said = [drive(Order(OURS, what, ANTHROPIC, "s")).error for what in ("loop", "loop-write", "disk", "disk-write")]
    assert said == asked


def test_an_older_driver_that_ends_is_told_each_time(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "agent_ours.py").write_text("raise SystemExit")
    with agents._drive_side(Side(tmp_path, {}), "http://x") as drive:
        assert {drive(Order("it", "text", ANTHROPIC, "s")).error for _ in range(3)} == {"it ended"}


@pytest.mark.usefixtures("as_they_are")
def test_a_client_that_cannot_be_measured_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise Missing("ModuleNotFoundError: no httptools")

    monkeypatch.setattr(clients, "_run", refuse)
    with pytest.raises(SystemExit, match="could not be measured in both trees: ModuleNotFoundError: no httptools"):
        clients.compare(20, 1, "HEAD")


@pytest.mark.parametrize("bench", ["agents", "clients", "instructions", "loading"])
def test_an_unknown_revision_is_one_line(bench: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "valgrind")
    with pytest.raises(SystemExit) as caught:
        command.main([bench, "--before", "no-such-revision"])
    line = str(caught.value)
    assert line.startswith("bench: git cannot read the revision 'no-such-revision' (fatal: ")
    assert line.endswith("If this is a shallow clone: git fetch --unshallow")
    assert "\n" not in line


def test_a_shallow_clone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, clone = tmp_path / "whole", tmp_path / "clone"
    commit = ["-C", str(whole), "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x"]
    for words in (["init", "-q", str(whole)], commit, commit, ["clone", "-q", "--depth", "1", whole.as_uri(), str(clone)]):
        subprocess.run(["git", *words], check=True)
    monkeypatch.setattr(revision, "ROOT", clone)
    with pytest.raises(SystemExit, match=r"'HEAD~1' .*git fetch --unshallow"), revision.tree_of("HEAD~1"):
        pass


def test_without_git_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="bench: git is needed to read the revision 'HEAD'"), revision.tree_of("HEAD"):
        pass


def test_a_wire_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["instructions", "--wires", "gemini,grpc"])
    assert "no wire is called 'grpc'; there are anthropic_messages, openai_chat" in capsys.readouterr().err
