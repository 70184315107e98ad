"""Forty kinds of edits that fail: nothing is changed, and the message says what to do about it."""

from pathlib import Path

import pytest

from evener.toolset import FileTools
from tests.toolset.calls import Caller

FILE = (
    "import os\n\n\ndef first(a, b):\n    total = a + b\n    return total\n\n\n"
    'def second(name):\n    print(f"hello {name}")\n    return total\n'
)


def one(old: str, new: str = "changed", **more: object) -> list[dict[str, object]]:
    return [{"old": old, "new": new, **more}]


# What is wrong, the content, the edits, and what the message must say.
TEXTS: list[tuple[str, str, list[dict[str, object]], str]] = [
    ("no edits", FILE, [], "at least one"),
    ("an empty old", FILE, one(""), "use write"),
    ("old is new", FILE, one("import os", "import os"), "are the same"),
    ("not there at all", FILE, one("zebra quagga"), "Nothing in the file is similar"),
    ("one word differs", FILE, one("    total = a - b\n    return total"), "The closest lines are these"),
    ("the closest lines have numbers", FILE, one("    total = a - b"), "     5\t    total = a + b"),
    ("twice there", FILE, one("    return total"), "occurs 2 times"),
    ("each place is named", FILE, one("    return total"), "     6\t    return total\n    11\t    return total"),
    ("spaces at the end of a line", FILE, one("import os  \n\n\ndef first"), "white space at the ends of lines differs"),
    (
        "spaces at the end of the file's line",
        "a = 1 \nb = 2\n",
        one("a = 1\nb = 2"),
        "white space at the ends of lines differs",
    ),
    ("less indentation", FILE, one("  total = a + b\n  return"), "The indentation differs"),
    ("no indentation", FILE, one("total = a + b\nreturn total"), "The indentation differs"),
    ("spaces for tabs", "if x:\n\treturn 1\n", one("if x:\n    return 1"), "Tabs and spaces differ"),
    ("tabs are shown", "if x:\n\treturn 1\n", one("if x:\n    return 1"), "     2\t\\treturn 1"),
    ("tabs for spaces", FILE, one("\ttotal = a + b\n"), "Tabs and spaces differ"),
    ("spaces inside of a line", FILE, one("def first(a,  b):"), "white space inside of lines differs"),
    ("an empty line before", FILE, one("\n\n\n\nimport os"), "empty line that is not there"),
    ("a space before", FILE, one(" import os"), "white space that is not there"),
    ("CR LF in old", FILE, one("import os\r\n\r\n"), "Use LF"),
    ("mixed line ends", "a\r\nb\nc\r\n", one("a\nb\nc"), "mixes CR LF and LF"),
    ("line numbers of read", FILE, one("     4\tdef first(a, b):\n     5\t    total = a + b"), "line numbers that read shows"),
    ("a Markdown fence", FILE, one("```python\nimport os\n```"), "Markdown fence"),
    ("the marks of a diff", FILE, one("-import os\n+import sys"), "marks of a diff"),
    ("escaped line breaks", FILE, one("import os\\n\\n\\ndef first"), "escape sequences such as"),
    ("escaped quotes", FILE, one('print(f\\"hello {name}\\")'), "escape sequences such as"),
    ("characters for escapes", 'x = "a\\nb"\n', one('x = "a\nb"'), "The file has escape sequences"),
    ("HTML entities", "if a < b:\n", one("if a &lt; b:"), "has HTML entities such as"),
    ("characters for entities", "<p>a &lt; b</p>\n", one("a < b"), "The file has HTML entities"),
    ("typographic quotes", FILE, one("print(f\u201chello {name}\u201d)"), "Quotes, dashes or spaces differ in kind"),
    ("a no-break space", "a =\u00a01\n", one("a = 1"), "Quotes, dashes or spaces differ in kind"),
    ("a zero-width space", FILE, one("import\u200b os"), "Quotes, dashes or spaces differ in kind"),
    ("accents in parts", "caf\u00e9 = 1\n", one("cafe\u0301 = 1"), "composed differently"),
    ("another case", FILE, one("DEF FIRST(a, b):"), "Upper and lower case differ"),
    ("lines elided", FILE, one("import os\n# ... existing code ...\ndef second(name):"), "give every line in full"),
    ("longer than the file", "a\n", one("x\ny\nz\n"), "It has 3 lines and the file only 1"),
    ("already done", FILE, one("import sys as system", "import os"), "it was done already"),
    ("new is there by chance", FILE, one("    total = a - b", "a"), "perhaps it was done already. The closest lines are these"),
    ("an empty file", "", one("x"), "the file is empty"),
    ("places that overlap", "}\n\n}\n\n}\n", one("}\n\n}\n"), "occurs 2 times"),
    ("a large file full of it", "a b\n" * 100_000, one("a b"), "occurs at least 10,000 times"),
    ("a line of a million characters", "a b " * 250_000, one("b"), "a b ... [1,000,000 characters]"),
    ("full-width characters", "a\uff1d1\n", one("a=1"), "differ in width"),
    ("two letters in one", "\ufb01le = 1\n", one("file = 1"), "two of them are one"),
    ("CR alone", "a\rb\rc\r", one("a\nb"), "end with CR alone"),
    ("overlapping edits", FILE, [*one("import os\n\n"), *one("os\n\n\ndef")], "overlap at line 1"),
    ("the same edit twice", FILE, [*one("import os"), *one("import os")], "replace the same text"),
    ("an edit that builds on another", FILE, [*one("import os", "import re"), *one("import re", "x")], "join the two"),
    ("one wrong edit of two is named", FILE, [*one("import os"), *one("nothing like it at all")], "Edit 2: "),
    ("edits that change nothing", "ab", [*one("a", "ab"), *one("b", "")], "change nothing"),
    ("too many edits", FILE, one("import os") * 101, "too many"),
]


