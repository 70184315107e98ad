"""Contents and parts of a generateContent request, one at a time. Sheet sections 2 and 3.

Never reads neighbours (see turns), never decodes media: base64 is judged by its characters.
"""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.gemini.fields import (
    BLOB,
    CALL,
    CODE,
    CODE_RESULT,
    CONTENT,
    FILE,
    HOSTED_CALL,
    HOSTED_RESPONSE,
    PART,
    RESPONSE,
    RESPONSE_PART,
    MessageType,
    check_message,
    listed,
    missing,
    read,
)
from evener.testing.check.models import GeminiRow
from evener.testing.check.shape import Violation, join, shown, text

# Section 3: exactly one of these per part.
DATA: Mapping[str, tuple[MessageType, tuple[str, ...]] | None] = {
    "text": None,
    "inlineData": (BLOB, ("mimeType", "data")),
    "fileData": (FILE, ("fileUri",)),
    "functionCall": (CALL, ("name",)),
    "functionResponse": (RESPONSE, ("name",)),
    "executableCode": (CODE, ()),
    "codeExecutionResult": (CODE_RESULT, ()),
    "toolCall": (HOSTED_CALL, ()),
    "toolResponse": (HOSTED_RESPONSE, ()),
}
# Older requests use "function" for results; the vendor's own examples use "tool".
ROLES = frozenset(("user", "model", "function", "tool"))
_MEDIA = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/[\w.+-]+|application/(pdf|x-javascript|x-python)", re.ASCII
)
_RESULT_MEDIA = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))


def check_contents(contents: object, row: GeminiRow, platform: str) -> Iterator[Violation]:
    """Report errors in each content, without its neighbours."""
    if not listed(contents):
        yield Violation("contents", "contents.empty", "contents is not specified: at least one is required.")
    for index, value in enumerate(listed(contents)):
        path = f"contents[{index}]"
        role = read(value, CONTENT).get("role")
        if isinstance(role, str) and role and role not in ROLES:
            yield Violation(join(path, "role"), "content.role", f"Please use a valid role: user, model. Got {shown(role)}.")
        yield from check_content(path, value, row, platform)


def check_content(path: str, value: object, row: GeminiRow, platform: str) -> Iterator[Violation]:
    """Report errors in one content. The system instruction is one, too."""
    yield from check_message(path, value, CONTENT, platform)
    if not isinstance(value, dict):
        return
    parts = listed(read(value, CONTENT).get("parts"))
    if not parts:
        yield Violation(join(path, "parts"), "parts.empty", "contents.parts must not be empty.")
    for index, part in enumerate(parts):
        at = f"{path}.parts[{index}]"
        yield from check_message(at, part, PART, platform)
        if isinstance(part, dict):
            yield from _check_data(at, read(part, PART), row)


def _check_data(path: str, part: Mapping[str, object], row: GeminiRow) -> Iterator[Violation]:
    """Report missing or surplus data fields, and errors in one. A part with only `videoMetadata` is recorded as accepted."""
    held = [name for name in DATA if name in part]
    if not held and "videoMetadata" not in part:
        yield Violation(path, "part.empty", "required oneof field 'data' must have one initialized field")
    if len(held) > 1:
        yield Violation(path, "part.oneof", f"oneof field 'data' is already set. Cannot set '{held[1]}'.")
    for name in held:
        entry = DATA[name]
        if entry is not None and isinstance(part[name], dict):
            kind, needed = entry
            fields_of = read(part[name], kind)
            yield from check_message(join(path, name), part[name], kind)
            yield from missing(join(path, name), fields_of, *needed)
            if name == "inlineData":
                yield from _check_media(join(path, name), text(fields_of.get("mimeType")))
            if name == "functionResponse":
                yield from _check_result_parts(join(path, name), fields_of, row)


def _check_media(path: str, media: str) -> Iterator[Violation]:
    """Report media of a type that the provider does not list: "Unsupported MIME type"."""
    if media and not _MEDIA.fullmatch(media):
        yield Violation(join(path, "mimeType"), "media.type", f"Unsupported MIME type: {shown(media)}.")


def _check_result_parts(path: str, response: Mapping[str, object], row: GeminiRow) -> Iterator[Violation]:
    """Report media inside a result for models before Gemini 3 (section 3)."""
    parts = listed(response.get("parts"))
    if parts and not row.media_results:
        message = "`function_response.parts` is not supported for this model."
        yield Violation(join(path, "parts"), "function_response.parts", message)
    for index, value in enumerate(parts):
        at = f"{path}.parts[{index}]"
        yield from check_message(at, value, RESPONSE_PART)
        part = read(value, RESPONSE_PART)
        for name, kind, needed in (("inlineData", BLOB, ("mimeType", "data")), ("fileData", FILE, ("fileUri",))):
            if isinstance(part.get(name), dict):
                yield from check_message(join(at, name), part[name], kind)
                yield from missing(join(at, name), read(part[name], kind), *needed)
        media = text(read(part.get("inlineData"), BLOB).get("mimeType"))
        if media and media not in _RESULT_MEDIA:
            message = f"Unsupported MIME type in a function response: {shown(media)}."
            yield Violation(join(at, "inlineData.mimeType"), "function_response.media", message)
