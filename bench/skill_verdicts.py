"""Our strict check of skills against the reference validator, on skills that are made at random: who refuses what.

    python -m bench skills --count 5000

Where the reference ends with a traceback instead of a verdict, we must refuse.
"""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from skills_ref.validator import validate

from evener.skills import validate_skill

__all__ = ["disagreements", "main"]

NAMES = (
    "pdf", "pdf-forms", "PDF", "p--f", "-pdf", "pdf-", "p_df", "p.df", "p df", "d\u00e9j\u00e0", "\u6280\u80fd", "\u2167",
    "\ufb01le", "\u0130x", "x" * 64, "x" * 65, "", "''", '"pdf"', "'pdf", "42", "true", "~", "pdf # note", "pdf: x", "[pdf]",
    "{pdf: x}", "&a pdf", "*a", "!!str pdf", "|\n  pdf", ">\n  pdf", "pdf\n  more", "@pdf", "%pdf", "- pdf", "? pdf", "pdf\t",
)  # fmt: skip
DESCRIPTIONS = (
    "Fill in forms.", "Use it: always", "'it''s'", '"a\\nb"', "|\n  two\n  lines", ">-\n  folded\n  text", "", "''", "null",
    "7", "text # note", "# note", "d" * 1_024, "d" * 1_025, "\u00e9" * 1_024, "d\n  goes on", "[a, b]", "{a: b}", "- a",
    "&a d", "*a", "!x d", "a: b: c", "\td", "'open", '"open', "2026-01-01", "a\u2028b", "a\x85b", "a\x07b", "\U0001f600",
)  # fmt: skip
FIELDS = (
    "license: MIT", "license:", "license: [MIT]", "license: |\n  MIT", "license: !!binary aGk=", "compatibility: any",
    f"compatibility: {'c' * 500}", f"compatibility: {'c' * 501}", "compatibility:", "compatibility:\n  a: b",
    "compatibility:\n  - a", "allowed-tools: Read Write", "allowed-tools: [Read]", "allowed-tools:\n  - Read", "metadata:",
    "metadata:\n  a: b", "metadata:\n  a:\n    b: c", "metadata: x", "metadata:\n  - a", "metadata: {a: b}",
    "metadata:\n  a: b\n  a: c", "metadata:\n  a: [b]", "model: fast", "# note", "  indented: x", "---", "...", "name: other",
    "description: other", "a: &x b\nc: *x", "<<: x", "? a\n: b", "Name: pdf", "'quoted': x", "\tlicense: x", "- item",
)  # fmt: skip
OPENINGS = ("---\n", "--- \n", "\n---\n", "---\r\n", "\ufeff---\n", "----\n", "---yaml\n", " ---\n", "---\n---\n")
CLOSINGS = ("---\nDo it.\n", "---", "--- \nDo it.", "\n---\nDo it.", "----\nDo it.", "---Do it.", "...\n---\n", "")


def main(count: int, seed: int) -> int:
    """Print where the two differ, and how many skills were tried; 1 if they differ anywhere."""
    found = disagreements(count, seed)
    for text, ours, theirs in found:
        print(f"{text!r}\n  ours: {ours}\n  theirs: {theirs}")
    print(f"{count} skills, seed {seed}: {len(found)} verdicts differ")
    return int(bool(found))


def disagreements(count: int, seed: int) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """Return each skill on which the verdicts differ, with both."""
    chance = random.Random(seed)
    found: list[tuple[str, Sequence[str], Sequence[str]]] = []
    for _ in range(count):
        text = _write(chance)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "pdf"
            folder.mkdir()
            (folder / chance.choice(("SKILL.md", "SKILL.md", "skill.md", "Skill.md"))).write_bytes(text.encode())
            ours, theirs = validate_skill(folder), _ask_reference(folder)
        if bool(ours) != bool(theirs):
            found.append((text, ours, theirs))
    return found


def _ask_reference(folder: Path) -> Sequence[str]:
    try:
        return list(validate(folder))
    except Exception as error:
        return [f"it ended with {type(error).__name__}"]


def _write(chance: random.Random) -> str:
    lines = []
    if chance.random() < 0.95:
        lines.append(f"name: {chance.choice(NAMES) if chance.random() < 0.5 else 'pdf'}")
    if chance.random() < 0.95:
        lines.append(f"description: {chance.choice(DESCRIPTIONS) if chance.random() < 0.5 else 'Fill in forms.'}")
    lines += chance.choices(FIELDS, k=chance.choice((0, 0, 1, 1, 2)))
    chance.shuffle(lines)
    usual = chance.random() < 0.75
    first, last = ("---\n", "---\nDo it.\n") if usual else (chance.choice(OPENINGS), chance.choice(CLOSINGS))
    text = f"{first}{chr(10).join(lines)}\n{last}"
    return text if chance.random() < 0.95 else text.replace("\n", "\r\n")
