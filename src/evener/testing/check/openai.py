"""Rules of both OpenAI wires: settings, names, media, JSON mode. Pure; no JSON value makes it raise."""

import re
from collections.abc import Iterator, Mapping

from evener.testing.check.shape import Kind, Violation, fields, is_json, is_number, items, join, limited, text

NAME = r"[a-zA-Z0-9_-]{1,64}"
LONG_NAME = r"[a-zA-Z0-9_-]{1,128}"
WRONG_NAME = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 64 characters."
WRONG_LONG_NAME = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' with 1 to 128 characters."
# The provider's words from the field: "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif',
# 'webp']".
IMAGE_URL = r"(?s:(https?://|data:image/(png|jpeg|gif|webp);base64,).*)"
WRONG_IMAGE = "Expected a valid URL, or a base64-encoded data URL of a PNG, JPEG, GIF or WebP image."
MAX_CACHE_KEY = 64  # Responses sheet section 11
_PRINTABLE = 1_000_000
_MAX_PAIRS, _MAX_KEY, _MAX_VALUE = 16, 64, 512


def json_text(broken: Violation, word: str = "str") -> Kind:
    """Return the kind of texts that are JSON, such as the arguments of a call. With `word`, other types are allowed, too."""
    return limited(word, lambda value: isinstance(value, dict) or is_json(value), broken)


def check_ranges(body: Mapping[str, object], ranges: Mapping[str, tuple[float, float]]) -> Iterator[Violation]:
    """Report numbers outside their range."""
    for name, (least, most) in ranges.items():
        value = body.get(name)
        if not isinstance(value, int | float) or not is_number(value) or least <= value <= most:
            continue
        # Python refuses to print an integer of thousands of digits, so only numbers near the range are shown.
        got = str(value) if abs(value) < _PRINTABLE else "one far outside of it"
        yield Violation(name, "range", f"Invalid '{name}': expected a value >= {least} and <= {most}, but got {got}.")


def check_cache_key(body: Mapping[str, object]) -> Iterator[Violation]:
    """Report a prompt cache key that is too long for OpenAI."""
    if len(text(body.get("prompt_cache_key"))) > MAX_CACHE_KEY:
        message = f"Invalid 'prompt_cache_key': string too long. Expected at most {MAX_CACHE_KEY} characters."
        yield Violation("prompt_cache_key", "cache_key.length", message)


def check_metadata(metadata: object) -> Iterator[Violation]:
    """Report metadata beyond OpenAI's limits."""
    pairs = fields(metadata)
    if len(pairs) > _MAX_PAIRS:
        yield Violation("metadata", "metadata", f"Expected at most {_MAX_PAIRS} pairs.")
    for key, value in pairs.items():
        if len(str(key)) > _MAX_KEY or not isinstance(value, str) or len(value) > _MAX_VALUE:
            message = f"Expected strings of at most {_MAX_KEY} (key) and {_MAX_VALUE} (value) characters."
            yield Violation(join("metadata", str(key)[:_MAX_KEY]), "metadata", message)


def says_json(said: object) -> bool:
    """True if messages or items say "json" in any letter case, as JSON mode requires."""
    places = [one.get(name) for one in map(fields, items(said)) for name in ("content", "output")]
    texts = [*places, *(fields(part).get("text") for place in places for part in items(place))]
    return any(re.search("json", text(one), re.IGNORECASE) for one in texts)
