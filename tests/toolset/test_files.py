"""The file tools: what they show, what they change, and what they leave as it is."""

import os
import stat
from pathlib import Path

import pytest

from evener.errors import BadValue
from evener.toolset import Fence, FileTools, SearchTools
from evener.toolset.changes import read_change, restore
from evener.toolset.folder import PathRefused, RootFolder
from evener.transcript import ImageBlock
from tests.toolset.calls import Caller


def test_reading_shows_numbered_lines_a_page_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "many").write_text("".join(f"line {number}\n" for number in range(1, 31)))
    caller = Caller(FileTools(tmp_path).tools)
    page = caller.call("read", {"path": "many", "offset": 5, "limit": 2})
    assert page.text == "     5\tline 5\n     6\tline 6\n[Lines 5 to 6 of 30. Go on with offset=7.]"
    assert (
        caller.call("read", {"path": "many", "offset": 30}).text == "    30\tline 30\n[Lines 30 to 30 of 30. This is the end.]"
    )
    assert "there is no line 31" in caller.call("read", {"path": "many", "offset": 31}).text


def test_an_image_is_read_as_one(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0")
    caller = Caller(FileTools(tmp_path).tools)
    assert isinstance(caller.call("read", {"path": "dot.png"}).content[0], ImageBlock)
    assert "is a binary file" in caller.call("read", {"path": "program"}).text


def test_edits_are_made_together_and_shown_as_a_diff(tmp_path: Path) -> None:
    """S2.28."""
    (tmp_path / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    edits = [{"old": "one = 1", "new": "one = 10"}, {"old": "three = 3", "new": "three = 30"}]
    result = Caller(FileTools(tmp_path).tools).call("edit", {"path": "a.py", "edits": edits})
    assert result.text.splitlines()[3:] == ["@@ -1,3 +1,3 @@", "-one = 1", "+one = 10", " two = 2", "-three = 3", "+three = 30"]
    assert (tmp_path / "a.py").read_text() == "one = 10\ntwo = 2\nthree = 30\n"


def test_a_write_keeps_the_mode_and_follows_a_symlink_inside(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o750)
    (tmp_path / "link").symlink_to("run.sh")
    caller = Caller(FileTools(tmp_path).tools)
    assert caller.call("read", {"path": "link"}).ok
    assert caller.call("write", {"path": "link", "content": "#!/bin/sh\nls\n"}).ok
    assert script.read_text() == "#!/bin/sh\nls\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "run.sh"]  # nothing temporary is left


def test_a_file_that_the_run_has_not_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("precious")
    caller = Caller(FileTools(tmp_path).tools)
    assert "you have not read it" in caller.call("write", {"path": "notes", "content": "x"}).text
    assert caller.call("read", {"path": "notes"}, run_id="run-1").ok
    assert not caller.call("write", {"path": "notes", "content": "x"}, run_id="run-2").ok
    assert caller.call("write", {"path": "notes", "content": "x"}, run_id="run-1").ok
    assert caller.call("write", {"path": "new/folders/file", "content": "y"}).text == "Created new/folders/file (1 bytes)."


def test_what_the_fence_denies_is_neither_read_nor_listed_nor_found(tmp_path: Path) -> None:
    """S2.28."""
    for name in (".env", "code.py", "secret/key.txt", "open/key.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("password = 1\n")
    (tmp_path / "innocent").symlink_to(".env")
    fence = Fence(deny=(".env", "secret/**"))
    for ripgrep in (True, False):
        caller = Caller((*FileTools(tmp_path, fence=fence).tools, *SearchTools(tmp_path, fence=fence, ripgrep=ripgrep).tools))
        for path in (".env", "innocent", "secret/key.txt", "open/../.env", "./secret//key.txt", ".ENV"):
            assert "denied" in caller.call("read", {"path": path}).text, path
        assert caller.call("list", {}).text == "code.py 13\ninnocent (symlink)\nopen/"
        assert sorted(caller.call("glob", {"pattern": "**"}).text.splitlines()) == ["code.py", "innocent", "open/key.txt"]
        found = caller.call("search", {"pattern": "password"}).text.splitlines()
        assert sorted(found) == ["code.py:1:password = 1", "open/key.txt:1:password = 1"]


def test_read_only_tools_are_those_that_read(tmp_path: Path) -> None:
    """S2.25, S2.28."""
    assert [tool.name for tool in FileTools(tmp_path, fence=Fence(writable=False)).tools] == ["read", "list"]
    assert [tool.name for tool in FileTools(tmp_path).tools if tool.sequential] == ["write", "edit", "delete"]


def test_only_what_is_allowed_is_there(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("a")
    (tmp_path / "b.md").write_text("b")
    caller = Caller(FileTools(tmp_path, fence=Fence(allow=("docs/**",))).tools)
    assert caller.call("read", {"path": "docs/a.md"}).ok
    assert "not among what is allowed" in caller.call("read", {"path": "b.md"}).text
    assert caller.call("list", {}).text == "docs/"


def test_search_and_glob_are_the_same_with_and_without_ripgrep(tmp_path: Path) -> None:
    """S2.79."""
    for number in range(20):
        folder = tmp_path / f"part{number % 3}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number}.py").write_text(f"alpha\nBeta {number}\ngamma\n")
        (folder / f"file{number}.txt").write_text("Beta too\n")
    (tmp_path / "away").symlink_to("/etc")
    cases: list[dict[str, object]] = [
        {"pattern": "Beta"},
        {"pattern": "beta", "ignore_case": True, "path": "part1"},
        {"pattern": r"Beta \d+$", "glob": "*.py", "context": 1, "limit": 1_000},
        {"pattern": "Beta", "glob": "part2/*.txt"},
        {"pattern": "nothing of the kind"},
        {"pattern": "root:", "path": "away"},
        {"pattern": "a("},
    ]
    quick, safe = (Caller(SearchTools(tmp_path, ripgrep=ripgrep).tools) for ripgrep in (True, False))
    for case in cases:
        one, other = quick.call("search", case), safe.call("search", case)
        assert one.ok == other.ok, case
        if one.ok:
            assert sorted(one.text.splitlines()) == sorted(other.text.splitlines()), case
    assert "The pattern cannot be used" in quick.call("search", {"pattern": "a("}).text
    assert len(quick.call("glob", {"pattern": "part*/*1?.py"}).text.splitlines()) == 10
    assert len(quick.call("glob", {"pattern": "*.py", "path": "part0"}).text.splitlines()) == 7
    assert not quick.call("glob", {"pattern": "../*"}).ok


def test_what_was_changed_can_be_brought_back(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old\n")
    (tmp_path / "both").write_text("both\n")
    caller = Caller(FileTools(tmp_path).tools)
    results = [
        caller.call("edit", {"path": "old", "edits": [{"old": "old", "new": "older"}]}),
        caller.call("edit", {"path": "old", "edits": [{"old": "older", "new": "oldest"}]}),
        caller.call("write", {"path": "new", "content": "new\n"}),
        caller.call("edit", {"path": "both", "edits": [{"old": "both", "new": "tool"}]}),
    ]
    (tmp_path / "both").write_text("the user's\n")
    changes = [change for one in results if (change := read_change(one.meta))]
    assert len(changes) == 4
    assert sorted(restore(RootFolder(tmp_path), changes)) == [
        "both: kept, because it was changed since",
        "new: removed, as it was not there before",
        "old: restored",
    ]
    assert (tmp_path / "old").read_text() == "old\n"
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "both").read_text() == "the user's\n"


def test_a_file_that_cannot_be_brought_back_does_not_keep_the_others(tmp_path: Path) -> None:
    caller = Caller(FileTools(tmp_path).tools)
    results = []
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text("old\n")
        results.append(caller.call("edit", {"path": name, "edits": [{"old": "old", "new": "new"}]}))
    (tmp_path / "two").chmod(0o444)
    told = restore(RootFolder(tmp_path), [change for one in results if (change := read_change(one.meta))])
    assert told[0] == "three: restored"
    assert told[1].startswith("two: kept, because it cannot be written: two is read-only (mode 444).")
    assert told[2] == "one: restored"
    assert (tmp_path / "one").read_text() == "old\n"


def test_a_name_with_a_line_break_does_not_pass_for_another_path(tmp_path: Path) -> None:
    """S2.79. In the output of ripgrep the end of the denied path would be a path that is allowed."""
    (tmp_path / "vault" / "x\n.").mkdir(parents=True)
    (tmp_path / "vault" / "x\nopen.txt").write_text("marigold\n")
    (tmp_path / "vault" / "x\n." / "open.txt").write_text("marigold\n")
    (tmp_path / "open.txt").write_text("nothing\n")
    for ripgrep in (True, False):
        caller = Caller(SearchTools(tmp_path, fence=Fence(deny=("vault",)), ripgrep=ripgrep).tools)
        assert caller.call("search", {"pattern": "marigold"}).text == "No line fits 'marigold'."


def test_a_pipe_is_not_searched(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = Caller(SearchTools(tmp_path).tools).call("search", {"pattern": "x", "path": "pipe"})
    assert not result.ok
    assert "Give a file or a folder" in result.text


def test_large_files_and_other_encodings_are_shown_but_not_edited(tmp_path: Path) -> None:
    (tmp_path / "wide").write_bytes("one\r\nzw\u00f6lf\r\n".encode("utf-16"))
    with (tmp_path / "log").open("wb") as file:
        for number in range(20):
            file.write(b"".join(b"line %d of %07d\n" % (line, number) for line in range(1, 60_001)))
    caller = Caller(FileTools(tmp_path).tools)
    assert caller.call("read", {"path": "wide"}).text.startswith("     1\tone\n     2\tzw\u00f6lf\n[The file is in UTF-16")
    assert "cannot be edited" in caller.call("edit", {"path": "wide", "edits": [{"old": "one", "new": "1"}]}).text
    page = caller.call("read", {"path": "log", "offset": 60_003, "limit": 2}).text.splitlines()
    assert page[:2] == [" 60003\tline 3 of 0000001", " 60004\tline 4 of 0000001"]
    assert "Go on with offset=60005" in page[2]
    assert "there is no line 1,300,000" in caller.call("read", {"path": "log", "offset": 1_300_000}).text
    assert "too large" in caller.call("edit", {"path": "log", "edits": [{"old": "line 3 of", "new": "x"}]}).text
    whole = caller.call("read", {"path": "log", "offset": 1_200_000}).text  # the last line
    assert whole.startswith("1200000\tline 60000 of 0000019\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes files of others, and can leave them to them")
def test_a_file_still_belongs_to_its_owner_after_an_edit(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("one")
    os.chown(tmp_path / "theirs", 1234, 4321)
    assert Caller(FileTools(tmp_path).tools).call("edit", {"path": "theirs", "edits": [{"old": "one", "new": "two"}]}).ok
    found = (tmp_path / "theirs").stat()
    assert (found.st_uid, found.st_gid) == (1234, 4321)


def test_what_is_replaced_while_it_is_looked_up_is_judged_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel calls a file that was removed `.env (deleted)`, which no pattern fits."""
    (tmp_path / ".env").write_text("marigold")
    (tmp_path / "link").symlink_to(".env")
    folder = RootFolder(tmp_path, Fence(deny=(".env",)))
    opened = folder._open

    def replace_then(path: str) -> int:
        found = opened(path)
        (tmp_path / "new").write_text("marigold")
        (tmp_path / "new").rename(tmp_path / ".env")
        return found

    monkeypatch.setattr(folder, "_open", replace_then)
    with pytest.raises(PathRefused, match=r"kept changing|is denied"):
        folder.read("link", most=100)
    (tmp_path / "notes (deleted)").write_text("plain")
    assert RootFolder(tmp_path).read("notes (deleted)", most=100) == (b"plain", "notes (deleted)")


def test_bringing_back_goes_over_several_runs_and_keeps_modes(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("first")
    script.chmod(0o755)
    caller, folder, changes = Caller(FileTools(tmp_path).tools), RootFolder(tmp_path), []
    for run_id, tool, more in (
        ("run-1", "write", {"content": "second"}),
        ("run-2", "write", {"content": "third"}),
        ("run-2", "delete", {}),
    ):
        caller.call("read", {"path": "run.sh"}, run_id=run_id)
        change = read_change(caller.call(tool, {"path": "run.sh", **more}, run_id=run_id).meta)
        assert change is not None
        changes.append(change)
    assert restore(folder, changes[1:]) == ["run.sh: restored"]
    assert script.read_text() == "second"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert restore(folder, changes[1:]) == ["run.sh: is as it was before"]
    assert restore(folder, changes) == ["run.sh: restored"]
    assert script.read_text() == "first"


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a?b", "a/b", False), ("a?b", "axb", True), ("a[!x]b", "a/b", False), ("a[!x]b", "ayb", True),
        ("[.]env", ".env", True), ("[.]env", "xenv", False), ("*.p?m", "deep/a.pem", True),
        ("a*z", "a/z", False), ("a*b*c", "axbxc", True),
        ("a\\*b", "a\\xb", True), ("x.y", "xzy", False), ("src/*/t", "src/a/t", True), ("src/*/t", "src/a/b/t", False),
    ],
)  # fmt: skip
def test_one_character_of_a_pattern_is_never_a_slash(pattern: str, path: str, fits: bool) -> None:
    assert (Fence(deny=(), allow=(pattern,)).refuse(path, "read") == "") is fits


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("vault/", "vault/a", True), ("vault/", "deep/vault/a", True), ("./vault", "vault/a", True),
        ("./vault", "b/vault", False),
        ("a//b", "a/b", True), ("a/./b", "a/b", True), ("**/vault/", "b/vault", True), ("vault/**", "vault/a", True),
        ("*.{pem,key}", "b/a.key", True), ("*.{pem,key}", "a.txt", False), ("{a,b/{c,d}}/x", "b/d/x", True),
        ("{a}", "{a}", True), ("{a}", "a", False), ("**/**/**/x", "x", True),
    ],
)  # fmt: skip
def test_patterns_are_read_as_their_author_means_them(pattern: str, path: str, fits: bool) -> None:
    assert (Fence(deny=(pattern,)).refuse(path, "read") != "") is fits


@pytest.mark.parametrize("pattern", ["/", "./", ".", "{a,.}", "{a,b}" * 9])
def test_a_pattern_that_would_deny_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(BadValue, match=r"Fence\.deny"):
        Fence(deny=(pattern,))


@pytest.mark.parametrize("ripgrep", [True, False])
def test_globs_are_those_that_models_write(ripgrep: bool, tmp_path: Path) -> None:
    for name in ("src/a.ts", "src/deep/b.tsx", "c[1]/d/e.ts", "-"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("needle\r\nend\r\n", newline="")
    caller = Caller(SearchTools(tmp_path, ripgrep=ripgrep).tools)

    def find(**given: object) -> list[str]:
        found = sorted(caller.call("search", {"pattern": "^needle$", **given}).text.splitlines())
        return [line.removesuffix(":1:needle") for line in found]

    for pattern, names in (
        ("src/**", ["src/a.ts", "src/deep/b.tsx"]),
        ("./src/*.ts", ["src/a.ts"]),
        ("**/*.{ts,tsx}", ["c[1]/d/e.ts", "src/a.ts", "src/deep/b.tsx"]),
    ):
        assert sorted(caller.call("glob", {"pattern": pattern}).text.splitlines()) == names
        assert find(glob=pattern) == names
    assert find(path="c[1]", glob="d/*.ts") == ["c[1]/d/e.ts"]
    assert find(path="-") == ["-"]
    assert "Make it simpler" in caller.call("glob", {"pattern": "**/a/" * 12}).text
