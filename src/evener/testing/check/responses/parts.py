"""Content parts of the OpenAI Responses wire: what may stand in a message or a tool output. One part at a time.

Sheet section 3. Never downloads or decodes anything: a file is judged by its data URL's MIME type or its URL's suffix.
"""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from evener.testing.check.models import ServerRow
from evener.testing.check.shape import LIST, OBJECT, STR, ObjectShape, check_shape, fields, items, join, one_of, shown, text
from evener.testing.check.violation import Violation

MAX_CACHE_KEY = 64  # section 11
_BREAKPOINT = {"prompt_cache_breakpoint": OBJECT}
_INPUT: Mapping[str, ObjectShape] = {
    "input_text": ObjectShape({"type": STR, "text": STR}, _BREAKPOINT),
    "input_image": ObjectShape(
        {"type": STR},
        {
            "image_url": STR,
            "file_id": STR,
            "detail": one_of("auto", "low", "high", "original"),
            **_BREAKPOINT,
        },
    ),
    "input_file": ObjectShape(
        {"type": STR},
        {
            "file_data": STR,
            "file_url": STR,
            "file_id": STR,
            "filename": STR,
            "detail": one_of("auto", "low", "high"),
            **_BREAKPOINT,
        },
    ),
}
_OUTPUT: Mapping[str, ObjectShape] = {
    "output_text": ObjectShape({"type": STR, "text": STR}, {"annotations": LIST, "logprobs": LIST}),
    "refusal": ObjectShape({"type": STR, "refusal": STR}),
}
PARTS: Mapping[str, Mapping[str, ObjectShape]] = {
    "user": _INPUT,
    "system": _INPUT,
    "developer": _INPUT,
    "tool": _INPUT,
    "assistant": _OUTPUT,
}
_CARRIERS: Mapping[str, tuple[str, ...]] = {
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
}

# The provider's words from the field: "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif',
# 'webp']".
IMAGE_URL = re.compile(r"https?://|data:image/(png|jpeg|gif|webp);base64,", re.ASCII)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(;[^,;]*)*;base64,", re.ASCII)
# Recorded: audio is refused both as data and by URL. Video is not recorded; the provider's list of file types has neither.
_REFUSED_MEDIA = ("audio/", "video/")
_AUDIO_SUFFIXES = (".mp3", ".wav", ".ogg", ".oga", ".flac", ".aac", ".m4a", ".aiff", ".opus")


def check_parts(path: str, content: object, speaker: str, row: ServerRow) -> Iterator[Violation]:
    """Report parts that this speaker may not send, or that are malformed. `speaker` is a role, or "tool"."""
    allowed = PARTS[speaker]
    for index, value in enumerate(items(content)):
        at, part = f"{path}[{index}]", fields(value)
        kind = text(part.get("type"))
        shape = allowed.get(kind)
        if not isinstance(value, dict):
            yield Violation(at, "type", "Input should be an object (a content part).")
        elif shape is None:
            listed = " and ".join(f"'{name}'" for name in allowed)
            message = f"Invalid value: {shown(kind)}. Supported values are: {listed}."
            yield Violation(join(at, "type"), "content.type", message)
        else:
            yield from check_shape(at, part, shape if row.known_fields_only else loosened(shape))
            yield from _check_carrier(at, part)
            yield from _check_file(at, part)
            if row.known_fields_only:
                yield from _check_image(at, part)


def loosened(shape: ObjectShape) -> ObjectShape:
    """Return the same fields, with others tolerated: servers other than OpenAI's ignore what they do not know."""
    return ObjectShape(shape.required, shape.optional, open=True)


def _check_carrier(path: str, part: Mapping[str, object]) -> Iterator[Violation]:
    carriers = _CARRIERS.get(text(part.get("type")), ())
    if carriers and all(part.get(name) is None for name in carriers):
        yield Violation(path, "content.source", f"Missing required parameter: one of {', '.join(carriers)}.")


def _check_image(path: str, part: Mapping[str, object]) -> Iterator[Violation]:
    """Report an image that is neither data of one of four types nor an address."""
    url = part.get("image_url") if part.get("type") == "input_image" else None
    if isinstance(url, str) and not IMAGE_URL.match(url):
        message = "Expected a valid URL, or a base64-encoded data URL of a PNG, JPEG, GIF or WebP image."
        yield Violation(join(path, "image_url"), "image.media", message)


def _check_file(path: str, part: Mapping[str, object]) -> Iterator[Violation]:
    if part.get("type") != "input_file":
        return
    data, url = part.get("file_data"), part.get("file_url")
    if isinstance(data, str):
        found = _DATA_URL.match(data)
        if found is None:
            message = "Expected a base64-encoded data URL with a valid file MIME type."
            yield Violation(join(path, "file_data"), "file.data_url", message)
        elif found[1].startswith(_REFUSED_MEDIA):
            message = f"Expected a supported file MIME type, but got unsupported MIME type {shown(found[1])}."
            yield Violation(join(path, "file_data"), "file.media", message)
    if isinstance(url, str) and _suffix_path(url).endswith(_AUDIO_SUFFIXES):
        message = "The file type you uploaded is not supported. Please try again with a pdf"
        yield Violation(join(path, "file_url"), "file.media", message)


def _suffix_path(url: str) -> str:
    try:
        return urlsplit(url).path.lower()
    except ValueError:
        return ""
