"""Turns a draft into a message: `@path` attaches a text file or an image, `$name` a skill. File sizes are bounded.

An `@` inside a folded paste attaches nothing.
"""

import base64
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from evener.cli.prompt import MOST
from evener.cli.terminal import clean
from evener.errors import UsageError
from evener.transcript.blocks import Block, ImageBlock, Inline, TextBlock
from evener.wire.media import image_type

if TYPE_CHECKING:
    from evener.skills import Skill


SHORT_LINES, SHORT = 4, 600
"""Lines and characters up to which a paste is not folded."""
MARK = re.compile("[\U00100000-\U0010fffd]")
UNREAD = re.compile("[\ud800-\udfff]")
"""What stands in a line for a byte that is not UTF-8."""


class Paste(msgspec.Struct, frozen=True):
    """A long paste, which is shown by its size."""

    text: str

    @property
    def label(self) -> str:
        lines = self.text.count("\n") + (not self.text.endswith("\n"))
        what = f"{lines:,} lines" if lines > 1 else f"{len(self.text):,} characters"
        return f"[pasted {what}]"


Item = str | Paste


def _make_sound(text: str) -> str:
    return UNREAD.sub("\N{REPLACEMENT CHARACTER}", text)


class Draft(msgspec.Struct, frozen=True):
    """A message before it is sent: typed parts, and pastes among them."""

    parts: tuple[Item, ...] = ()

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def shown(self) -> str:
        """The text with each paste as its label."""
        return "".join(part if isinstance(part, str) else part.label for part in self.parts)


class Pastes:
    """The long pastes of one chat, each with a private-use character that stands for it in the line."""

    def __init__(self) -> None:
        self._blocks: dict[str, Paste] = {}

    def fold(self, text: str) -> str:
        """Return the cleaned text; for a long text, one character that represents it."""
        cleaned = MARK.sub("", clean(_make_sound(text).replace("\r\n", "\n").replace("\r", "\n")))
        if cleaned.count("\n") < SHORT_LINES and len(cleaned) <= SHORT:
            return cleaned
        mark = chr(0x100000 + len(self._blocks) % 0xFFFE)
        self._blocks[mark] = Paste(cleaned)
        return mark

    def draft(self, line: str) -> Draft:
        """Return the draft for a line."""
        parts = (self._blocks.get(part, part) for part in re.split(f"({MARK.pattern})", _make_sound(line)))
        return Draft(tuple(part for part in parts if part))

    def label(self, char: str) -> str:
        """Return how the character of a paste is displayed."""
        block = self._blocks.get(char)
        return block.label if block else char


NAMED = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|([^\s"]+))')
USED = re.compile(r"(?:^|(?<=\s))(\$|/skill:)(\w[\w-]*)")
LONGEST = 200_000
"""Characters of a text file; the rest is cut, with a remark."""
IMAGE_NAMES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Attached(msgspec.Struct, frozen=True):
    """The blocks of a message, and remarks for the user."""

    blocks: tuple[Block, ...]
    remarks: tuple[str, ...] = ()


def attach(draft: Draft, *, folder: Path, skills: Mapping[str, "Skill"] = MappingProxyType({})) -> Attached:
    """Return the text of the draft, followed by its files and skills. An `@word` that is no file stays text, and so does a
    `$word` that is no skill; a `/skill:word` must be one.
    """
    blocks: list[Block] = []
    remarks: list[str] = []
    for skill in _find_skills(draft, skills):
        from evener.skills import skill_text

        blocks.append(TextBlock(skill_text(skill)))
        remarks.append(f"Attached the skill {skill.name}.")
    for name in _find_names(draft, folder):
        block, remark = _read(name, folder)
        remarks += [remark] if remark else []
        blocks += [block] if block else []
    return Attached((TextBlock(draft.text.strip()), *blocks), tuple(remarks))


def as_image(pasted: str, *, folder: Path) -> str:
    """Return the pasted path of an image as `@path`; empty if the paste is something else."""
    path = pasted.strip()
    if not path or "\n" in path or len(path) > 4096:
        return ""
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    elif path[0] in "'\"" and path[-1] == path[0]:
        path = path[1:-1]
    else:
        path = re.sub(r"\\(.)", r"\1", path)
    if not path.lower().endswith(IMAGE_NAMES) or not _is_file(folder / os.path.expanduser(path)):
        return ""
    return f'@"{path}" ' if re.search(r"\s", path) else f"@{path} "


def _find_names(draft: Draft, folder: Path) -> Iterator[str]:
    """Yield each path once, in order. Punctuation after it belongs to the sentence, unless there is such a file."""
    typed = (part for part in draft.parts if isinstance(part, str))
    names = (hit[1] or hit[2] for part in typed for hit in NAMED.finditer(part))
    yield from dict.fromkeys(name if _is_file(folder / name) else name.rstrip(",.;:!?)") or name for name in names)


def _find_skills(draft: Draft, skills: "Mapping[str, Skill]") -> "Iterator[Skill]":
    """Yield each skill that the draft names, once."""
    typed = (part for part in draft.parts if isinstance(part, str))
    for sign, name in dict.fromkeys((hit[1], hit[2]) for part in typed for hit in USED.finditer(part)):
        if name in skills:
            yield skills[name]
        elif sign != "$":
            known = ", ".join(sorted(skills)) or "none; start the chat with --skills"
            raise UsageError(f"There is no skill {name!r}. Known are {known}.")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _read(name: str, folder: Path) -> tuple[Block | None, str]:
    path = folder / os.path.expanduser(name)
    if not _is_file(path):
        return None, f"There is no file {name}; it was sent as text." if "/" in name or "." in name else ""
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except OSError as error:
        return None, f"Cannot read {name} ({error.strerror}); it was sent as text."
    kind = image_type(content)
    if kind:
        return _make_image(name, content, kind)
    return _make_text(name, content, os.path.getsize(path))


def _make_image(name: str, content: bytes, kind: str) -> tuple[Block | None, str]:
    if len(content) > MOST:
        return None, f"{name} is larger than {MOST:,} bytes, which no model accepts. Make it smaller."
    image = ImageBlock(Inline(base64.b64encode(content).decode()), kind)
    return image, f"Attached the image {name} ({len(content):,} bytes)."


def _make_text(name: str, content: bytes, size: int) -> tuple[Block | None, str]:
    try:
        text = content[: LONGEST * 4].decode()
    except UnicodeDecodeError as error:
        if error.start < min(len(content), LONGEST * 4) - 4 or b"\0" in content:
            return None, f"{name} is neither UTF-8 text nor a supported image; it was sent as text."
        text = content[: error.start].decode()
    cut = ""
    if len(text) > LONGEST or size > len(content):
        text = text[:LONGEST]
        cut = f", cut after {LONGEST:,} characters"
    return TextBlock(f"--- {name}{cut} ---\n{text}\n---"), f"Attached {name} ({size:,} bytes{cut})."
