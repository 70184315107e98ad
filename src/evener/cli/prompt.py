"""From words, standard input and files to what a model is asked. Reads what it was told to, and sends nothing."""

import base64
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from select import select

from evener.cli.terminal import say
from evener.errors import UsageError
from evener.providers.config import Config
from evener.providers.rows import parse_model
from evener.transcript.ask import OutputSchema
from evener.transcript.blocks import Block, ImageBlock, Inline, TextBlock
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript

__all__ = ["conversation", "output_schema", "picture_kind", "split_words"]

MOST = 32 * 1024 * 1024
PATIENCE = 3.0
"""Seconds after which somebody who waits is told what for."""

# How pictures begin, so that a wrong ending cannot mislabel one.
PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),  # sound and video begin with RIFF, too
)


def split_words(words: Sequence[str], model: str, config: Config) -> tuple[str, str]:
    """The model and the prompt among the words. The first word is the model when it names one and no other does.

    Where there is no other, it must be one: what it lacks is then said.
    """
    if model or not words:
        return model or config.model, " ".join(words)
    first = words[0]
    if config.model and not _names_model(first, config):
        return config.model, " ".join(words)
    name = parse_model(first, rows=config.rows, aliases=config.aliases)
    return str(name), " ".join(words[1:])


def _names_model(word: str, config: Config) -> bool:
    try:
        parse_model(word, rows=config.rows, aliases=config.aliases)
    except UsageError:
        return False
    return " " not in word.strip() or word.startswith("local:")


def conversation(prompt: str, *, system: str, images: Sequence[str]) -> Transcript:
    """One question: what came on standard input, the prompt below it, and the pictures before both."""
    text = "\n\n".join(part for part in (_stdin().strip("\n"), prompt) if part)
    if not text and not images:
        raise UsageError('There is no prompt. Write one, as in: evener complete local:smollm2 "Say hello", or pipe it in.')
    blocks: list[Block] = [_picture(Path(image)) for image in images]
    return Transcript([Message("user", (*blocks, *([TextBlock(text)] if text else [])))], system or None)


def _stdin() -> str:
    """What is piped or redirected in; a terminal is not waited for."""
    if sys.stdin is None:
        return ""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if not select([sys.stdin], [], [], PATIENCE)[0]:
        say("evener: Waiting for standard input to end. Without any, run it with </dev/null.")
    return _text(sys.stdin.buffer.read(MOST + 1), "standard input")


def _text(content: bytes, where: str) -> str:
    if len(content) > MOST:
        raise UsageError(f"There are more than {MOST} bytes in {where}. No model takes that much; cut it.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"What is in {where} is not UTF-8 text. Convert it first; pictures go with --image.") from None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST + 1)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}. Give the path of a file.") from None


def picture_kind(content: bytes) -> str:
    """The media type of a picture, by how it begins; empty for anything else."""
    return next((kind for start, kind in PICTURES if start.match(content)), "")


def _picture(path: Path) -> ImageBlock:
    content = _content(path)
    kind = picture_kind(content)
    if not kind or len(content) > MOST:
        raise UsageError(f"{path} is not a PNG, JPEG, GIF or WebP picture of at most {MOST} bytes. Convert it first.")
    return ImageBlock(Inline(base64.b64encode(content).decode()), kind)


def output_schema(given: str) -> OutputSchema | None:
    """The schema that was given as JSON or as the path of a file."""
    if not given:
        return None
    text = given if given.lstrip().startswith("{") else _text(_content(Path(given)), given)
    try:
        return OutputSchema(text.strip())
    except UsageError as error:
        raise UsageError(f"The schema is not usable. {error}") from None
