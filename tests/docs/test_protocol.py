"""docs/protocol.md is up to date, leads to the lines it names, and has every part that such an analysis must have."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape.tree import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import protocol  # a script, not a package

SECONDS = 240
DOCUMENT = ROOT / "docs" / "protocol.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
REFERENCE = re.compile(
    r"\b(?P<path>(?:src|tests|scripts|bench|docs)/[\w./-]+):(?P<line>\d+|\?)(?: (?:case )?(?P<name>[\w.]+)`)?"
)
MISSING = re.compile(r"not\s+built\s+yet(?:\s+\(`(?P<path>[^`]+)`\))?")
QUESTION = re.compile(r"^### (\d+)\. [^\n]+\?$", re.MULTILINE)

STRUCTURE = """
# Harness-Model Protocol Analysis: Evener
## Summary
**Key Finding 1**
**Key Finding 2**
**Key Finding 3**
**Classification**
## Detailed Analysis
### Message Protocol
**Wire Format Family**
**Providers Supported**
**Abstraction Strategy**
**Role Handling**
### Tool Call Encoding
**Request Method**
**Schema Transmission**
**Response Parsing**
**Parser Type**
**Location**
**Tool Choice Support**
### Streaming Implementation
**Protocol**
**Partial Tool Call Handling**
**Supported**
**Accumulator Pattern**
**Event Types Emitted**
### Agentic Primitives
#### System Prompt Assembly
**Pattern**
**Injection Points**
#### Scratchpad / Working Memory
**Implemented**
#### Interrupt / Human-in-the-Loop
**Mechanisms**
#### Conversation State Machine
**State Management**
### Provider Abstraction
**Graceful Degradation**
## Code References
## Implications for New Framework
### Positive Patterns
### Considerations
## Anti-Patterns Observed
## Key Questions
""".split("\n")[1:-1]


def outline(text: str) -> list[str]:
    """The headings and the labels of a document outside its code, down to the patterns and questions."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ .*$|^(?:- )?\*\*[^*]+\*\*(?=:)", prose, flags=re.MULTILINE)
    lines = [line.removeprefix("- ") for line in found]
    end = lines.index("### Positive Patterns") if "### Positive Patterns" in lines else len(lines)
    return lines[:end] + [line for line in lines[end:] if line.startswith("#") and not QUESTION.match(line)]


def astray(text: str) -> Iterator[str]:
    """References to a line that does not exist or does not hold the name beside it."""
    for hit in REFERENCE.finditer(text):
        path = ROOT / hit["path"]
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        line = lines[int(hit["line"]) - 1] if hit["line"].isdigit() and 0 < int(hit["line"]) <= len(lines) else ""
        if not hit["name"] or not re.search(rf"\b{hit['name'].rpartition('.')[2]}\b", line):
            yield hit[0]


def built(text: str) -> Iterator[str]:
    """What is called missing without saying where it belongs, or although it is there."""
    for hit in MISSING.finditer(text):
        if not hit["path"] or (ROOT / hit["path"]).exists():
            yield hit[0]


def answers(text: str) -> dict[int, str]:
    """The key questions by number, each with its answer."""
    pieces = QUESTION.split(text.partition("\n## Key Questions\n")[2])
    return {int(number): answer for number, answer in zip(pieces[1::2], pieces[2::2], strict=True)}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A copy of the document, to be spoilt."""
    copy = tmp_path / "protocol.md"
    copy.write_text(TEXT, encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def fresh() -> str:
    """The document as it should be, even while it is not."""
    return protocol.fresh(TEXT)


def test_the_document_is_fresh() -> None:
    """S4.5: its tables of how wires, rows and models differ are written from the codecs and the rows."""
    command = [sys.executable, str(ROOT / "scripts" / "protocol.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_reference_leads_to_the_line_that_holds_the_name() -> None:
    """S4.30."""
    assert len(list(REFERENCE.finditer(TEXT))) > 50
    assert list(astray(TEXT)) == []


def test_the_document_has_the_required_structure_in_order() -> None:
    """S4.30."""
    assert outline(TEXT) == STRUCTURE


def test_all_ten_questions_are_answered_with_file_and_line() -> None:
    """S4.31."""
    found = answers(TEXT)
    assert list(found) == list(range(1, 11))
    assert [number for number, answer in found.items() if not REFERENCE.search(answer)] == []


def test_what_is_called_missing_is_missing() -> None:
    assert MISSING.search(TEXT)
    assert list(built(TEXT)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"stream\.py:\d+ Assembler`", "stream.py:1 Assembler`"),
        (r"\| auto \| Yes \|", "| auto | No |"),
        (r"part\.pieces\.append\(text\)", "part.pieces.append(words)"),
        (r"ArgumentsDelta\(index=0, text='\{", "ArgumentsDelta(index=0, text='["),
    ],
)
def test_a_stale_document_is_caught_and_mended(
    old: str, new: str, page: Path, fresh: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text(re.sub(old, new, fresh), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != fresh
    assert protocol.main(["--check", str(page)]) == 1
    assert capsys.readouterr().out == "protocol.md is stale. Run `make docs`.\n"
    assert protocol.main([str(page)]) == 0
    assert page.read_text(encoding="utf-8") == fresh


def test_a_name_that_is_gone_is_named(page: Path) -> None:
    page.write_text("`src/evener/wire/stream.py:? NoSuchThing`", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"'NoSuchThing' of src/evener/wire/stream\.py"):
        protocol.main(["--check", str(page)])


@pytest.mark.parametrize(
    "text",
    [
        "`src/evener/wire/stream.py:1 StreamDecoder`",
        "`src/evener/wire/stream.py:99999 StreamDecoder`",
        "`src/evener/wire/stream.py:? StreamDecoder`",
        "`src/evener/wire/no_such_file.py:1 StreamDecoder`",
        "see src/evener/wire/stream.py:1",
    ],
)
def test_a_reference_that_leads_astray_is_caught(text: str) -> None:
    assert len(list(astray(text))) == 1


@pytest.mark.parametrize("text", ["not built yet (`src/evener/wire/`)", "not built\nyet, somewhere"])
def test_a_false_gap_is_caught(text: str) -> None:
    assert len(list(built(text))) == 1


@pytest.mark.parametrize("part", STRUCTURE)
def test_a_missing_part_is_caught(part: str) -> None:
    assert outline(TEXT.replace(part, "", 1)) != STRUCTURE


def test_an_unanswered_question_is_caught() -> None:
    assert list(answers("\n## Key Questions\n\n### 1. Why?\n\nSo.\n\n### 3. How?\n\nSo.\n")) == [1, 3]
