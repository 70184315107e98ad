"""Documents are true: links lead somewhere, Python blocks run, and commands print what is shown.

A fenced block is left alone when the line before it is `<!-- not run: reason -->`. In `console` blocks only the
commands `evener` and `python -m evener` are run; a line `...` in their output stands for any lines.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shape.tree import ROOT, tree_files

README_LINES = 150
SECONDS = 240
FENCE = re.compile(r"^( *)(```+|~~~+) *([\w-]*).*$")
NOT_RUN = re.compile(r"^ *<!-- not run: \S.*-->\s*$")
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
RUNNABLE = re.compile(r"^(?:evener|python -m evener)(?: |$)")


@dataclass(frozen=True)
class Block:
    """A fenced block that is meant to run. `line` is the number of its first line in the document."""

    language: str
    line: int
    text: str


def blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        start = number + 1
        end = next((n for n in range(start, len(lines)) if lines[n].strip() == fence[2]), len(lines))
        before = next((line for line in reversed(lines[:number]) if line.strip()), "")
        if not NOT_RUN.match(before):
            yield Block(fence[3], start + 1, textwrap.dedent("\n".join(lines[start:end])))
        number = end + 1


def script(text: str) -> str:
    """The Python blocks of a document as one program, each statement on the line where the document has it."""
    program: list[str] = []
    for block in blocks(text):
        if block.language == "python":
            program += [""] * (block.line - 1 - len(program)) + block.text.split("\n")
    return "\n".join(program)


def failure(name: str, program: str, folder: Path) -> str:
    """What running a program in a fresh interpreter says when it fails; empty when it does not."""
    code = f"import sys; exec(compile(sys.stdin.read(), {name!r}, 'exec'), {{'__name__': '__main__'}})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=program, cwd=folder, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each `$ command` of a console block, continued lines joined, with the lines below it."""
    text = block.text.replace("\\\n> ", "").replace("\\\n", "")
    command, output = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, output
            command, output = line[2:], []
        elif command:
            output.append(line)
    if command:
        yield command, output


def surprises(block: Block) -> Iterator[str]:
    """Commands that fail to print what the block shows."""
    if block.language != "console":
        return
    for command, shown in commands(block):
        if not RUNNABLE.match(command):
            continue
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=ROOT,
            env={**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        if not matches(shown, done.stdout.splitlines()):
            yield f"line {block.line}: `{command}` printed\n{done.stdout}"


def matches(shown: list[str], printed: list[str]) -> bool:
    wanted = "\n".join(line.rstrip() for line in shown).strip()
    pattern = ".*".join(re.escape(piece) for piece in re.split(r"^\.\.\.$", wanted, flags=re.MULTILINE))
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in printed).strip(), re.DOTALL) is not None


def dead_links(path: Path, text: str, root: Path = ROOT) -> Iterator[str]:
    for target in links(text):
        name, _, anchor = target.partition("#")
        goal = (path.parent / name).resolve() if name else path
        if not goal.is_relative_to(root) or not goal.exists():
            yield f"{path.name}: {target} leads nowhere"
        elif anchor and goal.suffix == ".md" and anchor not in anchors(goal.read_text(encoding="utf-8")):
            yield f"{path.name}: {target} has no such heading"


def links(text: str) -> Iterator[str]:
    """Targets within the tree, of links and pictures outside code."""
    for match in LINK.finditer(prose(text)):
        target = match[1] or match[2]
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            yield target


def prose(text: str) -> str:
    outside, inside = [], ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if inside:
            inside = "" if line.strip() == inside else inside
        elif fence:
            inside = fence[2]
        else:
            outside.append(re.sub(r"`[^`]*`", "", line))
    return "\n".join(outside)


def anchors(text: str) -> set[str]:
    headings = (line.lstrip("#").strip().lower() for line in text.splitlines() if re.match(r"#{1,6} ", line))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


DOCUMENTS = [path for path in tree_files() if path.suffix == ".md"]
RUN = [path for path in DOCUMENTS if path == ROOT / "README.md" or path.is_relative_to(ROOT / "docs")]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < README_LINES


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    assert list(dead_links(path, path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", RUN, ids=name)
def test_python_blocks_run(path: Path, tmp_path: Path) -> None:
    program = script(path.read_text(encoding="utf-8"))
    if program:
        assert failure(name(path), program, tmp_path) == ""


@pytest.mark.parametrize("path", RUN, ids=name)
def test_commands_print_what_is_shown(path: Path) -> None:
    found = [hit for block in blocks(path.read_text(encoding="utf-8")) for hit in surprises(block)]
    assert found == []


def fenced(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


def test_a_block_that_fails_is_caught_at_its_line(tmp_path: Path) -> None:
    text = "# Title\n\n" + fenced("python", "x = 1") + "\nprose\n\n" + fenced("python", "x / 0")
    assert '"page.md", line 10' in failure("page.md", script(text), tmp_path)


def test_blocks_share_one_namespace(tmp_path: Path) -> None:
    text = fenced("python", "x = 1") + fenced("python", "assert x == 1")
    assert failure("page.md", script(text), tmp_path) == ""


def test_a_block_is_left_alone_only_for_a_reason() -> None:
    block = fenced("python", "x / 0")
    assert script("<!-- not run: needs a key -->\n" + block) == ""
    assert script("<!-- not run: -->\n" + block) != ""


def test_other_languages_are_not_run() -> None:
    assert script(fenced("json", "{}") + fenced("", "x / 0") + fenced("sh", "exit 1")) == ""


@pytest.mark.parametrize("target", ["missing.md", "../outside.md", "page.md#nowhere", "#nowhere"])
def test_a_dead_link_is_caught(target: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here\n")
    tmp_path.with_name("outside.md").touch()
    for text in (f"# Here\n[x]({target})", f"# Here\n\n[x]: {target}\n"):
        assert len(list(dead_links(page, text, tmp_path))) == 1


@pytest.mark.parametrize("target", ["page.md", "page.md#so-its-here", "#so-its-here", "https://example.org", "."])
def test_a_live_link_passes(target: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("## So it's here\n")
    assert list(dead_links(page, f"[x]({target}) and `[y](code)`\n" + fenced("", "[z](code)"), tmp_path)) == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["a"], ["a", "b"], False),
        (["a.c"], ["abc"], False),
        (["a"], [], False),
    ],
)
def test_output_must_match(shown: list[str], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same


def test_a_command_that_prints_something_else_is_caught() -> None:
    block = Block("console", 1, "$ make nothing\nfine\n$ python -m evener \\\n> no-such-command\nall is well")
    assert len(list(surprises(block))) == 1