@pytest.mark.parametrize(("content", "edits", "told"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_a_wrong_edit_changes_nothing_and_says_what_to_do(
    content: str, edits: list[dict[str, object]], told: str, tmp_path: Path
) -> None:
    file = tmp_path / "code.py"
    file.write_bytes(content.encode())
    result = Caller(FileTools(tmp_path).tools).call("edit", {"path": "code.py", "edits": edits})
    assert not result.ok
    assert result.retry
    assert told in result.text
    assert file.read_bytes() == content.encode()


def test_a_wrong_path_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(FILE)
    (tmp_path / "image").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "fixed.py").write_text(FILE)
    (tmp_path / "fixed.py").chmod(0o444)
    (tmp_path / "away").symlink_to("/etc/hostname")
    caller = Caller(FileTools(tmp_path).tools)
    for path, told in (
        ("coed.py", "There is no coed.py. Did you mean code.py"),
        ("image", "not a text file in UTF-8"),
        ("folder", "is a folder, not a file"),
        ("fixed.py", "is read-only (mode 444)"),
        ("away", "leads out of the folder"),
        ("../code.py", "leads out of the folder"),
        ("/etc/hostname", "is outside of the folder"),
        (".env", "is denied by the pattern"),
        (".git/config", "is read-only by the pattern"),
        ("code.py/x", "goes through something that is not a folder"),
        ("a\0b", "NUL byte"),
    ):
        result = caller.call("edit", {"path": path, "edits": one("import os")})
        assert not result.ok, path
        assert told in result.text, (path, result.text)


def test_a_file_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(FILE)
    caller = Caller(FileTools(tmp_path).tools)
    assert caller.call("read", {"path": "code.py"}).ok
    file.write_text(FILE + "# by the user\n")
    stale = caller.call("edit", {"path": "code.py", "edits": one("import os", "import sys")})
    assert "has changed since you read it" in stale.text
    assert file.read_text() == FILE + "# by the user\n"
    assert caller.call("read", {"path": "code.py"}).ok
    assert caller.call("edit", {"path": "code.py", "edits": one("import os", "import sys")}).ok


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\nc", b"\xef\xbb\xbfa\nx\ny\nc"),
        (b"a\nb\nc\n", b"a\nx\ny\nc\n"),
    ],
    ids=["CR LF", "byte order mark", "LF"],
)
def test_line_ends_and_marks_stay_as_they_are(before: bytes, after: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(before)
    edits = one("a\nb\n", "a\nx\ny\n")
    assert Caller(FileTools(tmp_path).tools).call("edit", {"path": "file", "edits": edits}).ok
    assert (tmp_path / "file").read_bytes() == after


@pytest.mark.parametrize(
    ("before", "edit", "diff"),
    [
        ("a\n\x0cb\nc\u2028d\nkeep\nend\n", one("keep"), "@@ -2,4 +2,4 @@\n \x0cb\n c\u2028d\n-keep\n+changed\n end"),
        ("a\r\nb\nc\r\n", one("a\r\n", "a\n"), "@@ -1,3 +1,3 @@\n-a\r\n+a\n b\n c\r"),
        ("a\nb\n", one("b\n", "b"), "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file"),
        ("".join(f"{i}\n" for i in range(50)), one("7\n8\n", "8\n"), "@@ -6,5 +6,4 @@\n 5\n 6\n-7\n 8\n 9"),
        ("x y\n" * 10_001, one("x", replace_all=True), "more lines)"),
        ("".join(f"{i % 120}\n" for i in range(19_000)), one("\n7\n", replace_all=True), "repeat too often"),
    ],
    ids=["lines as read counts them", "a line end", "the last line end", "lines after others", "all lines", "many equal lines"],
)
def test_the_diff_has_the_lines_that_read_shows(before: str, edit: list[dict[str, object]], diff: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(before.encode())
    assert diff in Caller(FileTools(tmp_path).tools).call("edit", {"path": "file", "edits": edit}).text
