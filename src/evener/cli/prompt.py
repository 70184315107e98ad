"""Makes a prompt from the words of the command line, standard input and files. Sends nothing."""

import base64
import os
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
from evener.wire.media import image_type

MOST = 32 * 1024 * 1024
PATIENCE = 3.0
"""Seconds before the user is told that standard input is being read."""


def split_words(words: Sequence[str], model: str, config: Config) -> tuple[str, str]:
    """Split the words into model and prompt. The first word is the model if it names one and `model` is empty.

    If no model is configured either, the first word must name one, and the error says what is wrong with it.
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


def make_conversation(prompt: str, *, system: str, images: Sequence[str]) -> Transcript:
    """Return a conversation with one message: the images, then standard input, then the prompt."""
    text = "\n\n".join(part for part in (_read_stdin().strip("\n"), prompt) if part)
    if not text and not images:
        raise UsageError("There is no prompt. Write one at the end of the command, or pipe it in.")
    for what, given in (("prompt", text), ("system prompt", system)):
        _check_readable(given, what)
    blocks: list[Block] = [_load_image(Path(image)) for image in images]
    return Transcript([Message("user", (*blocks, *([TextBlock(text)] if text else [])))], system or None)


def _check_readable(text: str, what: str) -> None:
    """Refuse words of the command line that are not in its encoding: Python keeps such bytes as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding().upper()
        raise UsageError(f"The {what} is not text in {encoding}, the encoding of this terminal. Convert it first.") from None


def _read_stdin() -> str:
    """Return what is piped or redirected in; a terminal is not read."""
    if sys.stdin is None:
        return ""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if not select([sys.stdin], [], [], PATIENCE)[0]:
        say("evener: Reading standard input until it ends. If there is none, run the command with </dev/null.")
    return _decode(sys.stdin.buffer.read(MOST + 1), "Standard input")


def _decode(content: bytes, where: str) -> str:
    if len(content) > MOST:
        raise UsageError(f"{where} has more than {MOST} bytes. No model accepts that much; shorten it.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text. Convert it first; use --image for images.") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST + 1)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}. Give the path of a file.") from None


def _load_image(path: Path) -> ImageBlock:
    content = _read(path)
    kind = image_type(content)  # a wrong file extension cannot mislabel an image
    if not kind or len(content) > MOST:
        raise UsageError(f"{path} is not a PNG, JPEG, GIF or WebP image of at most {MOST} bytes. Convert it first.")
    return ImageBlock(Inline(base64.b64encode(content).decode()), kind)


def output_schema(given: str) -> OutputSchema | None:
    """Return the schema that was given as JSON or as a path; None if it is empty."""
    if not given:
        return None
    text = given if given.lstrip().startswith("{") else _decode(_read(Path(given)), given)
    try:
        return OutputSchema(text.strip())
    except UsageError as error:
        why = str(error.__context__ or error).rstrip(".")
        raise UsageError(f"The schema cannot be used: {why}. Give a JSON Schema, or the path of a file with one.") from None
