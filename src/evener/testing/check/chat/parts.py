"""Content parts of a Chat message: what may stand there, one part at a time. Sheet section 3.

Never downloads or decodes anything: media is judged by the form of its URL. Only OpenAI's own server is held to the list
of part types; others take more (`document_url`, `video_url`, `thinking` are recorded).
"""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.chat.dialects import ChatDialect
from evener.testing.check.models import ChatRow
from evener.testing.check.responses.parts import IMAGE_URL, loosened
from evener.testing.check.shape import (
    OBJECT,
    STR,
    STR_OR_OBJECT,
    ObjectShape,
    check_shape,
    fields,
    items,
    join,
    one_of,
    shown,
    text,
)
from evener.testing.check.violation import Violation

_BREAKPOINT = {"prompt_cache_breakpoint": OBJECT}
# The Mistral SDK's types allow a bare string for an image or an audio clip, so only OpenAI is held to the object.
_STRICT: Mapping[str, ObjectShape] = {
    "text": ObjectShape({"type": STR, "text": STR}, _BREAKPOINT),
    "image_url": ObjectShape({"type": STR, "image_url": OBJECT}, _BREAKPOINT),
    "input_audio": ObjectShape({"type": STR, "input_audio": OBJECT}, _BREAKPOINT),
    "file": ObjectShape({"type": STR, "file": OBJECT}, _BREAKPOINT),
    "refusal": ObjectShape({"type": STR, "refusal": STR}),
}
_LOOSE: Mapping[str, ObjectShape] = {
    **{kind: loosened(shape) for kind, shape in _STRICT.items()},
    "image_url": ObjectShape({"type": STR, "image_url": STR_OR_OBJECT}, open=True),
    "input_audio": ObjectShape({"type": STR, "input_audio": STR_OR_OBJECT}, open=True),
}
SPEAKERS: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "image_url", "input_audio", "file"),
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
    "function": ("text",),
    "assistant": ("text", "refusal"),
}
_INNER: Mapping[str, ObjectShape] = {
    "image_url": ObjectShape({"url": STR}, {"detail": one_of("auto", "low", "high", "original")}),
    "input_audio": ObjectShape({"data": STR, "format": STR}),
    "file": ObjectShape({}, {"file_data": STR, "file_id": STR, "filename": STR}),
}
_PDF_URL = re.compile(r"data:application/pdf;base64,", re.IGNORECASE)


def check_parts(path: str, content: object, role: str, dialect: ChatDialect) -> Iterator[Violation]:
    """Report parts that this role may not send to this server, or that are malformed."""
    for index, value in enumerate(items(content)):
        at, part = f"{path}[{index}]", fields(value)
        kind = text(part.get("type"))
        if not isinstance(value, dict):
            yield Violation(at, "type", "Input should be an object (a content part).")
        elif kind in dialect.refused_parts or (dialect.known_only and kind not in SPEAKERS[role]):
            allowed = " and ".join(f"'{name}'" for name in SPEAKERS[role] if name not in dialect.refused_parts)
            message = f"Invalid value: {shown(kind)}. Supported values are: {allowed}."
            yield Violation(join(at, "type"), "content.type", message)
        else:
            yield from _check_part(at, part, dialect)


def _check_part(path: str, part: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    kind = text(part.get("type"))
    shape = (_STRICT if dialect.known_only else _LOOSE).get(kind)
    if shape is None:
        yield from check_shape(path, part, ObjectShape({"type": STR}, open=True))
        return
    yield from check_shape(path, part, shape)
    if kind == "text" and part.get("text") == "" and dialect.filled_text:
        yield Violation(join(path, "text"), "text.empty", "text content blocks must be non-empty")
    inner = _INNER.get(kind)
    if inner is not None and isinstance(part.get(kind), dict):
        yield from check_shape(join(path, kind), part[kind], inner if dialect.known_only else loosened(inner))
        yield from _check_media(join(path, kind), kind, fields(part[kind]), dialect)


def _check_media(path: str, kind: str, held: Mapping[str, object], dialect: ChatDialect) -> Iterator[Violation]:
    """OpenAI's limits on each kind of media; a file without any source means nothing to any server."""
    if kind == "file" and held.get("file_data") is None and held.get("file_id") is None:
        yield Violation(path, "file.source", "Missing required parameter: one of file_data, file_id.")
    if not dialect.known_only:
        return
    url, data, form = held.get("url"), held.get("file_data"), held.get("format")
    if kind == "image_url" and isinstance(url, str) and not IMAGE_URL.match(url):
        message = "Expected a valid URL, or a base64-encoded data URL of a PNG, JPEG, GIF or WebP image."
        yield Violation(join(path, "url"), "image.url", message)
    if kind == "input_audio" and isinstance(form, str) and form not in ("wav", "mp3"):
        message = f"Invalid value: {shown(form)}. Supported values are: 'wav' and 'mp3'."
        yield Violation(join(path, "format"), "audio.format", message)
    # The recorded refusal of an uploaded image names PDF as the only type; so does the refusal of plain URLs in reports.
    if kind == "file" and isinstance(data, str) and not _PDF_URL.match(data):
        message = "Expected a base64-encoded data URL with an application/pdf MIME type."
        yield Violation(join(path, "file_data"), "file.data_url", message)


def check_audio(path: str, content: object, row: ChatRow) -> Iterator[Violation]:
    """Report audio sent to a model that does not listen [recorded]; the API names the message, not the part."""
    if not row.audio and any(fields(part).get("type") == "input_audio" for part in items(content)):
        message = f"Invalid '{path}'. Content blocks are expected to be either text or image_url type."
        yield Violation(path, "audio.model", message)
